r"""Equations and named values: `x = 5`, `5 = x`, `f(x) = x^2`, `Area: 12`, `2 + 3 = 5`, `x = 1, y = 2`.

A name in front of a value is set aside when the other side gives the value alone; two different symbols are
two different answers. Equations that define nothing (`2x + 4y - 3 = 0`) go to the symbolic stage whole, but
where the reference gives a value: `3x + 6 = 21` gives none, and may be no more than the question.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from cotkit.verify.arithmetic import read_number
from cotkit.verify.items import Items, both_signs, compare_items, joint, read_items, split_list
from cotkit.verify.literals import as_text, read_literal
from cotkit.verify.normalise import CACHED, is_closed, key, split_top
from cotkit.verify.numbers import Number
from cotkit.verify.quantities import is_numeric, read_quantity
from cotkit.verify.symbolic import prepare, symbols_in
from cotkit.verify.verdicts import PENDING, Outcome, Values, all_true, first_true

NO_NAME = r"(?!frac|sqrt|pi\b|in\b|cdot|times|le\b|ge\b|infty|emptyset)"
SYMBOL = rf"(?:\\{NO_NAME}[A-Za-z]+ ?(?:\{{\w+\}})?|[A-Za-z])(?:_\w+|_\{{[^{{}}=]*\}})?'*"
FIGURE = r"m? ?\\(?:angle|overline|vec|hat|bar) ?\{?[A-Z]{1,3}\}?|[A-Z]{2,3}|\| ?\w+ ?\|"
NAME = re.compile(
    rf"(?:{SYMBOL}|{FIGURE}|[A-Za-z]\^\{{?-1\}}?)(?: ?\([^()=]*\))?"
    rf"|\\frac\{{d ?{SYMBOL}\}}\{{d ?{SYMBOL}\}}"
)
FUNCTION = re.compile(r"[A-Za-z]'?\^?(?:\{-1\})?\([a-z]\)|y'?")
LABEL = re.compile(
    r"(?=.*[A-Za-z]{3})(?!(?i:.*\b(?:not|never|no(?! of)|incorrect|wrong|false|isn't)\b))"
    r"[A-Za-z][A-Za-z' -]{1,40}"
    r"|pH"
)
ANOTHER_LABEL = re.compile(r"[,;] ?[A-Za-z][A-Za-z' -]*: ")
PARTS = re.compile(r"(?:^|[,;.]? )\(([a-h])\) ?")  # (a) 5 (b) 3
FACTOR = re.compile(r"(.+?) ?(?:\\cdot ?|\\times ?|\*)?(\[\[.*\]\]|\(.*\)|\\langle.*\\rangle)")
NAMED = re.compile(  # what an expression on the left may be a name for
    r"\[[A-Z]{3,6}\]|\\lim ?\S.*"
    r"|\\(?:sin|cos|tan|cot|sec|csc|det|Delta|delta) ?(?:\([^()]*\)|\{[^{}]*\}|\\?\w+)"
    r"|(?!([A-Za-z]) ?\([^()]*\1)(?:\\Pr|\\mathbb\{[PE]\}|\\?[A-Za-z]{1,4}) ?[\[(][^\[\]()]*[\])]"
    r"|\\frac\{[A-Z]{2}\}\{[A-Z]{2}\}|[A-Z]{2} ?[:/] ?[A-Z]{2}"
)
MEMBER = re.compile(r"(.+?)(?: ?\\in ?| in )(\\?\{[^|:]+\})")  # x \in \{1,2\}
HOLDS_IT = Outcome(None, "relation", "an equation with that value on one side")
OR = re.compile(r",? or |;")
UNSOLVED = Outcome(None, "relation", "an equation that gives no value")
APPROX = r"\approx"
EQUALS = re.compile(r"(?<![<>!\\:])=|\\approx|:=")


class Relation(NamedTuple):
    """`name` "" = a computed chain (`2+3=5`); `value` None = an equation that gives no value."""

    name: str
    value: str | None
    label: bool = False  # the name is words ("Area"), not a symbol
    rounded: str = ""  # the value once more with fewer digits, where `name` is ""
    sure: bool = True  # that it is the same value


@lru_cache(CACHED)
def read_relation(text: str) -> Relation | None:
    """None: the text is no equation and no labelled value."""
    if APPROX in text and (rounded := read_rounded(text)) is not None:
        return rounded
    parts = [part.strip() for part in split_top(EQUALS.sub("=", text), "=")]
    if len(parts) == 1:
        if (member := MEMBER.fullmatch(text)) and (NAME.fullmatch(member[1]) or is_names(member[1])):
            return Relation(member[1], member[2])
        label, colon, rest = text.partition(": ")
        if colon and LABEL.fullmatch(label) and rest.strip() and not ANOTHER_LABEL.search(rest):
            return Relation(label, rest.strip(), True)
        return None
    if any(len(split_list(part)) > 1 for part in parts[1:-1]):
        return None  # x=1, y=2 or x=2, y=1
    if not all(parts):
        return Relation("", None)
    left, last = parts[0], parts[-1]
    if is_name(left):
        return Relation(left, last, bool(LABEL.fullmatch(left)))
    if len(parts) == 2 and is_name(last):
        return Relation(last, left, bool(LABEL.fullmatch(last)))
    numbers = read_number(left), read_number(last)
    if numbers[0] is None or (numbers[1] is not None and numbers[0].value != numbers[1].value):
        return Relation("", None)  # 2x + 3 = 5, or 2 + 2 = 5
    return Relation("", last)


def read_rounded(text: str) -> Relation | None:
    r"""`x = \frac{2}{3} \approx 0.667`: the exact value and its rounding; None where it surely is none."""
    exact, *_, last = (part.strip() for part in text.split(APPROX))
    *names, exact = (part.strip() for part in split_top(EQUALS.sub("=", exact), "="))
    if not exact or not last or is_name(exact) or not is_constant(exact):
        return None
    if (fits := is_rounding(exact, last)) is False:
        return None
    if not names:
        return Relation("", exact, rounded=last, sure=bool(fits))
    return read_relation(f"{' = '.join(names)} = {exact}") and Relation(
        names[0] if is_name(names[0]) else "", f"{exact} {APPROX} {last}", bool(LABEL.fullmatch(names[0]))
    )


def is_rounding(exact: str, last: str) -> bool | None:
    """Is the second value the first one with fewer digits? None: they are not both read, or of two units."""
    sides = [read_quantity(text) for text in (exact, last)]
    if sides[1] is None or sides[1].number is None:
        return False
    if sides[0] is None or sides[0].number is None:
        return None
    units = sides[1].units
    percent = units and not sides[0].units and units[0].dimension == (("percent", 1),)
    if sides[0].units != units and not percent:
        return None
    value, rounded = sides[0].number, sides[1].number
    scale = float(units[0].factor) if percent else 1.0
    try:
        gap = abs(value.approximate() - rounded.approximate() * scale)
        step = step_of(rounded)
        return gap <= scale * 10.0**step * (0.5 if step >= 0 else 1)
    except OverflowError:
        return False


def step_of(number: Number) -> int:
    """The power of ten that its last digit counts; the zeros at the end of a whole number are none."""
    digits = str(abs(int(number.value))) if number.value is not None and number.value % 1 == 0 else ""
    zeros = len(digits) - len(digits.rstrip("0")) if digits.strip("0") else 0
    quantum = number.quantum or 0
    return quantum if quantum < 0 else max(quantum, zeros)


def multiplied(text: str) -> Items | None:
    """A factor before a matrix or a vector, `2[[1,2],[3,4]]`, taken inside."""
    match = FACTOR.fullmatch(text) if text[-1] in ")]e" else None
    several = read_items(match[2]) if match else None
    if several is None or not several.items or not is_scalar(match[1]):
        return None
    rows = [read_items(item) if match[2].startswith("[[") else None for item in several.items]
    factor = "-1" if match[1] == "-" else match[1]
    new = []
    for item, row in zip(several.items, rows, strict=True):
        cells = [rf"({factor}) \cdot ({cell})" for cell in (row.items if row else (item,))]
        new.append(f"[{','.join(cells)}]" if row else cells[0])
    return several._replace(items=tuple(new))


def is_scalar(factor: str) -> bool:
    """May it stand before a matrix: no sum, no list, no function?"""
    bare = re.sub(r"\{[^{}]*\}|\([^()]*\)", "", re.sub(r"\{[^{}]*\}|\([^()]*\)", "", factor))
    if re.search(r"(?<=.)[-+]|[\[\],=<>^]\s*$|[\[\],=<>]", bare):
        return False
    return factor == "-" or is_numeric(factor) or re.search(r"[A-Za-z]{2,}\s*$", factor) is None


def is_name(text: str) -> bool:
    return bool(NAME.fullmatch(text) or LABEL.fullmatch(text) or is_names(text))


def is_names(text: str) -> bool:
    """`(x, y)`"""
    if not (text.startswith("(") and is_closed(text)):
        return False
    items = split_list(text[1:-1])
    return len(items) > 1 and all(re.fullmatch(SYMBOL, item) for item in items)


@lru_cache(CACHED)
def read_assignments(text: str) -> dict[str, str] | Items | None:
    """`x=1, y=2` as {name: value}; `x=1 or x=2` as the items 1, 2; None when it is neither."""
    if (marks := PARTS.split(text))[1::2] and len(marks) > 3 and not marks[0].strip():
        names = [f"({letter})" for letter in marks[1::2]]
        return dict(zip(names, (value.strip() for value in marks[2::2]), strict=True))
    if text[:1] == "{" and isinstance(found := read_literal(text), dict):
        plain = all(isinstance(name, str) and name.isidentifier() for name in found)
        return {key(name): as_text(value) for name, value in found.items()} if found and plain else None
    if "=" not in text and text.count(": ") < 2:
        return None
    whole = read_relation(text)
    if whole and whole.value is not None and is_names(whole.name):
        names, values = split_list(whole.name[1:-1]), read_items(whole.value)
        if values and len(values.items) == len(names):
            return dict(zip(map(key, names), values.items, strict=True))
        return None
    if "," in text and (solutions := read_solutions(text)):
        return solutions
    relations = [read_relation(piece) for piece in split_list(text)]
    if len(relations) < 2 or any(r is None or not r.name or r.value is None for r in relations):
        return None
    names = [relation.name for relation in relations]
    if len(set(names)) == 1:
        return Items("curly", tuple(one for relation in relations for one in both_signs(relation.value)))
    if len(set(names)) == len(names):
        return {spelled(relation): relation.value for relation in relations}
    return None


def read_solutions(text: str) -> Items | None:
    """`x=1, y=2 or x=2, y=1` as the items (1,2), (2,1)."""
    parts = [part.strip() for part in OR.split(text)]
    solutions = [read_assignments(part) for part in parts] if len(parts) > 1 else []
    if not solutions or not all(isinstance(one, dict) for one in solutions):
        return None
    names = list(solutions[0])
    if any(one.keys() != set(names) for one in solutions):
        return None
    return Items("curly", tuple(f"({','.join(one[name] for name in names)})" for one in solutions))


def compare_assignments(reference: str, prediction: str, values: Values) -> Outcome | None:
    gold, answer = read_assignments(reference), read_assignments(prediction)
    if gold is None and answer is None:
        return None
    alternatives = [joint(text) == "or" for text in (reference, prediction)]
    if any(isinstance(side, dict) for side in (gold, answer)) and alternatives[0] != alternatives[1]:
        return Outcome(None, "assignments", "values of several names, or alternatives?")
    if isinstance(gold, dict) and isinstance(answer, dict):
        return by_name(gold, answer, values)
    if gold is not None and is_unsolved(prediction):
        return UNSOLVED
    firsts = [read_relation(next(iter(split_list(text)), "")) for text in (reference, prediction)]
    named = all(firsts) and is_names(firsts[0].name) == is_names(firsts[1].name)  # (x,y)=(1,2), x=1
    if named and not any(isinstance(side, dict) for side in (gold, answer)) and other_name(*firsts):
        return Outcome(None if firsts[0].label else False, "assignments", "another name")
    sides = []
    for side, text in ((gold, reference), (answer, prediction)):
        if isinstance(side, dict):
            side = Items("round", tuple(side.values()))
        elif side is None:
            relation = read_relation(text)
            side = read_items(relation.value if relation and relation.value else text)
        sides.append(side)
    return compare_items(*sides, None, False, values).by("assignments")


def by_name(gold: dict[str, str], answer: dict[str, str], values: Values) -> Outcome:
    if gold.keys() != answer.keys():
        return Outcome(False, "assignments", "other names")
    return all_true(values(value, answer[name]) for name, value in gold.items()).by("assignments")


def compare_relations(reference: str, prediction: str, values: Values) -> Outcome | None:
    """None: no equation on either side, or two whose equality is for the symbolic stage."""
    gold, answer = read_relation(reference), read_relation(prediction)
    if gold is None and answer is None:
        return None
    if gold is None or answer is None:
        return value_against_relation(reference, prediction, gold or answer, values)
    constant = gold.value is not None and is_constant(gold.value)
    if gold.value is None or answer.value is None:
        return UNSOLVED if constant and is_unsolved(prediction) else None
    if other_name(gold, answer):
        if not gold.label and (mentions(gold.value, answer.name) or mentions(answer.value, gold.name)):
            return None  # y = 2x, x = y/2
        outcome = values(gold.value, answer.value)
        sure = outcome.correct is False or (read_number(gold.value) is not None and not gold.label)
        return Outcome(False if sure else None, "relation", "another name")
    sides = [[*filter(None, (side.value, side.rounded))] for side in (gold, answer)]
    outcome = of_any(list(product(*sides)), gold.sure and answer.sure, values)
    if outcome.correct is False and not gold.label and any(map(implicit, (gold, answer))):
        return UNSOLVED if constant else None  # x = 6 - x against x = 3
    return outcome.by("relation")


def of_any(pairs: list[tuple[str, str]], sure: bool, values: Values) -> Outcome:
    """The exact values are the first pair; of the others, not `sure` that they are roundings of these."""
    outcome = first_true(values(*pair) for pair in pairs)
    if outcome.correct and not sure and values(*pairs[0]).correct is not True:
        return Outcome(None, "relation", "a rounding of what is not worked out")
    return outcome


def is_unsolved(text: str) -> bool:
    """One equation or several, none of which gives a value."""
    relations = [read_relation(piece) for piece in split_list(text)]
    return all(relation is not None and relation.value is None for relation in relations)


def is_constant(value: str) -> bool:
    """Numbers and units, no symbol that is not known."""
    quantity = read_quantity(value)
    return (quantity is not None and not quantity.glued) or not symbols_in(prepare(value)) - {"i", "pm"}


def rearranged(reference: str, prediction: str) -> bool:
    """`a = F/m` and `F = ma`: equations solved for another symbol. In x and y they may be one curve."""
    sides = [read_relation(text) for text in (reference, prediction)]
    return all(sides) and other_name(*sides) and {side.name for side in sides} != {"x", "y"}


def other_name(gold: Relation, answer: Relation) -> bool:
    """Two symbols or two labels that differ; a label may stand for a symbol, `y` for `f(x)`."""
    if not gold.name or not answer.name or gold.label != answer.label:
        return False
    names = [spelled(side) for side in (gold, answer)]
    if names[0] == names[1]:
        return False
    functions = [FUNCTION.fullmatch(side.name) for side in (gold, answer)]
    return not all(functions) or not any(side.name in ("y", "y'") for side in (gold, answer))


def spelled(relation: Relation) -> str:
    """The name in one spelling; case counts in symbols only."""
    return key(relation.name.casefold() if relation.label else relation.name)


def value_against_relation(
    reference: str, prediction: str, relation: Relation, values: Values
) -> Outcome | None:
    turned = read_relation(reference) is not None
    other = prediction if turned else reference
    if relation.value is not None:
        of_either = filter(None, (relation.value, relation.rounded))
        pairs = [(value, other) if turned else (other, value) for value in of_either]
        return of_any(pairs, relation.sure, values).by("relation")
    equation = EQUALS.sub("=", reference if turned else prediction)
    left, *_, last = (part.strip() for part in split_top(equation, "="))
    if last and read_number(left) is None:
        outcome = values(*((last, other) if turned else (other, last)))
        if NAMED.fullmatch(left):
            return outcome.by("relation")
        if outcome.correct is not False:
            return outcome.by("relation") if outcome.method == PENDING else HOLDS_IT
    whole = read_number(left)
    if whole and whole.value.denominator == 1 and r"\approx" in (reference if turned else prediction):
        return Outcome(None, "relation", "a value and another one that is near")  # 5 (approximately 5.02)
    if read_number(other) is not None:
        return Outcome(False, "relation", "an equation against a number")
    return Outcome(None, "relation", "an equation against a value")


def implicit(relation: Relation) -> bool:
    """The name stands on the right side too."""
    return relation.name != "" and mentions(relation.value, relation.name)


def mentions(value: str, name: str) -> bool:
    return re.search(rf"(?<![A-Za-z\\]){re.escape(name)}(?![A-Za-z])", value) is not None
