"""The operators of Evol-Instruct as data: what a rewriting is asked to do to a problem.

After Xu et al. 2023, WizardLM (arXiv 2304.12244): evolution in depth makes a problem harder, evolution in
breadth moves it elsewhere. The original's operators are written for instructions of any kind; these are for
problems that a program can check, so every one leaves one question with one answer. `text` goes into the
prompt word by word (prompts/synth_evol_instruct.j2) and onto the row. To add one, add it here, or pass
`synthesize(operators=["deepen", {"name": ..., "text": ...}])`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class Operator(BaseModel):
    """`problems` = 2: the prompt shows a second problem of the same domain. `example`: what it makes of BASE
    (and SECOND), shown as an earlier turn, which small models need.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    text: str
    direction: Literal["depth", "breadth"] = "depth"
    problems: Literal[1, 2] = 1
    example: str | None = None


BASE = "A shop sells pens in boxes of 12. Mia buys 4 boxes. How many pens does she buy?"
SECOND = "Tom has 18 pencils and shares them equally among 3 friends. How many pencils does each friend get?"
_DEPTH = {  # name: (text, what becomes of BASE)
    "add_constraint": (
        "Add one more condition that changes the answer, with a definite number.",
        "A shop sells pens in boxes of 12. Mia buys 4 boxes, but 5 of the pens do not write. How many pens "
        "that write does she buy?",
    ),
    "deepen": (
        "Ask for a quantity that takes more understanding of the same situation than the one asked for now.",
        "A shop sells pens in boxes of 12 for 9 dollars a box. Mia needs 50 pens. How many dollars do the "
        "fewest boxes that are enough cost?",
    ),
    "concretise": (
        "Replace general words by specific things, names, numbers and units, one of which changes the "
        "answer.",
        "The shop on Mill Street sells blue pens in boxes of 12. Mia buys 4 boxes for a class of 22 children"
        " and gives each child 2 pens. How many blue pens are left?",
    ),
    "more_steps": (
        "Change the situation so that one more calculation is needed before the answer is reached.",
        "A shop sells pens in boxes of 12. Mia buys 4 boxes and gives half of the pens to her brother. How "
        "many pens does she keep?",
    ),
    "invert": (
        "Swap known and unknown: state what was asked for as a given number, and ask for one of the numbers "
        "that were given, so that only one answer is possible.",
        "A shop sells pens in boxes of 12. Mia buys 48 pens. How many boxes does she buy?",
    ),
    "chain": (
        "Continue the situation with a second part that uses the present answer without stating it, and ask "
        "for the result of the second part only.",
        "A shop sells pens in boxes of 12. Mia buys 4 boxes and packs all her pens into cases of 8. How many"
        " cases does she fill?",
    ),
}
OPERATORS = {name: Operator(name=name, text=text, example=made) for name, (text, made) in _DEPTH.items()} | {
    "combine": Operator(
        name="combine",
        text="Merge both problems into a single situation whose one question needs the numbers of both.",
        problems=2,
        example="A shop sells pens in boxes of 12. Mia buys 4 boxes and shares the pens equally among 3 "
        "friends. How many pens does each friend get?",
    ),
    "change_context": Operator(
        name="change_context",
        text="Write about an entirely different situation that calls for the same kind of reasoning, with "
        "different things, numbers and words.",
        direction="breadth",
        example="A bus makes 6 trips a day and carries 35 passengers on each trip. How many passengers does "
        "it carry in a day?",
    ),
}


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
    """{name: text} of every problem that a rewriting prompt shows and that is no seed."""
    made = {f"example of {one.name}": one.example for one in operators if one.example}
    return {"example": BASE, "second example": SECOND, **made}


def _parsed(one: str | Mapping | Operator) -> Operator:
    if isinstance(one, str):
        if one not in OPERATORS:
            raise ValueError(f"unknown operator {one!r}; known: {', '.join(OPERATORS)}")
        return OPERATORS[one]
    try:
        return one if isinstance(one, Operator) else Operator(**one)
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"operator {one!r} needs a name and a text (and may have direction, problems): {error}"
        ) from None
