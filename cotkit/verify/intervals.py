r"""Sets of real numbers: `[0,1)`, `]0,1[`, `x>3`, `0<x<12.5`, `x<2 or x>5`, `(-\infty,2)\cup(5,\infty)`.

Each becomes pieces with two ends; pieces with numeric ends are sorted and merged, so that two spellings of
one set meet. Ends that are no rational numbers are compared by the whole ladder.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from cotkit.verify.arithmetic import read_number
from cotkit.verify.items import matched, split_list
from cotkit.verify.normalise import CACHED, split_top
from cotkit.verify.verdicts import Outcome, Values, all_true
from cotkit.verify.words import NONE_OF_IT

MOST_PIECES = 100
INFINITE = {r"\infty": 1, r"+\infty": 1, r"-\infty": -1}
NAME = r"(?:[A-Za-z]|\\[a-z]+)(?:_\w|_\{\w+\})?(?:\([a-z]\))?"
SYMBOL = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
MEMBER = re.compile(rf"({NAME})(?: ?\\in ?| in (?=[\[(\\]))(.+)")
SUM = re.compile(r"(?<!\d[eE])(?<=[^\^{(])[-+]")  # of several terms; 10^{-3} and 1e-3 are one
SIGN = re.compile(r" ?(\\le|\\ge|\\ne|<|>) ?")
AND = re.compile(r",? (?:and|&|but) ")
FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
REALS = re.compile(r"\\mathbb\{R\}|(?:the )?(?:set of )?(?:all )?real numbers|all reals?", re.I)
POSITIVE = re.compile(r"\\mathbb\{R\}(?:\^\{?\+\}?|_\{?(?:\+|> ?0)\}?)")
EXCEPT = re.compile(rf"(?:{REALS.pattern}) ?(?:[a-z] )?,? ?except (?:for )?(?:[a-z] ?= ?)?([^<>=]+)", re.I)
WITHOUT = re.compile(r"\\mathbb\{R\} ?(?:\\setminus|-|\\) ?(\\?\{.+\})")


class Piece(NamedTuple):
    low: str
    high: str
    low_closed: bool
    high_closed: bool


class RealSet(NamedTuple):
    pieces: tuple[Piece, ...]
    clear: bool  # could be nothing else: `(1,2)` may be a point, `[1,2]` a list
    name: str = ""  # the variable, where one is named


@lru_cache(CACHED)
def read_set(text: str) -> RealSet | None:
    """The set of reals a canonical text describes, None when it describes none."""
    if without := EXCEPT.fullmatch(text):
        return all_but(split_list(without[1]))
    parts = AND.split(text)
    if len(parts) > 1 and " or " not in text:
        return common([read_set(part.strip()) for part in parts])
    if member := MEMBER.fullmatch(text):
        inner = read_set(member[2])
        return inner and RealSet(inner.pieces, True, member[1])
    if POSITIVE.fullmatch(text):
        return RealSet((Piece("0", r"\infty", False, False),), True)
    if REALS.fullmatch(text):
        return RealSet((Piece(r"-\infty", r"\infty", False, False),), True)
    if without := WITHOUT.fullmatch(text):
        return all_but(split_list(without[1].strip("\\{}")))
    if r"\cup" in text or re.search(r"[\])] ?U ?[\[(]", text):
        parts = [read_set(part.strip()) for part in re.split(r"\\cup|(?<=[\])]) ?U ?(?=[\[(])", text)]
        return united(parts)
    if re.search(r" or ", text) and SIGN.search(text):
        return united([read_set(part.strip()) for part in re.split(r",? or ", text)])
    if SIGN.search(text):
        return common([inequality(part.strip()) for part in parts])
    return interval(text) or points(text)


def listed(text: str) -> RealSet | None:
    """`(-\\infty,0), (1,\\infty)`: intervals in a list, read as their union."""
    parts = [interval(part) for part in split_list(text)]
    return united(parts) if len(parts) > 1 else None


def interval(text: str) -> RealSet | None:
    if len(text) < 5 or text[0] not in "([]" or text[-1] not in ")][":
        return None
    ends = split_top(text[1:-1], ",;")
    if len(ends) != 2 or not all(end.strip() for end in ends):
        return None
    low, high = (end.strip() for end in ends)
    numbers, closed = (value(low), value(high)), text[0] + text[-1] == "[]"
    if None not in numbers and (numbers[0] > numbers[1] or (numbers[0] == numbers[1] and not closed)):
        return None  # a point, (5, 2)
    piece = Piece(low, high, text[0] == "[" and low not in INFINITE, text[-1] == "]" and high not in INFINITE)
    clear = text[0] + text[-1] not in ("()", "[]") or low in INFINITE or high in INFINITE
    return RealSet((piece,), clear)


def points(text: str) -> RealSet | None:
    if text == "\\emptyset" or text.lower() in NONE_OF_IT:
        return RealSet((), False)
    if not (text.startswith("\\{") and text.endswith("\\}")) or "|" in text:
        return None
    return RealSet(tuple(Piece(item, item, True, True) for item in split_list(text[2:-2])), False)


def all_but(items: tuple[str, ...], name: str = "") -> RealSet | None:
    ends = [(value(item), item) for item in items]
    if not ends or any(number is None for number, _ in ends):
        return None
    edges = [r"-\infty", *(item for _, item in sorted(ends)), r"\infty"]
    return RealSet(tuple(Piece(*pair, False, False) for pair in pairwise(edges)), True, name)


def inequality(text: str) -> RealSet | None:
    r"""`x > 3`, `3 < x`, `0 < x \le 5`, `x \ne 2`, `|x| < 3`."""
    signs = SIGN.findall(text)
    sides = [side.strip() for side in SIGN.split(text)[::2]]
    if not 1 <= len(signs) <= 2 or not all(sides):
        return None
    absolute = re.compile(rf"\| ?({NAME}) ?\|")
    if len(signs) == 2:
        if all(sign in (">", r"\ge") for sign in signs):
            sides, signs = sides[::-1], [FLIPPED[sign] for sign in reversed(signs)]
        if not re.fullmatch(NAME, sides[1]) or not all(sign in ("<", r"\le") for sign in signs):
            return None
        return RealSet((Piece(sides[0], sides[2], signs[0] != "<", signs[1] != "<"),), True, sides[1])
    (left, right), sign = sides, signs[0]
    if re.fullmatch(NAME, right) or absolute.fullmatch(right):
        left, right, sign = right, left, FLIPPED[sign]
    closed = sign in (r"\le", r"\ge")
    if match := absolute.fullmatch(left):
        minus = f"-({right})" if SUM.search(right) else right[1:] if right[0] == "-" else f"-{right}"
        if sign in ("<", r"\le"):
            return RealSet((Piece(minus, right, closed, closed),), True, match[1])
        pieces = (Piece(r"-\infty", minus, False, closed), Piece(right, r"\infty", closed, False))
        return RealSet(pieces, True, match[1]) if sign != r"\ne" else None
    if not re.fullmatch(NAME, left):
        return None
    if sign == r"\ne":
        return all_but((right,), left)
    up = sign in (">", r"\ge")
    piece = Piece(right, r"\infty", closed, False) if up else Piece(r"-\infty", right, False, closed)
    return RealSet((piece,), True, left)


def united(parts: list[RealSet | None]) -> RealSet | None:
    if None in parts:
        return None
    names = {part.name for part in parts if part.name}
    if len(names) > 1:
        return None
    return RealSet(tuple(piece for part in parts for piece in part.pieces), True, "".join(names))


def common(parts: list[RealSet | None]) -> RealSet | None:
    """`x > 2 and x < 5`: what lies in all parts; None where that is not known."""
    if len(parts) == 1:
        return parts[0]
    if any(part is None or not part.name or part.name != parts[0].name for part in parts):
        return None  # (1,2) and (3,4) are two intervals
    pieces = parts[0].pieces
    for part in parts[1:]:
        overlaps = tuple(overlap(*pair) for pair in product(pieces, part.pieces))
        if None in overlaps or len(overlaps) > MOST_PIECES:
            return None
        joined = merged(overlaps)
        pieces = overlaps if joined is None else tuple(joined)
    return RealSet(pieces, True, parts[0].name)


def overlap(one: Piece, other: Piece) -> Piece | None:
    """What lies in both, perhaps nothing; None where two ends cannot be put in order."""
    low = binding({(piece.low, piece.low_closed) for piece in (one, other)}, 1)
    high = binding({(piece.high, piece.high_closed) for piece in (one, other)}, -1)
    return low and high and Piece(low[0], high[0], low[1], high[1])


def binding(ends: set[tuple[str, bool]], sign: int) -> tuple[str, bool] | None:
    """Of some ends (end, closed?) the one that cuts off most: lower ends with sign 1, upper ones with -1."""
    finite = {end for end in ends if end[0] not in INFINITE}
    if len(finite) < 2:
        return (finite or ends).pop()
    values = {end: value(end[0]) for end in finite}
    if None in values.values():
        return None
    return max(finite, key=lambda end: (sign * values[end], not end[1]))


def may_be_equal(reference: str, prediction: str) -> bool:
    r"""Conditions whose common set is not known: `x < 2 and x < \sqrt{5}`, `x > 0, x < 5`, `a < b, b < c`."""
    sides = [[read_set(part) for part in (split_list(text) or (text,))] for text in (reference, prediction)]
    named = [part for side in sides for part in side if part is not None and part.name]
    ends = [end for part in named for piece in part.pieces for end in piece[:2]]
    one_variable = len({part.name for part in named}) == 1
    return all(map(any, sides)) and (one_variable or any(SYMBOL.search(end) for end in ends))


def point(text: str) -> RealSet | None:
    return RealSet((Piece(text, text, True, True),), False) if value(text) is not None else None


def value(end: str) -> Fraction | None:
    """The rational value of an end; None for an infinite or another one."""
    number = read_number(end)
    return number.value if number is not None and not number.pi else None


def merged(pieces: tuple[Piece, ...]) -> list[Piece] | None:
    """Sorted, overlapping and touching pieces joined; None where an end is no rational number."""
    ends = []
    for piece in pieces:
        low = Fraction(-(10**400)) if INFINITE.get(piece.low) == -1 else value(piece.low)
        high = Fraction(10**400) if INFINITE.get(piece.high) == 1 else value(piece.high)
        if low is None or high is None:
            return None
        ends.append((low, not piece.low_closed, high, piece))
    joined: list[tuple[Fraction, Piece]] = []
    for low, is_open, high, piece in sorted(ends, key=lambda end: end[:3]):
        if low > high or (low == high and not (piece.low_closed and piece.high_closed)):
            continue  # empty
        if joined:
            end, last = joined[-1]
            if low < end or (low == end and (last.high_closed or not is_open)):
                if (high, piece.high_closed) > (end, last.high_closed):
                    joined[-1] = (high, last._replace(high=piece.high, high_closed=piece.high_closed))
                continue
        joined.append((high, piece))
    return [piece for _, piece in joined]


def compare_sets(reference: RealSet, prediction: RealSet, values: Values) -> Outcome | None:
    """None: the ends are no numbers and the number of pieces differs."""
    if reference.name and prediction.name and reference.name != prediction.name:
        ends = [{end for piece in side.pieces for end in piece[:2]} for side in (reference, prediction)]
        single = len(reference.pieces) == len(prediction.pieces) == 1
        if single and reference.name in ends[1] and prediction.name in ends[0]:
            (gold,), (answer,) = reference.pieces, prediction.pieces  # a < b against b > a
            turned = (gold.low in INFINITE) != (answer.low in INFINITE)
            same = turned and any(gold[2:]) == any(answer[2:])
            return Outcome(same, "interval", "the same inequality" if same else "another inequality")
        return Outcome(False, "interval", "another variable")
    gold, answer = merged(reference.pieces), merged(prediction.pieces)
    exact = gold is not None and answer is not None
    gold, answer = (gold, answer) if exact else (reference.pieces, prediction.pieces)
    if len(gold) != len(answer):
        return Outcome(False, "interval", "other intervals") if exact else None
    if exact and not gold:
        return Outcome(True, "interval", "the empty set")
    if exact or len(gold) == 1:
        outcome = all_true(same_piece(*pair, values) for pair in zip(gold, answer, strict=True))
        return outcome._replace(method="interval") if outcome.correct is not None else outcome
    table = [[same_piece(one, other, values) for other in answer] for one in gold]
    if matched(table, {True}):
        return Outcome(True, "interval", "the same intervals")
    if not matched(table, {True, None}):
        return Outcome(False, "interval", "other intervals")
    return next(cell for row in table for cell in row if cell.correct is None)


def same_piece(gold: Piece, answer: Piece, values: Values) -> Outcome:
    if gold[2:] != answer[2:]:
        return Outcome(False, "interval", "an end is open on one side and closed on the other")
    ends = list(zip(gold[:2], answer[:2], strict=True))
    if any((a in INFINITE and r"\infty" not in b) or (b in INFINITE and r"\infty" not in a) for a, b in ends):
        return Outcome(False, "interval", "an end is infinite on one side only")
    return all_true(values(*pair) for pair in ends).by("interval")
