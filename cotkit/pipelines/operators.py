"""The operators of Evol-Instruct as data: what a rewriting is asked to do to a problem.

After Xu et al. 2023, WizardLM (arXiv 2304.12244): evolution in depth makes a problem harder, evolution in
breadth moves it elsewhere. The original's operators are written for instructions of any kind; these are for
problems that a program can check, so every one leaves one question with one answer. `text` goes into the
prompt word by word (prompts/synth_evol_instruct.j2) and onto the row. To add one, add it here, or pass
`synthesize(operators=["deepen", {"name": ..., "text": ...}])`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class Operator(BaseModel):
    """`problems` = 2: the prompt shows a second problem of the same domain. `continues`: it shows the problem
    without its question, and the reply goes on from there; small models, which repeat what they are to
    rewrite, do get further then. `examples`: (problem, reply), shown as earlier turns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    text: str
    direction: Literal["depth", "breadth"] = "depth"
    problems: Literal[1, 2] = 1
    continues: bool = False
    examples: tuple[tuple[str, str], ...] = ()


BASE = "A shop sells pens in boxes of 12. Mia buys 4 boxes. How many pens does she buy?"
SECOND = "Tom has 18 pencils and shares them equally among 3 friends. How many pencils does each friend get?"
THIRD = "A bus makes 6 trips a day and carries 35 passengers on each trip. How many passengers is that?"


def _anew(name: str, text: str, example: str, **more: Any) -> Operator:
    return Operator(name=name, text=text, examples=((BASE, example),), **more)


def _going_on(name: str, text: str, *replies: str) -> Operator:
    shown = tuple(zip((SECOND, THIRD, BASE), replies, strict=True))
    return Operator(name=name, text=text, continues=True, examples=shown)


_SHIPPED = [
    _going_on(
        "add_constraint",
        "Go on with a condition that has a new number and changes the result, then ask for the result.",
        "But 3 of the pencils are broken. How many good pencils does each friend get?",
        "On each trip 5 of the seats stay empty. How many passengers does it carry in a day?",
        "But 5 of the pens do not write. How many pens that write does she buy?",
    ),
    _anew(
        "deepen",
        "Ask for a quantity that takes more understanding of the same situation than the one asked for now.",
        "A shop sells pens in boxes of 12 for 9 dollars a box. Mia needs 50 pens. How many dollars do the "
        "fewest boxes that are enough cost?",
    ),
    _anew(
        "concretise",
        "Replace general words by specific things, names, numbers and units, one of which changes the "
        "answer.",
        "The shop on Mill Street sells blue pens in boxes of 12. Mia buys 4 boxes for a class of 22 children"
        " and gives each child 2 pens. How many blue pens are left?",
    ),
    _going_on(
        "more_steps",
        "Go on with one more event that has a new number, then ask for the result.",
        "Each friend then loses 2 pencils. How many pencils does each friend have left?",
        "On Sunday it makes only 4 trips. How many passengers does it carry in a week?",
        "She gives 5 pens to each of her 6 cousins. How many pens does she keep?",
    ),
    _anew(
        "invert",
        "Swap known and unknown: state what was asked for as a given number, and ask for one of the numbers "
        "that were given, so that only one answer is possible.",
        "A shop sells pens in boxes of 12. Mia buys 48 pens. How many boxes does she buy?",
    ),
    _going_on(
        "chain",
        "Go on with what is done with the result, without stating it, then ask for the outcome of that.",
        "Each friend sells all of them for 2 dollars each. How many dollars does each earn?",
        "Each passenger pays 3 dollars. How many dollars does the bus take in a day?",
        "She packs all her pens into cases of 8. How many cases does she fill?",
    ),
    _anew(
        "combine",
        "Merge both problems into a single situation whose one question needs the numbers of both.",
        "A shop sells pens in boxes of 12. Mia buys 4 boxes and shares the pens equally among 3 friends. How "
        "many pens does each friend get?",
        problems=2,
    ),
    _anew(
        "change_context",
        "Write about an entirely different situation that calls for the same kind of reasoning, with "
        "different things, numbers and words.",
        "A bus makes 6 trips a day and carries 35 passengers on each trip. How many passengers does it carry "
        "in a day?",
        direction="breadth",
    ),
]
OPERATORS = {operator.name: operator for operator in _SHIPPED}


def parse_operators(given: Iterable[str | Mapping | Operator] | None) -> tuple[Operator, ...]:
    """Operators from names of the shipped ones, dicts or `Operator`s; None = all of them.

    Raises ValueError that names what is wrong.
    """
    if isinstance(given, str | Mapping | Operator):
        raise TypeError(f"operators must be a list, for instance [{given!r}]")
    parsed = tuple(OPERATORS.values() if given is None else map(_parsed, given))
    names = [operator.name for operator in parsed]
    if not parsed or len(set(names)) < len(names):
        raise ValueError(f"operators must be at least one, each with a name of its own, got {names}")
    return parsed


def examples_of(operators: Iterable[Operator]) -> dict[str, str]:
    """{name: text} of everything that a rewriting prompt shows and that is no seed."""
    shown = {"example": BASE, "second example": SECOND, "third example": THIRD}
    for operator in operators:
        for number, (_, reply) in enumerate(operator.examples):
            shown[f"example {number} of {operator.name}"] = reply
    return shown


def _parsed(one: str | Mapping | Operator) -> Operator:
    if isinstance(one, str):
        if one not in OPERATORS:
            raise ValueError(f"unknown operator {one!r}; known: {', '.join(OPERATORS)}")
        return OPERATORS[one]
    try:
        return one if isinstance(one, Operator) else Operator(**one)
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"operator {one!r} needs a name and a text and has {', '.join(Operator.model_fields)}: {error}"
        ) from None
