"""Scoring a trace by a model, a reward function or a program."""

from cotkit.judge.base import Judge
from cotkit.judge.llm import LLMJudge
from cotkit.judge.panel import JudgePanel
from cotkit.judge.reward import RewardModelJudge
from cotkit.judge.steps import StepJudge
from cotkit.judge.thresholds import Thresholds
from cotkit.records import Dimension, Judgement

__all__ = [
    "Dimension",
    "Judge",
    "JudgePanel",
    "Judgement",
    "LLMJudge",
    "RewardModelJudge",
    "StepJudge",
    "Thresholds",
]
