"""No barrier anywhere, stated once: in virtual time every pipeline takes as long as an ideal pool would.

Each function below runs one pipeline through its public function, over whole chat models whose calls take
virtual time, and gives (seconds, what an ideal pool of as many places takes). `test_no_barrier` holds all of
them to 98 % of the ideal, for any law of latency and any width. The cycles are in tests/self_improve.

Where chains pass through several models the ideal is one pool a model with as many chains under way as the
engine has: twice its places (`BETWEEN` in pipelines/running.py). That cap is the engine's own choice, which
bounds what is begun and not finished; it is granted to the ideal too, and what it costs is not gated here.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import re
from collections import defaultdict
from concurrent.futures import Future

import pytest
import virtual_time
from virtual_time import LAWS, URL, flow_schedule, list_schedule

import cotkit
from cotkit import ChatModel, Environment, LLMJudge, ModelVerifier, aio, executors
from cotkit.pipelines import attempts, pair_judge, programs
from cotkit.pipelines.running import seed_of
from cotkit.pipelines.strategies import SPREAD
from cotkit.problems import Problem
from cotkit.records import Candidate, Judgement, Row, Verdict
from cotkit.runs import RunFolder

COUNT = 150
WIDTHS = (1, 20, 100)
SCORED = {name: {"reason": "seen", "score": 9} for name in ("correctness", "clarity", "completeness")}
PREFERRED = json.dumps({"reason": "seen", "better": "first"})
THE_SAME = json.dumps({"reason": "seen", "verdict": "equivalent"})


def problems(count=COUNT):
    return [
        Problem(id=str(n), problem=f"PID={n}; what is it?", reference=str(n), answer_type="number")
        for n in range(count)
    ]


def pid(call):
    return int(re.search(r"PID=(\d+)", str(call.request.messages))[1])


def answer(request):
    """Judges, or solves: every second problem needs a refinement."""
    if "response_format" in request.body:
        asked = request.body["response_format"]["json_schema"]["schema"]["properties"]
        said = {"better": PREFERRED, "verdict": THE_SAME}
        return next((said[name] for name in asked if name in said), json.dumps({**SCORED, "feedback": ""}))
    number = int(re.search(r"PID=(\d+)", request.user)[1])
    right = number % 2 or "was reviewed" in request.system
    return f"\\boxed{{{number if right else -1}}}"


def chat(name, width):
    return ChatModel(name, URL, max_concurrency=width)


def slowest(world, **widths):
    """What the model that needs longest takes, alone, for the calls it had."""
    return max(list_schedule(world.durations(name), width) for name, width in widths.items())


def chains(world, key=pid):
    """Seconds of all calls of each problem, in the order of the problems."""
    spent = defaultdict(float)
    for call in world.calls:
        spent[key(call)] += call.seconds
    return [spent[number] for number in sorted(spent)]


def steps(world, key=pid):
    """The calls of each problem, one after the other, in the order of the problems."""
    taken = defaultdict(list)
    for call in world.calls:
        taken[key(call)].append((call.model, call.seconds))
    return [taken[number] for number in sorted(taken)]


# --- generation, judging, refinement


def distillation(law, width, folder):
    with virtual_time.engine(answer, law, width) as world:
        model = chat("m", width)
        options = {"max_iterations": 2, "score_threshold": 0.5, "run": folder, "show": "none"}
        run = cotkit.distill(problems(), model, LLMJudge(model), **options)
    assert run.report["kept"] == COUNT and world.peak["m"] <= width
    return world.seconds, list_schedule(chains(world), width)


def distillation_by_two_models(law, width, folder):
    widths = {"writer": width, "judge": width}
    with virtual_time.engine(answer, law, width) as world:
        writer, judge = (chat(name, width) for name in widths)
        options = {"max_iterations": 2, "score_threshold": 0.5, "run": folder, "show": "none"}
        cotkit.distill(problems(), writer, LLMJudge(judge), **options)
    return world.seconds, flow_schedule(steps(world), widths, in_flight=4 * width)


def distillation_of_several_drafts(law, width, folder):
    with virtual_time.engine(answer, law, width) as world:
        options = {"num_generations": 4, "max_iterations": 0, "run": folder, "show": "none"}
        cotkit.distill(problems(), chat("m", width), **options)
    return world.seconds, slowest(world, m=width)


# --- synthesis


def word_of(number):
    """No two questions are alike."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def last_pid(text):
    return re.findall(r"PID=(\d+)", text)[-1]


def make(request):
    """Writes questions, programs, worked answers and judges; the attempt is known by its sampling seed."""
    text = request.messages[-1]["content"]
    if "response_format" in request.body:
        return json.dumps({part: {"reason": "seen", "ok": True} for part in ("question", "code")})
    if "Python program" in request.system:
        return f"```python\nprint({last_pid(text)})\n```"
    if request.system.startswith("Solve the problem"):
        number = last_pid(text)
        return f"It is {number}. The answer is \\boxed{{{number}}}."
    seed = request.body["seed"]
    return " ".join(word_of(seed) + letter for letter in "stuvwxyz") + f" PID={seed}; what is it?"


async def printed(code, **options):
    return re.search(r"\d+", code)[0]


@pytest.fixture
def no_sandbox(monkeypatch):
    monkeypatch.setattr(attempts, "printed_by", printed)
    monkeypatch.setattr(programs, "printed_by", printed)


GATES = {"near": 0.99, "rouge_l": 1.0, "new_words": 0, "min_words": 1, "keywords": [], "rules": []}
SEEDS = [
    Problem(id=str(n), problem=f"Seed {n} of the {chr(97 + n)} kind?", reference=str(n), type="t")
    for n in range(6)
]


def free(attempt):
    """An ideal in which no attempt waits for another."""
    return ()


def synthesis(strategy, needs, law, width, folder, count=COUNT, **options):
    options = {"attempts": count, "gates": GATES, "run": folder, "show": "none", **options}
    with virtual_time.engine(make, law, width) as world:
        run = cotkit.synthesize(SEEDS, strategy, chat("m", width), **options)
    assert run.report["kept"] == count, run.report["drops"]
    spent, asked = defaultdict(float), {}
    for call in world.calls:
        seed = call.request.body["seed"]
        spent[seed] += call.seconds
        asked.setdefault(seed, call.seconds)  # of the question
    keys = [seed_of(0, f"{strategy}-{n:05d}") for n in range(count)]
    assert world.peak["m"] <= width
    ideal = list_schedule([spent[key] for key in keys], width, needs, [asked[key] for key in keys])
    return world.seconds, ideal


few_shot = functools.partial(synthesis, "few_shot", free)
self_instruct = functools.partial(synthesis, "self_instruct", free)
evol_instruct = functools.partial(synthesis, "evol_instruct", free)
self_instruct_of_80 = functools.partial(
    synthesis, "self_instruct", lambda attempt: range(attempt - 80), lag=80
)
evol_instruct_of_50 = functools.partial(
    synthesis, "evol_instruct", lambda attempt: [attempt - 50][: attempt >= 50], lag=50
)
short_chains = functools.partial(
    synthesis, "evol_instruct", lambda attempt: [attempt - 5][: attempt % 20 >= 5], lag=5
)


def synthesis_by_four_models(law, width, folder):
    widths = dict.fromkeys(("generator", "coder", "answerer", "judge"), width)
    with virtual_time.engine(make, law, width) as world:
        models = {name: chat(name, width) for name in widths}
        options = {"attempts": COUNT, "gates": GATES, "run": folder, "show": "none", "calibrate_judge": 0}
        run = cotkit.synthesize(SEEDS, "few_shot", **models, **options)
    assert run.report["kept"] == COUNT, run.report["drops"]
    number = {seed_of(0, f"few_shot-{n:05d}"): n for n in range(COUNT)}

    def attempt(call):
        own = call.model == "generator"
        return number[call.request.body["seed"] if own else int(last_pid(str(call.request.messages)))]

    return world.seconds, flow_schedule(steps(world, attempt), widths, in_flight=2 * 4 * width)


# --- benchmark and comparison


def benchmark(law, width, folder):
    widths = {"narrow": max(1, width // 2), "middle": width, "wide": 2 * width}
    with virtual_time.engine(answer, law, width) as world:
        models = {name: chat(name, width) for name, width in widths.items()}
        options = {"num_generations": 2, "run": folder, "show": "none"}
        report = cotkit.benchmark(problems(), models, **options)
    assert not report.failed and all(world.peak[name] <= width for name, width in widths.items())
    return world.seconds, slowest(world, **widths)


def benchmark_of_one_model(law, width, folder):
    with virtual_time.engine(answer, law, width) as world:
        cotkit.benchmark(problems(), [chat("m", width)], run=folder, show="none")
    return world.seconds, slowest(world, m=width)


def comparison(law, width, folder):
    runs = {}
    for name in ("few_shot", "self_instruct"):
        with RunFolder(folder / name, {"pipeline": "synthesize", "strategy": name}) as made:
            for n, problem in enumerate(problems(COUNT // 2)):
                text = f"{problem.problem} ({name})"
                known = vars(problem) | {"id": f"{name}-{n:05d}", "problem": text, "accepted": True}
                known["metadata"] = {"synthesis": {"passed": ["attempted"]}, "solution_code": ""}
                made.append(Row(index=n, **known))
            made.write_report(COUNT // 2, stopped=None)
        runs[name] = folder / name
    widths = {"first": width, "second": 2 * width}
    with virtual_time.engine(answer, law, width) as world:
        first, second = (chat(name, width) for name, width in widths.items())
        options = {"second_solver": second, "k": 2, "run": folder / "compared", "show": "none"}
        cotkit.compare_strategies(runs, first, **options)
    assert len(world.calls) == 2 * 2 * COUNT
    return world.seconds, slowest(world, **widths)


# --- judges, and verification by a model


def traces(count=COUNT):
    texts = ("one way", "another way")
    verdict = Verdict(correct=True, method="number")
    return [
        Row(
            index=n,
            id=str(n),
            problem=f"PID={n}; what is it?",
            reference=str(n),
            candidates=[Candidate(iteration=0, trace=f"{n} by {t}", text=t, verdict=verdict) for t in texts],
            final=0,
        )
        for n in range(count)
    ]


def diagnosis(law, width, folder):
    with virtual_time.engine(answer, law, width) as world:
        options = {"share": 1.0, "probes": {}, "repeats": 2, "run": folder, "show": "none"}
        cotkit.diagnose_judge(traces(COUNT // 2), LLMJudge(chat("m", width)), **options)
    assert len(world.calls) == 3 * COUNT
    return world.seconds, slowest(world, m=width)


def pairs(law, width, folder):
    with virtual_time.engine(answer, law, width) as world:
        cotkit.compare_traces(traces(), chat("m", width), pairs=COUNT, run=folder, show="none")
    assert len(world.calls) == 2 * COUNT
    return world.seconds, slowest(world, m=width)


def steps_of_a_batch(law, width, folder):
    items = [
        Problem(id=word_of(n), problem=f"PID={n}; where?", reference=f"{word_of(n)}ville, France")
        for n in range(COUNT)
    ]
    with virtual_time.engine(answer, law, width) as world:
        env = Environment(items, ModelVerifier(chat("m", width)), batch=COUNT)
        steps = env.step([f"\\boxed{{{problem.id}ville}}" for problem in env.reset()])
    assert {step.reward for step in steps} == {1.0} and len(world.calls) == 2 * COUNT
    return world.seconds, slowest(world, m=width)


# --- verification by programs, on an executor


class Workers:
    """An executor whose workers take as long for a chunk as its items do."""

    def __init__(self):
        self.chunks = []

    def submit(self, work, *arguments):
        future = Future()
        future.set_result(work(*arguments))
        return future

    def take(self, chunk):
        self.chunks.append(sum(chunk))
        return chunk


def chunks_on_an_executor(law, width, folder):
    width, chance, workers = min(width, executors.SHARE // 4), random.Random(width), Workers()
    seconds = [LAWS[law](chance) for _ in range(10 * COUNT)]
    assert executors.in_chunks(workers, workers.take, seconds, 64) == seconds
    return list_schedule(workers.chunks, width), list_schedule(seconds, width)


PIPELINES = {
    "generation, judging, refinement": distillation,
    "generation and judging by two models": distillation_by_two_models,
    "generation of several drafts": distillation_of_several_drafts,
    "synthesis: few_shot": few_shot,
    "synthesis: self_instruct": self_instruct,
    "synthesis: evol_instruct": evol_instruct,
    "synthesis: self_instruct with a lag that was given": self_instruct_of_80,
    "synthesis: evol_instruct with a lag that was given": evol_instruct_of_50,
    "synthesis: evol_instruct, few chains in a block": short_chains,
    "synthesis by four models": synthesis_by_four_models,
    "benchmark of one model": benchmark_of_one_model,
    "benchmark of several models": benchmark,
    "comparison of strategies by two solvers": comparison,
    "diagnosis of a judge": diagnosis,
    "comparison of traces": pairs,
    "verification by a model, a batch of an environment": steps_of_a_batch,
    "verification by programs, on an executor": chunks_on_an_executor,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_no_barrier(tmp_path, no_sandbox, pipeline, width, law):
    """Pipelines over several models against an ideal that has the engine's cap on chains under way."""
    seconds, ideal = PIPELINES[pipeline](law, width, tmp_path / "run")
    assert seconds <= ideal / 0.98


@pytest.mark.parametrize(("law", "width", "count"), [("pareto", 20, 1280), ("lognormal", 100, 2000)])
@pytest.mark.parametrize("pipeline", [self_instruct, evol_instruct], ids=["self_instruct", "evol_instruct"])
def test_attempts_that_look_back_keep_all_places_busy(tmp_path, no_sandbox, pipeline, law, width, count):
    """By default, against an ideal in which none waits for another."""
    seconds, ideal = pipeline(law, width, tmp_path / "run", count)
    assert seconds <= ideal / 0.98
    rows = cotkit.open_run(tmp_path / "run").iter_records()
    assert sum(bool(row.metadata["synthesis"]["parents"]) for row in rows) > 0.4 * count


# --- what keeps it so


def test_a_question_that_hangs_keeps_no_attempt_from_being_started(tmp_path, no_sandbox):
    """Of n = 20 wanted, all others are made while it hangs, and not many more."""
    asked = []

    def picky(request):
        """Three worked answers in four disagree with their program."""
        wrong = request.system.startswith("Solve the problem") and request.body["seed"] % 4
        return "\\boxed{-1}" if wrong else make(request)

    def law(chance):
        asked.append(chance)
        return 1.0 if len(asked) > 1 else 700.0

    options = {"n": 20, "attempts": 400, "gates": GATES, "run": tmp_path / "r", "show": "none"}
    with virtual_time.engine(picky, law) as world:
        run = cotkit.synthesize(SEEDS, "few_shot", ChatModel("m", URL, timeout=1000), **options)
    assert 20 <= run.report["kept"] <= 22
    assert world.seconds <= 700 + 3 * 3  # its own program and answer, and perhaps what it was wanted for
    assert len({call.request.body["seed"] for call in world.calls}) <= 2 * 4 * 20


LAGS = [  # strategy, options, attempts side by side, places
    ("self_instruct", {"attempts": 12, "lag": 3}, 4, 8),
    ("self_instruct", {"attempts": 12, "lag": 7}, 8, 8),
    ("self_instruct", {"attempts": 7, "lag": 3}, 4, 8),  # too few to fill the places, whatever the lag
    ("evol_instruct", {"attempts": 12, "lag": 3, "rounds": 4}, 3, 8),
    ("evol_instruct", {"attempts": 16, "lag": 8, "rounds": 2}, 8, 8),
    ("evol_instruct", {"attempts": 12, "lag": 2, "rounds": 1}, 8, 8),  # nothing is rewritten twice
    ("evol_instruct", {"n": 4, "attempts": 40, "lag": 4, "rounds": 4}, 4, 8),  # 8 in flight
    ("few_shot", {"attempts": 12, "lag": 1}, 8, 8),
]


@pytest.mark.parametrize(("strategy", "options", "most", "places"), LAGS)
def test_a_lag_that_leaves_places_empty_says_so_with_what_runs_side_by_side(
    tmp_path, no_sandbox, strategy, options, most, places
):
    options = {"gates": GATES, "run": tmp_path / "r", "show": "none", **options}
    with virtual_time.engine(make) as world:
        run = cotkit.synthesize(SEEDS, strategy, chat("m", places), **options)
    said = [note for note in run.report["notes"] if "stay empty" in note]
    if most < places <= options["attempts"]:
        assert f"lag={options['lag']} lets {most} attempts run side by side: {places - most} of 8" in said[0]
        assert world.peak["m"] == most
    else:
        assert not said and world.peak["m"] <= places


@pytest.mark.parametrize("strategy", ["self_instruct", "evol_instruct"])
def test_the_lag_that_the_note_names_uses_most_places_where_latencies_vary(tmp_path, no_sandbox, strategy):
    used = {}
    for lag in (4, SPREAD * 8):
        options = {"attempts": COUNT, "lag": lag, "gates": GATES, "run": tmp_path / str(lag), "show": "none"}
        with virtual_time.engine(make, "lognormal", seed=1) as world:
            cotkit.synthesize(SEEDS, strategy, chat("m", 8), **options)
        used[lag] = sum(world.durations()) / world.seconds / 8
    assert used[4] < 0.55 and used[SPREAD * 8] > 0.8


def test_a_judge_is_tried_on_one_seed_while_the_programs_of_the_next_run(monkeypatch):
    async def second_by_second(code, **options):
        await asyncio.sleep(1.0)
        return str(eval(code.removeprefix("print")))

    async def judge(question, code, answer):
        asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0)
        return Judgement(scores={"question": 1.0, "code": 1.0})

    monkeypatch.setattr(pair_judge, "printed_by", second_by_second)
    programs = [{"solution_code": f"print({n} + {n})", "reference": str(2 * n)} for n in range(2, 10)]
    seeds = [Problem(id=str(n), problem=f"Seed {n}?", **known) for n, known in enumerate(programs)]
    asked = []
    found, seconds = virtual_time.run(pair_judge.calibrate(seeds, 8, judge, random.Random(1)))
    assert found["pairs"] == 8 and len(asked) == 16
    assert sorted(asked)[:4] == [2.0, 2.0, 4.0, 4.0] and seconds == max(asked) + 1


def test_an_answer_that_takes_its_time_keeps_no_worker_waiting(monkeypatch):
    """The first job of algebra ends last: all others are given to the workers meanwhile."""
    from cotkit.verify import check
    from cotkit.verify.verdicts import Outcome

    rows, jobs = [(f"x^2 + {2 * n}x + {n * n}", f"(x + {n})^2") for n in range(71, 101)], []

    class Slow(Future):
        def result(self, timeout=None):
            assert self.done(), f"{len(jobs)} of {len(rows)} jobs were given when the first was waited for"
            return super().result(timeout)

    class Pool:
        def submit(self, pairs, options, seconds):
            jobs.append(Slow())
            done = jobs[1:] if len(jobs) < len(rows) else jobs
            for job in done:
                if not job.done():
                    job.set_result(([Outcome(True, "symbolic", "")] * len(pairs), 0.0))
            return jobs[-1]

    monkeypatch.setattr(check, "shared_pool", Pool)
    assert all(verdict.correct for verdict in cotkit.check_answers(rows))
    assert len(jobs) == len(rows)


def test_the_slowest_completion_of_a_batch_keeps_no_other_waiting():
    """All are verified at once, whatever their order."""
    from cotkit.records import Extraction
    from cotkit.verify import Verifier

    class Slow(Verifier):
        async def averify(self, problem, text, *, truncated=False, ledger=None):
            await asyncio.sleep(float(text))
            return Extraction(answer=text, how="all"), Verdict(correct=True, method="slow")

    with virtual_time.engine(answer) as world:
        env = Environment(problems(64), Slow(), batch=64)
        env.reset()
        env.step([str(64.0 - n) for n in range(64)])
    assert world.seconds == 64


@pytest.mark.parametrize("law", LAWS)
def test_the_pool_is_ideal_at_any_width(law):
    for width in (1, 7, 100, 1000):
        chance = random.Random(width)
        durations = [LAWS[law](chance) for _ in range(2000)]

        done = []

        async def work(seconds, done=done):
            await asyncio.sleep(seconds)
            done.append(seconds)

        _, seconds = virtual_time.run(aio.pool(durations, work, width))
        assert sorted(done) == sorted(durations)
        assert seconds == pytest.approx(list_schedule(durations, width))


def test_the_cost_of_the_pool_does_not_grow_with_its_width():
    """Steps of the loop, counted: one that looks at all tasks at each completion grows with the width."""
    import sys

    def calls(width):
        count = 0

        def tick(frame, event, arg):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(tick)
        try:
            virtual_time.run(aio.pool(range(3000), lambda item: asyncio.sleep(1 + item % 7), width))
        finally:
            sys.setprofile(None)
        return count

    assert calls(1000) < 1.5 * calls(30)


def test_a_barrier_is_seen():
    """The gate can fail: batches as long as the places are wide, each waited for."""

    async def batches(durations, width):
        for at in range(0, len(durations), width):
            await asyncio.gather(*map(asyncio.sleep, durations[at : at + width]))

    for law in ("lognormal", "pareto"):
        chance = random.Random(1)
        durations = [LAWS[law](chance) for _ in range(COUNT)]
        _, seconds = virtual_time.run(batches(durations, 20))
        assert seconds > 1.5 * list_schedule(durations, 20)
