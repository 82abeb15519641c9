"""`execute_notebook`: a notebook run headless and strictly into `reports/<run>/`.

papermill runs the cells (kernel.py); here stands what it leaves open: parameters are checked before a
kernel starts, a run has a folder of its own, and however a run ends, its notebook, its numbers and its page
are there to read. A failing cell ends the run, and the page says so at the top.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import os
import pathlib
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotkit.report import files, notebooks, parameters
from cotkit.report.index import previous_run, write_index
from cotkit.report.kernel import Execution
from cotkit.report.record import read_record
from cotkit.report.views import escape


@dataclass(frozen=True)
class ReportPaths:
    """What a run left: the page to read, the executed notebook, the numbers."""

    html: pathlib.Path
    ipynb: pathlib.Path
    json: pathlib.Path

    @classmethod
    def of(cls, folder: pathlib.Path) -> ReportPaths:
        return cls(folder / "report.html", folder / "notebook.ipynb", folder / "report.json")

    def _repr_html_(self) -> str:
        return "<br>".join(f"{name}: <code>{escape(path)}</code>" for name, path in vars(self).items())

    @property
    def folder(self) -> pathlib.Path:
        return self.html.parent


class NotebookFailed(RuntimeError):
    """A notebook did not reach its end. `paths` is what it left: page, partial notebook, numbers.

    `cell` is the failing cell's number among the code cells, None when none had begun.
    """

    def __init__(self, message: str, paths: ReportPaths, cell: int | None = None):
        super().__init__(message)
        self.paths, self.cell = paths, cell


def execute_notebook(
    notebook: str | os.PathLike[str],
    parameters: Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    run_name: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> ReportPaths:
    """Run a notebook from its first cell to its last and write its report.

    `notebook` is a name ("distillation" for notebooks/01_distillation.ipynb) or a path; `parameters` are
    values for its parameters cell (text is read as the annotated type). The report is written to
    `<output>/<run_name>/`: `output` defaults to the project's `reports`, `run_name` to
    `<notebook>-<date>-<time>`; an existing run is replaced only with `overwrite`. The kernel starts in the
    project's root. `progress` prints a line a cell, and what cells print, to stderr.

    Raises ValueError, before anything starts, for an unknown notebook or parameter, a value of the wrong type
    or one that looks like a key; NotebookFailed when a cell fails or the kernel dies. What had been done by
    then is kept, also when the run is interrupted.
    """
    path = notebooks.find_notebook(notebook)
    source = notebooks.read_notebook(path)
    values = _resolve(source, parameters or {}, path)
    name = notebooks.notebook_name(path)
    defaults = _defaults(source)
    root = notebooks.project_root()
    paths = ReportPaths.of(_claim(pathlib.Path(output or root / "reports"), name, run_name, overwrite))
    facts = {
        "notebook": name,
        "run": paths.folder.name,
        "started": files.now(),
        "parameters": {**defaults, **values},
        "given": sorted(name for name, value in values.items() if value != defaults.get(name)),
    }
    env = {"COTKIT_REPORT": "1", "COTKIT_REPORT_DIR": str(paths.folder), "COTKIT_ROOT": str(root)}
    execution = Execution(source, paths.ipynb, sys.stderr if progress else None)
    begun, error = time.monotonic(), None
    try:
        execution.run(values, root, env)
    except (Exception, KeyboardInterrupt) as problem:
        error = execution.failure(problem)
        if isinstance(problem, KeyboardInterrupt):
            if progress:
                print(f"interrupted; what was done: {paths.html}", file=sys.stderr)
            raise
    finally:
        facts |= {"seconds": round(time.monotonic() - begun, 1), "error": error}
        _write(paths, execution.notebook, facts)
    if error:
        raise NotebookFailed(_message(path, error, paths), paths, error["cell"])
    return paths


def _resolve(source: Any, given: Mapping[str, Any], path: pathlib.Path) -> dict[str, Any]:
    """The given values as their parameters' types; a notebook without a parameters cell takes none."""
    return parameters.resolve(source, given, path.stem) if given else {}


def _defaults(source: Any) -> dict[str, Any]:
    """Default values of the parameters cell; one that is no literal as its source text."""
    try:
        known = parameters.read_parameters(source)
    except ValueError:  # no usable parameters cell, and none is needed to run without parameters
        return {}
    values = {}
    for parameter in known:
        try:
            values[parameter.name] = ast.literal_eval(parameter.default)
        except ValueError:
            values[parameter.name] = parameter.default
    return values


def _claim(output: pathlib.Path, name: str, run_name: str | None, overwrite: bool) -> pathlib.Path:
    """A folder that is this run's alone. Raises ValueError for a bad name or one that is taken."""
    output = output.expanduser().resolve()
    output.mkdir(parents=True, exist_ok=True)
    if run_name is None:
        stamp = f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
        for number in range(1, 1000):
            folder = output / (stamp if number == 1 else f"{stamp}-{number}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:  # another run began in the same second
                continue
    if not re.fullmatch(r"\w[\w.-]*", run_name or ""):
        raise ValueError(f"a run's name is letters, digits, '.', '_' and '-', not {run_name!r}")
    folder = output / run_name
    try:
        folder.mkdir()
    except FileExistsError:
        if not overwrite:
            raise ValueError(
                f"{folder} exists: choose another run name, or overwrite it (overwrite=True, --overwrite)"
            ) from None
        of_before = (*folder.glob("figures/*.png"), *folder.glob("against-*.html"))
        for old in (*vars(ReportPaths.of(folder)).values(), *of_before):
            old.unlink(missing_ok=True)
    return folder


def _write(paths: ReportPaths, notebook: Any, facts: dict[str, Any]) -> None:
    """Save the executed notebook, its numbers and its page, compare it with the run before, list it."""
    from cotkit.report.compare import compare_reports
    from cotkit.report.page import render

    kept = notebooks.executed(notebook)
    notebooks.save(kept, paths.ipynb)
    found = read_record(paths.json)
    record = {
        **found,
        **facts,
        "parameters": {**found["parameters"], **facts["parameters"]},
        "status": "failed" if facts["error"] else "complete",
    }
    record = notebooks.scrubbed(files.plain(record))
    files.write_json(paths.json, record)
    files.write_text(paths.html, render(kept, record))
    if previous := previous_run(paths.folder, record):
        with contextlib.suppress(ValueError, OSError):  # no comparison is no reason to lose a run
            compare_reports(previous, paths.folder)
    write_index(paths.folder.parent)


def _message(path: pathlib.Path, error: dict[str, Any], paths: ReportPaths) -> str:
    where = (
        f"cell {error['cell']} of {error['cells']} ({error['label']})" if error["cell"] else error["label"]
    )
    lines = "".join(f"\n  {line}" for line in error["last_lines"])
    return f"{path.name} failed in {where}\n{error['name']}: {error['message']}{lines}\nSee {paths.html}"
