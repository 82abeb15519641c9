"""What must hold for any text: a check never raises, an answer never differs from itself, order of the sides
does not matter where no policy is one-sided, and words round a wrong answer never make it right.

The typed ladder runs alone here (a comparison that wants algebra counts as undecided), so that a thousand
examples need no process.
"""

from __future__ import annotations

import os
from fractions import Fraction

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotkit.verify import check_answer, extract, reference_answer
from cotkit.verify.ladder import Comparison
from cotkit.verify.normalise import canonical, key

quickly = settings(
    max_examples=int(os.environ.get("COTKIT_EXAMPLES", "400")),
    deadline=None,
    database=None,
    derandomize="COTKIT_EXAMPLES" not in os.environ,
)
PIECES = [
    *"0123456789.,;:+-*/^_(){}[]<>=|\\$%'\" \n\tabxyzABC",
    "\\frac",
    "\\sqrt",
    "\\pi",
    "\\boxed{",
    "\\text{",
]
PIECES += [
    " and ",
    " or ",
    "\\le ",
    "\\cup ",
    "\\pm ",
    "\\infty",
    "\\begin{pmatrix}",
    "\\end{pmatrix}",
    "\\\\",
    "&",
]
PIECES += [
    "not ",
    "#### ",
    "<think>",
    "</think>",
    "½",
    "²",
    "−",
    "π",
    "°",
    "\x00",
    "\ud800",
    "答案是",
    " cm",
    "km/h",
]
PIECES += [
    "million",
    "yes",
    "\\ldots",
    "_2",
    "\\{",
    "\\}",
    "e5",
    "I",
    "np.float64(",
    "Interval(",
    "2024-01-05",
]
PIECES += [
    "3:30 pm",
    "the answer is ",
    "A: ",
    "<answer>",
    "</answer>",
    "```\n",
    "half",
    "dozen",
    "option ",
    "(B)",
]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40)

numbers = st.integers(-10_000, 10_000)
fractions = st.builds(lambda a, b: f"{a}/{b}", numbers, st.integers(1, 999))
latex_fractions = st.builds(lambda a, b: f"\\frac{{{a}}}{{{b}}}", numbers, st.integers(1, 999))
values = numbers.map(str) | fractions | latex_fractions
sides = (
    values
    | st.lists(values, min_size=2, max_size=4).map(", ".join)
    | st.lists(values, min_size=2, max_size=4).map(lambda items: "(" + ", ".join(items) + ")")
    | st.lists(values, min_size=2, max_size=4).map(lambda items: "\\{" + ", ".join(items) + "\\}")
    | values.map("x = {}".format)
    | values.map("x > {}".format)
    | st.sampled_from(
        ["yes", "no", "red", "blue", "Paris", "A, C", "(B)", "2024-01-05", "3:30 pm", "1:2", "\\pi"]
    )
)


def typed(reference: str, prediction: str):
    return Comparison().compare(reference, prediction)


@quickly
@given(texts)
@example("\\{,2,1\\3:30 pm}np.float64(")
def test_no_text_breaks_extraction_or_normalisation(text):
    found = extract(text)
    assert found.how and (found.answer is None or found.answer.strip())
    reference_answer(text)
    key(canonical(text))


@quickly
@given(texts, texts)
def test_no_pair_breaks_the_typed_ladder(reference, prediction):
    outcome = typed(reference, prediction)
    assert outcome.correct in (True, False, None) and outcome.method


@quickly
@given(texts | sides)
@example("nan")
@example("\\boxed{")
@example("5 or 6")
def test_an_answer_never_differs_from_itself(text):
    assert check_answer(text, text).correct is not False
    assert typed(text, text).correct is not False or not canonical(text)


@quickly
@given(sides, sides)
def test_the_order_of_the_sides_does_not_matter(one, other):
    """No decimals, units or options of one letter here: those policies look at the reference."""
    assert {typed(one, other).correct, typed(other, one).correct} != {True, False}


@quickly
@given(numbers, st.integers(1, 999), numbers, st.integers(1, 999))
def test_rational_numbers_are_compared_exactly(a, b, c, d):
    assert typed(f"{a}/{b}", f"\\frac{{{c}}}{{{d}}}").correct is (Fraction(a, b) == Fraction(c, d))


@quickly
@given(st.integers(0, 10**12))
def test_every_spelling_of_a_whole_number_is_the_same_number(n):
    for text in (
        f"{n:,}",
        f"{n:,}".replace(",", "{,}"),
        f"{n:,}".replace(",", "\\,"),
        f"${n}$",
        f"{n}.0",
        f"{n}.",
    ):
        assert check_answer(text, str(n)).correct is True, text
        assert check_answer(text, str(n + 1)).correct is not True, text


SURROUNDINGS = st.sampled_from(
    [
        "{answer}",
        "So the result follows. \\boxed{{{answer}}}",
        "\\boxed{{{reference}}} is wrong. It is \\boxed{{{answer}}}.",
        "It is {reference}? No.\n#### {answer}",
        "<think>{reference}, surely \\boxed{{{reference}}}</think> \\boxed{{{answer}}}",
        "<think>{reference}</think><answer>{answer}</answer>",
        "The answer is {answer}, not {reference}.",
        "```\n\\boxed{{{reference}}}\n```\nThe answer is {answer}.",
        "Answer: {answer}\nI hope {reference} is not right.",
    ]
)


@quickly
@given(values, values, SURROUNDINGS, st.text("abc .\n", max_size=20))
def test_words_round_a_wrong_answer_never_make_it_right(reference, answer, frame, noise):
    wrong = check_answer(answer, reference).correct is not True
    text = noise + "\n" + frame.format(answer=answer, reference=reference)
    if wrong:
        assert check_answer(text, reference).correct is not True
