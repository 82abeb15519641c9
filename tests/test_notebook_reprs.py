"""Every public object shows itself in a notebook, as HTML or Markdown, and runs no word of a model."""

from __future__ import annotations

import pathlib
import sys

from mock_server import MockServer

import cotkit
from cotkit.analysis import StrategyComparison
from cotkit.records import Candidate, Extraction, Row, Verdict
from cotkit.report import ReportPaths

sys.path.insert(0, str(pathlib.Path(__file__).parent / "analysis"))

from scored import scored
from synthesis_rows import attempts, report, seeds

VIEWS = ("_repr_html_", "_repr_markdown_")

ODD = "<script>alert(1)</script> costs $5 and $6"
PROBLEM = cotkit.Problem(id="p", problem=ODD, reference="4", type="sums")
VERDICT = Verdict(correct=None, method="not_decided", reason=ODD)
JUDGEMENT = cotkit.Judgement(scores={"form": 0.25}, reasons={"form": ODD}, judge="j")
CANDIDATE = Candidate(iteration=0, trace=ODD, text=ODD, answer="4", verdict=VERDICT, judgement=JUDGEMENT)


def made() -> list[object]:
    """One of each class that can be made without a run."""
    judge = cotkit.StepJudge()
    model = cotkit.ChatModel("mock", base_url="http://127.0.0.1:1/v1")
    environment = cotkit.Environment([PROBLEM])
    environment.reset(0)
    return [
        PROBLEM, VERDICT, JUDGEMENT, CANDIDATE, model, judge, environment, environment.verifier,
        environment.step(ODD),
        Row(index=0, id="r", problem=ODD, candidates=[CANDIDATE], final=0),
        Row(index=0, id="r", problem=ODD, errors=[{"message": ODD}]),
        Extraction(answer=ODD, how="boxed"), cotkit.Completion(text=ODD, model="mock", endpoint="here"),
        cotkit.Dimension(name="form", guide=ODD), cotkit.AnswerPolicy(), cotkit.CheckVerifier(),
        cotkit.TestsVerifier(), cotkit.ModelVerifier(model), cotkit.Thresholds.parse(0.5),
        cotkit.JudgePanel([judge, cotkit.StepJudge(name="again")]), cotkit.LLMJudge(model),
        cotkit.ConfidenceJudge(model), cotkit.RewardModelJudge(lambda problem, trace: 0.5),
        cotkit.run_python("print(1)", allow_weak_isolation=True),
    ]  # fmt: skip


def returned(folder) -> list[object]:
    """What calls return."""
    problems = cotkit.load_problems("word_problems", limit=2)
    with MockServer(lambda request: f"{ODD} \\boxed{{2}}") as server:
        model = cotkit.ChatModel("mock", base_url=server.base_url)
        job = cotkit.start_distill(problems, model, cotkit.StepJudge(), max_iterations=0, run=folder / "a")
        run = job.result(60)
        benchmark = cotkit.benchmark(problems, {"a": model}, run=folder / "b")
    runs = {"few_shot": attempts("few_shot", 12, 0.9)}
    compared = StrategyComparison.of(runs, {"few_shot": report(runs["few_shot"])}, seeds(6))
    paths = ReportPaths.of(folder / "reports")
    exported = run.export(folder / "sft.jsonl")
    tuned = cotkit.tune_thresholds(scored(60, 2), resamples=2)
    return [job, run, benchmark, compared, paths, exported, tuned, cotkit.Report("R", folder=folder / "c")]


def test_every_public_object_shows_itself_and_runs_no_word_of_a_model(tmp_path):
    objects = [*made(), *returned(tmp_path)]
    for one in objects:
        how = next((how for how in VIEWS if hasattr(one, how)), None)
        assert how, f"{type(one).__name__} shows a notebook nothing but its repr"
        page = getattr(one, how)()
        assert len(page) > 20 and "nan" not in page, f"{type(one).__name__}: {page}"
        assert how == "_repr_markdown_" or "<script" not in page, page
    public = {getattr(cotkit, name) for name in cotkit.__all__}
    classes = {one for one in public if isinstance(one, type) and not issubclass(one, BaseException)}
    assert classes - {type(one) for one in objects} == {cotkit.JudgeDiagnosis}, "shown in tests/diagnose"
