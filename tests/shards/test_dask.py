"""Shards on a real Dask cluster of processes, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from mock_server import Reply
from test_shards import model, problems, rows, shard_out, solve

import cotkit

distributed = pytest.importorskip("distributed", reason="pip install 'cotkit[cluster]'")


@pytest.fixture
def client(tmp_path):
    import dask

    with (
        dask.config.set({"temporary_directory": str(tmp_path), "distributed.admin.tick.limit": "60s"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_killed_worker_s_shard_is_resumed_by_another(serve, tmp_path, client):
    victim, lock = next(iter(client.run(os.getpid).values())), threading.Lock()
    killed = []

    def script(request):
        with lock:
            if len(server.log) >= 20 and not killed:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)
        return Reply(solve(request), delay=0.02)

    server = serve(script)
    merged = shard_out(server, client.get_executor(), tmp_path / "many", count=60, shards=6)
    calls = server.calls
    assert killed and merged.report["kept"] == 60
    needed = 60 + 20  # every third problem is refined once
    assert needed <= calls <= needed + 4, "more than was in flight in the killed worker was asked again"
    alone = cotkit.distill(
        problems(60), model(server), cotkit.StepJudge(), max_iterations=1, run=tmp_path / "alone", show="none"
    )
    assert rows(merged) == rows(alone)


def test_the_same_call_goes_on_while_the_error_of_the_last_one_is_held(serve, tmp_path, client):
    """As a notebook holds it: the futures that failed live on."""
    server, in_the_way = serve(solve), tmp_path / "many" / "shards" / "0001"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("")
    with pytest.raises(cotkit.runs.RunError, match="1 of 2 shards failed") as held:
        shard_out(server, client.get_executor(), tmp_path / "many", count=6, shards=2)
    in_the_way.unlink()
    merged = shard_out(server, client.get_executor(), tmp_path / "many", count=6, shards=2)
    assert merged.report["kept"] == 6 and held.value is not None
