"""Rates, differences and rankings that carry their uncertainty.

No function here gives a bare number: a rate comes as a `Rate` (count and Wilson interval), a comparison of
two ways on the same problems as a `PairedDifference`, the power of a score to rank right above wrong as an
`Auc`. Intervals are 95 % unless told otherwise. Without data (n = 0) values and bounds are nan, never 0.

Traces of one problem are no independent observations: the functions that take `groups` treat the problem as
the unit, so that more traces of the same problems do not feign certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

NAN = float("nan")


def bounded(value: float, low: float | None = None, high: float | None = None, n: int | None = None) -> str:
    """In words, with the interval and the count where there are any."""
    bounds = "" if low is None or high is None or not low <= high else f" [{low:.2f}, {high:.2f}]"
    return f"{value:.2f}{bounds}" + (f" (n = {n})" if n else "")


def told(low: float, high: float, at: float, above: str, below: str, neither: str) -> str:
    """`above` or `below` where the interval lies on that side of `at`, else `neither` (also for nan)."""
    return above if low > at else below if high < at else neither


def wilson_interval(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, within 0..1; (nan, nan) for n = 0.

    Unlike the normal one it stays honest at 0 and 1 and for a handful of observations. `successes` and `n`
    may be fractional (effective counts). Raises ValueError unless 0 <= successes <= n.
    Source: Wilson (1927), JASA 22:209-212; Newcombe (1998), Statistics in Medicine 17:857-872, method 3.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return NAN, NAN
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (0.0 if successes == 0 else max(0.0, centre - half)), (
        1.0 if successes == n else min(1.0, centre + half)
    )


@dataclass(frozen=True)
class Rate:
    """A proportion with its count and interval. `str()` gives "0.75 [0.47, 0.91] (n = 12)"."""

    successes: int
    n: int
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, successes: int, n: int, confidence: float = 0.95) -> Rate:
        return cls(successes, n, successes / n if n else NAN, *wilson_interval(successes, n, confidence))

    @classmethod
    def of_flags(cls, flags: Iterable[bool | None]) -> Rate:
        """The share of True among True and False; None (undecided) counts in neither."""
        decided = [bool(flag) for flag in flags if flag is not None]
        return cls.of(sum(decided), len(decided))

    @classmethod
    def of_grouped(cls, flags: Sequence[bool], groups: Sequence, confidence: float = 0.95) -> Rate:
        """The share of True among traces of which several belong to one problem, `groups[i]` naming it.

        Wilson's interval on the effective number of observations p(1-p)/variance, where the variance is that
        of a ratio of totals over problems (by the jackknife); the effective number is kept between Kish's
        number (traces of a problem all alike; the number of problems where all have as many traces) and the
        number of traces (independent). Where problems differ in size Student's t on Kish's number stands for
        the normal; below 30 of it the interval is still too narrow.
        Source: Dean and Pagano (2015), Journal of Survey Statistics and Methodology 3:484-503; Kish (1965),
        Survey Sampling, section 11.7; Bell and McCaffrey (2002), Survey Methodology 28:169-181.
        """
        n = len(flags)
        if n == 0:
            return cls.of(0, 0)
        _, problem = np.unique(np.asarray(groups), return_inverse=True)
        true, size = np.bincount(problem, np.asarray(flags, float)), np.bincount(problem)
        value, problems = float(true.sum()) / n, len(size)
        apart = (true - value * size) / np.maximum(n - size, 1)  # a lone problem is not apart from itself
        variance = (problems - 1) / problems * float((apart**2).sum())
        spread = value * (1 - value)  # 0 when all traces agree: then they count as one a problem
        least = kish(size)
        effective = min(max(spread / variance if variance else n, least), n) if spread else least
        confidence = students(confidence, least) if size.min() < size.max() else confidence
        return cls(int(true.sum()), n, value, *wilson_interval(value * effective, effective, confidence))

    def __str__(self) -> str:
        if not self.n:
            return "no value (n = 0)"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}] (n = {self.n})"

    def in_words(self, noun: str = "problems") -> str:
        """For a sentence: "9 of 12 problems (75 %, 95 % interval 47 to 91 %)"."""
        if not self.n:
            return f"none of 0 {noun}"
        percent = f"{100 * self.value:.0f} %, 95 % interval {100 * self.low:.0f} to {100 * self.high:.0f} %"
        return f"{self.successes:,} of {self.n:,} {noun} ({percent})"


def kish(sizes: np.ndarray) -> float:
    """How many independent observations groups of these sizes are worth, each group's members all alike."""
    return float(np.sum(sizes)) ** 2 / max(float(np.sum(np.square(sizes, dtype=float))), 1.0)


def students(confidence: float, effective: float) -> float:
    """The confidence at which a normal interval is as wide as Student's on `effective` observations."""
    from scipy.stats import norm, t

    wide = t.ppf(0.5 + confidence / 2, max(effective - 1, 1))
    return min(float(1 - 2 * norm.sf(wide)), 1 - 1e-12)


@dataclass(frozen=True)
class PairedDifference:
    """How a second way differs from a first one on the same problems.

    `difference` = share right the second way - share right the first way, on -1..1, with its interval;
    `gained` problems are right only the second way, `lost` only the first way; `p_value` is McNemar's
    exact test of "gains and losses are equally likely".
    """

    n: int
    gained: int
    lost: int
    difference: float
    low: float
    high: float
    p_value: float

    @property
    def is_clear(self) -> bool:
        """True when the interval leaves out 0 and the exact test agrees (p < 0.05)."""
        return (self.low > 0 or self.high < 0) and self.p_value < 0.05


def paired_difference(first: Sequence[bool], second: Sequence[bool]) -> PairedDifference:
    """Compare two ways on the same problems: `first[i]` and `second[i]` say whether problem i was right.

    Leave undecided problems out beforehand: a None raises ValueError, as do lengths that differ.
    Sources: McNemar (1947), exact binomial form; the interval is Newcombe (1998), Statistics in Medicine
    17:2635-2650, method 10 (square-and-add of Wilson intervals with continuity-corrected correlation).
    """
    if len(first) != len(second):
        raise ValueError(f"paired values differ in number: {len(first)} and {len(second)}")
    if any(value is None for pair in zip(first, second, strict=True) for value in pair):
        raise ValueError("undecided (None) values cannot be paired: leave those problems out and count them")
    pairs = [(bool(a), bool(b)) for a, b in zip(first, second, strict=True)]
    n = len(pairs)
    if n == 0:
        return PairedDifference(0, 0, 0, NAN, NAN, NAN, NAN)
    both, gained, lost = pairs.count((True, True)), pairs.count((False, True)), pairs.count((True, False))
    low, high = _newcombe_paired(both, gained, lost, n)
    return PairedDifference(n, gained, lost, (gained - lost) / n, low, high, _mcnemar_exact(gained, lost))


def _mcnemar_exact(gained: int, lost: int) -> float:
    changed = gained + lost
    tail = sum(math.comb(changed, i) for i in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**changed)


def _newcombe_paired(both: int, gained: int, lost: int, n: int) -> tuple[float, float]:
    neither = n - both - gained - lost
    p1, p2 = (both + gained) / n, (both + lost) / n  # share right the second and the first way
    (low1, high1), (low2, high2) = wilson_interval(both + gained, n), wilson_interval(both + lost, n)
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    cross = both * neither - gained * lost
    if cross > 0:
        cross = max(cross - n / 2, 0)
    phi = cross / math.sqrt(margins) if margins else 0.0
    down = (p1 - low1) ** 2 - 2 * phi * (p1 - low1) * (high2 - p2) + (high2 - p2) ** 2
    up = (high1 - p1) ** 2 - 2 * phi * (high1 - p1) * (p2 - low2) + (p2 - low2) ** 2
    return max(-1.0, p1 - p2 - math.sqrt(down)), min(1.0, p1 - p2 + math.sqrt(up))


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k traces is right, without bias, from n traces of which c are right.

    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    Source: Chen et al. (2021), Evaluating Large Language Models Trained on Code, arXiv 2107.03374, eq. 1.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must lie between 0 and n, got {c} of {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and n = {n}, got {k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def mean_interval(
    values: Sequence[float], groups: Sequence | None = None, confidence: float = 0.95
) -> tuple[float, float]:
    """Student's interval of a mean, also for a handful of values, where a percentile bootstrap is too narrow.

    `groups[i]` names the problem of `values[i]`, whose traces may be alike; None = every value its own. (nan,
    nan) for fewer than two groups. Values that are all alike give an interval without width: they do not say
    how far others may lie.
    Sources: Student (1908), Biometrika 6:1-25; the variance with groups: Liang and Zeger (1986), Biometrika
    73:13-22, for a mean, times g / (g - 1), with Student's t on g - 1 of the g groups.
    """
    from scipy.stats import t

    data = np.asarray(values, float)
    mean = float(data.mean()) if len(data) else NAN
    _, group = np.unique(np.arange(len(data)) if groups is None else np.asarray(groups), return_inverse=True)
    apart = np.bincount(group, data - mean)
    if len(apart) < 2:
        return NAN, NAN
    error = math.sqrt(len(apart) / (len(apart) - 1) * float((apart**2).sum())) / len(data)
    half = float(t.ppf(0.5 + confidence / 2, len(apart) - 1)) * error
    return mean - half, mean + half


def bootstrap_interval(
    values: Sequence,
    statistic: Callable[[np.ndarray], float] = np.mean,
    groups: Sequence | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of `statistic(values)` when whole groups (problems) are drawn with replacement.

    `groups[i]` names the problem of `values[i]`; None = every value its own. (nan, nan) for fewer than two
    groups, where nothing is known about the spread. The same seed gives the same interval. With few groups
    the percentile interval is too narrow: use `Rate` for proportions, `mean_interval` for means.
    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapters 8 and 13.
    """
    data = np.asarray(values)
    members = _members(np.arange(len(data)) if groups is None else np.asarray(groups))
    if len(members) < 2:
        return NAN, NAN
    rng = np.random.default_rng(seed)
    drawn = (  # one at a time: the resampled values are never all in memory
        statistic(data[np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])])
        for _ in range(resamples)
    )
    bounds = [0.5 - confidence / 2, 0.5 + confidence / 2]
    low, high = np.nanquantile(np.fromiter(drawn, float, resamples), bounds)
    return float(low), float(high)


def _members(groups: np.ndarray) -> list[np.ndarray]:
    """The positions that belong to each group."""
    _, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes))[:-1]) if len(codes) else []


@dataclass(frozen=True)
class Auc:
    """The chance that a right trace scores above a wrong one (ties count half), with its interval."""

    value: float
    low: float
    high: float
    right: int
    wrong: int


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Area under the ROC curve by ranks, ties counted half; nan unless both labels occur.

    Source: Hanley and McNeil (1982), Radiology 143:29-36 (the Mann-Whitney form).
    """
    return _ranked_auc(*_levels(scores, labels), np.ones(len(scores)))


def auc_interval(
    scores: Sequence[float],
    labels: Sequence[bool],
    groups: Sequence | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Auc:
    """`auc` with an interval from resampled groups (problems); `groups[i]` names the problem of trace i.

    The bootstrap gives the variance, hence the effective number of observations v(1-v)/variance, and
    Wilson's interval on that number stays within 0..1. The effective number is at most four times the
    problems of the rarer label, so that a handful of problems perfectly told apart does not pass for
    certainty. (On simulated sets of 8 to 60 problems with four traces each the 95 % interval holds the true
    value 91 to 99 times in 100; the percentile interval only 71 to 95 times.)
    """
    level, right = _levels(scores, labels)
    value = _ranked_auc(level, right, np.ones(len(right)))
    counts = int(right.sum()), int((~right).sum())
    if math.isnan(value):
        return Auc(NAN, NAN, NAN, *counts)
    _, problem = np.unique(
        np.arange(len(right)) if groups is None else np.asarray(groups), return_inverse=True
    )
    rarer = min(len(np.unique(problem[right])), len(np.unique(problem[~right])))
    n = int(problem.max()) + 1
    rng = np.random.default_rng(seed)
    drawn = (
        _ranked_auc(level, right, np.bincount(rng.integers(0, n, n), minlength=n)[problem])
        for _ in range(resamples)
    )
    variance = np.nanvar(np.fromiter(drawn, float, resamples)) * n / max(n - 1, 1)
    effective = value * (1 - value) / variance if variance > 0 else rarer
    effective = min(max(effective, 1.0), 4.0 * rarer)
    return Auc(value, *wilson_interval(value * effective, effective, confidence), *counts)


def _levels(scores: Sequence[float], labels: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Scores as positions among the distinct scores, labels as booleans."""
    if len(scores) != len(labels):
        raise ValueError(f"scores and labels differ in number: {len(scores)} and {len(labels)}")
    values = np.asarray(scores, float)
    if not np.isfinite(values).all():
        raise ValueError("a score that is missing cannot be ranked: leave those traces out and count them")
    return np.unique(values, return_inverse=True)[1], np.asarray(labels, bool)


def _ranked_auc(level: np.ndarray, right: np.ndarray, weights: np.ndarray) -> float:
    """AUC of weighted observations from the counts at each distinct score."""
    ups = np.bincount(level, weights * right)
    downs = np.bincount(level, weights * ~right)
    pairs = ups.sum() * downs.sum()
    return float((ups * (np.cumsum(downs) - downs / 2)).sum() / pairs) if pairs else NAN
