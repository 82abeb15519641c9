r"""A process judge that needs no model: it recomputes what a trace computes.

Three dimensions, each on 0..1:

    steps        share of the checked arithmetic steps that hold; 0.75 when the trace calculates but in no way
                 this judge can read (`3:30 + 45 minutes = 4:15`): passed, and visibly not checked; 0 when it
                 shows no calculation at all
    consistency  1: the final answer is the result of the last step (rounding allowed), or stated behind it;
                 0.75: it is the result of an earlier step; 0.5: it is only stated; 0: it appears nowhere, or
                 there is none
    form         mean of three checks: one marked final answer, no repetition, not cut off

It never looks at the reference. The feedback names each wrong step and what its left side is worth, which
says nothing about whether the plan is right: correct arithmetic on a wrong plan scores 1. Steps are found by
`cotkit.judge.equations`; most algebra with letters and most prose without
equality signs are not checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cotkit import verify
from cotkit.judge.arithmetic import Reader, Unreadable, evaluate, tokens
from cotkit.judge.base import Judge
from cotkit.judge.doubts import is_letter
from cotkit.judge.equations import ANNOTATION, Step, count_unread, find_steps
from cotkit.judge.plain import plain, plain_lines
from cotkit.problems import Problem
from cotkit.records import Dimension, Extraction, Judgement

SHOWN_STEPS = 5  # wrong steps named in the feedback
MANY = 4  # times a sentence or a loop is said before it counts as repetition
UNREAD, EARLIER = 0.75, 0.75  # scores: not checked; the answer of an earlier step
LONG_TRACE = 20_000  # characters; a longer trace is read in a thread, so that other calls go on
LONGEST = 400_000  # characters that are read at all

DIMENSIONS = (
    Dimension(name="steps", guide="share of the checked arithmetic steps that hold", scale=(0, 1)),
    Dimension(name="consistency", guide="the final answer follows from the last step", scale=(0, 1)),
    Dimension(name="form", guide="one marked answer, no repetition, not cut off", scale=(0, 1)),
)
_MARKED = ("box", "hashes", "answer_tag", "pattern")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_SOLVED = re.compile(r"\b[A-Za-z]\s*=\s*([^\s=]{1,20})")
_CUT = ("thinking_not_finished", "unclosed_box", "unclosed_answer_tag")


class StepJudge(Judge):
    """Judges a trace by recomputing it. Needs no model and no reference; see the module's docstring.

    `name` tells it from others in a panel and in a run's records; TypeError where it is no text.
    """

    calls_model = False

    def __init__(self, name: str = "steps"):
        if not isinstance(name, str):
            raise TypeError(f"name must be a text, got {type(name).__name__}")
        super().__init__(name, tuple(d.name for d in DIMENSIONS))
        self.dimensions, self.note = DIMENSIONS, ", a program: no model, no reference"

    def describe(self) -> dict[str, Any]:
        return {"judge": "StepJudge", "name": self.name, "dimensions": list(self.dimension_names)}

    async def ajudge(self, problem: Problem, trace: str, *, ledger: object = None) -> Judgement:
        if len(trace) > LONG_TRACE:
            return await asyncio.to_thread(self._judge, trace)
        return self._judge(trace)

    def _judge(self, trace: str) -> Judgement:
        trace = trace[:LONGEST]
        steps, answer = find_steps(trace), verify.extract(trace)
        parts = {
            "steps": score_steps(steps, 0 if steps else count_unread(trace)),
            "consistency": score_consistency(trace, steps, answer),
            "form": score_form(trace, answer),
        }
        return Judgement(
            scores={name: score for name, (score, _) in parts.items()},
            reasons={name: reason for name, (_, reason) in parts.items()},
            feedback="\n".join(reason for score, reason in parts.values() if score < 1),
            judge=self.name,
            raw={"steps_checked": len(steps), "steps_right": sum(step.holds for step in steps)},
        )


def score_steps(steps: list[Step], unread: int = 0) -> tuple[float, str]:
    if not steps and unread:
        shows = f"{unread} calculation{'s' * (unread > 1)}, of a kind"
        return UNREAD, f"The trace shows {shows} this judge cannot read: not checked."
    if not steps:
        return 0.0, "The trace shows no step that can be checked: write each calculation as 'a * b = c'."
    wrong = [(i, step) for i, step in enumerate(steps, 1) if not step.holds]
    if not wrong:
        return 1.0, f"All {len(steps)} checked steps hold."
    named = [
        f"Step {i} (line {step.line}): '{step.text}' is wrong: {step.computed} = {shown(step.value)}."
        for i, step in wrong[:SHOWN_STEPS]
    ]
    if len(wrong) > SHOWN_STEPS:
        named.append(f"{len(wrong) - SHOWN_STEPS} more steps are wrong.")
    return 1 - len(wrong) / len(steps), " ".join(named)


def score_consistency(trace: str, steps: list[Step], answer: Extraction) -> tuple[float, str]:
    if answer.answer is None:
        return 0.0, "The trace gives no final answer."
    at = trace.rfind(answer.answer)
    before = trace[:at] if at >= 0 else trace
    number = Stated.read(answer.answer)
    if number is None:  # words, an expression: only looked up
        if _squeezed(answer.answer) in _squeezed(before):
            return 1.0, "The final answer is stated in the trace."
        return 0.5, f"The final answer {answer.answer!r} is not stated in the trace before it is given."
    if steps and any(map(number.follows_from, results(steps[-1], before))):
        return 1.0, "The final answer is the result of the last step."
    stated = any(number.follows_from(value) for value in numbers_in(before))
    if not steps:
        if stated:
            return 1.0, "The final answer is stated in the trace."
        return 0.0, f"The final answer {answer.answer} appears nowhere in the trace before it is given."
    if any(number.follows_from(value) for value in numbers_in(_behind(steps[-1], before))):
        return 1.0, "The final answer is stated behind the last step that was checked."
    last = f"the last checked step, '{steps[-1].text}', gives {shown(steps[-1].claimed)}"
    for step in reversed(steps[:-1]):
        if number.follows_from(step.claimed):
            return EARLIER, f"The final answer {answer.answer} follows from '{step.text}'; {last}."
    if stated:
        return 0.5, f"The final answer {answer.answer} is stated, but no checked step gives it; {last}."
    return 0.0, f"The final answer {answer.answer} appears in no step; {last}."


def score_form(trace: str, answer: Extraction) -> tuple[float, str]:
    boxes = boxed(trace)
    several = answer.how == "box" and any(_squeezed(box) not in _squeezed(answer.answer) for box in boxes)
    faults = []
    if answer.answer is None:
        marked, fault = 0.0, "it gives no final answer: end with \\boxed{...}"
    elif several:
        marked, fault = 0.5, f"it boxes {len(set(boxes))} different answers: box the final one only"
    elif answer.how not in _MARKED:
        marked, fault = 0.5, "its final answer is not in a box: end with \\boxed{...}"
    else:
        marked, fault = 1.0, ""
    faults += [fault] if fault else []
    if repeats := repetition(trace):
        faults.append(f"it repeats itself: '{repeats}'")
    if cut := is_cut(trace, answer):
        faults.append("it breaks off before its end")
    score = (marked + (not repeats) + (not cut)) / 3
    return score, f"The form of the trace: {'; '.join(faults)}." if faults else "The form is clean."


@dataclass(frozen=True)
class Stated:
    """A number given as an answer: what it may be worth (20% is 0.2 or 20), its digits behind the point."""

    values: tuple[Fraction, ...]
    decimals: int

    @classmethod
    def read(cls, text: str) -> Stated | None:
        """The one number of an answer like `18`, `$1,200`, `x = 5`, `18 pens`, `\frac{1}{2}`; else None."""
        found = tokens(plain(text).rpartition("=")[2])
        spans = Reader(found).spans()
        if len(spans) != 1 or any(is_letter(word) for node in spans[0].node.walk() for word in node.unit):
            return None
        outside = [*found[: spans[0].start], *found[spans[0].end :]]
        if any(token.kind not in ("word", "$", "break") or token.text in "¦√" for token in outside):
            return None
        try:
            values = {evaluate(spans[0].node, "share"), evaluate(spans[0].node, "plain")}
        except Unreadable:
            return None
        return cls(tuple(values), max(0, spans[0].node.decimals))

    def follows_from(self, result: Fraction) -> bool:
        """Equal to a result, or that result rounded (up, down or to the nearest) to the digits shown."""
        unit = Fraction(1, 10**self.decimals)
        rounded = (result / unit).denominator != 1
        return any(value == result or (rounded and abs(value - result) < unit) for value in self.values)


def results(last: Step, before: str) -> set[Fraction]:
    """What an answer that follows from the last step may say: its result, the same in percent or cents, and
    what a letter was found to be behind it (`x = 8`)."""
    found = {last.claimed}
    if "%" in last.text or "%" in before[-300:] or "percent" in before[-300:]:
        found.add(last.claimed * 100)
    if "$" in last.text and abs(last.claimed) < 1:
        found.add(last.claimed * 100)
    for letter in _SOLVED.finditer(ANNOTATION.sub("", before[-300:])):
        found |= numbers_in(letter[1])
    return found


def numbers_in(text: str) -> set[Fraction]:
    """What is written as a number, a fraction or an expression."""
    found: set[Fraction] = set()
    for _, line in plain_lines(text):
        numbers = tokens(line)
        found |= {token.value for token in numbers if token.kind == "num"}
        for span in Reader(numbers).spans():
            with contextlib.suppress(Unreadable):
                found.add(evaluate(span.node))
    return found


def _behind(last: Step, before: str) -> str:
    """The text behind a step up to the answer, without sentences that only announce it."""
    lines = [(number, line) for number, line in plain_lines(before) if number >= last.line]
    if lines and lines[0][0] == last.line:
        same = [i for i, (number, line) in enumerate(lines) if number == last.line and last.text in line]
        at = same[-1] if same else 0
        lines = [(last.line, lines[at][1].rpartition(last.text)[2]), *lines[at + 1 :]]
    sentences = re.split(r"\n|[.;!?](?:\s|$)", "\n".join(line for _, line in lines))
    return "\n".join(sentence for sentence in sentences if "answer" not in sentence.lower())


def boxed(trace: str) -> list[str]:
    """The contents of the boxes behind the last </think>, empty and unclosed ones left out."""
    visible = trace[trace.rfind("</think>") + 1 :]
    pairs = verify.brace_pairs(visible)
    starts = [match.end() - 1 for match in _BOX.finditer(visible) if match.end() - 1 in pairs]
    return [visible[start + 1 : pairs[start]] for start in starts[-50:] if pairs[start] > start + 1]


def repetition(trace: str) -> str | None:
    """What a trace says again and again: one sentence MANY times, or a loop of words at its end."""
    sentences = Counter(" ".join(s.lower().split()) for s in re.split(r"[\n.!?]+", trace))
    for sentence, times in sentences.most_common(5):
        if times >= MANY and len(sentence) >= 12:
            return sentence[:80]
    words = trace.split()[-600:]
    for period in range(1, 60):
        same = 0
        while same < len(words) - period and words[-1 - same] == words[-1 - same - period]:
            same += 1
        if same >= max(12, (MANY - 1) * period):
            return " ".join(words[-period:])[:80]
    return None


def is_cut(trace: str, answer: Extraction) -> bool:
    """The text stops in the middle: an open box or <think>, an operator, or no answer and no full stop."""
    end = trace.rstrip()[-1:]
    if answer.how in _CUT or end in tuple("+-*/=×÷·≈,({\\") or not end:
        return True
    return answer.answer is None and end.isalnum()


def shown(value: Fraction) -> str:
    """`48`, `2.75`, `8.3333`: exact where it is short."""
    if value.denominator == 1:
        return str(value)
    if abs(value) > sys.float_info.max:
        return f"about {'-' * (value < 0)}10^{len(str(abs(int(value)))) - 1}"
    return f"{float(value):.4f}".rstrip("0") if 10000 % value.denominator == 0 else f"{float(value):.4f}"


def _squeezed(text: str) -> str:
    return re.sub(r"[\s$\\]|text|[{}()]", "", plain(text).lower())
