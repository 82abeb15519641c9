r"""Numbers, exactly: every literal becomes a Fraction, never a float.

Read as one number: `1,234`, `12 345`, `-.5`, `5.`, `3/4`, `\frac{3}{4}`, `1 3/4`, `1\frac{3}{4}`,
`0.\overline{3}`, `0.333...`, `1.5e-4`, `3\times 10^{8}`, `2.5 million`, `two thirds`. Not one number:
`1,2,3,4` (a list), `3,5`. `compare_numbers` holds the rules for rounding.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from cotkit.verify.normalise import CACHED
from cotkit.verify.policy import AnswerPolicy

LONGEST_LITERAL = 400  # digits; Python itself refuses above 4300
FLOAT_DIGITS = 15  # significant digits a binary64 keeps; a float printed in full may be off beyond them

DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d{1,3}(?:_\d{3})+|\d{1,3}(?:'\d{3})+|\d+)"
GROUPING = re.compile("[, _']")
DECIMAL = re.compile(
    rf"(?P<sign>[+-] ?)?(?P<whole>{DIGITS})?(?:\.(?P<part>\d*))?"
    r"(?:(?:e|E| ?(?:\\times|\\cdot|\*|x|X) ?10\^)"
    r"(?P<exp>[+-]?\d{1,4}|\{ ?[+-]? ?\d{1,4} ?\}|\([+-]?\d{1,4}\)))?"
)
REPEATING = re.compile(
    r"(?P<sign>[+-] ?)?(?P<whole>\d*)\.(?P<part>\d*?)(?:\\(?:overline|bar|dot)\{(?P<r1>\d+)\}|\((?P<r2>\d+)\)"
    r"|(?P<r3>\d+?)(?P=r3){2,}\\ldots ?)"
)
INDIAN = re.compile(r"[+-]?\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")  # 12,34,567
SIMPLE = r"(?:\d[\d, ]*(?:\.\d+)?|\.\d+)"
RATIO = re.compile(
    rf"([+-] ?)?(?:({SIMPLE}) ?/ ?([+-]?{SIMPLE})|\\frac\{{ ?([+-]?{SIMPLE}) ?\}}\{{ ?([+-]?{SIMPLE}) ?\}})"
)
MIXED = re.compile(r"([+-] ?)?(\d+)(?: (?:and )?(\d+) ?/ ?(\d+)| ?(?:and )?\\frac\{(\d+)\}\{(\d+)\})")

UNITS_AND_TEENS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen",
)
TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
WORDS = {word: n for n, word in enumerate(UNITS_AND_TEENS)} | {
    word: 20 + 10 * n for n, word in enumerate(TENS)
}
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALES |= {"quadrillion": 10**15, "quintillion": 10**18, "lakh": 10**5, "crore": 10**7}
PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8}
PARTS |= {"ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12}
PARTS |= {f"{word}th": n for word, n in WORDS.items() if 13 <= n < 20}
PARTS |= {f"{word[:-1]}ieth": n for word, n in WORDS.items() if n >= 20}
PARTS |= {"hundredth": 100, "thousandth": 1000, "millionth": 10**6, "billionth": 10**9}
PARTS |= {f"{word}s": n for word, n in PARTS.items()} | {"halves": 2}
LAST_WORDS = (*WORDS, *SCALES, *(f"{word}s" for word in SCALES), *PARTS, "dozen", "dozens", "factorial")
SCALED = re.compile(rf"(.+?) ?({'|'.join(SCALES)}|dozen)s?", re.I)
FACTORIAL = re.compile(r"(\d{1,3}) factorial", re.I)
COUNTED = {"quarter", "quarters"}  # 8 quarters may be coins


class Number(NamedTuple):
    r"""`value` times `\pi` to the power `pi`, and how it was written.

    `quantum`: the power of ten of the last written digit of a decimal, None for a value given exactly
    (an integer, a fraction, a root). `digits`: significant digits as written.
    """

    value: Fraction
    pi: int = 0
    quantum: int | None = None
    digits: int = 0

    @property
    def decimal(self) -> bool:
        return self.quantum is not None

    def approximate(self) -> float:
        try:
            return float(self.value) * math.pi**self.pi
        except OverflowError:
            return math.inf if self.value > 0 else -math.inf


@lru_cache(CACHED)
def read_literal(text: str) -> Number | None:
    """The number a canonical text writes out, None when it is not one literal."""
    if len(text) > LONGEST_LITERAL + 20:
        return None
    if (number := decimal(text)) is not None:
        return number
    if "," in text and INDIAN.fullmatch(text):
        return decimal(text.replace(",", ""))
    if ("/" in text or "\\frac" in text) and (number := mixed(text) or ratio(text)):
        return number
    return ("." in text and repeating(text)) or in_words(text)


def decimal(text: str) -> Number | None:
    match = DECIMAL.fullmatch(text)
    if not match or (match["whole"] is None and not match["part"]):
        return None
    whole, part = GROUPING.sub("", match["whole"] or ""), match["part"] or ""
    if len(whole) + len(part) > LONGEST_LITERAL:
        return None
    exponent = int(re.sub(r"[{}() ]", "", match["exp"])) if match["exp"] else 0
    value, power = Fraction(int(whole + part or "0")), exponent - len(part)
    if power:
        value *= 10**power if power > 0 else Fraction(1, 10**-power)
    if match["sign"] and match["sign"][0] == "-":
        value = -value
    written = (whole + part).lstrip("0")
    if match["part"] is None and match["exp"] is None:
        return Number(value, digits=len(written) or 1)
    return Number(value, quantum=exponent - len(part), digits=len(written) or 1)


def ratio(text: str) -> Number | None:
    match = RATIO.fullmatch(text)
    if not match:
        return None
    top, bottom = (decimal(part.strip()) for part in (match[2] or match[4], match[3] or match[5]))
    if top is None or bottom is None or bottom.value == 0:
        return None
    value = top.value / bottom.value
    return Number(-value if (match[1] or "")[:1] == "-" else value)


def mixed(text: str) -> Number | None:
    match = MIXED.fullmatch(text)
    if not match:
        return None
    top, bottom = int(match[3] or match[5]), int(match[4] or match[6])
    if not 0 < top < bottom or (match[3] or match[5])[0] == "0":  # 1 000/3 is one thousand by three
        return None
    value = int(match[2]) + Fraction(top, bottom)
    return Number(-value if (match[1] or "")[:1] == "-" else value)


def repeating(text: str) -> Number | None:
    match = REPEATING.fullmatch(text)
    if not match:
        return None
    block, part = match["r1"] or match["r2"] or match["r3"], match["part"]
    value = Fraction(int((match["whole"] or "0") + part)) + Fraction(int(block), 10 ** len(block) - 1)
    value /= 10 ** len(part)
    return Number(-value if (match["sign"] or "")[:1] == "-" else value)


def in_words(text: str) -> Number | None:
    """`six`, `twenty-five`, `two thirds`, `one and a half`, `3 million`."""
    if not text[-1:].isalpha() or not text.lower().endswith(LAST_WORDS):
        return None
    if (scaled := SCALED.fullmatch(text)) and (amount := decimal(scaled[1]) or ratio(scaled[1])):
        scale = SCALES.get(scaled[2].lower(), 12)
        quantum = None if amount.quantum is None or scale == 12 else amount.quantum + len(str(scale)) - 1
        return Number(amount.value * scale, quantum=quantum, digits=amount.digits)
    if factorial := FACTORIAL.fullmatch(text):
        return Number(Fraction(math.factorial(int(factorial[1]))))
    words = text.lower().replace("-", " ").split()
    if len(words) > 24:
        return None
    negative = words[:1] in (["minus"], ["negative"])
    words = words[negative:]
    value = half_of_a_scale(words) or part_in_words(words) or whole_in_words(words)
    if value is None and "and" in words:  # two and a half
        at = len(words) - 1 - words[::-1].index("and")
        whole, part = whole_in_words(words[:at]), part_in_words(words[at + 1 :])
        if at == 1 and words[0].isdecimal():  # 2 and a half
            whole = int(words[0])
        value = whole + part if whole is not None and part is not None else None
    if value is None:
        return None
    return Number(Fraction(-value if negative else value))


def part_in_words(words: list[str]) -> Fraction | None:
    """`half`, `a third`, `two thirds`; a lone `third` is a place in a row."""
    if not words or words[-1] not in PARTS or (len(words) == 1 and words[0] not in ("half", "quarter")):
        return None
    if "and" in words:  # two and three quarters
        return None
    if len(words) == 2 and words[0].isdecimal() and words[1] not in COUNTED:  # 3 sixteenths
        plural = words[1].endswith("s") or words[0] == "1"
        return Fraction(int(words[0]), PARTS[words[1]]) if plural else None
    if words[-1][-1] not in "sf" and words[-2:-1] and WORDS.get(words[-2], 0) >= 20:  # twenty-fifth
        return None
    count = 1 if words[:-1] in ([], ["a"], ["one", "a"]) else whole_in_words(words[:-1])
    return None if count is None else Fraction(count, PARTS[words[-1]])


def half_of_a_scale(words: list[str]) -> Fraction | None:
    """`half a dozen`, `half a million`."""
    whole = whole_in_words(words[1:]) if words[:2] == ["half", "a"] else None
    return whole and Fraction(whole, 2)


def whole_in_words(words: list[str]) -> int | None:
    """None for words that are no number in English: `one two three`, `five and six`, `twenty twenty`."""
    total, current, scale, seen = 0, 0, None, False
    for place, word in enumerate(words):
        n = WORDS.get(word)
        if word == "a" and place == 0 and words[1:2] and words[1] in SCALES | {"dozen": 12}:
            current, seen = 1, True
        elif n is not None:
            room, before = current % 100, words[place - 1]
            after_tens = room >= 20 and room % 10 == 0 and 0 < n < 10 and before != "and"
            if seen and not (n and (after_tens or (room == 0 and before not in WORDS))):
                return None
            current, seen = current + n, True
        elif word == "dozen" and not total:
            current, seen = (current or 1) * 12, True
        elif word == "hundred":
            if not 0 < current < 100:
                return None
            current *= 100
        elif word in SCALES and current and (scale is None or SCALES[word] < scale):
            scale = SCALES[word]
            total, current = total + current * scale, 0
        elif not (word == "and" and seen):
            return None
    return total + current if seen else None


def compare_numbers(
    reference: Number, prediction: Number, policy: AnswerPolicy, tolerance: float | None = None
) -> tuple[bool | None, str]:
    r"""(correct, reason). Exact values must be equal; decimals may be rounded as the policy says.

    A decimal against an exact irrational (`\pi` against 3.14159) is undecided where it is a correct
    rounding, and wrong where it is not.
    """
    if reference.pi == prediction.pi and reference.value == prediction.value:
        return True, "equal"
    if tolerance is not None:
        return within(reference, prediction, policy, tolerance)
    if not reference.decimal and not prediction.decimal:
        return False, "different values"
    if reference.pi != prediction.pi:
        return against_irrational(reference, prediction, policy)
    whole = [number.value.denominator == 1 for number in (reference, prediction)]
    if all(whole) or reference.quantum == prediction.quantum:
        printed_in_full = max(n.digits for n in (reference, prediction) if n.decimal) >= FLOAT_DIGITS
        bound = policy.whole_rounding if printed_in_full else 0
    else:
        bound = policy.whole_rounding if whole[0] else policy.rounding
    gap = abs(reference.value - prediction.value)
    correct = gap <= Fraction(bound) * abs(reference.value)
    return correct, "equal within rounding" if correct else "different values"


def within(
    reference: Number, prediction: Number, policy: AnswerPolicy, tolerance: float
) -> tuple[bool | None, str]:
    if reference.value == 0:
        correct = abs(prediction.approximate()) <= policy.zero
    elif reference.pi == prediction.pi:
        correct = abs(reference.value - prediction.value) <= Fraction(tolerance) * abs(reference.value)
    else:
        gold = reference.approximate()
        correct = abs(gold - prediction.approximate()) <= tolerance * abs(gold)
    return correct, f"{'within' if correct else 'outside'} the tolerance {tolerance:g}"


def against_irrational(
    reference: Number, prediction: Number, policy: AnswerPolicy
) -> tuple[bool | None, str]:
    gold, answer = reference.approximate(), prediction.approximate()
    if not all(1e-300 < abs(value) < 1e300 for value in (gold, answer)):
        return (None, "too large or too small to compare") if gold and answer else (False, "different values")
    if reference.decimal:
        correct = abs(gold - answer) <= policy.rounding * abs(gold)
        return correct, "equal within rounding" if correct else "different values"
    if prediction.quantum is not None and abs(gold - answer) <= 0.51 * 10.0 ** max(prediction.quantum, -300):
        return None, "a decimal for an exact irrational value"
    return False, "different values"


def shown_tolerance(reference: Number) -> float | None:
    """Half a unit of the last digit the reference shows, as a relative tolerance.

    An integer shows all its digits; a fraction or a root is exact and shows none.
    """
    if not reference.value or (not reference.decimal and reference.value.denominator != 1):
        return None
    half = (
        Fraction(10) ** (reference.quantum or 0) / 2 * (1 + Fraction(1, 10**4))
    )  # rounding of binary floats
    return min(float(half / abs(reference.value)), 0.5)
