"""A run folder, read: its report, its rows in input order, what they are exported to.

`open_run` gives what the folder is: a `Run`, or a `SelfImprovement`, whose rows stand in the folders of its
cycles.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from cotkit.paths import run_folder
from cotkit.records import Row
from cotkit.runs.folder import JOURNALS, RunError, read_json, sizes
from cotkit.runs.frames import attempts_frame, rows_frame, triples_frame
from cotkit.runs.journal import read_lines, whole_lines

if TYPE_CHECKING:
    import pandas

    from cotkit.runs.export import ExportReport


_SHOWN = 8


class Run:
    """A run folder, read. `rows` and `drops` are DataFrames, `records()` the full rows with candidates."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = run_folder(path)
        if not (self.path / "config.json").is_file():
            inside = sorted(found.parent.name for found in self.path.glob("*/config.json"))
            more = f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
            listed = f". Run folders in it: {', '.join(inside[:_SHOWN])}{more}" if inside else ""
            raise RunError(f"{self.path} is no run folder: it has no config.json{listed}")

    @property
    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json").get("config", {})

    @property
    def runtime(self) -> dict[str, Any]:
        """What config.json records beside the configuration: budgets, limits, versions of the last call."""
        return read_json(self.path / "config.json").get("runtime", {})

    @property
    def report(self) -> dict[str, Any]:
        """report.json; where it is not about the rows that are there, as after a kill, their counts and what
        the last report knew."""
        path = self.path / "report.json"
        last = read_json(path) if path.is_file() else {}
        if last and last.get("stopped") != "running" and last.get("bytes") in (None, sizes(self.path)):
            return last
        kept = sum(1 for _ in read_lines(self.path / "rows.jsonl"))
        drops = Counter(record["drop_reason"] for record, _ in read_lines(self.path / "drops.jsonl"))
        given = max(last.get("given", 0), kept + sum(drops.values()))
        if unfinished := given - kept - sum(drops.values()):
            drops["unfinished"] = unfinished
        counts = {"given": given, "kept": kept, "drops": dict(drops), "complete": False}
        return {**last, "name": self.path.name, **counts, "stopped": "it is running, or was killed"}

    def iter_records(self) -> Iterator[Row]:
        """The rows in input order, one by one: in memory is where each of them starts."""
        paths = [self.path / name for name in JOURNALS if (self.path / name).exists()]
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context(open(path, "rb")) for path in paths]
            for file, start in _in_order(files):
                file.seek(start)
                yield Row.model_validate(json.loads(file.readline()))

    def records(self, accepted: bool | None = None) -> list[Row]:
        """All rows in input order; `accepted=True` only the kept ones, `False` only the dropped ones."""
        return [row for row in self.iter_records() if accepted is None or row.accepted == accepted]

    @property
    def parts(self) -> dict[int | None, Run]:
        """The run folders that hold the rows, by their cycle: this one (None) where there are no cycles."""
        return {None: self}

    def _by_cycle(self) -> Iterator[tuple[int | None, Row]]:
        return ((cycle, row) for cycle, part in self.parts.items() for row in part.iter_records())

    @property
    def attempts(self) -> pandas.DataFrame:
        """Every trace, kept or not, one line each: where it comes from, verdict, scores, what was said of it,
        model and prompt. `cycle` is missing where there are none."""
        return attempts_frame(self._by_cycle())

    @property
    def triples(self) -> pandas.DataFrame:
        """Every refinement, one line each: problem, attempt, critique, improved attempt, and whether it
        became right (missing where a verdict could not be decided)."""
        return triples_frame(self._by_cycle())

    @property
    def rows(self) -> pandas.DataFrame:
        """The kept problems, one line each, with their final trace."""
        return rows_frame(row for row in self.iter_records() if row.accepted)

    @property
    def drops(self) -> pandas.DataFrame:
        """The problems that were not kept, with their drop_reason and the best trace they have."""
        return rows_frame(row for row in self.iter_records() if not row.accepted)

    def export(
        self, path: str | os.PathLike[str], format: str = "trl_sft", *, card: bool = True, **options: Any
    ) -> ExportReport:
        """Write a data set, validated for its target, with a dataset card beside it. Rows are read, written
        and validated one by one, so that a run of any size can be exported."""
        from cotkit.runs.export import export_rows

        facts = {"config": self.config, "report": self.report} if card else None
        return export_rows(_Rows(self), path, format, facts=facts, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}: {counts_line(self.report)})"

    def _repr_html_(self) -> str:
        report = self.report
        items = [("given", report["given"]), ("kept", report["kept"]), *report["drops"].items()]
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(str(name))}</th><td>{count}</td></tr>"
            for name, count in items
        )
        note = f"<p>{html.escape(report['stopped'])}</p>" if report.get("stopped") else ""
        return f"<b>{html.escape(self.path.name)}</b> <code>{html.escape(str(self.path))}</code>{note}" + (
            f"<table>{cells}</table>"
        )


class SelfImprovement(Run):
    """A self-improvement run, finished or stopped: its `report`, the reports of its `cycles`, all
    trajectories as `records()`, `attempts` and `triples`. `champion` is the best actor, ready to be asked
    (None when only read from disk)."""

    champion: Any = None

    @property
    def report(self) -> dict[str, Any]:
        """report.json; where it is not about the cycles that are there, as after a kill, the counts of those
        that are over and what the last report knew."""
        path, folders = self.path / "report.json", sorted(self.path.glob("cycle-*"))
        last = read_json(path) if path.is_file() else {}
        written = [folder / "report.json" for folder in folders]
        cycles = [read_json(report) for report in written if report.is_file()]
        if last and len(cycles) == len(folders) and last["cycles"] == cycles:
            return last
        counts = [cycle["counts"] for cycle in cycles]
        drops: Counter[str] = sum((Counter(count["drops"]) for count in counts), Counter())
        sums = {"given": sum(c["generated"] for c in counts), "kept": sum(c["kept"] for c in counts)}
        now = {"name": self.path.name, **sums, "drops": dict(drops), "cycles": cycles, "complete": False}
        unknown = {"champion": None, "test": None, "notes": []}
        return {**unknown, **last, **now, "stopped": "it is running, or was killed"}

    @property
    def cycles(self) -> list[dict[str, Any]]:
        return self.report["cycles"]

    @property
    def parts(self) -> dict[int | None, Run]:
        """The run folder of each cycle's drafts: a problem stands once in each that worked on it."""
        found = sorted(self.path.glob("cycle-*/generate/config.json"))
        return {int(path.parts[-3].removeprefix("cycle-")): Run(path.parent) for path in found}

    def iter_records(self) -> Iterator[Row]:
        """Cycle by cycle, each in input order; a problem stands once for each cycle that worked on it."""
        for part in self.parts.values():
            yield from part.iter_records()

    def test_rows(self, actor: str) -> list[Row]:
        """What an actor named in `report["test"]["actors"]` did on the test set."""
        return Run(self.path / "test" / actor.replace(" ", "-")).records()


def _in_order(files: Sequence[BinaryIO]) -> Iterator[tuple[BinaryIO, int]]:
    """Where each row starts, by their indexes; of equal ones that of the earlier file comes first."""
    indexes, places = array("q"), array("Q")
    for which, file in enumerate(files):
        start = 0
        for record, end in whole_lines(file):
            index = record.get("index") if isinstance(record, dict) else None
            indexes.append(index if isinstance(index, int) else 0)  # no row: refused when it is read
            places.append(len(files) * start + which)
            start = end
    order = sorted(range(len(places)), key=indexes.__getitem__)
    places = array("Q", (places[number] for number in order))
    del order, indexes
    for place in places:
        start, which = divmod(place, len(files))
        yield files[which], start


class _Rows(Iterable[Row]):
    """The rows of a run, which can be gone over more than once."""

    def __init__(self, run: Run):
        self._run = run

    def __iter__(self) -> Iterator[Row]:
        return self._run.iter_records()


def counts_line(report: dict[str, Any]) -> str:
    """`12 given = 9 kept + 3 dropped (2 wrong_answer, 1 below_threshold)`, and what is unfinished."""
    drops = dict(report["drops"])
    unfinished = drops.pop("unfinished", 0)
    why = ", ".join(f"{count} {reason}" for reason, count in drops.items())
    tail = (f" ({why})" if why else "") + (f" + {unfinished} unfinished" if unfinished else "")
    return f"{report['given']} given = {report['kept']} kept + {sum(drops.values())} dropped{tail}"


_KINDS = {"self_improve": SelfImprovement}  # pipeline: what its folder is read as; else a Run


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in a folder, or of that name under `runs/`: of self-improvement a `SelfImprovement`."""
    run = Run(path)
    return _KINDS.get(run.config.get("pipeline"), Run)(path)
