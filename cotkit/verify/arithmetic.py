r"""Closed arithmetic, exactly: `2^{10}`, `\frac{3 \cdot 2}{4}`, `1/2 + 1/3`, `\binom{5}{2}`, `\pi/2`.

A recursive-descent reader over canonical text whose values are Fractions times a power of `\pi`. Whatever is
outside that (a symbol, an irrational root, `1 + \pi`) or would grow past `LARGEST` bits is simply not read:
the caller goes on to its next stage. Nothing here evaluates text as code.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from cotkit.verify.normalise import CACHED
from cotkit.verify.numbers import LONGEST_LITERAL, Number, read_literal

LARGEST = 40_000  # bits of a numerator or denominator
MOST_PI = 20  # power of pi
DEEPEST = 30  # brackets inside brackets
LONGEST = 400  # characters

TOKEN = re.compile(r"\s*(\d+(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\.\d+|\d+\.?|\\[A-Za-z]+|[-+*/^(){}\[\]!])")
DASHED = re.compile(r"\d+(?:-\d+)+")  # a range, a score, a date, a phone number: no subtraction
SLASHED = re.compile(r"\d{1,2}/\d{1,2}/\d{4}|\d{4}/\d{1,2}/\d{1,2}")  # a date
MULTIPLIES = {"*", "\\cdot", "\\times"}
STARTS_FACTOR = {"(", "\\pi", "\\sqrt", "\\frac", "\\binom"}


class NotReadable(Exception):
    """Not closed rational arithmetic, or too large."""


@lru_cache(CACHED)
def read_number(text: str) -> Number | None:
    r"""The number a canonical text is, as a literal or as closed arithmetic; None when it is neither."""
    literal = read_literal(text)
    if (
        literal is not None
        or not 0 < len(text) <= LONGEST
        or DASHED.fullmatch(text)
        or SLASHED.fullmatch(text)
    ):
        return literal
    if text.count("=") or not re.search(r"\d|\\pi", text):
        return None
    try:
        return Reader(text).whole()
    except (NotReadable, ZeroDivisionError, OverflowError):
        return None


class Reader:
    def __init__(self, text: str):
        self.tokens, at = [], 0
        while at < len(text.rstrip()):
            match = TOKEN.match(text, at)
            if not match:
                raise NotReadable
            self.tokens.append(match[1])
            at = match.end()
        self.at, self.depth, self.quantum = 0, 0, None

    def whole(self) -> Number:
        number = self.sum()
        if self.at != len(self.tokens):
            raise NotReadable
        return Number(number.value, number.pi if number.value else 0, self.quantum)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise NotReadable
        self.at += 1
        return token

    def sum(self) -> Number:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotReadable
        total = self.product()
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            term = self.product()
            if total.pi != term.pi and total.value and term.value:
                raise NotReadable
            total = bounded(total.value + sign * term.value, term.pi if not total.value else total.pi)
        self.depth -= 1
        return total

    def product(self) -> Number:
        value = self.signed()
        while True:
            if self.peek() in MULTIPLIES:
                self.take()
                factor = self.signed()
            elif self.peek() == "/":
                self.take()
                factor = inverse(self.signed())
            elif self.peek() in STARTS_FACTOR and not self.is_mixed_number():
                factor = self.power()
            else:
                return value
            value = bounded(value.value * factor.value, value.pi + factor.pi)

    def is_mixed_number(self) -> bool:
        r"""`2\frac{1}{3}` adds, so a digit right before a fraction is left to the literals."""
        if self.peek() in ("\\frac", "\\binom") and self.tokens[self.at - 1][-1].isdigit():
            raise NotReadable
        return False

    def signed(self) -> Number:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take() == "-"
        value = self.power()
        return Number(-value.value, value.pi) if negative else value

    def power(self) -> Number:
        base = self.factorial()
        if self.peek() != "^":
            return base
        self.take()
        token = self.peek()
        exponent = self.group("{", "}") if token == "{" else self.signed_atom()
        if exponent.pi or exponent.value.denominator != 1:
            raise NotReadable
        return raised(base, int(exponent.value))

    def signed_atom(self) -> Number:
        if self.peek() == "-":
            self.take()
            value = self.atom()
            return Number(-value.value, value.pi)
        return self.atom()

    def factorial(self) -> Number:
        value = self.atom()
        if self.peek() == "!":
            self.take()
            if value.pi or value.value.denominator != 1 or not 0 <= value.value <= 3000 or self.peek() == "!":
                raise NotReadable
            value = bounded(Fraction(math.factorial(int(value.value))), 0)
        return value

    def atom(self) -> Number:
        token = self.peek()
        if token == "(":
            return self.group("(", ")")
        if token == "{":
            return self.group("{", "}")
        self.take()
        if token == "\\pi":
            return Number(Fraction(1), 1)
        if token == "\\frac":
            top = self.group("{", "}")
            bottom = inverse(self.group("{", "}"))
            return bounded(top.value * bottom.value, top.pi + bottom.pi)
        if token == "\\binom":
            top, bottom = self.group("{", "}"), self.group("{", "}")
            if (
                top.pi
                or bottom.pi
                or any(n.denominator != 1 or not 0 <= n <= 3000 for n in (top.value, bottom.value))
            ):
                raise NotReadable
            return bounded(Fraction(math.comb(int(top.value), int(bottom.value))), 0)
        if token == "\\sqrt":
            index = self.group("[", "]") if self.peek() == "[" else Number(Fraction(2))
            return root(self.group("{", "}"), index)
        return self.literal(token)

    def group(self, left: str, right: str) -> Number:
        self.take(left)
        value = self.sum()
        self.take(right)
        return value

    def literal(self, token: str) -> Number:
        if not token[-1].isdigit() or len(token) > LONGEST_LITERAL:
            raise NotReadable
        number = read_literal(token)
        if number is None or self.peek()[:1].isdigit():  # "2 3" is no product
            raise NotReadable
        if number.decimal:
            self.quantum = number.quantum if self.quantum is None else min(self.quantum, number.quantum)
        return number


def bounded(value: Fraction, pi: int) -> Number:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST or abs(pi) > MOST_PI:
        raise NotReadable
    return Number(value, pi)


def inverse(number: Number) -> Number:
    return Number(1 / number.value, -number.pi)


def raised(base: Number, exponent: int) -> Number:
    size = max(base.value.numerator.bit_length(), base.value.denominator.bit_length())
    if size * abs(exponent) > LARGEST:
        raise NotReadable
    return bounded(base.value**exponent, base.pi * exponent)


def root(number: Number, index: Number) -> Number:
    """An exact rational root, else not readable."""
    n = int(index.value)
    if number.pi or index.value != n or not 2 <= n <= 64 or (number.value < 0 and n % 2 == 0):
        raise NotReadable
    parts = [whole_root(abs(part), n) for part in (number.value.numerator, number.value.denominator)]
    if None in parts:
        raise NotReadable
    value = Fraction(*parts)
    return Number(-value if number.value < 0 else value)


def whole_root(value: int, n: int) -> int | None:
    low, high = 0, 1 << (value.bit_length() // n + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**n <= value else (low, middle - 1)
    return low if low**n == value else None
