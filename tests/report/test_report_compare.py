"""Two runs on one page, and the list of runs: what they state, refuse and link."""

from __future__ import annotations

import json
import re

import matplotlib.pyplot as plt
import nbformat
import pytest
from bs4 import BeautifulSoup

from cotkit import cli
from cotkit.analysis import Rate
from cotkit.report import Report, compare_reports, runner, write_index
from cotkit.report.compare import difference
from cotkit.report.index import previous_run
from cotkit.report.record import load_record


def made(folder, *, kept=6, n=8, parameters=None, facts=None, title="A study", figure="By iteration"):
    """A report as a headless run of the notebook `study` leaves it."""
    report = Report(title, {"n": n, "seed": 0, **(parameters or {})}, folder=folder)
    report.metric("kept", Rate.of(kept, n), unit="%")
    report.metric("took", n / 2, unit="s")
    report.finding(f"Kept {kept} of {n}.")
    report.finding("The <judge> is noisy.")
    report.check(kept < n, "some were dropped")
    if figure:
        report.figure(plt.figure(figsize=(2, 1)), figure)
    report.record |= {"status": "complete", "notebook": "study", "given": ["n"], **(facts or {})}
    report._write()
    return folder


@pytest.fixture
def reports(tmp_path, monkeypatch):
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    folder = tmp_path / "reports"
    made(folder / "early", facts={"started": "2026-01-01T10:00:00+00:00"})
    made(folder / "late", kept=70, n=80, parameters={"label": "new"}, figure="By role",
         facts={"started": "2026-01-02T10:00:00+00:00"})  # fmt: skip
    return folder


def rows(page, css) -> dict[str, list[str]]:
    """A table's rows by their heading, cells as text."""
    soup = BeautifulSoup(page.read_text(), "html.parser")
    return {
        row.th.get_text(" ", strip=True): [cell.get_text(" ", strip=True) for cell in row.find_all("td")]
        for row in soup.select(f"{css} tbody tr")
    }


def test_parameters_that_differ_are_a_table_and_the_others_a_line(reports):
    page = compare_reports(reports / "early", reports / "late")
    assert page == reports / "late" / "against-early.html"
    assert rows(page, '[aria-label="Parameters that differ"]') == {
        "n": ["8", "80"],
        "label": ["no such parameter", "new"],
    }
    assert "<code>seed = 0</code>" in page.read_text()


def test_metrics_stand_beside_each_other_with_intervals_and_their_difference(reports):
    found = rows(compare_reports(reports / "early", reports / "late"), ".metrics")
    assert found["kept"] == [
        "75 % 95 % interval 41 to 93 % n = 8",
        "87.5 % 95 % interval 78 to 93 % n = 80",
        "+12.5 points no clear difference 95 % interval -7 to +47",
    ]
    assert found["took"] == ["4 s", "40 s", "+36 s"]


def test_a_clear_difference_is_said_in_words(tmp_path):
    few, many = made(tmp_path / "few", kept=10, n=100), made(tmp_path / "many", kept=90, n=100)
    assert "clearly higher" in rows(compare_reports(few, many), ".metrics")["kept"][2]
    assert "clearly lower" in rows(compare_reports(many, few), ".metrics")["kept"][2]


def test_findings_are_of_both_or_of_one_and_are_text(reports):
    page = compare_reports(reports / "early", reports / "late").read_text()
    assert page.count("The &lt;judge&gt; is noisy.") == 1 and "<judge>" not in page
    assert page.index("The same in both runs") < page.index("Kept 6 of 8.") < page.index("Kept 70 of 80.")


def test_figures_stand_side_by_side_and_an_absent_one_is_said_to_be(reports):
    made(reports / "later", kept=3)
    page = compare_reports(reports / "early", reports / "later").read_text()
    assert 'alt="By iteration: early"' in page and 'alt="By iteration: later"' in page
    assert page.count("This run has no such figure.") == 0
    page = compare_reports(reports / "early", reports / "late").read_text()
    assert page.count("This run has no such figure.") == 2


def test_the_page_stands_alone(reports):
    page = compare_reports(reports / "early", reports / "late").read_text()
    assert not re.search(r"\b(?:src|href)\s*=\s*[\"']?\s*(?:[a-z]+:)?//|<script|<link", page, re.IGNORECASE)
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    ("first", "second", "interval"),
    [  # Newcombe (1998), Statistics in Medicine 17:873-890, table II, method 10: second - first
        ((48, 80), (56, 70), (0.0524, 0.3339)),
        ((3, 10), (9, 10), (0.1705, 0.8090)),
        ((2, 7), (6, 7), (0.0582, 0.8062)),
        ((0, 10), (10, 10), (0.6075, 1.0)),
    ],
)
def test_a_difference_of_rates_has_newcombes_interval(first, second, interval):
    def metric(rate):
        return {"value": rate.value, "interval": (rate.low, rate.high), "unit": "%"}

    _, found = difference(metric(Rate.of(*first)), metric(Rate.of(*second)))
    assert found == pytest.approx(interval, abs=6e-4)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"value": 1}, {"value": 3}, (2, None)),
        ({"value": 1, "interval": [0, None]}, {"value": 3, "interval": [2, 4]}, (2, None)),
        ({"value": None}, {"value": 3}, None),
        ({"value": "$0"}, {"value": "$1"}, None),
        ({"value": True}, {"value": False}, None),
        ({"value": 1, "unit": "s"}, {"value": 3, "unit": "%"}, None),
    ],
)
def test_a_difference_that_means_nothing_is_none(first, second, expected):
    blank = {"unit": None, "interval": None}
    assert difference({**blank, **first}, {**blank, **second}) == expected


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("other", "a run of 'study' and other one of 'benchmark': only runs of one notebook"),
        ("early", "given twice"),
        ("absent", "no report 'absent'"),
        ("empty", "no report at"),
        ("counts", "is not a report of a notebook"),
        ("torn", "is not a report of a notebook"),
    ],
)
def test_what_cannot_be_compared_is_refused(reports, capsys, second, said):
    made(reports / "other", facts={"notebook": "benchmark"})
    for name, text in (("counts", '{"given": 3, "kept": 2}'), ("torn", '{"title": "A')):
        (reports / name).mkdir()
        (reports / name / "report.json").write_text(text)
    (reports / "empty").mkdir()
    assert cli.main(["compare", str(reports / "early"), second]) == 2
    assert said in capsys.readouterr().err


def test_a_run_in_jupyterlab_is_known_by_its_title(reports):
    lab = made(reports / "a-study-lab", facts={"notebook": None})
    assert compare_reports(reports / "early", lab).is_file()


def test_the_command_takes_folders_names_and_files_and_lists_the_page(reports, capsys):
    write_index(reports)
    assert cli.main(["compare", str(reports / "early" / "report.json"), "late"]) == 0
    assert capsys.readouterr().out.endswith("late/against-early.html\n")
    assert 'href="late/against-early.html"' in (reports / "index.html").read_text()
    elsewhere = reports.parent / "pages" / "both.html"
    assert cli.main(["compare", "early", "late", "-o", str(elsewhere)]) == 0
    assert elsewhere.is_file()


def test_a_run_is_compared_with_the_last_complete_one_before_it(reports):
    made(reports / "failed", facts={"started": "2026-01-03T10:00:00+00:00", "status": "failed"})
    made(reports / "other", facts={"started": "2026-01-04T10:00:00+00:00", "notebook": "benchmark"})
    now = made(reports / "now", facts={"started": "2026-01-05T10:00:00+00:00"})
    assert previous_run(now, load_record(now / "report.json")) == reports / "late"
    assert previous_run(reports / "early", load_record(reports / "early" / "report.json")) is None


def test_runs_are_ordered_by_instant_not_by_the_clock_on_the_wall(reports):
    made(reports / "before", facts={"started": "2026-10-25T02:50:00+02:00"})
    now = made(reports / "now", facts={"started": "2026-10-25T02:10:00+01:00"})  # 20 minutes later
    assert previous_run(now, load_record(now / "report.json")) == reports / "before"
    page = write_index(reports).read_text()
    places = [page.index(f">{name}<") for name in ("now", "before", "late", "early")]
    assert places == sorted(places)


def test_a_run_that_ends_is_compared_at_once_and_one_made_anew_loses_its_old_comparison(reports):
    now = runner._claim(reports, "study", "now", False)
    book = nbformat.v4.new_notebook()
    facts = {"notebook": "study", "started": "2026-01-05T10:00:00+00:00", "parameters": {}, "error": None}
    runner._write(runner.ReportPaths.of(now), book, facts)
    assert 'href="now/against-late.html"' in (reports / "index.html").read_text()
    runner._claim(reports, "study", "now", True)
    assert not list(now.glob("against-*"))


def test_the_list_says_of_each_run_what_was_set_what_came_out_and_what_failed(reports):
    made(reports / "broken", kept=8, facts={
        "started": "2026-01-03T10:00:00+00:00", "status": "failed",
        "error": {"name": "ValueError", "message": "no <file>"}})  # fmt: skip
    (reports / "late" / "report.html").write_text("page")
    (reports / "stray").mkdir()
    (reports / "stray" / "report.json").write_text(json.dumps({"title": "x", "metrics": [1]}))
    soup = BeautifulSoup(write_index(reports).read_text(), "html.parser")
    assert [heading.text for heading in soup.select("section > h2")] == ["Study"]
    broken, late, early = soup.select("article")
    assert broken.select_one(".ck-pill").text == "failed" and "ValueError: no <file>" in broken.text
    assert late.select_one("h3 a")["href"] == "late/report.html"
    assert late.select_one(".set").get_text(" ", strip=True) == "Set: n = 80"
    assert "95 % interval 78 to 93 %" in late.text and "from JupyterLab, no page" in early.text
    assert "cotkit compare reports/early reports/broken" in soup.text


def test_a_figure_is_packed_to_a_third_and_stays_white(tmp_path):
    from PIL import Image

    report = Report("A study", folder=tmp_path / "r")
    figure, axes = plt.subplots(figsize=(6, 3))
    axes.plot(range(50), [i % 7 for i in range(50)])
    report.figure(figure, "A line")
    picture = Image.open(tmp_path / "r" / "figures" / "a-line.png")
    assert picture.mode == "P" and picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    report.figure(plt.figure(figsize=(1, 1), facecolor="none"), "Glass")
