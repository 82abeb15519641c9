"""Rows into a file, one by one: JSON Lines, a JSON array, CAMEL's object, Parquet, CSV."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable
from typing import Any, BinaryIO

from cotkit.runs.journal import dump_json
from cotkit.runs.shapes import COLUMNS, arrow_schema

Record = dict[str, Any]

ROW_GROUP = 2_000  # rows of a Parquet file that are in memory at a time

# Line separators that `str.splitlines` would cut a row at; in JSON they can only stand inside a text.
_SEPARATORS = {s.encode(): f"\\u{ord(s):04x}".encode() for s in "\x85\u2028\u2029"}


def write_records(file: BinaryIO, records: Iterable[Record], format: str, *, array: bool) -> None:
    """array: as one JSON array in place of JSON Lines."""
    if format == "parquet":
        _write_parquet(file, records)
    elif format == "csv":
        _write_csv(file, records)
    elif format == "camel":
        file.write(b'{\n  "traces": ')
        _write_array(file, records, b"  ")
        file.write(b"\n}")
    elif array:
        _write_array(file, records, b"")
        file.write(b"\n")
    else:
        for record in records:
            line = dump_json(record) + b"\n"
            for separator, escape in _SEPARATORS.items():
                line = line.replace(separator, escape)
            file.write(line)


def _write_array(file: BinaryIO, records: Iterable[Record], indent: bytes) -> None:
    """As `json.dumps(records, indent=2)` has it, in an object that is indented by `indent`."""
    inner, written = b"\n  " + indent, False
    for record in records:
        file.write((b"," if written else b"[") + inner + dump_json(record, indent=2).replace(b"\n", inner))
        written = True
    file.write(b"\n" + indent + b"]" if written else b"[]")


def _write_parquet(file: BinaryIO, records: Iterable[Record]) -> None:
    import pyarrow
    import pyarrow.parquet

    schema, rows, empty = arrow_schema(), iter(records), True
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while (group := list(itertools.islice(rows, ROW_GROUP))) or empty:
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            empty = False


def _write_csv(file: BinaryIO, records: Iterable[Record]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write(_csv_line(COLUMNS))
    for record in records:
        cells = map(record.get, COLUMNS)
        text.write(_csv_line(str(cell).lower() if isinstance(cell, bool) else cell for cell in cells))
    text.detach()


def _csv_line(cells: Iterable[Any]) -> str:
    """Python before 3.11.9 quotes a "\\r" only where lines end in one (python/cpython issue 67044)."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"
