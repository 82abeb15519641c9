"""The run folder: journal, resume, export."""

from cotkit.records import Candidate, Row
from cotkit.runs.folder import (
    Run,
    RunError,
    RunFolder,
    config_differences,
    counts_line,
    folder_name,
    open_run,
    rows_frame,
)

__all__ = [
    "Candidate",
    "Row",
    "Run",
    "RunError",
    "RunFolder",
    "config_differences",
    "counts_line",
    "folder_name",
    "open_run",
    "rows_frame",
]
