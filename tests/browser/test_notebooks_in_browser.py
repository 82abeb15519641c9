"""Every notebook's report, opened in Chromium with the network cut: nothing blank, missing, too wide or pale.

Each notebook is run once a session, by the scripted endpoint and the parameters of its own test.
"""

from __future__ import annotations

import importlib
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


@pytest.fixture(scope="module", params=NAMES)
def report(request, chrome, tmp_path_factory):
    """The HTML page of a run. A notebook that is not in the table fails: it would never be looked at."""
    module, script, parameters = MOCKED[request.param]
    test, folder = importlib.import_module(module), tmp_path_factory.mktemp(request.param)
    with MockServer(script(test)) as server:
        given = {**getattr(test, "SMALL", {}), **parameters, "base_url": server.base_url}
        given["run_name"] = str(folder / "run")
        paths = execute_notebook(
            request.param, given, folder / "reports", run_name=request.param, progress=False
        )
    return paths.html


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_the_report_is_whole_offline(report, chrome, width, scheme):
    watched = Watched(chrome, (report.parent.as_uri(),), width, scheme)
    page = watched.page
    page.goto(report.as_uri())
    body = page.locator("body")
    keep_picture(page, f"{report.parent.name}_{width}_{scheme}")
    faults = {
        "blank": body.evaluate(BLANK),
        "pictures": body.evaluate(UNLOADED),
        "overflow": body.evaluate(OVERFLOWING),
        "contrast": body.evaluate(LOW_CONTRAST),
        "unnamed": body.evaluate(UNNAMED),
    }
    assert {kind: found for kind, found in faults.items() if found} == {}
    assert page.locator("img:visible").count() + page.locator("svg:visible").count() > 0
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
