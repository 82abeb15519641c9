"""The problem: what goes in."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Problem(BaseModel):
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


class ProblemError(ValueError):
    """A row that is no problem. The message names the file, the row, the field and the fix."""
