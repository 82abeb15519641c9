"""`world`: a scripted endpoint, models on it, and the loop with small defaults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import scripted_loop

from cotkit.pipelines import self_improve


class World:
    """`answer` is the endpoint's script; `improve` runs the loop on 52 problems (20 dev, 8 test)."""

    def __init__(self, serve, folder):
        self.answer = scripted_loop.script
        self.server = serve(lambda request: self.answer(request))
        self.folder, self.trainer = folder, None

    def model(self, name, **options):
        return scripted_loop.model(self.server, name, **options)

    def improve(self, names=(), task=None, run="run", **options):
        self.trainer = options.pop(
            "trainer", scripted_loop.FakeTrainer(self.server, names) if names else None
        )
        given = {
            "trainer": self.trainer, "cycles": max(1, len(names)), "dev": 20, "test": 8, "iterations": 0,
            "num_generations": 2, "problems_per_cycle": 12, "min_examples": 4, "show": "none",
            "run": str(self.folder / run),
        }  # fmt: skip
        task = scripted_loop.problems() if task is None else task
        return self_improve(task, **{"actor": self.model("actor-40"), **given, **options})


@pytest.fixture
def world(serve, tmp_path):
    return World(serve, tmp_path)
