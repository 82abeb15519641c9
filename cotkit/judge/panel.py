"""Several judges asked at once, their scores combined by dimension.

A dimension counts when more than half of the judges that score it gave a score, and a judgement when more
than half of ALL judges answered; else there are no scores. Each judge's own judgement is kept in `raw`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, Literal

from cotkit import aio
from cotkit.judge.base import Judge
from cotkit.problems import Problem
from cotkit.records import Judgement

COMBINE = {"median": statistics.median, "min": min, "mean": statistics.fmean}


class JudgePanel(Judge):
    """Combines judges by `rule`: "median" (odd one out has no say), "min" (all must agree), "mean".

    Raises ValueError for another rule, fewer than two judges, two of one name, or judges whose scores lie in
    different ranges; TypeError for what is no judge.
    """

    def __init__(
        self,
        judges: Iterable[Judge],
        rule: Literal["median", "min", "mean"] = "median",
        *,
        name: str = "panel",
    ):
        self.judges, self.rule = list(judges), rule
        if strange := [
            type(judge).__name__ for judge in self.judges if not callable(getattr(judge, "ajudge", None))
        ]:
            raise TypeError(f"a panel is made of judges, got {', '.join(strange)}")
        if rule not in COMBINE:
            raise ValueError(f"unknown rule {rule!r}: use one of {', '.join(COMBINE)}")
        if len(self.judges) < 2:
            raise ValueError("a panel needs at least two judges")
        if len({judge.name for judge in self.judges}) < len(self.judges):
            raise ValueError(
                f"two judges share a name in {[j.name for j in self.judges]}: give each a name=..."
            )
        ranges = {judge.score_range for judge in self.judges}
        if len(ranges) > 1:
            raise ValueError(
                f"judges with different score ranges {sorted(map(str, ranges))} cannot be combined: give the "
                "reward model a scale=(low, high)"
            )
        names = None
        if all(judge.dimension_names is not None for judge in self.judges):
            names = tuple(dict.fromkeys(name for judge in self.judges for name in judge.dimension_names))
        super().__init__(name, names, ranges.pop())
        self.calls_model = any(judge.calls_model for judge in self.judges)

    @property
    def models(self) -> list[Any]:
        return [model for judge in self.judges for model in judge.models]

    def describe(self) -> dict[str, Any]:
        judges = [judge.describe() for judge in self.judges]
        return {"judge": "JudgePanel", "name": self.name, "rule": self.rule, "judges": judges}

    async def ajudge(self, problem: Problem, trace: str, *, ledger: object = None) -> Judgement:
        asked = [judge.ajudge(problem, trace, ledger=ledger) for judge in self.judges]
        answers = await aio.together(asked)
        known = {
            "saw_reference": any(answer.saw_reference for answer in answers),
            "raw": {
                judge.name: answer.model_dump() for judge, answer in zip(self.judges, answers, strict=True)
            },
        }
        given = [answer for answer in answers if answer.scores is not None]
        failures = "; ".join(f"{a.judge}: {a.error}" for a in answers if a.scores is None)
        if len(given) * 2 <= len(answers):
            return self._failed(f"{len(given)} of {len(answers)} judges answered: {failures}", **known)
        scores = self._combined(given)
        if not scores:
            return self._failed(f"no dimension has scores from most of its judges: {failures}", **known)
        feedback = "\n".join(f"{answer.judge}: {answer.feedback}" for answer in given if answer.feedback)
        return Judgement(scores=scores, feedback=feedback, judge=self.name, **known)

    def _combined(self, given: list[Judgement]) -> dict[str, float]:
        by_name: dict[str, list[float]] = {}
        for answer in given:
            for name, score in answer.scores.items():
                by_name.setdefault(name, []).append(score)
        meant = {n: sum(n in (judge.dimension_names or ()) for judge in self.judges) for n in by_name}
        return {n: float(COMBINE[self.rule](s)) for n, s in by_name.items() if len(s) * 2 > meant[n]}

    async def aclose(self) -> None:
        for judge in self.judges:
            await judge.aclose()
