"""Several distillation runs at the same time, each in a folder of its own.

None waits for another: each has the places of its own model, and what ends one (a wrong key, a spent budget,
a fault) ends no other. An interrupt ends all; what is finished is kept.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.executors import check_executor
from cotkit.pipelines.distill import checked, distill, prepare
from cotkit.pipelines.progress import Display, Show, check_show, say_line
from cotkit.pipelines.running import Work
from cotkit.pipelines.shards import stop_shards
from cotkit.problems import Problem
from cotkit.runs import Run

if TYPE_CHECKING:
    from cotkit.chat import ChatModel


class SideBySide:
    """Prepared runs of drafts: one `Work` a name, their folders open and nothing asked yet.

    models, folders: who solves the problems under each name, and where; options: of `distill`, for all. With
    an executor each run is made of shards on it, and no folder is open before `go`.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        models: Mapping[str, ChatModel],
        folders: Mapping[str, pathlib.Path],
        options: Mapping[str, Any],
        *,
        show: Show = "auto",
        executor: Any = None,
        shards: int = 8,
    ):
        check_show(show)
        self.folders = dict(folders)
        self.works: dict[str, Work] = {}
        self.displays: list[Display] = []
        self.executor, self.shards = _Submitted(executor), []
        if executor is not None:
            check_executor(executor, shards)
            for name, model in models.items():
                checked(problems, model, None, {**options, "run": folders[name]})
            lines = "none" if show == "none" else "lines"  # bars of several runs would be in each other's way
            more = {"show": lines, "executor": self.executor, "shards": shards}
            self.shards = [
                functools.partial(distill, problems, model, run=folders[name], **options, **more)
                for name, model in models.items()
            ]
            return
        try:
            for name, model in models.items():
                self.works[name] = prepare(problems, model, None, {**options, "run": folders[name]})
        except BaseException:
            self._abandon()
            raise
        self.displays = [Display(work.progress, show) for work in self.works.values()]

    async def go(self) -> dict[str, Run | BaseException]:
        """Every run to its end, however the others end. {name: the run, or the error that ended it}"""
        runs, loop = [work.go() for work in self.works.values()], asyncio.get_running_loop()
        threads = concurrent.futures.ThreadPoolExecutor(max(len(self.shards), 1))  # asyncio's own are few
        runs += [loop.run_in_executor(threads, start) for start in self.shards]
        try:
            ends = await asyncio.gather(*runs, return_exceptions=True)
        except BaseException:
            self._stop_shards()
            raise
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return dict(zip(self.folders, ends, strict=True))

    def stop(self, why: str) -> None:
        """No run starts a further problem; what is in flight is finished. Any thread may call it."""
        for work in self.works.values():
            work.progress.stop(why)
        if self.shards:
            self._stop_shards()

    def _stop_shards(self) -> None:
        self.executor.cancel()
        for folder in self.folders.values():
            stop_shards(folder)

    def tick(self) -> None:
        """Draws the progress; a few times a second, in the caller's thread."""
        for display in self.displays:
            display.tick()

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            say_line(
                "Interrupted. What is finished is safe in the run folders; the same call goes on from there."
            )
        for display in self.displays:
            display.close()
        self._abandon()  # what was cancelled before it began

    def _abandon(self) -> None:
        for work in self.works.values():
            work.abandon()


class _Submitted:
    """An executor that knows what was submitted to it, for an interrupt does not reach the threads above."""

    def __init__(self, executor: Any):
        self._executor, self._futures, self._over = executor, [], False

    def submit(self, *work: Any) -> Any:
        if self._over:
            raise concurrent.futures.CancelledError("the call is over")
        self._futures.append(future := self._executor.submit(*work))
        return future

    def cancel(self) -> None:
        """Takes back what has not begun, and takes nothing more. A future that has ended stays as it is."""
        self._over = True
        for future in self._futures:
            future.cancel()
