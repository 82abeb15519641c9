"""load_problems reads every format and form it promises, and refuses what is no problem."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import textwrap
import warnings

import pyarrow
import pyarrow.parquet
import pytest

import cotkit
from cotkit.problems import (
    Problem,
    ProblemError,
    data_folder,
    load_problems,
    problem_from_row,
    problems_frame,
)

TWO = [{"id": "a", "problem": "1 + 1?", "reference": "2"}, {"id": "b", "problem": "2 + 2?", "reference": "4"}]


# --- formats ---


def test_the_same_rows_load_from_every_format(write, tmp_path):
    import pandas

    frame = pandas.DataFrame(TWO)
    frame.to_parquet(tmp_path / "p.parquet")
    sources = [
        write("p.jsonl", TWO),
        str(write("p.ndjson", TWO)),
        write("p.json", json.dumps(TWO)),
        write("wrapped.json", json.dumps({"problems": TWO})),
        write("columns.json", json.dumps({key: [row[key] for row in TWO] for key in TWO[0]})),
        write("data.json", json.dumps({"data": TWO})),
        write("p.csv", "id,problem,reference\na,1 + 1?,2\nb,2 + 2?,4\n"),
        write("blanks.csv", "id, problem, reference \na,1 + 1?,2\nb,2 + 2?,4\n"),
        tmp_path / "p.parquet",
        TWO,
        iter(TWO),
        {"problems": TWO},
        {"train": tuple(TWO)},
        frame,
        [Problem(**row) for row in TWO],
    ]
    for source in sources:
        assert [p.model_dump(exclude_defaults=True) for p in load_problems(source)] == TWO, source


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv"])
def test_ids_stay_text_byte_for_byte(write, name):
    ids = ["007", "1e5", "12345678901234567890", "1.0", " x", "None", "true"]
    rows = [{"id": i, "problem": f"problem {n}"} for n, i in enumerate(ids)]
    if name.endswith("csv"):
        text = "id,problem\n" + "".join(f"{row['id']},{row['problem']}\n" for row in rows)
        assert [p.id for p in load_problems(write(name, text))] == ids
    else:
        assert [p.id for p in load_problems(write(name, rows))] == ids


def test_a_whole_number_as_id_becomes_its_decimal_text():
    rows = [{"id": 7, "problem": "x"}, {"id": 12345678901234567890, "problem": "y"}]
    assert [p.id for p in load_problems(rows)] == ["7", "12345678901234567890"]


def test_without_ids_a_row_is_known_by_its_number_whatever_is_selected():
    rows = [{"problem": f"p{n}", "type": "odd" if n % 2 else "even"} for n in range(6)]
    assert [p.id for p in load_problems(rows, type="odd")] == ["1", "3", "5"]
    by_text = {p.problem: p.id for p in load_problems(rows, 4, seed=3, shuffle=True)}
    assert all(text == f"p{id}" for text, id in by_text.items())


def test_a_line_separator_inside_a_json_line_stays_in_its_row(write):
    text = '{"problem": "one\u2028row\x85 here"}\r\n\n{"problem": "two"}'
    assert [p.problem for p in load_problems(write("p.jsonl", text))] == ["one\u2028row\x85 here", "two"]


@pytest.mark.parametrize(
    "text", ["漢字 and 🧮", "lone \ud800 surrogate", "a NUL \x00 inside", "{x} {{y}} \\frac{1}{2}"]
)
def test_unusual_text_survives(write, text):
    assert load_problems(write("p.jsonl", [{"problem": text}]))[0].problem == text
    raw = json.dumps({"problem": text}, ensure_ascii=False) + "\n"
    assert load_problems(write("raw.jsonl", raw))[0].problem == text
    assert load_problems(write("p.csv", f'problem\n"{text}"\n'))[0].problem == text


@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p.csv"])
def test_a_byte_order_mark_is_no_part_of_the_text(write, name):
    content = {"p.jsonl": '{"problem": "x"}', "p.json": '[{"problem": "x"}]', "p.csv": "problem\nx\n"}[name]
    assert load_problems(write(name, b"\xef\xbb\xbf" + content.encode()))[0].problem == "x"


def test_other_encodings_are_refused_with_the_byte_and_the_line(write):
    latin = '{"problem": "one"}\n{"problem": "caf\xe9"}\n'.encode("latin-1")
    with pytest.raises(ProblemError, match=r"not UTF-8: byte 0xe9 at offset 35 \(line 2\).*iconv"):
        load_problems(write("p.jsonl", latin))
    with pytest.raises(ProblemError, match="UTF-16"):
        load_problems(write("p.csv", "problem\nx\n".encode("utf-16")))


def test_csv_keeps_quotes_newlines_and_very_long_cells_and_leaves_the_csv_module_as_it_was(write):
    long = "x" * 300_000
    path = write("p.csv", f'problem,reference\n"two\r\nlines, ""quoted""",\n{long},1\n')
    before = csv.field_size_limit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first row has no reference
        first, second = load_problems(path)
    assert (first.problem, first.reference) == ('two\r\nlines, "quoted"', None)
    assert second.problem == long
    assert csv.field_size_limit() == before


def parquet_twins() -> bytes:
    columns = [pyarrow.array(["x"]), pyarrow.array(["y"])]
    pyarrow.parquet.write_table(pyarrow.table(columns, names=["problem"] * 2), file := io.BytesIO())
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.jsonl", '{"problem": "x"}\n{"problem": "y', "line 2: no JSON object"),
        ("p.jsonl", '[{"problem": "x"}]', "name it .json"),
        ("p.json", '{"problem": "x"}\n{"problem": "y"}\n', "name it .jsonl"),
        ("p.json", '[{"problem": "x"}', "no JSON"),
        ("p.json", '{"problem": "x", "id": "1"}', "list of rows"),
        ("p.json", "3", "one int"),
        ("p.json", "[" * 100_000, "no JSON"),
        ("p.csv", 'problem,reference\n"x,1\ny,2\n', "row that starts in line 2"),
        ("p.csv", 'problem,reference\nx,1\n"y\n",1,2\n', "line 3: 3 cells, the header has 2"),
        ("p.csv", "problem,problem\nx,1\n", "two columns named 'problem'"),
        ("p.csv", "problem, problem\nx,1\n", "two columns named 'problem'"),
        ("p.parquet", parquet_twins(), "two columns named 'problem'. Fix: rename one"),
        ("p.json", '{"train": [{"problem": "x"}], "test": [{"problem": "y"}]}', "rows under 'train', 'test'"),
        ("p.csv", "problem;reference\nx;1\n", "semicolons"),
        ("p.parquet", b"PAR1 not really", "Parquet"),
        ("p.txt", "x", "unknown kind of file"),
        ("p.jsonl", "\n\n", "holds no problems"),
        ("p.json", "[]", "holds no problems"),
        ("p.csv", "problem,reference\n", "holds no problems"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place_and_the_fix(write, name, content, said):
    path = write(name, content)
    with pytest.raises(ProblemError) as error:
        load_problems(path)
    assert said in str(error.value) and str(path) in str(error.value)


# --- forms ---


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"problem": "p", "reference": "r"}, {"reference": "r"}),
        (
            {"problem": "p", "solution": "s \\boxed{3}", "type": "t"},
            {"reference": "s \\boxed{3}", "type": "t"},
        ),
        (
            {"question": "p", "answer": "2*3=6\n#### 1,006"},
            {"reference": "2*3=6\n#### 1,006", "answer_type": "number"},
        ),
        ({"question": "p", "answer": "Paris"}, {"reference": "Paris"}),
        ({"prompt": "p", "final_answer": "f"}, {"reference": "f"}),
        ({"prompt": "p"}, {}),
        ({"problem": "p", "solution": "s", "answer": "a"}, {"reference": "a", "metadata": {"solution": "s"}}),
        (
            {
                "question": "p",
                "final_answer": "4",
                "rationale": "print(4)",
                "metadata": {"license": "MIT", "domain": "Quant", "x": [1]},
                "source_row": 3,
            },
            {
                "reference": "4",
                "type": "Quant",
                "licence": "MIT",
                "solution_code": "print(4)",
                "metadata": {"license": "MIT", "domain": "Quant", "x": [1], "source_row": 3},
            },
        ),
        ({"problem": "p", "license": "MIT", "tolerance": "0.01"}, {"licence": "MIT", "tolerance": 0.01}),
        ({"problem": "p", "tolerance": 0}, {}),
        ({"problem": "p", "reference": None, "type": "", "licence": " "}, {}),
    ],
)
def test_a_form_is_recognised_by_its_fields(row, expected):
    assert problem_from_row(row).model_dump(exclude_defaults=True) == {"id": "0", "problem": "p"} | expected


def test_camel_output_traces_load_without_the_old_traces(write):
    trace = {
        "id": "",
        "type": "",
        "problem": "p",
        "solution": "3",
        "final_trace": "t",
        "agent_evaluate_success": False,
        "boxed_answer_success": False,
        "improvement_history": [{"iteration": 0}],
    }
    (problem,) = load_problems(write("out.json", json.dumps({"traces": [trace]})))
    assert problem.model_dump(exclude_defaults=True) == {"id": "0", "problem": "p", "reference": "3"}


def test_rows_of_an_earlier_run_load_as_the_problems_they_came_from(write):
    from cotkit.records import Row

    problem = Problem(id="7", problem="p", reference="3", type="t", tolerance=0.1, metadata={"level": 2})
    row = Row(index=4, drop_reason="rejected", **problem.model_dump())
    assert load_problems(write("drops.jsonl", [row.model_dump()])) == [problem]
    own = {"candidates": ["A) Chile", "B) Peru"], "index": 7, "detail": "Wiki", "final": "x", "version": "2"}
    assert load_problems([{"question": "Where?", "answer": "A", **own}])[0].metadata == own


def test_own_column_names_are_mapped_and_misspelt_ones_refused():
    rows = [{"uid": 3, "text": "p", "gold": "4", "answer": "other", "id": "native"}]
    mapping = {"id": "uid", "problem": "text", "reference": "gold"}
    (problem,) = load_problems(rows, fields=mapping)
    assert (problem.id, problem.problem, problem.reference) == ("3", "p", "4")
    assert problem.metadata == {"answer": "other", "id": "native"}
    with pytest.raises(ProblemError, match="column 'txt'; found: 'uid', 'text'"):
        load_problems(rows, fields={"problem": "txt"})
    with pytest.raises(ValueError, match="'question' is no field of a problem"):
        load_problems(rows, fields={"question": "text"})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"frage": "x", "antwort": "y"}], ["'frage', 'antwort'", "Expected", "fields="]),
        ([{"problem": "x"}, {"question": "y"}], ["'problem' (first in row 0", "'question' (first in row 1"]),
        (
            [{"problem": "x", "solution": "1"}, {"problem": "y", "answer": "1"}],
            ["'answer' (first in row 1", "'solution' (first in row 0"],
        ),
        ([Problem(id="1", problem="x"), {"problem": "y"}], ["mixes Problem objects"]),
        (["What is 1 + 1?"], ['{"problem": ...}']),
    ],
)
def test_a_source_of_no_or_of_two_forms_is_refused_with_the_fields_found(rows, said):
    with pytest.raises(ProblemError) as error:
        load_problems(rows)
    assert all(text in str(error.value) for text in said), str(error.value)


def test_other_fields_become_metadata_that_json_can_hold():
    import datetime

    import numpy

    row = {
        "problem": "p",
        "score": math.nan,
        "nested": {"values": [1.5, math.inf, None]},
        "array": numpy.array([1, 2]),
        "number": numpy.int64(3),
        "day": datetime.date(2026, 1, 2),
    }
    metadata = problem_from_row(row).metadata
    assert metadata == {
        "score": None,
        "nested": {"values": [1.5, None, None]},
        "array": [1, 2],
        "number": 3,
        "day": "2026-01-02",
    }
    json.dumps(metadata, allow_nan=False)
    with pytest.raises(ProblemError, match="field 'image' holds a bytes"):
        problem_from_row({"problem": "p", "image": b"\x89PNG"})
    with pytest.raises(ProblemError, match="'level' stands in the row and in its 'metadata'"):
        problem_from_row({"problem": "p", "level": 1, "metadata": {"level": 2}})


# --- validation ---


@pytest.mark.parametrize(
    ("row", "field", "kind"),
    [
        ({"solution": "3"}, "problem", "missing"),
        ({"problem": 123}, "problem", "int 123"),
        ({"problem": None}, "problem", "null"),
        ({"problem": " \n"}, "problem", "empty"),
        ({"problem": "p", "id": ["a"]}, "id", "list ['a']"),
        ({"problem": "p", "id": None}, "id", "NoneType None"),
        ({"problem": "p", "id": 1.0}, "id", "float 1.0"),
        ({"problem": "p", "id": True}, "id", "bool True"),
        ({"problem": "p", "type": 5}, "type", "int 5"),
        ({"problem": "p", "solution": 3}, "solution", "int 3"),
        ({"question": "p", "answer": 0.5}, "answer", "float 0.5"),
        ({"problem": "p", "reference": math.nan}, "reference", "float nan"),
        ({"problem": "p", "reference": ["a", "b"]}, "reference", "list"),
        ({"problem": "p", "tolerance": "wide"}, "tolerance", "str 'wide'"),
        ({"problem": "p", "tolerance": True}, "tolerance", "bool True"),
        ({"problem": "p", "tolerance": -0.1}, "tolerance", "float -0.1"),
        ({"problem": "p", "tolerance": 1}, "tolerance", "int 1"),
        ({"problem": "p", "tolerance": "5"}, "tolerance", "str '5'"),
        ("p", "row", "str 'p'"),
    ],
)
def test_an_invalid_row_is_a_readable_error_that_names_row_field_and_type(row, field, kind):
    with pytest.raises(ValueError, match="problem 3") as error:
        problem_from_row(row, where="problem 3")
    assert field in str(error.value) and kind in str(error.value) and "Fix: " in str(error.value)


def test_every_fault_of_every_row_is_counted_and_the_first_five_are_shown(write):
    rows = [{"problem": f"p{n}", "type": 1} for n in range(3)] + [{"problem": 4, "type": 2} for _ in range(4)]
    path = write("p.jsonl", [*rows, {"problem": "sound"}])
    with pytest.raises(ProblemError) as error:
        load_problems(path, limit=1, type="no such type")  # validation comes before both
    assert len(error.value.faults) == 11
    message = str(error.value)
    assert "11 faults" in message and "and 6 more" in message
    assert message.count("\n  line ") == 5 and "line 4: field 'problem'" in message


def test_a_row_that_cannot_be_parsed_does_not_hide_the_faults_of_others(write):
    path = write("p.jsonl", '{"problem": "x"}\n{torn\n{"problem": 3}\n')
    with pytest.raises(ProblemError) as error:
        load_problems(path)
    assert [fault.split(":")[0] for fault in error.value.faults] == ["line 2", "line 3"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [{"id": "a", "problem": "x"}, {"id": "b", "problem": "y"}, {"id": "a", "problem": "z"}],
            ["row 0", "row 2", "'a'"],
        ),
        ([{"id": 1, "problem": "x"}, {"id": "1", "problem": "y"}], ["row 0", "row 1", "'1'"]),
        (
            [{"id": "a", "problem": "x"}, {"id": "b", "problem": "x"}],
            ["row 0", "row 1", "'a'", "'b'", "same text"],
        ),
        ([{"problem": "x"}, {"problem": "x"}], ["row 0", "row 1", "same text"]),
        ([{"id": "a", "problem": "x"}] * 2, ["row 0", "row 1", "with the same text"]),
        ([Problem(id="a", problem="x")] * 2, ["row 0", "row 1", "with the same text"]),
        ([{"id": "a", "problem": "x"}, {"problem": "y"}], ["row 1", "'id' is missing, other rows have one"]),
    ],
)
def test_two_rows_with_one_id_or_one_text_are_refused_and_both_named(rows, said):
    with pytest.raises(ProblemError) as error:
        load_problems(rows, limit=1)
    assert len(error.value.faults) == 1
    assert all(text in str(error.value) for text in said), str(error.value)


def test_duplicates_can_be_fixed_on_request_and_are_counted():
    rows = [
        {"id": "a", "problem": "x"},
        {"id": "a", "problem": "y"},
        {"id": "a-2", "problem": "z"},
        {"id": "b", "problem": "x"},
    ]
    with pytest.warns(UserWarning, match=r"1 rows left out .* 1 ids numbered"):
        problems = load_problems(rows, duplicates="fix")
    assert [(p.id, p.problem) for p in problems] == [("a", "x"), ("a-3", "y"), ("a-2", "z")]


def test_a_repeat_with_another_reference_is_pointed_out():
    rows = [{"problem": "x", "reference": "1"}, {"problem": "x ", "reference": "2"}, {"problem": "y"}]
    with pytest.raises(ProblemError, match="the same text as row 0"):
        load_problems(rows)
    told = r"1 rows left out .*; 1 of the rows left out have another reference \(row 1 .*: '2', kept is '1'\)"
    with pytest.warns(UserWarning, match="no reference"), pytest.warns(UserWarning, match=told):
        problems = load_problems(rows, duplicates="fix")
    assert [(p.problem, p.reference) for p in problems] == [("x", "1"), ("y", None)]
    with pytest.warns(UserWarning, match="numbered$"):
        load_problems([rows[0], {"problem": "x", "reference": " 1"}], duplicates="fix")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["expected_answer", " reference", "Answer", "Ground Truth"])
def test_a_field_that_may_hold_the_references_nobody_read_is_pointed_out(write, name, stream):
    path = write("p.jsonl", [{"problem": "x", name: None}, {"problem": "y", name: "1"}])
    with pytest.warns(UserWarning, match=rf"no problem has a reference, but the field {name!r} looks like"):
        load_problems(path, stream=stream)
    with pytest.warns(UserWarning, match="1 of 2 problems have no reference"):
        assert load_problems(path, stream=stream, fields={"reference": name})[1].reference == "1"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["topic", "answer", "answers_wanted", "problem"])
def test_problems_without_any_reference_load_without_a_word(write, name):
    load_problems(write("p.jsonl", [{name: None, "problem": "x"}, {name: "", "problem": "y"}]))


def test_a_missing_reference_among_others_is_pointed_out(write):
    with pytest.warns(UserWarning, match=r"1 of 2 problems have no reference \(the first in line 2\)"):
        load_problems(write("p.jsonl", [{"problem": "x", "answer": "1"}, {"problem": "y", "answer": None}]))


# --- selection ---


def test_limit_shuffle_and_type_select_in_that_order():
    rows = [{"id": str(n), "problem": f"p{n}", "type": "abc"[n % 3]} for n in range(30)]
    assert [p.id for p in load_problems(rows, 2)] == ["0", "1"]
    assert len(load_problems(rows, limit=1000)) == 30
    assert [p.id for p in load_problems(rows, 2, type="b")] == ["1", "4"]
    assert [p.id for p in load_problems(rows, 4, type=["a", "b"])] == ["0", "1", "3", "4"]
    shuffled = load_problems(rows, shuffle=True)
    assert sorted(p.id for p in shuffled) == sorted(r["id"] for r in rows)
    assert load_problems(rows, 5, shuffle=True) == shuffled[:5]
    assert load_problems(rows, seed=1, shuffle=True) != shuffled


def test_the_seeded_order_is_the_same_in_every_python():
    rows = [{"problem": str(n)} for n in range(8)]
    # the order of eight random.Random(7).random() values, a sequence that Python guarantees
    assert [p.id for p in load_problems(rows, seed=7, shuffle=True)] == [
        "6",
        "3",
        "1",
        "0",
        "5",
        "7",
        "4",
        "2",
    ]


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"limit": 0}, ValueError, "at least 1"),
        ({"limit": -3}, ValueError, "at least 1"),
        ({"limit": 2.0}, TypeError, "2.0"),
        ({"limit": True}, TypeError, "True"),
        ({"seed": "0"}, TypeError, "'0'"),
        ({"type": "c"}, ValueError, "'a' (1), 'b' (1)"),
        ({"type": ["a", "c"]}, ValueError, "'c'"),
        ({"type": []}, ValueError, "empty"),
        ({"duplicates": "keep"}, ValueError, "'keep'"),
        ({"split": "test"}, ValueError, "Hugging Face"),
        ({"limt": 3}, TypeError, "limt"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options, kind, said):
    rows = [{"problem": "x", "type": "a"}, {"problem": "y", "type": "b"}]
    with pytest.raises(kind) as error:
        load_problems(rows, **options)
    assert said in str(error.value)


# --- names, folders, Hugging Face ---


def test_shipped_problems_are_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problems = cotkit.load_problems("word_problems", limit=8)
    assert [p.metadata["difficulty"] for p in problems] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_the_seed_problems_of_a_domain_are_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (data_folder() / "seeds").glob("*.jsonl"):
        problems = cotkit.load_problems(path.stem)
        assert problems == cotkit.load_problems(path)
        assert all(p.type == path.stem and p.solution_code and p.answer_type for p in problems)
    physics = cotkit.load_problems("advanced_physics")
    assert all(p.answer_type == "quantity" and p.tolerance for p in physics if " " in p.reference)


def test_a_wrong_path_says_where_it_looked_and_what_is_there(write, tmp_path):
    write("mine.csv", "problem\nx\n")
    with pytest.raises(FileNotFoundError, match=r"mine\.csv.*word_problems"):
        load_problems(tmp_path / "mein.csv")
    with pytest.raises(ProblemError, match=r"is a folder.*mine\.csv"):
        load_problems(tmp_path)
    with pytest.raises(FileNotFoundError, match="word_problems"):
        load_problems("word-problems")
    with pytest.raises(ProblemError, match="download"):
        load_problems("https://example.org/p.json")
    with pytest.raises(TypeError, match="int"):
        load_problems(3)


def test_a_hugging_face_id_without_the_package_says_how_to_go_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install datasets, or download"):
        load_problems("some-org/some-set")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in for the package `datasets` with one data set of two splits."""
    source = """
        SPLITS = {"train": [{"question": "a", "answer": "1"}], "test": [{"question": "b", "answer": "2"}]}
        def load_dataset(path, name=None, split=None):
            if path != "org/set":
                raise FileNotFoundError(f"{path} does not exist on the Hub")
            if name not in (None, "main"):
                raise ValueError(f"BuilderConfig {name!r} not found")
            return dict(SPLITS) if split is None else SPLITS[split]
    """
    (tmp_path / "datasets.py").write_text(textwrap.dedent(source), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    yield
    sys.modules.pop("datasets", None)


def test_a_hugging_face_data_set_loads_its_named_split(hub):
    (problem,) = load_problems("org/set", split="test", subset="main")
    assert (problem.problem, problem.reference) == ("b", "2")
    with pytest.raises(ProblemError, match="splits train, test"):
        load_problems("org/set")
    with pytest.raises(ProblemError, match="does not exist on the Hub"):
        load_problems("org/other")
    with pytest.raises(ProblemError, match="BuilderConfig"):
        load_problems("org/set", subset="nope")


# --- what a notebook shows ---


def test_a_data_frame_with_holes_loads_and_shows_its_problems():
    import pandas

    frame = pandas.DataFrame({"problem": ["x", "y"], "reference": ["1", None], "level": [1.0, None]})
    with pytest.warns(UserWarning, match="1 of 2 problems have no reference"):
        problems = load_problems(frame)
    assert problems[1].reference is None and problems[1].metadata == {"level": None}
    shown = problems_frame(problems)
    assert list(shown.columns) == ["id", "type", "problem", "reference", "level"]
    assert len(shown) == 2 and len(problems_frame([])) == 0
    with pytest.raises(ProblemError, match="'answer' must be text, not int 3"):
        load_problems(pandas.DataFrame({"problem": ["x"], "answer": [3]}))


def test_half_a_character_stays_in_a_frame():
    given = Problem(
        id="a", problem="What \ud83d is it?", reference="2", metadata={"t\ud83d": "u\ud83d", "n": 3}
    )
    shown = problems_frame([given, Problem(id="b", problem="And this?")])
    assert shown.problem.tolist() == ["What \ud83d is it?", "And this?"]
    assert shown["t\ud83d"].tolist() == ["u\ud83d", None] and shown["n"].tolist()[0] == 3


def test_a_problem_shows_its_text_literally():
    """In a notebook: a price is no formula, the mark of a worked solution no heading, a tag no tag."""
    odd = "a $2 pen,\r<script>alert(1)</script>"
    problem = Problem(id=odd, problem=odd, reference="2 + 3 = 5\n#### 5", type=odd, licence=odd)
    page = problem._repr_html_()
    assert "mathjax_ignore" in page and "<script" not in page and page.count("&lt;script&gt;") == 4
    assert "2 + 3 = 5\n#### 5</td>" in page and not hasattr(problem, "_repr_markdown_")


# --- real data ---


def test_gsm8k_loads(shared_data):
    problems = load_problems(shared_data / "gsm8k_test.jsonl")
    assert len(problems) == 1319
    assert {p.answer_type for p in problems} == {"number"}
    assert problems[0].id == "0" and problems[0].reference.endswith("#### 18")
    assert "’" in problems[0].problem


LOONG = [  # final_answer, metadata, answer_type, tolerance
    ("3.4 atm", {"unit": "$\\mathrm{atm}$"}, "quantity", None),
    ("-1e+02 J", {"unit": "$\\mathrm{J}$"}, "quantity", None),
    ("0.23 ", {"unit": " "}, "quantity", None),  # a measured number without a unit
    ("41 ", {"unit": " "}, None, None),  # a count
    ("1/3 ", {"unit": " "}, None, None),
    ("$\\frac{8 \\pi}{3}$", {"unit": "s"}, None, None),
    ("3.4 atm", {}, None, None),  # only the row's own word counts
    ("-10641.3", {"answer_tolerance": "10"}, None, 10 / 10641.3),
    ("0.195", {"answer_tolerance": "1"}, None, None),  # wider than the answer: not believed
    ("120000.0", {"answer_tolerance": "0"}, None, None),
    ("{'NPV': 5.4}", {"answer_tolerance": "0.1"}, None, None),
    ("12", {"answer_tolerance": "a bit"}, None, None),
]


@pytest.mark.parametrize(("answer", "said", "answer_type", "tolerance"), LOONG)
def test_a_loongbench_row_says_how_its_answer_is_compared(answer, said, answer_type, tolerance):
    row = {"question": "How much?", "final_answer": answer, "rationale": "print(1)", "metadata": said}
    (problem,) = load_problems([row])
    assert problem.answer_type == answer_type
    assert problem.tolerance == (None if tolerance is None else pytest.approx(tolerance))


def test_what_a_loongbench_row_says_itself_comes_first():
    row = {"question": "How much?", "final_answer": "3.4 J", "rationale": "print(1)", "answer_type": "text"}
    (problem,) = load_problems(
        [row | {"tolerance": 0.001, "metadata": {"unit": "J", "answer_tolerance": "0.01"}}]
    )
    assert (problem.answer_type, problem.tolerance) == ("text", 0.001)


@pytest.mark.parametrize(
    ("name", "count", "type_", "licences"),
    [
        ("advanced_math", 60, "Advanced Math", {"MIT"}),
        ("advanced_physics", 60, "Advanced Physics", {"MIT", "Apache-2.0"}),
        ("graph_discrete_math", 40, "Loong_Graph_Discrete_Math", {"CC0 1.0 Universal"}),
        (
            "mathematical_programming",
            15,
            "Mathematical Programming",
            {"Apache-2.0", "MIT license", "BSD 3-Clause"},
        ),
        ("medicine", 30, "medicine", {"CC-BY-SA-4.0"}),
    ],
)
def test_loongbench_loads_with_its_programs_and_licences(shared_data, name, count, type_, licences):
    problems = load_problems(shared_data / "loongbench" / f"{name}.json")
    assert len(problems) == count
    assert {p.type for p in problems} == {type_}
    assert {p.licence for p in problems} == licences
    assert all(p.reference and p.solution_code and "source" in p.metadata for p in problems)


def test_an_id_that_two_loongbench_rows_share_is_found(shared_data):
    path = shared_data / "loongbench" / "finance.json"
    with pytest.raises(ProblemError, match=r"row 30 .*'finance_quant_95' stands in row 27"):
        load_problems(path)
    with pytest.warns(UserWarning, match="0 rows left out .* 1 ids numbered"):
        problems = load_problems(path, duplicates="fix")
    assert len(problems) == len({p.id for p in problems}) == 40
    by_row = load_problems(path, fields={"id": "source_row"})
    assert [p.id for p in by_row[:2]] == ["0", "2"]
