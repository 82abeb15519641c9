"""The engine's event loop: one private thread, three verbs.

`run(coro)` blocks and can be interrupted, `await arun(coro)` serves users who await in their own cells,
`start(coro)` returns a `Job` at once, so that a Stop button works while cells stay free. Works in Jupyter,
under papermill and in scripts; nothing is patched. Clients that live in the loop (HTTP sessions) must be
created and closed by coroutines that run here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TICK_S = 0.2  # waits are this short so that an interrupt is delivered promptly
GRACE_S = 10.0  # how long an interrupted job may take to close its files and connections


class Job:
    """A coroutine that runs in the engine's loop. `result()` blocks; `cancel()` asks it to stop."""

    def __init__(self, coro: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop):
        self.future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop, self._task = loop, None

        def launch() -> None:  # inside the loop, so a later cancel() always finds a task
            self._task = loop.create_task(_contained(coro))
            self._task.add_done_callback(self._finish)

        loop.call_soon_threadsafe(launch)

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.future.cancel()
            self.future.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())

    def cancel(self) -> None:
        def once_begun() -> None:  # a coroutine that is cancelled before it begins does not clean up
            self._loop.call_soon(self._task.cancel)

        self._loop.call_soon_threadsafe(once_begun)

    def done(self) -> bool:
        return self.future.done()

    def wait(self, seconds: float | None = None) -> bool:
        """True when the job has ended (well or badly) within `seconds`."""
        return bool(concurrent.futures.wait([self.future], seconds).done)

    def result(self, timeout: float | None = None) -> T:
        """The coroutine's result; raises what it raised, `CancelledError` when it was cancelled."""
        return self.future.result(timeout)


async def _contained(coro: Coroutine[Any, Any, T]) -> T:
    """SystemExit and KeyboardInterrupt would end the engine's loop, not the program."""
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__} was raised inside cotkit's loop: {error}") from error


class LoopThread:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def inside(self) -> bool:
        """True in the engine's own thread."""
        return threading.current_thread() is self._thread

    def start(self, coro: Coroutine[Any, Any, T]) -> Job:
        if self.inside():
            coro.close()
            raise RuntimeError("called from inside cotkit's own loop: use `await` there")
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, daemon=True, name="cotkit-loop"
                )
                self._thread.start()
        return Job(coro, self._loop)

    def run(
        self,
        coro: Coroutine[Any, Any, T],
        tick: Callable[[], None] = lambda: None,
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> T:
        """Blocks until the coroutine ends. `meanwhile` is called once in the caller's thread while it runs,
        then `tick` a few times a second."""
        job = self.start(coro)
        try:
            meanwhile()
            while not job.wait(TICK_S):
                tick()
        except BaseException:  # an interrupt, or an error of these: nothing goes on unseen
            job.cancel()
            job.wait(GRACE_S)
            raise
        return job.result()

    async def arun(self, coro: Coroutine[Any, Any, T], tick: Callable[[], None] = lambda: None) -> T:
        job = self.start(coro)
        waiter = asyncio.wrap_future(job.future)
        try:
            while not waiter.done():  # the tick lets ipykernel deliver an interrupt
                await asyncio.wait({waiter}, timeout=TICK_S)
                tick()
        except BaseException:
            job.cancel()
            await asyncio.wait({waiter}, timeout=GRACE_S)
            raise
        return waiter.result()


_ENGINE = LoopThread()
run, arun, start, inside = _ENGINE.run, _ENGINE.arun, _ENGINE.start, _ENGINE.inside


def being_cancelled() -> bool:
    """Whether a CancelledError is meant for this task; else something that it waited for was cancelled."""
    return bool(asyncio.current_task().cancelling())


async def together(coros: Iterable[Awaitable[R]]) -> list[R]:
    """The results of all, run at the same time; an error is raised only when none is running any more."""
    contained = [_contained(coro) for coro in coros]
    if len(contained) < 2:  # needs no task of its own
        return [await coro for coro in contained]
    results = await asyncio.gather(*contained, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def pool(items: Iterable[T], work: Callable[[T], Awaitable[object]], width: int) -> None:
    """`work(item)` for each item, at most `width` at once.

    A place draws its next item when its last one has ended: no batch barrier, and memory that does not grow
    with the number of items. An exception of `work` ends the pool: `work` turns the failures it can name into
    results. On exit everything still running is cancelled and awaited.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    source = iter(items)

    async def place(item: T) -> None:
        for item in itertools.chain((item,), source):  # noqa: B020 - the first item was drawn already
            try:
                await work(item)
            except asyncio.CancelledError as error:
                if being_cancelled():
                    raise
                raise RuntimeError("what the work waited for was cancelled") from error
            await asyncio.sleep(0)  # it may have waited for nothing: the loop's others get their turn

    try:
        async with asyncio.TaskGroup() as places:
            for item in itertools.islice(source, width):
                places.create_task(place(item))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
