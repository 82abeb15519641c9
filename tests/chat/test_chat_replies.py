"""Reading chat completions: answers, reasoning, what is no answer."""

from __future__ import annotations

import copy
import time

import pytest

from cotkit.chat import CallLedger, ChatModel, Completion, ModelError
from cotkit.chat.errors import Failure
from cotkit.chat.replies import counts_one_choice, read_completion, split_think
from cotkit.records import Candidate, Verdict
from cotkit.runs.views import defect, is_truncated


def body(message, finish_reason="stop", **more):
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "model": "served", **more}


def read(message, finish_reason="stop", **more):
    return read_completion(body(message, finish_reason, **more)).answers[0]


@pytest.mark.parametrize(
    "text, answer, reasoning, unclosed",
    [
        ("plain", "plain", None, False),
        ("<think>why</think>\n\n4", "4", "why", False),
        ("\n <think>\nwhy\n</think>4", "4", "why", False),
        ("why</think>4", "4", "why", False),
        ("</think>4", "4", "", False),
        ("<think></think>4", "4", "", False),
        ("<think>no end", "", "no end", True),
        ("<think>", "", "", True),
        ("Use `<think>` and `</think>`.", "Use `<think>` and `</think>`.", None, False),
        ("```\n</think>\n```\nend", "```\n</think>\n```\nend", None, False),
        ("4, by <think>why</think>", "4, by <think>why</think>", None, False),
        ("<think>a <think>b</think> c</think>4", "4", "a <think>b</think> c", False),
        ("<think>say ```<think>x</think>``` here</think>4", "4", "say ```<think>x</think>``` here", False),
        ("<think>they ask about <think> tags</think>4", "4", "they ask about <think> tags", False),
        ("<think>```py\nx = 1\n</think>4 ```y```", "4 ```y```", "```py\nx = 1", False),
        ("<think>a</think>4 and <think>b</think>", "4 and <think>b</think>", "a", False),
        ("a > b, think > c", "a > b, think > c", None, False),
        ("[THINK]why[/THINK]4", "4", "why", False),
        ("\n<thought>\nwhy\n</thought>\n4", "4", "why", False),
        ("<seed:think>why</seed:think>4", "4", "why", False),
        (
            "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>",
            "4",
            "why",
            False,
        ),
        ("[THINK]no end", "[THINK]no end", None, False),
        ("[1] is [THINK]a[/THINK]", "[1] is [THINK]a[/THINK]", None, False),
        ("<thinking>as asked</thinking>4", "<thinking>as asked</thinking>4", None, False),
    ],
)
def test_think_tags_part_reasoning_from_the_answer(text, answer, reasoning, unclosed):
    assert split_think(text) == (answer, reasoning, unclosed)


def test_ten_thousand_tags_in_code_take_no_time():
    started = time.thread_time()
    assert split_think("<think>" + "``<think>" * 10_000)[2]
    assert time.thread_time() - started < 1.5  # it was quadratic: half a minute


@pytest.mark.parametrize(
    "message, reasoning",
    [
        ({}, None),
        ({"reasoning_content": None}, None),
        ({"reasoning_content": ""}, ""),
        ({"reasoning_content": "why"}, "why"),
        ({"reasoning": "why"}, "why"),
        ({"reasoning_content": "", "reasoning": "why"}, "why"),
        ({"reasoning": [{"text": "wh"}, {"text": "y"}]}, "why"),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "why"}]}, "why"),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "short"}]}, "short"),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, ""),
    ],
)
def test_reasoning_is_found_in_every_field_it_comes_in(message, reasoning):
    answer = read({"content": "4", **message})
    assert (answer.text, answer.reasoning) == ("4", reasoning)


@pytest.mark.parametrize(
    "field, content, reasoning",
    [
        ("<think>\nwhy", "4", "why"),
        ("<think>\nwhy\n</think>\n", "4", "why"),
        ("why", "</think>\n\n4", "why"),
        ("why", "<think>why</think>4", "why"),
        ("why", "and so</think>4", "why\nand so"),
        ("<think>why", "and so</think>4", "why\nand so"),
        ("why", "[THINK]more[/THINK]4", "why\nmore"),
        (" why ", "4", " why "),
    ],
)
def test_reasoning_that_was_parted_in_part_is_parted_whole(field, content, reasoning):
    answer = read({"content": content, "reasoning_content": field})
    assert (answer.text, answer.reasoning, answer.truncated) == ("4", reasoning, False)


@pytest.mark.parametrize("beside", [{}, {"reasoning_content": "The trace has a tag."}])
def test_an_object_that_speaks_of_a_tag_is_left_whole(beside):
    said = '{"feedback": "A stray </think> stands before the answer.", "score": 3}'
    answer = read({"content": said, **beside})
    assert (answer.text, answer.reasoning) == (said, beside.get("reasoning_content"))


def test_a_thought_that_a_prompt_asked_for_around_everything_is_the_answer():
    said = "<thought>Add 2 and 2. The answer is \\boxed{4}.</thought>"
    assert (read({"content": said}).text, read({"content": said}).problem) == (said, None)
    assert read({"content": "<thought>why</thought>4"}).text == "4"


def test_a_thought_that_does_not_end_is_cut_off_beside_a_reasoning_field_too():
    answer = read({"content": "<think>half", "reasoning_content": "more"})
    assert (answer.text, answer.reasoning, answer.truncated) == ("", "more\nhalf", True)


def test_content_in_parts_is_joined_and_thinking_parts_are_reasoning():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}
    answer = read({"content": [thinking, {"type": "text", "text": "it is "}, {"type": "text", "text": "4"}]})
    assert (answer.text, answer.reasoning) == ("it is 4", "why")


CUT = ["max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens", "model_context_window_exceeded"]
BROKEN = ["error", "abort", "network_error", "insufficient_system_resource"]
REFUSED = ["content_filter: PROHIBITED_CONTENT", "SAFETY", "sensitive", "RECITATION", "refusal"]
WHOLE = [None, "", 7, "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls", "what nobody knows"]


@pytest.mark.parametrize(
    "message, finish_reason, usage, problem, truncated",
    [
        ({"content": "4"}, "stop", {}, None, False),
        ({"content": "4"}, "length", {}, None, True),
        ({"content": None}, "stop", {}, "empty", False),
        ({"content": " \n"}, "stop", {}, "empty", False),
        ({"content": ""}, "length", {}, "empty", True),
        ({"content": "", "reasoning_content": "why"}, "stop", {}, "empty", False),
        ({"content": None, "reasoning_content": "why"}, "length", {}, None, True),
        ({"content": ""}, "length", {"completion_tokens_details": {"reasoning_tokens": 9}}, None, True),
        ({"content": "<think>never ends"}, "stop", {}, None, True),
        ({"content": "<think>why</think>"}, "stop", {}, "empty", False),
        ({"content": None, "refusal": "I cannot"}, "stop", {}, "refusal", False),
        ({"content": "half"}, "content_filter", {}, "refusal", False),
        *(({"content": "half"}, reason, {}, None, True) for reason in CUT),
        *(({"content": "half"}, reason, {}, "server", False) for reason in BROKEN),
        *(({"content": "half"}, reason, {}, "refusal", False) for reason in REFUSED),
        *(({"content": "4"}, reason, {}, None, False) for reason in WHOLE),
        (None, "content_filter", {}, "refusal", False),
        (None, "length", {}, "empty", True),
        ({}, "length", {"prompt_tokens": 20, "completion_tokens": 0, "total_tokens": 1020}, None, True),
        ({"content": ""}, "length", {"completion_tokens": 1000}, None, True),
        ({"content": ""}, "stop", {"completion_tokens": 1000}, "empty", False),
    ],
)
def test_what_is_an_answer(message, finish_reason, usage, problem, truncated):
    answer = read(message, finish_reason, usage=usage)
    assert (answer.problem, answer.truncated) == (problem, truncated)


def test_views_know_the_same_ends():
    """Of rows whose candidates say no more than how they ended, as those of another program."""
    for reason in [*CUT, "length", *BROKEN, *REFUSED, *WHOLE]:
        verdict = Verdict(correct=True, method="m")
        candidate = Candidate(
            iteration=0, trace="t", text="t", verdict=verdict, call={"finish_reason": reason}
        )
        assert is_truncated(candidate) is (reason in [*CUT, "length", *BROKEN])
        assert defect(candidate) == ("refusal" if reason in REFUSED else None)


@pytest.mark.parametrize(
    "usage, expected",
    [
        ({"prompt_tokens": 5, "completion_tokens": 7}, (5, 7)),
        (None, (None, None)),
        ({}, (None, None)),
        ({"prompt_tokens": "5", "completion_tokens": -1}, (None, None)),
        ([], (None, None)),
        ({"prompt_tokens": 20, "completion_tokens": 151, "total_tokens": 553}, (20, 533)),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}, (32, 103)),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 40}, (32, 9)),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": "135"}, (32, 9)),
        ({"completion_tokens": 9, "total_tokens": 135}, (None, 9)),
        ({"prompt_tokens": 32, "total_tokens": 135}, (32, None)),
        ({"prompt_tokens": 2**53, "completion_tokens": 2**53 + 1}, (2**53, None)),
    ],
)
def test_usage_that_is_not_said_is_unknown_and_never_zero(usage, expected):
    reply = read_completion(body({"content": "4"}, usage=usage))
    assert (reply.prompt_tokens, reply.completion_tokens) == expected


FILTERED = {"content_filter_results": {"violence": {"filtered": True}}}
NESTED: list = []
for _ in range(2000):  # deeper than Python recurses
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "broken, kind",
    [
        ("<html>", "malformed"),
        (None, "malformed"),
        ([], "malformed"),
        ({}, "malformed"),
        ({"choices": []}, "malformed"),
        ({"choices": ["4"]}, "malformed"),
        ({"choices": [{"text": "4"}]}, "malformed"),
        ({"error": {"message": "upstream", "code": 429}}, "rate_limit"),
        ({"error": {"message": "upstream", "code": "x"}}, "server"),
        ({"error": "upstream"}, "server"),
        ({"object": "error", "code": 404, "message": "no such model"}, "not_found"),
        ({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, "not_found"),
        ({"choices": [], "prompt_filter_results": [FILTERED]}, "refusal"),
        ({"choices": [], "prompt_filter_results": [{"content_filter_results": {"x": [1]}}, 3]}, "malformed"),
        ({"choices": [{"message": {"content": "4", "reasoning_details": NESTED}}]}, "malformed"),
    ],
)
def test_a_body_that_is_no_chat_completion_fails_by_kind(broken, kind):
    with pytest.raises(Failure) as failure:
        read_completion(broken)
    assert failure.value.kind == kind


@pytest.mark.parametrize("message", [{}, {"message": {"role": "assistant", "content": ""}}])
def test_the_error_of_a_choice_is_its_problem(message):
    error = {"code": 429, "message": "slow down"}
    answer = read_completion({"choices": [{"error": error, **message}]}).answers[0]
    assert (answer.problem, answer.detail) == ("rate_limit", "status 429: slow down")


@pytest.mark.parametrize("tokens, one_only", [(3, True), (6, False), (60, False), (None, False), (0, True)])
def test_a_count_below_the_number_of_words_is_of_one_choice_only(tokens, one_only):
    choices = [{"message": {"content": "one two three"}}] * 2
    reply = read_completion({"choices": choices, "usage": {"prompt_tokens": 1, "completion_tokens": tokens}})
    assert counts_one_choice(reply) is one_only


# Whatever a field holds.

ANSWER = {
    "id": "x",
    "created": 1,
    "model": "served",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "4", "reasoning_content": "why", "refusal": None},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "4", "logprob": -0.1, "top_logprobs": []}]},
            "error": None,
        }
    ],
    "usage": {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "completion_tokens_details": {"reasoning_tokens": 1},
        "prompt_tokens_details": {"cached_tokens": 2},
    },
}
STRANGE = [None, True, -1, 0, 1.5, 10**30, float("nan"), "x", "\ud800", "²", "9" * 5000]
STRANGE += [[], ["a"], [None], [[]], {}, {"x": 1}, {"code": "²"}, {"content": "abc"}, {"content": ["a"]}]


def places(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def with_strange(path, value):
    answer = copy.deepcopy(ANSWER)
    *way, last = path
    inner = answer
    for name in way:
        inner = inner[name]
    inner[last] = value
    return answer


class Canned:
    """A transport with one answer."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    async def post(self, body):
        self.asked += 1
        return copy.deepcopy(self.answer)

    async def close(self):
        pass


@pytest.mark.parametrize("path", list(places(ANSWER)), ids=lambda path: ".".join(map(str, path)))
def test_whatever_a_field_holds_the_call_is_an_answer_or_a_failure_and_in_the_ledger(tmp_path, path):
    asked = 0
    with CallLedger(tmp_path / "calls.jsonl", budget_usd=100) as ledger:
        for number, value in enumerate(STRANGE):
            chat = ChatModel("m", base_url="http://127.0.0.1:9/v1", max_retries=0, price=(1, 1))
            chat.endpoints[0]._transport = canned = Canned(with_strange(path, value))
            try:
                first = chat.complete(f"q{number}", ledger=ledger)
            except ModelError:
                pass
            else:
                again = chat.complete(f"q{number}", ledger=ledger)
                assert isinstance(first, Completion) and again.cached and again.text == first.text
            asked += canned.asked
        totals = ledger.totals()
        assert asked == len(STRANGE) == totals["calls"] + sum(totals["failed"].values())


@pytest.mark.parametrize("strange", [{"content": "abc"}, {"content": ["a"]}, {"content": {"x": 1}}, [], "x"])
def test_logprobs_that_are_no_list_of_objects_are_none(strange):
    answer = read_completion(with_strange(("choices", 0, "logprobs"), strange)).answers[0]
    assert (answer.text, answer.logprobs) == ("4", None)
