"""Several judges asked at once, their scores combined by dimension.

A dimension counts when more than half of the judges that score it gave a score, and a judgement when more
than half of ALL judges answered; else there are no scores. Each judge's own judgement is kept in `raw`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from cotkit import aio
from cotkit.judge.base import Judge
from cotkit.problems import Problem
from cotkit.records import Judgement

COMBINE = {
    "median": statistics.median,
    "majority": statistics.median_low,  # what more than half of the judges reach, wherever a threshold lies
    "min": min,
    "mean": statistics.fmean,
}


class JudgePanel(Judge):
    """Combines judges by `rule`: "median" (the odd one out has no say), "majority" (more than half must reach
    a threshold), "min" (all must), "mean".

    `weights`: {judge's name: weight}, for the mean; `analysis.panel_weights` learns them from verdicts.
    Raises ValueError for another rule, weights that are not one number of at least 0 a judge, fewer than two
    judges, two of one name, or judges whose scores lie in different ranges; TypeError for what is no judge.
    """

    def __init__(
        self,
        judges: Iterable[Judge],
        rule: Literal["median", "majority", "min", "mean"] = "median",
        *,
        weights: Mapping[str, float] | None = None,
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
        self.weights = None if weights is None else self._checked(weights)
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

    def _checked(self, weights: Mapping[str, float]) -> dict[str, float]:
        names = [judge.name for judge in self.judges]
        if self.rule != "mean":
            raise ValueError(f"weights belong to rule='mean', not to {self.rule!r}")
        if set(weights) != set(names):
            raise ValueError(f"weights must name every judge ({', '.join(names)}), got {sorted(weights)}")
        if not all(math.isfinite(w) and w >= 0 for w in weights.values()) or not any(weights.values()):
            raise ValueError(f"weights must be numbers of at least 0, not all 0, got {dict(weights)}")
        return {name: float(weights[name]) for name in names}

    @property
    def models(self) -> list[Any]:
        return [model for judge in self.judges for model in judge.models]

    def describe(self) -> dict[str, Any]:
        judges = [judge.describe() for judge in self.judges]
        known = {"judge": "JudgePanel", "name": self.name, "rule": self.rule, "judges": judges}
        return known | ({"weights": self.weights} if self.weights else {})

    async def ajudge(self, problem: Problem, trace: str, *, ledger: object = None) -> Judgement:
        asked = [judge.ajudge(problem, trace, ledger=ledger) for judge in self.judges]
        answers = await aio.together(asked)
        known = {
            "saw_reference": any(answer.saw_reference for answer in answers),
            "raw": {
                judge.name: answer.model_dump() for judge, answer in zip(self.judges, answers, strict=True)
            },
        }
        given = {
            judge.name: answer
            for judge, answer in zip(self.judges, answers, strict=True)
            if answer.scores is not None
        }
        failures = "; ".join(f"{a.judge}: {a.error}" for a in answers if a.scores is None)
        if len(given) * 2 <= len(answers):
            return self._failed(f"{len(given)} of {len(answers)} judges answered: {failures}", **known)
        scores = self._combined(given)
        if not scores:
            return self._failed(f"no dimension has scores from most of its judges: {failures}", **known)
        feedback = "\n".join(
            f"{name}: {answer.feedback}" for name, answer in given.items() if answer.feedback
        )
        return Judgement(scores=scores, feedback=feedback, judge=self.name, **known)

    def _combined(self, given: Mapping[str, Judgement]) -> dict[str, float]:
        by_dimension: dict[str, dict[str, float]] = {}  # the judges' scores
        for judge, answer in given.items():
            for dimension, score in answer.scores.items():
                by_dimension.setdefault(dimension, {})[judge] = score
        meant = {d: sum(d in (judge.dimension_names or ()) for judge in self.judges) for d in by_dimension}
        combined = {d: self._one(scores) for d, scores in by_dimension.items() if len(scores) * 2 > meant[d]}
        return {dimension: score for dimension, score in combined.items() if score is not None}

    def _one(self, scores: Mapping[str, float]) -> float | None:
        """One score of several judges; None where only judges without weight gave one."""
        if self.weights is None:
            return float(COMBINE[self.rule](scores.values()))
        weights = [self.weights[judge] for judge in scores]
        return statistics.fmean(scores.values(), weights) if any(weights) else None

    async def aclose(self) -> None:
        for judge in self.judges:
            await judge.aclose()
