"""What docs/synthesis.md shows works: its Python runs, and its tables name what there is."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from synth_script import Script

from cotkit.pipelines import attempts
from cotkit.pipelines.operators import OPERATORS
from cotkit.pipelines.questions import GATES
from cotkit.pipelines.strategies import STRATEGIES

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "synthesis.md").read_text(encoding="utf-8")


def test_its_python_runs_from_top_to_bottom(serve, tmp_path):
    trusted = "import cotkit, functools\n"  # a busy machine may fail the probe of its walls
    trusted += "cotkit.synthesize = functools.partial(cotkit.synthesize, allow_weak_isolation=True)\n"
    code = trusted + "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    server = serve(Script())
    env = {**os.environ, "OPENAI_API_KEY": "sk-page-test", "OPENAI_BASE_URL": server.base_url}
    env["COTKIT_ROOT"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "12 of 12 attempts" in done.stdout and (tmp_path / "runs" / "loop" / "rows.jsonl").exists()


def test_its_tables_name_what_there_is():
    for name in (*STRATEGIES, *OPERATORS, *GATES):
        assert f"`{name}`" in PAGE, name
    steps = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.count("|") == 4]
    assert [step for step in steps if step in attempts.STEPS] == list(attempts.STEPS[1:])
    reasons = set(re.findall(r'Dropped\(\s*(?:f?")(\w+)"', pathlib.Path(attempts.__file__).read_text()))
    assert len(reasons) >= 8 and all(f"`{reason}`" in PAGE for reason in reasons), reasons


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
