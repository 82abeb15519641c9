"""From rows to a training file: the view that a policy gives, filters with names, replay, export.

Policies are those of `cotkit.runs.views`, and `gold_vs_model` (SPIN, arXiv 2401.01335): chosen is the worked
solution that came with the problem, if the verifier finds it right, rejected the model's own wrong trace.
Filters say what may not be trained towards beyond what a view leaves out. They look at the chosen side alone,
for a rejected trace may be as bad as it is; but where a program can check the problem, what it could not
decide is on neither side, whatever critics say of it. Two traces that no program told apart make a pair only
when their scores differ by at least twice the judge's measured noise.
"""

from __future__ import annotations

import csv
import pathlib
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from cotkit import aio, analysis
from cotkit.pipelines.running import problem_of
from cotkit.records import Candidate, Row
from cotkit.runs import Example, ExportReport, View, export_rows, label_view, pair_view, sft_view
from cotkit.verify import AnswerVerifier, Verifier

METHODS = {"sft": "trl_prompt_completion", "dpo": "trl_dpo", "dpo_sft": "trl_dpo", "kto": "trl_kto"}
GOLD = "gold_vs_model"
_ALL_PAIRS = 1000  # of one problem, before filters and cap
# Words to the judge instead of to the reader; measured to move the scores of weak judges. Points that are
# awarded, accurate answers and judges at a fair are ordinary words of problems.
BEGGING = re.compile(
    r"\b(?:give|assign|award|rate|score|grade)\s+"
    r"(?:this|it|me|my|the\s+(?:above\s+)?(?:answer|solution|response|reasoning))\b[^.\n]{0,40}"
    r"(?:\b(?:full|highest|maximum|top|perfect)\b[^.\n]{0,12}\b(?:scores?|marks?|points?|rating|grade)\b"
    r"|\b(?:10|ten)\s*(?:/|out\s+of)\s*(?:10|ten)\b)"
    r"|\b(?:this|that|it|above)\s+(?:is|was)\s+(?:an?\s+|the\s+)?(?:\w+ly\s+|very\s+)?"
    r"(?:concise|accurate|excellent|perfect|flawless)\s+(?:and\s+\w+\s+)?(?:answer|solution|response)\b"
    r"|\bas\s+(?:an?|the)\s+(?:ai\s+)?(?:judge|grader|critic|evaluator),?\s+(?:you|please)\b"
    r"|(?:^|[.!?\n]\s*)(?:dear\s+|note\s+to\s+(?:the\s+)?)?(?:judge|grader|evaluator)\s*:"
    r"|\bignore\s+(?:all\s+)?(?:of\s+)?(?:the\s+|your\s+)?previous\s+(?:instruction|prompt|message|rule)",
    re.IGNORECASE,
)
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")  # GSM8K's: 48/2 = <<48/2=24>>24
# What is no language: formulas and code hold Latin letters in every one.
_FORMULA = re.compile(
    r"```.*?```|\$\$.*?\$\$|\$[^$\n]*\$|\\\(.*?\\\)|\\\[.*?\\\]|\\[A-Za-z]+|\b[A-Za-z]\b", re.DOTALL
)
_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA")  # Japanese mixes them
LEAST_OWN = 1 / 3  # share of an answer's letters that are of the problem's script


@dataclass(frozen=True)
class Filters:
    """`max_chars`: of a chosen trace. `require_boxed`: an answer without \\boxed{} teaches the wrong form."""

    min_chars: int = 1
    max_chars: int = 8000
    require_boxed: bool = False

    def describe(self) -> dict[str, object]:
        return asdict(self)

    def fault(
        self, example: Example, noise: float = 0.0, checked: bool = False, verified: bool = False
    ) -> str | None:
        """Why this example is not trained on; None = it is. `noise`: standard deviation of the judge's
        scores on one trace, on 0..1; `checked`: a program decides answers to this problem; `verified`: what
        is proven right is taken whatever the judge said."""
        chosen, rejected = example.candidate, example.rejected
        sides = [chosen] if rejected is None else [chosen, rejected]
        if checked and any(side.verdict.correct is None for side in sides):
            return "undecided"
        if example.label is False:  # KTO's bad answers
            return None
        length = len(chosen.trace)
        faults = {
            "below_threshold": not (chosen.accepted or (verified and chosen.verdict.correct)),
            "too_short": length < self.min_chars,
            "too_long": length > self.max_chars,
            "other_script": _other_script(example.row.problem, chosen.text),
            "speaks_to_judge": bool(BEGGING.search(chosen.text)),
            "gap_below_noise": rejected is not None and _gap_is_noise(chosen, rejected, noise),
        }
        return next((name for name, holds in faults.items() if holds), None)


def _gap_is_noise(chosen: Candidate, rejected: Candidate, noise: float) -> bool:
    """Scores decide a pair only where verdicts do not, and only beyond twice their noise."""
    decided = (chosen.verdict.correct, rejected.verdict.correct) == (True, False)
    return not decided and chosen.score - rejected.score < 2 * noise - 1e-9


def _other_script(problem: str, answer: str) -> bool:
    """The answer is written in another script than the problem (Latin, CJK, Cyrillic ...). Languages of one
    script are not told apart."""
    asked, given = _scripts(problem), _scripts(answer)
    if min(asked.total(), given.total()) < 8:
        return False
    own = asked.most_common(1)[0][0]
    return given[own] < LEAST_OWN * given.total()


def _scripts(text: str) -> Counter[str]:
    """How many of the first letters are of which script."""
    letters = [c for c in _FORMULA.sub(" ", text) if c.isalpha()][:200]
    names = (unicodedata.name(c, "?").split()[0].partition("-")[0] for c in letters)
    return Counter("CJK" if name in _EAST_ASIAN else name for name in names)


def select(
    rows: Sequence[Row],
    method: str,
    policy: str | None,
    filters: Filters,
    cap: int | None,
    noise: float = 0.0,
    checked: Callable[[Row], bool] | None = None,
    verifier: Verifier | None = None,
) -> View:
    """The examples for `method` ("sft", "dpo", "dpo_sft", "kto"), in input order, at most `cap` a problem and
    none twice; and why the rest is not among them. checked: whether a program can check the problem of a row;
    None = what the rows show. verifier: of worked solutions; in place of one that asks a model, and of None,
    an AnswerVerifier."""
    boxed = {"require_boxed": filters.require_boxed}
    if method == "sft":
        view = sft_view(rows, policy or "all_accepted", **boxed)
    elif method == "kto":
        view = label_view(rows, **boxed)
    else:
        gold = policy == GOLD
        if gold:
            free = verifier is None or verifier.calls_model
            by = AnswerVerifier() if free else verifier
            rows = [_gold_row(row, by) for row in rows]
        policy = "correct_vs_wrong" if gold else policy
        view = pair_view(rows, policy, max_pairs_per_problem=_ALL_PAIRS, **boxed)
        view.policy = GOLD if gold else view.policy
    kept, seen, per_problem = [], set(), Counter()
    checked = checked or analysis.drafts.checks(rows)
    for example in view.examples:
        key, id = example_key(example), example.row.id
        reason = filters.fault(example, noise, checked(example.row), policy == "first_correct")
        reason = reason or ("duplicate" if key in seen else None)
        if reason is None and cap is not None and per_problem[id] >= cap:
            reason = "over_cap"
        if reason:
            view.drops[reason] += 1
        else:
            kept.append(example)
            seen.add(key)
            per_problem[id] += 1
    view.examples = kept
    return view


def example_key(example: Example) -> tuple:
    """What makes two examples the same one."""
    sides = (example.candidate, example.rejected)
    return (example.row.problem, *(" ".join(c.trace.split()) if c else None for c in sides), example.label)


def _gold_row(row: Row, verifier: Verifier) -> Row:
    """The row with its worked solution, if that is right, in place of the model's right traces."""
    given = str(row.metadata.get("solution") or row.reference or "")
    wrong = [c.model_copy(update={"parent": None}) for c in row.candidates if c.verdict.correct is False]
    if len(given.split()) < 4:  # a bare answer is no trace to train towards
        return _without(row, "no_worked_solution")
    if not wrong:
        return _without(row, "no_wrong" if row.candidates else row.drop_reason)
    solution = _boxed(given)
    found, verdict = aio.run(verifier.averify(problem_of(row), solution))
    if verdict.correct is not True:
        unsure = "undecided" if verdict.correct is None else "wrong"
        fault = verdict.method if verdict.method == "no_answer" else unsure
        return _without(row, f"worked_solution_{fault}")
    known = {"answer": found.answer, "answer_how": found.how, "verdict": verdict, "accepted": True}
    gold = Candidate(iteration=0, trace=solution, text=solution, **known)
    return row.model_copy(update={"candidates": [gold, *wrong], "final": None, "drop_reason": None})


def _without(row: Row, reason: str | None) -> Row:
    return row.model_copy(update={"candidates": [], "final": None, "drop_reason": reason})


def _boxed(solution: str) -> str:
    """A solution in GSM8K's form as a student writes it: without the calculator's notes, its last line,
    #### 72, as a box. Any other as it is."""
    *lines, last = solution.strip().splitlines()
    if "####" not in last or "\\boxed" in solution:
        return solution.strip()
    before, _, answer = last.rpartition("####")
    text = _CALCULATOR.sub("", "\n".join([*lines, before]).strip())
    return f"{text}\nThe answer is \\boxed{{{answer.strip()}}}."


def write_examples(
    examples: Sequence[Example], path: pathlib.Path, method: str, system: str | None = None
) -> ExportReport:
    """The training file of these examples, written by the exporter of every data set of the kit; the prompt
    is the bare problem (after `system`, if given)."""
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
    return example.row.model_copy(update={"candidates": sides, "final": len(sides) - 1, "accepted": True})


def label_sample(
    pairs: Sequence[Example], path: pathlib.Path, count: int = 20, seed: int = 0
) -> tuple[pathlib.Path, pathlib.Path]:
    """Pairs for a person to judge blindly: (sheet, key), two CSV files beside each other.

    Drawn evenly over the order of the score gap; the sides are shuffled and the sheet names neither scores
    nor verdicts. The key says which side was chosen, so that agreement can be counted afterwards.
    """
    rng, pairs = random.Random(seed), sorted(pairs, key=_gap)
    step = max(1, len(pairs) / count)
    drawn = [pairs[int(i * step)] for i in range(min(count, len(pairs)))]
    rng.shuffle(drawn)
    sheet, key = [], []
    for number, pair in enumerate(drawn, 1):
        chosen = rng.choice("AB")
        sides = {chosen: pair.candidate.trace, "AB".replace(chosen, ""): pair.rejected.trace}
        question = {"number": number, "problem": pair.row.problem, "A": sides["A"], "B": sides["B"]}
        sheet.append(question | {"better (A, B or tie)": ""})
        key.append({"number": number, "id": pair.row.id, "chosen": chosen, "gap": round(_gap(pair), 3)})
    places = path, path.with_name(f"{path.stem}-key.csv")
    for place, lines in zip(places, (sheet, key), strict=True):
        with open(place, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            writer = csv.DictWriter(file, lines[0] if lines else [], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    return places


def _gap(pair: Example) -> float:
    """Difference of the mean scores; 1 where a program told the sides apart and there are none."""
    chosen, rejected = pair.candidate.score, pair.rejected.score
    return 1.0 if None in (chosen, rejected) else chosen - rejected
