"""What differs between the transports; that they answer and fail alike is tested where asking is."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time

import pytest
from asking import model
from mock_server import Reply

from cotkit import aio
from cotkit.chat import CallLedger, ChatModel, ModelError, transports
from cotkit.chat.config import endpoint_options
from cotkit.chat.errors import Failure
from cotkit.chat.transports import _proxy_for

BOTH = pytest.mark.parametrize("way", ["openai", "aiohttp"])


@BOTH
def test_the_key_is_sent_as_a_bearer_token_and_kept_over_one_connection(serve, monkeypatch, way):
    monkeypatch.setenv("SOME_KEY", "sk-test-1234567890abcdef")
    server = serve(lambda request: Reply("4"))
    chat = model(server, api_key_env="SOME_KEY", transport=way)
    assert [chat.complete(f"2 + {i}?").text for i in range(3)] == ["4"] * 3
    sent = {name.lower(): value for name, value in server.log[0].headers.items()}
    assert sent["authorization"] == "Bearer sk-test-1234567890abcdef"
    assert sent["content-type"] == "application/json"


@BOTH
def test_no_key_of_netrc_and_no_organisation_reaches_a_strange_endpoint(serve, monkeypatch, tmp_path, way):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2-secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    server = serve(lambda request: Reply("4"))
    assert model(server, transport=way).complete("2 + 2?").text == "4"
    sent = str(server.log[0].headers)
    assert "hunter2" not in sent and "org-mine" not in sent and "Basic" not in sent


def test_a_proxy_is_taken_from_the_environment_but_never_for_this_machine(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "direct.example")
    assert _proxy_for("https://api.example/v1", "api.example") == "http://proxy.example:3128"
    assert _proxy_for("https://direct.example/v1", "direct.example") is None
    assert _proxy_for("https://127.0.0.1:8000/v1", "127.0.0.1") is None


@BOTH
def test_closing_and_asking_again_opens_anew(serve, way):
    chat = model(serve(lambda request: Reply("4")), transport=way)
    assert chat.complete("a").text == "4"
    aio.run(chat.aclose())
    aio.run(chat.aclose())
    assert chat.complete("b").text == "4"


@BOTH
def test_an_answer_without_end_is_not_read_to_its_end(serve, monkeypatch, way):
    monkeypatch.setattr(transports, "MOST_BYTES", 1 << 20)
    server = serve(lambda request: Reply("a" * (1 << 18 if request.user == "short" else 1 << 21)))
    chat = model(server, transport=way, max_retries=1)
    with pytest.raises(ModelError, match="more than 1 MB: the rest was not read") as caught:
        chat.complete("long")
    assert [a.kind for a in caught.value.attempts] == ["malformed"] * 2 and server.calls == 2
    assert len(chat.complete("short").text) == 1 << 18


CHOICE = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
BODY = json.dumps({"choices": [CHOICE]}).encode()
ZIPPED = gzip.compress(BODY)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PLAIN = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


class Wire:
    """A server that answers each request with bytes, and keeps what it was sent.

    late: sent a moment after the first answer of each connection, which `said_too_much` then counts.
    """

    def __init__(self, answer, late=b""):
        wire = self
        self.requests: list[bytes] = []
        self.connections = 0
        self.said_too_much = threading.Semaphore(0)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                wire.connections += 1
                spare = late
                while head := b"".join(itertools.takewhile(lambda line: line != b"\r\n", self.rfile)):
                    size = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
                    content = self.rfile.read(int(size[1])) if size else b""
                    wire.requests.append(head + b"\r\n" + content)
                    reply = answer(head.decode())
                    self.wfile.write(reply)
                    if spare:
                        time.sleep(0.03)
                        self.wfile.write(spare)
                        spare = b""
                        wire.said_too_much.release()
                    size = re.search(rb"Content-Length: (\d+)", reply)
                    whole = size and reply.endswith(b"\r\n\r\n" + reply[len(reply) - int(size[1]) :])
                    if not (whole or reply.endswith(b"0\r\n\r\n")) or b"close" in reply:
                        return

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        return self.address + "/v1"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._server.shutdown()
        self._server.server_close()


WAYS_TO_ANSWER = {
    "chunked": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + BODY[:5] + b"\r\n"
    b"%x\r\n" % len(BODY[5:]) + BODY[5:] + b"\r\n0\r\n\r\n",
    "gzip": HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED) + ZIPPED,
    "to the end of the connection": HEAD + b"Connection: close\r\n\r\n" + BODY,
    "as plain text": PLAIN.replace(b"application/json", b"text/plain; charset=utf-8"),
    "as a stream": PLAIN.replace(b"application/json", b"text/event-stream"),
    "without a type": PLAIN.replace(b"Content-Type: application/json\r\n", b""),
    "after interim answers": b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + PLAIN,
}


@BOTH
@pytest.mark.parametrize("how", WAYS_TO_ANSWER)
def test_an_answer_may_come_in_any_of_http_s_ways(way, how):
    with Wire(lambda head: WAYS_TO_ANSWER[how]) as wire:
        chat = model(wire, transport=way, max_retries=0)
        assert [chat.complete(f"2 + {i}?").text for i in range(3)] == ["4"] * 3
    assert len(wire.requests) == 3
    assert wire.connections == (3 if "end" in how else 1)


def _moved(status: int, to: str) -> bytes:
    return b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, to.encode())


@BOTH
@pytest.mark.parametrize(("status", "verb"), [(303, "GET"), (307, "POST"), (308, "POST")])
def test_a_redirect_is_followed_without_asking_again(way, status, verb):
    """Modal's gateway sends a long generation's caller on with 303; load balancers answer 307 and 308."""
    with Wire(lambda head: PLAIN if "/later" in head else _moved(status, "/later?id=7")) as wire:
        assert model(wire, transport=way, max_retries=0).complete("2 + 2?").text == "4"
    first, second = wire.requests
    assert second.startswith(f"{verb} /later?id=7 ".encode())
    sent, again = (request.partition(b"\r\n\r\n")[2] for request in (first, second))
    assert again == (sent if verb == "POST" else b"")


@BOTH
@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_key_goes_with_a_redirect_to_the_same_host_only(monkeypatch, way, elsewhere):
    monkeypatch.setenv("SOME_KEY", "sk-test-1234567890abcdef")
    with Wire(lambda head: PLAIN) as other:
        moved = _moved(307, (other.address if elsewhere else "") + "/later")
        with Wire(lambda head: PLAIN if "/later" in head else moved) as wire:
            chat = model(wire, transport=way, max_retries=0, api_key_env="SOME_KEY")
            assert chat.complete("2 + 2?").text == "4"
    last = (other if elsewhere else wire).requests[-1]
    assert b"/later" in last and (b"sk-test" in last) is not elsewhere


@BOTH
def test_redirects_without_end_and_to_nowhere_are_failures(way):
    for to in ("/again", "ftp://nowhere:99999999/"):
        with Wire(lambda head, to=to: _moved(307, to)) as wire, pytest.raises(ModelError):
            model(wire, transport=way, max_retries=0).complete("2 + 2?")
        assert len(wire.requests) <= 30


@BOTH
@pytest.mark.parametrize("to", ["http://[::1/x", "http://a\uff0fb/", "http://u:p@127.0.0.1:1/"])
def test_a_redirect_to_what_is_no_address_is_a_failure(way, to):
    moved = b"HTTP/1.1 307 Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % to.encode()
    with Wire(lambda head: moved) as wire, pytest.raises(ModelError) as caught:
        model(wire, transport=way, max_retries=0).complete("2 + 2?")
    assert caught.value.kind in ("connection", "malformed")


def test_the_key_goes_to_the_same_origin_however_it_is_written(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-1234567890abcdef")
    with Wire(lambda head: PLAIN if "/later" in head else moved) as wire:
        port = wire.address.rpartition(":")[2]
        moved = _moved(307, f"http://localhost:{port}/later")
        chat = ChatModel(
            "m", base_url=f"http://LOCALHOST:{port}/v1", transport="aiohttp", api_key_env="SOME_KEY"
        )
        assert chat.complete("2 + 2?").text == "4"
    assert b"sk-test" in wire.requests[-1]


@pytest.mark.parametrize(
    "to, keeps_the_key",
    [
        ("https://api.example/v1/chat/completions", True),
        ("https://api.example:8443/v1/chat/completions", False),
        ("https://other.example/v1/chat/completions", False),
    ],
)
def test_the_key_goes_from_http_to_https_of_the_same_host(monkeypatch, to, keeps_the_key):
    """As in the openai client. It has gone in the clear already."""
    seen = []

    async def by_session(self, method, url, headers, content=None):
        seen.append(headers)
        return 200, {}, b"{}"

    async def follow():
        options = endpoint_options({"model": "m", "base_url": "http://api.example/v1", "api_key_env": ""})
        transport = transports.AiohttpTransport(options, "http://api.example/v1", "api.example", "the-key")
        try:
            await transport._follow(308, to, b"{}")
        finally:
            await transport.close()

    monkeypatch.setattr(transports.AiohttpTransport, "_by_session", by_session)
    aio.run(follow())
    assert ("Authorization" in seen[0]) is keeps_the_key


def test_an_answer_that_has_not_changed_is_not_followed():
    unchanged = b"HTTP/1.1 304 Not Modified\r\nLocation: /later\r\n\r\n"
    with Wire(lambda head: unchanged) as wire, pytest.raises(ModelError):
        model(wire, transport="aiohttp", max_retries=0).complete("2 + 2?")
    assert len(wire.requests) == 1


def _answered(text: str) -> bytes:
    body = json.dumps({"choices": [CHOICE | {"message": {"role": "assistant", "content": text}}]}).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_an_answer_that_nobody_asked_for_never_shifts_the_others(tmp_path):
    """The connection it came on is given up, so that no answer is taken for the next question's."""
    answer = lambda head: _answered(f"answer {len(wire.requests) - 1}")  # noqa: E731
    with Wire(answer, late=_answered("nobody's")) as wire:
        chat = model(wire, transport="aiohttp", max_retries=2)
        with CallLedger(tmp_path / "calls.jsonl") as ledger:
            for number in range(4):
                assert chat.complete(f"question {number}", ledger=ledger).text == f"answer {number}"
                assert wire.said_too_much.acquire(timeout=20)
                aio.run(asyncio.sleep(0.05))
    assert wire.connections == 4


def test_a_server_that_switches_protocols_is_no_endpoint():
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    with Wire(lambda head: switched) as wire, pytest.raises(ModelError) as caught:
        model(wire, transport="aiohttp", max_retries=0, timeout=20).complete("2 + 2?")
    assert caught.value.kind == "malformed"


def test_a_connection_whose_request_was_not_read_is_not_used_again():
    """Such as by a server that refuses a body by its size."""
    refused = b"HTTP/1.1 413 Too Large\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            first, _ = listener.accept()
            first.recv(100)
            first.sendall(refused)  # and reads no more
            second, _ = listener.accept()
            second.recv(100_000)
            second.sendall(PLAIN)
            second.close()
            first.close()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        chat = ChatModel(
            "m",
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1",
            transport="aiohttp",
            timeout=5,
            max_retries=0,
        )
        with pytest.raises(ModelError, match="413"):
            chat.complete("x" * 30_000_000)
        assert chat.complete("2 + 2?").text == "4"
        server.join(10)


def test_what_no_header_can_carry_is_refused_by_its_variable(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1234567890abcdef")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-a\r\nX-Evil: 1")

    async def opened():
        options = endpoint_options({"model": "m"})
        transports.AiohttpTransport(options, "https://api.openai.com/v1", "api.openai.com", "")

    with pytest.raises(Failure, match="OPENAI_ORG_ID holds what no header can carry"):
        aio.run(opened())


BROKEN = {
    "no http": (b"SSH-2.0-OpenSSH_9.6\r\n", "connection"),
    "half a head": (HEAD, "connection"),
    "half a body": (HEAD + b"Content-Length: 9\r\n\r\n{", "connection"),
    "a broken chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "connection"),
    "nothing": (b"", "connection"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_http_is_a_failure_of_the_connection_and_asked_again(what):
    broken, kind = BROKEN[what]
    with Wire(lambda head: broken if len(wire.requests) == 1 else PLAIN) as wire:
        done = model(wire, transport="aiohttp", max_retries=1).complete("2 + 2?")
    assert done.text == "4" and [attempt.kind for attempt in done.attempts] == [kind]


def test_the_thin_transport_goes_through_a_proxy(monkeypatch):
    with Wire(lambda head: PLAIN) as proxy:
        monkeypatch.setattr(transports, "_proxy_for", lambda base_url, host: proxy.address)
        chat = ChatModel("m", base_url="http://api.example/v1", api_key_env="", transport="aiohttp")
        assert chat.complete("2 + 2?").text == "4"
    assert proxy.requests[0].startswith(b"POST http://api.example/v1/chat/completions HTTP/1.1")


def test_the_thin_transport_waits_no_longer_than_the_timeout_says():
    held = threading.Event()

    def answer(head: str) -> bytes:
        held.wait(30)
        return PLAIN

    with Wire(answer) as wire:
        chat = model(wire, transport="aiohttp", max_retries=0, timeout=2)
        with pytest.raises(ModelError, match=r"no answer within 2 s"):
            chat.complete("2 + 2?")
        held.set()
        assert chat.complete("2 + 3?").text == "4"
    assert wire.connections == 2  # an answer that came too late is nobody else's


def test_the_thin_transport_never_loads_the_openai_client(serve):
    server = serve(lambda request: Reply("4"))
    program = (
        "import sys, cotkit\n"
        f"chat = cotkit.ChatModel('mock', base_url={server.base_url!r}, transport='aiohttp')\n"
        "assert chat.complete('2 + 2?').text == '4'\n"
        "assert 'openai' not in sys.modules and 'aiohttp' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("wrong", ["httpx", "", None])
def test_an_unknown_transport_is_refused_before_any_call(wrong):
    with pytest.raises(ValueError, match="transport must be openai or aiohttp"):
        ChatModel("m", base_url="http://127.0.0.1:1/v1", transport=wrong)
