"""cotkit against the floor, side by side: speed, bytes, memory, and what survives.

    cotkit bench                      # all workloads, about a quarter of an hour
    cotkit bench --only width kill    # some of them
    cotkit bench --with camel --camel-python /path/to/venv/bin/python

Every client is a process of its own (drivers.py) against an endpoint in another (mock_endpoint.py); clients
take turns; width, wide, heavy and chain are repeated and compared by medians. Bytes and counts hold on a busy
machine, CPU time nearly, wall times do not. A run is noisy, and no target on wall time is judged by it, when
its client or its endpoint waited for a processor more than 5 % of the time, or a fixed computation before it
took a fifth longer than at its quickest. Writes reports/bench/bench.json and bench.html.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
from mock_endpoint import Endpoint

from cotkit.chat import CallLedger

HERE = pathlib.Path(__file__).parent
NOISY = 0.05
BYTECODE = tempfile.TemporaryDirectory(prefix="cotkit-bench-")
FAULTS = {"errors": 0.02, "limits": 0.02, "drops": 0.005}
Line = dict[str, Any]  # what, value, unit, target, holds (None = not judged), note


class Bench:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.runs: list[dict[str, Any]] = []
        self.quickest_s = spin()
        self.pythons = {"camel": options.camel_python} if "camel" in options.with_ else {}

    def run(self, driver: str, job: str, n: int, width: int, endpoint: Endpoint, **more: Any) -> dict:
        """One client, once: what it took, and what the endpoint saw."""
        endpoint.reset()
        waited, spun = endpoint.waited_s(), spin()
        self.quickest_s = min(self.quickest_s, spun)
        with tempfile.TemporaryDirectory(prefix="cotkit-bench-") as folder:
            done = subprocess.run(
                self.command(driver, job, n, width, endpoint, folder, **more),
                stdout=subprocess.PIPE,
                text=True,
            )
        if done.returncode:
            raise SystemExit(f"{driver} failed on {job} n={n}")
        took = json.loads(done.stdout.splitlines()[-1])
        seen = endpoint.stats()
        took["endpoint_waited_s"] = endpoint.waited_s() - waited
        starved = max(took["waited_s"], took["endpoint_waited_s"]) > NOISY * took["wall_s"]
        took["noisy"] = starved or spun > 1.2 * self.quickest_s
        took["cpu_ms_a_call"] = 1000 * took["cpu_s"] / seen["ok"]
        took["efficiency"] = seen["latency_s"] / width / took["wall_s"]
        result = {"driver": driver, "job": job, "n": n, "width": width, **took, **seen}
        self.runs.append(result)
        print(
            f"  {driver:15} {job} n={n} width={width}: {took['wall_s']:.2f} s"
            f"{' (noisy)' if took['noisy'] else ''}, {took['cpu_ms_a_call']:.2f} ms CPU a call",
            flush=True,
        )
        return result

    def command(
        self, driver: str, job: str, n: int, width: int, endpoint: Endpoint, folder: str, rpm: float = 0
    ) -> list[str]:
        python = self.pythons.get(driver, sys.executable)
        arguments = {"base-url": endpoint.base_url, "n": n, "width": width, "out": folder, "rpm": rpm}
        return [python, str(HERE / "drivers.py"), driver, job] + [f"--{k}={v}" for k, v in arguments.items()]

    def compare(
        self, drivers: list[str], job: str, n: int, width: int, endpoint: Endpoint
    ) -> dict[str, dict[str, Any]]:
        """Medians of each client; they take turns, so that a change of the machine's load meets all."""
        runs: dict[str, list[dict]] = {driver: [] for driver in drivers}
        for _ in range(self.options.repeats):
            for driver in drivers:
                runs[driver].append(self.run(driver, job, n, width, endpoint))
        return {
            driver: {
                **{
                    name: statistics.median(one[name] for one in own)
                    for name in own[0]
                    if _is_number(own[0][name])
                },
                "noisy": sum(one["noisy"] for one in own) > len(own) / 2,
                "mixed": max(one["mixed"] for one in own),
            }
            for driver, own in runs.items()
        }


def width_100(bench: Bench) -> Iterator[Line]:
    """500 ms x 100: the everyday case."""
    with Endpoint(latency_ms=500) as endpoint:
        seen = bench.compare(
            ["aiohttp", "cotkit-aiohttp", "openai", "cotkit-openai"], "single", 2000, 100, endpoint
        )
    thin, floor = seen["cotkit-aiohttp"], seen["aiohttp"]
    yield wall("efficiency of the thin transport, of ideal", thin, floor, 0.93)
    for way, bare in (("cotkit-aiohttp", "aiohttp"), ("cotkit-openai", "openai")):
        ratio = seen[way]["efficiency"] / seen[bare]["efficiency"]
        yield line(
            f"efficiency of {way}, of the bare {bare} loop's",
            ratio,
            "x",
            ">= 0.95",
            None if seen[way]["noisy"] or seen[bare]["noisy"] else ratio >= 0.95,
        )
    ratio = thin["cpu_ms_a_call"] / floor["cpu_ms_a_call"]
    yield line(
        "CPU a call of the thin transport, of the bare aiohttp loop's", ratio, "x", "<= 2.5", ratio <= 2.5
    )
    more = seen["cotkit-openai"]["cpu_ms_a_call"] - seen["openai"]["cpu_ms_a_call"]
    yield line(
        "CPU a call of the openai transport beyond the bare openai loop", more, "ms", "<= 0.5", more <= 0.5
    )
    for driver, one in seen.items():
        yield line(f"peak memory of {driver}", one["rss_mb"], "MB")


def heavy(bench: Bench) -> Iterator[Line]:
    """500 ms on average x 100 with a heavy tail (lognormal, sigma 0.8)."""
    with Endpoint(latency_ms=500, sigma=0.8) as endpoint:
        seen = bench.compare(["aiohttp", "cotkit-aiohttp"], "single", 4000, 100, endpoint)
    own, floor = seen["cotkit-aiohttp"], seen["aiohttp"]
    ratio = own["efficiency"] / floor["efficiency"]
    holds = None if own["noisy"] or floor["noisy"] else ratio >= 0.95
    yield line("efficiency of cotkit-aiohttp, of the bare aiohttp loop's", ratio, "x", ">= 0.95", holds)


def width_1000(bench: Bench) -> Iterator[Line]:
    """2 s x 1000: a cluster behind one address."""
    with Endpoint(latency_ms=2000) as endpoint:
        seen = bench.compare(["aiohttp", "cotkit-aiohttp"], "single", 5000, 1000, endpoint)
        small = bench.run("cotkit-aiohttp", "single", 500, 100, endpoint)
    yield wall("efficiency of the thin transport, of ideal", seen["cotkit-aiohttp"], seen["aiohttp"], 0.85)
    kilobytes = 1024 * (seen["cotkit-aiohttp"]["rss_mb"] - small["rss_mb"]) / 900
    yield line("memory a further call in flight", kilobytes, "kB", "<= 60", kilobytes <= 60)


def chain(bench: Bench) -> Iterator[Line]:
    """Generate, judge, refine: 500 ms x 20, 300 problems."""
    drivers = ["aiohttp", "cotkit-aiohttp", "openai", "cotkit-openai", *bench.pythons]
    with Endpoint(latency_ms=500) as endpoint:
        seen = bench.compare(drivers, "chain", 300, 20, endpoint)
    for driver, one in seen.items():
        noisy = " (noisy)" if one["noisy"] else ""
        yield line(f"efficiency of {driver}", one["efficiency"], "of ideal", note=noisy)
        yield line(f"CPU a call of {driver}", one["cpu_ms_a_call"], "ms")
        yield line(f"calls of {driver}", one["ok"])
        holds = None if driver in bench.pythons else one["mixed"] == 0  # the peer's is no fault of ours
        yield line(f"prompts that mixed two problems, {driver}", one["mixed"], "", "0", holds)


def faults(bench: Bench) -> Iterator[Line]:
    """50 ms x 20 with 2 % 500, 2 % 429, 0.5 % dropped connections."""
    for driver in ("cotkit-openai", "cotkit-aiohttp"):
        with Endpoint(latency_ms=50, **FAULTS) as endpoint:
            seen = bench.run(driver, "single", 400, 20, endpoint)
        injected = seen["failed"] + seen["limited"] + seen["dropped"]
        yield line(f"rows lost, {driver}", 400 - seen["rows"], "of 400", "0", seen["rows"] == 400)
        more = seen["requests"] - 400 - injected
        yield line(
            f"requests beyond problems and {injected} injected faults, {driver}", more, "", "0", more == 0
        )


def cap(bench: Bench) -> Iterator[Line]:
    """1,200 requests a minute allowed, 400 problems, 50 in flight."""
    for driver in ("cotkit-openai", "cotkit-aiohttp"):  # a bare loop without retries ends at the first 429
        with Endpoint(latency_ms=50, rpm=100, speed_up=12) as endpoint:  # 100 in each 5 s
            seen = bench.run(driver, "single", 400, 50, endpoint, rpm=1200)
        used = seen["rows"] / 1200 * 60 / seen["wall_s"]
        yield line(f"rows lost, {driver}", 400 - seen["rows"], "of 400", "0", seen["rows"] == 400)
        yield line(f"429s, {driver}", seen["limited"] / seen["requests"], "of requests", "<= 0.01",
                   seen["limited"] <= 0.01 * seen["requests"])  # fmt: skip
        yield line(
            f"share of the cap used, {driver}", used, "", ">= 0.95", None if seen["noisy"] else used >= 0.95
        )


def kill(bench: Bench) -> Iterator[Line]:
    """kill -9 in the middle of a run of 300 problems, then the same call again."""
    for share in (0.1, 0.5, 0.9):
        with (
            Endpoint(latency_ms=50) as endpoint,
            tempfile.TemporaryDirectory(prefix="cotkit-bench-") as folder,
        ):
            command = bench.command("cotkit-aiohttp", "single", 300, 20, endpoint, folder)
            first = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
            while first.poll() is None and endpoint.stats()["ok"] < share * 300:
                time.sleep(0.01)
            if first.poll() is not None:
                raise SystemExit(f"the client ended before it could be killed, with {first.returncode}")
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
            time.sleep(0.5)  # what was under way has reached the endpoint
            before, known = endpoint.stats(), answers(pathlib.Path(folder) / "run")
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            seen = endpoint.stats()
            rows = (pathlib.Path(folder) / "run" / "rows.jsonl").read_text().count("\n")
        yield line(f"rows after a kill at {share:.0%} and a second call", rows, "of 300", "300", rows == 300)
        again = seen["requests"] - before["requests"] - (300 - known)
        yield line(f"calls asked again of {known} that were completed", again, "", "0", again == 0)
        cut = seen["ok"] - 300
        yield line("calls asked again that were in flight (at most 20)", cut, "", "<= 20", cut <= 20)


def answers(run: pathlib.Path) -> int:
    """Completed calls that a run folder knows."""
    with CallLedger(run / "calls.jsonl", read_only=True) as ledger:
        return ledger.totals()["calls"]


def start(bench: Bench) -> Iterator[Line]:
    """Import, and the first call."""
    seconds = statistics.median(_cpu_of("import cotkit") for _ in range(5))
    nothing = statistics.median(_cpu_of("pass") for _ in range(5))
    yield line(
        "import cotkit, beyond Python itself",
        seconds - nothing,
        "CPU s",
        "<= 0.15",
        seconds - nothing <= 0.15,
    )
    with Endpoint() as endpoint:
        for way, library in (("openai", "openai, aiohttp"), ("aiohttp", "aiohttp")):
            call = (
                f"import cotkit; cotkit.ChatModel('mock', base_url={endpoint.base_url!r}, transport={way!r})"
                ".complete('2 + 2?')"
            )
            first = statistics.median(_cpu_of(call) for _ in range(3))
            floor = statistics.median(_cpu_of(f"import {library}") for _ in range(3))
            yield line(f"first call over {way}, beyond importing it", first - floor, "CPU s", "<= 0.2",
                       first - floor <= 0.2)  # fmt: skip


def writing(bench: Bench) -> Iterator[Line]:
    """No latency: what is written, and how it grows."""
    sizes, files = (100, 1000, 10000), {}
    with Endpoint() as endpoint:
        for n in sizes:
            seen = bench.run("cotkit-aiohttp", "single", n, 20, endpoint)
            files[n] = seen
    for n in sizes:
        written = files[n]["written_bytes"] / files[n]["file_bytes"]
        yield line(f"bytes written, n = {n:,}", written, "x the run folder", "<= 1.1", written <= 1.1)
    exponent = math.log(files[10000]["written_bytes"] / files[100]["written_bytes"]) / math.log(100)
    yield line(
        "growth of bytes written from n = 100 to 10,000", exponent, "exponent", "<= 1.02", exponent <= 1.02
    )
    yield line("peak memory at n = 1,000", files[1000]["rss_mb"], "MB")
    yield line("peak memory at n = 10,000", files[10000]["rss_mb"], "MB")


def many(bench: Bench) -> Iterator[Line]:
    """100,000 problems, no latency: memory must not grow with what is finished."""
    with Endpoint() as endpoint:
        few = bench.run("cotkit-aiohttp", "file", 10_000, 100, endpoint)
        seen = bench.run("cotkit-aiohttp", "file", 100_000, 100, endpoint)
    lost = 100_000 - seen["rows"]
    yield line(
        "rows lost or calls asked twice", lost + seen["repeated"], "of 100,000", "0",
        lost == 0 == seen["repeated"],
    )  # fmt: skip
    further = 1024 * 1024 * (seen["rss_mb"] - few["rss_mb"]) / 90_000
    yield line("memory a further problem, everything included", further, "bytes", "<= 300", further <= 300)
    yield line("CPU a call", seen["cpu_ms_a_call"], "ms")


def checks(bench: Bench) -> Iterator[Line]:
    """What the kit computes itself, a second, against the naive way."""
    command = [sys.executable, str(HERE / "checks.py")]
    took = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    ways = {
        "pairs": ("pairs of answers by the typed ladder", "sympy.simplify of each", 1),
        "programs": ("programs that import numpy and sympy", "a cold Python for each", 15),
        "questions": ("questions, self-BLEU", "a pass over all others for each", 1),
    }
    for name, (what, naive, least) in ways.items():
        ours, other = took[name]
        yield line(what, ours, "a second", note=f"{naive}: {other:.3g}")
        yield line(f"{name}: of the naive way's", ours / other, "x", f">= {least}", ours / other >= least)


WORKLOADS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "width": width_100,
    "wide": width_1000,
    "heavy": heavy,
    "chain": chain,
    "faults": faults,
    "cap": cap,
    "kill": kill,
    "start": start,
    "writing": writing,
    "many": many,
    "checks": checks,
}


def line(
    what: str, value: float, unit: str = "", target: str = "", holds: bool | None = None, note: str = ""
) -> Line:
    return {"what": what, "value": value, "unit": unit, "target": target, "holds": holds, "note": note}


def spin() -> float:
    """Seconds a fixed computation takes, by the clock."""
    began = time.perf_counter()
    sum(number * number for number in range(2_000_000))
    return time.perf_counter() - began


def wall(what: str, own: dict[str, Any], floor: dict[str, Any], least: float) -> Line:
    holds = None if own["noisy"] or floor["noisy"] else own["efficiency"] >= least
    note = f"the bare loop reached {floor['efficiency']:.2f}" + ("" if holds is not None else "; noisy")
    return line(what, own["efficiency"], "", f">= {least}", holds, note)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cpu_of(code: str) -> float:
    """CPU seconds of a Python that runs `code`; its modules are compiled already, as in an installation."""
    program = f"{code}\nimport os; t = os.times(); print(t.user + t.system)"
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": BYTECODE.name}
    command = [sys.executable, "-c", program]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=env).stdout)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="cotkit bench", description=__doc__.split("\n")[0])
    about = ", ".join(f"{name}: {workload.__doc__}" for name, workload in WORKLOADS.items())
    parser.add_argument(
        "--only",
        nargs="+",
        choices=WORKLOADS,
        default=list(WORKLOADS),
        metavar="WORKLOAD",
        help=about.replace("%", "%%"),
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--with", dest="with_", nargs="*", choices=["camel"], default=[])
    parser.add_argument("--camel-python", help="the Python of a venv that holds camel-ai")
    parser.add_argument("--output", type=pathlib.Path, default=HERE.parent / "reports" / "bench")
    options = parser.parse_args(arguments)
    if "camel" in options.with_ and not options.camel_python:
        parser.error("--with camel needs --camel-python, see benchmarks/README.md")
    bench, sections = Bench(options), []
    for name in options.only:
        about = WORKLOADS[name].__doc__
        print(f"{name}: {about}", flush=True)
        lines = list(WORKLOADS[name](bench))
        for one in lines:
            verdict = {True: "holds", False: "MISSED", None: ""}[one["holds"]]
            print(
                f"    {one['what']}: {one['value']:.3g} {one['unit']} {one['target']} {verdict} {one['note']}"
            )
        sections.append({"name": name, "about": about, "lines": lines})
    facts = {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.platform()}",
        "python": platform.python_version(),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    result = {**facts, "sections": sections, "runs": bench.runs}
    (options.output / "bench.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    template = jinja2.Template((HERE / "bench.html.j2").read_text(encoding="utf-8"), autoescape=True)
    (options.output / "bench.html").write_text(template.render(**result), encoding="utf-8")
    print(f"{options.output / 'bench.html'}")
    missed = [one for section in sections for one in section["lines"] if one["holds"] is False]
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
