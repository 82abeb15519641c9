r"""`answer_key`: spellings of one answer share a key, different answers never do."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_answer_cases import SECTIONS

from cotkit.verify import AnswerPolicy, answer_key, check_answer

SAME = [
    (
        "0.5",
        "1/2",
        r"\frac12",
        "50/100",
        ".5",
        "0.50",
        r"\boxed{\dfrac{1}{2}}",
        "$\\frac{2}{4}$",
        "½",
        "half",
    ),
    ("1,000", "1000", "1{,}000", "1e3", "1000.0", "10^3", "one thousand", "1000 (approximately)", "+1000"),
    ("-7", "−7", "- 7", "minus 7", "-7.", "**-7**"),
    (r"\pi/2", r"\frac{\pi}{2}", r"0.5\pi", "π/2"),
    ("0", "-0", "0.0", "0/5"),
    ("50%", r"50\%", "50 percent", "50.0 %"),
    ("5 cm", "5cm", r"5\text{ cm}", "5.0 centimeters", "50 mm", "0.05 m"),
    ("$1,250", "1250 dollars", r"\$1250", "$1250.00"),
    ("30^\\circ", "30°", "30 degrees"),
    ("25 °C", "77 °F"),
    ("2h 30 min", "150 minutes", "2.5 hours"),
    ("4 apples", "4.0 apples", "4 apple"),
    ("B", "(B)", "B.", "Option B", r"\text{(B)}"),
    ("A, C", "C and A", "(A), (C)"),
    ("yes", "Yes.", "True"),
    ("Paris", "paris.", r"\text{Paris}", '"Paris"'),
    ("red", "Red"),
    ("Width = 4", "width: 4"),
    ("x = 5", "x=5.0", "5 = x"),
    ("2+3=5", "5"),
    ("x=1 or x=2", "x=2.0 or x=1", "x = 1, x = 2"),
    ("x=1, y=2", "y=2, x=1", "(x, y) = (1, 2)"),
    ("(1/2, 3)", "(0.5,3)", r"\left(\frac12, 3\right)"),
    (r"\{1,2\}", r"\{2, 1\}", r"\{2,1,1.0\}"),
    ("[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[1, 2.0], [3, 4]]"),
    ("1,000, 2,000", "1000, 2000"),
    ("[0, 0.5)", "[0,1/2)", "[0,\\frac12)"),
    ("x > 2", "x>2.0", "2 < x", "x>2 and x>1"),
    (r"(-\infty,2)\cup(2,\infty)", r"(2,\infty) \cup (-\infty, 2)"),
    ("2024-01-05", "5 January 2024", "January 5th, 2024", "Friday, 5 Jan 2024"),
    ("3:30 pm", "3:30 p.m.", "3:30PM"),
    (r"x^{2}+1", "x^2 + 1", "x**2+1"),
    ("", "  ", "$$"),
]
ALSO_DIFFERENT = [
    *("50", "1", "2", "4 oranges", "5 inches", "5 cm^2", "€1250", "1250", "y = 5", "C", "A, B", "AB", "ab"),
    *(
        "no",
        "Paris, France",
        "1, 2",
        "2, 1",
        "(1, 2)",
        "(3, 1/2)",
        "1:2",
        "0.333333",
        "1/3",
        "x < 2",
        "y > 2",
    ),
    *("x \\ge 2", "(0, 0.5)", "[0, 0.5]", "January 5", "3:30", "3:30 am", "x^3+1", "X^2+1", "xy", "not red"),
    *(
        "\\pi",
        "\\pi^2",
        "12-15",
        "101_2",
        "101",
        "10^{2000}",
        "10^{2001}",
        "3 \\pm 1",
        "nan",
        "\\infty",
        "{}",
    ),
    *("x=5 or x=2", "x=3, y=2", "x=1, y=2, x=3", "x=4, y=2, x=3", "y=1 or y=2", "2x+4y=3", "2x+4y=5"),
]


@pytest.mark.parametrize("spellings", SAME, ids=lambda row: row[0] or "nothing")
def test_spellings_of_one_answer_share_a_key(spellings):
    assert len({answer_key(text) for text in spellings}) == 1, [
        (text, answer_key(text)) for text in spellings
    ]


def test_different_answers_never_share_a_key():
    texts = [row[0] for row in SAME] + ALSO_DIFFERENT
    shared = [pair for pair in combinations(texts, 2) if answer_key(pair[0]) == answer_key(pair[1])]
    assert shared == []


def test_what_the_case_table_calls_different_never_shares_a_key():
    rows = [row for rows in SECTIONS.values() for row in rows if row[1] != row[2]]
    shared = {True: 0, False: 0, None: 0}
    for correct, reference, prediction in rows:
        shared[correct] += answer_key(reference) == answer_key(prediction)
    assert shared[False] == shared[None] == 0 and shared[True] > 350


STRICT = AnswerPolicy(percent_as_fraction=False, unit_may_be_missing=False, bare_list_in_order=True)


@pytest.mark.parametrize("spellings", SAME[:-1], ids=lambda row: row[0])
def test_what_shares_a_key_is_right_by_the_strict_policies(spellings):
    wrong = [
        text for text in spellings if check_answer(text, spellings[0], policy=STRICT).correct is not True
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "1" * 5000,
        "[" * 900 + "]" * 900,
        "abc: " * 390 + "1",
        "x=" * 900,
        "①  and a half",
        "10^{9999}",
        "\\frac{",
        "\x00",
        "1/0",
    ],
)
def test_no_text_is_too_much(text):
    assert answer_key(text) == answer_key(f" {text} ")


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.text("0123456789.,/%$ -+=xyAB()[]{}\\<>:", max_size=20) | st.text(max_size=30))
def test_a_key_is_the_key_of_itself_round_white_space(text):
    assert answer_key(f"  {text}\n") == answer_key(text)


def test_an_answer_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match="text of an answer, got NoneType"):
        answer_key(None)
