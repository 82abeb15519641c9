"""One notebook executed by papermill in one kernel: watched, and saved cell by cell.

The kernel is this Python's own (`python3`), starts in the project's root and talks over sockets in a private
folder: no ports to race for, nothing on the network. A kernel that dies before its first cell is started
again.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from cotkit.report import notebooks

STARTS = 3
START_TIMEOUT_S = 180
OUTPUT_TIMEOUT_S = 120  # how long a finished cell's last output may still be on its way
LAST_LINES = 12
_SLOW_CELL_S = 5.0  # a cell's time is told from here on
_SOCKET_PATH_MAX = 60  # of the folder; a Unix socket's whole path may have about 100 characters
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Execution:
    """Runs a notebook's cells; `notebook` is what has been executed so far, saved to `target` by the cell."""

    def __init__(self, source: Any, target: pathlib.Path, progress: TextIO | None):
        self.notebook, self.target, self.progress = source, target, progress
        self._numbers = _code_cell_numbers(source)
        self._running: int | None = None  # index of the cell that runs or ran last
        self._since = 0.0
        self._told = ""
        self._kernel_log = ""

    def run(self, parameters: Mapping[str, Any], cwd: pathlib.Path, env: Mapping[str, str]) -> None:
        """Execute all cells. Raises what papermill, nbclient or the start of the kernel raised."""
        source = self.notebook
        for start in range(1, STARTS + 1):
            try:
                return self._papermill(copy.deepcopy(source), parameters, cwd, env)
            except Exception:
                if self._running is not None or start == STARTS:
                    raise
                self._tell("the kernel ended before the first cell; starting another one")

    def _papermill(
        self, source: Any, parameters: Mapping[str, Any], cwd: pathlib.Path, env: Mapping[str, str]
    ) -> None:
        import papermill

        logging.getLogger("papermill").addHandler(logging.NullHandler())  # what fails is raised, not printed
        with _kernel(cwd, env) as (manager, log):
            try:
                papermill.execute_notebook(
                    source,
                    None,
                    parameters=dict(parameters),
                    kernel_name=notebooks.KERNELSPEC["name"],
                    language="python",
                    progress_bar=False,
                    start_timeout=START_TIMEOUT_S,
                    iopub_timeout=OUTPUT_TIMEOUT_S,
                    kernel_manager_class=manager,
                    on_notebook_start=self._notebook_starts,
                    on_cell_execute=self._cell_starts,
                    on_cell_executed=self._cell_ends,
                    stdout_file=None if self.progress is None else _Echo(self.progress),
                )
            finally:
                with contextlib.suppress(FileNotFoundError):  # a cleaner of temporary files came by
                    self._kernel_log = log.read_text(errors="replace")

    def _notebook_starts(self, notebook: Any) -> None:
        self.notebook = notebook
        self._numbers = _code_cell_numbers(notebook)

    def _cell_starts(self, cell: Any, cell_index: int) -> None:
        self._running, self._since = cell_index, time.monotonic()
        if cell_index in self._numbers:
            label = self._label(cell_index)
            shown, self._told = ("" if label == self._told else f" {label}"), label
            self._tell(f"[{self._numbers[cell_index]}/{len(self._numbers)}]{shown}")

    def _cell_ends(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        seconds = time.monotonic() - self._since
        if seconds >= _SLOW_CELL_S:
            self._tell(f"    took {seconds:.0f} s")
        notebooks.save(notebooks.executed(self.notebook), self.target)

    def _tell(self, line: str) -> None:
        if self.progress is not None:
            print(line, file=self.progress, flush=True)

    def failure(self, error: BaseException) -> dict[str, Any]:
        """What went wrong and where, for report.json and the message: the cell, the error, its last lines."""
        self.notebook = notebooks.executed(self.notebook)  # without papermill's notes, which shift the cells
        for index, cell in enumerate(self.notebook.cells):
            for output in cell.get("outputs", []):
                if output.output_type == "error":
                    traceback = _ANSI.sub("", "\n".join(output.traceback))
                    return self._failure(index, output.ename, output.evalue, traceback)
        said = "" if self._running is None else _printed(self.notebook.cells[self._running])
        log = notebooks.scrubbed(self._kernel_log)
        if isinstance(error, KeyboardInterrupt):
            return self._failure(self._running, "KeyboardInterrupt", "the run was interrupted", said)
        if "ernel died" in str(error):
            why = "the kernel died: killed (out of memory?) or crashed"
            return self._failure(self._running, "KernelDied", why, f"{said}\n{log}")
        message = notebooks.scrubbed(str(error)).strip()
        return self._failure(self._running, type(error).__name__, message, f"{said}\n{log}")

    def _failure(self, index: int | None, name: str, message: str, text: str) -> dict[str, Any]:
        lines = [line.rstrip() for line in text.splitlines() if line.strip(" -")]
        lines = [line for line in lines if not line.endswith("Traceback (most recent call last)")]
        return {
            "cell": self._numbers.get(index) if index is not None else None,
            "cells": len(self._numbers),
            "label": self._label(index) if index is not None else "before its first cell",
            "name": name,
            "message": message,
            "last_lines": lines[-LAST_LINES:],
        }

    def _label(self, index: int) -> str:
        """The heading a cell stands under, else its first line."""
        for cell in reversed(self.notebook.cells[:index]):
            if cell.cell_type == "markdown" and (titles := re.findall(r"(?m)^#{1,6}\s+(.+)$", cell.source)):
                return titles[-1].strip()
        return (self.notebook.cells[index].source.strip().splitlines() or ["empty cell"])[0][:80]


def _code_cell_numbers(notebook: Any) -> dict[int, int]:
    """Index among all cells -> number among the author's code cells, as a reader counts them."""
    indices = [
        index
        for index, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and "injected-parameters" not in cell.metadata.get("tags", [])
    ]
    return {index: number for number, index in enumerate(indices, 1)}


def _printed(cell: Any) -> str:
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")


@contextlib.contextmanager
def _kernel(cwd: pathlib.Path, env: Mapping[str, str]) -> Iterator[tuple[type, pathlib.Path]]:
    """A kernel manager class for one kernel, and the file that takes what its process itself prints."""
    from jupyter_client import AsyncKernelManager

    parent = None if len(tempfile.gettempdir()) <= _SOCKET_PATH_MAX else "/tmp"
    with tempfile.TemporaryDirectory(prefix="cotkit-", dir=parent, ignore_cleanup_errors=True) as private:
        log = pathlib.Path(private, "kernel.log")
        with log.open("wb") as sink:

            class Kernel(AsyncKernelManager):
                async def start_kernel(self, **options: Any) -> None:
                    self.transport, self.ip = "ipc", os.path.join(private, "socket")
                    self.connection_file = os.path.join(private, "connection.json")
                    options |= {"cwd": str(cwd), "env": {**os.environ, **env}, "stdout": sink, "stderr": sink}
                    await super().start_kernel(**options)

            yield Kernel, log


class _Echo:
    """Passes what cells print on to the terminal, whole lines, indented under their cell."""

    def __init__(self, stream: TextIO):
        self._stream, self._partial = stream, ""

    def write(self, text: str) -> None:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            print(f"    {line.rpartition(chr(13))[2]}", file=self._stream)

    def flush(self) -> None:
        self._stream.flush()
