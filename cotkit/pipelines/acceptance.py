"""Which candidate is best, which is accepted, and what an improver is told: pure decisions on records.

A program's verdict beats a judge's score. Accepted = verdict not False and thresholds met; the final trace
is an accepted one if there is one, else a verified one, else the best scored, never merely the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cotkit import analysis
from cotkit.chat import PERMANENT
from cotkit.judge import Thresholds
from cotkit.pipelines.leaks import feedback_leaks
from cotkit.records import VERIFIER_FAILED, Candidate, Row

ASKED_AGAIN = ("judge_failed", "verifier_failed")  # drop reasons that are no fault of the trace


class Rules(Protocol):
    """What the decisions depend on (a `Recipe` has it)."""

    judge: Any
    thresholds: Thresholds
    require_verdict: bool
    unchecked: str
    max_iterations: int


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
        may_tell = judgement.saw_reference and not candidate.verdict.correct  # else it has the answer itself
        told = may_tell and feedback_leaks(judgement.feedback, gold, problem, candidate.trace)
        lines += ["" if told else judgement.feedback, thresholds.feedback(judgement.scores)]
    return "\n".join(line for line in lines if line) or "Check each step again."


def spoilt(candidate: Candidate, recipe: Rules) -> str | None:
    """Why no judge can save this candidate; None = its scores decide."""
    if candidate.truncated:
        return "truncated"
    if candidate.leaks:
        return "leak"
    if candidate.verdict.method in VERIFIER_FAILED and recipe.require_verdict:
        return "verifier_failed"
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


def is_hurt(row: Row) -> bool:
    """Whether an endpoint failed a draft, a refinement or a verdict of this row and may give it next time. A
    model that said nothing, beside others of its traces, is not asked again until it says something."""
    final = PERMANENT | analysis.drafts.SILENT if row.candidates else PERMANENT
    unverified = any(candidate.verdict.method in VERIFIER_FAILED for candidate in row.candidates)
    return unverified or any(error["kind"] not in final for error in row.errors)


def decide(row: Row, recipe: Rules) -> None:
    """Record the final trace, whether it is accepted, and why not.

    A row that is not accepted is asked again by the next call where a judge failed on a trace that it could
    have saved, or it `is_hurt`, whatever else it holds; what was answered comes from the cache. One that is
    accepted stays as it is, with what failed in its `errors`: a kept trace is never taken back for a draft
    that is missing beside it. So where drafts are all there is, a row that has one stays too: if drafts were
    made up for in unsolved problems alone, the share of right ones would come out too low.
    """
    row.final = best_of(row.candidates)
    best = row.best
    row.accepted = best is not None and best.accepted
    if row.accepted:
        return
    if best is None:
        last = row.errors[-1]
        row.drop_reason, row.detail = f"model_{last['kind']}", last["message"]
    else:
        row.drop_reason = drop_reason(best, recipe)
        row.detail = _detail(best, row.drop_reason, recipe)
    unjudged = any(drop_reason(c, recipe) == "judge_failed" for c in row.candidates if c.judgement)
    drafts_only = recipe.max_iterations == 0 and row.candidates
    row.retryable = row.drop_reason in ASKED_AGAIN or unjudged or (is_hurt(row) and not drafts_only)


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
