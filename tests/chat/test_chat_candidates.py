"""Several answers to one prompt, and answers that must be objects."""

from __future__ import annotations

import asyncio
import json

import pydantic
import pytest
from asking import model
from mock_server import Reply

from cotkit import aio
from cotkit.chat import BudgetExceeded, CallLedger, Completion, ModelError


@pytest.fixture
def ledger(tmp_path):
    with CallLedger(tmp_path / "calls.jsonl") as ledger:
        yield ledger


def candidates(chat, n, **options):
    return aio.run(chat.acandidates("q", n, **options))


def choices(request):
    """An endpoint that takes n: answers a0, a1, ... over its life."""
    n = request.body.get("n", 1)
    return Reply(n=[f"a{request.number}.{i}" for i in range(n)])


def test_without_n_each_candidate_is_a_call_with_its_own_index_and_seed(serve, ledger):
    server = serve(lambda r: f"seed {r.body['seed']}")
    chat = model(server, seed=100)
    answers = candidates(chat, 4, ledger=ledger)
    assert [a.text for a in answers] == [f"seed {s}" for s in (100, 101, 102, 103)]
    assert [(a.sample_index, a.seed) for a in answers] == [(n, 100 + n) for n in range(4)]
    assert all("n" not in r.body for r in server.log)
    more = candidates(chat, 6, ledger=ledger)
    assert server.calls == 6 and [a.cached for a in more] == [True] * 4 + [False] * 2
    assert chat.complete("q", ledger=ledger, sample_index=5).cached


def test_with_n_one_request_brings_them_all_and_more_brings_only_the_missing(serve, ledger):
    server = serve(choices)
    chat = model(server, supports_n=True, price=(1e6, 1e6))
    answers = candidates(chat, 3, ledger=ledger)
    assert [a.text for a in answers] == ["a0.0", "a0.1", "a0.2"] and server.calls == 1
    assert [a.sample_index for a in answers] == [0, 1, 2] and answers[1].params == {"n": 3}
    again = candidates(chat, 5, ledger=ledger)
    assert [a.text for a in again] == ["a0.0", "a0.1", "a0.2", "a1.0", "a1.1"]
    assert server.log[1].body["n"] == 2 and server.calls == 2
    assert ledger.totals()["calls"] == 2
    assert candidates(chat, 5, ledger=ledger) == [a.model_copy(update={"cached": True}) for a in again]


@pytest.mark.parametrize("supports_n", [True, False])
def test_identical_candidates_in_flight_are_paid_for_once(serve, ledger, supports_n):
    server = serve(lambda r: Reply(n=["a"] * r.body.get("n", 1), delay=0.05))
    chat = model(server, supports_n=supports_n)

    async def both():
        asked = [chat.acandidates("q", 3, ledger=ledger), chat.acandidates("q", 3, ledger=ledger)]
        return await asyncio.gather(*asked, chat.acomplete("q", ledger=ledger, sample_index=1))

    first, second, one = aio.run(both())
    assert [a.text for a in [*first, *second, one]] == ["a"] * 7
    assert server.calls == (1 if supports_n else 3)


def test_the_usage_of_one_request_is_attributed_once(serve, ledger):
    server = serve(choices)
    answers = candidates(model(server, supports_n=True, price=(1e6, 1e6)), 3, ledger=ledger)
    assert answers[0].usage.model_dump() == {"prompt_tokens": 1, "completion_tokens": 3, "cost_usd": 4.0}
    assert [a.usage.completion_tokens for a in answers[1:]] == [None, None]
    assert ledger.totals()["cost_usd"] == 4.0 and ledger.totals()["unknown_usage"] == 0


def test_a_count_of_one_choice_only_is_unknown(serve, ledger):
    usage = {"prompt_tokens": 5, "completion_tokens": 4}
    server = serve(lambda r: Reply(n=["one two three four"] * 3, usage=usage))
    answers = candidates(model(server, supports_n=True, price=(1, 1)), 3, ledger=ledger)
    assert answers[0].usage.model_dump() == {"prompt_tokens": 5, "completion_tokens": None, "cost_usd": None}
    assert ledger.totals()["unknown_usage"] == 1


def test_one_failing_candidate_loses_no_other(serve, ledger):
    server = serve(lambda r: Reply(status=400) if r.body["seed"] == 2 else "4")
    answers = candidates(model(server, seed=0), 5, ledger=ledger)
    assert [isinstance(a, ModelError) for a in answers] == [False, False, True, False, False]
    assert answers[2].kind == "bad_request"


@pytest.mark.parametrize(
    "script, requests",
    [
        (lambda r: Reply(status=400, error="n must be 1 here") if "n" in r.body else "4", 4 + 3),
        (lambda r: "4", 3 + 3),  # ignores n
    ],
)
def test_an_endpoint_that_does_not_take_n_is_asked_one_by_one(serve, ledger, script, requests):
    server = serve(script)
    chat = model(server, supports_n=True)
    assert [a.text for a in candidates(chat, 3, ledger=ledger)] == ["4"] * 3
    assert [a.text for a in candidates(chat, 3, ledger=ledger, seed=1)] == ["4"] * 3
    assert server.calls == requests and sum("n" in r.body for r in server.log) == 1


def test_an_empty_choice_is_asked_for_again_alone(serve, ledger):
    server = serve(lambda r: Reply(n=["a", None, "c"]) if "n" in r.body else "b")
    assert [a.text for a in candidates(model(server, supports_n=True), 3, ledger=ledger)] == ["a", "b", "c"]
    assert server.calls == 2


def test_a_request_for_several_that_fails_is_told_for_each(serve, ledger):
    server = serve(lambda r: Reply(status=401))
    answers = candidates(model(server, supports_n=True), 3, ledger=ledger)
    assert [(a.kind, a.stops_run) for a in answers] == [("auth", True)] * 3 and server.calls == 1


def test_a_spent_budget_stops_but_keeps_the_candidates_paid_for(serve, tmp_path):
    server = serve(lambda r: "4")
    with CallLedger(tmp_path / "c.jsonl", budget_calls=2) as ledger, pytest.raises(BudgetExceeded):
        candidates(model(server), 4, ledger=ledger)
    with CallLedger(tmp_path / "c.jsonl") as ledger:
        assert [a.cached for a in candidates(model(server), 4, ledger=ledger)].count(True) == 2


@pytest.mark.parametrize("n", [0, -1, 1.5, None])
def test_n_is_a_whole_number(serve, n):
    with pytest.raises((TypeError, ValueError), match="n must be"):
        candidates(model(serve(lambda r: "4")), n)


# Objects.


class Verdict(pydantic.BaseModel):
    score: int
    reason: str


GOOD = '{"score": 7, "reason": "by \\frac{1}{2}"}'


def modes(request):
    return request.body.get("response_format", {}).get("type", "prompt")


def test_an_object_is_asked_for_by_schema_parsed_and_cached(serve, ledger):
    server = serve(lambda r: GOOD)
    chat = model(server)
    for cached in (False, True):
        answer = chat.complete("judge", schema=Verdict, ledger=ledger)
        assert answer.parsed == Verdict(score=7, reason=r"by \frac{1}{2}") and answer.cached is cached
    assert chat.complete("judge", schema=Verdict.model_json_schema(), ledger=ledger).parsed["score"] == 7
    assert server.calls == 1 and answer.params == {"response_format": "json_schema"}
    assert server.log[0].body["response_format"]["json_schema"]["schema"]["title"] == "Verdict"


@pytest.mark.parametrize("takes", ["json_object", "prompt"])
def test_an_endpoint_without_schemas_is_asked_otherwise_and_that_is_remembered(serve, takes):
    known = {"json_object": {"json_object", "prompt"}, "prompt": {"prompt"}}[takes]

    def script(request):
        if modes(request) not in known:
            return Reply(status=400, error=f"This response_format type {modes(request)} is unavailable now")
        return GOOD

    server = serve(script)
    chat = model(server)
    assert chat.complete("judge", schema=Verdict).parsed.score == 7
    first = server.calls
    assert chat.complete("again", schema=Verdict).parsed.score == 7
    assert server.calls == first + 1 and modes(server.log[-1]) == takes
    assert "JSON schema" in server.log[-1].user and '"Verdict"' in server.log[-1].user


def test_a_mode_the_user_chose_is_not_left(serve):
    server = serve(lambda r: Reply(status=400, error="response_format is unavailable"))
    with pytest.raises(ModelError) as error:
        model(server, structured="json_schema").complete("judge", schema=Verdict)
    assert error.value.kind == "bad_request" and server.calls == 1


def test_an_answer_that_does_not_fit_is_sent_back_once_with_the_error(serve, ledger):
    server = serve(lambda r: "Seven, I think." if len(r.messages) == 1 else GOOD)
    chat = model(server, price=(1e6, 0))
    answer = chat.complete("judge", schema=Verdict, ledger=ledger)
    assert answer.parsed.score == 7 and [a.kind for a in answer.attempts] == ["parse"]
    roles = [(m["role"], m["content"]) for m in server.log[1].messages]
    assert roles[1] == ("assistant", "Seven, I think.") and "no JSON object" in roles[2][1]
    prompts = [sum(len(m["content"].split()) for m in r.messages) for r in server.log]
    assert answer.usage.prompt_tokens == sum(prompts)
    again = chat.complete("judge", schema=Verdict, ledger=ledger)
    assert server.calls == 2 and again.cached and again.parsed == answer.parsed


def test_two_answers_that_do_not_fit_are_a_parse_error_and_are_not_cached(serve, ledger):
    server = serve(lambda r: json.dumps({"score": f"number {r.number}", "reason": "r"}))
    chat = model(server)
    with pytest.raises(ModelError, match="score") as error:
        chat.complete("judge", schema=Verdict, ledger=ledger)
    assert (error.value.kind, error.value.stops_run) == ("parse", False)
    assert "number 1" in error.value.raw and [a.kind for a in error.value.attempts] == ["parse", "parse"]
    assert ledger.totals()["failed"] == {"parse": 2} and ledger.totals()["calls"] == 0
    with pytest.raises(ModelError):
        chat.complete("judge", schema=Verdict, ledger=ledger)
    assert server.calls == 4


def test_a_completed_first_answer_is_not_asked_again_after_a_crash_before_the_second(serve, tmp_path):
    def script(request):
        if len(request.messages) == 1:
            return "no object"
        return Reply(status=400) if failing else GOOD

    server, failing = serve(script), True
    with CallLedger(tmp_path / "c.jsonl") as ledger, pytest.raises(ModelError):
        model(server).complete("judge", schema=Verdict, ledger=ledger)
    failing = False
    with CallLedger(tmp_path / "c.jsonl") as ledger:
        assert isinstance(model(server).complete("judge", schema=Verdict, ledger=ledger), Completion)
    assert sum(len(r.messages) == 1 for r in server.log) == 1


@pytest.mark.parametrize("schema", ["json", 3, {"type": "objekt"}, dict])
def test_a_schema_is_a_class_or_a_valid_json_schema(serve, schema):
    server = serve(lambda r: GOOD)
    with pytest.raises(TypeError, match="schema"):
        model(server).complete("judge", schema=schema)
    assert server.calls == 0
