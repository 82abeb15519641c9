"""What takes an executor, on a real Dask cluster of processes, one of which is killed in the middle."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading

import pytest
from mock_server import Reply
from test_shards import model, problems, rows, shard_out, solve

import cotkit

sys.path.append(str(pathlib.Path(__file__).parents[1] / "synthesize"))
from synth_script import Script, seeds

distributed = pytest.importorskip("distributed", reason="pip install -e '.[cluster]'")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    import dask

    with (
        dask.config.set(
            {
                "temporary_directory": str(tmp_path_factory.mktemp("dask")),
                "distributed.admin.tick.limit": "60s",
            }
        ),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("options", [{}, {"resume": "never", "use_cache": False}])
def test_a_killed_worker_s_shard_is_resumed_by_another(serve, tmp_path, client, options):
    client.wait_for_workers(2)
    victim, lock = next(iter(client.run(os.getpid).values())), threading.Lock()
    killed = []

    def script(request):
        with lock:
            if len(server.log) >= 20 and not killed:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)
        return Reply(solve(request), delay=0.02)

    server = serve(script)
    merged = shard_out(server, client.get_executor(), tmp_path / "many", count=60, shards=6, **options)
    calls = server.calls
    assert killed and merged.report["kept"] == 60
    needed = 60 + 20  # every third problem is refined once
    lost = 4 if "use_cache" not in options else 8  # calls of the four problems in flight: one each, or two
    assert needed <= calls <= needed + lost, "more than was in flight in the killed worker was asked again"
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


def distilled(server, folder, **options):
    run = cotkit.distill(
        problems(9), model(server), cotkit.StepJudge(), max_iterations=1, run=folder, **options
    )
    return rows(run)


def synthesized(server, folder, **options):
    options |= {"attempts": 12, "calibrate_judge": 0, "run": folder}
    return rows(cotkit.synthesize(seeds(), "few_shot", model(server), **options))


def benchmarked(server, folder, **options):
    models = {"a": model(server), "b": model(server, temperature=0.5)}
    return cotkit.benchmark(problems(9), models, run=folder, **options).table.to_json()


def checked(server, folder, *, executor=None, **options):
    answers = [(f"\\boxed{{{n}}}", str(n - n % 2)) for n in range(100)]
    return [verdict.correct for verdict in cotkit.check_answers(answers, executor=executor)]


@pytest.mark.parametrize("do", [distilled, synthesized, benchmarked, checked])
def test_a_cluster_gives_what_one_process_does(serve, tmp_path, client, do):
    server = serve(Script() if do is synthesized else solve)
    alone = do(server, tmp_path / "alone", show="none")
    asked, options = server.calls, {} if do is checked else {"shards": 3}
    assert do(server, tmp_path / "many", executor=client.get_executor(), show="none", **options) == alone
    assert server.calls == 2 * asked and len(alone) > 0
