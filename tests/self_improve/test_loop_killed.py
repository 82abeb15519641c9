"""kill -9 in the middle of steps and between them: nothing is asked, trained or counted twice."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from forked import Forked

from cotkit.analysis import cycle_findings
from cotkit.pipelines import SelfImprovement

SETUP = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {here!r}]
from types import SimpleNamespace

import aiohttp, datasketch, openai, pandas, scipy.stats
from scripted_loop import FakeTrainer, model, problems
from cotkit import analysis, runs
from cotkit.pipelines import self_improve
from cotkit.verify import AnswerVerifier
"""
KILLED = """
url, run, log, where, when = args
cycle = sys.modules["cotkit.pipelines.cycle"]
real, append, export = runs.write_json, runs.RunFolder.append, cycle.write_examples

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying(path, value):
    if when == "before" and str(path).endswith(where):
        die()
    real(path, value)
    if when == "after" and str(path).endswith(where):
        die()

def appending(folder, row):
    append(folder, row)
    if when == "row 5" and str(folder.path).endswith(where) and len(folder.done) == 5:
        die()

def exporting(examples, path, *given):
    written = export(examples, path, *given)
    if when == "exported" and str(path).endswith(where):
        die()
    return written

for module in ("self_improve", "cycle", "cycles", "critics"):
    sys.modules["cotkit.pipelines." + module].write_json = dying
runs.RunFolder.append = appending
cycle.write_examples = exporting

class Trainer(FakeTrainer):
    def train(self, *given):
        made = super().train(*given)
        with open(log, "a") as file:
            file.write(made["model"] + "\\n")
        return made

server = SimpleNamespace(base_url=url)
one = {"max_concurrency": 1}
self_improve(
    problems(), model(server, "actor-40", **one), critics=[model(server, "judge-8", **one)],
    holdout_critic=model(server, "judge-7", **one), trainer=Trainer(server, ["actor-70", "actor-90"], **one),
    cycles=2, dev=20, test=8, iterations=0, num_generations=2, problems_per_cycle=12, min_examples=4, run=run,
    show="none",
)
"""
HERE = Path(__file__).parent
KILLS = [  # in this order on one run: where, and when
    ("sets.json", "after"),
    ("cycle-00/generate", "row 5"),
    ("cycle-00/noise/scores.json", "before"),
    ("base/probe-praise/scores.json", "before"),
    ("cycle-00/export/sft.jsonl", "exported"),
    ("cycle-00/train/trained.json", "before"),
    ("base/holdout/scores.json", "after"),
    ("cycle-00/dev", "row 5"),
    ("cycle-00/report.json", "after"),
    ("cycle-01/drift/scores.json", "before"),
    ("cycle-01/dev", "row 5"),
    ("cycle-01/report.json", "before"),
    ("test/base", "row 5"),
    ("run/report.json", "before"),
]


def test_a_run_that_is_killed_at_its_steps_ends_as_if_it_had_not_been(served_world):
    """With one call of each model in flight a kill loses one answer of each at most."""
    world = served_world
    one = {"max_concurrency": 1}
    judges = {"critics": [world.model("judge-8", **one)], "holdout_critic": world.model("judge-7", **one)}
    world.improve(["actor-70", "actor-90"], run="whole", actor=world.model("actor-40", **one), **judges)
    calls, log = world.server.calls, world.folder / "log"
    with Forked(SETUP.format(tests=str(HERE.parent), here=str(HERE)), KILLED) as forked:
        for where, when in [*KILLS, ("none", "never")]:
            ended = forked.run(world.server.base_url, world.folder / "run", log, where, when)
            assert ended == (0 if when == "never" else -signal.SIGKILL), (where, when, forked.errors)
            if when == "before":  # the step is not done, so nothing of the cycle is promoted
                assert not (world.folder / "run" / where.removeprefix("run/")).exists()
    in_flight = len(KILLS) * 4  # one of each: two actors, critic, hold-out critic
    assert 2 * calls <= world.server.calls <= 2 * calls + in_flight
    assert log.read_text().split() == ["actor-70", "actor-70", "actor-90"]  # only the first was unfinished
    killed, whole = (_without_clock(world.folder / name) for name in ("run", "whole"))
    assert killed["cycles"][0]["training"].pop("sittings") == 2  # and the report says so
    assert any(
        "interrupted and went on" in said
        for said in cycle_findings(SelfImprovement(world.folder / "run").report)
    )
    assert whole["cycles"][0]["training"].pop("sittings") == 1
    for report in (killed, whole):
        report["champion"]["training"].pop("sittings")
        for cycle in report["cycles"]:
            (cycle["champion_before"]["training"] or {}).pop("sittings", None)
    assert killed == whole


def _without_clock(folder):
    text = (folder / "report.json").read_text().replace(f'"{folder.name}"', '""')
    return json.loads(re.sub(r'"seconds": [\d.]+', '"seconds": 0', text))
