"""Writing that is whole or not at all, and a disk that is full, in the words of any writer."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

_NO_ROOM = ("No space left", "StorageFull", "PytorchStreamWriter", "unexpected pos")  # the last two: torch


@contextlib.contextmanager
def whole(place: pathlib.Path) -> Iterator[pathlib.Path]:
    """Where to write a file or a folder, which takes the place of `place` at the end.

    What a killed call left half-written there is removed first, so that the same call can be made again. A
    full disk is an OSError, whatever the writer raises.
    """
    part = place.with_name(f"{place.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    remove(part)
    try:
        yield part
        if part.is_dir():
            remove(place)  # no folder is renamed onto one that holds something
        os.replace(part, place)
    except Exception as error:
        remove(part)
        if is_disk_full(error) and not isinstance(error, OSError):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place)) from error
        raise


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
