"""The shipped seed problems: a clean audit, sound fields, and answers that other answers do not match."""

from __future__ import annotations

import ast
import json
import re
import sys

import pytest

from cotkit import check_answer, load_problems
from cotkit.problems import data_folder
from cotkit.verify import ANSWER_TYPES, audit

FOLDER = data_folder() / "seeds"
DOMAINS = [
    "advanced_math",
    "advanced_physics",
    "chemistry",
    "computational_biology",
    "finance",
    "games",
    "graph_discrete_math",
    "logic",
    "mathematical_programming",
    "medicine",
    "programming",
    "security_safety",
]


def rows(domain: str) -> list[dict]:
    return [
        json.loads(line) for line in (FOLDER / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def problems():
    return {domain: load_problems(FOLDER / f"{domain}.jsonl") for domain in DOMAINS}


def test_the_files_are_the_twelve_domains():
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == DOMAINS


def test_the_audit_of_all_seeds_is_clean(problems):
    everything = [problem for of_domain in problems.values() for problem in of_domain]
    report = audit(everything, allow_weak_isolation=True)
    assert report.findings == ()
    assert report.ran == report.programs == report.problems == len(everything)
    assert report.clean


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_fields_are_sound(problems, domain):
    assert len(problems[domain]) >= 12
    for number, (row, problem) in enumerate(zip(rows(domain), problems[domain], strict=True), start=1):
        assert problem.id == f"{domain}-{number:03d}"
        assert (
            (problem.type, problem.licence) == (domain, "Apache-2.0") == (domain, row["metadata"]["license"])
        )
        assert problem.solution_code == row["rationale"] and problem.reference == row["final_answer"]
        assert problem.answer_type in ANSWER_TYPES
        assert row["difficulty"] in range(1, 6) and row["topic"]
        assert row["tolerance"] is None or 1e-6 <= row["tolerance"] <= 0.01, problem.id
        assert row["metadata"]["check"]
        assert domain != "medicine" or row["metadata"]["source"]
        if row["units"]:
            assert problem.answer_type == "quantity" and problem.reference.endswith(f" {row['units']}")
        else:
            assert problem.answer_type != "quantity"


@pytest.mark.parametrize("domain", DOMAINS)
def test_difficulties_are_mixed(domain):
    assert len({row["difficulty"] for row in rows(domain)}) >= 4


@pytest.mark.parametrize("domain", DOMAINS)
def test_programs_import_what_they_declare_and_no_clock_or_chance(domain):
    for row in rows(domain):
        imported = set()
        for node in ast.walk(ast.parse(row["rationale"])):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
        assert sorted(imported - sys.stdlib_module_names) == row["libraries"], row["id"]
        assert set(row["libraries"]) <= {"numpy", "sympy"}
        assert not imported & {"random", "secrets", "time", "os", "uuid"}, row["id"]


def test_no_question_is_given_twice(problems):
    texts = [problem.problem for of_domain in problems.values() for problem in of_domain]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_answer_matches_the_reference_of_another_problem(problems, domain):
    for problem in problems[domain]:
        for other in problems[domain]:
            if other.reference != problem.reference:
                verdict = check_answer(
                    other.reference, problem.reference, problem.answer_type, problem.tolerance
                )
                assert verdict.correct is not True, (problem.id, other.id, verdict)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_measured_answer_that_is_three_percent_off_is_wrong(problems, domain):
    for problem in problems[domain]:
        if problem.answer_type in ("number", "quantity") and "/" not in problem.reference.split()[0]:
            value, _, unit = problem.reference.partition(" ")
            off = f"{float(value) * 1.03:.8g} {unit}".strip()
            verdict = check_answer(off, problem.reference, problem.answer_type, problem.tolerance)
            assert verdict.correct is False, (problem.id, verdict)


def test_the_readme_counts_the_rows():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)\.jsonl` \| (\d+) \| ([\d, ]+) \|", text, re.M)
    assert [name for name, _, _ in table] == DOMAINS
    total = 0
    for name, count, by_difficulty in table:
        difficulties = [row["difficulty"] for row in rows(name)]
        assert int(count) == len(difficulties)
        assert [int(n) for n in by_difficulty.split(",")] == [difficulties.count(d) for d in range(1, 6)], (
            name
        )
        total += len(difficulties)
    assert f"{total} problems in 12 domains" in text
