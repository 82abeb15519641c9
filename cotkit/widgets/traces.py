"""TraceBrowser: read a run, problem by problem, and say what you think of its traces.

    TraceBrowser(run)

Filters and sorting above, the problem with its mathematics and all candidates below; what changed from one
iteration to the next is marked word by word. Tab and Enter reach and press everything. A label (good, bad,
unsure, with a note) is written beside the run at once; `tune_thresholds(run, label="person")` takes labels in
place of the verdicts.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from cotkit.analysis import trace_cards
from cotkit.records import Candidate, Row
from cotkit.runs import Run, open_run
from cotkit.shown import VERBATIM, mended
from cotkit.widgets.base import Widget, button, facts, mathematics, named, text
from cotkit.widgets.trace_set import SORTS, SPANS, TraceSet
from cotkit.widgets.words import word_diff


class TraceBrowser(Widget):
    """run: a Run, or its name or folder. `traces` holds filter, sort and place; `show(...)` sets them."""

    def __init__(self, run: Run | str | os.PathLike[str]):
        self.traces = TraceSet(run if isinstance(run, Run) else open_run(run))

    def show(self, **filters: Any) -> None:
        """Sets the sort or filters: verdict, outcome, type, label, search; score, length and iterations as
        (least, most)."""
        self.traces.apply(**filters)
        self.redraw()

    def next(self) -> None:
        self.traces.step(1)
        self.redraw()

    def previous(self) -> None:
        self.traces.step(-1)
        self.redraw()

    def label(self, label: str, candidate: int | None = None, note: str = "") -> None:
        """Labels the candidate that is looked at, or the one of that number."""
        row = self.traces.row
        if row is None or not row.candidates:
            raise ValueError("there is no trace here to label")
        self.traces.say(self._candidate(row) if candidate is None else candidate, label, note)
        if self._view is not None:
            self._note.value = ""
            self._draw_candidate()

    def export(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes the chosen problems as JSON lines; returns the path."""
        return self.traces.export(path)

    def where(self) -> str:
        chosen, all_ = len(self.traces.chosen), len(self.traces.lines)
        if not chosen:
            return f"no problem of {all_:,} passes the filters"
        cycle = "" if self.traces.cycle is None else f", cycle {self.traces.cycle}"
        return f"problem {self.traces.place + 1:,} of {chosen:,} (of {all_:,} in the run){cycle}"

    def static(self) -> str:
        row = self.traces.row
        return f"<div class='ck-quiet'>{text(self.where())}</div>" + (trace_cards([row]) if row else "")

    def __repr__(self) -> str:
        return f"TraceBrowser({self.traces.run.path.name}: {self.where()})"

    # The view.

    def build(self) -> list[Any]:
        import ipywidgets as w

        auto = {"width": "auto"}
        self._filters = {
            name: w.Dropdown(options=named(self.traces.choices(name)), description=name, layout=auto)
            for name in ("outcome", "verdict", "type", "label")
        }
        self._filters["search"] = w.Text(description="search", placeholder="in id and problem")
        self._filters["sort"] = w.Dropdown(options=SORTS, description="sort by", layout=auto)
        for name, control in self._filters.items():
            control.continuous_update = False
            self.heed(control, lambda value, name=name: self.show(**{name: value}))
        self._spans = {name: self._span(name) for name in SPANS}
        self._where, self._said, self._saved = w.HTML(), w.HTML(), w.HTML()
        self._problem, self._trace = w.HTMLMath(), w.HTMLMath()
        self._candidates = w.Dropdown(description="candidate", layout=auto)
        self.heed(self._candidates, lambda _: self._draw_candidate())
        self._note = w.Text(description="note", placeholder="why (optional)")
        self._file = w.Text(value="selection.jsonl", description="save as")
        back = button("◀ Previous", self.previous, tooltip="The problem before this one")
        on = button("Next ▶", self.next, tooltip="The problem after this one")
        labels = (("good", "success"), ("bad", "danger"), ("unsure", ""))
        boxes = [box for span in self._spans.values() for box in span]
        return [
            *(w.Box(row, layout={"flex_flow": "row wrap"}) for row in (list(self._filters.values()), boxes)),
            w.HBox([back, on, self._where]),
            self._problem,
            self._candidates,
            self._trace,
            w.HBox([*(self._labeller(*label) for label in labels), self._note, self._said]),
            w.HBox([self._file, button("Save selection", self._save, tooltip="Write the chosen rows")]),
            self._saved,
        ]

    def _span(self, name: str) -> list[Any]:
        """Boxes for the least and the most of a number; at the ends they filter nothing."""
        import ipywidgets as w

        low, high = self.traces.span(name)
        kind = w.BoundedFloatText if name == "score" else w.BoundedIntText

        def narrowed(_: Any) -> None:
            span = tuple(box.value for box in boxes)
            self.show(**{name: None if span == (low, high) else span})

        look = {
            "layout": {"width": "12em"},
            "style": {"description_width": "initial"},
            "continuous_update": False,
        }
        step = 0.05 if name == "score" else 1
        boxes = [
            kind(value, min=low, max=high, step=step, description=f"{name} {side}", **look)
            for side, value in (("from", low), ("to", high))
        ]
        for box in boxes:
            self.heed(box, narrowed)
        return boxes

    def _labeller(self, label: str, style: str) -> Any:
        def say() -> None:
            if (row := self.traces.row) is not None and row.candidates:
                self.label(label, note=self._note.value)

        words = f"Label this candidate as {label}; saved beside the run"
        return button(label.capitalize(), say, tooltip=words, style=style)

    def _save(self) -> None:
        path = self.export(self._file.value)
        self._saved.value = f"{len(self.traces.chosen):,} problems in {text(path)}"

    def _candidate(self, row: Row) -> int:
        chosen = self._candidates.value if self._view is not None else None
        return chosen if chosen is not None else row.final or 0

    def draw(self) -> None:
        row = self.traces.row
        self._filters["sort"].value = self.traces.sort
        for name, value in vars(self.traces.filter).items():
            if name in self._filters:
                self._filters[name].value = mended(value) if name == "search" else value
            if name in self._spans:
                for box, end in zip(self._spans[name], value or self.traces.span(name), strict=True):
                    box.value = min(max(end, box.min), box.max)
        self._where.value = f'<span aria-live="polite">{text(self.where())}</span>'
        self._note.value = self._problem.value = ""
        candidates = row.candidates if row else []
        self._candidates.options = [
            (candidate_name(c, number == row.final), number) for number, c in enumerate(candidates)
        ]
        if row:
            self._problem.value = problem_html(row)
            self._candidates.value = (row.final or 0) if candidates else None
        self._draw_candidate()

    def _draw_candidate(self) -> None:
        row, number = self.traces.row, self._candidates.value
        self._trace.value = self._said.value = ""
        if row and number is not None:
            self._trace.value = candidate_html(row, number)
            if said := self.traces.label(number):
                by = f"by {text(said['by'])} {text(said['note'])}"
                self._said.value = f"labelled <b>{text(said['label'])}</b> {by}"


def problem_html(row: Row) -> str:
    outcome = "kept" if row.accepted else f"dropped: {row.drop_reason}"
    why = f": {row.detail}" if row.detail else ""
    return (
        f"<div><b>{text(row.id)}</b> <span class='ck-quiet'>{text(row.type or '')}</span> "
        f"{text(outcome + why)}</div><div class='ck-words'>{mathematics(row.problem)}</div>"
        + facts({"reference": row.reference, "licence": row.licence})
    )


def candidate_name(c: Candidate, final: bool) -> str:
    stage = {"draft": f"draft {c.sample_index + 1}", "refine": f"refinement {c.iteration}"}.get(
        c.stage, "with hint"
    )
    mean = c.judgement.mean if c.judgement else None
    score = "" if mean is None else f", score {mean:.2f}"
    return f"{stage}: {c.verdict.in_words}{score}{' (final)' if final else ''}"


def candidate_html(row: Row, number: int) -> str:
    """The trace, against the one it was refined from where there is one, its verdict, scores and origin."""
    c = row.candidates[number]
    parent = row.candidates[c.parent] if c.parent is not None else None
    words = mathematics(c.trace)
    if parent is not None:
        words = f"<div class='{VERBATIM}'>{word_diff(parent.trace, c.trace)}</div>"
    told = f"<div class='ck-quiet'>told: {text(parent.feedback)}</div>" if parent and parent.feedback else ""
    origin = {
        "answer": c.answer if c.answer is not None else "none found",
        "verdict": f"{c.verdict.in_words} ({c.verdict.method}) {c.verdict.reason}",
        "model": c.call.get("served_model") or c.call.get("model"),
        "at": c.call.get("endpoint"),
        "prompt": f"{c.prompt.get('name')} {c.prompt.get('hash')}" if c.prompt else None,
        "seed": c.call.get("seed"),
        "saw the reference": "yes" if c.saw_reference else None,
        "signs of the hint": ", ".join(c.leaks) or None,
    }
    return f"{told}<div class='ck-words'>{words}</div>{facts(origin)}{_scores(c)}"


def _scores(c: Candidate) -> str:
    if c.judgement is None:
        return ""
    if c.judgement.scores is None:
        return f"<div>the judge failed: {text(c.judgement.error)}</div>"
    reasons = c.judgement.reasons
    lines = "".join(
        f"<tr><td>{text(name)}</td><td>{score:.2f}</td><td>{text(reasons.get(name, ''))}</td></tr>"
        for name, score in c.judgement.scores.items()
    )
    return f'<table class="ck"><tr><th>dimension</th><th>score</th><th>reason</th></tr>{lines}</table>'
