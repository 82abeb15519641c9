"""The symbolic stage's processes: bounded, killable, clean, and gone when nobody needs them.

Most tests use a stand-in worker that speaks the same lines, so that they need no SymPy; a job's first text is
its command. The last ones use the real worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from cotkit.verify import AnswerPolicy, acheck_answer, check, check_answer, workers
from cotkit.verify.workers import Worker, WorkerPool

STAND_IN = """
import json, os, sys, time
print(json.dumps("ready"), flush=True)
jobs = 0
for line in sys.stdin:
    jobs += 1
    for command, text in json.loads(line)["pairs"]:
        if command == "hang":
            time.sleep(1000)
        if command == "die":
            os._exit(3)
        if command == "noise":
            print("no json", flush=True)
        reason = {"count": jobs, "pid": os.getpid(), "environment": sorted(os.environ)}.get(command, text)
        print(json.dumps([True, json.dumps(reason)]), flush=True)
"""
HOSTILE = r"\int e^{-x^2}\ln(x+\sqrt{x})\sin x\,dx"  # minutes of SymPy, to no end


@pytest.fixture
def pool():
    made = []

    def make(size=1, script=STAND_IN):
        made.append(WorkerPool(size, [sys.executable, "-c", script]))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(pool, *commands, seconds=20.0):
    outcomes, _ = pool.submit([(command, "x") for command in commands], {}, seconds).result()
    return outcomes


def reason(outcome):
    assert outcome.correct is True, outcome
    return json.loads(outcome.reason)


def wait_for_end(pid: int) -> bool:
    """Blocks until the process is gone, at most 20 s; no polling."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 20)[0])
    finally:
        os.close(descriptor)


def test_a_job_past_its_clock_is_undecided_and_its_worker_dies(pool):
    one = pool()
    first = reason(ask(one, "pid")[0])
    assert [outcome.method for outcome in ask(one, "echo", "hang", "echo", seconds=0.3)] == [
        "symbolic",
        "timeout",
        "timeout",
    ]
    assert wait_for_end(first)
    assert reason(ask(one, "pid")[0]) != first


def test_waiting_in_the_queue_costs_no_clock(pool):
    one = pool(size=1)
    futures = [one.submit([("hang", "x")], {}, 0.2) for _ in range(3)]
    futures += [one.submit([("echo", "x")], {}, 5.0) for _ in range(5)]
    methods = [future.result()[0][0].method for future in futures]
    assert methods == ["timeout"] * 3 + ["symbolic"] * 5


def test_a_worker_that_dies_is_replaced_once_and_then_reported(pool):
    one = pool()
    first = reason(ask(one, "pid")[0])
    os.kill(first, signal.SIGKILL)
    assert wait_for_end(first)
    assert reason(ask(one, "pid")[0]) != first
    (outcome,) = ask(one, "die")
    assert (outcome.correct, outcome.method) == (None, "error") and "ended with code 3" in outcome.reason
    assert ask(one, "noise")[0].method == "error"
    assert ask(one, "echo")[0].correct is True


def test_a_worker_that_cannot_start_gives_a_reason_not_a_hang(pool):
    (outcome,) = ask(pool(script="raise SystemExit(4)"), "echo")
    assert (outcome.correct, outcome.method) == (None, "error") and "did not start" in outcome.reason


def test_a_cancelled_job_frees_its_place(pool):
    one = pool(size=1)
    ask(one, "echo")
    blocker = one.submit([("hang", "x")], {}, 0.3)
    dropped = one.submit([("hang", "x")], {}, 1000)
    assert dropped.cancel()
    assert blocker.result()[0][0].method == "timeout"
    assert reason(ask(one, "count")[0]) == 1  # the first job of the new worker


def test_a_large_job_does_not_block_on_the_pipe(pool):
    outcomes, _ = pool().submit([("echo", "x" * 5000)] * 200, {}, 20).result()
    assert len(outcomes) == 200 and all(len(reason(outcome)) == 5000 for outcome in outcomes)


def test_closing_ends_the_processes_and_fails_what_is_left(pool):
    one = pool(size=1)
    pid = reason(ask(one, "pid")[0])
    left = [one.submit([("hang", "x")], {}, 1000) for _ in range(2)]
    one.close()
    assert wait_for_end(pid)
    assert {future.result()[0][0].method for future in left} == {"error"}
    with pytest.raises(RuntimeError, match="closed"):
        one.submit([("echo", "x")], {}, 1)


def test_no_key_of_the_user_reaches_a_worker_and_it_has_its_own_session(pool, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    one = pool()
    environment = reason(ask(one, "environment")[0])
    assert not {name for name in environment if "KEY" in name or name == "HOME"}
    assert os.getsid(reason(ask(one, "pid")[0])) != os.getsid(0)  # so Ctrl-C does not reach it


def test_many_threads_share_a_pool(pool):
    one = pool(size=2)
    answers = []
    threads = [
        threading.Thread(
            target=lambda k=k: answers.append((k, reason(one.submit([("echo", k)], {}, 20).result()[0][0])))
        )
        for k in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(k, k) for k in range(40)] and len(one.workers) == 2


def test_a_monstrous_formula_is_bounded_and_undecided():
    assert AnswerPolicy().seconds == 3
    verdict = check_answer("x", HOSTILE, policy=AnswerPolicy(seconds=0.4))
    assert (verdict.correct, verdict.method) == (None, "timeout")
    for power in ("10^{10^{10}}", "9^{9^{9}}", "(20!)!", "2^{100000}", "x^{10^{9}}"):
        verdict = check_answer("7x", f"{power}x")
        assert verdict.correct is None and "blow up" in verdict.reason


def test_one_check_has_one_clock_for_all_its_symbolic_questions():
    reference = "\\{" + ", ".join(f"x^{k} + {HOSTILE}" for k in range(5)) + "\\}"
    prediction = "\\{" + ", ".join(f"{k}x" for k in range(5)) + "\\}"
    one = check.Check(prediction, reference, None, None, AnswerPolicy(seconds=0.4))
    budgets = []
    while one.verdict is None:
        budgets.append(one.job[2])
        one.resume(workers.shared_pool().submit(*one.job).result())
    assert budgets == [0.4] and (one.verdict.correct, one.verdict.method) == (None, "timeout")


def test_the_event_loop_stays_free_during_a_symbolic_check():
    async def both():
        order = []

        async def slow():
            verdict = await acheck_answer("2x", HOSTILE, policy=AnswerPolicy(seconds=0.5))
            order.append(verdict.method)

        async def others():
            for k in range(3):
                assert (await acheck_answer(f"{k}+x", f"x+{k}")).correct is True
            order.append("others")

        async def clerk():
            await asyncio.sleep(0)
            order.append("clerk")

        await asyncio.gather(slow(), others(), clerk())
        return order

    order = asyncio.run(both())
    assert order[0] == "clerk" and sorted(order) == ["clerk", "others", "timeout"]


def test_a_failure_of_the_checker_is_not_remembered_and_a_verdict_is():
    check._remembered.clear()
    check_answer("3x", HOSTILE, policy=AnswerPolicy(seconds=0.3))
    assert not check._remembered
    assert check_answer("2(x+3)", "2x+6").correct is True
    assert len(check._remembered) == 1
    remembered = check.Check("2(x+3)", "2x+6", None, None, AnswerPolicy())
    assert remembered.verdict.correct is True  # without a job


def test_memory_is_limited():
    script = (
        "from cotkit.verify.symbolic_worker import limit_self\n"
        "limit_self()\n"
        "try:\n"
        "    bytearray(3 << 30)\n"
        "except MemoryError:\n"
        "    print('limited')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "limited", done.stderr


@pytest.fixture
def worker():
    one = Worker(WorkerPool().command)
    yield one
    one.kill()


def test_the_real_worker_answers_one_line_a_pair_whatever_the_text(worker):
    pairs = [("x+1", "1+x"), ("x", "y"), ("\x00", "\ud800"), ("{" * 500, "x"), ("print(1)", "1"), ("", "")]
    pairs += [("open('/tmp/made-by-sympify','w')", "1"), ("__import__('os').getpid()", "1"), ("x", "x+")]
    outcomes, _ = worker.run(pairs, {"rounding": 1e-5, "positive_symbols": True, "tolerance": None}, 60)
    assert len(outcomes) == len(pairs)
    assert [outcome.correct for outcome in outcomes[:2]] == [True, False]
    assert all(outcome.correct is not True for outcome in outcomes[2:])
    assert not os.path.exists("/tmp/made-by-sympify")


LARGE_PARENT = """
from cotkit.verify import symbolic_worker, workers
held = bytearray(b"x") * (symbolic_worker.RECYCLE + (64 << 20))
worker = workers.Worker(workers.WorkerPool().command)
for _ in range(3):
    print(worker.run([("x+1", "1+x")], {}, 60)[0][0].correct)
"""


def test_a_worker_of_a_large_process_does_more_than_one_job():
    """Linux counts the peak of the process that starts another to that one."""
    done = subprocess.run([sys.executable, "-c", LARGE_PARENT], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"] * 3, done.stderr


PARENT = """
import os, threading
from cotkit.verify import check_answer, workers
assert check_answer("1+x", "x+1").correct is True
threading.Thread(target=check_answer, args=("x", HOSTILE), daemon=True).start()
for worker in workers.shared_pool().workers.values():
    print(worker.process.pid, flush=True)
os.kill(os.getpid(), 9) if KILL else None
"""


@pytest.mark.parametrize("kill", [True, False])
def test_no_worker_outlives_its_parent(kill):
    script = PARENT.replace("HOSTILE", repr(HOSTILE)).replace("KILL", repr(kill))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == (-9 if kill else 0), done.stderr
    pids = [int(line) for line in done.stdout.split()]
    assert pids and all(wait_for_end(pid) for pid in pids)


def test_a_forked_child_gets_a_pool_of_its_own():
    script = (
        "import os\n"
        "from cotkit.verify import check_answer, workers\n"
        "assert check_answer('1+x', 'x+1').correct is True\n"
        "mine = {w.process.pid for w in workers.shared_pool().workers.values()}\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert check_answer('2+x', 'x+2').correct is True\n"
        "    assert not mine & {w.process.pid for w in workers.shared_pool().workers.values()}\n"
        "    workers.shared_pool().close()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert check_answer('3+x', 'x+3').correct is True\n"
        "assert mine == {w.process.pid for w in workers.shared_pool().workers.values()}\n"
        "print('both')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "both", done.stderr
