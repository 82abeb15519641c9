"""03_threshold_tuning from parameters to report: a run made on a scripted endpoint, run folders, files."""

from __future__ import annotations

import json
import math
import re

import pytest
from mock_server import Reply

import cotkit
from cotkit.report import execute_notebook
from cotkit.runs import add_label

EXTERNAL = re.compile(r"""\b(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", re.IGNORECASE)
KEY = "sk-notebook-0123456789abcdef"
PROBLEMS = cotkit.load_problems("word_problems", limit=24)


def numbers_of(paths) -> dict:
    html = paths.html.read_text(encoding="utf-8")
    assert not EXTERNAL.search(html) and len(html) < 4_000_000
    numbers = json.loads(paths.json.read_text(encoding="utf-8"))
    assert all(check["ok"] is not False for check in numbers["checks"])
    return numbers


def metrics(numbers) -> dict:
    return {metric["name"]: metric for metric in numbers["metrics"]}


def said(numbers) -> str:
    return " ".join(str(finding) for finding in numbers["findings"])


def script(request):
    """Every third problem is answered wrong, with a wrong step; P(yes) leans the right way, mostly; of two
    traces the first is called better."""
    place, problem = next(
        (i, p) for i, p in enumerate(PROBLEMS) if p.problem in request.user.split("Proposed")[0]
    )
    if request.body.get("max_tokens") == 1:
        yes = 0.3 if "= 999" in request.user else 0.6 + 0.01 * (place % 7)
        top = [{"token": t, "logprob": math.log(p)} for t, p in (("Yes", yes), ("No", 1 - yes))]
        return Reply("Yes", logprobs={"content": [{**top[0], "top_logprobs": top}]})
    if "second solution" in request.user:
        return json.dumps({"reason": "seen", "better": "first"})
    tokens = [{"token": "a", "logprob": -0.1 * (1 + request.body["seed"] % 9)}]
    good = place % 3 or request.body["seed"] % 5 == 0
    text = f"2 * 3 = 6. The answer is \\boxed{{{problem.reference}}}."
    return Reply(text if good else "2 * 3 = 999. The answer is \\boxed{-1}.", logprobs={"content": tokens})


def label_by_hand(folder):
    """A person says of each trace what the verifier says, except of one in nine."""
    run = cotkit.open_run(folder)
    traces = [(row.id, n, c.verdict.correct) for row in run.records() for n, c in enumerate(row.candidates)]
    for at, (id, number, correct) in enumerate(traces):
        add_label(run, id, number, "good" if correct != (at % 9 == 0) else "bad")


def test_a_run_made_on_the_spot_is_tuned_diagnosed_and_written_down(serve, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    server = serve(script)
    who = {"model": "mock", "base_url": server.base_url, "api_key_env": "MY_KEY"}
    parameters = {
        **who,
        "n_problems": 24,
        "run_name": str(tmp_path / "run"),
        "diagnose": ["step", "p_yes"],
    }
    paths = execute_notebook("threshold_tuning", parameters, tmp_path / "reports")
    numbers = numbers_of(paths)
    shown = metrics(numbers)
    for name in ("steps", "consistency", "form", "p_yes", "self_consistency", "mean_logprob"):
        assert len(shown[f"AUC {name}"]["interval"]) == 2
    assert shown["AUC p_yes"]["value"] > 0.9 and shown["certified"]["value"] == "no"
    assert "Not certifiable with n = 24 labelled problems" in said(numbers)
    assert "labelled problems needed" in said(numbers)
    assert "mean_logprob not told from chance" in said(numbers)
    assert "No probe lifts the score of any of the 30 traces" in said(numbers)
    assert "it prefers the first place" in said(numbers) and "the same choice in 0 of" in said(numbers)
    together = next(t for t in numbers["tables"] if t["caption"].startswith("One score of several judges"))
    assert together["rows"] == 7 and "weights need 10 of each" in said(numbers)
    assert len(numbers["figures"]) >= 11
    written = json.loads((paths.html.parent / "thresholds.json").read_text())
    assert written["certified"] is False and written["valid_for"]["iteration"] == [0]
    assert written["judge"]["description"]["judges"][1]["judge"] == "ConfidenceJudge"
    label_by_hand(tmp_path / "run")
    mine = {"scores_from": [str(tmp_path / "run")], "label": "person", "diagnose": [], **who}
    numbers = numbers_of(execute_notebook("threshold_tuning", mine, tmp_path / "reports"))
    assert "A person and the verifier give the same verdict on 64 of 72 traces" in said(numbers)
    assert KEY not in "".join(capfd.readouterr())
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


@pytest.fixture(scope="session")
def gsm8k(shared_data):
    path = shared_data / "gsm8k_model_solutions.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_step_judge_on_public_solutions_has_its_auc_reported_for_each_model(gsm8k, tmp_path):
    judge = cotkit.StepJudge()
    lines = []
    for row in gsm8k:
        problem = cotkit.Problem(id=str(row["problem_index"]), problem=row["question"])
        scores = judge._judge(row["solution"]).scores
        lines.append(
            {"id": problem.id, "correct": row["is_correct"], "model": row["model"], "trace": row["solution"]}
            | {f"score_{name}": score for name, score in scores.items()}
        )
    path = tmp_path / "scored.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    parameters = {"scores_from": [str(path)], "target_precision": 0.8}
    paths = execute_notebook("threshold_tuning", parameters, tmp_path / "reports")
    numbers = numbers_of(paths)
    shown = metrics(numbers)["AUC steps"]
    assert (
        0.5 < shown["interval"][0] < shown["value"] < shown["interval"][1] < 0.56
    )  # better than a coin, hardly
    by_model = next(t for t in numbers["tables"] if t["caption"].startswith("AUC by the model"))
    assert by_model["rows"] == 4 * 3
    for name in {row["model"] for row in gsm8k}:
        assert re.search(rf"AUC of score_steps by model: .*{name} 0\.5\d \[0\.\d\d, 0\.\d\d\]", said(numbers))
    assert "score_form is not shown to tell right from wrong" in said(numbers)


def test_a_bad_file_says_what_is_wrong(tmp_path):
    (tmp_path / "rows.csv").write_text("id,correct,score_a\n1,maybe,0.5\n")
    with pytest.raises(Exception, match="neither True, False nor missing"):
        execute_notebook(
            "threshold_tuning", {"scores_from": [str(tmp_path / "rows.csv")]}, tmp_path / "reports"
        )


def test_a_model_without_verdicts_and_rows_that_are_problems_of_their_own_do_not_end_it(tmp_path):
    lines = ["correct,model,score_a"]
    lines += [f"{(n * 7) % 10 > 3},m{n % 2},{0.1 * (n % 9):.1f}" for n in range(120)]
    lines += [f",m3,{0.1 * (n % 9):.1f}" for n in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    parameters = {"scores_from": [str(tmp_path / "rows.csv")], "group": ""}
    numbers = numbers_of(execute_notebook("threshold_tuning", parameters, tmp_path / "reports"))
    assert "20 of 140 scored traces have no verdict" in said(numbers)
    assert "AUC of score_a by model: m0" in said(numbers)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"target_precision": 90}, "target_precision must lie between 0 and 1"),
        ({"diagnose": ["stepp"]}, "did you mean 'step'"),
        ({"score_columns": ["score_step"]}, "no column 'score_step'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_asked(wrong, says, serve, tmp_path):
    server = serve(script)
    who = {"model": "mock", "base_url": server.base_url, "run_name": str(tmp_path / "run")}
    with pytest.raises(Exception, match=says):
        execute_notebook("threshold_tuning", {**who, **wrong}, tmp_path / "reports")
    assert server.calls == 0 and not (tmp_path / "run").exists()
