"""05_model_benchmark from parameters to report, on scripted endpoints."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from mock_server import Reply

import cotkit
from cotkit.report import execute_notebook
from cotkit.runs import open_run

EXTERNAL = re.compile(r"""\b(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", re.IGNORECASE)
KEY = "sk-notebook-0123456789abcdef"


def solver(problems, wrong):
    """Answers with the reference, but for every `wrong[model]`-th problem."""

    def script(request):
        text = request.messages[-1]["content"].strip()
        place, problem = next((i, p) for i, p in enumerate(problems) if p.problem.strip() == text)
        if request.body["model"] not in wrong:
            return Reply(status=404, error="no such model")
        answer = problem.reference if place % wrong[request.body["model"]] else -1
        return f"So it must be. The answer is \\boxed{{{answer}}}."

    return script


def run(tmp_path, server, monkeypatch, **parameters):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    common = {"base_url": server.base_url, "api_key_env": "MY_KEY", "run_name": str(tmp_path / "run")}
    paths = execute_notebook("model_benchmark", common | parameters, tmp_path / "reports", progress=False)
    return paths.html.read_text(encoding="utf-8"), json.loads(paths.json.read_text(encoding="utf-8"))


def test_two_models_on_the_shipped_problems(serve, tmp_path, monkeypatch):
    names = ["logic", "chemistry", "word_problems"]
    pool = [p for name in names for p in cotkit.load_problems(name)]
    server = serve(solver(pool, {"org/strong": 9, "weak": 2}))
    page, numbers = run(
        tmp_path, server, monkeypatch, problems=names, models=["org/strong", "weak"], num_generations=2
    )
    assert not EXTERNAL.search(page) and page.count("<img") >= 5
    assert all(check["ok"] for check in numbers["checks"]) and len(numbers["checks"]) == 4
    strong = next(m for m in numbers["metrics"] if m["name"] == "right: org/strong")
    assert strong["n"] == 24 and strong["interval"][0] < strong["value"] <= strong["interval"][1]
    rows = [row for folder in (tmp_path / "run").iterdir() for row in open_run(folder).records()]
    assert len(rows) == 24 and {row.type for row in rows} >= {"logic", "chemistry", "four-step"}
    assert sum(len(row.candidates) for row in rows) == server.calls == 48
    text = " ".join(str(f) for f in numbers["findings"])
    assert "org/strong was right on" in text and "mean of 6 domains" in text
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


def test_a_folder_of_loongbench_files_and_a_model_that_is_not_there(
    serve, tmp_path, monkeypatch, shared_data
):
    source = shared_data / "loongbench"
    if not source.is_dir():
        pytest.skip("no LoongBench rows in the test data")
    folder = tmp_path / "loong"
    folder.mkdir()
    for name in ("advanced_physics", "graph_discrete_math"):
        shutil.copy(source / f"{name}.json", folder)
    pool = [p for file in sorted(folder.iterdir()) for p in cotkit.load_problems(file)]
    server = serve(solver(pool, {"m": 1000}))
    page, numbers = run(
        tmp_path, server, monkeypatch, problems=[str(folder)], models=["m", "gone"], n_per_domain=4
    )
    assert [check["ok"] for check in numbers["checks"]] == [True, True, True, None]
    right = next(m for m in numbers["metrics"] if m["name"] == "right: m")
    assert (right["value"], right["n"]) == (1.0, 8)
    assert "gone is not complete" in str(numbers["findings"][0]) and "gone is not complete" in page
    types = {row.type for row in open_run(tmp_path / "run" / "m").records()}
    assert types == {"Advanced Physics", "Loong_Graph_Discrete_Math"}


def test_a_folder_may_hold_csv_and_parquet(serve, tmp_path, monkeypatch):
    import pandas

    folder = tmp_path / "mine"
    folder.mkdir()
    rows = pandas.DataFrame({"question": ["What is 1 + 1?", "What is 2 + 2?"], "answer": ["2", "4"]})
    rows.to_csv(folder / "small.CSV", index=False)
    rows.assign(question=["What is 3 + 3?", "What is 4 + 4?"], answer=["6", "8"]).to_parquet(
        folder / "big.parquet"
    )
    (folder / "notes.txt").write_text("no problems")
    pool = [p for name in ("big.parquet", "small.CSV") for p in cotkit.load_problems(folder / name)]
    server = serve(solver(pool, {"m": 1000}))
    _, numbers = run(tmp_path, server, monkeypatch, problems=[str(folder)], models=["m"], n_per_domain=0)
    right = next(m for m in numbers["metrics"] if m["name"] == "right: m")
    assert right["n"] == 4
