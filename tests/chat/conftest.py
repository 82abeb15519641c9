"""This room starts a scripted endpoint in nearly every test: servers that are idle serve the next one."""

from __future__ import annotations

import pytest
from mock_server import MockServer

_idle: list[MockServer] = []


@pytest.fixture(scope="session", autouse=True)
def _servers_end_with_the_session():
    yield
    while _idle:
        _idle.pop().__exit__(None, None, None)


@pytest.fixture
def serve():
    """As the shared fixture of this name: `server = serve(script)`."""
    used = []

    def start(script):
        if _idle:
            server = _idle.pop()
            server.script, server.log, server.peak, server._seen = script, [], 0, {}
        else:
            server = MockServer(script).__enter__()
        used.append(server)
        return server

    yield start
    for server in used:
        if server.in_flight:  # a request of this test is still held: not for the next one to see
            server.__exit__(None, None, None)
        else:
            _idle.append(server)
