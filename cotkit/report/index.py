"""`reports/index.html`: the runs of a folder by notebook, the newest first, with their key numbers."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
from typing import Any

from cotkit.report import files, views
from cotkit.report.compare import same_notebook
from cotkit.report.record import load_record

KEY_NUMBERS = 4


def write_index(folder: pathlib.Path) -> pathlib.Path:
    """Write `folder/index.html` from the report.json files below it; one that cannot be read is left out."""
    runs = _runs(folder)
    names = {record["title"]: record["notebook"] for _, record in runs if record["notebook"]}
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, record in runs:
        notebook = record["notebook"] or names.get(record["title"], record["title"])
        groups.setdefault(notebook, []).append(_line(path, record))
    target = folder / "index.html"
    files.write_text(target, views.fill("index.html.j2", groups=groups, count=len(runs), folder=folder.name))
    return target


def previous_run(folder: pathlib.Path, record: dict[str, Any]) -> pathlib.Path | None:
    """The folder of the newest complete run of the same notebook before this one, which has that `record`."""
    for path, other in _runs(folder.parent):
        earlier = path != folder and _started(other) < _started(record)
        if earlier and other["status"] == "complete" and same_notebook(other, record):
            return path
    return None


def _runs(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict[str, Any]]]:
    """The reports of a folder, the newest first."""
    found = []
    for path in folder.glob("*/report.json"):
        with contextlib.suppress(ValueError):  # somebody else's report.json
            record = load_record(path)
            found.append((_started(record), path.parent, record))
    return [run for _, *run in sorted(found, key=lambda run: run[0], reverse=True)]


def _started(record: dict[str, Any]) -> datetime.datetime:
    """The instant: times that were written under different offsets do not sort as texts."""
    return datetime.datetime.fromisoformat(record["started"]).astimezone(datetime.UTC)


def _line(folder: pathlib.Path, record: dict[str, Any]) -> dict[str, Any]:
    files_there = {"report": "report.html", "notebook": "notebook.ipynb", "numbers": "report.json"}
    return {
        "name": folder.name,
        "links": {word: file for word, file in files_there.items() if (folder / file).is_file()},
        "comparisons": sorted(path.name for path in folder.glob("against-*.html")),
        "set": {name: record["parameters"][name] for name in record["given"] if name in record["parameters"]},
        **{key: record[key] for key in ("status", "started", "seconds", "error")},
        "metrics": record["metrics"][:KEY_NUMBERS],
        "findings": [finding["text"] for finding in record["findings"][:1]],
    }
