"""How a run begins and ends: what is refused before a call, what is closed, what one row may cost."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from scripted import model, problems, solve

from cotkit import aio, distill, start_distill
from cotkit.chat import ModelError
from cotkit.judge import RewardModelJudge
from cotkit.pipelines.running import check_limits
from cotkit.records import Extraction, Verdict
from cotkit.verify import Verifier


class Own(Verifier):
    """A user's verifier that lets a model's failure through."""

    def __init__(self, **error):
        self.error = error

    def describe(self):
        return {"name": "own"}

    async def averify(self, problem, text, *, truncated=False, ledger=None):
        if problem.id == "p2":
            raise ModelError("refusal", "cannot say", **self.error)
        return Extraction(answer="4", how="own"), Verdict(correct=True, method="own")


def test_a_failure_that_a_users_verifier_lets_through_costs_its_row_alone(serve, tmp_path):
    run = distill(problems(6), model(serve(solve)), verifier=Own(), run=tmp_path / "r", show="none")
    assert (run.report["kept"], run.report["drops"]) == (5, {"internal_error": 1})
    assert run.report["stopped"] is None
    (row,) = run.records(accepted=False)
    assert row.id == "p2" and row.retryable and "cannot say" in row.detail
    assert row.errors[0]["kind"] == "refusal"


def test_one_that_stops_a_run_stops_it(serve, tmp_path):
    generator, verifier = model(serve(solve), max_concurrency=1), Own(stops_run=True)
    run = distill(problems(6), generator, verifier=verifier, run=tmp_path / "r", show="none")
    assert run.report["kept"] == 1 and "cannot say" in run.report["stopped"]


# What is refused before a call, with an executor too.

WRONG = [
    ({"budget_usd": "5"}, "budget_usd must be a number"),
    ({"budget_calls": 10.5}, "budget_calls must be a whole number"),
    ({"budget_tokens": -1}, "budget_tokens must be at least 0"),
    ({"time_limit": -1}, "time_limit must be a positive number of seconds"),
    ({"time_limit": True}, "time_limit must be a positive number of seconds"),
    ({"resume": "yes"}, "'auto', 'never' or 'must'"),
    ({"show": "nonsense"}, "'auto', 'bar', 'lines' or 'none'"),
    ({"output_path": "."}, "name a file"),
]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("wrong, said", WRONG)
def test_what_cannot_be_is_refused_before_a_call(serve, tmp_path, monkeypatch, wrong, said, shared):
    monkeypatch.chdir(tmp_path)
    server = serve(solve)
    with ThreadPoolExecutor(2) as pool, pytest.raises((ValueError, TypeError), match=re.escape(said)):
        options = {"executor": pool, "shards": 2} if shared else {}
        distill(problems(4), model(server), run=tmp_path / "r", **{"show": "none", **options, **wrong})
    assert server.calls == 0 and not (tmp_path / "r").exists()


def test_a_runs_other_options_are_none_of_the_limits():
    check_limits(budget_usd=1, time_limit=0.5, resume="must", run="r", use_cache=False, n=3)


# The current folder changes.


def test_a_relative_path_stays_where_it_was_when_the_current_folder_changes(serve, tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)

    def script(request):
        os.chdir(elsewhere)
        return solve(request)

    job = start_distill(problems(3), model(serve(script)), run="out/r")
    assert job.result(60).report["kept"] == 3
    assert (here / "out" / "r" / "report.json").exists() and not list(elsewhere.iterdir())
    os.chdir(here)
    options = {"run": "out/s", "output_path": "traces.json", "show": "none"}
    with ThreadPoolExecutor(1) as pool:
        run = distill(problems(3), model(serve(script)), executor=pool, shards=2, **options)
    assert run.path == here / "out" / "s" and run.report["kept"] == 3
    assert (here / "traces.json").exists() and not list(elsewhere.iterdir())


# What never went leaves nothing open.


@pytest.mark.parametrize("begin", [distill, start_distill])
def test_a_run_that_the_engine_refuses_leaves_its_folder_free(serve, tmp_path, begin):
    server, quiet = serve(solve), {"show": "none"} if begin is distill else {}

    async def inside():
        begin(problems(2), model(server), run=tmp_path / "r", **quiet)

    with pytest.raises(RuntimeError, match="inside cotkit's own loop") as kept:  # as a notebook keeps it
        aio.run(inside())
    run = distill(problems(2), model(server), run=tmp_path / "r", show="none")
    assert run.report["kept"] == 2 and kept.value is not None


def test_a_display_that_fails_leaves_the_folder_free(serve, tmp_path, monkeypatch):
    def fail(progress):
        raise RuntimeError("no terminal")

    generator = model(serve(solve))
    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="no terminal") as kept:
        broken.setattr("cotkit.pipelines.progress._bar", fail)
        distill(problems(2), generator, run=tmp_path / "r", show="bar")
    run = distill(problems(2), generator, run=tmp_path / "r", show="none")
    assert run.report["kept"] == 2 and kept.value is not None


def test_a_failure_that_a_users_judge_lets_through_costs_its_row_alone(serve, tmp_path):
    class Judge(RewardModelJudge):
        async def ajudge(self, problem, trace, *, ledger=None):
            if problem.id == "p2":
                raise ModelError("server", "judge is ill")
            return await super().ajudge(problem, trace, ledger=ledger)

    judge = Judge(lambda problem, trace: 1.0)
    run = distill(problems(4), model(serve(solve)), judge, run=tmp_path / "r", show="none")
    assert run.report["kept"] == 3 and run.report["drops"] == {"internal_error": 1}
