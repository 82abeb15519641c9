"""One JupyterLab and one Chromium for all tests of this room.

Without Chromium or playwright they are skipped, unless COTKIT_BROWSER=required, as in CI. Screenshots of what
a person sees go to the folder that COTKIT_SCREENSHOTS names, if any.
"""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def chrome():
    required = os.environ.get("COTKIT_BROWSER") == "required"
    from lab import FLAGS, chromium

    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if required:
            raise
        pytest.skip("no playwright: pip install playwright")
    if chromium() is None:
        if required:
            pytest.fail("COTKIT_BROWSER=required, but there is no chromium")
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return folder


@pytest.fixture(scope="session")
def lab_address(chrome, lab_folder, tmp_path_factory):
    from lab import jupyterlab

    with jupyterlab(tmp_path_factory.mktemp("lab"), lab_folder, COTKIT_ROOT=str(lab_folder)) as address:
        yield address


@pytest.fixture
def notebook(chrome, lab_address, lab_folder, request):
    """`page = notebook(cell, ...)`: a notebook, opened and run. Errors and strange requests fail the test."""
    from lab import Watched, keep_picture, open_and_run, write_notebook

    watched = Watched(chrome, (lab_address + "/", lab_address.replace("http", "ws")))

    def start(*cells):
        name = f"{request.node.name.split('[')[0]}.ipynb"
        write_notebook(lab_folder / name, *cells)
        open_and_run(watched.page, lab_address, name)
        return watched.page

    yield start
    keep_picture(watched.page, request.node.name)
    watched.close()
    assert watched.outside == []
    assert [error for error in watched.errors if not _known(error)] == []


def _known(error):
    """What JupyterLab itself says in an empty configuration, about itself."""
    return "favicon" in error or "404" in error
