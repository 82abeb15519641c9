"""Where things are kept: the project root, `runs/`, `reports/`, `notebooks/`, `data/`.

The root is `COTKIT_ROOT` when set, else the nearest folder above the current one that holds a `notebooks`
folder beside a `pyproject.toml`, else the current folder. So a notebook, a papermill run and a script
started elsewhere in the project agree.
"""

from __future__ import annotations

import os
import pathlib


def root() -> pathlib.Path:
    if named := os.environ.get("COTKIT_ROOT"):
        return pathlib.Path(named).expanduser().resolve()
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "notebooks").is_dir():
            return folder
    return here


def run_folder(run: str | os.PathLike[str]) -> pathlib.Path:
    """A plain name is a folder under `<root>/runs`; anything with a separator is a path as it stands.

    Absolute, for the current folder may change while a run goes, and is another one in a worker.
    """
    text = os.fspath(run)
    if not text or text in {".", ".."}:
        raise ValueError(f"a run needs a name or a path, got {text!r}")
    if os.sep in text or (os.altsep and os.altsep in text) or not isinstance(run, str):
        return file_path(text)
    return root() / "runs" / text


def file_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Absolute, `~` expanded."""
    return pathlib.Path(path).expanduser().absolute()
