"""`world`: a scripted endpoint, models on it, and the loop with small defaults."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import scripted_loop
import virtual_time

from cotkit.pipelines import self_improve


class Endpoint:
    """The log of an endpoint that answers in virtual time; `number` and `nth` of a request as a server's."""

    base_url = virtual_time.URL

    def __init__(self):
        self.log, self._seen = [], Counter()

    @property
    def calls(self) -> int:
        return len(self.log)

    def hears(self, request):
        same = json.dumps(request.body, sort_keys=True)
        request.number, request.nth = len(self.log), self._seen[same]
        self._seen[same] += 1
        self.log.append(request)


class World:
    """`answer` is the endpoint's script; `improve` runs the loop on 52 problems (20 dev, 8 test)."""

    def __init__(self, server, folder):
        self.answer = scripted_loop.script
        self.server, self.folder, self.trainer = server, folder, None

    def model(self, name, **options):
        return scripted_loop.model(self.server, name, **options)

    def improve(self, names=(), task=None, run="run", **options):
        self.trainer = options.pop(
            "trainer", scripted_loop.FakeTrainer(self.server, names) if names else None
        )
        given = {
            "trainer": self.trainer, "cycles": max(1, len(names)), "dev": 20, "test": 8, "iterations": 0,
            "num_generations": 2, "problems_per_cycle": 12, "min_examples": 4, "show": "none",
            "run": run and str(self.folder / run),
        }  # fmt: skip
        task = scripted_loop.problems() if task is None else task
        return self_improve(task, **{"actor": self.model("actor-40"), **given, **options})


@pytest.fixture
def world(tmp_path):
    """Nothing is sent: what is asked and how it ends is as over HTTP, in a tenth of the time."""
    endpoint = Endpoint()
    world = World(endpoint, tmp_path)

    def answered(request):
        endpoint.hears(request)
        return world.answer(request)

    with virtual_time.engine(answered, law=lambda chance: 0.01):
        yield world


@pytest.fixture
def served_world(serve, tmp_path):
    """The same over HTTP: for other processes, and for time that passes."""
    world = World(serve(lambda request: world.answer(request)), tmp_path)
    return world
