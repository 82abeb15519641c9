"""04_self_improvement from parameters to report: data only and from a YAML file on a scripted endpoint;
and, with the extra `train`, a real closed loop in which the steps are too few to learn anything."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from cotkit import cli
from cotkit.chat import WeightsError, model_path
from cotkit.report import execute_notebook
from cotkit.runs import open_run

KEY = "sk-notebook-0123456789abcdef"
SMALL = {"n_problems": 40, "dev": 8, "test": 8, "problems_per_cycle": [12]}


def script(request):
    """Right on the sums of two numbers; the judge gives 8 to every dimension it is asked for."""
    if "response_format" in request.body:
        schema = request.body["response_format"]["json_schema"]["schema"]["properties"]
        scores = {name: {"reason": "seen", "score": 8} for name in schema if name != "feedback"}
        return json.dumps({**scores, "feedback": "none"})
    numbers = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", request.messages[-1]["content"])]
    total = f"{sum(numbers):g}"
    return f"{' + '.join(f'{n:g}' for n in numbers)} = {total}. The answer is \\boxed{{{total}}}."


def check(paths, run):
    html = paths.html.read_text(encoding="utf-8")
    numbers = json.loads(paths.json.read_text(encoding="utf-8"))
    assert html.count("<img") >= 3 and all(c["ok"] for c in numbers["checks"])
    report = json.loads((run / "report.json").read_bytes())
    for cycle in report["cycles"]:
        assert cycle["counts"]["generated"] == cycle["counts"]["kept"] + sum(
            cycle["counts"]["drops"].values()
        )
    return numbers, report


def test_data_only_cycles_of_a_model_behind_an_api(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    server = serve(script)
    parameters = {
        **SMALL, "model": "mock", "teacher": "", "base_url": server.base_url, "api_key_env": "MY_KEY",
        "cycles": 2, "critics": ["step", "mock"], "run_name": str(tmp_path / "run"),
    }  # fmt: skip
    paths = execute_notebook("self_improvement", parameters, tmp_path / "reports")
    numbers, report = check(paths, tmp_path / "run")
    assert [c["training"]["trained"] for c in report["cycles"]] == [False, False]
    assert report["kept"] > 0 and report["test"] is None
    assert any("data only" in str(f) for f in numbers["findings"])
    assert "Which is better?" in paths.html.read_text(encoding="utf-8")
    assert len(list((tmp_path / "run").glob("cycle-*/export/*.jsonl"))) == 2
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


CONFIG = """
model_config:
  actor: {{provider: own, model_name: mock, base_url: "{url}", api_key: "${{MY_KEY}}"}}
  critic: {{provider: own, model_name: judge, base_url: "{url}", api_key: MY_KEY}}
self_improvement_config:
  task_description: Explain how to add the numbers.
  num_iterations: 3
  num_cycles: 2
  prompts: [{prompts}]
  evaluation_dimensions:
    - {{name: clarity, description: Is it clear, scoring_guide: {{1: no, 10: yes}}}}
training_config: {{method: dpo, base_model: org/some-model, epochs: 1}}
"""


def test_the_command_line_takes_a_yaml_file_with_cycles_and_iterations(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    prompts = ", ".join(f"Add {n} and {n + 1} for me" for n in range(2, 30))
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(url=serve(script).base_url, prompts=prompts))
    command = ["run", "self_improvement", "-f", str(config), "--cycles", "1", "--iterations", "1", "-q"]
    run = tmp_path / "run"
    command += ["-p", f"run_name={run}", "-p", "dev=6", "-p", "test=6"]
    command += ["--output", str(tmp_path / "reports"), "--name", "mine"]
    assert cli.main(command) == 0
    report = json.loads((run / "report.json").read_bytes())
    assert len(report["cycles"]) == 1 and report["cycles"][0]["method"] == "dpo"
    assert report["cycles"][0]["status"] == "no_data"  # every answer has the same score: no pair
    assert any("critics alone" in note for note in report["notes"])


@pytest.mark.model
def test_a_real_closed_loop_with_tiny_steps(tmp_path):
    """Mechanics alone: two trained cycles, adapters served, dev and test asked, nothing asked twice."""
    if importlib.util.find_spec("trl") is None:
        pytest.skip("the extra `train` is not installed")
    try:
        model_path("smollm2-135m")
    except WeightsError as error:
        pytest.skip(f"the weights of smollm2-135m cannot be had: {error}")
    parameters = {
        **SMALL, "teacher": "", "cycles": 2, "methods": ["sft", "dpo_sft"], "epochs": 1.0,
        "max_tokens": 60, "dev": 4, "test": 4,
        "run_name": str(tmp_path / "run"),
    }  # fmt: skip
    paths = execute_notebook("self_improvement", parameters, tmp_path / "reports", progress=False)
    _, report = check(paths, tmp_path / "run")
    statuses = {c["status"] for c in report["cycles"]}
    assert statuses <= {"ok", "rolled_back", "no_data"} and report["stopped"] is None
    trained = [c for c in report["cycles"] if c["training"]["trained"]]
    assert trained and all((tmp_path / "run" / f"cycle-{c['cycle']:02d}" / "dev").is_dir() for c in trained)
    promoted = any(c["decision"]["promoted"] for c in trained)
    assert bool(report["test"]) == promoted  # the test set is left alone when nothing held
    calls = report["cost"]["calls"]
    execute_notebook("self_improvement", parameters, tmp_path / "reports", run_name="again", progress=False)
    assert open_run(tmp_path / "run").path.exists()
    assert json.loads((tmp_path / "run" / "report.json").read_bytes())["cost"]["calls"] == calls
