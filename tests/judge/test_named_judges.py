"""Judges by the names that a notebook's parameters give them."""

from __future__ import annotations

import pytest

from cotkit.chat import ChatModel
from cotkit.judge import ConfidenceJudge, JudgePanel, LLMJudge, StepJudge, named_judge, named_panel


def connect(name):
    return ChatModel(name, "http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    "name, kind, model",
    [
        ("step", StepJudge, None),
        ("p_yes", ConfidenceJudge, "writer"),
        ("same", LLMJudge, "writer"),
        ("writer", LLMJudge, "writer"),
        ("embedded:small", LLMJudge, "embedded:small"),
        ("gpt-9", LLMJudge, "gpt-9"),
    ],
)
def test_a_name_stands_for_a_judge(name, kind, model):
    judge = named_judge(name, "writer", connect, others=True)
    assert type(judge) is kind and [m.model for m in judge.models] == ([model] if model else [])


@pytest.mark.parametrize(
    "name, others, says", [("gpt-9", False, "no judge 'gpt-9'"), ("stepp", True, "did you mean 'step'")]
)
def test_a_name_that_is_none_is_refused(name, others, says):
    with pytest.raises(ValueError, match=says):
        named_judge(name, "writer", connect, others)


def test_several_names_are_a_panel():
    panel = named_panel(["step", "p_yes"], "writer", connect, False)
    assert isinstance(panel, JudgePanel) and "p_yes" in panel.dimension_names
    assert isinstance(named_panel(["step"], "writer", connect, False), StepJudge)
    with pytest.raises(ValueError, match="no judge is named"):
        named_panel([], "writer", connect, False)
