"""One run on many machines: shards are run folders, the executor decides where they run.

    run = cotkit.distill(problems, generator, executor=client.get_executor(), shards=16, run="/shared/big")

Problem i belongs to shard i modulo `shards`; each shard is an ordinary run in `<run>/shards/<number>`, on a
path every worker sees. A shard whose worker is lost is resumed by the next worker that gets it: what was
finished stays, what was paid for is in the shard's cache. When all shards have ended they are merged into
the run folder (merging.py): it is what one process would have written, but for the order of its lines.

The executor is anything with concurrent.futures' `submit`: a process pool, or a Dask cluster's
`Client.get_executor()`. Budgets are divided among the shards, `time_limit` is of the whole call. A model's
`max_concurrency` and `max_requests_per_minute` are not divided, for how many shards run at once is the
executor's affair: they hold in each process's copy of the model, so in each shard that a process pool or a
cluster runs, and in a pool of threads for all of them.

A call that waits for its shards has a name, which stands in `<run>/shards/call`, and no worker begins a shard
of any other call. When the call ends early, by an interrupt or its time limit, that file goes, and the shards
that run are told by a file in their folders to finish what is in flight, and stop.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from cotkit.executors import check_executor, submit
from cotkit.pipelines.merging import SHARDS, merge_runs
from cotkit.pipelines.progress import Display, Progress, Show, say_line
from cotkit.pipelines.running import Work
from cotkit.problems import Problem, ProblemError
from cotkit.runs import STOP, DigestMap, Run, RunError, locked_folder, set_aside, write_json
from cotkit.whole import whole_file

try:
    import fcntl
except ImportError:  # Windows: one process a run
    fcntl = None

LOCKED_S = 60.0  # how long a shard waits for a worker that was given up, but still writes
STATUS_S = 5.0  # how often the shards' counts are read; each writes its own every 20 s at most
DIVIDED = ("budget_usd", "budget_tokens", "budget_calls")
CALL = "call"
_waited_for: set[pathlib.Path] = set()  # the shards of this process's calls

T = TypeVar("T")
Prepare = Callable[[Sequence[Problem], dict[str, Any]], Work]  # (problems, options) -> its folder is open


def run_shards(
    prepare: Prepare,
    problems: Sequence[Problem],
    executor: Any,
    folder: pathlib.Path,
    shards: int,
    options: Mapping[str, Any],
    *,
    shard_of: Callable[[int], int] | None = None,
    show: Show = "none",
    say: Callable[[str], None] | None = None,
) -> Run:
    """`prepare(problems of a shard, {**options, "run": ...})` run for each shard, and the merged run.

    shard_of: place of a problem -> its shard; None = one after the other. show: the progress of all shards
    together; say: is given a line for each shard that has ended (None = print, where anything is shown).
    Raises RunError when shards failed: those that ended are kept, and the same call goes on.
    """
    if say is None:
        say = (lambda line: None) if show == "none" else say_line
    _check(executor, shards, folder, options.get("resume"))
    parts = _parts(problems, shards, shard_of)
    budgets = _divided(options, len(parts))
    with contextlib.ExitStack() as stack:
        _when_free(lambda: stack.enter_context(_only_call(folder / "shards")))
        stop_shards(folder)  # those of a call that was killed
        if options.get("resume") == "never":
            for path in (folder, *sorted(folder.glob("shards/*/"))):
                _when_free(lambda path=path: set_aside(path))
        if not (folder / SHARDS).is_file():
            write_json(folder / SHARDS, {"shards": shards})
        call = _Call(folder, parts, len(problems), options.get("time_limit"), show)
        try:
            call.submit(executor, prepare, parts, options, budgets)
            failed = call.wait(say)
        except BaseException:
            call.give_up()
            raise
        finally:
            call.display.close()
        if failed:
            number, error = min(failed.items())
            raise RunError(
                f"{len(failed)} of {len(parts)} shards failed, first shard {number}: {type(error).__name__}: "
                f"{error}. {_kept(folder)}"
            ) from error
        return _merged(call, problems)


def _merged(call: _Call, problems: Sequence[Problem]) -> Run:
    stopped, places = call.progress.stopping, DigestMap()
    begun = [shard for shard in call.folders.values() if (shard / "config.json").is_file()]
    if stopped and not begun:
        raise RunError(f"{stopped} before any shard had begun. Is there a worker? The same call goes on.")
    for place, problem in enumerate(problems):
        places[problem.id] = place
    given, place_of = len(problems), lambda row: places[row.id]
    return merge_runs(begun, call.folder, given=given, places=place_of, stopped=stopped)


@contextlib.contextmanager
def _only_call(shards: pathlib.Path) -> Iterator[None]:
    """No other call waits for these shards meanwhile; RunError when one does.

    The lock is one of this process alone: workers that a pool forks, which may outlive a killed call, would
    inherit the kind that a run folder has.
    """
    shards = shards.resolve()
    busy = f"another process (or another cell of this kernel) waits for {shards}. Wait for it, or stop it."
    if shards in _waited_for:
        raise RunError(busy)
    try:
        shards.mkdir(parents=True, exist_ok=True)
        file = open(shards / "call.lock", "ab")  # noqa: SIM115 - open while the call lasts
    except OSError as error:
        raise RunError(f"{error.filename} cannot be used ({error.strerror}). Nothing was asked.") from error
    with file:
        if fcntl is not None:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise RunError(busy) from None
        _waited_for.add(shards)
        try:
            yield
        finally:
            _waited_for.remove(shards)


def stop_shards(folder: pathlib.Path) -> None:
    """No shard of the run starts a further problem, and none begins; the next call goes on with them."""
    (folder / "shards" / CALL).unlink(missing_ok=True)
    for shard in folder.glob("shards/*/run.lock"):
        shard.with_name(STOP).touch()


def refuse_executor(name: str, options: Mapping[str, Any]) -> None:
    """TypeError for the options of shards, where the work is not divided."""
    for option in ("executor", "shards"):
        if option in options:
            raise TypeError(
                f"only {name}() takes {option!r}, for it waits until all shards are merged. To keep the "
                f"notebook free meanwhile: await asyncio.to_thread(cotkit.{name}, ..., executor=executor)"
            )


def _check(executor: Any, shards: int, folder: pathlib.Path, resume: str | None) -> None:
    """Writes nothing."""
    check_executor(executor, shards)
    kept = folder / SHARDS
    if kept.is_file() and (before := _begun_with(kept)) != shards:
        raise RunError(
            f"{folder} was begun with shards={before}: go on with as many, or use another run name"
        )
    if (folder / "config.json").is_file() and "merged" not in Run(folder).runtime:
        how = "was gone on with" if kept.is_file() else "was begun"
        raise RunError(f"{folder} {how} without an executor: go on without, or use another run name")
    if resume == "must" and not any(folder.glob("shards/*/config.json")):
        raise RunError(f"resume='must', but {folder} holds no shards; check the name")


def _begun_with(kept: pathlib.Path) -> Any:
    try:
        return json.loads(kept.read_bytes())["shards"]
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{kept} is not what cotkit wrote ({error!r}): remove it to go on") from None


def _parts(
    problems: Sequence[Problem], shards: int, shard_of: Callable[[int], int] | None
) -> dict[int, Sequence[Problem]]:
    if shard_of is None:
        return {number: problems[number::shards] for number in range(min(shards, len(problems)))}
    parts: dict[int, list[Problem]] = {}
    for place, problem in enumerate(problems):
        parts.setdefault(shard_of(place), []).append(problem)
    return parts


def _divided(options: Mapping[str, Any], shards: int) -> list[dict[str, Any]]:
    """The budgets of each shard that has work; of calls and tokens the first ones get the remainder."""
    given = {name: options[name] for name in DIVIDED if options.get(name) is not None}
    for name, value in given.items():
        if name != "budget_usd" and 0 < value < shards:
            raise ValueError(
                f"{name}={value} leaves nothing for {shards - value} of {shards} shards: raise it, or take "
                "fewer shards"
            )
    return [
        {
            name: value / shards if name == "budget_usd" else (value + shards - 1 - place) // shards
            for name, value in given.items()
        }
        for place in range(shards)
    ]


class _Call:
    """The shards of one call: submitted, waited for, and stopped when the call is over."""

    def __init__(
        self, folder: pathlib.Path, numbers: Iterable[int], total: int, limit: float | None, show: Show
    ):
        self.folder, self.limit, self._began = folder, limit, time.monotonic()
        self.folders = {number: folder / "shards" / f"{number:04}" for number in numbers}
        self.futures: dict[Any, int] = {}
        self._counts = _Counts(self.folders.values())
        self.progress = Progress(folder.name, total, self._counts, self._counts.kept, self._counts.drops)
        self.display = Display(self.progress, show)

    def submit(
        self,
        executor: Any,
        prepare: Prepare,
        parts: Mapping[int, Sequence[Problem]],
        options: Mapping[str, Any],
        budgets: Sequence[Mapping[str, Any]],
    ) -> None:
        name = uuid.uuid4().hex
        with whole_file(self.folder / "shards" / CALL) as file:
            file.write_text(name)
        for (number, part), own in zip(parts.items(), budgets, strict=True):
            asked = {**options, **own, "run": self.folders[number], "resume": "auto"}
            self.futures[submit(executor, _one_shard, name, prepare, part, asked)] = number

    def wait(self, say: Callable[[str], None]) -> dict[int, BaseException]:
        """{shard: what it failed by}, when all have ended."""
        failed: dict[int, BaseException] = {}
        for done, future in enumerate(_as_they_end(self.futures, self._tick), 1):
            number = self.futures[future]
            try:
                if (said := future.result()) is None and not self.progress.stopping:
                    if not (self.folder / "shards" / CALL).exists():
                        raise concurrent.futures.CancelledError  # by another thread
                    raise RunError(
                        f"a worker finds no {self.folder / 'shards' / CALL}: is it on a shared path?"
                    )
            except concurrent.futures.CancelledError:
                if not self.progress.stopping:
                    raise RunError(f"shard {number} was cancelled. {_kept(self.folder)}") from None
                said = None
            except Exception as error:  # noqa: BLE001 - one shard's failure must not lose the others
                failed[number] = error
                said = f"failed: {type(error).__name__}: {error}"
            say(f"shard {number} ({done} of {len(self.futures)}): {said or 'not begun'}")
        (self.folder / "shards" / CALL).unlink(missing_ok=True)
        self._counts.read(self.progress)
        return failed

    def give_up(self) -> None:
        stop_shards(self.folder)
        for future in self.futures:
            future.cancel()

    def _tick(self) -> None:
        late = self.limit is not None and time.monotonic() - self._began > self.limit
        if late and not self.progress.stopping:
            self.progress.stop(f"the time limit of {self.limit:g} s was reached")
            stop_shards(self.folder)
            for future, number in self.futures.items():
                if not _is_open(self.folders[number]):
                    future.cancel()
        if self._counts.age > STATUS_S:
            self._counts.read(self.progress)
        self.display.tick()


class _Counts:
    """What the shards' report.json say together; to a `Progress`, the ledger of them all."""

    def __init__(self, folders: Iterable[pathlib.Path]):
        self._folders = list(folders)
        self.read()

    def read(self, progress: Progress | None = None) -> None:
        self._read = time.monotonic()
        reports = [report for folder in self._folders if (report := _report_of(folder))]
        self.kept = sum(report["kept"] for report in reports)
        self.drops = sum((Counter(report["drops"]) for report in reports), Counter())
        del self.drops["unfinished"]
        self._ledgers = [report["ledger"] for report in reports]
        if progress is not None:
            progress.kept, progress.drops = self.kept, self.drops

    @property
    def age(self) -> float:
        return time.monotonic() - self._read

    def totals(self) -> dict[str, Any]:
        names = ("calls", "prompt_tokens", "completion_tokens", "cost_usd") if self._ledgers else ()
        values = {name: [ledger[name] for ledger in self._ledgers] for name in names}
        return {name: None if None in of_all else sum(of_all) for name, of_all in values.items()}


def _report_of(folder: pathlib.Path) -> dict[str, Any] | None:
    try:
        report = json.loads((folder / "report.json").read_bytes())
        return report if {"kept", "drops", "ledger"} <= report.keys() else None
    except (OSError, ValueError, AttributeError):
        return None  # it has not begun; what is damaged ends the shard, not this count


def _kept(folder: pathlib.Path) -> str:
    return f"What was finished is kept in {folder / 'shards'}; the same call goes on from there."


def _as_they_end(futures: Iterable[Any], tick: Callable[[], None]) -> Iterator[Any]:
    """By polling, which is nothing beside a shard's work: `as_completed` waits for ever for a future that was
    cancelled with its pool, and a Dask client's futures are its own."""
    left = set(futures)
    while left:
        ended = {future for future in left if future.done()}
        yield from ended
        left -= ended
        tick()
        time.sleep(0.05)


def _one_shard(
    call: str, prepare: Prepare, problems: Sequence[Problem], options: dict[str, Any]
) -> str | None:
    """In the worker. Its last words go back, not its rows: they are on the shared path. None = not begun."""
    note = options["run"].parent / CALL
    work = _when_free(lambda: prepare(_readable(problems), options) if _names(note, call) else None)
    if work is not None and not _names(note, call):  # from now on it sees the file that stops it
        work.abandon()
        work = None
    return None if work is None else repr(work.run("none"))


def _readable(problems: Sequence[Problem]) -> Sequence[Problem]:
    """The problems; RunError where this worker cannot read them."""
    try:
        problems[0]
        return problems
    except (OSError, ProblemError) as error:
        raise RunError(
            f"a worker cannot read the problems: {error}. A large file is read bit by bit, by each worker: "
            "put it on a path that all of them see, such as that of the run, or give the problems "
            "themselves, as load_problems(path) has them"
        ) from error


def _names(note: pathlib.Path, call: str) -> bool:
    """Whether the call still waits for its shards."""
    try:
        os.listdir(note.parent)  # so that a network file system looks anew
        return note.read_text() == call
    except FileNotFoundError:
        return False


def _is_open(shard: pathlib.Path) -> bool:
    """Whether a worker has the shard open."""
    try:
        if (shard / "run.lock").exists():
            with locked_folder(shard):
                pass
        return False
    except RunError:
        return True


def _when_free(do: Callable[[], T]) -> T:
    """`do()`, when nobody else writes there any more."""
    until = time.monotonic() + LOCKED_S
    while True:
        try:
            return do()
        except RunError as error:
            if "another process" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(1.0)
