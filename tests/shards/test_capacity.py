"""benchmarks/capacity.py: what it says of runs of any size."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "capacity.py"


def capacity(**options):
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    ended = subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)
    return json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr


def test_a_run_ends_about_when_the_model_says():
    found = capacity(problems=20_000, shards=4, width=50, latency=2, hours_to_loss=1e9)
    expected, played = found["model"], found["simulation"]
    assert expected["calls"] == pytest.approx(3.4 * 20_000) and expected["calls_a_second"] == 100
    assert 0.9 < played["of_ideal"] < 1.03 and played["workers_lost"] == played["calls_asked_again"] == 0


def test_a_lost_worker_costs_what_was_in_flight():
    played = capacity(problems=20_000, shards=4, width=50, latency=2, hours_to_loss=0.1)["simulation"]
    assert played["calls_asked_again"] == 50 * played["workers_lost"] > 0


@pytest.mark.parametrize("problems", [1, 5, 16])
def test_fewer_problems_than_shards_are_a_shard_each(problems):
    found = capacity(problems=problems, shards=16, sigma=0)
    assert found["model"]["in_flight"] == problems
    chain = 3600 * found["simulation"]["first_shard_done_h"] / 8
    assert chain == pytest.approx(round(chain)) and round(chain) in (2, 4, 6)


def test_what_cannot_be_is_refused():
    assert "more shards, less width" in capacity(problems=100_000, shards=1, width=2000, latency=1)
    assert "--shards must be" in capacity(shards=0)
