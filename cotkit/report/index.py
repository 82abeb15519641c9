"""`reports/index.html`: the runs of a reports folder, the newest first, each with its key numbers."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any

from cotkit.report import files, views

KEY_NUMBERS = 4


def write_index(folder: pathlib.Path) -> pathlib.Path:
    """Write `folder/index.html` from the report.json files below it; one that cannot be read is left out."""
    from cotkit.report.record import read_record

    runs = []
    for path in folder.glob("*/report.json"):
        record = read_record(path)
        if not (record["title"] or record["notebook"]):
            continue
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # somebody else's report.json
            runs.append(_line(path, record))
    runs.sort(key=lambda run: run["started"], reverse=True)
    target = folder / "index.html"
    files.write_text(target, views.fill("index.html.j2", runs=runs))
    return target


def _line(path: pathlib.Path, record: dict[str, Any]) -> dict[str, Any]:
    page = path.with_name("report.html")
    return {
        "name": path.parent.name,
        "title": record["title"] or record["notebook"],
        "page": f"{path.parent.name}/report.html" if page.is_file() else None,
        "status": record["status"],
        "started": str(record["started"]),
        "seconds": record["seconds"],
        "metrics": record["metrics"][:KEY_NUMBERS],
        "findings": [finding["text"] for finding in record["findings"][:1]],
        "error": f"{error['name']}: {error['message']}" if (error := record["error"]) else None,
    }
