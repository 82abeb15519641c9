"""What `cotkit bench` measures that holds on a busy machine too: processor time beside the bare loop's, and
memory a call in flight; and the page that it writes."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench  # noqa: E402
from mock_endpoint import Endpoint  # noqa: E402


def measured(repeats=1):
    return bench.Bench(argparse.Namespace(repeats=repeats, with_=[], camel_python=None))


def test_a_call_of_the_thin_transport_takes_at_most_three_times_the_bare_loops_processor_time():
    """Medians of five rounds in which both take turns. The page has the target, 2.5."""
    with Endpoint(latency_ms=20) as endpoint:
        seen = measured(5).compare(["aiohttp", "cotkit-aiohttp"], "single", 1000, 100, endpoint)
    ratio = seen["cotkit-aiohttp"]["cpu_ms_a_call"] / seen["aiohttp"]["cpu_ms_a_call"]
    assert ratio <= 3, seen


def test_a_further_call_in_flight_takes_at_most_60_kilobytes():
    with Endpoint(latency_ms=2000) as endpoint:
        small, large = (
            measured().run("cotkit-aiohttp", "single", n, n, endpoint)["rss_mb"] for n in (100, 1000)
        )
    assert 1024 * (large - small) / 900 <= 60


def workload(about, value):
    def lines(_):
        yield bench.line("rows lost", value, "", "0", value == 0)

    lines.__doc__ = about
    return lines


def written(folder, monkeypatch, **values):
    """The page's lines by workload, after those named were run; and the exit code."""
    for name, value in values.items():
        monkeypatch.setitem(bench.WORKLOADS, name, workload(f"About {name}.", value))
    with pytest.raises(SystemExit) as ended:
        bench.main(["--only", *values, "--output", str(folder)])
    page = json.loads((folder / "bench.json").read_text())
    return {one["name"]: one["lines"][0]["value"] for one in page["sections"]}, ended.value.code


def test_a_workload_that_is_run_again_leaves_the_others_on_the_page(tmp_path, monkeypatch):
    assert written(tmp_path, monkeypatch, kill=0, width=1) == ({"width": 1, "kill": 0}, 1)
    assert written(tmp_path, monkeypatch, kill=2, start=0) == ({"width": 1, "kill": 2, "start": 0}, 1)
    assert written(tmp_path, monkeypatch, kill=0) == ({"width": 1, "kill": 0, "start": 0}, 0)
    page = (tmp_path / "bench.html").read_text()
    assert page.index("About width.") < page.index("About kill.") < page.index("About start.")


def test_each_workload_keeps_the_date_and_the_load_of_its_own_run(tmp_path, monkeypatch):
    """Also those of a page that had one date for all."""
    lines = [bench.line("rows lost", 3)]
    old = {"made": "2026-01-01T00:00", "machine": "two cores, load 9", "python": "3.11.0", "runs": []}
    old["sections"] = [{"name": "width", "about": "About width.", "lines": lines}]
    (tmp_path / "bench.json").write_text(json.dumps(old))
    written(tmp_path, monkeypatch, kill=0)
    sections = json.loads((tmp_path / "bench.json").read_text())["sections"]
    dates = {one["name"]: one["made"] for one in sections}
    assert dates["width"] == "2026-01-01T00:00" < dates["kill"]
    assert all(one[fact] for one in sections for fact in ("machine", "python"))
    assert "load 9" in (tmp_path / "bench.html").read_text()
