"""Parameters are read from the cell as written, and a value that does not fit is refused before a kernel."""

from __future__ import annotations

import io
import json
import re
import tokenize

import nbformat
import pytest

from cotkit import cli
from cotkit.report import all_notebooks, notebook_name
from cotkit.report.parameters import parameters_cell, read_parameters, resolve

CELL = """
n: int = 3  # how many
rate: float = 0.5  # a share
name: str = "a = b"  # text with an = and a # in it: "#"
deep: bool = False  # yes or no
judge: str | None = None  # a model, or None
limit: "int" = 3  # a quoted annotation is none we read
sizes: list[int] = [1, 2]  # a list
weights: dict[str, float] = {  # over lines
    "a": 1.0,
}  # by dimension
mode: Literal["fast", "slow"] = "fast"  # one of two
seed: int | str = 0  # either
key_env: str = "OPENAI_API_KEY"  # NAME of the variable
max_tokens: int = 100  # no key, in spite of its name
loose = 5  # not annotated
"""


def notebook(*sources: str, tag: str = "parameters"):
    cells = [nbformat.v4.new_code_cell(source, metadata={"tags": [tag]}) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


def given(**values):
    return resolve(notebook(CELL), values)


def test_name_type_default_and_comment_are_read_whatever_the_value_holds():
    found = {p.name: p for p in read_parameters(notebook(CELL))}
    assert list(found) == [
        "n", "rate", "name", "deep", "judge", "limit", "sizes", "weights", "mode", "seed", "key_env",
        "max_tokens", "loose",
    ]  # fmt: skip
    assert (found["n"].annotation, found["n"].default, found["n"].comment) == ("int", "3", "how many")
    assert found["name"].default == '"a = b"'
    assert found["name"].comment == 'text with an = and a # in it: "#"'
    assert (found["judge"].annotation, found["judge"].default) == ("str | None", "None")
    assert (found["weights"].default, found["weights"].comment) == ("{'a': 1.0}", "by dimension")
    assert (found["loose"].annotation, found["loose"].kind) == ("", None)


@pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)
def test_the_help_of_every_notebook_is_its_parameters_cell(path, capsys):
    cell = "".join(parameters_cell(json.loads(path.read_text(encoding="utf-8")))["source"])
    written = re.findall(r"(?m)^(\w+): (.+?) = ", cell)
    comments = [token.string.lstrip("# ") for token in tokenize.generate_tokens(io.StringIO(cell).readline)
                if token.type == tokenize.COMMENT]  # fmt: skip
    assert cli.main(["run", notebook_name(path), "--help"]) == 0
    listed = capsys.readouterr().out.partition(f"parameters of {path.name}:\n")[2]
    assert written and re.findall(r"(?m)^  (\w+): (.+?) = .+\n {6}\S", listed) == written
    assert re.findall(r"(?m)^ {6}(.+)$", listed) == comments


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("n", "7", 7),
        ("n", 7, 7),
        ("rate", "1e-3", 0.001),
        ("rate", 1, 1.0),
        ("deep", "true", True),
        ("deep", "False", False),
        ("judge", "none", None),
        ("judge", None, None),
        ("judge", "gpt", "gpt"),
        ("name", "5", "5"),
        ("name", "none", "none"),
        ("sizes", "[3, 4]", [3, 4]),
        ("sizes", (3, 4), [3, 4]),
        ("weights", "{a: 1e-3, b: 2}", {"a": 0.001, "b": 2.0}),
        ("mode", "slow", "slow"),
        ("seed", "5", 5),
        ("seed", "five", "five"),
        ("key_env", "DEEPSEEK_API_KEY", "DEEPSEEK_API_KEY"),
        ("max_tokens", "512", 512),
    ],
)
def test_a_value_that_fits_is_taken_as_its_type(name, value, wanted):
    resolved = given(**{name: value})[name]
    assert resolved == wanted and type(resolved) is type(wanted)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("n", "7.5", "not a whole number"),
        ("n", 7.0, "not a whole number"),
        ("n", True, "not a whole number"),
        ("n", None, "only where the annotation says `| None`"),
        ("n", "none", "not a whole number"),
        ("rate", "much", "not a number"),
        ("rate", "nan", "not a finite number"),
        ("rate", False, "not a number"),
        ("deep", "yes", "not true or false"),
        ("deep", 1, "not true or false"),
        ("name", 5, "not text"),
        ("sizes", "[3, x]", "not a whole number"),
        ("sizes", "3", "not a list"),
        ("weights", "[1]", "not a dict"),
        ("mode", "medium", "none of 'fast' or 'slow'"),
        ("nn", 3, "Did you mean 'n'"),
        ("loose", 5, "no annotation"),
        ("limit", 5, "the annotation \"'int'\""),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(name, value, said):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        given(**{name: value})
    assert said in str(caught.value) and repr(name) in str(caught.value)


KEY = "sk-proj-abcdefghij0123456789"


@pytest.mark.parametrize(
    "values",
    [
        {"name": KEY},
        {"key_env": KEY},
        {"n": KEY},
        {"key_env": "my secret words"},
        {"name": "https://user:hunter22@host/v1"},
        {"name": "https://host/v1?api_key=abcdefgh"},
        {"weights": {"a": KEY}},
        {"name": "hunter22-in-the-environment"},
    ],
)
def test_a_key_is_refused_and_not_repeated(values, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hunter22-in-the-environment")
    with pytest.raises(ValueError, match="NAME of that variable") as caught:
        given(**values)
    assert "hunter22" not in str(caught.value) and KEY not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["hf_models_local_directory/model", "task-2024-01-01-sorted-names", "sk-learn"]
)
def test_an_ordinary_name_is_no_key(name):
    assert given(name=name) == {"name": name}


@pytest.mark.parametrize(
    ("book", "said"),
    [
        (notebook(CELL, tag="setup"), "it has 0"),
        (notebook("n: int = 1", "m: int = 2"), "it has 2"),
        (notebook("import os\nn: int = 1"), "not 'import os'"),
        (notebook("n: int = ("), "not Python"),
    ],
)
def test_a_parameters_cell_must_be_the_only_one_and_hold_assignments(book, said):
    with pytest.raises(ValueError) as caught:
        resolve(book, {"n": 1})
    assert said in str(caught.value)


def test_reading_an_annotation_runs_nothing():
    (parameter,) = read_parameters(notebook("n: __import__('os').abort() = 1"))
    assert parameter.kind is None
