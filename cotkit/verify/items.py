r"""Lists, tuples, sets, vectors: `1, 2 and 3`, `(1,2)`, `[1, 2]`, `\{1,2\}`, `\langle 1,2\rangle`, `\pm 3`.

What the brackets say about order: braces and bare lists have none, round, square and angle brackets have.
Round against square is another answer. Items are compared by the whole ladder, `values`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cotkit.verify.arithmetic import read_number
from cotkit.verify.normalise import CACHED, closing, is_closed, key
from cotkit.verify.verdicts import PENDING, Outcome, Values, all_true
from cotkit.verify.words import is_words, truth

MOST_UNORDERED = 30  # items left after the equal ones are paired: n * n comparisons
LONGEST_WORD_ITEM = 4  # words; a sentence with commas is no list

SEPARATOR = re.compile(r",? (?:and|or|&) |[,;]|\\[{}]|[()\[\]{}]|\\langle|\\rangle")
OPENING, CLOSING = ("(", "[", "{", "\\{", "\\langle"), (")", "]", "}", "\\}", "\\rangle")
RELATION = re.compile(r"[<>=]|\\(?:le|ge|ne|in|neg|lnot|to|implies|iff|equiv|forall|exists)(?![A-Za-z])|¬")
PROPOSITION = re.compile(r"[A-Za-z](?:_\w|_\{\w+\})?'?(?:\([A-Za-z, ]+\))?")
SET_BUILDER = re.compile(r"\||: ")
GROUPED = re.compile(r"\d,(?=\d{3}(?!\d))")
UNORDERED, ORDERED = {"curly", "bare"}, {"round", "square", "angle"}
OTHER_BRACKETS = {frozenset(pair) for pair in (("round", "square"), ("curly", "round"), ("curly", "square"))}


class Items(NamedTuple):
    kind: str  # bare, curly, round, square, angle
    items: tuple[str, ...]
    joined: str = ""  # "and", "or", "" for signs alone, or all of them where they are mixed


@lru_cache(CACHED)
def read_items(text: str) -> Items | None:
    """The items of a canonical text, None when it is one value."""
    if text == "\\emptyset":
        return Items("curly", ())
    kind, inner = brackets(text)
    if r"\pm" in text and (kind in ("round", "angle") or text.startswith("[[")):
        return Items("bare", both_signs(text))  # two points, two matrices
    items, joined = split_list(inner), joint(inner)
    if r"\pm" in inner:
        items = tuple(one for item in items for one in both_signs(item))
    if kind == "bare":
        sentence = any(len(item.split()) > LONGEST_WORD_ITEM and item[0].isalpha() for item in items)
        return Items(kind, items, joined) if len(items) > 1 and not sentence else None
    if kind == "curly" and SET_BUILDER.search(inner):
        return None
    group = kind == "round" or (text[0] == "{" and read_number(inner) is None)  # (5) and {x} are one value
    return None if group and len(items) < 2 else Items(kind, items, joined)


def both_signs(text: str) -> tuple[str, ...]:
    r"""`1\pm 2` as `1+2`, `1-2`; a text without the sign as itself."""
    if r"\pm" not in text:
        return (text,)
    plus, minus = (re.sub(r"\\pm ?", sign, text) for sign in "+-")
    return plus.removeprefix("+").strip(), minus.strip()


def brackets(text: str) -> tuple[str, str]:
    """The kind of bracket round the whole text, and what stands inside."""
    if text.startswith("\\{") and closing(text, 1) == len(text) - 1:
        return "curly", text[2:-2]
    if text.startswith("\\langle") and text.find("\\rangle") == len(text) - len("\\rangle"):
        return "angle", text[len("\\langle") : -len("\\rangle")]
    if is_closed(text):
        return {"(": "round", "[": "square", "{": "curly"}[text[0]], text[1:-1]
    return "bare", text


def split_list(text: str) -> tuple[str, ...]:
    """The pieces between commas, semicolons, "and" and "or" that stand in no bracket; () for nothing."""
    return pieces_and_joint(text)[0]


def joint(text: str) -> str:
    """What joins the pieces: "and", "or", "" for signs alone; where that is mixed, all joints in a row."""
    return pieces_and_joint(text)[1]


@lru_cache(CACHED)
def pieces_and_joint(text: str) -> tuple[tuple[str, ...], str]:
    level, found = 0, []
    for match in SEPARATOR.finditer(text):
        if match[0] in OPENING:
            level += 1
        elif match[0] in CLOSING:
            level -= 1
        elif level == 0:
            found.append(match)
    by_semicolon = any(match[0] == ";" for match in found)
    spaced = any(match[0] != "," or text[match.end() : match.end() + 1] == " " for match in found)
    pieces, joints, start = [], [], 0
    for match in found:
        grouping = spaced and GROUPED.match(text, max(match.start() - 1, 0))  # 1,000, 2,000
        if match[0] != "," or not (grouping or by_semicolon):
            pieces.append(text[start : match.start()])
            joints.append({"&": "and", ";": "", "": ""}.get(word := match[0].strip(" ,"), word))
            start = match.end()
    mixed = {*joints[:-1]} - {"", *joints[-1:]} or (joints[-1:] == [""] and any(joints))
    joined = " ".join(word or "," for word in joints) if mixed else "".join(joints[-1:])
    return tuple(piece.strip() for piece in [*pieces, text[start:]] if piece.strip()), joined


def compare_items(
    reference: Items | None, prediction: Items | None, order: bool | None, bare_in_order: bool, values: Values
) -> Outcome:
    """Two lists, or one value (None) against several. `order`: True, False, or None = as the brackets say."""
    if reference is None or prediction is None:
        return Outcome(False, "items", "one value against several")
    kinds = {reference.kind, prediction.kind}
    if joined_otherwise(reference, prediction):
        return Outcome(None, "items", 'statements joined by "and" on one side, by "or" on the other')
    if order is None and frozenset(kinds) in OTHER_BRACKETS and len(kinds) == 2:
        return vector(reference, prediction, values) or Outcome(False, "items", "other brackets")
    if kinds == {"bare"} and order is None and any(map(in_turn, (reference, prediction))):
        outcome = same_list(reference.items, prediction.items, values)
        if outcome.correct is False and same_set(reference.items, prediction.items, values).correct:
            return Outcome(None, "items", "the same items in another order")
        return outcome
    if order is None:
        order = bool(kinds & ORDERED) or (kinds == {"bare"} and bare_in_order)
    if not order:
        deduplicate = "curly" in kinds
        gold, answer = (
            distinct(side.items) if deduplicate else side.items for side in (reference, prediction)
        )
        return same_set(gold, answer, values)
    outcome = same_list(reference.items, prediction.items, values)
    reordered = (reference.kind, prediction.kind) == ("bare", "square") and not bare_in_order
    if outcome.correct is False and reordered:
        unordered = same_set(reference.items, prediction.items, values)
        if unordered.correct:
            return Outcome(None, "items", "the same items in another order")
        return unordered  # PENDING, undecided, or an item without a partner
    return outcome


def joined_otherwise(reference: Items, prediction: Items) -> bool:
    """`p and q` against `p or q`, `x<2, y<5` against `x<2 or y<5`; 1 and 2 are the values 1 or 2."""
    joints = (reference.joined, prediction.joined)
    items = (*reference.items, *prediction.items)
    if joints[0] == joints[1] and " " not in joints[0]:
        return False
    if any(" " in joined for joined in joints):  # p and q or r
        return any(map(is_statement, items)) and not (
            joints[0] == joints[1] and [*map(key, reference.items)] == [*map(key, prediction.items)]
        )
    if "or" not in joints:
        return False
    both_say = "" not in joints
    return any(is_statement(item) and (both_say or RELATION.search(item)) for item in items)


def in_turn(side: Items) -> bool:
    """Answers to several questions, or a walk: `True, False`, `A, B, A`; no set."""
    if all(truth(item, asked=True) is not None for item in side.items):
        return True
    return len({*side.items}) < len(side.items) and not any(map(read_number, side.items))


def is_statement(item: str) -> bool:
    """No number, point or formula: a condition, a proposition, a name."""
    return bool(RELATION.search(item) or PROPOSITION.fullmatch(item)) or is_words(item)


def vector(reference: Items, prediction: Items, values: Values) -> Outcome | None:
    """A column of a matrix, `[[1],[2]]`, against a tuple, `(1,2)`."""
    columns = []
    for side in (reference, prediction):
        rows = [read_items(item) for item in side.items]
        column = side.kind == "square" and all(
            row and row.kind == "square" and len(row.items) == 1 for row in rows
        )
        columns.append(tuple(row.items[0] for row in rows) if column and len(rows) > 1 else None)
    if (columns[0] is None) == (columns[1] is None) or "curly" in (reference.kind, prediction.kind):
        return None
    return same_list(columns[0] or reference.items, columns[1] or prediction.items, values)


def distinct(items: tuple[str, ...]) -> tuple[str, ...]:
    seen = {}
    for item in items:
        number = read_number(item)
        seen.setdefault((number.value, number.pi) if number else key(item), item)
    return tuple(seen.values())


def same_list(reference: tuple[str, ...], prediction: tuple[str, ...], values: Values) -> Outcome:
    if len(reference) != len(prediction):
        return Outcome(False, "items", f"{len(prediction)} items instead of {len(reference)}")
    return all_true(values(*pair) for pair in zip(reference, prediction, strict=True)).by("items")


def same_set(reference: tuple[str, ...], prediction: tuple[str, ...], values: Values) -> Outcome:
    """One-to-one, in any order."""
    if len(reference) != len(prediction):
        return Outcome(False, "items", f"{len(prediction)} items instead of {len(reference)}")
    in_order = same_list(reference, prediction, values)
    if in_order.correct or in_order.method == PENDING:
        return in_order
    gold, answer = list(reference), list(prediction)
    for item in reference:
        twin = next((other for other in answer if key(other) == key(item)), None)
        if twin is not None:
            gold.remove(item)
            answer.remove(twin)
    if len(gold) > MOST_UNORDERED:
        return Outcome(None, "items", f"more than {MOST_UNORDERED} items in another order")
    table = []
    for one in gold:
        table.append([values(one, other) for other in answer])
        if all(cell.correct is False for cell in table[-1]):  # the other items need not be compared
            return Outcome(False, "items", "an item has no partner")
    if matched(table, {True}):
        return Outcome(True, "items", "the same items")
    if not matched(table, {True, None}):
        return Outcome(False, "items", "an item has no partner")
    return next(cell for row in table for cell in row if cell.correct is None)


def matched(table: list[list[Outcome]], accepted: set[bool | None]) -> bool:
    """Is there a one-to-one pairing over the accepted cells? (Kuhn's augmenting paths)"""
    partner: dict[int, int] = {}

    def find(row: int, seen: set[int]) -> bool:
        for column, cell in enumerate(table[row]):
            if cell.correct in accepted and column not in seen:
                seen.add(column)
                if column not in partner or find(partner[column], seen):
                    partner[column] = row
                    return True
        return False

    return all(find(row, set()) for row in range(len(table)))
