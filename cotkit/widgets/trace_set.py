"""The problems of a run for browsing: filtered, sorted, one after another, labelled. No widget in here.

The rows are indexed once, a light line each with its place in the file; a whole row is read when it is looked
at, so that ten thousand problems cost a moment at the start and nothing later.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from cotkit.paths import file_path
from cotkit.records import Row
from cotkit.runs import LABELS, Run, add_label, is_about, read_labels, read_lines, write_lines

VERDICTS = {True: "right", False: "wrong", None: "undecided"}
SORTS = ("input order", "score", "length", "iterations", "time")
SPANS = ("score", "length", "iterations")
ANY = "any"
Key = tuple[int, str, int]  # of a label: the run's folder, the problem, the candidate


@dataclass(frozen=True)
class Line:
    """What the index knows of a problem."""

    id: str
    index: int
    type: str
    accepted: bool
    drop_reason: str
    verdict: str  # of the final trace
    score: float | None
    length: int  # of the final trace, in characters
    iterations: int
    seconds: float
    words: str  # of the problem, in small letters, for the search
    part: int  # which of the run's folders, then where in it
    file: str
    start: int
    end: int


@dataclass
class Filter:
    """What is looked at. ANY, "" and None let everything pass; a span is (least, most)."""

    verdict: str = ANY
    outcome: str = ANY  # "kept", "dropped", or a drop_reason
    type: str = ANY
    label: str = ANY  # good, bad, unsure: of any of its traces; none
    search: str = ""
    score: tuple[float, float] | None = None
    length: tuple[float, float] | None = None
    iterations: tuple[float, float] | None = None

    def passes(self, line: Line, labels: Collection[str]) -> bool:
        return (
            self.verdict in (ANY, line.verdict)
            and self.outcome in (ANY, "kept" if line.accepted else "dropped", line.drop_reason)
            and self.type in (ANY, line.type)
            and self.label in (ANY, *(labels or ["none"]))
            and self.search.lower() in line.words
            and all(self._within(name, line) for name in SPANS)
        )

    def _within(self, name: str, line: Line) -> bool:
        span, value = getattr(self, name), getattr(line, name)
        return span is None or (value is not None and span[0] <= value <= span[1])


@dataclass
class TraceSet:
    """The problems of a run under a filter, and which one is looked at (`place`, 0 = the first of them)."""

    run: Run
    filter: Filter = field(default_factory=Filter)
    sort: str = SORTS[0]
    place: int = 0

    def __post_init__(self) -> None:
        self.parts = list(self.run.parts.values())  # of a self-improvement run one a cycle
        self.labels: dict[Key, dict[str, Any]] = {}
        self.lines: list[Line] = []
        for number, part in enumerate(self.parts):
            self.labels |= {(number, *key): said for key, said in read_labels(part).items()}
            self.lines += sorted(_index(part, number, self.labels), key=lambda line: line.index)
        self.apply()

    def apply(self, **changes: Any) -> None:
        """Changes the filter or the sort, and starts again at the first problem."""
        sort = changes.pop("sort", self.sort)
        if sort not in SORTS:
            raise ValueError(f"sort is one of {', '.join(SORTS)}; got {sort!r}")
        if unknown := [name for name in changes if not hasattr(self.filter, name)]:
            raise ValueError(f"there is no filter {unknown[0]!r}; there are: {', '.join(vars(self.filter))}")
        self.sort, self.filter = sort, dataclasses.replace(self.filter, **changes)
        said: dict[tuple[int, str], set[str]] = {}
        for (part, id, _), entry in self.labels.items():
            said.setdefault((part, id), set()).add(entry["label"])
        labels = ((line, said.get((line.part, line.id), ())) for line in self.lines)
        chosen = [line for line, own in labels if self.filter.passes(line, own)]
        self.chosen = sorted(chosen, key=_SORT_KEYS[self.sort])
        self.place = 0

    def step(self, by: int) -> None:
        """The next or an earlier problem; stays at the ends."""
        self.place = min(max(self.place + by, 0), max(len(self.chosen) - 1, 0))

    @property
    def row(self) -> Row | None:
        """The problem that is looked at, whole."""
        if not self.chosen:
            return None
        return Row.model_validate(json.loads(self._whole(self.chosen[self.place])))  # as a Run reads it

    def label(self, candidate: int) -> dict[str, Any] | None:
        """What was last said of a candidate of the problem that is looked at."""
        return self.labels.get(self._key(candidate)) if self.chosen else None

    @property
    def cycle(self) -> int | None:
        """Of the problem that is looked at; None in a run without cycles."""
        return list(self.run.parts)[self.chosen[self.place].part] if self.chosen else None

    def _key(self, candidate: int) -> Key:
        line = self.chosen[self.place]
        return line.part, line.id, candidate

    def say(self, candidate: int, label: str, note: str = "") -> None:
        """Labels a candidate of the problem that is looked at; written beside the run at once."""
        row = self.row
        if not 0 <= candidate < len(row.candidates):
            raise ValueError(f"problem {row.id!r} has no candidate {candidate}; it has {len(row.candidates)}")
        key, trace = self._key(candidate), row.candidates[candidate].trace
        self.labels[key] = add_label(self.parts[key[0]], row.id, candidate, label, note, trace=trace)

    def export(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """The chosen problems, whole rows, as JSON lines."""
        target = file_path(path)
        write_lines(target, (json.loads(self._whole(line)) for line in self.chosen))
        return target

    def choices(self, name: str) -> list[str]:
        """What a filter can be set to."""
        found = {
            "verdict": list(VERDICTS.values()),
            "outcome": ["kept", "dropped", *sorted({x.drop_reason for x in self.lines if x.drop_reason})],
            "type": sorted({line.type for line in self.lines if line.type}),
            "label": [*LABELS, "none"],
        }
        return [ANY, *found[name]]

    def span(self, name: str) -> tuple[float, float]:
        """The least and the most there is of score, length or iterations."""
        values = [value for line in self.lines if (value := getattr(line, name)) is not None]
        low, high = (min(values), max(values)) if values else (0, 0)
        return (math.floor(20 * low) / 20, math.ceil(20 * high) / 20) if name == "score" else (low, high)

    def _whole(self, line: Line) -> bytes:
        with open(self.parts[line.part].path / line.file, "rb") as file:
            file.seek(line.start)
            return file.read(line.end - line.start)


def _index(run: Run, part: int, labels: dict[Key, dict[str, Any]]) -> Iterable[Line]:
    """The lines; takes out labels about other traces than stand there now."""
    for name in ("rows.jsonl", "drops.jsonl"):
        start = 0
        for record, end in read_lines(run.path / name):
            for number, candidate in enumerate(record.get("candidates", [])):
                key = part, record["id"], number
                if key in labels and not is_about(labels[key], candidate.get("trace", "")):
                    del labels[key]
            yield _line(record, part, name, start, end)
            start = end


def _line(record: dict[str, Any], part: int, file: str, start: int, end: int) -> Line:
    candidates = record.get("candidates", [])
    final = candidates[record["final"]] if record.get("final") is not None else {}
    scores = list(((final.get("judgement") or {}).get("scores") or {}).values())
    return Line(
        id=record["id"],
        index=record["index"],
        type=record.get("type") or "",
        accepted=record["accepted"],
        drop_reason=record.get("drop_reason") or "",
        verdict=VERDICTS[(final.get("verdict") or {}).get("correct")],
        score=sum(scores) / len(scores) if scores and None not in scores else None,  # null was a NaN
        length=len(final.get("trace", "")),
        iterations=max((c.get("iteration", 0) for c in candidates), default=0),
        seconds=record.get("seconds", 0.0),
        words=f"{record['id']} {record['problem']}".lower(),
        part=part,
        file=file,
        start=start,
        end=end,
    )


_SORT_KEYS = {
    "input order": lambda line: 0,  # as they stand
    "score": lambda line: (line.score is None, line.score or 0.0),
    "length": lambda line: -line.length,
    "iterations": lambda line: -line.iterations,
    "time": lambda line: -line.seconds,
}
