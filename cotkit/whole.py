"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
import uuid
from collections.abc import Iterator


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A temporary path to write to, which takes the place of `path` at the end: a reader, another thread or a
    crash sees the old file or the new one, never half of it. Where something fails the old one stays.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_entries(folder: str | os.PathLike[str]) -> None:
    """Forces to disk which files a folder has; systems that cannot do that do it themselves."""
    with contextlib.suppress(OSError):
        entries = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entries)
        finally:
            os.close(entries)
