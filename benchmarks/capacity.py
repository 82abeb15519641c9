"""How many cores and how long: a capacity model from measured CPU time, and a run of it in simulated time.

    python benchmarks/capacity.py --problems 1000000 --shards 16 --width 250 --latency 8 --cpu-ms 0.5

The model: a shard with `width` calls in flight at a mean latency makes width / latency calls a second, and
needs that many times the CPU time of a call; above 0.8 of a core it is the core that limits. The simulation
plays every chain (generate, judge, refine at most twice) of every problem: lognormal latencies, workers that
are lost at random, whose shard another worker resumes after a pause, asking again only what was in flight.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import time

NEEDED = (0.5, 0.3, 0.2)  # share of problems that need 0, 1, 2 refinements
FULL = 0.8  # of a core, above which latency grows


def calls_a_problem() -> float:
    """Generate and judge, and both again for each refinement."""
    return sum(share * 2 * (1 + refinements) for refinements, share in enumerate(NEEDED))


def model(options: argparse.Namespace) -> dict[str, float]:
    in_flight = min(options.shards * options.width, options.problems)
    calls_a_second = in_flight / options.latency
    return {
        "in_flight": in_flight,
        "calls": options.problems * calls_a_problem(),
        "calls_a_second": calls_a_second,
        "cores_busy": calls_a_second * options.cpu_ms / 1000,
        "of_a_core_each": options.width / options.latency * options.cpu_ms / 1000,
        "hours": options.problems * calls_a_problem() / calls_a_second / 3600,
    }


def simulate(options: argparse.Namespace) -> dict[str, float]:
    """Plays each shard on its own; the run ends with the last of them."""
    ends, again, losses = [], 0, 0
    for shard in range(min(options.shards, options.problems)):
        problems = len(range(shard, options.problems, options.shards))
        end, repeated, lost = play(problems, options, random.Random(f"{options.seed}:{shard}"))
        ends.append(end)
        again += repeated
        losses += lost
    calls = options.problems * calls_a_problem()
    return {
        "hours": max(ends) / 3600,
        "first_shard_done_h": min(ends) / 3600,
        "of_ideal": model(options)["hours"] * 3600 / max(ends),
        "workers_lost": losses,
        "calls_asked_again": again,
        "share_asked_again": again / calls,
    }


def play(problems: int, options: argparse.Namespace, chance: random.Random) -> tuple[float, int, int]:
    """(seconds, calls asked again, workers lost) of one shard: an ideal pool, hurt by losses."""
    law = math.log(options.latency) - options.sigma**2 / 2
    mean_loss = options.hours_to_loss * 3600
    busy = [0.0] * min(options.width, problems)
    next_loss, again, lost = chance.expovariate(1 / mean_loss), 0, 0
    for _ in range(problems):
        refinements = chance.choices(range(len(NEEDED)), NEEDED)[0]
        chain = sum(chance.lognormvariate(law, options.sigma) for _ in range(2 * (1 + refinements)))
        if busy[0] > next_loss:
            lost += 1
            again += len(busy)
            pause = options.pause + options.latency / 2  # half of a call in flight had passed on average
            busy = [at + pause for at in busy]
            next_loss += pause + chance.expovariate(1 / mean_loss)
        heapq.heapreplace(busy, busy[0] + chain)
    return max(busy), again, lost


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--problems", type=int, default=1_000_000)
    arguments.add_argument("--shards", type=int, default=16)
    arguments.add_argument("--width", type=int, default=250, help="calls in flight of a shard")
    arguments.add_argument("--latency", type=float, default=8.0, help="mean seconds of a call")
    arguments.add_argument("--sigma", type=float, default=0.8, help="of the lognormal latency")
    arguments.add_argument(
        "--cpu-ms", type=float, default=0.5, help="of a call: of the chain job of cotkit bench"
    )
    arguments.add_argument("--hours-to-loss", type=float, default=24.0, help="mean, of a worker")
    arguments.add_argument("--pause", type=float, default=60.0, help="seconds until a lost shard goes on")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    for name in ("problems", "shards", "width"):
        if getattr(options, name) < 1:
            arguments.error(f"--{name} must be at least 1")
    expected = model(options)
    if expected["of_a_core_each"] > FULL:
        arguments.error(
            f"a shard would need {expected['of_a_core_each']:.1f} cores and has one: more shards, less width"
        )
    began = time.process_time()
    simulated = simulate(options)
    result = {"model": expected, "simulation": simulated, "cpu_s": time.process_time() - began}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
