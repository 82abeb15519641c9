"""Fixtures every room's tests share."""

from __future__ import annotations

import os
import pathlib
import signal
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mock_server import MockServer  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job has it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def serve():
    """`server = serve(script)` starts a scripted endpoint that ends with the test."""
    running = []

    def start(script, **options):
        server = MockServer(script, **options).__enter__()
        running.append(server)
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared_data():
    """A folder of public data sets: COTKIT_TEST_DATA, or ../shared/data beside the clone."""
    folder = pathlib.Path(os.environ.get("COTKIT_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no test data folder: set COTKIT_TEST_DATA to one that holds gsm8k_test.jsonl ...")
    return folder
