"""A notebook tells its report every parameter: in JupyterLab nobody else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from cotkit.report import find_notebook, read_notebook, read_parameters

RUN_CELLS = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for source in json.load(sys.stdin):
    shell.run_cell(source).raise_error()
"""


def test_the_distillation_report_shows_every_parameter_with_the_value_it_has(tmp_path):
    notebook = read_notebook(find_notebook("distillation"))
    parameters, set_up = [cell.source for cell in notebook.cells if cell.cell_type == "code"][:2]
    run = subprocess.run(
        [sys.executable, "-c", RUN_CELLS],
        input=json.dumps([parameters, "seed = 7", set_up]),
        env={**os.environ, "COTKIT_REPORT_DIR": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    shown = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["parameters"]
    assert list(shown) == [parameter.name for parameter in read_parameters(notebook)]
    assert shown["seed"] == 7
