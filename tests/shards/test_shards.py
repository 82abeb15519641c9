"""Runs in shards: what many processes write is what one would have written, also when one is killed."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import re
import signal
import sqlite3
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from mock_server import Reply

import cotkit
from cotkit.chat import ChatModel, merge_ledgers
from cotkit.pipelines.shards import merge_runs, run_shards
from cotkit.problems import Problem
from cotkit.runs import RunError

UNEQUAL = {"latency_s", "seconds", "cached"}  # of two runs on one input


def problems(count):
    return [
        Problem(id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n))
        for n in range(count)
    ]


def solve(request):
    n = int(re.search(r"PID=(\d+)", request.user)[1])
    right = n % 3 or "review" in request.system  # every third problem is refined once
    return f"PID={n}: {n} + {n} = {2 * n}. It is \\boxed{{{2 * n if right else -1}}}."


def rows(run):
    def comparable(value):
        if isinstance(value, dict):
            return {k: comparable(v) for k, v in value.items() if k not in UNEQUAL}
        return [comparable(item) for item in value] if isinstance(value, list) else value

    return [comparable(row.model_dump()) for row in run.records()]


def model(server, **options):
    return ChatModel("mock", base_url=server.base_url, endpoint_name="mock", max_concurrency=4, **options)


def shard_out(server, executor, folder, *, count=30, shards=4, say=lambda line: None, **options):
    return run_shards(
        cotkit.distill,
        problems(count),
        executor,
        pathlib.Path(folder),
        shards,
        {"generator": model(server), "judge": cotkit.StepJudge(), "max_iterations": 1, **options},
        say=say,
    )


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_shards_give_the_rows_of_one_process(serve, tmp_path, pool):
    server = serve(solve)
    alone = cotkit.distill(
        problems(30), model(server), cotkit.StepJudge(), max_iterations=1, run=tmp_path / "alone", show="none"
    )
    asked = server.calls
    with pool(2) as executor:
        merged = shard_out(server, executor, tmp_path / "many")
    assert rows(merged) == rows(alone)
    assert merged.report["kept"] == alone.report["kept"] and merged.report["drops"] == alone.report["drops"]
    assert server.calls == 2 * asked
    for name in ("calls", "prompt_tokens", "completion_tokens"):
        assert merged.report["ledger"][name] == alone.report["ledger"][name]
    with ThreadPoolExecutor(2) as executor:
        again = shard_out(server, executor, tmp_path / "many")
    assert rows(again) == rows(alone) and server.calls == 2 * asked


def test_a_merged_run_goes_on_in_one_process_without_asking_again(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        shard_out(server, executor, tmp_path / "r")
    asked = server.calls
    more = cotkit.distill(
        problems(31), model(server), cotkit.StepJudge(), max_iterations=1, run=tmp_path / "r", show="none"
    )
    assert server.calls == asked + 2  # p30 is wrong at first
    assert more.report["given"] == 31


def test_problems_may_be_added_to_a_sharded_run(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        shard_out(server, executor, tmp_path / "r", count=10)
        asked = server.calls
        run = shard_out(server, executor, tmp_path / "r", count=12)
    assert run.report["given"] == 12 and server.calls == asked + 2
    assert [row.index for row in run.records()] == list(range(12))


def test_a_killed_process_loses_no_shard(serve, tmp_path):
    """concurrent.futures gives a broken pool up; the same call goes on."""
    victims, lock = [], threading.Lock()

    def script(request):
        with lock:
            if len(server.log) == 12 and not victims:
                victims.append(next(iter(executor._processes)))
                os.kill(victims[0], signal.SIGKILL)
        return Reply(solve(request), delay=0.01)

    server = serve(script)
    with ProcessPoolExecutor(2) as executor, pytest.raises(RunError, match=r"shards failed.*goes on"):
        shard_out(server, executor, tmp_path / "r", count=40)
    first = server.calls
    with ProcessPoolExecutor(2) as executor:
        run = shard_out(server, executor, tmp_path / "r", count=40)
    assert run.report["kept"] == 40
    needed = 40 + 14
    assert first < needed and server.calls <= needed + 2 * 4  # what was in flight in two processes


def test_a_failing_shard_is_named_and_the_others_are_kept(serve, tmp_path):
    server = serve(solve)
    lines = []
    with ThreadPoolExecutor(2) as executor:
        (tmp_path / "r" / "shards").mkdir(parents=True)
        (tmp_path / "r" / "shards" / "0002").write_text("in the way")
        with pytest.raises(RunError, match="1 of 4 shards failed, first shard 2"):
            shard_out(server, executor, tmp_path / "r", say=lines.append)
    assert sum("kept" in line for line in lines) == 3 and sum("failed" in line for line in lines) == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"shards": 5}, "begun with shards=4"),
        ({"shards": 0}, "shards must be"),
        ({"executor": "dask"}, "executor must have"),
    ],
)
def test_what_cannot_work_is_refused_before_a_call(serve, tmp_path, change, message):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        shard_out(server, executor, tmp_path / "r")
        asked = server.calls
        options = {"executor": executor, "shards": 4, **change}
        with pytest.raises((RunError, TypeError, ValueError), match=message):
            shard_out(server, options.pop("executor"), tmp_path / "r", **options)
    assert server.calls == asked


def test_a_run_of_one_process_is_not_taken_over_by_shards(serve, tmp_path):
    server = serve(solve)
    cotkit.distill(problems(3), model(server), max_iterations=0, run=tmp_path / "r", show="none")
    with ThreadPoolExecutor(1) as executor, pytest.raises(RunError, match="without an executor"):
        shard_out(server, executor, tmp_path / "r")


def test_budgets_are_divided(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        run = shard_out(server, executor, tmp_path / "r", budget_calls=20)
    assert server.calls <= 20
    assert run.report["given"] == 30 and run.report["drops"]["unfinished"] > 0


def finished(server, folder, chosen, **options):
    return cotkit.distill(chosen, model(server), run=folder, show="none", **{"max_iterations": 0, **options})


def test_merging_needs_one_configuration_and_each_problem_once(serve, tmp_path):
    server = serve(solve)
    first = finished(server, tmp_path / "a", problems(4))
    second = finished(server, tmp_path / "b", problems(8)[4:])
    other = finished(server, tmp_path / "c", problems(12)[8:], max_iterations=1)
    merged = merge_runs([first.path, second.path], tmp_path / "out")
    assert [row.id for row in merged.records()] == [f"p{n}" for n in range(8)]
    assert merged.report["given"] == 8 == merged.report["kept"] + sum(merged.report["drops"].values())
    assert merged.report["ledger"]["calls"] == 8
    with pytest.raises(RunError, match=r"max_iterations: 0 -> 1"):
        merge_runs([first.path, other.path], tmp_path / "out2")
    same = finished(server, tmp_path / "d", problems(5)[3:])
    with pytest.raises(RunError, match=r"'p3' is in .*a and in .*d"):
        merge_runs([first.path, same.path], tmp_path / "out3")
    assert not (tmp_path / "out3").exists()
    with pytest.raises(RunError, match="named twice"):
        merge_runs([first.path, first.path], tmp_path / "out4")
    with pytest.raises(RunError, match="nothing to merge"):
        merge_runs([], tmp_path / "out5")


def test_merged_ledgers_answer_every_call_of_their_parts(serve, tmp_path):
    server = serve(solve)
    for name, chosen in (("a", problems(4)), ("b", problems(6)[2:])):
        finished(server, tmp_path / name, chosen)
    totals = merge_ledgers(
        [tmp_path / "a" / "calls.sqlite", tmp_path / "b" / "calls.sqlite"], tmp_path / "c" / "calls.sqlite"
    )
    assert totals["calls"] == 8
    with sqlite3.connect(tmp_path / "c" / "calls.sqlite") as database:
        answers = database.execute(
            "SELECT COUNT(*), COUNT(DISTINCT key) FROM answers JOIN calls ON calls.id = call"
        ).fetchone()
    database.close()
    assert answers == (6, 6)


def test_a_model_travels_without_its_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret-1234567890")
    chat = ChatModel(
        "m",
        "https://api.example/v1",
        "SOME_KEY",
        temperature=0.3,
        fallbacks=[{"model": "n", "base_url": "http://127.0.0.1:1/v1"}],
    )
    sent = pickle.dumps(chat)
    assert b"sk-secret" not in sent
    there = pickle.loads(sent)
    assert there.describe() == chat.describe() and there.name == chat.name


def test_a_model_that_holds_a_client_is_not_sent():
    import openai

    chat = ChatModel.from_client(openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:1/v1"), "m")
    with pytest.raises(pickle.PicklingError, match="base_url that every worker reaches"):
        pickle.dumps(chat)


def test_judges_travel():
    chat = ChatModel("m", "http://127.0.0.1:1/v1")
    for judge in (cotkit.LLMJudge(chat), cotkit.StepJudge(), cotkit.RewardModelJudge(len_of)):
        assert pickle.loads(pickle.dumps(judge)).describe() == judge.describe()


def len_of(problem, trace):
    return {"length": len(trace)}


def test_the_config_of_a_merged_run_says_what_it_was_made_of(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        run = shard_out(server, executor, tmp_path / "r")
    stored = json.loads((run.path / "config.json").read_text())
    assert len(stored["runtime"]["merged"]) == 4


def test_programs_run_on_an_executor_in_their_order():
    with ProcessPoolExecutor(2) as executor:
        results = cotkit.run_programs([f"print({n} ** 2)" for n in range(70)], workers=1, executor=executor)
    assert [result.answer for result in results] == [str(n**2) for n in range(70)]
    with ProcessPoolExecutor(1) as executor, pytest.raises((TypeError, ValueError)):
        cotkit.run_programs(["print(1)"], executor=executor, timeout=-1)


def test_distill_and_benchmark_take_an_executor(serve, tmp_path):
    server = serve(solve)
    options = {"max_iterations": 1, "show": "none"}
    alone = cotkit.distill(problems(9), model(server), cotkit.StepJudge(), run=tmp_path / "one", **options)
    with ProcessPoolExecutor(2) as executor:
        many = cotkit.distill(
            problems(9), model(server), cotkit.StepJudge(), run=tmp_path / "n", executor=executor, shards=3,
            **options,
        )  # fmt: skip
        with pytest.raises(TypeError, match="did you mean 'max_iterations'"):
            cotkit.distill(problems(9), model(server), executor=executor, max_iteration=1)
        report = cotkit.benchmark(
            problems(9), {"m": model(server)}, run=tmp_path / "b", executor=executor, shards=2, show="none"
        )
    assert rows(many) == rows(alone)
    assert report.table["right"].iloc[-1] == 6 and report.table["problems"].iloc[-1] == 9
