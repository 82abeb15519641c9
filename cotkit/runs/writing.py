"""Rows into a file, one by one: JSON Lines, a JSON array, CAMEL's object, Parquet, CSV."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable
from typing import Any, BinaryIO

from cotkit.runs.journal import dump_json
from cotkit.runs.shapes import COLUMNS, arrow_schema
from cotkit.shown import mended

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


def table_cells(record: Record) -> Record:
    """Parquet and CSV have no escapes for a lone surrogate."""
    return {name: mended(value) if isinstance(value, str) else value for name, value in record.items()}


def _write_parquet(file: BinaryIO, records: Iterable[Record]) -> None:
    import pyarrow
    import pyarrow.parquet

    schema, cells, empty = arrow_schema(), map(table_cells, records), True
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while (group := list(itertools.islice(cells, ROW_GROUP))) or empty:
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            empty = False


def _write_csv(file: BinaryIO, records: Iterable[Record]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        cells = table_cells(record)
        writer.writerow(str(c).lower() if isinstance(c, bool) else c for c in map(cells.get, COLUMNS))
    text.detach()
