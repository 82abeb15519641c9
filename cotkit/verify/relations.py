r"""Equations and named values: `x = 5`, `5 = x`, `f(x) = x^2`, `Area: 12`, `2 + 3 = 5`, `x = 1, y = 2`.

A name in front of a value is set aside when the other side gives the value alone; two different symbols are
two different answers. Equations that define nothing (`2x + 4y - 3 = 0`) go to the symbolic stage whole, but
where the reference gives a value: `3x + 6 = 21` gives none, and may be no more than the question.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cotkit.verify.arithmetic import read_number
from cotkit.verify.items import Items, both_signs, compare_items, read_items, split_list
from cotkit.verify.normalise import CACHED, is_closed, key, split_top
from cotkit.verify.quantities import read_quantity
from cotkit.verify.symbolic import prepare, symbols_in
from cotkit.verify.verdicts import Outcome, Values, all_true

NO_NAME = r"(?!frac|sqrt|pi\b|in\b|cdot|times|le\b|ge\b|infty|emptyset)"
SYMBOL = rf"(?:\\{NO_NAME}[A-Za-z]+ ?(?:\{{\w+\}})?|[A-Za-z])(?:_\w+|_\{{[^{{}}=]*\}})?'*"
FIGURE = r"m? ?\\(?:angle|overline|vec|hat|bar) ?\{?[A-Z]{1,3}\}?|[A-Z]{2,3}|\| ?\w+ ?\|"
NAME = re.compile(
    rf"(?:{SYMBOL}|{FIGURE}|[A-Za-z]\^\{{?-1\}}?)(?: ?\([^()=]*\))?"
    rf"|\\frac\{{d ?{SYMBOL}\}}\{{d ?{SYMBOL}\}}"
)
FUNCTION = re.compile(r"[A-Za-z]'?\^?(?:\{-1\})?\([a-z]\)|y'?")
LABEL = re.compile(r"(?=.*[A-Za-z]{3})[A-Za-z][A-Za-z' -]{1,40}")
MEMBER = re.compile(r"(.+?)(?: ?\\in ?| in )(\\?\{[^|:]+\})")  # x \in \{1,2\}
UNSOLVED = Outcome(None, "relation", "an equation that gives no value")
EQUALS = re.compile(r"(?<![<>!\\:])=|\\approx|:=")


class Relation(NamedTuple):
    """`name` "" = a computed chain (`2+3=5`); `value` None = an equation that gives no value."""

    name: str
    value: str | None
    label: bool = False  # the name is words ("Area"), not a symbol


@lru_cache(CACHED)
def read_relation(text: str) -> Relation | None:
    """None: the text is no equation and no labelled value."""
    parts = [part.strip() for part in split_top(EQUALS.sub("=", text), "=")]
    if len(parts) == 1:
        if (member := MEMBER.fullmatch(text)) and (NAME.fullmatch(member[1]) or is_names(member[1])):
            return Relation(member[1], member[2])
        label, colon, rest = text.partition(": ")
        if colon and LABEL.fullmatch(label) and rest.strip():
            return Relation(label, rest.strip(), True)
        return None
    if not all(parts):
        return Relation("", None)
    left, last = parts[0], parts[-1]
    if is_name(left):
        return Relation(left, last, bool(LABEL.fullmatch(left)))
    if len(parts) == 2 and is_name(last):
        return Relation(last, left, bool(LABEL.fullmatch(last)))
    numbers = read_number(left), read_number(last)
    if numbers[0] is None or (numbers[1] is not None and numbers[0].value != numbers[1].value):
        return Relation("", None)  # 2x + 3 = 5, or 2 + 2 = 5
    return Relation("", last)


def is_name(text: str) -> bool:
    return bool(NAME.fullmatch(text) or LABEL.fullmatch(text) or is_names(text))


def is_names(text: str) -> bool:
    """`(x, y)`"""
    if not (text.startswith("(") and is_closed(text)):
        return False
    items = split_list(text[1:-1])
    return len(items) > 1 and all(re.fullmatch(SYMBOL, item) for item in items)


@lru_cache(CACHED)
def read_assignments(text: str) -> dict[str, str] | Items | None:
    """`x=1, y=2` as {name: value}; `x=1 or x=2` as the items 1, 2; None when it is neither."""
    if "=" not in text:
        return None
    whole = read_relation(text)
    if whole and whole.value is not None and is_names(whole.name):
        names, values = split_list(whole.name[1:-1]), read_items(whole.value)
        if values and len(values.items) == len(names):
            return dict(zip(map(key, names), values.items, strict=True))
        return None
    relations = [read_relation(piece) for piece in split_list(text)]
    if len(relations) < 2 or any(r is None or not r.name or r.value is None for r in relations):
        return None
    names = [relation.name for relation in relations]
    if len(set(names)) == 1:
        return Items("curly", tuple(one for relation in relations for one in both_signs(relation.value)))
    if len(set(names)) == len(names):
        return {key(relation.name): relation.value for relation in relations}
    return None


def compare_assignments(reference: str, prediction: str, values: Values) -> Outcome | None:
    gold, answer = read_assignments(reference), read_assignments(prediction)
    if gold is None and answer is None:
        return None
    if isinstance(gold, dict) and isinstance(answer, dict):
        return by_name(gold, answer, values)
    if gold is not None and is_unsolved(prediction):
        return UNSOLVED
    firsts = [read_relation(next(iter(split_list(text)), "")) for text in (reference, prediction)]
    if not any(isinstance(side, dict) for side in (gold, answer)) and all(firsts) and other_name(*firsts):
        return Outcome(None if firsts[0].label else False, "assignments", "another name")
    sides = []
    for side, text in ((gold, reference), (answer, prediction)):
        if isinstance(side, dict):
            side = Items("round", tuple(side.values()))
        elif side is None:
            relation = read_relation(text)
            side = read_items(relation.value if relation and relation.value else text)
        sides.append(side)
    return compare_items(*sides, None, False, values).by("assignments")


def by_name(gold: dict[str, str], answer: dict[str, str], values: Values) -> Outcome:
    if gold.keys() != answer.keys():
        return Outcome(False, "assignments", "other names")
    return all_true(values(value, answer[name]) for name, value in gold.items()).by("assignments")


def compare_relations(reference: str, prediction: str, values: Values) -> Outcome | None:
    """None: no equation on either side, or two whose equality is for the symbolic stage."""
    gold, answer = read_relation(reference), read_relation(prediction)
    if gold is None and answer is None:
        return None
    if gold is None or answer is None:
        return value_against_relation(reference, prediction, gold or answer, values)
    constant = gold.value is not None and is_constant(gold.value)
    if gold.value is None or answer.value is None:
        return UNSOLVED if constant and is_unsolved(prediction) else None
    if other_name(gold, answer):
        if not gold.label and (mentions(gold.value, answer.name) or mentions(answer.value, gold.name)):
            return None  # y = 2x, x = y/2
        outcome = values(gold.value, answer.value)
        sure = outcome.correct is False or (read_number(gold.value) is not None and not gold.label)
        return Outcome(False if sure else None, "relation", "another name")
    outcome = values(gold.value, answer.value)
    if outcome.correct is False and not gold.label and any(map(implicit, (gold, answer))):
        return UNSOLVED if constant else None  # x = 6 - x against x = 3
    return outcome.by("relation")


def is_unsolved(text: str) -> bool:
    """One equation or several, none of which gives a value."""
    relations = [read_relation(piece) for piece in split_list(text)]
    return all(relation is not None and relation.value is None for relation in relations)


def is_constant(value: str) -> bool:
    """Numbers and units, no symbol that is not known."""
    quantity = read_quantity(value)
    return (quantity is not None and not quantity.glued) or not symbols_in(prepare(value)) - {"i", "pm"}


def rearranged(reference: str, prediction: str) -> bool:
    """`a = F/m` and `F = ma`: equations solved for another symbol. In x and y they may be one curve."""
    sides = [read_relation(text) for text in (reference, prediction)]
    return all(sides) and other_name(*sides) and {side.name for side in sides} != {"x", "y"}


def other_name(gold: Relation, answer: Relation) -> bool:
    """Two symbols or two labels that differ; a label may stand for a symbol, `y` for `f(x)`."""
    if not gold.name or not answer.name or gold.label != answer.label:
        return False
    names = [key(side.name.casefold() if side.label else side.name) for side in (gold, answer)]
    if names[0] == names[1]:
        return False
    return not all(FUNCTION.fullmatch(side.name) for side in (gold, answer))


def value_against_relation(
    reference: str, prediction: str, relation: Relation, values: Values
) -> Outcome | None:
    if relation.value is not None:
        pair = (
            (reference, relation.value) if read_relation(reference) is None else (relation.value, prediction)
        )
        return values(*pair).by("relation")
    other = prediction if read_relation(reference) is not None else reference
    if read_number(other) is not None:
        return Outcome(False, "relation", "an equation against a number")
    return Outcome(None, "relation", "an equation against a value")


def implicit(relation: Relation) -> bool:
    """The name stands on the right side too."""
    return relation.name != "" and mentions(relation.value, relation.name)


def mentions(value: str, name: str) -> bool:
    return re.search(rf"(?<![A-Za-z\\]){re.escape(name)}(?![A-Za-z])", value) is not None
