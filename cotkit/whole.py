"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import time
import uuid
from collections.abc import Iterator

ABANDONED_S = 3600.0  # nobody who lives leaves a temporary file untouched for so long


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, alone: bool = False) -> Iterator[pathlib.Path]:
    """A temporary path to write to, which takes the place of `path` at the end: a reader, another thread or a
    crash sees the old file or the new one, never half of it. Where something fails the old one stays.

    What a killed process left half-written is removed by the next one that writes there: at once where the
    caller knows that it is `alone`, else when nothing was written to it for an hour.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(path, alone)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_left(path: pathlib.Path, alone: bool) -> None:
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????.tmp"):
        with contextlib.suppress(OSError):  # another one removes it, or nobody may
            if alone or time.time() - left.stat().st_mtime > ABANDONED_S:
                left.unlink()


def sync_entries(folder: str | os.PathLike[str]) -> None:
    """Forces to disk which files a folder has; systems that cannot do that do it themselves."""
    with contextlib.suppress(OSError):
        entries = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entries)
        finally:
            os.close(entries)
