"""This room starts a scripted endpoint in nearly every test: servers that are idle serve the next one."""

from __future__ import annotations

import asking
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

    def start(script, **options):
        server = _idle.pop() if _idle else MockServer(script).__enter__()
        server.script, server.models = script, options.pop("models", ("mock",))
        server.log, server.peak, server._seen = [], 0, {}
        assert not options, options
        used.append(server)
        return server

    yield start
    for server in used:
        if server.in_flight:  # still holds a request of this test, which the next one must not see
            server.__exit__(None, None, None)
        else:
            _idle.append(server)


@pytest.fixture(autouse=True)
def transport(request):
    """Which way the ChatModels of `asking.model` send."""
    asking.defaults["transport"] = getattr(request, "param", "openai")
    yield
    asking.defaults["transport"] = "openai"


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__ in ("test_chat_asking", "test_chat_candidates", "test_chat_servers"):
        metafunc.parametrize("transport", ["openai", "aiohttp"], indirect=True)
