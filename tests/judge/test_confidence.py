"""P(yes) from the logprobs of one token."""

from __future__ import annotations

import math

import pytest
from mock_server import Reply

from cotkit import ChatModel, ConfidenceJudge, JudgePanel, StepJudge
from cotkit.chat import CallLedger, ModelError
from cotkit.judge.confidence import p_yes
from cotkit.problems import Problem

PROBLEM = Problem(id="1", problem="What is 2 + 2?", reference="SECRET-4")
TRACE = r"2 + 2 = 4. \boxed{4}"


def likely(**tokens) -> list[dict]:
    """Logprobs of one token with these alternatives, the likeliest first."""
    top = [{"token": t, "logprob": math.log(p), "bytes": None} for t, p in tokens.items()]
    return [{**top[0], "top_logprobs": top}]


def says(**tokens) -> Reply:
    return Reply(next(iter(tokens)), logprobs={"content": likely(**tokens)})


def judge(serve, reply, **options) -> ConfidenceJudge:
    server = serve(reply if callable(reply) else lambda request: reply)
    return ConfidenceJudge(ChatModel("mock", server.base_url, max_retries=0, **options))


@pytest.mark.parametrize(
    ("tokens", "probability"),
    [
        ({"Yes": 0.6, "No": 0.2}, 0.75),
        ({"No": 0.9, "Yes": 0.1}, 0.1),
        ({" yes": 0.3, "Yes": 0.3, "NO": 0.1, "no.": 0.1}, 0.75),  # all spellings together
        ({"Yes": 0.5, "Maybe": 0.5}, 1.0),
        ({"No": 0.5, "Maybe": 0.5}, 0.0),
        ({"Yesterday": 0.5, "yes": 0.1, "Note": 0.2, "no": 0.3}, 0.25),  # words that only begin alike
    ],
)
def test_p_yes_is_yes_of_yes_and_no_in_every_spelling(tokens, probability):
    assert p_yes(likely(**tokens)) == pytest.approx(probability)


def test_only_the_first_token_counts():
    assert p_yes(likely(No=0.8, Yes=0.2) + likely(Yes=1.0)) == pytest.approx(0.2)


@pytest.mark.parametrize("top", [[], [{"token": "Yes", "logprob": -0.6}]])
def test_an_endpoint_that_reports_no_alternatives_gives_no_probability(top):
    with pytest.raises(ValueError, match="needs an endpoint that gives top_logprobs"):
        p_yes([{"token": "Yes", "logprob": -0.6, "top_logprobs": top}])


def test_one_call_of_one_token_that_never_shows_the_reference(serve):
    asked = []
    found = judge(serve, lambda request: asked.append(request) or says(Yes=0.6, No=0.2)).judge(PROBLEM, TRACE)
    assert found.scores == {"p_yes": pytest.approx(0.75)} and found.saw_reference is False
    (request,) = asked
    assert request.body["max_tokens"] == 1 and request.body["logprobs"] is True
    assert request.body["top_logprobs"] == 10
    assert PROBLEM.problem in request.user and TRACE in request.user and "SECRET" not in str(request.body)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("Yes"), "no logprobs"),
        (says(**{"<think>": 0.9, "The": 0.1}), "neither Yes nor No"),
        (Reply(status=500), "server"),
    ],
    ids=["no logprobs", "thinks first", "down"],
)
def test_a_judge_that_cannot_say_has_failed_and_is_no_zero(serve, reply, words):
    found = judge(serve, lambda request: reply).judge(PROBLEM, TRACE)
    assert found.scores is None and words in found.error


def test_a_wrong_key_ends_the_run(serve, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-wrong-0123456789")
    refused = Reply(status=401, error="wrong key sk-wrong-0123456789")
    with pytest.raises(ModelError) as caught:
        judge(serve, refused, api_key_env="MY_KEY").judge(PROBLEM, TRACE)
    assert caught.value.stops_run and "sk-wrong" not in str(caught.value)


def test_the_same_trace_is_paid_once(serve, tmp_path):
    from cotkit import aio

    calls = []
    asked = judge(serve, lambda request: calls.append(1) or says(Yes=0.6, No=0.2))

    async def twice():
        with CallLedger(tmp_path / "calls.jsonl") as ledger:
            return [await asked.ajudge(PROBLEM, TRACE, ledger=ledger) for _ in range(2)]

    first, second = aio.run(twice())
    assert first.scores == second.scores and len(calls) == 1


def test_it_says_what_it_is_and_stands_beside_other_judges(serve):
    asked = judge(serve, says(Yes=0.6, No=0.2))
    told = asked.describe()
    assert told["judge"] == "ConfidenceJudge" and told["dimensions"] == ["p_yes"]
    assert len(told["model"]["prompt"]["hash"]) == 16
    panel = JudgePanel([StepJudge(), asked])
    assert panel.dimension_names == ("steps", "consistency", "form", "p_yes")
    assert panel.judge(PROBLEM, TRACE).scores["p_yes"] == pytest.approx(0.75)
    assert "p_yes" in asked._repr_markdown_()


def test_what_is_no_chat_model_is_refused():
    with pytest.raises(TypeError, match="ChatModel"):
        ConfidenceJudge("qwen")


def test_a_chat_model_that_is_asked_for_logprobs_has_their_mean_recorded(serve):
    tokens = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]
    server = serve(lambda request: Reply("ab", logprobs={"content": tokens}))
    model = ChatModel("mock", server.base_url, extra_body={"logprobs": True})
    assert model.complete("q").provenance()["mean_logprob"] == -1.0
    silent = serve(lambda request: Reply("ab"))
    assert "mean_logprob" not in ChatModel("mock", silent.base_url).complete("q").provenance()
