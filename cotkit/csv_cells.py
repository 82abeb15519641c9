"""CSV cells of any length: the csv module stops at 128 kB, which a long trace passes."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from typing import Any

LONGEST = 2**31 - 1  # characters; more is an error where a C long has 32 bits
_ALONE = threading.Lock()  # csv.field_size_limit belongs to the whole process


def csv_rows(reader: Any) -> Iterator[list[str]]:
    """The rows of a `csv.reader`. Between two rows the limit is what it was."""
    while True:
        with _ALONE:
            before = csv.field_size_limit(LONGEST)
            try:
                cells = next(reader, None)
            finally:
                csv.field_size_limit(before)
        if cells is None:
            return
        yield cells
