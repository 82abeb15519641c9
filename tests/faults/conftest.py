"""This room's endpoints count what they answer, and its tests choose how they are asked."""

from __future__ import annotations

import faulty
import pytest


@pytest.fixture
def serve():
    """As the shared fixture of this name."""
    running = []

    def start(script):
        server = faulty.Counting(script).__enter__()
        running.append(server)
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def transport(request):
    """Which way the ChatModels of `faulty.model` send: see `faulty.BOTH_WAYS`."""
    faulty.defaults["transport"] = getattr(request, "param", "openai")
    yield faulty.defaults["transport"]
    faulty.defaults["transport"] = "openai"
