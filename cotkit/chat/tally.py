"""Sums over requests: what was answered, what failed, what it took, what of that is unknown."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

BILLED = frozenset({None, "empty", "refusal", "parse", "timeout"})  # kinds that may be on a bill


@dataclass
class Amount:
    """An amount in the currencies of the three budgets: spent, in flight, or expected of a request."""

    calls: float = 0
    tokens: float = 0
    usd: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.calls + other.calls, self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.calls - other.calls, self.tokens - other.tokens, self.usd - other.usd)


@dataclass
class Tally:
    """Sums over the requests of one role. Tokens and dollars are lower bounds where something is unknown."""

    calls: int = 0  # answered
    cached: int = 0  # answered without asking, since this ledger was opened
    failed: Counter = field(default_factory=Counter)  # by kind
    billed: int = 0  # requests that may be on a bill: answered, or with an answer that was no use
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    unknown_usage: int = 0  # billed requests of which the endpoint did not say what they took
    unknown_cost: int = 0
    guessed: Amount = field(default_factory=Amount)  # what those count for in the budgets

    def add(
        self,
        kind: str | None,
        prompt: int | None,
        completion: int | None,
        cost: float | None,
        guess: Amount | None,
    ) -> None:
        """One request: how it ended, its tokens and dollars (None = unknown), what is guessed instead."""
        if kind is None:
            self.calls += 1
        else:
            self.failed[kind] += 1
        if kind in BILLED:
            self.billed += 1
            self.prompt_tokens += prompt or 0
            self.completion_tokens += completion or 0
            self.cost_usd += cost or 0.0
            self.unknown_usage += prompt is None or completion is None
            self.unknown_cost += cost is None
            if guess is not None:
                self.guessed += guess

    def take_back(self, kind: str) -> None:
        """An answered request had failed after all; it stays on the bill."""
        self.calls -= 1
        self.failed[kind] += 1

    def merge(self, other: Tally) -> None:
        for name in (f.name for f in dataclasses.fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def spent(self) -> Amount:
        """What counts towards the budgets. A 429 was refused, so it is no call."""
        calls = self.calls + self.failed.total() - self.failed["rate_limit"]
        return self.guessed + Amount(calls, self.prompt_tokens + self.completion_tokens, self.cost_usd)

    def report(self) -> dict[str, Any]:
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del shown["billed"], shown["guessed"]
        shown |= {"guessed_tokens": round(self.guessed.tokens), "guessed_usd": self.guessed.usd}
        shown["failed"] = {kind: count for kind, count in self.failed.items() if count}
        if self.billed and self.unknown_cost == self.billed:
            shown["cost_usd"] = None
        if self.billed and self.unknown_usage == self.billed and not self.prompt_tokens:
            shown["prompt_tokens"] = shown["completion_tokens"] = None
        return shown
