"""An event loop whose time passes at once: when nothing is ready, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque


class _Jump(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout:
            self.loop.passed += timeout
        elif not ready and timeout is None:
            ready = super().select(0.01)  # only another thread can wake the loop
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.passed = 0.0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)

    def time(self):
        return self.passed


def run(coroutine):
    """(result, seconds of virtual time)."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine), loop.passed
    finally:
        loop.close()


def list_schedule(durations, width, needs=lambda job: (), asked=None):
    """The makespan of an ideal pool: each free place takes the job that waits longest (Graham 1966).

    `needs(job)`: the lower jobs that must be settled before it can start. A job is settled when it has ended
    and all lower ones have asked, which takes the first `asked` of their durations (None = no time).
    """
    asked = asked or [0.0] * len(durations)
    missing = {job: set(needs(job)) for job in range(len(durations))}
    ready = deque(job for job, others in missing.items() if not others)
    events, busy, now, ended, known, all_known = [], 0, 0.0, set(), set(), 0
    while ready or events:
        while ready and busy < width:
            job, busy = ready.popleft(), busy + 1
            heapq.heappush(events, (now + asked[job], job, known))
            heapq.heappush(events, (now + durations[job], job, ended))
        now, job, happened = heapq.heappop(events)
        happened.add(job)
        busy -= happened is ended
        while all_known in known:
            all_known += 1
        settled = {job for job in ended if job <= all_known}
        for job in [job for job, others in missing.items() if others and others <= settled]:
            missing[job] = set()
            ready.append(job)
    return now
