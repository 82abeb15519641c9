"""How every pipeline runs: problems flow through `solve` into a run folder, one chain each, no barrier.

`solve(index, problem)` gives a finished Row. What stops a run (a spent budget, endpoints that are all
down, a time limit, Stop, an interrupt) leaves the problems in flight unfinished: they have no line, and the
next call on the folder goes on with them; answers already paid for come from the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import html
import importlib.metadata
import json
import math
import pathlib
import platform
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from cotkit import __version__, aio
from cotkit.chat import BudgetExceeded, CallLedger, ChatModel, Completion, ModelError, check_budgets
from cotkit.pipelines.garbage import rarely_collected
from cotkit.pipelines.progress import Display, Progress, Show, say_line, status_line
from cotkit.problems import Problem
from cotkit.prompts import Prompt
from cotkit.records import Candidate, Extraction, Row, Verdict
from cotkit.runs import STOP, DigestMap, Run, RunFolder, check_resume, dump_json, read_lines

T = TypeVar("T")
Solve = Callable[[int, Problem], Awaitable[Row]]
AHEAD = 2  # problems in flight for each one that is still wanted
BETWEEN = 2  # problems in flight for each place, where there are several models: one is at one of them only
REPORT_S = 20.0  # report.json is refreshed this often, so that a killed run has one ...
REPORT_SHARE = 20  # ... where the rows and calls since the last one take so many times its bytes
SYNC_S = 5.0  # rows and calls are forced to disk this often: a power cut takes no more (kill -9 takes none)


def made_with(problems: Sequence[Problem]) -> dict[str, Any]:
    """What config.json records beside the configuration; it is not compared on resume."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(dump_json(problem))
    versions = {"cotkit": __version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in ("openai", "math-verify")}
    return {"problems": len(problems), "data_hash": digest.hexdigest()[:16], "versions": versions}


def check_limits(*, time_limit: float | None = None, resume: str = "auto", **of_run: Any) -> None:
    """ValueError or TypeError for a budget, time limit or `resume` that cannot be; of a run's other options
    nothing is said. Where shards take them, before any of them begins."""
    check_budgets(**{name: value for name, value in of_run.items() if name.startswith("budget_")})
    check_time_limit(time_limit)
    check_resume(resume)


def check_time_limit(time_limit: float | None) -> None:
    if time_limit is None:
        return
    if not isinstance(time_limit, (int, float)) or isinstance(time_limit, bool) or not time_limit > 0:
        raise ValueError(f"time_limit must be a positive number of seconds, got {time_limit!r}")


class Misconfigured(ValueError):
    """An option that only an answer could prove wrong. Ends the run; rows and paid answers are kept."""


class Dropped(Exception):
    """A row ends here, and why. `retryable`: by a failure that a resumed run may not meet again."""

    def __init__(self, reason: str, detail: str = "", retryable: bool = False):
        super().__init__(reason, detail)
        self.reason, self.detail, self.retryable = reason, detail, retryable


def new_row(index: int, problem: Problem) -> Row:
    return Row(version=__version__, index=index, **vars(problem))  # all but its solution_code


def problem_of(row: Row, **changed: Any) -> Problem:
    """The problem of a row, with what is `changed`."""
    known = {name: getattr(row, name) for name in Problem.model_fields if name != "solution_code"}
    return Problem(**known | changed)


def new_candidate(
    answer: Completion, found: Extraction, verdict: Verdict, prompt: Prompt, **known: Any
) -> Candidate:
    """A model's answer as a trace, verified."""
    return Candidate(
        **{"iteration": 0} | known,
        sample_index=answer.sample_index,
        trace=answer.trace,
        reasoning=answer.reasoning,
        text=answer.text,
        answer=found.answer,
        answer_how=found.how,
        truncated=answer.truncated,
        verdict=verdict,
        prompt={"name": prompt.name, "hash": prompt.hash},
        call=answer.provenance(),
    )


def seed_of(seed: int, id: str) -> int:
    """The sampling seed of a problem: its own, and the same in every run with this seed."""
    digest = hashlib.sha256(f"{seed}:{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4]) % 2**31


class NotStarted(Exception):
    """The run ended before the problem got a place: it has no line, and the next call starts it."""


class Places:
    """`async with places.of(number)` around the asking of a problem; what waits for others holds none.

    A problem waits for lower numbers only: when as many are likely kept as are wanted, only those may ask.
    """

    def __init__(self, width: int, work: Work):
        self._free, self._work = asyncio.Semaphore(width), work
        self.waiting: dict[str, int | None] = {}  # id of what asks no more -> its number, if likely kept

    def wait(self, id: str, number: int, likely: bool) -> None:
        """The problem has asked all it asks."""
        self.waiting[id] = number if likely else None
        self._work.changed.set()

    @property
    def likely(self) -> list[int]:
        return [number for number in self.waiting.values() if number is not None]

    @contextlib.asynccontextmanager
    async def of(self, number: int) -> AsyncIterator[None]:
        while True:
            while self._spare(number):
                await self._work.change()
            await self._free.acquire()
            if not self._spare(number):
                break
            self._free.release()
        try:
            if self._work.over:
                raise NotStarted
            yield
        finally:
            self._free.release()

    def _spare(self, number: int) -> bool:
        return not self._work.over and self._work.wanted <= 0 and number > max(self.likely)


class _Again:
    """Problems that an endpoint or a judge failed. They are asked again after all others, so that those which
    always fail keep nobody waiting; where the run ends before, their lines are put back.

    folder: the run's path, before `RunFolder.begin` takes the lines out; None = there are none.
    """

    def __init__(self, folder: pathlib.Path | None):
        self.ids, self._lines = DigestMap(), None
        for record, end in () if folder is None else read_lines(folder / "drops.jsonl"):
            if record.get("retryable"):
                self._lines = self._lines or tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - see put_back
                self._lines.write(dump_json(record) + b"\n")
                self.ids[record["id"]] = end

    def put_back(self, folder: RunFolder) -> None:
        """What could not be asked again has failed still."""
        if self._lines is None:
            return
        with contextlib.suppress(OSError), self._lines as lines:  # without a line they are asked again too
            lines.seek(0)
            for line in lines:
                row = Row.model_validate(json.loads(line))
                if row.id not in folder.done:
                    folder.append(row)
        self._lines = None


async def _nothing() -> None:
    pass


class Work:
    """A prepared run: folder and ledger are open, nothing has been asked yet.

    Where the problems are still to be made, `problems` are empty places with the ids the rows will have, and
    `made_from` is what they are made from. `enough`: start no further problem when so many are kept, and
    have no more in flight than `AHEAD` times what is still wanted; these are finished. `beside` runs at the
    same time, and the run ends with it. `waiting`: where problems wait for each other, `solve` takes one of
    the `width` places itself and says when it only waits (`places`), and so many more may be under way.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        solve: Callable[[CallLedger], Solve],
        *,
        run: Any,
        config: dict[str, Any],
        runtime: dict[str, Any],
        resume: str,
        width: int,
        budgets: dict[str, Any],
        use_cache: bool = True,
        time_limit: float | None = None,
        models: Sequence[ChatModel] = (),
        facts: Callable[[], dict[str, Any]] = dict,
        made_from: Sequence[Problem] | None = None,
        enough: int | None = None,
        beside: Callable[[], Awaitable[None]] = _nothing,
        waiting: int = 0,
    ):
        check_time_limit(time_limit)
        self.problems, self.time_limit, self._facts = problems, time_limit, facts
        self._enough, self._beside, self.budgets = enough, beside, budgets
        self._flying, self._turn, self.changed = 0, asyncio.Lock(), asyncio.Event()
        self._gone = False
        self._tasks, self.places = width + waiting, Places(width, self)
        runtime = {**runtime, **made_with(problems if made_from is None else made_from)}
        self.folder = RunFolder(run, config, runtime=runtime, resume=resume)
        try:
            if made_from is None:
                self.folder.check_problems(problems)
            path = self.folder.path / "calls.jsonl"
            self.ledger = CallLedger(path, use_cache=use_cache, shared=False, **budgets)
            try:
                self.ledger.check_prices(*(m for m in models if isinstance(m, ChatModel)))
                self._again = _Again(None if waiting or enough is not None else self.folder.path)
                if not self.has_enough:
                    self.folder.begin()
                self.solve = solve(self.ledger)
                name, kept, drops = self.folder.path.name, self.folder.kept, self.folder.reasons
                self.progress = Progress(name, len(problems), self.ledger, kept, drops, models, enough)
            except BaseException:
                self.ledger.close()
                raise
        except BaseException:
            self.folder.__exit__()
            raise
        self._error: ValueError | OSError | None = None

    @property
    def has_enough(self) -> bool:
        return self._enough is not None and self.folder.kept >= self._enough

    @property
    def wanted(self) -> float:
        """How many more, beside those that are kept if nothing is in their way: a problem that hangs must not
        keep others from being started, nor have too many of them started."""
        return math.inf if self._enough is None else self._enough - self.folder.kept - len(self.places.likely)

    @property
    def over(self) -> bool:
        """No further problem is started."""
        return self.progress.stopping is not None or self.has_enough

    def abandon(self) -> None:
        """Closes what a run that never went has open; of one that went it does nothing."""
        if self._gone:
            return
        self._gone = True
        with self.folder, contextlib.closing(self.ledger):  # the folder's lock is given back last
            self._again.put_back(self.folder)

    async def go(self) -> Run:
        self._gone = True
        with self.folder, contextlib.closing(self.ledger), rarely_collected():
            await self._go()
        return Run(self.folder.path)

    async def _go(self) -> None:
        stopped: str | None = "an error ended the run"
        tasks = [asyncio.create_task(self._report_now_and_then())]
        tasks.append(asyncio.create_task(self._sync_now_and_then()))
        try:
            try:
                async with asyncio.timeout(self.time_limit) as limit:
                    beside = asyncio.create_task(self._guarded(self._beside()))
                    tasks.append(beside)
                    await aio.pool(self._todo(), self._one, self._tasks)
                    await beside
            except TimeoutError:
                if not limit.expired():  # a disk's or a system's own
                    raise
                self.progress.stop(f"the time limit of {self.time_limit:g} s was reached")
            stopped = self.progress.stopping
            if self._error is not None:
                raise self._error
        except asyncio.CancelledError:
            stopped = "interrupted"
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # a thread that syncs may outlast them
            self._again.put_back(self.folder)
            self._write_report(stopped)

    def _todo(self) -> Iterator[tuple[int, Problem]]:
        last = []
        try:
            for index, problem in enumerate(self.problems):
                if self.over:
                    return
                if (line := self._again.ids.get(problem.id)) is not None:
                    last.append((line, index))
                else:
                    yield index, problem
            for _, index in sorted(last, reverse=True):  # the last lines were not reached
                if self.over:
                    return
                yield index, self.problems[index]
        except (OSError, ValueError) as error:  # their file has changed: what is in flight is finished
            self._error = error
            self.progress.stop(str(error))

    async def _one(self, item: tuple[int, Problem]) -> None:
        index, problem = item
        if problem.id in self.folder.done:
            return
        await self._take_off()
        if not self.over and (row := await self._row(index, problem)) is not None:
            self.folder.append(row)
            self.progress.add(row)
        self._flying -= 1
        self.places.waiting.pop(problem.id, None)
        self.changed.set()

    async def _row(self, index: int, problem: Problem) -> Row | None:
        """None when the run ends first. One row's bug must not sink the others."""
        try:
            return await self._guarded(self.solve(index, problem))
        except NotStarted:
            return None
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and aio.being_cancelled():
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            row = new_row(index, problem)
            row.drop_reason, row.retryable = "internal_error", True
            row.detail = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            kind = error.kind if isinstance(error, ModelError) else type(error).__name__
            row.errors = [{"stage": "internal", "kind": kind, "message": str(error)}]
            return row

    async def _take_off(self) -> None:
        """Waits for a place, in the order of the problems: an earlier one may be what a later one needs."""
        if self._enough is None:  # there is a place for all
            self._flying += 1
            return
        async with self._turn:
            while not self.over and self._flying - len(self.places.waiting) >= AHEAD * self.wanted:
                await self.change()
            self._flying += 1

    async def change(self) -> None:
        """Waits until a problem has ended, or only waits for others."""
        self.changed.clear()
        await self.changed.wait()

    async def _guarded(self, work: Awaitable[T]) -> T | None:
        """None when it ended by what stops a run: no further problem is started then."""
        try:
            return await work
        except Misconfigured as error:
            self._error = error
            self.progress.stop(str(error))
        except BudgetExceeded as error:
            self.progress.stop(str(error))
        except ModelError as error:
            if not error.stops_run:  # of a verifier or judge that let it through: one row's failure
                raise
            self.progress.stop(f"{error.kind}: {error}")
        return None

    def _write_report(self, stopped: str | None) -> None:
        given = len(self.folder.done) if self.has_enough else len(self.problems)
        self.folder.write_report(given, stopped=stopped, ledger=self.ledger.totals(), **self._facts())

    async def _report_now_and_then(self) -> None:
        """Not for every row of a slow endpoint: reports would be most of what is written."""
        due = 0
        while True:
            if (written := self.folder.written) >= due:
                self._write_report("running")
                due = written + REPORT_SHARE * (self.folder.path / "report.json").stat().st_size
            await asyncio.sleep(REPORT_S)

    async def _sync_now_and_then(self) -> None:
        """In a thread, for a disk may take its time; also while nothing more is written for long."""
        while True:
            await asyncio.sleep(SYNC_S)
            try:
                if await asyncio.to_thread(self._sync):
                    self.progress.stop(f"there is {self.folder.path / STOP}")
            except OSError as error:  # what was written may be lost
                self._error = error
                return self.progress.stop(str(error))

    def _sync(self) -> bool:
        """Whether somebody wants the run to stop."""
        self.ledger.sync()  # first, so that no row is kept whose calls are lost
        self.folder.sync()
        return self.folder.told_to_stop

    @contextlib.contextmanager
    def _shown(self, show: Show) -> Iterator[Display]:
        """What draws its progress. A run that cannot even begin leaves nothing open."""
        try:
            with contextlib.closing(Display(self.progress, show)) as display:
                yield display
        finally:
            self.abandon()

    def run(self, show: Show = "auto") -> Run:
        with self._shown(show) as display:
            try:
                return aio.run(self.go(), display.tick)
            except KeyboardInterrupt:
                say_line(
                    f"Interrupted. {self.progress.done} of {self.progress.total} problems are finished and "
                    f"safe in {self.folder.path}; the same call goes on from there."
                )
                raise

    async def arun(self, show: Show = "auto") -> Run:
        with self._shown(show) as display:
            return await aio.arun(self.go(), display.tick)

    def start(self) -> RunJob:
        return RunJob(self)


class RunJob:
    """A run in the background: `progress`, `stop()`, `cancel()`, `result()`. Cells stay free meanwhile."""

    def __init__(self, work: Work):
        self._work = work
        try:
            self._job = aio.start(work.go())
        except BaseException:
            work.abandon()
            raise
        self.path = work.folder.path

    @property
    def progress(self) -> dict[str, Any]:
        """Counts, rates, the ledger's totals and the budgets, as of now."""
        return self._work.progress.snapshot() | {"budgets": self._work.budgets}

    def stop(self) -> None:
        """Start no further problem and finish those in flight; then `result()` gives the run."""
        self._work.progress.stop("stopped by the user")

    def cancel(self) -> None:
        """Stop at once: calls in flight are dropped, finished rows stay."""
        self._job.cancel()

    def done(self) -> bool:
        return self._job.done()

    def wait(self, seconds: float | None = None) -> bool:
        """True when the run has ended within `seconds`."""
        return self._job.wait(seconds)

    def result(self, timeout: float | None = None) -> Run:
        """The run, when it has ended; raises what ended it (CancelledError after `cancel()`)."""
        return self._job.result(timeout)

    def __repr__(self) -> str:
        state = "done" if self.done() else "running"
        return f"RunJob({state}: {status_line(self.progress)})"

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"
