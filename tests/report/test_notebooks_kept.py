"""Every notebook in git: stripped, on the kernel every machine has, with typed and explained parameters."""

from __future__ import annotations

import ast
import json
import pathlib
import re

import nbformat
import pytest

import cotkit
from cotkit.chat.config import read_key
from cotkit.report import notebooks, read_parameters, strip_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = sorted((ROOT / "notebooks").glob("*.ipynb"))


def faults(path: pathlib.Path) -> list[str]:
    """What a notebook in git must not be."""
    content = json.loads(path.read_text(encoding="utf-8"))
    found = [] if re.fullmatch(r"\d\d_[a-z0-9_]+\.ipynb", path.name) else ["name is not NN_lower_case.ipynb"]
    if content != notebooks.stripped(content):
        found.append("not stripped")
    if content["metadata"].get("kernelspec", {}).get("name") != "python3":
        found.append("kernel is not python3")
    nbformat.validate(content)
    try:
        parameters = read_parameters(content)
    except ValueError as error:
        return [*found, str(error)]
    for parameter in parameters:
        if parameter.kind is None:
            found.append(f"parameter {parameter.name} has no usable annotation")
        if not parameter.comment:
            found.append(f"parameter {parameter.name} has no comment")
    return found


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_notebook_in_git_has_no_fault(path):
    assert faults(path) == []


def chat_models(path: pathlib.Path) -> list[ast.Call]:
    """The calls of `cotkit.ChatModel` in a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    trees = [ast.parse("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in nodes if ast.unparse(node.func) == "cotkit.ChatModel"]


AWAY = "https://away.example/v1"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_notebook_reaches_endpoints_with_and_without_a_key(path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    monkeypatch.setenv("MY_KEY", "my-own")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    defaults = {p.name: ast.literal_eval(p.default) for p in read_parameters(json.loads(path.read_text()))}
    asked = {"name": "m", "model": "m", "max_tokens": 9, "options": {}}
    (call,) = chat_models(path)

    def key(**given):
        names = asked | {"cotkit": cotkit} | {n: defaults[n] for n in ("base_url", "api_key_env")} | given
        (endpoint,) = eval(compile(ast.Expression(call), str(path), "eval"), names).endpoints
        return read_key(endpoint.options.api_key_env, endpoint.base_url)

    assert key() == "of-openai"
    assert key(base_url="http://localhost:8000/v1") is None
    assert key(base_url=AWAY, api_key_env="MY_KEY") == "my-own"
    assert key(base_url=AWAY, api_key_env="") is None
    with pytest.raises(ValueError, match="needs a key"):  # forgotten: said before anything is asked
        key(base_url=AWAY)


def test_no_stray_files_lie_beside_the_notebooks():
    strays = [p.name for p in (ROOT / "notebooks").iterdir() if p not in KEPT and not p.name.startswith(".")]
    assert strays == []


@pytest.fixture
def dirty(tmp_path):
    cells = [
        nbformat.v4.new_code_cell("n: int = 1  # how many", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("n = 2", metadata={"tags": ["injected-parameters"]}),
        nbformat.v4.new_code_cell("1 + n", execution_count=3),
        nbformat.v4.new_markdown_cell("ü", metadata={"papermill": {"input_path": "/home/me/x.ipynb"}}),
    ]
    cells[2]["outputs"] = [nbformat.v4.new_output("stream", text="3")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook["metadata"] = {
        "kernelspec": {"name": "my-env", "display_name": "x"},
        "widgets": {},
        "papermill": {},
    }
    path = tmp_path / "01_dirty.ipynb"
    path.write_text(json.dumps(notebook))
    return path


def test_stripping_leaves_source_tags_and_ids_and_nothing_of_a_run(dirty):
    before = json.loads(dirty.read_text())["cells"]
    assert "not stripped" in faults(dirty)
    assert strip_file(dirty, check=True) and "not stripped" in faults(dirty), "a check changes nothing"
    assert strip_file(dirty) and not strip_file(dirty)
    assert faults(dirty) == []
    after = json.loads(dirty.read_text())["cells"]
    kept = [cell for cell in before if "injected-parameters" not in cell["metadata"].get("tags", [])]
    assert [(c["id"], "".join(c["source"])) for c in after] == [(c["id"], "".join(c["source"])) for c in kept]
    assert after[0]["metadata"] == {"tags": ["parameters"]} and after[1]["outputs"] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("n = 1  # how many", "no usable annotation"),
        ("n: int = 1", "no comment"),
        ("print(1)", "may hold only"),
    ],
)
def test_a_fault_in_the_parameters_is_found(tmp_path, source, fault):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]})
    path = tmp_path / "01_x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    strip_file(path)
    assert [text for text in faults(path) if fault in text]


def test_a_file_that_is_no_notebook_is_named(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"x\.ipynb is not a notebook"):
        strip_file(path)
