"""Scoring a trace by a model, a reward function or a program."""

from cotkit.records import Dimension, Judgement

__all__ = ["Dimension", "Judgement"]
