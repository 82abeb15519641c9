"""One run on many machines: shards are run folders, the executor decides where they run.

    run = cotkit.distill(problems, generator, executor=client.get_executor(), shards=16, run="/shared/big")

Problem i belongs to shard i modulo `shards`; each shard is an ordinary run in `<run>/shards/<number>`, on a
path every worker sees. A shard whose worker is lost is resumed by the next worker that gets it: what was
finished stays, what was paid for is in the shard's cache. When all shards have ended they are merged into
the run folder, which then is what one process would have written, but for the order of its lines. Merging
again replaces what was merged before and nothing else: labels stay, and what is in no shard is never
replaced.

The executor is anything with concurrent.futures' `submit`: a process pool, or a Dask cluster's
`Client.get_executor()`. Each shard has queues of its own: a model's `max_concurrency` and requests a minute
hold for each shard that runs, and budgets are divided among the shards. An interrupt takes back the shards
that have not begun; those that run are told by a file in their folders to finish what is in flight, and stop.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cotkit.chat import merge_ledgers
from cotkit.executors import check_executor, submit
from cotkit.paths import run_folder
from cotkit.problems import Problem
from cotkit.records import Row
from cotkit.runs import (
    REPLACING,
    STOP,
    DigestMap,
    Journal,
    Run,
    RunError,
    read_lines,
    replaced_run,
    write_json,
)
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
    parts: dict[int, Sequence[Problem]] = {}
    if shard_of is None:
        parts = {number: problems[number::shards] for number in range(min(shards, len(problems)))}
    else:
        for place, problem in enumerate(problems):
            parts.setdefault(shard_of(place), []).append(problem)
    folders = {number: folder / "shards" / f"{number:04}" for number in parts}
    waiting = {
        submit(executor, _one_shard, work, part, str(folders[number]), {**options, **budgets}): number
        for (number, part), budgets in zip(parts.items(), _divided(options, len(parts)), strict=True)
    }
    failed: dict[int, BaseException] = {}
    try:
        for done, future in enumerate(_as_they_end(waiting), 1):
            number = waiting[future]
            try:
                said = future.result()
            except concurrent.futures.CancelledError:
                raise RunError(
                    f"shard {number} was cancelled. What was finished is kept in {folder / 'shards'}; the "
                    "same call goes on from there."
                ) from None
            except Exception as error:  # noqa: BLE001 - one shard's failure must not lose the others
                failed[number] = error
                said = f"failed: {type(error).__name__}: {error}"
            say(f"shard {number} ({done} of {len(waiting)}): {said}")
    except BaseException:
        for future in waiting:
            future.cancel()
        stop_shards(folder)
        raise
    if failed:
        number, error = min(failed.items())
        raise RunError(
            f"{len(failed)} of {len(parts)} shards failed, first shard {number}: {type(error).__name__}: "
            f"{error}. What was finished is kept in {folder / 'shards'}; the same call goes on from there."
        ) from error
    places = DigestMap()
    for place, problem in enumerate(problems):
        places[problem.id] = place
    aside = options.get("resume") == "never"
    return (merge or merge_runs)(list(folders.values()), folder, places=places, aside=aside)


def stop_shards(folder: pathlib.Path) -> None:
    """No shard of the run starts a further problem; what waits for a worker, and the next call, does."""
    for shard in folder.glob("shards/*/run.lock"):
        shard.with_name(STOP).touch()


def _check(executor: Any, shards: int, folder: pathlib.Path) -> None:
    check_executor(executor, shards)
    kept = folder / "shards" / "shards.json"
    if kept.is_file() and (before := _begun_with(kept)) != shards:
        raise RunError(
            f"{folder} was begun with shards={before}: go on with as many, or use another run name"
        )
    if (folder / "config.json").is_file() and "merged" not in Run(folder).runtime:
        how = "was gone on with" if kept.is_file() else "was begun"
        raise RunError(f"{folder} {how} without an executor: go on without, or use another run name")
    if not kept.is_file():
        write_json(kept, {"shards": shards})


def _begun_with(kept: pathlib.Path) -> Any:
    try:
        return json.loads(kept.read_bytes())["shards"]
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{kept} is not what cotkit wrote ({error!r}): remove it to go on") from None


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
    """By polling, which is nothing beside a shard's work: `as_completed` waits for ever for a future that was
    cancelled with its pool, and a Dask client's futures are its own."""
    left = set(futures)
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
    places: DigestMap | None = None,
    rows: Callable[[Run], Iterable[Row]] = Run.iter_records,
    facts: Callable[[], Mapping[str, Any]] = dict,
    aside: bool = False,
) -> Run:
    """One run folder out of several that were made with one configuration; these are left as they are.

    An output that was merged before is replaced when all of the new one is written; its labels stay, and
    those of the other folders are added. places: {problem id: position in the whole input}; None = one
    folder's problems after another's. rows: how a run is read; facts: more for report.json, asked for when
    all rows are read. aside: what was merged before is set aside, as by resume="never".

    Raises RunError for configurations that differ (with the keys that do), for a problem in two folders, and
    for an output that holds anything that is not in them: a run that no merge made, or another problem.
    """
    runs, output = [Run(folder) for folder in folders], run_folder(output)
    paths = {run.path.resolve() for run in runs}
    if len(paths) < len(runs):
        raise RunError("a run folder is named twice")
    if not runs:
        raise RunError("there is nothing to merge: name at least one run folder")
    if output.resolve() in paths:
        raise RunError(f"{output} is itself among the runs to merge: name another output")
    for run in runs[1:]:
        if lines := differences(runs[0].config, run.config):
            raise RunError(
                f"{runs[0].path} and {run.path} were made with other configurations:\n  " + "\n  ".join(lines)
            )
    owners = DigestMap()  # id -> which of the runs
    for which, run in enumerate(runs):
        for row in run.iter_records():
            if (other := owners.get(row.id)) not in (None, which):
                raise RunError(f"problem {row.id!r} is in {runs[other].path} and in {run.path}")
            owners[row.id] = which
    _refuse_loss(output, runs[0].config, owners, aside)
    reports = [run.report for run in runs]
    made_of = {"merged": [str(run.path) for run in runs]}
    with replaced_run(output, runs[0].config, runtime=made_of, aside=aside) as folder:
        offset = 0
        for run, report in zip(runs, reports, strict=True):
            for row in rows(run):
                row.index = row.index + offset if places is None else places[row.id]
                folder.append(row)
            offset += report["given"]
        ledger = merge_ledgers([run.path / "calls.jsonl" for run in runs], folder.path / "calls.jsonl")
        stopped = [report["stopped"] for report in reports if report.get("stopped")]
        known = {"ledger": ledger, "seconds": max(report.get("seconds", 0.0) for report in reports)}
        known |= {"name": output.name, "stopped": stopped[0] if stopped else None}
        folder.write_report(offset, **known, **facts())
    _add_labels(output, runs)
    return Run(output)


def _refuse_loss(output: pathlib.Path, config: dict[str, Any], known: Container[str], aside: bool) -> None:
    """RunError where `output` holds what merging would replace and what is nowhere else."""
    why = None
    if not (output / "config.json").is_file():
        names = ("rows.jsonl", "drops.jsonl", "calls.jsonl", "report.json")
        if (output / REPLACING).is_dir():
            return  # a merge was killed when it was about to replace
        why = next((f"{name} but no config.json" for name in names if (output / name).exists()), None)
    elif "merged" not in (old := Run(output)).runtime:
        why = "a run that no merge made"
    elif aside:
        return
    elif lines := differences(old.config, config):
        why = f"a run of another configuration ({'; '.join(lines)})"
    elif lost := [row.id for row in old.iter_records() if row.id not in known]:
        why = f"{len(lost)} problems that are in none of the runs to merge, first {lost[0]!r}"
    if why:
        raise RunError(f"{output} holds {why}. It was left as it is: name another output")


def _add_labels(output: pathlib.Path, runs: Sequence[Run]) -> None:
    """What persons said of the merged traces in their own folders; of one trace, the last word comes last."""
    known = [label for label, _ in read_lines(output / "labels.jsonl")]
    said = [label for run in runs for label, _ in read_lines(run.path / "labels.jsonl")]
    if new := [label for label in said if label not in known]:
        ids = {label.get("id") for label in new}
        again = [label for label in known if label.get("id") in ids]
        journal = Journal(output / "labels.jsonl")
        for label in sorted([*new, *again], key=lambda label: str(label.get("at"))):
            journal.append(label)
        journal.close()
