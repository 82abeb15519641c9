"""Asking a model."""

from cotkit.chat.errors import BudgetExceeded, ModelError
from cotkit.records import Attempt, Completion, Usage

__all__ = ["Attempt", "BudgetExceeded", "Completion", "ModelError", "Usage"]
