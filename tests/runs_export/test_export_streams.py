"""An export goes through a run row by row: the file is that of a list, the memory is not."""

from __future__ import annotations

import dataclasses
import json
import random
import tracemalloc

import pytest
from example_rows import RIGHT, WRONG, candidate, good_and_bad, row

from cotkit.runs import validate, writing
from cotkit.runs.export import export_rows
from cotkit.runs.formats import FORMATS
from cotkit.runs.journal import dump_json
from cotkit.runs.shapes import arrow_schema
from cotkit.runs.validate import validate_file
from cotkit.runs.views import PAIR_POLICIES, label_view, pair_view, sft_view

HARD = [
    "lone \ud800 surrogate",
    "emoji 🙂 中文",
    "one\u2028row\u2029only\x85",
    "\x00\x0b tab\t",
    'a "b"\n\\c',
]


def mixed_rows(count=60):
    """Kept, dropped, repeated, judged, unjudged, truncated ones, of any characters."""
    chance = random.Random(1)
    rows = []
    for n in range(count):
        answers = [
            candidate(
                f"{chance.choice(HARD)} {chance.randrange(40)} \\boxed{{4}}",
                chance.choice([True, True, False, None]),
                chance.choice([None, 0.2, 0.9, float("nan")]),
                reasoning=chance.choice([None, "because"]),
                truncated=chance.random() < 0.2,
                rationalized=chance.random() < 0.1,
                model=chance.choice(["teacher", "other"]),
                iteration=0,
            )
            for _ in range(chance.randrange(4))
        ]
        licence = chance.choice([None, "MIT"])
        rows.append(
            row(*answers, id=f"p{n}", index=n, problem=f"{chance.choice(HARD)} {n % 50}", licence=licence)
        )
    return rows


class Again:
    """Rows that are made each time they are gone over."""

    def __init__(self, rows):
        self.rows, self.times = rows, 0

    def __iter__(self):
        self.times += 1
        return (one.model_copy(deep=True) for one in self.rows)


NAMES = {"parquet": ["d.parquet"], "csv": ["d.csv"], "camel": ["d.json"]}
CASES = [
    (format, name)
    for format in FORMATS
    for name in NAMES.get(format, ["d.jsonl"] if format.startswith("openai") else ["d.jsonl", "d.json"])
]


@pytest.mark.parametrize(("format", "name"), CASES)
def test_rows_from_a_list_from_a_run_and_from_an_iterator_give_the_same_file(format, name, tmp_path):
    rows, facts = mixed_rows(), {"config": {}, "report": {"name": "r", "given": 60, "kept": 30, "drops": {}}}
    reports, files = [], []
    for given in (rows, Again(rows), iter(rows)):
        reports.append(export_rows(given, tmp_path / name, format, facts=facts).to_dict())
        files.append((tmp_path / name).read_bytes())
    assert reports[0] == reports[1] == reports[2] and files[0] == files[1] == files[2]
    assert reports[0]["given"] == reports[0]["rows"] + sum(reports[0]["drops"].values())
    assert reports[0]["rows"] and reports[0]["provenance"]["traces"] >= reports[0]["rows"]


@pytest.mark.parametrize("policy", [None, *PAIR_POLICIES])
def test_a_lazy_view_is_the_view(policy):
    rows = mixed_rows()
    for view, options in (
        (pair_view, {"policy": policy, "max_pairs_per_problem": 2}),
        (sft_view, {"policy": "all_accepted", "max_per_problem": 1}),
        (sft_view, {"policy": "first_correct"}),
        (sft_view, {}),
        (label_view, {}),
    ):
        whole, lazy = view(rows, **options), view(iter(rows), **options, lazy=True)
        assert (lazy.policy, lazy.unit, sum(lazy.drops.values())) == (whole.policy, whole.unit, 0)
        assert list(lazy.examples) == whole.examples and lazy.drops == whole.drops


def test_options_are_refused_before_a_row_is_read():
    rows = Again(mixed_rows(3))
    for wrong in (
        lambda: pair_view(rows, "best", lazy=True),
        lambda: pair_view(rows, "best_vs_worst", min_gap=7, lazy=True),
        lambda: sft_view(rows, "bestest", lazy=True),
    ):
        with pytest.raises(ValueError, match=r"unknown policy|0\.\.1"):
            wrong()
    assert rows.times == 0


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("format", ["trl_sft", "camel"])
def test_an_array_has_the_bytes_of_one_that_is_written_at_once(format, count, tmp_path):
    rows = [row(candidate(text), id=str(n), problem=text) for n, text in enumerate(HARD[:count])]
    export_rows(rows, tmp_path / "d.json", format)
    data = (tmp_path / "d.json").read_bytes()
    whole = dump_json(json.loads(data), indent=2)
    assert data == (whole if format == "camel" else whole + b"\n")


@pytest.mark.parametrize("count", [0, 5])
def test_a_small_table_has_the_bytes_of_one_that_is_written_at_once(count, tmp_path):
    import io

    import pyarrow.parquet

    export_rows(good_and_bad(count), tmp_path / "t.parquet", "parquet")
    at_once = io.BytesIO()
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table.to_pylist(), schema=arrow_schema()), at_once)
    assert (tmp_path / "t.parquet").read_bytes() == at_once.getvalue()


def test_a_large_table_is_written_and_read_in_groups(tmp_path, monkeypatch):
    import pyarrow.parquet

    rows = [row(RIGHT, id=f"{n:03}", index=n) for n in range(10)]
    export_rows(rows, tmp_path / "one.parquet", "parquet")
    for module in (writing, validate):
        monkeypatch.setattr(module, "ROW_GROUP", 4)
    report = export_rows(rows, tmp_path / "many.parquet", "parquet")
    one, many = (pyarrow.parquet.ParquetFile(tmp_path / name) for name in ("one.parquet", "many.parquet"))
    assert (one.num_row_groups, many.num_row_groups, report.rows) == (1, 3, 10)
    assert one.read() == many.read()
    pyarrow.parquet.write_table(pyarrow.concat_tables([one.read(), one.read()]), tmp_path / "twice.parquet")
    found = validate_file(tmp_path / "twice.parquet", "parquet", limit=None)
    assert [str(finding).partition(",")[0] for finding in found] == [f"row {n}" for n in range(11, 21)]


ROWS = [
    {"messages": [{"role": "user", "content": "é🙂 \\ud800\n"}, {"role": "assistant", "content": "4"}]},
    3,
    [],
    None,
]
ARRAYS = {
    "rows and others": json.dumps(ROWS),
    "indented": json.dumps(ROWS, indent=2) + "\n\n",
    "with spaces": " \r\n[ 1 ,\t22 , 333,-4.5e6,true ]\n ",
    "empty": "[]",
    "spaced": " [ \n ] ",
    "not closed": json.dumps(ROWS)[:-1],
    "cut in a row": json.dumps(ROWS)[:40],
    "cut in a number": "[1, 22",
    "a comma too many": "[1, 2,]",
    "no comma": "[1 2]",
    "something after it": "[1] x",
    "NaN": "[1, NaN]",
    "a byte order mark": "\ufeff[1]",
    "not UTF-8": b'[1, "caf\xe9"]',
    "a character cut in two": b'["\xe2\x82',
    "nothing": "",
    "camel": json.dumps({"traces": ROWS}),
    "camel, indented": json.dumps({"traces": ROWS}, indent=2),
    "camel, empty": '{"traces": []}',
    "camel, another key": '{"traces": [], "more": 1}',
    "camel, the key twice": '{"traces": [1], "traces": [2]}',
    "camel, no list": '{"traces": {}}',
    "camel, an escape in the key": '{"\\u0074races": [1]}',
    "camel, not closed": '{"traces": [1]',
}


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 18])
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_read_piece_by_piece_with_the_findings_of_the_whole(name, chunk, tmp_path, monkeypatch):
    data = ARRAYS[name] if isinstance(ARRAYS[name], bytes) else ARRAYS[name].encode()
    path = tmp_path / "f.json"
    path.write_bytes(data)
    monkeypatch.setattr(validate, "CHUNK", chunk)
    for format in ("trl_sft", "camel"):
        if format == "trl_sft" and not data.lstrip().startswith(b"["):
            continue
        found = validate_file(path, format, limit=None)
        with monkeypatch.context() as at_once:

            def refuse(*_):
                raise ValueError

            at_once.setattr(validate, "_items", refuse)
            assert found == validate_file(path, format, limit=None)


def test_a_sound_array_is_never_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(validate, "_parse", None)
    for format in ("trl_sft", "camel"):
        assert export_rows(good_and_bad(), tmp_path / "d.json", format).rows == 3


def test_a_row_that_cannot_be_built_leaves_nothing(tmp_path, monkeypatch):
    broken = dataclasses.replace(
        FORMATS["trl_sft"], build=lambda words: {"messages": 1 / (3 - words.problem.count("7"))}
    )
    monkeypatch.setitem(FORMATS, "trl_sft", broken)
    with pytest.raises(ZeroDivisionError):
        export_rows([row(RIGHT, id="1" * 20), row(RIGHT, id="777")], tmp_path / "d.jsonl", "trl_sft")
    assert list(tmp_path.iterdir()) == []


class Made:
    """`count` rows with long texts, made when they are asked for."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for n in range(self.count):
            right, wrong = (
                one.model_copy(update={"text": f"{one.text} {n} " + "x" * 2000}) for one in (RIGHT, WRONG)
            )
            yield row(right, wrong, id=f"p{n}", index=n)


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("trl_sft", "d.jsonl"),
        ("trl_sft", "d.json"),
        ("trl_dpo", "d.jsonl"),
        ("trl_kto", "d.jsonl"),
        ("camel", "d.json"),
        ("csv", "d.csv"),
        ("parquet", "d.parquet"),
    ],
)
def test_memory_for_a_further_row(format, name, tmp_path, monkeypatch):
    monkeypatch.setattr(validate, "CHUNK", 1 << 12)
    for module in (writing, validate):
        monkeypatch.setattr(module, "ROW_GROUP", 50)

    def peak(count):
        tracemalloc.start()
        try:
            report = export_rows(Made(count), tmp_path / name, format, facts={"report": {"name": "r"}})
            assert report.rows == (2 * count if format == "trl_kto" else count)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is imported
    assert (peak(4000) - peak(500)) / 3500 <= (300 if format == "trl_kto" else 150)
