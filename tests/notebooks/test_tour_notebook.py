"""00_tour from parameters to report, on a scripted endpoint."""

from __future__ import annotations

import json

import cotkit
from cotkit.report import execute_notebook
from cotkit.runs import open_run

PROBLEMS = cotkit.load_problems("word_problems", limit=8)


def script(request):
    """Every third problem is answered wrong, drafts and refinements alike."""
    place, problem = next((i, p) for i, p in enumerate(PROBLEMS) if p.problem in request.user)
    answer = problem.reference if place % 3 else "-1"
    return f"{answer} + 0 = {answer}. The answer is \\boxed{{{answer}}}."


def test_the_tour_says_what_was_kept_with_its_interval(serve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    who = {"model": "mock", "base_url": serve(script).base_url, "run_name": str(tmp_path / "run")}
    paths = execute_notebook("tour", who, tmp_path / "reports", progress=False)
    numbers = json.loads(paths.json.read_text(encoding="utf-8"))
    assert all(check["ok"] for check in numbers["checks"])
    kept = open_run(tmp_path / "run").report["kept"]
    said = " ".join(str(finding) for finding in numbers["findings"])
    assert kept == 5 and f"A trace was kept for {kept} of 8 problems (62 %, 95 % interval 31 to 86 %)" in said
    assert f": {kept} verified right, 0 that could not be decided." in said
