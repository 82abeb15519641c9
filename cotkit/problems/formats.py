"""From bytes to rows: JSON, JSON lines, CSV, Parquet. No row is judged here, only read.

Every row keeps the place it came from, as the person who must mend it will look for it: the line of a text
file (from 1), the row of a JSON list or a table (from 0). Text is UTF-8, with or without a BOM; JSON lines
are cut at b"\\n" alone, so U+2028 stays inside its row, and lone surrogates survive.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from cotkit.csv_cells import csv_rows
from cotkit.problems.records import ProblemError

_BOM = b"\xef\xbb\xbf"


@dataclass
class Table:
    """Rows with their places, and the faults met while reading. `name` is what the user calls the source."""

    name: str
    rows: list[tuple[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def scan(self, see: Callable[[str, Any], None]) -> None:
        """Shows every row, before anything else is asked."""
        for place, row in self.rows:
            see(place, row)

    def at(self, numbers: Sequence[int]) -> Iterator[tuple[int, str, Any]]:
        """(number, place, row) of the rows with these numbers, from 0."""
        return ((number, *self.rows[number]) for number in numbers)

    def __len__(self) -> int:
        return len(self.rows)


def read_file(path: pathlib.Path) -> Table:
    """The rows of a file, by its extension."""
    return READERS[path.suffix.lower()](str(path), path)


def decode(name: str, data: bytes, offset: int = 0, line: int = 1) -> str:
    """The text of a file, or of a part of it that starts at `offset`, in `line`."""
    if offset == 0 and data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ProblemError(f"{name} is UTF-16 text, not UTF-8. Fix: save it as UTF-8.")
    start = len(_BOM) if offset == 0 and data.startswith(_BOM) else 0
    try:
        return data[start:].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        at = start + error.start
        line += data.count(b"\n", 0, at)
        raise ProblemError(
            f"{name} is not UTF-8: byte 0x{data[at]:02x} at offset {offset + at} (line {line}). "
            f"Fix: save it as UTF-8, for instance `iconv -f WINDOWS-1252 -t UTF-8 {name} > fixed`."
        ) from None


def read_jsonl(name: str, path: pathlib.Path) -> Table:
    table = Table(name)
    with open(path, "rb") as file:
        lines = json_lines(name, file, table.faults)
        table.rows = [(f"line {number}", row) for number, _, row in lines]
    return table


def json_lines(name: str, file: BinaryIO, faults: list[str]) -> Iterator[tuple[int, int, Any]]:
    """(number, offset, value) of each line that holds one; what is wrong with others goes to `faults`."""
    end, is_list = 0, None
    for number, line in enumerate(file, 1):
        start, end = end, end + len(line)
        text = decode(name, line, start, number).removesuffix("\n")
        if not text.strip():
            continue
        if is_list is None:
            is_list = text.lstrip()[0] == "["
        if is_list:
            continue  # to its end, for what is not UTF-8 is said first
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number}: no JSON object ({error}). Fix: mend or remove the line.")
            continue
        yield number, start, value
    if is_list:
        raise ProblemError(f"{name} holds one JSON list, not a JSON object a line. Fix: name it .json.")


def read_json(name: str, path: pathlib.Path) -> Table:
    text = decode(name, path.read_bytes())
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = "Extra data" in str(error) and text.lstrip()[:1] == "{"
        fix = "it looks like one JSON object a line: name it .jsonl" if lines else "mend the file"
        raise ProblemError(f"{name} is no JSON ({error}). Fix: {fix}.") from None
    return rows_of_json(name, value)


def rows_of_json(name: str, value: Any) -> Table:
    """A list of rows; an object that holds one, as "problems" or "traces" or as all it holds; or an object of
    equal columns."""
    if isinstance(value, dict):
        for key in ("problems", "traces"):
            if isinstance(value.get(key), list):
                return rows_of_list(name, value[key])
        columns = list(value.values())
        if columns and all(map(_holds_rows, columns)):
            if len(columns) == 1:
                return rows_of_list(name, list(columns[0]))
            raise ProblemError(
                f"{name} holds rows under {', '.join(map(repr, value))}. "
                f"Fix: give those of one, such as problems[{next(iter(value))!r}]."
            )
        if columns and all(isinstance(c, list) and len(c) == len(columns[0]) for c in columns):
            return rows_of_list(
                name, [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
            )
        raise ProblemError(
            f"{name} is one JSON object with the fields {', '.join(map(repr, value)) or '(none)'}. "
            'Fix: give a list of rows, or an object that holds one as "problems".'
        )
    if not isinstance(value, list):
        raise ProblemError(f"{name} holds one {type(value).__name__}. Fix: give a list of rows.")
    return rows_of_list(name, value)


def _holds_rows(value: Any) -> bool:
    """Whether this is no column of values but rows, as under "data" or as the split of a data set."""
    no_rows = isinstance(value, str | bytes | Mapping | Iterator) or not isinstance(value, Iterable)
    return not no_rows and isinstance(next(iter(value), None), Mapping)


def rows_of_list(name: str, rows: list[Any]) -> Table:
    return Table(name, [(f"row {index} (from 0)", row) for index, row in enumerate(rows)])


def read_csv(name: str, path: pathlib.Path) -> Table:
    """Every cell below the header stays text byte for byte ("007", "1e5"); quoting faults are errors, not
    guesses."""
    text = decode(name, path.read_bytes())
    table, header = Table(name), None
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        start = 1
        for cells in csv_rows(reader):
            line, start = start, reader.line_num + 1
            if not cells:
                continue
            if header is None:
                header = _csv_header(name, cells)
            elif len(cells) != len(header):
                table.faults.append(
                    f"line {line}: {len(cells)} cells, the header has {len(header)}. "
                    'Fix: put a text that holds a comma in "quotes".'
                )
            else:
                table.rows.append((f"line {line}", dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        table.faults.append(
            f"the row that starts in line {start}: {error}. "
            'Fix: close the quotes, and write a quote inside a text twice ("").'
        )
    return table


def _csv_header(name: str, cells: list[str]) -> list[str]:
    if len(cells) == 1 and ";" in cells[0]:
        raise ProblemError(f"{name}: its columns are parted by semicolons. Fix: save it with commas.")
    names = [cell.strip() for cell in cells]  # "id, problem": nobody means the blank
    _refuse_twins(name, names)
    return names


def _refuse_twins(name: str, names: Sequence[str]) -> None:
    if twice := [one for one in names if names.count(one) > 1]:
        raise ProblemError(f"{name} has two columns named {twice[0]!r}. Fix: rename one.")


def read_parquet(name: str, path: pathlib.Path) -> Table:
    import pyarrow
    import pyarrow.parquet

    try:
        _refuse_twins(name, pyarrow.parquet.read_schema(path).names)
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ProblemError(f"{name} is no readable Parquet file ({error}). Fix: write it again.") from None
    return rows_of_list(name, rows)


READERS: dict[str, Callable[[str, pathlib.Path], Table]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
