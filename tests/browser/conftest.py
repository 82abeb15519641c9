"""One JupyterLab for all tests of this room, one Chromium a module.

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
def playwright_api():
    """playwright.sync_api, where there is a Chromium for it."""
    required = os.environ.get("COTKIT_BROWSER") == "required"
    from lab import chromium

    try:
        from playwright import sync_api
    except ImportError:
        if required:
            raise
        pytest.skip("no playwright: pip install playwright")
    if chromium() is None:
        if required:
            pytest.fail("COTKIT_BROWSER=required, but there is no chromium")
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return sync_api


@pytest.fixture(scope="module")
def chrome(playwright_api):
    """Not for the session: as long as playwright runs, its event loop is the main thread's."""
    from lab import FLAGS, chromium

    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return folder


@pytest.fixture(scope="session")
def lab_address(playwright_api, lab_folder, tmp_path_factory):
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
