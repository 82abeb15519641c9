"""Three-valued results inside the checker: True, False, or None = cannot be decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

PENDING = "pending"  # the method of a comparison that waits for the symbolic stage
FAILURES = {"timeout", "error"}  # methods of the checker's own failures


class Outcome(NamedTuple):
    correct: bool | None
    method: str = ""
    reason: str = ""

    def by(self, method: str) -> Outcome:
        """The same result under the name of the stage that asked for it."""
        return self if self.method in {PENDING, *FAILURES} else self._replace(method=method)


Values = Callable[[str, str], Outcome]  # (reference, prediction) of a part, compared by the whole ladder


def first_true(outcomes: Iterable[Outcome]) -> Outcome:
    """Any True is True; else any None is None; else False."""
    best = None
    for outcome in outcomes:
        if outcome.correct:
            return outcome
        if best is None or (outcome.correct is None and best.correct is False):
            best = outcome
    return best or Outcome(False)


def all_true(outcomes: Iterable[Outcome]) -> Outcome:
    """Any False is False; else any None is None; else True."""
    best = None
    for outcome in outcomes:
        if outcome.correct is False:
            return outcome
        if best is None or (outcome.correct is None and best.correct):
            best = outcome
    return best or Outcome(True)
