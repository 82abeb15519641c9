"""The decisions of the checker that are taste, not mathematics, as one frozen settings object.

docs/verification.md says each in plain words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cotkit.shown import Shown

ANSWER_TYPES = {
    "number": "one number; a unit, a currency sign or a percent sign may be missing",
    "quantity": "a measured value: right when it rounds to the digits the reference shows",
    "option": "a letter of a multiple choice, or several",
    "yes_no": "yes/no, true/false, correct/incorrect",
    "text": "words, compared without case, articles and plural s",
    "date": "a day, in any usual notation",
    "time": "a time of the day, on the 12 or the 24 hour clock",
    "set": "items whose order does not count, whatever the brackets",
    "list": "items in order, whatever the brackets (a vector, a path)",
    "interval": "intervals, their unions, and inequalities in one variable",
    "matrix": "a matrix or nested list, cell by cell",
    "dict": "names with values, by name",
    "ratio": "a:b, up to a common factor",
    "algebra": "a formula or an equation; symbols keep their case",
}


@dataclass(frozen=True)
class AnswerPolicy(Shown):
    """How lenient a check is. All tolerances are relative; none is ever a bare absolute one."""

    rounding: float = 1e-5  # a decimal against a value that is not whole, written with other digits
    whole_rounding: float = 1e-9  # the same against a whole number
    zero: float = 1e-9  # with a tolerance asked for, what still counts as a reference of 0 (float noise)
    percent_as_fraction: bool = True  # 30% matches 0.3 as well as 30
    unit_may_be_missing: bool = True  # 5 matches 5 cm
    convert_units: bool = True  # 5 m matches 500 cm
    fold_case: bool = True  # option letters and words; symbols of algebra never
    bare_list_in_order: bool = False  # "1, 2" against "2, 1"
    ratio_as_quotient: bool = True  # 1:2 matches 1/2
    positive_symbols: bool = True  # sqrt(1/n) matches 1/sqrt(n)
    longest: int = 2000  # characters of an answer; longer ones cannot be decided
    seconds: float = 3.0  # clock of one symbolic comparison

    def __post_init__(self) -> None:
        for name in ("rounding", "whole_rounding", "zero"):
            check_tolerance(getattr(self, name), f"AnswerPolicy.{name}")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"AnswerPolicy.seconds must be a positive number of seconds, got {self.seconds}")
        if self.longest < 1:
            raise ValueError(f"AnswerPolicy.longest must be at least 1 character, got {self.longest}")


def check_tolerance(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not 0 < value < 1:
        raise ValueError(
            f"{name} is relative and must be above 0 and below 1 (0.01 = one percent), got {value}"
        )


def check_answer_type(answer_type: str | None) -> None:
    if answer_type is not None and answer_type not in ANSWER_TYPES:
        raise ValueError(f"unknown answer_type {answer_type!r}; known are: {', '.join(ANSWER_TYPES)}")
