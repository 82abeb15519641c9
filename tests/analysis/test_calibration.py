"""Curves, calibration and length slopes: the library's numbers, and bands that cover as they say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import brier_score_loss, precision_recall_curve, roc_auc_score, roc_curve

from cotkit.analysis import calibration
from cotkit.analysis.paths import lay_path
from cotkit.rules import RULES


def drawn(n=600, seed=0, drafts=3):
    rng = np.random.default_rng(seed)
    problem = np.repeat(np.arange(n // drafts), drafts)
    right = rng.normal(size=n // drafts)[problem] + rng.normal(size=n) > -0.5
    score = np.round(np.clip(0.5 + 0.15 * (right - 0.5) + 0.15 * rng.normal(size=n), 0, 1), 1)
    return score, right, problem


def along(score, right, problem, **options):
    path = lay_path("all", score[:, None], right, ("s",))
    step = path.step_of(score[:, None])
    options = {"costs": (1.0, 0.5), "resamples": 50, **options}
    return calibration.curve(step, right, problem, len(path), **options), path


def test_the_curve_is_scikit_learns():
    score, right, problem = drawn()
    table, path = along(score, right, problem)
    precision, recall, cuts = precision_recall_curve(right, score)
    for t, p, r in zip(cuts, precision, recall, strict=False):
        at = int(np.flatnonzero(np.isclose(path.thresholds[:, 0], t))[0])
        assert (table["precision"][at], table["recall"][at]) == pytest.approx((p, r))
    false, true, _ = roc_curve(right, score, drop_intermediate=False)
    assert table["false_kept"].to_numpy() == pytest.approx(false[1:])
    assert table["recall"].to_numpy() == pytest.approx(true[1:])
    area = np.trapezoid([0, *table["recall"]], [0, *table["false_kept"]])
    assert area == pytest.approx(roc_auc_score(right, score))


def test_costs_are_counted_per_thousand_rows():
    score, right, problem = drawn()
    table, _ = along(score, right, problem, costs=(2.0, 0.5))
    kept = score >= 0.5
    cost = 1000 * (2 * (kept & ~right).sum() + 0.5 * (~kept & right).sum()) / len(right)
    at = (np.unique(score)[::-1] >= 0.5).sum() - 1
    assert table["cost_per_1000"][at] == pytest.approx(cost)


def test_bands_cover_the_truth_as_often_as_they_say():
    """90 % bands at a threshold in the middle, 200 data sets of 100 problems with three like traces each."""
    whole, _ = along(*drawn(300_000, seed=99), resamples=2)
    hits = dict.fromkeys(calibration.SHARES, 0)
    for seed in range(200):
        score, right, problem = drawn(300, seed)
        step = 10 - np.round(10 * score).astype(int)
        table = calibration.curve(
            step, right, problem, 11, costs=(1, 1), confidence=0.9, resamples=200, seed=seed
        )
        for name in hits:
            hits[name] += table[f"{name}_low"][4] <= whole[name][4] <= table[f"{name}_high"][4]
    assert {name: n / 200 for name, n in hits.items()} == pytest.approx(dict.fromkeys(hits, 0.9), abs=0.04)


def test_bands_cover_where_problems_have_different_numbers_of_traces():
    """90 % bands, 150 data sets of 200 problems, one in ten with 20 traces and the others with one."""
    rng = np.random.default_rng(1)

    def unequal(n):
        problem = np.repeat(np.arange(n), np.where(rng.random(n) < 0.1, 20, 1))
        ease = rng.normal(size=n)
        right = 0.9 * ease[problem] + 0.44 * rng.normal(size=len(problem)) > -0.6
        score = np.round(5 + 1.5 * (right - 0.5) + 1.5 * rng.normal(size=len(problem)) + ease[problem])
        return 10 - np.clip(score, 0, 10).astype(int), right, problem

    options = {"costs": (1, 1), "confidence": 0.9}
    whole = calibration.curve(*unequal(40_000), 11, **options, resamples=2)
    hits = dict.fromkeys(("precision", "recall", "kept"), 0)
    for _ in range(150):
        table = calibration.curve(*unequal(200), 11, **options, resamples=100)
        for name in hits:
            hits[name] += table[f"{name}_low"][4] <= whole[name][4] <= table[f"{name}_high"][4]
    assert min(hits.values()) / 150 > 0.83, hits


def test_a_band_is_not_empty_where_all_kept_rows_are_right():
    score = np.repeat([0.9, 0.1], 30)
    table, _ = along(score, score > 0.5, np.repeat(np.arange(20), 3))
    assert table["precision"][0] == table["precision_high"][0] == 1
    assert 0.6 < table["precision_low"][0] < 0.8  # ten problems, not thirty traces


def test_one_verdict_gives_a_curve_without_the_other():
    score, _, problem = drawn()
    table, _ = along(score, np.ones(600, bool), problem)
    assert (table["precision"] == 1).all() and table["false_kept"].isna().all()


def test_brier_and_ece_are_the_known_ones():
    predicted, right = np.array([0.2, 0.2, 0.8, 0.8]), np.array([False, True, True, True])
    assert calibration.brier(predicted, right) == pytest.approx(brier_score_loss(right, predicted))
    assert calibration.ece(predicted, right, bins=2) == pytest.approx(0.5 * 0.3 + 0.5 * 0.2)
    rng = np.random.default_rng(0)
    chance = rng.random(200_000)
    assert calibration.ece(chance, rng.random(200_000) < chance) < 0.01


def test_calibration_helps_on_other_rows_and_platt_stays_finite():
    score, right, problem = drawn(6000)
    half = problem < 1000
    table = calibration.reliability(
        score[half], right[half], score[~half], right[~half], problem[~half]
    ).groupby("calibration")
    ece, brier = table["ece"].first(), table["brier"].first()
    assert ece["platt"] < ece["raw"] and ece["isotonic"] < ece["raw"] and brier["platt"] < brier["raw"]
    assert brier["isotonic"] < table["base_brier"].first()["raw"]
    sure = calibration.platt(np.array([0.0, 0.0, 1.0, 1.0]), np.array([False, False, True, True]))
    assert sure(np.array([0.0, 1.0])) == pytest.approx([0.25, 0.75], abs=1e-3)  # Platt's targets 1/4 and 3/4


def test_bins_add_up_and_scores_on_1_to_10_are_set_to_0_to_1():
    score, right, problem = drawn()
    wide = 1 + 9 * score
    table = calibration.reliability(wide, right, wide, right, problem)
    assert table.groupby("calibration")["n"].sum().tolist() == [600] * 3
    assert table["predicted"].between(0, 1).all()


def test_the_length_slope_is_least_squares_and_knows_that_traces_of_a_problem_are_alike():
    rng = np.random.default_rng(0)
    score, right, problem = drawn()
    length = np.exp(5 + rng.normal(size=600) + 0.5 * score)
    slope, low, high = calibration.length_slope(score, length, right, problem)
    fit = LinearRegression().fit(np.column_stack([np.log2(length), right]), score)
    assert slope == pytest.approx(fit.coef_[0]) and low < slope < high
    _, few_low, few_high = calibration.length_slope(*(np.tile(x, 4) for x in (score, length, right, problem)))
    assert few_high - few_low == pytest.approx(high - low, rel=0.02)  # four copies tell nothing new
    assert np.isnan(calibration.length_slope(score, np.ones(600), right, problem)[0])


@pytest.mark.parametrize(("problems", "traces"), [(10, 1), (10, 3), (16, 3), (30, 3)])
def test_scores_that_do_not_follow_the_length_are_called_biased_5_times_in_100(problems, traces):
    rng, clear = np.random.default_rng(problems), 0
    problem = np.repeat(np.arange(problems), traces)
    for _ in range(600):
        alike = rng.normal(size=(2, problems))[:, problem]  # traces of a problem are alike in both
        score, length = alike + rng.normal(size=(2, len(problem)))
        right = rng.random(len(problem)) < 0.5
        _, low, high = calibration.length_slope(score, 2**length, right, problem)
        clear += low > 0 or high < 0
    assert 0.02 < clear / 600 < 0.08


def test_a_slope_over_a_handful_of_problems_is_not_known():
    rng = np.random.default_rng(0)
    for problems, known in ((3, False), (9, False), (10, True)):
        n = 3 * problems
        drawn = rng.normal(size=n), 2 ** rng.normal(size=n), rng.random(n) < 0.5, np.arange(n) // 3
        assert np.isnan(calibration.length_slope(*drawn)).tolist() == [not known] * 3


@pytest.mark.parametrize("rule", RULES)
def test_paths_are_nested_and_keep_what_their_thresholds_say(rule):
    rng = np.random.default_rng(1)
    right = rng.random(400) < 0.6
    scores = np.round(rng.random((400, 3)) + 0.3 * right[:, None], 1)
    path = lay_path(rule, scores, right, ("a", "b", "c"))
    step = path.step_of(scores)
    assert step.max() == len(path) - 1  # the last step keeps all rows it was laid on
    for at in range(len(path)):
        limit = path.limit(at)
        if rule in ("all", "min"):
            kept = (scores >= [limit[name] for name in "abc"]).all(axis=1)
        elif rule == "any":
            kept = np.any([scores[:, "abc".index(name)] >= x for name, x in limit.items()], axis=0)
        elif rule == "logistic":
            kept = 1 / (1 + np.exp(-(scores @ path.weights + path.intercept))) >= limit - 1e-9
        else:
            kept = {"mean": np.mean, "median": np.median}[rule](scores, axis=1) >= limit - 1e-9
        assert ((step <= at) == kept).all()


def test_peeling_finds_the_score_that_matters():
    rng = np.random.default_rng(2)
    right = rng.random(3000) < 0.5
    scores = np.column_stack([rng.integers(0, 10, 3000), rng.integers(0, 10, 3000)]) / 10
    scores[:, 0] = np.where(right, np.maximum(scores[:, 0], 0.5), scores[:, 0])
    path = lay_path("all", scores, right, ("telling", "noise"))
    middle = path.thresholds[len(path) - 1 - 5]  # after five peels
    assert middle.tolist() == [0.5, 0.0]


def test_noise_of_floating_point_makes_no_bins_of_its_own():
    predicted = np.repeat([0.2, 0.6, 0.6 + 1e-15, 0.9], [40, 40, 3, 40])
    assert calibration._binned(predicted, 10).max() == 2
