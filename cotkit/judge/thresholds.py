"""What a trace's scores must reach.

    0.7                          every dimension must reach 0.7 (rule="mean": their mean must)
    {"correctness": 0.8, ...}    each named dimension must; dimensions that are not named are free
    None                         scores are recorded and decide nothing

A threshold is reached at equality; differences below 1e-9 do not count, so that a mean of 0.7 in floating
point is 0.7.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Rule = Literal["all", "mean"]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Thresholds:
    """Made by `Thresholds.parse`. `limit` is a float for all dimensions, a dict by dimension, or None."""

    limit: float | dict[str, float] | None
    dimension_names: tuple[str, ...] | None = None
    rule: Rule = "all"

    @classmethod
    def parse(
        cls,
        score_threshold: float | Mapping[str, float] | None,
        dimension_names: Iterable[str] | None = None,
        rule: Rule = "all",
        score_range: tuple[float, float] | Literal["auto"] | None = "auto",
    ) -> Thresholds:
        """Checks a threshold before anything is paid for.

        `dimension_names` None: not known until a reward model first answers; names are then checked by the
        first `met`. `score_range` is where scores can lie, None = anywhere (a reward model's raw scores);
        "auto" is 0..1 where the dimensions are known, else anywhere. `for_judge` fills in both.
        Raises ValueError for a value outside the range, an unknown dimension or rule, TypeError for what
        is no number.
        """
        names = None if dimension_names is None else tuple(dimension_names)
        if score_range == "auto":
            score_range = None if names is None else (0.0, 1.0)
        if rule not in ("all", "mean"):
            raise ValueError(f"unknown rule {rule!r}: use 'all' (every dimension) or 'mean'")
        if score_threshold is None:
            return cls(None, names, rule)
        if not isinstance(score_threshold, Mapping):
            return cls(_number(score_threshold, "score_threshold", score_range), names, rule)
        if rule == "mean":
            raise ValueError("rule='mean' takes one number as score_threshold; a dict names dimensions")
        if not score_threshold:
            raise ValueError(
                "score_threshold is an empty dict: name a dimension, or use None for no threshold"
            )
        if names is not None:
            _check_names(score_threshold, names)
        limit = {
            name: _number(v, f"score_threshold[{name!r}]", score_range) for name, v in score_threshold.items()
        }
        return cls(limit, names, rule)

    @classmethod
    def for_judge(
        cls, score_threshold: float | Mapping[str, float] | None, judge: Any, rule: Rule = "all"
    ) -> Thresholds:
        """`parse` with the dimensions and the range of a judge."""
        return cls.parse(score_threshold, judge.dimension_names, rule, getattr(judge, "score_range", "auto"))

    def met(self, scores: Mapping[str, float] | None) -> bool | None:
        """Whether scores reach the thresholds; None where that cannot be said (the judge failed, or left out
        a dimension that counts). Without a threshold always True.

        Raises ValueError when a threshold names a dimension that a reward model does not give.
        """
        if self.limit is None:
            return True
        if not self._complete(scores):
            return None
        return not self._short(scores)

    def shortfalls(self, scores: Mapping[str, float] | None) -> dict[str, tuple[float, float]]:
        """{dimension: (score, needed)} for all that fell short ("mean" under rule="mean")."""
        return self._short(scores) if scores and self.limit is not None else {}

    def feedback(self, scores: Mapping[str, float] | None) -> str:
        """What fell short and by how much; "" when nothing did."""
        return "; ".join(
            _said(name, score, needed) for name, (score, needed) in self.shortfalls(scores).items()
        )

    def describe(self) -> dict[str, Any]:
        return {"score_threshold": self.limit, "rule": self.rule}

    def _complete(self, scores: Mapping[str, float] | None) -> bool:
        if not scores or not all(_finite(score) for score in scores.values()):
            return False
        if isinstance(self.limit, dict):
            if self.dimension_names is None:
                _check_names(self.limit, tuple(scores))
            return all(name in scores for name in self.limit)
        return all(name in scores for name in self.dimension_names or ())

    def _short(self, scores: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        if self.rule == "mean":
            needed = {"mean": self.limit}
            scores = {"mean": sum(scores.values()) / len(scores)}
        elif isinstance(self.limit, dict):
            needed = self.limit
        else:
            needed = dict.fromkeys(scores, self.limit)
        return {
            name: (scores[name], limit)
            for name, limit in needed.items()
            if name in scores and not scores[name] >= limit - TOLERANCE
        }


def _finite(score: Any) -> bool:
    return isinstance(score, numbers.Real) and not isinstance(score, bool) and math.isfinite(score)


def _number(value: Any, what: str, score_range: tuple[float, float] | None) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {value!r}")
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value}")
    if score_range is not None and not score_range[0] <= value <= score_range[1]:
        low, high = score_range
        meant = value / 10 if 1 < value <= 10 else value / 100
        hint = f"; did you mean {meant:g}?" if (low, high) == (0, 1) and 1 < value <= 100 else ""
        raise ValueError(f"{what} = {value:g} can never be met: scores are stored on {low:g}..{high:g}{hint}")
    return value


def _check_names(named: Mapping[str, float], known: tuple[str, ...]) -> None:
    for name in named:
        if name not in known:
            close = difflib.get_close_matches(str(name).lower(), [k.lower() for k in known], 1)
            match = next((k for k in known if close and k.lower() == close[0]), None)
            hint = f"; did you mean {match!r}?" if match else ""
            raise ValueError(
                f"score_threshold names {name!r}, which is not judged{hint} (judged: {', '.join(known)})"
            )


def _said(name: str, score: float, needed: float) -> str:
    digits = 2
    while digits < 9 and f"{score:.{digits}f}" == f"{needed:.{digits}f}":
        digits += 1
    return f"{name} {score:.{digits}f} is below {needed:.{digits}f} (short by {needed - score:.{digits}f})"
