"""The frame that thresholds are tuned on: the candidates of runs, or a file of rows scored elsewhere.

A file (.csv, .jsonl or .parquet) has one line a trace with a verdict (`correct`), a problem (`id`) and score
columns; `iteration`, `model`, `trace_characters` (or `trace`, from which it is counted) are used where they
are there. What is in the columns is checked by `tune_thresholds`, which names the line of a row by `place`.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cotkit.analysis.candidates import candidates_frame
from cotkit.analysis.selfscores import self_consistency
from cotkit.csv_cells import csv_rows
from cotkit.paths import run_folder
from cotkit.records import Row
from cotkit.rules import identity
from cotkit.runs import Run, is_about, open_run, read_labels
from cotkit.shown import mended

if TYPE_CHECKING:
    import pandas

SUFFIXES = (".csv", ".jsonl", ".parquet")
LINE = "file_line"  # the column of a .csv or .jsonl that tells where a row stood
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

    one = isinstance(source, (str, os.PathLike, Run, Mapping)) or not isinstance(source, Iterable)
    runs = [source] if one else list(source)
    if len(runs) == 1 and _is_file(runs[0]):
        source = runs[0]
        frame = _read(pathlib.Path(source).expanduser(), group)
        frame.attrs["file"] = str(source)
        if "trace" in frame and "trace_characters" not in frame:
            frame["trace_characters"] = frame["trace"].astype("string").str.len()
        return frame
    if not runs:
        raise ValueError("no run is given")
    if strange := [run for run in runs if not isinstance(run, (Run, str, os.PathLike))]:
        raise TypeError(
            f"what is read must be a Run, Runs, a DataFrame or a file of rows, got {strange[0]!r:.80}"
        )
    if file := next(filter(_is_file, runs), None):
        raise ValueError(f"a list takes runs alone; give the file {file} by itself")
    if odd := [run for run in runs if not isinstance(run, Run) and not run_folder(run).is_dir()]:
        kinds = "a run folder, or one file that ends in .csv, .jsonl or .parquet"
        raise FileNotFoundError(f"{odd[0]} is none of what can be read: {kinds}")
    runs = [run if isinstance(run, Run) else open_run(run) for run in runs]
    paths = [run.path.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        raise ValueError(f"{max(paths, key=paths.count)} is given twice: its rows would count twice")
    parts = [(run, part) for run in runs for part in run.parts.values()]  # of self-improvement one a cycle
    names = [str(part.path.relative_to(run.path.parent)) for run, part in parts]
    if not parts:
        raise ValueError(f"{runs[0].path} has no rows yet")
    runs = [part for _, part in parts]
    judges = [run.config.get("judge") for run in runs]
    for judge in judges[1:]:
        before, now = identity(judges[0]) or {}, identity(judge) or {}
        if differ := sorted(k for k in {*before, *now} if before.get(k) != now.get(k)):
            raise ValueError(
                f"the runs were not judged alike ({before.get('name')}, {now.get('name')}): they differ in "
                f"{', '.join(differ)}; tune each judge on its own runs"
            )
    frames, pairs, labels = [], [], Counter()
    for name, run in zip(names, runs, strict=True):
        frames.append(_candidates(run, name, pairs, labels))
    found = pandas.concat(frames, ignore_index=True)
    sizes = [size for _, _, size in pairs]
    keys = problem_keys((id, text) for id, text, _ in pairs)
    found["id"] = [key for key, size in zip(keys, sizes, strict=True) for _ in range(size)]
    found.attrs |= {"judge": judges[0], "labels": dict(labels)}
    return found


def check_run_columns(names: Iterable[str], dimension_names: Iterable[str]) -> None:
    """Raises ValueError for a column that the `scored_frame` of a run will not have whose judge scores these
    dimensions: before the run is paid for."""
    columns = {*candidates_frame([]).columns, "person", "self_consistency"}
    columns |= {f"score_{name}" for name in dimension_names}
    if missing := [name for name in names if name not in columns]:
        raise ValueError(f"no column {missing[0]!r}; the run will have {', '.join(sorted(columns))}")


def _candidates(
    run: Run, name: str, pairs: list[tuple[str, str, int]], labels: Counter[str]
) -> pandas.DataFrame:
    """A line a candidate, with what a person said of this very trace; adds each problem to `pairs` (id, text,
    number of candidates) and counts the labels that are not used in `labels`."""
    import pandas

    left, person = read_labels(run), []

    def rows() -> Iterator[Row]:
        for row in run.iter_records():
            pairs.append((row.id, row.problem, len(row.candidates)))
            for number, candidate in enumerate(row.candidates):
                label = left.pop((row.id, number), None)
                fits = label is not None and is_about(label, candidate.trace)
                labels["labels are about other traces, not used"] += label is not None and not fits
                labels["labels on which persons differ, the last word is taken"] += fits and label["disputed"]
                person.append(SAID.get(label["label"]) if fits else None)
            yield row

    frame = candidates_frame(rows())
    labels["labels of traces that are not there, not used"] += len(left)
    frame["person"] = pandas.array(person, dtype="boolean")
    return frame.assign(run=name, self_consistency=self_consistency(frame))


def problem_keys(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """One key a problem for (id, text) pairs: the ids, or, where one id has two texts or one text two ids (of
    several runs, by position), the texts with their blanks made one. Mended, for they stand in tables."""
    pairs = [(mended(id), mended(" ".join(text.split()))) for id, text in pairs]
    known = {(id, text) for id, text in pairs if text}
    if len(known) == len({id for id, _ in known}) == len({text for _, text in known}):
        return [id for id, _ in pairs]
    return [text or id for id, text in pairs]


def _is_file(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike)) and pathlib.Path(given).suffix.lower() in SUFFIXES


def _read(path: pathlib.Path, group: str) -> pandas.DataFrame:
    import pandas

    if not path.is_file():
        raise FileNotFoundError(f"no file {path} (looked in {path.resolve().parent})")
    try:
        if path.suffix.lower() == ".parquet":
            return pandas.read_parquet(path)
        if path.suffix.lower() == ".jsonl":
            return pandas.DataFrame(_json_lines(path, group))
        lines = _csv_lines(path)
        frame = pandas.read_csv(path, converters={group: "=".__add__})  # else the id "NA" would be missing
        frame[LINE] = lines if len(lines) == len(frame) else None
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


def _csv_lines(path: pathlib.Path) -> list[int]:
    """The line on which each row begins (a trace in quotes may go over several), each with as many fields as
    the header: pandas would take one more for an index and shift every column."""
    lines: list[int] = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = csv_rows(reader)
            names = next(filter(None, rows), [""])
            if len(names) == 1 and (found := next((c for c in ";\t|" if c in names[0]), None)):
                raise ValueError(f"its columns are separated by {found!r}: separate them by commas")
            if twice := [name for name, n in Counter(names).items() if name and n > 1]:
                raise ValueError(f"its header names {twice[0]!r} twice: rename one")
            start = reader.line_num + 1
            for fields in rows:
                blank = len(fields) < 2 and not "".join(fields).strip()
                if len(fields) != len(names) and not blank:
                    hint = "a comma within a value needs quotes around it, one at the end of a line must go"
                    raise ValueError(
                        f"line {start} has {len(fields)} fields, the header {len(names)}: {hint}"
                    )
                lines += [] if blank else [start]
                start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None
    return lines


def _json_lines(path: pathlib.Path, group: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is no JSON object: {line[:80]!r}")
        id = row.get(group)
        if isinstance(id, float):
            id = None if id != id else int(id) if id.is_integer() else id
        if group in row:  # as numbers of one column long ids would lose digits
            row[group] = str(id) if isinstance(id, (int, float)) else id
        rows.append({name: mended(value) for name, value in row.items()} | {LINE: number})
    if not rows:
        raise ValueError("it is empty")
    return rows


def place(frame: pandas.DataFrame, row: int) -> str:
    """Where a row (a position from 0) stands, for an error: "rows.csv, line 9" of a file, else "row 7"."""
    name, line = frame.attrs.get("file"), frame[LINE].iloc[row] if LINE in frame else None
    where = f"row {row}" if line is None or line != line else f"line {line:.0f}"
    return f"{name}, {where}" if name else f"row {row}"
