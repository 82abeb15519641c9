"""The axes an LLM judge scores: the defaults, the user's own, their JSON schema, and reading an answer.

Scores are asked for as integers, because small servers do not enforce the bounds of fractions, and stored on
0..1 as (score - low) / (high - low). A score that is out of bounds, no whole number, missing or surplus is
refused, never clamped; 7.0 is 7, 7.5 is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic

from cotkit.records import Dimension

DEFAULTS = (
    Dimension(
        name="correctness",
        guide="Is every statement and every calculation right, and does the final answer follow from them? "
        "Work the problem out yourself first and recompute each number. Nice wording earns nothing here.",
        anchors={
            0: "The final answer is wrong, or there is none.",
            3: "The plan is right but an error changes the final answer.",
            6: "The final answer is right but a step is wrong or happens to cancel out.",
            10: "The final answer and every step are right.",
        },
    ),
    Dimension(
        name="clarity",
        guide="Can a student follow it line by line? Steps in order, each number named, no repetition, no "
        "detours, no change of mind left standing.",
        anchors={
            0: "Cannot be followed.",
            3: "The thread is often lost: jumps, repetition, undefined quantities.",
            6: "Can be followed, with effort at some steps.",
            10: "Each step says what it computes and why, in the right order.",
        },
    ),
    Dimension(
        name="completeness",
        guide="Is every step from the given facts to the final answer there, is all of the question "
        "answered, and is one final answer stated? Long is not complete: what adds nothing earns nothing.",
        anchors={
            0: "Only an answer, or breaks off.",
            3: "Most of the steps are missing.",
            6: "A needed step or a part of the question is missing.",
            10: "Every needed step, all parts of the question, one final answer.",
        },
    ),
)
_BY_NAME = {dimension.name: dimension for dimension in DEFAULTS}


def parse_dimensions(given: Iterable[Dimension | Mapping[str, Any] | str] | None) -> tuple[Dimension, ...]:
    """Dimensions from None (the defaults), names of defaults, dicts or `Dimension`s; checked.

    Raises ValueError that names the dimension and the fix.
    """
    if given is None:
        return DEFAULTS
    if isinstance(given, (str, Mapping, Dimension)):
        raise TypeError(f"dimensions must be a list, for instance [{given!r}]")
    dimensions = tuple(_parsed(one, at) for at, one in enumerate(given))
    if not dimensions:
        raise ValueError("dimensions is empty: a judge needs at least one (None = the defaults)")
    seen = set()
    for dimension in dimensions:
        _check(dimension)
        if dimension.name in seen:
            raise ValueError(f"dimension {dimension.name!r} is given twice")
        seen.add(dimension.name)
    return dimensions


def _parsed(one: Dimension | Mapping[str, Any] | str, at: int) -> Dimension:
    if isinstance(one, Dimension):
        return one
    if isinstance(one, str):
        if one not in _BY_NAME:
            raise ValueError(
                f"dimension {one!r} is no default ({', '.join(_BY_NAME)}): give your own as "
                f"{{'name': {one!r}, 'guide': '...'}}"
            )
        return _BY_NAME[one]
    if not isinstance(one, Mapping):
        raise TypeError(f"dimension {at} must be a name, a dict or a Dimension, got {one!r}")
    try:
        return Dimension(**one)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"dimension {one.get('name', at)!r}, field {where!r}: {first['msg']} "
            "(fields: name, guide, scale=(low, high), anchors={score: text})"
        ) from None


def _check(dimension: Dimension) -> None:
    name, (low, high) = dimension.name, dimension.scale
    if not name.strip() or name != name.strip() or set(name) & set('"\\\n'):
        raise ValueError(f"dimension name {name!r} is empty, or has spaces around it, a quote or a backslash")
    if name == "feedback":
        raise ValueError("a dimension cannot be called 'feedback': the judge answers with that name")
    if name == "mean":
        raise ValueError("a dimension cannot be called 'mean': that is the mean of all")
    if not dimension.guide.strip():
        raise ValueError(f"dimension {name!r} has no guide: say what the judge should look at")
    if low >= high:
        raise ValueError(f"dimension {name!r} has scale ({low}, {high}): the first must be below the second")
    if outside := [anchor for anchor in dimension.anchors if not low <= anchor <= high]:
        raise ValueError(f"dimension {name!r} has anchors {outside} outside its scale {low}..{high}")


def answer_schema(dimensions: tuple[Dimension, ...]) -> dict[str, Any]:
    """The JSON schema of a judge's answer: {name: {reason, score}, ..., feedback}, reason before score."""

    def one(dimension: Dimension) -> dict[str, Any]:
        low, high = dimension.scale
        score = {"type": "integer", "minimum": low, "maximum": high}
        return _closed({"reason": {"type": "string"}, "score": score})

    fields = {dimension.name: one(dimension) for dimension in dimensions}
    return {"title": "judgement", **_closed({**fields, "feedback": {"type": "string"}})}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_answer(
    answer: Any, dimensions: tuple[Dimension, ...]
) -> tuple[dict[str, float], dict[str, str], str]:
    """(scores on 0..1, reasons, feedback) of a judge's parsed answer. Raises ValueError for any fault."""
    if not isinstance(answer, Mapping):
        raise ValueError(f"the judge's answer is no JSON object: {str(answer)[:200]!r}")
    names = [dimension.name for dimension in dimensions]
    if missing := [name for name in names if name not in answer]:
        raise ValueError(f"no score for {', '.join(missing)}")
    if surplus := sorted(map(str, set(answer) - {*names, "feedback"})):
        raise ValueError(f"scores for {', '.join(surplus)}, which was not asked")
    scores, reasons = {}, {}
    for dimension in dimensions:
        part = answer[dimension.name]
        if not isinstance(part, Mapping) or "score" not in part:
            raise ValueError(
                f"{dimension.name}: expected {{'reason': ..., 'score': ...}}, got {str(part)[:100]}"
            )
        scores[dimension.name] = _on_unit(part["score"], dimension)
        reasons[dimension.name] = str(part.get("reason", ""))
    return scores, reasons, str(answer.get("feedback") or "").strip()


def _on_unit(score: Any, dimension: Dimension) -> float:
    low, high = dimension.scale
    whole = isinstance(score, int) or (
        isinstance(score, float) and math.isfinite(score) and score.is_integer()
    )
    if isinstance(score, bool) or not whole:
        raise ValueError(
            f"{dimension.name}: the score must be a whole number from {low} to {high}, got {score!r}"
        )
    if not low <= score <= high:
        raise ValueError(f"{dimension.name}: the score {score:g} is outside {low}..{high}")
    return (int(score) - low) / (high - low)
