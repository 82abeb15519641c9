"""cotkit against the floor, side by side: speed, bytes, memory, and what survives.

    cotkit bench                      # all workloads, about twenty minutes
    cotkit bench --only width kill    # some of them; the page keeps the others as they were
    cotkit bench --with camel --camel-python /path/to/venv/bin/python

Every client is a process of its own (drivers.py) against an endpoint in another (mock_endpoint.py); clients
take turns; width, wide, heavy and chain are repeated and compared by medians. Bytes and counts hold on a busy
machine, CPU time nearly, wall times do not. A run is noisy, and no target on wall time is judged by it, when
its client or its endpoint waited for a processor more than 5 % of the time, or a fixed computation before it
took a fifth longer than at its quickest. Writes reports/bench/bench.json and bench.html, where each workload
has the date and the load of its own run.
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
FLOORS = ("aiohttp", "openai")  # bare loops
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
        if driver in FLOORS and took["rows"] < n and not more.get("lose"):
            raise SystemExit(f"{driver} lost {n - took['rows']} rows on {job} n={n}")
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
        self, driver: str, job: str, n: int, width: int, endpoint: Endpoint, folder: str, **more: Any
    ) -> list[str]:
        python = self.pythons.get(driver, sys.executable)
        arguments = {"base-url": endpoint.base_url, "n": n, "width": width, "out": folder, **more}
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
                "driver": driver,
            }
            for driver, own in runs.items()
        }


def width_100(bench: Bench) -> Iterator[Line]:
    """500 ms x 100: the everyday case."""
    with Endpoint(latency_ms=500) as endpoint:
        seen = bench.compare(
            ["aiohttp", "cotkit-aiohttp", "openai", "cotkit-openai"], "single", 2000, 100, endpoint
        )
    yield wall("efficiency of the thin transport, of ideal", seen["cotkit-aiohttp"], seen["aiohttp"], 0.93)
    yield from beside(seen)
    for driver, one in seen.items():
        yield line(f"peak memory of {driver}", one["rss_mb"], "MB")


def heavy(bench: Bench) -> Iterator[Line]:
    """500 ms on average x 100 with a heavy tail (lognormal, sigma 0.8)."""
    with Endpoint(latency_ms=500, sigma=0.8) as endpoint:
        seen = bench.compare(["aiohttp", "cotkit-aiohttp"], "single", 4000, 100, endpoint)
    yield from beside(seen)


def width_1000(bench: Bench) -> Iterator[Line]:
    """2 s x 1000: a cluster behind one address."""
    with Endpoint(latency_ms=2000) as endpoint:
        seen = bench.compare(["aiohttp", "cotkit-aiohttp"], "single", 5000, 1000, endpoint)
        small = bench.run("cotkit-aiohttp", "single", 500, 100, endpoint)
    yield wall("efficiency of the thin transport, of ideal", seen["cotkit-aiohttp"], seen["aiohttp"], 0.85)
    kilobytes = 1024 * (seen["cotkit-aiohttp"]["rss_mb"] - small["rss_mb"]) / 900
    yield line("memory a further call in flight", kilobytes, "kB", "<= 60", kilobytes <= 60)


def chain(bench: Bench) -> Iterator[Line]:
    """Generate, judge, refine: 500 ms x 20, 100 and 300 problems (--large: 1,000 too)."""
    drivers = ["aiohttp", "cotkit-aiohttp", "openai", "cotkit-openai", *bench.pythons]
    for n in (100, 300, 1000)[: 3 if bench.options.large else 2]:
        with Endpoint(latency_ms=500) as endpoint:
            seen = bench.compare(drivers, "chain", n, 20, endpoint)
        for driver, one in seen.items():
            noisy = "(noisy)" if one["noisy"] else ""
            of = f"of {driver}, n = {n:,}"
            yield line(f"efficiency {of}", one["efficiency"], "of ideal", note=noisy)
            yield line(f"CPU a call {of}", one["cpu_ms_a_call"], "ms")
            yield line(f"peak memory {of}", one["rss_mb"], "MB")
            yield line(f"bytes written {of}", one["written_bytes"] / one["file_bytes"], "x its files")
            yield line(f"calls {of}", one["ok"])
            holds = None if driver in bench.pythons else one["mixed"] == 0  # the peer's is no fault of ours
            yield line(f"prompts that mixed two problems, {driver}", one["mixed"], "", "0", holds)
        yield from beside(
            seen,
            f", n = {n:,}",
            "half of the calls judge: their answers are parsed and checked against the dimensions, where the "
            "bare loop reads one number; and each trace is extracted and compared",
        )


def faults(bench: Bench) -> Iterator[Line]:
    """50 ms x 20 with 2 % 500, 2 % 429, 0.5 % dropped connections."""
    for driver in ("openai", "cotkit-openai", "cotkit-aiohttp"):
        with Endpoint(latency_ms=50, **FAULTS) as endpoint:
            seen = bench.run(driver, "single", 400, 20, endpoint, lose=1)
        injected = seen["failed"] + seen["limited"] + seen["dropped"]
        more = seen["requests"] - seen["rows"] - injected
        lost, judged = 400 - seen["rows"], driver not in FLOORS or None
        yield line(f"rows lost, {driver}", lost, "of 400", "0", judged and lost == 0)
        yield line(f"requests beyond rows and {injected} injected faults, {driver}", more, "", "0",
                   judged and more == 0)  # fmt: skip


def cap(bench: Bench) -> Iterator[Line]:
    """1,200 requests a minute allowed, 400 problems, 50 in flight."""
    for driver, named in (
        ("openai", 0),
        ("cotkit-aiohttp", 0),
        ("cotkit-openai", 1200),
        ("cotkit-aiohttp", 1200),
    ):
        with Endpoint(latency_ms=50, rpm=100, speed_up=12) as endpoint:  # 100 in each 5 s
            seen = bench.run(driver, "single", 400, 50, endpoint, rpm=named, lose=1)
        who = driver if named or driver in FLOORS else f"{driver}, which is not told of the cap"
        lost, refused = 400 - seen["rows"], seen["limited"] / seen["requests"]
        used = seen["rows"] / 1200 * 60 / seen["wall_s"]
        yield line(f"rows lost, {who}", lost, "of 400", "0", None if driver in FLOORS else lost == 0)
        yield line(f"429s, {who}", refused, "of requests", "<= 0.01" if named else "",
                   refused <= 0.01 if named else None)  # fmt: skip
        yield line(f"share of the cap used, {who}", used, "", ">= 0.95" if named else "",
                   used >= 0.95 if named and not seen["noisy"] else None)  # fmt: skip


def kill(bench: Bench) -> Iterator[Line]:
    """kill -9 in the middle of a run of 300 problems, then the same call again."""
    for share in (0.1, 0.5, 0.9):
        with (
            tempfile.TemporaryDirectory(prefix="cotkit-bench-") as folder,
            Endpoint(latency_ms=50) as endpoint,
        ):
            command = bench.command("cotkit-aiohttp", "single", 300, 20, endpoint, folder)
            before = killed_at(share * 300, command, endpoint)
            known = answers(pathlib.Path(folder) / "run")
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            requests = endpoint.stats()["requests"]
            rows = (pathlib.Path(folder) / "run" / "rows.jsonl").read_text().count("\n")
        yield line(f"rows after a kill at {share:.0%} and a second call", rows, "of 300", "300", rows == 300)
        again, cut = requests - before["requests"] - (300 - known), requests - 300
        yield line(f"calls asked again of {known} that were completed", again, "", "0", again == 0)
        yield line("calls asked again that were in flight (at most 20)", cut, "", "<= 20", cut <= 20)
    for peer in bench.pythons:
        with (
            tempfile.TemporaryDirectory(prefix="cotkit-bench-") as folder,
            Endpoint(latency_ms=50) as endpoint,
        ):
            command = bench.command(peer, "chain", 60, 20, endpoint, folder)
            before = killed_at(100, command, endpoint)
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            again = endpoint.stats()["repeated"]
        yield line(f"{peer}, its chain: calls asked again of {before['ok']} that were completed", again)


def killed_at(done: float, command: list[str], endpoint: Endpoint) -> dict[str, Any]:
    """What the endpoint saw of a client that was killed when it had so many answers."""
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    while client.poll() is None and endpoint.stats()["ok"] < done:
        time.sleep(0.01)
    if client.poll() is not None:
        raise SystemExit(f"the client ended before it could be killed, with {client.returncode}")
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    while endpoint.stats()["in_flight"]:
        time.sleep(0.01)
    return endpoint.stats()


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
    for peer in bench.pythons:
        with Endpoint() as endpoint:
            few, more = (bench.run(peer, "chain", n, 20, endpoint) for n in (100, 300))
        for seen in (few, more):
            written = seen["written_bytes"] / seen["file_bytes"]
            yield line(f"{peer}, its chain: bytes written, n = {seen['n']}", written, "x its files")
        exponent = math.log(more["written_bytes"] / few["written_bytes"]) / math.log(3)
        yield line(f"{peer}: growth of bytes written from n = 100 to 300", exponent, "exponent")


def many(bench: Bench) -> Iterator[Line]:
    """100,000 problems, no latency: memory must not grow with what is finished."""
    with Endpoint() as endpoint:
        few = bench.run("cotkit-aiohttp", "file", 10_000, 100, endpoint)
        seen = bench.run("cotkit-aiohttp", "file", 100_000, 100, endpoint)
        floor = bench.run("aiohttp", "single", 100_000, 100, endpoint)
    lost = 100_000 - seen["rows"]
    yield line(
        "rows lost or calls asked twice", lost + seen["repeated"], "of 100,000", "0",
        lost == 0 == seen["repeated"],
    )  # fmt: skip
    further = 1024 * 1024 * (seen["rss_mb"] - few["rss_mb"]) / 90_000
    yield line("memory a further problem, everything included", further, "bytes", "<= 300", further <= 300)
    yield line("peak memory", seen["rss_mb"], "MB", note=f"the bare aiohttp loop's: {floor['rss_mb']:.0f}")
    yield from cpu(seen, floor)


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


def beside(seen: dict[str, dict[str, Any]], where: str = "", why: str = "") -> Iterator[Line]:
    """Each of cotkit's transports beside the bare loop over the same client, where both were run."""
    for bare in FLOORS:
        own, floor = seen.get(f"cotkit-{bare}"), seen.get(bare)
        if own and floor:
            ratio = own["efficiency"] / floor["efficiency"]
            holds = None if own["noisy"] or floor["noisy"] else ratio >= 0.95
            what = f"efficiency of cotkit-{bare}, of the bare {bare} loop's{where}"
            yield line(what, ratio, "x", ">= 0.95", holds)
            yield from cpu(own, floor, where, why)


def cpu(own: dict[str, Any], floor: dict[str, Any], where: str = "", why: str = "") -> Iterator[Line]:
    """The targets on processor time: a share of the thin loop's, so much more than the openai loop's."""
    each = f"{own['cpu_ms_a_call']:.2f} against {floor['cpu_ms_a_call']:.2f} ms"
    note = f"{each}; {why}" if why else each
    if own["driver"] == "cotkit-aiohttp":
        ratio = own["cpu_ms_a_call"] / floor["cpu_ms_a_call"]
        what = f"CPU a call of cotkit-aiohttp, of the bare aiohttp loop's{where}"
        yield line(what, ratio, "x", "<= 2.5", ratio <= 2.5, note)
    else:
        more = own["cpu_ms_a_call"] - floor["cpu_ms_a_call"]
        what = f"CPU a call of cotkit-openai beyond the bare openai loop{where}"
        yield line(what, more, "ms", "<= 0.5", more <= 0.5, note)


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


def kept_sections(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The workloads that the page holds already, by name, each with the date and load of its run."""
    if not path.is_file():
        return {}
    page = json.loads(path.read_text(encoding="utf-8"))
    facts = {name: page[name] for name in ("made", "machine", "python") if name in page}  # of an older page
    return {section["name"]: facts | section for section in page["sections"] if section["name"] in WORKLOADS}


def write_page(folder: pathlib.Path, sections: dict[str, dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    page = {"sections": [sections[name] for name in WORKLOADS if name in sections]}
    (folder / "bench.json").write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")
    template = jinja2.Template((HERE / "bench.html.j2").read_text(encoding="utf-8"), autoescape=True)
    (folder / "bench.html").write_text(template.render(**page), encoding="utf-8")


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
    parser.add_argument("--large", action="store_true", help="chain with 1,000 problems too")
    parser.add_argument("--with", dest="with_", nargs="*", choices=["camel"], default=[])
    parser.add_argument("--camel-python", help="the Python of a venv that holds camel-ai")
    parser.add_argument("--output", type=pathlib.Path, default=HERE.parent / "reports" / "bench")
    options = parser.parse_args(arguments)
    if "camel" in options.with_ and not options.camel_python:
        parser.error("--with camel needs --camel-python, see benchmarks/README.md")
    bench, sections = Bench(options), kept_sections(options.output / "bench.json")
    for name in options.only:
        about = WORKLOADS[name].__doc__
        print(f"{name}: {about}", flush=True)
        bench.runs = []
        facts = {
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
            "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.platform()}",
            "python": platform.python_version(),
        }
        lines = list(WORKLOADS[name](bench))
        for one in lines:
            verdict = {True: "holds", False: "MISSED", None: ""}[one["holds"]]
            print(
                f"    {one['what']}: {one['value']:.3g} {one['unit']} {one['target']} {verdict} {one['note']}"
            )
        sections[name] = {"name": name, "about": about, **facts, "lines": lines, "runs": bench.runs}
        write_page(options.output, sections)
    print(f"{options.output / 'bench.html'}")
    sections = [sections[name] for name in options.only]
    missed = [one for section in sections for one in section["lines"] if one["holds"] is False]
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
