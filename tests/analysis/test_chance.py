"""Verdicts dealt out at random: what is found then is the method's own."""

from __future__ import annotations

import math

import pytest
from scored import scored

from cotkit.analysis import check_run_columns, shuffled_verdicts, tune_thresholds


def chance(rows, **options):
    report = tune_thresholds(rows, **options, resamples=2)
    return shuffled_verdicts(report, rows, shuffles=20, **options)


def test_a_good_judge_knows_nothing_of_shuffled_verdicts():
    found = chance(scored(400, 1), rule="mean", target_precision=0.9)
    assert found.auc == pytest.approx(0.5, abs=0.02) and (found.n, found.shuffles) == (400, 60)
    assert found.tells_nothing is True and found.certifies_nothing is True


def test_with_few_traces_or_many_right_ones_nothing_is_claimed():
    assert chance(scored(12, 2)).tells_nothing is None
    rows = scored(200, 1)
    rows["correct"] = [i % 20 > 0 for i in range(200)]
    assert chance(rows).certifies_nothing is None
    alike = chance(rows.assign(correct=True))
    assert math.isnan(alike.auc) and alike.tells_nothing is None


def test_columns_that_a_run_will_not_have_are_refused():
    check_run_columns(["correct", "id", "person", "score_steps"], ["steps", "form"])
    with pytest.raises(ValueError, match=r"no column .score_step.; the run will have .*score_steps"):
        check_run_columns(["correct", "score_step"], ["steps"])
