"""One switch that stops the programs which other threads are waiting for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Cancellation:
    """`cancel()` may come from any thread, before, during or after the call it is meant for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: set[Callable[[], None]] = set()
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            for stop in self._stops:
                stop()

    @contextlib.contextmanager
    def stopping_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """While inside, `cancel()` calls `stop`."""
        with self._lock:
            self._stops.add(stop)
            if self.cancelled:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.discard(stop)
