"""Leaving an endpoint alone that does not work.

Closed, everyone passes. Open, nobody does until a cool-down has passed; then one call probes: an answer
closes the breaker, a failure opens it for twice as long. It opens hard (a bad key, no such model, no money,
nothing but 429) or soft (fault after fault): a soft one still lets a call through that has no other endpoint.
Such a call that fails is one row's failure, for it may be these rows that the endpoint cannot answer. When
many different prompts in a row got no answer, whoever asks is told that the endpoint is given up.
"""

from __future__ import annotations

from cotkit.chat.errors import Failure
from cotkit.chat.limiter import Clock

COOL_DOWN_S, LONGEST_COOL_DOWN_S = 30.0, 600.0
FAILURES_TO_OPEN, CALLS_TO_OPEN = 10, 3  # in a row, and of so many calls: one poisoned row opens nothing
PROMPTS_TO_GIVE_UP = 20  # in a row, or twice what may be in flight: most blocks of poisoned rows are shorter


class Breaker:
    """`kind` is what opened it, None while it is closed; `reason` says it in words."""

    def __init__(self, clock: Clock, most_in_flight: int = 1):
        self._clock = clock
        self._enough = max(PROMPTS_TO_GIVE_UP, 2 * most_in_flight)
        self.succeeded()

    def succeeded(self) -> None:
        """An answer came, whatever it says: closed, and everything forgotten."""
        self.kind: str | None = None
        self.reason = ""
        self._hard = self._probing = False
        self._until, self._cool_down = 0.0, COOL_DOWN_S
        self._failures = 0
        self._callers: set[int] = set()
        self._unanswered: set[int] = set()

    def gave_up(self, prompt: int) -> None:
        """A call has used up its tries."""
        self._unanswered.add(prompt)

    @property
    def given_up(self) -> bool:
        """Whether going on is pointless."""
        return self._hard or len(self._unanswered) >= self._enough

    def told(self) -> None:
        """That it is given up: who goes on all the same gets as far again, and not nowhere."""
        self._unanswered.clear()

    def failed(self, failure: Failure, caller: int) -> bool:
        """A fault that may pass. True = it was one too many, or of the call that probed: now open."""
        self._failures += 1
        self._callers.add(caller)
        many = self._failures >= FAILURES_TO_OPEN and len(self._callers) >= CALLS_TO_OPEN
        return (many or self._probing) and self.open(failure, hard=self._hard)

    def open(self, failure: Failure, *, hard: bool) -> bool:
        """False = it was open already: several calls in flight find out the same."""
        if self.kind is not None and not self._probing:
            return False
        self.kind, self.reason, self._hard, self._probing = failure.kind, failure.message, hard, False
        self._until = self._clock.now() + self._cool_down
        self._cool_down = min(2 * self._cool_down, LONGEST_COOL_DOWN_S)
        return True

    def admits(self, last_resort: bool = False) -> bool:
        """Whether a call may go now; `last_resort` = it has no other endpoint."""
        if self.kind is None or (last_resort and not self._hard):
            return True
        return not self._probing and self._clock.now() >= self._until

    def enter(self) -> bool:
        """A call goes that was admitted. True = it probes, and keeps the others out until it leaves."""
        probes = self.kind is not None and not self._probing
        self._probing |= probes
        return probes

    def leave(self, probes: bool) -> None:
        if probes:
            self._probing = False
