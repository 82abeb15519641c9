"""02_strategy_comparison from parameters to report: on a scripted endpoint, and on a real embedded model."""

from __future__ import annotations

import itertools
import json
import re
import sys
import types

import pytest

import cotkit
from cotkit.chat.weights import WeightsError, path
from cotkit.report import execute_notebook, find_notebook, read_notebook
from cotkit.runs import open_run

KEY = "sk-strategies-0123456789abcdef"
STRATEGIES = ("few_shot", "self_instruct", "evol_instruct")
EXTERNAL = re.compile(r"""\b(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", re.IGNORECASE)
CHAT = cotkit.ChatModel
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


@pytest.fixture
def cells(serve, tmp_path, monkeypatch):
    """`cells(**parameters)` runs the notebook up to the comparison, in a module of its own."""
    notebook = read_notebook(find_notebook("strategy_comparison"))
    parameters, connect, run = [cell.source for cell in notebook.cells if cell.cell_type == "code"][:3]
    server = serve(script())
    monkeypatch.setenv("COTKIT_REPORT_DIR", str(tmp_path / "report"))
    monkeypatch.setattr(cotkit, "notebook_setup", lambda: None)

    def go(**given):
        module = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(parameters, vars(module))
        given = {"generator": "mock", "base_url": server.base_url, "run_name": str(tmp_path / "r"), **given}
        vars(module).update({"allow_weak_isolation": True, "api_key_env": ""} | given)
        exec(connect, vars(module))
        exec(run, vars(module))
        return vars(module)

    return go, server, tmp_path


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget_calls": 3}, "budget_calls=3 is less than one for each of 4 runs"),
        ({"budget_calls": -1}, "budget_calls"),
        ({"strategies": []}, "at least one"),
        ({"strategies": ["few_shot", "evol"]}, "unknown strategy 'evol'"),
        ({"attempts": 0}, "attempts must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"solver": "none", "second_solver": "other"}, "give both"),
        ({"kernel": "e", "api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY"),
        ({"kernel": ""}, "embedding model"),
        ({"k": 0}, "k must be"),
        ({"target_n": 0}, "no target: n 0"),
        ({"target_hard": 1.5}, "hard_share 1.5"),
        ({"target_diversity": -1}, "diversity -1"),
    ],
)
def test_what_cannot_work_is_refused_before_a_run_is_paid_for(cells, monkeypatch, given, words):
    go, server, folder = cells
    if "api_key_env" in given:  # of the embeddings alone: the models have theirs
        monkeypatch.setattr(cotkit, "ChatModel", lambda name, url, key, **o: CHAT(name, url, "", **o))
    with pytest.raises(ValueError, match=words):
        go(**given)
    assert server.calls == 0 and not list(folder.glob("r-*"))


def test_the_shares_of_a_budget_are_no_more_than_the_whole(cells):
    go, server, _ = cells
    names = go(budget_calls=11, attempts=4)
    assert names["budgets"] == {"budget_usd": None, "budget_calls": 2} and server.calls <= 8


def test_votes_say_whose_they_are(cells):
    text = read_notebook(find_notebook("strategy_comparison"))
    assert re.search(r"Without one the generator does.*\n?.*no independent check", text.cells[4].source)
    go, _, _ = cells
    names = go(votes=1, attempts=1, strategies=["few_shot"], solver="none")
    assert any("not independent" in note for note in names["runs"]["few_shot"].report["notes"])


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
