"""What the words beside the numbers do to an equality: units converted, letters, described quantities.

`1 hour - 20 minutes = 40 minutes` is right although 1 - 20 is not 40: `converted` reads it in one unit.
`2 tickets + 1 drink = $13` may be right where the words stand for prices: `doubtful` and the other rules only
ever take a step out of the count.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

from cotkit.judge.arithmetic import Node, Reader, Span, Token

# Words right before an expression that change what its first number means: half of 3, twice 3, 5 less than 3.
_CHANGES = {"half", "twice", "double", "triple", "thrice", "third", "thirds", "quarter", "quarters", "than",
            "from", "by", "mod", "modulo", "root", "sin", "cos", "tan", "log", "ln", "exp", "sqrt", "gcd",
            "lcm", "max", "min", "times"}  # fmt: skip
_WORTH = {"cost", "costs", "price", "prices", "value", "weight"}  # the cost of 3 books + 5
_PER = {"per", "/", "a", "an", "each", "every"}  # miles per week: no measure of weeks
_SCALES = {"hundred", "thousand", "million", "billion", "trillion", "dozen", "dozens", "score"}
_MEASURES: list[dict[str, str]] = [
    {"second": "s", "sec": "s", "minute": "min", "min": "min", "hour": "h", "hr": "h", "day": "d",
     "week": "w", "month": "mo", "year": "y", "yr": "y", "decade": "dec", "century": "c"},
    {"cent": "c", "¢": "c", "penny": "c", "pennie": "c", "nickel": "n", "dime": "dime", "quarter": "q",
     "dollar": "$", "buck": "$", "$": "$"},
    {"inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "ft": "ft", "yard": "yd", "mile": "mi",
     "mm": "mm", "cm": "cm", "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "m": "m",
     "km": "km", "kilometer": "km", "kilometre": "km"},
    {"gram": "g", "g": "g", "kg": "kg", "kilogram": "kg", "kilo": "kg", "pound": "lb", "lb": "lb",
     "ounce": "oz", "oz": "oz", "ton": "t", "tonne": "t", "mg": "mg"},
    {"teaspoon": "tsp", "tablespoon": "tbsp", "cup": "cup", "pint": "pt", "quart": "qt", "gallon": "gal",
     "liter": "l", "litre": "l", "l": "l", "ml": "ml", "milliliter": "ml", "millilitre": "ml"},
]  # fmt: skip

# What one unit is worth in the smallest of its family; a day of work or a month has no fixed length.
_SIZES: tuple[dict[str, int], ...] = (
    {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800},
    {"c": 1, "n": 5, "dime": 10, "q": 25, "$": 100},
    {"in": 1, "ft": 12, "yd": 36, "mi": 63360},
    {"mm": 1, "cm": 10, "m": 1000, "km": 1_000_000},
    {"mg": 1, "g": 1000, "kg": 1_000_000},
    {"oz": 1, "lb": 16},
    {"tsp": 1, "tbsp": 3, "cup": 48, "pt": 96, "qt": 192, "gal": 768},
    {"ml": 1, "l": 1000},
)
_FAMILY = (0, 1, 2, 2, 3, 3, 4, 4)  # of _MEASURES, for each of _SIZES
# 1 day = 8 hours of work, 1 inch = 5 miles on a map
_LOOSE = {"d", "w", "in", "ft", "yd", "mi", "mm", "cm", "m", "km"}
_COMBINE = {"sum", "difference", "product", "quotient", "ratio", "average", "mean", "total", "between", "to",
            "add", "adding", "subtract", "subtracting", "multiply", "multiplying", "divide", "dividing",
            "taking", "removing", "than", "from"}  # fmt: skip
_RELATIVE = {"more", "less", "fewer", "of", "than", "times", "greater", "smaller", "bigger", "larger",
             "apart", "short", "left",
             "old", "tall", "long", "wide", "high", "deep", "heavy", "away", "am", "pm"}  # fmt: skip
_SUBJECTS = {"there", "that", "it", "this", "what", "who", "how", "he", "she", "they", "we", "i", "you",
             "these", "those", "which"}  # fmt: skip


@dataclass(frozen=True)
class Amount:
    """One or more numbers with units of one family, like `1 hour 20 minutes`: worth `size` smallest units."""

    family: int
    size: Fraction
    units: tuple[str, ...]
    node: Node  # the last number: its unit is the one that `size` is told in


@dataclass(frozen=True)
class Converted:
    """An equality between two amounts in different units, both told in the unit of the right side."""

    left: Span
    right: Span
    value: Fraction
    claimed: Fraction
    stated: Node | None  # the one number on the right; None where there are several
    sure: bool


def converted(left: list[Token], right: list[Token]) -> Converted | None:
    """`250 cm = 2.5 m`, `1 hour 20 minutes = 80 minutes`, `2 dozen = 24 eggs`; None for anything else."""
    lefts, rights = _run(left, last=True), _run(right, last=False)
    if lefts is None or rights is None:
        return None
    (told, a), (meant, b) = lefts, rights
    if a is None or b is None:
        return _dozens(told, meant)
    if a.family != b.family or set(a.units) == set(b.units):
        return None
    one = Fraction(_SIZES[b.family][b.units[-1]])
    sure = _LOOSE.isdisjoint(a.units + b.units) and not _joined(left, told, right, meant)
    stated = b.node if len(b.units) == 1 else None
    return Converted(told, meant, a.size / one, b.size / one, stated, sure)


def _run(found: list[Token], last: bool) -> tuple[Span, Amount | None] | None:
    """The amount next to the equality sign: all numbers with units in a row."""
    spans = Reader(found).spans()
    if not spans:
        return None
    if (last and spans[-1].end != len(found)) or (not last and spans[0].start != 0):
        return None
    spans = spans[::-1] if last else spans
    amount = _amount(spans[0].node)
    if amount is None:
        return (spans[0], None) if _clear(found, spans[0]) else None
    run = [spans[0]]
    for span in spans[1:]:
        near = (span.end == run[-1].start) if last else (run[-1].end == span.start)
        more = _amount(span.node) if near else None
        if more is None or more.family != amount.family:
            break
        units = more.units + amount.units if last else amount.units + more.units
        node = amount.node if last else more.node
        amount = Amount(amount.family, amount.size + more.size, units, node)
        run.append(span)
    ends = (run[-1], run[0]) if last else (run[0], run[-1])
    whole = Span(amount.node, ends[0].start, ends[1].end)
    return (whole, amount) if _clear(found, whole) else None


def _clear(found: list[Token], span: Span) -> bool:
    """Nothing touches the amount that could be a part of it."""
    before = found[span.start - 1] if span.start else None
    after = found[span.end] if span.end < len(found) else None
    if before and (before.kind in ("op", "root", "(", "!") or before.end == found[span.start].start):
        return False
    words = [token.text.lower() for token in found[max(0, span.start - 4) : span.start]]
    return not changed_by(words) and not (after and after.kind in ("op", "(", "!"))


def _joined(left: list[Token], told: Span, right: list[Token], meant: Span) -> bool:
    """Whether another amount belongs to one of them: `2 hours and 30 minutes`, `2 hours, 30 minutes`."""
    earlier = left[max(0, told.start - 4) : told.start]
    later = right[meant.end : meant.end + 2]
    return any(
        len(near) > 1 and near[at].text in ("and", ",") and any(t.kind == "num" for t in near)
        for near, at in ((earlier, -1), (later, 0))
    )


def _amount(node: Node) -> Amount | None:
    if node.op in ("+", "-"):
        a, b = map(_amount, node.parts)
        if a is None or b is None or a.family != b.family:
            return None
        return Amount(
            a.family, a.size + b.size if node.op == "+" else a.size - b.size, a.units + b.units, b.node
        )
    if node.op is not None or node.percent or len(node.unit) + node.currency != 1:
        return None
    word = node.unit[0] if node.unit else "$"
    for family, sizes in enumerate(_SIZES):
        names = _MEASURES[_FAMILY[family]]
        unit = names.get(word) or names.get(word.removesuffix("s"))
        if unit in sizes:
            return Amount(family, node.value * sizes[unit], (unit,), node)
    return None


def _dozens(left: Span, right: Span) -> Converted | None:
    nodes = (left.node, right.node)
    dozen = [node.unit[:1] in (("dozen",), ("dozens",)) for node in nodes]
    plain = all(node.op is None and not node.percent and not node.currency for node in nodes)
    if (
        dozen[0] == dozen[1]
        or not plain
        or any(len(node.unit) > 2 or is_letter(w) for node in nodes for w in node.unit)
    ):
        return None
    value = nodes[0].value * 12 if dozen[0] else nodes[0].value / 12
    return Converted(left, right, value, nodes[1].value, nodes[1], True)


def said_in_prose(left: list[Token], span: Span, right: Node) -> bool:
    """Whether `is` between an expression and a number can be trusted to mean `=`: not in `the sum of 12 and
    2 * 5 is 22`, `15 - 5 is 2 more than 8`, `pages 3-5 are 3 pages`."""
    around = {
        token.text.lower() for token in left[max(0, span.start - 8) : span.start] if token.kind == "word"
    }
    units = {word for part in right.walk() for word in part.unit}
    minus = any(token.text == "-" for token in left[span.start : span.end])
    return right.bare and not (around & _COMBINE or units & _RELATIVE or minus)


def new_subject(node: Node) -> bool:
    """Whether the words before `is` belong to another sentence: `after selling 3 * 4 there are 9`."""
    units = [part.unit for part in node.walk() if part.unit]
    return bool(units) and not _SUBJECTS.isdisjoint(units[-1])


def doubtful(left: Node, right: Node) -> bool:
    """True when the words beside the numbers leave room for the equality to be meant otherwise."""
    lefts, rights = list(left.walk()), list(right.walk())
    units = [number.unit for number in lefts + rights]
    return (
        _variables(lefts + rights)
        or any(word in _SCALES for unit in units for word in unit)
        or _other_measure(lefts, rights)
        or (_adds(left) and (_mixes(lefts) or _words_for_prices(lefts, rights)))
    )


def changed_by(words: list[str]) -> bool:
    """Whether the words right before an expression describe its first number rather than introduce it."""
    while words and words[-1] in ("the", "a", "an", "as"):
        words = words[:-1]
    if words and words[-1] == "of":
        return len(words) > 1 and words[-2] in _CHANGES | _WORTH
    return bool(words) and words[-1] in _CHANGES


def is_letter(word: str) -> bool:
    """A single letter: a variable, or a unit that cannot be told from one."""
    return len(word) == 1 and word.isalpha() and word not in ("a", "A")


def _variables(numbers: list[Node]) -> bool:
    """2x, 10-x; but in `60 km / 2 h = 30 km/h`, with a rate and a unit on every number, h is one."""
    rate = all(number.unit for number in numbers if number.op is None) and any("/" in n.unit for n in numbers)
    firsts = [word for number in numbers for word in [w for w in number.unit if w != "-"][:1]]
    letters = {word for word in firsts if is_letter(word)}
    return bool(letters) and not (letters <= set("hmgls") and rate)


def _adds(node: Node) -> bool:
    return any(part.op in ("+", "-") for part in node.walk())


def _measures(numbers: list[Node]) -> list[set[str]]:
    """By family of measures (time, money, ...): the units that occur."""
    words = {"$" for number in numbers if number.currency}
    for number in numbers:
        words |= set(itertools.takewhile(lambda word: word not in _PER, number.unit))
    words |= {word[:-1] for word in words if len(word) > 2 and word.endswith("s")}
    return [{family[word] for word in words if word in family} for family in _MEASURES]


def _mixes(numbers: list[Node]) -> bool:
    return any(len(units) > 1 for units in _measures(numbers))


def _other_measure(lefts: list[Node], rights: list[Node]) -> bool:
    """The result is stated in a unit of the same family that the left side does not name."""
    families = zip(_measures(lefts), _measures(rights), strict=True)
    return any(left and right and not left & right for left, right in families)


def _words_for_prices(lefts: list[Node], rights: list[Node]) -> bool:
    money = any(number.currency for number in rights) and not any(number.currency for number in lefts)
    return money and sum(bool(number.unit) for number in lefts) > 1
