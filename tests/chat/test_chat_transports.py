"""What differs between the transports; that they answer and fail alike is tested where asking is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from asking import model
from mock_server import Reply

from cotkit import aio
from cotkit.chat import ChatModel, ModelError, transports
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
