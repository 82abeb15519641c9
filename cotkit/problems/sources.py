"""What a user may name as problems, and where its rows are: a file, a data set shipped with the project, a
Hugging Face data set, or rows that are already in memory.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from cotkit.problems.files import FileTable
from cotkit.problems.formats import READERS, Table, read_file, read_jsonl, rows_of_json, rows_of_list
from cotkit.problems.records import Problem, ProblemError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SHOWN = 8
STREAM_FROM = 16_000_000  # bytes: the problems of a larger .jsonl file stay in it, with stream="auto"

Stream = bool | Literal["auto"]


def data_folder() -> pathlib.Path:
    """The project's own data: the nearest folder `data` above the package that holds word_problems.jsonl.

    Raises FileNotFoundError when the package was installed without its repository.
    """
    for parent in pathlib.Path(__file__).resolve().parents:
        if (parent / "data" / "word_problems.jsonl").is_file():
            return parent / "data"
    raise FileNotFoundError(
        "the shipped problems are not beside this installation of cotkit. Fix: install from a clone of the "
        "repository (`pip install -e .`), or give the path of a file."
    )


def shipped() -> dict[str, pathlib.Path]:
    """{short name: file} of the data sets in `data_folder()`, the seed problems of each domain among them."""
    try:
        folder = data_folder()
    except FileNotFoundError:
        return {}
    return {path.stem: path for path in sorted([*folder.glob("*.jsonl"), *folder.glob("seeds/*.jsonl")])}


def find_rows(
    source: Any, split: str | None = None, subset: str | None = None, stream: Stream = False
) -> Table:
    """The rows of `source`, unjudged. Raises FileNotFoundError, TypeError or ProblemError with the fix."""
    hub = isinstance(source, str) and _is_hub_id(source)
    if not hub and (split is not None or subset is not None):
        raise ValueError("split and subset choose a part of a Hugging Face data set; a file has none")
    if not hub and isinstance(source, str | os.PathLike):
        return _read(_found(source), stream)
    if stream is True:
        raise ValueError(f"stream=True reads a .jsonl file. {_AS_JSONL}, and give its path")
    return _read_hub(source, split, subset) if hub else _read_memory(source)


_AS_JSONL = "Fix: write the problems as JSON, one object a line"


def _read(path: pathlib.Path, stream: Stream) -> Table:
    in_lines = READERS[path.suffix.lower()] is read_jsonl
    if stream is True and not in_lines:
        raise ValueError(f"stream=True reads .jsonl files, and {path} is none. {_AS_JSONL}")
    if stream is True or (stream == "auto" and in_lines and path.stat().st_size >= STREAM_FROM):
        return FileTable(str(path), path)
    return read_file(path)


def _is_hub_id(source: str) -> bool:
    path = pathlib.Path(source).expanduser()
    looks_local = path.exists() or path.parent.is_dir() or path.suffix.lower() in READERS
    return not looks_local and bool(_HUB_ID.fullmatch(source))


def _found(source: str | os.PathLike[str]) -> pathlib.Path:
    """The readable file that is meant."""
    path = pathlib.Path(source).expanduser()
    if path.is_file():
        if path.suffix.lower() not in READERS:
            raise ProblemError(f"{path}: unknown kind of file. Readable: {', '.join(READERS)}.")
        return path
    if str(source) in shipped():
        return shipped()[str(source)]
    if path.is_dir():
        raise ProblemError(f"{path} is a folder, not a file. {_candidates(path)}")
    if "://" in str(source):
        raise ProblemError(f"{source} is an address. Fix: download the file and give its path.")
    raise FileNotFoundError(
        f"no file {str(source)!r} (looked in {pathlib.Path.cwd()}). {_candidates(path.parent)} "
        f"Names of shipped problems: {', '.join(shipped()) or 'none'}."
    )


def _candidates(folder: pathlib.Path) -> str:
    found = sorted(p.name for p in folder.glob("*") if p.suffix.lower() in READERS) if folder.is_dir() else []
    if not found:
        return f"There is no {', '.join(READERS)} file in {folder.resolve()}."
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"Readable files in {folder.resolve()}: {', '.join(found[:_SHOWN])}{more}."


def _read_memory(source: Any) -> Table:
    """A list (or any iterable) of rows or Problems, a dict of columns, a pandas DataFrame."""
    pandas = sys.modules.get("pandas")  # a DataFrame can only exist once pandas is imported
    if pandas is not None and isinstance(source, pandas.DataFrame):
        if not source.columns.is_unique:
            raise ProblemError("the given DataFrame has two columns of one name. Fix: rename one.")
        holes = source.astype(object).where(source.notna(), None)
        return rows_of_list("the given DataFrame", holes.to_dict("records"))
    if isinstance(source, Problem):
        return rows_of_list("the given problem", [source])
    if isinstance(source, Mapping):
        return rows_of_json("the given dict", dict(source))
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return rows_of_list("the given list", list(source))
    raise TypeError(
        f"problems come from a path, the name of a data set, a list of rows or a DataFrame, "
        f"not from a {type(source).__name__}"
    )


def _read_hub(source: str, split: str | None, subset: str | None) -> Table:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ImportError(
            f"{source!r} is no file here (looked in {pathlib.Path.cwd()}); as a Hugging Face data set it "
            "needs the package `datasets`. Fix: pip install datasets, or download the data set's .jsonl or "
            ".parquet file and give its path."
        ) from None
    try:
        found = load_dataset(source, name=subset, split=split)
    except (ValueError, OSError, RuntimeError) as error:  # unknown id, split or subset; no network
        raise ProblemError(
            f"Hugging Face data set {source!r} cannot be loaded: {error}. Fix: check the id, name the "
            'subset="..." and split="..." it needs, or download a file of it and give its path.'
        ) from error
    if isinstance(found, dict):
        if len(found) > 1:
            raise ProblemError(f"{source} has the splits {', '.join(found)}. Fix: name one, split=...")
        (found,) = found.values()
    return rows_of_list(source, list(found))
