"""What a score must reach, and what is refused before anything is paid for."""

from __future__ import annotations

import json
import math
import re
import warnings
from types import SimpleNamespace

import numpy
import pytest

from cotkit.judge import JudgePanel, StepJudge, Thresholds
from cotkit.rules import seal

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


def test_a_judgement_that_lacks_a_dimension_of_the_mean_has_no_shortfall_to_tell():
    assert Thresholds.parse(0.9, NAMES, "mean").feedback({"correctness": 0.1}) == ""


def test_shortfalls_are_score_and_need():
    assert Thresholds.parse(0.8, NAMES).shortfalls(GOOD) == {"completeness": (0.7, 0.8)}
    assert Thresholds.parse({"clarity": 0.9}, NAMES).describe() == {
        "score_threshold": {"clarity": 0.9},
        "rule": "all",
    }


STEPS = StepJudge()
TUNED = {
    "schema_version": 1,
    "rule": "all",
    "dimensions": ["steps", "consistency"],
    "thresholds": {"steps": 0.8, "consistency": 0.75},
    "certified": True,
    "p_value": 0.02,
    "target_precision": 0.9,
    "delta": 0.1,
    "n": {"rows": 300},
    "data_hash": "0123456789abcdef",
    "created": "2026-01-01T00:00:00+00:00",
    "judge": {"names": ["steps"], "description": json.loads(json.dumps(STEPS.describe()))},
    "valid_for": {"iteration": [0], "task": "arithmetic"},
}
TUNED["seal"] = seal(TUNED)
LEARNED = {"weights": {"steps": 4.0, "consistency": 1.0}, "intercept": -3.0}


def sealed(**changed):
    return {**TUNED, **changed} | {"seal": seal({**TUNED, **changed})}


def tuned(**changed):
    return Thresholds.for_judge(sealed(**changed), STEPS)


@pytest.mark.parametrize(
    ("changed", "scores", "met"),
    [
        ({}, {"steps": 0.8, "consistency": 0.75, "form": 0.0}, True),
        ({}, {"steps": 0.79, "consistency": 1.0, "form": 1.0}, False),
        ({}, {"steps": 0.9, "form": 1.0}, None),
        ({"rule": "any"}, {"steps": 0.1, "consistency": 0.75, "form": 0.0}, True),
        ({"rule": "any"}, {"steps": 0.7, "consistency": 0.7, "form": 1.0}, False),
        ({"rule": "any", "thresholds": {"steps": 0.8}}, {"steps": 0.9, "form": 1.0}, None),
        ({"rule": "mean", "thresholds": 0.7}, {"steps": 0.9, "consistency": 0.5, "form": 0.0}, True),
        ({"rule": "mean", "thresholds": 0.7}, {"steps": 0.8, "consistency": 0.5, "form": 1.0}, False),
        ({"rule": "median", "thresholds": 0.7}, {"steps": 0.9, "consistency": 0.5, "form": 0.0}, True),
        ({"rule": "min", "thresholds": {"steps": 0.5, "consistency": 0.5}},
         {"steps": 0.5, "consistency": 0.4, "form": 1.0}, False),
        ({"rule": "logistic", "thresholds": 0.7, **LEARNED},
         {"steps": 0.9, "consistency": 0.3, "form": 0.0}, True),  # 1 / (1 + exp(-0.9)) = 0.71
        ({"rule": "logistic", "thresholds": 0.72, **LEARNED},
         {"steps": 0.9, "consistency": 0.3, "form": 0.0}, False),
    ],
)  # fmt: skip
def test_a_tuned_rule_decides_on_the_dimensions_it_was_tuned_on(changed, scores, met):
    assert tuned(**changed).met(scores) is met


def test_a_file_and_what_is_in_it_are_the_same(tmp_path):
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps(TUNED), encoding="utf-8")
    for given in (path, str(path), TUNED):
        found = Thresholds.for_judge(given, STEPS)
        assert found.limit == {"steps": 0.8, "consistency": 0.75} and found == tuned()


def test_what_stands_behind_the_thresholds_is_recorded_without_the_day_it_was_written():
    described = tuned(rule="logistic", thresholds=0.7, **LEARNED).describe()
    assert described["rule"] == "logistic" and described["weights"] == LEARNED["weights"]
    known = described["certificate"]
    assert known["certified"] and known["data_hash"] == TUNED["data_hash"] and known["warnings"] == []
    assert tuned(created="later").describe() == tuned().describe()
    json.dumps(described, allow_nan=False)


def test_feedback_of_a_tuned_rule_says_what_fell_short():
    scores = {"steps": 0.5, "consistency": 0.3, "form": 0.0}
    assert tuned(rule="any").feedback(scores).count("is below") == 2
    assert tuned(rule="any").feedback(scores | {"steps": 0.9}) == ""
    learned = tuned(rule="logistic", thresholds=0.7, **LEARNED)
    assert learned.feedback(scores).startswith("logistic 0.33 is below")


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (StepJudge("other"), "differ in name"),
        (JudgePanel([StepJudge("a"), StepJudge("b")]), "Tune thresholds on scores of this judge"),
    ],
)
def test_another_judge_is_refused(judge, says):
    with pytest.raises(ValueError) as refused:
        Thresholds.for_judge(TUNED, judge)
    assert says in str(refused.value)


def described(**changed):
    model = {"model": "m", "endpoints": [{"model": "m", "endpoint": "10.0.0.1:8000", "parameters": {}}]}
    return {"judge": "LLMJudge", "name": "llm:m", "model": model, "prompt": {"hash": "a"}, **changed}


def test_another_prompt_is_another_judge_and_another_address_is_not():
    file = {**TUNED, "judge": {"names": ["llm:m"], "description": described()}}
    elsewhere = {"model": "m", "endpoints": [{"model": "m", "endpoint": "10.0.0.2", "parameters": {}}]}
    hot = {"model": "m", "endpoints": [{"model": "m", "endpoint": "x", "parameters": {"temperature": 1}}]}

    def judge(**changed):
        names = ("steps", "consistency")
        return SimpleNamespace(
            name="llm:m", dimension_names=names, score_range=(0.0, 1.0), describe=lambda: described(**changed)
        )

    assert Thresholds.for_judge(file, judge(model=elsewhere)).limit
    for changed, key in (({"prompt": {"hash": "b"}}, "prompt"), ({"model": hot}, "model")):
        with pytest.raises(ValueError, match=f"differ in {key}"):
            Thresholds.for_judge(file, judge(**changed))


@pytest.mark.parametrize(
    ("changed", "options", "says"),
    [
        (
            {"certified": False, "reason": "not certifiable with n = 60"},
            {},
            "no certificate stands behind it",
        ),
        ({"judge": {"names": [], "description": None}}, {}, "does not record the judge's prompt"),
        ({}, {"max_iterations": 2}, "refines up to 2 times"),
        ({"valid_for": {"iteration": None}}, {"max_iterations": 1}, "refines up to 1 times"),
        ({"valid_for": {"iteration": [2]}}, {}, "takes first drafts too"),
        ({"valid_for": {"iteration": [2]}}, {"max_iterations": 2}, "takes first drafts too"),
        ({"n": {"traces_a_problem": [1, 20]}}, {}, "counts each problem once"),
        ({"unlabelled": {"rows": 41, "of": 300}}, {}, "41 of 300 scored traces had no verdict"),
        ({}, {"num_generations": 4}, "best scored of 4"),
        (
            {"valid_for": {"iteration": [0], "types": ["algebra", "geometry"]}},
            {"types": {"geometry", "logic"}},
            "tuned on problems of type algebra, geometry; this run also has logic",
        ),
        ({}, {"types": {"logic"}}, "tuned on problems of type arithmetic; this run also has logic"),
        ({}, {"types": {""}}, "this run also has (none given)"),
        ({"valid_for": {"models": ["a"]}}, {"models": {"b"}}, "tuned on traces of a; this run's are of b"),
    ],
)
def test_what_the_certificate_does_not_cover_warns_and_is_recorded(changed, options, says):
    with pytest.warns(UserWarning, match=re.escape(says)):
        found = Thresholds.for_judge(sealed(**changed), STEPS, **options)
    assert [says in warning for warning in found.describe()["certificate"]["warnings"]] == [True]


@pytest.mark.parametrize(
    "edited",
    [
        {"thresholds": {"steps": 0.1, "consistency": 0.75}},
        {"dimensions": ["steps", "consistency", "form"]},
        {"target_precision": 0.99},
        {"seal": None},
    ],
)
def test_a_file_that_was_edited_by_hand_is_not_believed_to_be_certified(edited):
    with pytest.warns(UserWarning, match="edited by hand"):
        found = Thresholds.for_judge({**TUNED, **edited}, STEPS)
    assert found.certificate["certified"] is False


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(TUNED), encoding="utf-8-sig")
    assert Thresholds.for_judge(tmp_path / "t.json", STEPS).certificate["certified"] is True


def test_what_the_certificate_covers_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everything = {**TUNED, "valid_for": {"iteration": [0, 1, 2], "types": ["algebra", "logic"]}}
        Thresholds.for_judge(everything, STEPS, max_iterations=2, types={"logic"})
        unknown = {**TUNED, "valid_for": {"iteration": [0], "types": [], "task": None}}
        Thresholds.for_judge(unknown, STEPS, types={"logic"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**TUNED, "thresholds": None, "reason": "too few"}, "holds no threshold: too few"),
        ({**TUNED, "rule": "vote"}, "'vote'"),
        ({"schema_version": 1, "thresholds": {}}, "is not what tune_thresholds"),
        ({**TUNED, "dimensions": ["stepps"]}, "did you mean 'steps'?"),
        ({**TUNED, "thresholds": {"steps": 8, "consistency": 0.5}}, "stored on 0..1"),
        ("nowhere/thresholds.json", "No such file"),
        ("nowhere/thresholds.txt", "No such file"),
        ({**TUNED, "rule": "mean"}, "must be one number"),
        ({**TUNED, "thresholds": 0.5}, "must be a dict of dimensions"),
        ({**TUNED, "thresholds": {}}, "must be a dict of dimensions"),
        ({**TUNED, "thresholds": {"form": 0.5}}, "names 'form'"),
        ({**TUNED, "rule": "logistic", "thresholds": 0.5, "weights": None}, "needs a weight for each"),
        (
            {**TUNED, "rule": "logistic", "thresholds": 0.5, "weights": {"steps": 1.0}},
            "needs a weight for each",
        ),
        ({**TUNED, "schema_version": 99}, "schema_version 99"),
        ({name: value for name, value in TUNED.items() if name != "schema_version"}, "schema_version None"),
        ({**TUNED, "judge": None}, "is not what tune_thresholds"),
        ({**TUNED, "dimensions": None}, "field dimensions"),
        ({**TUNED, "dimensions": [["a"]]}, "field dimensions.0"),
        ({**TUNED, "valid_for": [1]}, "field valid_for"),
        ({**TUNED, "valid_for": {"types": "algebra"}}, "field valid_for.types"),
        ({**TUNED, "valid_for": {"iteration": 0}}, "field valid_for.iteration"),
        ({**TUNED, "n": "x"}, "field n"),
        ({**TUNED, "n": {"traces_a_problem": None}}, "field n.traces_a_problem"),
        ({**TUNED, "unlabelled": {"x": 1}}, "field unlabelled"),
        ({**TUNED, "judge": {"names": [], "description": "text"}}, "field judge.description"),
        ({**TUNED, "certified": "false"}, "field certified"),
        ({**TUNED, "target_precision": 5}, "field target_precision"),
        ({**TUNED, "rule": "mean", "thresholds": 0.5, "weights": [1, 2]}, "field weights"),
        ({**TUNED, "rule": "logistic", "thresholds": 5, **LEARNED}, "can never be met"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(given, says):
    with pytest.raises(ValueError) as refused:
        Thresholds.for_judge(given, STEPS)
    assert says in str(refused.value)


def test_a_file_brings_its_own_rule_and_needs_a_judge():
    with pytest.raises(ValueError, match="tuned for rule='all'"):
        Thresholds.for_judge(TUNED, STEPS, "mean")
    with pytest.raises(ValueError, match="there is no judge here"):
        Thresholds.parse("thresholds.json")
