"""calls.jsonl: what is asked again and what is not, what is counted, budgets, kill -9, damage, bytes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from asking import ask_all, model
from mock_server import Reply

from cotkit import aio
from cotkit.chat import BudgetExceeded, CallLedger, ChatModel, LedgerError, ModelError, Usage, merge_ledgers
from cotkit.chat.tally import Amount
from cotkit.records import Completion


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "calls.jsonl"


def echo(request):
    return f"to {request.user}"


# The cache.

BASE = {"name": "m", "messages": "q", "options": {"temperature": 0.5}, "call": {}}
SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    "change, asked_again",
    [
        ({}, False),
        ({"options": {"temperature": 0.5, "timeout": 9, "max_retries": 0, "max_concurrency": 2}}, False),
        ({"options": {"temperature": 0.5, "price": (1, 2), "rate_limit_patience": 1}}, False),
        ({"messages": [{"role": "user", "content": "q"}]}, False),
        ({"messages": "other"}, True),
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]}, True),
        ({"name": "other"}, True),
        ({"options": {"temperature": 0.6}}, True),
        ({"options": {"temperature": 0.5, "extra_body": {"top_k": 1}}}, True),
        ({"call": {"sample_index": 1}}, True),
        ({"call": {"seed": 1}}, True),
        ({"call": {"logprobs": 0}}, True),
        ({"call": {"schema": SCHEMA}}, True),
        ({"options": {"temperature": 0.5, "endpoint_name": "elsewhere"}}, True),
    ],
)
def test_the_key_holds_what_changes_the_answer_and_nothing_else(serve, path, change, asked_again):
    server = serve(lambda r: "{}")
    with CallLedger(path) as ledger:
        for what in (BASE, {**BASE, **change}):
            chat = model(server, what["name"], **what["options"])
            answer = chat.complete(what["messages"], ledger=ledger, **what["call"])
        assert server.calls == 1 + asked_again
        assert answer.cached is not asked_again and ledger.totals()["cached"] == 1 - asked_again


def test_another_endpoint_is_asked_again_but_another_key_is_not(serve, path, monkeypatch):
    first, second = serve(echo), serve(echo)
    monkeypatch.setenv("KEY_A", "key-aaaa")
    monkeypatch.setenv("KEY_B", "key-bbbb")
    with CallLedger(path) as ledger:
        model(first, api_key_env="KEY_A").complete("q", ledger=ledger)
        model(first, api_key_env="KEY_B").complete("q", ledger=ledger)
        model(second, api_key_env="KEY_A").complete("q", ledger=ledger)
    assert (first.calls, second.calls) == (1, 1)


def test_a_named_endpoint_is_the_same_on_another_port(serve, path):
    first, second = serve(echo), serve(echo)
    with CallLedger(path) as ledger:
        for server in (first, second):
            answer = model(server, endpoint_name="embedded").complete("q", ledger=ledger)
    assert answer.cached and answer.endpoint == "embedded" and second.calls == 0


def test_a_cached_completion_is_the_same_completion(serve, path):
    reply = Reply("4 \ud800", reasoning="", finish_reason="length", logprobs={"content": [{"token": "4"}]})
    server = serve(lambda r: Reply(status=500) if r.nth == 0 else reply)
    chat = model(server, temperature=0.5, price=(1, 2))
    with CallLedger(path) as ledger:
        asked = chat.complete("q", ledger=ledger, sample_index=3, seed=5)
    with CallLedger(path) as ledger:
        found = chat.complete("q", ledger=ledger, sample_index=3, seed=5)
    assert found.cached and found == asked.model_copy(update={"cached": True})
    assert found.reasoning == "" and found.usage.cost_usd > 0 and found.seed == 8


@pytest.mark.parametrize(
    "reply",
    [Reply(None), Reply(None, refusal="no"), Reply(status=400), Reply(raw=b"<html>"), Reply(status=500)],
)
def test_what_is_no_answer_is_never_cached(serve, path, reply):
    server = serve(lambda r: reply if broken else "4")
    broken = True
    with CallLedger(path) as ledger:
        with pytest.raises(ModelError):
            model(server, max_retries=0).complete("q", ledger=ledger)
        broken = False
        answer = model(server, max_retries=0).complete("q", ledger=ledger)
        assert not answer.cached and server.calls == 2
        assert sum(ledger.totals()["failed"].values()) == 1


def test_a_call_answered_by_a_fallback_is_found_again_without_asking(serve, path):
    bad, good = serve(lambda r: Reply(status=500)), serve(echo)
    fallback = {"model": "b", "base_url": good.base_url}
    for _ in range(2):
        with CallLedger(path) as ledger:
            chat = model(bad, "a", fallbacks=[fallback], max_retries=0)
            answer = chat.complete("q", ledger=ledger)
            assert (answer.text, answer.model) == ("to q", "b")
    assert answer.cached and (bad.calls, good.calls) == (1, 1)


def test_identical_calls_in_flight_are_paid_for_once(serve, path):
    server = serve(lambda r: Reply("4", delay=0.05))
    with CallLedger(path) as ledger:
        answers = ask_all(model(server), ["q"] * 20 + ["other"], ledger=ledger)
        assert server.calls == 2 and {a.text for a in answers} == {"4"}
        assert ledger.totals()["calls"] == 2 and ledger.totals()["cached"] == 19
        assert not ledger._turns


def test_when_the_first_of_identical_calls_is_cancelled_the_second_asks(serve, path):
    hold = threading.Event()
    server = serve(lambda r: (hold.wait(20), "4")[1] if r.number == 0 else "4")
    chat = model(server)

    async def scene(ledger):
        first = asyncio.create_task(chat.acomplete("q", ledger=ledger))
        while server.calls == 0:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(chat.acomplete("q", ledger=ledger))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    with CallLedger(path) as ledger:
        assert aio.run(scene(ledger)).text == "4"
    hold.set()
    assert server.calls == 2


def test_the_cache_can_be_ignored_for_one_session_without_losing_it(serve, path):
    server = serve(lambda r: f"answer {r.number}")
    texts = []
    for use_cache in (True, False, True):
        with CallLedger(path, use_cache=use_cache) as ledger:
            texts.append(model(server).complete("q", ledger=ledger).text)
    assert texts == ["answer 0", "answer 1", "answer 0"]


# The ledger.


def test_totals_add_up_over_sessions_and_roles(serve, path):
    server = serve(lambda r: Reply(status=500) if r.user == "fault" and r.nth == 0 else "one two")
    for session in range(2):
        with CallLedger(path) as ledger:
            chat = model(server, price=(1e6, 2e6))  # a dollar a prompt token, two an answer's
            chat.complete("fault" if session else "a b c", ledger=ledger)
            chat.complete("x", ledger=ledger, role="judge")
            totals = ledger.totals()
    by_role = totals.pop("by_role")
    assert totals == {
        "calls": 3,
        "cached": 1,
        "failed": {"server": 1},
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "cost_usd": 17.0,
        "unknown_usage": 0,
        "unknown_cost": 0,
        "guessed_tokens": 0,
        "guessed_usd": 0.0,
    }
    first = {"calls": 2, "cached": 0, "prompt_tokens": 4, "completion_tokens": 4, "cost_usd": 12.0}
    other = {"calls": 1, "cached": 1, "prompt_tokens": 1, "completion_tokens": 2, "cost_usd": 5.0}
    assert by_role == {"generator": totals | first, "judge": totals | other | {"failed": {}}}


@pytest.mark.parametrize(
    "usages, price, expected",
    [
        (["absent"], (1, 1), (None, None, 1, 1)),
        (["count", "absent"], (1e6, 0), (1, 1.0, 1, 1)),
        (["count"], None, (1, None, 0, 1)),
        (["absent"], (0, 0), (None, 0.0, 1, 0)),
        ([], None, (0, 0.0, 0, 0)),
    ],
)
def test_unknown_usage_and_cost_are_counted_and_never_zero(serve, path, usages, price, expected):
    server = serve(lambda r: Reply("forty-four", usage=usages[r.number]))
    with CallLedger(path) as ledger:
        for n in range(len(usages)):
            model(server, price=price).complete(f"q{n}", ledger=ledger)
        totals = ledger.totals()
    with CallLedger(path) as ledger:
        again = ledger.totals()
    for sums in (totals, again):
        names = ("prompt_tokens", "cost_usd", "unknown_usage", "unknown_cost")
        assert tuple(sums[name] for name in names) == expected
        assert bool(sums["guessed_tokens"]) == bool(sums["unknown_usage"])


def test_answers_that_were_no_use_are_paid_for_and_counted(serve, path):
    server = serve(lambda r: Reply(None if r.nth == 0 else "one two"))
    with CallLedger(path) as ledger:
        model(server).complete("q", ledger=ledger)
        totals = ledger.totals()
    assert (totals["calls"], totals["failed"], totals["prompt_tokens"]) == (1, {"empty": 1}, 2)


@pytest.mark.parametrize(
    "name, url, known",
    [
        ("gpt-4o-mini", "https://api.openai.com/v1", True),
        ("deepseek-chat", "https://api.deepseek.com/v1", True),
        ("no-such-model", "https://api.openai.com/v1", False),
        ("gpt-4o-mini", "https://proxy.example.com/v1", False),
        ("gpt-4o-mini", "http://127.0.0.1:8000/v1", False),
    ],
)
def test_a_price_needs_a_known_model_at_a_known_address(name, url, known):
    price = ChatModel(name, base_url=url, api_key_env="PATH").endpoints[0].price
    assert (price is not None) is known
    if known:
        assert 0 < price(1000, 1000, 0) < 0.1 and price(None, 5, 0) is None
        assert price(1000, 0, 1000) < price(1000, 0, 0)  # what the endpoint had cached is cheaper


# Budgets.


@pytest.mark.parametrize("width, budget", [(16, 50), (16, 5), (1, 7), (50, 50)])
def test_a_budget_of_calls_is_never_passed(serve, path, width, budget):
    server = serve(lambda r: Reply("4", delay=0.002))
    with CallLedger(path, budget_calls=budget) as ledger:
        results = ask_all(model(server, max_concurrency=width), [f"q{n}" for n in range(120)], ledger=ledger)
        assert server.calls == budget == ledger.totals()["calls"]
        refused = [r for r in results if isinstance(r, BudgetExceeded)]
        assert len(refused) == 120 - budget
        assert f"budget_calls={budget}" in str(refused[0]) and "calls.jsonl" in str(refused[0])
    with CallLedger(path, budget_calls=budget + 3) as ledger:  # raised: it goes on from there
        ask_all(model(server, max_concurrency=width), [f"q{n}" for n in range(120)], ledger=ledger)
    assert server.calls == budget + 3


def test_retries_count_as_calls_and_429s_do_not(serve, path):
    replies = [Reply(status=500), Reply(status=429), Reply("4")]
    server = serve(lambda r: replies[min(r.nth, 2)])
    with CallLedger(path, budget_calls=3) as ledger:
        results = ask_all(model(server, max_concurrency=1), ["a", "b"], ledger=ledger)
        assert results[0].text == "4" and isinstance(results[1], BudgetExceeded)
        assert server.calls == 4


@pytest.mark.parametrize("budget", [{"budget_tokens": 1000}, {"budget_usd": 0.01}])
def test_a_budget_of_tokens_or_dollars_stops_near_it_however_many_are_in_flight(serve, path, budget):
    server = serve(lambda r: "word " * 19)  # 20 tokens a call with its prompt
    chat = model(server, max_concurrency=16, price=(10, 10))
    with CallLedger(path, **budget) as ledger:
        results = ask_all(chat, [f"q{n}" for n in range(200)], ledger=ledger)
        totals = ledger.totals()
        tokens = totals["prompt_tokens"] + totals["completion_tokens"]
    assert 980 <= tokens <= 1000
    assert any(isinstance(r, BudgetExceeded) for r in results)


def test_a_first_call_is_only_guessed_at(serve, path):
    server = serve(lambda r: "word " * 9)
    with CallLedger(path, budget_tokens=100) as ledger:
        results = ask_all(model(server, max_tokens=4000), [f"q{n}" for n in range(20)], ledger=ledger)
    assert server.calls == 10 and sum(isinstance(r, Completion) for r in results) == 10


def test_unknown_usage_still_counts_towards_a_budget_of_tokens(serve, path):
    server = serve(lambda r: Reply("x" * 396, usage="absent"))
    with CallLedger(path, budget_tokens=1000) as ledger:
        ask_all(model(server), [f"q{n:02}" + " " for n in range(50)], ledger=ledger)
        assert server.calls == 10 and ledger.totals()["prompt_tokens"] is None
    with CallLedger(path, budget_tokens=1000) as ledger, pytest.raises(BudgetExceeded):
        model(server).complete("more", ledger=ledger)


@pytest.mark.parametrize("budgets", [{"budget_calls": 0}, {"budget_tokens": 0}, {"budget_usd": 0}])
def test_a_budget_of_nothing_allows_nothing(serve, path, budgets):
    server = serve(echo)
    with CallLedger(path, **budgets) as ledger, pytest.raises(BudgetExceeded):
        model(server, price=(1, 1)).complete("q", ledger=ledger)
    assert server.calls == 0


def test_dollars_cannot_be_watched_without_a_price_and_free_is_a_price(serve, path):
    server = serve(echo)
    chat = model(server, fallbacks=[{"model": "b", "base_url": server.base_url, "price": (1, 1)}])
    with CallLedger(path, budget_usd=1.0) as ledger:
        with pytest.raises(ValueError, match=r"mock at .*price=\("):
            ledger.check_prices(chat)
        with pytest.raises(BudgetExceeded, match=r"price=\("):
            chat.complete("q", ledger=ledger)
        assert server.calls == 0
        assert model(server, price=(0, 0)).complete("q", ledger=ledger).text == "to q"


@pytest.mark.parametrize("budgets", [{"budget_calls": 1.5}, {"budget_usd": -1}, {"budget_tokens": "9"}])
def test_a_wrong_budget_is_refused(path, budgets):
    with pytest.raises((TypeError, ValueError), match="budget"):
        CallLedger(path, **budgets)


# Survival.

SCRIPT = """
import asyncio, sys
from cotkit import aio
from cotkit.chat import CallLedger, ChatModel
url, path = sys.argv[1:]
chat = ChatModel("mock", base_url=url, max_concurrency=8)
ledger = CallLedger(path)
async def all_of_them():
    await asyncio.gather(*(chat.acomplete(f"q{n}", ledger=ledger) for n in range(80)))
aio.run(all_of_them())
ledger.close()
print("finished", ledger.totals()["calls"])
"""


def test_after_kill_minus_nine_no_completed_call_is_asked_again(serve, path):
    def script(request):
        if killing and request.number >= 40:
            hold.wait(30)  # these 8 are in flight when the process dies
        return echo(request)

    killing, hold = True, threading.Event()
    server = serve(script)
    command = [sys.executable, "-c", SCRIPT, server.base_url, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while server.in_flight < 8 or server.calls < 48:
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    killing = False
    hold.set()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "finished 80" and done.stderr == ""
    asked = [json.dumps(r.body) for r in server.log]
    assert len(set(asked)) == 80 and len(asked) == 88  # only those in flight went out twice


def flip(line):
    return line[:40] + b"\x00" + line[41:]


@pytest.mark.parametrize(
    "damage, says",
    [
        (lambda lines: [b"hello\n"] * 2, "line 1 is not JSON"),
        (lambda lines: [b"[1]\n", b'"text"\n'], "line 1 is no call of this version"),
        (lambda lines: [b'{"id": "p1", "problem": "2 + 2?"}\n'] * 2, "line 1 is no call of this version"),
        (lambda lines: [*lines[:3], lines[3].replace(b'"role"', b'"part"'), *lines[4:]], "line 4 is no call"),
        (
            lambda lines: [*lines[:3], lines[3].replace(b'"key":"', b'"key":"x'), *lines[4:]],
            "line 4 is no call",
        ),
        (lambda lines: [*lines[:5], flip(lines[5]), *lines[6:]], "line 6 is not JSON"),
        (lambda lines: [*lines[:5], lines[5][:50], *lines[6:]], "line 6 is not JSON"),
    ],
)
def test_a_damaged_ledger_is_reported_and_left_as_it_is(path, damage, says):
    with CallLedger(path) as ledger:
        fill(ledger, 20)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=says) as error:
        CallLedger(path)
    assert str(path) in str(error.value) and error.value.stops_run and path.read_bytes() == before


def test_a_torn_line_costs_only_what_was_torn(serve, path):
    server = serve(echo)
    with CallLedger(path) as ledger:
        ask_all(model(server, max_concurrency=1), [f"q{n}" for n in range(20)], ledger=ledger)
    data = path.read_bytes()
    for cut in (1, 100, 300):
        path.write_bytes(data[:-cut])
        with CallLedger(path, read_only=True) as ledger:
            assert ledger.totals()["calls"] == 19
        assert path.read_bytes() == data[:-cut]  # it only looked
        with CallLedger(path) as ledger:
            ask_all(model(server, max_concurrency=1), [f"q{n}" for n in range(20)], ledger=ledger)
            assert ledger.totals()["calls"] == 20 and ledger.totals()["cached"] == 19
    assert server.calls == 20 + 3


def test_what_another_process_left_torn_is_cut_off_before_the_next_line(path):
    with CallLedger(path) as ledger:
        fill(ledger, 2)
        with CallLedger(path) as other:
            fill(other, 2, start=10)
        with open(path, "ab") as file:
            file.write(b'{"at": 1, "ro')
        fill(ledger, 2, start=20)
        assert ledger.find([key_of(20)], "generator")[0].text.startswith("2020")
    with CallLedger(path) as ledger:
        assert ledger.totals()["calls"] == 6 and ledger.find([key_of(10)], "generator")


def test_what_one_ledger_forgot_takes_no_answer_from_another_when_they_are_merged(path):
    good, bad = path.with_name("good.jsonl"), path.with_name("bad.jsonl")
    with CallLedger(good) as ledger:
        fill(ledger, 2)
    with CallLedger(bad) as ledger:
        fill(ledger, 3)
        ledger.forget([key_of(0), key_of(2)])
    for order in ((good, bad), (bad, good)):
        totals = merge_ledgers(order, path)
        assert totals["calls"] == 3 and totals["failed"] == {"parse": 2}
        with CallLedger(path, read_only=True) as merged:
            assert [merged.find([key_of(n)], "judge") is not None for n in range(3)] == [True, True, False]


@pytest.mark.parametrize("change", [lambda data: data[:10], lambda data: b"{}\n" * (len(data) // 3)])
def test_a_file_that_others_changed_while_it_was_in_use_is_said(path, change):
    with CallLedger(path) as ledger:
        fill(ledger, 3)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(LedgerError, match="changed while it was in use"):
            ledger.find([key_of(2)], "judge")


def test_what_one_ledger_forgets_takes_no_answer_from_another_on_the_same_file(path):
    with CallLedger(path) as first, CallLedger(path) as second:
        fill(first, 1)
        fill(second, 1)
        second.forget([key_of(0)])
    with CallLedger(path) as ledger:
        assert ledger.find([key_of(0)], "judge") and ledger.totals()["failed"] == {"parse": 1}


def test_a_bad_answer_to_a_call_that_is_asked_again_takes_nothing_away(path):
    with CallLedger(path) as ledger:
        fill(ledger, 1)
    with CallLedger(path, use_cache=False) as ledger:
        fill(ledger, 1)
        ledger.forget([key_of(0)])
        assert ledger.totals()["failed"] == {"parse": 1}
    with CallLedger(path) as ledger:
        assert ledger.find([key_of(0)], "judge") and ledger.totals()["failed"] == {"parse": 1}


def test_answers_that_were_forgotten_stay_forgotten(path):
    with CallLedger(path) as ledger:
        fill(ledger, 3)
        ledger.forget([key_of(1), key_of(99)])
        assert ledger.find([key_of(1)], "judge") is None and ledger.find([key_of(2)], "judge")
        totals = ledger.totals()
    with CallLedger(path) as ledger:
        assert ledger.find([key_of(1)], "judge") is None
        fill(ledger, 1, start=1)
        assert ledger.find([key_of(1)], "judge")
        assert ledger.totals()["calls"] == 3 and ledger.totals()["failed"] == {"parse": 1}
    assert totals["calls"] == 2 and totals["failed"] == {"parse": 1}


def test_a_closed_ledger_says_so(path):
    ledger = CallLedger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        fill(ledger, 1)


def fill(ledger, count, start=0, size=3000):
    for n in range(start, start + count):
        completion = Completion(text=str(n) * (size // len(str(n))), model="m", endpoint="e")
        ledger.record(**ENDED, answers=[(key_of(n), completion)])


def key_of(n):
    return hashlib.sha256(str(n).encode()).digest()


ENDED = {"role": "generator", "endpoint": "e", "model": "m", "kind": None, "seconds": 1.0}
ENDED |= {"usage": Usage(), "guess": Amount()}


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_chat_ledger import fill
from cotkit.chat import CallLedger
with CallLedger(sys.argv[1]) as ledger:
    fill(ledger, 200, start=int(sys.argv[3]))
"""


WITHOUT_END = """
import itertools, sys
sys.path.insert(0, sys.argv[2])
from cotkit.chat import ledger
from test_chat_ledger import fill
with ledger.CallLedger(sys.argv[1]) as book:
    for n in itertools.count(int(sys.argv[3])):
        fill(book, 1, start=n, size=1_000_000)
        print(n, flush=True)
"""


def test_kill_minus_nine_in_a_write_loses_no_answer(path):
    """With a megabyte an answer, most of the time is spent in writing."""
    path.parent.mkdir()
    here, chance, said = os.path.dirname(__file__), random.Random(0), []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(here), *sys.path])}
    for _ in range(4):
        command = [sys.executable, "-c", WITHOUT_END, str(path), here, str(len(said) + 10)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        said.append(int(process.stdout.readline()))
        threading.Timer(chance.uniform(0.1, 0.4), process.kill).start()
        said += [int(line) for line in process.communicate()[0].splitlines()]
        with CallLedger(path) as ledger:
            assert all(ledger.find([key_of(n)], "generator") for n in said)
    assert len(said) > 20


def test_two_processes_on_one_file_lose_and_damage_nothing(path):
    path.parent.mkdir()
    here = os.path.dirname(__file__)
    commands = [[sys.executable, "-c", WRITER, str(path), here, str(start)] for start in (0, 1000)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(here), *sys.path])}
    writers = [subprocess.Popen(c, stderr=subprocess.PIPE, text=True, env=env) for c in commands]
    assert [w.communicate(timeout=60)[1] for w in writers] == ["", ""]
    with CallLedger(path) as ledger:
        assert ledger.totals()["calls"] == 400


def bytes_written():
    with open("/proc/self/io") as io:
        return int(dict(line.split(": ") for line in io.read().splitlines())["wchar"])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="counts bytes by /proc/self/io")
@pytest.mark.parametrize("count", [100, 1000])
def test_the_file_is_written_once(path, count):
    before = bytes_written()
    with CallLedger(path) as ledger:
        fill(ledger, count)
    assert bytes_written() - before <= 1.01 * path.stat().st_size
    assert path.stat().st_size < 1.2 * 3000 * count  # 3 kB of answer and what is known about it


def test_a_call_that_cannot_be_written_is_an_error_and_counts_nothing(path, monkeypatch):
    def full(lines):
        raise OSError(28, "No space left on device")

    with CallLedger(path) as ledger:
        with monkeypatch.context() as patch, pytest.raises(LedgerError, match="No space left"):
            patch.setattr(ledger._journal, "append_line", full)
            fill(ledger, 1)
        assert ledger.totals()["calls"] == 0 and ledger.find([key_of(0)], "judge") is None
        fill(ledger, 1)
        assert ledger.totals()["calls"] == 1 and ledger.find([key_of(0)], "judge")


def test_what_waits_is_not_asked_once_an_answer_could_not_be_kept(serve, path, monkeypatch):
    def full(line):
        raise OSError(28, "No space left on device")

    server = serve(lambda request: Reply("4", delay=0.05))
    model = ChatModel("mock", base_url=server.base_url, max_concurrency=2)
    with CallLedger(path) as ledger:
        monkeypatch.setattr(ledger._journal, "append_line", full)
        answers = aio.run(model.acandidates("2 + 2?", 12, ledger=ledger))
    assert all(isinstance(answer, LedgerError) for answer in answers)
    assert server.calls <= 2 + 1  # in flight, and one that had its place when the first had failed


def test_recording_a_call_is_cheap(path):
    with CallLedger(path) as ledger:
        fill(ledger, 50)
        started = time.process_time()
        fill(ledger, 500, start=50)
        each = (time.process_time() - started) / 500
    assert each < 0.002  # 0.1 ms on an idle core
