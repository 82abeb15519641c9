"""Scoring a trace by a model, a reward function or a program."""

from cotkit.judge.base import Judge
from cotkit.judge.confidence import ConfidenceJudge
from cotkit.judge.llm import LLMJudge, nonce
from cotkit.judge.model_verifier import MODEL_FAILED, ModelVerifier
from cotkit.judge.named import named_judge, named_panel
from cotkit.judge.panel import JudgePanel
from cotkit.judge.reward import RewardModelJudge
from cotkit.judge.steps import StepJudge
from cotkit.judge.thresholds import Thresholds
from cotkit.records import Dimension, Judgement

__all__ = [
    "MODEL_FAILED",
    "ConfidenceJudge",
    "Dimension",
    "Judge",
    "JudgePanel",
    "Judgement",
    "LLMJudge",
    "ModelVerifier",
    "RewardModelJudge",
    "StepJudge",
    "Thresholds",
    "named_judge",
    "named_panel",
    "nonce",
]
