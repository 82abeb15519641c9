"""The file an export leaves: whole or absent, readable anywhere, its counts told, its traps said aloud."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os

import pyarrow.json
import pytest
from example_rows import RIGHT, WRONG, candidate, good_and_bad, read_lines, row

from cotkit.runs.export import ExportError, export_rows
from cotkit.runs.formats import FORMATS
from cotkit.runs.shapes import COLUMNS
from cotkit.runs.validate import validate_file
from cotkit.shown import mended


def test_the_report_counts_every_problem_and_identifies_the_file(tmp_path):
    rows = [row(RIGHT, id="a"), row(id="b", drop_reason="timeout"), row(WRONG, id="c")]
    report = export_rows(rows, tmp_path / "sft.jsonl", "trl_sft")
    assert (report.rows, report.given, report.drops) == (1, 3, {"timeout": 1, "wrong_answer": 1})
    data = (tmp_path / "sft.jsonl").read_bytes()
    assert (report.bytes, report.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert json.loads(json.dumps(report.to_dict()))["policy"] == "best"


def test_a_report_shows_its_drops_and_escapes_what_it_shows(tmp_path):
    report = export_rows([row(WRONG, drop_reason="<script>")], tmp_path / "sft.jsonl")
    assert "1 <script>" in str(report)
    assert "&lt;script&gt;" in report._repr_html_() and "<script>" not in report._repr_html_()


def test_rows_stay_in_input_order(tmp_path):
    rows = [row(RIGHT, id=i) for i in ("b", "10", "9", "a")]
    export_rows(rows, tmp_path / "m.jsonl", "messages")
    assert [line["id"] for line in read_lines(tmp_path / "m.jsonl")] == ["b", "10", "9", "a"]


@pytest.mark.parametrize("format", ["trl_sft", "trl_dpo", "trl_kto"])
def test_what_repeats_an_earlier_row_is_dropped_and_counted(format, tmp_path):
    same = [row(RIGHT, WRONG, id=i, problem="2 + 2?") for i in ("a", "b")]
    report = export_rows(same, tmp_path / "d.jsonl", format)
    assert report.drops["duplicate"] == report.rows
    assert report.given == report.rows + sum(report.drops.values())


HARD_TEXTS = [
    "lone \ud800 surrogate",
    "emoji 🙂 中文",
    "one\u2028row\u2029only\x85",
    "\x00\x0b\x0c tab\t",
    "a bare \r in it",
    "{{ }} $x$ \\frac",
]


@pytest.mark.parametrize("name", ["d.jsonl", "d.json"])
def test_every_text_survives_and_stays_one_row(name, tmp_path):
    rows = [row(candidate(text), id=str(i), problem=text) for i, text in enumerate(HARD_TEXTS)]
    export_rows(rows, tmp_path / name, "trl_sft")
    data = (tmp_path / name).read_bytes()
    assert b"\r" not in data
    text = data.decode("utf-8")
    lines = [json.loads(line) for line in text.splitlines()] if name == "d.jsonl" else json.loads(text)
    assert [line["messages"][1]["content"] for line in lines] == [mended(t).strip() for t in HARD_TEXTS]
    assert validate_file(tmp_path / name, "trl_sft") == []


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_lone_surrogates_are_replaced_where_loaders_refuse_them_and_the_report_says_so(format, tmp_path):
    path = tmp_path / ({"parquet": "d.parquet", "csv": "d.csv", "camel": "d.json"}.get(format, "d.jsonl"))
    report = export_rows([row(candidate("a \ud800 b 🙂"), WRONG, id="1")], path, format)
    data = path.read_bytes()
    if format == "camel":
        assert b"a \\ud800 b" in data and report.warnings == []
        return
    assert any(w.startswith(f"1 of {report.rows} rows held lone") for w in report.warnings)
    assert "a \ufffd b 🙂".encode() in data
    if path.suffix == ".jsonl":  # what `datasets` reads with
        assert pyarrow.json.read_json(path).num_rows == report.rows


@pytest.mark.parametrize("format", ["trl_sft", "trl_kto", "parquet"])
def test_texts_that_are_one_when_mended_are_one_row(format, tmp_path):
    twins = row(candidate("a \ud83d! 4"), candidate("a \ude00! 4"), id="1")
    path = tmp_path / ("d.parquet" if format == "parquet" else "d.jsonl")
    options = {} if format == "trl_kto" else {"policy": "all_accepted"}
    report = export_rows([twins, row(RIGHT, id="2")], path, format, **options)
    assert (report.rows, report.drops) == (2, {"duplicate": 1})


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_a_csv_holds_every_text(text, tmp_path):
    export_rows([row(candidate(text))], tmp_path / "d.csv", "csv")
    with open(tmp_path / "d.csv", encoding="utf-8", newline="") as file:
        (line,) = csv.DictReader(file)
    assert line["trace"] == mended(text).strip()


def test_a_trace_longer_than_the_csv_modules_limit_is_read_back(tmp_path):
    assert export_rows([row(candidate("x" * 200_000))], tmp_path / "t.csv", "csv").rows == 1


def test_nan_scores_are_null(tmp_path):
    export_rows([row(candidate(score=float("nan")))], tmp_path / "m.jsonl", "messages")
    (line,) = read_lines(tmp_path / "m.jsonl")
    assert line["score"] is None and line["scores"] is None
    export_rows([row(candidate(score=float("nan")))], tmp_path / "t.json", "camel")
    assert b"NaN" not in (tmp_path / "t.json").read_bytes()


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_empty_result_is_an_empty_data_set_that_says_why(format, tmp_path):
    path = tmp_path / ("e.parquet" if format == "parquet" else "e.csv" if format == "csv" else "e.jsonl")
    report = export_rows([row(id="b", drop_reason="timeout")] * 2, path, format)
    assert (report.rows, report.given, report.drops) == (0, 2, {"timeout": 2})
    assert report.warnings == ["the data set is empty: 2 timeout"]
    assert validate_file(path, format) == []
    if format == "parquet":
        import pandas

        assert list(pandas.read_parquet(path).columns) == list(COLUMNS)
    elif format == "csv":
        assert path.read_text(encoding="utf-8") == ",".join(COLUMNS) + "\n"
    else:
        assert path.read_bytes() in (b"", b'{\n  "traces": []\n}')


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda w: {"prompt": [], "completion": []}, "'messages': is missing"),
        (lambda w: {"messages": [w.answer]}, "'assistant' where 'user' is expected"),
        (lambda w: {"messages": [*w.prompt, w.answer], "api_key": "x"}, "'api_key': is no column"),
    ],
)
def test_a_file_that_fails_its_validator_is_not_left_behind(build, words, tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "trl_sft", dataclasses.replace(FORMATS["trl_sft"], build=build))
    (tmp_path / "sft.jsonl").write_text("the old file\n", encoding="utf-8")
    with pytest.raises(ExportError, match=words):
        export_rows(good_and_bad(), tmp_path / "sft.jsonl", "trl_sft")
    assert os.listdir(tmp_path) == ["sft.jsonl"]
    assert (tmp_path / "sft.jsonl").read_text(encoding="utf-8") == "the old file\n"


@pytest.mark.parametrize(
    ("name", "format", "options", "words"),
    [
        ("d.jsonl", "trl_spt", {}, "unknown format 'trl_spt'; known: axolotl"),
        ("", "trl_sft", {}, "is a folder: name a file"),
        ("d.csv", "trl_sft", {}, "no name for a trl_sft file"),
        ("d.jsonl", "parquet", {}, "no name for a parquet file"),
        ("d.jsonl.gz", "trl_sft", {}, "no name for a trl_sft file.* pack or convert it afterwards"),
        ("d.csv.ZST", "csv", {}, "no name for a csv file"),
        ("d.xlsx", "trl_dpo", {}, "no name for a trl_dpo file"),
        ("d.json", "openai_sft", {}, "d.jsonl"),
        ("d.jsonl", "trl_sft", {"min_gap": 0.1}, "trl_sft takes no min_gap; its options"),
        ("d.jsonl", "trl_dpo", {"max_per_problem": 2}, "trl_dpo takes no max_per_problem"),
        ("d.jsonl", "camel", {"policy": "best"}, "its options: none"),
        ("d.jsonl", "trl_sft", {"policy": "final"}, "not for training"),
        ("d.jsonl", "trl_sft", {"reasoning": "think"}, "it takes think_tags"),
        ("d.jsonl", "sharegpt", {"reasoning": "reasoning_content"}, "cannot carry"),
        ("d.jsonl", "axolotl_dpo", {"reasoning": "reasoning_content"}, "cannot carry"),
        ("d.csv", "csv", {"reasoning": "think_tags"}, "columns of its own"),
        ("d.jsonl", "trl_dpo_standard", {"system": "Think."}, "no place for a system message"),
        ("d.jsonl", "trl_sft", {"system": " "}, "system must be a text"),
        ("d.jsonl", "openai_sft", {"metadata": True}, "no columns beside its own"),
    ],
)
def test_what_a_format_cannot_honour_is_refused_before_anything_is_written(
    name, format, options, words, tmp_path
):
    with pytest.raises(ValueError, match=words):
        export_rows(good_and_bad(), tmp_path / name, format, **options)
    assert os.listdir(tmp_path) == []


def long_and_short(n: int) -> list:
    good = candidate("word " * 50 + "\\boxed{4}", model="big")
    return [row(good, candidate("no", False), id=str(i)) for i in range(n)]


@pytest.mark.parametrize(
    ("rows", "format", "options", "warning"),
    [
        (good_and_bad(), "openai_sft", {}, "at least 10 rows, this file has 3"),
        (long_and_short(20), "trl_dpo", {}, "the longer one in 20 of 20 pairs"),
        (long_and_short(1), "trl_dpo", {}, "written by different models"),
        ([row(candidate("x" * 4000))], "trl_sft", {}, "1 of 1 rows are longer than 3,000 characters"),
        ([row(RIGHT, candidate("5", False, truncated=True))], "trl_dpo", {}, "truncated rejected side"),
        ([row(candidate())], "trl_sft", {"reasoning": "reasoning_content"}, "null in every row"),
        (good_and_bad(), "trl_sft", {"reasoning": "reasoning_content"}, "drop reasoning_content"),
        ([row(RIGHT), row(candidate(), id="8")], "trl_sft", {}, "1 of 2 traces have reasoning apart"),
        ([row(RIGHT)], "trl_kto", {}, "every label is True"),
    ],
)
def test_what_the_trainer_would_not_say_is_a_warning(rows, format, options, warning, tmp_path):
    report = export_rows(rows, tmp_path / "d.jsonl", format, **options)
    assert any(warning in said for said in report.warnings), report.warnings


def test_an_ordinary_export_has_no_warnings(tmp_path):
    for format in ("trl_sft", "trl_dpo", "messages", "sharegpt", "camel"):
        assert export_rows(good_and_bad(), tmp_path / f"{format}.jsonl", format).warnings == []


def test_no_key_or_private_field_of_a_row_reaches_any_file(tmp_path):
    for format in FORMATS:
        suffix = format if format in ("csv", "parquet") else "jsonl"
        export_rows(
            good_and_bad(), tmp_path / f"{format}.{suffix}", format, facts={"config": {"api_key": "sk-never"}}
        )
    for path in tmp_path.iterdir():
        assert b"sk-never" not in path.read_bytes() and b"private" not in path.read_bytes(), path
