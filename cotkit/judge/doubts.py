"""When an equality that does not hold is not an error: mixed units, letters, described quantities.

`1 hour - 20 minutes = 40 minutes` is right although 1 - 20 is not 40, and so is `2 tickets + 1 drink = $13`
where the words stand for prices. The rules here only ever take a step out of the count.
"""

from __future__ import annotations

import itertools

from cotkit.judge.arithmetic import Node

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
    {"cent": "c", "¢": "c", "penny": "c", "pennie": "c", "nickel": "n", "dime": "d", "quarter": "q",
     "dollar": "$", "buck": "$", "$": "$"},
    {"inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "ft": "ft", "yard": "yd", "mile": "mi",
     "mm": "mm", "cm": "cm", "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "m": "m",
     "km": "km", "kilometer": "km", "kilometre": "km"},
    {"gram": "g", "g": "g", "kg": "kg", "kilogram": "kg", "kilo": "kg", "pound": "lb", "lb": "lb",
     "ounce": "oz", "oz": "oz", "ton": "t", "tonne": "t", "mg": "mg"},
    {"teaspoon": "tsp", "tablespoon": "tbsp", "cup": "cup", "pint": "pt", "quart": "qt", "gallon": "gal",
     "liter": "l", "litre": "l", "l": "l", "ml": "ml", "milliliter": "ml", "millilitre": "ml"},
]  # fmt: skip


def doubtful(left: Node, right: Node) -> bool:
    """True when the words beside the numbers leave room for the equality to be meant otherwise."""
    lefts, rights = list(left.walk()), list(right.walk())
    units = [number.unit for number in lefts + rights]
    return (
        any(is_letter(word) for unit in units for word in [w for w in unit if w != "-"][:1])  # 2x, 10-x
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
