"""Two runs of one notebook on one page: what was asked differently, and what came of it.

Parameters that differ, metrics beside each other with their difference, the findings and figures of each. The
page stands alone like a report's. A report states counts and intervals, not its problems one by one, so a
difference is taken between independent values: for runs over the same problems its interval is, if anything,
too wide.
"""

from __future__ import annotations

import math
import os
import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from cotkit.paths import root
from cotkit.report import files, views
from cotkit.report.page import safe
from cotkit.report.record import FIGURE_SCALE, load_record

Metric = Mapping[str, Any]


def compare_reports(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Write the page that compares two runs of one notebook and return its path.

    `first` and `second` are a report's folder, its report.json, or a name under `reports/`; differences are
    `second` - `first`. The page goes to `output`, by default into `second`'s folder, where `write_index`
    finds it. Raises ValueError for what is no report, runs of different notebooks and one run given twice.
    """
    folders = [_folder(first), _folder(second)]
    records = [load_record(folder / "report.json") for folder in folders]
    if folders[0] == folders[1]:
        raise ValueError(f"{folders[0]} is given twice: name two runs of one notebook")
    notebooks = [record["notebook"] or record["title"] for record in records]
    if not same_notebook(*records):
        raise ValueError(
            f"{folders[0].name} is a run of {notebooks[0]!r} and {folders[1].name} one of {notebooks[1]!r}: "
            "only runs of one notebook can be compared"
        )
    page = pathlib.Path(output or folders[1] / f"against-{folders[0].name}.html").expanduser()
    files.write_text(page, _render(folders, records, page.resolve().parent))
    return page


def same_notebook(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """By the notebook's name, or by the report's title where a run in JupyterLab does not know that name."""
    key = "notebook" if first["notebook"] and second["notebook"] else "title"
    return first[key] == second[key]


def difference(first: Metric, second: Metric) -> tuple[float, tuple[float, float] | None] | None:
    """`second` - `first` in the metric's unit, and its 95 % interval when both values have one.

    None where a difference means nothing: text, a value that is not known, units that differ. The interval
    adds the distances from the values to their limits in square, taking the values as independent.
    Sources: Newcombe (1998), Statistics in Medicine 17:873-890, method 10 (rates); Zou and Donner (2008),
    Statistics in Medicine 27:1693-1702 (any values with intervals).
    """
    a, b = first["value"], second["value"]
    if first["unit"] != second["unit"] or not all(type(value) in (int, float) for value in (a, b)):
        return None
    limits = [*(first["interval"] or [None]), *(second["interval"] or [None])]
    if None in limits:
        return b - a, None
    low_a, high_a, low_b, high_b = limits
    low, high = math.hypot(b - low_b, high_a - a), math.hypot(high_b - b, a - low_a)
    return b - a, (b - a - low, b - a + high)


def _folder(given: str | os.PathLike[str]) -> pathlib.Path:
    path = pathlib.Path(given).expanduser()
    if not path.exists():
        path = root() / "reports" / path
    if not path.exists():
        raise ValueError(
            f"there is no report {os.fspath(given)!r}: name a folder of reports/ or its report.json"
        )
    return (path if path.is_dir() else path.parent).resolve()


def _render(folders: list[pathlib.Path], records: list[dict[str, Any]], place: pathlib.Path) -> str:
    """The page, with links that hold for a page in the folder `place`."""
    names = [folder.name for folder in folders]
    if names[0] == names[1]:
        names = [str(folder) for folder in folders]
    differing, equal = _parameters(*records)
    said = [[finding["text"] for finding in record["findings"]] for record in records]
    both = [text for text in said[0] if text in said[1]]
    return views.fill(
        "compare.html.j2",
        title=records[1]["title"] or records[1]["notebook"],
        runs=[
            {**record, "name": name, "page": _link(folder / "report.html", place), "checks": _checks(record)}
            for name, folder, record in zip(names, folders, records, strict=True)
        ],
        differing=differing,
        equal=equal,
        metrics=_metrics(*(record["metrics"] for record in records)),
        both=both,
        findings=[[text for text in texts if text not in both] for texts in said],
        figures=_figures(folders, records, names),
    )


def _link(page: pathlib.Path, place: pathlib.Path) -> str | None:
    relative = pathlib.PurePath(os.path.relpath(page, place)).as_posix()
    return urllib.parse.quote(relative) if page.is_file() else None


def _checks(record: Mapping[str, Any]) -> str:
    held = sum(check["ok"] is True for check in record["checks"])
    return f"{held} of {len(record['checks'])} hold"


def _parameters(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """(name, value, value) of those that differ, None for a run without it; (name, value) of the others."""
    differing, equal = [], []
    for name in {**second["parameters"], **first["parameters"]}:
        texts = [
            views.parameter(record["parameters"][name]) if name in record["parameters"] else None
            for record in (first, second)
        ]
        if texts[0] == texts[1]:
            equal.append((name, texts[0]))
        else:
            differing.append((name, *texts))
    return differing, equal


def _metrics(first: list[Metric], second: list[Metric]) -> list[dict[str, Any]]:
    """Every metric of either run, the second's order first."""
    by_name = [{metric["name"]: metric for metric in metrics} for metrics in (first, second)]
    return [
        {"name": name, "values": (pair := [one.get(name) for one in by_name]), **_difference_words(*pair)}
        for name in {**by_name[1], **by_name[0]}
    ]


def _difference_words(first: Metric | None, second: Metric | None) -> dict[str, str]:
    """`{"change": "+12 points", "interval": "95 % interval -8 to +33", "reading": "no clear difference"}`"""
    words = {"change": "", "interval": "", "reading": ""}
    if first is None or second is None:
        return {**words, "reading": "in one run only"}
    found = difference(first, second)
    if found is None:
        same = (first["value"], first["unit"]) == (second["value"], second["unit"])
        return {**words, "reading": "the same" if same else "differs"}
    value, interval = found
    unit = {"%": " points", None: ""}.get(second["unit"], f" {second['unit']}")
    words["change"] = f"{_signed(value, second['unit'])}{unit}"
    if interval is not None:
        low, high = (
            _signed(limit, second["unit"], wide=interval[1] - interval[0] >= 0.05) for limit in interval
        )
        words["interval"] = f"95 % interval {low} to {high}"
        words["reading"] = "no clear difference"
        if interval[0] > 0 or interval[1] < 0:
            words["reading"] = "clearly higher" if value > 0 else "clearly lower"
    return words


def _signed(value: float, unit: str | None, wide: bool = False) -> str:
    if unit == "%":
        text = f"{100 * value:+.{0 if wide else 1}f}".removesuffix(".0")
    else:
        text = ("+" if value > 0 else "-") + views.number(abs(value))
    return "0" if re.fullmatch(r"[+-][0.]+", text) else text


def _figures(
    folders: list[pathlib.Path], records: list[dict[str, Any]], names: list[str]
) -> list[dict[str, Any]]:
    """Every figure of either run by its caption, with the picture of each run or None."""
    pictures: list[dict[str, str]] = []
    for folder, record, name in zip(folders, records, names, strict=True):
        found = {}
        for figure in record["figures"]:
            path = folder / figure["file"]
            if path.resolve().is_relative_to(folder) and path.is_file():
                shown = views.picture(path.read_bytes(), f"{figure['caption']}: {name}", FIGURE_SCALE)
                found[figure["caption"]] = safe(shown)
        pictures.append(found)
    first, second = pictures
    return [
        {"caption": caption, "pictures": [first.get(caption), second.get(caption)]}
        for caption in {**second, **first}
    ]
