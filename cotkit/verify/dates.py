r"""Days and times of the day, in the notations people write them in.

`2024-01-05`, `5 Jan 2024`, `January 5th, 2024`, `01/05/2024` (month first; day first where that is the only
reading), `05.01.2024`, `Friday, 5 January 2024`. `3:30 PM`, `15:30`, `3 p.m.`, `noon`.
"""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import NamedTuple

from cotkit.verify.normalise import CACHED
from cotkit.verify.verdicts import Outcome

MONTHS = re.findall(
    r"\w+", "january february march april may june july august september october november december"
)
MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name != "may" else "may" for name in MONTHS) + "|sept"
WEEKDAY = re.compile(r"^(?:mon|tues?|wed(?:nes)?|thurs?|fri|sat(?:ur)?|sun)(?:day)?,? (?:the )?", re.I)
DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
FORMS = [
    re.compile(r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?:[T ]00:00(?::00)?)?"),
    re.compile(r"(?P<m>\d{1,2})/(?P<d>\d{1,2})/(?P<y>\d{4})"),
    re.compile(r"(?P<d>\d{1,2})[/.-](?P<m>\d{1,2})[/.-](?P<y>\d{4})"),
    re.compile(r"(?P<m>\d{1,2})-(?P<d>\d{1,2})-(?P<y>\d{4})"),
    re.compile(rf"(?:the )?{DAY},?[ -](?:of )?(?P<name>{MONTH})\.?(?:,?[ -](?P<y>\d{{4}}))?", re.I),
    re.compile(rf"(?P<name>{MONTH})\.? (?:the )?{DAY}(?:,? (?P<y>\d{{4}}))?", re.I),
    re.compile(rf"(?P<y>\d{{4}}),?[ -](?P<name>{MONTH})\.?[ -]{DAY}", re.I),
]
CLOCK = re.compile(
    r"(?P<h>\d{1,2})(?:[:.](?P<min>\d{2})(?::(?P<s>\d{2}))?)? ?(?P<half>[ap]\.?m\.?)?(?: o'clock)?", re.I
)
NAMES_A_DAY = re.compile(  # the fifth of January
    rf"(?=.*\b(?:{MONTH})\b).*(?:\b\d{{1,2}}\b|(?:\wth|first|second|third)\b)", re.I
)
ON_24_HOURS = re.compile(r"0|\d+:\d\d:\d\d\Z")
SHORT_YEAR = re.compile(r"(\d{1,2}[/.-]\d{1,2}[/.-])(\d{2})")
DAY_AND_MONTH = re.compile(r"(\d{1,2})[/.-](\d{1,2})")
TELLS_TIME = re.compile(  # 18h30, half past three
    r"\d{1,2} ?h ?(?:\d{2})?|\d{4} ?(?:hours|h)|.*(?:\b(?:past|to|after|half|noon|midnight)\b|[ap]\.?m\b).*",
    re.I,
)
NAMED_TIMES = {"noon": 12 * 3600, "midday": 12 * 3600, "midnight": 0}


class Clock(NamedTuple):
    seconds: int
    half_known: bool  # False: "3:30" may be morning or afternoon
    plain: bool  # h:mm or h:mm:ss and nothing else, which may also be a ratio


@lru_cache(CACHED)
def read_date(text: str) -> tuple[int | None, int, int] | None:
    """(year or None, month, day) of a canonical text, None when it is no day."""
    if len(text) > 40 or not any(sign.isdigit() for sign in text):
        return None
    text = WEEKDAY.sub("", text)
    for form in FORMS:
        if match := form.fullmatch(text):
            part = match.groupdict()
            month = MONTHS.index(full_month(part["name"])) + 1 if part.get("name") else int(part["m"])
            year, day = part["y"] and int(part["y"]), int(part["d"])
            try:
                datetime.date(year or 2000, month, day)
            except ValueError:
                continue
            return year, month, day
    return None


def full_month(name: str) -> str:
    return next(month for month in MONTHS if month.startswith(name.lower()[:3]))


@lru_cache(CACHED)
def read_clock(text: str) -> Clock | None:
    if text.lower() in NAMED_TIMES:
        return Clock(NAMED_TIMES[text.lower()], True, False)
    match = CLOCK.fullmatch(text)
    if (
        not match
        or not (match["min"] or match["half"] or "clock" in text)
        or ("." in text and not match["half"])
    ):
        return None
    hours, minutes, seconds = (int(match[part] or 0) for part in ("h", "min", "s"))
    if hours > 23 or minutes > 59 or seconds > 59 or (match["half"] and not 1 <= hours <= 12):
        return None
    if match["half"]:
        hours = hours % 12 + 12 * (match["half"][0] in "pP")
    plain = not match["half"] and "clock" not in text
    return Clock(
        (hours * 60 + minutes) * 60 + seconds, bool(match["half"]) or hours > 12 or hours == 0, plain
    )


def compare_dates(reference: str, prediction: str, asked: bool) -> Outcome | None:
    """None: neither is a day. `asked`: the answer type says date."""
    gold, answer = read_date(reference), read_date(prediction)
    if gold is not None and answer is None:
        answer = with_short_year(prediction, gold)
    elif answer is not None and gold is None:
        gold = with_short_year(reference, answer)
    if gold is None and not asked:
        if answer is None:
            return None
        undecided = NAMES_A_DAY.match(reference) or may_be(reference, answer)
        return Outcome(None if undecided else False, "date", "the reference is not read as a day")
    if gold is None:
        return Outcome(None, "date", "the reference is not read as a date")
    if answer is None:
        undecided = NAMES_A_DAY.match(prediction) or may_be(prediction, gold)
        return Outcome(None if undecided else False, "date", "no day is read in the answer")
    if gold[1:] != answer[1:]:
        return Outcome(False, "date", "another day")
    if None in (gold[0], answer[0]) and gold[0] != answer[0]:
        return Outcome(None, "date", "the year is missing on one side")
    return Outcome(gold[0] == answer[0], "date", "the same day" if gold[0] == answer[0] else "another year")


def with_short_year(text: str, day: tuple[int | None, int, int]) -> tuple[int | None, int, int] | None:
    """`12/25/20`, in the century of the other side."""
    match = SHORT_YEAR.fullmatch(text)
    if not match or not day[0]:
        return None
    return read_date(f"{match[1]}{day[0] // 100}{match[2]}")


def may_be(text: str, day: tuple[int | None, int, int]) -> bool:
    """`5/12` may be this day."""
    match = DAY_AND_MONTH.fullmatch(text)
    return match is not None and {int(match[1]), int(match[2])} == {*day[1:]}


def compare_clocks(reference: str, prediction: str, asked: bool) -> Outcome | None:
    """None: not two times, or two that could be ratios too and are left to that stage."""
    gold, answer = read_clock(reference), read_clock(prediction)
    if gold is None or answer is None:
        hour, other = gold or answer, reference if gold is None else prediction
        if hour and other.isdecimal() and hour.seconds % 3600 == 0 and len(other) < 3:
            same_hour = (int(other) - hour.seconds // 3600) % 12 == 0
            return Outcome(None if same_hour else False, "time", "an hour on one side, a number on the other")
        if not asked and all(clock is None or clock.plain for clock in (gold, answer)):
            return None
        if gold is None and asked:
            return Outcome(None, "time", "the reference is not read as a time")
        undecided = TELLS_TIME.fullmatch(reference if gold is None else prediction)
        return Outcome(None if undecided else False, "time", "only one side is read as a time of the day")
    if gold.seconds == answer.seconds:
        return Outcome(True, "time", "the same time")
    apart = abs(gold.seconds - answer.seconds)
    if apart == 12 * 3600 and not (gold.half_known and answer.half_known):
        on_24_hours = any(map(ON_24_HOURS.match, (reference, prediction)))
        if (gold.plain and answer.plain) or on_24_hours:
            return Outcome(None, "time", "12 hours apart, and am or pm is not said")
        return Outcome(True, "time", "am or pm is missing on one side")
    if gold.plain and answer.plain and not asked and same_ratio(gold, answer):
        return Outcome(None, "time", "another time, but the same ratio")
    return Outcome(False, "time", "another time")


def same_ratio(gold: Clock, answer: Clock) -> bool:
    """1:10 and 2:20"""
    (a, b, c), (d, e, f) = (
        (clock.seconds // 3600, clock.seconds // 60 % 60, clock.seconds % 60) for clock in (gold, answer)
    )
    return a * e == b * d and b * f == c * e
