"""The budgets of a run: what was spent, what is in flight and what one more request would take."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from cotkit.chat.config import check_number
from cotkit.chat.errors import BudgetExceeded
from cotkit.chat.tally import Amount, Tally

ONE_CALL = Amount(1)


def check_budgets(
    budget_usd: float | None = None, budget_tokens: int | None = None, budget_calls: int | None = None
) -> None:
    """TypeError or ValueError for what can be no budget; None = there is none."""
    check_number("budget_usd", budget_usd, least=0, optional=True)
    check_number("budget_tokens", budget_tokens, least=0, whole=True, optional=True)
    check_number("budget_calls", budget_calls, least=0, whole=True, optional=True)


class Budgets:
    """Lives in the engine's loop. `tallies`: what was spent, by role. `path`: the ledger, for messages."""

    def __init__(
        self,
        tallies: Mapping[str, Tally],
        path: Path,
        usd: float | None,
        tokens: int | None,
        calls: int | None,
    ):
        check_budgets(usd, tokens, calls)
        self._tallies, self._path = tallies, path
        self.limits = Amount(*(math.inf if limit is None else limit for limit in (calls, tokens, usd)))
        self._bounded = self.limits != Amount(math.inf, math.inf, math.inf)
        self.in_flight = Amount()
        self._settled: list[asyncio.Future[None]] = []

    def reserved(self, role: str, guess: Amount = ONE_CALL) -> contextlib.AbstractAsyncContextManager[None]:
        """Holds a place for one request; `guess` serves until there is a mean to go by.

        Where only the requests in flight could make it too many, waits until they have ended. Raises
        BudgetExceeded.
        """
        return self._reserved(role, guess) if self._bounded else contextlib.nullcontext()

    @contextlib.asynccontextmanager
    async def _reserved(self, role: str, guess: Amount) -> AsyncIterator[None]:
        while not self._fits(expected := self._expected(role, guess), first=expected is guess):
            settled = asyncio.get_running_loop().create_future()
            self._settled.append(settled)
            await settled
        self.in_flight += expected
        try:
            yield
        finally:
            self.in_flight -= expected
            for settled in self._settled:
                if not settled.done():
                    settled.set_result(None)
            self._settled.clear()

    def _expected(self, role: str, guess: Amount) -> Amount:
        """What one more request of this role takes: the mean so far."""
        tally = self._tallies.get(role)
        if tally is None or not tally.billed:
            return guess
        return Amount(1, tally.spent.tokens / tally.billed, tally.spent.usd / tally.billed)

    def _fits(self, expected: Amount, first: bool) -> bool:
        """True = it may start, False = wait for those in flight; raises when there is no room at all."""
        spent = sum((tally.spent for tally in self._tallies.values()), Amount())
        if not self._passed(spent + self.in_flight + expected):
            return True
        if self.in_flight.calls:
            return False
        if first and not self._passed(spent + Amount(1, min(expected.tokens, 1), min(expected.usd, 1e-6))):
            return True  # a role's first request is only guessed at: it shows what they really take
        over = self._passed(spent + expected)
        raise BudgetExceeded(
            f"budget_{over}={getattr(self.limits, over):g} is spent: {spent.calls:g} requests, "
            f"{spent.tokens:,.0f} tokens, ${spent.usd:.4f}. Everything paid for is kept in "
            f"{self._path}: raise budget_{over} and run again to go on."
        )

    def _passed(self, amount: Amount) -> str | None:
        """The limit that `amount` would pass."""
        for name in ("calls", "tokens", "usd"):
            if getattr(amount, name) > getattr(self.limits, name) + 1e-9:
                return name
        return None
