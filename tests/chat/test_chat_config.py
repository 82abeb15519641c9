"""Options are checked before anything is paid; keys are given by name and are never repeated."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import inspect
import os
import subprocess
import sys
import time
from email.utils import formatdate

import pytest

from cotkit.chat import ChatModel, load_models
from cotkit.chat.config import EndpointOptions
from cotkit.chat.errors import classify, retry_after_seconds, scrub

LOCAL = {"base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize(
    "options, said",
    [
        ({"model": ""}, "model"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": 2.5}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
        ({"max_requests_per_minute": 0}, "max_requests_per_minute"),
        ({"max_retries": -1}, "max_retries"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": "7"}, "seed"),
        ({"seed": 10**400}, "seed"),
        ({"temperature": 10**400}, "temperature"),
        ({"stop": 3}, "stop"),
        ({"extra_body": {"messages": []}}, "messages"),
        ({"extra_body": [1]}, "extra_body"),
        ({"extra_body": {"x": object()}}, r"extra_body\['x'\] cannot be sent as JSON"),
        ({"extra_body": {"seed": "x"}}, "seed in extra_body"),
        ({"structured": "yaml"}, "structured"),
        ({"supports_n": "maybe"}, "supports_n"),
        ({"price": 3}, "price is a pair"),
        ({"price": (1, -1)}, "price"),
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"base_url": "http://host\\x/v1"}, "base_url"),
        ({"base_url": "http://a b/v1"}, "base_url"),
        ({"base_url": "http://h/v 1"}, "base_url"),
        ({"base_url": "http://h/v\n1"}, "base_url"),
        ({"base_url": "http://h/v\u00a01"}, "base_url"),
        ({"base_url": f"http://{'a' * 64}.example/v1"}, "base_url"),
        ({"base_url": "http://h/v1/chat/completions"}, "chat/completions"),
        ({"fallbacks": ["gpt-4o"]}, "fallback"),
        ({"fallbacks": [{"model": "b", "modle": 1}]}, "did you mean model"),
        ({"fallbacks": [{"base_url": "http://localhost/v1"}]}, "model"),
    ],
)
def test_a_wrong_option_is_refused_at_construction(options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        ChatModel(**{"model": "m", **LOCAL, **options})


@pytest.mark.parametrize("sampling", [{"temprature": 1}, {"n": 2}, {"top_p": "x"}, {"extra_body": {"n": 2}}])
def test_a_wrong_sampling_parameter_is_refused_before_anything_is_asked(sampling):
    with pytest.raises((ValueError, TypeError)):
        ChatModel("m", **LOCAL).complete("hi", **sampling)


@pytest.mark.parametrize("before, after", [("", "\n"), (" ", ""), ("\t", " \r\n"), ("\u00a0", "/ ")])
def test_space_around_a_base_url_is_not_a_part_of_it(before, after):
    """As from a file, or a variable that was pasted."""
    url = "http://127.0.0.1:1/v1"
    chat = ChatModel("m", base_url=f"{before}{url}{after}")
    assert chat.endpoints[0].base_url == url and chat.describe() == ChatModel("m", base_url=url).describe()


CIRCLE = []
CIRCLE.append(CIRCLE)
NO_JSON = [
    ({"x": datetime.date(2026, 1, 2)}, r"extra_body\['x'\] cannot be sent as JSON"),
    ({"a": 1, "x": {"y": [decimal.Decimal("0.1")]}}, r"extra_body\['x'\] cannot be sent as JSON"),
    ({"x": float("nan")}, r"extra_body\['x'\] cannot be sent as JSON"),
    ({"x": {1, 2}}, r"extra_body\['x'\] cannot be sent as JSON"),
    ({"x": b"1"}, r"extra_body\['x'\] cannot be sent as JSON"),
    ({"x": CIRCLE}, r"extra_body\['x'\] cannot be sent as JSON"),
    ({None: 1}, "extra_body has the field None"),
    ({"x": {None: 1}}, r"extra_body\['x'\] has the field None"),
    ({"x": [{"y": {2: 1}}]}, r"extra_body\['x'\]\[0\]\['y'\] has the field 2"),
]


@pytest.mark.parametrize("extra_body, said", NO_JSON)
def test_further_fields_that_are_no_json_are_refused_by_their_name_before_a_call(serve, extra_body, said):
    """In the options and in a call, over both transports: the encoders differ in what they let through."""
    server = serve(lambda r: "4")
    with pytest.raises(TypeError, match=said):
        ChatModel("m", **LOCAL, extra_body=extra_body)
    for transport in ("openai", "aiohttp"):
        with pytest.raises(TypeError, match=said):
            ChatModel("m", base_url=server.base_url, transport=transport).complete("q", extra_body=extra_body)
    assert server.calls == 0


@pytest.mark.parametrize("messages", [[], [{"content": "x"}], [{"role": "user"}]])
def test_messages_are_a_text_or_a_list_of_roles_and_contents(messages):
    with pytest.raises(ValueError, match="role"):
        ChatModel("m", **LOCAL).complete(messages)


@pytest.mark.parametrize(
    "options, secret",
    [
        ({"api_key_env": "sk-proj-SECRET123456"}, "SECRET"),
        ({"base_url": "https://user:SECRET@host/v1", "api_key_env": ""}, "SECRET"),
        ({"base_url": "https://host/v1?api-key=SECRET", "api_key_env": ""}, "SECRET"),
        ({"base_url": "SECRET"}, "SECRET"),
        ({"fallbacks": [{"model": "b", "api_key": "SECRET"}]}, "SECRET"),
    ],
)
def test_what_could_be_a_key_is_refused_and_not_repeated(options, secret):
    with pytest.raises((ValueError, TypeError)) as refused:
        ChatModel("m", **{**LOCAL, **options})
    assert secret not in str(refused.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        ChatModel("gpt-4o-mini")
    with pytest.raises(ValueError, match="MY_KEY"):
        ChatModel("m", **LOCAL, api_key_env="MY_KEY")
    with pytest.raises(ValueError, match="api_key_env"):
        ChatModel("m", base_url="https://api.example.com/v1")
    ChatModel("m", base_url="https://api.example.com/v1", api_key_env="")
    monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
    assert ChatModel("gpt-4o-mini").endpoints[0].label == "api.openai.com"


@pytest.mark.parametrize("key", ["sk-SECRET…def", "sk-SECRET\ndef", "sk–SECRET", "sk-SECRET\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_by_its_variable(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(ValueError, match=r"MY_KEY .* holds a character that no key has") as refused:
        ChatModel("m", **LOCAL, api_key_env="MY_KEY")
    assert "SECRET" not in str(refused.value)


def test_a_key_for_openai_is_not_sent_to_a_server_nearby(monkeypatch, serve):
    monkeypatch.setenv("OPENAI_API_KEY", "openai-key")
    monkeypatch.setenv("OPENAI_ORG_ID", "openai-org")
    server = serve(lambda r: "4")
    ChatModel("m", base_url=server.base_url).complete("2+2?")
    assert "openai" not in str({k: v for k, v in server.log[0].headers.items() if k != "user-agent"})


YAML = """
roles:
  generator:
    - {model: a, base_url: http://localhost:1/v1, temperature: 0.7, price: [1, 2]}
    - {model: b, base_url: http://localhost:2/v1, max_concurrency: 4}
  judge: {model: c, base_url: http://localhost:3/v1, name: strict judge}
"""


def write(tmp_path, text):
    path = tmp_path / "models.yaml"
    path.write_text(text)
    return path


def test_a_models_file_gives_each_role_its_endpoints_in_order(tmp_path):
    models = load_models(write(tmp_path, YAML))
    assert [e.options.model for e in models["generator"].endpoints] == ["a", "b"]
    assert models["generator"].endpoints[1].options.temperature == 0.7  # taken over from the first
    assert models["generator"].max_concurrency == 20
    assert models["judge"].name == "strict judge"


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "roles: {judge: {modle: c}}",
            "role 'judge', endpoint 1: unknown option 'modle': did you mean model",
        ),
        ("roles: {judge: [{model: c, base_url: http://h/v1, max_concurrency: many}]}", "max_concurrency"),
        ("roles: {judge: {model: c, api_key: '${OPENAI_API_KEY}'}}", "api_key_env: NAME"),
        ("roles: {judge: {model: c, api_key_env: '${OPENAI_API_KEY}'}}", "api_key_env: NAME"),
        ("roles: {judge: {model: c, api_key: SECRET}}", "environment variable"),
        ("roles: {judge: {model: c, api_key_env: sk-SECRET-123}}", "NAME of an environment variable"),
        ("roles: {judge: []}", "role 'judge'"),
        ("roles: {judge: [3]}", "endpoint 1"),
        ("roles: {judge: {base_url: http://h/v1}}", "needs a model"),
        ("judge: {model: c}", "roles:"),
        ("roles: {}", "roles:"),
        ("roles: {judge: {model: c}", "not valid YAML"),
    ],
)
def test_a_wrong_models_file_is_refused_naming_the_place(tmp_path, text, said):
    with pytest.raises(ValueError) as refused:
        load_models(write(tmp_path, text))
    assert said in str(refused.value) and "models.yaml" in str(refused.value)
    assert "SECRET" not in str(refused.value)


TOO_LARGE = {  # as OpenAI says it: no waiting helps
    "message": "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, "
    "Requested 41209. The input or output tokens must be reduced in order to run successfully.",
    "type": "tokens",
    "code": "rate_limit_exceeded",
}
OPENAI = {"message": "m", "type": "t", "param": None, "code": None}


@pytest.mark.parametrize(
    "status, body, kind",
    [
        (400, {"message": "bad"}, "bad_request"),
        (422, {"detail": [{"msg": "field required"}]}, "bad_request"),
        (400, {"message": "maximum context length is 4096 tokens"}, "context_length"),
        (400, {"code": "context_length_exceeded", "message": "too long"}, "context_length"),
        (400, {"type": "exceed_context_size_error", "message": "request exceeds"}, "context_length"),
        (413, "too large", "context_length"),
        (400, {"message": "Your credit balance is too low"}, "quota"),
        (401, OPENAI, "auth"),
        (403, OPENAI, "auth"),
        (402, {"message": "Insufficient Balance"}, "quota"),
        (404, OPENAI, "not_found"),
        (408, "", "server"),
        (409, "", "server"),
        (429, {"message": "anything at all"}, "rate_limit"),
        (429, {"code": "insufficient_quota", "message": "You exceeded your current quota"}, "quota"),
        (429, {"message": "billing hard limit has been reached"}, "quota"),
        (429, {"message": "quota per minute exceeded, check plan and billing, retry in 5s"}, "rate_limit"),
        (429, TOO_LARGE, "context_length"),
        (429, {"message": "Rate limit reached for gpt-4o on tokens per min (TPM)"}, "rate_limit"),
        (429, "", "rate_limit"),
        (500, "<html>", "server"),
        (503, None, "server"),
        (529, {"message": "overloaded"}, "server"),
        (418, "teapot", "bad_request"),
    ],
)
def test_the_status_decides_the_kind(status, body, kind):
    assert classify(status, {}, body).kind == kind


STRANGE = [None, True, 7, 1.5, "x", [], [[]], {}, {"x": 1}, [{"msg": "a"}, {"msg": 7}], {"message": {}}]
STRANGE += [{"loc": "body", "msg": "x"}, [{"loc": [["a"], None], "msg": "x"}], {"raw": {"error": []}}]


@pytest.mark.parametrize("field", ["error", "errors", "message", "detail", "code", "param", "metadata"])
def test_an_error_is_a_failure_whatever_its_fields_hold(field):
    for strange in STRANGE:
        for body in ({field: strange}, {"error": {field: strange}}, [{field: strange}], strange):
            failure = classify(400, {}, body, {"messages": [{"role": "user", "content": strange}]})
            assert failure.kind == "bad_request" and failure.message.startswith("status 400: ")


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers, seconds):
    assert retry_after_seconds(headers) == seconds


def test_retry_after_as_a_date_is_read_by_the_endpoints_clock_where_it_says_its_time():
    dates = {"retry-after": formatdate(1e9 + 60, usegmt=True), "date": formatdate(1e9, usegmt=True)}
    assert retry_after_seconds(dates) == 60


def test_retry_after_as_a_date_is_a_wait_from_now():
    wait = retry_after_seconds({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert 55 < wait <= 60


def test_secrets_are_scrubbed_and_long_messages_cut():
    assert scrub("bad key topsecret", ("topsecret",)) == "bad key [key]"
    assert "abcdef" not in scrub("Incorrect API key provided: sk-abcdef12345 and Bearer abcdef12345")
    assert scrub("ask the task-force") == "ask the task-force"
    assert len(scrub("x" * 9000)) < 500


def test_importing_the_room_loads_no_client():
    code = (
        "import sys, cotkit.chat; cotkit.chat.ChatModel('m', base_url='http://localhost:1/v1'); "
        "print(sorted({'openai', 'aiohttp', 'httpx', 'genai_prices', 'jsonschema'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]", done.stderr


def test_shift_tab_shows_every_option_and_a_misspelt_one_is_named_with_its_neighbour():
    shown = inspect.signature(ChatModel).parameters
    assert {field.name for field in dataclasses.fields(EndpointOptions)} < shown.keys()
    assert shown["timeout"].default == 120.0 and "options" not in shown
    with pytest.raises(TypeError, match="unknown option 'temprature': did you mean temperature"):
        ChatModel("m", base_url="http://127.0.0.1:9/v1", temprature=0.5)
