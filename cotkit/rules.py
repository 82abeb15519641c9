"""How a trace's scores are held against thresholds, in a run and where thresholds are tuned.

    all       every score reaches its own threshold      any       at least one does
    mean, min, median   of the scores reach one threshold   logistic  a learned chance of being right does

A threshold is reached at equality; differences below TOLERANCE do not count, so that a mean of 0.7 in
floating point is 0.7. `seal` and `identity` are what thresholds.json is checked by, where it is written and
where it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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


_SEALED = (
    "rule", "dimensions", "thresholds", "weights", "intercept", "target_precision", "delta", "certified",
)  # fmt: skip


def seal(record: Mapping[str, Any]) -> str:
    """A hash over what a certificate speaks of; where thresholds.json holds another it was edited."""
    content = json.dumps([record.get(name) for name in _SEALED], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def identity(description: Any) -> Any:
    """A judge's description as JSON holds it, without the addresses of models."""
    if isinstance(description, Mapping):
        return {key: identity(value) for key, value in description.items() if key != "endpoint"}
    return [identity(one) for one in description] if isinstance(description, (list, tuple)) else description
