"""Paths through threshold space: nested sets of kept traces, from strict to lenient, laid on the tune split.

Each rule (see cotkit/rules.py) becomes one sequence of steps, so that everything later (curves, tests, costs)
is one-dimensional: `Path.step_of` gives the strictest step at which a row is kept. For "all" and "any" the
sequence is found by peeling a box, the slice with the worst precision first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotkit.rules import TOLERANCE, combined

GRID = 40  # levels of a score at most; beyond that, quantiles
LEAST_OF_A_CLASS = 10  # right and wrong rows, for weights to be learned


@dataclass(frozen=True)
class Path:
    """The steps of a rule. `thresholds`: step by score ("all", "any"), else step by 1; inf = never reached.
    `weights` and `intercept` belong to "logistic"."""

    rule: str
    names: tuple[str, ...]
    thresholds: np.ndarray
    weights: np.ndarray | None = None
    intercept: float = 0.0

    def __len__(self) -> int:
        return len(self.thresholds)

    def step_of(self, scores: np.ndarray) -> np.ndarray:
        """The first step that keeps each row of `scores` (row by score); len(self) = no step does."""
        values = _compared(self.rule, scores, self.weights, self.intercept)
        first = [
            np.searchsorted(-self.thresholds[:, k], -(values[:, k] + TOLERANCE))
            for k in range(values.shape[1])
        ]
        return np.min(first, axis=0) if self.rule == "any" else np.max(first, axis=0)

    def limit(self, step: int) -> float | dict[str, float]:
        """The thresholds of a step as `judge.Thresholds` takes them: by name, or one number."""
        limits = self.thresholds[step]
        if self.rule in ("all", "any"):
            return {name: float(x) for name, x in zip(self.names, limits, strict=True) if np.isfinite(x)}
        return dict.fromkeys(self.names, float(limits[0])) if self.rule == "min" else float(limits[0])

    def describe(self, step: int) -> dict[str, Any]:
        found = {"rule": self.rule, "dimensions": list(self.names), "thresholds": self.limit(step)}
        if self.weights is not None:
            weights = {name: float(w) for name, w in zip(self.names, self.weights, strict=True)}
            found |= {"weights": weights, "intercept": float(self.intercept)}
        return found

    def in_words(self, step: int) -> str:
        """ "correctness >= 0.8 and clarity >= 0.6"."""
        limit = self.limit(step)
        if isinstance(limit, dict):
            joint = " or " if self.rule == "any" else " and "
            return joint.join(f"{name} ≥ {x:.4g}" for name, x in limit.items())
        what = "learned chance of being right" if self.rule == "logistic" else self.rule
        return f"{what} ≥ {limit:.4g}"


def lay_path(rule: str, scores: np.ndarray, right: np.ndarray, names: tuple[str, ...]) -> Path | None:
    """The path of a rule on the tune split; None where the rule has no sense: "logistic" on too few right or
    wrong rows, "median" of fewer than three scores."""
    if rule == "median" and len(names) < 3:
        return None
    weights, intercept = None, 0.0
    if rule == "logistic":
        if min(right.sum(), (~right).sum()) < LEAST_OF_A_CLASS:
            return None
        weights, intercept = _learned(scores, right)
    values = _compared(rule, scores, weights, intercept)
    grids = [_grid(values[:, k]) for k in range(values.shape[1])]
    if len(grids) == 1:
        return Path(rule, names, grids[0][::-1, None], weights, intercept)
    levels = np.stack([np.searchsorted(g, v, side="right") - 1 for g, v in zip(grids, values.T, strict=True)])
    top = np.array([len(grid) - 1 for grid in grids])[:, None]
    if rule == "all":
        limits = list(_peeled(levels, right))[::-1]
    else:  # what "any" rejects is a box: peel it from above, the slice with the best precision first
        limits = [top[:, 0] + 1 - box for box in _peeled(top - levels, ~right)][1:]
        limits.append(0 * top[:, 0])
    padded = [np.append(grid, np.inf) for grid in grids]
    thresholds = [[grid[at] for grid, at in zip(padded, limit, strict=True)] for limit in limits]
    return Path(rule, names, np.array(thresholds))


def _compared(rule: str, scores: np.ndarray, weights: np.ndarray | None, intercept: float) -> np.ndarray:
    """What the thresholds are compared with: the scores themselves, or one number a row (as a column)."""
    return scores if rule in ("all", "any") else combined(rule, scores, weights, intercept)[:, None]


def _grid(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending; quantiles of them where there are many."""
    distinct = np.unique(values)
    if len(distinct) <= GRID:
        return distinct
    return np.unique(np.quantile(values, np.linspace(0, 1, GRID), method="lower"))


def _learned(scores: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and intercept of a ridge logistic regression on standardised scores, for the raw scores."""
    from sklearn.linear_model import LogisticRegression

    centre, spread = scores.mean(axis=0), scores.std(axis=0)
    spread[spread == 0] = 1.0
    model = LogisticRegression(solver="newton-cholesky").fit((scores - centre) / spread, right)
    weights = model.coef_[0] / spread
    return weights, float(model.intercept_[0] - weights @ centre)


def _peeled(levels: np.ndarray, right: np.ndarray) -> Iterator[np.ndarray]:
    """Lower limits (a level a score) of ever smaller boxes; each peel takes off the lowest slice of one
    score, the one with the smallest share of right rows (drawn towards the box's own, as slices are small).

    `levels`: score by row. Source: patient rule induction, Friedman and Fisher (1999), Statistics and
    Computing 9:123-143, section 8.
    """
    limits = np.zeros(len(levels), int)
    yield limits
    while True:
        share = right.mean()
        slices = [level == level.min() for level in levels]
        worth = [(right[off].sum() + share) / (off.sum() + 1) if not off.all() else np.inf for off in slices]
        pick = int(np.argmin(worth))
        if worth[pick] == np.inf:
            return
        inside = ~slices[pick]
        levels, right = levels[:, inside], right[inside]
        limits = limits.copy()
        limits[pick] = levels[pick].min()
        yield limits
