"""Every notebook's report, opened in Chromium with the network cut: nothing blank, missing, too wide or pale.

Each notebook is run twice, beside the others, by the scripted endpoint and the parameters of its own test.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import pathlib
import sys

import pytest
from lab import Watched, keep_picture
from looks import BLANK, LOW_CONTRAST, OVERFLOWING, UNLOADED, UNNAMED
from mock_server import MockServer

import cotkit
from cotkit.report import execute_notebook

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "notebooks"))

# notebook: (the module of its test, what that scripts an endpoint with, parameters)
MOCKED = {
    "tour": ("test_distillation_notebook", lambda test: test.script, {"model": "mock"}),
    "distillation": (
        "test_distillation_notebook",
        lambda test: test.script,
        {"model": "mock", "judge": "same", "n_problems": 12},
    ),
    "strategy_comparison": (
        "test_strategy_notebook",
        lambda test: test.script(),
        {"generator": "mock", "judge": "same", "n_seeds": 8, "attempts": 12, "allow_weak_isolation": True},
    ),
    "threshold_tuning": (
        "test_threshold_notebook",
        lambda test: test.script,
        {"model": "mock", "n_problems": 24, "diagnose": ["step"]},
    ),
    "self_improvement": (
        "test_self_improvement_notebook",
        lambda test: test.script,
        {"model": "mock", "teacher": "", "cycles": 2, "critics": ["step", "mock"]},
    ),
    "model_benchmark": (
        "test_benchmark_notebook",
        lambda test: test.solver(cotkit.load_problems("word_problems"), {"strong": 9, "weak": 2}),
        {
            "models": ["strong", "weak"],
            "problems": ["word_problems"],
            "n_per_domain": 8,
            "num_generations": 2,
        },
    ),
}
NAMES = [path.stem.split("_", 1)[1] for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


def twice(name, folder):
    """Paths of two runs of a notebook, one after the other, and how many calls there had been after each.

    A notebook that is not in the table fails: it would never be looked at.
    """
    module, script, parameters = MOCKED[name]
    test, paths, calls = importlib.import_module(module), [], []
    with MockServer(script(test)) as server:
        given = {**getattr(test, "SMALL", {}), **parameters, "base_url": server.base_url}
        given["run_name"] = str(folder / "runs" / name)
        for number in ("first", "second"):
            paths.append(execute_notebook(name, given, folder / number, run_name=name, progress=False))
            calls.append(server.calls)
    return paths, calls


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every notebook run twice, beside the others."""
    folder = tmp_path_factory.mktemp("notebooks")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return dict(zip(NAMES, pool.map(lambda name: twice(name, folder), NAMES), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_run_again_says_the_same_and_asks_for_nothing(runs, name):
    paths, calls = runs[name]
    first, second = (json.loads(one.json.read_text()) for one in paths)
    outside_a_run = {"tour": 1}  # asked by hand, so each time
    assert calls[1] == calls[0] + outside_a_run.get(name, 0) > 0
    assert first["status"] == second["status"] == "complete" and first["checks"] == second["checks"]
    shares = [[metric for metric in run["metrics"] if metric["unit"] == "%"] for run in (first, second)]
    assert shares[0] == shares[1]


@pytest.fixture(scope="module", params=NAMES)
def report(request, runs):
    """The HTML page of a run."""
    return runs[request.param][0][0].html


def test_the_report_is_whole_offline(report, chrome):
    watched = Watched(chrome, (report.parent.as_uri(),))
    page, faults = watched.page, {}
    page.goto(report.as_uri())
    body = page.locator("body")
    for width, scheme in ((1280, "light"), (800, "dark")):
        page.set_viewport_size({"width": width, "height": 1000})
        page.emulate_media(color_scheme=scheme)
        for kind, found in {"pictures": UNLOADED, "overflow": OVERFLOWING, "contrast": LOW_CONTRAST}.items():
            faults[kind, width] = body.evaluate(found)
        assert page.locator("img:visible").count() + page.locator("svg:visible").count() > 0
        keep_picture(page, f"{report.parent.name}_{width}_{scheme}")
    faults |= {"blank": body.evaluate(BLANK), "unnamed": body.evaluate(UNNAMED)}
    assert {kind: found for kind, found in faults.items() if found} == {}
    watched.close()
    assert (watched.outside, watched.errors) == ([], [])


FAULTY = """<body style="margin:0;background:#222"><div class="output"> <b></b></div>
<p style="color:#555">pale words</p><p style="color:#fff;opacity:.3">faded words</p>
<p style="color:#eee">clear words</p><div style="width:3000px">too wide</div><button></button>
<div style="overflow:auto"><div style="width:3000px;color:#fff">scrolled</div></div>
<img src="data:image/png;base64,AAAA" style="width:30px;height:30px">"""


def test_such_faults_are_seen(chrome):
    page = chrome.new_page(viewport={"width": 800, "height": 600})
    page.set_content(FAULTY)
    body = page.locator("body")
    assert [fault.split(": ")[1] for fault in body.evaluate(LOW_CONTRAST)][:2] == [
        "pale words",
        "faded words",
    ]
    assert "clear words" not in str(body.evaluate(LOW_CONTRAST))
    assert len(body.evaluate(BLANK)) == len(body.evaluate(UNLOADED)) == len(body.evaluate(UNNAMED)) == 1
    assert len(body.evaluate(OVERFLOWING)) == 2  # the page, and what is too wide in it
    page.close()
