"""ThresholdExplorer: move thresholds and see at once what they would keep.

    ThresholdExplorer(run)                                  # or rows, as `tune_thresholds` takes them
    ThresholdExplorer(cotkit.tune_thresholds(run, rule="any"))

It begins where tuning ended. From there a slider a dimension (or one for their mean) moves precision, recall,
kept share and the confusion table. What is saved is a thresholds.json for `distill(score_threshold=...)`; a
threshold that was moved by hand carries no certificate, and the file says so.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cotkit.analysis import Path, Rate, ThresholdReport, tune_thresholds
from cotkit.widgets.base import Widget, button, share_bar, text

RULES = {
    "all": "every used score reaches its threshold",
    "any": "one used score reaches its threshold",
    "mean": "the mean of the scores reaches the threshold",
}
MEAN = "the mean"  # beside the dimensions, one of which may be called "mean"
UNUSED = {"all": -math.inf, "any": math.inf, "mean": math.nan}  # a threshold that decides nothing
SAID = {
    "precision": ("kept traces", "are right"),
    "recall": ("right traces", "are kept"),
    "kept": ("traces", "are kept"),
}


class ThresholdExplorer(Widget):
    """frame: a Run, Runs, rows or a file, read as `tune_thresholds(frame, score_columns, label, group)` reads
    them; or a ThresholdReport, for other options.

    `rule`, `limits` {dimension, or MEAN: threshold} and `used` (the dimensions that count under "all" and
    "any") are what is set; `choose` sets them. `shares` holds precision, recall and kept as Rates over
    problems, `confusion` {("kept" or "dropped", "right" or "wrong"): traces}.
    """

    def __init__(
        self,
        frame: Any,
        score_columns: Sequence[str] | None = None,
        label: str = "correct",
        group: str | None = "id",
    ):
        if not isinstance(frame, ThresholdReport):
            frame = tune_thresholds(frame, score_columns, label, group, rule="all", resamples=2)
        self.report, self.names = frame, tuple(frame.record["dimensions"])
        self.rules = tuple(RULES) if len(self.names) > 1 else ("all",)
        rows = frame.rows[frame.rows["tuned"]]
        self._scores = rows[list(frame.scores["score"])].to_numpy(float)
        self._right = rows["right"].to_numpy(bool)
        self._problem = rows["problem"].to_numpy()
        values = np.column_stack([self._scores, self._scores.mean(axis=1)])
        self.ranges = {
            name: (min(0, math.floor(column.min())), max(1, math.ceil(column.max())))
            for name, column in zip((*self.names, MEAN), values.T, strict=True)
        }
        self.limits, self.used = {name: float(low) for name, (low, _) in self.ranges.items()}, set(self.names)
        rule, found = frame.record["rule"], frame.record["thresholds"]
        known = found is not None and rule in (*RULES, "min")  # with other rules nothing can be moved
        keep_all = {name: self.limits[name] for name in self.names}
        self._begin = ("all" if rule == "min" or not known else rule, found if known else keep_all)
        self.reset()
        self._tuned = self.path.describe(0) if known else None

    def reset(self) -> None:
        """Back to what was tuned; where no such threshold was found, to keeping everything."""
        self.choose(*self._begin)

    def choose(self, rule: str, thresholds: float | Mapping[str, float]) -> None:
        """Sets rule and thresholds: a number for the mean, or for every dimension; or a dict of those that
        count. Raises ValueError for a rule or dimension there is not, or a threshold beyond the scores."""
        if rule not in self.rules:
            raise ValueError(f"rule is one of {', '.join(self.rules)}; got {rule!r}")
        if not isinstance(thresholds, Mapping):
            thresholds = dict.fromkeys([MEAN] if rule == "mean" else self.names, thresholds)
        for name, limit in thresholds.items():
            if (name == MEAN) != (rule == "mean") or name not in self.ranges:
                raise ValueError(f"rule {rule!r} has no score {name!r}; there are: {', '.join(self.names)}")
            low, high = self.ranges[name]
            if not low <= limit <= high:
                raise ValueError(f"the threshold of {name} lies in {low:g}..{high:g}; got {limit!r}")
        self.rule, self.limits = rule, self.limits | dict(thresholds)
        self.used = self.used if rule == "mean" else set(thresholds)
        self._measure()

    @property
    def path(self) -> Path:
        """What is set, as a path of one step."""
        limits = [self.limits[name] if name in self.used else UNUSED[self.rule] for name in self.names]
        limits = [self.limits[MEAN]] if self.rule == "mean" else limits
        return Path(self.rule, self.names, np.array([limits]))

    @property
    def is_tuned(self) -> bool:
        """Whether these are still the thresholds that tuning found."""
        return self.path.describe(0) == self._tuned

    def in_words(self) -> str:
        return self.path.in_words(0) or "no threshold"

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes a thresholds.json; with the certificate, if there is one, only while nothing was moved.
        Raises ValueError when no score is used."""
        if self.rule != "mean" and not self.used:
            raise ValueError("no score is used: there is no threshold to save")
        record = self.report.record if self.is_tuned else self._by_hand()
        return dataclasses.replace(self.report, record=record).save(path)

    def _by_hand(self) -> dict[str, Any]:
        """The report's record for what is set now: same rows, same judge, nothing tested."""
        n, tuned = len(self._right), self.report.record
        shares = {name: (rate.value, rate.low, rate.high) for name, rate in self.shares.items()}
        known = {name: [None if math.isnan(x) else float(x) for x in share] for name, share in shares.items()}
        gone = dict.fromkeys(("p_value", "labels_needed", "target_precision", "delta"))
        record = tuned | gone | self.path.describe(0)
        record |= {
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "certified": False,
            "report": known,
            "n": tuned["n"] | {"tested": 0, "tested_kept": 0, "tested_wrong": 0, "report_rows": n},
            "reason": f"set by hand while looking at {n:,} labelled rows; on others fewer may be right",
        }
        return {name: value for name, value in record.items() if name not in ("weights", "intercept")}

    def _measure(self) -> None:
        kept, right, problem = self.path.step_of(self._scores) == 0, self._right, self._problem
        self.shares = {
            "precision": Rate.of_grouped(right[kept], problem[kept]),
            "recall": Rate.of_grouped(kept[right], problem[right]),
            "kept": Rate.of_grouped(kept, problem),
        }
        self.confusion = {
            (outcome, verdict): int((rows & verdicts).sum())
            for outcome, rows in (("kept", kept), ("dropped", ~kept))
            for verdict, verdicts in (("right", right), ("wrong", ~right))
        }
        self.redraw()

    def static(self) -> str:
        shares = "".join(
            f"<tr><th scope='row'>{name}</th><td>{share_bar(rate.value, rate.low, rate.high)}</td>"
            f"<td>{rate.in_words(SAID[name][0])} {SAID[name][1]}</td></tr>"
            for name, rate in self.shares.items()
        )
        counts = "".join(
            f"<tr><th scope='row'>{outcome}</th><td>{self.confusion[outcome, 'right']:,}</td>"
            f"<td>{self.confusion[outcome, 'wrong']:,}</td></tr>"
            for outcome in ("kept", "dropped")
        )
        reason = self.report.record["reason"]
        how = reason if self.is_tuned else f"set by hand: no certificate (tuning said: {reason})"
        return (
            f"<div aria-live='polite'><b>{text(self.in_words())}</b><br>{text(how)}</div>"
            f"<table class='ck' aria-label='shares'>{shares}</table>"
            "<table class='ck' aria-label='confusion'><tr><th>traces</th><th>right</th><th>wrong</th></tr>"
            f"{counts}</table><div class='ck-quiet'>{len(self._right):,} labelled traces of "
            f"{len(np.unique(self._problem)):,} problems, 95 % intervals over problems. A threshold that "
            "looks best on these traces does less well on others.</div>"
        )

    # The view.

    def build(self) -> list[Any]:
        import ipywidgets as w

        options = [(words, rule) for rule, words in RULES.items() if rule in self.rules]
        self._rule = w.Dropdown(
            options=options, description="keep if", tooltip="The rule that decides", layout={"width": "auto"}
        )
        self._sliders = {name: self._scale(w.FloatSlider, name, readout=False) for name in self.ranges}
        self._boxes = {name: self._scale(w.BoundedFloatText, name, description=name) for name in self.ranges}
        self._uses = {
            name: w.Checkbox(description=f"use {name}", tooltip=f"Whether {name} counts", indent=False)
            for name in self.names
        }
        for control in (self._rule, *self._sliders.values(), *self._uses.values()):
            self.heed(control, lambda _: self._moved())
        for name, slider in self._sliders.items():
            self.heed(self._boxes[name], functools.partial(setattr, slider, "value"))
        rows = {name: [self._boxes[name], slider] for name, slider in self._sliders.items()}
        self._rows = {
            name: w.HBox([*row, *([self._uses[name]] if name in self._uses else [])])
            for name, row in rows.items()
        }
        self._file = w.Text("thresholds.json", description="save as", tooltip="File of the thresholds")
        save = button("Save thresholds", self._save, tooltip="For distill(score_threshold=...)")
        files = w.HBox([self._file, save, button("As tuned", self.reset, tooltip="Back to where it began")])
        self._shown, self._saved = w.HTML(), w.HTML()
        return [self._rule, *self._rows.values(), self._shown, files, self._saved]

    def _scale(self, kind: Any, name: str, **look: Any) -> Any:
        """A slider, or the box of the same number: screen readers read the box's name, not the slider's."""
        low, high = self.ranges[name]
        look |= {"style": {"description_width": "9em"}, "tooltip": f"Threshold of {name}"}
        return kind(min=low, max=high, step=(high - low) / 100, **look)

    def _moved(self) -> None:
        self.rule = self._rule.value
        self.limits = {name: slider.value for name, slider in self._sliders.items()}
        self.used = {name for name, box in self._uses.items() if box.value}
        self._measure()

    def _save(self) -> None:
        try:
            self._saved.value = f"saved {text(self.in_words())} in {text(self.save(self._file.value))}"
        except (ValueError, OSError) as error:
            self._saved.value = f"<span role='alert'>not saved: {text(error)}</span>"

    def draw(self) -> None:
        self._rule.value, self._saved.value = self.rule, ""
        for name, slider in self._sliders.items():
            slider.value = self._boxes[name].value = self.limits[name]
            self._rows[name].layout.display = None if (name == MEAN) == (self.rule == "mean") else "none"
        for name, box in self._uses.items():
            box.value, box.layout.display = name in self.used, None if len(self.names) > 1 else "none"
        self._shown.value = self.static()

    def __repr__(self) -> str:
        return f"ThresholdExplorer({self.in_words()}: precision {self.shares['precision']})"
