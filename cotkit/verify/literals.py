"""Python literals: lists, tuples, sets and dicts as a program prints them, read by `ast.literal_eval`.

Lists and tuples keep their order and their kind, dicts go by key, sets have no order, and a bool is no
number. Leaves are compared by the whole ladder. A text that is no literal is left to the other stages.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import Any

from cotkit.verify.items import same_list, same_set
from cotkit.verify.normalise import CACHED, depth, from_python, is_closed, unwrap
from cotkit.verify.verdicts import Outcome, Values, all_true

DEEPEST = 40  # brackets inside brackets; beyond, the parser of Python itself gives up
NO_LITERAL = re.compile(r"\\|\d(?![eE][-+\d])[A-Za-z]")  # LaTeX, and what the parser would warn about
FRACTION = re.compile(r"(?<![\w'\"./-])(-?\d+/\d+)(?![\w'\"./])")  # read as a text, which the ladder compares
NOT_A_LITERAL = object()


@lru_cache(CACHED)
def read_literal(text: str) -> Any:
    text = unwrap(text)
    if not is_closed(text) or NO_LITERAL.search(text) or depth(text) > DEEPEST:
        return NOT_A_LITERAL
    try:
        value = ast.literal_eval(FRACTION.sub(r"'\1'", from_python(text)))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return NOT_A_LITERAL
    return value if isinstance(value, list | tuple | dict | set | frozenset) else NOT_A_LITERAL


def compare_literals(reference: str, prediction: str, order: bool | None, values: Values) -> Outcome | None:
    """None: one side is no container literal."""
    gold = read_literal(reference)
    answer = read_literal(prediction) if gold is not NOT_A_LITERAL else NOT_A_LITERAL
    if answer is NOT_A_LITERAL:
        return None
    return compare_objects(gold, answer, order, values).by("literal")


def compare_objects(gold: Any, answer: Any, order: bool | None, values: Values) -> Outcome:
    if isinstance(gold, dict) or isinstance(answer, dict):
        return same_dict(gold, answer, values)
    kinds = [set if isinstance(side, frozenset) else type(side) for side in (gold, answer)]
    if order is None and kinds[0] is not kinds[1]:
        return Outcome(False, "literal", "other brackets")
    in_order = order if order is not None else kinds[0] is not set
    texts = [tuple(map(as_text, side)) for side in (gold, answer)]
    compare = same_list if in_order else same_set
    return compare(*texts, leaf(values))


def same_dict(gold: Any, answer: Any, values: Values) -> Outcome:
    if not (isinstance(gold, dict) and isinstance(answer, dict)):
        return Outcome(False, "literal", "only one side is a dict")
    sides = [{str(name).strip().casefold(): value for name, value in side.items()} for side in (gold, answer)]
    if sides[0].keys() != sides[1].keys() or len(sides[0]) != len(gold):
        return Outcome(False, "literal", "other keys")
    pairs = ((as_text(value), as_text(sides[1][name])) for name, value in sides[0].items())
    return all_true(leaf(values)(*pair) for pair in pairs)


def leaf(values: Values) -> Values:
    """A bool, None or number is only ever its own kind; the ladder compares the rest."""

    def compare(reference: str, prediction: str) -> Outcome:
        words = {"True", "False", "None"}
        if reference != prediction and (reference in words or prediction in words):
            return Outcome(False, "literal", "another value")
        return values(reference, prediction)

    return compare


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
