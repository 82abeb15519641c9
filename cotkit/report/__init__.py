"""Notebooks run headless, and what a person is given to read afterwards.

notebooks.py    notebook files: found, read, cleaned once run, stripped for git
parameters.py   a notebook's parameters, checked before a kernel starts
runner.py       execute_notebook: papermill, strictly, into reports/<run>/
kernel.py       one notebook in one kernel, watched and saved cell by cell
record.py       Report: the numbers, tables, figures and findings a notebook states
views.py        their HTML; screen.py shows it where the report is made
page.py         the executed notebook as one self-contained page
index.py        reports/index.html, the list of runs
compare.py      two runs of one notebook on one page
files.py        files written whole or not at all
session.py      notebook_setup: what a notebook's first cell asks for
"""

from cotkit.report.compare import compare_reports
from cotkit.report.index import write_index
from cotkit.report.notebooks import all_notebooks, find_notebook, notebook_name, read_notebook, strip_file
from cotkit.report.parameters import Parameter, read_parameters
from cotkit.report.record import CheckFailed, Report
from cotkit.report.runner import NotebookFailed, ReportPaths, execute_notebook
from cotkit.report.session import notebook_setup

__all__ = [
    "CheckFailed",
    "NotebookFailed",
    "Parameter",
    "Report",
    "ReportPaths",
    "all_notebooks",
    "compare_reports",
    "execute_notebook",
    "find_notebook",
    "notebook_name",
    "notebook_setup",
    "read_notebook",
    "read_parameters",
    "strip_file",
    "write_index",
]
