"""One run on many machines: shards are run folders, the executor decides where they run.

    run = cotkit.distill(problems, generator, executor=client.get_executor(), shards=16, run="/shared/big")

Problem i belongs to shard i modulo `shards`; each shard is an ordinary run in `<run>/shards/<number>`, on a
path every worker sees. A shard whose worker is lost is resumed by the next worker that gets it: what was
finished stays, what was paid for is in the shard's cache. When all shards have ended they are merged into
the run folder, which then is what one process would have written, but for the order of its lines.

The executor is anything with concurrent.futures' `submit`: a process pool, or a Dask cluster's
`Client.get_executor()`. Each shard has queues of its own: a model's `max_concurrency` and requests a minute
hold for each shard that runs, and budgets are divided among the shards.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cotkit.chat import merge_ledgers
from cotkit.problems import Problem
from cotkit.records import Row
from cotkit.runs import Run, RunError, RunFolder
from cotkit.runs import config_differences as differences

LOCKED_S = 60.0  # how long a shard waits for a worker that was given up, but still writes
DIVIDED = ("budget_usd", "budget_tokens", "budget_calls")

Work = Callable[..., Run]  # distill, or what else takes problems and a run folder


def run_shards(
    work: Work,
    problems: Sequence[Problem],
    executor: Any,
    folder: pathlib.Path,
    shards: int,
    options: Mapping[str, Any],
    *,
    shard_of: Callable[[int], int] | None = None,
    merge: Callable[..., Run] | None = None,
    say: Callable[[str], None] = print,
) -> Run:
    """`work(problems of a shard, run=..., show="none", **options)` for each shard, and the merged run.

    shard_of: place of a problem -> its shard; None = one after the other. merge: in place of `merge_runs`.
    Raises RunError when shards failed: those that ended are kept, and the same call goes on.
    """
    _check(executor, shards, folder)
    parts: dict[int, list[Problem]] = {}
    for place, problem in enumerate(problems):
        parts.setdefault(shard_of(place) if shard_of else place % shards, []).append(problem)
    folders = {number: folder / "shards" / f"{number:04}" for number in parts}
    waiting = {
        executor.submit(_one_shard, work, part, str(folders[number]), {**options, **budgets}): number
        for (number, part), budgets in zip(parts.items(), _divided(options, len(parts)), strict=True)
    }
    failed: dict[int, BaseException] = {}
    try:
        for done, future in enumerate(_as_they_end(waiting), 1):
            number = waiting[future]
            try:
                said = future.result()
            except Exception as error:  # noqa: BLE001 - one shard's failure must not lose the others
                failed[number] = error
                said = f"failed: {type(error).__name__}: {error}"
            say(f"shard {number} ({done} of {len(waiting)}): {said}")
    except BaseException:
        for future in waiting:
            future.cancel()
        raise
    if failed:
        number, error = min(failed.items())
        raise RunError(
            f"{len(failed)} of {len(parts)} shards failed, first shard {number}: {type(error).__name__}: "
            f"{error}. What was finished is kept in {folder / 'shards'}; the same call goes on from there."
        ) from error
    places = {p.id: place for place, p in enumerate(problems)}
    return (merge or merge_runs)(list(folders.values()), folder, places=places)


def _check(executor: Any, shards: int, folder: pathlib.Path) -> None:
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor must have concurrent.futures' submit, got {type(executor).__name__}; for Dask that is "
            "Client(...).get_executor()"
        )
    if not isinstance(shards, int) or isinstance(shards, bool) or shards < 1:
        raise ValueError(f"shards must be a whole number of at least 1, got {shards!r}")
    kept = folder / "shards" / "shards.json"
    if kept.is_file() and (before := json.loads(kept.read_text())["shards"]) != shards:
        raise RunError(
            f"{folder} was begun with shards={before}: go on with as many, or use another run name"
        )
    if not kept.is_file() and (folder / "config.json").is_file():
        raise RunError(f"{folder} was begun without an executor: go on without, or use another run name")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"shards": shards}) + "\n")


def _divided(options: Mapping[str, Any], shards: int) -> list[dict[str, Any]]:
    """The budgets of each shard that has work; of calls and tokens the first ones get the remainder."""
    given = {name: options[name] for name in DIVIDED if options.get(name) is not None}
    return [
        {
            name: value / shards if name == "budget_usd" else (value + shards - 1 - place) // shards
            for name, value in given.items()
        }
        for place in range(shards)
    ]


def _as_they_end(futures: Mapping[Any, int]) -> Iterator[Any]:
    """Dask's futures are its own; polling them all is nothing beside a shard's work."""
    left = set(futures)
    if all(isinstance(future, concurrent.futures.Future) for future in left):
        yield from concurrent.futures.as_completed(left)
        return
    while left:
        ended = {future for future in left if future.done()}
        yield from ended
        left -= ended
        time.sleep(0.05)


def _one_shard(work: Work, problems: Sequence[Problem], folder: str, options: Mapping[str, Any]) -> str:
    """In the worker. Its last words go back, not its rows: they are on the shared path."""
    until = time.monotonic() + LOCKED_S
    while True:
        try:
            return repr(work(problems, run=pathlib.Path(folder), show="none", **options))
        except RunError as error:
            if "another process" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(1.0)


def merge_runs(
    folders: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    places: Mapping[str, int] | None = None,
    rows: Callable[[Run], Iterable[Row]] = Run.iter_records,
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> Run:
    """One run folder out of several that were made with one configuration; the old ones are left.

    places: {problem id: position in the whole input}; None = one folder's problems after another's. An
    output that is a merged run is replaced, when all of it is known. rows: how a run is read; facts: more for
    report.json, asked for when all rows are read.

    Raises RunError for configurations that differ (with the keys that do), and for a problem in two folders.
    """
    runs = [Run(path) for path in dict.fromkeys(pathlib.Path(folder) for folder in folders)]
    if len(runs) < len(folders):
        raise RunError("a run folder is named twice")
    if not runs:
        raise RunError("there is nothing to merge: name at least one run folder")
    for run in runs[1:]:
        if lines := differences(runs[0].config, run.config):
            raise RunError(
                f"{runs[0].path} and {run.path} were made with other configurations:\n  " + "\n  ".join(lines)
            )
    owners: dict[str, Run] = {}
    for run in runs:
        for row in run.iter_records():
            if (other := owners.setdefault(row.id, run)) is not run:
                raise RunError(f"problem {row.id!r} is in {other.path} and in {run.path}")
    reports = [run.report for run in runs]
    made_of = {"merged": [str(run.path) for run in runs]}
    with RunFolder(output, runs[0].config, runtime=made_of, resume="never") as folder:
        offset = 0
        for run, report in zip(runs, reports, strict=True):
            for row in rows(run):
                row.index = row.index + offset if places is None else places[row.id]
                folder.append(row)
            offset += report["given"]
        ledger = merge_ledgers([run.path / "calls.sqlite" for run in runs], folder.path / "calls.sqlite")
        stopped = [report["stopped"] for report in reports if report.get("stopped")]
        known = {"ledger": ledger, "seconds": max(report.get("seconds", 0.0) for report in reports)}
        folder.write_report(offset, stopped=stopped[0] if stopped else None, **known, **facts())
    shutil.rmtree(folder.path / "superseded", ignore_errors=True)
    return Run(folder.path)
