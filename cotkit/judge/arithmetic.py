"""Reading arithmetic in prose: `3 boxes × 6 pens` is 18, exactly, without `eval`.

`tokens(line)` cuts a plain line into numbers, operators, words and breaks. `Reader(tokens).spans()` finds
the longest spans that are expressions; words behind a number are its unit. `evaluate(node)` computes a span
with fractions. What cannot be read (a variable, a function, a number past the bounds) ends the span or has
no value: nothing is guessed, and every step is bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from cotkit.verify import VULGAR

MAX_DIGITS, MAX_POWER, MAX_FACTORIAL, MAX_BITS = 40, 64, 400, 4096
MAX_DEPTH, MAX_TERMS, MAX_UNIT_WORDS = 30, 150, 8

Percent = Literal["share", "plain", "change"]  # 20 % is 0.2; is 20; in `50 + 20%` is 20 % of the 50

_TOKEN = re.compile(
    r"""(?P<space>[\s°"'’“”]+)
    |(?P<clock>\d+(?::\d+)+ | \d+(?:\.\d+){2,})
    |(?P<ordinal>\d+(?:st|nd|rd|th|ths|rds)\b)
    |(?P<mixed>\d{1,4}[ ](?!0)\d{1,3}/\d{1,3}(?![\d/.]))
    |(?P<num>(?:\d{1,3}(?:[ ]\d{3})+(?![\d:,]|\.\d)
            | (?:\d{1,3}(?:,\d{3})+ | \d{1,2}(?:,\d\d)+,\d{3})(?!\d)
            | \d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3}\b)?
            | \.\d+)
    |(?P<vulgar>[VULGAR])
    |(?P<raised>[²³])
    |(?P<by>(?<=\d)[xX](?=[ ]?[\d.($€£]) | multiplied[ ]by\b)
    |(?P<over>divided[ ]by\b)
    |(?P<choose>(?<=\d)C(?=\d))
    |(?P<factorial>(?<=[\d)])!(?=\s*(?:=|\)|[-+*/×÷·]\s*[\d($])))
    |(?P<root>√)
    |(?P<hyphen>(?<=\d)-(?=[^\W\d_]))
    |(?P<unequal>[!<>+\-*/:=~]=+>? | =[><=]+ | ->|<-|<=>)
    |(?P<op>\*\*|[-+*/^−–×✕·⋅∙∗÷∕])
    |(?P<eq>[=≈])
    |(?P<open>[(\[])|(?P<close>[)\]])|(?P<percent>%)|(?P<currency>[$€£¥₹])
    |(?P<word>[^\W\d_](?:[\w'’]|-(?=[^\W\d_]))*(?:\^\(?-?\d\)?)?[²³]?)
    |(?P<break>.)""".replace("[VULGAR]", f"[{''.join(VULGAR)}]"),
    re.VERBOSE | re.DOTALL,
)
_SIGNS = {"−": "-", "–": "-", "×": "*", "✕": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/",
          "∕": "/", "**": "^"}  # fmt: skip
# Words that begin a new thought: a number before them is no part of what follows.
CLAUSE = {"and", "then", "so", "which", "where", "let", "if", "with", "because", "while", "but", "or", "thus",
          "hence", "therefore", "since", "when", "gives"}  # fmt: skip
_KINDS = {"open": "(", "close": ")", "percent": "%", "currency": "$", "eq": "=", "unequal": "break",
          "clock": "break", "factorial": "!"}  # fmt: skip
_DETERMINERS = {"the", "a", "an", "his", "her", "their", "its", "my", "our", "your", "another", "additional",
                "extra", "only"}  # fmt: skip
_OPERAND_END, _OPERAND_START = ("num", ")", "%", "word", "raised", "!"), ("num", "(", "$", "root")
_OPERATIONS = {
    "plus": "+",
    "minus": "-",
    "times": "*",
    "x": "*",
    "mod": "%",
    "modulo": "%",
    "choose": "choose",
}
_SHARES = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
           "eighth": 8, "ninth": 9, "tenth": 10}  # fmt: skip
_COUNTS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: num, op, raised, root, !, (, ), %, $, =, word, break. `text` of an op is one of + - * / ^ %
    (modulo) and choose."""

    kind: str
    text: str
    start: int
    end: int
    value: Fraction | None = None
    decimals: int = 0  # digits behind the point; -1 = written as a fraction


@dataclass(frozen=True, slots=True)
class Node:
    """A number with its unit (`op` None), or an operator (+ - * / ^ % choose ! root neg) over parts."""

    op: str | None = None
    parts: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)
    decimals: int = 0
    percent: bool = False
    currency: bool = False
    unit: tuple[str, ...] = ()

    @property
    def bare(self) -> bool:
        """A number alone states a value; it computes nothing."""
        return self.op is None or (self.op == "neg" and self.parts[0].bare)

    def walk(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class Span:
    """The longest expression that begins at tokens[start]; it ends before tokens[end]."""

    node: Node
    start: int
    end: int


_TOO_LONG = Node("too long")  # reads on, has no value


class Unreadable(Exception):
    """No value: a division by zero, a power or a number past the bounds."""


def tokens(line: str) -> list[Token]:
    """The line cut up; a space, a quote or a degree sign is no token."""
    found: list[Token] = []
    for match in _TOKEN.finditer(line):
        before = found[-1] if found else None
        if match.lastgroup == "space" or (match.lastgroup == "currency" and before and before.kind == "$"):
            continue
        found.append(_token(match, before))
    return _word_operators(_word_shares(found))


def _token(match: re.Match[str], before: Token | None) -> Token:
    token = Token(match.lastgroup, match.group(), match.start(), match.end())
    match token.kind:
        case "num" | "mixed" | "vulgar":
            return _number(token)
        case "ordinal" if before and before.text == "/":  # 1/3rd is a number, the 3rd is a word
            return _number(replace(token, text=token.text.rstrip("stndrh")))
        case "ordinal" | "hyphen":  # 5-day: what follows the hyphen is a unit
            return replace(token, kind="word")
        case "by" | "over":
            return replace(token, kind="op", text="*" if token.kind == "by" else "/")
        case "choose":
            return replace(token, kind="op", text="choose")
        case "word" if token.text.lower() in ("squared", "cubed") and before and before.kind in ("num", ")"):
            return replace(token, kind="raised", text="²" if token.text.lower() == "squared" else "³")
        case "op":
            return replace(token, text=_SIGNS.get(token.text, token.text))
        case "word" if token.text.lower() == "percent":
            return replace(token, kind="%")
    return replace(token, kind=_KINDS.get(token.kind, token.kind))


def _number(token: Token) -> Token:
    if len(token.text) > MAX_DIGITS:
        return replace(token, kind="break")
    if token.kind == "vulgar":
        return replace(token, kind="num", value=Fraction(VULGAR[token.text]), decimals=-1)
    if token.kind == "mixed":
        whole, top, bottom = map(int, re.split("[ /]", token.text))
        if not 0 < top < bottom:
            return replace(token, kind="break")
        return replace(token, kind="num", value=whole + Fraction(top, bottom), decimals=-1)
    digits, _, power = re.sub("[ ,]", "", token.text).lower().partition("e")
    decimals = len(digits.partition(".")[2]) - int(power or 0)
    return replace(
        token, kind="num", value=Fraction(digits) * Fraction(10) ** int(power or 0), decimals=max(0, decimals)
    )


def _word_shares(found: list[Token]) -> list[Token]:
    """`half of 50` and `two thirds of $60` become numbers, `sqrt(16)` and `the square root of 16` roots."""
    shares: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        words = [t.text.lower() if t.kind == "word" else t.kind for t in found[at : at + 5]]
        over = next((i for i in (0, 1) if words[i : i + 1] and words[i].removesuffix("s") in _SHARES), None)
        top = 1 if over == 0 and words[0] == "half" else _COUNTS.get(words[0]) if over == 1 else None
        if words[:3] == ["square", "root", "of"] and set(words[3:]) & set(_OPERAND_START):
            shares.append(Token("root", "√", token.start, found[at + 2].end))
            at += 3
        elif words[0] == "sqrt" and words[1:2] and words[1] in _OPERAND_START:
            shares.append(replace(token, kind="root", text="√"))
            at += 1
        elif top and words[over + 1 : over + 2] == ["of"] and _number_ahead(found, at + over + 2):
            value = Fraction(top, _SHARES[words[over].removesuffix("s")])
            shares.append(Token("num", "share of", token.start, found[at + over].end, value, -1))
            at += over + 1
        else:
            shares.append(token)
            at += 1
    return shares


def _number_ahead(found: list[Token], at: int) -> bool:
    """Whether an operand stands at this place, `the` and the like left out."""
    ahead = found[at : at + 2]
    if ahead and ahead[0].text.lower() in _DETERMINERS:
        ahead = ahead[1:]
    return bool(ahead) and ahead[0].kind in _OPERAND_START


def _word_operators(found: list[Token]) -> list[Token]:
    """`plus`, `times`, `mod`, `choose` ... between operands, and `of` behind a share, become operators."""
    for i, token in enumerate(found):
        if token.kind != "word" or i == 0 or found[i - 1].kind not in _OPERAND_END:
            continue
        word, before = token.text.lower(), found[i - 1]
        goes_on = i + 1 < len(found) and found[i + 1].kind in _OPERAND_START
        sign = _OPERATIONS.get(word) if goes_on or word in ("plus", "minus") else None
        if word == "of" and _number_ahead(found, i + 1):
            share = before.kind == "%" or before.decimals == -1 or (i > 1 and found[i - 2].text == "/")
            sign = "*" if share else None
        if sign:
            found[i] = Token("op", sign, token.start, token.end)
    return found


class Reader:
    """Finds expressions in tokens. Two readings of doubtful notation can be asked for: in `tight`, `a / 1/2`
    divides by one half and `6 / 2(3)` by six; in `asides`, the bracket of `70 (70%)` is no factor."""

    def __init__(self, found: list[Token], tight: bool = False, asides: bool = False):
        self.tokens, self.tight, self.asides = found, tight, asides
        self._unreadable: set[int] = set()  # brackets that were tried: each is read once

    def spans(self) -> list[Span]:
        """Expressions from left to right, none overlapping."""
        spans, i = [], 0
        while i < len(self.tokens):
            read = self._sum(i, 0) if self._starts(i) else None
            if read is None:
                i += 1
            else:
                spans.append(Span(read[0], i, read[1]))
                i = read[1]
        return spans

    def _starts(self, i: int) -> bool:
        if self._kind(i) != "op":
            return self._kind(i) in _OPERAND_START
        before = self._kind(i - 1) if i else None
        sign = self.tokens[i].text == "-" and self._kind(i + 1) in _OPERAND_START
        return sign and (before in (None, "=", "(", "break"))

    def _kind(self, i: int) -> str | None:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else None

    def _op(self, i: int, signs: str) -> str | None:
        return self.tokens[i].text if self._kind(i) == "op" and self.tokens[i].text in signs else None

    def _sum(self, i: int, depth: int) -> tuple[Node, int] | None:
        return self._chain(i, depth, "+-", self._product)

    def _product(self, i: int, depth: int) -> tuple[Node, int] | None:
        return self._chain(i, depth, "*/%", self._signed)

    def _chain(self, i: int, depth: int, signs: str, part) -> tuple[Node, int] | None:
        read = part(i, depth)
        if read is None:
            return None
        left, i = read
        terms = 1
        while True:
            if (op := self._op(i, signs)) and (read := part(i + 1, depth)):
                right, i = read
            elif signs == "*/%" and self._factor_follows(i) and (read := self._atom(i, depth)):
                op, (right, i) = "*", read  # 2(3 + 4)
            else:
                return left, i
            terms += 1
            left = Node(op, (left, right)) if terms <= MAX_TERMS else _TOO_LONG

    def _signed(self, i: int, depth: int) -> tuple[Node, int] | None:
        while self._kind(i) == "word" and self.tokens[i].text.lower() in _DETERMINERS:
            i += 1
        if self._op(i, "-"):
            read = self._signed(i + 1, depth + 1) if depth < MAX_DEPTH else None
            return read and (Node("neg", (read[0],)), read[1])
        return self._power(i, depth)

    def _power(self, i: int, depth: int) -> tuple[Node, int] | None:
        read = self._atom(i, depth)
        if read is None or depth >= MAX_DEPTH:
            return None
        base, i = read
        if self._kind(i) == "!":
            base, i = Node("!", (base,)), i + 1
        if self._op(i, "choose") and (read := self._atom(i + 1, depth)):
            return Node("choose", (base, read[0])), read[1]
        if self._kind(i) == "raised":
            power = Node(value=Fraction(2 if self.tokens[i].text == "²" else 3))
            unit, i = self._unit(i + 1)
            return Node("^", (base, power), unit=unit), i
        if self._op(i, "^") and (read := self._signed(i + 1, depth + 1)):
            return Node("^", (base, read[0])), read[1]
        while self.tight and self._factor_follows(i) and (read := self._atom(i, depth)):
            base, i = Node("*", (base, read[0])), read[1]
        return base, i

    def _factor_follows(self, i: int) -> bool:
        if self._kind(i) == "num":  # (1/2) 278
            return self._kind(i - 1) == ")" and self._op(i - 3, "/") is not None
        if self._kind(i) != "(" or self._kind(i - 1) == "word":
            return False
        return self.tokens[i - 1].end == self.tokens[i].start or not self.asides

    def _atom(self, i: int, depth: int) -> tuple[Node, int] | None:
        currency = False
        while self._kind(i) == "$":
            currency, i = True, i + 1
        if self._kind(i) == "(":
            return self._bracket(i, depth)
        if self._kind(i) == "root" and depth < MAX_DEPTH:
            read = self._atom(i + 1, depth + 1)
            return read and (Node("root", (read[0],)), read[1])
        if self._kind(i) != "num":
            return None
        node, i = Node(value=self.tokens[i].value, decimals=self.tokens[i].decimals, currency=currency), i + 1
        if self.tight and self._tight_slash(i):
            bottom = Node(value=self.tokens[i + 1].value)
            node, i = Node("/", (node, bottom)), i + 2
        if self._kind(i) == "%":
            node, i = replace(node, percent=True), i + 1
        while self._kind(i) == "$":  # closes $...$
            i += 1
        unit, i = self._unit(i)
        return replace(node, unit=unit), i

    def _tight_slash(self, i: int) -> bool:
        return (
            self._op(i, "/") is not None
            and self._kind(i + 1) == "num"
            and self.tokens[i - 1].end == self.tokens[i].start
            and self.tokens[i].end == self.tokens[i + 1].start
        )

    def _bracket(self, i: int, depth: int) -> tuple[Node, int] | None:
        if i in self._unreadable:
            return None
        read = self._sum(i + 1, depth + 1) if depth < MAX_DEPTH else None
        if read is None or self._kind(read[1]) != ")":
            self._unreadable.add(i)
            return None
        node, i = read
        unit, i = self._unit(i + 1)
        return replace(node, unit=node.unit + unit), i

    def _unit(self, i: int) -> tuple[tuple[str, ...], int]:
        """The words behind a number, brackets that are remarks included, and where they end."""
        words: list[str] = []
        while len(words) < MAX_UNIT_WORDS:
            slash = 1 if self._op(i, "/") and self._kind(i + 1) == "word" else 0  # 20 fruit/cluster
            if self._kind(i + slash) == "word" and self.tokens[i + slash].text.lower() not in CLAUSE:
                words += ["/"] * slash + [self.tokens[i + slash].text.lower()]
                i += 1 + slash
            elif (end := self._aside(i)) is not None:
                i = end
            else:
                break
        return tuple(words), i

    def _aside(self, i: int) -> int | None:
        """Where a bracket that is a remark ends: words only, or any spaced one in the `asides` reading."""
        if self._kind(i) != "(":
            return None
        j = i + 1
        while self._kind(j) not in (None, "(", ")", "="):
            j += 1
        spaced = i > 0 and self.tokens[i].start > self.tokens[i - 1].end
        words_only = all(self.tokens[k].kind in ("word", "break") for k in range(i + 1, j))
        return j + 1 if self._kind(j) == ")" and (words_only or (self.asides and spaced)) else None


def evaluate(
    node: Node, percent: Percent = "share", exact: Mapping[Fraction, Fraction] | None = None
) -> Fraction:
    """The value of an expression. `exact` maps a rounded number to what it stands for.

    Raises `Unreadable` where there is none.
    """
    if node.op is None:
        value = (exact or {}).get(node.value, node.value)
        return value / 100 if node.percent and percent != "plain" else value
    if node is _TOO_LONG:
        raise Unreadable(f"more than {MAX_TERMS} terms")
    parts = [evaluate(part, percent, exact) for part in node.parts]
    if percent == "change" and node.op in "+-" and node.parts[1].percent and not node.parts[0].percent:
        parts[1] *= parts[0]
    value = _apply(node.op, *parts)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise Unreadable("too large")
    return value


def _apply(op: str, left: Fraction, right: Fraction = Fraction(0)) -> Fraction:
    match op:
        case "neg":
            return -left
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right != 0:
            return left / right
        case "^" if right.denominator == 1 and abs(right) <= MAX_POWER and (left != 0 or right > 0):
            bits = max(left.numerator.bit_length(), left.denominator.bit_length())
            if bits * abs(right) <= MAX_BITS:
                return left ** int(right)
        case "%" if right > 0:
            return left % right
        case "!" if left.denominator == 1 and 0 <= left <= MAX_FACTORIAL:
            return Fraction(math.factorial(int(left)))
        case "choose" if left.denominator == right.denominator == 1 and 0 <= right <= left <= MAX_FACTORIAL:
            return Fraction(math.comb(int(left), int(right)))
        case "root" if left >= 0:
            root = Fraction(math.isqrt(left.numerator), math.isqrt(left.denominator))
            if root * root == left:  # the others have no exact value
                return root
    raise Unreadable(f"{op} has no value here")
