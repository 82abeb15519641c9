"""notebook_setup: what it does on request, and that nothing of it happens at import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cotkit.report import session


def run(code: str, cwd) -> str:
    """What `code` prints in a Python of its own: the set-up changes a whole process."""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("COTKIT_ROOT", raising=False)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def test_paths_mean_the_same_in_the_notebooks_folder_and_at_the_root(project):
    code = "import cotkit, os; cotkit.notebook_setup(); print(os.getcwd())"
    assert run(code, project / "notebooks") == run(code, project) == str(project)


def test_figures_and_tables_get_their_style_only_when_asked(project):
    code = (
        "import cotkit.report, matplotlib as m, pandas as p\n"
        "def look(): return m.rcParams['axes.spines.top'], p.get_option('display.precision')\n"
        "before = look(); cotkit.report.notebook_setup(); print(before, look())"
    )
    assert run(code, project) == "(True, 6) (False, 3)"


NESTED = (
    "import asyncio, cotkit\n"
    "async def inner(): return 'inner'\n"
    "async def outer(): return asyncio.run(inner())\n"
    "cotkit.notebook_setup(nest_asyncio={asked})\n"
    "try: print(asyncio.run(outer()))\n"
    "except RuntimeError as error: print('refused')\n"
)


@pytest.mark.parametrize(("asked", "said"), [(True, "inner"), (False, "refused")])
def test_asyncio_is_patched_on_request_only(project, asked, said):
    assert run(NESTED.format(asked=asked), project) == said


def test_where_no_patch_works_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install nest-asyncio2"):
        session.notebook_setup(nest_asyncio=True)
