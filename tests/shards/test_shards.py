"""Runs in shards: what many processes write is what one would have written, also when one is killed."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from mock_server import Reply
from power_cut import Disk

import cotkit
from cotkit import cli
from cotkit.chat import ChatModel, merge_ledgers
from cotkit.executors import in_chunks, submit
from cotkit.pipelines import merge_runs, progress, running
from cotkit.pipelines import shards as of_shards
from cotkit.pipelines.distill import prepare_shard
from cotkit.pipelines.shards import run_shards
from cotkit.problems import Problem
from cotkit.runs import REPLACING, Journal, RunError, add_label, read_labels

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
        functools.partial(prepare_shard, model(server), cotkit.StepJudge()),
        problems(count),
        executor,
        pathlib.Path(folder),
        shards,
        {"max_iterations": 1, **options},
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


def test_what_one_process_added_to_a_merged_run_is_not_replaced(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        shard_out(server, executor, tmp_path / "r", count=6)
        cotkit.distill(
            problems(8), model(server), cotkit.StepJudge(), max_iterations=1, run=tmp_path / "r", show="none"
        )
        before, asked = contents(tmp_path / "r"), server.calls
        for resume in ("auto", "never"):
            with pytest.raises(RunError, match="gone on with without an executor"):
                shard_out(server, executor, tmp_path / "r", count=6, resume=resume)
    assert contents(tmp_path / "r") == before and server.calls == asked


def test_merging_again_leaves_labels_and_what_was_set_aside(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        run = shard_out(server, executor, tmp_path / "r", count=6)
        add_label(run, "p1", 0, "good", "read it")
        (run.path / "superseded" / "1").mkdir(parents=True)
        (run.path / "superseded" / "1" / "rows.jsonl").write_text("{}\n")
        for count in (6, 7):
            run = shard_out(server, executor, tmp_path / "r", count=count)
            assert run.report["given"] == count
            assert {key: label["note"] for key, label in read_labels(run).items()} == {("p1", 0): "read it"}
            assert (run.path / "superseded" / "1" / "rows.jsonl").exists()


def test_a_sharded_run_that_begins_anew_sets_the_old_one_aside(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        options = {"executor": executor, "folder": tmp_path / "r", "shards": 6}
        add_label(shard_out(server, count=6, **options), "p1", 0, "good")
        asked = server.calls
        with pytest.raises(RunError, match=r"2 problems .* none of the runs to merge, first 'p[45]'"):
            shard_out(server, count=4, **options)
        run = shard_out(server, count=4, resume="never", **options)
    old = cotkit.open_run(tmp_path / "r" / "superseded" / "1")
    assert run.report["kept"] == 4 and not read_labels(run)
    assert old.report["kept"] == 6 and len(read_labels(old)) == 1 and server.calls == asked


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


@pytest.mark.parametrize("budget", ["budget_calls", "budget_tokens"])
def test_a_budget_that_leaves_a_shard_nothing_is_refused_before_anything_is_written(serve, tmp_path, budget):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(ValueError, match=f"{budget}=3 leaves nothing for 1 of 4 shards: raise it, or"):
            shard_out(server, executor, tmp_path / "r", **{budget: 3})
        assert not list(tmp_path.iterdir()) and server.calls == 0
        run = shard_out(server, executor, tmp_path / "r", count=3, max_iterations=0, budget_calls=3)
    assert server.calls == 3 and run.report["complete"]  # only three of the shards have work


@pytest.mark.parametrize("there", [None, "another file of that name"])
def test_a_worker_that_does_not_see_the_problems_file_says_what_to_do(serve, tmp_path, there):
    """It is read bit by bit, by each worker."""
    path = tmp_path / "problems.jsonl"

    class Elsewhere(ThreadPoolExecutor):
        def submit(self, *call, **options):
            path.unlink(missing_ok=True)
            if there:
                path.write_text(there)
            return super().submit(*call, **options)

    path.write_text(
        "".join(json.dumps(p.model_dump(include={"id", "problem", "reference"})) + "\n" for p in problems(6))
    )
    streamed, server = cotkit.load_problems(path, stream=True), serve(solve)
    says = r"2 of 2 shards failed.*a worker cannot read the problems: .*put it on a path that all of them see"
    with Elsewhere(1) as executor, pytest.raises(RunError, match=says):
        cotkit.distill(streamed, model(server), executor=executor, shards=2, run=tmp_path / "r", show="none")
    assert server.calls == 0 and not list((tmp_path / "r" / "shards").glob("*/"))


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
    with pytest.raises(RunError, match=r"'p3' is in .*a and in .*d$"):
        merge_runs([first.path, same.path], tmp_path / "out3")
    assert not (tmp_path / "out3").exists()
    texts = [{"problem": problems(8)[n].problem, "reference": "1"} for n in (6, 7)]
    parts = [finished(server, tmp_path / str(n), texts[n : n + 1]).path for n in (0, 1)]
    with pytest.raises(RunError, match=r"'0' is in .* two problems with one id: where rows bring no ids"):
        merge_runs(parts, tmp_path / "out3")
    with pytest.raises(RunError, match="named twice"):
        merge_runs([first.path, first.path], tmp_path / "out4")
    with pytest.raises(RunError, match="nothing to merge"):
        merge_runs([], tmp_path / "out5")


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_merging_replaces_nothing_that_is_nowhere_else(serve, tmp_path, capsys):
    server = serve(solve)
    a, b, c = (
        finished(server, tmp_path / name, problems(2 * n + 2)[2 * n :]) for n, name in enumerate("abc")
    )
    other = finished(server, tmp_path / "other", problems(4), max_iterations=1)
    merge_runs([a.path, b.path], tmp_path / "out")
    (tmp_path / "paid").mkdir()
    merge_ledgers([a.path / "calls.jsonl"], tmp_path / "paid" / "calls.jsonl")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "report.json").write_text("{}")
    before = contents(tmp_path)
    for output, runs, says in (
        (a, [b, c], "a run that no merge made"),
        (a, [a, b], "itself among the runs"),
        ("out", [b, c], "2 problems that are in none of the runs to merge"),
        ("out", [other], "max_iterations: 0 -> 1"),
        ("paid", [b, c], "calls.jsonl but no config.json"),
        ("page", [b, c], "report.json but no config.json"),
    ):
        output = tmp_path / output if isinstance(output, str) else output.path
        with pytest.raises(RunError, match=says):
            merge_runs([run.path for run in runs], output)
        assert cli.main(["merge", str(output), *(str(run.path) for run in runs)]) == 2
        assert says.partition(":")[0] in capsys.readouterr().err
    with pytest.raises(RunError, match="named twice"):
        merge_runs([a.path, tmp_path / "b" / ".." / "a"], tmp_path / "out2")
    assert contents(tmp_path) == before
    assert len(merge_runs([a.path, b.path, c.path], tmp_path / "out").records()) == 6


def test_runs_below_the_output_are_runs_like_any_other(serve, tmp_path):
    server = serve(solve)
    names = ("a", "new", "b")
    out = tmp_path / "out"
    parts = [finished(server, out / name, problems(2 * n + 2)[2 * n :]) for n, name in enumerate(names)]
    before = contents(out)
    merged = merge_runs([run.path for run in parts], out)
    assert len(merged.records()) == 6 and contents(out).items() >= before.items()


def test_labels_of_merged_runs_come_along_once(serve, tmp_path):
    server = serve(solve)
    a, b = (finished(server, tmp_path / name, problems(2 * n + 2)[2 * n :]) for n, name in enumerate("ab"))
    add_label(a, "p0", 0, "good")
    for _ in range(2):
        out = merge_runs([a.path, b.path], tmp_path / "out")
        assert (out.path / "labels.jsonl").read_bytes() == (a.path / "labels.jsonl").read_bytes()
    add_label(out, "p1", 0, "bad")
    add_label(b, "p3", 0, "unsure")
    Journal(b.path / "labels.jsonl").append(
        add_label(out, "p2", 0, "good") | {"label": "bad", "at": "2020-01-01T00:00:00+00:00"}
    )
    for _ in range(2):  # the later word on p2 is that of the merged run
        out = merge_runs([a.path, b.path], tmp_path / "out")
        assert {key: label["label"] for key, label in read_labels(out).items()} == {
            ("p0", 0): "good",
            ("p1", 0): "bad",
            ("p2", 0): "good",
            ("p3", 0): "unsure",
        }


KILLED = """
import os, signal, sys
from cotkit.pipelines import merge_runs
replace, left = os.replace, int(sys.argv[1])
def step(*arguments):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    replace(*arguments)
os.replace = step
merge_runs(sys.argv[3:], sys.argv[2])
"""


@pytest.mark.parametrize("old", ["none", "merged"])
def test_a_merge_that_is_killed_at_any_step_is_made_again(serve, tmp_path, old):
    server = serve(solve)
    parts = [finished(server, tmp_path / name, problems(2 * n + 2)[2 * n :]) for n, name in enumerate("ab")]
    paths, out = [str(run.path) for run in parts], tmp_path / "out"
    if old != "none":
        add_label(merge_runs(paths, out), "p0", 0, "good")
    for step in range(20):
        command = [sys.executable, "-c", KILLED, str(step), str(out), *paths]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        run = merge_runs(paths, out)
        assert sorted(row.id for row in run.iter_records()) == ["p0", "p1", "p2", "p3"]
        assert (
            run.report["complete"] and run.report["ledger"]["calls"] == 4 and not (out / REPLACING).exists()
        )
    assert 6 < step < 19
    labels = [read_labels(cotkit.open_run(path.parent)) for path in out.rglob("config.json")]
    assert sum(map(len, labels)) == (old != "none")


@pytest.mark.parametrize("out", ["old", "new"])
@pytest.mark.parametrize("eager", [(), ("config.json", "report.json"), ("rows.jsonl", "calls.jsonl")])
def test_a_power_cut_in_a_merge_leaves_a_whole_run_or_one_to_merge_again(
    serve, tmp_path, monkeypatch, out, eager
):
    """At each step only what was forced to disk is left; and the new run is, once the call is over."""
    server, root, cuts = serve(solve), tmp_path / "root", []
    a, b, c = (finished(server, root / name, problems(2 * n + 2)[2 * n :]) for n, name in enumerate("abc"))
    add_label(merge_runs([a.path, b.path], root / "old"), "p0", 0, "good")
    add_label(c, "p4", 0, "bad")

    def cut(disk):
        cuts.append(tmp_path / f"cut{len(cuts)}")
        disk.after_a_cut(cuts[-1])

    with monkeypatch.context() as patched:
        disk = Disk(patched, root, cut, eager=eager)
        merge_runs([run.path for run in (a, b, c)], root / out)
    cut(disk)

    def check(run, count, labels):
        assert [row.id for row in run.iter_records()] == [f"p{n}" for n in range(count)]
        assert run.report["given"] == run.report["ledger"]["calls"] == count
        assert (run.path / "calls.jsonl").read_bytes().count(b"\n") == count
        assert len(read_labels(run)) >= labels

    before, after = (out == "old"), (out == "old") + 1
    check(cotkit.open_run(cuts[-1] / out), 6, after)
    assert len(cuts) > 15
    for left in cuts[:-1]:
        if (left / out / "config.json").exists():
            there = cotkit.open_run(left / out)
            check(there, 2 * len(there.runtime["merged"]), before)
        check(merge_runs([left / name for name in "abc"], left / out), 6, after)


def test_only_runs_of_distill_and_synthesize_are_merged(serve, tmp_path, capsys):
    """Of a self-improvement loop, whose own folder has no rows, those of its cycles."""
    server, loops = serve(solve), []
    for n, name in enumerate("ab"):
        loops.append(tmp_path / name)
        loops[-1].mkdir()
        (loops[-1] / "config.json").write_text('{"config": {"pipeline": "self_improve"}}')
        finished(server, loops[-1] / "cycle-00" / "generate", problems(2 * n + 2)[2 * n :])
    cycles = [str(loop / "cycle-00" / "generate") for loop in loops]
    with pytest.raises(RunError, match=rf"run of self_improve: only .* its cycles are such: {cycles[0]}$"):
        merge_runs(loops, tmp_path / "out")
    assert cli.main(["merge", str(tmp_path / "out"), *map(str, loops)]) == 2
    assert cycles[0] in capsys.readouterr().err and not (tmp_path / "out").exists()
    with pytest.raises(RunError, match="run of self_improve"):
        merge_runs([cycles[0], loops[1]], tmp_path / "out")
    assert merge_runs(cycles, tmp_path / "out").report["given"] == 4


def test_no_two_calls_of_an_executor_are_equal():
    """Dask takes equal calls for one, and gives the error of one that failed again."""

    class Noted(ThreadPoolExecutor):
        def submit(self, *call, **options):
            calls.append(pickle.dumps((call, options)))
            return super().submit(*call, **options)

    calls = []
    with Noted(1) as executor:
        assert [submit(executor, sorted, [2, 1], reverse=False).result() for _ in range(2)] == [[1, 2]] * 2
    assert calls[0] != calls[1]


def test_a_damaged_note_of_the_shards_is_named_and_written_once(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(2) as executor:
        shard_out(server, executor, tmp_path / "r", count=4)
        note = tmp_path / "r" / "shards" / "shards.json"
        written = note.stat().st_ino
        shard_out(server, executor, tmp_path / "r", count=4)
        assert note.stat().st_ino == written
        note.write_text("")
        with pytest.raises(RunError, match=r"shards\.json is not what cotkit wrote"):
            shard_out(server, executor, tmp_path / "r", count=4)


@pytest.mark.parametrize("benchmark", [False, True])
def test_an_interrupt_stops_the_shards_that_run(serve, tmp_path, monkeypatch, benchmark):
    """What is in flight in them is finished and kept; the same call goes on."""
    monkeypatch.setattr(running, "SYNC_S", 0.2)
    server = serve(lambda request: Reply(solve(request), delay=0.05))

    def go(executor):
        options = {"executor": executor, "shards": 4, "run": tmp_path / "r", "show": "none"}
        if benchmark:
            return cotkit.benchmark(problems(240), {"m": model(server)}, **options)
        return cotkit.distill(problems(240), model(server), max_iterations=0, **options)

    with ThreadPoolExecutor(2) as executor:
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            go(executor)
    stopped = server.calls
    assert 0 < stopped < 200
    with ThreadPoolExecutor(2) as executor:
        go(executor)
    assert server.calls == 240


class Interrupted(ThreadPoolExecutor):
    """Ctrl-C comes in the middle of the second submission: its shard is on its way, nobody has its future."""

    sent = 0

    def submit(self, *call, **options):
        future = super().submit(*call, **options)
        self.sent += 1
        if self.sent == 2:
            raise KeyboardInterrupt
        return future


def test_an_interrupt_between_two_submissions_leaves_no_shard_running(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "SYNC_S", 0.2)
    server = serve(lambda request: Reply(solve(request), delay=0.05))
    options = {"max_iterations": 0, "shards": 4, "run": tmp_path / "r", "show": "none"}
    with Interrupted(2) as executor, pytest.raises(KeyboardInterrupt):
        cotkit.distill(problems(400), model(server), executor=executor, **options)
    assert server.calls < 100  # the pool has waited for the first two shards, of 100 problems each
    assert not (tmp_path / "r" / "shards" / of_shards.CALL).exists()
    with ThreadPoolExecutor(4) as executor:
        run = cotkit.distill(problems(400), model(server), executor=executor, **options)
    assert run.report["complete"] and server.calls == 400


def test_chunks_that_were_sent_before_an_interrupt_are_taken_back():
    futures = []

    class Never:
        def submit(self, *call, **options):
            if len(futures) == 2:
                raise KeyboardInterrupt
            futures.append(Future())
            return futures[-1]

    with pytest.raises(KeyboardInterrupt):
        in_chunks(Never(), sorted, list(range(200)), 64)
    assert len(futures) == 2 and all(future.cancelled() for future in futures)


def test_no_worker_begins_a_shard_of_a_call_that_is_over(serve, tmp_path):
    """A pool hands its workers more than they can begin, and Dask gives a lost worker's shard to another."""
    server, sent = serve(solve), []

    class Late(ThreadPoolExecutor):
        def submit(self, *call, **options):
            sent.append(functools.partial(*call, **options))
            return super().submit(*call, **options)

    with Late(1) as executor:
        shard_out(server, executor, tmp_path / "r", count=4, shards=2)
    asked = server.calls
    assert [begin() for begin in sent] == [None, None] and server.calls == asked
    with Interrupted(1) as executor, pytest.raises(KeyboardInterrupt):
        shard_out(server, executor, tmp_path / "new", count=4, shards=2)
    assert not list((tmp_path / "new").glob("shards/0001/*"))


def test_two_calls_on_one_folder_do_not_share_its_shards(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(of_shards, "LOCKED_S", 0.0)
    server, first = serve(lambda request: Reply(solve(request), delay=0.05)), []
    with ThreadPoolExecutor(3) as executor:
        go = functools.partial(shard_out, server, executor, tmp_path / "r", count=40, shards=2)
        other = threading.Thread(target=lambda: first.append(go()))
        other.start()
        while not server.calls:
            time.sleep(0.01)
        with pytest.raises(RunError, match="another process"):
            go()
        other.join()
    assert first[0].report["complete"] and server.calls == 40 + 14


CALLS = """
import sys
from concurrent.futures import ProcessPoolExecutor
import cotkit
from test_shards import model, problems
class server: base_url = sys.argv[1]
with ProcessPoolExecutor(2) as executor:
    options = {"executor": executor, "shards": 2, "run": sys.argv[2], "max_iterations": 0}
    cotkit.distill(problems(240), model(server), **options)
"""


def test_workers_that_outlive_a_killed_call_are_stopped_by_the_next(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(of_shards, "LOCKED_S", 8.0)  # by itself a shard would take 12 s
    server, folder = serve(lambda request: Reply(solve(request), delay=0.4)), tmp_path / "r"
    command = [sys.executable, "-c", CALLS, server.base_url, str(folder)]
    path = os.pathsep.join(sys.path)
    call = subprocess.Popen(command, start_new_session=True, env={**os.environ, "PYTHONPATH": path})
    try:
        while server.calls < 20:
            assert call.poll() is None
            time.sleep(0.02)
        os.kill(call.pid, signal.SIGKILL)
        call.wait()
        with ThreadPoolExecutor(2) as executor:
            options = {"executor": executor, "shards": 2, "run": folder, "show": "none"}
            run = cotkit.distill(problems(240), model(server), max_iterations=0, **options)
    finally:
        os.killpg(call.pid, signal.SIGKILL)
    assert run.report["complete"] and server.calls == 240


def test_must_begins_the_shards_that_have_not_begun(serve, tmp_path):
    server = serve(solve)

    def interrupt(line):
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        shard_out(server, executor, tmp_path / "r", say=interrupt)
    begun = {path.parent.name for path in (tmp_path / "r").glob("shards/*/config.json")}
    assert 1 <= len(begun) < 4
    with ThreadPoolExecutor(2) as executor:
        run = shard_out(server, executor, tmp_path / "r", resume="must")
        again = shard_out(server, executor, tmp_path / "r", resume="must")
    assert run.report["complete"] and rows(again) == rows(run) and server.calls == 30 + 10


def test_must_writes_nothing_where_there_is_no_run(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(1) as executor, pytest.raises(RunError, match="holds no shards; check the name"):
        shard_out(server, executor, tmp_path / "r", resume="must")
    assert not list(tmp_path.iterdir()) and server.calls == 0


class Again(ThreadPoolExecutor):
    """Every worker is lost when it has done its shard, so that another one gets it."""

    def submit(self, work, *call, **options):
        return super().submit(lambda: [work(*call, **options) for _ in range(2)][1])


@pytest.mark.parametrize("resume", ["auto", "never"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_what_a_lost_worker_finished_is_not_asked_again(serve, tmp_path, resume, use_cache):
    server = serve(solve)
    options = {"resume": resume, "use_cache": use_cache}
    with Again(2) as executor:
        run = shard_out(server, executor, tmp_path / "r", count=20, **options)
        assert run.report["kept"] == 20 and server.calls == 20 + 7
        asked = server.calls
        run = shard_out(server, executor, tmp_path / "r", count=20, **options)
    begins_anew = resume == "never" and not use_cache
    assert run.report["kept"] == 20 and server.calls - asked == (27 if begins_anew else 0)
    aside = sorted(path.parts[-3:-1] for path in (tmp_path / "r").rglob("superseded/*/config.json"))
    assert aside == ([("superseded", "1")] * 5 if resume == "never" else [])


@pytest.mark.parametrize("benchmark", [False, True])
def test_the_time_limit_is_of_all_shards_together(serve, tmp_path, monkeypatch, benchmark):
    monkeypatch.setattr(running, "SYNC_S", 0.2)
    server = serve(lambda request: Reply(solve(request), delay=0.05))

    def go(**options):
        options |= {"shards": 4, "run": tmp_path / "r", "show": "none"}
        if benchmark:
            cotkit.benchmark(problems(400), {"m": model(server)}, **options)
            return cotkit.open_run(next(tmp_path.glob("r/m*/config.json")).parent)
        return cotkit.distill(problems(400), model(server), max_iterations=0, **options)

    with ThreadPoolExecutor(1) as executor:
        began = time.monotonic()
        run = go(executor=executor, time_limit=1.0)
        assert time.monotonic() - began < 3
    report, asked = run.report, server.calls
    assert report["stopped"] == "the time limit of 1 s was reached" and 0 < asked < 100
    assert report["given"] == 400 == report["kept"] + sum(report["drops"].values())
    with ThreadPoolExecutor(4) as executor:
        run = go(executor=executor)
    assert run.report["complete"] and run.report["stopped"] is None
    assert server.calls <= 400 + 4  # those in flight when the time was over


def test_a_time_limit_ends_a_run_for_which_there_is_no_worker(serve, tmp_path):
    class Nobody:
        def submit(self, *call, **options):
            return Future()

    with pytest.raises(RunError, match=r"0\.2 s was reached before any shard had begun\. Is there a worker"):
        shard_out(serve(solve), Nobody(), tmp_path / "r", time_limit=0.2)


def test_a_worker_that_does_not_see_the_folder_is_named(serve, tmp_path):
    class Elsewhere(ThreadPoolExecutor):
        def submit(self, work, name, one_shard, call, *rest):
            return super().submit(work, name, one_shard, "what stands there", *rest)

    server = serve(solve)
    with Elsewhere(1) as executor, pytest.raises(RunError, match="shared path"):
        shard_out(server, executor, tmp_path / "r")
    assert server.calls == 0


def test_shards_are_watched_together(serve, tmp_path, monkeypatch, capsys):
    for module, name in ((of_shards, "STATUS_S"), (running, "REPORT_S"), (running, "REPORT_SHARE")):
        monkeypatch.setattr(module, name, 0.1 if name != "REPORT_SHARE" else 0)
    monkeypatch.setattr(progress, "HEARTBEAT_S", 0.3)
    server = serve(lambda request: Reply(solve(request), delay=0.05))
    options = {"max_iterations": 0, "shards": 4, "run": tmp_path / "big"}
    with ThreadPoolExecutor(2) as executor:
        cotkit.distill(problems(120), model(server), executor=executor, show="lines", **options)
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if line.startswith("big: ")]
    status = [int(re.match(r"big: (\d+)/120 done", line)[1]) for line in told]
    assert len(status) > 3 and sorted(status) == status and status[-1] == 120
    assert 0 < status[1] < 120 and "120 calls" in told[-1]
    assert sum(line.startswith("shard ") for line in lines) == 4


def test_only_what_waits_for_its_shards_takes_an_executor(serve, tmp_path):
    server, run = serve(solve), tmp_path / "r"
    with ThreadPoolExecutor(1) as executor:
        for option in ({"executor": executor}, {"shards": 2}):
            with pytest.raises(TypeError, match=r"only distill\(\) takes '(executor|shards)'"):
                asyncio.run(cotkit.adistill(problems(1), model(server), run=run, **option))
            with pytest.raises(TypeError, match=r"only distill\(\) takes"):
                cotkit.start_distill(problems(1), model(server), run=run, **option)
        with pytest.raises(TypeError, match=r"only synthesize\(\) takes 'executor'"):
            asyncio.run(cotkit.asynthesize("logic", "few_shot", model(server), attempts=1, executor=executor))
        with pytest.raises(TypeError, match=r"only synthesize\(\) takes 'shards'"):
            cotkit.start_synthesize("logic", "few_shot", model(server), attempts=1, shards=2)
        assert not run.exists() and server.calls == 0
        options = {"executor": executor, "shards": 2, "run": run, "show": "none", "max_iterations": 0}
        told = asyncio.run(asyncio.to_thread(cotkit.distill, problems(4), model(server), **options))
    assert told.report["given"] == 4 and server.calls == 4


def test_shards_that_are_taken_back_end_the_run_without_merging(serve, tmp_path):
    server, executor = serve(solve), ThreadPoolExecutor(1)

    def say(line):
        executor.shutdown(wait=False, cancel_futures=True)

    with pytest.raises(RunError, match=r"was cancelled.*goes on"):
        shard_out(server, executor, tmp_path / "r", count=8, say=say)
    executor.shutdown()
    assert not (tmp_path / "r" / "config.json").exists()


def test_merged_ledgers_answer_every_call_of_their_parts(serve, tmp_path):
    server = serve(solve)
    for name, chosen in (("a", problems(4)), ("b", problems(6)[2:])):
        finished(server, tmp_path / name, chosen)
    totals = merge_ledgers(
        [tmp_path / "a" / "calls.jsonl", tmp_path / "b" / "calls.jsonl"], tmp_path / "c" / "calls.jsonl"
    )
    assert totals["calls"] == 8
    asked = server.calls
    (tmp_path / "d").mkdir()
    (tmp_path / "c" / "calls.jsonl").rename(tmp_path / "d" / "calls.jsonl")
    report = finished(server, tmp_path / "d", problems(6)).report
    assert report["complete"] and report["ledger"]["cached"] == 6 and server.calls == asked


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


def test_a_benchmark_refuses_a_wrong_executor_or_option_before_a_call(serve, tmp_path):
    server = serve(solve)
    with ThreadPoolExecutor(1) as executor:
        for wrong, error in (
            ({"executor": 3}, TypeError),
            ({"executor": executor, "shards": 0}, ValueError),
            ({"executor": executor, "temperature": "hot"}, (TypeError, ValueError)),
        ):
            with pytest.raises(error):
                cotkit.benchmark(problems(3), {"m": model(server)}, run=tmp_path / "b", show="none", **wrong)
    assert server.calls == 0


def test_no_model_of_a_benchmark_waits_for_another_one_s_shards(serve, tmp_path):
    count = min(32, (os.cpu_count() or 1) + 4) + 1  # more than asyncio has threads
    all_there = threading.Barrier(count)

    def script(request):
        all_there.wait(60)
        return solve(request)

    server = serve(script)
    models = {f"m{n}": ChatModel(f"mock{n}", base_url=server.base_url) for n in range(count)}
    with ThreadPoolExecutor(count) as executor:
        report = cotkit.benchmark(
            problems(2)[1:], models, run=tmp_path / "b", executor=executor, shards=1, show="none"
        )
    assert set(report.table["right"]) == {1} and not report.failed
