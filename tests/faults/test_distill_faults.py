"""Distillation under a faulty server, kill -9, an interrupt: nothing lost, nothing twice, nothing mixed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import pytest
from faulty import BOTH_WAYS, JUDGED, Drip, check_books, defaults, model, pids, problems, solve
from mock_server import Reply

from cotkit import distill, load_problems, open_run
from cotkit.chat import CallLedger, endpoint

FAULTS = {
    "500": lambda r: Reply(status=500, error="oops"),
    "429": lambda r: Reply(status=429, headers={"Retry-After": "0.05"}, error="slow down"),
    "drop": lambda r: Reply(drop=True),
    "none": lambda r: Reply(None),
    "empty": lambda r: Reply(""),
    "garbage": lambda r: Reply(raw=b"<html>proxy error</html>"),
    "cut body": lambda r: Reply(solve(r), truncate_body=True),
}


@BOTH_WAYS
def test_a_faulty_server_costs_exactly_the_injected_faults(serve, tmp_path):
    """2 % 500, 2 % 429, 0.5 % drops and some unusable bodies over 300 problems."""
    chance = random.Random(7)
    plan = dict.fromkeys(range(300), None)
    for kind, count in {
        "500": 6,
        "429": 6,
        "drop": 2,
        "none": 2,
        "empty": 2,
        "garbage": 2,
        "cut body": 2,
    }.items():
        for n in chance.sample([n for n in plan if plan[n] is None], count):
            plan[n] = kind

    def script(request):
        kind = plan[int(pids(request)[0])]
        if kind and request.nth == 0:
            return FAULTS[kind](request)
        return Reply(solve(request), usage="absent" if request.number % 10 == 0 else "count")

    server = serve(script)
    asked = model(server, max_concurrency=16, max_retries=3)
    run = distill(problems(300), asked, run=tmp_path / "r", show="none")
    rows = check_books(run, 300, server)
    injected = sum(kind is not None for kind in plan.values())
    assert run.report["kept"] == len(rows) == 300
    assert server.calls == 300 + injected
    assert server.peak <= 16
    assert all(len(pids(request)) == 1 for request in server.log)


def test_truncated_answers_are_dropped_with_their_reason(serve, tmp_path):
    server = serve(lambda r: Reply(solve(r), finish_reason="length" if int(pids(r)[0]) % 5 == 0 else "stop"))
    run = distill(problems(20), model(server), max_iterations=0, run=tmp_path / "r", show="none")
    check_books(run, 20, server)
    assert run.report["drops"] == {"truncated": 4}


@BOTH_WAYS
@pytest.mark.parametrize(
    "reason, drops",
    [
        ("model_length", {"truncated": 4}),
        ("insufficient_system_resource", {"model_server": 4}),
        ("content_filter: RECITATION", {"model_refusal": 4}),
        ("eos_token", {}),
    ],
)
def test_an_answer_is_kept_only_where_it_ended_by_itself(serve, tmp_path, reason, drops):
    """Whatever the endpoint calls it; the reference stands in each of these answers."""
    server = serve(lambda r: Reply(solve(r), finish_reason=reason if int(pids(r)[0]) % 5 == 0 else "stop"))
    asked = model(server, max_retries=0)
    run = distill(problems(20), asked, max_iterations=0, run=tmp_path / "r", show="none")
    assert run.report["drops"] == drops and run.report["kept"] == 20 - sum(drops.values())


@BOTH_WAYS
def test_a_flagged_prompt_is_one_dropped_row_and_no_end_of_the_run(serve, tmp_path):
    flagged = {"message": "Your input was flagged for violence.", "code": 403}
    server = serve(lambda r: Reply(status=403, error=flagged) if int(pids(r)[0]) == 3 else solve(r))
    run = distill(problems(8), model(server), run=tmp_path / "r", show="none")
    check_books(run, 8, server)
    assert run.report["drops"] == {"model_refusal": 1} and run.report["stopped"] is None


@BOTH_WAYS
def test_a_wrong_key_that_is_told_with_400_costs_no_row(serve, tmp_path):
    wrong = True
    refused = Reply(status=400, error="API key not valid. Please pass a valid API key.")
    server = serve(lambda r: refused if wrong else solve(r))
    run = distill(problems(20), model(server), run=tmp_path / "r", show="none")
    assert run.report["drops"] == {"unfinished": 20} and server.calls <= 8
    wrong = False
    run = distill(problems(20), model(server), run=tmp_path / "r", show="none")
    check_books(run, 20, server)
    assert run.report["kept"] == 20


@BOTH_WAYS
def test_an_endpoint_that_refuses_everything_is_not_asked_for_every_row(serve, tmp_path):
    """In words that nobody knows. It goes on behind those rows when the endpoint is mended."""
    broken = True
    server = serve(lambda r: Reply(status=400, error="API 调用参数有误") if broken else solve(r))
    run = distill(problems(100), model(server), run=tmp_path / "r", show="none")
    refused = run.report["drops"]["model_bad_request"]
    assert "no endpoint of mock is usable" in run.report["stopped"] and "参数有误" in run.report["stopped"]
    assert refused <= 20 + 2 * 8 and server.calls <= 20 + 2 * 8
    broken = False
    run = distill(problems(100), model(server), run=tmp_path / "r", show="none")
    check_books(run, 100, server)
    assert run.report["drops"] == {"model_bad_request": refused} and run.report["stopped"] is None


@BOTH_WAYS
def test_prompts_that_a_working_endpoint_refuses_stop_nothing(serve, tmp_path):
    server = serve(lambda r: Reply(status=400, error="no") if 1 <= int(pids(r)[0]) < 60 else solve(r))
    run = distill(problems(80), model(server, max_concurrency=1), run=tmp_path / "r", show="none")
    check_books(run, 80, server)
    assert run.report["drops"] == {"model_bad_request": 59} and run.report["stopped"] is None


ENDLESS = {
    "500": lambda: Reply(status=500),
    "drop": lambda: Reply(drop=True),
    "garbage": lambda: Reply(raw=b"<html>proxy error</html>"),
    "empty": lambda: Reply(""),
    "hang": lambda: Reply("", delay=3),
    "drip": Drip,
}


def impatient(server, kind="", **options):
    """Only where it would wait for ever: on a busy machine a good answer may take its time."""
    return model(server, max_retries=1, timeout=1 if kind in ("hang", "drip") else 60, **options)


@BOTH_WAYS
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("block", [range(0, 40, 4), range(10, 30)], ids=["every fourth", "twenty in a row"])
def test_what_a_server_never_answers_is_bounded_reported_and_costs_no_other_row(
    serve, tmp_path, monkeypatch, kind, block
):
    """Some problems, for ever; more of them in a row than are in flight. The others are all asked."""
    monkeypatch.setattr(endpoint, "BACKOFF_S", 0.05)
    server = serve(lambda r: ENDLESS[kind]() if int(pids(r)[0]) in block else solve(r))
    started = time.monotonic()
    run = distill(problems(40), impatient(server, kind), run=tmp_path / "r", show="none")
    check_books(run, 40, server)
    assert run.report["kept"] == 40 - len(block) and run.report["stopped"] is None and run.report["complete"]
    assert time.monotonic() - started < 60
    assert len(run.report["drops"]) == 1 and next(iter(run.report["drops"])).startswith("model_")
    assert all(row.retryable and row.errors for row in run.records(accepted=False))
    assert server.calls <= 40 + 2 * len(block)  # an empty answer is asked for three times


GONE = {kind: fault for kind, fault in ENDLESS.items() if kind != "empty"}  # which is an answer
GONE |= {
    "401": lambda: Reply(status=401),
    "404": lambda: Reply(status=404),
    "no money": lambda: Reply(status=429, error={"message": "x", "code": "insufficient_quota"}),
    "429": lambda: Reply(status=429, headers={"Retry-After": "0.1"}),
}


@BOTH_WAYS
@pytest.mark.parametrize("kind", GONE)
def test_an_endpoint_that_is_gone_for_good_ends_the_run_which_goes_on_at_a_healthy_one(
    serve, tmp_path, monkeypatch, kind
):
    """After 20 answers. Not each of the others is asked for, and nothing answered is asked for again."""
    monkeypatch.setattr(endpoint, "BACKOFF_S", 0.05)
    gone = True
    server = serve(lambda r: GONE[kind]() if gone and r.number >= 20 else solve(r))
    started = time.monotonic()
    options = {"run": tmp_path / "r", "show": "none"}
    run = distill(problems(100), impatient(server, kind, rate_limit_patience=0.5), **options)
    check_books(run, 100, server)
    assert run.report["kept"] == 20 and "no endpoint of mock is usable" in run.report["stopped"]
    assert run.report["drops"]["unfinished"] >= 40 and time.monotonic() - started < 60
    assert server.calls <= 20 + 2 * (
        20 + 2 * 8
    )  # so many prompts in a row, and what was in flight before and after
    gone = False
    run = distill(problems(100), impatient(server), **options)
    check_books(run, 100, server)
    assert run.report["kept"] == 100 and server.answered.total() == 100


@BOTH_WAYS
def test_a_server_that_is_not_there_ends_the_run_which_goes_on_when_it_is(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "BACKOFF_S", 0.05)
    server = serve(solve)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = types.SimpleNamespace(base_url=f"http://127.0.0.1:{closed.getsockname()[1]}/v1")
    options = {"run": tmp_path / "r", "show": "none"}
    run = distill(problems(100), impatient(nowhere, endpoint_name="e"), **options)
    assert run.report["kept"] == 0 and "no endpoint of mock is usable" in run.report["stopped"]
    assert run.report["drops"]["unfinished"] >= 70
    assert sum(run.report["ledger"]["failed"].values()) <= 2 * (20 + 8)
    run = distill(problems(100), impatient(server, endpoint_name="e"), **options)
    assert run.report["kept"] == 100 and server.calls == 100


def test_a_block_that_looks_like_a_dead_endpoint_is_passed_by_further_calls(serve, tmp_path, monkeypatch):
    """Sixty in a row that always fail. Each call gets further, also with the ChatModel that gave up: in the
    end all others are kept, and each of the sixty has its reason."""
    monkeypatch.setattr(endpoint, "BACKOFF_S", 0.01)
    server = serve(lambda r: Reply(status=500) if 20 <= int(pids(r)[0]) < 80 else solve(r))
    asked, kept = impatient(server), []
    for _ in range(4):
        run = distill(problems(100), asked, run=tmp_path / "r", show="none")
        check_books(run, 100, server)
        kept.append(run.report["kept"])
        assert "no endpoint of mock is usable" in run.report["stopped"]
    assert kept[0] == 20 and kept[-1] == 40
    assert run.report["drops"] == {"model_server": 60}


def test_what_a_resumed_run_could_not_ask_again_keeps_its_reason(serve, tmp_path):
    server = serve(lambda r: Reply(status=500) if int(pids(r)[0]) < 10 else solve(r))
    options = {"max_retries": 0, "max_concurrency": 1}
    run = distill(problems(20), model(server, **options), run=tmp_path / "r", show="none")
    before = {row.id: row for row in run.records(accepted=False)}
    server.script = lambda r: Reply(status=401)
    run = distill(problems(20), model(server, **options), run=tmp_path / "r", show="none")
    assert run.report["drops"] == {"model_server": 10} and "401" in run.report["stopped"]
    assert {row.id: row for row in run.records(accepted=False)} == before
    server.script = solve
    run = distill(problems(20), model(server, **options), run=tmp_path / "r", show="none")
    check_books(run, 20, server)
    assert run.report["kept"] == 20


@pytest.mark.parametrize("streamed", [False, True])
def test_a_resumed_run_asks_first_for_what_has_no_line_yet(serve, tmp_path, streamed):
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(problem.model_dump_json() + "\n" for problem in problems(30)))
    ill = True
    server = serve(lambda r: Reply(status=500) if ill and int(pids(r)[0]) < 10 else solve(r))
    asked = model(server, max_retries=0, max_concurrency=1)
    items, options = load_problems(path, stream=streamed), {"run": tmp_path / "r", "show": "none"}
    run = distill(items, asked, budget_calls=20, **options)
    assert run.report["drops"] == {"model_server": 10, "unfinished": 10}
    ill = False
    run = distill(items, asked, **options)
    check_books(run, 30, server)
    assert run.report["kept"] == 30
    assert [int(pids(request)[0]) for request in server.log[20:]] == [*range(20, 30), *reversed(range(10))]


@BOTH_WAYS
def test_a_server_that_ends_in_endless_429s_stops_the_run_with_what_it_has(serve, tmp_path):
    server = serve(lambda r: solve(r) if r.number < 20 else Reply(status=429, headers={"Retry-After": "0.2"}))
    asked = model(server, max_concurrency=4, rate_limit_patience=1.5)
    started = time.monotonic()
    run = distill(problems(40), asked, run=tmp_path / "r", show="none")
    check_books(run, 40, server)
    assert run.report["kept"] == 20 and "429" in run.report["stopped"] and time.monotonic() - started < 30


SCRIPT = """
import sys
from cotkit import ChatModel, distill
from cotkit.chat import CallLedger
from cotkit.problems import Problem
url, folder, count, transport = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
items = [
    Problem(id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n)) for n in range(count)
]
model = ChatModel("mock", base_url=url, max_concurrency=8, transport=transport)
if len(sys.argv) > 5:
    from cotkit import LLMJudge
    distill(items, model, LLMJudge(model), run=folder, show="none")
else:
    distill(items, model, run=folder, show="none")
print("finished")
"""


def launch(server, folder, count, *more):
    given = server.base_url, folder, count, defaults["transport"], *more
    command = [sys.executable, "-c", SCRIPT, *map(str, given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process=None, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def answers(folder):
    """How many completed calls a run folder knows."""
    with CallLedger(folder / "calls.jsonl", read_only=True) as ledger:
        return ledger.totals()["calls"]


@BOTH_WAYS
@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_kill_minus_nine_repeats_no_completed_call(serve, tmp_path, at):
    """Only calls that had no answer yet when the process died may be asked again."""
    count, answered = 120, []
    lock = threading.Lock()

    def script(request):
        judging = "response_format" in request.body
        with lock:
            answered.append(request.number)
        return Reply(JUDGED if judging else solve(request), delay=0.01)

    server = serve(script)
    process = launch(server, tmp_path / "r", count, "judge")
    wait_for(lambda: server.calls >= at * 2 * count, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: server.in_flight == 0)
    first, known = server.calls, answers(tmp_path / "r")
    process = launch(server, tmp_path / "r", count, "judge")
    assert process.communicate(timeout=120)[0].strip() == "finished"
    assert server.calls - first == 2 * count - known, "a completed call was asked again"
    assert known <= first <= known + 8
    run = open_run(tmp_path / "r")
    check_books(run, count, server, lost=8)
    assert run.report["kept"] == count and run.report["complete"]
    assert run.report["ledger"]["calls"] >= 2 * count


def test_a_completed_call_is_in_the_cache_before_its_row_is_written(serve, tmp_path):
    """Killed while every problem waits for its judge: no generation is paid for again."""
    count, hold = 24, threading.Event()

    def script(request):
        if "response_format" in request.body:
            hold.wait(60)
            return JUDGED
        return solve(request)

    server = serve(script)
    process = launch(server, tmp_path / "r", count, "judge")
    wait_for(lambda: sum("response_format" in r.body for r in list(server.log)) >= 8, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    hold.set()
    wait_for(lambda: server.in_flight == 0)
    generations = sum("response_format" not in r.body for r in server.log)
    process = launch(server, tmp_path / "r", count, "judge")
    assert process.communicate(timeout=120)[0].strip() == "finished"
    asked = [json.dumps(r.body) for r in server.log if "response_format" not in r.body]
    assert len(asked) == len(set(asked)) == count and generations >= 8
    check_books(open_run(tmp_path / "r"), count, server, lost=8)


@BOTH_WAYS
def test_an_interrupt_keeps_finished_rows_and_frees_everything(serve, tmp_path):
    server = serve(lambda r: Reply(solve(r), delay=0.05 if int(pids(r)[0]) < 20 else 30))
    process = launch(server, tmp_path / "r", 60)
    wait_for(lambda: server.calls >= 24, process)
    wait_for(lambda: (tmp_path / "r" / "rows.jsonl").read_bytes().count(b"\n") >= 16, process)
    calls, started = server.calls, time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    took = time.monotonic() - started
    assert process.returncode != 0 and "KeyboardInterrupt" in err and "finished and safe" in out
    assert server.calls <= calls + 8 and took < 10  # the delay is 30 s: nothing waited for the calls
    run = open_run(tmp_path / "r")
    rows = check_books(run, 60, server, lost=8)
    assert len(rows) >= 16 and run.report["stopped"] == "interrupted"


COUNT_BYTES = """
import json, pathlib, sys
import httpx2, openai
from cotkit import ChatModel, LLMJudge, distill
from cotkit.problems import Problem

folder, count, judged = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def answer(request):
    body = json.loads(request.content)
    text = judged if "response_format" in body else "words " * 150 + "The answer is \\\\boxed{4}."
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "created": 1, "model": "mock",
                                      "choices": [choice]})

def written():
    return int(dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())["wchar"])

http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
client = openai.AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1", http_client=http)
model = ChatModel.from_client(client, "mock")
items = [Problem(id=f"p{n}", problem=f"Problem {n}: what is 2 + 2?", reference="4") for n in range(count)]
before = written()
distill(items, model, LLMJudge(model), run=folder, show="none")
total = written() - before
size = sum(path.stat().st_size for path in folder.iterdir())
print(json.dumps({"written": total, "size": size}))
"""


@pytest.mark.parametrize("count", [100, 1000])
def test_bytes_written_stay_within_a_tenth_of_the_folders_size(tmp_path, count):
    """No sockets here, so all the process writes is the run folder."""
    command = [sys.executable, "-c", COUNT_BYTES, str(tmp_path / "r"), str(count), JUDGED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["size"] > count * 2000
    assert found["written"] <= 1.1 * found["size"], found
