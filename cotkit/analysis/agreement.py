"""How far scores agree: with each other and with the verdict.

    cohen_kappa         of two yes/no decisions
    weighted_kappa      of two numeric scores
    krippendorff_alpha  of any number of scores, some missing

All three are 1 for perfect agreement and 0 for what chance would give.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.calibration import problem_weights
from cotkit.analysis.intervals import NAN

if TYPE_CHECKING:
    import pandas


def cohen_kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Chance-corrected agreement of two decisions; nan where both always decide the same one thing.

    Source: Cohen (1960), Educational and Psychological Measurement 20:37-46.
    """
    a, b = np.mean(first), np.mean(second)
    by_chance = a * b + (1 - a) * (1 - b)
    same = np.mean(first == second)
    return float((same - by_chance) / (1 - by_chance)) if by_chance < 1 else NAN


def weighted_kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Kappa with quadratic weights: 1 - the mean squared difference over that of pairs drawn by chance.

    Needs no categories. Source: Cohen (1968), Psychological Bulletin 70:213-220; the form by moments is
    Fleiss and Cohen (1973), Educational and Psychological Measurement 33:613-619.
    """
    by_chance = np.var(first) + np.var(second) + (np.mean(first) - np.mean(second)) ** 2
    return float(1 - np.mean((first - second) ** 2) / by_chance) if by_chance > 0 else NAN


def krippendorff_alpha(ratings: np.ndarray, level: str = "ordinal") -> float:
    """Krippendorff's alpha of `ratings` (row by rater, nan = missing), `level` "ordinal" or "interval".

    The ordinal distance of two values is that of their mid-ranks among all values, so ordinal alpha is
    interval alpha of mid-ranks. nan where all values are equal.
    Source: Krippendorff (2011), Computing Krippendorff's alpha-reliability, sections D and F.
    """
    from scipy.stats import rankdata

    if level not in ("ordinal", "interval"):
        raise ValueError(f"level must be 'ordinal' or 'interval', got {level!r}")
    place = np.array(ratings[(~np.isnan(ratings)).sum(axis=1) > 1], float)  # rows that can be compared
    there = ~np.isnan(place)
    if level == "ordinal":
        place[there] = rankdata(place[there])
    raters, known = there.sum(axis=1), place[there]
    if len(known) == 0 or np.ptp(known) == 0:
        return NAN
    spread = np.nansum((place - np.nanmean(place, axis=1, keepdims=True)) ** 2, axis=1)
    observed = (raters * spread / (raters - 1)).sum() / len(known)
    return float(1 - observed / np.var(known, ddof=1))


def agreement(
    scores: Mapping[str, np.ndarray],
    cuts: Mapping[str, float],
    right: np.ndarray,
    problem: np.ndarray,
    resamples: int = 200,
) -> pandas.DataFrame:
    """One line a pair: first, second (a score or "verdict"), measure, value with interval, n.

    "kappa" compares decisions: each score cut at its own entry of `cuts`, and the verdict; "weighted kappa"
    the mid-ranks of two scores, "alpha" (first = second = "all scores") those of all: scores that order the
    traces alike agree, whatever their scales. 95 % percentile intervals over problems.
    """
    import pandas
    from scipy.stats import rankdata

    ranks = {name: rankdata(values) for name, values in scores.items()}
    decided = {name: values >= cuts[name] for name, values in scores.items()} | {"verdict": right}
    lines = [(*pair, "kappa") for pair in itertools.combinations(decided, 2)]
    lines += [(*pair, "weighted kappa") for pair in itertools.combinations(scores, 2)]
    lines += [("all scores", "all scores", "alpha")] if len(scores) > 1 else []
    table = np.column_stack(list(ranks.values()))

    def measured(rows: np.ndarray | slice) -> list[float]:
        return [
            cohen_kappa(decided[a][rows], decided[b][rows]) if measure == "kappa"
            else weighted_kappa(ranks[a][rows], ranks[b][rows]) if measure == "weighted kappa"
            else krippendorff_alpha(table[rows], "interval")
            for a, b, measure in lines
        ]  # fmt: skip

    every = np.arange(len(right))
    drawn = [measured(np.repeat(every, often)) for often in problem_weights(problem, resamples, 0)]
    found = pandas.DataFrame(lines, columns=["first", "second", "measure"]).assign(value=measured(every))
    bounds = pandas.DataFrame(drawn).quantile([0.025, 0.975])  # nan left out
    return found.assign(value_low=bounds.iloc[0], value_high=bounds.iloc[1], n=len(right))
