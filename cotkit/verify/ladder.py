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
UNEVALUATED = re.compile(r"\[\[|\\(?:cap|setminus|begin)(?![A-Za-z])")
NAN = {"nan", "NaN", "NAN", "\\mathrm{nan}"}
PREFIXED = re.compile(r"0x[0-9a-f]+|0b[01]+|0o[0-7]+")
BASE = re.compile(r"([0-9A-Za-z]+)_\{?(\d{1,2}|two|eight|ten|sixteen)\}?")
BASES = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16}
MIXED_DASHED = re.compile(r"\d+ ?- ?\d+/\d+")  # 3-1/2
BRACKETS = set("([{")  # a container literal has one
CONDITION = re.compile(r"(?:[<>]|\\ne) ?\S.*")  # > 8
RANGE = re.compile(  # x = 3k, k \in \mathbb{Z}
    r"(.+?),? (?:(?:where|with|and|for) )?(?:(?:all|any|every) )?([a-z])"
    r"(?: ?\\in ?\\mathbb\{([ZNR])\}(?:\^\{?\+\}?)?| is an? (?:arbitrary |any )?integer)"
    r"|(.+?),? for (?:all|any|every|some) integers? ([a-z])"
)
INTEGER_LETTER = re.compile(r"(?<![\\A-Za-z])[kmn](?![A-Za-z])")
DOTTED = re.compile(r"[vV]?(\d+(?:\.\d+){2,})(?:([/:])(\d+))?")  # an address, a version
VECTOR = re.compile(r"\\(?:vec|overrightarrow) ?(?:\{([^{}]*)\}|([A-Za-z]))")
THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
ROW = re.compile(r"-?\d+(?:\.\d+)?(?: -?\d+(?:\.\d+)?(?:/\d+)?)+")
PATH = re.compile(r"[A-Za-z]\w?(?:-[A-Za-z]\w?){2,}|[TF](?: [TF])+")
NOT_MULTIPLIED = [  # (what the two texts hold, one a line, why equal products prove nothing)
    (
        re.compile(
            r"\A(?=[0-9A-Za-z\n]*[A-Za-z]\d)[0-9A-Za-z]+\n[0-9A-Za-z]+\Z|\A[A-Z]{2,}\{\w+\}\n"
            r"|[a-z]{2,} -[a-z]{2,}|[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){2,}"
        ),
        "names or products?",
    ),
    (re.compile(r"\| ?[zw] ?\||\\(?:bar|overline)\{[zw]\}"), "a complex number?"),
    (re.compile(r"[A-Z]\^\{?(?:-1|T)\}?|[A-Z] ?\\times ?[A-Z]"), "matrices or sets, in another order?"),
]
PRODUCT = re.compile(r"\d+ ?(?:\\times|x|X) ?\d+|\d+ ?\\times ?\d+(?: ?\\times ?\d+)+")
APPROXIMATED = re.compile(
    r"(.*\S) \((?:\\approx|or about|approximately|approx\.?|about|roughly) ?([-\d.$\\][^()]*)\)"
)
REMARK = re.compile(r"(.*\S) \((?!or\b|and\b|not\b|but\b|mod)([^()]+)\)")
DOUBT = re.compile(  # in a remark: 5 (maybe 6), 5 (incorrect), B (C is also right)
    r"\b(?:maybe|perhaps|possibly|probably|likely|could|might|another|alternative(?:ly)?|wait|actually|rather"
    r"|corrected|correction|instead|if|when|unless|else|otherwise|wrong|incorrect|false|untrue"
    r"|also (?:right|correct|true|valid|possible|an? |accept)|or (?=[-\d\\$(]|[A-H]\b)|(?:is|are) not"
    r"|isn't)\b"
    r"|\Ano\b(?!\w| [a-z])",
    re.I,
)


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
        reference, prediction = without_range(reference, prediction)
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
    if text[:1] == "=" and text[1:2] != "=":
        text = text[1:].strip()
    if text.endswith(")") and (rounded := APPROXIMATED.fullmatch(text)):
        exact, last = rounded[1], rounded[2].strip()
        if relations.is_rounding(exact, last) is not None:  # else it is as any remark: 5 km (about 3 miles)
            return rf"{exact} \approx {last}"
    match = REMARK.fullmatch(text) if text.endswith(")") else None
    if (
        match is None
        or DOUBT.search(match[2])
        or not words.is_prose(match[2])
        or quantities.read_quantity(text) is not None
    ):
        return text
    relation = relations.read_relation(match[1])
    value = relation.value if relation and relation.value else match[1]
    return match[1] if quantities.is_plain_value(value) or items.read_items(value) else text


def without_range(reference: str, prediction: str) -> tuple[str, str]:
    r"""`3k, k \in \mathbb{Z}` -> `3k`, unless the other side names another set; one letter for both."""
    ranged = (r"\in" in text or "integer" in text for text in (reference, prediction))
    if not any(ranged):
        return reference, prediction
    found = [RANGE.fullmatch(text) for text in (reference, prediction)]
    parts = [match and (match[1] or match[4], match[2] or match[5], match[3] or "Z") for match in found]
    parts = [part if part and symbol(part[1]).search(part[0]) else None for part in parts]
    if not any(parts) or (all(parts) and parts[0][2] != parts[1][2]):
        return reference, prediction
    reference, prediction = (
        part[0] if part else text for part, text in zip(parts, (reference, prediction), strict=True)
    )
    if all(parts) and not symbol(parts[0][1]).search(prediction):
        prediction = symbol(parts[1][1]).sub(parts[0][1], prediction)
    return reference, prediction


def symbol(letter: str) -> re.Pattern:
    return re.compile(rf"(?<![\\A-Za-z]){letter}(?![A-Za-z])")


def same(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    if reference in NAN or prediction in NAN:
        wrong = reference not in NAN and read_number(reference) is not None
        return Outcome(False if wrong else None, "same", "NaN is no value")
    if key(reference) == key(prediction):
        if reference != prediction and THOUSANDS.findall(reference) != THOUSANDS.findall(prediction):
            return None  # 1,234 against 1, 234
        return Outcome(True, "same", "the same text")
    if r"\cross" in reference + prediction:
        unmarked = {
            VECTOR.sub(r"\1\2", text).replace(r"\cross", r"\times").replace(" ", "")
            for text in (reference, prediction)
        }
        return Outcome(True, "same", "the same text") if len(unmarked) == 1 else None
    return None


def dotted(reference: str, prediction: str, comparison: Comparison) -> Outcome | None:
    """`192.168.1.1`, `10.0.0.0/8`, `1.10.2`: no product, and no number."""
    sides = [DOTTED.fullmatch(text) if "." in text else None for text in (reference, prediction)]
    if not any(sides) or any(map(dates.read_date, (reference, prediction))):
        return None
    if not all(sides):
        other, points = reference if sides[0] is None else prediction, (sides[0] or sides[1])[1]
        number = read_number(other)
        sure = number is not None and number.value != int(points.replace(".", ""))  # 1.234.567, 1234567
        sure = sure and not points.startswith(other)  # 1.10.0, 1.10
        return Outcome(False if sure else None, "dotted", "an address or a version on one side only")
    if sides[0].groups() == sides[1].groups():
        return Outcome(True, "dotted", "the same address or version")
    numbers = [[int(n) for n in side[1].split(".")] for side in sides]
    while len(numbers[0]) != len(numbers[1]) and max(numbers, key=len)[-1] == 0:
        max(numbers, key=len).pop()  # 1.10.0 is 1.10
    alike = numbers[0] == numbers[1] and (sides[0][3] == sides[1][3] or not (sides[0][3] and sides[1][3]))
    return Outcome(None if alike else False, "dotted", "an address or a version")


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
    if outcome.correct and reference != prediction and all(map(PRODUCT.fullmatch, texts)):
        return Outcome(None, "number", "products, or dimensions?")  # 3 x 4, 2 x 6
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
    if r"\cup" in reference + prediction:  # increasing on (0,1) and (2,3)
        gold, answer = gold or intervals.listed(reference), answer or intervals.listed(prediction)
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
    grouped = [THOUSANDS.findall(text) for text in (reference, prediction)]
    unsure = None in (gold, answer) or (grouped[0] != grouped[1] and BRACKETS.isdisjoint(reference))
    if unsure and re.sub(r"\s", "", reference) == re.sub(r"\s", "", prediction):
        return Outcome(None, "items", "a list or a number with thousands separators?")
    gold, answer = gold or relations.multiplied(reference), answer or relations.multiplied(prediction)
    if gold is None or answer is None:
        single, several = (reference, answer) if gold is None else (prediction, gold)
        if len(several.items) == 1 and comparison.order() is not True:
            return comparison.inner(
                *((single, several.items[0]) if gold is None else (several.items[0], single))
            )
        if not several.items and read_number(single) is None:
            return None  # the empty set against words
        if UNEVALUATED.search(single):
            return Outcome(None, "items", "a matrix or a set that is not worked out")
        signs = all(map(intervals.SIGN.search, (single, *several.items)))
        if signs and several.items and intervals.read_set(single) is None:
            return Outcome(None, "items", "an inequality that is not solved")  # x^2 > 4
        if outcome := as_sum(single, several, gold is None, comparison):
            return outcome
        if words.is_words(single) and several.kind == "bare" and not several.joined:
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
    """`12-15`: a range, a score or a number with dashes; no subtraction. `0 1 2`: a row, and no product."""
    rows = [text.split() if ROW.fullmatch(text) else None for text in (reference, prediction)]
    if all(rows):
        reordered = sorted(rows[0]) == sorted(rows[1])
        return Outcome(None if reordered else False, "dashed", "another row of numbers")
    if any(rows) and read_number(prediction if rows[0] else reference) is not None:
        return Outcome(False, "dashed", "a row of numbers against one")
    if all(map(PATH.fullmatch, (reference, prediction))) and comparison.answer_type != "algebra":
        return Outcome(None, "dashed", "paths or differences? answer_type='text' or 'algebra' decides")
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
    for pattern, doubt in NOT_MULTIPLIED if outcome.correct else ():
        if pattern.search(symbolic.PLAIN_FUNCTION.sub(" ", f"{reference}\n{prediction}")):
            return Outcome(None, "symbolic", doubt)
    if outcome.correct and relations.rearranged(reference, prediction):
        return Outcome(None, "symbolic", "the same equation, solved for another symbol")
    if outcome.correct is False and with_one_letter(reference) == with_one_letter(prediction) is not None:
        return Outcome(None, "symbolic", "the same formula with another letter for a whole number")
    return outcome


def with_one_letter(text: str) -> str | None:
    """`2k+1` and `2n+1` alike; None without such a letter, or with several."""
    letters = set(INTEGER_LETTER.findall(text))
    return key(INTEGER_LETTER.sub("n", text)) if len(letters) == 1 and text not in letters else None


STAGES = {
    "same": same,
    "dotted": dotted,
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
    "dotted",
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
