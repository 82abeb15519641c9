r"""Values with units: `$2.5 million`, `5 cm`, `30^\circ`, `12.5%`, `4 apples`, `2 hours 30 minutes`.

`read_quantity` splits a canonical text into a value and what is counted or measured; `compare_quantities`
applies the unit policies of docs/verification.md: a unit may be missing, is converted exactly where both are
given, and another dimension is another answer. A noun the unit table does not know ("4 apples") may be
missing too; two different nouns with the same number cannot be decided.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from cotkit.verify.arithmetic import read_number
from cotkit.verify.normalise import CACHED, canonical
from cotkit.verify.numbers import PARTS, SCALES, WORDS, Number, compare_numbers, whole_in_words
from cotkit.verify.policy import AnswerPolicy
from cotkit.verify.units import FINER, IN_SUMS, Unit, read_unit
from cotkit.verify.verdicts import Outcome, Values, first_true

MOST_SPLITS = 40
POWERS_OF_TEN = {Fraction(10) ** power: power for power in range(-30, 31)}
METRE = read_unit("m")[0]
CURRENCY_FIRST = re.compile(
    r"(?P<sign>[+-]?) ?(?P<currency>(?:US)?\\\$|[€£¥₹]|(?:USD|EUR|GBP|JPY|CNY|INR|Rs\.?)(?= ?\d)) ?"
    r"(?P<rest>.+)"
)
SHORT_SCALE = re.compile(r"(.*\d) ?(MM|[kKMBmb])n?(?![A-Za-z])(.*)")
SHORT_SCALES = dict(zip("kKMmBb", ("thousand",) * 2 + ("million",) * 2 + ("billion",) * 2, strict=True))
SHORT_SCALES["MM"] = "million"
AMOUNT = re.compile(rf"[-+]?\d[\d.,/ ]*(?:(?<= )(?:{'|'.join(SCALES)})\b)?|\\frac\{{\d+\}}\{{\d+\}}")
CURRENCY_WORD = re.compile(r"^(?:US )?(?:dollars?|euros?|pounds?|yen|rupees?|USD|EUR|GBP)\b", re.I)
ABOUT = re.compile(
    r"^(?:about|approximately|approx\.?|around|roughly|exactly|a total of|\\approx|~|≈)\s*", re.I
)
SPLIT = re.compile(r" |(?<=[\d.)}])(?=[A-Za-zμΩÅ€£¥₹¢%\\])|(?=\^\\circ)|(?<=\\pi)(?=[A-Z])")
NUMERIC = re.compile(
    r"(?:\\(?:frac|sqrt|pi|cdot|times)(?![A-Za-z])|(?<![A-Za-z])[ex](?![A-Za-z])|[-+*/^(){}\[\]\d. ])+"
)
NO_UNIT = re.compile(r"[-+\d.,;:/()\[\]{}<>=*|! ]*")
ONE_PART = re.compile(r"[-+]?[\d.,/]+ ?[A-Za-z%]+")  # 5 cm
SUM_PART = re.compile(r"(?:,|and| )*(\d{1,3}(?:,\d{3})+|[\d./]+) ?([A-Za-z]+\.?|\^\\circ|[€£]|''|['\"])? ?")
NUMBER_WORDS = re.compile(rf"(?i)\b(?:{'|'.join(WORDS)})(?:[ -](?:{'|'.join(WORDS)}))?\b(?!-)")
ARTICLE = re.compile(r"^(?:of )?(?:an?|the) ")
UNIT_AND_A_HALF = re.compile(r"(an?|\w+) (\w+) and (?:a|one) half", re.I)
NOUN = re.compile(r"(?=.*[A-Za-z]{3})[A-Za-z][A-Za-z'’ -]*(?: ?/ ?[A-Za-z]+|\^\{?[23]\}?)?")
NO_NOUN = re.compile(
    r"\b(?:and|or|not|no|but|nor|if|then|is|isn't|are|was|were|than|because|when|where|mod|choose|more|less|least"
    r"|most|else|either|neither|maybe|perhaps|unless|except|to|vs|versus|plus|minus|times|over|squared|cubed|by"
    r"|in (?:binary|octal|hexa?(?:decimal)?)|base (?:\d+|two|eight|ten|sixteen))\b"
    r"|^(?:wrong|incorrect|false|negative|positive|inverse|reciprocal|off|short|hundredweight)$",
    re.I,
)
RATES = {*re.findall(r"\S+", "per a each every / hourly daily nightly weekly monthly yearly annually")}
MULTIPLES = {*re.findall(r"\w+", "twice thrice double triple half quarter pair pack dozen")}  # quarter notes
PLURALS = {"people": "person", "children": "child", "men": "man", "women": "woman"}
PLURALS |= {"mice": "mouse", "dice": "die"}
BIG = re.compile(
    rf"^(?:{'|'.join(SCALES)}|dozen)s?\b|^(?:gross|score|grand|factorial|{'|'.join(PARTS)})(?:$| of\b)",
    re.I,
)
PRESSURE = re.compile(r"\d{2,3} ?/ ?\d{2,3}")  # 120/80 mmHg are two values
MMHG = read_unit("mmHg")[0]
NOT_ONE_VALUE = re.compile(r"\d ?- ?\d|\d ?(?:x|X|\\times) ?\d(?!\d*\^)")  # 3 - 4 hours, 8 x 10 inches
OPTION_OR_YES_NO = re.compile(r"\(?[A-Ja-h]\)|\(?[A-H]|yes|no|true|false", re.I)


class Quantity(NamedTuple):
    """`text` is the value as written, `number` the value where it is a number; `units` are the readings of
    the unit ("pounds" has two), `noun` what is counted; `glued`: one letter right after a digit, `5m`."""

    text: str
    number: Number | None
    units: tuple[Unit, ...] = ()
    noun: str = ""
    glued: bool = False


@lru_cache(CACHED)
def read_quantity(text: str) -> Quantity | None:
    """A number with its unit or noun, from a canonical text; None when it is neither."""
    text = ABOUT.sub("", text)
    if (number := read_number(text)) is not None:
        return Quantity(text, number)
    if NO_UNIT.fullmatch(text):
        return None
    if match := CURRENCY_FIRST.fullmatch(text):
        return money(match)
    if not ONE_PART.fullmatch(text) and (total := sum_of_parts(text)) is not None:
        return total
    places = [match.span() for match in SPLIT.finditer(text)][:MOST_SPLITS]
    for start, end in places:
        value, rest = text[:start].strip(), text[end:].strip(" ")
        if NOT_ONE_VALUE.search(value):
            continue
        if value and (units := read_unit(bare_unit(rest))) and is_numeric(value):
            if units[0] == MMHG and PRESSURE.fullmatch(value):
                return Quantity(value, None, units)
            glued = start == end and len(rest) == 1 and rest.isalpha()
            return Quantity(value, read_number(value), units, glued=glued)
    for start, end in reversed(places):
        value, rest = text[:start].strip(), text[end:].strip()
        is_noun = start != end and NOUN.fullmatch(rest) and not NO_NOUN.search(rest) and not BIG.match(rest)
        is_noun = is_noun and not NUMBER_WORDS.search(rest) and not NOT_ONE_VALUE.search(value)
        if is_noun and (number := read_number(value)) is not None:
            return Quantity(value, number, noun=rest)
    return None


def bare_unit(unit: str) -> str:
    unit = ARTICLE.sub("", unit)
    return unit[1:-1] if unit[:1] in "([" and unit[-1:] in ")]" and unit.count(unit[0]) == 1 else unit


def is_numeric(value: str) -> bool:
    r"""A value without symbols of algebra: digits, roots, `\pi`; so `2n m` is no length."""
    if read_number(value) is not None:
        return True
    return bool(NUMERIC.fullmatch(value) and re.search(r"\d|\\pi", value)) and value[-1] not in "+-*/^,(["


def money(match: re.Match) -> Quantity | None:
    """`$2.5M`, `-$5`, `$18 per day`: the sign of the currency as a unit after the amount."""
    rest = match["rest"]
    if scaled := SHORT_SCALE.fullmatch(rest):
        rest = f"{scaled[1]} {SHORT_SCALES[scaled[2]]}{scaled[3]}"
    amount = AMOUNT.match(rest)
    if not amount:
        return None
    after = CURRENCY_WORD.sub("", rest[amount.end() :].strip()).strip()
    unit = "USD" if "$" in match["currency"] else match["currency"].strip()
    quantity = read_quantity(f"{match['sign']}{amount[0].strip()} {unit} {after}".strip())
    if quantity is None and NOUN.fullmatch(after) and not NO_NOUN.search(after):
        quantity = read_quantity(f"{match['sign']}{amount[0].strip()} {unit}")
    return quantity


def in_thousands(text: str) -> Number | None:
    """`100k` read as 100000, where the letter may also be a unit or a symbol."""
    match = SHORT_SCALE.fullmatch(text)
    return read_number(f"{match[1]} {SHORT_SCALES[match[2]]}") if match and not match[3] else None


def sum_of_parts(text: str) -> Quantity | None:
    """`2 hours 30 minutes`, `2h30m`, `6'2"`, `12^\\circ 30'`, `5 USD and 20 cents`, in the first unit."""
    if half := UNIT_AND_A_HALF.fullmatch(text):
        one = "one" if half[1] in ("a", "an") else half[1]
        return read_quantity(f"{one} and a half {half[2]}")
    plain = NUMBER_WORDS.sub(lambda match: str(whole_in_words(re.split("[ -]", match[0].lower()))), text)
    parts = list(SUM_PART.finditer(plain))
    if len(parts) < 2 or "".join(part[0] for part in parts) != plain:
        return None
    if parts[-1][2] is None and parts[-2][2] in ("m", "ft") and len(parts[-1][1]) < 2:
        return None  # 5 ft3 is a volume
    values = [read_number(part[1]) for part in parts]
    units = units_of_sum([part[2] for part in parts])
    if units is None or not all(values) or any(a.factor <= b.factor for a, b in pairwise(units)):
        return None
    total = sum(value.value * unit.factor for value, unit in zip(values, units, strict=True))
    return Quantity(text, Number(total / units[0].factor), (units[0],))


def units_of_sum(names: list[str | None]) -> list[Unit] | None:
    """One unit a part, all of one dimension; the last may be left out (`1h30`)."""
    readings = [read_unit(name) + IN_SUMS.get(name, ()) if name else () for name in names]
    if names[-1] is None and names[-2] in FINER:
        readings[-1] = (FINER[names[-2]],)
    for first in readings[0]:
        units = [next((u for u in of if u.dimension == first.dimension), None) for of in readings]
        if None not in units and not any(unit.offset for unit in units):
            return units
    return None


def is_plain_value(text: str) -> bool:
    """One number, quantity, option letter, yes or no, with nothing round it."""
    text = canonical(text) if len(text) <= 200 else ""
    quantity = read_quantity(text) if text else None
    if quantity is not None:
        return len(quantity.noun.split()) <= 2
    return bool(OPTION_OR_YES_NO.fullmatch(text))


class Rules(NamedTuple):
    """What a comparison of values needs to know."""

    policy: AnswerPolicy
    tolerance: float | None = None
    unit_expected: bool = False  # the answer type says it is a number, so `5m` is no product


def compare_quantities(reference: Quantity, prediction: Quantity, rules: Rules, values: Values) -> Outcome:
    if any(side.number is None and PRESSURE.fullmatch(side.text) for side in (reference, prediction)):
        same = reference.text.replace(" ", "") == prediction.text.replace(" ", "")
        return Outcome(same, "quantity", "the same pressures" if same else "other pressures")
    if reference.units and prediction.units:
        return with_units(reference, prediction, rules, values)
    if reference.units or prediction.units:
        return one_unit_missing(reference, prediction, rules, values)
    outcome = same_unit(reference, prediction, rules, values)
    if outcome.correct and reference.noun and prediction.noun:
        return same_noun(reference.noun, prediction.noun, outcome)
    return outcome


def same_unit(reference: Quantity, prediction: Quantity, rules: Rules, values: Values) -> Outcome:
    if reference.number is None or prediction.number is None:
        return values(reference.text, prediction.text)
    return compare_values(reference.number, prediction.number, rules)


def compare_values(reference: Number, prediction: Number, rules: Rules) -> Outcome:
    correct, reason = compare_numbers(reference, prediction, rules.policy, rules.tolerance)
    return Outcome(correct, "number", reason)


def with_units(reference: Quantity, prediction: Quantity, rules: Rules, values: Values) -> Outcome:
    pairs = [
        (a, b)
        for a, b in product(reference.units, prediction.units)
        if a.without_angle() == b.without_angle() and bool(a.dimension) == bool(b.dimension)
    ]
    if not pairs:
        bases = [{base for base, _ in quantity.units[0].dimension} for quantity in (reference, prediction)]
        if {"s"} in bases and {"month"} in bases:
            return Outcome(None, "quantity", "months and years have no fixed length in days")
        if any(a.glued and a.units[0] == METRE and {"s"} in bases for a in (reference, prediction)):
            return Outcome(None, "quantity", "metres or minutes?")
        return Outcome(False, "quantity", "another unit")
    return first_true(turning(reference, prediction, a, b, rules, values) for a, b in pairs)


def turning(
    reference: Quantity, prediction: Quantity, own: Unit, other: Unit, rules: Rules, values: Values
) -> Outcome:
    """`converted`, with 1 Hz as 60 rpm; a frequency and an angular frequency are never the same."""
    if not any(a.turns("cycle") and b.turns("angle") for a, b in ((own, other), (other, own))):
        return converted(reference, prediction, own, other, rules, values)
    outcome = converted(reference, prediction, own.in_radians(), other.in_radians(), rules, values)
    in_turns = own.pi + other.pi  # revolutions, not radians
    if outcome.correct and not in_turns:
        return Outcome(None, "quantity", "a frequency or an angular frequency?")
    return outcome


def converted(
    reference: Quantity, prediction: Quantity, own: Unit, other: Unit, rules: Rules, values: Values
) -> Outcome:
    if own == other:
        return same_unit(reference, prediction, rules, values).by("quantity")
    if not rules.policy.convert_units:
        return Outcome(False, "quantity", "another unit (conversion is off)")
    factor, pi = own.factor / other.factor, own.pi - other.pi
    if reference.number is None or prediction.number is None:
        factor_text = rf"\frac{{{factor.numerator}}}{{{factor.denominator}}} \cdot \pi^{{{pi}}}"
        return values(rf"({reference.text}) \cdot {factor_text}", prediction.text)
    shift = (own.offset - other.offset) / other.factor
    gold = Number(
        reference.number.value * factor + shift,
        reference.number.pi + pi,
        moved(reference.number.quantum, factor),
    )
    return compare_values(gold, prediction.number, rules).by("quantity")


def moved(quantum: int | None, factor: Fraction) -> int | None:
    """The last written digit after a conversion; only a power of ten keeps it in place."""
    if quantum is None:
        return None
    return quantum + POWERS_OF_TEN.get(factor, -1000)


def one_unit_missing(reference: Quantity, prediction: Quantity, rules: Rules, values: Values) -> Outcome:
    measured, bare = (reference, prediction) if reference.units else (prediction, reference)
    outcome = same_unit(reference, prediction, rules, values).by("quantity")
    if bare.noun:
        if outcome.correct:
            return Outcome(None, "quantity", "the same number of two different things")
        return outcome
    unit = measured.units[0]
    if unit.dimension == (("percent", 1),):
        if not rules.policy.percent_as_fraction:
            return outcome._replace(correct=False, reason="a percentage against a plain number")
        return first_true([outcome, percent_as_fraction(reference, prediction, rules)]).by("percent")
    if not rules.policy.unit_may_be_missing:
        return Outcome(False, "quantity", "the unit is missing") if outcome.correct else outcome
    if unit.dimension == (("angle", 1),) and bare.number is not None and bare.number.pi:  # 60 degrees, \pi/3
        radians = bare._replace(units=read_unit("rad"))
        pair = (reference, radians) if bare is prediction else (radians, prediction)
        return with_units(*pair, rules, values)
    if outcome.correct and measured.glued and not rules.unit_expected:
        return Outcome(None, "quantity", "a unit or a symbol? answer_type='quantity' or 'algebra' decides")
    return outcome


def percent_as_fraction(reference: Quantity, prediction: Quantity, rules: Rules) -> Outcome:
    sides = []
    for quantity in (reference, prediction):
        number = quantity.number
        if number is None:
            return Outcome(False, "percent", "different values")
        if quantity.units:
            quantum = moved(number.quantum, quantity.units[0].factor)
            number = number._replace(value=number.value * quantity.units[0].factor, quantum=quantum)
        sides.append(number)
    return compare_values(*sides, rules)


def same_noun(reference: str, prediction: str, outcome: Outcome) -> Outcome:
    words = [
        [PLURALS.get(word, word.removesuffix("s")) for word in re.findall(r"[a-z]+|/", noun.lower())]
        for noun in (reference, prediction)
    ]
    sides = [set(side) for side in words]
    rates = [bool(RATES & side) for side in sides]
    times = [MULTIPLES & side for side in sides]
    heads = {side[k - 1] for side in words for k in range(1, len(side)) if side[k] == "of"}  # boxes of apples
    part_of = sides[0] <= sides[1] or sides[1] <= sides[0]
    if part_of and heads <= (sides[0] & sides[1]) and rates[0] == rates[1] and times[0] == times[1]:
        return outcome
    return Outcome(None, "quantity", "the same number of two different things")
