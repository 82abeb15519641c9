"""Report outside a notebook: what it writes, what it refuses, when it fails."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from cotkit.report import CheckFailed, Report, files, views
from cotkit.report.screen import CardRow


@pytest.fixture
def report(tmp_path):
    return Report("A study", {"n": 3}, folder=tmp_path / "lab")


def written(report) -> dict:
    return json.loads(report.path.read_text())


def test_each_statement_is_on_disk_at_once(report):
    report.metric("kept", 0.5)
    assert [m["name"] for m in written(report)["metrics"]] == ["kept"]
    report.finding("as it {stands}")
    assert written(report)["findings"] == [{"text": "as it {stands}", "values": {}}]
    assert written(report)["status"] == "running"
    report.save()
    assert written(report)["status"] == "complete"


def test_a_statement_made_again_replaces_the_earlier_one_in_its_place(report):
    for value in (1, 2):
        report.metric("a", value)
        report.metric("b", 0)
    assert [(m["name"], m["value"]) for m in written(report)["metrics"]] == [("a", 2), ("b", 0)]


def test_figures_whose_captions_begin_alike_get_files_of_their_own(report):
    import matplotlib.pyplot as plt

    captions = [f"{'a long caption ' * 6}{end}" for end in "abc"]
    for caption in [*captions, captions[1]]:
        report.figure(plt.figure(figsize=(1, 1)), caption)
    assert len({figure["file"] for figure in written(report)["figures"]}) == 3
    assert len(list((report.folder / "figures").iterdir())) == 3
    assert not plt.get_fignums(), "a figure that was shown is closed"


ONE_EACH = ["数学报告", "物理报告", "Отчёт", "تقرير", "📊", "", "C", "C++", "C#", "Maß", "a" * 61, "a" * 62]


def test_titles_that_are_spelt_alike_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    monkeypatch.delenv("COTKIT_REPORT_DIR", raising=False)
    folders = {Report(title).folder.name for title in ONE_EACH}
    assert len(folders) == len(ONE_EACH) and all(len(name) < 80 for name in folders)
    plain = {"Untitled": "untitled-lab", "A study": "a-study-lab", "Café: v2’s": "cafe-v2s-lab"}
    assert {title: Report(title).folder.name for title in plain} == plain


def test_no_key_of_the_environment_reaches_the_file(report, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "abc-very-secret")
    report.finding("the endpoint said: bad key abc-very-secret")
    assert "abc-very-secret" not in report.path.read_text()
    assert "[key in SOME_TOKEN]" in report.path.read_text()


def test_a_failed_check_fails_the_save_after_everything_is_written(report):
    report.check(True, "this holds")
    report.check(None, "nobody knows")
    report.check(False, "this does not")
    with pytest.raises(CheckFailed, match="1 of 3 checks failed: this does not"):
        report.save()
    assert written(report)["status"] == "failed"
    assert [c["ok"] for c in written(report)["checks"]] == [True, None, False]


def test_a_report_that_is_stopped_says_why_and_ends_the_notebook(report):
    with pytest.raises(SystemExit) as stopped:
        report.stop("Nothing was asked.")
    assert stopped.value.code == 0  # papermill's sign of an end on purpose
    assert written(report)["status"] == "complete"
    assert written(report)["findings"][-1]["text"] == "Nothing was asked."
    report.check(False, "this does not hold")
    with pytest.raises(CheckFailed):
        report.stop("A check that failed is no end on purpose.")


def test_an_undecided_check_fails_nothing(report):
    report.check(None, "nobody knows")
    report.save()
    assert written(report)["status"] == "complete"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_is_not_a_number_is_null_and_shown_as_not_known(report, value, capsys):
    report.metric("x", value, interval=(float("nan"), 1.0))
    assert written(report)["metrics"][0]["value"] is None
    assert capsys.readouterr().out == "x: n/a\n"


def test_a_value_that_carries_its_interval_and_n_is_taken_whole(report):
    report.metric("rate", SimpleNamespace(value=0.75, low=0.5, high=0.9, n=12), unit="%")
    report.metric("gain", SimpleNamespace(difference=0.1, low=-0.1, high=0.3, n=9))
    rate, gain = written(report)["metrics"]
    assert (rate["value"], rate["interval"], rate["n"]) == (0.75, [0.5, 0.9], 12)
    assert (gain["value"], gain["interval"], gain["n"]) == (0.1, [-0.1, 0.3], 9)


def test_an_interval_the_wrong_way_round_is_refused(report):
    with pytest.raises(ValueError, match="an interval is"):
        report.metric("x", 0.5, interval=(0.9, 0.1))


def test_a_file_that_is_not_there_cannot_be_listed(report, tmp_path):
    with pytest.raises(FileNotFoundError):
        report.file(tmp_path / "absent.jsonl", "nothing")


def test_a_key_among_the_parameters_is_refused(tmp_path):
    with pytest.raises(ValueError, match="NAME of the variable"):
        Report("x", {"key": "sk-abcdefghij0123456789"}, folder=tmp_path)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.735, "%", "73.5"),
        (0.8, "%", "80"),
        (12800, None, "12,800"),
        (12800.4, None, "12,800"),
        (3.0, None, "3"),
        (0.04217, None, "0.0422"),
        (0.00004217, None, "4.22e-05"),
        (True, None, "yes"),
        ("qwen", None, "qwen"),
    ],
)
def test_numbers_are_written_for_readers(value, unit, text):
    assert views.number(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.24, "4.2 s"), (42, "42 s"), (185, "3 min 5 s"), (7800, "2 h 10 min"), (None, "")]
)
def test_durations_are_written_for_readers(seconds, text):
    assert views.duration(seconds) == text


EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\" '"


def test_every_view_escapes_every_text():
    metric = {"name": EVIL, "value": EVIL, "unit": EVIL, "n": 1, "interval": None, "help": EVIL}
    shown = [
        views.cards([metric]),
        views.finding(views.Sentence("{x}", {"x": EVIL})),
        views.finding(views.Sentence(EVIL, {})),
        views.check(EVIL, True),
        views.file_line(EVIL, EVIL, 1),
        views.table(pd.DataFrame({EVIL: [EVIL]}, index=[EVIL]), EVIL),
        views.figure(b"\x89PNG\r\n\x1a\n" + bytes(20), EVIL, 2),
    ]
    for html in shown:
        assert "<script" not in html and "<img src=x" not in html and "&lt;script&gt;" in html


def test_a_long_table_says_how_much_it_leaves_out():
    html = views.table(pd.DataFrame({"n": range(150)}), max_rows=100)
    assert html.count("<tr>") == 101 and "50 more rows" in html


def test_a_table_shows_what_is_missing_as_missing():
    html = views.table(pd.DataFrame({"x": [1.5, None], "t": pd.to_datetime(["2026-01-02", None])}))
    assert html.count("ck-none") == 2 and "1.5" in html


def test_cards_of_one_cell_share_one_output(monkeypatch):
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    shown, updated = [], []
    handle = SimpleNamespace(update=lambda bundle, raw: updated.append(bundle["text/plain"]))

    def display(bundle, **options):
        shown.append(bundle["text/plain"])
        return handle

    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", display)
    row = CardRow()
    for cell, name in ((1, "a"), (1, "b"), (2, "c")):
        shell.execution_count = cell
        row.add({"name": name, "value": 1, "unit": None, "n": None, "interval": None, "help": None})
    assert shown == ["a: 1", "c: 1"] and updated == ["a: 1\nb: 1"]


def test_files_are_whole_and_json_is_json(tmp_path):
    target = tmp_path / "deep" / "x.json"
    files.write_json(target, {"nan": float("nan"), "lone": "\ud800", "text": "ü"})
    assert json.loads(target.read_bytes()) == {"nan": None, "lone": "\ud800", "text": "ü"}
    with pytest.raises(TypeError):
        files.write_bytes(target, "not bytes")
    assert [p.name for p in target.parent.iterdir()] == ["x.json"], "no temporary file is left"


def test_a_table_without_rows_says_so():
    assert "There is none." in views.table(pd.DataFrame({"kind": []}), "What failed")
