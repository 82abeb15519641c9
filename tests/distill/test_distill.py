"""The distillation algorithm against a scripted endpoint: what is asked, chosen, accepted and recorded."""

from __future__ import annotations

import asyncio
import json
import math
import os

import pytest
from mock_server import Reply
from scripted import asked_to_judge, is_refinement, judge, model, pid, problem, problems, scores, solve

import cotkit
from cotkit import StepJudge, adistill, distill, start_distill
from cotkit.judge import Judge, RewardModelJudge
from cotkit.pipelines import running
from cotkit.prompts import load
from cotkit.records import Extraction, Judgement, Verdict
from cotkit.runs import RunError, RunFolder
from cotkit.verify import Verifier


def quiet(items, generator, judge=None, **options):
    return distill(items, generator, judge, **{"show": "none", **options})


def only(run):
    rows = run.records()
    assert len(rows) == 1
    return rows[0]


def test_a_right_first_draft_is_accepted_with_one_call(serve, tmp_path):
    server = serve(solve)
    row = only(quiet([problem(7)], model(server), run=tmp_path / "r"))
    assert (row.accepted, row.drop_reason, row.final, server.calls) == (True, None, 0, 1)
    assert (row.best.answer, row.best.verdict.correct, row.best.iteration) == ("14", True, 0)
    call = row.best.call
    assert call["model"] == call["served_model"] == "mock" and call["endpoint"].startswith("127.0.0.1")
    assert call["usage"]["completion_tokens"] > 0 and call["finish_reason"] == "stop"
    assert row.best.prompt["name"] == "reasoning" and row.best.prompt["hash"]


def test_the_user_turn_is_the_bare_problem_whatever_is_in_it(serve, tmp_path):
    text = 'PID=1; {x} {{ y }} {% if %} \\frac{1}{2} {"a": "b"} what is 1 + 1?'
    server = serve(solve)
    quiet([problem(1, problem=text)], model(server), run=tmp_path / "r")
    assert server.log[0].messages[-1] == {"role": "user", "content": text}


@pytest.mark.parametrize("as_turns", [False, True])
def test_few_shot_examples_are_shown(serve, tmp_path, as_turns):
    server = serve(solve)
    examples = [{"problem": "2+2?", "trace": "2 + 2 = \\boxed{4}"}] if as_turns else "Q: 2+2? A: \\boxed{4}"
    quiet([problem(1)], model(server), few_shot_examples=examples, run=tmp_path / "r")
    roles = [m["role"] for m in server.log[0].messages]
    assert roles == (["system", "user", "assistant", "user"] if as_turns else ["system", "user"])
    assert "\\boxed{4}" in server.log[0].system + str(server.log[0].messages)


def test_best_of_n_takes_the_verified_answer_over_the_fluent_wrong_one(serve, tmp_path):
    drafts = ["So fluent: \\boxed{9}", "terse \\boxed{14}", "wrong \\boxed{3}"]

    def script(request):
        if asked_to_judge(request):
            return scores(10 if "fluent" in request.user else 8)
        return drafts[request.number]

    server = serve(script)
    row = only(quiet([problem(7)], model(server), judge(server), num_generations=3, run=tmp_path / "r"))
    assert row.accepted and row.best.answer == "14" and len(row.candidates) == 3
    assert sum(asked_to_judge(r) for r in server.log) == 1  # only the verified one is worth a judge's call


def test_rejection_sampling_n_is_the_same_as_num_generations(serve, tmp_path):
    server = serve(solve)
    row = only(quiet([problem(7)], model(server), rejection_sampling_n=4, run=tmp_path / "r"))
    assert [c.sample_index for c in row.candidates] == [0, 1, 2, 3] and server.calls == 4
    assert len({json.dumps(r.body.get("seed")) for r in server.log}) == 4


SEEDS = [  # seeds of generator and improver, options, what each samples by
    (None, None, {}, 0, 0),
    (None, None, {"seed": 3}, 3, 3),
    (7, None, {}, 7, 7),
    (7, 5, {}, 7, 5),
    (None, 5, {}, 0, 5),
    (7, 5, {"seed": 3}, 3, 3),
    (7, 5, {"seed": 3, "improver_seed": 4}, 3, 4),
]


@pytest.mark.parametrize(("first", "second", "options", "drafts", "refinements"), SEEDS)
def test_each_model_samples_by_its_own_seed_unless_one_is_given(
    serve, tmp_path, first, second, options, drafts, refinements
):
    server = serve(lambda r: solve(r) if is_refinement(r) else "I say \\boxed{5}.")
    improver = model(server, seed=second)
    run = quiet([problem(7)], model(server, seed=first), improver=improver, run=tmp_path / "r", **options)
    (row,) = run.records()
    of_draft, of_refinement = (running.seed_of(seed, row.id) for seed in (drafts, refinements))
    assert [r.body["seed"] for r in server.log] == [of_draft, of_refinement + 1]  # iteration 1
    given = json.loads((tmp_path / "r" / "config.json").read_text())["config"]
    assert (given["seed"], given.get("improver_seed", drafts)) == (drafts, refinements)


def test_a_wrong_answer_is_refined_until_it_is_right(serve, tmp_path):
    server = serve(lambda r: solve(r) if is_refinement(r) else "I say \\boxed{5}.")
    row = only(quiet([problem(7)], model(server), run=tmp_path / "r"))
    assert [c.stage for c in row.candidates] == ["draft", "refine"] and row.accepted and row.final == 1
    assert row.candidates[1].parent == 0 and "5 is not correct" in row.candidates[0].feedback
    assert "14" not in row.candidates[0].feedback


@pytest.mark.parametrize("shown", [True, False])
def test_the_improver_sees_the_trace_only_when_asked(serve, tmp_path, shown):
    server = serve(lambda r: solve(r) if is_refinement(r) else "A peculiar draft: \\boxed{5}.")
    quiet([problem(7)], model(server), show_trace=shown, run=tmp_path / "r")
    asked = server.log[1].system
    assert ("A peculiar draft" in asked) is shown and "5 is not correct" in asked


def test_the_best_trace_is_kept_not_the_last(serve, tmp_path):
    given = iter([6, 2, 1, 0])
    server = serve(lambda r: scores(next(given)) if asked_to_judge(r) else f"trace {r.number}")
    row = only(quiet([problem(7, reference=None)], model(server), judge(server), run=tmp_path / "r"))
    assert len(row.candidates) == 4 and row.final == 0 and not row.accepted
    assert row.drop_reason == "below_threshold" and "0.60 is below 0.70" in row.detail


def test_refinement_starts_from_the_best_trace_so_far(serve, tmp_path):
    given = iter([5, 2, 6, 3])
    server = serve(lambda r: scores(next(given)) if asked_to_judge(r) else f"trace {r.number}")
    row = only(quiet([problem(7, reference=None)], model(server), judge(server), run=tmp_path / "r"))
    assert [c.parent for c in row.candidates] == [None, 0, 0, 2] and row.final == 2


def test_a_judge_cannot_save_a_wrong_answer(serve, tmp_path):
    server = serve(lambda r: scores(10) if asked_to_judge(r) else "Surely \\boxed{9}.")
    row = only(quiet([problem(7)], model(server), judge(server), max_iterations=1, run=tmp_path / "r"))
    assert not row.accepted and row.drop_reason == "wrong_answer" and "answered 9" in row.detail


def test_a_verified_answer_below_the_threshold_is_dropped_after_max_iterations(serve, tmp_path):
    server = serve(lambda r: scores(9, 5, 9) if asked_to_judge(r) else solve(r))
    row = only(quiet([problem(7)], model(server), judge(server), max_iterations=2, run=tmp_path / "r"))
    assert (row.drop_reason, row.best.verdict.correct, len(row.candidates)) == ("below_threshold", True, 3)
    assert "clarity 0.50 is below 0.70" in row.candidates[0].feedback


@pytest.mark.parametrize("reply", ["no json at all", Reply(status=400, error="bad"), '{"correctness": 99}'])
def test_a_failing_judge_is_bounded_recorded_and_asked_again_on_resume(serve, tmp_path, reply):
    broken = [True]
    server = serve(lambda r: (reply if broken[0] else scores(9)) if asked_to_judge(r) else solve(r))
    run = quiet([problem(7)], model(server), judge(server), run=tmp_path / "r")
    row = only(run)
    assert row.drop_reason == "judge_failed" and row.best.judgement.scores is None and row.retryable
    assert row.best.judgement.error and row.best.trace and server.calls <= 8
    broken[0] = False
    generations = sum(not asked_to_judge(r) for r in server.log)
    row = only(quiet([problem(7)], model(server), judge(server), run=tmp_path / "r"))
    assert row.accepted and sum(not asked_to_judge(r) for r in server.log) == generations


def test_max_iterations_zero_only_distils(serve, tmp_path):
    server = serve(lambda r: "\\boxed{5}")
    row = only(quiet([problem(7)], model(server), max_iterations=0, run=tmp_path / "r"))
    assert server.calls == 1 and row.drop_reason == "wrong_answer"


def test_without_reference_the_judge_alone_decides(serve, tmp_path):
    server = serve(lambda r: scores(9) if asked_to_judge(r) else "A proof.")
    row = only(quiet([problem(7, reference=None)], model(server), judge(server), run=tmp_path / "r"))
    assert row.accepted and row.best.verdict.correct is None and row.best.verdict.method == "no_reference"


def test_without_reference_and_judge_nothing_is_asked(serve, tmp_path):
    server = serve(solve)
    with pytest.raises(ValueError, match=r"1 of 2 problems have no reference answer \(first: id .p2.\)"):
        quiet([problem(1), problem(2, reference=None)], model(server), run=tmp_path / "r")
    assert server.calls == 0
    run = quiet([problem(2, reference=None)], model(server), unchecked="keep", run=tmp_path / "r")
    assert only(run).accepted


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("I give up.", "stop", "no_answer"),
        ("and then \\boxed{", "length", "truncated"),
        ("\\boxed{}", "stop", "no_answer"),
    ],
)
def test_no_answer_is_false_and_has_its_own_reason(serve, tmp_path, text, finish, reason):
    server = serve(lambda r: Reply(text, finish_reason=finish))
    row = only(quiet([problem(7)], model(server), max_iterations=0, run=tmp_path / "r"))
    assert row.drop_reason == reason and row.best.verdict.correct is False
    assert row.best.verdict.method == "no_answer"


def test_reasoning_apart_from_the_text_is_kept_and_never_holds_the_answer(serve, tmp_path):
    server = serve(lambda r: Reply("Final: \\boxed{9}", reasoning="Perhaps \\boxed{14}?"))
    row = only(quiet([problem(7)], model(server), max_iterations=0, run=tmp_path / "r"))
    assert row.best.answer == "9" and row.drop_reason == "wrong_answer"
    assert row.best.trace == "<think>\nPerhaps \\boxed{14}?\n</think>\n\nFinal: \\boxed{9}"


SECRET = "918273645"


def test_the_reference_is_never_shown(serve, tmp_path):
    server = serve(lambda r: scores(3) if asked_to_judge(r) else "\\boxed{5}")
    item = problem(7, reference=SECRET, metadata={"solution": SECRET})
    row = only(quiet([item], model(server), judge(server), run=tmp_path / "r"))
    assert not any(SECRET in json.dumps(r.body) for r in server.log)
    assert not any(c.saw_reference for c in row.candidates)


def test_a_judge_that_saw_the_reference_cannot_pass_it_on(serve, tmp_path):
    feedback = f"The right answer is {SECRET}."
    server = serve(lambda r: scores(3, feedback=feedback) if asked_to_judge(r) else "\\boxed{5}")
    item = problem(7, reference=SECRET)
    row = only(
        quiet([item], model(server), judge(server, show_reference=True), judge_all=True, run=tmp_path / "r")
    )
    asked = [r for r in server.log if not asked_to_judge(r)]
    assert not any(SECRET in json.dumps(r.body) for r in asked)
    assert [c.saw_reference for c in row.candidates] == [False, True, True, True]


def test_rationalization_is_tried_only_for_problems_that_were_never_solved(serve, tmp_path):
    def script(request):
        n = pid(request)
        return solve(request) if n == 1 or f"is {2 * n}. Work out" in request.user else "\\boxed{0}"

    server = serve(script)
    run = quiet(problems(2), model(server), rationalization=True, max_iterations=0, run=tmp_path / "r")
    first, second = run.records()
    assert [c.stage for c in first.candidates] == ["draft"] and first.accepted
    assert [c.stage for c in second.candidates] == ["draft", "rationalize"] and second.accepted
    assert second.best.rationalized and second.best.saw_reference and not first.best.saw_reference


def test_a_rationalization_that_betrays_its_hint_is_dropped(serve, tmp_path):
    server = serve(
        lambda r: "As the given answer is 14: \\boxed{14}" if "Work out" in r.user else "\\boxed{0}"
    )
    run = quiet([problem(7)], model(server), rationalization=True, max_iterations=0, run=tmp_path / "r")
    row = only(run)
    assert not row.accepted and any("given answer" in leak for c in row.candidates for leak in c.leaks)


def test_require_verdict_false_lets_the_judge_decide(serve, tmp_path):
    server = serve(lambda r: scores(9) if asked_to_judge(r) else "\\boxed{9}")
    run = quiet([problem(7)], model(server), judge(server), require_verdict=False, run=tmp_path / "r")
    assert only(run).accepted and only(run).best.verdict.correct is False


def test_a_program_judge_scores_every_draft(serve, tmp_path):
    server = serve(lambda r: solve(r) if r.number else "7 + 7 = 15. \\boxed{15}")
    run = quiet([problem(7)], model(server), StepJudge(), num_generations=2, run=tmp_path / "r")
    row = only(run)
    assert row.accepted and all(c.judgement is not None for c in row.candidates)
    assert server.calls == 2


def test_a_reward_function_works_alone(serve, tmp_path):
    server = serve(solve)
    judge = RewardModelJudge(lambda problem, trace: 0.9)
    row = only(quiet([problem(7)], model(server), judge, run=tmp_path / "r"))
    assert row.accepted and row.best.judgement.scores == {"overall": 0.9} and server.calls == 1


def test_a_threshold_that_a_reward_model_cannot_meet_ends_the_run(serve, tmp_path):
    server = serve(solve)
    judge = RewardModelJudge(lambda problem, trace: {"helpfulness": 0.9})
    with pytest.raises(ValueError, match="helpfulness"):
        quiet(
            problems(9),
            model(server, max_concurrency=2),
            judge,
            score_threshold={"helpfullness": 0.5},
            run=tmp_path / "r",
        )
    assert server.calls <= 3 and not (tmp_path / "r" / "rows.jsonl").read_bytes()


class Says(Judge):
    """Gives what it is told to, without a model."""

    def __init__(self, **scores):
        super().__init__("says", tuple(scores))
        self.scores = scores

    def describe(self):
        return {"judge": self.name}

    async def ajudge(self, problem, trace, *, ledger=None):
        return Judgement(scores=dict(self.scores), judge=self.name)


@pytest.mark.parametrize("threshold", [0.5, None])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_a_failed_judge_and_the_folder_opens(serve, tmp_path, threshold, number):
    options, server = {"score_threshold": threshold, "run": tmp_path / "r"}, serve(solve)
    run = quiet(problems(2), model(server), Says(q=number, other=0.9), **options)
    assert run.report["drops"] == {"judge_failed": 2} and len(run.drops) == 2 and not len(run.rows)
    for row in run.records():
        assert row.retryable and row.detail == row.best.judgement.error == f"q: {number} is no number"
    assert run.export(tmp_path / "all.jsonl", "camel", card=False).rows == 2
    assert quiet(problems(2), model(server), Says(q=1.0, other=0.9), **options).report["kept"] == 2


def test_a_folder_that_holds_null_for_a_score_opens(serve, tmp_path):
    """As folders do that were written before a judge's NaN was a failure."""
    run = quiet([problem(7)], model(serve(solve)), Says(q=0.25), score_threshold=None, run=tmp_path / "r")
    path = tmp_path / "r" / "rows.jsonl"
    line = path.read_bytes()
    assert line.count(b'{"q":0.25}') == 1
    path.write_bytes(line.replace(b'{"q":0.25}', b'{"q":null}'))
    judgement = only(run).best.judgement
    assert (judgement.scores, judgement.mean, judgement.error) == (None, None, "q: nan is no number")
    assert len(run.rows) == 1 and run.export(tmp_path / "e.jsonl", card=False).rows == 1


WRONG = "I say \\boxed{5}."


def test_a_wrong_trace_whose_refinement_the_endpoint_failed_is_asked_again(serve, tmp_path):
    server = serve(lambda r: Reply(drop=True) if is_refinement(r) else WRONG)
    row = only(quiet([problem(7)], model(server), run=tmp_path / "r"))
    assert (row.drop_reason, row.retryable, row.errors[0]["kind"]) == ("wrong_answer", True, "connection")
    server.script, calls = lambda r: solve(r) if is_refinement(r) else WRONG, server.calls
    row = only(quiet([problem(7)], model(server), run=tmp_path / "r"))
    assert row.accepted and not row.errors and server.calls == calls + 1  # the draft is in the cache


def drafts(*replies):
    """The replies by the number of the draft."""
    first = running.seed_of(0, "p7")
    return lambda r: replies[r.body["seed"] - first]


DRAFTS = {"num_generations": 4, "max_iterations": 0}


def test_where_drafts_are_all_there_is_none_is_made_up_for_beside_others(serve, tmp_path):
    """In solved problems it is not either: shares of right ones would come out too low."""
    server = serve(drafts(WRONG, WRONG, WRONG, Reply(drop=True)))
    row = only(quiet([problem(7)], model(server), run=tmp_path / "r", **DRAFTS))
    assert (row.drop_reason, row.retryable, len(row.candidates)) == ("wrong_answer", False, 3)
    calls = server.calls
    assert len(only(quiet([problem(7)], model(server), run=tmp_path / "r", **DRAFTS)).errors) == 1
    assert server.calls == calls


def test_a_trace_on_which_the_judge_failed_beside_one_it_refused_is_judged_again(serve, tmp_path):
    broken = [True]

    def script(request):
        if not asked_to_judge(request):
            return drafts("trace one", "trace two")(request)
        return scores(2) if "trace one" in request.user else "no JSON" if broken[0] else scores(9)

    server, options = serve(script), {"num_generations": 2, "max_iterations": 0, "run": tmp_path / "r"}
    row = only(quiet([problem(7, reference=None)], model(server), judge(server), **options))
    assert (row.drop_reason, row.retryable) == ("below_threshold", True)
    broken[0] = False
    assert only(quiet([problem(7, reference=None)], model(server), judge(server), **options)).accepted


def test_what_asking_again_does_not_mend_is_not_asked_again(serve, tmp_path):
    """A model that says nothing, and a request that is wrong, beside wrong drafts."""
    for number, fault in enumerate(("", Reply(status=400, error="bad"))):
        server = serve(drafts(WRONG, WRONG, WRONG, fault))
        row = only(quiet([problem(7)], model(server), run=tmp_path / f"r{number}", **DRAFTS))
        assert row.errors[0]["kind"] in ("empty", "bad_request") and not row.retryable


def test_a_problem_without_any_trace_is_asked_again_where_one_of_its_failures_can_be_mended(serve, tmp_path):
    bad = Reply(status=400, error="bad")
    row = only(
        quiet(
            [problem(7)], model(serve(drafts(Reply(drop=True), bad, bad, bad))), run=tmp_path / "r", **DRAFTS
        )
    )
    assert (row.drop_reason, row.retryable) == ("model_bad_request", True)


def test_a_kept_trace_is_not_taken_back_for_a_draft_that_is_missing_beside_it(serve, tmp_path):
    server = serve(drafts("It is \\boxed{14}.", WRONG, WRONG, Reply(drop=True)))
    row = only(quiet([problem(7)], model(server), run=tmp_path / "r", **DRAFTS))
    assert row.accepted and not row.retryable and [e["sample_index"] for e in row.errors] == [3]
    calls = server.calls
    assert only(quiet([problem(7)], model(server), run=tmp_path / "r", **DRAFTS)).accepted
    assert server.calls == calls


class Outage(Verifier):
    """The machine that checks the answer fails `failing` times."""

    def __init__(self, failing, method="sandbox_failed"):
        self.left, self.method = failing, method

    def describe(self):
        return {"verifier": "Outage"}

    async def averify(self, problem, text, *, truncated=False, ledger=None):
        self.left -= 1
        verdict = (
            Verdict(correct=None, method=self.method) if self.left >= 0 else Verdict(correct=True, method="m")
        )
        return Extraction(answer=text, how="whole_text"), verdict


def test_a_verdict_that_was_not_come_to_is_kept_by_no_judge_and_asked_for_again(serve, tmp_path):
    server, judge = serve(solve), Says(q=1.0)
    options = {"rationalization": True, "judge_all": False, "run": tmp_path / "r"}
    row = only(quiet([problem(7)], model(server), judge, verifier=Outage(9), **options))
    assert (row.accepted, row.drop_reason, row.retryable) == (False, "verifier_failed", True)
    assert len(row.candidates) == server.calls == 1 and row.best.judgement is None  # nothing to go by
    assert only(quiet([problem(7)], model(server), judge, verifier=Outage(0), **options)).accepted
    assert server.calls == 1
    undecided = {
        "verifier": Outage(9, "model"),
        "run": tmp_path / "u",
    }  # it could not tell: the judge decides
    assert only(quiet([problem(7)], model(server), judge, **undecided)).accepted
    recorded = {"verifier": Outage(9), "require_verdict": False, "run": tmp_path / "v"}
    assert only(quiet([problem(7)], model(server), judge, **recorded)).accepted


def test_a_dimension_without_a_score_is_a_failed_judge_not_a_low_score(serve, tmp_path):
    class Forgetful(Judge):
        def __init__(self):
            super().__init__("forgetful", ("clarity", "depth"))

        def describe(self):
            return {"judge": self.name}

        async def ajudge(self, problem, trace, *, ledger=None):
            return Judgement(scores={"clarity": 0.9}, judge=self.name)

    row = only(quiet([problem(7)], model(serve(solve)), Forgetful(), run=tmp_path / "r"))
    assert row.drop_reason == "judge_failed" and row.retryable and "clarity" in row.detail


def test_a_reward_function_that_exits_fails_its_judgements_only(serve, tmp_path):
    import sys

    judge = RewardModelJudge(lambda problem, trace: sys.exit(3))
    run = quiet(problems(2), model(serve(solve)), judge, run=tmp_path / "r")
    assert run.report["drops"] == {"judge_failed": 2} or run.report["drops"] == {"internal_error": 2}
    assert quiet(problems(2), model(serve(solve)), run=tmp_path / "again").report["kept"] == 2


def test_an_error_while_drawing_ends_the_run_and_frees_the_folder(serve, tmp_path, monkeypatch):
    from cotkit.pipelines import progress

    def broken(self):
        raise BrokenPipeError("the terminal is gone")

    monkeypatch.setattr(progress.Display, "tick", broken)
    server = serve(lambda r: Reply(solve(r), delay=0.3))
    with pytest.raises(BrokenPipeError):
        quiet(problems(50), model(server, max_concurrency=2), run=tmp_path / "r")
    monkeypatch.undo()
    calls = server.calls
    server.script = solve
    assert calls <= 6
    assert quiet(problems(50), model(server), run=tmp_path / "r").report["kept"] == 50


def test_thresholds_by_dimension_need_a_judge(serve, tmp_path):
    with pytest.raises(ValueError, match="no judge"):
        quiet([problem(1)], model(serve(solve)), score_threshold={"clarity": 0.5}, run=tmp_path / "r")


def test_the_folder_says_what_it_was_made_with(serve, tmp_path):
    server = serve(solve)
    found = []
    for count in (2, 3):
        run = quiet(problems(count), model(server), run=tmp_path / "r")
        found.append(json.loads((run.path / "config.json").read_text())["runtime"])
    assert [f["problems"] for f in found] == [2, 3] and found[0]["data_hash"] != found[1]["data_hash"]
    assert found[0]["versions"]["cotkit"] == cotkit.__version__ == run.records()[0].version


def test_raw_rewards_have_raw_thresholds(serve, tmp_path):
    server = serve(solve)
    judge = RewardModelJudge(lambda problem, trace: 3.5)
    assert only(quiet([problem(7)], model(server), judge, score_threshold=3, run=tmp_path / "a")).accepted
    row = only(quiet([problem(7)], model(server), judge, score_threshold=4.0, run=tmp_path / "b"))
    assert row.drop_reason == "below_threshold"


def test_one_bad_row_never_sinks_the_others_and_never_vanishes(serve, tmp_path):
    server = serve(lambda r: Reply(status=400, error="no") if pid(r) == 5 else solve(r))
    run = quiet(problems(20), model(server), run=tmp_path / "r")
    assert run.report["kept"] == 19 and run.report["drops"] == {"model_bad_request": 1}
    assert run.drops.id.tolist() == ["p5"] and "no" in run.drops.detail[0]
    assert server.calls == 20  # a 400 is not retried


def test_no_candidate_is_lost_when_another_fails(serve, tmp_path):
    server = serve(lambda r: solve(r) if r.number == 1 else Reply(status=400, error="no"))
    row = only(quiet([problem(7)], model(server), num_generations=3, run=tmp_path / "r"))
    assert row.accepted and len(row.candidates) == 1 and len(row.errors) == 2


def test_every_trace_belongs_to_its_own_problem(serve, tmp_path):
    server = serve(lambda r: Reply(solve(r), delay=0.001 * (r.number % 7)))
    run = quiet(problems(60), model(server, max_concurrency=8), run=tmp_path / "r")
    for row in run.records():
        assert f"PID={row.index + 1};" in row.best.trace
    assert all(r.user.count("PID=") == 1 for r in server.log) and server.peak <= 8


def test_patterns_of_the_user_are_obeyed(serve, tmp_path):
    server = serve(lambda r: "Ans<<14>> not \\boxed{3}")
    item = problem(7, reference="gold=[14] or so")
    run = quiet(
        [item],
        model(server),
        trace_pattern=r"Ans<<(.*?)>>",
        solution_pattern=r"gold=\[(.*?)\]",
        run=tmp_path / "r",
    )
    assert only(run).accepted


def test_own_prompts_are_used_and_hashed(serve, tmp_path):
    server = serve(solve)
    run = quiet(
        [problem(7)], model(server), prompts={"reasoning": "Do it: {{ problem }}"}, run=tmp_path / "r"
    )
    assert server.log[0].messages[0]["content"].startswith("Do it: PID=7")
    shipped = cotkit.prompts.load("reasoning").hash
    assert only(run).best.prompt["hash"] == run.config["prompts"]["reasoning"] != shipped


EXAMPLE = {"problem": "2+2?", "trace": "2 + 2 = \\boxed{4}"}
BAD = {
    "negative n": ({"num_generations": -1}, "num_generations must be a whole number"),
    "zero rejection n": ({"rejection_sampling_n": 0}, "rejection_sampling_n must be"),
    "negative iterations": ({"max_iterations": -1}, "max_iterations must be 0 or more"),
    "a percent for a score": ({"score_threshold": 70}, "0"),
    "nan threshold": ({"score_threshold": float("nan")}, "nan"),
    "misspelt dimension": ({"score_threshold": {"corectness": 0.9}}, "correctness"),
    "unknown prompt": ({"prompts": {"reasonning": "x"}}, "unknown prompt"),
    "prompt with an unknown value": ({"prompts": {"reasoning": "{{ problme }}"}}, "problme"),
    "malformed prompt": ({"prompts": {"reasoning": "{{ problem"}}, "'reasoning', line 1"),
    "prompt without the problem": ({"prompts": {"reasoning": "Solve it."}}, "does not show the problem"),
    "malformed pattern": ({"trace_pattern": "("}, "trace_pattern"),
    "pattern with two groups": ({"solution_pattern": "(a)(b)"}, "solution_pattern"),
    "temperature in words": ({"temperature": "hot"}, "temperature"),
    "top_p above one": ({"top_p": 5}, "top_p must be at most 1"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "unknown show": ({"show": "loud"}, "show must be"),
    "output into a folder": ({"output_path": "/"}, "output_path"),
    "output by another kind's name": ({"output_path": "traces.json.gz"}, "no name for a camel file"),
    "unknown option": ({"n_generations": 3}, "n_generations"),
    "few-shot without trace": ({"few_shot_examples": [{"problem": "x"}]}, "item 0"),
    "a word for a flag": ({"rationalization": "yes"}, "rationalization must be True or False"),
    "judge_all in words": ({"judge_all": "x"}, "judge_all"),
    "time in words": ({"time_limit": "5"}, "time_limit"),
    "zero time": ({"time_limit": 0}, "time_limit"),
    "bad resume": ({"resume": "yes"}, "resume"),
    "a model as judge": ({"judge": "model"}, "LLMJudge"),
    "one option by both its names": (
        {"num_generations": 2, "rejection_sampling_n": 3},
        "num_generations=2 and rejection_sampling_n=3",
    ),
    "every draft scored by no judge": (
        {"judge": "none", "judge_all": True},
        "judge_all=True, but there is no",
    ),
    "an example that is the problem": (
        {"few_shot_examples": [EXAMPLE, {**EXAMPLE, "problem": "PID=1;  what is\n1 + 1? "}]},
        "few_shot_examples, item 1: it is the problem 'p1'",
    ),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_option_is_refused_before_anything_is_asked(serve, tmp_path, options, message):
    server = serve(solve)
    options = dict(options)
    judges = {"judge": judge(server), "model": model(server), "none": None}[options.pop("judge", "judge")]
    with pytest.raises((ValueError, TypeError), match=message):
        quiet([problem(1)], model(server), judges, **{"run": tmp_path / "r", **options})
    assert server.calls == 0


BAD_PROBLEMS = {
    "unknown answer_type": ({"answer_type": "integer"}, "problem 'p1': unknown answer_type 'integer'"),
    "absolute tolerance": ({"tolerance": 1.5}, "tolerance"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_PROBLEMS.values(), ids=BAD_PROBLEMS.keys())
def test_a_problem_that_cannot_be_compared_is_refused_before_anything_is_asked(
    serve, tmp_path, changes, message
):
    server = serve(solve)
    with pytest.raises(ValueError, match=message):
        quiet([problem(1, **changes), problem(2)], model(server), run=tmp_path / "r")
    assert server.calls == 0


def test_bad_problems_are_refused_before_anything_is_asked(serve, tmp_path):
    server = serve(solve)
    with pytest.raises(ValueError, match="p1"):
        quiet([problem(1), problem(1)], model(server), run=tmp_path / "r")
    assert server.calls == 0 and not (tmp_path / "r").exists()


def test_the_same_call_again_asks_nothing(serve, tmp_path):
    server = serve(solve)
    for _ in range(2):
        run = quiet(problems(5), model(server), run=tmp_path / "r")
    assert server.calls == 5 and run.report["kept"] == 5 and run.report["complete"]


def test_one_more_problem_costs_one_more_call(serve, tmp_path):
    server = serve(solve)
    quiet(problems(20), model(server), run=tmp_path / "r")
    run = quiet(problems(21), model(server), run=tmp_path / "r")
    assert server.calls == 21 and run.report["given"] == run.report["kept"] == 21


def test_a_changed_prompt_is_refused_in_the_old_folder_and_asked_again_in_a_new_one(serve, tmp_path):
    server = serve(solve)
    quiet([problem(7)], model(server), run=tmp_path / "r")
    changed = {"reasoning": "=== system ===\nOther words.\n=== user ===\n{{ problem }}"}
    with pytest.raises(RunError, match=r"prompts\.reasoning: \w+ -> \w+"):
        quiet([problem(7)], model(server), prompts=changed, run=tmp_path / "r")
    quiet([problem(7)], model(server), prompts=changed, run=tmp_path / "r", resume="never")
    assert server.calls == 2


def test_resume_never_pays_for_no_call_twice(serve, tmp_path):
    server = serve(solve)
    quiet(problems(5), model(server), run=tmp_path / "r")
    run = quiet(problems(5), model(server), run=tmp_path / "r", resume="never")
    assert server.calls == 5 and run.report["kept"] == 5
    quiet(problems(5), model(server), run=tmp_path / "r", resume="never", use_cache=False)
    assert server.calls == 10


def test_more_drafts_ask_only_for_the_missing_ones(serve, tmp_path):
    server = serve(solve)
    quiet(problems(5), model(server), num_generations=2, run=tmp_path / "r")
    quiet(problems(5), model(server), num_generations=3, run=tmp_path / "r", resume="never")
    assert server.calls == 15


def test_a_budget_stops_the_run_with_its_results_and_it_goes_on_later(serve, tmp_path):
    server = serve(solve)
    generator = model(server, max_concurrency=3)
    run = quiet(problems(20), generator, run=tmp_path / "r", budget_calls=8)
    report = run.report
    assert server.calls == 8 and report["kept"] == 8 and report["drops"] == {"unfinished": 12}
    assert not report["complete"] and "budget_calls" in report["stopped"]
    run = quiet(problems(20), generator, run=tmp_path / "r")
    assert server.calls == 20 and run.report["complete"] and run.report["ledger"]["calls"] == 20


def test_dead_endpoints_stop_the_run_with_its_results(serve, tmp_path):
    server = serve(lambda r: Reply(status=401, error="bad key") if r.number >= 6 else solve(r))
    run = quiet(problems(30), model(server, max_concurrency=2), run=tmp_path / "r")
    assert run.report["kept"] == 6 and not run.report["complete"] and "401" in run.report["stopped"]
    assert server.calls <= 9


def test_a_time_limit_stops_the_run_with_its_results(serve, tmp_path):
    server = serve(lambda r: solve(r) if pid(r) <= 3 else Reply(solve(r), delay=30))
    run = quiet(problems(8), model(server, max_concurrency=4), run=tmp_path / "r", time_limit=2)
    assert run.report["kept"] == 3 and "time limit of 2 s" in run.report["stopped"]


def test_a_job_reports_progress_and_stops_cleanly(serve, tmp_path):
    server = serve(lambda r: Reply(solve(r), delay=0.05))
    job = start_distill(problems(200), model(server, max_concurrency=2), run=tmp_path / "r")
    while job.progress["done"] < 4:
        assert not job.wait(0.02)
    job.stop()
    run = job.result(timeout=20)
    report = run.report
    assert 4 <= report["kept"] < 200 and report["stopped"] == "stopped by the user"
    assert report["kept"] == server.calls and report["given"] == 200  # nothing paid was thrown away
    assert "kept" in repr(job) and job.progress["kept"] == report["kept"]


def test_it_works_inside_a_running_loop(serve, tmp_path):
    server = serve(solve)

    async def cell():
        blocking = quiet(problems(2), model(server), run=tmp_path / "a")
        awaited = await adistill(problems(2), model(server), run=tmp_path / "b", show="none")
        return blocking, awaited

    for run in asyncio.run(cell()):
        assert run.report["kept"] == 2


def test_shift_tab_shows_every_option():
    import inspect

    for function in (distill, adistill, start_distill):
        assert {"problems", "score_threshold", "budget_usd", "resume"} <= set(
            inspect.signature(function).parameters
        )
    assert "show" not in inspect.signature(start_distill).parameters


def test_a_misspelt_option_is_named_with_its_neighbour(serve):
    with pytest.raises(
        TypeError, match="distill has no option 'num_generation'; did you mean 'num_generations'"
    ):
        distill([problem(1)], model(serve(solve)), num_generation=3)


TOLD = [
    "As the hint says, 14.",
    "We were told the answer is 14.",
    "This matches the provided answer.",
    "The answer you gave is 14.",
    "参考答案是14",
]
ONLY_HINTED = [
    "Given the answer is 14, we work backwards as required.",
    "We know the final answer should be 14.",
    "The solution we were provided with is 14.",
    "Working backwards from 14.",
    "As indicated in the prompt, the answer is 14.",
    "The answer provided above is 14.",
    "Since the result has to be 14, we add.",
    "Therefore the correct answer is (B).",
]
INNOCENT = [
    "The expected value of the die is 3.5.",
    "Mixing the given solution with water gives 3 litres.",
    "So 7 + 7 = 14. The answer is 14.",
    "Given that each box holds 6, there are 12.",
    "We know that a week has 7 days.",
]


@pytest.mark.parametrize("text", TOLD + ONLY_HINTED + INNOCENT)
def test_words_of_being_told_are_a_leak(text):
    from cotkit.pipelines.leaks import trace_leaks

    assert bool(trace_leaks(text)) is (text in TOLD)
    assert bool(trace_leaks(text, hinted=True)) is (text not in INNOCENT)


@pytest.mark.parametrize(
    ("feedback", "answer", "leaks"),
    [
        ("The right value is 1234.0 exactly.", "1234", True),
        ("It should be $1,234.", "1234", True),
        ("It is seven.", "7", True),
        ("0.5 was expected", "1/2", True),
        ("\\frac12 is expected", "1/2", True),
        ("Step 7 is unclear", "72", False),
        ("There are 12 eggs in the problem", "12", False),  # the problem says so
        ("The answer is Paris", "paris", True),
        ("Check your sum.", "7", False),
        ("The correct answer is 12, you wrote 7.", "12", True),  # that the problem says so tells nothing
        ("The result: $12$", "12", True),
        ("It should have been twelve.", "12", True),
        ("4 * 3 equals 12.0", "12", True),
        ("The answer is not 7 but 12", "12", True),
        ("Your answer 7 is wrong: there are 12 eggs.", "12", False),
        ("The answer is wrong. 12 eggs are given.", "12", False),
        ("The answer should use the 12 eggs", "12", False),
        ("The result is 120, step 12 is wrong", "12", False),
    ],
)
def test_feedback_that_states_the_reference_is_known_in_any_spelling(feedback, answer, leaks):
    from cotkit.pipelines.leaks import feedback_leaks

    assert feedback_leaks(feedback, answer, "There are 12 eggs.", "a trace") is leaks


def test_the_answer_policy_reaches_the_verifier(serve, tmp_path):
    from cotkit import AnswerPolicy

    server = serve(lambda r: "It is \\boxed{0.333}")
    item = problem(7, reference="1/3")
    strict = only(quiet([item], model(server), max_iterations=0, run=tmp_path / "a"))
    loose = only(
        quiet(
            [item],
            model(server),
            max_iterations=0,
            run=tmp_path / "b",
            answer_policy=AnswerPolicy(rounding=0.01),
        )
    )
    assert (strict.accepted, loose.accepted) == (False, True)


def test_output_path_writes_camels_file(serve, tmp_path):
    server = serve(solve)
    quiet(problems(3), model(server), run=tmp_path / "r", output_path=tmp_path / "traces.json")
    traces = json.loads((tmp_path / "traces.json").read_text())["traces"]
    assert [t["id"] for t in traces] == ["p1", "p2", "p3"] and traces[0]["boxed_answer_success"] is True


def test_gsm8k_rows_load_and_run(serve, tmp_path, shared_data):
    items = cotkit.load_problems(shared_data / "gsm8k_test.jsonl", limit=25)
    by_text = {p.problem: p.reference.split("####")[1].strip() for p in items}
    server = serve(lambda r: f"It is \\boxed{{{by_text[r.messages[-1]['content']]}}}.")
    run = quiet(items, model(server), run=tmp_path / "r")
    assert run.report["kept"] == 25 and server.calls == 25


def test_a_key_is_found_in_no_file_and_no_output(serve, tmp_path, monkeypatch, capsys):
    key = "sk-test-0123456789abcdef"
    monkeypatch.setenv("MY_KEY", key)

    def script(request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["authorization"] == f"Bearer {key}"
        return solve(request) if pid(request) % 2 else Reply(status=400, error=f"bad key {key}")

    server = serve(script)
    run = distill(problems(6), model(server, api_key_env="MY_KEY"), run=tmp_path / "r", show="lines")
    run.export(tmp_path / "r" / "sft.jsonl")
    assert run.report["kept"] == 3 and len(run.drops) == 3
    said = "".join(capsys.readouterr()) + repr(run) + run.drops.to_string()
    assert key not in said
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


CODE_PROBLEM = {"reference": None, "metadata": {"tests": ["assert f(3) == 9", "assert f(2) == 4"]}}
CHECK_PROBLEM = {
    "reference": None,
    "metadata": {"check_code": "def check(answer):\n    return int(answer) in (7, 13)"},
}


def test_one_run_verifies_answers_check_programs_and_tests(serve, tmp_path):
    def script(request):
        n = pid(request)
        return {1: "\\boxed{2}", 2: "\\boxed{13}", 3: "```python\ndef f(x):\n    return x * x\n```"}[n]

    server = serve(script)
    items = [problem(1), problem(2, **CHECK_PROBLEM), problem(3, **CODE_PROBLEM)]
    rows = quiet(items, model(server), run=tmp_path / "r").records()
    assert [row.best.verdict.method for row in rows] == ["number", "check", "tests"]
    assert all(row.accepted for row in rows) and server.calls == 3
    assert rows[2].best.answer.startswith("def f(x)") and rows[2].best.answer_how == "code"


def test_a_problem_with_tests_is_asked_for_a_program_and_not_for_a_box(serve, tmp_path):
    server = serve(lambda r: "I do not know." if r.number else "```python\ndef f(x):\n    return 4\n```")
    reads = {"reference": "5", "metadata": {"tests": [{"input": "2 3", "output": "5"}]}}
    items = [problem(1, **CODE_PROBLEM), problem(2, **reads)]
    options = {"max_iterations": 2, "rationalization": True, "run": tmp_path / "r"}
    run = quiet(items, model(server, max_concurrency=1), **options)
    systems = [request.system for request in server.log]
    assert len(systems) == 6 and all("```python" in text and "boxed" not in text for text in systems)
    assert sum("must define f" in text for text in systems) == 3
    assert sum("reads its input from stdin" in text for text in systems) == 3
    assert sum("Give the whole of it in one block" in text for text in systems) >= 2
    used = {candidate.prompt["hash"] for row in run.records() for candidate in row.candidates}
    assert used == {run.config["prompts"]["code"]} and load("code").hash in used


def test_the_prompt_for_programs_can_be_replaced(serve, tmp_path):
    server = serve(lambda r: "```python\ndef f(x):\n    return x * x\n```")
    prompts = {"code": "{{ form }} {{ problem }}"}
    row = only(quiet([problem(1, **CODE_PROBLEM)], model(server), prompts=prompts, run=tmp_path / "r"))
    assert row.accepted and server.log[0].user.startswith("The program must define f.")


def test_a_wrong_program_is_refined_and_dropped_with_its_count(serve, tmp_path):
    server = serve(lambda r: "```python\ndef f(x):\n    return 4\n```")
    row = only(quiet([problem(1, **CODE_PROBLEM)], model(server), max_iterations=1, run=tmp_path / "r"))
    assert row.drop_reason == "wrong_answer" and server.calls == 2
    assert "1 of 2 tests pass" in row.detail and "9" not in row.candidates[0].feedback


def test_a_verifier_of_ones_own_decides(serve, tmp_path):
    from cotkit.records import Extraction, Verdict
    from cotkit.verify import Verifier

    seen = []

    class Shortest(Verifier):
        def describe(self):
            return {"verifier": "Shortest", "most": 20}

        async def averify(self, problem, text, *, truncated=False, ledger=None):
            seen.append((truncated, ledger is not None))
            return Extraction(answer=text, how="all"), Verdict(correct=len(text) <= 20, method="short")

    drafts = ["short \\boxed{9}", "a draft that is far too long"]
    server = serve(lambda r: Reply(drafts[r.number], finish_reason="length" if r.number else "stop"))
    item = problem(7, reference=None)
    options = {"num_generations": 2, "verifier": Shortest(), "run": tmp_path / "r"}
    run = quiet([item], model(server, max_concurrency=1), **options)
    row = only(run)
    assert row.accepted and row.best.verdict.method == "short" and row.best.answer == drafts[0]
    assert sorted(seen) == [(False, True), (True, True)]
    assert run.config["verifier"] == {"verifier": "Shortest", "most": 20}
    with pytest.raises(RunError, match=r"verifier\.verifier: Shortest -> AnswerVerifier"):
        quiet([problem(7)], model(server), num_generations=2, run=tmp_path / "r")


BAD_VERIFIERS = {
    "with a policy": (
        {"answer_policy": cotkit.AnswerPolicy()},
        ValueError,
        "answer_policy would not be used",
    ),
    "with patterns": (
        {"trace_pattern": "(a)", "solution_pattern": "(b)"},
        ValueError,
        "solution_pattern and trace_pattern would not be used",
    ),
    "no verifier": ({"verifier": "exact"}, TypeError, "verifier must be a Verifier"),
}


@pytest.mark.parametrize(("options", "error", "message"), BAD_VERIFIERS.values(), ids=BAD_VERIFIERS.keys())
def test_two_ways_to_verify_are_refused_before_anything_is_asked(serve, tmp_path, options, error, message):
    server = serve(solve)
    with pytest.raises(error, match=message):
        quiet(
            [problem(1)],
            model(server),
            run=tmp_path / "r",
            **{"verifier": cotkit.AnswerVerifier(), **options},
        )
    assert server.calls == 0 and not (tmp_path / "r").exists()


@pytest.mark.parametrize("metadata", [{"tests": []}, {"check_code": "def check("}])
def test_tests_that_cannot_run_are_refused_before_anything_is_asked(serve, tmp_path, metadata):
    server = serve(solve)
    with pytest.raises(ValueError, match="problem 'p2', metadata"):
        quiet([problem(1), problem(2, metadata=metadata)], model(server), run=tmp_path / "r")
    assert server.calls == 0


@pytest.mark.parametrize("limit", [None, 60])
def test_a_timeout_of_the_disk_is_not_taken_for_the_time_limit(serve, tmp_path, monkeypatch, limit):
    def append(self, row):
        raise TimeoutError(110, "Connection timed out")

    server = serve(solve)
    with monkeypatch.context() as patch, pytest.raises(TimeoutError, match="Connection timed out"):
        patch.setattr(RunFolder, "append", append)
        quiet(problems(3), model(server), run=tmp_path / "r", time_limit=limit)
    assert quiet(problems(3), model(server), run=tmp_path / "r").report["complete"]
    assert server.calls < 6  # the answer that was there is in the cache


def test_the_time_limit_hides_no_error(serve, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(dict(p)) + "\n" for p in problems(9)))

    def script(request):
        os.utime(path, ns=(1, 1))
        return Reply(solve(request), delay=30 * request.number)

    given = cotkit.load_problems(path, stream=True)
    with pytest.raises(ValueError, match="has changed"):
        quiet(given, model(serve(script), max_concurrency=2), run=tmp_path / "r", time_limit=1.5)
    assert "has changed" in cotkit.open_run(tmp_path / "r").report["stopped"]


def test_reports_of_a_slow_run_are_no_part_of_what_is_written(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "REPORT_S", 0.001)
    sizes, write = [], running.RunFolder.write_report

    def counted(folder, *known, **facts):
        report = write(folder, *known, **facts)
        sizes.append((folder.path / "report.json").stat().st_size)
        return report

    monkeypatch.setattr(running.RunFolder, "write_report", counted)
    server = serve(lambda request: Reply(solve(request), delay=0.01))
    quiet(problems(40), model(server, max_concurrency=1), max_iterations=0, run=tmp_path / "r")
    written = sum((tmp_path / "r" / name).stat().st_size for name in ("rows.jsonl", "calls.jsonl"))
    further = sizes[1:-1]
    assert further and sum(further) <= 1.2 * written / running.REPORT_SHARE
