"""The run folder: journal, resume, views, export, labels."""

from cotkit.records import Candidate, Row
from cotkit.runs.digests import DigestMap
from cotkit.runs.export import ExportReport, check_name, export_rows
from cotkit.runs.folder import (
    REPLACING,
    STOP,
    RunError,
    RunFolder,
    check_resume,
    config_differences,
    folder_name,
    locked_folder,
    replaced_run,
    set_aside,
)
from cotkit.runs.frames import rows_frame
from cotkit.runs.journal import (
    Journal,
    JournalError,
    dump_compact,
    dump_json,
    read_lines,
    write_json,
    write_lines,
)
from cotkit.runs.labels import LABELS, add_label, is_about, labels_frame, read_labels
from cotkit.runs.reading import Run, SelfImprovement, counts_line, open_run
from cotkit.runs.validate import FileProblem, validate_file
from cotkit.runs.views import Example, View, label_view, pair_view, sft_view

__all__ = [
    "LABELS",
    "REPLACING",
    "STOP",
    "Candidate",
    "DigestMap",
    "Example",
    "ExportReport",
    "FileProblem",
    "Journal",
    "JournalError",
    "Row",
    "Run",
    "RunError",
    "RunFolder",
    "SelfImprovement",
    "View",
    "add_label",
    "check_name",
    "check_resume",
    "config_differences",
    "counts_line",
    "dump_compact",
    "dump_json",
    "export_rows",
    "folder_name",
    "is_about",
    "label_view",
    "labels_frame",
    "locked_folder",
    "open_run",
    "pair_view",
    "read_labels",
    "read_lines",
    "replaced_run",
    "rows_frame",
    "set_aside",
    "sft_view",
    "validate_file",
    "write_json",
    "write_lines",
]
