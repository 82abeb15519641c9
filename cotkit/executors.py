"""Work on anything with concurrent.futures' `submit`: a process pool, or Dask's `Client.get_executor()`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

SHARE = 64  # up to a quarter as many workers end within 2 % of what one item at a time would take


def check_executor(executor: Any, shards: int = 1) -> None:
    """TypeError or ValueError for what could not work."""
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor must have concurrent.futures' submit, got {type(executor).__name__}; for Dask that is "
            "Client(...).get_executor()"
        )
    if not isinstance(shards, int) or isinstance(shards, bool) or shards < 1:
        raise ValueError(f"shards must be a whole number of at least 1, got {shards!r}")


def submit(executor: Any, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The future of `work(*arguments, **options)`, done anew.

    Dask takes calls with equal arguments for one: while anything holds the future of one that failed, as a
    notebook holds its last error, it would give that error again at once. So no two calls are equal.
    """
    return executor.submit(_work, uuid.uuid4().hex, work, *arguments, **options)


def in_chunks(executor: Any, work: Callable[..., list], items: list, size: int, **options: Any) -> list:
    """`work(chunk, **options)` of all chunks, in order; an error cancels what has not begun.

    Chunks have at most `size` items and at most 1 / SHARE of what is left, so that workers end together
    (guided self-scheduling: Polychronopoulos and Kuck 1987).
    """
    check_executor(executor)
    chunks, at = [], 0
    while at < len(items):
        chunks.append(items[at : at + min(size, max(1, (len(items) - at) // SHARE))])
        at += len(chunks[-1])
    futures: list[Any] = []
    try:
        futures.extend(submit(executor, work, chunk, **options) for chunk in chunks)
        return [result for future in futures for result in future.result()]
    except BaseException:
        for future in futures:
            future.cancel()
        raise


def _work(_: str, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return work(*arguments, **options)
