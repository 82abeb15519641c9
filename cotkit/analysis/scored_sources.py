"""The frame that thresholds are tuned on: the candidates of runs, or a file of rows scored elsewhere.

A file (.csv, .jsonl or .parquet) has one line a trace with a verdict (`correct`), a problem (`id`) and score
columns; `iteration`, `model`, `trace_characters` (or `trace`, from which it is counted) are used where they
are there. What is in the columns is checked by `tune_thresholds`, which names the line of a row by `place`.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cotkit.analysis.candidates import candidates_frame
from cotkit.analysis.selfscores import self_consistency
from cotkit.runs import Run, open_run, read_labels

if TYPE_CHECKING:
    import pandas

SUFFIXES = (".csv", ".jsonl", ".parquet")
SAID = {"good": True, "bad": False}  # "unsure" is no verdict


def scored_frame(source: Run | str | os.PathLike[str] | Iterable[Any], group: str = "id") -> pandas.DataFrame:
    """Scored rows of a run, of several runs (`run` names them; objects or folders), or of one file.

    Of runs it is `candidates_frame` with the columns `self_consistency` and `person` (what a person said in a
    TraceBrowser: True = good, False = bad, else missing), and `attrs["judge"]` holds what the runs record of
    their judge. `group` is the file's column of problems, whose ids are kept as they are
    written. Raises FileNotFoundError for a file that is not there, ValueError for one that cannot be read
    (the message says where) and for runs of different judges.
    """
    import pandas

    if isinstance(source, (str, os.PathLike)) and pathlib.Path(source).suffix.lower() in SUFFIXES:
        frame = _read(pathlib.Path(source).expanduser(), group)
        frame.attrs["file"] = str(source), len(frame)
        if "trace" in frame and "trace_characters" not in frame:
            frame["trace_characters"] = frame["trace"].astype("string").str.len()
        return frame
    if isinstance(source, (str, os.PathLike)) and not pathlib.Path(source).expanduser().is_dir():
        kinds = "a run folder, or one file that ends in .csv, .jsonl or .parquet"
        raise FileNotFoundError(f"{source} is none of what can be read: {kinds}")
    runs = list(source) if isinstance(source, Iterable) and not isinstance(source, (str, Run)) else [source]
    if not runs:
        raise ValueError("no run is given")
    if strange := next((run for run in runs if not isinstance(run, (Run, str, os.PathLike))), None):
        raise TypeError(
            f"what is read must be a Run, Runs, a DataFrame or a file of rows, got {strange!r:.80}"
        )
    if files := [run for run in runs if not isinstance(run, Run) and pathlib.Path(run).suffix in SUFFIXES]:
        raise ValueError(f"a list takes runs alone; give the file {files[0]} by itself")
    runs = [run if isinstance(run, Run) else open_run(run) for run in runs]
    judges = [run.config.get("judge") for run in runs]
    if any(judge != judges[0] for judge in judges):
        names = ", ".join(str((judge or {}).get("name")) for judge in judges)
        raise ValueError(f"the runs were not judged alike ({names}): tune each judge on its own runs")
    frames = []
    for run in runs:
        frame, said = candidates_frame(run.iter_records()), read_labels(run)
        keys = zip(frame["id"], frame["candidate"], strict=True)
        person = [SAID.get(said[key]["label"]) if key in said else None for key in keys]
        frame["person"] = pandas.array(person, dtype="boolean")
        frames.append(frame.assign(run=run.path.name, self_consistency=self_consistency(frame)))
    found = pandas.concat(frames, ignore_index=True)
    found.attrs["judge"] = judges[0]
    return found


def _read(path: pathlib.Path, group: str) -> pandas.DataFrame:
    import pandas

    if not path.is_file():
        raise FileNotFoundError(f"no file {path} (looked in {path.resolve().parent})")
    try:
        if path.suffix.lower() == ".parquet":
            return pandas.read_parquet(path)
        if path.suffix.lower() == ".jsonl":
            return pandas.DataFrame(_json_lines(path))
        frame = pandas.read_csv(path, converters={group: "=".__add__})  # else the id "NA" would be missing
        if len(frame.columns) == 1 and (found := next((c for c in ";\t|" if c in frame.columns[0]), None)):
            raise ValueError(f"its columns are separated by {found!r}: separate them by commas")
        if group in frame:
            ids = frame[group].str[1:]
            frame[group] = ids.where(ids != "")
        return frame
    except pandas.errors.EmptyDataError:
        raise ValueError(f"{path} cannot be read: it is empty") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except (ValueError, OSError) as error:  # pandas' and pyarrow's own are among these
        raise ValueError(f"{path} cannot be read: {error}") from None


def _json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is no JSON object: {line[:80]!r}")
        rows.append(row)
    if not rows:
        raise ValueError("it is empty")
    return rows


def place(frame: pandas.DataFrame, row: int) -> str:
    """Where a row (a position from 0) stands, for an error: "rows.csv, line 9" where the frame is a file's as
    it was read, else "row 7"."""
    name, length = frame.attrs.get("file", ("", -1))
    path = pathlib.Path(name).expanduser()
    is_csv = path.suffix.lower() == ".csv"
    if (is_csv or path.suffix.lower() == ".jsonl") and len(frame) == length and path.is_file():
        with (
            contextlib.suppress(csv.Error, StopIteration),  # a field too long for the module
            open(path, encoding="utf-8-sig", newline="" if is_csv else "\n") as file,
        ):
            return f"{name}, line {next(itertools.islice(_starts(file, is_csv), row, None))}"
    return f"{name}, row {row}" if name and len(frame) == length else f"row {row}"


def _starts(file: Iterable[str], is_csv: bool) -> Iterator[int]:
    """The line on which each row begins: a trace in quotes may go over several lines of a .csv."""
    if not is_csv:
        yield from (number for number, line in enumerate(file, 1) if line.strip())
        return
    reader = csv.reader(file)
    next(reader)  # the names of the columns
    start = reader.line_num + 1
    for fields in reader:
        if fields:
            yield start
        start = reader.line_num + 1
