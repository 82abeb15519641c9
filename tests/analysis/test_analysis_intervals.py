"""Intervals against published values, brute force and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotkit.analysis import (
    Rate,
    auc,
    auc_interval,
    bootstrap_interval,
    mean_interval,
    paired_difference,
    pass_at_k,
    wilson_interval,
)


@pytest.mark.parametrize(
    "successes, n, low, high",
    [  # Newcombe (1998), Statistics in Medicine 17:857-872, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_newcombes_published_values(successes, n, low, high):
    assert wilson_interval(successes, n) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_without_observations_there_is_no_rate():
    assert all(math.isnan(bound) for bound in wilson_interval(0, 0))
    assert str(Rate.of(0, 0)) == "no value (n = 0)"
    assert math.isnan(Rate.of(0, 0).value)
    assert math.isnan(paired_difference([], []).difference)
    assert math.isnan(auc([], [])) and math.isnan(auc([0.5, 0.7], [True, True]))
    assert all(math.isnan(bound) for bound in bootstrap_interval([]))


def test_a_rate_says_its_count_and_interval():
    assert str(Rate.of(9, 12)) == "0.75 [0.47, 0.91] (n = 12)"
    assert Rate.of(9, 12).in_words() == "9 of 12 problems (75 %, 95 % interval 47 to 91 %)"


def test_undecided_flags_count_in_neither_part_of_a_rate():
    assert Rate.of_flags([True, None, False, None]) == Rate.of(1, 2)


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))).filter(lambda x: x[1]))
def test_a_wilson_interval_holds_its_estimate_and_stays_within_0_and_1(counts):
    successes, n = counts
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert high - low > 0  # never certain


@pytest.mark.parametrize("bad", [(-1, 5), (6, 5)])
def test_impossible_counts_are_refused(bad):
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson_interval(*bad)


def test_traces_that_agree_within_each_problem_count_as_one_observation_a_problem():
    flags = [True] * 4 + [False] * 4 + [True] * 4 + [False] * 4
    problems = [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    grouped, problem_rate = Rate.of_grouped(flags, problems), Rate.of(2, 4)
    assert (grouped.successes, grouped.n) == (8, 16)
    assert (grouped.low, grouped.high) == pytest.approx((problem_rate.low, problem_rate.high), abs=0.02)


def test_traces_that_differ_within_each_problem_count_one_by_one():
    flags = [True, False] * 8
    grouped = Rate.of_grouped(flags, [i // 4 for i in range(16)])  # every problem is half right
    assert grouped == Rate.of_grouped(flags, list(range(16))) == Rate.of(8, 16)


def test_all_traces_right_is_no_certainty():
    rate = Rate.of_grouped([True] * 12, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    assert (rate.low, rate.high) == wilson_interval(3, 3)


def test_paired_difference_gives_newcombes_published_interval():
    # Newcombe (1998), Statistics in Medicine 17:2635-2650, table II, cells 36, 12, 2, 0, method 10
    first = [True] * 36 + [False] * 12 + [True] * 2
    second = [True] * 36 + [True] * 12 + [False] * 2
    gap = paired_difference(first, second)
    assert (gap.n, gap.gained, gap.lost, gap.difference) == (50, 12, 2, pytest.approx(0.2))
    assert (gap.low, gap.high) == (pytest.approx(0.0569, abs=5e-5), pytest.approx(0.3404, abs=5e-5))
    assert gap.p_value == pytest.approx(2 * (1 + 14 + 91) / 2**14)  # binomial tail, written out
    assert gap.is_clear


@pytest.mark.parametrize(
    "gained, lost, p", [(2, 0, 0.5), (5, 0, 0.0625), (6, 0, 0.03125), (3, 3, 1.0), (0, 0, 1.0)]
)
def test_mcnemars_exact_p(gained, lost, p):
    first = [False] * gained + [True] * lost + [True] * 10
    second = [True] * gained + [False] * lost + [True] * 10
    assert paired_difference(first, second).p_value == pytest.approx(p)


def test_swapping_the_two_ways_mirrors_the_difference():
    first, second = [True, False, False, True, False], [True, True, True, False, False]
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert (there.difference, there.low, there.high) == pytest.approx(
        (-back.difference, -back.high, -back.low)
    )


def test_two_more_of_twelve_problems_are_not_called_clear():
    gap = paired_difference([True] * 6 + [False] * 6, [True] * 8 + [False] * 4)
    assert gap.difference == pytest.approx(2 / 12)
    assert gap.low < 0 < gap.high and not gap.is_clear


def test_undecided_problems_cannot_be_paired():
    with pytest.raises(ValueError, match="undecided"):
        paired_difference([True, None], [True, False])
    with pytest.raises(ValueError, match="differ in number"):
        paired_difference([True], [True, False])


@pytest.mark.parametrize(
    "n, c, k, expected", [(4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 2, 2, 5 / 6), (5, 0, 5, 0), (5, 1, 5, 1)]
)
def test_pass_at_k_counts_the_subsets(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected)


@pytest.mark.parametrize("bad", [(4, 5, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_what_cannot_be(bad):
    with pytest.raises(ValueError):
        pass_at_k(*bad)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_the_right_order(pairs):
    scores, labels = [s / 5 for s, _ in pairs], [label for _, label in pairs]
    ups = [s for s, label in zip(scores, labels, strict=True) if label]
    downs = [s for s, label in zip(scores, labels, strict=True) if not label]
    won = [1.0 if up > down else 0.5 if up == down else 0.0 for up in ups for down in downs]
    assert math.isnan(auc(scores, labels)) if not won else auc(scores, labels) == pytest.approx(np.mean(won))


def test_a_missing_score_cannot_be_ranked():
    with pytest.raises(ValueError, match="cannot be ranked"):
        auc([0.5, float("nan")], [True, False])


def test_a_handful_of_problems_perfectly_told_apart_is_no_certainty():
    found = auc_interval([0.9, 0.8, 0.7, 0.2, 0.1, 0.3], [True] * 3 + [False] * 3)
    assert found.value == 1.0
    assert found.high == 1.0 and found.low < 0.6
    assert (found.right, found.wrong) == (3, 3)


def test_repeating_every_trace_adds_no_certainty():
    rng = np.random.default_rng(3)
    labels = rng.random(40) < 0.5
    scores = np.round(rng.normal(0.5 + 0.15 * labels, 0.2), 1)
    once = auc_interval(scores, labels, np.arange(40))
    often = auc_interval(np.tile(scores, 5), np.tile(labels, 5), np.tile(np.arange(40), 5))
    assert (often.low, often.high) == pytest.approx((once.low, once.high), abs=0.03)


def test_the_auc_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)

    def draw(problems: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        hardness, taste = rng.normal(size=(2, problems, 1)) * math.sqrt(0.5)
        right = hardness + rng.normal(size=(problems, 4)) * math.sqrt(0.5) > 0
        score = right + taste + rng.normal(size=(problems, 4)) * math.sqrt(0.5)
        return np.round(score).ravel(), right.ravel(), np.repeat(np.arange(problems), 4)

    truth = auc(*draw(50_000)[:2])
    intervals = [auc_interval(*draw(16), resamples=200) for _ in range(150)]
    held = sum(i.low <= truth <= i.high for i in intervals)
    assert 0.88 <= held / len(intervals) <= 1
    assert np.mean([i.high - i.low for i in intervals]) < 0.4  # and it still says something


def test_the_bootstrap_draws_whole_problems_and_repeats_itself():
    values, problems = [0.0] * 10 + [1.0] * 10, [0] * 10 + [1] * 10
    assert bootstrap_interval(values, groups=problems) == (0.0, 1.0)  # two problems: anything from 0 to 1
    low, high = bootstrap_interval(values)
    assert 0.2 < low < 0.5 < high < 0.8
    assert bootstrap_interval(values, np.median, seed=1) == bootstrap_interval(values, np.median, seed=1)
    assert all(math.isnan(bound) for bound in bootstrap_interval([1.0, 2.0], groups=["a", "a"]))


def test_intervals_hold_where_problems_have_different_numbers_of_traces():
    """90 % nominal, 300 data sets of 200 problems, one in ten with 20 traces and the others with one."""
    rng = np.random.default_rng(2)

    def drawn(problems):
        size = np.where(rng.random(problems) < 0.1, 20, 1)
        problem = np.repeat(np.arange(problems), size)
        ease = rng.normal(size=problems)
        return 0.9 * ease[problem] + 0.44 * rng.normal(size=len(problem)) > -0.6, problem

    truth = drawn(100_000)[0].mean()
    found = [Rate.of_grouped(*drawn(200), confidence=0.9) for _ in range(300)]
    assert np.mean([rate.low <= truth <= rate.high for rate in found]) > 0.83


def test_the_interval_of_a_mean_is_students_where_problems_have_one_trace_each():
    from scipy.stats import t

    values = np.random.default_rng(7).normal(size=12)
    half = t.ppf(0.975, 11) * values.std(ddof=1) / math.sqrt(12)
    assert mean_interval(values) == pytest.approx((values.mean() - half, values.mean() + half))
    doubled = mean_interval(np.repeat(values, 2), np.repeat(range(12), 2))
    assert doubled == pytest.approx(mean_interval(values))  # a trace that is there twice feigns no certainty
    assert all(math.isnan(x) for x in mean_interval(values[:2], ["a", "a"]))
    assert all(math.isnan(x) for few in ([], [1.0]) for x in mean_interval(few))


@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_interval_of_a_mean_of_a_handful_holds_the_truth(n):
    rng = np.random.default_rng(n)
    held = [low <= 0 <= high for low, high in (mean_interval(rng.normal(size=n)) for _ in range(600))]
    assert 0.92 < np.mean(held) < 0.98  # the percentile bootstrap holds it in 72 to 87 % of such sets
