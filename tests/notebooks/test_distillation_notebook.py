"""01_distillation from parameters to report: once on a scripted endpoint, once on a real embedded model."""

from __future__ import annotations

import json
import re

import pytest

import cotkit
from cotkit.chat.weights import WeightsError, path
from cotkit.report import execute_notebook
from cotkit.runs import open_run

EXTERNAL = re.compile(r"""\b(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", re.IGNORECASE)


def check_report(paths, run):
    """What holds of every report of this notebook; returns its numbers."""
    html = paths.html.read_text(encoding="utf-8")
    numbers = json.loads(paths.json.read_text(encoding="utf-8"))
    assert not EXTERNAL.search(html) and len(html) < 3_000_000
    assert html.count("<img") >= 5 and "data:image" in html
    assert not re.search(r"widget-view|Widget\(", html)
    counts = run.report
    assert counts["given"] == counts["kept"] + sum(counts["drops"].values())
    assert len(run.records()) == counts["given"]
    for file in ("sft.jsonl", "pairs.jsonl", "camel.json"):
        assert (run.path / "export" / file).exists()
    kept = next(m for m in numbers["metrics"] if m["name"] == "kept")
    assert kept["n"] == counts["given"] and len(kept["interval"]) == 2
    assert any(f"Kept {counts['kept']} of {counts['given']} problems" in str(f) for f in numbers["findings"])
    return numbers


KEY = "sk-notebook-0123456789abcdef"
PROBLEMS = cotkit.load_problems("word_problems", limit=24)


def script(request):
    """Every third problem is drafted wrong; a refinement is right. The judge is easy to please."""
    if "response_format" in request.body:
        names = ("correctness", "clarity", "completeness")
        body = ", ".join(f'"{name}": {{"reason": "seen", "score": 8}}' for name in names)
        return f'{{{body}, "feedback": "none"}}'
    place, problem = next((i, p) for i, p in enumerate(PROBLEMS) if p.problem in request.user)
    right = place % 3 or "Review:" in request.system
    return f"Steps: 2 * 3 = 6. The answer is \\boxed{{{problem.reference if right else -1}}}."


def test_on_a_scripted_endpoint_from_another_folder(serve, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    server = serve(script)
    parameters = {
        "n_problems": 24,
        "model": "mock",
        "base_url": server.base_url,
        "api_key_env": "MY_KEY",
        "judge": "same",
        "run_name": str(tmp_path / "run"),
    }
    paths = execute_notebook("distillation", parameters, tmp_path / "reports")
    run = open_run(tmp_path / "run")
    numbers = check_report(paths, run)
    assert run.report["kept"] == 24
    assert sum(row.best.stage == "refine" for row in run.records()) == 8
    assert all(check["ok"] for check in numbers["checks"])
    assert KEY not in "".join(capfd.readouterr())
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


@pytest.mark.model
def test_on_a_real_embedded_model(tmp_path):
    try:
        path("smollm2-135m")
    except WeightsError as error:
        pytest.skip(f"the weights of smollm2-135m cannot be had: {error}")
    parameters = {
        "model": "embedded:smollm2-135m",
        "n_problems": 4,
        "max_iterations": 1,
        "max_tokens": 100,
        "run_name": str(tmp_path / "run"),
    }
    paths = execute_notebook("distillation", parameters, tmp_path / "reports", progress=False)
    run = open_run(tmp_path / "run")
    check_report(paths, run)
    candidates = [c for row in run.records() for c in row.candidates]
    assert len(candidates) >= 8 and all(c.text.strip() for c in candidates)
    assert all(c.verdict.correct in (True, False) and c.judgement.scores for c in candidates)
    assert {c.call["endpoint"] for c in candidates} == {"embedded"}
    assert len({c.text for c in candidates}) > 4  # it writes, it does not repeat one text
