"""A synthesis in shards: what several processes make is what one would have made."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from mock_server import Reply
from synth_script import Script, model, right_question, seeds, stage

import cotkit
from cotkit import cli

UNEQUAL = {"latency_s", "seconds", "cached"}  # of two runs on one input


def made(server, strategy, folder, judge=False, **options):
    options = {"show": "none", "calibrate_judge": 0, "attempts": 12, "lag": 2, "rounds": 3, **options}
    asked = model(server, endpoint_name="mock")
    return cotkit.synthesize(seeds(), strategy, asked, asked if judge else None, run=folder, **options)


def rows(run):
    def comparable(value):
        if isinstance(value, dict):
            return {key: comparable(item) for key, item in value.items() if key not in UNEQUAL}
        return [comparable(item) for item in value] if isinstance(value, list) else value

    return [comparable(row.model_dump()) for row in run.records()]


@pytest.mark.parametrize("strategy", ["few_shot", "evol_instruct"])
def test_shards_give_the_rows_of_one_process(serve, tmp_path, strategy):
    server = serve(Script(answer=lambda sid: "\\boxed{5000}" if sid == 5 else f"\\boxed{{{2 * sid + 1}}}"))
    alone = made(server, strategy, tmp_path / "alone", judge=True, calibrate_judge=2)
    asked = server.calls
    with ProcessPoolExecutor(2) as executor:
        options = {"executor": executor, "shards": 2, "judge": True, "calibrate_judge": 2}
        run = made(server, strategy, tmp_path / "many", **options)
    assert rows(run) == rows(alone) and server.calls == 2 * asked
    for name in ("given", "kept", "drops", "complete", "funnel", "notes", "judge_calibration", "attempts"):
        assert run.report[name] == alone.report[name], name
    assert run.report["ledger"]["calls"] == asked
    assert len(cotkit.synthesized_problems(run)) == alone.report["kept"] == 11
    with ThreadPoolExecutor(2) as executor:
        again = made(server, strategy, tmp_path / "many", **{**options, "executor": executor})
    assert rows(again) == rows(alone) and server.calls == 2 * asked  # nothing is asked twice


def test_shards_that_are_merged_by_hand_are_the_same_run(serve, tmp_path, capsys):
    server = serve(Script(question=lambda sid: right_question(sid % 3)))
    with ThreadPoolExecutor(2) as executor:
        options = {"executor": executor, "shards": 2, "judge": True, "calibrate_judge": 2}
        run = made(server, "few_shot", tmp_path / "r", **options)
    parts = sorted(map(str, (tmp_path / "r").glob("shards/0*")))
    assert cli.main(["merge", str(tmp_path / "hand"), *reversed(parts)]) == 0
    assert "12 given = 3 kept + 9 dropped (9 repeated)" in capsys.readouterr().out
    hand = cotkit.open_run(tmp_path / "hand")
    assert rows(hand) == rows(run)
    unlike = {"name", "written", "ledger", "bytes"}
    assert {k: v for k, v in hand.report.items() if k not in unlike} == {
        k: v for k, v in run.report.items() if k not in unlike
    }
    assert hand.report["judge_calibration"] and len(cotkit.synthesized_problems(hand)) == 3
    assert cotkit.compare_strategies({"few_shot": hand}, seeds=seeds()).reliability["attempts"].iloc[0] == 12


def test_two_syntheses_are_not_merged_and_why(serve, tmp_path, capsys):
    server = serve(Script())
    for name in "ab":
        made(server, "few_shot", tmp_path / name, attempts=2)
    assert cli.main(["merge", str(tmp_path / "out"), str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    said = capsys.readouterr().err
    assert "'few_shot-00000' is in" in said and "only the shards of one can be merged" in said


def test_a_time_limit_ends_all_shards_and_the_rest_is_unfinished(serve, tmp_path):
    script = Script()
    server = serve(lambda request: Reply(script(request), delay=1.0))
    with ThreadPoolExecutor(1) as executor:
        options = {"executor": executor, "shards": 4, "attempts": 40}
        report = made(server, "few_shot", tmp_path / "r", time_limit=2.0, **options).report
    assert report["given"] == 40 == report["attempts"] and report["drops"]["unfinished"] >= 30
    assert "time limit" in report["stopped"] and report["funnel"][0]["problems"] <= 10
    with ThreadPoolExecutor(4) as executor:
        run = made(server, "few_shot", tmp_path / "r", **{**options, "executor": executor})
    assert run.report["complete"] and run.report["kept"] == 40


def test_what_two_shards_both_have_stays_once(serve, tmp_path):
    server = serve(Script(question=lambda sid: right_question(sid % 4)))
    with ThreadPoolExecutor(2) as executor:
        options = {"executor": executor, "shards": 2}
        run = made(server, "few_shot", tmp_path / "r", **options)
    report, kept = run.report, run.records(accepted=True)
    assert report["kept"] == 4 == len({row.problem for row in kept}) and report["drops"] == {"repeated": 8}
    assert [step["problems"] for step in report["funnel"][:3]] == [12, 12, 4]
    first = {}
    for row in run.records():
        first.setdefault(row.problem, row.index)
        assert row.accepted == (first[row.problem] == row.index)  # the lower attempt stays
        assert row.accepted or not any(candidate.accepted for candidate in row.candidates)
    late = next(row for row in run.records() if not row.accepted and row.reference is not None)
    assert late.detail == f"of attempt {first[late.problem]}: the same words"  # what it got is kept
    found = cotkit.compare_strategies({"few_shot": run}, seeds=seeds())
    assert found.reliability["accepted"].iloc[0] == 4 and found.reliability["attempts"].iloc[0] == 12


def test_budgets_go_to_the_shards_that_have_attempts(serve, tmp_path):
    server = serve(Script())
    with ThreadPoolExecutor(1) as executor:
        options = {"executor": executor, "shards": 16, "attempts": 4, "lag": 8, "budget_calls": 12}
        run = made(server, "evol_instruct", tmp_path / "one", **options)
        assert run.report["kept"] == 4 and server.calls == 12
        options |= {"shards": 4, "budget_calls": 7}  # 2, 2, 2 and 1
        run = made(server, "few_shot", tmp_path / "four", **options)
    assert server.calls == 12 + 7 and "budget_calls=2" in run.report["stopped"]


def test_fewer_attempts_than_the_shards_hold_are_refused_before_a_call(serve, tmp_path):
    server = serve(Script())
    with ThreadPoolExecutor(1) as executor:
        options = {"executor": executor, "shards": 2}
        made(server, "few_shot", tmp_path / "r", **options, attempts=8)
        with pytest.raises(ValueError, match="holds 8 attempts"):
            made(server, "few_shot", tmp_path / "r", **options, attempts=4)
        assert made(server, "few_shot", tmp_path / "r", **options, attempts=9).report["kept"] == 9
    assert server.calls == 9 * 3


def test_each_shard_has_a_pool_of_its_own(serve, tmp_path):
    server = serve(Script())
    with ThreadPoolExecutor(2) as executor:
        options = {"executor": executor, "shards": 2}
        run = made(server, "self_instruct", tmp_path / "r", **options, attempts=24)
        assert run.report["kept"] == 24
        parents = {row.index: row.metadata["synthesis"]["parents"] for row in run.records()}
        shard = {attempt: attempt // 6 % 2 for attempt in parents}  # blocks of lag x rounds
        for attempt, ids in parents.items():
            assert {shard[int(id[-5:])] for id in ids} <= {shard[attempt]}
        assert sum(map(bool, parents.values())) >= 16
        asked = sum(stage(request) == "question" for request in server.log)
        run = made(server, "self_instruct", tmp_path / "r", **options, attempts=30)  # more may be asked for
        assert (
            run.report["kept"] == 30
            and parents.items()
            <= {row.index: row.metadata["synthesis"]["parents"] for row in run.records()}.items()
        )
        assert sum(stage(request) == "question" for request in server.log) == asked + 6


def test_the_lag_that_is_chosen_gives_every_shard_as_many_attempts_and_stays(serve, tmp_path):
    server = serve(Script())

    def go(width, attempts):
        with ThreadPoolExecutor(2) as executor:
            asked = model(server, endpoint_name="mock", max_concurrency=width)
            options = {"executor": executor, "shards": 2, "attempts": attempts, "rounds": 2, "show": "none"}
            return cotkit.synthesize(seeds(), "evol_instruct", asked, run=tmp_path / "r", **options)

    run = go(16, 40)
    shards = [cotkit.open_run(tmp_path / "r" / "shards" / f"000{n}") for n in range(2)]
    assert [len(shard.records()) for shard in shards] == [20, 20]
    assert [part.config["lag"] for part in (run, *shards)] == [10, 10, 10]
    calls = server.calls
    more = go(2, 60)  # the same call from another machine
    assert more.config["lag"] == 10 and more.report["kept"] == 60 and server.calls == calls * 3 // 2


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"n": 3}, ValueError, "give attempts="),
        ({"executor": 3}, TypeError, "submit"),
        ({"shards": 0}, ValueError, "shards must be"),
        ({"attempts": None}, ValueError, "say how much"),
        ({"temprature": 1}, TypeError, "did you mean 'temperature'"),
    ],
)
def test_what_cannot_work_in_shards_is_refused_before_a_worker_starts(serve, tmp_path, changes, error, says):
    server = serve(Script())
    with ThreadPoolExecutor(1) as executor, pytest.raises(error, match=says):
        made(server, "few_shot", tmp_path / "r", **{"executor": executor, **changes})
    assert server.calls == 0
