"""Difficulty: solve rates on equal k, undecided apart, differences and correlations whose intervals hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import betabinom
from synthesis_rows import solved

from cotkit.analysis.difficulty import (
    difficulty,
    discrimination,
    proxies_of,
    proxy_correlations,
    share_difference,
    solve_frame,
    spearman,
)


def test_solve_rates_by_set():
    easy, hard = [f"easy {i}" for i in range(30)], [f"hard {i}" for i in range(30)]
    rows = solved(easy + hard, {text: 0.9 if text in easy else 0.1 for text in easy + hard})
    found = difficulty(solve_frame({"easy": easy, "hard": hard}, rows, 4), 4).set_index("set")
    assert found["solve_rate_low"]["easy"] < 0.9 < found["solve_rate_high"]["easy"]
    assert found["solve_rate_low"]["hard"] < 0.1 < found["solve_rate_high"]["hard"]
    assert found["hard"]["hard"] > 0.8 > 0.1 > found["hard"]["easy"]
    assert found["solved_at_k"]["hard"] == 1 - found["never"]["hard"]


def test_what_is_undecided_or_was_not_asked_is_counted_apart():
    rows = solved(["a", "b", "c"], 1.0)
    rows[0].candidates[1].verdict = rows[0].candidates[1].verdict.model_copy(update={"correct": None})
    del rows[1].candidates[3]  # a draft that an endpoint failed
    found = difficulty(solve_frame({"x": ["a", "b", "c", "never asked"]}, rows, 4), 4).iloc[0]
    assert (found["problems"], found["undecided"], found["solve_rate"]) == (1, 3, 1.0)
    nothing = difficulty(solve_frame({"x": ["a"]}, [], 4), 4).iloc[0]
    assert nothing["problems"] == 0 and math.isnan(nothing["solve_rate"]) and math.isnan(nothing["hard"])


@pytest.mark.parametrize(("hard", "share"), [(0.0, 1 / 3), (0.25, 2 / 3), (0.5, 2 / 3)])
def test_hard_is_a_solve_rate_up_to_the_limit(hard, share):
    rows = solved(["a", "b", "c"], {"a": 0.0, "b": 0.0, "c": 1.0})
    first = rows[1].candidates[0]
    first.verdict = first.verdict.model_copy(update={"correct": True})  # b: 1 of 4
    found = difficulty(solve_frame({"x": ["a", "b", "c"]}, rows, 4), 4, hard)
    assert found["hard"].iloc[0] == pytest.approx(share)


def test_intervals_of_solve_rates_hold_the_truth():
    """Problems differ in hardness, drafts of one problem go together. Wilson's interval holds a share 95
    times in 100 on average; for some shares of a dozen problems 91 times."""
    import pandas

    k, sets, held = 4, 200, []
    rng = np.random.default_rng(0)
    for (a, b), problems in itertools.product([(3, 1), (1, 1), (0.4, 0.6), (1, 6)], [12, 60]):
        right = rng.binomial(k, rng.beta(a, b, sets * problems))
        frame = pandas.DataFrame({"set": np.repeat(np.arange(sets), problems), "right": right})
        found = difficulty(frame.assign(problem=np.arange(len(right)).astype(str), rate=right / k), k)
        at_most_1, none = betabinom.cdf(1, k, a, b), betabinom.pmf(0, k, a, b)
        for name, value in {"solve_rate": a / (a + b), "hard": at_most_1, "never": none}.items():
            held.append(((found[f"{name}_low"] <= value) & (value <= found[f"{name}_high"])).mean())
    assert np.mean(held) > 0.935 and min(held) > 0.88, held


def test_a_set_that_tells_two_solvers_apart():
    texts = {"both": [f"both {i}" for i in range(40)], "only": [f"only {i}" for i in range(40)]}
    every = [*texts["both"], *texts["only"]]
    first = solve_frame(texts, solved(every, {t: 0.8 if t[:4] == "both" else 0.2 for t in every}), 4)
    second = solve_frame(texts, solved(every, 0.8, seed=5), 4)
    found = discrimination(first, second, 4).set_index("set")
    assert found["difference_low"]["only"] > 0.3
    assert found["difference_low"]["both"] < 0 < found["difference_high"]["both"]


def trials(rng, groups, size, p, spread, effect):
    """Flags of `size` trials in each group, whose chance is p plus the group's effect."""
    chance = np.clip(p + spread * effect, 0.02, 0.98)
    return (rng.random((groups, size)) < chance[:, None]).ravel(), np.repeat(np.arange(groups), size)


@pytest.mark.parametrize(
    ("groups", "size", "p", "q", "spread"),
    [(20, 15, 0.82, 0.56, 0.0), (20, 15, 0.7, 0.5, 0.15), (6, 2, 0.8, 0.5, 0.0), (12, 1, 0.9, 0.9, 0.0)],
    ids=["independent", "seeds matter", "tiny", "no difference"],
)
def test_intervals_of_differences_hold_the_true_one(groups, size, p, q, spread):
    rng, held, trial_count = np.random.default_rng(1), 0, 400
    for _ in range(trial_count):
        effect = rng.choice([-1.0, 1.0], groups)
        first, second = (trials(rng, groups, size, share, spread, effect) for share in (p, q))
        gap = share_difference(*first, *second)
        held += gap.low <= q - p <= gap.high
    assert held / trial_count > 0.92


def test_pairing_over_seeds_narrows_the_interval():
    rng = np.random.default_rng(2)
    effect = rng.choice([-1.0, 1.0], 30)
    first, second = (trials(rng, 30, 20, share, 0.3, effect) for share in (0.6, 0.5))
    paired = share_difference(*first, *second)
    apart = share_difference(*first, second[0], second[1] + 1000)
    assert paired.high - paired.low < 0.8 * (apart.high - apart.low)


def test_a_difference_of_perfect_shares_is_not_certain():
    gap = share_difference([True] * 12, range(12), [True] * 12, range(12))
    assert gap.value == 0 and gap.low < -0.1 and gap.high > 0.1
    assert math.isnan(share_difference([], [], [True], ["a"]).value)


@pytest.mark.parametrize(
    ("question", "worked", "code", "expected"),
    [
        ("How many?", "First.\n\nThen.\nEnd.", "print(1)", (3, 6, 2)),
        ("How many?", "One step. Two steps. Done", "", (2, math.nan, 2)),
        ("How", None, "print(", (math.nan, math.nan, 1)),
        ("How", "   ", None, (math.nan, math.nan, 1)),
        ("How", "just words", None, (1, math.nan, 1)),
    ],
)
def test_proxies(question, worked, code, expected):
    assert tuple(proxies_of(question, worked, code).values()) == pytest.approx(expected, nan_ok=True)


def test_spearman_is_scipys_and_its_interval_holds():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 5, 60), rng.integers(0, 5, 60)
    assert spearman(left, right).value == pytest.approx(spearmanr(left, right).statistic)
    truth = 6 / math.pi * math.asin(0.5 / 2)  # of a normal pair with correlation 0.5
    held = 0
    for _ in range(300):
        pairs = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 40)
        found = spearman(pairs[:, 0], pairs[:, 1])
        held += found.low <= truth <= found.high
    assert held / 300 > 0.91
    assert math.isnan(spearman([1, 2, 3], [1, 2, 3]).value) and math.isnan(
        spearman([1] * 20, range(20)).value
    )


def test_a_proxy_that_goes_with_the_solve_rate_is_found():
    texts = [f"q{i}" for i in range(60)]
    steps = [1 + i % 6 for i in range(60)]
    chance = {text: 1.0 - 0.15 * step for text, step in zip(texts, steps, strict=True)}
    frame = solve_frame({"a": texts}, solved(texts, chance), 4)
    frame = frame.assign(steps=steps, code_nodes=math.nan, question_words=5)
    found = proxy_correlations(frame).set_index(["proxy", "set"])
    assert found["correlation_high"]["steps", "all"] < -0.5
    assert math.isnan(found["correlation"]["code nodes", "all"])
    assert math.isnan(found["correlation"]["question words", "a"])
