"""Seeded rows as `synthesize` leaves them, for tests of what is computed from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from cotkit.problems import Problem
from cotkit.records import Candidate, Row, Verdict

STEPS = ["attempted", "parsed", "new", "executable", "deterministic", "typed", "agrees"]
LOST = {"unparsed": 1, "copied": 2, "program_error": 3, "no_single_answer": 5, "answers_disagree": 6}
THINGS = [
    "apples pears boxes shop", "trains tracks stations hours", "pumps tanks litres valves",
    "bakers loaves ovens trays", "runners laps minutes circuits", "printers pages toner offices",
    "farmers fields tonnes wheat", "tickets seats theatres rows", "ropes metres knots climbers",
]  # fmt: skip


def question(rng: random.Random, themes: Sequence[str] = THINGS) -> str:
    a, b, c, d = rng.sample(rng.choice(themes).split(), 4)
    ask = rng.choice(["How many", "What is the number of", "Find how many"])
    tail = rng.choice(
        [f"are left after the {d} close", f"does each of the {d} get", f"were there before {d}"]
    )
    return f"A group of {a} uses {rng.randint(2, 99)} {b} and {rng.randint(2, 99)} {c}. {ask} {b} {tail}?"


def seeds(count: int = 20, seed: int = 0) -> list[Problem]:
    rng = random.Random(seed)
    return [
        Problem(
            id=f"s{i}",
            problem=f"Seed {i}: {question(rng)}",
            reference=str(i),
            metadata={"topic": f"t{i % 5}"},
        )
        for i in range(count)
    ]


def attempts(
    strategy: str,
    count: int,
    accept: float,
    *,
    seed_ids: Sequence[str] = tuple(f"s{i}" for i in range(20)),
    themes: Sequence[str] = THINGS,
    seed: int = 1,
    failed: int = 0,
) -> list[Row]:
    """`accept`: the chance of each attempt. The first `failed` attempts die at an endpoint."""
    rng = random.Random(f"{strategy}{seed}")
    rows = []
    for i in range(count):
        good = rng.random() < accept and i >= failed
        reason = None if good else "model_timeout" if i < failed else rng.choice(list(LOST))
        passed = STEPS if good else STEPS[: LOST.get(reason, 1)]
        about: dict[str, Any] = {"strategy": strategy, "attempt": i, "passed": passed, "topic": f"t{i % 5}"}
        about |= {"seed_ids": [seed_ids[i % len(seed_ids)]], "operator": ("deepen", "invert")[i % 2]}
        steps = rng.randint(1, 6)
        worked = "\n".join(["Step."] * steps) + "\n\\boxed{7}"
        candidate = Candidate(
            iteration=0,
            trace=worked,
            text=worked,
            answer="7",
            accepted=good,
            verdict=Verdict(correct=True, method="number"),
        )
        rows.append(
            Row(
                index=i, id=f"{strategy}-{i:05d}", reference="7",
                problem=f"{strategy} {i}: {question(rng, themes)}",
                metadata={"synthesis": about, "solution_code": "x = 1\n" * steps + "print(7)"},
                candidates=[candidate] if good else [], final=0 if good else None, accepted=good,
                drop_reason=reason, retryable=i < failed,
            )
        )  # fmt: skip
    return rows


def report(rows: Sequence[Row], tokens: int = 100) -> dict[str, Any]:
    """report.json of a run whose attempts took `tokens` tokens and one call each."""
    n = len(rows)
    ledger = {"calls": n, "prompt_tokens": tokens * n // 2, "completion_tokens": tokens * n - tokens * n // 2}
    return {"given": n, "complete": True, "ledger": {**ledger, "cost_usd": None, "unknown_cost": n}}


def solved(texts: Sequence[str], chance: dict[str, float] | float, k: int = 4, seed: int = 0) -> list[Row]:
    """A solver's rows: `k` drafts a text, right with the chance of its text."""
    rng = random.Random(seed)
    rows = []
    for i, text in enumerate(dict.fromkeys(texts)):
        p = chance if isinstance(chance, float) else chance[text]
        drafts = [
            Candidate(
                iteration=0, sample_index=j, trace="t", text="t", answer="7",
                verdict=Verdict(correct=rng.random() < p, method="number"),
            )
            for j in range(k)
        ]  # fmt: skip
        rows.append(Row(index=i, id=f"p{i}", problem=text, reference="7", candidates=drafts))
    return rows
