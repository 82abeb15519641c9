"""Calls over real HTTP: what is sent, faults, retries, rate limits, failover, interruption."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
import types
from email.utils import formatdate

import pytest
from asking import VirtualClock, ask_all, model
from mock_server import Reply

from cotkit import aio
from cotkit.chat import CallLedger, ChatModel, ModelError


def fails_first(reply, times=1):
    """A script that fails each prompt `times` times."""
    return lambda request: reply if request.nth < times else f"to {request.user}"


# What is sent.


def test_what_is_set_is_sent_and_nothing_else(serve):
    server = serve(lambda r: "4")
    chat = model(server, temperature=0.5, max_tokens=9, seed=3, extra_body={"top_k": 5})
    answer = chat.complete("2+2?", sample_index=2, temperature=0.1, stop=["\n"], extra_body={"min_p": 0.1})
    sent = server.log[0].body
    assert sent == {
        "model": "mock",
        "messages": [{"role": "user", "content": "2+2?"}],
        "temperature": 0.1,
        "max_tokens": 9,
        "seed": 5,
        "stop": ["\n"],
        "top_k": 5,
        "min_p": 0.1,
    }
    assert answer.params == {k: v for k, v in sent.items() if k not in ("model", "messages")}
    assert (answer.seed, answer.sample_index, answer.endpoint) == (5, 2, server.base_url[7:-3])
    model(server).complete("2+2?", temperature=None)
    assert set(server.log[1].body) == {"model", "messages"}


def test_logprobs_come_with_the_answer(serve):
    server = serve(lambda r: Reply("4", logprobs={"content": [{"token": "4", "logprob": -0.1}]}))
    assert model(server).complete("2+2?", logprobs=3).logprobs == [{"token": "4", "logprob": -0.1}]
    assert server.log[0].body["top_logprobs"] == 3


def test_lone_surrogates_go_out_replaced_and_come_back_whole(serve, tmp_path):
    server = serve(lambda r: Reply("a\ud800b 😀 字"))
    with CallLedger(tmp_path / "calls.jsonl") as ledger:
        for _ in range(2):
            assert model(server).complete("x\udc00y 😀", ledger=ledger).text == "a\ud800b 😀 字"
    assert [r.user for r in server.log] == ["x\ufffdy 😀"]


# One request fails.

DROPPED = Reply(drop=True)
FAULTS = [  # (what comes first, kind, requests until the answer)
    (Reply(status=500), "server", 2),
    (Reply(status=503, headers={"Retry-After": "1"}), "server", 2),
    (Reply(status=408), "server", 2),
    (DROPPED, "connection", 2),
    (Reply("cut", truncate_body=True), "connection", 2),
    (Reply(raw=b"<html>"), "malformed", 2),
    (Reply(raw=b"\xff\xfe{}"), "malformed", 2),
    (Reply(raw=b'{"object": "list"}'), "malformed", 2),
    (Reply(raw=b"[" * 100_000), "malformed", 2),
    (Reply(raw=b'{"created": ' + b"9" * 5000 + b"}"), "malformed", 2),
    (Reply(status=500, raw=b"[" * 100_000), "server", 2),
    (Reply(raw=b'{"error": {"message": "upstream", "code": 502}}'), "server", 2),
    (Reply(None), "empty", 2),
    (Reply(""), "empty", 2),
    (Reply(status=429, error="Too Many Requests"), "rate_limit", 2),
    (Reply(status=400, error="bad"), "bad_request", None),
    (Reply(status=422, error="bad"), "bad_request", None),
    (Reply(status=400, error="maximum context length is 10"), "context_length", None),
    (Reply(status=429, error="Request too large: the tokens must be reduced"), "context_length", None),
    (Reply(None, refusal="I cannot"), "refusal", None),
    (Reply("part", finish_reason="content_filter"), "refusal", None),
    (Reply(status=401), "auth", None),
    (Reply(status=404), "not_found", None),
    (Reply(status=429, error={"message": "x", "code": "insufficient_quota"}), "quota", None),
]


@pytest.mark.parametrize("fault, kind, requests", FAULTS)
def test_a_fault_is_retried_or_told_by_its_kind(serve, fault, kind, requests):
    server = serve(fails_first(fault))
    if requests is None:
        with pytest.raises(ModelError) as error:
            model(server).complete("q")
        assert error.value.kind == kind and server.calls == 1
        assert [a.kind for a in error.value.attempts] == [kind]
        assert error.value.stops_run is (kind in ("auth", "not_found", "quota"))
    else:
        answer = model(server).complete("q")
        assert answer.text == "to q" and server.calls == requests
        assert [a.kind for a in answer.attempts] == [kind]


@pytest.mark.parametrize(
    "fault, kind, requests",
    [(Reply(status=500), "server", 4), (DROPPED, "connection", 4), (Reply(None), "empty", 3)],
)
def test_retries_end(serve, fault, kind, requests):
    server = serve(lambda r: fault)
    with pytest.raises(ModelError) as error:
        model(server, max_retries=3).complete("q")
    assert (error.value.kind, error.value.stops_run) == (kind, False)
    assert server.calls == len(error.value.attempts) == requests


def test_the_last_failure_is_of_a_request_that_is_tried_again(serve):
    server = serve(lambda r: Reply(status=500) if r.user == "bad" else "4")
    chat = model(server, max_retries=0)
    with pytest.raises(ModelError):
        chat.complete("bad")
    assert "server" in chat.endpoints[0].stats()["last_failure"]
    chat.complete("good")
    assert chat.endpoints[0].stats()["last_failure"] == ""


def test_nobody_listening_is_a_connection_error_that_says_so():
    chat = ChatModel("m", base_url="http://127.0.0.1:9/v1", max_retries=1, clock=VirtualClock())
    with pytest.raises(ModelError, match=r"127\.0\.0\.1:9.*2 attempts.*ClientConnectorError") as error:
        chat.complete("q")
    assert error.value.kind == "connection"


def test_backoff_is_jittered_and_grows(serve):
    server, clock = serve(lambda r: Reply(status=500)), VirtualClock()
    chat = model(server, clock=clock)
    for n in range(20):
        with pytest.raises(ModelError):
            chat.complete(f"q{n}")
    for retry, longest in enumerate([0.5, 1, 2, 4, 8]):
        waits = clock.slept[retry::5]
        assert len(waits) == 20 and max(waits) <= longest
        assert min(waits) < longest / 2 < max(waits)


def test_the_timeout_runs_from_sending_not_from_queueing(serve):
    server = serve(
        lambda r: Reply("late" if r.user == "slow" else "ok", delay=0.6 if r.user == "slow" else 0.2)
    )
    chat = model(server, timeout=0.5, max_concurrency=1, max_retries=0)
    assert [a.text for a in ask_all(chat, [f"q{n}" for n in range(4)])] == ["ok"] * 4  # the last waits 0.6 s
    with pytest.raises(ModelError, match=r"no answer within 0\.5 s") as error:
        chat.complete("slow")
    assert error.value.kind == "timeout"


def test_an_answer_cut_inside_its_reasoning_is_data_and_not_an_error(serve):
    server = serve(lambda r: Reply("", reasoning="so far", finish_reason="length"))
    answer = model(server).complete("q")
    assert (answer.text, answer.reasoning, answer.truncated) == ("", "so far", True)


def test_an_answer_without_usage_is_kept_with_unknown_tokens(serve):
    for usage in ("absent", None):
        server = serve(lambda r, usage=usage: Reply("4", usage=usage))
        answer = model(server, price=(1, 1)).complete("q")
        assert answer.usage.model_dump() == dict.fromkeys(("prompt_tokens", "completion_tokens", "cost_usd"))


def test_an_answer_with_an_impossible_count_is_kept(serve, tmp_path):
    server = serve(lambda r: Reply("4", usage={"prompt_tokens": 10**30, "completion_tokens": 1}))
    with CallLedger(tmp_path / "calls.jsonl") as ledger:
        answers = [model(server, price=(1, 1)).complete("q", ledger=ledger) for _ in range(2)]
        assert [a.text for a in answers] == ["4", "4"] and answers[1].cached and server.calls == 1
        assert answers[0].usage.prompt_tokens is None and ledger.totals()["unknown_usage"] == 1


# A server of ours, that ends and is started again.

GONE = "http://127.0.0.1:9/v1"  # nobody listens there


def revivable(revive, **options) -> ChatModel:
    return ChatModel("mock", GONE, clock=VirtualClock(), endpoint_name="ours", revive=revive, **options)


def test_a_server_that_ended_is_started_again_once_and_the_loop_goes_on_meanwhile(serve):
    server, other = serve(lambda r: f"to {r.user}"), serve(lambda r: "elsewhere")
    loop_goes_on, started = threading.Event(), []

    def revive():
        started.append(loop_goes_on.wait(timeout=20))
        return server.base_url

    async def both():
        calls = [asyncio.ensure_future(chat.acomplete(f"q{n}")) for n in range(20)]
        await model(other).acomplete("hi")
        loop_goes_on.set()
        return await asyncio.gather(*calls)

    chat = revivable(revive, max_concurrency=4)
    answers = aio.run(both())
    assert [a.text for a in answers] == [f"to q{n}" for n in range(20)]
    assert started == [True] and server.peak <= 4
    failed = [attempt for answer in answers for attempt in answer.attempts]
    assert 1 <= len(failed) <= 4  # those in flight; the others waited for their places
    assert {(a.kind, a.endpoint) for a in failed} == {("connection", "ours")}
    assert chat.describe()["endpoints"][0]["endpoint"] == "ours"


@pytest.mark.parametrize("retries", [0, 2])
def test_a_server_that_cannot_be_started_again_stops_the_run_with_the_reason(retries):
    tries = []

    def revive():
        tries.append(1)
        raise RuntimeError("it died; log: here; call it again")

    errors = ask_all(revivable(revive, max_retries=retries, max_concurrency=4), [f"q{n}" for n in range(20)])
    assert all("it died; log: here; call it again" in str(e) and e.stops_run for e in errors)
    assert len(tries) == 1


def test_a_server_that_ended_is_started_again_even_by_a_call_without_retries(serve):
    server = serve(lambda r: "4")
    chat = revivable(lambda: server.base_url, max_retries=0)
    with pytest.raises(ModelError, match="was started again"):
        chat.complete("q")
    assert chat.complete("q").text == "4"


def test_a_server_that_ends_at_every_answer_is_given_up(serve):
    dying = [serve(lambda r: DROPPED) for _ in range(2)]
    tries = []

    def revive():
        tries.append(1)
        return dying[len(tries) % 2].base_url

    with pytest.raises(ModelError, match=r"3 attempts.*had ended and was started again") as error:
        revivable(revive, max_retries=2).complete("q")
    assert error.value.kind == "connection" and len(tries) == 3


def test_a_dropped_connection_of_a_server_that_still_runs_is_an_ordinary_fault(serve):
    server = serve(fails_first(DROPPED))
    chat = model(server, endpoint_name="ours", revive=lambda: server.base_url)
    answer = chat.complete("q")
    assert answer.text == "to q" and "started again" not in answer.attempts[0].message


def test_a_server_started_again_is_asked_with_its_key_of_now(serve, monkeypatch):
    server = serve(lambda r: "4")
    monkeypatch.setenv("OUR_KEY", "first-key")

    def revive():
        monkeypatch.setenv("OUR_KEY", "second-key")
        return server.base_url

    revivable(revive, api_key_env="OUR_KEY").complete("q")
    assert server.log[0].headers["authorization"] == "Bearer second-key"


# Parameters an endpoint refuses.


def refuses(name, message, *, param=None):
    error = {"message": message, "param": param}
    return lambda r: Reply(status=400, error=error) if name in r.body else "4"


MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
ONLY_DEFAULT = "Unsupported value: 'temperature' does not support 0.5 with this model."


@pytest.mark.parametrize(
    "name, message, left",
    [
        ("max_tokens", MAX_TOKENS, {"max_completion_tokens": 9, "temperature": 0.5, "seed": 1}),
        ("temperature", ONLY_DEFAULT, {"max_tokens": 9, "seed": 1}),
        ("seed", "Unrecognized request argument supplied: seed", {"max_tokens": 9, "temperature": 0.5}),
    ],
)
def test_a_refused_parameter_is_learnt_once(serve, name, message, left):
    server = serve(refuses(name, message))
    chat = model(server, max_tokens=9, temperature=0.5, seed=1)
    answers = [chat.complete(f"q{n}") for n in range(3)]
    assert server.calls == 4
    assert answers[0].params == answers[2].params == left
    assert [a.kind for a in answers[0].attempts] == ["bad_request"] and not answers[2].attempts


def test_a_parameter_out_of_range_is_the_callers_fault(serve):
    server = serve(refuses("temperature", "temperature must be between 0 and 2", param="temperature"))
    with pytest.raises(ModelError, match="between 0 and 2"):
        model(server, temperature=3).complete("q")
    assert server.calls == 1


@pytest.mark.parametrize(
    "said", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"]
)
def test_a_server_that_speaks_no_http_is_a_connection_error(said):
    def talk():
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connection.recv(65536)
                connection.sendall(said)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=talk, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        with pytest.raises(ModelError) as error:
            ChatModel("m", base_url=url, max_retries=1, clock=VirtualClock()).complete("q")
    assert (error.value.kind, len(error.value.attempts)) == ("connection", 2)


def test_an_answer_that_drips_is_given_up_at_the_timeout():
    """Some bytes now and then are no answer: the timeout is for the whole of it."""

    def drip(connection):
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
            connection.sendall(head)
            while True:
                connection.sendall(b" ")
                time.sleep(0.02)

    def listen():
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                threading.Thread(target=drip, args=listener.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, daemon=True).start()
        server = types.SimpleNamespace(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        started = time.monotonic()
        with pytest.raises(ModelError) as error:
            model(server, timeout=0.4, max_retries=1).complete("q")
    assert (error.value.kind, len(error.value.attempts)) == ("timeout", 2)
    assert time.monotonic() - started < 10


# Rate limits.


@pytest.mark.parametrize(
    "headers, least, most",
    [
        ({"Retry-After": "7"}, 7, 7.3),
        ({"retry-after-ms": "2500"}, 2.5, 2.8),
        ({"Retry-After": "a date in 90 s"}, 60, 90.3),
        ({"Retry-After": "99999"}, 120, 120.3),
        ({}, 0.5, 1.3),
    ],
)
def test_a_429_parks_every_worker_of_the_endpoint(serve, headers, least, most):
    clock, asked_at = VirtualClock(), []
    limited = threading.Event()

    def script(request):
        asked_at.append(clock.time)
        if not limited.is_set():
            limited.set()
            dated = {"Retry-After": formatdate(time.time() + 90, usegmt=True)}  # from when it is sent
            said = dated if "date" in headers.get("Retry-After", "") else headers
            return Reply(status=429, headers=said, error="whatever it says")
        return f"to {request.user}"

    server = serve(script)
    chat = model(server, clock=clock, max_concurrency=1)
    answers = ask_all(chat, [f"q{n}" for n in range(5)])
    assert [a.text for a in answers] == [f"to q{n}" for n in range(5)]
    assert least <= asked_at[1] - asked_at[0] <= most
    assert server.calls == 6 and chat.stats()["rate_limited"] == 1


def test_429s_do_not_use_up_the_retries_of_a_call(serve):
    server = serve(fails_first(Reply(status=429, headers={"Retry-After": "1"}), times=30))
    chat = model(server, max_retries=0)
    assert chat.complete("q").text == "to q"
    assert server.calls == 31 and chat.stats()["retries"] == 0


def test_fifty_calls_that_get_429_at_once_lower_the_limit_once_and_all_come_through(serve):
    gate = threading.Barrier(50)

    def script(request):
        if request.nth == 0:
            gate.wait(20)
            return Reply(status=429, headers={"Retry-After": "2"})
        return f"to {request.user}"

    server = serve(script)
    chat = model(server, max_concurrency=50)
    answers = ask_all(chat, [f"q{n}" for n in range(50)])
    assert sorted(a.text for a in answers) == sorted(f"to q{n}" for n in range(50))
    assert server.calls == 100 and chat.stats()["rate_limited"] == 50
    assert 37 <= chat.stats()["limit"] <= 39  # one step down, and up by 1 for 25 clean answers


def test_endless_429_ends_with_a_readable_reason(serve):
    clock = VirtualClock()
    server = serve(lambda r: Reply(status=429, error="slow down"))
    chat = model(server, clock=clock, rate_limit_patience=600)
    begun = clock.time
    errors = ask_all(chat, [f"q{n}" for n in range(40)])
    assert {(e.kind, e.stops_run) for e in errors} == {("circuit_open", True)}
    assert "nothing but 429" in str(errors[0]) and "rate_limit_patience" in str(errors[0])
    assert 600 <= clock.time - begun < 730
    calls = server.calls
    with pytest.raises(ModelError, match="nothing but 429"):
        chat.complete("later")
    assert server.calls == calls < 400


def test_an_endpoint_that_says_at_once_and_still_refuses_is_not_hammered(serve):
    server = serve(lambda r: Reply(status=429, headers={"Retry-After": "0"}))
    ask_all(model(server, rate_limit_patience=600, max_concurrency=4), [f"q{n}" for n in range(4)])
    assert server.calls < 200


def test_a_call_that_alone_gets_429_holds_nobody_up_and_fails_alone(serve):
    server = serve(lambda r: Reply(status=429, error="no") if r.user == "big" else Reply("4", delay=0.002))
    chat = model(server, max_concurrency=8, rate_limit_patience=60)
    big, *others = ask_all(chat, ["big", *(f"q{n}" for n in range(100))])
    assert [answer.text for answer in others] == ["4"] * 100
    assert (big.kind, big.stops_run) == ("rate_limit", False) and "while others were answered" in str(big)
    assert chat.stats()["limit"] >= 3 and chat.endpoints[0].breaker.kind is None
    asked = [request.user for request in server.log]
    assert "big" in asked[100:] and asked[:100].count("big") <= 3  # it goes to the end of the queue


def test_a_call_that_alone_gets_429_is_asked_of_the_next_endpoint(serve):
    _, good, chat = pair(
        serve, lambda r: Reply(status=429) if r.user == "big" else "from A", rate_limit_patience=30
    )
    answers = ask_all(chat, ["big", *(f"q{n}" for n in range(50))])
    assert answers[0].text == "from B" and {a.text for a in answers[1:]} == {"from A"} and good.calls == 1


def test_requests_a_minute_are_kept(serve):
    server = serve(lambda r: "4")
    clock = VirtualClock()
    begun = clock.time
    ask_all(model(server, clock=clock, max_requests_per_minute=60), [f"q{n}" for n in range(30)])
    assert 28.9 <= clock.time - begun <= 30


# Never more in flight than the cap.


@pytest.mark.parametrize("cap", [1, 5])
def test_the_cap_holds_on_every_path(serve, tmp_path, cap):
    def script(request):
        if "n" in request.body:
            return Reply(n=["a"] * request.body["n"], delay=0.002)
        if request.number % 7 == 0:
            return Reply(status=random.choice([500, 429]), headers={"retry-after-ms": "1"}, delay=0.002)
        return Reply('{"score": 1}', delay=0.002)

    server = serve(script)
    chat = model(server, max_concurrency=cap, supports_n=True)
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}}

    async def everything():
        with CallLedger(tmp_path / "calls.jsonl") as ledger:
            await asyncio.gather(
                *(chat.acomplete(f"g{n}", ledger=ledger) for n in range(30)),
                *(chat.acomplete(f"j{n}", ledger=ledger, role="judge", schema=schema) for n in range(30)),
                *(chat.acandidates(f"c{n}", 3, ledger=ledger) for n in range(10)),
            )

    aio.run(everything())
    assert server.peak <= cap and (cap == 1 or server.peak > 1)


def test_the_connection_pool_does_not_cap_what_is_in_flight(serve):
    gate = threading.Barrier(150)

    def script(request):
        gate.wait(30)
        return "4"

    server = serve(script)
    assert len(ask_all(model(server, max_concurrency=150), [f"q{n}" for n in range(150)])) == 150
    assert server.peak == 150


# Failover.


def pair(serve, first, **options):
    bad, good = serve(first), serve(lambda r: "from B")
    fallback = {"model": "b", "base_url": good.base_url}
    return bad, good, model(bad, "a", fallbacks=[fallback], **options)


@pytest.mark.parametrize(
    "reply, kind, asked",
    [
        (Reply(status=401), "auth", 1),
        (Reply(status=403), "auth", 1),
        (Reply(status=404), "not_found", 1),
        (Reply(status=402), "quota", 1),
        (Reply(status=429, error={"message": "x", "code": "insufficient_quota"}), "quota", 1),
        (Reply(status=500), "server", 3),
        (DROPPED, "connection", 3),
        (Reply(raw=b"<html>"), "malformed", 3),
    ],
)
def test_an_endpoint_that_fails_hands_over_to_the_next(serve, reply, kind, asked):
    bad, good, chat = pair(serve, lambda r: reply, max_retries=2)
    answer = chat.complete("q")
    assert (answer.text, answer.model, answer.endpoint) == ("from B", "b", good.base_url[7:-3])
    assert [(a.model, a.kind) for a in answer.attempts] == [("a", kind)] * asked
    assert (bad.calls, good.calls) == (asked, 1)


@pytest.mark.parametrize(
    "reply, kind",
    [
        (Reply(status=400, error="no"), "bad_request"),
        (Reply(status=422, error="no"), "bad_request"),
        (Reply(status=400, error="maximum context length"), "context_length"),
        (Reply(None, refusal="no"), "refusal"),
    ],
)
def test_the_callers_own_fault_is_not_passed_on(serve, reply, kind):
    _, good, chat = pair(serve, lambda r: reply)
    with pytest.raises(ModelError) as error:
        chat.complete("q")
    assert (error.value.kind, error.value.stops_run, good.calls) == (kind, False, 0)


def test_a_dead_endpoint_is_left_alone_then_probed_by_one_call(serve):
    clock, key_works = VirtualClock(), threading.Event()
    bad, _, chat = pair(
        serve, lambda r: "from A" if key_works.is_set() else Reply(status=401), clock=clock, max_concurrency=8
    )
    answers = ask_all(chat, [f"q{n}" for n in range(50)])
    assert {a.text for a in answers} == {"from B"} and bad.calls <= 8
    asked = bad.calls
    ask_all(chat, [f"r{n}" for n in range(20)])
    assert bad.calls == asked  # left alone
    clock.time += 31
    assert {a.text for a in ask_all(chat, [f"s{n}" for n in range(20)])} == {"from B"}
    assert bad.calls == asked + 1  # probed
    clock.time += 31
    ask_all(chat, ["t"])
    assert bad.calls == asked + 1  # twice as long now
    clock.time += 31
    key_works.set()
    assert chat.complete("u").text == "from A"
    assert {a.text for a in ask_all(chat, [f"v{n}" for n in range(20)])} == {"from A"}


def test_two_keys_at_one_endpoint_are_counted_each(serve, monkeypatch):
    for name in ("KEY_A", "KEY_B"):
        monkeypatch.setenv(name, f"the-key-of-{name}")
    server = serve(lambda r: Reply(status=429 if "KEY_A" in str(r.headers) else 200, content="4"))
    second = {"model": "mock", "base_url": server.base_url, "api_key_env": "KEY_B"}
    chat = model(server, api_key_env="KEY_A", fallbacks=[second], rate_limit_patience=0)
    chat.complete("q")
    stats, place = chat.stats(), f"mock at {server.base_url[7:-3]}"
    assert list(stats["by_endpoint"]) == [place, f"{place} #2"]
    assert stats["limit"] == chat.max_concurrency - 4 and stats["rate_limited"] == 1
    assert "429" in stats["by_endpoint"][place]["left_alone"]


def test_a_server_down_is_soon_left_alone(serve):
    bad, good, chat = pair(serve, lambda r: Reply(status=503), max_concurrency=4)
    answers = ask_all(chat, [f"q{n}" for n in range(40)])
    assert {a.text for a in answers} == {"from B"} and bad.calls < 25 and good.calls == 40
    assert "503" in chat.stats()["by_endpoint"][f"a at {bad.base_url[7:-3]}"]["left_alone"]


def test_one_poisoned_row_closes_nothing_for_the_others(serve):
    _, good, chat = pair(serve, lambda r: Reply(status=500) if r.user == "poison" else "from A")
    answers = ask_all(chat, [f"q{n}" for n in range(20)] + ["poison"] + [f"r{n}" for n in range(20)])
    assert [a.text for a in answers].count("from B") == 1 and answers[20].text == "from B"
    assert chat.endpoints[0].breaker.kind is None and good.calls == 1


def test_endless_429_hands_over_too(serve):
    _, good, chat = pair(serve, lambda r: Reply(status=429), rate_limit_patience=60)
    assert {a.text for a in ask_all(chat, [f"q{n}" for n in range(30)])} == {"from B"}
    assert good.calls == 30


@pytest.mark.parametrize("statuses, kind", [((401, 401), "auth"), ((401, 404), "circuit_open")])
def test_when_every_endpoint_is_down_the_run_is_told_to_stop(serve, statuses, kind):
    first, second = (serve(lambda r, s=s: Reply(status=s)) for s in statuses)
    chat = model(first, "a", fallbacks=[{"model": "b", "base_url": second.base_url}])
    for _ in range(2):
        with pytest.raises(ModelError, match=r"a at .*; b at ") as error:
            chat.complete("q")
        assert (error.value.kind, error.value.stops_run) == (kind, True)
    assert first.calls == second.calls == 1


def test_a_lone_endpoint_that_is_down_is_given_its_retries_before_the_run_stops(serve):
    """And a second round of calls: until then it may be the prompts that it cannot answer."""
    server = serve(lambda r: Reply(status=500))
    errors = ask_all(model(server, max_retries=2), [f"q{n}" for n in range(32)])
    assert {len(e.attempts) for e in errors} == {3}
    assert [e.stops_run for e in errors].count(True) == 1
    (last,) = (e for e in errors if e.stops_run)
    assert last.kind == "circuit_open" and "status 500" in str(last)
    assert {e.kind for e in errors if not e.stops_run} == {"server"}


def test_endpoints_that_are_down_each_are_given_up_together(serve):
    first, second = serve(lambda r: Reply(status=500)), serve(lambda r: Reply(drop=True))
    chat = model(first, "a", fallbacks=[{"model": "b", "base_url": second.base_url}], max_retries=1)
    chat.endpoints[1] = model(second, "b", max_retries=1).endpoints[0]  # with the test's clock
    for n in range(200):
        with pytest.raises(ModelError) as error:
            chat.complete(f"q{n}")
        if error.value.stops_run:
            break
    assert 31 <= n < 199 and "a at " in str(error.value) and "b at " in str(error.value)


def test_prompts_that_are_never_answered_stop_no_others(serve):
    """As many as are in flight, and more; in a row."""
    server = serve(lambda r: Reply(status=500) if r.user.startswith("bad") else "4")
    prompts = [f"q{n}" for n in range(20)] + [f"bad{n}" for n in range(20)] + [f"r{n}" for n in range(20)]
    chat = model(server, max_retries=1, max_concurrency=8)

    async def a_few_at_once():
        ended = {}

        async def ask(prompt):
            try:
                ended[prompt] = (await chat.acomplete(prompt)).text
            except ModelError as error:
                ended[prompt] = error.kind, error.stops_run

        await aio.pool(prompts, ask, 8)
        return ended

    ended = aio.run(a_few_at_once())
    for prompt in prompts:
        assert ended[prompt] == (("server", False) if prompt.startswith("bad") else "4")


def test_a_lone_endpoint_that_comes_back_loses_no_row(serve):
    server = serve(fails_first(Reply(status=500)))
    answers = ask_all(model(server), [f"q{n}" for n in range(30)])
    assert [a.text for a in answers] == [f"to q{n}" for n in range(30)]


def test_an_endpoint_left_alone_is_the_last_resort_when_the_other_fails(serve):
    a_works = threading.Event()
    first = serve(lambda r: "from A" if a_works.is_set() else Reply(status=500))
    second = serve(lambda r: Reply(status=401) if a_works.is_set() else "from B")
    chat = model(first, "a", fallbacks=[{"model": "b", "base_url": second.base_url}], max_retries=1)
    assert {a.text for a in ask_all(chat, [f"q{n}" for n in range(30)])} == {"from B"}
    a_works.set()
    assert chat.complete("q").text == "from A"


def test_a_fallback_that_is_a_chat_model_shares_its_limits(serve):
    bad, good = serve(lambda r: Reply(status=401)), serve(lambda r: Reply("from B", delay=0.01))
    judge = model(good, "b", max_concurrency=2)
    chat = model(bad, "a", fallbacks=[judge])

    async def both():
        calls = [m.acomplete(f"{m.model}{n}") for n in range(10) for m in (judge, chat)]
        return await asyncio.gather(*calls)

    assert {a.text for a in aio.run(both())} == {"from B"} and good.peak <= 2
    assert chat.max_concurrency == 18


# The fault mix of a long run.


def test_three_hundred_calls_over_a_faulty_server_cost_exactly_the_injected_faults(serve, tmp_path):
    """2 % 500, 2 % 429 with Retry-After, 0.5 % drops; None, empty and cut answers, some without usage."""
    plan, chance = [None] * 300, random.Random(3)
    faults = {
        6: Reply(status=500),
        7: Reply(status=429, headers={"Retry-After": "1"}),
        2: DROPPED,
        3: Reply(None),
        4: Reply(""),
        1: Reply("cut", truncate_body=True),
    }
    for count, fault in faults.items():
        for n in chance.sample([n for n in range(300) if plan[n] is None], count):
            plan[n] = fault

    def script(request):
        n = int(request.user.split()[-1])
        if plan[n] is not None and request.nth == 0:
            return plan[n]
        return Reply(f"PID={n}", usage="absent" if n % 10 == 0 else "count")

    server = serve(script)
    chat = model(server, max_concurrency=16)
    injected = sum(faults)
    with CallLedger(tmp_path / "calls.jsonl") as ledger:
        answers = ask_all(chat, [f"problem {n}" for n in range(300)], ledger=ledger)
        assert [a.text for a in answers] == [f"PID={n}" for n in range(300)]
        assert server.calls == 300 + injected and server.peak <= 16
        totals = ledger.totals()
        assert totals["calls"] == 300 and sum(totals["failed"].values()) == injected
        assert totals["failed"] == {"server": 6, "rate_limit": 7, "connection": 3, "empty": 7}
        assert totals["unknown_usage"] == 30
        ask_all(chat, [f"problem {n}" for n in range(300)], ledger=ledger)
        assert server.calls == 300 + injected and ledger.totals()["cached"] == 300


# Interruption, loops, clients.


def test_an_interrupt_frees_places_and_reservations_at_once(serve, tmp_path):
    hold = threading.Event()
    server = serve(lambda r: "4" if r.user == "after" else (hold.wait(30), "late")[1])
    chat = model(server, max_concurrency=4)
    with CallLedger(tmp_path / "calls.jsonl", budget_calls=10) as ledger:

        async def scene():
            tasks = [asyncio.create_task(chat.acomplete(f"q{n}", ledger=ledger)) for n in range(9)]
            while server.calls < 4:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert chat.stats()["in_flight"] == chat.stats()["waiting"] == 0
            return await chat.acomplete("after", ledger=ledger)

        assert aio.run(scene()).text == "4"
        assert ledger.totals()["calls"] == 1 and ledger.budgets.in_flight.calls == 0 and not ledger._turns
    hold.set()
    assert server.calls == 5


def test_a_call_works_from_any_loop_and_from_none(serve):
    server = serve(lambda r: "4")
    chat = model(server)
    assert asyncio.run(chat.acomplete("from a loop of one's own")).text == "4"
    assert asyncio.run(chat.acandidates("from another", 2))[1].text == "4"
    assert chat.complete("from none").text == "4"

    async def blocking_in_a_running_loop():
        return chat.complete("as a cell does").text

    assert asyncio.run(blocking_in_a_running_loop()) == "4"
    aio.run(chat.aclose())
    assert chat.complete("after closing").text == "4"


def test_a_client_of_the_users_own_is_used_as_it_is(serve):
    import openai

    server = serve(fails_first(Reply(status=500)))
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key="own-key", default_headers={"x-team": "7"})
    chat = ChatModel.from_client(client, "mock", temperature=0.3, clock=VirtualClock())
    assert chat.complete("q").text == "to q" and server.calls == 2  # our retry, not the client's
    headers = {name.lower(): value for name, value in server.log[0].headers.items()}
    assert headers["x-team"] == "7" and headers["authorization"] == "Bearer own-key"
    with pytest.raises(TypeError, match="AsyncOpenAI"):
        ChatModel.from_client(openai.OpenAI(api_key="x"), "mock")
    with pytest.raises(TypeError, match="base_url"):
        ChatModel.from_client(client, "mock", base_url="http://localhost/v1")


def test_azure_is_asked_at_its_deployment(serve):
    import openai

    server = serve(lambda r: "4")
    azure = openai.AsyncAzureOpenAI(
        base_url=server.base_url + "/openai", api_key="azure-key", api_version="2024-10-21"
    )
    assert ChatModel.from_client(azure, "my-gpt").complete("2+2?").text == "4"
    assert "api-version=2024-10-21" in server.log[0].path
