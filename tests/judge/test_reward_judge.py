"""Reward models: a function, an object, an endpoint."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading

import numpy
import pytest
from mock_server import Reply

from cotkit import aio
from cotkit.chat import BudgetExceeded, ModelError
from cotkit.judge import RewardModelJudge, Thresholds
from cotkit.judge.reward_sources import read_content, read_logprobs, read_score
from cotkit.problems import Problem

PROBLEM = Problem(id="1", problem="What is 2 + 2?", reference="SECRET")
TRACE = r"2 + 2 = 4. \boxed{4}"
NEMOTRON = {"helpfulness": 1.6171875, "correctness": 1.6484375, "verbosity": 0.515625}


def test_one_number_is_called_overall_and_needs_no_other_judge():
    judgement = RewardModelJudge(lambda problem, trace: 0.9).judge(PROBLEM, TRACE)
    assert judgement.scores == {"overall": 0.9} and judgement.error is None
    assert judgement.saw_reference is False


def test_several_numbers_keep_their_names_a_single_one_too():
    assert RewardModelJudge(lambda p, t: {"a": 1, "b": -2.5}).judge(PROBLEM, TRACE).scores == {
        "a": 1.0,
        "b": -2.5,
    }
    assert RewardModelJudge(lambda p, t: {"Score": 0.5}).judge(PROBLEM, TRACE).scores == {"Score": 0.5}
    assert RewardModelJudge(lambda p, t: 0.5, dimensions=["tone"]).judge(PROBLEM, TRACE).scores == {
        "tone": 0.5
    }


def test_the_function_gets_problem_and_trace_as_text_once_and_never_the_reference():
    calls = []
    RewardModelJudge(lambda *given: calls.append(given) or 1.0).judge(PROBLEM, TRACE)
    assert calls == [("What is 2 + 2?", TRACE)]


def test_an_async_function_and_an_object_with_evaluate_work_too():
    async def reward(problem, trace):
        await asyncio.sleep(0)
        return 0.25

    class Camel:
        def evaluate(self, messages):
            assert messages == [
                {"role": "user", "content": PROBLEM.problem},
                {"role": "assistant", "content": TRACE},
            ]
            return dict(NEMOTRON)

    assert RewardModelJudge(reward).judge(PROBLEM, TRACE).scores == {"overall": 0.25}
    assert RewardModelJudge(lambda p, t: reward(p, t)).judge(PROBLEM, TRACE).scores == {"overall": 0.25}
    assert RewardModelJudge(Camel()).judge(PROBLEM, TRACE).scores == NEMOTRON


def test_a_slow_function_blocks_neither_the_loop_nor_more_threads_than_allowed():
    together = threading.Barrier(3)

    def reward(problem, trace):
        together.wait(10)  # only passes when three calls run at once
        return 1.0

    async def main(judge):
        asked = [asyncio.ensure_future(judge.ajudge(PROBLEM, TRACE)) for _ in range(3)]
        await asyncio.sleep(0)  # the loop is free while the functions wait
        return await asyncio.gather(*asked)

    judge = RewardModelJudge(reward, threads=3)
    assert [j.scores for j in aio.run(main(judge))] == [{"overall": 1.0}] * 3
    aio.run(judge.aclose())


def test_one_thread_never_runs_a_function_beside_itself():
    running, peak = [], []

    def reward(problem, trace):
        running.append(1)
        peak.append(len(running))
        running.pop()
        return 1.0

    async def main(judge):
        return await asyncio.gather(*(judge.ajudge(PROBLEM, TRACE) for _ in range(20)))

    aio.run(main(RewardModelJudge(reward, threads=1)))
    assert peak == [1] * 20


@pytest.mark.parametrize("reward", [numpy.float32(0.5), numpy.array([0.5]), numpy.float64(0.5)])
def test_numbers_of_numpy_and_one_element_arrays_are_numbers(reward):
    assert RewardModelJudge(lambda p, t: reward).judge(PROBLEM, TRACE).scores == {"overall": 0.5}


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (float("nan"), "ValueError: overall: a reward must be a finite number, got nan"),
        (float("inf"), "finite"),
        (None, "TypeError: overall: a reward must be a number, got NoneType"),
        (True, "got bool"),
        (numpy.bool_(True), "got bool"),
        ("0.9", "got str"),
        ([0.9], "got list"),
        ({}, "gave no score"),
        ({"a": 0.5, "b": None}, "b: a reward must be a number"),
        (numpy.array([0.5, 0.6]), "ValueError"),
    ],
)
def test_what_is_no_finite_number_is_a_failed_judgement(reward, says):
    judgement = RewardModelJudge(lambda p, t: reward).judge(PROBLEM, TRACE)
    assert judgement.scores is None and says in judgement.error


def test_an_exception_in_the_users_function_is_one_failed_judgement_and_no_retry():
    calls = []

    def reward(problem, trace):
        calls.append(1)
        return "a" + 1

    judgement = RewardModelJudge(reward).judge(PROBLEM, TRACE)
    assert judgement.scores is None and judgement.error.startswith("TypeError: can only concatenate str")
    assert len(calls) == 1


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), StopIteration("over"), MemoryError()])
def test_what_would_end_a_thread_or_a_loop_is_a_failed_judgement(error):
    def reward(problem, trace):
        raise error

    async def areward(problem, trace):
        raise error

    for function in (reward, areward):
        judgement = RewardModelJudge(function).judge(PROBLEM, TRACE)
        assert judgement.scores is None and type(error).__name__ in judgement.error
    assert RewardModelJudge(lambda p, t: 1.0).judge(PROBLEM, TRACE).scores == {"overall": 1.0}


@pytest.mark.parametrize("error", [BudgetExceeded("spent"), ModelError("auth", "key", stops_run=True)])
def test_what_must_stop_a_run_passes_through(error):
    def reward(problem, trace):
        raise error

    with pytest.raises(type(error)):
        RewardModelJudge(reward).judge(PROBLEM, TRACE)


def test_rewards_stay_raw_without_a_scale_and_are_mapped_and_bounded_with_one():
    assert RewardModelJudge(lambda p, t: 12.5).judge(PROBLEM, TRACE).scores == {"overall": 12.5}
    assert RewardModelJudge(lambda p, t: 12.5).score_range is None
    scaled = RewardModelJudge(lambda p, t: {"a": 3, "b": 4}, scale=(0, 4))
    assert scaled.judge(PROBLEM, TRACE).scores == {"a": 0.75, "b": 1.0} and scaled.score_range == (0.0, 1.0)
    outside = RewardModelJudge(lambda p, t: 4.1, scale=(0, 4)).judge(PROBLEM, TRACE)
    assert outside.scores is None and "4.1 is outside scale=(0, 4)" in outside.error


def test_names_are_known_after_the_first_answer_and_then_fixed():
    answers = iter([{"a": 1.0}, {"a": 2.0}, {"b": 1.0}])
    judge = RewardModelJudge(lambda p, t: next(answers))
    described = judge.describe()
    assert judge.dimension_names is None
    assert [judge.judge(PROBLEM, TRACE).scores for _ in range(2)] == [{"a": 1.0}, {"a": 2.0}]
    assert judge.dimension_names == ("a",)
    assert "gave ['b'], not ['a']" in judge.judge(PROBLEM, TRACE).error
    assert judge.describe() == described  # a resumed run compares this


def test_declared_names_make_a_typo_in_a_threshold_an_error_before_the_run():
    judge = RewardModelJudge(lambda p, t: NEMOTRON, dimensions=NEMOTRON)
    with pytest.raises(ValueError, match="did you mean 'helpfulness'"):
        Thresholds.for_judge({"helpfullness": 2.0}, judge)
    other = RewardModelJudge(lambda p, t: {"x": 1.0}, dimensions=["y"]).judge(PROBLEM, TRACE)
    assert other.scores is None and "gave ['x'], not ['y']" in other.error


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("http://x/v1",), TypeError, "from_endpoint"),
        ((3,), TypeError, "f\\(problem: str, trace: str\\)"),
        ((lambda problem: 1.0,), TypeError, "must take \\(problem, trace\\)"),
    ],
)
def test_what_is_no_reward_model_is_refused(arguments, error, says):
    with pytest.raises(error, match=says):
        RewardModelJudge(*arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"scale": (1, 1)},
        {"scale": (0, float("nan"))},
        {"scale": 4},
        {"threads": 0},
        {"dimensions": []},
        {"dimensions": ["a", "a"]},
    ],
)
def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError):
        RewardModelJudge(lambda p, t: 1.0, **options)


@pytest.mark.parametrize(
    ("text", "rewards"),
    [
        ("0.9", 0.9),
        (" -3.5e-1\n", -0.35),
        ("helpfulness:1.6171875,correctness:1.6484375,verbosity:0.515625", NEMOTRON),
        ("reward:-12.5", {"reward": -12.5}),
        ("helpfulness: 3\ncorrectness: 2.5", {"helpfulness": 3.0, "correctness": 2.5}),
        ("**Overall quality**: 4", {"Overall quality": 4.0}),
        ('{"score": 0.7}', 0.7),
        ('{"a": 1, "b": 2.5}', {"a": 1, "b": 2.5}),
    ],
)
def test_rewards_are_read_from_an_answer(text, rewards):
    assert read_content(text) == rewards


@pytest.mark.parametrize(
    "text", ["", "good", "7/10", "7 out of 10", "The score is high: 9, really", "a:1,a:2", "a:NaN", "[]"]
)
def test_an_answer_without_rewards_is_refused(text):
    with pytest.raises(ValueError):
        read_content(text)


def test_logprobs_of_an_ordinary_model_are_no_rewards():
    assert read_logprobs([{"token": "helpfulness", "logprob": 1.6}]) == {"helpfulness": 1.6}
    for entries in (None, [], [{"token": "The", "logprob": -0.1}, {"token": " 7", "logprob": -2}]):
        with pytest.raises(ValueError):
            read_logprobs(entries)


@pytest.mark.parametrize(
    ("body", "rewards"),
    [
        ({"score": 0.7}, 0.7),
        ({"score": [0.7]}, 0.7),
        ({"scores": {"a": 1, "b": 2}}, {"a": 1, "b": 2}),
        ({"id": "x", "data": [{"index": 0, "object": "score", "score": 0.25}]}, 0.25),
        ({"data": [{"index": 0, "label": "LABEL_0", "probs": [0.9], "num_classes": 1}]}, 0.9),
        ({"data": [{"label": "LABEL_1", "probs": [0.2, 0.8]}]}, {"class_0": 0.2, "class_1": 0.8}),
        ({"data": [{"object": "pooling", "data": [[3.5]]}]}, 3.5),
        ([{"score": 0.5}], 0.5),
        ({"helpfulness": 1.5, "coherence": 3}, {"helpfulness": 1.5, "coherence": 3}),
    ],
)
def test_rewards_are_read_from_the_body_of_a_score_call(body, rewards):
    assert read_score(body) == rewards


@pytest.mark.parametrize(
    "body", [{}, {"detail": "no"}, {"data": []}, {"data": [{"score": 1}, {"score": 2}]}, 0.5, None]
)
def test_a_body_without_one_reward_is_refused(body):
    with pytest.raises(ValueError):
        read_score(body)


@pytest.mark.parametrize(
    ("kind", "reply", "scores"),
    [
        ("chat_content", Reply("3.25"), {"overall": 3.25}),
        ("chat_content", Reply("helpfulness:1.6171875,correctness:1.6484375,verbosity:0.515625"), NEMOTRON),
        (
            "chat_logprobs",
            Reply(
                "helpfulness:9,correctness:9",
                logprobs={
                    "content": [{"token": n, "logprob": x, "top_logprobs": []} for n, x in NEMOTRON.items()]
                },
                finish_reason="length",
            ),
            NEMOTRON,
        ),
    ],
)
def test_a_reward_model_behind_a_chat_api(serve, kind, reply, scores):
    server = serve(lambda request: reply)
    judge = RewardModelJudge.from_endpoint(server.base_url, model="rm", kind=kind, max_retries=0)
    judgement = judge.judge(PROBLEM, TRACE)
    assert judgement.error is None and judgement.scores == scores
    assert judgement.call["model"] == "rm"
    assert server.log[0].messages == [
        {"role": "user", "content": PROBLEM.problem},
        {"role": "assistant", "content": TRACE},
    ]
    assert bool(server.log[0].body.get("logprobs")) is (kind == "chat_logprobs")


def test_a_chat_that_answers_in_prose_is_a_failed_judgement(serve):
    server = serve(lambda request: "What a good solution!")
    judgement = RewardModelJudge.from_endpoint(server.base_url, model="rm").judge(PROBLEM, TRACE)
    assert judgement.scores is None and "What a good solution" in judgement.error


def scored(body):
    return Reply(raw=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("", {"text_1": PROBLEM.problem, "text_2": TRACE}),
        ("/score", {"text_1": PROBLEM.problem, "text_2": TRACE}),
        (
            "/classify",
            {
                "messages": [
                    {"role": "user", "content": PROBLEM.problem},
                    {"role": "assistant", "content": TRACE},
                ]
            },
        ),
    ],
)
def test_a_plain_score_call(serve, path, sent):
    server = serve(lambda request: scored({"data": [{"score": 0.75}]}))
    judge = RewardModelJudge.from_endpoint(server.base_url + path, model="rm", kind="score")
    judgement = judge.judge(PROBLEM, TRACE)
    assert judgement.scores == {"overall": 0.75}
    assert server.log[0].path == "/v1" + (path or "/score")
    assert server.log[0].body == {"model": "rm", **sent}
    aio.run(judge.aclose())


@pytest.mark.parametrize("type", ["text/plain", "application/json"])
@pytest.mark.parametrize(
    ("said", "score", "error"), [('{"score": 0.5}', 0.5, None), ("fine", None, "no JSON")]
)
def test_a_score_is_read_whatever_its_body_is_called(said, score, error, type):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", type)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        judge = RewardModelJudge.from_endpoint(address, model="rm", kind="score")
        judgement = judge.judge(PROBLEM, TRACE)
        aio.run(judge.aclose())
        server.shutdown()
    assert judgement.scores == (None if score is None else {"overall": score})
    assert error is None or error in judgement.error


SOON = {"retry-after-ms": "1"}


def test_a_score_call_is_tried_again_where_that_helps_and_only_there(serve):
    faults = [Reply(status=503, headers=SOON), Reply(status=429, headers=SOON)]
    server = serve(lambda request: faults[request.number] if request.number < 2 else scored({"score": 1}))
    judgement = RewardModelJudge.from_endpoint(server.base_url, model="rm", kind="score").judge(
        PROBLEM, TRACE
    )
    assert judgement.scores == {"overall": 1.0} and server.calls == 3

    server = serve(lambda request: Reply(status=503, headers=SOON))
    judgement = RewardModelJudge.from_endpoint(server.base_url, model="rm", kind="score").judge(
        PROBLEM, TRACE
    )
    assert judgement.scores is None and judgement.error.startswith("server: ") and server.calls == 4

    for reply in (Reply(status=422, error="no such field"), Reply(raw=b"<html>"), scored({"score": None})):
        server = serve(lambda request, reply=reply: reply)
        judgement = RewardModelJudge.from_endpoint(server.base_url, model="rm", kind="score").judge(
            PROBLEM, TRACE
        )
        assert judgement.scores is None and judgement.error and server.calls == 1

    server = serve(lambda request: Reply(status=401))
    with pytest.raises(ModelError) as stopped:
        RewardModelJudge.from_endpoint(server.base_url, model="rm", kind="score").judge(PROBLEM, TRACE)
    assert stopped.value.stops_run and stopped.value.kind == "auth"


def test_the_key_is_sent_and_shown_nowhere(serve, monkeypatch):
    monkeypatch.setenv("REWARD_KEY", "hunter2-hunter2")
    server = serve(lambda request: Reply(status=400, error=f"bad: {request.headers['authorization']}"))
    judge = RewardModelJudge.from_endpoint(
        server.base_url, model="rm", kind="score", api_key_env="REWARD_KEY"
    )
    judgement = judge.judge(PROBLEM, TRACE)
    assert server.log[0].headers["authorization"] == "Bearer hunter2-hunter2"
    assert "bad: Bearer [key]" in judgement.error
    assert "hunter2" not in f"{judgement!r}{judge!r}{judge.describe()}{judge._repr_markdown_()}"


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "https://bob:{key}@host/score"},
        {"base_url": "https://host/score?key={key}"},
        {"base_url": "{key}"},
        {"base_url": "http//{key}/score"},
        {"api_key_env": "{key}"},
    ],
)
@pytest.mark.parametrize("kind", ["score", "chat_content"])
def test_a_key_in_the_wrong_place_is_refused_and_not_repeated(options, kind):
    key = "sk-proj-0123456789abcdefghij"
    given = {"base_url": "http://127.0.0.1:1/score"} | {n: v.format(key=key) for n, v in options.items()}
    with pytest.raises(ValueError) as refused:
        RewardModelJudge.from_endpoint(**given, model="rm", kind=kind)
    assert key not in str(refused.value) and "0123456789" not in str(refused.value)


def test_a_score_call_on_the_internet_needs_a_key_or_the_word_that_it_needs_none():
    with pytest.raises(ValueError, match='api_key_env=""'):
        RewardModelJudge.from_endpoint("https://example.org/score", model="rm", kind="score")
    judge = RewardModelJudge.from_endpoint(
        "https://example.org/score/", model="rm", kind="score", api_key_env=""
    )
    assert judge.describe()["model"] == {"score_url": "https://example.org/score", "model": "rm"}


def test_a_server_that_is_not_there_is_a_failed_judgement(monkeypatch):
    monkeypatch.setattr("cotkit.judge.reward_sources.RETRIES", 0)
    judge = RewardModelJudge.from_endpoint("http://127.0.0.1:1", model="rm", kind="score")
    judgement = judge.judge(PROBLEM, TRACE)
    assert judgement.scores is None and judgement.error.startswith("connection: 127.0.0.1:1: ")


def test_endpoints_that_cannot_work_are_refused_before_any_call(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    for options, says in [
        ({"base_url": "localhost:8000"}, "address"),
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY"),
        ({"timeout": 0}, "timeout"),
        ({"kind": "scores"}, "unknown kind"),
    ]:
        with pytest.raises(ValueError, match=says):
            RewardModelJudge.from_endpoint(
                **{"base_url": "http://127.0.0.1:1", "model": "rm", "kind": "score"} | options
            )
    with pytest.raises(TypeError):
        RewardModelJudge.from_endpoint("http://127.0.0.1:1", model="rm", kind="score", max_retries=2)


def test_a_judge_serves_one_event_loop_after_another(serve):
    server = serve(lambda request: scored({"score": 1}))
    judge = RewardModelJudge.from_endpoint(server.base_url, model="rm", kind="score")
    assert asyncio.run(judge.ajudge(PROBLEM, TRACE)).scores == {"overall": 1.0}
    assert judge.judge(PROBLEM, TRACE).scores == {"overall": 1.0}


def test_score_calls_are_capped_counted_cached_and_within_budgets(serve, tmp_path):
    from mock_server import Reply

    from cotkit import ChatModel, distill
    from cotkit.problems import Problem

    def script(request):
        if request.path.endswith("/score"):
            return Reply(raw=b'{"score": 0.9}', delay=0.02)
        return "It is \\boxed{4}."

    server = serve(script)
    items = [Problem(id=str(n), problem=f"Problem {n}: 2 + 2?", reference="4") for n in range(12)]
    model = ChatModel("m", base_url=server.base_url)
    judge = RewardModelJudge.from_endpoint(server.base_url, model="rm", kind="score", max_concurrency=2)
    options = {"num_generations": 2, "judge_all": True, "show": "none", "run": tmp_path / "r"}
    report = distill(items, model, judge, **options).report
    scored = sum(request.path.endswith("/score") for request in server.log)
    assert report["kept"] == 12 and report["ledger"]["by_role"]["judge"]["calls"] == scored == 12
    before = server.calls
    distill(items, model, judge, **options, resume="never")
    assert server.calls == before
    other = {**options, "run": tmp_path / "b"}
    report = distill(items, model, judge, **other, budget_calls=10).report
    assert server.calls - before <= 10 and "budget_calls" in report["stopped"]


def test_no_dimension_takes_the_place_of_the_mean():
    with pytest.raises(ValueError, match="the mean of all"):
        RewardModelJudge(lambda p, t: 0.5, dimensions=["mean", "tone"])
