"""No barrier anywhere: in virtual time a run takes as long as an ideal pool of the same width would."""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict

import pytest
import virtual_time

from cotkit import aio
from cotkit.judge import Judge
from cotkit.pipelines import start_distill  # noqa: F401 - the room is loaded before time is virtual
from cotkit.problems import Problem
from cotkit.records import Completion, Judgement

LAWS = {
    "fixed": lambda chance: 1.0,
    "lognormal": lambda chance: chance.lognormvariate(-0.5, 1.0),
    "heavy tail": lambda chance: min(chance.paretovariate(1.3), 200.0),
}


class Latency:
    """Draws how long a call takes, and remembers it by problem."""

    def __init__(self, law, seed):
        self.law, self.chance, self.spent = LAWS[law], random.Random(seed), defaultdict(float)
        self.in_flight = self.peak = 0

    async def wait(self, text):
        seconds = self.law(self.chance)
        self.spent[int(re.search(r"PID=(\d+)", text)[1])] += seconds
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        await asyncio.sleep(seconds)
        self.in_flight -= 1


class Generator:
    """A ChatModel's outside, with latency and no network. Every second problem needs a refinement."""

    name = model = "virtual"

    def __init__(self, latency, width):
        self.latency, self.max_concurrency = latency, width

    def describe(self):
        return {"model": "virtual"}

    async def acandidates(self, messages, n, **options):
        return [await self.acomplete(messages, sample_index=index) for index in range(n)]

    async def acomplete(self, messages, sample_index=0, role="generator", **options):
        text = messages[-1]["content"]
        await self.latency.wait(str(messages))
        pid = int(re.search(r"PID=(\d+)", text)[1])
        right = role == "improver" or pid % 2
        return Completion(
            text=f"\\boxed{{{pid if right else -1}}}",
            model="virtual",
            endpoint="none",
            sample_index=sample_index,
        )


class VirtualJudge(Judge):
    def __init__(self, latency):
        super().__init__("virtual", ("correctness",))
        self.latency = latency

    def describe(self):
        return {"judge": "virtual"}

    async def ajudge(self, problem, trace, *, ledger=None):
        await self.latency.wait(problem.problem)
        return Judgement(scores={"correctness": 0.9}, judge=self.name)


def distilled(problems, latency, width, folder):
    from cotkit.pipelines.distill import prepare

    work = prepare(
        problems,
        Generator(latency, width),
        VirtualJudge(latency),
        {"max_iterations": 2, "score_threshold": 0.5, "run": folder},
        "none",
    )
    return virtual_time.run(work.go())


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("width", [1, 20, 100])
def test_generation_judging_and_refinement_have_no_barrier(tmp_path, law, width):
    count, latency = 300, Latency(law, seed=width)
    problems = [
        Problem(id=str(n), problem=f"PID={n}", reference=str(n), answer_type="number") for n in range(count)
    ]
    run, seconds = distilled(problems, latency, width, tmp_path / "r")
    assert run.report["kept"] == count
    chains = [latency.spent[n] for n in range(count)]
    assert latency.peak <= width
    assert seconds <= virtual_time.list_schedule(chains, width) / 0.98


@pytest.mark.parametrize("law", LAWS)
def test_the_stream_is_an_ideal_pool_at_any_width(law):
    for width in (1, 7, 100, 1000):
        chance = random.Random(width)
        durations = [LAWS[law](chance) for _ in range(2000)]

        async def consume(durations=durations, width=width):
            return [d async for d, _ in aio.stream(durations, asyncio.sleep, width)]

        done, seconds = virtual_time.run(consume())
        assert sorted(done) == sorted(durations)
        assert seconds == pytest.approx(virtual_time.list_schedule(durations, width))


def test_the_cost_of_the_stream_does_not_grow_with_its_width():
    """Steps of the loop, counted: one that looks at all tasks at each completion grows with the width."""
    import sys

    def calls(width):
        count = 0

        def tick(frame, event, arg):
            nonlocal count
            count += event in ("call", "c_call")

        async def consume():
            async for _ in aio.stream(range(3000), lambda item: asyncio.sleep(1 + item % 7), width):
                pass

        sys.setprofile(tick)
        try:
            virtual_time.run(consume())
        finally:
            sys.setprofile(None)
        return count

    assert calls(1000) < 1.5 * calls(30)
