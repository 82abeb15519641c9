"""Time and memory of `tune_thresholds`, and how often thresholds miss their target.

    python benchmarks/thresholds.py [--rows 100000]

Draws rows of a made-up judge with four dimensions (four traces a problem), tunes all six rules on them with
every table, and prints seconds (wall and CPU) and the peak memory of the process; then the simulation of
naive and certified thresholds whose truth is known.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import pandas as pd

import cotkit
from cotkit.analysis import simulate_thresholds

DRAFTS = 4


def made_up(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    problem = np.repeat(np.arange(rows // DRAFTS), DRAFTS)
    right = 0.7 * rng.normal(size=rows // DRAFTS)[problem] + 0.7 * rng.normal(size=len(problem)) > -0.5
    frame = pd.DataFrame({"id": problem.astype(str), "iteration": 0, "correct": right})
    for number, power in enumerate((2.0, 1.0, 0.5, 0.0)):
        score = 0.5 + 0.2 * (power * (right - 0.5) + rng.normal(size=len(problem)))
        frame[f"score_{number}"] = np.clip(np.round(score, 1 if number else 4), 0, 1)
    return frame.assign(trace_characters=rng.integers(100, 2000, len(problem)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    frame = made_up(parser.parse_args().rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.perf_counter(), time.process_time()
    report = cotkit.tune_thresholds(frame)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(frame):,} rows: {wall:.1f} s, {cpu:.1f} s of CPU; peak {peak:.0f} MB ({before:.0f} MB before)"
    )
    print(report)
    print(simulate_thresholds().round(3).to_string(index=False))


if __name__ == "__main__":
    main()
