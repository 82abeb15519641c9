"""The audit finds every planted fault, and nothing in sound problems."""

from __future__ import annotations

import functools
import json

import pytest

from cotkit import cli, run_python
from cotkit.problems import Problem
from cotkit.verify import Isolation, SandboxTooWeak, audit, audit_files
from cotkit.verify.audit import DAYS
from cotkit.verify.audit_report import APART, KINDS
from cotkit.verify.sandbox import program

# the programs here are trusted, so that the tests of the audit run on every machine
audit_here = functools.partial(audit, timeout=5.0, allow_weak_isolation=True)


def problem(code: str | None = "print(6)", reference: str | None = "6", **fields) -> Problem:
    return Problem(id="p", problem="What is it?", reference=reference, solution_code=code, **fields)


FOURTH_ROOT = "def check(answer):\n    return answer.lstrip('-').isdigit() and int(answer) ** 4 == 16"
SQUARE = ["assert f(2) == 4", "assert f(3) == 9"]
PROSE = "because the warm air rises above the cold air and carries water up with it"
OTHER_PROSE = "because sunlight heats the ground and the ground then heats all the air near it"
FAULTS = {
    "another number": (problem("print(5)"), "wrong"),
    "another unit": (problem("print('6 s')", "6 m"), "wrong"),
    "outside the tolerance": (problem("print(6.2)", "6.0", answer_type="number", tolerance=0.01), "wrong"),
    "a guess among two": (problem("print('5 or 6')"), "wrong"),
    "chance": (problem("import random\nprint(random.random())"), "non_deterministic"),
    "chance within the tolerance": (
        problem("import random\nprint(6 + random.random() / 1000)", "6.0", tolerance=0.01),
        "non_deterministic",
    ),
    "numpy's chance": (problem("import numpy\nprint(numpy.random.rand())"), "non_deterministic"),
    "the hash seed": (problem("print(hash('six') % 10**9)"), "non_deterministic"),
    "the system's chance": (problem("import os\nprint(os.urandom(8))"), "non_deterministic"),
    "a timer": (problem("import time\nprint(time.perf_counter_ns())"), "non_deterministic"),
    "the day": (problem("import datetime\nprint(datetime.date.today().year)", "2025"), "date_dependent"),
    "the day, imported": (
        problem("from datetime import *\nprint(datetime.now().day)", "18"),
        "date_dependent",
    ),
    "the weekday": (problem("import time\nprint(time.localtime().tm_wday)", "2"), "date_dependent"),
    "the day as text": (problem("import time\nprint(time.strftime('%d'))", "18"), "date_dependent"),
    "a failure on one day": (
        problem("import datetime\nassert datetime.date.today().year < 2030\nprint(6)"),
        "date_dependent",
    ),
    "today with a missing library": (
        problem("import no_such_library as ql\nprint(ql.Date.todaysDate())"),
        "date_dependent",
    ),
    "three lines": (problem("print(4)\nprint(5)\nprint(6)"), "multi_answer"),
    "two boxes": (
        problem(r"print('first \\boxed{5} and then, after a while, another one: \\boxed{6}')"),
        "multi_answer",
    ),
    "silence": (problem("6"), "no_output"),
    "blank lines": (problem("print()\nprint(' ')"), "no_output"),
    "an exception": (problem("1 / 0"), "crashed"),
    "a syntax error": (problem("print(6"), "crashed"),
    "an exit code": (problem("print(6)\nimport sys\nsys.exit(3)"), "crashed"),
    "a NUL byte": (problem("print(6)\0"), "crashed"),
    "a hundred megabytes": (problem("print('6' * 10**8)"), "crashed"),
    "too much memory": (problem("x = bytearray(10**11)\nprint(6)"), "crashed"),
    "a question to nobody": (problem("print(input())"), "crashed"),
    "a missing part of a library": (problem("import json.no_such_part\nprint(6)"), "crashed"),
    "free text": (problem(f"print({OTHER_PROSE!r})", PROSE), "undecided"),
    "nothing to compare with": (problem(reference=None), "no_reference"),
    "an empty reference": (problem(reference="  "), "no_reference"),
    "not a number": (problem(None, "nan"), "reference_not_equal_to_itself"),
    "a reference of another type": (problem(None, "perhaps", answer_type="yes_no"), "unparseable_reference"),
    "a solution without an answer": (
        problem(None, "First we add.\nThen we subtract."),
        "unparseable_reference",
    ),
    "a very long reference": (problem(None, "6" * 5000), "unparseable_reference"),
    "a reference its check refuses": (
        problem(None, "3", metadata={"check_code": FOURTH_ROOT}),
        "check_refuses_reference",
    ),
    "a check of everything": (
        problem(None, "3", metadata={"check_code": "def check(answer):\n    return True"}),
        "check_accepts_anything",
    ),
    "a check that fails": (
        problem(None, "2", metadata={"check_code": "def check(answer):\n    return nosuch"}),
        "broken_check",
    ),
    "a check that fails, without a reference": (
        problem(None, None, metadata={"check_code": "def check(answer):\n    return nosuch"}),
        "broken_check",
    ),
    "a check that is none": (problem(None, "2", metadata={"check_code": "def check("}), "broken_check"),
    "a printed answer its check refuses": (
        problem("print(3)", "2", metadata={"check_code": FOURTH_ROOT}),
        "wrong",
    ),
    "a solution that fails its tests": (
        problem("def f(x): return x", None, metadata={"tests": SQUARE}),
        "tests_fail_solution",
    ),
    "a test of everything": (
        problem(None, None, metadata={"tests": ["assert f(2) != 5"]}),
        "tests_accept_anything",
    ),
    "a case that wants nothing": (
        problem(None, None, metadata={"tests": [{"input": "1", "output": ""}]}),
        "tests_accept_anything",
    ),
    "a test that never comes to its assert": (
        problem("def f(x): return x * x", None, metadata={"tests": "for x in []:\n    assert f(x)"}),
        "broken_tests",
    ),
    "tests that are none": (problem(None, None, metadata={"tests": ["f(2) == 4"]}), "broken_tests"),
    "a test with a missing library": (
        problem("def f(x): return x", None, metadata={"tests": ["import no_such", "assert f(1) == 1"]}),
        "missing_library",
    ),
    "an unknown type": (problem(answer_type="numbre"), "unknown_answer_type"),
    "half of the answer": (problem(tolerance=0.5), "absurd_tolerance"),
    "a tolerance on words": (
        problem("print('six')", "six", answer_type="text", tolerance=0.01),
        "absurd_tolerance",
    ),
    "a tolerance below floats": (problem(tolerance=1e-15), "absurd_tolerance"),
    "LoongBench's absolute tolerance": (
        problem("print(0.03)", "0.03", metadata={"answer_tolerance": "1"}),
        "absurd_tolerance",
    ),
    "an absolute tolerance on 0": (
        problem("print(0)", "0", metadata={"answer_tolerance": 0.1}),
        "absurd_tolerance",
    ),
    "a missing library": (problem("import no_such_library\nprint(6)"), "missing_library"),
    "a clock without effect": (
        problem("import datetime\nx = datetime.date.today()\nprint(6)"),
        "asks_for_today",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    planted, kind = FAULTS[name]
    report = audit_here([planted])
    assert kind in report.counts, report.findings
    assert report.clean == (kind == "asks_for_today")


def test_every_kind_of_finding_is_planted_somewhere():
    elsewhere = {"timeout", "duplicate", "unreadable", "not_run"}
    assert {kind for _, kind in FAULTS.values()} | elsewhere == set(KINDS) | set(APART)


SOUND_PROGRAMS = {
    "tests and a solution": problem("def f(x): return x * x", None, metadata={"tests": SQUARE}),
    "tests alone": problem(None, None, metadata={"tests": SQUARE}),
    "cases": problem("print(input())", None, metadata={"tests": [{"input": "7", "output": "7"}]}),
    "a check and a reference": problem(None, "2", metadata={"check_code": FOURTH_ROOT}),
    "a check alone": problem(None, None, metadata={"check_code": FOURTH_ROOT}),
    "another right answer": problem("print(-2)", "2", metadata={"check_code": FOURTH_ROOT}),
}


@pytest.mark.parametrize("sound", SOUND_PROGRAMS.values(), ids=SOUND_PROGRAMS.keys())
def test_sound_tests_and_check_programs_give_no_finding(sound):
    report = audit_here([sound])
    assert report.findings == () and report.clean
    assert report.programs == report.ran == 1


@pytest.mark.parametrize(
    ("code", "reference", "fields"),
    [
        ("print(6)", "6", {}),
        ("print('reading the data')\nprint(r'\\boxed{6}')", "6", {}),
        ("print('steps: 1, 2')\nprint('The final answer is 6.')", "6", {}),
        ("import numpy\nprint(numpy.array([[1, 2], [3, 4]]))", "[[1, 2], [3, 4]]", {"answer_type": "matrix"}),
        ("print({'b', 'a', 'c', 'd'})", "{'a', 'b', 'c', 'd'}", {}),
        ("print(sum(1 / n for n in {0.1, 0.2, 0.3, 0.7}))", "19.76190476", {"tolerance": 1e-6}),
        ("print('3.3766 atm')", "3.4 atm", {}),
        ("print('2.00169')", "2", {"metadata": {"unit": "$\\mathrm{eV}$"}}),
        ("print(-0.004452429111817974)", "-0.00445242911181776", {}),
        ("print(0.197)", "0.2", {"metadata": {"answer_tolerance": "0.005"}}),
        ("import time\nt = time.time()\nwhile time.time() < t + 0.01: pass\nprint(6)", "6", {}),
        ("import datetime\nprint(datetime.date(2024, 2, 28) + datetime.timedelta(2))", "2024-03-01", {}),
        ("import random\nrandom.seed(3)\nprint(6 + 0 * random.random())", "6.0", {}),
        (None, "A worked solution.\n#### 72", {}),
        (None, r"\frac{1}{2}", {}),
        ("  ", "B", {"answer_type": "option"}),
    ],
)
def test_a_sound_problem_gives_no_finding(code, reference, fields):
    report = audit_here([problem(code, reference, **fields)])
    assert report.findings == () and report.clean
    assert report.programs == report.ran == bool((code or "").strip())


def test_a_program_that_never_ends_is_stopped_and_not_run_again():
    calls = []

    def run(code, hash_seed, day):
        calls.append(day)
        result = run_python(code, timeout=0.3, date=day, allow_weak_isolation=True)
        return result.status, result.stdout, result.detail

    report = audit([problem("while True: pass")], run=run)
    found = [(finding.kind, finding.detail) for finding in report.findings]
    assert found == [("timeout", "it ran longer than 0.3 s")] and calls == [DAYS[0]]


def test_on_a_weak_machine_programs_are_run_only_when_that_is_allowed(monkeypatch, folder, capsys):
    monkeypatch.setattr(program, "_isolation", Isolation(level="L1", missing=("L2: Landlock: not there",)))
    assert audit([problem(None, "6")]).clean  # without programs nothing is needed
    with pytest.raises(SandboxTooWeak, match="Landlock"):
        audit([problem()])
    assert audit([problem()], allow_weak_isolation=True).clean
    file = str(folder / "sound.jsonl")
    assert cli.main(["audit", file]) == 2
    assert "--allow-weak-isolation" in capsys.readouterr().err
    assert cli.main(["audit", file, "--allow-weak-isolation"]) == 0


@pytest.mark.parametrize(("option", "value"), [("timeout", 0), ("timeout", -1.0), ("workers", 0)])
def test_wrong_options_are_refused_also_without_programs(option, value):
    with pytest.raises(ValueError, match=option):
        audit([], **{option: value})


def scripted(answers):
    """A runner that prints what `answers` says for (hash seed, day), and how often each was asked."""
    calls = []

    def run(code, hash_seed, day):
        calls.append((hash_seed, DAYS.index(day)))
        return "ok", str(answers(hash_seed, DAYS.index(day), len(calls))), ""

    return run, calls


@pytest.mark.parametrize(
    ("answers", "kind", "said", "runs"),
    [
        (lambda seed, day, call: 6, None, "", 2),
        (lambda seed, day, call: call, "non_deterministic", "two runs alike", 3),
        (lambda seed, day, call: seed, "non_deterministic", "hash seed", 4),
        (lambda seed, day, call: day, "date_dependent", "0 and 1 on 2025-06-18 and 2031-11-09", 4),
        (lambda seed, day, call: f"6.{day}", "date_dependent", "6.0 and 6.1", 4),
    ],
)
def test_two_more_runs_tell_the_cause_of_a_difference(answers, kind, said, runs):
    run, calls = scripted(answers)
    findings = audit([problem(reference="6")], run=run).findings
    assert [finding.kind for finding in findings] == ([kind] if kind else [])
    assert all(said in finding.detail for finding in findings)
    assert len(calls) == runs and calls[:2] == [(0, 0), (1, 1)]


def test_a_runner_that_cannot_start_is_reported_apart():
    report = audit([problem()], run=lambda *_: ("setup_failed", "", "no namespaces"))
    assert [(f.kind, f.detail) for f in report.findings] == [("not_run", "no namespaces")]
    assert (report.programs, report.ran, report.clean) == (1, 0, False)


def test_long_details_are_cut_and_ids_kept():
    rows = [problem(None, "x" * 3000).model_copy(update={"id": f"row {n}"}) for n in range(3)]
    findings = audit(rows).findings
    assert [finding.id for finding in findings] == ["row 0", "row 1", "row 2"]
    assert max(len(finding.detail) for finding in findings) <= 200


@pytest.mark.parametrize(
    "reference", ["\x00", "(" * 3000, "[" * 300 + "1" + "]" * 300, "10^{10^{10}}", "\ud800", "9" * 1_000_000]
)
def test_hostile_references_and_answers_give_a_result(reference):
    report = audit_here([problem(None, reference), problem(f"print(ascii({reference!r}))", "6")])
    assert report.problems == 2 and not report.clean


def test_a_notebook_shows_the_findings_as_a_table():
    text = audit_here([problem("print('left_hand')", "six", answer_type="text")])._repr_markdown_()
    assert text.startswith("**1 problems, 1 of 1 programs ran: 1 wrong**\n\n| id | found | detail |")
    assert text.count("\n") == 4 and r"prints left\_hand, reference six" in text


def test_an_id_with_signs_of_markdown_breaks_no_table():
    broken = problem("print('no')", "six", answer_type="text")
    text = audit_here([broken.model_copy(update={"id": "a|b\\|c\n_d_"})])._repr_markdown_()
    (line,) = text.splitlines()[4:]
    assert line.startswith(r"| a\|b\\\|c \_d\_ | wrong | ")


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="no kind of finding 'worng'"):
        audit([]).of("worng")


# files and the command

WEAK = "--allow-weak-isolation"


@pytest.fixture
def folder(tmp_path):
    def row(code, answer, **more):
        return {"question": f"What does it print? {code}", "final_answer": answer, "rationale": code, **more}

    sound = row("print(6)", "6", metadata={"domain": "Math", "license": "MIT"})
    (tmp_path / "sound.jsonl").write_text(json.dumps(sound) + "\n")
    (tmp_path / "loong" / "finance").mkdir(parents=True)
    wrong = [row("print(5)", "6", id="f-1"), row("import no_such_library", "6", id="f-2")]
    (tmp_path / "loong" / "finance" / "seed_dataset.json").write_text(json.dumps(wrong + wrong[:1]))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.json").write_text("{")
    (tmp_path / "notes.txt").write_text("no problems here")
    return tmp_path


def test_a_folder_is_audited_file_by_file(folder):
    reports = dict(audit_files(folder, timeout=5.0, allow_weak_isolation=True))
    assert list(reports) == ["broken.json", "loong/finance/seed_dataset.json", "sound.jsonl"]
    assert reports["broken.json"].counts == {"unreadable": 1}
    assert reports["loong/finance/seed_dataset.json"].counts == {
        "wrong": 1,
        "missing_library": 1,
        "duplicate": 1,
    }
    assert reports["sound.jsonl"].clean


def test_the_command_prints_a_table_and_fails_when_anything_is_wrong(folder, capsys):
    assert cli.main(["audit", str(folder), WEAK]) == 1
    out, err = capsys.readouterr()
    header, *lines = out.splitlines()
    assert header.split() == [
        "file",
        "problems",
        "ran",
        "wrong",
        "duplicate",
        "unreadable",
        "missing_library",
    ]
    assert any(line.split() == ["total", "3", "2", "1", "1", "1", "1"] for line in lines)
    assert "loong/finance/seed_dataset.json  f-1  wrong: prints 5, reference 6 (different values)" in lines
    assert "loong/finance/seed_dataset.json  1 programs  missing_library: no_such_library" in lines
    assert lines[-1].startswith("3 problems, 2 of 3 programs ran: ")
    assert err.count("\n") == 3  # a line of progress for each file


def test_the_command_succeeds_on_a_clean_file(folder, capsys):
    assert cli.main(["audit", str(folder / "sound.jsonl"), WEAK]) == 0
    assert "1 problems, 1 of 1 programs ran: nothing found" in capsys.readouterr().out


def test_the_command_gives_json(folder, capsys):
    assert cli.main(["audit", str(folder / "loong"), "--json", WEAK]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["clean"] is False
    (report,) = found["files"].values()
    assert report["problems"] == report["programs"] == 2 and report["ran"] == 1
    assert {"id": "f-1", "kind": "wrong", "detail": "prints 5, reference 6 (different values)"} in report[
        "findings"
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [("absent", "no file or folder"), ("empty", "holds no .json, .jsonl, .csv, .parquet file")],
)
def test_a_wrong_path_is_exit_code_2(tmp_path, capsys, path, said):
    (tmp_path / "empty").mkdir()
    assert cli.main(["audit", str(tmp_path / path)]) == 2
    assert said in capsys.readouterr().err
