"""From rows to a training file: the view that a policy gives, filtered, with replay, exported and validated.

Policies are those of `cotkit.runs.views`, and `gold_vs_model` (SPIN, arXiv 2401.01335): chosen is the worked
solution that came with the problem, rejected the model's own wrong trace. Whatever was kept is written as
rows that hold these traces alone, through the same exporter as every data set of the kit.
"""

from __future__ import annotations

import csv
import pathlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cotkit.pipelines.filters import Filters, apply_filters
from cotkit.records import Candidate, Row, Verdict
from cotkit.runs import Example, ExportReport, export_rows, label_view, pair_view, sft_view

METHODS = {"sft": "trl_prompt_completion", "dpo": "trl_dpo", "dpo_sft": "trl_dpo", "kto": "trl_kto"}
GOLD = "gold_vs_model"
_ALL_PAIRS = 1000  # of one problem, before filters and cap


@dataclass
class Selection:
    """What is trained on, and what became of the rest: `generated == len(kept) + sum(drops)`."""

    policy: str
    unit: str
    generated: int
    kept: list[Example] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)


def select(
    rows: Sequence[Row], method: str, policy: str | None, filters: Filters, cap: int | None
) -> Selection:
    """The examples for `method` ("sft", "dpo", "dpo_sft", "kto"), in input order."""
    boxed = {"require_boxed": filters.require_boxed}
    if method == "sft":
        view = sft_view(rows, policy or "all_accepted", **boxed)
    elif method == "kto":
        view = label_view(rows, **boxed)
    else:
        gold = policy == GOLD
        rows = [_gold_row(row) for row in rows] if gold else rows
        policy = "correct_vs_wrong" if gold else policy
        view = pair_view(rows, policy, max_pairs_per_problem=_ALL_PAIRS, **boxed)
        view.policy = GOLD if gold else view.policy
    kept, drops = apply_filters(view.examples, filters, cap)
    return Selection(view.policy or "labels", view.unit, view.given, kept, view.drops + drops)


def _gold_row(row: Row) -> Row:
    """The row with its worked solution in place of the model's right traces."""
    solution = str(row.metadata.get("solution") or row.reference or "").strip()
    wrong = [c.model_copy(update={"parent": None}) for c in row.candidates if c.verdict.correct is False]
    candidates = [] if len(solution.split()) < 4 else wrong  # a bare answer is no trace to train towards
    if candidates:
        verdict = Verdict(correct=True, method="reference")
        gold = Candidate(iteration=0, trace=solution, text=solution, verdict=verdict, accepted=True)
        candidates = [gold, *wrong]
    reason = None if candidates else "no_worked_solution"
    return row.model_copy(update={"candidates": candidates, "final": None, "drop_reason": reason})


def write_examples(
    examples: Sequence[Example], path: pathlib.Path, method: str, system: str | None = None
) -> ExportReport:
    """The training file of these examples; the prompt is the bare problem (after `system`, if given)."""
    policy = {"sft": "all_accepted", "kto": None}.get(method, "first_vs_last")
    rows = [_row_of(example) for example in examples]
    return export_rows(rows, path, METHODS[method], policy=policy, system=system, metadata=True)


def _row_of(example: Example) -> Row:
    """A row whose only trace is the example's; a pair becomes a draft and its refinement."""
    chosen = example.candidate
    if example.rejected is None:
        accepted = chosen.accepted if example.label is not None else True
        sides = [chosen.model_copy(update={"parent": None, "accepted": accepted})]
    else:
        sides = [
            example.rejected.model_copy(update={"iteration": 0, "parent": None}),
            chosen.model_copy(update={"iteration": 1, "parent": 0}),
        ]
    final = len(sides) - 1
    return example.row.model_copy(update={"candidates": sides, "final": final, "accepted": True})


def label_sample(
    examples: Sequence[Example], path: pathlib.Path, count: int = 20, seed: int = 0
) -> tuple[pathlib.Path, pathlib.Path]:
    """Pairs for a person to judge blindly: (sheet, key), two CSV files beside each other.

    Drawn evenly over the order of the score gap; the sides are shuffled and the sheet names neither scores
    nor verdicts. The key says which side was chosen, so that the share of agreement can be counted
    afterwards.
    """
    rng = random.Random(seed)
    pairs = sorted((e for e in examples if e.rejected), key=_gap)
    step = max(1, len(pairs) / count)
    drawn = [pairs[int(i * step)] for i in range(min(count, len(pairs)))]
    rng.shuffle(drawn)
    key = path.with_name(f"{path.stem}-key.csv")
    with (
        open(path, "w", encoding="utf-8", newline="") as sheet_file,
        open(key, "w", encoding="utf-8", newline="") as key_file,
    ):
        sheet, answers = csv.writer(sheet_file), csv.writer(key_file)
        sheet.writerow(["number", "problem", "A", "B", "better (A, B or tie)"])
        answers.writerow(["number", "id", "chosen", "gap"])
        for number, example in enumerate(drawn, 1):
            sides = [("chosen", example.candidate.trace), ("rejected", example.rejected.trace)]
            rng.shuffle(sides)
            sheet.writerow([number, example.row.problem, sides[0][1], sides[1][1], ""])
            side = "A" if sides[0][0] == "chosen" else "B"
            answers.writerow([number, example.row.id, side, f"{_gap(example):.3f}"])
    return path, key


def _gap(example: Example) -> float:
    """Difference of the mean scores; 1 where a program told the sides apart and there are none."""
    chosen, rejected = example.candidate.judgement, example.rejected.judgement
    if chosen is None or rejected is None or chosen.mean is None or rejected.mean is None:
        return 1.0
    return chosen.mean - rejected.mean
