"""Scripted models and problems for the pipeline's tests."""

from __future__ import annotations

import json

from cotkit import ChatModel, LLMJudge
from cotkit.problems import Problem

IS_JUDGE = "reasoning trace"


def problem(n: int, **changes) -> Problem:
    fields = {"id": f"p{n}", "problem": f"PID={n}; what is {n} + {n}?", "reference": str(2 * n)}
    return Problem(**{**fields, **changes})


def problems(count: int) -> list[Problem]:
    return [problem(n) for n in range(1, count + 1)]


def model(server, **options) -> ChatModel:
    return ChatModel("mock", base_url=server.base_url, **{"max_retries": 2, **options})


def judge(server, **options) -> LLMJudge:
    return LLMJudge(model(server), **options)


def scores(
    correctness: int, clarity: int | None = None, completeness: int | None = None, feedback="Be clear."
):
    """The judge's JSON, on its 0..10 scale."""
    values = {
        "correctness": correctness,
        "clarity": correctness if clarity is None else clarity,
        "completeness": correctness if completeness is None else completeness,
    }
    body = {name: {"reason": "seen", "score": value} for name, value in values.items()}
    return json.dumps({**body, "feedback": feedback})


def asked_to_judge(request) -> bool:
    return "response_format" in request.body or IS_JUDGE in request.system.lower()


def pid(request) -> int:
    text = request.user
    return int(text.split("PID=")[1].split(";")[0])


def solve(request) -> str:
    """Answers n + n rightly."""
    n = pid(request)
    return f"PID={n}; {n} + {n} = {2 * n}. The answer is \\boxed{{{2 * n}}}."


def is_refinement(request) -> bool:
    return "Review:" in request.system
