"""One run folder out of several that were made with one configuration: shards, or the parts of an array job.

Merging again replaces what was merged before and nothing else: labels stay, and what is in no run to merge is
never replaced. What more there is to the shards of a synthesis stands in synthesis_merging.py.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from cotkit.chat import merge_ledgers
from cotkit.paths import run_folder
from cotkit.records import Row
from cotkit.runs import REPLACING, DigestMap, Journal, Run, RunError, open_run, read_lines, replaced_run
from cotkit.runs import config_differences as differences
from cotkit.whole import sync_entries

MERGED = ("distill", "synthesize")
SHARDS = pathlib.Path("shards", "shards.json")  # in a run folder: it is made of shards, and of how many


def merge_runs(
    folders: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    given: int | None = None,
    places: Callable[[Row], int] | None = None,
    stopped: str | None = None,
) -> Run:
    """One run folder out of several that were made with one configuration; these are left as they are.

    An output that was merged before is replaced when all of the new one is written; its labels stay, and
    those of the other folders are added. places: a row -> its place in the whole input; None = one folder's
    problems after another's, and of a synthesis the attempts' numbers. given: how many problems (of a
    synthesis, attempts) there are in all; None = as many as the runs were given. stopped: why not all of
    them are finished; None = as the runs say.

    Raises RunError for runs that are not of distill or synthesize, for configurations that differ (with the
    keys that do), for a problem in two folders, and for an output that holds anything that is not in them: a
    run that no merge made, or another problem.
    """
    runs, output = [Run(folder) for folder in folders], run_folder(output)
    owners = _checked(runs, output)
    reports = [run.report for run in runs]
    settle, facts = _nothing, _nothing
    if runs[0].config.get("pipeline") == "synthesize":
        from cotkit.pipelines.synthesis_merging import SynthesisMerging, attempt_of  # made of distill's parts

        synthesis, places = SynthesisMerging(runs, reports), attempt_of
        settle, facts = synthesis.settle, synthesis.facts
    _refuse_loss(output, runs[0].config, owners)
    made_of = {"merged": [str(run.path) for run in runs]}
    with replaced_run(output, runs[0].config, runtime=made_of) as folder:
        offset = 0
        for run, report in zip(runs, reports, strict=True):
            for row in run.iter_records():
                settle(row)
                row.index = row.index + offset if places is None else places(row)
                folder.append(row)
            offset += report["given"]
        ledger = merge_ledgers([run.path / "calls.jsonl" for run in runs], folder.path / "calls.jsonl")
        seconds = max(report.get("seconds", 0.0) for report in reports)
        stopped = stopped or next((report["stopped"] for report in reports if report.get("stopped")), None)
        given = offset if given is None else given
        known = {"name": output.name, "stopped": stopped, "seconds": seconds, "ledger": ledger}
        folder.write_report(given, **known, **facts(given))
    _add_labels(output, runs)
    return Run(output)


def _nothing(_: Any) -> dict[str, Any]:
    return {}


def _checked(runs: Sequence[Run], output: pathlib.Path) -> DigestMap:
    """{id: which of the runs has it}; RunError for runs that are not parts of one."""
    paths = {run.path.resolve() for run in runs}
    if len(paths) < len(runs):
        raise RunError("a run folder is named twice")
    if not runs:
        raise RunError("there is nothing to merge: name at least one run folder")
    if output.resolve() in paths:
        raise RunError(f"{output} is itself among the runs to merge: name another output")
    for run in runs:
        _refuse_others(run)
    for run in runs[1:]:
        if lines := differences(runs[0].config, run.config):
            raise RunError(
                f"{runs[0].path} and {run.path} were made with other configurations:\n  " + "\n  ".join(lines)
            )
    owners = DigestMap()
    for which, run in enumerate(runs):
        for row in run.iter_records():
            if (other := owners.get(row.id)) not in (None, which):
                raise RunError(
                    f"problem {row.id!r} is in {runs[other].path} and in {run.path}"
                    + _why_twice(row, run, runs[other])
                )
            owners[row.id] = which
    return owners


def _refuse_others(run: Run) -> None:
    """RunError where the rows stand in other folders, or are of another kind."""
    if (pipeline := run.config.get("pipeline")) in MERGED:
        return
    cycles = [str(part.path) for part in open_run(run.path).parts.values() if part.path != run.path]
    of_it = f". Of this one, the run folders of its cycles are such: {', '.join(cycles)}" if cycles else ""
    raise RunError(
        f"{run.path} is a run of {pipeline}: only those of distill and synthesize are merged{of_it}"
    )


def _why_twice(row: Row, run: Run, other: Run) -> str:
    if run.config.get("pipeline") != "synthesize":
        if any(known.id == row.id and known.problem == row.problem for known in other.iter_records()):
            return ""
        return (
            ". They are two problems with one id: where rows bring no ids, each source numbers its own from "
            "0. Fix: give the rows ids, or load them as one source and cut it: problems[:100], problems[100:]"
        )
    return (
        ". Every synthesis numbers its attempts from 0, so only the shards of one can be merged; of two "
        "runs, take synthesized_problems of each"
    )


def _refuse_loss(output: pathlib.Path, config: dict[str, Any], known: Container[str]) -> None:
    """RunError where `output` holds what merging would replace and what is nowhere else."""
    why = None
    if not (output / "config.json").is_file():
        names = ("rows.jsonl", "drops.jsonl", "calls.jsonl", "report.json")
        if (output / REPLACING).is_dir() or (output / SHARDS).is_file():
            return  # a merge was killed when it was about to replace, or the old one was set aside
        why = next((f"{name} but no config.json" for name in names if (output / name).exists()), None)
    elif "merged" not in (old := Run(output)).runtime:
        why = "a run that no merge made"
    elif lines := differences(old.config, config):
        why = f"a run of another configuration ({'; '.join(lines)})"
    elif lost := [row.id for row in old.iter_records() if row.id not in known]:
        why = f"{len(lost)} problems that are in none of the runs to merge, first {lost[0]!r}"
    if why:
        raise RunError(f"{output} holds {why}. It was left as it is: name another output")


def _add_labels(output: pathlib.Path, runs: Iterable[Run]) -> None:
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
        sync_entries(output)
