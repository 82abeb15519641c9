"""Several judges at once."""

from __future__ import annotations

import asyncio

import pytest

from cotkit import aio
from cotkit.chat import BudgetExceeded
from cotkit.judge import JudgePanel, RewardModelJudge, StepJudge
from cotkit.problems import Problem

PROBLEM = Problem(id="1", problem="What is 2 + 2?")


def judge(name, reward, **options):
    def ask(problem, trace):
        if isinstance(reward, BaseException):
            raise reward
        return reward

    return RewardModelJudge(ask, scale=(0, 1), name=name, **options)


@pytest.mark.parametrize(
    ("rule", "rewards", "combined"),
    [
        ("median", [0.1, 0.8, 0.9], 0.8),
        ("median", [0.2, 0.4], 0.3),
        ("min", [0.1, 0.8, 0.9], 0.1),
        ("mean", [0.1, 0.8, 0.9], 0.6),
        ("majority", [0.1, 0.8, 0.9], 0.8),
        ("majority", [0.1, 0.8, 0.9, 1.0], 0.8),  # three of four reach it, two are no majority
        ("majority", [0.2, 0.4], 0.2),
        ("median", [0.2, 0.8, None], 0.5),  # two of three answered
        ("median", [0.2, None, None], None),  # one of three is no majority of all judges
        ("mean", [0.2, None], None),  # nor is one of two
        ("median", [None, None, None], None),
    ],
)
def test_scores_are_combined_when_most_of_all_judges_answered(rule, rewards, combined):
    judges = [judge(f"j{i}", ValueError("out") if r is None else r) for i, r in enumerate(rewards)]
    judgement = JudgePanel(judges, rule).judge(PROBLEM, "t")
    if combined is None:
        assert judgement.scores is None
        assert f"{sum(r is not None for r in rewards)} of {len(rewards)} judges answered" in judgement.error
        assert "ValueError: out" in judgement.error
    else:
        assert judgement.scores == {"overall": pytest.approx(combined)}
    assert [judgement.raw[f"j{i}"]["scores"] for i in range(len(rewards))] == [
        None if r is None else {"overall": r} for r in rewards
    ]


def test_the_judges_are_asked_at_the_same_time():
    waiting = []

    async def reward(problem, trace):
        waiting.append(1)
        while len(waiting) < 3:
            await asyncio.sleep(0)
        return 1.0

    panel = JudgePanel([RewardModelJudge(reward, name=str(i)) for i in range(3)])
    assert panel.judge(PROBLEM, "t").scores == {"overall": 1.0}


def test_different_dimensions_stand_side_by_side_and_a_lost_one_is_missing_not_passed():
    steps = StepJudge()
    panel = JudgePanel([steps, judge("tone", {"tone": 0.5}, dimensions=["tone"])])
    assert panel.dimension_names == ("steps", "consistency", "form", "tone")
    assert set(panel.judge(PROBLEM, r"2 + 2 = 4. \boxed{4}").scores) == set(panel.dimension_names)
    two_of_three = JudgePanel(
        [steps, judge("a", {"a": 0.5}, dimensions=["a"]), judge("b", OSError(), dimensions=["b"])]
    )
    assert "b" not in two_of_three.judge(PROBLEM, r"2 + 2 = 4. \boxed{4}").scores


def test_feedback_says_whose_it_is():
    panel = JudgePanel([StepJudge(), judge("tone", 0.5)])
    feedback = panel.judge(PROBLEM, r"2 + 2 = 5. \boxed{5}").feedback
    assert feedback.startswith("steps: Step 1 (line 1): '2 + 2 = 5' is wrong: 2 + 2 = 4.")


def test_what_stops_a_run_is_raised_after_all_judges_ended():
    ended = []

    def slow(problem, trace):
        ended.append(1)
        return 1.0

    panel = JudgePanel([judge("a", BudgetExceeded("spent")), RewardModelJudge(slow, scale=(0, 1), name="b")])
    with pytest.raises(BudgetExceeded):
        panel.judge(PROBLEM, "t")
    assert ended == [1]


def test_panels_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="at least two"):
        JudgePanel([StepJudge()])
    with pytest.raises(TypeError, match="made of judges, got str"):
        JudgePanel([StepJudge(), "steps"])
    with pytest.raises(TypeError, match="name must be a text"):
        StepJudge(3)
    with pytest.raises(ValueError, match="share a name"):
        JudgePanel([StepJudge(), StepJudge()])
    with pytest.raises(ValueError, match="unknown rule"):
        JudgePanel([StepJudge("a"), StepJudge("b")], "max")
    with pytest.raises(ValueError, match="scale"):
        JudgePanel([StepJudge(), RewardModelJudge(lambda p, t: 3.0)])
    described = JudgePanel([StepJudge("a"), judge("b", 1.0)], "min").describe()
    assert described["rule"] == "min" and [j["name"] for j in described["judges"]] == ["a", "b"]
    aio.run(JudgePanel([StepJudge("a"), judge("b", 1.0)]).aclose())


def test_weights_count_by_judge_and_those_that_failed_count_for_nothing():
    judges = [judge("a", 0.2), judge("b", 0.8), judge("c", ValueError("out"))]
    panel = JudgePanel(judges, "mean", weights={"a": 1, "b": 3, "c": 4})
    assert panel.judge(PROBLEM, "t").scores == {"overall": pytest.approx(0.65)}
    assert panel.describe()["weights"] == {"a": 1.0, "b": 3.0, "c": 4.0}
    assert "weights" not in JudgePanel(judges).describe()  # earlier runs resume
    silent = JudgePanel(judges, "mean", weights={"a": 0, "b": 0, "c": 1}).judge(PROBLEM, "t")
    assert silent.scores is None


@pytest.mark.parametrize(
    ("rule", "weights", "words"),
    [
        ("median", {"a": 1, "b": 1}, "rule='mean'"),
        ("mean", {"a": 1}, "every judge"),
        ("mean", {"a": 1, "b": -1}, "at least 0"),
        ("mean", {"a": 0, "b": 0}, "not all 0"),
        ("mean", {"a": 1, "b": float("nan")}, "at least 0"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(rule, weights, words):
    with pytest.raises(ValueError, match=words):
        JudgePanel([judge("a", 0.2), judge("b", 0.8)], rule, weights=weights)
