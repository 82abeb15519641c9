"""The run folder: journal, resume, export."""

from cotkit.records import Candidate, Row
from cotkit.runs.export import ExportReport, export_rows
from cotkit.runs.folder import Run, RunError, RunFolder, counts_line, folder_name, open_run, rows_frame
from cotkit.runs.journal import write_json
from cotkit.runs.validate import FileProblem, validate_file
from cotkit.runs.views import Example, label_view, pair_view, sft_view

__all__ = [
    "Candidate",
    "Example",
    "ExportReport",
    "FileProblem",
    "Row",
    "Run",
    "RunError",
    "RunFolder",
    "counts_line",
    "export_rows",
    "folder_name",
    "label_view",
    "open_run",
    "pair_view",
    "rows_frame",
    "sft_view",
    "validate_file",
    "write_json",
]
