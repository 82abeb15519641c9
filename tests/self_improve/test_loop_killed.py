"""kill -9 between any two steps, and in training: nothing is asked, trained or counted twice."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

CHILD = """
import os, signal, sys
from types import SimpleNamespace
sys.path[:0] = [{tests!r}, {here!r}]
from scripted_loop import FakeTrainer, model, problems
from cotkit.pipelines import cycles, self_improve
loop = sys.modules["cotkit.pipelines.self_improve"]
url, run, log, where, when = sys.argv[1:]
real = cycles.write_json

def dying(path, value):
    if when == "before" and str(path).endswith(where):
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, value)
    if when == "after" and str(path).endswith(where):
        os.kill(os.getpid(), signal.SIGKILL)

cycles.write_json = loop.write_json = dying

class Trainer(FakeTrainer):
    def train(self, *args):
        made = super().train(*args)
        with open(log, "a") as file:
            file.write(made["model"] + "\\n")
        return made

server = SimpleNamespace(base_url=url)
self_improve(
    problems(40), model(server, "actor-40"), trainer=Trainer(server, ["actor-70", "actor-90"]), cycles=2,
    dev=8, test=8, iterations=0, num_generations=2, problems_per_cycle=12, min_examples=4, run=run,
    show="none",
)
"""
HERE = Path(__file__).parent
KILLS = [  # in this order on one run: the step's marker, and whether it is written
    ("cycle-00/train/trained.json", "before"),
    ("cycle-00/report.json", "after"),
    ("cycle-01/report.json", "before"),
]


def test_a_run_that_is_killed_at_its_steps_ends_as_if_it_had_not_been(world):
    world.improve(["actor-70", "actor-90"], run="whole")
    calls, log, code = (
        world.server.calls,
        world.folder / "log",
        CHILD.format(tests=str(HERE.parent), here=str(HERE)),
    )
    for where, when in [*KILLS, ("none", "never")]:
        command = [sys.executable, "-c", code, world.server.base_url, world.folder / "run", log, where, when]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == (0 if when == "never" else -signal.SIGKILL), done.stderr
        if when == "before":  # the step is not done, so nothing of the cycle is promoted
            assert not (world.folder / "run" / where).exists()
    assert world.server.calls == 2 * calls
    assert log.read_text().split() == ["actor-70", "actor-70", "actor-90"]  # only the first was unfinished
    killed, whole = (_without_clock(world.folder / name) for name in ("run", "whole"))
    assert killed == whole


def _without_clock(folder):
    text = (folder / "report.json").read_text().replace(f'"{folder.name}"', '""')
    return json.loads(re.sub(r'"seconds": [\d.]+', '"seconds": 0', text))
