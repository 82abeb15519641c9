"""TraceBrowser: read a run, problem by problem, and say what you think of its traces.

    TraceBrowser(run)

Filters and sorting above, the problem with its mathematics and all candidates below; what changed from one
iteration to the next is marked word by word. Buttons and the keys of their labels go on and back. A label
(good, bad, unsure, with a note) is written beside the run at once.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from cotkit.analysis import trace_cards
from cotkit.records import Candidate, Row
from cotkit.runs import Run, open_run
from cotkit.widgets.base import STYLE, Widget, button, facts, text
from cotkit.widgets.trace_set import SORTS, VERDICTS, TraceSet
from cotkit.widgets.words import word_diff

MARKS = {True: "✓", False: "✗", None: "?"}


class TraceBrowser(Widget):
    """run: a Run, or its name or folder. `traces` holds filter, sort and place; `show(...)` sets them."""

    def __init__(self, run: Run | str | os.PathLike[str]):
        self.traces = TraceSet(run if isinstance(run, Run) else open_run(run))

    def show(self, **filters: Any) -> None:
        """Sets filters (verdict, outcome, type, label, search, least_score, ...) or the sort."""
        self.traces.apply(**filters)
        self._draw()

    def next(self) -> None:
        self.traces.step(1)
        self._draw()

    def previous(self) -> None:
        self.traces.step(-1)
        self._draw()

    def label(self, label: str, candidate: int | None = None, note: str = "") -> None:
        """Labels the candidate that is looked at, or the one of that number."""
        row = self.traces.row
        if row is None or not row.candidates:
            raise ValueError("there is no trace here to label")
        self.traces.say(self._candidate(row) if candidate is None else candidate, label, note)
        self._draw()

    def export(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes the chosen problems as JSON lines; returns the path."""
        return self.traces.export(path)

    def where(self) -> str:
        chosen, all_ = len(self.traces.chosen), len(self.traces.lines)
        return (
            f"problem {self.traces.place + 1:,} of {chosen:,} (of {all_:,} in the run)"
            if chosen
            else (f"no problem of {all_:,} passes the filters")
        )

    def static(self) -> str:
        row = self.traces.row
        return f"<div class='ck-quiet'>{text(self.where())}</div>" + (trace_cards([row]) if row else "")

    def __repr__(self) -> str:
        return f"TraceBrowser({self.traces.run.path.name}: {self.where()})"

    # The view.

    def build(self) -> Any:
        import ipywidgets as w

        self._filters = {
            name: w.Dropdown(options=self.traces.choices(name), description=name, layout={"width": "auto"})
            for name in ("outcome", "verdict", "type", "label")
        }
        self._sort = w.Dropdown(options=SORTS, description="sort by", layout={"width": "auto"})
        self._search = w.Text(description="search", placeholder="in id and problem", continuous_update=False)
        for name, control in self._filters.items():
            control.observe(lambda change, name=name: self.show(**{name: change["new"]}), "value")
        self._sort.observe(lambda change: self.show(sort=change["new"]), "value")
        self._search.observe(lambda change: self.show(search=change["new"]), "value")
        self._where = w.HTML()
        self._candidates = w.Dropdown(description="candidate", layout={"width": "auto"})
        self._candidates.observe(lambda change: self._draw_candidate(), "value")
        self._problem, self._trace = w.HTMLMath(), w.HTMLMath()
        self._note = w.Text(description="note", placeholder="why (optional)")
        self._said = w.HTML()
        self._file = w.Text(value="selection.jsonl", description="save as")
        steps = w.HBox(
            [
                button("◀ Previous", self.previous, tooltip="The problem before this one"),
                button("Next ▶", self.next, tooltip="The problem after this one"),
                self._where,
            ]
        )
        labels = w.HBox(
            [
                self._labeller("Good", "good", "success"),
                self._labeller("Bad", "bad", "danger"),
                self._labeller("Unsure", "unsure", ""),
                self._note,
                self._said,
            ]
        )
        save = w.HBox([self._file, button("Save selection", self._save, tooltip="Write the chosen rows")])
        self._saved = w.HTML()
        filters = w.HBox([*self._filters.values(), self._sort, self._search])
        filters.layout.flex_flow = "row wrap"
        view = w.VBox(
            [filters, steps, self._problem, self._candidates, self._trace, labels, save, self._saved]
        )
        self._draw()
        return view

    def _labeller(self, name: str, label: str, style: str) -> Any:
        def say() -> None:
            if (row := self.traces.row) is not None and row.candidates:
                self.label(label, note=self._note.value)

        return button(
            name, say, tooltip=f"Label this candidate as {label}; saved beside the run", style=style
        )

    def _save(self) -> None:
        path = self.export(self._file.value)
        self._saved.value = f"{len(self.traces.chosen):,} problems in {text(path)}"

    def _candidate(self, row: Row) -> int:
        chosen = self._candidates.value if self._view is not None else None
        return chosen if chosen is not None else row.final or 0

    def _draw(self) -> None:
        if self._view is None and not hasattr(self, "_where"):
            return
        row = self.traces.row
        self._where.value = f'<span aria-live="polite">{text(self.where())}</span>'
        self._note.value = ""
        if row is None:
            self._problem.value = self._trace.value = self._said.value = ""
            self._candidates.options = []
            return
        outcome = "kept" if row.accepted else f"dropped: {row.drop_reason}"
        self._problem.value = (
            f"{STYLE}<div><b>{text(row.id)}</b> <span class='ck-quiet'>{text(row.type or '')}</span> "
            f"{text(outcome)}{': ' + text(row.detail) if row.detail else ''}</div>"
            f"<div style='white-space:pre-wrap;margin:6px 0'>{text(row.problem)}</div>"
            + facts({"reference": row.reference, "licence": row.licence})
        )
        names = [(candidate_name(c, number == row.final), number) for number, c in enumerate(row.candidates)]
        self._candidates.options = names
        if names:
            self._candidates.value = row.final if row.final is not None else 0
        self._draw_candidate()

    def _draw_candidate(self) -> None:
        row = self.traces.row
        number = self._candidates.value
        if row is None or number is None or number >= len(row.candidates):
            self._trace.value = self._said.value = ""
            return
        self._trace.value = candidate_html(row, number)
        said = self.traces.label(number)
        self._said.value = (
            f"labelled <b>{text(said['label'])}</b> by {text(said['by'])} {text(said['note'])}"
            if said
            else ""
        )


def candidate_name(c: Candidate, final: bool) -> str:
    stage = {"draft": f"draft {c.sample_index + 1}", "refine": f"refinement {c.iteration}"}.get(
        c.stage, "with hint"
    )
    mean = c.judgement.mean if c.judgement else None
    score = "" if mean is None else f", score {mean:.2f}"
    return f"{stage}: {_verdict(c)}{score}{' (final)' if final else ''}"


def _verdict(c: Candidate) -> str:
    return f"{MARKS[c.verdict.correct]} {VERDICTS[c.verdict.correct]}"


def candidate_html(row: Row, number: int) -> str:
    """The trace, against the one it was refined from where there is one, its verdict, scores and origin."""
    c = row.candidates[number]
    parent = row.candidates[c.parent] if c.parent is not None else None
    words = text(c.trace) if parent is None else word_diff(parent.trace, c.trace)
    told = f"<div class='ck-quiet'>told: {text(parent.feedback)}</div>" if parent and parent.feedback else ""
    origin = {
        "answer": c.answer if c.answer is not None else "none found",
        "verdict": f"{_verdict(c)} ({c.verdict.method}) {c.verdict.reason}",
        "model": c.call.get("served_model") or c.call.get("model"),
        "at": c.call.get("endpoint"),
        "prompt": f"{c.prompt.get('name')} {c.prompt.get('hash')}" if c.prompt else None,
        "seed": c.call.get("seed"),
        "saw the reference": "yes" if c.saw_reference else None,
        "signs of the hint": ", ".join(c.leaks) or None,
    }
    trace = f"<div style='white-space:pre-wrap;margin:6px 0;max-width:60em'>{words}</div>"
    return f"{told}{trace}{facts(origin)}{_scores(c)}"


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
