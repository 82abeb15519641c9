"""The processes that the soak hurts, each one pipeline on one run folder.

    python benchmarks/soak_runs.py distill BASE_URL FOLDER COUNT TRANSPORT TIMEOUT FILE_LIMIT

TIMEOUT: seconds of a call. FILE_LIMIT: bytes that no file may grow beyond, as on a full disk; 0 = none. Never
more than WIDTH calls are in flight, whatever the pipeline. Prints one line of JSON: why the run and its parts
have stopped, [] = they have not.
"""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

import drivers

import cotkit

WIDTH = 12
GATES = {"near": 0.99, "rouge_l": 1.0, "new_words": 0, "min_words": 1, "keywords": [], "rules": []}
Model = Callable[..., cotkit.ChatModel]
Reasons = Iterable[str | None]


def problems(count: int) -> list[dict[str, str]]:
    return [{"id": str(n), "problem": drivers.problem_text(n), "reference": str(n)} for n in range(count)]


def distill(model: Model, folder: pathlib.Path, count: int, width: int = WIDTH, **where: Any) -> Reasons:
    """Generate, judge, refine at most twice."""
    one = model("mock", max_concurrency=width)
    judge = cotkit.LLMJudge(one, ["correctness"])
    options = {"max_iterations": drivers.REFINEMENTS, "score_threshold": drivers.PASS, **where}
    yield cotkit.distill(problems(count), one, judge, run=folder, show="none", **options).report["stopped"]


def shards(model: Model, folder: pathlib.Path, count: int) -> Reasons:
    """The same as two shards, in processes of their own."""
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        yield from distill(model, folder, count, WIDTH // 2, executor=executor, shards=2)


def synthesize(model: Model, folder: pathlib.Path, count: int) -> Reasons:
    """Questions, programs in the sandbox, worked answers."""
    seeds = [
        {"id": f"seed {n}", "problem": f"Seed {n} of the {chr(97 + n)} kind?", "reference": str(n)}
        for n in range(6)
    ]
    options = {"attempts": count, "gates": GATES, "allow_weak_isolation": True, "run": folder, "show": "none"}
    one = model("mock", max_concurrency=WIDTH)
    yield cotkit.synthesize(seeds, "few_shot", one, **options).report["stopped"]


def benchmark(model: Model, folder: pathlib.Path, count: int) -> Reasons:
    """Two models at the same time, two answers a problem."""
    models = {name: model(name, max_concurrency=WIDTH // 2) for name in ("first", "second")}
    report = cotkit.benchmark(problems(count), models, num_generations=2, run=folder, show="none")
    for name in models:
        yield report.failed.get(name) or cotkit.open_run(folder / name).report["stopped"]


def self_improve(model: Model, folder: pathlib.Path, count: int) -> Reasons:
    """Two cycles that make data and train nothing."""
    one = model("mock", max_concurrency=WIDTH)
    options = {"cycles": 2, "num_generations": 2, "iterations": 1, "dev": 0, "test": 0}
    options |= {"score_threshold": 0.8, "dimensions": ["correctness"], "problems_per_cycle": count // 2}
    made = cotkit.self_improve(problems(count), one, [one], one, run=folder, show="none", **options)
    yield made.report["stopped"]


PIPELINES = {f.__name__: f for f in (distill, shards, synthesize, benchmark, self_improve)}


def main() -> None:
    name, base_url, folder, count, transport, timeout, file_limit = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    if limit := int(file_limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def model(model: str, **options: Any) -> cotkit.ChatModel:
        more = {"base_url": base_url, "max_retries": 8, "transport": transport, "timeout": float(timeout)}
        return cotkit.ChatModel(model, **more, **options)

    reasons = PIPELINES[name](model, pathlib.Path(folder), int(count))
    print(json.dumps([reason for reason in reasons if reason]))


if __name__ == "__main__":
    main()
