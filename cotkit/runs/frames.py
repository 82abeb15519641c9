"""What stands in a run's rows, as tables: one line a problem, one an attempt, one a refinement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cotkit.records import Candidate, Row
from cotkit.shown import mended

if TYPE_CHECKING:
    import pandas

_TEXT = ["id", "problem", "reference", "type", "licence", "drop_reason", "detail"]
_FINAL = ["stage", "trace", "reasoning", "text", "answer", "answer_how"]


def rows_frame(rows: Iterable[Row]) -> pandas.DataFrame:
    """One line a problem: what was asked, the final trace, its verdict and scores, where it came from."""
    return _frame([_flat(row) for row in rows], _ROW)


_ROW = dict.fromkeys(
    [
        "index", "id", "problem", "reference", "type", "licence", "accepted", "drop_reason", "detail",
        "trace", "reasoning", "text", "answer", "answer_how", "correct", "verdict_method", "iteration",
        "stage", "candidates", "iterations", "truncated", "rationalized", "saw_reference", "score_mean",
        "model", "served_model", "endpoint", "metadata",
    ]
) | dict.fromkeys([*_TEXT, *_FINAL], "object")  # fmt: skip


def _flat(row: Row) -> dict[str, Any]:
    line: dict[str, Any] = {name: getattr(row, name) for name in ("index", "accepted", *_TEXT)}
    line["metadata"] = row.metadata or None  # Parquet has no object without fields
    line["candidates"] = len(row.candidates)
    line["iterations"] = 1 + max((c.iteration for c in row.candidates), default=-1)
    best = row.best
    if best is None:
        return line
    line |= {name: getattr(best, name) for name in ("iteration", "truncated", "rationalized", *_FINAL)}
    line["saw_reference"] = best.saw_reference
    line["correct"], line["verdict_method"] = best.verdict.correct, best.verdict.method
    line |= {name: best.call.get(name) for name in ("model", "served_model", "endpoint")}
    return line | _scores(best)


def _scores(candidate: Candidate) -> dict[str, float | None]:
    judged = candidate.judgement
    if judged is None or not judged.scores:
        return {}
    return {**{f"score_{name}": value for name, value in judged.scores.items()}, "score_mean": judged.mean}


_ATTEMPT = {
    "cycle": "Int64", "id": "object", "candidate": "int64", "stage": "object", "iteration": "int64",
    "sample_index": "int64", "parent": "Int64", "trace": "object", "answer": "object", "feedback": "object",
    "correct": "boolean", "verdict_method": "object", "accepted": "boolean", "is_final": "boolean",
    "rationalized": "boolean", "saw_reference": "boolean", "truncated": "boolean", "model": "object",
    "served_model": "object", "prompt": "object", "prompt_hash": "object", "score_mean": "float64",
}  # fmt: skip
_OF_CANDIDATE = (
    "stage", "iteration", "sample_index", "parent", "trace", "answer", "feedback", "accepted",
    "rationalized", "saw_reference", "truncated",
)  # fmt: skip


def attempts_frame(rows: Iterable[tuple[int | None, Row]]) -> pandas.DataFrame:
    """One line a trace of (cycle, row), None = a run without cycles: `parent` is the candidate of the same
    problem that it was refined from, `feedback` what the next iteration is told of it."""
    lines = []
    for cycle, row in rows:
        for number, c in enumerate(row.candidates):
            line = {"cycle": cycle, "id": row.id, "candidate": number, "is_final": number == row.final}
            line |= {name: getattr(c, name) for name in _OF_CANDIDATE} | _said(c) | _scores(c)
            lines.append(line | {"correct": c.verdict.correct, "verdict_method": c.verdict.method})
    return _frame(lines, _ATTEMPT)


def _said(c: Candidate) -> dict[str, Any]:
    """Who wrote a trace, asked by which prompt."""
    models = {name: c.call.get(name) for name in ("model", "served_model")}
    return models | {"prompt": c.prompt.get("name"), "prompt_hash": c.prompt.get("hash")}


_TRIPLE = {
    "cycle": "Int64", "id": "object", "candidate": "int64", "iteration": "int64", "problem": "object",
    "attempt": "object", "critique": "object", "improved": "object", "correct_before": "boolean",
    "correct_after": "boolean", "became_right": "boolean", "score_before": "float64",
    "score_after": "float64", "accepted": "boolean", "saw_reference": "boolean", "model": "object",
    "served_model": "object", "prompt": "object", "prompt_hash": "object",
}  # fmt: skip


def triples_frame(rows: Iterable[tuple[int | None, Row]]) -> pandas.DataFrame:
    """One line a refinement of (cycle, row): the problem, the attempt, the critique of it, and the improved
    attempt. `became_right`: wrong before and right after; missing where either could not be decided."""
    lines = []
    for cycle, row in rows:
        for number, c in enumerate(row.candidates):
            if c.stage != "refine" or c.parent is None:
                continue
            parent = row.candidates[c.parent]
            before, after = parent.verdict.correct, c.verdict.correct
            undecided = before is None or after is None
            line = {"cycle": cycle, "id": row.id, "candidate": number, "iteration": c.iteration}
            line |= {"problem": row.problem, "attempt": parent.trace, "critique": parent.feedback}
            line |= {"improved": c.trace, "correct_before": before, "correct_after": after}
            line["became_right"] = None if undecided else after and not before
            for when, one in (("before", parent), ("after", c)):
                line[f"score_{when}"] = one.judgement.mean if one.judgement else None
            lines.append(line | {"accepted": c.accepted, "saw_reference": c.saw_reference} | _said(c))
    return _frame(lines, _TRIPLE)


def _frame(lines: list[dict[str, Any]], kinds: dict[str, str | None]) -> pandas.DataFrame:
    """The lines as columns of these dtypes (None = as pandas finds), then a column a dimension that a judge
    scored. Texts are objects, or mended: pandas' own strings hold no lone surrogate."""
    import pandas

    scores = sorted({key for line in lines for key in line if key.startswith("score_")} - set(kinds))
    columns = kinds | dict.fromkeys(scores, "float64")
    found = {name: [line.get(name) for line in lines] for name in columns}
    return pandas.DataFrame(
        {
            name: pandas.Series(found[name] if kind else list(map(mended, found[name])), dtype=kind)
            for name, kind in columns.items()
        }
    )
