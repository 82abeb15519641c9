"""A tuned thresholds.json decides in a distillation run, for the judge it was tuned on and for no other."""

from __future__ import annotations

import pytest
from scripted import asked_to_judge, judge, model, pid, problem, problems, scores, solve

from cotkit import StepJudge, distill, tune_thresholds


def graded(request):
    """Traces of odd problems are right and scored 8 or 9, those of even ones are wrong and scored 3 or 4."""
    n = pid(request)
    if asked_to_judge(request):
        return scores((9 if n % 2 else 4) - (n % 3 == 0))
    return solve(request) if n % 2 else f"PID={n}; it is \\boxed{{1}}."


@pytest.fixture
def tuned(serve, tmp_path, monkeypatch):
    """(server, path of a thresholds.json) tuned on a run of 100 verified and judged problems."""
    monkeypatch.chdir(tmp_path)
    server = serve(graded)
    options = {"judge_all": True, "max_iterations": 0, "score_threshold": None, "show": "none"}
    sums = [problem(n, type="sum") for n in range(1, 101)]
    run = distill(sums, model(server), judge(server), run=tmp_path / "judged", **options)
    report = tune_thresholds(run, target_precision=0.8, delta=0.1, resamples=2)
    assert report.certified, report.record["reason"]
    assert report.record["judge"]["names"] == ["llm:mock"] and report.record["judge"]["prompt_hashes"]
    return server, str(report.save("thresholds.json"))


def test_the_file_decides_where_no_program_can_and_the_run_records_it(tuned, tmp_path):
    server, path = tuned
    unchecked = [problem(n, reference=None) for n in range(201, 211)]
    run = distill(
        unchecked, model(server), judge(server), score_threshold=path, max_iterations=0,
        run=tmp_path / "kept", show="none",
    )  # fmt: skip
    assert [row.accepted for row in run.records()] == [n % 2 == 1 for n in range(201, 211)]
    recorded = run.config["thresholds"]
    assert recorded["certificate"]["certified"] and recorded["certificate"]["target_precision"] == 0.8
    assert set(run.report["drops"]) == {"below_threshold"}


def test_problems_of_a_type_that_was_not_tuned_on_warn(tuned, tmp_path):
    server, path = tuned
    strange = [problem(n, reference=None, type="geometry") for n in range(301, 303)]
    with pytest.warns(UserWarning, match="this run also has geometry"):
        distill(
            strange, model(server), judge(server), score_threshold=path, max_iterations=0,
            run=tmp_path / "strange", show="none",
        )  # fmt: skip


@pytest.mark.parametrize("other", ["prompt", "dimensions", "kind"])
def test_another_judge_is_refused_before_anything_is_asked(tuned, tmp_path, other):
    server, path = tuned
    calls = server.calls
    judges = {
        "prompt": lambda: judge(server, prompt="Grade {{ trace }} for {{ problem }}."),
        "dimensions": lambda: judge(server, dimensions=["correctness", "clarity"]),
        "kind": StepJudge,
    }
    with pytest.raises(ValueError, match="was tuned on the judge llm:mock"):
        distill(problems(3), model(server), judges[other](), score_threshold=path, run=tmp_path / "r")
    with pytest.raises(ValueError, match="no judge"):
        distill(problems(3), model(server), score_threshold=path, run=tmp_path / "r")
    assert server.calls == calls


def test_runs_of_two_judges_are_not_tuned_together(serve, tmp_path):
    server = serve(graded)
    options = {"max_iterations": 0, "show": "none"}
    runs = [
        distill(problems(3), model(server), who, run=tmp_path / name, **options)
        for name, who in {"model": judge(server), "program": StepJudge()}.items()
    ]
    with pytest.raises(ValueError, match="not judged alike"):
        tune_thresholds(runs)
