"""What the attempts of a synthesis know of each other, so that the outcome does not depend on who is faster.

Attempts run side by side, each on its own. Two things tie them together, and both look only at attempts with
a lower number: of two alike questions the lower accepted one stays (`taken`), and self_instruct and
evol_instruct build on what was accepted at least `lag` attempts before (`accepted_before`). Waiting is for
lower numbers only, and attempts start in order of their numbers, so it always ends. The price: a question
that hangs holds up the end of the attempts after it, until its call gives up; they hold no place meanwhile.

An attempt that ends without a decision leaves those that build on it, or could repeat it, without one too.
What stopped the run stops them (`abandon`): they have no row, the next call decides, and the cache has what
they asked. A chain whose parent failed at an endpoint is asked again with it. Where no more than one question
is at stake, an attempt that an endpoint failed must not end all later ones: a pool of self_instruct goes on
without it, and when it is asked again what was kept meanwhile stays, though its number be higher.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable

from cotkit.pipelines.novelty import Novelty
from cotkit.pipelines.running import Dropped
from cotkit.problems import Problem


class Pool:
    """Questions as they become known, problems as they are accepted."""

    def __init__(self, index: Novelty):
        self._index = index
        self.accepted: dict[int, Problem] = {}
        self._undecided: set[int] = set()  # to be asked again
        self._stopped: dict[int, BaseException] = {}
        self._known: set[int] = set()  # whose question is
        self._asked: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._settled: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._all_asked = self._all_settled = 0  # every attempt below is

    def ask(self, attempt: int, question: str) -> None:
        """The attempt's question is known."""
        if not self._asked[attempt].is_set():
            self._index.add(attempt, question)
            self._known.add(attempt)
            self._asked[attempt].set()

    def settle(self, attempt: int, problem: Problem | None, again: bool = False) -> None:
        """The attempt has ended; `problem` when it was accepted, `again` when it is to be asked again."""
        if problem is not None:
            self.accepted[attempt] = problem
        if again:
            self._undecided.add(attempt)
        self._asked[attempt].set()
        self._settled[attempt].set()

    def abandon(self, attempt: int, error: BaseException) -> None:
        """The attempt has ended without a row, by `error`."""
        self._stopped[attempt] = error
        self.settle(attempt, None)

    def taken_already(
        self, attempt: int, question: str, relatives: Collection[int]
    ) -> tuple[int, str] | None:
        """(attempt, how): an accepted problem that this question repeats, as far as is known now."""
        return self._accepted_of(self._index.like(question, relatives), attempt)

    async def taken(self, attempt: int, question: str, relatives: Collection[int]) -> tuple[int, str] | None:
        """`taken_already`, when all that could be in its way is known; raises what stopped one of these."""
        while (lower := self._all_asked) < attempt:  # one walk for all that wait
            await self._asked[lower].wait()
            if lower in self._stopped and lower not in self._known:
                raise self._stopped[lower]
            self._all_asked = max(self._all_asked, lower + 1)
        alike = list(self._index.like(question, relatives))
        for other in sorted({key for key, _ in alike if key < attempt}):
            await self._end_of(other)
        return self._accepted_of(alike, attempt)

    def _accepted_of(self, alike: Iterable[tuple[int, str]], attempt: int) -> tuple[int, str] | None:
        return next(((o, how) for o, how in alike if o in self.accepted and o != attempt), None)

    async def accepted_before(self, limit: int) -> list[Problem]:
        """What the attempts below `limit` gave, in their order."""
        while (lower := self._all_settled) < limit:
            await self._end_of(lower)
            self._all_settled = max(self._all_settled, lower + 1)
        return [self.accepted[number] for number in sorted(self.accepted) if number < limit]

    async def last_of(self, attempts: list[int]) -> Problem | None:
        """The accepted problem of the last of these attempts that gave one."""
        for attempt in attempts:
            await self._end_of(attempt)
            if attempt in self._undecided:
                raise Dropped(
                    "parent_failed", f"attempt {attempt} is to be asked again first", retryable=True
                )
        return next((self.accepted[a] for a in reversed(attempts) if a in self.accepted), None)

    async def _end_of(self, attempt: int) -> None:
        await self._settled[attempt].wait()
        if attempt in self._stopped:
            raise self._stopped[attempt]
