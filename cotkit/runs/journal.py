"""Append-only JSON lines that survive a crash.

One `write` a line, no buffering: after `kill -9` the file holds every finished line and at
most one torn one, which the next open, or the next line of another process, cuts off. Lines end at b"\\n"
alone (U+2028 stays inside a row); NaN is written as null; lone surrogates are written as `\\udXXX` escapes.
Power loss: `sync()` forces the lines to disk; a run calls it every few seconds, and `close` does.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import pydantic
import pydantic_core

from cotkit.whole import whole_file

try:
    import fcntl
except ImportError:  # Windows: one process a file, as a run's own lock sees to
    fcntl = None

BLOCK = 1 << 16
_SURROGATE = re.compile("[\ud800-\udfff]")


def finite(value: Any) -> Any:
    """The value with NaN and infinities turned into None, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def dump_compact(value: Any) -> bytes:
    """A value of JSON types without a space, for what is read by programs: a fifth of `json`'s time."""
    try:
        return pydantic_core.to_json(value)
    except ValueError:  # it refuses lone surrogates
        return json.dumps(value, separators=(",", ":")).encode()


def dump_json(value: Any, indent: int | None = None) -> bytes:
    """A value of JSON types, or a pydantic record, as UTF-8."""
    if isinstance(value, pydantic.BaseModel):
        try:
            return value.model_dump_json(indent=indent).encode()  # NaN is null there too
        except ValueError:  # it refuses lone surrogates
            value = value.model_dump()
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent).encode
    try:
        text = encode(value)
    except ValueError:
        text = encode(finite(value))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text).encode()


@contextlib.contextmanager
def _named(path: pathlib.Path) -> Iterator[None]:
    """An error on writing to an open file does not say which."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: pathlib.Path, value: Any) -> None:
    """The whole file or the old one, never half of it."""
    with _named(path), whole_file(path) as temporary:
        temporary.write_bytes(dump_json(value, indent=2) + b"\n")


def write_lines(path: pathlib.Path, records: Iterable[dict[str, Any]]) -> None:
    """A whole file of JSON lines, or the old one."""
    with _named(path), whole_file(path) as temporary, open(temporary, "wb") as file:
        file.writelines(dump_json(record) + b"\n" for record in records)


class JournalError(ValueError):
    """A journal is damaged before its last line, which no crash of ours does."""


def read_lines(path: pathlib.Path) -> Iterator[tuple[dict[str, Any], int]]:
    """(record, end offset) of each whole line; a torn last line is left out.

    Raises JournalError, with the line's number, when a line before the last cannot be read.
    """
    if path.exists():
        with open(path, "rb") as file:
            yield from whole_lines(file)


def whole_lines(file: BinaryIO) -> Iterator[tuple[dict[str, Any], int]]:
    """`read_lines` of an open file."""
    end = 0
    for number, line in enumerate(file, 1):
        end += len(line)
        try:
            if not line.endswith(b"\n"):
                return  # torn
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not file.read(1):
                return  # the last line: torn in the middle of a page
            raise JournalError(
                f"{file.name}, line {number} is not JSON ({error}). Nothing was changed: repair or remove "
                "that line (its problem will be asked again), or use another run name."
            ) from None
        yield record, end


def _after_last_newline(file: BinaryIO, low: int, high: int) -> int:
    """Where the last whole line between two offsets ends; `low` = there is none."""
    while high > low:
        start = max(low, high - BLOCK)
        file.seek(start)
        if (at := file.read(high - start).rfind(b"\n")) >= 0:
            return start + at + 1
        high = start
    return low


@contextlib.contextmanager
def _alone(file: io.FileIO, owner: pathlib.Path | None) -> Iterator[None]:
    """No other process writes to the file meanwhile. OSError where one holds the lock file `owner`."""
    if fcntl is None:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        if owner is not None and owner.exists():
            with open(owner, "rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise OSError(error.errno, "a run is writing to it", file.name) from None
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


class Journal:
    """A journal opened for appending. `seen(record, start)` is called with each record it already holds and
    where its line starts; `torn` tells whether a torn last line was cut off.

    shared: False = who opens it holds a lock that keeps others out, so that no line needs one of its own
        (which takes as long as writing it).
    owner: that lock's file, for those who do not hold it: they get OSError while somebody does.
    """

    def __init__(
        self,
        path: pathlib.Path,
        seen: Callable[[dict[str, Any], int], None] = lambda record, start: None,
        *,
        shared: bool = True,
        owner: pathlib.Path | None = None,
    ):
        self.path, self._shared, self._owner, self._hurt = path, shared, owner, False
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open for the run's life
        try:
            with _alone(self._file, owner):  # what is no whole line now is nobody's who is just writing
                self._end = 0
                for record, end in read_lines(path):
                    seen(record, self._end)
                    self._end = end
                self.torn = self._size() > self._end
                if self.torn:
                    os.truncate(path, self._end)
        except BaseException:
            self._file.close()
            raise

    def append(self, record: dict[str, Any] | pydantic.BaseModel) -> None:
        self.append_line(dump_json(record) + b"\n")

    def append_line(self, line: bytes) -> int:
        """Writes a line that ends, the whole of it or nothing; gives where it starts."""
        if self._shared:
            with _alone(self._file, self._owner):
                self._end = self._whole_end()
                return self._write(line)
        if self._hurt:
            self._end = self._whole_end()
        return self._write(line)

    def _write(self, line: bytes) -> int:
        try:
            done = self._file.write(line)
            while done < len(line):
                done += self._file.write(line[done:])
        except OSError as error:
            self._hurt = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._end)  # disk full: no half line stays behind
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._hurt, self._end = False, self._file.tell()  # wherever it was thought to be
        return self._end - len(line)

    def _whole_end(self) -> int:
        """The end of the file; what another process left torn is cut off."""
        size = self._size()
        if size == self._end:
            return size
        with open(self.path, "rb") as file:
            end = _after_last_newline(file, self._end if size > self._end else 0, size)
        if end < size:
            os.ftruncate(self._file.fileno(), end)
        return end

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def sync(self) -> None:
        with _named(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self.sync()
        finally:
            self._file.close()
