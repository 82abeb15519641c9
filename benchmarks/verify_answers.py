"""Speed, bounds and errors of the answer checker. No cache helps: texts are new, but for A to D, yes and no.

    python benchmarks/verify_answers.py [--pairs 2000] [--json result.json]
                                        [--cases answer_cases.csv] [--solutions gsm8k_model_solutions.jsonl]

Prints pairs a second of one core for the typed stages, by family and over all families mixed (the bar:
5,000), for the whole ladder with its symbolic stage, and the time that hostile pairs take; where the public
files are given or found, the table of errors. Exit code 1 when the mixed set is below the bar or a hostile
pair takes longer than its bound.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import platform
import random
import sys
import time
from collections.abc import Callable

from cotkit.verify import AnswerPolicy, check_answer, extract, reference_answer

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path(os.environ.get("COTKIT_TEST_DATA", ROOT.parent / "shared" / "data"))
BAR = 5000  # typed pairs a second, median of the rounds
ROUNDS = 5
BOUND_S = 2 * AnswerPolicy.seconds  # of one pair, its symbolic comparison and the start of a new worker

Make = Callable[[random.Random], tuple[str, str]]


def word(r: random.Random) -> str:
    return "".join(r.choice("aeioulmnrst") for _ in range(9))


def day(r: random.Random) -> str:
    return f"{r.randrange(1, 13):02}/{r.randrange(1, 29):02}/{r.randrange(1000, 3000)}"


FAMILIES: dict[str, Make] = {
    "integers": lambda r: (str(r.randrange(10**9)), str(r.randrange(10**9))),
    "decimals": lambda r: (f"{r.random() * 1000:.3f}", f"{r.random() * 1000:.2f}"),
    "thousands": lambda r: (f"{r.randrange(10**9):,}", str(r.randrange(10**9))),
    "scientific": lambda r: (f"{r.random():.3e}", rf"{r.random():.3f} \times 10^{{{r.randrange(9)}}}"),
    "percent": lambda r: (f"{r.randrange(10**5) / 100}%", rf"{r.randrange(10**5) / 100}\%"),
    "fractions": lambda r: (
        f"{r.randrange(9999)}/{r.randrange(1, 999)}",
        rf"\frac{{{r.randrange(9999)}}}{{7}}",
    ),
    "units": lambda r: (f"{r.randrange(10**6)} cm", f"{r.randrange(10**6)} m"),
    "money": lambda r: (f"${r.randrange(10**7):,}", f"{r.randrange(10**7)} dollars"),
    "lists": lambda r: tuple(", ".join(str(r.randrange(999)) for _ in range(3)) for _ in range(2)),
    "tuples": lambda r: tuple(str(tuple(r.randrange(999) for _ in range(3))) for _ in range(2)),
    "dicts": lambda r: tuple(str({"x": r.randrange(999), "y": r.randrange(999)}) for _ in range(2)),
    "options": lambda r: (r.choice("ABCD"), f"Option {r.choice('ABCD')}"),
    "yes or no": lambda r: (r.choice(("yes", "no")), r.choice(("True", "False", "Yes."))),
    "words": lambda r: (word(r), f"The {word(r)}"),
    "dates": lambda r: (day(r), day(r)),
}
SYMBOLIC: list[Callable[[int], tuple[str, str]]] = [
    lambda k: (rf"(x+{k})^2", rf"x^2+{2 * k}x+{k * k}"),
    lambda k: (rf"\frac{{x}}{{{k}}}", rf"\frac{{1}}{{{k}}}x"),
    lambda k: (rf"\sqrt{{{k * k * 2}}}", rf"{k}\sqrt{{2}}"),
    lambda k: (rf"{k}x+1", rf"{k}x+2"),
]
HOSTILE = {
    "power tower": (r"10^{10^{10}}", r"10^{10^{11}}"),
    "factorial of a factorial": ("(20!)!", "(21!)!"),
    "nested sines": ("\\sin(" * 40 + "x" + ")" * 40, "\\cos(" * 40 + "x" + ")" * 40),
    "hard integral": (r"\int e^{x^{x}} dx", r"\int x^{x^{e}} dx"),
    "huge sum": (r"\sum_{n=1}^{1000000000} \frac{1}{n^2}", r"\frac{\pi^2}{6}"),
    "polynomial": ("(x+y+z+1)^{400}", "(x+y+z)^{400}"),
    "a list in another order": tuple(
        ", ".join(f"x+{k}" for k in order) for order in (range(29), reversed(range(29)))
    ),
    "a megabyte": ("7" * 10**6, "8" * 10**6),
    "deep brackets": ("[" * 900 + "]" * 900, "[" * 901 + "]" * 901),
}  # fmt: skip


def rate(pairs: list[tuple[str, str]], clock: Callable[[], float]) -> float:
    begun = clock()
    for reference, prediction in pairs:
        check_answer(prediction, reference)
    return len(pairs) / (clock() - begun)


def speed(count: int) -> dict:
    """Typed pairs a second of processor time; symbolic stage, whole ladder, hostile pairs by the clock."""
    make = random.Random(0)

    def mixed() -> list[tuple[str, str]]:
        pairs = [family(make) for _ in range(count // ROUNDS) for family in FAMILIES.values()]
        make.shuffle(pairs)
        return pairs

    rounds = sorted(rate(mixed(), time.process_time) for _ in range(ROUNDS))
    families = {
        name: rate([family(make) for _ in range(count)], time.process_time)
        for name, family in FAMILIES.items()
    }
    check_answer("x+1", "1+x")  # starts the workers
    symbolic = [make_pair(k) for k in range(2, 42) for make_pair in SYMBOLIC]
    whole = [*symbolic, *(family(make) for _ in range(96) for family in FAMILIES.values())]  # one in ten
    results = {"typed": families, "typed, mixed": rounds[ROUNDS // 2], "rounds": rounds}
    results |= {"symbolic": rate(symbolic, time.perf_counter), "whole ladder": None, "hostile": {}}
    fresh = [make_pair(k) for k in range(52, 92) for make_pair in SYMBOLIC] + whole[len(symbolic) :]
    results["whole ladder"] = rate(fresh, time.perf_counter)
    for name, (reference, prediction) in HOSTILE.items():
        begun = time.perf_counter()
        verdict = check_answer(prediction, reference)
        results["hostile"][name] = (time.perf_counter() - begun, verdict.correct, verdict.method)
    return results


def show(results: dict) -> None:
    print(f"{'typed stages':<28}{'pairs/s, CPU of one core':>26}")
    for name, value in (*results["typed"].items(), ("all families mixed", results["typed, mixed"])):
        print(f"{name:<28}{value:>26,.0f}")
    print(f"{'  of each round':<28}{', '.join(f'{value:,.0f}' for value in results['rounds']):>26}")
    for name in ("symbolic", "whole ladder"):
        print(f"{name + ', by the clock':<28}{results[name]:>26,.0f}")
    print(f"\n{'hostile pairs':<28}{'seconds':>10}  verdict")
    for name, (seconds, correct, method) in results["hostile"].items():
        print(f"{name:<28}{seconds:>10.2f}  {correct} ({method})")


def errors(path: pathlib.Path) -> dict:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    verdicts = [(row, check_answer(row["prediction"], row["gold"])) for row in rows]
    right = [(row, v) for row, v in verdicts if row["should_match"] == "1"]
    wrong = [(row, v) for row, v in verdicts if row["should_match"] == "0"]
    accepted = [row for row, v in wrong if v.correct]
    facts = [row for row in accepted if "policy" not in row["source_note"]]
    missed = [row for row, v in right if not v.correct]
    unknown = [row for row, v in verdicts if v.correct is None]
    print(f"\n{path.name}: {len(rows)} cases, {len(right)} right and {len(wrong)} wrong answers")
    print(f"  false accepts  {len(accepted)} of {len(wrong)}, outside policy rows {len(facts)}")
    print(f"  false rejects  {len(missed)} of {len(right)} ({len(missed) / len(right):.1%})")
    print(f"  undecided      {len(unknown)} of {len(rows)} ({len(unknown) / len(rows):.1%})")
    for row in (*accepted, *missed):
        print(f"    {row['id']}: {row['gold']!r} against {row['prediction']!r}, {row['source_note']}")
    return {"false_accepts": len(facts), "false_rejects": len(missed), "undecided": len(unknown)}


def solutions(path: pathlib.Path) -> dict:
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    cpu = time.process_time()
    found = [extract(row["solution"]) for row in rows]
    extracted = len(rows) / (time.process_time() - cpu)
    verdicts = [
        check_answer(answer.answer, reference_answer(row["ground_truth"]))
        for row, answer in zip(rows, found, strict=True)
    ]
    disagree = [(row, v) for row, v in zip(rows, verdicts, strict=True) if v.correct is not row["is_correct"]]
    print(f"\n{path.name}: {len(rows)} solutions, {extracted:,.0f} extractions/s (CPU)")
    print(f"  agreement with is_correct {1 - len(disagree) / len(rows):.2%}")
    for row, verdict in disagree:
        print(f"    {row['problem_index']} {row['model']}: {verdict}")
    return {"extractions_per_s": extracted, "agreement": 1 - len(disagree) / len(rows)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of each family")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers to this file")
    parser.add_argument("--cases", type=pathlib.Path, default=DATA / "answer_cases.csv")
    parser.add_argument("--solutions", type=pathlib.Path, default=DATA / "gsm8k_model_solutions.jsonl")
    arguments = parser.parse_args()
    results = speed(arguments.pairs)
    show(results)
    for report, path in ((errors, arguments.cases), (solutions, arguments.solutions)):
        if path.is_file():
            results[path.name] = report(path)
        else:
            print(f"\nskipped: {path} is not there")
    longest = max(seconds for seconds, _, _ in results["hostile"].values())
    load = os.getloadavg()[0]
    results["machine"] = {"python": platform.python_version(), "cores": os.cpu_count(), "load": load}
    met = results["typed, mixed"] >= BAR and longest <= BOUND_S
    print(f"\n{json.dumps(results)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{'met' if met else 'NOT met'}: {BAR:,} typed pairs/s, hostile pairs within {BOUND_S:g} s")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
