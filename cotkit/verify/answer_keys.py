r"""`answer_key`: one text for every spelling of an answer, for counting votes and finding repeats.

Equality by `check_answer` is lenient and so not transitive (30% matches 0.3 and 30). A key is a function of
one answer alone, so equality of keys is transitive by construction. It is strict: equal keys mean the same
answer, different keys do not mean different ones (`x+1` and `1+x`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

from cotkit.verify import dates, intervals, items, relations, words
from cotkit.verify.arithmetic import read_number
from cotkit.verify.ladder import DEEPEST, PRODUCT, without_remark
from cotkit.verify.normalise import canonical, key
from cotkit.verify.policy import AnswerPolicy
from cotkit.verify.quantities import read_quantity

LARGEST = 10_000  # bits; Python writes no integer of over 4300 digits out
Inner = Callable[[str], str]  # the key of a part
BRACKETS = {"bare": ("", ""), "round": "()", "square": "[]", "curly": ("\\{", "\\}"), "angle": "<>"}


def answer_key(answer: str) -> str:
    r"""The key of one answer (not of a whole completion): equal keys are the same answer.

    `0.5`, `1/2`, `\frac12` and `50/100` share a key, and so do `1,000` and `1000`, `5 m` and `500 cm`,
    `(B)` and `B`, `Paris` and `\text{paris}.`, `\{1,2\}` and `\{2,1\}`. No policy is applied: `50%` is not
    `0.5`, `5 cm` not `5`, `1, 2` not `2, 1`, `0.333333` not `1/3`. TypeError for anything but a text.
    """
    if not isinstance(answer, str):
        raise TypeError(f"answer_key takes the text of an answer, got {type(answer).__name__}")
    return key_of(answer) if len(answer) <= AnswerPolicy.longest else " ".join(answer.split())


def key_of(answer: str, depth: int = 0) -> str:
    """The key of an answer, or of a part `depth` levels inside one."""
    text = without_remark(canonical(answer))
    inner = functools.partial(key_of, depth=depth + 1)
    if PRODUCT.fullmatch(text):  # or dimensions
        return key(text)
    for read in (of_number, of_day_or_time, of_choice, of_quantity, of_words):
        if (found := read(text)) is not None:
            return found
    for read in (of_set, of_relation, of_items) if depth < DEEPEST else ():
        if (found := read(text, inner)) is not None:
            return found
    return key(text)


def of_number(text: str) -> str | None:
    number = read_number(text)
    return number and written(number.value, number.pi)


def written(value: Fraction, pi: int) -> str | None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST:
        return None
    return f"{value}*\\pi^{pi}" if pi and value else str(value)


def of_day_or_time(text: str) -> str | None:
    if (day := dates.read_date(text)) is not None:
        year, month, of_month = day
        return f"{year or ''}-{month:02}-{of_month:02}"
    clock = dates.read_clock(text)
    return f"{clock.seconds} s of the day" if clock and clock.half_known and not clock.plain else None


def of_choice(text: str) -> str | None:
    """Yes or no, option letters; `AB` may be a segment or a product, `A B` an order."""
    if (yes := words.truth(text, asked=False)) is not None and text.lower() != "right":  # or left
        return "yes" if yes else "no"
    letters, rest, clear = words.read_options(text)
    apart = clear and not rest and not words.IN_A_ROW.fullmatch(text)
    joint = " or " if " or " in text else ","  # all of them, or one of them
    return joint.join(sorted(letters)) if letters and apart else None


def of_quantity(text: str) -> str | None:
    """The amount in base units, by the first reading of the unit; a noun stays."""
    quantity = read_quantity(text)
    if quantity is None or quantity.number is None:
        return None
    value, pi = quantity.number.value, quantity.number.pi
    if not quantity.units:
        amount = written(value, pi)
        return amount and " ".join([amount, *words.fold_words(quantity.noun)])
    unit = quantity.units[0]
    if unit.offset and pi:
        return None
    amount = written(value * unit.factor + unit.offset, pi + unit.pi)
    return amount and " ".join([amount, *(f"{base}^{power}" for base, power in unit.dimension)])


def of_set(text: str, inner: Inner) -> str | None:
    """Intervals and inequalities with rational ends."""
    found = intervals.read_set(text)
    pieces = intervals.merged(found.pieces) if found and found.clear else None
    if pieces is None:
        return None
    spelled = [
        f"{'[' if piece.low_closed else '('}{inner(piece.low)},{inner(piece.high)}"
        f"{']' if piece.high_closed else ')'}"
        for piece in pieces
    ]
    return found.name + " in " * bool(found.name) + ("\\cup".join(spelled) or "\\emptyset")


def of_relation(text: str, inner: Inner) -> str | None:
    """`x = 5`, `x = 1 or x = 2`, `x = 1, y = 2`"""
    several = relations.read_assignments(text)
    if isinstance(several, dict) and items.joint(text) == "or":
        return None
    if isinstance(several, dict):
        return ",".join(sorted(f"{name}={inner(value)}" for name, value in several.items()))
    if several is not None:
        name = key(relations.read_relation(items.split_list(text)[0]).name)
        return " or ".join(sorted({f"{name}={inner(value)}" for value in several.items}))
    relation = relations.read_relation(text)
    if relation is None or relation.value is None or len(items.split_list(text)) > 1:
        return None
    name = relations.spelled(relation)
    return f"{name}={inner(relation.value)}" if name else inner(relation.value)


def of_items(text: str, inner: Inner) -> str | None:
    found = items.read_items(text) if "\\pm" not in text else None
    if found is None:
        return None
    keys = [inner(item) for item in found.items]
    left, right = BRACKETS[found.kind]
    if any(map(items.is_statement, found.items)):
        left = f"{found.joined} {left}"  # p and q, p or q
    return left + ",".join(sorted(set(keys)) if found.kind == "curly" else keys) + right


def of_words(text: str) -> str | None:
    """Words without case, articles and plural s; `AB` may be a segment and keeps its case."""
    if words.is_words(text) and not words.DASH.search(text) and (words.is_prose(text) or not text.isupper()):
        return " ".join(words.fold_words(text)) or None
    return None
