"""A machine that misbehaves: a clock that jumps, a disk that turns read-only, a kernel that is interrupted;
and so many problems that memory must not grow with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time

import pytest
from faulty import BOTH_WAYS, JUDGED, check_books, model, pids, problems, solve
from mock_server import Reply
from test_distill_faults import wait_for

from cotkit import LLMJudge, distill, open_run, start_distill
from cotkit.pipelines import running
from cotkit.runs import RunError

# The clock.


@pytest.mark.parametrize("jump_s", [-86_400, 86_400, 3_600])
@BOTH_WAYS
def test_nothing_waits_or_is_measured_by_the_wall_clock(serve, tmp_path, monkeypatch, jump_s):
    """Set back or forward at every look, an hour or a day: as many calls, waits and seconds as ever."""
    real, chance = time.time, random.Random(jump_s)
    monkeypatch.setattr(time, "time", lambda: real() + jump_s * chance.random())

    def script(request):
        if request.nth == 0 and request.number % 10 == 3:
            return Reply(status=429, headers={"Retry-After": "0.05"})
        if request.nth == 0 and request.number % 10 == 7:
            return Reply(status=500)
        return solve(request)

    server = serve(script)
    started = time.monotonic()
    run = distill(problems(60), model(server), time_limit=600, run=tmp_path / "r", show="none")
    passed = time.monotonic() - started
    rows = check_books(run, 60, server)
    failed = sum(run.report["ledger"]["failed"].values())
    assert run.report["kept"] == 60 and server.calls == 60 + failed and failed >= 6
    assert 0 < run.report["seconds"] <= passed + 1 and all(0 <= row.seconds <= passed + 1 for row in rows)
    again = distill(problems(60), model(server), time_limit=600, run=tmp_path / "r", show="none")
    assert again.report["kept"] == 60 and server.calls == 60 + failed


# The disk.


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_asked(serve, tmp_path):
    (tmp_path / "file").write_text("")
    server = serve(solve)
    for place in (tmp_path / "file" / "run", "/proc/nowhere/run"):
        with pytest.raises(RunError, match=r"cannot be used .*Nothing was asked: give run="):
            distill(problems(3), model(server), run=place, show="none")
    assert server.calls == 0


READ_ONLY = """
import sys
from cotkit import ChatModel, distill, open_run
from cotkit.problems import Problem
from cotkit.runs import RunError
items = [Problem(id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n)) for n in range(4)]
try:
    distill(items, ChatModel("mock", base_url=sys.argv[1]), run=sys.argv[2], show="none")
except RunError as error:
    print(error)
print(open_run(sys.argv[2]).report["kept"])
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0, reason="mounts a file system of its own"
)
def test_a_run_on_a_read_only_file_system_is_still_read(serve, tmp_path):
    server = serve(solve)
    distill(problems(2), model(server), run=tmp_path / "r", show="none")
    script = f"mount --bind '{tmp_path}' '{tmp_path}' && mount -o remount,bind,ro '{tmp_path}' || exit 77\n"
    script += 'exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", READ_ONLY]
    done = subprocess.run([*command, server.base_url, str(tmp_path / "r")], capture_output=True, text=True)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mounts here")
    assert "Read-only file system" in done.stdout and done.stdout.splitlines()[-1] == "2", done
    assert server.calls == 2


def lose_the_ledger(work):
    lose(work.ledger._journal)


def lose_the_rows(work):
    for journal in work.folder._journals.values():
        lose(journal)


def lose(journal):
    with open(journal.path, "rb") as read_only:
        os.dup2(read_only.fileno(), journal._file.fileno())


@BOTH_WAYS
@pytest.mark.parametrize("lose, named", [(lose_the_ledger, "calls.jsonl"), (lose_the_rows, "rows.jsonl")])
def test_a_disk_that_turns_read_only_ends_the_run_with_its_reason(serve, tmp_path, lose, named):
    """Finished rows stay, the file is named, and the same call goes on when it can be written again."""
    from cotkit.pipelines.distill import prepare

    moment = threading.Event()

    def script(request):
        if request.number == 20:
            moment.set()
            goes_on.wait(20)
        return solve(request)

    server, goes_on = serve(script), threading.Event()
    work = prepare(problems(60), model(server), None, {"run": tmp_path / "r"})
    job = work.start()
    assert moment.wait(60)
    lose(work)
    goes_on.set()
    said = ""
    with contextlib.suppress(OSError):
        said = job.result(60).report["stopped"]
    said = said or str(job._job.future.exception())
    assert named in said and "Bad file descriptor" in said
    asked = server.calls
    assert asked <= 20 + 2 * 8  # nothing went on asking
    kept = len(check_books(open_run(tmp_path / "r"), 60, server, lost=16))
    assert 4 <= kept < 60
    run = distill(problems(60), model(server), run=tmp_path / "r", show="none")
    check_books(run, 60, server, lost=16)
    assert run.report["kept"] == 60 and server.calls <= asked + 60 - kept


@BOTH_WAYS
def test_a_power_cut_takes_no_more_than_the_last_seconds(serve, tmp_path, monkeypatch):
    """Only what was forced to disk is left: all that was finished before chains hang, in silence."""
    forced, fsync, hold = {}, os.fsync, threading.Event()

    def force(file):
        path = pathlib.Path(os.readlink(f"/proc/self/fd/{file}"))
        there = path.read_bytes() if path.is_file() else b""
        fsync(file)
        forced[path.name] = there

    def script(request):
        judging = "response_format" in request.body
        if judging and int(pids(request)[0]) >= 12:
            hold.wait(30)
        return JUDGED if judging else solve(request)

    monkeypatch.setattr(running, "SYNC_S", 0.2)
    monkeypatch.setattr(os, "fsync", force)
    server = serve(script)
    asked = model(server, endpoint_name="e")
    job = start_distill(problems(24), asked, LLMJudge(asked), run=tmp_path / "r")
    rows = tmp_path / "r" / "rows.jsonl"
    wait_for(lambda: server.in_flight == 8 and rows.read_bytes().count(b"\n") == 12)
    time.sleep(1)
    after = tmp_path / "after"
    after.mkdir()
    shutil.copy(tmp_path / "r" / "config.json", after / "config.json")  # forced when it was made
    for name in ("calls.jsonl", "rows.jsonl", "drops.jsonl"):
        (after / name).write_bytes(forced[name])
    hold.set()
    job.cancel()
    job.wait(20)
    wait_for(lambda: server.in_flight == 0)
    before = server.calls
    run = distill(problems(24), asked, LLMJudge(asked), run=after, show="none")
    check_books(run, 24, server, lost=8)
    assert run.report["kept"] == 24
    assert server.calls - before == (24 - 12 - 8) + (24 - 12)  # drafts, and judgements


@BOTH_WAYS
def test_a_disk_that_loses_what_was_written_ends_the_run_with_its_reason(serve, tmp_path, monkeypatch):
    def fail(file):
        if os.readlink(f"/proc/self/fd/{file}").endswith("calls.jsonl"):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(running, "SYNC_S", 0.1)
    monkeypatch.setattr(os, "fsync", fail)
    server = serve(lambda r: Reply(solve(r), delay=0.05))
    with pytest.raises(OSError, match=r"Input/output error.*calls\.jsonl"):
        distill(problems(200), model(server), run=tmp_path / "r", show="none")
    check_books(open_run(tmp_path / "r"), 200, server, lost=8)
    report = open_run(tmp_path / "r").report
    assert 0 < report["kept"] < 200 and "Input/output error" in report["stopped"]


FULL = """
import json, subprocess, sys
from cotkit import ChatModel, distill, open_run
from cotkit.problems import Problem
url, disk = sys.argv[1:]
items = [
    Problem(id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n)) for n in range(120)
]
model = ChatModel("mock", base_url=url, max_concurrency=8, endpoint_name="e")
def books(run):
    report, ids = run.report, [row.id for row in run.records()]
    assert report["given"] == 120 == report["kept"] + sum(report["drops"].values()), report
    assert len(ids) == len(set(ids)) == report["kept"], (len(ids), report)
    return report["kept"]
said = []
try:
    said.append(distill(items, model, run=f"{disk}/r", show="none").report["stopped"])
except Exception as error:
    said.append(f"{type(error).__name__}: {error}")
said.append(books(open_run(f"{disk}/r")))
subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
said.append(books(distill(items, model, run=f"{disk}/r", show="none")))
print(json.dumps(said))
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0, reason="mounts a file system of its own"
)
@pytest.mark.parametrize("kilobytes", [150, 200, 300])
def test_a_disk_without_space_for_any_file_ends_the_run_and_the_same_call_goes_on(serve, tmp_path, kilobytes):
    """All files of the run share the disk: rows, calls, reports."""
    disk = tmp_path / "disk"
    disk.mkdir()
    server = serve(lambda request: solve(request) + " So it is." * 200)
    script = f"mount -t tmpfs -o size={kilobytes}k none '{disk}' || exit 77\nexec \"$@\""
    program = [sys.executable, "-c", FULL, server.base_url, str(disk)]
    command = ["unshare", "-m", "sh", "-c", script, "sh", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mounts here")
    assert done.returncode == 0, done.stderr
    reason, kept, in_the_end = json.loads(done.stdout)
    assert ("full" in reason or "No space left" in reason) and str(disk) in reason
    assert 0 < kept < 120 == in_the_end
    assert server.calls <= 120 + 2 * 8  # what no disk could take


# The kernel.

CELL = """
from cotkit import ChatModel, distill
from cotkit.problems import Problem
items = [Problem(id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n)) for n in range(60)]
model = ChatModel("mock", base_url=URL, max_concurrency=8)
run = distill(items, model, run=FOLDER, show="none")
"""


def outcome(client, cell):
    """What became of a cell that was sent, when it has ended."""
    while True:
        reply = client.get_shell_msg(timeout=100)
        if reply["parent_header"]["msg_id"] == cell:
            return reply["content"].get("ename") or reply["content"]["status"]


def test_an_interrupted_kernel_keeps_its_rows_asks_nothing_more_and_runs_the_next_cell(serve, tmp_path):
    from jupyter_client.manager import start_new_kernel

    hold = threading.Event()

    def script(request):
        if slow and request.number >= 24:
            hold.wait(60)
        return solve(request)

    slow, server = True, serve(script)
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        cell = client.execute(f"URL, FOLDER = {server.base_url!r}, {str(tmp_path / 'r')!r}\n{CELL}")
        deadline = time.monotonic() + 100
        rows = tmp_path / "r" / "rows.jsonl"
        while server.in_flight < 8 or not rows.exists() or rows.read_bytes().count(b"\n") < 16:
            assert time.monotonic() < deadline, "the cell asks nothing"
            time.sleep(0.02)
        manager.interrupt_kernel()
        assert outcome(client, cell) == "KeyboardInterrupt"
        asked = server.calls
        slow = False
        hold.set()
        assert len(check_books(open_run(tmp_path / "r"), 60, server, lost=8)) >= 16
        next_cell = "aborted"  # ipykernel still takes back what reaches it within a moment of the error
        while next_cell == "aborted" and time.monotonic() < deadline:
            next_cell = outcome(client, client.execute("print(6 * 7)"))
        assert next_cell == "ok"
        assert server.calls == asked  # nothing goes on behind the reader's back
        assert outcome(client, client.execute(CELL)) == "ok"
        check_books(open_run(tmp_path / "r"), 60, server, lost=8)
        assert open_run(tmp_path / "r").report["kept"] == 60
    finally:
        hold.set()
        client.stop_channels()
        manager.shutdown_kernel(now=True)


# Many problems.

MANY = """
import json, os, sys
from cotkit import ChatModel, distill, load_problems
from cotkit.chat import endpoint

folder, count, marks = sys.argv[1], int(sys.argv[2]), {}

class AtOnce:
    '''Answers without a server; notes the memory of the process on the way.'''
    asked = 0
    async def post(self, body):
        AtOnce.asked += 1
        if AtOnce.asked in (count // 4, count):
            pages = int(open("/proc/self/statm").read().split()[1])
            marks[AtOnce.asked] = pages * os.sysconf("SC_PAGE_SIZE")
        number = int(body["messages"][-1]["content"].split()[1])
        message = {"role": "assistant", "content": "words " * 100 + f"\\\\boxed{{{number}}}"}
        usage = {"prompt_tokens": 30, "completion_tokens": 120}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    async def close(self):
        pass

endpoint.open_transport = lambda *arguments: AtOnce()
path = folder + ".jsonl"
with open(path, "w") as file:
    for n in range(count):
        print(json.dumps({"id": str(n), "problem": f"Repeat {n} , please.", "reference": str(n)}), file=file)
items = load_problems(path, stream=True)
report = distill(items, ChatModel("mock", base_url="http://127.0.0.1:9/v1"), run=folder, show="none").report
grown = (marks[count] - marks[count // 4]) / (count - count // 4)
print(json.dumps({"kept": report["kept"], "given": report["given"], "asked": AtOnce.asked, "bytes": grown}))
"""


def test_memory_does_not_grow_with_a_hundred_thousand_problems_that_are_finished(tmp_path):
    """Streamed from a file. A finished problem leaves its id and its call's key in memory; no row, no text.
    Everything is asked once, everything is kept."""
    count = 100_000
    command = [sys.executable, "-c", MANY, str(tmp_path / "r"), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["kept"] == found["given"] == found["asked"] == count
    assert found["bytes"] < 300, found  # one row is 2,000
