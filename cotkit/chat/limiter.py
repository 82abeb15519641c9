"""When the next request to an endpoint may start.

One queue per endpoint, first come first served, and four rules: no more in flight than the limit; no more
a minute than `per_minute`; nobody before a cool-down has passed; after it, restarts are spread out. The
limit moves by AIMD: x 0.75 on the first 429 of a burst, + 1 after 25 clean answers while saturated, always
between 1 and `most`. One timer serves the whole queue, so ten thousand callers that wait cost nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque

DECREASE = 0.75
CLEAN_ANSWERS = 25
RESTART_GAP_S = 0.06  # mean gap between restarts after a cool-down ...
RESTART_SPREAD_S = 3.0  # ... but the last of them starts about this long after the first
MARGIN = 1.01  # of the gap a rate leaves: what jitter on the way brings together is no request too many
CATCH_UP_S = 0.05  # a timer that fires late does not cost rate


class Clock:
    """What time it is and how to wait; tests give one whose time passes at once."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)


class Limiter:
    """Lives in the engine's loop; `acquire` and `release` come in pairs."""

    def __init__(self, most: int, per_minute: float | None = None, clock: Clock | None = None):
        self.most = self.limit = most
        self.in_flight = 0
        self._clock = clock or Clock()
        self._gap = MARGIN * 60.0 / per_minute if per_minute else 0.0
        self._queue: deque[asyncio.Future[int | None]] = deque()
        self.waiting = 0
        self._next_start = self._parked_until = float("-inf")
        self._restarts = 0  # starts still to be spread out after a cool-down
        self._bursts = self._clean = 0
        self._timer: asyncio.Task[None] | None = None

    async def acquire(self, first: bool = False) -> int | None:
        """Waits for a place and returns its ticket for `release`, or None when everyone was sent away.

        `first` puts the caller at the head of the queue: it had its turn and comes back.
        """
        if not self.waiting and self.in_flight < self.limit and self._wait() <= 0:
            return self._start()
        place = asyncio.get_running_loop().create_future()
        self._queue.appendleft(place) if first else self._queue.append(place)
        self.waiting += 1
        self._pump()
        try:
            return await place
        except asyncio.CancelledError:
            if place.cancelled():
                self.waiting -= 1
                if not self.waiting:
                    self._queue.clear()
                    self._stop_timer()
            elif place.result() is not None:
                self.release(place.result())
            raise

    def release(self, ticket: int, *, clean: bool = False, limited: bool = False) -> None:
        """Gives the place back. `clean` = a completion came, `limited` = the endpoint said 429."""
        saturated = self.waiting > 0 or self.in_flight >= self.limit
        self.in_flight -= 1
        if limited and ticket == self._bursts:  # later 429s of one burst were already on their way
            self._bursts += 1
            self._clean = 0
            self.limit = max(1, int(self.limit * DECREASE))
        elif clean and saturated:
            self._clean += 1
            if self._clean >= CLEAN_ANSWERS:
                self._clean = 0
                self.limit = min(self.most, self.limit + 1)
        self._pump()

    def park(self, seconds: float) -> None:
        """Nobody starts within `seconds`."""
        self._parked_until = max(self._parked_until, self._clock.now() + seconds + self._restart_gap())
        self._restarts = 0 if self._gap else self.limit  # a rate that is kept spreads them by itself

    def send_away(self) -> None:
        """Wakes everyone who waits, without a place: the endpoint is left alone."""
        self._parked_until, self._restarts = float("-inf"), 0
        self._stop_timer()
        for place in self._queue:
            if not place.done():
                place.set_result(None)
                self.waiting -= 1
        self._queue.clear()

    def _wait(self) -> float:
        return max(self._next_start, self._parked_until) - self._clock.now()

    def _restart_gap(self) -> float:
        return random.uniform(0, 2 * min(RESTART_GAP_S, RESTART_SPREAD_S / self.limit))

    def _start(self) -> int:
        self.in_flight += 1
        now = self._clock.now()
        if self._gap:
            self._next_start = max(self._next_start, now - min(CATCH_UP_S, self._gap)) + self._gap
        if self._restarts:
            self._restarts -= 1
            self._next_start = max(self._next_start, now + self._restart_gap())
        return self._bursts

    def _pump(self) -> None:
        while self._queue and self.in_flight < self.limit:
            if self._queue[0].cancelled():
                self._queue.popleft()
                continue
            if (wait := self._wait()) > 0:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().create_task(self._wake(wait))
                return
            self.waiting -= 1
            self._queue.popleft().set_result(self._start())

    async def _wake(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._timer = None
        self._pump()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
