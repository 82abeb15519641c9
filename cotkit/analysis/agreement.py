"""How far scores agree: with each other and with the verdict.

    cohen_kappa         of two yes/no decisions
    weighted_kappa      of two numeric scores
    krippendorff_alpha  of any number of scores, some missing

All three are 1 for perfect agreement and 0 for what chance would give. Each takes weights a row, so that
`agreement` can give intervals over resampled problems.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.calibration import problem_weights
from cotkit.analysis.intervals import NAN

if TYPE_CHECKING:
    import pandas


def cohen_kappa(first: np.ndarray, second: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Chance-corrected agreement of two decisions; nan where both always decide the same one thing.

    Source: Cohen (1960), Educational and Psychological Measurement 20:37-46.
    """
    a, b = np.average(first, weights=weights), np.average(second, weights=weights)
    by_chance = a * b + (1 - a) * (1 - b)
    same = np.average(np.asarray(first) == np.asarray(second), weights=weights)
    return float((same - by_chance) / (1 - by_chance)) if by_chance < 1 else NAN


def weighted_kappa(first: np.ndarray, second: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Kappa with quadratic weights: 1 - the mean squared difference over that of pairs drawn by chance.

    Needs no categories. Source: Cohen (1968), Psychological Bulletin 70:213-220; the form by moments is
    Fleiss and Cohen (1973), Educational and Psychological Measurement 33:613-619.
    """
    mean = lambda values: np.average(values, weights=weights)  # noqa: E731
    a, b = mean(first), mean(second)
    by_chance = mean((first - a) ** 2) + mean((second - b) ** 2) + (a - b) ** 2
    return float(1 - mean((first - second) ** 2) / by_chance) if by_chance > 0 else NAN


def krippendorff_alpha(
    ratings: np.ndarray, level: str = "ordinal", weights: np.ndarray | None = None
) -> float:
    """Krippendorff's alpha of `ratings` (row by rater, nan = missing), `level` "ordinal" or "interval".

    The ordinal distance of two values is that of their mid-ranks among all values, so ordinal alpha is
    interval alpha of mid-ranks. nan where all values are equal.
    Source: Krippendorff (2011), Computing Krippendorff's alpha-reliability, sections D and F.
    """
    if level not in ("ordinal", "interval"):
        raise ValueError(f"level must be 'ordinal' or 'interval', got {level!r}")
    values, codes = np.unique(ratings, return_inverse=True)
    return _alpha(values, codes.reshape(ratings.shape), ~np.isnan(ratings), level, weights)


def _alpha(
    values: np.ndarray, codes: np.ndarray, there: np.ndarray, level: str, weights: np.ndarray | None
) -> float:
    """`values[codes]` are the ratings that are `there`."""
    raters = there.sum(axis=1)
    weights = np.where(raters > 1, np.ones(len(codes)) if weights is None else weights, 0.0)
    each = there * weights[:, None]
    counts = np.bincount(codes.ravel(), each.ravel(), minlength=len(values))
    total = counts.sum()
    place = np.cumsum(counts) - counts / 2 if level == "ordinal" else np.nan_to_num(values)
    mean = (counts * place).sum() / max(total, 1)
    expected = 2 * (counts * (place - mean) ** 2).sum() / max(total - 1, 1)
    rated = np.where(there, place[codes], 0.0)
    own = rated.sum(axis=1) / np.maximum(raters, 1)
    spread = (there * (rated - own[:, None]) ** 2).sum(axis=1)
    observed = (weights * 2 * raters * spread / np.maximum(raters - 1, 1)).sum() / max(total, 1)
    return float(1 - observed / expected) if expected > 0 else NAN


def agreement(
    scores: Mapping[str, np.ndarray],
    cuts: Mapping[str, float],
    right: np.ndarray,
    problem: np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
) -> pandas.DataFrame:
    """One line a pair: first, second (a score or "verdict"), measure, value with interval, n.

    "kappa" compares decisions: each score cut at its own entry of `cuts`, and the verdict; "weighted kappa"
    the mid-ranks of two scores, "alpha" (first = second = "all scores") those of all: scores that order the
    traces alike agree, whatever their scales. Percentile intervals over problems.
    """
    import pandas
    from scipy.stats import rankdata

    ranks = {name: rankdata(values) for name, values in scores.items()}

    decided = {name: values >= cuts[name] for name, values in scores.items()} | {"verdict": right}
    measures: list[tuple[str, str, str, Callable]] = [
        (a, b, "kappa", lambda w, a=a, b=b: cohen_kappa(decided[a], decided[b], w))
        for a, b in itertools.combinations(decided, 2)
    ]
    measures += [
        (a, b, "weighted kappa", lambda w, a=a, b=b: weighted_kappa(ranks[a], ranks[b], w))
        for a, b in itertools.combinations(scores, 2)
    ]
    if len(scores) > 1:
        table = np.column_stack(list(ranks.values()))
        values, codes = np.unique(table, return_inverse=True)
        parts = values, codes.reshape(table.shape), np.ones(table.shape, bool), "interval"
        measures.append(("all scores", "all scores", "alpha", lambda w: _alpha(*parts, w)))
    drawn = np.array(
        [[f(weights) for *_, f in measures] for weights in problem_weights(problem, resamples, seed)]
    )
    lines = []
    for at, (first, second, measure, f) in enumerate(measures):
        known = drawn[:, at][~np.isnan(drawn[:, at])]
        low, high = (
            np.quantile(known, [0.5 - confidence / 2, 0.5 + confidence / 2]) if len(known) > 1 else (NAN, NAN)
        )
        line = {"first": first, "second": second, "measure": measure, "value": f(None)}
        lines.append(line | {"value_low": low, "value_high": high, "n": len(right)})
    return pandas.DataFrame(lines)
