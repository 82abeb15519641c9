"""The candidates of finished problems: which are the model's own, which is the draft a run went on with,
and the frame with one line a candidate that analysis starts from.

A rationalized trace was written with the answer in sight: it is data, but says nothing about what the model
can do, so `own_candidates` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cotkit.records import Candidate, Row
from cotkit.shown import mended_frame

if TYPE_CHECKING:
    import pandas

COLUMNS = {
    "id": "str", "index": "int64", "type": "object", "candidate": "int64", "stage": "str",
    "iteration": "int64", "sample_index": "int64", "parent": "Int64", "answer": "object",
    "correct": "boolean", "verdict_method": "str", "accepted": "boolean", "is_final": "boolean",
    "row_accepted": "boolean", "drop_reason": "object", "truncated": "boolean", "rationalized": "boolean",
    "saw_reference": "boolean", "leaks": "int64", "judge": "object", "judge_failed": "boolean",
    "judge_error": "object", "score_mean": "float64", "trace_characters": "int64", "prompt_tokens": "Int64",
    "completion_tokens": "Int64", "cost_usd": "float64", "latency_s": "float64", "cached": "boolean",
    "model": "object", "served_model": "object", "endpoint": "object", "mean_logprob": "float64",
}  # fmt: skip
_OF_CANDIDATE = (
    "stage", "iteration", "sample_index", "parent", "answer", "accepted", "truncated", "saw_reference",
)  # fmt: skip


def own_candidates(row: Row) -> list[Candidate]:
    """The traces the model wrote without the answer: drafts and refinements, in the order they were made."""
    return [c for c in row.candidates if c.stage != "rationalize" and not c.rationalized]


def drafts(row: Row) -> list[Candidate]:
    """The first drafts of a problem by sample index."""
    return sorted((c for c in own_candidates(row) if c.stage == "draft"), key=lambda c: c.sample_index)


def refinements(row: Row) -> list[tuple[Candidate, Candidate]]:
    """(refined trace, the trace it was made from), in the order they were made."""
    return [
        (c, row.candidates[c.parent])
        for c in own_candidates(row)
        if c.stage == "refine" and c.parent is not None
    ]


def judge_saw_reference(rows: Iterable[Row]) -> bool:
    """True when a judge was shown the reference for any of the model's own traces."""
    return any(c.judgement.saw_reference for row in rows for c in own_candidates(row) if c.judgement)


def chosen_draft(row: Row) -> Candidate | None:
    """The draft the run went on with: the root of its refinements, else its final, else the best one."""
    for _, parent in refinements(row):
        if parent.stage == "draft":
            return parent
    if row.best is not None and row.best.stage == "draft":
        return row.best
    return max(drafts(row), key=Candidate.rank, default=None)


def own_final(row: Row) -> Candidate | None:
    """The trace the run decided on; for a rationalized problem the best one the model wrote by itself."""
    own = own_candidates(row)
    return row.best if any(row.best is c for c in own) else max(own, key=Candidate.rank, default=None)


def candidates_frame(rows: Iterable[Row]) -> pandas.DataFrame:
    """One line a candidate, rationalized ones included (see `rationalized`).

    `correct` is True, False or NA (undecided); tokens, cost and latency are NA where nobody counted them;
    `score_mean` and one `score_<dimension>` a dimension lie on 0..1 and are NA where the trace was not judged
    or the judge failed (`judge_failed`); `mean_logprob` is there where the run asked for logprobs.
    """
    lines = [_line(row, number) for row in rows for number in range(len(row.candidates))]
    dimensions = list(dict.fromkeys(key for line in lines for key in line if key not in COLUMNS))
    frame = mended_frame(lines, [*COLUMNS, *dimensions])
    return frame.astype({**COLUMNS, **dict.fromkeys(dimensions, "float64")})


def _line(row: Row, number: int) -> dict[str, Any]:
    c = row.candidates[number]
    usage = c.call.get("usage") or {}
    line: dict[str, Any] = {
        "id": row.id,
        "index": row.index,
        "type": row.type,
        "candidate": number,
        "correct": c.verdict.correct,
        "verdict_method": c.verdict.method,
        "is_final": number == row.final,
        "row_accepted": row.accepted,
        "drop_reason": row.drop_reason,
        "rationalized": c.rationalized or c.stage == "rationalize",
        "leaks": len(c.leaks),
        "judge": c.judgement.judge if c.judgement else None,
        "judge_failed": c.judgement is not None and c.judgement.scores is None,
        "judge_error": c.judgement.error if c.judgement else None,
        "score_mean": c.judgement.mean if c.judgement else None,
        "trace_characters": len(c.trace),
    }
    for name in _OF_CANDIDATE:
        line[name] = getattr(c, name)
    for name in ("prompt_tokens", "completion_tokens", "cost_usd"):
        line[name] = usage.get(name)
    for name in ("latency_s", "cached", "model", "served_model", "endpoint", "mean_logprob"):
        line[name] = c.call.get(name)
    if c.judgement and c.judgement.scores:
        line |= {f"score_{name}": value for name, value in c.judgement.scores.items()}
    return line
