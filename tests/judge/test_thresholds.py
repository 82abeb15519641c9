"""What a score must reach, and what is refused before anything is paid for."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy
import pytest

from cotkit.judge import Thresholds

NAMES = ("correctness", "clarity", "completeness")
GOOD = {"correctness": 0.9, "clarity": 0.8, "completeness": 0.7}


@pytest.mark.parametrize(
    ("threshold", "rule", "scores", "met"),
    [
        (0.7, "all", GOOD, True),
        (0.7, "all", GOOD | {"clarity": 0.69}, False),
        (0.71, "all", GOOD, False),
        (0.8, "mean", GOOD, True),
        (0.81, "mean", GOOD, False),
        (0.7, "mean", {"correctness": 0.6, "clarity": 0.7, "completeness": 0.8}, True),  # 0.6999999999999998
        (1, "all", GOOD, False),  # the int 1 is 1.0 and lets nothing through that is not perfect
        (1, "all", dict.fromkeys(NAMES, 1.0), True),
        (0, "all", dict.fromkeys(NAMES, 0.0), True),
        (
            {"correctness": 0.8, "clarity": 0.7},
            "all",
            {"correctness": 0.9, "clarity": 0.8, "completeness": 0.6},
            True,
        ),
        (
            {"correctness": 0.8, "clarity": 0.7},
            "all",
            {"correctness": 0.7, "clarity": 0.6, "completeness": 0.9},
            False,
        ),
        ({"clarity": 0.7}, "all", {"correctness": 0.0, "clarity": 0.7, "completeness": 0.0}, True),
        (None, "all", dict.fromkeys(NAMES, 0.0), True),
        (None, "all", None, True),  # nothing gates, not even a judge that failed
        (0.7, "all", None, None),
        (0.7, "all", {}, None),
        ({"clarity": 0.7}, "all", None, None),
        ({"clarity": 0.7}, "all", {}, None),
        (0.7, "all", {"correctness": 0.9, "clarity": 0.9}, None),  # a dimension is missing: no pass
        (0.7, "mean", {"correctness": 0.9, "clarity": 0.9}, None),
        ({"completeness": 0.7}, "all", {"correctness": 0.9, "clarity": 0.9}, None),
        (0.7, "all", GOOD | {"clarity": math.nan}, None),
        ({"clarity": 0.7}, "all", GOOD | {"clarity": math.nan}, None),
        ({"clarity": 0.7}, "all", GOOD | {"clarity": True}, None),
    ],
)
def test_scores_meet_a_threshold_fall_short_or_cannot_be_decided(threshold, rule, scores, met):
    assert Thresholds.parse(threshold, NAMES, rule).met(scores) is met


@pytest.mark.parametrize(
    ("threshold", "options", "says"),
    [
        (70, {}, "did you mean 0.7?"),
        (7, {}, "did you mean 0.7?"),
        (1.5, {}, "stored on 0..1"),
        (-0.1, {}, "stored on 0..1"),
        (math.nan, {}, "finite"),
        (math.inf, {}, "finite"),
        ({"corectness": 0.9}, {}, "did you mean 'correctness'?"),
        ({"Clarity": 0.9}, {}, "did you mean 'clarity'?"),
        ({"kindness": 0.9}, {}, "judged: correctness, clarity, completeness"),
        ({"clarity": math.nan}, {}, "score_threshold['clarity'] must be a finite number"),
        ({"clarity": 7}, {}, "did you mean 0.7?"),
        ({}, {}, "empty"),
        ({"clarity": 0.7}, {"rule": "mean"}, "one number"),
        (0.7, {"rule": "median"}, "'median'"),
    ],
)
def test_a_threshold_that_cannot_work_is_refused_with_the_fix(threshold, options, says):
    with pytest.raises(ValueError) as refused:
        Thresholds.parse(threshold, NAMES, **options)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "threshold", [True, "0.7", [0.7], {"clarity": "0.7"}, {"clarity": None}, {"clarity": False}]
)
def test_what_is_no_number_is_refused(threshold):
    with pytest.raises(TypeError, match="must be a number"):
        Thresholds.parse(threshold, NAMES)


def test_numbers_of_numpy_are_numbers():
    assert Thresholds.parse(numpy.float32(0.5), NAMES).met(GOOD) is True


def test_raw_rewards_take_any_finite_threshold():
    assert Thresholds.parse(-2.5).met({"overall": -2.4}) is True
    assert Thresholds.parse({"helpfulness": 3}).met({"helpfulness": 2.9, "verbosity": 0.1}) is False


def test_a_name_unknown_until_the_first_answer_raises_at_that_answer():
    thresholds = Thresholds.parse({"helpfullness": 0.7})
    assert thresholds.met(None) is None
    with pytest.raises(ValueError, match=r"did you mean 'helpfulness'\?"):
        thresholds.met({"helpfulness": 0.9, "correctness": 0.9})


def test_a_judge_brings_its_dimensions_and_its_range():
    raw = SimpleNamespace(dimension_names=("reward",), score_range=None)
    assert Thresholds.for_judge({"reward": 12.0}, raw).met({"reward": 12.5}) is True
    unit = SimpleNamespace(dimension_names=("reward",), score_range=(0.0, 1.0))
    with pytest.raises(ValueError, match="can never be met"):
        Thresholds.for_judge({"reward": 12.0}, unit)


@pytest.mark.parametrize(
    ("threshold", "rule", "scores", "says"),
    [
        (0.7, "all", GOOD | {"clarity": 0.5}, "clarity 0.50 is below 0.70 (short by 0.20)"),
        (
            0.7,
            "all",
            {"correctness": 0.1, "clarity": 0.9, "completeness": 0.6},
            "correctness 0.10 is below 0.70 (short by 0.60); completeness 0.60 is below 0.70 (short by 0.10)",
        ),
        ({"clarity": 0.9}, "all", GOOD, "clarity 0.80 is below 0.90 (short by 0.10)"),
        (0.9, "mean", GOOD, "mean 0.80 is below 0.90 (short by 0.10)"),
        (0.7, "all", GOOD | {"clarity": 0.6999}, "clarity 0.6999 is below 0.7000 (short by 0.0001)"),
        (0.7, "all", GOOD, ""),
        (0.7, "all", None, ""),
        (None, "all", dict.fromkeys(NAMES, 0.0), ""),
    ],
)
def test_feedback_names_what_fell_short_and_by_how_much(threshold, rule, scores, says):
    assert Thresholds.parse(threshold, NAMES, rule).feedback(scores) == says


def test_shortfalls_are_score_and_need():
    assert Thresholds.parse(0.8, NAMES).shortfalls(GOOD) == {"completeness": (0.7, 0.8)}
    assert Thresholds.parse({"clarity": 0.9}, NAMES).describe() == {
        "score_threshold": {"clarity": 0.9},
        "rule": "all",
    }
