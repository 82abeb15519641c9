"""The report, the comparison and the list of runs as a person opens them: from disk, in Chromium, offline."""

from __future__ import annotations

import json
import pathlib
import sys
import urllib.parse

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
from lab import Watched
from looks import LOW_CONTRAST, OVERFLOWING, UNLOADED

from cotkit.analysis import Rate
from cotkit.report import Report, compare_reports, page, views, write_index
from cotkit.report.record import load_record

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "report"))

from ways_out import WAYS_OUT

PAGES = ("index.html", "late-run-with-a-name/report.html", "late-run-with-a-name/against-early.html")
PRINTED_WIDTH = 680  # CSS pixels between the margins of A4


def leave_run(folder: pathlib.Path, kept: int, started: str, **facts) -> None:
    """A finished run with a wide table, long words, code and a figure, shown as the notebook shows them."""
    parameters = {"n": 40, "model": "somebody/a-model-with-a-very-long-name-" * 3, "judge": ""}
    report = Report("A study", parameters, folder=folder)
    for name in ("kept", "right: first draft", "right: after refinement", "a_metric_of_a_very_long_name" * 2):
        report.metric(name, Rate.of(kept, 40), unit="%", help="of the finished problems")
    frame = pd.DataFrame({f"a column {i}": [f"value {i}", "another value"] for i in range(14)})
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    report.figure(figure, "Right by iteration")
    report.finding(f"Kept {kept} of 40 problems, {'unbreakable_' * 20} among them.")
    report.check(True, "it adds up")
    report.check(None, "nobody knows")
    picture = (folder / "figures" / "right-by-iteration.png").read_bytes()
    shown = [views.table(frame, "A wide table"), views.figure(picture, "Right by iteration", 2)]
    outputs = [
        nbformat.v4.new_output("display_data", {"text/html": views.with_style(html)}) for html in shown
    ]
    outputs.append(nbformat.v4.new_output("stream", text="a printed line " * 40))
    texts = ["# A study\n\nWhat holds?", "## Numbers\n\nAs $\\frac{1}{2}$ of them.", "## More", "### Below"]
    cells = [nbformat.v4.new_markdown_cell(text) for text in texts]
    cells.append(nbformat.v4.new_code_cell("x = 'text'  # why", outputs=outputs, execution_count=1))
    report.record |= {
        "status": "complete",
        "notebook": "study",
        "given": ["model"],
        "started": started,
        **facts,
    }
    report._write()
    record = load_record(report.path)
    (folder / "report.html").write_text(page.render(nbformat.v4.new_notebook(cells=cells), record))
    (folder / "notebook.ipynb").write_text(json.dumps({}))


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("somewhere") / "reports"
    leave_run(folder / "early", 20, "2026-01-01T10:00:00+00:00")
    leave_run(folder / "late-run-with-a-name", 35, "2026-01-02T10:00:00+00:00")
    error = {"name": "LookupError", "message": "no such thing", "cell": 1, "cells": 1, "label": "x"}
    leave_run(folder / "failed", 0, "2026-01-03T10:00:00+00:00", status="failed",
              error={**error, "last_lines": ["x" * 300]})  # fmt: skip
    compare_reports(folder / "early", folder / "late-run-with-a-name")
    write_index(folder)
    return folder


@pytest.fixture
def opened(chrome, reports):
    """`opened(page)`: the page, once all on it is loaded. It may ask for nothing else and report no error."""
    watched = []

    def open_page(name):
        watched.append(Watched(chrome, ("file:",)))
        watched[-1].page.goto((reports / name).as_uri())
        return watched[-1].page

    yield open_page
    for one in watched:
        one.close()
        assert (one.outside, one.errors) == ([], [])


def test_no_output_runs_or_asks_for_anything_even_where_a_browser_would_let_it(chrome, tmp_path):
    """Without the page's own policy: what is taken out must be enough."""
    press = """() => document.querySelectorAll("a:not([href='rows.jsonl']), math, mi, svg *").forEach(
        e => e.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true})))"""
    for number, dirty in enumerate(WAYS_OUT):
        watched, target = Watched(chrome, ("file:",)), tmp_path / f"{number}.html"
        said = []
        watched.page.on("dialog", lambda dialog, said=said: (said.append(dialog.message), dialog.dismiss()))
        asked = []
        watched.page.on("request", lambda request, asked=asked: asked.append(request.url))
        target.write_text(f"<!DOCTYPE html><body>{page.safe(dirty)}")
        watched.page.goto(target.as_uri())
        watched.page.evaluate(press)
        watched.page.evaluate("() => new Promise(done => setTimeout(done))")
        outside = [url for url in asked if not url.startswith((target.parent.as_uri(), "data:"))]
        assert (said, outside, watched.outside) == ([], [], []), dirty
        watched.close()


@pytest.mark.parametrize("name", [*PAGES, "failed/report.html"])
def test_every_page_fits_its_window_and_can_be_read_light_and_dark(opened, name):
    shown = opened(name)
    body = shown.locator("body")
    for scheme in ("light", "dark"):
        shown.emulate_media(color_scheme=scheme)
        pictures = shown.locator("img:visible").all()
        assert len(pictures) == {"index.html": 0, PAGES[2]: 2}.get(name, 1)
        assert all(picture.get_attribute("alt") for picture in pictures)
        assert body.evaluate(LOW_CONTRAST) == body.evaluate(UNLOADED) == []
    for width in (1280, 800, 480):
        shown.set_viewport_size({"width": width, "height": 1000})
        assert body.evaluate(OVERFLOWING) == []


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_no_table_or_picture_is_cut(opened, name):
    shown = opened(name)
    shown.set_viewport_size({"width": PRINTED_WIDTH, "height": 1000})
    shown.emulate_media(media="print", color_scheme="dark")
    cut = """() => [...document.querySelectorAll('.ck-scroll, pre, figure, img, main')]
        .filter(e => e.checkVisibility() && e.scrollWidth > Math.ceil(e.getBoundingClientRect().width) + 1)
        .map(e => e.className + ' ' + e.scrollWidth)"""
    assert shown.evaluate(cut) == []
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not shown.locator("img.dark:visible").count()
    assert shown.pdf(format="A4")[:5] == b"%PDF-"


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_or_a_place_that_is_there(opened, reports, name):
    shown = opened(name)
    addresses = shown.evaluate("[...document.links].map(link => link.href)")
    assert addresses
    for address in addresses:
        parts = urllib.parse.urlsplit(address)
        assert pathlib.Path(urllib.parse.unquote(parts.path)).is_file(), address
        assert not parts.fragment or shown.locator(f'[id="{parts.fragment}"]').count() == 1


def test_from_the_list_to_the_comparison_and_on_to_a_report(opened):
    shown = opened("index.html")
    shown.get_by_role("link", name="early", exact=True).first.click()
    assert shown.get_by_role("heading", level=1).inner_text() == "A study"
    assert "clearly higher" in shown.get_by_role("region", name="Metrics of both runs").inner_text()
    shown.get_by_role("link", name="late-run-with-a-name").click()
    assert shown.url.endswith("late-run-with-a-name/report.html")


def test_status_and_verdicts_are_words_not_only_colours(opened):
    assert opened("index.html").locator(".ck-pill").all_inner_texts() == ["failed", "complete", "complete"]
    marks = opened(PAGES[1]).locator(".ck-check").all_inner_texts()
    assert "holds" in marks[0].lower() and "undecided" in marks[1].lower()
