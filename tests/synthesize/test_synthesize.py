"""Synthesis against a scripted endpoint: what is asked, dropped, kept, recorded and resumed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from mock_server import Reply
from synth_script import Script, model, right_answer, right_code, right_question, seed, seeds, stage, verdict

import cotkit
from cotkit import asynthesize, start_synthesize, synthesize, synthesized_problems
from cotkit.pipelines.attempts import STEPS
from cotkit.pipelines.attempts import printed_by as runs
from cotkit.pipelines.operators import OPERATORS
from cotkit.pipelines.synthesis_report import outcome_of
from cotkit.runs import RunError

STRATEGIES = ("few_shot", "self_instruct", "evol_instruct")
JUDGED = list(STEPS[:-1])


def quiet(items, strategy, generator, judge=None, **options):
    return synthesize(items, strategy, generator, judge, **{"show": "none", "calibrate_judge": 0, **options})


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_fails_while_old_rows_are_read_leaves_the_folder_free(serve, tmp_path, monkeypatch, error):
    server = serve(Script())
    quiet(seeds(), "few_shot", model(server), attempts=4, run=tmp_path / "r")
    calls = server.calls

    def fail(self, rows):
        raise error("while they are read")

    with monkeypatch.context() as broken, pytest.raises(error) as kept:  # as a notebook keeps it
        broken.setattr("cotkit.pipelines.attempts.Synthesizer.remember", fail)
        quiet(seeds(), "few_shot", model(server), attempts=4, run=tmp_path / "r")
    run = quiet(seeds(), "few_shot", model(server), attempts=4, run=tmp_path / "r")
    assert run.report["kept"] == 4 and server.calls == calls and kept.value is not None


@pytest.mark.parametrize("wrong", [{"budget_calls": 1.5}, {"time_limit": -1}, {"calibrate_judge": -1}])
def test_limits_that_cannot_be_are_refused_before_a_shard_begins(serve, tmp_path, wrong):
    server = serve(Script())
    with ThreadPoolExecutor(1) as pool, pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        options = {"attempts": 4, "run": tmp_path / "r", "executor": pool, "shards": 2, **wrong}
        quiet(seeds(), "few_shot", model(server), **options)
    assert server.calls == 0


def about(row):
    return row.metadata["synthesis"]


def asked(server, kind):
    return [request for request in server.log if stage(request) == kind]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_attempt_of_a_faultless_model_gives_a_problem(serve, tmp_path, strategy):
    server = serve(Script())
    run = quiet(seeds(), strategy, model(server), model(server), attempts=12, run=tmp_path / "r")
    report = run.report
    assert (report["given"], report["kept"], report["drops"], report["complete"]) == (12, 12, {}, True)
    assert report["funnel"][-1] == {"step": "solved", "problems": None}
    assert [step["problems"] for step in report["funnel"][:-1]] == [12] * 8
    rows = run.records()
    assert [row.id for row in rows] == [f"{strategy}-{number:05d}" for number in range(12)]
    row = rows[5]
    assert about(row)["passed"] == JUDGED and about(row)["attempt"] == row.index == 5
    assert row.type == "words" and row.answer_type == "number" and row.licence == "Apache-2.0"
    assert row.best.answer == row.reference and row.best.verdict.correct and row.final == 0
    for call, prompt in (("question", f"synth_{strategy}"), ("code", "synth_code")):
        said = about(row)["calls"][call]
        assert said["model"] == "mock" and said["prompt"] == prompt and said["prompt_hash"] and said["text"]
    assert server.calls == 12 * 4
    problem = synthesized_problems(run)[5]
    assert (problem.problem, problem.reference) == (row.problem, row.reference)
    assert problem.solution_code == row.metadata["solution_code"] and about(problem)["seed_ids"]
    assert len(cotkit.load_problems(synthesized_problems(run))) == 12


DROPS = {
    "an apology": ({"question": lambda sid: "I'm sorry, I cannot write that."}, "unparsed", 1),
    "an empty question": ({"question": lambda sid: "Problem 4:"}, "unparsed", 1),
    "a question of no numbers": (
        {"question": lambda sid: "How tall is a tree that grew as it is?"},
        "unanswerable",
        1,
    ),
    "a seed for ever": ({"question": lambda sid: seed(1).problem}, "copied", 2),
    "a seed with other numbers": (
        {"question": lambda sid: re.sub(r"\d+", str(sid + 20), seed(1).problem)},
        "copied",
        2,
    ),
    "prose for code": ({"code": lambda sid: f"SID={sid}; it is easy to see."}, "no_program", 3),
    "no way to know": ({"code": lambda sid: "There is not enough information."}, "unanswerable", 3),
    "code that fails": ({"code": lambda sid: "```python\nprint(1 / 0)\n```"}, "program_error", 3),
    "code that never ends": ({"code": lambda sid: "```python\nwhile True: pass\n```"}, "program_timeout", 3),
    "a library that is not there": (
        {"code": lambda sid: "```python\nimport nowhere_9\n```"},
        "program_error",
        3,
    ),
    "chance": (
        {"code": lambda sid: "```python\nimport random\nprint(random.random())\n```"},
        "nondeterministic",
        4,
    ),
    "today": (
        {"code": lambda sid: "```python\nimport datetime\nprint(datetime.date.today().year)\n```"},
        "nondeterministic",
        4,
    ),
    "hash order": (
        {"code": lambda sid: "```python\nprint(list(set('abcdefghij')))\n```"},
        "nondeterministic",
        4,
    ),
    "an error on the second day only": (
        {
            "code": lambda sid: (
                "```python\nimport datetime\nprint(1 // (2031 - datetime.date.today().year))\n```"
            )
        },
        "nondeterministic",
        4,
    ),
    "many lines": ({"code": lambda sid: "```python\nprint(1)\nprint(2)\n```"}, "no_single_answer", 5),
    "no word": ({"code": lambda sid: "```python\nx = 1\n```"}, "no_single_answer", 5),
    "None": ({"code": lambda sid: "```python\nprint(None)\n```"}, "no_single_answer", 5),
    "a wrong answer": ({"answer": lambda sid: "So it is \\boxed{5000}."}, "answers_disagree", 6),
    "prose for an answer": ({"answer": lambda sid: "It is what it is."}, "answers_disagree", 6),
    "an unanswerable question": (
        {"answer": lambda sid: "It cannot be determined from this."},
        "unanswerable",
        6,
    ),
    "a judge against the code": ({"judge": lambda sid: verdict(code=False)}, "judge_rejected", 7),
    "a judge against the question": ({"judge": lambda sid: verdict(question=False)}, "judge_rejected", 7),
}


@pytest.mark.parametrize("case", DROPS)
def test_what_goes_wrong_is_named_and_ends_the_attempt_there(serve, tmp_path, case):
    replies, reason, passed = DROPS[case]
    server = serve(Script(**replies))
    options = {"program_timeout": 0.7, "attempts": 2, "run": tmp_path / "r"}
    run = quiet(seeds(), "few_shot", model(server), model(server), **options)
    for row in run.records():
        assert (row.drop_reason, row.accepted, row.retryable) == (reason, False, False), row.detail
        assert about(row)["passed"] == list(STEPS[:passed]) and row.detail
        assert not any(candidate.accepted for candidate in row.candidates)
    report = run.report
    assert report["drops"] == {reason: 2} and report["complete"] and not synthesized_problems(run)
    after = {"question": 3, "code": 5, "answer": 6, "judge": 8}  # a step that failed asks nothing more
    assert {kind for kind, first in after.items() if asked(server, kind) and first > passed + 2} <= set()


def test_the_keyword_and_length_gates_are_settable_and_counted(serve, tmp_path):
    server = serve(Script())
    run = quiet(
        seeds(), "few_shot", model(server), attempts=3, gates={"keywords": ["plus"]}, run=tmp_path / "k"
    )
    assert run.report["drops"] == {"keyword": 3}
    run = quiet(seeds(), "few_shot", model(server), attempts=3, gates={"max_words": 9}, run=tmp_path / "l")
    assert run.report["drops"] == {"length": 3}


def test_most_votes_must_agree(serve, tmp_path):
    plain = Script()
    first_seed = int.from_bytes(hashlib.sha256(b"0:few_shot-00000").digest()[:4]) % 2**31
    for wrong, reason in ((1, None), (2, "solver_disagrees")):

        def script(request, wrong=wrong):
            # the seed of a vote is that of the attempt plus its number
            if stage(request) == "answer" and request.body["seed"] - first_seed > 3 - wrong:
                return "It is \\boxed{777}."
            return plain(request)

        server = serve(script)
        run = quiet(seeds(), "few_shot", model(server), attempts=1, votes=3, run=tmp_path / f"v{wrong}")
        row = run.records()[0]
        assert row.drop_reason == reason and [c.sample_index for c in row.candidates] == [0, 1, 2, 3]
        assert [c.accepted for c in row.candidates] == [
            reason is None and c.answer != "777" for c in row.candidates
        ]
        assert run.report["funnel"][-1] == {"step": "solved", "problems": 0 if reason else 1}


def test_of_alike_questions_the_lower_attempt_stays_however_fast_the_others_are(serve, tmp_path):
    """The question is a function of the prompt with few outcomes, so that many are alike; some replies are
    wrong, so that not every first one is accepted. One at a time and sixteen at once give the same rows."""

    def script(request):
        if stage(request) == "question":
            number = int(hashlib.sha256(json.dumps(request.body, sort_keys=True).encode()).hexdigest(), 16)
            return right_question(number % 9)
        sid = int(re.findall(r"SID=(\d+);", request.messages[-1]["content"])[-1])
        draw = (request.body.get("seed") or 0) % 3  # one attempt's program fails where another's does not
        if stage(request) == "code" and not draw:
            return "```python\nprint(1 / 0)\n```"
        return right_code(sid) if stage(request) == "code" else right_answer(sid)

    reasons = set()
    for strategy in STRATEGIES:
        outcomes = []
        for width in (1, 16):
            server = serve(script)
            run = quiet(
                seeds(),
                strategy,
                model(server, max_concurrency=width, endpoint_name="e"),
                attempts=16,
                lag=4,
                run=tmp_path / f"{strategy}{width}",
            )
            outcomes.append([(r.id, r.problem, r.drop_reason, about(r)["passed"]) for r in run.records()])
            reasons |= {row.drop_reason for row in run.records()}
            kept = [row.problem for row in run.records(accepted=True)]
            assert len(set(kept)) == len(kept) >= 3
        assert outcomes[0] == outcomes[1]
    assert {"repeated", "program_error", None} <= reasons


def test_the_machine_pool_grows_while_the_run_goes(serve, tmp_path):
    server = serve(Script())
    options = {"attempts": 16, "k": 4, "machine_share": 0.5, "lag": 2, "gates": {"rouge_l": None}}
    run = quiet(seeds(6), "self_instruct", model(server), run=tmp_path / "r", **options)
    rows = run.records()
    by_id = {row.id: row for row in rows}
    assert not any(about(row)["parents"] for row in rows[:3])
    for row in rows[6:]:
        parents, shown = about(row)["parents"], shown_to(server, row)
        assert len(parents) == 2 and len(shown) == 4 and len(about(row)["seed_ids"]) >= 2
        assert all(by_id[parent].problem in shown for parent in parents)
        assert all(by_id[parent].index < row.index - 2 for parent in parents)


def shown_to(server, row):
    seed_sent = about(row)["calls"]["question"]["params"]["seed"]
    messages = next(r.messages for r in asked(server, "question") if r.body["seed"] == seed_sent)
    return [message["content"] for message in messages if message["role"] == "assistant"]


def test_a_chain_goes_on_from_its_last_good_problem_with_the_operator_in_the_prompt(serve, tmp_path):
    """The second rewriting of each chain has no program; the third starts from the first again."""

    def code(sid):
        return "I write no code." if 2 <= sid < 4 else right_code(sid)

    server = serve(Script(code=code))
    one = model(server, max_concurrency=1)
    run = quiet(seeds(), "evol_instruct", one, attempts=6, rounds=3, lag=2, run=tmp_path / "r")
    rows = run.records()
    assert [row.drop_reason for row in rows] == [None, None, "no_program", "no_program", None, None]
    assert [about(row)["round"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert [about(row)["parents"] for row in rows] == [[], [], *[[rows[0].id], [rows[1].id]] * 2]
    assert about(rows[4])["lineage"] == [0] and about(rows[4])["seed_ids"][0] == about(rows[0])["seed_ids"][0]
    for row, request in zip(rows, asked(server, "question"), strict=True):
        last = request.messages[-1]["content"]
        assert about(row)["operator_text"] in last and about(row)["operator"]
        assert row.index < 2 or rows[row.index % 2].problem in last


@pytest.mark.parametrize(("strategy", "short"), [("self_instruct", 4), ("evol_instruct", 3)])
def test_a_run_too_short_to_look_back_says_so(serve, tmp_path, strategy, short):
    for attempts in (short, short + 1):
        options = {"attempts": attempts, "lag": 3, "run": tmp_path / str(attempts)}
        run = quiet(seeds(), strategy, model(serve(Script()), max_concurrency=1), **options)
        said = [note for note in run.report["notes"] if note.startswith(f"lag=3 of {attempts} attempts")]
        builds = attempts > short
        cut = builds and strategy == "evol_instruct"  # two rounds of four
        assert len(said) == (not builds or cut) and ("more than 2 of 4 times" in str(said)) == cut
        assert any(about(row)["parents"] for row in run.records()) == builds


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_lag_that_is_not_given_is_chosen_once_and_read_from_the_folder(
    serve, tmp_path, monkeypatch, strategy
):
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    server, lag = serve(Script()), 8 if strategy == "few_shot" else 128

    def made(width, **options):
        return quiet(seeds(), strategy, model(server, max_concurrency=width, endpoint_name="e"), **options)

    first = made(16, attempts=4)
    assert first.config["lag"] == lag
    calls = server.calls
    again = made(2, attempts=4)
    assert (again.path, again.config["lag"], server.calls) == (first.path, lag, calls)
    assert made(100, attempts=6).path == first.path and server.calls == calls * 3 // 2
    anew = made(2, attempts=4, resume="never")
    assert (anew.path, anew.config["lag"]) == (first.path, 8)
    if lag != 8:
        with pytest.raises(RunError, match="lag: 8 -> 5"):
            made(2, attempts=4, lag=5, run=first.path)


def test_a_folder_that_was_made_with_the_fixed_lag_of_before_goes_on_under_its_name(
    serve, tmp_path, monkeypatch
):
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    server = serve(Script())
    before = quiet(seeds(), "evol_instruct", model(server), attempts=10, lag=8)
    calls = server.calls
    again = quiet(seeds(), "evol_instruct", model(server), attempts=10)
    assert (again.path, again.config["lag"], server.calls) == (before.path, 8, calls)


def test_the_lag_of_a_new_run_is_no_more_than_the_problems_wanted(serve, tmp_path):
    for n, lag in ((2, 8), (12, 12), (600, 512)):
        job = start_synthesize(seeds(), "self_instruct", model(serve(Script())), n=n, run=tmp_path / str(n))
        job.cancel()
        assert cotkit.open_run(tmp_path / str(n)).config["lag"] == lag


def test_a_rewriting_that_adds_nothing_is_no_gain(serve, tmp_path):
    def script(request):
        shown = request.messages[-1]["content"]
        if "\n\nSituation: " in shown:  # the question alone comes back, as it was
            return f"So what is the total of {re.findall(r'[a-z]+', shown)[-4]}?"
        parent = shown.split("\n\nProblem: ")[1]
        return parent.split("\n\nSecond problem:")[0].replace("What is", "So what is")

    server = serve(script)
    run = quiet(seeds(), "evol_instruct", model(server), attempts=8, run=tmp_path / "r")
    assert run.report["drops"] == {"no_gain": 8}


def test_a_rewriting_that_copies_what_the_prompt_shows_is_no_new_problem(serve, tmp_path):
    """Its program and answer are right, so nothing else would stop it."""
    for name in ("invert", "chain"):
        reply = OPERATORS[name].examples[-1][1]
        server = serve(
            Script(question=lambda sid, reply=reply: re.sub(r"\d+", str(48 + 12 * sid), reply, count=1))
        )
        options = {"attempts": 4, "operators": [name], "run": tmp_path / name}
        run = quiet(seeds(), "evol_instruct", model(server), **options)
        assert run.report["drops"] == {"copied": 4} and f"of {name}" in run.records()[0].detail


def test_an_operator_that_goes_on_shows_the_situation_and_keeps_it(serve, tmp_path):
    """Small models repeat what they are to rewrite; a question that is not shown they must write anew."""
    server = serve(Script())
    run = quiet(seeds(), "evol_instruct", model(server), operators=["chain"], attempts=4, run=tmp_path / "r")
    for row in run.records():
        start = seeds()[int(about(row)["seed_ids"][0][1:])].problem.split(" What is")[0]
        assert row.accepted and row.problem.startswith(f"{start} SID=")
        request = next(r for r in asked(server, "question") if r.messages[-1]["content"].endswith(start))
        assert "Answer with the next sentences alone" in request.system and len(shown_to(server, row)) == 3
    bare = seeds(2, problem="What is the total of 3 apples and 4 pears in this one sentence?")
    bare = [p.model_copy(update={"problem": f"{p.problem[:-1]} of {p.id}?"}) for p in bare]
    run = quiet(bare, "evol_instruct", model(server), operators=["chain"], attempts=2, run=tmp_path / "b")
    assert run.report["drops"] == {"no_operator": 2}


def test_splits_and_types_never_meet_and_licences_add_up(serve, tmp_path):
    items = [
        seed(0, licence="MIT", metadata={"split": "train"}),
        seed(1, licence="CC-BY-4.0", metadata={"split": "train"}),
        seed(2, licence="MIT", metadata={"split": "test"}),
        seed(3, licence=None, metadata={"split": "test"}),
        seed(4, licence="MIT", type="other"),
    ]
    by_id = {item.id: item for item in items}
    for strategy in STRATEGIES:
        server = serve(Script())
        run = quiet(items, strategy, model(server), attempts=8, lag=2, run=tmp_path / strategy)
        for row in run.records():
            sources = [by_id[one] for one in about(row)["seed_ids"]]
            assert len({(s.metadata.get("split"), s.type) for s in sources}) == 1
            assert row.metadata.get("split") == about(row)["split"] == sources[0].metadata.get("split")
            assert row.type == sources[0].type
            licences = {s.licence for s in sources}
            assert set(about(row)["licences"]) == licences
            assert (row.licence is None) == (None in licences)
            assert None in licences or set(row.licence.split(" AND ")) == licences


def test_the_run_ends_when_enough_are_kept_and_keeps_what_was_in_flight(serve, tmp_path, capsys):
    server = serve(Script())
    run = synthesize(
        seeds(), "few_shot", model(server, max_concurrency=4), n=5, run=tmp_path / "r", show="lines"
    )
    report, printed = run.report, capsys.readouterr().out
    assert 5 <= report["kept"] <= 8 and report["kept"] == report["given"] == len(asked(server, "question"))
    assert report["complete"] and report["stopped"] is None and report["attempts"] == 25
    assert report["kept"] == 5 or f"{report['kept'] - 5} more than wanted" in printed
    calls = server.calls
    quiet(seeds(), "few_shot", model(server, max_concurrency=4), n=5, run=run.path)
    assert server.calls == calls  # nothing is left to do
    more = quiet(seeds(), "few_shot", model(server, max_concurrency=4), n=9, run=run.path)
    assert more.report["kept"] >= 9 and more.records()[0].problem == run.records()[0].problem


def test_no_more_is_in_flight_than_what_is_still_wanted_needs(serve, tmp_path):
    server = serve(Script())
    run = quiet(seeds(), "few_shot", model(server, max_concurrency=16), n=5, run=tmp_path / "r")
    assert 5 <= run.report["kept"] <= len(asked(server, "question")) <= 10
    ids = [f"few_shot-{number:05d}" for number in range(run.report["kept"])]
    assert [problem.id for problem in synthesized_problems(run)] == ids[:5]
    assert [problem.id for problem in synthesized_problems(run, all=True)] == ids


def test_attempts_wait_for_a_place_in_their_order(serve, tmp_path):
    """Each chain member needs the one before: out of order they would wait for ever."""
    server = serve(Script(code=lambda sid: right_code(sid) if sid % 3 else "no"))
    options = {"n": 4, "attempts": 30, "lag": 1, "rounds": 3, "run": tmp_path / "r"}
    run = quiet(seeds(), "evol_instruct", model(server, max_concurrency=16), **options)
    assert run.report["kept"] >= 4 and run.report["complete"]


@pytest.mark.parametrize("strategy", ["self_instruct", "evol_instruct"])
def test_what_stops_an_attempt_leaves_those_that_build_on_it_unfinished(serve, tmp_path, strategy):
    """The judge has no key: attempt 0 ends the run, and no later one goes on from a seed in its place."""
    plain, dead = Script(), True
    server = serve(lambda r: Reply(status=401, error="no key") if dead and stage(r) == "judge" else plain(r))
    options = {"attempts": 4, "lag": 1, "rounds": 4, "run": tmp_path / "r", "gates": {"rouge_l": None}}
    stopped = quiet(seeds(), strategy, model(server), model(server), **options)
    # attempt 1 of self_instruct builds on none, so it may have asked
    assert stopped.report["drops"] == {"unfinished": 4} and len(asked(server, "question")) <= 2
    dead = False
    rows = quiet(seeds(), strategy, model(server), model(server), **options).records()
    assert [row.accepted for row in rows] == [True] * 4
    assert strategy == "self_instruct" or [about(row)["parents"] for row in rows[1:]] == [
        [row.id] for row in rows[:3]
    ]


def test_a_chain_whose_parent_an_endpoint_failed_is_asked_again_with_it(serve, tmp_path):
    plain, failing = Script(), True
    server = serve(lambda r: Reply(status=500) if failing and stage(r) == "code" else plain(r))
    options = {"attempts": 3, "lag": 1, "rounds": 3, "run": tmp_path / "r"}
    rows = quiet(seeds(), "evol_instruct", model(server, max_retries=0), **options).records()
    assert [row.drop_reason for row in rows] == ["model_server", "parent_failed", "parent_failed"]
    assert all(row.retryable for row in rows) and len(asked(server, "question")) == 1
    failing = False
    rows = quiet(seeds(), "evol_instruct", model(server), **options).records()
    assert [about(row)["parents"] for row in rows] == [[], [rows[0].id], [rows[1].id]]


def test_an_error_of_the_program_itself_is_counted_and_compared(serve, tmp_path, monkeypatch):
    module = sys.modules["cotkit.pipelines.attempts"]
    right, calls = module.typed_answer, []

    def broken(*given):
        calls.append(given)
        if len(calls) == 2:
            raise RuntimeError("bug")
        return right(*given)

    monkeypatch.setattr(module, "typed_answer", broken)
    run = quiet(seeds(), "few_shot", model(serve(Script())), attempts=4, run=tmp_path / "r")
    assert run.report["drops"] == {"internal_error": 1}
    assert run.report["funnel"][0] == {"step": "attempted", "problems": 4}
    line = cotkit.compare_strategies({"a": run}, None, seeds()).reliability.iloc[0]
    assert (line["attempts"], line["failed"], line["accepted"]) == (3, 1, 3)


def test_a_keyword_that_the_seeds_have_refuses_nothing_unless_it_was_asked_for(serve, tmp_path):
    items = [seed(0), seed(1, problem="A graph has 3 nodes and 2 edges. How many is that in all?")]
    script = Script(question=lambda sid: right_question(sid).replace("what is", "in a graph what is"))
    options = {"attempts": 2, "k": 1}
    run = quiet(items, "self_instruct", model(serve(script)), run=tmp_path / "a", **options)
    assert run.report["kept"] == 2 and "'graph' refuses nothing, 1 seeds" in "\n".join(run.report["notes"])
    options["gates"] = {"keywords": ["graph"]}
    run = quiet(items, "self_instruct", model(serve(script)), run=tmp_path / "b", **options)
    assert run.report["drops"] == {"keyword": 2}


def test_the_votes_are_of_a_solver_who_is_not_the_writer_of_the_worked_answer(serve, tmp_path):
    writers, solvers = serve(Script()), serve(Script(answer=lambda sid: "\\boxed{5000}"))
    options = {"attempts": 2, "votes": 2}
    writer = model(writers)
    run = quiet(seeds(), "few_shot", writer, solver=model(solvers), run=tmp_path / "a", **options)
    assert run.report["drops"] == {"solver_disagrees": 2} and not run.report["notes"]
    assert len(asked(writers, "answer")) == 2 and len(solvers.log) == 4
    run = quiet(seeds(), "few_shot", writer, answerer=model(solvers), run=tmp_path / "b", **options)
    assert run.report["drops"] == {"answers_disagree": 2}
    run = quiet(seeds(), "few_shot", writer, run=tmp_path / "c", **options)
    assert "not independent" in run.report["notes"][0]


def test_a_shortfall_is_said(serve, tmp_path, capsys):
    server = serve(Script(code=lambda sid: right_code(sid) if sid < 2 else "no"))
    run = synthesize(seeds(), "few_shot", model(server), n=4, attempts=6, run=tmp_path / "r", show="lines")
    assert (run.report["kept"], run.report["wanted"], run.report["drops"]) == (2, 4, {"no_program": 4})
    printed = capsys.readouterr().out
    assert "2 problems from 6 attempts, 2 short of the 4 wanted" in printed and "judged not done" in printed


def test_a_judge_that_fails_costs_nothing_that_was_made_and_is_asked_again(serve, tmp_path):
    plain, failing = Script(), True

    def script(request):
        if failing and stage(request) == "judge":
            return Reply("no JSON at all")
        return plain(request)

    server = serve(script)
    options = {"attempts": 3, "run": tmp_path / "r"}
    run = quiet(seeds(), "few_shot", model(server), model(server), **options)
    for row in run.records():
        assert (
            row.drop_reason == "judge_failed" and row.retryable and row.reference and row.best.verdict.correct
        )
        assert row.metadata["solution_code"] and about(row)["passed"] == list(STEPS[:7])
    failing, before = False, server.calls
    again = quiet(seeds(), "few_shot", model(server), model(server), **options)
    assert again.report["kept"] == 3 and {stage(r) for r in server.log[before:]} == {"judge"}


@pytest.mark.parametrize("kind", ["question", "code", "answer"])
def test_an_endpoint_that_fails_is_no_verdict_on_the_problem(serve, tmp_path, kind):
    plain = Script()
    server = serve(lambda r: Reply(status=500) if stage(r) == kind else plain(r))
    run = quiet(seeds(), "few_shot", model(server, max_retries=0), attempts=2, run=tmp_path / "r")
    for row in run.records():
        assert row.drop_reason.startswith("model_") and row.retryable and row.errors
        assert bool(row.problem) == (kind != "question")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_that_was_stopped_goes_on_and_pays_nothing_twice(serve, tmp_path, strategy):
    whole = serve(Script())
    full = quiet(seeds(), strategy, model(whole, endpoint_name="e"), attempts=12, lag=3, run=tmp_path / "w")
    server = serve(Script())
    options = {"attempts": 12, "lag": 3, "run": tmp_path / "r"}
    first = quiet(seeds(), strategy, model(server, endpoint_name="e"), budget_calls=17, **options)
    assert first.report["drops"]["unfinished"] > 0 and "budget_calls" in first.report["stopped"]
    last = quiet(seeds(), strategy, model(server, endpoint_name="e"), **options)
    assert last.report["complete"] and server.calls == whole.calls == 36
    assert [about(row)["seed_ids"] for row in last.records()] == [
        about(row)["seed_ids"] for row in full.records()
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_which_of_two_alike_questions_stays_does_not_depend_on_a_stop(serve, tmp_path, strategy):
    """The lower attempt, also where it got no call before a budget was spent and a higher one did."""
    script = Script(question=lambda sid: right_question(sid % 4))
    options = {"attempts": 12, "lag": 3, "rounds": 2}

    def kept(run):
        return [(row.id, row.accepted, row.drop_reason) for row in run.records()]

    whole = kept(
        quiet(seeds(), strategy, model(serve(script), endpoint_name="e"), run=tmp_path / "w", **options)
    )
    for budget in range(2, 36, 8):
        server, folder = serve(script), tmp_path / str(budget)
        asked = model(server, endpoint_name="e", max_concurrency=5)
        first = quiet(seeds(), strategy, asked, run=folder, budget_calls=budget, **options)
        assert set(kept(first)) <= set(whole)
        assert kept(quiet(seeds(), strategy, asked, run=folder, **options)) == whole


def test_fewer_attempts_than_the_folder_holds_are_refused_before_a_call(serve, tmp_path):
    server = serve(Script())
    options = {"run": tmp_path / "r"}
    quiet(seeds(), "few_shot", model(server), attempts=6, **options)
    with pytest.raises(ValueError, match="holds 6 attempts"):
        quiet(seeds(), "few_shot", model(server), attempts=4, **options)
    run = quiet(seeds(), "few_shot", model(server), n=1, **options)  # n alone may be lowered
    assert (run.report["kept"], run.report["complete"], server.calls) == (6, True, 18)
    assert len(synthesized_problems(run)) == 1


def test_what_stopped_a_run_is_said_without_a_wanted_number_too(serve, tmp_path):
    run = quiet(seeds(), "few_shot", model(serve(Script())), attempts=6, budget_calls=4, run=tmp_path / "r")
    assert "stopped: budget_calls=4 is spent" in outcome_of(run.report)


def test_what_is_known_of_the_judge_stays_when_a_later_sitting_does_not_try_it(serve, tmp_path):
    server = serve(Script())
    options = {"run": tmp_path / "r"}
    first = quiet(seeds(), "few_shot", model(server), model(server), attempts=2, calibrate_judge=2, **options)
    later = quiet(seeds(), "few_shot", model(server), model(server), attempts=3, **options)
    assert later.report["judge_calibration"] == first.report["judge_calibration"] is not None


def test_after_kill_9_nothing_that_was_answered_is_asked_again(serve, tmp_path):
    """A real process, killed when rows are on disk and before its last call; the next call on the folder
    keeps them as they are, and in the end has the rows of a straight run."""
    plain, killed = Script(), []

    def script(request):
        if len(server.log) > 36 and not killed and len(kept := on_disk()) >= 3:
            killed.append(kept)
            process.send_signal(signal.SIGKILL)
        return plain(request)

    def on_disk():
        path = tmp_path / "r" / "rows.jsonl"
        return path.read_text().splitlines(keepends=True) if path.exists() else []

    server = serve(script)
    options = {"attempts": 12, "lag": 3, "run": str(tmp_path / "whole"), "allow_weak_isolation": True}
    one = {"max_concurrency": 4, "endpoint_name": "e"}
    whole = quiet(seeds(), "evol_instruct", model(server, **one), **options)
    assert server.calls == 36
    options["run"] = str(tmp_path / "r")
    code = f"""
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
from types import SimpleNamespace
from synth_script import model, seeds
from cotkit import synthesize
asked = model(SimpleNamespace(base_url={server.base_url!r}), **{one!r})
synthesize(seeds(), "evol_instruct", asked, show="none", **{options!r})
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    assert process.wait(120) == -signal.SIGKILL
    before = [line for line in on_disk() if line.endswith("\n")]
    assert 3 <= len(killed[0]) <= len(before) < 12  # in the middle
    run = quiet(seeds(), "evol_instruct", model(server, **one), **options)
    assert [(row.problem, about(row)["parents"]) for row in run.records()] == [
        (row.problem, about(row)["parents"]) for row in whole.records()
    ]
    assert on_disk()[: len(before)] == before and len(on_disk()) == 12
    assert run.report["complete"] and 72 <= server.calls <= 72 + 4  # what was in flight


def test_each_stage_can_have_a_model_of_its_own(serve, tmp_path):
    stages = {role: serve(Script()) for role in ("question", "code", "answer", "judge")}
    of = {role: model(server, endpoint_name=role) for role, server in stages.items()}
    options = {"coder": of["code"], "answerer": of["answer"], "attempts": 6, "k": 3, "run": tmp_path / "r"}
    run = quiet(seeds(), "few_shot", of["question"], of["judge"], **options)
    assert run.report["kept"] == 6
    for role, server in stages.items():
        assert {stage(request) for request in server.log} == {role} and len(server.log) == 6
    for row in run.records():
        assert len(set(shown_to(stages["question"], row))) == 3 == len(about(row)["seed_ids"])
        assert about(row)["calls"]["code"]["endpoint"] == "code" and row.best.call["endpoint"] == "answer"


def test_a_question_that_was_cut_off_is_none_and_one_call_at_a_time_stays_one(serve, tmp_path):
    script = Script()

    def cut(request):
        reply = script(request)
        return Reply(reply, finish_reason="length") if stage(request) == "question" else reply

    server = serve(cut)
    one = model(server, max_concurrency=1)
    run = quiet(seeds(), "few_shot", one, one, attempts=3, calibrate_judge=2, run=tmp_path / "r")
    assert run.report["drops"] == {"unparsed": 3} and "cut off" in run.records()[0].detail
    assert server.peak == 1


def test_the_judge_is_tried_on_planted_errors(serve, tmp_path):
    """One judge believes everything, another computes: what each misses and refuses wrongly is measured."""
    items = seeds(5)
    truth = {item.problem: item.reference for item in items}

    def script(request):
        if stage(request) != "judge":
            return plain(request)
        problem = next((text for text in truth if text in request.user), None)
        printed = re.search(r"printed answer \w+>>>\n(.*)\n", request.user)[1]
        return verdict(code=believes or problem is None or printed == truth[problem])

    plain, believes = Script(), True
    for believes, missed in ((True, 4), (False, 0)):
        server = serve(script)
        run = quiet(items, "few_shot", model(server), model(server), attempts=1, calibrate_judge=4,
                    run=tmp_path / str(believes))  # fmt: skip
        known = run.report["judge_calibration"]
        assert (known["pairs"], known["miss"]["successes"], known["miss"]["n"]) == (4, missed, 4)
        assert known["false_alarm"]["successes"] == 0 and known["false_alarm"]["n"] == 4
        assert 0 < known["miss"]["high"] <= 1 and sum(k["of"] for k in known["missed_by_kind"].values()) == 4
        assert run.report["ledger"]["by_role"]["judge_calibration"]["calls"] == 8
        assert f"misses {missed} of 4 planted errors" in outcome_of(run.report)


def test_a_calibration_without_programs_says_so(serve, tmp_path):
    server = serve(Script())
    items = seeds(3, solution_code=None)
    run = quiet(
        items, "few_shot", model(server), model(server), attempts=1, calibrate_judge=4, run=tmp_path / "r"
    )
    assert run.report["judge_calibration"]["pairs"] == 0 and "not calibrated" in outcome_of(run.report)
    assert any("no program" in note for note in run.report["notes"])
    assert len(asked(server, "judge")) == 1


def test_one_seed_is_enough(serve, tmp_path):
    for strategy in STRATEGIES:
        server = serve(Script())
        run = quiet(seeds(1), strategy, model(server), attempts=6, lag=2, run=tmp_path / strategy)
        assert run.report["kept"] == 6
        assert all(about(row)["operator"] != "combine" for row in run.records())
        assert strategy == "evol_instruct" or "k=" in run.report["notes"][0]


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"seeds": []}, ValueError, "no problems"),
        ({"strategy": "evol"}, ValueError, "unknown strategy"),
        ({"attempts": None}, ValueError, "say how much"),
        ({"n": 5, "attempts": 3}, ValueError, "cannot give"),
        ({"n": 0}, ValueError, "n must be"),
        ({"k": 0}, ValueError, "k must be"),
        ({"votes": True}, ValueError, "votes must be"),
        ({"lag": 0}, ValueError, "lag must be"),
        ({"machine_share": 1}, ValueError, "machine_share"),
        ({"operators": ["nope"]}, ValueError, "unknown operator"),
        ({"gates": {"nope": 1}}, ValueError, "gates"),
        ({"temprature": 1}, TypeError, "did you mean 'temperature'"),
        ({"temperature": -1}, ValueError, "temperature"),
        ({"judge": "gpt"}, TypeError, "judge must be a ChatModel"),
        ({"coder": 3}, TypeError, "coder must be a ChatModel"),
        ({"prompts": {"synth_code": "Write a program."}}, ValueError, "does not show"),
        ({"prompts": {"synth_few_shot": "{{ nothing }}"}}, ValueError, "it may use"),
        ({"prompts": {"synth_cod": "x"}}, ValueError, "unknown prompt"),
        ({"program_timeout": 0}, ValueError, "timeout"),
        ({"show": "loud"}, ValueError, "show"),
        ({"seeds": [seed(0, answer_type="numbr")]}, ValueError, "answer_type"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_call(serve, tmp_path, changes, error, says):
    server = serve(Script())
    given = {"seeds": seeds(), "strategy": "few_shot", "judge": None, "attempts": 2, **changes}
    with pytest.raises(error, match=says):
        quiet(given.pop("seeds"), given.pop("strategy"), model(server), given.pop("judge"),
              run=tmp_path / "r", **given)  # fmt: skip
    assert server.calls == 0 and not (tmp_path / "r").exists()


def test_another_configuration_in_the_same_folder_is_refused(serve, tmp_path):
    server = serve(Script())
    quiet(seeds(), "few_shot", model(server), attempts=1, run=tmp_path / "r")
    for items, changes in ((seeds(3), {}), (seeds(), {"k": 2}), (seeds(), {"seed": 1})):
        with pytest.raises(RunError, match="another configuration"):
            quiet(items, "few_shot", model(server), attempts=1, run=tmp_path / "r", **changes)
    with pytest.raises(ValueError, match="no synthesis run"):
        synthesized_problems(
            cotkit.distill(seeds(1), model(server), max_iterations=0, run=tmp_path / "d", show="none")
        )


def test_it_runs_in_the_background_and_awaited(serve, tmp_path):
    server = serve(Script())
    job = start_synthesize(seeds(), "few_shot", model(server), attempts=3, run=tmp_path / "b")
    assert job.result(60).report["kept"] == 3 and job.progress["done"] == 3
    run = asyncio.run(
        asynthesize(seeds(), "few_shot", model(server), attempts=2, run=tmp_path / "a", show="none")
    )
    assert run.report["kept"] == 2


def test_a_question_full_of_braces_and_latex_passes_through(serve, tmp_path):
    text = 'SID=7; {x} {{ y }} {% if %} \\frac{1}{2} ```3``` of "it": what is 7 plus 8?'
    server = serve(Script(question=lambda sid: text))
    row = quiet(seeds(), "few_shot", model(server), attempts=1, run=tmp_path / "r").records()[0]
    assert row.problem == text and row.accepted
    assert asked(server, "code")[0].messages[-1]["content"] == text == asked(server, "answer")[0].user


def test_a_job_that_was_cancelled_under_one_attempt_costs_no_other(serve, tmp_path, monkeypatch):
    async def printed_by(code, **options):
        if not lost:
            lost.append(code)
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return await runs(code, **options)

    lost = []
    monkeypatch.setattr("cotkit.pipelines.attempts.printed_by", printed_by)
    server = serve(Script())
    run = quiet(seeds(), "self_instruct", model(server), attempts=12, run=tmp_path / "r")
    assert run.report["drops"] == {"internal_error": 1} and run.report["kept"] == 11
