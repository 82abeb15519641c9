"""Speed and errors of the answer checker.

    python benchmarks/verify_answers.py [--cases answer_cases.csv] [--solutions gsm8k_model_solutions.jsonl]

Prints pairs per second of CPU time of one core for the typed stages (every text is new: no cache helps), for
extraction, and for the symbolic stage; then, where the public files are given or found, the table of errors.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import random
import time

from cotkit.verify import check_answer, extract, reference_answer

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path(os.environ.get("COTKIT_TEST_DATA", ROOT.parent / "shared" / "data"))
PAIRS = 5000
KINDS = {
    "plain integers": lambda r: (str(r.randrange(10**9)), str(r.randrange(10**9))),
    "decimals": lambda r: (f"{r.random() * 1000:.3f}", f"{r.random() * 1000:.2f}"),
    "thousands separators": lambda r: (f"{r.randrange(10**9):,}", str(r.randrange(10**9))),
    "fractions": lambda r: (
        f"{r.randrange(999)}/{r.randrange(1, 999)}",
        rf"\frac{{{r.randrange(999)}}}{{7}}",
    ),
    "units": lambda r: (f"{r.randrange(9999)} cm", f"{r.randrange(9999)} m"),
    "money": lambda r: (f"${r.randrange(10**7):,}", f"{r.randrange(10**7)} dollars"),
    "lists": lambda r: tuple(", ".join(str(r.randrange(99)) for _ in range(3)) for _ in range(2)),
}
SYMBOLIC = [
    (lambda k: (rf"(x+{k})^2", rf"x^2+{2 * k}x+{k * k}")),
    (lambda k: (rf"\frac{{x}}{{{k}}}", rf"\frac{{1}}{{{k}}}x")),
    (lambda k: (rf"\sqrt{{{k * k * 2}}}", rf"{k}\sqrt{{2}}")),
    (lambda k: (rf"{k}x+1", rf"{k}x+2")),
]


def rate(pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """(pairs per CPU second of this process, pairs per second of the clock)."""
    cpu, wall = time.process_time(), time.perf_counter()
    for reference, prediction in pairs:
        check_answer(prediction, reference)
    return len(pairs) / (time.process_time() - cpu), len(pairs) / (time.perf_counter() - wall)


def speed() -> None:
    generator = random.Random(0)
    print(f"{'typed stages':<24}{'pairs/s (CPU, one core)':>24}")
    for name, make in KINDS.items():
        cpu, _ = rate([make(generator) for _ in range(PAIRS)])
        print(f"{name:<24}{cpu:>24,.0f}")
    check_answer("x+1", "1+x")  # starts the workers
    _, wall = rate([make(k) for k in range(2, 42) for make in SYMBOLIC])
    print(f"{'symbolic, one at a time':<24}{wall:>24,.0f}  (wall clock)")


def errors(path: pathlib.Path) -> None:
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


def solutions(path: pathlib.Path) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=pathlib.Path, default=DATA / "answer_cases.csv")
    parser.add_argument("--solutions", type=pathlib.Path, default=DATA / "gsm8k_model_solutions.jsonl")
    arguments = parser.parse_args()
    speed()
    for report, path in ((errors, arguments.cases), (solutions, arguments.solutions)):
        if path.is_file():
            report(path)
        else:
            print(f"\nskipped: {path} is not there")


if __name__ == "__main__":
    main()
