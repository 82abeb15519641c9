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
from cotkit.runs.journal import Journal, read_lines, write_lines
from cotkit.runs.labels import LABELS, add_label, labels_frame, read_labels
from cotkit.runs.views import pair_view

__all__ = [
    "LABELS",
    "Candidate",
    "Journal",
    "Row",
    "Run",
    "RunError",
    "RunFolder",
    "add_label",
    "config_differences",
    "counts_line",
    "folder_name",
    "labels_frame",
    "open_run",
    "pair_view",
    "read_labels",
    "read_lines",
    "rows_frame",
    "write_lines",
]
