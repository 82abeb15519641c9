r"""The typed ladder: an answer against the reference, stage by stage, until one decides.

Everything here is pure and runs inline. A comparison that only algebra can settle is asked of the symbolic
stage: `Comparison.wanted` collects the pairs, the caller has a worker answer them, and the ladder runs again
with the answers. Parts of lists, equations and quantities go through the same ladder one level deeper.

Each stage is a function (reference, prediction, comparison) -> Outcome, or None for "not my case".
`STAGES` is their order; `FOR_TYPE` names the stages of each answer type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from cotkit.verify import dates, intervals, items, literals, quantities, relations, symbolic, words
from cotkit.verify.arithmetic import DASHED, read_number
from cotkit.verify.normalise import canonical, key, split_top
from cotkit.verify.numbers import Number, compare_numbers
from cotkit.verify.policy import AnswerPolicy
from cotkit.verify.verdicts import PENDING, Outcome

DEEPEST = 5  # lists in lists
MOST_WANTED = 64  # symbolic comparisons of one check
ELLIPSIS = r"\ldots"
NAN = {"nan", "NaN", "NAN", "\\mathrm{nan}"}
PREFIXED = re.compile(r"0x[0-9a-f]+|0b[01]+|0o[0-7]+")
BASE = re.compile(r"([0-9A-Za-z]+)_\{?(\d{1,2}|two|eight|ten|sixteen)\}?")
BASES = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16}
MIXED_DASHED = re.compile(r"\d+ ?- ?\d+/\d+")  # 3-1/2
BRACKETS = set("([{")  # a container literal has one
CONDITION = re.compile(r"(?:[<>]|\\ne) ?\S.*")  # > 8
REMARK = re.compile(r"(.*\S) \((?!or\b|and\b|not\b|but\b|mod)([^()]+)\)")


@dataclass
class Comparison:
    """One check: its settings, the symbolic answers known so far, and the pairs still wanted."""

    policy: AnswerPolicy = field(default_factory=AnswerPolicy)
    answer_type: str | None = None
    tolerance: float | None = None
    answers: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    wanted: list[tuple[str, str]] = field(default_factory=list)
    depth: int = 0

    def compare(self, reference: str, prediction: str) -> Outcome:
        """Run the ladder on two texts as they were written."""
        raw = (reference, prediction)
        reference, prediction = (without_remark(canonical(text)) for text in raw)
        if self.depth == 0 and self.answer_type != "option":
            prediction = words.without_letter(reference, prediction)
        if not reference:
            return Outcome(None, "no_reference", "nothing is left of the reference")
        if not prediction:
            return Outcome(False, "no_answer", "nothing is left of the answer")
        if self.depth > DEEPEST:
            return Outcome(None, "items", "nested too deeply")
        if self.answer_type in (None, "dict", "list", "set", "matrix") and not BRACKETS.isdisjoint(raw[0]):
            outcome = literals.compare_literals(*raw, self.order(), self.inner)
            if outcome is not None:
                return outcome
        for name in FOR_TYPE[self.answer_type]:
            outcome = STAGES[name](reference, prediction, self)
            if outcome is not None:
                return outcome
        return Outcome(None, "ladder", "no stage could compare these")

    def inner(self, reference: str, prediction: str) -> Outcome:
        """A part of an answer, one level deeper; a type that names the whole does not bind its parts."""
        whole, self.depth = self.answer_type, self.depth + 1
        if whole not in KEPT_INSIDE:
            self.answer_type = None
        try:
            return self.compare(reference, prediction)
        finally:
            self.answer_type, self.depth = whole, self.depth - 1

    def order(self) -> bool | None:
        """Does order count? None = as the brackets say. Only the outermost list obeys the answer type."""
        return {"set": False, "list": True}.get(self.answer_type)

    def ask(self, reference: str, prediction: str) -> Outcome:
        """The symbolic stage's answer, or PENDING while it is not known."""
        refusal = symbolic.refusal(reference) or symbolic.refusal(prediction)
        if refusal:
            return Outcome(None, "symbolic", refusal)
        pair = (reference, prediction)
        if pair in self.answers:
            return self.answers[pair]
        if pair not in self.wanted:
            if len(self.wanted) >= MOST_WANTED:
                return Outcome(
                    None, "symbolic", f"more than {MOST_WANTED} symbolic comparisons in one answer"
                )
            self.wanted.append(pair)
        return Outcome(None, PENDING)

    def rules(self) -> quantities.Rules:
        return quantities.Rules(self.policy, self.tolerance, self.answer_type in ("number", "quantity"))


def without_remark(text: str) -> str:
    """`12 (approximately)` -> `12`; brackets that may hold a factor, a unit or a second answer stay."""
    match = REMARK.fullmatch(text) if text.endswith(")") else None
    if match is None or not words.is_prose(match[2]) or quantities.read_quantity(text) is not None:
        return text
    relation = relations.read_relation(match[1])
    value = relation.value if relation and relation.value else match[1]
    return match[1] if quantities.is_plain_value(value) or items.read_items(value) else text


def same(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    if reference in NAN or prediction in NAN:
        wrong = reference not in NAN and read_number(reference) is not None
        return Outcome(False if wrong else None, "same", "NaN is no value")
    if key(reference) == key(prediction):
        return Outcome(True, "same", "the same text")
    return None


def prefixed(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    """`0x1f`, `0b101`. The same value in another notation is undecided: that may be what was asked for."""
    texts = (reference.lower(), prediction.lower())
    values = [int(text, 0) if PREFIXED.fullmatch(text) else None for text in texts]
    if values == [None, None]:
        return None
    if None not in values and texts[0][1] == texts[1][1]:
        return Outcome(values[0] == values[1], "base", "the same base")
    numbers = [
        read_number(text) if value is None else Number(Fraction(value))
        for text, value in zip(texts, values, strict=True)
    ]
    digits = {text if value is None else text[2:] for text, value in zip(texts, values, strict=True)}
    if None in numbers and len(digits) > 1:
        return None
    if len(digits) == 1 or numbers[0].value == numbers[1].value:
        return Outcome(None, "base", "equal in another base, or but for the prefix")
    return Outcome(False, "base", "different values")


def number(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    texts = (reference, prediction)
    gold, answer = (read_number(text) for text in texts)
    if gold is None and answer is None:
        return None
    if gold is None or answer is None:
        values = {
            side or quantities.in_thousands(text) for side, text in zip((gold, answer), texts, strict=True)
        }
        same_value = None not in values and len({number.value for number in values}) == 1
        as_number = True if comparison.answer_type == "number" else None
        return Outcome(as_number, "number", "k, M or B as a number") if same_value else None
    outcome = quantities.compare_values(gold, answer, comparison.rules())
    if outcome.correct is False and any(MIXED_DASHED.fullmatch(text) for text in texts):
        return Outcome(None, "number", "a mixed number or a subtraction?")
    return outcome


def date(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    return dates.compare_dates(reference, prediction, comparison.answer_type == "date")


def time(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    return dates.compare_clocks(reference, prediction, comparison.answer_type == "time")


def yes_no(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    return words.yes_no(reference, prediction, comparison.answer_type == "yes_no")


def option(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    asked = comparison.answer_type == "option"
    return words.options(reference, prediction, asked, comparison.policy.fold_case, comparison.inner)


def quantity(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    gold, answer = (quantities.read_quantity(text) for text in (reference, prediction))
    if (gold or answer) is not None and (gold or answer).units:  # 2\sqrt{3} m against 2\sqrt{3}
        gold, answer = (
            side or (quantities.Quantity(text, None) if quantities.is_numeric(text) else None)
            for side, text in ((gold, reference), (answer, prediction))
        )
    if gold is None or answer is None:
        return None
    return quantities.compare_quantities(gold, answer, comparison.rules(), comparison.inner)


def infinite(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    gold, answer = (intervals.INFINITE.get(text.replace(" ", "")) for text in (reference, prediction))
    if gold is None and answer is None:
        return None
    if gold is not None and answer is not None:
        return Outcome(gold == answer, "number", "infinity" if gold == answer else "the other infinity")
    finite = read_number(reference if gold is None else prediction) is not None
    return Outcome(False, "number", "infinity against a number") if finite else None


def ellipsis(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    if ELLIPSIS in reference or ELLIPSIS in prediction:
        return Outcome(None, "ellipsis", "an ellipsis leaves something out")
    return None


def interval(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    gold, answer = intervals.read_set(reference), intervals.read_set(prediction)
    if gold is not None and answer is None:
        ends = {end for piece in gold.pieces for end in piece[:2]}
        if intervals.SIGN.search(prediction) and all(map(relations.is_constant, ends)):
            return Outcome(None, "interval", "an inequality that gives no set")  # |x - 1| < 2
        if gold.clear:  # 2 \le x \le 2 against 2
            answer = intervals.point(prediction)
    if answer is not None and gold is None and answer.clear:
        gold = intervals.point(reference)
    if (
        gold is None
        or answer is None
        or not (gold.clear or answer.clear or comparison.answer_type == "interval")
    ):
        return None
    return intervals.compare_sets(gold, answer, comparison.inner)


def relation(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    condition = CONDITION.fullmatch(reference) or CONDITION.fullmatch(prediction)
    if condition and read_number(prediction if condition.string == reference else reference) is not None:
        return Outcome(False, "relation", "a condition against a number")
    outcome = relations.compare_assignments(reference, prediction, comparison.inner)
    return outcome or relations.compare_relations(reference, prediction, comparison.inner)


def collection(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    gold, answer = items.read_items(reference), items.read_items(prediction)
    if gold is None and answer is None:
        return None
    if gold is None or answer is None:
        single, several = (reference, answer) if gold is None else (prediction, gold)
        if len(several.items) == 1 and comparison.order() is not True:
            return comparison.inner(
                *((single, several.items[0]) if gold is None else (several.items[0], single))
            )
        if not several.items and read_number(single) is None:
            return None  # the empty set against words
        if re.sub(r"\s", "", reference) == re.sub(r"\s", "", prediction):
            return Outcome(None, "items", "a list or a number with thousands separators?")
        if outcome := as_sum(single, several, gold is None, comparison):
            return outcome
        if words.is_words(single) and several.kind == "bare" and not several.words_joined:
            return None  # "Paris" against "Paris, France"
    in_order = comparison.policy.bare_list_in_order
    outcome = items.compare_items(gold, answer, comparison.order(), in_order, comparison.inner).by("items")
    if outcome.correct is False and intervals.may_be_equal(reference, prediction):
        return Outcome(None, "items", "conditions whose common set is not known")
    return outcome


def as_sum(single: str, several: items.Items, swapped: bool, comparison: Comparison) -> Outcome | None:
    """`14 weeks 2 days` against `('14 weeks', '2 days')`."""
    parts = [canonical(item) for item in several.items]
    joined = " ".join(parts)
    if not all((read := quantities.read_quantity(text)) and read.units for text in (single, joined, *parts)):
        return None
    return comparison.inner(*((single, joined) if swapped else (joined, single)))


def in_words(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    asked = comparison.answer_type == "text"
    return words.words(reference, prediction, comparison.policy.fold_case, asked)


def ratio(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    gold, answer = read_ratio(reference), read_ratio(prediction)
    if gold is None and answer is None:
        return None
    if gold is None or answer is None:
        several, single = (gold or answer), read_number(prediction if answer is None else reference)
        if single is None or len(several) != 2 or single.pi:
            return Outcome(None, "ratio", "only one side is a ratio")
        if not comparison.policy.ratio_as_quotient or not several[1]:
            return Outcome(False, "ratio", "a ratio against a number")
        quotient = single._replace(value=several[0] / several[1], quantum=None)
        pair = (quotient, single) if answer is None else (single, quotient)
        correct, reason = compare_numbers(*pair, comparison.policy, comparison.tolerance)
        return Outcome(correct, "ratio", reason)
    correct = len(gold) == len(answer) and all(
        a * answer[k + 1] == answer[k] * gold[k + 1] for k, a in enumerate(gold[:-1])
    )
    return Outcome(correct, "ratio", "the same ratio" if correct else "another ratio")


def read_ratio(text: str):
    """`2:3`, `1 : 2 : 3` and `2 to 3` as Fractions."""
    parts = split_top(text.replace(" to ", ":"), ":")
    numbers = [read_number(part.strip()) for part in parts]
    if (
        len(parts) < 2
        or any(part is None or part.pi for part in numbers)
        or not any(n.value for n in numbers)
    ):
        return None
    return [part.value for part in numbers]


def dashed(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    """`12-15`: a range, a score or a number with dashes; no subtraction."""
    sides = [bool(DASHED.fullmatch(text)) for text in (reference, prediction)]
    if not any(sides):
        return None
    if all(sides):
        same_numbers = [int(n) for n in reference.split("-")] == [int(n) for n in prediction.split("-")]
        return Outcome(same_numbers, "dashed", "the same numbers" if same_numbers else "other numbers")
    return Outcome(None, "dashed", "a range, a score or a subtraction?")


def base(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    sides = [BASE.fullmatch(text) for text in (reference, prediction)]
    if not all(side is None or side[1][0].isdigit() for side in sides) or not any(sides):
        return None
    if not all(sides):
        return Outcome(None, "base", "the base is given on one side only")
    bases = [BASES.get(side[2]) or int(side[2]) for side in sides]
    if bases[0] == bases[1]:
        correct = sides[0][1].lstrip("0").upper() == sides[1][1].lstrip("0").upper()
        return Outcome(correct, "base", "the same digits" if correct else "other digits")
    try:
        correct = int(sides[0][1], bases[0]) == int(sides[1][1], bases[1])
    except ValueError:
        return Outcome(None, "base", "digits that the base does not have")
    return Outcome(
        None if correct else False, "base", "equal in another base" if correct else "different values"
    )


def algebra(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    outcome = comparison.ask(reference, prediction)
    if outcome.correct and relations.rearranged(reference, prediction):
        return Outcome(None, "symbolic", "the same equation, solved for another symbol")
    return outcome


STAGES = {
    "same": same,
    "prefixed": prefixed,
    "number": number,
    "date": date,
    "time": time,
    "yes_no": yes_no,
    "option": option,
    "quantity": quantity,
    "infinite": infinite,
    "interval": interval,
    "ellipsis": ellipsis,
    "relation": relation,
    "items": collection,
    "words": in_words,
    "ratio": ratio,
    "dashed": dashed,
    "base": base,
    "algebra": algebra,
}
VALUES = (
    "same",
    "prefixed",
    "number",
    "quantity",
    "infinite",
    "ellipsis",
    "relation",
    "items",
    "words",
    "ratio",
    "dashed",
    "base",
)
FOR_TYPE = {
    None: tuple(STAGES),
    "number": (*VALUES, "algebra"),
    "quantity": (*VALUES, "algebra"),
    "ratio": (*VALUES, "algebra"),
    "option": ("same", "option"),
    "yes_no": ("same", "yes_no"),
    "text": ("same", "words"),
    "date": ("same", "date"),
    "time": ("same", "time"),
    "set": ("same", "interval", "ellipsis", "relation", "items", "words", "algebra"),
    "list": ("same", "ellipsis", "relation", "items", "words", "algebra"),
    "interval": ("same", "interval", "relation", "words", "algebra"),
    "matrix": ("same", "ellipsis", "relation", "items", "algebra"),
    "dict": ("same", "relation", "words"),
    "algebra": ("same", "number", "infinite", "interval", "ellipsis", "relation", "items", "base", "algebra"),
}
KEPT_INSIDE = {"number", "quantity", "algebra", "text", "option"}
