"""execute_notebook on real kernels: what a run leaves, and what a run that fails leaves.

An execution costs seconds, so one notebook shows everything that a good run must hold.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
import threading

import jupyter_client
import nbformat
import pytest

import cotkit
from cotkit.report import NotebookFailed, execute_notebook

SECRET = "not-to-be-seen-anywhere-4711"
EVERYTHING = [
    ("markdown", "# A small study\n\nWhat holds? See [a paper](https://example.org/paper)."),
    ("parameters", 'n: int = 3  # how many\nlabel: str = "plain"  # any text\nrate: float = 0.5  # a share'),
    ("code", "import cotkit, os, pathlib\nroot = cotkit.notebook_setup()\nassert pathlib.Path.cwd() == root"),
    ("code", "from cotkit.report import Report\nreport = Report('A small study', {'n': n})"),
    ("markdown", "## Numbers"),
    (
        "code",
        "report.metric('kept', 2 / 3, n=n, interval=(.2, .9), unit='%')\nreport.metric('cost', float('nan'))",
    ),
    ("code", "print('first', label, rate)\nprint(os.environ['STUDY_API_KEY'], pathlib.Path.home() / 'x')"),
    (
        "code",
        "import matplotlib.pyplot as plt, pandas as pd\n"
        "figure, axes = plt.subplots(figsize=(3, 2))\naxes.plot([1, 2])\nreport.figure(axes, 'A line')\n"
        "report.table(pd.DataFrame({'trace': ['<script>alert(1)</script>'], 'n': [1]}), 'A table')",
    ),
    ("code", "import ipywidgets\nipywidgets.IntSlider(5)"),
    (
        "code",
        "report.finding('{share:.0%} of {n} are kept', share=2 / 3, n=n)\nreport.check(True, 'it adds up')",
    ),
    ("code", "pathlib.Path('out.jsonl').write_text('{}')\nreport.file('out.jsonl', 'a row')\nreport.save()"),
]


def write_notebook(path: pathlib.Path, cells: list[tuple[str, str]]) -> pathlib.Path:
    made = []
    for kind, source in cells:
        if kind == "markdown":
            made.append(nbformat.v4.new_markdown_cell(source))
        else:
            tags = {"tags": ["parameters"]} if kind == "parameters" else {}
            made.append(nbformat.v4.new_code_cell(source, metadata=tags))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of its own; notebooks in it are found by name and leave their reports in it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").touch()
    write_notebook(folder / "notebooks" / "01_study.ipynb", EVERYTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTKIT_ROOT", str(folder))
        patch.setenv("STUDY_API_KEY", SECRET)
        yield folder


@pytest.fixture(scope="module")
def run(project):
    return execute_notebook("study", {"n": "4", "rate": "1e-3"}, progress=False)


def record_of(paths) -> dict:
    """report.json by a reader that takes no NaN."""
    return json.loads(paths.json.read_text(), parse_constant=pytest.fail)


def test_a_run_leaves_page_notebook_and_numbers_in_a_folder_of_its_name(run, project):
    assert re.fullmatch(r"study-\d{8}-\d{6}", run.folder.name)
    assert run.folder.parent == project / "reports"
    left = {path.name for path in run.folder.iterdir()}
    assert left == {"report.html", "notebook.ipynb", "report.json", "figures"}
    assert run.html.read_text().startswith("<!DOCTYPE html>")
    nbformat.validate(nbformat.read(run.ipynb, as_version=4))


def test_the_numbers_carry_n_interval_parameters_and_status(run):
    record = record_of(run)
    assert record["status"] == "complete" and record["error"] is None
    assert record["parameters"] == {"n": 4, "label": "plain", "rate": 0.001}
    assert record["given"] == ["n", "rate"]
    kept, cost = record["metrics"]
    assert (kept["n"], kept["interval"], kept["unit"]) == (4, [0.2, 0.9], "%")
    assert cost["value"] is None, "nan is not a number"
    assert record["findings"] == [{"text": "67% of 4 are kept", "values": {"share": 2 / 3, "n": 4}}]
    assert record["checks"] == [{"text": "it adds up", "ok": True}]
    assert record["figures"] == [{"caption": "A line", "file": "figures/a-line.png"}]
    assert record["files"] == [{"path": "out.jsonl", "caption": "a row", "bytes": 2}]


def test_the_page_stands_alone(run):
    page = run.html.read_text()
    assert not re.search(r"\b(?:src|href|srcset|action)\s*=\s*[\"']?\s*(?:[a-z]+:)?//", page, re.IGNORECASE)
    assert not re.search(r"url\(\s*[\"']?(?:[a-z]+:)?//|@import|<script|<link|\son\w+=", page, re.IGNORECASE)
    assert "default-src 'none'" in page
    assert len(page) < 3_000_000


def test_the_page_shows_what_the_notebook_stated(run):
    page = run.html.read_text()
    assert page.count("A small study") >= 2, "title and heading"
    for shown in ("66.7", "95 % interval 20 to 90 %", "n = 4", "67% of 4 are kept", "first plain 0.001"):
        assert shown in page
    assert page.count('src="data:image/png;base64,') == 2, "a figure, and its twin for the dark page"
    assert "cotkit run study -p n=4 -p rate=0.001" in page


def test_model_text_and_cells_are_shown_not_run(run):
    page = run.html.read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_no_widget_is_blank(run):
    assert "IntSlider(value=5)" in run.html.read_text()


def test_code_is_folded_and_the_parameters_are_a_table(run):
    page = run.html.read_text()
    assert page.count('<details class="code">') == 8
    assert "<td>how many</td>" in page


def test_no_key_no_home_folder_and_no_papermill_metadata_are_kept(run):
    home = str(pathlib.Path.home())
    for path in (run.html, run.ipynb, run.json):
        text = path.read_text()
        assert SECRET not in text and f"{home}/" not in text and "papermill" not in text, path.name
    assert "[key in STUDY_API_KEY]" in run.ipynb.read_text()


def test_the_list_of_runs_links_the_run_with_its_key_numbers(run, project):
    page = (project / "reports" / "index.html").read_text()
    assert f'href="{run.folder.name}/report.html"' in page
    assert "66.7 %" in page and "n = 4" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"notebook": "studdy"}, "Did you mean 'study'"),
        ({"notebook": "nowhere/x.ipynb"}, "no notebook at"),
        ({"notebook": "study", "parameters": {"m": 1}}, "no parameter 'm'"),
        ({"notebook": "study", "parameters": {"n": 0.5}}, "not a whole number"),
        ({"notebook": "study", "run_name": "../elsewhere"}, "a run's name is"),
        ({"notebook": "study", "run_name": "taken"}, "exists: choose another"),
    ],
)
def test_a_wrong_call_is_refused_before_a_kernel_starts(project, run, arguments, said, monkeypatch):
    (project / "reports" / "taken").mkdir(exist_ok=True)
    monkeypatch.setattr("papermill.execute_notebook", lambda *_, **__: pytest.fail("it started"))
    with pytest.raises(ValueError) as caught:
        execute_notebook(**arguments, progress=False)
    assert said in str(caught.value)


def test_runs_of_one_second_get_folders_of_their_own(tmp_path):
    from cotkit.report.runner import _claim

    claimed = []

    def claim():
        claimed.append(_claim(tmp_path, "x", None, False))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(claimed)) == 8


def test_a_kernel_that_does_not_start_is_started_again_and_one_that_dies_leaves_the_partial_report(
    tmp_path, monkeypatch
):
    cells = [
        ("markdown", "## Before"),
        ("code", "from cotkit.report import Report\nreport = Report('Dies')\nreport.metric('seen', 1)"),
        ("code", "print('told')"),
        ("markdown", "## The end"),
        ("code", "import os\nos._exit(7)"),
        ("code", "print('never')"),
    ]
    book = write_notebook(tmp_path / "dies.ipynb", cells)
    launches = []
    command = jupyter_client.AsyncKernelManager.format_kernel_cmd

    def first_one_fails(manager, *args, **options):
        launches.append(manager.transport)
        real = command(manager, *args, **options)
        return real if len(launches) > 1 else [sys.executable, "-c", "raise SystemExit(1)"]

    monkeypatch.setattr(jupyter_client.AsyncKernelManager, "format_kernel_cmd", first_one_fails)
    with pytest.raises(NotebookFailed) as caught:
        execute_notebook(book, output=tmp_path / "reports", run_name="one", progress=False)
    assert launches == ["ipc", "ipc"]
    failed = caught.value
    assert failed.cell == 3 and "cell 3 of 4 (The end)" in str(failed)
    assert "kernel died" in str(failed)
    record = record_of(failed.paths)
    assert record["status"] == "failed" and record["metrics"][0]["name"] == "seen"
    assert "told" in failed.paths.ipynb.read_text()
    page = failed.paths.html.read_text()
    assert page.index("This run failed") < page.index("Before")
    assert "(not run)" in page
    assert os.listdir(tmp_path / "reports" / "one")


def test_a_kernel_that_never_starts_says_what_its_process_said(tmp_path, monkeypatch):
    refusal = [sys.executable, "-c", "raise SystemExit('no room for a kernel')"]
    monkeypatch.setattr(jupyter_client.AsyncKernelManager, "format_kernel_cmd", lambda *_, **__: refusal)
    book = write_notebook(tmp_path / "idle.ipynb", [("code", "1 + 1")])
    with pytest.raises(NotebookFailed, match="before its first cell") as caught:
        execute_notebook(book, output=tmp_path / "reports", progress=False)
    assert caught.value.cell is None and "no room for a kernel" in str(caught.value)
    assert "no room for a kernel" in caught.value.paths.html.read_text()


def test_the_public_name_is_the_runner():
    assert cotkit.execute_notebook is execute_notebook
