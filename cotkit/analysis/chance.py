"""What verdicts that are dealt out at random show: nothing, or the method itself finds what is not there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.intervals import auc
from cotkit.analysis.scored_rows import LEAST_ROWS
from cotkit.analysis.tuning import tune_thresholds

if TYPE_CHECKING:
    import pandas

    from cotkit.analysis.tuning import ThresholdReport

NEAR = 0.1  # of 0.5, for a mean AUC over shuffles
EASY = 0.1  # below the target: where so many traces are right, keeping all of them may be enough


@dataclass(frozen=True)
class ShuffledVerdicts:
    """`auc` is the mean over `shuffles` of the tuned scores (nan: all `n` traces have one verdict).
    `tells_nothing`: it is about 0.5 (None = too few traces to say); `certifies_nothing`: no threshold is
    certified (None = so many traces are right that one may be)."""

    auc: float
    shuffles: int
    n: int
    tells_nothing: bool | None
    certifies_nothing: bool | None


def shuffled_verdicts(
    report: ThresholdReport, frame: pandas.DataFrame, shuffles: int = 50, **options: Any
) -> ShuffledVerdicts:
    """The scores of `report` against verdicts dealt out at random, `shuffles` times each, and one tuning on
    such verdicts. `frame` and `options` (without `resamples`) are those that `report` was tuned with."""
    rng, columns = np.random.default_rng(report.record["seed"]), list(report.scores["score"])
    rows, label = report.rows[report.rows["tuned"]], report.record["label"]
    right = rows["right"].to_numpy()
    dealt = [auc(rows[column], rng.permutation(right)) for column in columns for _ in range(shuffles)]
    area = float(np.mean(dealt))
    labelled = frame[frame[label].notna()]
    labelled = labelled.assign(**{label: rng.permutation(labelled[label])})
    by_chance = tune_thresholds(labelled, columns, **options, resamples=2)
    few = math.isnan(area) or len(right) < LEAST_ROWS
    easy = right.mean() >= report.record["target_precision"] - EASY
    return ShuffledVerdicts(
        area,
        len(dealt),
        len(right),
        None if few else abs(area - 0.5) < NEAR,
        None if easy else not by_chance.certified,
    )
