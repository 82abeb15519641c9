"""Work is spread over the cores a process may use, not over those of the machine."""

from __future__ import annotations

import os

import pytest

from cotkit import cores
from cotkit.verify.workers import MOST_WORKERS, WorkerPool


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Of 64 cores, with what the container's quota says."""

    def make(quota):
        monkeypatch.setattr(cores, "QUOTA", tmp_path / "cpu.max")
        if quota is not None:
            (tmp_path / "cpu.max").write_text(quota)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)

    return make


@pytest.mark.parametrize(
    ("quota", "found"),
    [(None, 64), ("max 100000", 64), ("200000 100000", 2), ("50000 100000", 1), ("9900000 100000", 64)],
)
def test_a_containers_quota_is_kept_to(machine, quota, found):
    machine(quota)
    assert cores.available_cores() == found
    assert WorkerPool().size == min(found, MOST_WORKERS)


def test_affinity_is_kept_to(machine, monkeypatch):
    machine(None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    assert cores.available_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores.available_cores() == 1
