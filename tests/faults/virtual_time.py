"""An event loop whose time passes at once: when nothing is ready, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
import selectors


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


def list_schedule(durations, width):
    """The makespan of an ideal pool: each free place takes the next job (Graham 1966)."""
    busy = [0.0] * min(width, len(durations))
    for duration in durations:
        heapq.heapreplace(busy, busy[0] + duration)
    return max(busy)
