"""02_strategy_comparison from parameters to report: on a scripted endpoint, and on a real embedded model."""

from __future__ import annotations

import itertools
import json
import re

import pytest

import cotkit
from cotkit.chat.weights import WeightsError, path
from cotkit.report import execute_notebook
from cotkit.runs import open_run

KEY = "sk-strategies-0123456789abcdef"
STRATEGIES = ("few_shot", "self_instruct", "evol_instruct")
EXTERNAL = re.compile(r"""\b(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", re.IGNORECASE)
SYSTEM = {"You write problems": "few", "You rewrite problems": "evo"}


def script():
    """Every fourth program crashes, every fourth worked answer is wrong; the judge accepts everything but
    what mentions an 11; the solver knows the seeds and every other new problem. Some questions hold half a
    character (a lone surrogate), as a reply that was cut in the middle of an emoji does.
    """
    count = itertools.count()

    def number(request):
        found = re.findall(r"ID=(\d+);", request.messages[-1]["content"])
        return int(found[-1]) if found else None

    def reply(request):
        if "response_format" in request.body:
            ok = "11" not in request.user.split("printed answer")[0]
            verdict = {"reason": "seen", "ok": ok}
            return json.dumps({"question": verdict, "code": verdict})
        if "Python program" in request.system:
            n = number(request)
            return f"```python\n{'raise SystemExit(1)' if n % 4 == 3 else f'print({n} + 1)'}\n```"
        if not any(request.system.startswith(start) for start in SYSTEM):
            n = number(request)
            return f"One more.\nThe answer is \\boxed{{{8 if n is None else n + 1 if n % 4 != 2 else -1}}}."
        n, tag = next(count), next(tag for start, tag in SYSTEM.items() if request.system.startswith(start))
        letters = "".join(chr(ord("a") + int(digit)) for digit in f"{n:03}")
        words = " ".join(f"{tag}{letters}{end}" for end in ("ba", "do", "fi", "lu", "ne", "po", "ra", "su"))
        half = "\ud83d" if n % 4 == 0 else ""
        return f"ID={n}; {words}{half}: what is {n} plus one?"

    return reply


def check_report(paths):
    html = paths.html.read_text(encoding="utf-8")
    numbers = json.loads(paths.json.read_text(encoding="utf-8"))
    assert not EXTERNAL.search(html) and len(html) < 4_000_000 and html.count("data:image") >= 4
    assert all(check["ok"] is not False for check in numbers["checks"]) and numbers["status"] == "complete"
    names = {metric["name"]: metric for metric in numbers["metrics"]}
    for strategy in STRATEGIES:
        assert len(names[f"accepted: {strategy}"]["interval"]) == 2
    assert "nan" not in " ".join(finding["text"] for finding in numbers["findings"])
    return numbers


def test_on_a_scripted_endpoint_from_another_folder(serve, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    server = serve(script())
    parameters = {
        "n_seeds": 8,
        "attempts": 16,
        "generator": "mock",
        "judge": "same",
        "base_url": server.base_url,
        "api_key_env": "MY_KEY",
        "allow_weak_isolation": True,
        "run_name": str(tmp_path / "compared"),
    }
    numbers = check_report(execute_notebook("strategy_comparison", parameters, tmp_path / "reports"))
    accepted = 0
    for strategy in STRATEGIES:
        run = open_run(tmp_path / f"compared-{strategy}")
        assert (
            run.report["given"] == 16 and {"program_error", "answers_disagree"} <= run.report["drops"].keys()
        )
        accepted += run.report["kept"]
    solved = open_run(tmp_path / "compared-compared" / "solver")
    assert solved.report["given"] == accepted + 8
    exported = tmp_path / "compared-few_shot" / "export" / "problems.jsonl"
    problems = cotkit.load_problems(exported)
    assert len(problems) == accepted and all(p.solution_code and p.licence for p in problems)
    assert {p.metadata["synthesis"]["strategy"] for p in problems} == set(STRATEGIES)
    assert any("problems" in file["caption"] for file in numbers["files"])
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
        "generator": "embedded:smollm2-135m",
        "n_seeds": 4,
        "attempts": 3,
        "k": 1,
        "max_tokens": 80,
        "allow_weak_isolation": True,
        "run_name": str(tmp_path / "small"),
    }
    paths = execute_notebook("strategy_comparison", parameters, tmp_path / "reports", progress=False)
    check_report(paths)
    rows = [row for s in STRATEGIES for row in open_run(tmp_path / f"small-{s}").records()]
    assert len(rows) == 9
