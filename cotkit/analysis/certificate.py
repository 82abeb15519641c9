"""What a threshold is guaranteed to do, by tests that hold for a finite number of labels.

    fixed_sequence       precision among the kept: Learn-then-Test, binomial tail, strictest step first
    conformal_holds      losses that only grow, or only shrink, with a laxer threshold: conformal risk control
    apparent_target      the precision to test for when the verifier itself errs; `rogan_gladen` corrects one
    power                the chance that a certificate is reached; `planned_start` and `labels_needed` follow
    simulate_thresholds  how often the certified and the naive threshold miss their target

A path is a sequence of steps from strict to lenient, each keeping all that the step before keeps; counts
along it are arrays whose last axis is the step. The observations must be independent: one trace a problem.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.intervals import Rate

if TYPE_CHECKING:
    import pandas

POWER = 0.8  # the chance to succeed that `labels_needed` aims at
MOST_LABELS = 1_000_000
NEAR_BEST = 0.02  # a start is as good as the best when its estimated power is this near

Errors = Mapping[str, tuple[int, int]]


def fixed_sequence(
    wrong: np.ndarray, kept: np.ndarray, target: float, delta: float, start: np.ndarray | int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(the most lenient certified step, -1 = none; the p-value of each step).

    `wrong` of `kept` traces at each step, strictest first. p is the chance of so few wrong ones if the true
    precision were just below `target`; steps are tested one after the other from `start` on, at full `delta`
    each, until the first fails. With probability 1 - delta no certified step misses the target, whatever the
    sample size, as long as path and start were fixed without these traces.
    Source: Angelopoulos et al. (2021), Learn then Test, arXiv 2110.01052, section 3.2.
    """
    from scipy.stats import binom

    p = binom.cdf(wrong, kept, 1 - target)
    before = np.arange(p.shape[-1]) < np.expand_dims(start, -1)
    last = np.logical_and.accumulate((p <= delta) | before, axis=-1).sum(axis=-1) - 1
    return np.where(last >= start, last, -1), p


def power(
    right: np.ndarray, kept: np.ndarray, ratio: np.ndarray | float, target: float, delta: float
) -> np.ndarray:
    """The chance of each step to pass the test, by the counts of the tune split, when `ratio` traces are
    tested for each one counted there."""
    from scipy.stats import binom

    tested = np.floor(kept * ratio).astype(int)
    most = binom.ppf(delta, tested, 1 - target)  # wrong traces that still pass
    most = np.where(binom.cdf(most, tested, 1 - target) <= delta, most, most - 1)
    return np.where(most >= 0, binom.cdf(most, tested, 1 - (right + 0.5) / (kept + 1)), 0.0)


def planned_start(
    right: np.ndarray, kept: np.ndarray, ratio: float, target: float, delta: float
) -> np.ndarray:
    """The step to begin with. Strict steps keep too few traces to show anything, and a fixed sequence ends at
    the first failure: it begins at the strictest step whose power is near the best."""
    chance = power(right, kept, ratio, target, delta)
    return np.argmax(chance >= chance.max(axis=-1, keepdims=True) - NEAR_BEST, axis=-1)


def labels_needed(right: np.ndarray, kept: np.ndarray, target: float, delta: float) -> int | None:
    """How many traces must be tested for one of the steps to pass with 80 % chance; None = not even a million
    would do. The last step keeps all."""
    sizes = np.unique(np.geomspace(2, MOST_LABELS, 300).astype(int))
    chance = power(right, kept, sizes[:, None] / kept[-1], target, delta)
    enough = (chance >= POWER).any(axis=-1)
    return int(sizes[enough.argmax()]) if enough.any() else None


def conformal_holds(losses: np.ndarray, n: int, level: float) -> np.ndarray:
    """At which steps the expected loss of a new trace is at most `level`.

    `losses[s]`: how many of `n` traces are lost at step s, monotone along the path; take the last step that
    holds for a loss that grows, the first for one that shrinks. Not for precision, which is not monotone.
    Source: Angelopoulos et al. (2022), Conformal Risk Control, arXiv 2208.02814, equation 4 with B = 1.
    """
    return (np.asarray(losses) + 1) / (n + 1) <= level


def check_errors(errors: Errors | None) -> None:
    """Raises ValueError unless both error rates of a verifier are there as (errors, audited) counts."""
    if errors is None:
        return
    if set(errors) != {"false_accept", "false_reject"}:
        raise ValueError(
            "verifier_errors needs 'false_accept': (wrong answers it called right, wrong ones audited) and "
            f"'false_reject': (right answers it called wrong, right ones audited), got {sorted(errors)}"
        )
    for name, counts in errors.items():
        pair = isinstance(counts, (tuple, list)) and len(counts) == 2
        pair = pair and all(isinstance(count, numbers.Integral) for count in counts)
        if not (pair and 0 <= counts[0] <= counts[1] and counts[1] > 0):
            raise ValueError(f"verifier_errors[{name!r}] must be (errors, audited), got {counts!r}")


def apparent_target(target: float, errors: Errors | None, delta: float) -> tuple[float, float]:
    """(the precision by the verifier's labels that implies the true one, the delta left for that test).

    True precision q looks like q (1 - false_reject) + (1 - q) false_accept. The rates are known from an audit
    only: each is taken at its worse Clopper-Pearson bound, which costs delta/4, and the test gets delta/2.
    Assumes that the verifier errs on kept traces as often as on audited ones.
    Source of the relation: Rogan and Gladen (1978), American Journal of Epidemiology 107:71-76.
    Raises ValueError when the audit does not show the verifier to be better than a coin.
    """
    from scipy.stats import beta

    if errors is None:
        return target, delta
    (accepted, wrong), (rejected, right) = errors["false_accept"], errors["false_reject"]
    most_accepted = 1.0 if accepted == wrong else beta.ppf(1 - delta / 4, accepted + 1, wrong - accepted)
    least_rejected = 0.0 if rejected == 0 else beta.ppf(delta / 4, rejected, right - rejected + 1)
    most_rejected = 1.0 if rejected == right else beta.ppf(1 - delta / 4, rejected + 1, right - rejected)
    if most_accepted + most_rejected >= 1:
        raise ValueError(
            f"verifier_errors: {accepted} of {wrong} wrong answers accepted and {rejected} of {right} right "
            "ones rejected do not show the verifier to be better than a coin: audit more answers"
        )
    return float(target * (1 - least_rejected) + (1 - target) * most_accepted), delta / 2


def rogan_gladen(
    share: float, n: float, errors: Errors, confidence: float = 0.95
) -> tuple[float, float, float]:
    """(value, low, high): the true share of right traces where the verifier calls `share` of `n` right.

    Source: Rogan and Gladen (1978); interval of Lang and Reiczigel (2014), Preventive Veterinary Medicine
    113:13-22, which counts the uncertainty of the audit in.
    """
    from statistics import NormalDist

    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    (accepted, wrong), (rejected, right) = errors["false_accept"], errors["false_reject"]
    value = (share - accepted / wrong) / (1 - accepted / wrong - rejected / right)
    seen, size = (n * share + z * z / 2) / (n + z * z), n + z * z
    hit, hits = (right - rejected + 1) / (right + 2), right + 2
    miss, misses = (wrong - accepted + 1) / (wrong + 2), wrong + 2
    power = hit + miss - 1
    centre = (seen + miss - 1) / power
    of_hit, of_miss = hit * (1 - hit) / hits, miss * (1 - miss) / misses
    centre_shift = 2 * z * z * (centre * of_hit - (1 - centre) * of_miss)
    half = z / power * math.sqrt(seen * (1 - seen) / size + centre**2 * of_hit + (1 - centre) ** 2 * of_miss)
    low, high = centre + centre_shift - half, centre + centre_shift + half
    return tuple(float(min(1.0, max(0.0, x))) for x in (value, low, high))


def naive_step(right: np.ndarray, kept: np.ndarray, target: float) -> np.ndarray:
    """The most lenient step whose counted precision reaches the target, -1 = none: what is done by feel."""
    reached = (right >= target * kept) & (kept > 0)
    steps = reached.shape[-1]
    return np.where(reached.any(axis=-1), steps - 1 - np.argmax(reached[..., ::-1], axis=-1), -1)


def simulate_thresholds(
    labels: Sequence[int] = (50, 100, 200, 500, 1000, 2000),
    *,
    target_precision: float = 0.9,
    delta: float = 0.1,
    repeats: int = 400,
    seed: int = 0,
) -> pandas.DataFrame:
    """How often a threshold misses its target: naive and certified, on made-up judges whose truth is known.

    Three traces in four are right. Scores lie on 0, 0.1 ... 1; those of right and of wrong traces are normal,
    1.5 standard deviations apart. The naive threshold is the lowest whose precision on all `labels` reaches
    the target; the certified one plans on 40 % of them and tests on 40 %. One line a number of labels and
    way: missed [Wilson interval], none (share of repeats without a threshold), kept (mean share where there
    is one).
    """
    import pandas
    from scipy.stats import norm

    edges = np.arange(0.95, 0.0, -0.1)  # levels 1, 0.9 ... 0, strictest first
    below = norm.cdf(edges, [[0.65], [0.35]], 0.2)  # of right and of wrong traces
    cells = np.diff(1 - below, prepend=0, append=1, axis=1) * [[0.75], [0.25]]
    kept_share = cells.sum(axis=0).cumsum()
    misses = cells[0].cumsum() / kept_share < target_precision
    rng = np.random.default_rng(seed)

    def counts(n: int) -> tuple[np.ndarray, np.ndarray]:  # right and kept at each step
        drawn = rng.multinomial(n, cells.ravel(), size=repeats).reshape(repeats, 2, -1).cumsum(axis=-1)
        return drawn[:, 0], drawn.sum(axis=1)

    lines = []
    for n in labels:
        tune, certify = counts(round(0.4 * n)), counts(round(0.4 * n))
        rest = counts(n - 2 * round(0.4 * n))
        start = planned_start(*tune, 1.0, target_precision, delta)
        found, _ = fixed_sequence(certify[1] - certify[0], certify[1], target_precision, delta, start)
        everything = [sum(parts) for parts in zip(tune, certify, rest, strict=True)]
        for way, step in (("naive", naive_step(*everything, target_precision)), ("certified", found)):
            there = step >= 0
            missed = Rate.of(int((misses[step] & there).sum()), repeats)
            line = {"labels": n, "way": way, "missed": missed.value, "missed_low": missed.low}
            line |= {"missed_high": missed.high, "none": float((~there).mean())}
            lines.append(line | {"kept": float(kept_share[step[there]].mean()) if there.any() else math.nan})
    return pandas.DataFrame(lines)
