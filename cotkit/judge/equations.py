"""The arithmetic steps of a trace: every stated equality that can be recomputed, and whether it holds.

A step is one equality, `12 * 4 = 48`, or one link of a chain `a + b = c = d`; `is` counts as the sign behind
something that computes (`20% of 50 is 10`). It is checked when both sides can be read and one of them
computes something, or they differ in the unit (`250 cm = 2.5 m`). In a text without such a step, equations in
one letter are checked by putting their solution in.

Doubtful notation gets the benefit of the doubt: a step holds when one of its usual readings holds (percent as
a share, as points or as a change; `a / 1/2`; `5 + 3 = 8 * 2 = 16`; a result rounded or cut to the digits
shown; a rounded number standing for the exact one it came from). A step that holds in no reading is wrong,
unless `doubts` finds that it may mean something else: then it is left out, neither right nor wrong.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from cotkit.judge.arithmetic import CLAUSE, Node, Percent, Reader, Span, Token, Unreadable, evaluate, tokens
from cotkit.judge.doubts import (
    Converted,
    changed_by,
    converted,
    doubtful,
    is_letter,
    new_subject,
    said_in_prose,
)
from cotkit.judge.plain import plain_lines

MAX_STEPS = 1000
MAX_SIDE = 300  # tokens of one side that are read; it bounds the depth of an expression too
CORRECTED_WITHIN = 3  # steps after a wrong one in which the trace may put it right
NEARLY = Fraction(1, 10**9)  # relative: floating-point numbers printed in full

ANNOTATION = re.compile(r"<<([^<>\n]{1,200})>>")  # GSM8K's calculator marks: 48/2 = <<48/2=24>>24
_ABOUT = {"about", "roughly", "around", "nearly", "almost"}  # right behind the sign
_ROUNDED = {"approximately", "approx", "rounded", "rounding", "round"}  # anywhere near it
_REMAINDER = {"remainder", "rem", "r"}
_LINK = re.compile(r"[=≈]|\b(?:is|are)\b")
_SIGN = re.compile(r"(?<![<>!=:+*/-])=(?![=>])|≈")
_LONE = re.compile(r"[\s$€£()]*-?[\d.,]+[\s$€£().,;]*")
_COMMA = re.compile(r"(?<=\d),(?=\d{1,2}(?!\d))")  # the decimal comma of 2,5
_SOLVED = re.compile(
    r"(?<![\w.*/×·^+)(-])(?<![*/×·^+)(-]\s)([B-HJ-Zb-z])\s*=\s*\$?(-?\d+(?:,\d{3})*(?:\.\d+)?)(?![\d.,]*\d)(?!\.?\d|\s*[-+*/×÷·^=(√%]|\s?\w)"
)
_PERCENT: tuple[Percent, ...] = ("share", "plain", "change")


@dataclass(frozen=True)
class Step:
    """One checked equality. `text` as it stands in the trace; `computed` the side that computes, worth
    `value`; `claimed` what the other side says."""

    line: int
    text: str
    computed: str
    value: Fraction
    claimed: Fraction
    holds: bool


def find_steps(trace: str) -> list[Step]:
    """The checked steps in order. A wrong step that the trace itself puts right soon after is left out."""
    exact: dict[Fraction, Fraction] = {}
    steps: list[Step] = []
    for number, line in plain_lines(trace):
        if not _LINK.search(line):
            continue
        visible = _steps_of(ANNOTATION.sub("", line), number, exact)
        annotated = [s for text in ANNOTATION.findall(line) for s in _chain(text, number, exact)]
        said = {(step.value, step.claimed) for step in visible}  # an annotation mostly repeats it
        steps += [*visible, *(step for step in annotated if (step.value, step.claimed) not in said)]
        if len(steps) >= MAX_STEPS:
            break
    return _without_corrected(steps or _put_in(trace))


def count_unread(trace: str) -> int:
    """How many equalities between two sides with numbers a trace shows, whether they can be read or not; two
    lone numbers (`25 = 25`) are none."""
    count = 0
    for _, line in plain_lines(trace):
        sides = _SIGN.split(ANNOTATION.sub("", line))
        for before, after in itertools.pairwise(sides):
            left, right = re.split(r"[.,;:?!]\s", before)[-1], re.split(r"[.,;:?!]\s", after)[0]
            digits = re.search(r"\d", left) and re.search(r"\d", right)
            count += bool(digits) and not (_LONE.fullmatch(left) and _LONE.fullmatch(right))
    return count


def _steps_of(line: str, number: int, exact: dict[Fraction, Fraction]) -> list[Step]:
    """The steps of a line; with commas for decimal points where only that makes sense of it."""
    steps = list(_chain(line, number, exact))
    if _COMMA.search(line) and not (steps and all(step.holds for step in steps)):
        pointed = list(_chain(_COMMA.sub(".", line), number, exact))
        if pointed and (all(step.holds for step in pointed) or not (steps or "(" in line)):
            return pointed
    return steps


def _put_in(trace: str) -> list[Step]:
    """Equations in one letter, checked with the value that the trace finds: `x + 5 = 12, x = 7`."""
    lines = [(number, ANNOTATION.sub("", line)) for number, line in plain_lines(trace)]
    found = {match.groups() for _, line in lines for match in _SOLVED.finditer(line)}
    if len(found) != 1:
        return []
    letter, value = found.pop()
    alone = re.compile(rf"(?<=\d){letter}\b|(?<![\w'’]){letter}(?![\w'’(])")
    steps: list[Step] = []
    for number, line in lines[:MAX_STEPS]:
        if alone.search(line):
            said = alone.sub(
                lambda m: f"*({value})" if m.start() and m.string[m.start() - 1].isdigit() else f"({value})",
                line,
            )
            steps += _chain(said, number, {})
    return steps


def _without_corrected(steps: list[Step]) -> list[Step]:
    def corrected(i: int) -> bool:
        said = "".join(steps[i].computed.split())
        near = steps[i + 1 : i + 1 + CORRECTED_WITHIN]
        return any(step.holds and "".join(step.computed.split()) == said for step in near)

    return [step for i, step in enumerate(steps) if step.holds or not corrected(i)]


def _chain(text: str, line: int, exact: dict[Fraction, Fraction]) -> Iterator[Step]:
    """Checks `E0 = E1 = E2 ...` pair by pair; notes in `exact` which numbers are rounded results."""
    found = _with_is(tokens(text))
    cuts = [i for i, token in enumerate(found) if token.kind == "="]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(found)]
    parts = [found[a:b] for a, b in zip(starts, ends, strict=True)]
    for i, cut in enumerate(cuts):
        inner = i > 0 and found[cuts[i - 1]].text in "=≈"
        pair = _Pair(parts[i][-MAX_SIDE:], parts[i + 1][:MAX_SIDE], found[cut].text, inner)
        try:
            step = pair.step(text, line, exact)
        except Unreadable:
            continue
        if step is not None:
            yield step


def _with_is(found: list[Token]) -> list[Token]:
    """`is` and `are` between an operand and a number become equality signs."""
    numbers = ("num", "(", "root")
    for i in range(1, len(found) - 1):
        if found[i].kind != "word" or found[i].text not in ("is", "are"):
            continue
        ahead = [t for t in found[i + 1 : i + 4] if t.kind != "$" and t.text.lower() not in _ABOUT | _ROUNDED]
        if (
            ahead
            and ahead[0].kind in numbers
            and found[i - 1].kind in ("num", ")", "%", "word", "raised", "!")
        ):
            found[i] = replace(found[i], kind="=")
    return found


@dataclass(frozen=True)
class _Reading:
    """One way to read the two sides. `sure` False: good for finding that a step holds, not that it fails."""

    left: Span
    right: Span
    sure: bool


@dataclass(frozen=True)
class _Pair:
    """The tokens on both sides of one equality sign."""

    left: list[Token]
    right: list[Token]
    sign: str  # =, ≈ (claims no exactness), is, are
    inner: bool  # the left side is itself the right side of an earlier sign

    def step(self, text: str, line: int, exact: dict[Fraction, Fraction]) -> Step | None:
        """The checked step, or None where nothing can be said. Raises `Unreadable`."""
        if self.sign in "=≈" and (units := converted(self.left, self.right)):
            return self._conversion(units, text, line)
        readings = [r for notation in self._notations() if (r := self._read(*notation))]
        if not readings or not self._checkable(readings[0]):
            return None
        main = readings[0]
        backwards = main.left.node.bare and not main.right.node.bare  # 12 = 3 * 4
        computed, stated = (main.right, main.left) if backwards else (main.left, main.right)
        value, claimed = evaluate(computed.node), evaluate(stated.node)
        holds = any(self._holds(r, mode, exact, backwards) for r in readings for mode in _modes(r))
        if holds and computed.node.bare:  # 7 = 7 earns nothing
            return None
        if self.sign not in "=≈" and (main.left.node.bare or new_subject(main.left.node)):
            return None
        if not holds and not (main.sure and self._certain(main, value, claimed)):
            return None
        if holds and value != claimed and stated.node.op is None:
            exact[stated.node.value] = value
        side = self.right if backwards else self.left
        computes = text[side[computed.start].start : _end(side, computed)]
        return Step(line, self._text(text, main.left, main.right), computes, value, claimed, holds)

    def _text(self, text: str, left: Span, right: Span) -> str:
        return text[self.left[left.start].start : _end(self.right, right)]

    def _certain(self, main: _Reading, value: Fraction, claimed: Fraction) -> bool:
        """Whether an equality that does not hold can mean nothing else."""
        if self.sign not in "=≈":
            part = value.denominator != 1 and abs(value - claimed) < 1  # 10 / 4 is 2 full boxes
            if (part and _REMAINDER.isdisjoint(self._words_ahead(5))) or not said_in_prose(
                self.left, main.left, main.right.node
            ):
                return False
        return not doubtful(main.left.node, main.right.node)

    def _conversion(self, units: Converted, text: str, line: int) -> Step | None:
        """`250 cm = 2.5 m`: both sides told in the unit of the right one."""
        value, claimed, stated = units.value, units.claimed, units.stated
        holds = value == claimed or (
            stated is not None and _agrees(value, claimed, stated, "share", self._rounds())
        )
        if not (holds or units.sure):
            return None
        computes = text[self.left[units.left.start].start : self.left[units.left.end - 1].end]
        return Step(line, self._text(text, units.left, units.right), computes, value, claimed, holds)

    def _notations(self) -> Iterator[tuple[bool, bool]]:
        """(tight, asides) readings worth trying: see `Reader`."""
        texts = {token.text for token in self.left + self.right}
        return product(
            (False, True) if "/" in texts else (False,), (False, True) if "(" in texts else (False,)
        )

    def _read(self, tight: bool, asides: bool) -> _Reading | None:
        left, right = _left_side(self.left, tight, asides), _right_side(self.right, tight, asides)
        return left and right and _Reading(left[0], right[0], left[1] and right[1])

    def _checkable(self, reading: _Reading) -> bool:
        """Something is computed: two bare numbers only count inside a chain and without units."""
        left, right = reading.left.node, reading.right.node
        if left.bare and right.bare:
            plain = len(self.left) == 1 and not (left.unit or right.unit or right.percent or right.currency)
            return self.inner and plain
        return not (left.bare and left.unit)  # `a = 5 then b = 2 * 5` says nothing about 5

    def _holds(self, reading: _Reading, percent: Percent, exact: dict, backwards: bool) -> bool:
        left, right = reading.left.node, reading.right.node
        for known in ({}, exact) if exact else ({},):
            # 5 + 3 = 8 * 2 = 16: 8 is what is claimed
            sides = [(right, left)] if backwards else [(left, right), (left, _first(right))]
            for computed, stated in sides:
                try:
                    value, claimed = evaluate(computed, percent, known), evaluate(stated, percent)
                except Unreadable:
                    continue
                if _agrees(value, claimed, stated, percent, self._rounds()) or (
                    self._remainder(computed) and math.floor(value) == claimed
                ):
                    return True
        return False

    def _words_ahead(self, count: int) -> list[str]:
        return [token.text.lower() for token in self.right[:count] if token.kind == "word"]

    def _rounds(self) -> bool:
        near = self._words_ahead(10)
        return (
            self.sign == "≈" or not _ROUNDED.isdisjoint(near) or not _ABOUT.isdisjoint(self._words_ahead(2))
        )

    def _remainder(self, division: Node) -> bool:
        """A remainder is named, and where its number follows it is the right one."""
        named = next((i for i, t in enumerate(self.right[:6]) if t.text.lower() in _REMAINDER), None)
        if named is None:
            return False
        number = next((t.value for t in self.right[named + 1 : named + 4] if t.kind == "num"), None)
        if number is None or division.op != "/":
            return True
        return number == evaluate(division.parts[0]) % evaluate(division.parts[1])


def _end(found: list[Token], span: Span) -> int:
    """Where an expression ends in the text, its last unit words left out."""
    return next(t.end for t in reversed(found[span.start : span.end]) if t.kind not in ("word", "$", "op"))


def _modes(reading: _Reading) -> tuple[Percent, ...]:
    percent = any(part.percent for side in (reading.left, reading.right) for part in side.node.walk())
    return _PERCENT if percent else _PERCENT[:1]


def _left_side(found: list[Token], tight: bool, asides: bool) -> tuple[Span, bool] | None:
    """The expression that ends at the equality sign, and whether it surely begins where it seems to."""
    spans = Reader(found, tight, asides).spans()
    if not spans:
        return None
    span = spans[-1]
    tail = found[span.end :]
    words = {token.text.lower() for token in tail if token.kind == "word"}
    if any(token.kind not in ("word", ")", "$") for token in tail) or words & CLAUSE:
        return None
    sure = not any(is_letter(word) for word in words) and not _share(span.node) and not _loose(found, span)
    before = found[span.start - 1] if span.start else None
    if before is None:
        return span, sure
    touches = before.end == found[span.start].start
    if before.text == "√" or (
        touches and before.kind in ("word", ")", "num", "clock")
    ):  # sqrt, f(2), (x + 1)(3)
        return None
    if before.kind == "op":  # a dash between words, or a term that cannot be read
        return (span, False) if before.text == "-" and not touches else None
    return span, sure and not changed_by(_words_before(found, span.start))


def _words_before(found: list[Token], end: int) -> list[str]:
    start = end
    while start > max(0, end - 4) and found[start - 1].kind == "word":
        start -= 1
    return [token.text.lower() for token in found[start:end]]


def _right_side(found: list[Token], tight: bool, asides: bool) -> tuple[Span, bool] | None:
    """The expression that begins at the equality sign, and whether it surely ends where it seems to."""
    spans = Reader(found, tight, asides).spans()
    if not spans:
        return None
    span = spans[0]
    lead = [token.text.lower() for token in found[: span.start]]
    if len(lead) > 4 or any(t.kind not in ("word", "$") for t in found[: span.start]):
        return None
    if any(word in CLAUSE or is_letter(word) for word in lead):
        return None
    after = found[span.end] if span.end < len(found) else None
    goes_on = after is not None and (
        after.kind == "op"
        or after.text in "!√"
        or (after.kind in ("(", "word") and len(after.text) == 1 and not _remark(found, span.end))
    )
    return span, not goes_on and not _loose(found, span)


def _remark(found: list[Token], at: int) -> bool:
    """`16 (5 books at 3 each)`, `16 (since 2 + 2 = 4)`: a bracket apart that holds words or an equation."""
    if found[at].kind != "(" or found[at].start == found[at - 1].end:
        return False
    inside = list(itertools.takewhile(lambda token: token.kind != ")", found[at + 1 :]))
    words = any(token.kind == "word" and len(token.text) > 1 for token in inside)
    return words or at + 1 + len(inside) == len(found)


def _loose(found: list[Token], span: Span) -> bool:
    """Whether it is open which numbers belong together: `2 100` may be two, `half of 20 + 10` half of 30."""
    inside = found[span.start : span.end]
    two = any(" " in t.text and t.kind == "num" and "/" not in t.text and not _thousands(t) for t in inside)
    return two or (
        inside[0].text in ("share of", "√") and span.node.op in ("+", "-") and inside[1].kind != "("
    )


def _thousands(token: Token) -> bool:
    return token.text == "share of" or token.text.endswith(" 000")


def _share(node: Node) -> bool:
    """A proper fraction alone: in `2/5 = 12.8 hectares` it stands for a part of something."""
    return (
        node.op == "/" and all(p.op is None for p in node.parts) and node.parts[0].value < node.parts[1].value
    )


def _first(node: Node) -> Node:
    """The first operand of an expression; a plain fraction is one operand."""
    while node.op in ("+", "-", "*", "/"):
        fraction = node.op == "/" and all(p.op is None and not p.unit for p in node.parts)
        if fraction:
            break
        node = node.parts[0]
    return node


def _agrees(value: Fraction, claimed: Fraction, stated: Node, percent: Percent, rounds: bool) -> bool:
    """Equal, or equal to the digits that are shown (rounded or cut off)."""
    if value == claimed:
        return True
    size = abs(value - claimed)
    if stated.op is not None or stated.decimals < 0:
        return size <= abs(value) * NEARLY
    digits = stated.decimals + (2 if stated.percent and percent != "plain" else 0)
    if stated.decimals >= 9:
        return size <= max(Fraction(1), abs(value)) * NEARLY
    unit = Fraction(1, 10**digits)
    if stated.decimals > 0:
        return size <= unit / 2 or (size < unit and abs(claimed) < abs(value))
    if not rounds:
        return False
    shown = abs(stated.value)
    while shown and shown % 10 == 0:  # about 1,300: the zeros are not claimed
        shown, unit = shown / 10, unit * 10
    return size <= unit / 2 or size < 1
