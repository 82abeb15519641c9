"""The shipped word problems are right: every step is recomputed, every step is needed, every text is new."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest

from cotkit.problems import data_folder, load_problems

NUMBER = r"\d+(?:\.\d+)?"
STEP = re.compile(rf"({NUMBER}) ([-+*/]) ({NUMBER}) = ({NUMBER})")
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
WORDS = {"four": 4, "three": 3, "Half": 2}
# Numbers a solution may use without the text saying them: pairs of sides, both ways, legs, minutes an hour,
# a dozen, centimeters a meter, meters a kilometer.
KNOWN = {
    "rectangle-border": {2},
    "fence-cost": {2},
    "fuel-cost": {2},
    "legs": {2, 4},
    "hours-to-minutes": {60},
}
KNOWN |= {"dozens": {12}, "cut-pieces": {100}, "laps-to-km": {1000}}


@pytest.fixture(scope="module")
def rows():
    text = (data_folder() / "word_problems.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def steps_of(row):
    return [(Fraction(a), sign, Fraction(b), Fraction(c)) for a, sign, b, c in STEP.findall(row["solution"])]


def test_the_generator_rewrites_the_file_byte_for_byte(tmp_path):
    again = tmp_path / "again.jsonl"
    command = [sys.executable, data_folder() / "make_word_problems.py", again]
    subprocess.run(command, check=True, capture_output=True)
    assert again.read_bytes() == (data_folder() / "word_problems.jsonl").read_bytes()


def test_every_step_of_every_solution_is_right_and_the_last_one_is_the_answer(rows):
    for row in rows:
        steps = steps_of(row)
        assert all(OPERATIONS[sign](a, b) == c for a, sign, b, c in steps), row["id"]
        assert row["solution"].count("=") == len(steps) == row["difficulty"], row["id"]
        assert steps[-1][3] == Fraction(row["answer"]), row["id"]
        assert row["solution"].endswith(f"The answer is \\boxed{{{row['answer']}}}."), row["id"]


def test_every_operand_comes_from_the_text_or_an_earlier_step_and_every_result_is_used(rows):
    for row in rows:
        said = {Fraction(n) for n in re.findall(NUMBER, row["problem"])}
        said |= {Fraction(p) / 100 for p in re.findall(rf"({NUMBER})%", row["problem"])}
        said |= {Fraction(n) for word, n in WORDS.items() if word in row["problem"]}
        said |= {Fraction(n) for n in KNOWN.get(row["template"], ())}
        steps = steps_of(row)
        for i, (a, _, b, result) in enumerate(steps):
            assert {a, b} <= said, (row["id"], row["solution"])
            assert i == len(steps) - 1 or any(result in (s[0], s[2]) for s in steps[i + 1 :]), row["id"]
            said.add(result)


def test_the_answer_is_no_number_of_the_text_and_no_earlier_result(rows):
    for row in rows:
        *earlier, last = steps_of(row)
        assert last[3] not in {Fraction(n) for n in re.findall(NUMBER, row["problem"])}, row["id"]
        assert last[3] not in {step[3] for step in earlier}, row["id"]


def test_there_are_enough_problems_of_every_grade_from_enough_templates(rows):
    grades = Counter(row["difficulty"] for row in rows)
    assert set(grades) == {1, 2, 3, 4} and min(grades.values()) >= 60
    for grade in grades:
        templates = Counter(row["template"] for row in rows if row["difficulty"] == grade)
        assert len(templates) >= 12 and max(templates.values()) <= 6
    assert [row["difficulty"] for row in rows[:12]] == [1, 2, 3, 4] * 3


def test_no_two_problems_share_a_text_and_few_share_one_but_for_numbers_and_names(rows):
    assert len({row["problem"] for row in rows}) == len({row["id"] for row in rows}) == len(rows)
    generator = load_generator()
    names = re.compile(rf"\b({'|'.join(generator.SHE + generator.HE)}|[Ss]?[Hh]e|[Hh]is|[Hh]er)\b")
    shapes = Counter(names.sub("X", re.sub(NUMBER, "N", row["problem"])) for row in rows)
    assert max(shapes.values()) <= 1


def load_generator():
    spec = importlib.util.spec_from_file_location(
        "make_word_problems", data_folder() / "make_word_problems.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_numbers_are_written_as_people_write_them(rows):
    for row in rows:
        text = row["problem"] + " " + row["solution"]
        assert not re.search(r"[{}\[\]]", row["problem"]), row["id"]
        assert not re.search(r"\$\d+\.\d(?!\d)|\.\d{3}|\b1 [a-z]+s\b|  ", text), row["id"]  # $3.5, 1 apples
        assert not re.search(r"\b[Aa] (?=[aeiou])(?!uni|one|used)|\b[Aa]n (?=[^aeiou\W])(?!hour)", text), row[
            "id"
        ]
        assert row["problem"].endswith("?") and row["solution"].endswith("}."), row["id"]


def test_the_file_loads_with_the_plain_answer_as_reference_and_the_worked_solution_kept():
    problems = load_problems("word_problems")
    assert len(problems) == 320
    assert {p.type for p in problems} == {"one-step", "two-step", "three-step", "four-step"}
    assert {p.answer_type for p in problems} == {"number"} and {p.licence for p in problems} == {"Apache-2.0"}
    for problem in problems:
        assert re.fullmatch(NUMBER, problem.reference)
        assert f"\\boxed{{{problem.reference}}}" in problem.metadata["solution"]
