"""A key is found in no message, repr, attempt, record or output; objects show themselves shortly."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback

import pytest
from asking import model
from mock_server import Reply

from cotkit.chat import CallLedger, ModelError

KEY = "topsecret-Zx81"


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("MY_ENDPOINT_KEY", KEY)


@pytest.mark.parametrize(
    "reply",
    [
        lambda r: Reply(status=401, error=f"Incorrect API key provided: {r.headers['authorization']}"),
        lambda r: Reply(status=400, error={"message": f"bad {KEY}", "param": KEY, "code": KEY}),
        lambda r: Reply(status=500, raw=f"<html>{KEY}</html>".encode()),
        lambda r: Reply(status=429, error=f"slow down, {KEY}"),
        lambda r: Reply(raw=f'"{KEY}"'.encode()),
        lambda r: Reply(raw=f'{{"{KEY}": 1}}'.encode()),
        lambda r: Reply(raw=f'{{"error": "{KEY}"}}'.encode()),
        lambda r: Reply(None, refusal=f"not for {KEY}"),
    ],
)
def test_a_key_echoed_by_the_endpoint_appears_nowhere(serve, tmp_path, key, caplog, reply):
    caplog.set_level(logging.DEBUG)
    server = serve(reply)
    chat = model(server, api_key_env="MY_ENDPOINT_KEY", max_retries=1, rate_limit_patience=0)
    with CallLedger(tmp_path / "calls.jsonl") as ledger, pytest.raises(ModelError) as error:
        chat.complete("q", ledger=ledger)
    assert server.log[0].headers["authorization"] == f"Bearer {KEY}"
    shown = [
        str(error.value), repr(error.value), str(error.value.attempts), repr(chat), chat._repr_html_(),
        str(chat.describe()), str(chat.stats()), str(vars(chat.endpoints[0])), caplog.text,
        "".join(traceback.format_exception(error.value)),
        *(path.read_text("latin1") for path in tmp_path.iterdir()),
    ]  # fmt: skip
    assert not [text for text in shown if KEY in text]


SCRIPT = """
import sys
from cotkit.chat import ChatModel
chat = ChatModel("m", base_url=sys.argv[1], api_key_env="MY_ENDPOINT_KEY")
print(chat.complete("2+2?").text)
print(chat, chat.describe())
chat = ChatModel("n", base_url=sys.argv[1], api_key_env="MY_ENDPOINT_KEY")
chat.complete("2+2?")
chat.complete("boom")
"""


def test_a_program_ends_without_warnings_and_without_the_key(serve):
    server = serve(lambda r: Reply(status=401, error=f"bad key {KEY}") if r.user == "boom" else "4")
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "default", "-c", SCRIPT, server.base_url],
        env={**os.environ, "MY_ENDPOINT_KEY": KEY}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("4\nChatModel(m at 127.0.0.1") and done.returncode == 1
    assert "ModelError: no endpoint of n is usable" in done.stderr
    assert KEY not in done.stdout + done.stderr
    assert "Unclosed" not in done.stderr and "never" not in done.stderr


def test_a_model_shows_itself_shortly(serve, key):
    server = serve(lambda r: Reply(status=404))
    chat = model(server, "a<b", temperature=0.5, fallbacks=[{"model": "b", "base_url": server.base_url}])
    place = server.base_url[7:-3]
    assert repr(chat) == f"ChatModel(a<b at {place} -> b at {place}, temperature=0.5, max_concurrency=32)"
    with pytest.raises(ModelError):
        chat.complete("q")
    page = chat._repr_html_()
    assert "a&lt;b" in page and "left alone: status 404" in page and len(page) < 2000


def test_describe_holds_what_answers_depend_on_and_no_runtime_knobs(serve):
    server = serve(lambda r: "4")
    chat = model(server, temperature=0.5, extra_body={"top_k": 3}, timeout=9, max_concurrency=2)
    endpoint = server.base_url.removeprefix("http://")
    parameters = {"temperature": 0.5, "top_k": 3}
    assert chat.describe() == {
        "model": "mock",
        "endpoints": [{"model": "mock", "endpoint": endpoint, "parameters": parameters}],
    }
