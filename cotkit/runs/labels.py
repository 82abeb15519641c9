"""What a person said about traces: `labels.jsonl` beside the run's rows, one line each, the last one holds.

A label is about one candidate of one problem, and about its text: it carries a hash of the trace and says
nothing of another that stands there later. `tune_thresholds(run, label="person")` takes `good` and `bad`
as ground truth, in place of what a program found; `unsure` is no label.
"""

from __future__ import annotations

import datetime
import getpass
import hashlib
import pathlib
from typing import TYPE_CHECKING, Any, Literal

from cotkit.runs.journal import Journal, read_lines
from cotkit.runs.reading import Run
from cotkit.whole import sync_entries

if TYPE_CHECKING:
    import pandas

Label = Literal["good", "bad", "unsure"]
LABELS = ("good", "bad", "unsure")
COLUMNS = ["id", "candidate", "label", "note", "by", "at"]


def add_label(
    run: Run,
    id: str,
    candidate: int,
    label: Label,
    note: str = "",
    by: str | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """Writes one label, at once, and returns it. `trace`: the text it is about (None = looked up in the run).
    Raises ValueError for a label that is none of good, bad, unsure, and for a trace that is not there."""
    if label not in LABELS:
        raise ValueError(f"a label is one of {', '.join(LABELS)}; got {label!r}")
    if trace is None:
        row = next((row for row in run.iter_records() if row.id == id), None)
        if row is None or not 0 <= candidate < len(row.candidates):
            raise ValueError(f"{run.path} has no candidate {candidate!r} of problem {id!r}")
        trace = row.candidates[candidate].trace
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = {"id": id, "candidate": candidate, "label": label, "note": note, "by": by or _user(), "at": at}
    record["trace"] = _hash(trace)
    journal = Journal(run.path / "labels.jsonl")
    try:
        journal.append(record)
    finally:
        journal.close()
    sync_entries(run.path)
    return record


def is_about(label: dict[str, Any], trace: str) -> bool:
    """Whether a label is about this text; one written by hand without a hash is taken at its word."""
    return label.get("trace") in (None, _hash(trace))


def read_labels(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    """{(problem id, candidate): the last label given to it}; `disputed` where the last words of two persons
    differ. Raises ValueError, with the line, for a label that is none."""
    path, found, said = run.path / "labels.jsonl", {}, {}
    for number, (record, _) in enumerate(read_lines(path), 1):
        _check(record, path, number)
        key = record["id"], record["candidate"]
        each = said.setdefault((key, str(record.get("trace"))), {})
        each[str(record.get("by"))] = record["label"]
        found[key] = record | {"disputed": len(set(each.values())) > 1}
    return found


def _check(record: Any, path: pathlib.Path, number: int) -> None:
    kinds = {"id": str, "candidate": int, "label": str}
    if not isinstance(record, dict):
        raise ValueError(f"{path}, line {number}: {record!r:.80} is no label; remove the line")
    wrong = [name for name, kind in kinds.items() if type(record.get(name)) is not kind]
    wrong += ["label"] if not wrong and record["label"] not in LABELS else []
    if wrong:
        needs = "an id in quotes, a candidate (a whole number) and a label (good, bad or unsure)"
        raise ValueError(f"{path}, line {number}, {wrong[0]}: got {record.get(wrong[0])!r}; it needs {needs}")


def _hash(trace: str) -> str:
    return hashlib.sha256(trace.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def labels_frame(run: Run) -> pandas.DataFrame:
    """One line a labelled candidate: id, candidate, label, note, by, at; of a run with cycles, of all."""
    import pandas

    said = [label for part in run.parts.values() for label in read_labels(part).values()]
    kinds = dict.fromkeys(COLUMNS, object) | {"candidate": None}  # pandas' own strings hold no lone surrogate
    return pandas.DataFrame(
        {name: pandas.Series([one.get(name) for one in said], dtype=kind) for name, kind in kinds.items()}
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
