"""The problem: what goes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cotkit.shown import Shown


class Problem(Shown, BaseModel):
    """One problem. `reference` is the gold answer (a plain answer or a worked solution that ends in one).

    `id` is kept byte for byte. `tolerance` is relative. `metadata` holds every other field of the row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    problem: str
    reference: str | None = None
    type: str | None = None
    answer_type: str | None = None
    tolerance: float | None = None
    solution_code: str | None = None
    licence: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        known = {"id": self.id, "problem": self.problem, "reference": self.reference or "none"}
        return known | {"type": self.type, "answer type": self.answer_type, "licence": self.licence}


class ProblemError(ValueError):
    """Input that gives no problems. The message names the file, the row, the field and the fix.

    `faults` holds every single fault, also those the message leaves out.
    """

    def __init__(self, message: str, faults: Sequence[str] = ()):
        super().__init__(message)
        self.faults = list(faults) or [message]
