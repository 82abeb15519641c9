"""`Report`: what a notebook states. Numbers with n and interval, tables, figures, findings, checks, files.

Each call shows its part in the notebook (the same in JupyterLab and headless) and writes it to `report.json`
at once, so a run that fails later keeps what it had found. `save()` ends the report and fails the run when a
check failed. Headless the folder is the run's (COTKIT_REPORT_DIR); in JupyterLab it is `reports/<title>-lab`.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import platform
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import cotkit
from cotkit.paths import root
from cotkit.report import files, views
from cotkit.report.notebooks import scrubbed
from cotkit.report.parameters import holds_key
from cotkit.report.screen import SUMMARY, CardRow, show

SCHEMA_VERSION = 1
FIGURE_SCALE = 2  # pixels a CSS pixel


class CheckFailed(AssertionError):
    """A check of the report does not hold; raised by `save()`, when everything is written."""


def empty_record() -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "title": "",
        "status": "running",
        "cotkit_version": cotkit.__version__,
        "python": platform.python_version(),
        "notebook": None,  # this and the run's facts below are set by execute_notebook
        "run": None,
        "started": files.now(),
        "seconds": None,
        "error": None,
        "parameters": {},
        "given": [],  # the parameters that were set to something other than their default
        "metrics": [],
        "findings": [],
        "checks": [],
        "tables": [],
        "figures": [],
        "files": [],
    }


_ENTRIES = {  # what a reader of report.json relies on
    "metrics": ("name", "value", "unit", "n", "interval", "help"),
    "findings": ("text",),
    "checks": ("text", "ok"),
    "figures": ("caption", "file"),
}


def load_record(path: pathlib.Path) -> dict[str, Any]:
    """The report.json at `path`. ValueError when there is none, or when it is not a notebook's report."""
    if not path.is_file():
        raise ValueError(f"there is no report at {path}")
    record = read_record(path)
    try:
        known = record["schema_version"] == SCHEMA_VERSION and bool(record["title"] or record["notebook"])
        for kind, keys in _ENTRIES.items():
            known = known and all(key in entry for entry in record[kind] for key in keys)
        known = known and isinstance(record["parameters"], dict) and isinstance(record["started"], str)
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"{path} is not a report of a notebook (a run folder's report.json is none)")
    return record


def read_record(path: pathlib.Path) -> dict[str, Any]:
    """The report.json at `path`; an empty one when there is none, or none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    return {**empty_record(), **(found if isinstance(found, dict) else {})}


def _png(figure: Any) -> bytes:
    """A PNG of at most 256 colours, which is all a chart needs: a third of the bytes in every page."""
    from PIL import Image

    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100 * FIGURE_SCALE, metadata={"Software": None})
    picture = Image.open(drawn)
    if picture.getextrema()[3] != (255, 255):  # a ground one sees through would turn black
        return drawn.getvalue()
    few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(packed, "PNG", optimize=True)
    return packed.getvalue()


class Report:
    """The report of one notebook. `parameters` are the values it ran with, never keys."""

    def __init__(
        self,
        title: str,
        parameters: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ):
        if holds_key(dict(parameters or {})):
            raise ValueError(
                "a parameter looks like a key: give the report the NAME of the variable that holds it"
            )
        named = folder or os.environ.get("COTKIT_REPORT_DIR")
        named = named or root() / "reports" / f"{files.folder_slug(title)}-lab"
        self.folder = pathlib.Path(named).expanduser()
        self.record = {**empty_record(), "title": title, "parameters": dict(parameters or {})}
        self._cards = CardRow()
        self._write()

    @property
    def path(self) -> pathlib.Path:
        return self.folder / "report.json"

    def metric(
        self,
        name: str,
        value: Any,
        n: int | None = None,
        interval: tuple[float, float] | None = None,
        unit: str | None = None,
        help: str | None = None,
    ) -> None:
        """State a number. It is shown as a card; cards of one cell stand in a row.

        `value` is a number, text, None (undecided), or something that carries its own interval and n, such as
        `cotkit.analysis.Rate` or `PairedDifference`. `unit="%"` shows a share on 0..1 as percent; any other
        unit is shown behind the number. `n` is how many observations stand behind it, `interval` its 95 %
        interval in the value's own unit. A name used again replaces the earlier metric.
        """
        if interval is None and hasattr(value, "low") and hasattr(value, "high"):
            interval, n = (value.low, value.high), getattr(value, "n", None) if n is None else n
        if interval is not None and (len(interval) != 2 or interval[0] > interval[1]):
            raise ValueError(f"metric {name!r}: an interval is (low, high), got {interval!r}")
        if hasattr(value, "value") or hasattr(value, "difference"):
            value = getattr(value, "value", getattr(value, "difference", None))
        metric = files.plain(
            {"name": name, "value": value, "unit": unit, "n": n, "interval": interval, "help": help}
        )
        self._put("metrics", metric, "name")
        self._cards.add(metric)

    def table(self, frame: Any, caption: str, max_rows: int = 100) -> None:
        """Show a DataFrame (or Series, or list of dicts); at most `max_rows` rows, the rest is counted."""
        import pandas

        try:
            frame = frame.to_frame() if isinstance(frame, pandas.Series) else pandas.DataFrame(frame)
        except UnicodeEncodeError:  # pandas' own strings hold no lone surrogate
            frame = pandas.DataFrame(frame, dtype=object)
        entry = {"caption": caption, "rows": len(frame), "columns": [str(c) for c in frame.columns]}
        self._put("tables", entry, "caption")
        show(views.table(frame, caption, max_rows), f"{caption}\n{frame.head(max_rows).to_string()}")

    def figure(self, figure: Any, caption: str) -> None:
        """Show a matplotlib figure (or axes), save it as `figures/<caption>.png` and close it."""
        import matplotlib.pyplot as plt

        figure = getattr(figure, "figure", None) or figure
        png = _png(figure)
        plt.close(figure)
        others = [other["file"] for other in self.record["figures"] if other["caption"] != caption]
        taken = {pathlib.PurePath(other).stem for other in others}
        name = f"figures/{files.unused(files.slug(caption), taken)}.png"
        files.write_bytes(self.folder / name, png)
        self._put("figures", {"caption": caption, "file": name}, "caption")
        show(views.figure(png, caption, FIGURE_SCALE), f"[figure: {caption}]")

    def finding(self, text: str, **values: Any) -> None:
        """State a finding in words. `values` are set into `{names}` of the text, as `str.format` does
        ("refinement gained {gain:.0%}"), and kept beside it; without values the text stands as it is."""
        sentence = views.Sentence(text, values)
        self._put("findings", files.plain({"text": sentence.plain, "values": values}), "text")
        show(views.finding(sentence), f"Finding: {sentence.plain}")

    def check(self, condition: bool | None, text: str) -> None:
        """Record that something must hold. False fails the run at `save()`; None = could not be decided."""
        ok = None if condition is None else bool(condition)
        self._put("checks", {"text": text, "ok": ok}, "text")
        show(views.check(text, ok), views.check_line(text, ok))

    def file(self, path: str | os.PathLike[str], caption: str) -> None:
        """Record a file the notebook wrote, such as an export. Raises FileNotFoundError when it is absent."""
        path = pathlib.Path(path).expanduser().resolve()
        size = path.stat().st_size
        shown = str(path.relative_to(root())) if path.is_relative_to(root()) else str(path)
        self._put("files", {"path": shown, "caption": caption, "bytes": size}, "path")
        show(views.file_line(shown, caption, size), f"{shown}  {caption}")

    def save(self) -> None:
        """End the report: write report.json and show its summary. Raises CheckFailed when a check failed."""
        failed = [check["text"] for check in self.record["checks"] if check["ok"] is False]
        self.record["status"] = "failed" if failed else "complete"
        self._write()
        show(views.summary(self.record), f"report: {self.path}", SUMMARY)
        if failed:
            count = f"{len(failed)} of {len(self.record['checks'])} checks failed"
            raise CheckFailed(f"{count}: {'; '.join(failed)}")

    def stop(self, why: str) -> NoReturn:
        """State why nothing more is done, save, and end the notebook here: cells below are not run, and
        headless the run is complete."""
        self.finding(why)
        self.save()
        warnings.filterwarnings("ignore", "To exit: use")  # IPython's advice on how to leave a terminal
        raise SystemExit(0)  # which papermill takes for the end

    def _put(self, kind: str, entry: dict[str, Any], key: str) -> None:
        """Add an entry; one of the same key, from an earlier run of the cell, is replaced in its place."""
        entries = self.record[kind]
        for place, earlier in enumerate(entries):
            if earlier[key] == entry[key]:
                entries[place] = entry
                break
        else:
            entries.append(entry)
        self._write()

    def _write(self) -> None:
        files.write_json(self.path, scrubbed(files.plain(self.record)))

    def _repr_html_(self) -> str:
        return views.with_style(views.summary(self.record))

    def __repr__(self) -> str:
        title, metrics, findings = (self.record[key] for key in ("title", "metrics", "findings"))
        return f"Report({title!r}: {len(metrics)} metrics, {len(findings)} findings)"
