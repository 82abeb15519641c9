"""Python's cyclic garbage collector while runs are under way: an eighth of what a call costs, or less.

It looks at what was made since it came last, then at older objects, in the end at all of them: a kernel with
pandas and torch in it holds millions. While a run goes on, what was there before is left out
(`gc.freeze`), and the collector comes after 10,000 new containers instead of 700. Nothing is kept for ever:
both end with the last run. What the user has set or frozen, before or during a run, stays so.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

RARER = 10_000  # new containers before the youngest are looked at

_lock = threading.Lock()
_runs = 0
_before: tuple[int, int, int] | None = None  # thresholds to go back to; None = nothing was changed
_frozen = 0  # by us


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Around a run; runs may overlap."""
    global _runs, _before, _frozen
    with _lock:
        _runs += 1
        if _runs == 1 and gc.isenabled() and 0 < gc.get_threshold()[0] < RARER and not gc.get_freeze_count():
            _before = gc.get_threshold()
            gc.freeze()
            _frozen = gc.get_freeze_count()
            gc.set_threshold(RARER, *_before[1:])
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if _runs == 0 and _before is not None:
                if gc.get_threshold() == (RARER, *_before[1:]):
                    gc.set_threshold(*_before)
                if gc.get_freeze_count() <= _frozen:  # some of it is gone, and nobody has frozen more
                    gc.unfreeze()
                _before = None
