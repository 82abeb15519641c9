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
from cotkit.pipelines import attempts, programs
from cotkit.pipelines.running import seed_of
from cotkit.pipelines.synthesize import _prepare as prepare_synthesis
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


class Maker(Generator):
    """Writes questions, programs and worked answers; the attempt is known by its sampling seed."""

    def __init__(self, latency, width):
        super().__init__(latency, width)
        self.asked = {}  # seconds of the question

    def stats(self):
        return {}

    async def acomplete(self, messages, seed, role, **options):
        await self.latency.wait(f"PID={seed}")
        self.asked.setdefault(seed, self.latency.spent[seed])
        text = messages[-1]["content"]
        if role == "generator":
            word = "".join(chr(97 + int(digit)) for digit in str(seed))  # no two questions are alike
            text = " ".join(word + letter for letter in "stuvwxyz") + f" PID={seed}; what is it?"
        elif role == "coder":
            pid = re.findall(r"PID=(\d+)", text)[-1]
            text = f"```python\nprint({pid})\n```"
        else:
            pid = re.findall(r"PID=(\d+)", text)[-1]
            text = f"It is {pid}. The answer is \\boxed{{{pid}}}."
        return Completion(text=text, model="virtual", endpoint="none")


def no_need(attempt):
    return ()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("width", [1, 20, 100])
@pytest.mark.parametrize(
    ("strategy", "options", "needs"),
    [
        ("few_shot", {}, no_need),
        ("self_instruct", {"lag": 120}, lambda attempt: range(attempt - 120)),
        ("evol_instruct", {"lag": 75}, lambda attempt: [attempt - 75][: attempt >= 75]),
    ],
    ids=["few_shot", "self_instruct", "evol_instruct"],
)
def test_synthesis_has_no_barrier(tmp_path, monkeypatch, law, width, strategy, options, needs):
    """A question that hangs keeps one place, however many attempts wait to be compared with it."""

    async def printed(code, **options):
        return re.search(r"\d+", code)[0]

    monkeypatch.setattr(attempts, "printed_by", printed)
    monkeypatch.setattr(programs, "printed_by", printed)
    latency, count = Latency(law, seed=width), 300
    seeds = [
        Problem(id=str(n), problem=f"Seed {n} of the {chr(97 + n)} kind?", reference=str(n), type="t")
        for n in range(6)
    ]
    gates = {"near": 0.99, "rouge_l": 1.0, "new_words": 0, "min_words": 1, "keywords": [], "rules": []}
    maker = Maker(latency, width)
    options = {"attempts": count, "gates": gates, "run": tmp_path / "r"} | options
    run, seconds = virtual_time.run(prepare_synthesis(seeds, strategy, maker, None, options).go())
    assert run.report["kept"] == count, run.report["drops"]
    keys = [seed_of(0, f"{strategy}-{n:05d}") for n in range(count)]
    chains, asked = [latency.spent[key] for key in keys], [maker.asked[key] for key in keys]
    assert latency.peak <= width
    assert seconds <= virtual_time.list_schedule(chains, width, needs, asked) / 0.98


class Picky(Maker):
    """Three worked answers in four disagree with their program."""

    async def acomplete(self, messages, seed, role, **options):
        answer = await super().acomplete(messages, seed, role, **options)
        if role == "answerer" and seed % 4:
            answer = answer.model_copy(update={"text": "\\boxed{-1}"})
        return answer


def test_a_question_that_hangs_keeps_no_attempt_from_being_started(tmp_path, monkeypatch):
    """Of n = 20 wanted, all others are made while it hangs, and not many more."""

    async def printed(code, **options):
        return re.search(r"\d+", code)[0]

    monkeypatch.setattr(attempts, "printed_by", printed)
    monkeypatch.setattr(programs, "printed_by", printed)
    latency = Latency("fixed", seed=1)
    latency.law = lambda chance: 1.0 if latency.spent else 700.0
    seeds = [Problem(id=str(n), problem=f"Seed {n}?", reference=str(n), type="t") for n in range(6)]
    gates = {"near": 0.99, "rouge_l": 1.0, "new_words": 0, "min_words": 1, "keywords": [], "rules": []}
    options = {"n": 20, "attempts": 400, "gates": gates, "run": tmp_path / "r"}
    run, seconds = virtual_time.run(
        prepare_synthesis(seeds, "few_shot", Picky(latency, 16), None, options).go()
    )
    assert 20 <= run.report["kept"] <= 22
    assert seconds <= 700 + 3 * 3  # its own program and answer, and perhaps what it was wanted for
    assert len(latency.spent) <= 2 * 4 * 20


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
