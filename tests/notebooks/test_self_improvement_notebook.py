"""04_self_improvement from parameters to report: data only and from a YAML file on a scripted endpoint;
and, with the extra `train`, a real closed loop in which the steps are too few to learn anything."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from cotkit import cli
from cotkit.chat import WeightsError, model_path
from cotkit.report import NotebookFailed, execute_notebook
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
        **SMALL, "model": "mock", "base_url": server.base_url, "api_key_env": "MY_KEY",
        "cycles": 2, "critics": ["step", "mock"], "run_name": str(tmp_path / "run"),
    }  # fmt: skip
    paths = execute_notebook("self_improvement", parameters, tmp_path / "reports")
    numbers, report = check(paths, tmp_path / "run")
    assert [c["training"]["trained"] for c in report["cycles"]] == [False, False]
    assert report["kept"] > 0 and report["test"] is None
    assert any("data only" in str(f) for f in numbers["findings"])
    assert "Which is better?" in paths.html.read_text(encoding="utf-8")
    assert len(list((tmp_path / "run").glob("cycle-*/export/*.jsonl"))) == 2
    assert {r.body["model"] for r in server.log} == {"mock"}  # no embedded teacher
    assert all("max_tokens" not in r.body and "temperature" not in r.body for r in server.log)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


ARTICLE = """
model_config:
  actor:
    provider: openai
    model_name: gpt-4o-mini
    api_key: ${OPENAI_API_KEY}
    temperature: 0.7
  critic:
    provider: openai
    model_name: gpt-4o
    api_key: ${OPENAI_API_KEY}
    temperature: 0.2
  improver:
    provider: openai
    model_name: gpt-4.1
    api_key: ${OPENAI_API_KEY}
self_improvement_config:
  task_description: Explain to a child why the sky is blue, in a few sentences that are true.
  evaluation_criteria: ["Is it true?", "Can a child follow it?"]
  num_iterations: 3
  num_cycles: 2
  evaluation_dimensions:
    - name: correctness
      description: Is every statement true?
      scoring_guide: {1-3: "mostly wrong", 4-6: "some mistakes", 7-10: "true"}
    - name: clarity
      description: Can a child follow it?
      scoring_guide: {1-3: "no", 4-6: "in parts", 7-10: "all of it"}
training_config:
  method: dpo
  base_model: meta-llama/Llama-3.2-1B
  epochs: 1
  batch_size: 4
  learning_rate: 1.0e-5
"""


def graded(request):
    """Four drafts of a problem have four grades, the judge gives each its own; a refinement has the best."""
    if "response_format" in request.body:
        schema = request.body["response_format"]["json_schema"]["schema"]["properties"]
        grade = int(re.search(r"GRADE=(\d+)", request.user)[1])
        scores = {name: {"reason": "seen", "score": grade} for name in schema if name != "feedback"}
        return json.dumps({**scores, "feedback": "Say more."})
    grade = 10 if request.body["model"] == "gpt-4.1" else (3, 5, 6, 7)[request.body["seed"] % 4]
    return f"Small bits of air turn blue light aside more than red (GRADE={grade}, {request.body['seed']})."


@pytest.fixture
def article(serve, tmp_path, monkeypatch):
    """`run(*words, file=text)`: `cotkit run self_improvement` with the article's file as it is, and the run's
    report and configuration."""
    server = serve(graded)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    folder = tmp_path / "run"

    def run(*words, file=ARTICLE):
        config = tmp_path / "config.yaml"
        config.write_text(file)
        command = ["run", "self_improvement", "-f", str(config), *words, "-q", "--name", "mine"]
        command += ["-p", f"run_name={folder}", "--output", str(tmp_path / "reports")]
        assert cli.main(command) == 0
        html = (tmp_path / "reports/mine/report.html").read_text(encoding="utf-8")
        report, config = (json.loads((folder / f"{n}.json").read_bytes()) for n in ("report", "config"))
        return report, config["config"], html

    run.server = server
    return run


def test_the_articles_file_is_taken_as_it_is(article, tmp_path):
    report, config, html = article("--cycles", "1", "--iterations", "1")
    (cycle,) = report["cycles"]
    assert cycle["status"] == "ok" and cycle["method"] == "dpo" and config["iterations"] == 1
    assert cycle["counts"]["kept"] > 0 and cycle["policy"] == "best_vs_worst"
    (file,) = tmp_path.glob("run/cycle-00/export/dpo.jsonl")
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(pairs) == cycle["counts"]["kept"]
    assert all("GRADE=10" in pair["chosen"][0]["content"] for pair in pairs)
    assert cycle["training"]["trained"] is False and report["test"] is None
    assert "training_config was not used" in html and "critics alone" in html
    sent = {(r.body["model"], r.body.get("temperature"), "max_tokens" in r.body) for r in article.server.log}
    assert sent == {("gpt-4o-mini", 0.7, False), ("gpt-4o", 0.2, False), ("gpt-4.1", None, False)}


def test_without_flags_the_files_own_cycles_and_iterations_count(article):
    prompts = "\n".join(f"    - Explain to a child what a drawer with {n} socks is" for n in range(2, 30))
    file = ARTICLE.replace("  num_iterations", f"  prompts:\n{prompts}\n  num_iterations")
    report, config, _ = article(file=file)
    assert len(report["cycles"]) == 2 and config["iterations"] == 3
    assert report["sets"] == {"train": 17, "dev": 4, "test": 7}
    assert all(cycle["counts"]["kept"] >= 17 for cycle in report["cycles"])


def test_what_the_file_alone_says_is_refused_beside_it_before_anything_runs(article, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(ARTICLE)
    command = ["run", "self_improvement", "-f", str(tmp_path / "config.yaml"), "--output", str(tmp_path)]
    for name, value in {"problems": "gsm8k", "n_problems": 4, "model": "gpt-5"}.items():
        assert cli.main([*command, "-p", f"{name}={value}"]) == 2
        out, err = capsys.readouterr()
        assert out == "" and f"names its own actor and problems, so -p {name}=... would not be used" in err
    parameters = {"config": str(tmp_path / "config.yaml"), "n_problems": 4}
    with pytest.raises(NotebookFailed, match="leave out problems, n_problems and model"):
        execute_notebook("self_improvement", parameters, tmp_path / "reports", progress=False)
    assert article.server.calls == 0


def test_an_empty_parameter_takes_out_what_the_file_names(article):
    others = "  teacher: {provider: openai, model_name: gpt-4.1}\n  holdout_critic: {provider: openai, "
    file = ARTICLE.replace("model_config:\n", f"model_config:\n{others}model_name: gpt-4o}}\n")
    file = file.replace("  num_cycles: 2", "  num_cycles: 1\n  budget_calls: 1\n  num_generations: 2")
    words = ["-p", "teacher=", "-p", "holdout_critic=", "-p", "budget_calls=0", "--iterations", "0"]
    report, config, _ = article(*words, file=file)
    assert config["teacher"] is None and config["holdout_critic"] is None
    assert report["stopped"] is None and report["cost"]["calls"] > 1  # no budget of one call


def test_a_parameter_goes_over_the_file(article):
    file = ARTICLE.replace("  num_cycles: 2", "  num_cycles: 1\n  num_generations: 2\n  aggregate: min")
    words = ["-p", "num_generations=3", "-p", "temperature=0.4", "-p", "methods=[sft]", "--iterations", "0"]
    report, config, _ = article(*words, "-p", "dev_generations=2", file=file)
    assert config["dev_generations"] == 2
    assert (config["num_generations"], config["iterations"], config["aggregate"]) == (3, 0, "min")
    assert report["cycles"][0]["method"] == "sft" and len(report["cycles"]) == 1
    actor = [r.body["temperature"] for r in article.server.log if r.body["model"] == "gpt-4o-mini"]
    assert actor == [0.4] * 3


def test_a_dry_run_stops_after_the_estimate_and_asks_nothing(serve, tmp_path, monkeypatch):
    server = serve(script)
    monkeypatch.setenv("MY_KEY", KEY)
    words = {
        **SMALL,
        "model": "mock",
        "base_url": server.base_url,
        "api_key_env": "MY_KEY",
        "dry_run": "true",
    }
    words |= {"critics": "[mock]", "run_name": tmp_path / "run"}
    given = [word for name, value in words.items() for word in ("-p", f"{name}={value}")]
    command = [
        "run",
        "self_improvement",
        *given,
        "-q",
        "--name",
        "dry",
        "--output",
        str(tmp_path / "reports"),
    ]
    assert cli.main(command) == 0
    assert server.calls == 0 and not (tmp_path / "run").exists()
    numbers = json.loads((tmp_path / "reports/dry/report.json").read_text(encoding="utf-8"))
    assert numbers["status"] == "complete" and numbers["error"] is None
    assert "nothing was asked, nothing was trained" in str(numbers["findings"])
    assert [table["caption"] for table in numbers["tables"]][-1].startswith("Calls and tokens at most")
    html = (tmp_path / "reports/dry/report.html").read_text(encoding="utf-8")
    assert "nothing was asked, nothing was trained" in html and "SystemExit" not in html


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
    # Four dev problems are too few for a promotion, so the test set is left alone;
    # tests/train/test_closed_loop.py has a trained actor promoted, drafting, trained on and tested.
    assert not any(c["decision"]["promoted"] for c in trained) and report["test"] is None
    calls = report["cost"]["calls"]
    execute_notebook("self_improvement", parameters, tmp_path / "reports", run_name="again", progress=False)
    assert open_run(tmp_path / "run").path.exists()
    assert json.loads((tmp_path / "run" / "report.json").read_bytes())["cost"]["calls"] == calls
