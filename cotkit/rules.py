"""How a trace's scores are held against thresholds, in a run and where thresholds are tuned.

    all       every score reaches its own threshold      any       at least one does
    mean, min, median   of the scores reach one threshold   logistic  a learned chance of being right does

A threshold is reached at equality; differences below TOLERANCE do not count, so that a mean of 0.7 in
floating point is 0.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

RULES = ("all", "any", "mean", "min", "median", "logistic")
TOLERANCE = 1e-9


def combined(rule: str, scores: Any, weights: Any = None, intercept: float = 0.0) -> np.ndarray:
    """What "mean", "min", "median" or "logistic" makes of a trace's scores (the last axis of `scores`)."""
    import numpy as np

    scores = np.asarray(scores, float)
    if rule == "logistic":
        return 1 / (1 + np.exp(-np.maximum(scores @ np.asarray(weights) + intercept, -700.0)))
    return {"mean": np.mean, "min": np.min, "median": np.median}[rule](scores, axis=-1)
