"""The rules of the checker, each with its cases: answer_cases.txt, and the tables below for whole answers."""

from __future__ import annotations

import pathlib

import pytest

from cotkit.verify import AnswerPolicy, check_answer

FILE = pathlib.Path(__file__).with_name("answer_cases.txt")
VERDICTS = {"=": True, "!": False, "?": None}


def sections() -> dict[str, list[tuple[bool | None, str, str]]]:
    found: dict[str, list] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            rows = found.setdefault(line[3:], [])
        elif line and not line.startswith("#"):
            sign, reference, prediction = line.split("\t")
            rows.append((VERDICTS[sign], reference, prediction))
    return found


SECTIONS = sections()


@pytest.mark.parametrize("rule", SECTIONS)
def test_every_case_of_a_rule_gets_its_verdict(rule):
    wrong = []
    for expected, reference, prediction in SECTIONS[rule]:
        verdict = check_answer(prediction=prediction, reference=reference)
        if verdict.correct is not expected or not verdict.method or not verdict.reason:
            wrong.append(f"{reference!r} against {prediction!r}: expected {expected}, got {verdict}")
    assert not wrong, "\n".join(wrong)


def test_many_conditions_on_one_variable_stay_one_set():
    without = [" and ".join(f"x \\ne {n}" for n in order) for order in (range(40), range(39, -1, -1))]
    verdict = check_answer(without[0], without[1])
    assert (verdict.correct, verdict.method) == (True, "interval")
    assert check_answer(without[0] + " and x > 39", "x > 39").correct is True
    assert check_answer(" and ".join(["|x| > \\sqrt{2}"] * 60), "x > 39").correct is None


def test_what_numpy_prints_in_several_lines_is_one_answer():
    for printed in ("[[1 2]\n [3 4]]", "[[1. 2.]\n [3. 4.]]", "array([[1, 2],\n       [3, 4]])"):
        assert check_answer(printed, "[[1, 2], [3, 4]]").correct is True
        assert check_answer("[[1, 2], [3, 4]]", printed).correct is True
        assert check_answer(printed, "[[1, 2], [4, 3]]").correct is False


@pytest.mark.parametrize("mark", [*"\u200e\u200f\u061c\u202a\u202e\u2066\u2069\u00ad\u200b\ufeff\ufe0f"])
def test_marks_that_nobody_sees_do_not_count(mark):
    for prediction in (f"{mark}42", f"42{mark}", f"\\boxed{{{mark}42{mark}}}"):
        assert check_answer(prediction, "42").correct is True
        assert check_answer(prediction, "41").correct is False
        assert check_answer("42", prediction).correct is True


def test_the_case_table_is_whole():
    assert {rule: len(rows) for rule, rows in SECTIONS.items() if len(rows) < 1} == {}
    assert sum(len(rows) for rows in SECTIONS.values()) > 1200


@pytest.mark.parametrize("rule", SECTIONS)
def test_every_reference_matches_itself(rule):
    wrong = [
        (reference, verdict)
        for _, reference, _ in SECTIONS[rule]
        if (verdict := check_answer(reference, reference)).correct is not True and reference != "nan"
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("prediction", "reference", "correct", "method"),
    [
        ("7", None, None, "no_reference"),
        ("7", "", None, "no_reference"),
        ("7", "  \n", None, "no_reference"),
        ("7", "She adds them up.\nThen she stops.", None, "no_reference"),
        ("7", "\\boxed{}", None, "no_reference"),
        (None, "7", False, "no_answer"),
        ("", "7", False, "no_answer"),
        (" \n ", "7", False, "no_answer"),
        ("\\boxed{7", "7", False, "no_answer"),
        ("\\boxed{}", "7", False, "no_answer"),
        ("<think>\\boxed{7}", "7", False, "no_answer"),
        ("<think>\\boxed{7}</think>", "7", False, "no_answer"),
        ("<think>7</think>\nI could not\ndecide.", "7", False, "no_answer"),
        ("She has 3.\nHe has 7.", "7", False, "no_answer"),
        ("1" * 2001, "7", None, "too_long"),
        ("7", "1" * 2001, None, "too_long"),
        ("nan", "nan", None, "same"),
        ("1" * 401, "7", None, "symbolic"),
    ],
)
def test_a_missing_or_unusable_side_is_named(prediction, reference, correct, method):
    verdict = check_answer(prediction, reference)
    assert (verdict.correct, verdict.method) == (correct, method), verdict


def test_a_whole_completion_is_extracted_first():
    reference = "He sells 9 * 2 = 18.\n#### 18"
    assert check_answer("<think>15?</think> 9 * 2 = 18, so \\boxed{18}. Not 15.", reference).correct is True
    assert check_answer("The answer is 15, not 18.", reference).correct is False
    assert check_answer("She earns 15.\n#### 15", reference).correct is False


@pytest.mark.parametrize(
    ("reference", "prediction", "answer_type", "expected"),
    [
        ("C", "c", None, True),
        ("C", "c", "algebra", False),
        ("ab", "ba", None, None),
        ("ab", "ba", "algebra", True),
        ("ab", "ba", "text", False),
        ("5m", "5", None, None),
        ("5m", "5", "quantity", True),
        ("5m", "5", "algebra", False),
        ("[1, 2]", "[2, 1]", None, False),
        ("[1, 2]", "[2, 1]", "set", True),
        ("(1,2),(3,4)", "[(3,4),(1,2)]", "set", True),
        ("(1,2),(3,4)", "[(3,4),(2,1)]", "set", False),
        ("1, 2", "2, 1", None, True),
        ("1, 2", "2, 1", "list", False),
        ("(1,2)", "[1,2]", "list", True),
        ("(1,2)", "[1,2]", "interval", False),
        ("n", "no", "yes_no", True),
        ("yes", "y", "yes_no", True),
        ("n", "no", None, None),
        ("maybe", "yes", "yes_no", None),
        ("c", "C", "option", True),
        ("Paris", "C", "option", None),
        ("C", "Paris", "option", False),
        ("5", "five", "number", True),
        ("100k", "100,000", "number", True),
        ("01/02/2024", "2 January 2024", "date", True),
        ("01/02/2024", "soon", "date", False),
        ("someday", "01/02/2024", "date", None),
        ("9:00", "9 am", "time", True),
        ("1:10", "2:20", "time", False),
        ("2:3", "4:6", "ratio", True),
        ("{'a': 1}", "{'a': 2}", "dict", False),
        ("[[1, 2]]", "\\begin{pmatrix}1&2\\end{pmatrix}", "matrix", True),
        ("3.3 eV", "3.3333333 eV", None, False),
        ("3.3 eV", "3.3333333 eV", "quantity", True),
        ("3.3 eV", "3.36 eV", "quantity", False),
        ("226 pm", "2.2561e-10 m", "quantity", True),
        ("4.2e+02 J", "416.0 J", "quantity", True),
        ("4.2e+02 J", "426 J", "quantity", False),
        ("16 cm^3", "5.12*pi cm^3", "quantity", True),
        ("-3.1 unitless", "-pi", "quantity", True),
        ("100 J", "104 J", "quantity", False),
        ("1/3", "0.34", "quantity", False),
    ],
)
def test_the_answer_type_settles_what_the_text_leaves_open(reference, prediction, answer_type, expected):
    assert check_answer(prediction, reference, answer_type).correct is expected


@pytest.mark.parametrize(
    ("reference", "prediction", "tolerance", "expected"),
    [
        ("1.17", "1.1782", None, False),
        ("1.17", "1.1782", 0.01, True),
        ("1.17", "1.19", 0.01, False),
        ("100", "101", 0.01, True),
        ("100", "101.5", 0.01, False),
        ("1e-20", "1.005e-20", 0.01, True),
        ("1e-20", "2e-20", 0.01, False),
        ("0", "1e-12", 0.01, True),
        ("0", "0.001", 0.01, False),
        ("1/3", "0.33", 0.02, True),
        ("\\pi", "3.14", 0.001, True),
        ("\\pi", "3.2", 0.001, False),
        ("\\sqrt{2}", "1.414", 0.001, True),
        ("[1.0, 2.0]", "[1.001, 1.999]", 0.01, True),
        ("[1.0, 2.0]", "[1.001, 2.1]", 0.01, False),
        ("{'a': 0.5}", "{'a': 0.501}", 0.01, True),
        ("{1.0, 1.000001}", "{1.000002, 2.0}", 1e-5, False),
        ("(0.5, 'x')", "(0.5000001, 'x')", 1e-5, True),
        ("5 km", "5010 m", 0.01, True),
        ("5 km", "5010 g", 0.01, False),
    ],
)
def test_a_tolerance_is_relative_wherever_a_number_stands(reference, prediction, tolerance, expected):
    assert check_answer(prediction, reference, tolerance=tolerance).correct is expected


@pytest.mark.parametrize(
    ("setting", "reference", "prediction", "with_default", "changed"),
    [
        ({"rounding": 1e-2}, "1/3", "0.333", False, True),
        ({"whole_rounding": 1e-3}, "1", "1.0001", False, True),
        ({"percent_as_fraction": False}, "30%", "0.3", True, False),
        ({"percent_as_fraction": False}, "30%", "30", True, False),
        ({"unit_may_be_missing": False}, "5 cm", "5", True, False),
        ({"convert_units": False}, "5 m", "500 cm", True, False),
        ({"fold_case": False}, "B", "b", True, False),
        ({"fold_case": False}, "Paris", "paris", True, False),
        ({"bare_list_in_order": True}, "1, 2", "2, 1", True, False),
        ({"ratio_as_quotient": False}, "1:2", "1/2", True, False),
        ({"positive_symbols": False}, "\\ln(ab)", "\\ln a + \\ln b", True, None),
        ({"longest": 3}, "1+2", "1+1+1", True, None),
    ],
)
def test_each_policy_can_be_changed(setting, reference, prediction, with_default, changed):
    assert check_answer(prediction, reference).correct is with_default
    assert check_answer(prediction, reference, policy=AnswerPolicy(**setting)).correct is changed


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"answer_type": "numbr"}, ValueError, "known are: number"),
        ({"tolerance": 0}, ValueError, "above 0 and below 1"),
        ({"tolerance": -0.1}, ValueError, "above 0 and below 1"),
        ({"tolerance": 1.0}, ValueError, "above 0 and below 1"),
        ({"tolerance": float("nan")}, ValueError, "above 0 and below 1"),
        ({"tolerance": "1e-3"}, TypeError, "must be a number"),
        ({"tolerance": True}, TypeError, "must be a number"),
        ({"policy": "strict"}, TypeError, "AnswerPolicy"),
        ({"prediction": 7}, TypeError, "give str(prediction)"),
        ({"reference": 7.0}, TypeError, "give str(reference)"),
    ],
)
def test_a_bad_argument_is_refused_with_the_fix(arguments, error, says):
    with pytest.raises(error) as raised:
        check_answer(**{"prediction": "7", "reference": "7", **arguments})
    assert says in str(raised.value)


def test_bad_policy_values_are_refused_at_construction():
    for setting in (
        {"rounding": 0},
        {"rounding": 2},
        {"seconds": 0},
        {"seconds": float("inf")},
        {"longest": 0},
    ):
        with pytest.raises(ValueError, match="AnswerPolicy"):
            AnswerPolicy(**setting)
