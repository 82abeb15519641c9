"""Notebook files: found by name, read, kept free of outputs for git, and free of private things once run."""

from __future__ import annotations

import copy
import difflib
import json
import os
import pathlib
import re
from typing import Any

from cotkit.paths import root
from cotkit.report import files
from cotkit.report.parameters import environment_secrets

_PAPERMILL_NOTE = "papermill-error-cell-tag"  # cells papermill adds about a failure; the page says it better


def project_root() -> pathlib.Path:
    """`cotkit.paths.root()`, or the package's own checkout when that root holds no notebooks."""
    here, checkout = root(), pathlib.Path(__file__).resolve().parents[2]
    if not (here / "notebooks").is_dir() and (checkout / "notebooks").is_dir():
        return checkout
    return here


def all_notebooks() -> list[pathlib.Path]:
    """The project's notebooks, in the order of their numbers."""
    return sorted((project_root() / "notebooks").glob("*.ipynb"))


def find_notebook(notebook: str | os.PathLike[str]) -> pathlib.Path:
    """The file of "distillation" (notebooks/01_distillation.ipynb) or of a path. ValueError when absent."""
    text = os.fspath(notebook)
    if text.endswith(".ipynb") or os.sep in text:
        for path in (pathlib.Path(text).expanduser(), project_root() / text):
            if path.is_file():
                return path.resolve()
        raise ValueError(f"there is no notebook at {text}")
    known = {notebook_name(path): path for path in all_notebooks()}
    for name, path in known.items():
        if text in (name, path.stem):
            return path
    near = difflib.get_close_matches(text, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    there = f"{project_root() / 'notebooks'} holds {', '.join(known) or 'none'}"
    raise ValueError(f"there is no notebook {text!r}.{hint} {there}")


def notebook_name(path: pathlib.Path) -> str:
    """`01_distillation.ipynb` -> `distillation`."""
    return re.sub(r"^\d+_", "", path.stem)


def read_notebook(path: pathlib.Path) -> Any:
    """The notebook at `path` in nbformat 4. ValueError when it is none."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # noqa: BLE001 - nbformat's, json's and jsonschema's errors are all its content's
        raise ValueError(f"{path} is not a notebook: {error}") from None


def scrubbed(value: Any) -> Any:
    """A copy of a text, or of JSON-like data, in which the environment's keys are named instead of shown and
    the home folder is ~. Pictures stay as they are."""
    secrets = environment_secrets()
    home = str(pathlib.Path.home())
    # the letter before tells a path from a piece of base64
    at_home = re.compile(rf"(?<![A-Za-z0-9+]){re.escape(home)}(?=/)") if len(home) > 1 else None

    def scrub(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if str(k).startswith("image/") else scrub(v) for k, v in value.items()}
        if isinstance(value, list):
            return [scrub(item) for item in value]
        if not isinstance(value, str):
            return value
        for secret, name in secrets.items():
            value = value.replace(secret, f"[key in {name}]")
        return at_home.sub("~", value) if at_home else value

    return scrub(value)


def executed(notebook: Any) -> Any:
    """A copy to keep: outputs and all, but no papermill metadata (it holds paths), keys or home folder."""
    import nbformat

    kept = nbformat.from_dict(
        scrubbed({**notebook, "metadata": dict(notebook.metadata) | {"papermill": None}})
    )
    del kept.metadata["papermill"]
    kept.cells = [cell for cell in kept.cells if _PAPERMILL_NOTE not in cell.metadata.get("tags", [])]
    for cell in kept.cells:
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not _is_the_end(output)]
    return kept


def _is_the_end(output: Any) -> bool:
    """What IPython says of a cell that ended the notebook on purpose (`Report.stop`)."""
    return output.output_type == "error" and (output.ename, output.evalue) == ("SystemExit", "0")


def save(notebook: Any, path: pathlib.Path) -> None:
    import nbformat

    files.write_text(path, nbformat.writes(notebook) + "\n")


# What git keeps: no outputs, no counts, and the metadata every machine writes alike.
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
_METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
_CELL_METADATA = {"tags", "slideshow", "jupyter"}


def stripped(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook (plain JSON) as git should hold it; cells' sources and ids stay as they are."""
    result = copy.deepcopy(notebook)
    result["metadata"] = copy.deepcopy(_METADATA)
    result["cells"] = [cell for cell in result["cells"] if not _was_injected(cell)]
    for cell in result["cells"]:
        cell["metadata"] = {
            key: value for key, value in cell["metadata"].items() if key in _CELL_METADATA and value
        }
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return result


def _was_injected(cell: dict[str, Any]) -> bool:
    return "injected-parameters" in cell["metadata"].get("tags", [])


def strip_file(path: pathlib.Path, check: bool = False) -> bool:
    """Strip the notebook at `path` in place (with `check`, only look). True when it was not stripped."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        clean = stripped(notebook)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a notebook: {error}") from None
    if clean == notebook:
        return False
    if not check:
        files.write_text(path, json.dumps(clean, indent=1, ensure_ascii=False) + "\n")
    return True
