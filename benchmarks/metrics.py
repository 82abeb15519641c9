"""How long the comparison of strategies takes on 10,000 questions, and the memory it needs.

    python benchmarks/metrics.py [questions] [seeds]

Three strategies with questions of their own vocabulary, a solver's four drafts for each, and seeds; all that
`StrategyComparison.of` and `recommend` compute, in this process, on two cores where there are more. Ends with
an error when it took more than 60 s of CPU or 1 GB: what was promised for 10,000 questions.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])

from cotkit.analysis import StrategyComparison, compared_texts, recommend
from cotkit.problems import Problem
from cotkit.records import Candidate, Row, Verdict

STRATEGIES = {"few_shot": 0.94, "self_instruct": 0.82, "evol_instruct": 0.56}
LIMIT_S, LIMIT_MB = 60.0, 1024.0
RIGHT, WRONG = (Verdict(correct=correct, method="number") for correct in (True, False))


def vocabulary(rng: random.Random, size: int) -> list[str]:
    """Made-up words, common ones first as in language."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(size)]


def question(rng: random.Random, known: list[str]) -> str:
    count = rng.randint(15, 70)
    words = [known[int(len(known) * rng.random() ** 3)] for _ in range(count)]
    numbers = [str(rng.randint(2, 999)) for _ in range(4)]
    return " ".join(rng.sample(words + numbers, count + 4)) + "?"


def attempt(rng: random.Random, strategy: str, number: int, text: str, seeds: int) -> Row:
    about = {"strategy": strategy, "seed_ids": [f"s{number % seeds}"], "topic": f"t{number % 40}"}
    about |= {"passed": ["attempted", "parsed", "new", "executable"], "operator": f"o{number % 8}"}
    code = "\n".join(f"x{i} = {i} + 1" for i in range(rng.randint(2, 12)))
    worked = "\n".join(["A step."] * rng.randint(2, 12))
    candidate = Candidate(iteration=0, trace=worked, text=worked, verdict=RIGHT, accepted=True)
    return Row(
        index=number,
        id=f"{strategy}-{number:05d}",
        problem=text,
        reference="1",
        accepted=True,
        final=0,
        candidates=[candidate],
        metadata={"synthesis": about, "solution_code": code},
    )


def dropped(row: Row) -> Row:
    return row.model_copy(update={"accepted": False, "drop_reason": "program_error", "candidates": []})


def solved(rng: random.Random, number: int, text: str, rate: float) -> Row:
    drafts = [
        Candidate(
            iteration=0, sample_index=i, trace="", text="", verdict=RIGHT if rng.random() < rate else WRONG
        )
        for i in range(4)
    ]
    return Row(index=number, id=str(number), problem=text, candidates=drafts)


def main(questions: int = 10_000, seed_count: int = 429) -> None:
    rng = random.Random(0)
    known = vocabulary(rng, 20_000)
    seeds = [Problem(id=f"s{i}", problem=question(rng, known), reference="1") for i in range(seed_count)]
    runs, reports = {}, {}
    for strategy, share in STRATEGIES.items():
        own = rng.sample(known, 8000)
        kept = questions // len(STRATEGIES)
        attempts = round(kept / share)
        rows = [attempt(rng, strategy, i, question(rng, own), seed_count) for i in range(attempts)]
        runs[strategy] = [row if i < kept else dropped(row) for i, row in enumerate(rows)]
        ledger = {"calls": attempts, "prompt_tokens": 300 * attempts, "completion_tokens": 200 * attempts}
        reports[strategy] = {"complete": True, "ledger": ledger}
    texts = compared_texts(runs, seeds)
    drafts = [solved(rng, i, text, rng.random()) for i, text in enumerate(texts)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started, cpu = time.perf_counter(), time.process_time()
    found = StrategyComparison.of(runs, reports, seeds, solved=drafts)
    measured, measured_cpu = time.perf_counter() - started, time.process_time() - cpu
    mix = recommend(found, 1000, hard_share=0.2, diversity=0.5)
    seconds, seconds_cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(texts):,} questions, {len(seeds):,} of them seeds; kernel: {found.questions.kernel.name}")
    print(f"diversity on subsets of {sorted(set(found.inside['size']))}; the map shows {len(found.map):,}")
    print(f"all frames {measured:.1f} s ({measured_cpu:.1f} s of CPU)")
    print(f"with the mix {seconds:.1f} s ({seconds_cpu:.1f} s of CPU)")
    print(f"peak memory {peak:,.0f} MB, of which rows and libraries {before:,.0f} MB")
    print(mix.text)
    if seconds_cpu > LIMIT_S or peak > LIMIT_MB:
        sys.exit(f"more than {LIMIT_S:g} s of CPU or {LIMIT_MB:,.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
