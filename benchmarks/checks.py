"""What the kit computes itself, against the naive way to compute it: pairs, programs and questions a second.

    pairs       the typed ladder of `check_answer` against `sympy.simplify` of every pair
    programs    the sandbox against a cold `python program.py` each (sandbox.py measures more)
    questions   self-BLEU by the two highest counts of each n-gram against one pass over all others for each

    python benchmarks/checks.py      # prints {"pairs": [ours, naive], ...} a second

Both ways get the same input, and where both give a number it must be the same.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from metrics import question, vocabulary
from sandbox import PROGRAMS, isolation, measure
from verify_answers import FAMILIES

PLAIN = ("integers", "decimals", "scientific", "fractions")  # what sympy can read


def seconds(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def pairs(count: int = 200, many: int = 4000) -> tuple[float, float]:
    """Pairs a second of processor time: ours on `many`, sympy on `count` of them."""
    import sympy

    from cotkit.verify import check_answer

    make = random.Random(0)
    asked = [FAMILIES[name](make) for _ in range(many // len(PLAIN)) for name in PLAIN]

    def naive() -> None:
        for gold, answer in asked[:count]:
            plain = (text.replace("\\times 10^", "*10**").replace("\\frac", "") for text in (gold, answer))
            left, right = (text.replace("}{", ")/(").translate(BRACES) for text in plain)
            sympy.simplify(sympy.sympify(left) - sympy.sympify(right)) == 0  # noqa: B015 - only its time counts

    def ours() -> None:
        for gold, answer in asked:
            check_answer(answer, gold)

    return many / seconds(ours)[1], count / seconds(naive)[1]


BRACES = str.maketrans("{}", "()")


def programs() -> tuple[float, float]:
    """Programs a second by the clock that import numpy and sympy: the sandbox, cold starts. The sandbox's own
    start and self-test, once a process, are before it."""
    isolation()
    code, expected = PROGRAMS["numpy + sympy"]
    measured = measure(code, expected, argparse.Namespace(programs=80, cold=8, workers=2))
    return measured["sandbox"][0], measured["cold"][0]


def naive_self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Each text against all others, whose highest counts are found anew each time."""
    scores = []
    for i, text in enumerate(texts):
        others = [other for j, other in enumerate(texts) if j != i]
        matches = []
        for n in (1, 2, 3, 4):
            own, highest = grams(text, n), Counter[tuple[str, ...]]()
            for other in others:
                highest |= grams(other, n)
            matches.append(sum(min(count, highest[gram]) for gram, count in own.items()))
        reference = min((abs(len(other) - len(text)), len(other)) for other in others)[1]
        logs, smooth = 0.0, 1
        for n, right in enumerate(matches):
            smooth *= 1 if right else 2
            logs += math.log((right or 1 / smooth) / (len(text) - n))
        bleu = 100 * math.exp(min(0.0, 1 - reference / len(text)) + logs / 4)
        scores.append(bleu if matches[0] else 0.0)
    return sum(scores) / len(scores)


def grams(text: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(text[i:] for i in range(n)), strict=False))


def questions(count: int = 80) -> tuple[float, float]:
    """Questions a second of processor time: ours, naive."""
    from cotkit.analysis.diversity import self_bleu

    rng = random.Random(0)
    known = vocabulary(rng, 3000)
    texts = [question(rng, known).split() for _ in range(count)]
    (fast, took), (slow, took_naive) = (
        seconds(lambda: self_bleu(texts)),
        seconds(lambda: naive_self_bleu(texts)),
    )
    assert math.isclose(fast, slow, rel_tol=1e-9), (fast, slow)
    return count / took, count / took_naive


if __name__ == "__main__":
    print(json.dumps({work.__name__: work() for work in (pairs, programs, questions)}))
