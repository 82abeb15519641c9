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
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cotkit.analysis import Path, Rate, ThresholdReport, tune_thresholds
from cotkit.widgets.base import STYLE, Widget, button, share_bar, text

RULES = {
    "all": "every used score reaches its threshold",
    "any": "one used score reaches its threshold",
    "mean": "the mean of the scores reaches the threshold",
}
UNUSED = {"all": -math.inf, "any": math.inf}  # a threshold that decides nothing


class ThresholdExplorer(Widget):
    """frame: a Run, Runs, a DataFrame or a file, read as `tune_thresholds(frame, score_columns, label, group)`
    reads it; or a ThresholdReport, for other options.

    `rule`, `limits` {dimension: threshold}, `used` (the dimensions that count) and `mean_limit` are what is
    set, `choose` sets them; `shares` holds precision, recall and kept as Rates over problems, `confusion`
    {("kept" or "dropped", "right" or "wrong"): traces}.
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
        self.report = frame
        self.names = tuple(frame.record["dimensions"])
        rows = frame.rows[frame.rows["tuned"]]
        self._scores = rows[list(frame.scores["score"])].to_numpy(float)
        self._right = rows["right"].to_numpy(bool)
        self._problem = np.unique(rows["id"].to_numpy(str), return_inverse=True)[1]
        low, high = self._scores.min(axis=0), self._scores.max(axis=0)
        self.ranges = {
            name: (min(0.0, math.floor(a)), max(1.0, math.ceil(b)))
            for name, a, b in zip(self.names, low, high, strict=True)
        }
        rule, found = frame.record["rule"], frame.record["thresholds"]
        known = found is not None and rule in (*RULES, "min")  # of the others there is nothing to move
        self.limits = {name: low for name, (low, _) in self.ranges.items()}
        self.mean_limit, self.used = self._range("mean")[0], set(self.names)
        self._begin = ("all" if rule == "min" or not known else rule, found if known else self.limits)
        self.reset()
        self._tuned = self._state() if known else None

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(RULES) if len(self.names) > 1 else ("all",)

    def reset(self) -> None:
        """Back to what was tuned; to thresholds that keep everything where that found none, or another rule
        than these."""
        self.choose(*self._begin)

    def choose(self, rule: str, thresholds: float | Mapping[str, float]) -> None:
        """Sets rule and thresholds: a number for the mean, or for every dimension; or a dict of those that
        count. Raises ValueError for a rule or dimension there is not, or a threshold beyond the scores."""
        if rule not in self.rules:
            raise ValueError(f"rule is one of {', '.join(self.rules)}; got {rule!r}")
        if rule == "mean":
            self.mean_limit = self._checked("mean", thresholds)
        else:
            if not isinstance(thresholds, Mapping):
                thresholds = dict.fromkeys(self.names, thresholds)
            self.limits |= {name: self._checked(name, limit) for name, limit in thresholds.items()}
            self.used = set(thresholds)
        self.rule = rule
        self._draw()

    def _range(self, name: str) -> tuple[float, float]:
        lows, highs = zip(*self.ranges.values(), strict=True)
        return (min(lows), max(highs)) if name == "mean" else self.ranges[name]

    def _checked(self, name: str, limit: Any) -> float:
        if name not in (*self.names, "mean"):
            raise ValueError(f"there is no score {name!r}; there are: {', '.join(self.names)}")
        low, high = self._range(name)
        if isinstance(limit, Mapping) or not low <= limit <= high:
            raise ValueError(f"the threshold of {name} lies in {low:g}..{high:g}; got {limit!r}")
        return float(limit)

    @property
    def path(self) -> Path:
        """What is set, as a path of one step."""
        free = UNUSED.get(self.rule, 0.0)
        limits = [self.limits[name] if name in self.used else free for name in self.names]
        return Path(self.rule, self.names, np.array([[self.mean_limit] if self.rule == "mean" else limits]))

    @property
    def is_tuned(self) -> bool:
        """Whether these are still the thresholds that tuning found."""
        return self._state() == self._tuned

    def in_words(self) -> str:
        return self.path.in_words(0) or "no threshold"

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes a thresholds.json; with its certificate, if it has one, only while nothing was moved.
        Raises ValueError when no score is used."""
        if self.rule != "mean" and not self.used:
            raise ValueError("no score is used: there is no threshold to save")
        record = self.report.record if self.is_tuned else self._record()
        return dataclasses.replace(self.report, record=record).save(path)

    def _record(self) -> dict[str, Any]:
        found = {k: v for k, v in self.report.record.items() if k not in ("weights", "intercept")}
        n = len(self._right)
        reason = f"set by hand while looking at {n:,} labelled rows; other rows may be right less often"
        shares = {
            name: [None if math.isnan(x) else float(x) for x in (rate.value, rate.low, rate.high)]
            for name, rate in self.shares.items()
        }
        untested = {"tested": 0, "tested_kept": 0, "tested_wrong": 0, "report_rows": n}
        return found | {
            **self.path.describe(0),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **{"certified": False, "p_value": None, "labels_needed": None, "target_precision": None},
            **{"delta": None, "report": shares, "n": found["n"] | untested, "reason": reason},
        }

    def _state(self) -> dict[str, Any]:
        return self.path.describe(0)

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

    def static(self) -> str:
        said = {
            "precision": ("kept traces", "are right"),
            "recall": ("right traces", "are kept"),
            "kept": ("traces", "are kept"),
        }
        rows = "".join(
            f"<tr><th scope='row'>{name}</th><td>{share_bar(rate.value, rate.low, rate.high)}</td>"
            f"<td>{rate.in_words(said[name][0])} {said[name][1]}</td></tr>"
            for name, rate in self.shares.items()
        )
        counts = "".join(
            f"<tr><th scope='row'>{outcome}</th><td>{self.confusion[outcome, 'right']:,}</td>"
            f"<td>{self.confusion[outcome, 'wrong']:,}</td></tr>"
            for outcome in ("kept", "dropped")
        )
        reason = self.report.record["reason"]
        how = reason if self.is_tuned else f"set by hand: no certificate (tuning: {reason})"
        problems = self._problem.max() + 1
        return (
            f"<div aria-live='polite'><b>{text(self.in_words())}</b><br>{text(how)}</div>"
            f"<table class='ck' aria-label='shares'>{rows}</table>"
            f"<table class='ck' aria-label='confusion'><tr><th>traces</th><th>right</th><th>wrong</th></tr>"
            f"{counts}</table><div class='ck-quiet'>{len(self._right):,} labelled traces of {problems:,} "
            "problems; 95 % intervals over problems. A threshold that looks best on these traces does less "
            "well on others.</div>"
        )

    # The view.

    def build(self) -> Any:
        import ipywidgets as w

        options = [(words, rule) for rule, words in RULES.items() if rule in self.rules]
        self._rule = w.Dropdown(
            options=options, description="keep if", tooltip="The rule that decides", layout={"width": "auto"}
        )
        self._rule.observe(lambda change: self._set("rule", change["new"]), "value")
        self._sliders = {name: self._slider(name) for name in (*self.names, "mean")}
        self._uses = {
            name: w.Checkbox(
                description=f"use {name}",
                tooltip=f"Whether {name} counts",
                indent=False,
                layout={"width": "auto"},
            )
            for name in self.names
        }
        for name, box in self._uses.items():
            box.observe(lambda change, name=name: self._use(name, change["new"]), "value")
        self._rows = [w.HBox([self._sliders[name], self._uses[name]]) for name in self.names]
        self._file = w.Text("thresholds.json", description="save as", tooltip="File of the thresholds")
        save = [
            self._file,
            button(
                "Save thresholds", self._save, tooltip="Write the file that distill(score_threshold=) takes"
            ),
            button("As tuned", self.reset, tooltip="Back to where it began"),
        ]
        self._shown, self._saved = w.HTML(), w.HTML()
        view = w.VBox(
            [self._rule, *self._rows, self._sliders["mean"], self._shown, w.HBox(save), self._saved]
        )
        self._draw()
        return view

    def _slider(self, name: str) -> Any:
        import ipywidgets as w

        low, high = self._range(name)
        slider = w.FloatSlider(
            min=low, max=high, step=(high - low) / 100, description=name, tooltip=f"Threshold of {name}",
            style={"description_width": "initial"}, layout={"width": "28em"},
        )  # fmt: skip
        slider.observe(lambda change: self._limit(name, change["new"]), "value")
        return slider

    def _limit(self, name: str, limit: float) -> None:
        if name == "mean":
            self._set("mean_limit", limit)
        elif limit != self.limits[name]:
            self.limits[name] = limit
            self._draw()

    def _use(self, name: str, used: bool) -> None:
        if used != (name in self.used):
            self.used ^= {name}
            self._draw()

    def _set(self, name: str, value: Any) -> None:
        if getattr(self, name) != value:
            setattr(self, name, value)
            self._draw()

    def _save(self) -> None:
        try:
            self._saved.value = f"saved: {text(self.in_words())} in {text(self.save(self._file.value))}"
        except (ValueError, OSError) as error:
            self._saved.value = f"<span role='alert'>not saved: {text(error)}</span>"

    def _draw(self) -> None:
        self._measure()
        if not hasattr(self, "_saved"):
            return
        self._rule.value, self._saved.value = self.rule, ""
        for name, slider in self._sliders.items():
            slider.value = self.mean_limit if name == "mean" else self.limits[name]
        for name, box in self._uses.items():
            box.value = name in self.used
            box.layout.display = None if len(self.names) > 1 else "none"
        for row, shown in [(row, self.rule != "mean") for row in self._rows] + [
            (self._sliders["mean"], self.rule == "mean")
        ]:
            row.layout.display = None if shown else "none"
        self._shown.value = f"{STYLE}{self.static()}"

    def __repr__(self) -> str:
        return f"ThresholdExplorer({self.in_words()}: precision {self.shares['precision']})"
