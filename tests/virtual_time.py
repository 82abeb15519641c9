"""Time that passes at once: when nothing is ready, the clock jumps to the next timer.

    result, seconds = virtual_time.run(coroutine)

    with virtual_time.engine(script, law="pareto") as world:  # cotkit's own loop in virtual time
        cotkit.distill(problems, ChatModel("a", virtual_time.URL), ...)  # public functions as they are
    world.seconds, world.durations("a"), world.peak["a"]

What threads do takes no virtual time. What an ideal pool would take is `list_schedule`.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import random
import selectors
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from mock_server import Reply, Request, completion

from cotkit import aio
from cotkit.chat import classify_failure, endpoint
from cotkit.pipelines import running

URL = "http://127.0.0.1:9/v1"  # of any endpoint, for none is reached
LAWS: dict[str, Callable[[random.Random], float]] = {  # seconds of a call, about 1 in the mean
    "fixed": lambda chance: 1.0,
    "lognormal": lambda chance: chance.lognormvariate(-0.5, 1.0),
    "pareto": lambda chance: min(chance.paretovariate(1.3), 200.0),
}


class _Jump(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout=None):
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.loop.in_threads or timeout is None:
            return super().select(0.01)  # another thread wakes the loop
        self.loop.passed += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.passed, self.in_threads = 0.0, 0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)

    def time(self):
        return self.passed

    def run_in_executor(self, executor, function, *arguments):
        future = super().run_in_executor(executor, function, *arguments)
        self.in_threads += 1
        future.add_done_callback(self._back)
        return future

    def _back(self, future):
        self.in_threads -= 1


def run(coroutine):
    """(result, seconds of virtual time)."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine), loop.passed
    finally:
        loop.close()


@dataclass
class Call:
    request: Request
    started: float
    seconds: float

    @property
    def model(self) -> str:
        return self.request.body["model"]


class World:
    """Every endpoint at once: `script(request)` says what is answered, `law` how long that takes."""

    def __init__(self, script, law, seed):
        self.script, self.law, self.seed = script, LAWS.get(law, law), seed
        self.loop = VirtualLoop()
        self.calls: list[Call] = []  # in the order they started
        self.running, self.peak = Counter(), Counter()  # by model

    @property
    def seconds(self) -> float:
        return self.loop.passed

    def durations(self, model: str | None = None) -> list[float]:
        return [call.seconds for call in self.calls if model in (None, call.model)]

    def in_flight(self, at: float) -> int:
        return sum(call.started <= at < call.started + call.seconds for call in self.calls)

    async def post(self, body):
        sent = json.dumps(body)
        request = Request(json.loads(sent), {}, "/chat/completions", len(self.calls), 0)
        chance = random.Random(f"{self.seed}: {sent}")  # the same call takes the same time whenever it starts
        call = Call(request, self.loop.passed, self.law(chance))
        self.calls.append(call)
        self.running[call.model] += 1
        self.peak[call.model] = max(self.peak[call.model], self.running[call.model])
        try:
            await asyncio.sleep(call.seconds)
        finally:
            self.running[call.model] -= 1
        reply = self.script(request)
        reply = reply if isinstance(reply, Reply) else Reply(reply)
        if reply.status != 200:
            raise classify_failure(reply.status, reply.headers, {"error": {"message": reply.error}})
        return completion(request, reply)

    async def close(self):
        pass


@contextlib.contextmanager
def engine(script, law="fixed", seed: int = 0) -> Iterator[World]:
    """cotkit's loop in virtual time, and what it asks answered by `script`, as by a MockServer."""
    world, ours = World(script, law, seed), aio.LoopThread()
    ours._loop = world.loop
    ours._thread = threading.Thread(target=world.loop.run_forever, daemon=True)
    ours._thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "open_transport", lambda *options: world)
        patch.setattr(running, "SYNC_S", 600.0)  # the disk takes real time
        for name in ("run", "arun", "start", "inside"):
            patch.setattr(aio, name, getattr(ours, name))
        try:
            yield world
        finally:
            world.loop.call_soon_threadsafe(world.loop.stop)
            ours._thread.join()
            world.loop.close()


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


def flow_schedule(chains, widths, in_flight):
    """The makespan of ideal pools, one a model, that chains of calls go through, so many at once: each free
    place of a model takes the call that waits longest for it. A chain is [(model, seconds), ...]."""
    waiting = {model: deque() for model in widths}
    free, events, now, order, begun, ended = dict(widths), [], 0.0, 0, 0, 0
    while True:
        while begun < min(len(chains), ended + in_flight):
            waiting[chains[begun][0][0]].append((begun, 0))
            begun += 1
        for model, queue in waiting.items():
            while queue and free[model]:
                number, step = queue.popleft()
                free[model] -= 1
                order += 1
                heapq.heappush(events, (now + chains[number][step][1], order, number, step))
        if not events:
            return now
        now, _, number, step = heapq.heappop(events)
        free[chains[number][step][0]] += 1
        if step + 1 < len(chains[number]):
            waiting[chains[number][step + 1][0]].append((number, step + 1))
        else:
            ended += 1
