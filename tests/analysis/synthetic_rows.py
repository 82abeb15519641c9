"""Seeded rows as a distillation run leaves them, for tests of what is computed from rows.

`make_rows` plays a model that is right with a chance of its own for each problem, a judge whose scores lean
on the verdict as much as `judge_power` says, and refinement that repairs or breaks. `make_report` gives the
report that goes with rows. `candidate` and `row` build single records for hand-made cases.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from cotkit.records import Candidate, Judgement, Row, Verdict

TYPES = ("one_step", "two_steps", "three_steps", "four_steps")
DIMENSIONS = ("arithmetic", "conclusion", "form")


def candidate(
    correct: bool | None = True,
    *,
    answer: str | None = "42",
    scores: dict[str, float] | None = None,
    judged: bool = False,
    judge_saw: bool = False,
    **fields: Any,
) -> Candidate:
    """One trace; no `scores` with `judged=True`: the judge failed; `judge_saw`: it saw the reference."""
    method = "no_reference" if correct is None else "no_answer" if answer is None else "number"
    judgement = None
    if scores is not None or judged:
        error = None if scores else "no valid JSON"
        judgement = Judgement(scores=scores, judge="test", saw_reference=judge_saw, error=error)
    trace = fields.pop("trace", f"6 * 7 = 42\nThe answer is \\boxed{{{answer}}}.")
    return Candidate(
        iteration=fields.pop("iteration", 0),
        trace=trace,
        text=trace,
        answer=answer,
        verdict=Verdict(correct=correct, method=method, reason=fields.pop("reason", "")),
        judgement=judgement,
        **fields,
    )


def row(number: int, candidates: list[Candidate], **fields: Any) -> Row:
    """A finished problem; kept when its last accepted candidate says so."""
    accepted = [i for i, c in enumerate(candidates) if c.accepted]
    final = accepted[0] if accepted else len(candidates) - 1 if candidates else None
    fields.setdefault("drop_reason", None if accepted else "wrong_answer" if candidates else "model_timeout")
    return Row(
        index=number,
        id=fields.pop("id", f"p{number}"),
        problem=fields.pop("problem", f"What is 6 times 7? ({number})"),
        reference=fields.pop("reference", "42"),
        candidates=candidates,
        final=final,
        accepted=bool(accepted),
        **fields,
    )


def make_rows(n: int = 16, *, seed: int = 0, **changed: Any) -> list[Row]:
    """`n` finished problems; the options and their defaults are OPTIONS."""
    assert changed.keys() <= OPTIONS.keys()
    options = OPTIONS | changed
    return [_Problem(random.Random(f"{seed}:{index}"), index, options).solve() for index in range(n)]


OPTIONS = {
    "drafts": 4,
    "max_iterations": 2,
    "judge": True,
    "judge_power": 0.3,
    "reference": True,
    "rationalization": False,
    "threshold": 0.5,
    "skill": 0.6,
    "endpoint_fails": 0.03,
}


class _Problem:
    """One problem on its way through drafts, refinement and rationalization."""

    def __init__(self, random: random.Random, index: int, options: dict[str, Any]):
        self.random, self.index, self.options = random, index, options
        self.steps = 1 + index % 4
        self.boxes, self.pens, self.given = random.randint(3, 9), random.randint(4, 12), random.randint(2, 11)
        self.answer = self.boxes * self.pens - self.given
        ease = 1.25 - 0.22 * self.steps
        self.chance = min(0.97, max(0.03, random.gauss(options["skill"] * ease, 0.22)))
        self.candidates: list[Candidate] = []

    def solve(self) -> Row:
        if self.random.random() < self.options["endpoint_fails"]:
            return self._row(None, "model_timeout", "no answer within 120 s", retryable=True)
        for sample in range(self.options["drafts"]):
            self.candidates.append(self._candidate("draft", sample_index=sample))
        for iteration in range(1, self.options["max_iterations"] + 1):
            parent = self._best()
            if self.candidates[parent].accepted:
                break
            if self._reason(self.candidates[parent]) == "judge_failed":
                break
            self.candidates[parent].feedback = "The result does not follow. Check each step again."
            self.candidates.append(self._candidate("refine", iteration=iteration, parent=parent))
        unsolved = not any(c.verdict.correct for c in self.candidates)
        if self.options["rationalization"] and self.options["reference"] and unsolved:
            last = max(c.iteration for c in self.candidates)
            self.candidates.append(self._candidate("rationalize", iteration=last + 1))
        best = self._best()
        reason = self._reason(self.candidates[best])
        detail = {None: "", "wrong_answer": f"answered {self.candidates[best].answer}"}.get(
            reason, "see scores"
        )
        return self._row(best, reason, detail, retryable=reason == "judge_failed")

    def _row(self, final: int | None, reason: str | None, detail: str, retryable: bool = False) -> Row:
        errors = [{"stage": "draft", "kind": "timeout", "message": detail}] if final is None else []
        return Row(
            index=self.index,
            id=f"{self.index:04d}",
            problem=(
                f"A shop has {self.boxes} boxes with {self.pens} pens in each. "
                f"It gives away {self.given} pens. How many pens are left?"
            ),
            reference=str(self.answer) if self.options["reference"] else None,
            type=TYPES[self.steps - 1],
            candidates=self.candidates,
            final=final,
            accepted=reason is None and final is not None,
            drop_reason=reason,
            detail=detail,
            errors=errors,
            retryable=retryable,
            seconds=self.random.uniform(2, 20),
        )

    def _candidate(self, stage: str, **fields: Any) -> Candidate:
        chance = 0.7 if stage == "rationalize" else self.chance
        right, kind = self.random.random() < chance, self.random.random()
        answer = self.answer if right else self.answer + self.random.choice([-10, -2, 1, 5, self.given])
        words = self.random.randint(1, 3) if right else self.random.randint(1, 6)
        trace = (
            "We count all the pens first.\n\n" * words
            + f"{self.boxes} * {self.pens} = {self.boxes * self.pens}\n\n"
            + f"{self.boxes * self.pens} - {self.given} = {answer}\n\n"
        )
        truncated, silent = kind < 0.04, 0.04 <= kind < 0.08
        if truncated:
            trace = trace[:-20]
        elif silent:
            trace += f"So it is {answer} pens."
        else:
            trace += f"The answer is \\boxed{{{answer}}}."
        found = None if truncated or silent else str(answer)
        tokens = len(trace) // 4 + self.random.randint(0, 9)
        made = Candidate(
            stage=stage,
            iteration=fields.pop("iteration", 0),
            trace=trace,
            text=trace,
            answer=found,
            answer_how="boxed" if found else "",
            truncated=truncated,
            verdict=self._verdict(found, right),
            judgement=self._judgement(right) if self.options["judge"] else None,
            rationalized=stage == "rationalize",
            saw_reference=stage == "rationalize",
            prompt={"name": "reasoning", "hash": "0123456789abcdef"},
            call={
                "model": "qwen2.5-coder-0.5b",
                "served_model": "qwen2.5-coder-0.5b",
                "endpoint": "127.0.0.1:8080",
                "usage": {"prompt_tokens": 180, "completion_tokens": tokens, "cost_usd": None},
                "latency_s": tokens / self.random.uniform(12, 22),
                "cached": False,
            },
            **fields,
        )
        made.accepted = self._reason(made) is None
        return made

    def _verdict(self, found: str | None, right: bool) -> Verdict:
        if not self.options["reference"]:
            return Verdict(correct=None, method="no_reference", reason="the problem has no reference")
        if found is None:
            return Verdict(correct=False, method="no_answer", reason="no final answer found")
        return Verdict(
            correct=right, method="number", reason="" if right else f"{found} is not {self.answer}"
        )

    def _judgement(self, right: bool) -> Judgement:
        if self.random.random() < 0.02:
            return Judgement(scores=None, judge="steps", error="the reply was no valid JSON, twice")
        power = self.options["judge_power"]
        scores = {
            name: round(min(1.0, max(0.0, self.random.gauss(0.72 + power * (right - 0.5), 0.18))), 1)
            for name in DIMENSIONS
        }
        reasons = {
            name: f"{name} is fine" if value > 0.6 else f"{name}: the second step"
            for name, value in scores.items()
        }
        return Judgement(scores=scores, reasons=reasons, feedback="Check the second step.", judge="steps")

    def _reason(self, c: Candidate) -> str | None:
        if c.truncated:
            return "truncated"
        if c.verdict.correct is False:
            return "no_answer" if c.answer is None else "wrong_answer"
        if c.judgement is None:
            return None
        if c.judgement.scores is None:
            return "judge_failed"
        return None if min(c.judgement.scores.values()) >= self.options["threshold"] else "below_threshold"

    def _best(self) -> int:
        def order(i: int) -> tuple:
            c = self.candidates[i]
            score = c.judgement.mean if c.judgement and c.judgement.scores else -1.0
            return c.accepted, {True: 2, None: 1, False: 0}[c.verdict.correct], score

        return max(range(len(self.candidates)), key=order)


def make_report(rows: list[Row], *, given: int | None = None, stopped: str | None = None) -> dict[str, Any]:
    """What `report.json` holds for these rows; more `given` than rows is a run that was stopped."""
    given = len(rows) if given is None else given
    drops = Counter(r.drop_reason for r in rows if not r.accepted)
    if given > len(rows):
        drops["unfinished"] = given - len(rows)
    by_role: dict[str, dict[str, Any]] = {}
    for name, stage in (("generator", "draft"), ("improver", "refine"), ("rationalizer", "rationalize")):
        usages = [c.call["usage"] for r in rows for c in r.candidates if c.stage == stage and c.call]
        if usages:
            by_role[name] = _totals(usages)
    return {
        "name": "synthetic",
        "given": given,
        "kept": sum(r.accepted for r in rows),
        "drops": dict(drops),
        "complete": given == len(rows),
        "stopped": stopped,
        "seconds": 6.5 * len(rows),
        "ledger": {
            **_totals([c.call["usage"] for r in rows for c in r.candidates if c.call]),
            "by_role": by_role,
        },
    }


def _totals(usages: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = {name: sum(u[name] for u in usages) for name in ("prompt_tokens", "completion_tokens")}
    counts = {"calls": len(usages), "cached": 0, "failed": {}, "cost_usd": None}
    return {**counts, **tokens, "unknown_usage": 0, "unknown_cost": len(usages)}
