"""Programs a second in the sandbox against cold `python program.py` starts, both measured in this run.

    python benchmarks/sandbox.py [--programs 200] [--cold 20] [--workers 2]

The two take turns in blocks, so that a change of the machine's load meets both; a program counts when it
printed what it should. Processor time is that of the programs themselves (for the sandbox without its server
and monitors). Exit code 1 when programs that import numpy and sympy run less than 15 times as fast.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import cotkit
from cotkit.verify import isolation, run_programs

TARGET = 15
PROGRAMS = {  # name -> code, what it prints
    "trivial": ("print(6 * 7)", "42\n"),
    "numpy + sympy": ("import numpy, sympy\nprint(sympy.Integer(6) * int(numpy.sum([3, 4])))", "42\n"),
    "+ integrate, solve": (
        "import numpy, sympy\nx = sympy.Symbol('x')\n"
        "print(sympy.integrate(x * sympy.exp(x), x), sympy.solve(x**2 - 5 * x + 6, x))",
        "(x - 1)*exp(x) [2, 3]\n",
    ),
}


def in_sandbox(code: str, count: int, workers: int) -> tuple[list[str], float]:
    results = run_programs([code] * count, workers=workers, timeout=120)
    return [result.stdout for result in results], sum(result.cpu_seconds or 0 for result in results)


def cold(code: str, count: int, workers: int) -> tuple[list[str], float]:
    before = children_seconds()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(code)
        command = [sys.executable, str(path)]
        with ThreadPoolExecutor(workers) as pool:
            runs = pool.map(
                lambda _: subprocess.run(command, capture_output=True, text=True, check=False), range(count)
            )
            printed = [run.stdout for run in runs]
    return printed, children_seconds() - before


def children_seconds() -> float:
    """Processor time of the child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def measure(code: str, expected: str, arguments: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Way -> programs a second, processor milliseconds a program; in four blocks that take turns."""
    ways = {"sandbox": (in_sandbox, arguments.programs), "cold": (cold, arguments.cold)}
    seconds, cpu = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0)
    blocks = 4
    for _ in range(blocks):
        for way, (run, count) in ways.items():
            started = time.perf_counter()
            printed, used = run(code, count // blocks, arguments.workers)
            seconds[way] += time.perf_counter() - started
            cpu[way] += used
            assert set(printed) == {expected}, printed
    counts = {way: count // blocks * blocks for way, (_, count) in ways.items()}
    return {way: (counts[way] / seconds[way], 1000 * cpu[way] / counts[way]) for way in ways}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--cold", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    started = time.perf_counter()
    level = isolation().level
    print(f"cotkit {cotkit.__version__}, Python {platform.python_version()}, isolation {level}")
    print(f"server and self-test: {time.perf_counter() - started:.2f} s; {arguments.workers} workers")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    print(f"{'':48}processor ms a program")
    print(f"{'program':20}{'sandbox/s':>11}{'cold/s':>9}{'times':>8}{'sandbox':>11}{'cold':>11}")
    ratios = {}
    for name, (code, expected) in PROGRAMS.items():
        measured = measure(code, expected, arguments)
        (fast, fast_ms), (slow, slow_ms) = measured["sandbox"], measured["cold"]
        ratios[name] = fast / slow
        print(f"{name:20}{fast:11.1f}{slow:9.2f}{fast / slow:8.1f}{fast_ms:11.1f}{slow_ms:11.1f}")
    reached = ratios["numpy + sympy"] >= TARGET
    print(f"\nnumpy + sympy at least {TARGET} times as fast: {'yes' if reached else 'NO'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
