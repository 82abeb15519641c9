"""Writing that is whole or not at all, and a disk that is full, in the words of any writer."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

from cotkit.whole import sync_entries, whole_file

_NO_ROOM = ("No space left", "StorageFull", "PytorchStreamWriter", "unexpected pos")  # the last two: torch


@contextlib.contextmanager
def whole(place: pathlib.Path, folder: bool = False) -> Iterator[pathlib.Path]:
    """Where to write a file, or a `folder`, which takes the place of `place` at the end, forced to disk.

    What a killed call left half-written there is removed first, so that the same call can be made again. A
    full disk is an OSError, whatever the writer raises.
    """
    try:
        with _whole_folder(place) if folder else whole_file(place, alone=True) as part:
            yield part
    except Exception as error:
        if is_disk_full(error) and not isinstance(error, OSError):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place)) from error
        raise


@contextlib.contextmanager
def _whole_folder(place: pathlib.Path) -> Iterator[pathlib.Path]:
    part = place.with_name(f"{place.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    remove(part)
    try:
        yield part
        for path in [*part.rglob("*"), part]:
            _force(path)
        remove(place)  # no folder is renamed onto one that holds something
        os.replace(part, place)
        sync_entries(place.parent)
    except Exception:
        remove(part)
        raise


def _force(path: pathlib.Path) -> None:
    if path.is_dir():
        sync_entries(path)
        return
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def remove(place: pathlib.Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether `error`, or what caused it, is a write that found no room."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(words in str(error) for words in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False
