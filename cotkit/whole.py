"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import uuid
from collections.abc import Iterator
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: what a killed process left stays, but for a writer that is alone
    fcntl = None


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, alone: bool = False) -> Iterator[pathlib.Path]:
    """A temporary path to write to, which takes the place of `path` at the end: a reader, another thread, a
    crash or a power cut sees the old file or the new one, never half of it. Where something fails the old one
    stays.

    What a killed process left half-written is removed by the next one that writes there: who lives has a lock
    on it. `alone`: nobody else writes there, and no lock is looked for.
    """
    path = pathlib.Path(path)
    make_folder(path.parent)
    _remove_left(path, alone)
    temporary, lock = _locked(path)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if fcntl is None:
            lock.close()  # what is open is not renamed there
        os.replace(temporary, path)
        sync_entries(path.parent)
    finally:
        lock.close()
        temporary.unlink(missing_ok=True)


def _locked(path: pathlib.Path) -> tuple[pathlib.Path, BinaryIO]:
    """A new temporary file, and what holds its lock while it is open."""
    while True:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        lock = open(temporary, "xb")  # noqa: SIM115 - open while the file is written
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        if temporary.exists():  # else it was taken for a dead one's before it had its lock
            return temporary, lock
        lock.close()


def _remove_left(path: pathlib.Path, alone: bool) -> None:
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????.tmp"):
        with contextlib.suppress(OSError):  # somebody writes to it, another one removes it, or nobody may
            if alone:
                left.unlink()
            elif fcntl is not None:
                with open(left, "rb+") as file:  # NFS locks for nobody who only reads
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()


def make_folder(path: pathlib.Path) -> None:
    """`mkdir -p`, forced to disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_entries(made.parent)


def sync_entries(folder: str | os.PathLike[str]) -> None:
    """Forces to disk which files a folder has; systems that cannot do that do it themselves."""
    with contextlib.suppress(OSError):
        entries = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entries)
        finally:
            os.close(entries)
