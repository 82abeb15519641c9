"""Small rows for the export tests: `row(candidate(...), ...)` with everything that matters as an argument."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from cotkit.records import Candidate, Judgement, Row, Verdict


def candidate(
    text: str = "2 + 2 = 4. The answer is \\boxed{4}.",
    correct: bool | None = True,
    score: float | dict[str, float] | None = None,
    *,
    reasoning: str | None = None,
    accepted: bool | None = None,
    judge: str = "judge-a",
    finish_reason: str = "stop",
    model: str = "teacher",
    **fields: Any,
) -> Candidate:
    scores = {"correctness": score} if isinstance(score, float) else score
    return Candidate(
        iteration=fields.pop("iteration", 0),
        trace=f"<think>\n{reasoning}\n</think>\n\n{text}" if reasoning else text,
        text=text,
        reasoning=reasoning,
        answer=fields.pop("answer", "4"),
        verdict=Verdict(correct=correct, method="number"),
        judgement=None if scores is None else Judgement(scores=scores, judge=judge, feedback="as told"),
        accepted=bool(correct) if accepted is None else accepted,
        prompt={"name": "reasoning", "hash": "abcd"},
        call={
            "model": model,
            "served_model": f"{model}-2026",
            "endpoint": "127.0.0.1:1",
            "finish_reason": finish_reason,
            "params": {"temperature": 0.7, "extra_body": {"api_key": "sk-never"}},
            "usage": {"prompt_tokens": 10, "completion_tokens": 20, "cost_usd": None},
        },
        **fields,
    )


def row(*candidates: Candidate, id: str = "007", final: int | None = 0, **fields: Any) -> Row:
    final = final if candidates else None
    accepted = fields.pop("accepted", final is not None and candidates[final].accepted)
    return Row(
        index=fields.pop("index", 0),
        id=id,
        problem=fields.pop("problem", f"What is 2 + 2, asks {id}?"),
        reference=fields.pop("reference", "4"),
        candidates=list(candidates),
        final=final,
        accepted=accepted,
        drop_reason=fields.pop("drop_reason", None if accepted else "wrong_answer"),
        metadata={"api_key": "sk-never", "note": "private"},
        **fields,
    )


RIGHT = candidate("So it is \\boxed{4}.", score=0.9, reasoning="two and two\nmake four")
WRONG = candidate("So it is \\boxed{5}.", False, 0.2, reasoning="two and two\nmake five", answer="5")


def good_and_bad(n: int = 3) -> list[Row]:
    return [row(RIGHT, WRONG, id=f"{i:03}", index=i) for i in range(n)]


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def write_lines(path: pathlib.Path, *rows: Any) -> pathlib.Path:
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return path
