"""What servers of many makes say in their own words: each text is one that a vendor or an engine sends."""

from __future__ import annotations

import json

import pytest
from asking import ask_all, model
from mock_server import Reply

from cotkit import aio
from cotkit.chat import CallLedger, ModelError
from cotkit.chat.dialect import Call


def said(status, error, **reply):
    return Reply(status=status, raw=json.dumps(error).encode(), **reply)


def failure_of(serve, reply, **options):
    """The error of a call that is answered so for ever, and how many requests it took."""
    server = serve(lambda r: reply)
    with pytest.raises(ModelError) as caught:
        model(server, **options).complete("What is 2 + 2?")
    return caught.value, server.calls


def wrapped(raw):
    """As OpenRouter hands on what a provider said."""
    return {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": raw, "provider_name": "P"},
        }
    }


FLAGGED = {
    "openrouter": (
        403,
        {
            "error": {
                "message": "anthropic/claude requires moderation on OpenRouter. Your input was flagged for "
                '"violence". No credits were charged.',
                "code": 403,
                "metadata": {"reasons": ["violence"], "flagged_input": "..."},
            }
        },
    ),
    "xai": (
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO",
        },
    ),
    "azure": (
        400,
        {
            "error": {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
                "management policy. Please modify your prompt and retry.",
                "param": "prompt",
                "code": "content_filter",
            }
        },
    ),
    "deepseek": (400, {"error": {"message": "Content Exists Risk", "code": "invalid_request_error"}}),
    "dashscope": (
        400,
        {"error": {"code": "data_inspection_failed", "message": "Input data may contain what it must not."}},
    ),
    "openai": (
        400,
        {"error": {"message": "Invalid prompt: your prompt was flagged as potentially violating a policy."}},
    ),
    "zhipu": (
        400,
        {"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}},
    ),
}


@pytest.mark.parametrize("who", FLAGGED)
def test_a_prompt_that_is_flagged_is_refused_alone_and_the_endpoint_stays_in_use(serve, who):
    """Nor is it passed on: the next endpoint would answer it, and all that come after it."""
    server = serve(lambda r: said(*FLAGGED[who]) if r.user == "bad" else "from A")
    other = serve(lambda r: "from B")
    chat = model(server, fallbacks=[{"model": "b", "base_url": other.base_url}])
    first, bad, last = ask_all(chat, ["first", "bad", "last"])
    assert (bad.kind, bad.stops_run, len(bad.attempts)) == ("refusal", False, 1)
    assert first.text == last.text == "from A" and other.calls == 0


@pytest.mark.parametrize(
    "status, message",
    [
        (401, "Your input was flagged for violence"),
        (403, "Your account has been disabled for violating our content policy"),
        (403, "Your request was blocked: the organization is suspended, content policy"),
        (403, "Country, region, or territory not supported"),
    ],
)
def test_a_key_or_an_account_that_may_not_ask_is_no_refusal_of_the_prompt(serve, status, message):
    error, requests = failure_of(serve, said(status, {"error": {"message": message}}))
    assert (error.kind, error.stops_run, requests) == ("auth", True, 1)


@pytest.mark.parametrize("status", [404, 429, 500])
def test_other_statuses_keep_their_meaning_whatever_is_flagged(serve, status):
    server = serve(
        lambda r: said(status, {"error": {"message": "your input was flagged"}}) if r.nth == 0 else "4"
    )
    try:
        kinds = [attempt.kind for attempt in model(server).complete("q").attempts]
    except ModelError as error:
        kinds = [error.kind]
    assert kinds == [{404: "not_found", 429: "rate_limit", 500: "server"}[status]]


STOPPING = [
    (400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}], "auth"),
    (400, {"error": "Incorrect API key provided: sk***."}, "auth"),
    (400, {"error": {"message": "Missing or invalid Authorization header."}}, "auth"),
    (400, {"error": {"message": "User location is not supported for the API use."}}, "auth"),
    (400, {"error": {"message": "Model Not Exist", "type": "invalid_request_error"}}, "not_found"),
    (400, {"object": "error", "message": "Invalid model: x", "type": "invalid_model"}, "not_found"),
    (400, {"error": {"message": "Invalid model name passed in model=x."}}, "not_found"),
    (400, {"error": {"message": "It is gone.", "code": "model_decommissioned"}}, "not_found"),
    (400, {"error": {"message": "No dedicated one.", "code": "model_not_available"}}, "not_found"),
    (400, {"error": {"message": "No models loaded. Please load a model."}}, "not_found"),
    (404, {"error": {"message": "The model `x` does not exist"}}, "not_found"),
    (405, {"detail": "Method Not Allowed"}, "not_found"),
    (410, {"error": "Gone"}, "not_found"),
    (501, {"error": {"code": 501, "message": "This server does not support chat."}}, "not_found"),
    (200, {"error": "Unexpected endpoint or method. (POST /chat/completions)"}, "not_found"),
    (200, {"object": "error", "code": 404, "message": "The model `x` does not exist."}, "not_found"),
    (400, {"error": {"message": "Budget has been exceeded!", "type": "budget_exceeded"}}, "quota"),
    (429, {"error": {"message": "Budget has been exceeded!", "type": "budget_exceeded"}}, "quota"),
    (412, {"error": {"message": "Account x is suspended, possibly due to the spending limit"}}, "quota"),
    (403, {"error": {"message": "Key limit exceeded (monthly limit)."}}, "quota"),
    (429, {"error": {"message": "Key limit exceeded (total limit)."}}, "quota"),
    (402, {"error": {"message": "Payment Required"}}, "quota"),
    (400, {"error": {"code": "Arrearage", "message": "Access denied."}}, "quota"),
    (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}, "quota"),
    (403, {"error": {"code": "AccountOverdueError", "message": "Forbidden."}}, "quota"),
    (429, {"error": {"code": "1113", "message": "您的账户已欠费，余额不足"}}, "quota"),
]


@pytest.mark.parametrize("status, body, kind", STOPPING)
def test_what_no_row_can_pass_stops_at_the_first_request_and_is_asked_elsewhere(serve, status, body, kind):
    """A wrong key, model or address and an empty account, however they are told."""
    error, requests = failure_of(serve, said(status, body))
    assert (error.kind, error.stops_run, requests) == (kind, True, 1)
    first, other = serve(lambda r: said(status, body)), serve(lambda r: "from B")
    chat = model(first, fallbacks=[{"model": "b", "base_url": other.base_url}])
    assert chat.complete("q").text == "from B"


@pytest.mark.parametrize(
    "status, body",
    [
        (400, {"error": "Model unloaded."}),
        (400, {"error": "The model has crashed without additional information. (Exit code: 1)"}),
        (400, {"error": {"message": 'Failed to load model "x".'}}),
        (423, {"error": "locked"}),
        (424, {"error": "Request failed during generation: Server error: CUDA", "error_type": "generation"}),
        (498, {"error": {"message": "Flex tier capacity exceeded, please try again later"}}),
        (499, {"error": "client closed request"}),
        (200, {"error": {"message": "upstream died"}}),
        (200, {"choices": [{"index": 0, "error": {"code": 502, "message": "upstream died"}}]}),
    ],
)
def test_what_passes_by_itself_is_asked_again(serve, status, body):
    server = serve(lambda r: said(status, body) if r.nth == 0 else "4")
    answer = model(server).complete("q")
    assert answer.text == "4" and [attempt.kind for attempt in answer.attempts] == ["server"]


CONTEXT = [
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575)."),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),
    (422, "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000"),
    (400, "Requested tokens (2285) exceed context window of 2048"),
    (400, "Range of input length should be [1, 98304]"),
    (400, "Input is too long for requested model."),
]


@pytest.mark.parametrize("status, message", CONTEXT)
def test_a_prompt_that_is_too_long_is_known_by_every_vendor_s_words(serve, status, message):
    error, requests = failure_of(serve, said(status, {"error": {"message": message}}))
    assert (error.kind, error.stops_run, requests) == ("context_length", False, 1)


def test_all_that_went_into_thinking_is_an_empty_answer(serve):
    message = "Could not finish the message because max_tokens or model output limit was reached."
    error, requests = failure_of(serve, said(400, {"error": {"message": message}}))
    assert error.kind == "empty" and requests == 3 and "raise max_tokens" in str(error)


def test_a_402_that_says_when_to_come_back_is_waited_out(serve):
    """OpenRouter: what is in flight would cost more than is left."""
    busy = said(
        402,
        {"error": {"code": 402, "message": "This request would exceed your in-flight spending budget."}},
        headers={"Retry-After": "3"},
    )
    server = serve(lambda r: busy if r.number == 0 else "4")
    answer = model(server).complete("q")
    assert answer.text == "4" and [attempt.kind for attempt in answer.attempts] == ["rate_limit"]


# The message is the one that somebody wrote.


MESSAGES = [
    ({"error": None, "message": "the reason"}, "the reason"),
    ({"error": "", "detail": "the reason"}, "the reason"),
    ({"error": "Bad Request", "message": "the reason", "statusCode": 400}, "Bad Request: the reason"),
    ({"errors": [{"message": "the reason", "code": 5007}], "success": False}, "the reason"),
    ([{"error": {"code": 400, "message": "the reason", "status": "INVALID_ARGUMENT"}}], "the reason"),
    ({"error": [{"message": "the reason"}]}, "the reason"),
    ({"object": "error", "message": "the reason", "type": "BadRequestError"}, "the reason"),
    ({"detail": [{"loc": ["body", "x"], "msg": "the reason", "input": 1}]}, "body.x: the reason"),
    ({"object": "error", "message": {"detail": [{"loc": ["body", "x"], "msg": "so"}]}}, "body.x: so"),
    ("the reason", "the reason"),
    ({}, "no message"),
    ({"error": {"code": 7}}, '{"code": 7}'),
    (wrapped('{"error":{"message":"the reason"}}'), "Provider returned error: the reason"),
    (wrapped({"error": {"message": "the reason"}}), "Provider returned error: the reason"),
    (wrapped("the reason"), "Provider returned error: the reason"),
]


@pytest.mark.parametrize("body, message", MESSAGES)
def test_the_message_of_an_error_is_found_in_every_shape(serve, body, message):
    error, _ = failure_of(serve, said(400, body))
    assert error.attempts[0].message == f"status 400: {message}"


def test_a_gateway_s_error_has_the_kind_of_the_provider_behind_it(serve):
    long = wrapped('{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}')
    error, requests = failure_of(serve, said(400, long))
    assert (error.kind, requests) == ("context_length", 1)


def test_an_error_inside_a_200_says_so_and_what_came_instead_of_an_answer_is_shown(serve):
    error, _ = failure_of(serve, said(200, {"error": "no such path"}), max_retries=0)
    assert "an error inside a 200: no such path" in str(error) and "502" not in str(error)
    login = {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}
    error, _ = failure_of(serve, said(200, login), max_retries=0)
    assert error.kind == "malformed" and "login fail" in str(error)


@pytest.mark.parametrize("body", [b"<!doctype html><html>A page</html>", b'data: {"choices": []}\n\n'])
def test_a_200_that_is_no_json_is_shown_with_what_to_look_at(serve, body):
    error, _ = failure_of(serve, Reply(raw=body), max_retries=0)
    assert error.kind == "malformed"
    assert f"it begins {body.decode()[:120]!r}" in str(error) and "check base_url" in str(error)


# Words of the prompt that come back in the error.


def as_vllm(body):
    return f"[{{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, no', 'input': {body!r}}}]"


def as_fastapi(body):
    return {"detail": [{"type": "value_error", "loc": ["body"], "msg": "Value error, no", "input": body}]}


ECHOES = {
    "vllm": lambda body: {"object": "error", "message": as_vllm(body), "type": "BadRequestError"},
    "fastapi": as_fastapi,
    "json in the text": lambda body: {"error": {"message": f"cannot take this: {json.dumps(body)}"}},
    "the messages": lambda body: {"error": f"failed; messages = {json.dumps(body['messages'], indent=2)}"},
    "the prompt": lambda body: {"error": {"message": f"no: {body['messages'][0]['content']} (no)"}},
    "behind a gateway": lambda body: wrapped(json.dumps({"message": as_vllm(body)})),
    "cut off": lambda body: {"message": as_vllm(body)[:170]},
}
PROMPTS = [
    "Bob has insufficient funds: his account holds 40, he wants 60. How much is missing?",
    "Find the unknown x instead of y: unsupported temperature, seed, max_tokens.",
    "The context window is 4 m wide. How many panes?",
    "Your input was flagged. The content policy says: what is 6 * 7?",
    'Incorrect API key provided; the model does not exist. Say "it\'s"\nand é.',
    "No models loaded. System role not supported. What is 2 + 2?",
]


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_that_is_quoted_in_the_error_decides_nothing(serve, echo, prompt):
    server = serve(lambda r: said(400, ECHOES[echo](r.body)) if "seed" in r.body else "4")
    chat = model(server, temperature=0.5, max_tokens=9, seed=1)
    messages = [{"role": "system", "content": "Answer in a word."}, {"role": "user", "content": prompt}]
    with pytest.raises(ModelError) as caught:
        chat.complete([messages[1]])
    assert (caught.value.kind, caught.value.stops_run, server.calls) == ("bad_request", False, 1)
    with pytest.raises(ModelError):
        chat.complete(messages)
    assert server.calls == 2 and {"temperature", "max_tokens", "seed"} < server.log[1].body.keys()


def test_what_an_endpoint_says_beside_the_quoted_prompt_still_counts(serve):
    def script(request):
        if "seed" not in request.body:
            return "4"
        detail = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
        return said(422, {"detail": [{**detail, "input": request.body}]})

    assert model(serve(script), seed=1).complete("The context window is 4 m wide.").text == "4"


# What a refusal teaches.


UNSUPPORTED = [
    ("temperature", "invalid temperature: only 1 is allowed for this model"),
    ("temperature", "Model incompatible request argument supplied: temperature"),
    ("temperature", "Model incompatible request arguments supplied: temperature, top_k"),
    ("temperature", "`temperature` may only be set to 1 when thinking is enabled."),
    ("temperature", "Parameter 'temperature' must be 1 for this model"),
    ("seed", 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'),
]


@pytest.mark.parametrize("name, message", UNSUPPORTED)
def test_a_parameter_of_which_one_value_only_is_taken_is_left_out(serve, name, message):
    server = serve(lambda r: said(400, {"error": {"message": message}}) if name in r.body else "4")
    chat = model(server, temperature=0.5, seed=1)
    answers = [chat.complete(f"q{n}") for n in range(2)]
    assert server.calls == 3 and name not in answers[1].params and len(answers[1].params) == 1


@pytest.mark.parametrize(
    "message",
    ["API key limit exceeded: 60 requests per minute", "spending limit tier 1: requests per minute"],
)
def test_a_limit_a_minute_is_no_empty_account(serve, message):
    server = serve(lambda r: said(429, {"error": {"message": message}}) if r.nth == 0 else "4")
    answer = model(server).complete("q")
    assert answer.text == "4" and {attempt.kind for attempt in answer.attempts} == {"rate_limit"}


def test_a_parameter_is_learnt_from_the_error_of_a_choice(serve):
    refused = {"code": 400, "message": "Unsupported parameter: 'seed'", "param": "seed"}

    def script(request):
        return said(200, {"choices": [{"index": 0, "error": refused}]}) if "seed" in request.body else "4"

    server = serve(script)
    chat = model(server, seed=1)
    assert [chat.complete(text).text for text in ("a", "b")] == ["4", "4"] and server.calls == 3


def test_a_parameter_is_learnt_from_what_the_provider_behind_a_gateway_said(serve):
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    refused = wrapped(json.dumps({"error": {"message": words, "param": "max_tokens"}}))
    server = serve(lambda r: said(400, refused) if "max_tokens" in r.body else "4")
    assert model(server, max_tokens=9).complete("q").params == {"max_completion_tokens": 9}


@pytest.mark.parametrize(
    "name, error",
    [
        (
            "temperature",
            {
                "message": "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but "
                "got 3 instead.",
                "param": "temperature",
                "code": "decimal_above_max_value",
            },
        ),
        (
            "seed",
            {
                "message": "Invalid 'seed': integer above maximum value. Expected a value <= 9, but got 10 "
                "instead.",
                "param": "seed",
                "code": "integer_above_max_value",
            },
        ),
        (
            "max_tokens",
            {
                "message": "Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but "
                "got 99999 instead.",
                "param": "max_tokens",
            },
        ),
    ],
)
def test_a_value_above_the_maximum_is_the_callers_fault(serve, name, error):
    server = serve(lambda r: said(400, {"error": error}) if name in r.body else "4")
    chat = model(server, temperature=3, seed=10, max_tokens=99999)
    with pytest.raises(ModelError, match="above maximum") as caught:
        chat.complete("q")
    assert caught.value.kind == "bad_request" and server.calls == 1


SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
NO_SCHEMA = [
    {"message": "Failed to validate JSON. Please adjust your prompt.", "code": "json_validate_failed"},
    {"message": "Failed to generate JSON. Please adjust your prompt.", "code": "json_validate_failed"},
    {"message": "Sorry.", "code": "json_validate_failed"},
    {"message": "Unknown name \"additionalProperties\" at 'generation_config.response_schema'"},
    {"message": "one or more response schemas specified other fields alongside any_of."},
    {"message": "The specified schema produces a constraint that has too many states for serving."},
    {"message": "output_config.format.schema: 'additionalProperties' must be explicitly set to false"},
]


@pytest.mark.parametrize("error", NO_SCHEMA)
def test_a_refused_schema_is_asked_for_in_a_simpler_way(serve, error):
    def script(request):
        strict = request.body.get("response_format", {}).get("type") == "json_schema"
        return said(400, {"error": error}) if strict else '{"score": 3}'

    server = serve(script)
    answer = model(server).complete("q", schema=SCHEMA)
    assert answer.parsed == {"score": 3} and answer.params["response_format"] == "json_object"
    assert server.calls == 2


NO_SYSTEM = [
    "System role not supported",
    "Only user and assistant roles are supported!",
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "Developer instruction is not enabled for models/gemma-3-27b-it",
]


@pytest.mark.parametrize("message", NO_SYSTEM)
def test_where_no_system_message_is_taken_its_text_goes_to_the_user_s(serve, tmp_path, message):
    server = serve(lambda r: said(400, {"message": message}) if r.system else "4")
    chat = model(server)
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "No."},
    ]
    with CallLedger(tmp_path / "calls.jsonl") as ledger:
        answers = [chat.complete(asked, sample_index=n, ledger=ledger) for n in range(2)]
        assert [len(answer.attempts) for answer in answers] == [1, 0]
        told = [{"role": "user", "content": "Be brief.\n\n2 + 2?"}, *asked[2:]]
        assert server.log[1].messages == server.log[2].messages == told
        assert model(server).complete(asked, ledger=ledger).cached  # the key is of what was asked for


def test_a_system_message_goes_before_parts_and_stands_for_a_user_s_where_there_is_none(serve):
    server = serve(lambda r: "4")
    chat = model(server)
    parts = [{"type": "text", "text": "2 + 2?"}]
    system = {"role": "system", "content": "Be brief."}
    chat.endpoints[0].dialect._takes_system = False
    body = chat.endpoints[0].dialect.body
    assert body(Call([system, {"role": "user", "content": parts}]))["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Be brief."}, *parts]}
    ]
    assert body(Call([system]))["messages"] == [{"role": "user", "content": "Be brief."}]


def test_roles_that_do_not_alternate_by_themselves_are_the_callers_fault(serve):
    server = serve(lambda r: said(400, {"message": "Conversation roles must alternate"}))
    two = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(ModelError) as caught:
        model(server).complete(two)
    assert caught.value.kind == "bad_request" and server.calls == 1


# Ends that are none.


@pytest.mark.parametrize("reason", ["insufficient_system_resource", "error", "abort", "network_error"])
def test_an_answer_that_the_endpoint_broke_off_is_asked_for_again(serve, tmp_path, reason):
    server = serve(lambda r: Reply("6 * 7 = 42. And then", finish_reason=reason) if r.nth == 0 else "42")
    with CallLedger(tmp_path / "calls.jsonl") as ledger:
        answer = model(server).complete("q", ledger=ledger)
        assert answer.text == "42" and [attempt.kind for attempt in answer.attempts] == ["server"]
        assert ledger.totals()["failed"] == {"server": 1}


@pytest.mark.parametrize("bad", [{"error": {"code": 502, "message": "died"}}, {"finish_reason": "abort"}])
def test_a_choice_that_failed_costs_no_other_choice(serve, bad):
    good = {"message": {"role": "assistant", "content": "good"}, "finish_reason": "stop"}
    both = {"choices": [{"index": 0, **good}, {"index": 1, **good, **bad}]}
    server = serve(lambda r: said(200, both) if "n" in r.body else "alone")
    answers = aio.run(model(server, supports_n=True).acandidates("q", 2))
    assert [answer.text for answer in answers] == ["good", "alone"] and server.calls == 2
