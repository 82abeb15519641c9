"""What a threshold buys, and what a score is worth as a probability.

`curve` follows a path of thresholds (precision, recall, kept share, false keeps, cost) with bands from a
bootstrap of problems; the ROC, the precision-recall and the cost figure are all drawn from it. `reliability`
compares scores with the share that is right: raw, after Platt's and after isotonic calibration, both fitted
on other problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.intervals import NAN, Rate, kish, wilson_interval

if TYPE_CHECKING:
    import pandas

BINS = 10
LEAST_PROBLEMS = 10  # for a slope: with fewer the interval misses too often
SHARES = ("precision", "recall", "kept", "false_kept")


def problem_weights(problem: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """A weight a row for each resample: how often its problem was drawn. `problem` holds codes from 0."""
    rng, n = np.random.default_rng(seed), int(problem.max()) + 1
    for _ in range(resamples):
        yield np.bincount(rng.integers(0, n, n), minlength=n)[problem]


def counts_along(step: np.ndarray, weights: np.ndarray, steps: int) -> np.ndarray:
    """The weight of the rows kept at each step: `step` is the first that keeps a row."""
    return np.cumsum(np.bincount(step, weights, minlength=steps + 1))[:steps]


def curve(
    step: np.ndarray,
    right: np.ndarray,
    problem: np.ndarray,
    steps: int,
    *,
    costs: tuple[float, float],
    confidence: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
) -> pandas.DataFrame:
    """One line a step: kept_n of n rows; precision, recall, kept, false_kept (share of the wrong rows that is
    kept) and cost_per_1000, each with `_low` and `_high`.

    Bands hold point by point. Those of the shares are Wilson's on the effective number of observations, from
    the variance over resampled problems, kept between Kish's number and that of the rows behind the share
    (see `Rate.of_grouped`): a percentile band would be empty where all kept rows are right. Those of the cost
    are percentiles. `costs`: of a wrong row kept, of a right row lost.
    """
    import pandas

    problems = int(problem.max()) + 1

    def alike(rows: np.ndarray) -> tuple[float, int]:
        """The least and the most independent observations among these rows."""
        return kish(np.bincount(problem[rows], minlength=problems)), int(rows.sum())

    def measured(weights: np.ndarray) -> dict[str, np.ndarray]:
        kept, hits = counts_along(step, weights, steps), counts_along(step, weights * right, steps)
        n, good = weights.sum(), (weights * right).sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            found = {"precision": hits / kept, "recall": hits / good, "kept": kept / n}
            found["false_kept"] = (kept - hits) / (n - good)
            found["cost_per_1000"] = 1000 * (costs[0] * (kept - hits) + costs[1] * (good - hits)) / n
        return found

    values = measured(np.ones(len(step)))
    drawn = [measured(weights) for weights in problem_weights(problem, resamples, seed)]
    kept_rows = counts_along(step, np.ones(len(step)), steps)
    behind = {  # of each share's denominator
        "precision": [alike(step <= at) for at in range(steps)],
        "recall": [alike(right)] * steps,
        "kept": [alike(np.ones(len(step), bool))] * steps,
        "false_kept": [alike(~right)] * steps,
    }
    columns = {"step": np.arange(steps), "kept_n": kept_rows.astype(int), "n": len(step)}
    for name, value in values.items():
        draws = np.array([one[name] for one in drawn])
        columns[name] = value
        if name in SHARES:
            low, high = _bands(value, draws, problems, behind[name], confidence)
        else:
            low, high = np.quantile(draws, [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0)
        columns[f"{name}_low"], columns[f"{name}_high"] = low, high
    return pandas.DataFrame(columns)


def _bands(
    value: np.ndarray,
    draws: np.ndarray,
    problems: int,
    behind: list[tuple[float, int]],
    confidence: float,
) -> tuple[np.ndarray, np.ndarray]:
    spread = value * (1 - value)
    known = (~np.isnan(draws)).sum(axis=0)
    bounds = np.full((2, len(value)), NAN)
    for at, (least, rows) in enumerate(behind):
        if rows == 0 or known[at] < 2:
            continue
        variance = np.nanvar(draws[:, at]) * problems / max(problems - 1, 1)
        effective = min(max(spread[at] / variance if variance > 0 else 0.0, least), rows)
        bounds[:, at] = wilson_interval(value[at] * effective, effective, confidence)
    return bounds[0], bounds[1]


def platt(scores: np.ndarray, right: np.ndarray):
    """A function from scores to probabilities, a logistic curve fitted to smoothed labels.

    Source: Platt (1999), Probabilistic outputs for support vector machines, with its targets
    (n+ + 1) / (n+ + 2) and 1 / (n- + 2), so that a perfect separation stays finite.
    """
    from sklearn.linear_model import LogisticRegression

    ups, downs = int(right.sum()), int((~right).sum())
    hope = np.where(right, (ups + 1) / (ups + 2), 1 / (downs + 2))
    centre, spread = scores.mean(), scores.std() or 1.0
    column = ((scores - centre) / spread)[:, None]
    both = np.repeat([True, False], len(scores))
    model = LogisticRegression(C=1e6, solver="newton-cholesky").fit(
        np.tile(column, (2, 1)), both, np.append(hope, 1 - hope)
    )
    return lambda new: model.predict_proba(((np.asarray(new) - centre) / spread)[:, None])[:, 1]


def isotonic(scores: np.ndarray, right: np.ndarray):
    """A function from scores to probabilities, the rising step function nearest to the labels."""
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, right.astype(float)).predict


def brier(predicted: np.ndarray, right: np.ndarray) -> float:
    """The mean squared distance between prediction and outcome; the base rate p alone scores p (1 - p)."""
    return float(np.mean((predicted - right) ** 2))


def ece(predicted: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal count (ties share a bin): how far, on average over rows,
    a bin's mean prediction is from its share of right rows.

    Source: Naeini, Cooper and Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian
    binning, AAAI; equal-count bins as in Nixon et al. (2019), arXiv 1904.01685.
    """
    place = _binned(predicted, bins)
    gaps = np.bincount(place, predicted - right)
    return float(np.abs(gaps).sum() / len(predicted))


def _binned(predicted: np.ndarray, bins: int) -> np.ndarray:
    predicted = np.round(predicted, 9)  # a mean of 0.6 is 0.6 however it was added up
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    return np.unique(np.searchsorted(edges, predicted, side="left"), return_inverse=True)[1]


def reliability(
    fit_scores: np.ndarray,
    fit_right: np.ndarray,
    scores: np.ndarray,
    right: np.ndarray,
    problem: np.ndarray,
    held_out: bool = True,
) -> pandas.DataFrame:
    """One line a calibration ("raw", "platt", "isotonic") and bin, fitted on the first and measured on the
    other rows: predicted (mean), right with interval, n; brier, ece and base_brier (of the base rate alone)
    on every line. Without `held_out` rows to measure on there is "raw" alone. Scores beyond 0..1 are no
    probabilities: "raw" then sets the fitted range to 0..1.
    """
    import pandas

    low, high = fit_scores.min(), fit_scores.max()
    unit = low >= 0 and high <= 1 and scores.min() >= 0 and scores.max() <= 1
    span = high - low or 1.0
    ways = {"raw": np.asarray if unit else lambda new: np.clip((new - low) / span, 0, 1)}
    if held_out:
        ways |= {"platt": platt(fit_scores, fit_right), "isotonic": isotonic(fit_scores, fit_right)}
    lines = []
    for way, calibrated in ways.items():
        predicted = np.asarray(calibrated(scores), float)
        place = _binned(predicted, BINS)
        whole = {"brier": brier(predicted, right), "ece": ece(predicted, right)}
        whole["base_brier"] = float(right.mean() * (1 - right.mean()))
        for at in range(place.max() + 1):
            inside = place == at
            share = Rate.of_grouped(right[inside], problem[inside])
            line = {"calibration": way, "bin": at, "predicted": float(predicted[inside].mean())}
            line |= {"right": share.value, "right_low": share.low, "right_high": share.high, "n": share.n}
            lines.append(line | whole)
    return pandas.DataFrame(lines)


def length_slope(
    score: np.ndarray, length: np.ndarray, right: np.ndarray, problem: np.ndarray
) -> tuple[float, float, float]:
    """(slope, low, high): how much a score rises when the length doubles, at equal verdict.

    Least squares of the score on log2 of the length and the verdict; the interval is Student's over g
    problems (g - 1 degrees of freedom) with the variance of the jackknife that leaves out one problem at a
    time, so rows of a problem may be alike. (On simulated scores without a slope, 10 to 30 problems of one
    or three traces, it leaves out 0 in 4 to 6 % of the sets; the sandwich of Liang and Zeger (1986) with its
    small-sample factors in 5 to 11 %.) nan where lengths do not differ, or with fewer than `LEAST_PROBLEMS`.
    Source: MacKinnon, Nielsen and Webb (2023), Journal of Econometrics 232:272-299, the estimator CV3J; Bell
    and McCaffrey (2002), Survey Methodology 28:169-181.
    """
    from scipy.stats import t

    doublings = np.log2(np.maximum(length, 1))
    problems = int(problem.max()) + 1
    if problems < LEAST_PROBLEMS or np.ptp(doublings) == 0:
        return NAN, NAN, NAN
    design = np.column_stack([doublings - doublings.mean(), np.ones(len(score)), right.astype(float)])
    products = design[:, :, None] * np.column_stack([design, score])[:, None, :]  # row by column by column
    by_problem = np.zeros((problems, *products.shape[1:]))
    np.add.at(by_problem, problem, products)

    def slope(sums: np.ndarray) -> np.ndarray:
        inverse = np.linalg.pinv(sums[..., :-1], rcond=1e-10, hermitian=True)  # also where all verdicts agree
        return (inverse @ sums[..., -1:])[..., 0, 0]

    total = by_problem.sum(axis=0)
    found, without = float(slope(total)), slope(total - by_problem)
    error = math.sqrt((problems - 1) / problems * float(((without - found) ** 2).sum()))
    half = float(t.ppf(0.975, problems - 1)) * error
    return found, found - half, found + half
