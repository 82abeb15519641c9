"""What a person said about traces: `labels.jsonl` beside the run's rows, one line each, the last one holds.

A label is about one candidate of one problem. `tune_thresholds(run, label="person")` takes `good` and `bad`
as ground truth, in place of what a program found; `unsure` is no label.
"""

from __future__ import annotations

import datetime
import getpass
from typing import TYPE_CHECKING, Any, Literal

from cotkit.runs.folder import Run
from cotkit.runs.journal import Journal, read_lines

if TYPE_CHECKING:
    import pandas

Label = Literal["good", "bad", "unsure"]
LABELS = ("good", "bad", "unsure")
COLUMNS = ["id", "candidate", "label", "note", "by", "at"]


def add_label(run: Run, id: str, candidate: int, label: Label, note: str = "", by: str | None = None) -> None:
    """Writes one label, at once. Raises ValueError for a label that is none of good, bad, unsure."""
    if label not in LABELS:
        raise ValueError(f"a label is one of {', '.join(LABELS)}; got {label!r}")
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    journal = Journal(run.path / "labels.jsonl", lambda record: None)
    try:
        journal.append(
            {"id": id, "candidate": candidate, "label": label, "note": note, "by": by or _user(), "at": at}
        )
    finally:
        journal.close()


def read_labels(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    """{(problem id, candidate): the last label given to it}."""
    return {(r["id"], r["candidate"]): r for r, _ in read_lines(run.path / "labels.jsonl")}


def labels_frame(run: Run) -> pandas.DataFrame:
    """One line a labelled candidate: id, candidate, label, note, by, at."""
    import pandas

    return pandas.DataFrame(list(read_labels(run).values()), columns=COLUMNS)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
