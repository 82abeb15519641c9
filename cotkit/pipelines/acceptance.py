"""Which candidate is best, which is accepted, and what an improver is told: pure decisions on records.

A program's verdict beats a judge's score. Accepted = verdict not False and thresholds met; the final trace
is an accepted one if there is one, else a verified one, else the best scored, never merely the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cotkit.judge import Thresholds
from cotkit.pipelines.leaks import feedback_leaks
from cotkit.records import Candidate, Row


class Rules(Protocol):
    """What the decisions depend on (a `Recipe` has it)."""

    judge: Any
    thresholds: Thresholds
    require_verdict: bool
    unchecked: str


def best_of(candidates: Sequence[Candidate]) -> int | None:
    """Index of the preferred candidate, None when there is none."""
    return max(range(len(candidates)), key=lambda i: candidates[i].rank(), default=None)


def feedback_on(candidate: Candidate, thresholds: Thresholds, gold: str | None, problem: str) -> str:
    """What the improver is told: the verifier's finding, what fell short, the judge's words."""
    lines = []
    if candidate.truncated:
        lines.append("The solution was cut off before it ended. Write a shorter one.")
    elif candidate.answer is None and candidate.prompt.get("name") == "code":
        lines.append("No program was found. Give the whole of it in one block that begins with ```python.")
    elif candidate.answer is None:
        lines.append("No final answer was found. End with: The answer is \\boxed{...}.")
    elif candidate.verdict.method == "tests" and candidate.verdict.correct is False:
        lines.append("The program does not pass all of its tests. Read again what is asked.")
    elif candidate.verdict.correct is False:
        lines.append(
            f"The final answer {candidate.answer} is not correct. "
            "Read again what is asked and check each step."
        )
    if (judgement := candidate.judgement) is not None and judgement.scores is not None:
        told = judgement.saw_reference and feedback_leaks(judgement.feedback, gold, problem, candidate.trace)
        lines += ["" if told else judgement.feedback, thresholds.feedback(judgement.scores)]
    return "\n".join(line for line in lines if line) or "Check each step again."


def spoilt(candidate: Candidate, recipe: Rules) -> str | None:
    """Why no judge can save this candidate; None = its scores decide."""
    if candidate.truncated:
        return "truncated"
    if candidate.leaks:
        return "leak"
    if candidate.verdict.correct is False and recipe.require_verdict:
        return "no_answer" if candidate.verdict.method == "no_answer" else "wrong_answer"
    return None


def drop_reason(candidate: Candidate, recipe: Rules) -> str | None:
    """Why this candidate is not accepted; None = it is."""
    if reason := spoilt(candidate, recipe):
        return reason
    if recipe.judge is None:
        if candidate.verdict.correct or not recipe.require_verdict:
            return None
        if candidate.verdict.method == "no_reference":
            return None if recipe.unchecked == "keep" else "unchecked"
        return "undecided"
    scores = candidate.judgement.scores if candidate.judgement else None
    if scores is None:
        return "judge_failed"
    met = recipe.thresholds.met(scores)
    if met is None:  # a dimension that counts has no score
        return "judge_failed"
    return None if met else "below_threshold"


def decide(row: Row, recipe: Rules) -> None:
    """Record the final trace, whether it is accepted, and why not."""
    row.final = best_of(row.candidates)
    best = row.best
    if best is None:
        last = row.errors[-1]
        row.drop_reason, row.detail = f"model_{last['kind']}", last["message"]
        row.retryable = last["kind"] not in ("bad_request", "context_length")
        return
    row.accepted = best.accepted
    if best.accepted:
        return
    row.drop_reason = drop_reason(best, recipe)
    row.retryable = row.drop_reason == "judge_failed"
    row.detail = _detail(best, row.drop_reason, recipe)


def _detail(best: Candidate, reason: str, recipe: Rules) -> str:
    if reason == "wrong_answer":
        code = best.verdict.method == "tests"  # a whole program is no detail
        return best.verdict.reason if code else f"answered {best.answer}: {best.verdict.reason}"
    if reason == "below_threshold":
        return recipe.thresholds.feedback(best.judgement.scores)
    if reason == "judge_failed":
        if best.judgement is None:
            return "not judged"
        return best.judgement.error or f"no score for every dimension that counts: {best.judgement.scores}"
    if reason == "leak":
        return "the trace says: " + ", ".join(best.leaks)
    return best.verdict.reason
