"""Does a file hold what its trainer expects? One validator per export format, for our files and for anyone's.

Trainers check almost nothing: TRL reads the columns of the first row and trains on empty, equal or
mislabelled rows without a word; LLaMA-Factory skips bad rows with a warning. So every export passes through
`validate_file` before it gets its name, and a user can hold any file against it. Each row is held against
its format's `Shape`; what needs more than one row (duplicates, a column whose type changes) is in `_Across`.
A finding names the row, the field and the fix. Files are read row by row, whatever their size.
"""

from __future__ import annotations

import csv
import hashlib
import json
import pathlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TextIO

from cotkit.csv_cells import csv_rows
from cotkit.runs.digests import DigestMap
from cotkit.runs.shapes import COLUMNS, SHAPES, Found, Shape, arrow_schema, kind, think_text
from cotkit.runs.writing import ROW_GROUP

CHUNK = 1 << 16  # characters of a JSON array that are read at a time


@dataclass(frozen=True)
class FileProblem:
    """One finding. `row` counts from 1: the line of a JSON Lines file, else the position; None = the file."""

    row: int | None
    field: str
    what: str
    fix: str

    def __str__(self) -> str:
        where = "the file" if self.row is None else f"row {self.row}"
        return f"{where}, field {self.field!r}: {self.what}. Fix: {self.fix}"


_USUAL_MISNAMES = {
    "prompt": ("question", "instruction", "input", "query", "problem"),
    "completion": ("response", "answer", "output"),
    "messages": ("conversations", "conversation"),
    "conversations": ("messages", "conversation"),
    "chosen": ("chosen_response", "preferred_output"),
    "rejected": ("rejected_response", "non_preferred_output"),
    "output": ("response", "answer", "completion"),
    "instruction": ("prompt", "question", "problem"),
}


def validate_file(
    path: str | pathlib.Path, format: str, *, require_boxed: bool = False, limit: int | None = 100
) -> list[FileProblem]:
    """What is wrong with a file as data of `format`; [] = nothing. At most `limit` findings (None = all).

    `require_boxed` also asks for `\\boxed{` in every answer that is trained on. Raises ValueError for an
    unknown format and OSError where the file cannot be read.
    """
    if format not in SHAPES:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(sorted(SHAPES))}")
    shape, across, found = SHAPES[format], _Across(SHAPES[format]), []
    for number, row in _read(pathlib.Path(path), shape):
        if isinstance(row, FileProblem):
            found.append(row)
        elif not isinstance(row, dict):
            found.append(FileProblem(number, "", f"is {kind(row)}, not an object", "write one object a row"))
        else:
            here = list(_check_row(row, shape, require_boxed))
            here += across.check(number, row)
            found += [FileProblem(number, *finding) for finding in here]
        if limit is not None and len(found) >= limit:
            return found[:limit]
    return found


def _check_row(row: dict, shape: Shape, require_boxed: bool) -> Found:
    sound = True
    for name, check in shape.fields.items():
        if name not in row:
            sound = False
            other = next(
                (m for m in _USUAL_MISNAMES.get(name, ()) if m in row and m not in shape.fields), None
            )
            yield name, "is missing", f"rename {other!r} to {name!r}" if other else f"add {name!r} to the row"
            continue
        for finding in check(row[name], name):
            sound = False
            yield finding
    for name in row:
        if name in shape.optional:
            yield from shape.optional[name](row[name], name)
        elif name not in shape.fields:
            yield (
                name,
                "is no column of this format",
                "remove it: only known columns may leave, so that no key or private field slips out",
            )
    if not sound:
        return
    answer = _words(row[shape.answer])
    if shape.rejected:
        other = _words(row[shape.rejected])
        if any(_squeezed(cut(answer)) == _squeezed(cut(other)) for cut in (str, _after_thinking)):
            yield shape.rejected, f"is the same text as {shape.answer!r}", "drop the pair: it holds no signal"
    good = row.get("label", True) is True
    if require_boxed and good and not re.search(r"\\boxed\s*\{", _after_thinking(answer)):
        yield shape.answer, "has no \\boxed{} in its answer", "drop the row: it was cut off or ends elsewhere"


def _words(value: Any) -> str:
    """The text of an answer, whatever its form."""
    if isinstance(value, list):
        value = value[-1]
    if isinstance(value, dict):
        text = value.get("content", value.get("value", ""))
        return think_text(reasoning, text) if (reasoning := value.get("reasoning_content")) else text
    return value


def _after_thinking(text: str) -> str:
    return text.rpartition("</think>")[2]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


class _Across:
    """What only shows over several rows: duplicates, columns that come and go, types that change."""

    def __init__(self, shape: Shape):
        self.shape, self.types, self.names = shape, {}, None
        self.seen = DigestMap()  # what may not repeat -> the first row with it

    def check(self, number: int, row: dict) -> Found:
        content = [row.get(name) for name in self.shape.key]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
        first = self.seen.get(digest)
        if first is None:
            self.seen[digest] = number
        else:
            yield ", ".join(self.shape.key), f"repeats row {first}", "keep one of the two"
        if self.names is None:
            self.names = (number, set(row))
        elif changed := sorted(self.names[1] ^ set(row)):
            yield (
                changed[0],
                f"is a column of {'this row' if changed[0] in row else f'row {self.names[0]}'} only",
                "give every row the same columns, null where there is no value",
            )
        for path, value in _leaves(row, ""):
            before = self.types.setdefault(path, (number, kind(value)))
            if before[1] != kind(value):
                yield (
                    path,
                    f"is {kind(value)} here and {before[1]} in row {before[0]}",
                    "write one type in every row, null where there is no value",
                )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    elif value is not None:
        yield path, value


def _read(path: pathlib.Path, shape: Shape) -> Iterator[tuple[int | None, Any]]:
    """(row number, row), or a FileProblem in the row's place."""
    if shape.container == "parquet":
        yield from _read_parquet(path)
    elif shape.container == "csv":
        yield from _read_csv(path)
    else:
        with open(path, "rb") as file:
            lines = shape.container != "camel" and _begins(file) != b"["
        yield from _read_lines(path) if lines else _read_array(path, camel=shape.container == "camel")


def _begins(file: BinaryIO) -> bytes:
    """The first byte that is no white space."""
    while (byte := file.read(1)).isspace():
        pass
    return byte


def _read_lines(path: pathlib.Path) -> Iterator[tuple[int | None, Any]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):  # at b"\n" alone: U+2028 may stand inside a text
            if line.strip():
                yield number, _parse(line.removesuffix(b"\n"), number)


def _read_array(path: pathlib.Path, camel: bool) -> Iterator[tuple[int | None, Any]]:
    """The items of a JSON array, or of CAMEL's {"traces": [...]}. The file is gone over once before, so that
    one that is no JSON is one finding; only then it is read as a whole, for the words."""
    try:
        deque(_items(path, camel), maxlen=0)
    except (ValueError, RecursionError):
        whole = _parse(path.read_bytes(), None)
        if camel and not isinstance(whole, FileProblem):
            known = isinstance(whole, dict) and list(whole) == ["traces"]
            whole = (
                whole["traces"]
                if known and isinstance(whole["traces"], list)
                else FileProblem(None, "traces", "is not the only key, or no list", 'write {"traces": [...]}')
            )
        yield from [(None, whole)] if isinstance(whole, FileProblem) else enumerate(whole, 1)
    else:
        yield from enumerate(_items(path, camel), 1)


def _items(path: pathlib.Path, camel: bool) -> Iterator[Any]:
    """Raises ValueError where the file is anything else."""
    with open(path, encoding="utf-8", newline="") as file:
        text = _Text(file)
        for token in ("{", '"traces"', ":", "[") if camel else ("[",):
            text.take(token)
        if not text.take("]", or_else=True):
            yield text.value()
            while not text.take("]", or_else=True):
                text.take(",")
                yield text.value()
        if camel:
            text.take("}")
        text.end()


class _Text:
    """JSON text that is read and dropped piece by piece."""

    def __init__(self, file: TextIO):
        self._file, self._text, self._at = file, "", 0
        self._decode = json.JSONDecoder(parse_constant=_no_number).raw_decode

    def take(self, token: str, or_else: bool = False) -> bool:
        """Goes past the token. Where something else stands: ValueError, or False."""
        self._skip_space()
        while len(self._text) - self._at < len(token) and self._more():
            pass
        if found := self._text.startswith(token, self._at):
            self._at += len(token)
        elif not or_else:
            raise ValueError(token)
        return found

    def value(self) -> Any:
        self._skip_space()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text):  # a number could go on
                    self._at = end
                    return value
            except ValueError:
                if not self._more():
                    raise
            else:
                if not self._more():
                    raise ValueError("the end of the file")

    def end(self) -> None:
        self._skip_space()
        if self._at < len(self._text):
            raise ValueError(self._text[self._at])

    def _skip_space(self) -> None:
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in " \t\n\r":
                self._at += 1
            if self._at < rest or not self._more():
                return

    def _more(self) -> bool:
        """Reads on: as much as there is, so that a long value is not looked at too often."""
        self._text, self._at = self._text[self._at :], 0
        new = self._file.read(max(CHUNK, len(self._text)))
        self._text += new
        return bool(new)


def _no_number(token: str) -> NoReturn:
    raise ValueError(f"{token} is no JSON: write null")


def _parse(data: bytes, number: int | None) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        return FileProblem(number, "", f"is not UTF-8 (byte {error.start})", "save the file as UTF-8")
    except (ValueError, RecursionError) as error:
        return FileProblem(number, "", f"is no JSON: {error}", "write one whole JSON object a line")


def _read_parquet(path: pathlib.Path) -> Iterator[tuple[int | None, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        yield None, FileProblem(None, "", f"is no Parquet file: {error}", "write it with pyarrow or pandas")
        return
    with table:
        wanted, has = arrow_schema(), table.schema_arrow
        wrong = [f for f in wanted if f.name in has.names and has.field(f.name).type != f.type]
        for column in wrong:
            what = f"is {has.field(column.name).type}, not {column.type}"
            yield None, FileProblem(None, column.name, what, f"cast to {column.type}")
        if missing := [f.name for f in wanted if f.name not in has.names]:
            yield None, FileProblem(None, missing[0], "is missing", f"add the columns {missing}")
        if not wrong and not missing:
            groups = table.iter_batches(ROW_GROUP)
            yield from enumerate((row for group in groups for row in group.to_pylist()), 1)


_FROM_CSV: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bool": lambda cell: {"true": True, "false": False}[cell.lower()],
    "int": int,
    "float": float,
}


def _read_csv(path: pathlib.Path) -> Iterator[tuple[int | None, Any]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = csv_rows(csv.reader(file))
            header = next(lines, [])
            if header != list(COLUMNS):
                changed = sorted(set(header) ^ set(COLUMNS)) or header
                fix = f"the header is {','.join(COLUMNS)}"
                yield None, FileProblem(None, changed[0], "is missing, unknown or out of place", fix)
                return
            for number, cells in enumerate(lines, 1):
                yield number, _csv_row(number, cells)
    except UnicodeDecodeError as error:
        yield None, FileProblem(None, "", f"is not UTF-8 (byte {error.start})", "save the file as UTF-8")


def _csv_row(number: int, cells: list[str]) -> Any:
    if len(cells) != len(COLUMNS):
        what = f"has {len(cells)} cells, not {len(COLUMNS)}"
        return FileProblem(number, "", what, "quote cells that hold commas, quotes or line breaks")
    row: dict[str, Any] = {}
    for (name, (type_name, _)), cell in zip(COLUMNS.items(), cells, strict=True):
        try:
            row[name] = None if cell == "" else _FROM_CSV[type_name](cell)
        except (ValueError, KeyError):
            return FileProblem(
                number, name, f"is {cell!r}, no {type_name}", f"write {type_name}, or leave empty"
            )
        if isinstance(row[name], float) and row[name] - row[name] != 0:
            return FileProblem(number, name, f"is {cell!r}, no number", "leave the cell empty")
    return row
