"""A widget used in Jupyter Notebook 7, where that is installed: cotkit itself brings JupyterLab alone."""

from __future__ import annotations

import contextlib
import json

import pytest
from lab import TOKEN, Watched, jupyterlab, keep_picture, write_notebook

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright")
pytest.importorskip("notebook", reason="Notebook 7 is not installed: pip install notebook")

CELL = """from cotkit.widgets import PairInspector
pairs = [{'prompt': 'Is $x$ 1?', 'chosen': 'fine', 'rejected': 'poor'}]
PairInspector(pairs, path='said.jsonl')"""


def test_a_pair_is_judged_in_notebook_7(chrome, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    write_notebook(served / "seven.ipynb", CELL)
    with jupyterlab(tmp_path / "settings", served, "notebook", COTKIT_ROOT=str(served)) as address:
        watched = Watched(chrome, (address + "/", address.replace("http", "ws")))
        page = watched.page
        page.goto(f"{address}/notebooks/seven.ipynb?token={TOKEN}")
        for _ in range(12):  # it seems to be ready before its kernel takes a cell
            page.locator(".jp-CodeCell .cm-content").first.click()
            page.keyboard.press("Shift+Enter")
            with contextlib.suppress(sync_api.TimeoutError):
                page.get_by_text("pair 1 of 1").first.wait_for(timeout=5000)
                break
        page.locator("mjx-container").first.wait_for()
        better = "A" if page.locator("table.ck td").first.inner_text() == "fine" else "B"
        page.get_by_role("button", name=f"{better} is better").press("Enter")
        page.get_by_text("you agree with the data in 1 of 1 pairs").first.wait_for()
        keep_picture(page, "notebook7")
        watched.close()
    assert json.loads((served / "said.jsonl").read_text())["agrees"] is True
    assert watched.outside == []
