"""`audit`: is what stands in the file true, before anyone pays for a run on it?

Of each problem the reference is checked: it must equal itself, and the checker must be able to tell a wrong
answer from it. A check program must accept the reference and refuse something; tests must pass the solution
and fail a program that does nothing. A program that prints the answer (`solution_code`) is run twice, on
another day and with another hash seed; what it prints must be one answer, the same both times, and the
reference. When the two runs differ, two more tell which of chance, hash seed and date is the cause. Programs
run in the sandbox.

`KINDS` in audit_report.py lists what can be found. A library that is missing here says nothing about the
problem: it is reported apart, and so is a program that reads the clock with no effect on its answer.
"""

from __future__ import annotations

import math
import pathlib
import re
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from cotkit.problems import Problem, ProblemError, load_problems
from cotkit.records import Verdict
from cotkit.verify.audit_report import KINDS, NOT_RUN, AuditReport, Finding
from cotkit.verify.check import check_answer
from cotkit.verify.code_asserts import Asserts, read_tests
from cotkit.verify.extraction import extract, reference_answer, top_boxes
from cotkit.verify.normalise import canonical, is_closed
from cotkit.verify.policy import ANSWER_TYPES
from cotkit.verify.present_day import asks_for_today
from cotkit.verify.quantities import read_quantity
from cotkit.verify.sandbox import run_python
from cotkit.verify.sandbox.job import MOST_SEED, Job
from cotkit.verify.sandbox.program import level_for
from cotkit.verify.verifiers import CheckVerifier, TestsVerifier, has_program

DAYS = ("2025-06-18", "2031-11-09")  # another year, month, day of the month, weekday
WIDEST, FINEST = 0.05, 1e-12  # relative tolerances outside these accept too much, or no float at all
FLOAT_DIGITS, FLOAT_NOISE = 9, 1e-9  # a reference with more digits is a float as printed; the last ones drift
WITHOUT_TOLERANCE = ("option", "yes_no", "text", "date", "time", "ratio", "algebra")
MEMORY_MB = 2048  # of address space, for a program
FILES = (".json", ".jsonl", ".csv", ".parquet")
ROWS = re.compile(r"\]\s*\n\s*\[")  # between the rows of a numpy array
MISSING = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)'")

DECOYS = {  # an answer of each type that is wrong for any other reference
    "option": ("A", "H"),
    "yes_no": ("yes", "no"),
    "text": ("something else",),
    "date": ("1901-02-03",),
    "time": ("3:07",),
    "set": ("{7919, 7927}",),
    "list": ("[7919, 7927]",),
    "interval": ("(7919, 7927)",),
    "matrix": ("[[7919]]",),
    "dict": ("{'something else': 7919}",),
    "ratio": ("7919:2",),
    None: ("7919", "something else", "[7919, 7927]", "{'something else': 7919}", "yes", "A", "1901-02-03"),
}

Run = Callable[[str, int, str], tuple[str, str, str]]  # (code, hash_seed, day) -> (status, stdout, stderr)


def audit(
    problems: Iterable[Problem],
    *,
    timeout: float = 20.0,
    workers: int = 2,
    allow_weak_isolation: bool = False,
    run: Run | None = None,
) -> AuditReport:
    """Check every reference, and run every program twice in the sandbox.

    timeout: seconds for one run of a program; `workers` run at once.
    allow_weak_isolation: run programs also where they could read files and use the network.
    run: instead of the sandbox, (code, hash_seed, day) -> (status, stdout, stderr), where `day` (YYYY-MM-DD)
        is what the program must take for today and status is ok, error, timeout, setup_failed (not run), or
        any other word for a failure. It is called from `workers` threads at once.

    Raises SandboxTooWeak, before anything runs, when there are programs and the machine is below level L2.
    What a problem holds never raises: all of that is a finding.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    begun, problems = time.monotonic(), list(problems)
    programs = sum(_has_solution(problem) or has_program(problem) for problem in problems)
    run = run or _in_sandbox(timeout, allow_weak_isolation, needed=programs > 0)
    options = {"timeout": timeout, "allow_weak_isolation": allow_weak_isolation}
    tests, check = TestsVerifier(**options), CheckVerifier(**options)
    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(lambda problem: list(_examine(problem, run, tests, check)), problems))
    findings = tuple(finding for of_one in found for finding in of_one)
    not_run = sum(finding.kind in NOT_RUN for finding in findings)
    return AuditReport(len(problems), programs, programs - not_run, findings, time.monotonic() - begun)


def _in_sandbox(timeout: float, allow_weak_isolation: bool, needed: bool) -> Run:
    options = {"timeout": timeout, "memory_mb": MEMORY_MB, "allow_weak_isolation": allow_weak_isolation}
    wanted = Job("", **options)
    if needed:
        level_for(wanted)

    def run(code: str, hash_seed: int, day: str) -> tuple[str, str, str]:
        seed = secrets.randbelow(MOST_SEED + 1)  # the sandbox's usual one would make chance look like none
        result = run_python(code, seed=seed, hash_seed=hash_seed, date=day, **options)
        return result.status, result.stdout, result.stderr if result.status == "error" else result.detail

    return run


def audit_files(path: str | pathlib.Path, **options) -> Iterator[tuple[str, AuditReport]]:
    """(file name, AuditReport) for the file `path`, or for every file of problems in the folder `path`.

    Rows may have any form `load_problems` knows; `options` are those of `audit`. Raises FileNotFoundError or
    ValueError when there is no such file; a file that cannot be read is a finding.
    """
    path = pathlib.Path(path).expanduser()
    files = [path] if path.is_file() else sorted(_files_below(path))
    if not path.exists():
        raise FileNotFoundError(f"no file or folder {str(path)!r} to audit")
    if not files:
        raise ValueError(f"{path} holds no {', '.join(FILES)} file to audit")
    for file in files:
        yield str(file if file == path else file.relative_to(path)), _audit_file(file, options)


def _files_below(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix.lower() in FILES and file.is_file() and not hidden:
            yield file


def _audit_file(file: pathlib.Path, options: dict) -> AuditReport:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            problems = load_problems(file, duplicates="fix")
        except (ProblemError, OSError) as error:
            return AuditReport(findings=(Finding("", "unreadable", str(error)),))
    report = audit(problems, **options)
    repeats = tuple(
        Finding("", "duplicate", str(warning.message).removeprefix("duplicates: "))
        for warning in said
        if str(warning.message).startswith("duplicates: ")
    )
    return AuditReport(
        report.problems, report.programs, report.ran, repeats + report.findings, report.seconds
    )


def _has_solution(problem: Problem) -> bool:
    return bool((problem.solution_code or "").strip())


def _examine(problem: Problem, run: Run, tests: TestsVerifier, check: CheckVerifier) -> Iterator[Finding]:
    rules = _rules(problem)
    found = list(rules.faults)
    if tests.can_check(problem):
        found += _tests_faults(problem, tests)
    else:
        if check.can_check(problem):
            found += _check_faults(problem, check)
            rules = rules._replace(verify=lambda answer: check.verify(problem, rf"\boxed{{{answer}}}"))
        else:
            found += _reference_faults(problem.reference, rules)
        if _has_solution(problem):
            found += _program_faults(problem, rules, run)
    return (Finding(problem.id, kind, _short(detail)) for kind, detail in found)


Fault = tuple[str, str]  # kind, detail


class Rules(NamedTuple):
    """How an answer to one problem is compared, and what is wrong with what the row says about that."""

    answer_type: str | None
    tolerance: float | None
    faults: tuple[Fault, ...] = ()
    verify: Callable[[str], Verdict] | None = None  # the problem's own check program

    def compare(self, prediction: str, reference: str, tolerance: float | None = None) -> Verdict:
        return check_answer(prediction, reference, self.answer_type, tolerance or self.tolerance)


def _rules(problem: Problem) -> Rules:
    faults: list[Fault] = []
    answer_type = problem.answer_type
    if answer_type is not None and answer_type not in ANSWER_TYPES:
        faults.append(("unknown_answer_type", f"{answer_type!r}; known are {', '.join(ANSWER_TYPES)}"))
        answer_type = None
    gold = read_quantity(canonical((problem.reference or "")[:200]))
    number = gold.number if gold else None
    tolerance, said = problem.tolerance or None, f"{problem.tolerance or 0:g}"
    if tolerance is None and (absolute := _absolute_tolerance(problem)):
        size = abs(number.approximate()) if number else 0.0
        tolerance = absolute / size if size else math.inf
        said = f"{absolute:g} absolute, {tolerance:.2g} of the reference {problem.reference}"
    if tolerance is not None and (fault := _tolerance_fault(tolerance, said, problem.answer_type)):
        faults.append(("absurd_tolerance", fault))
        tolerance = None
    if answer_type is None and number and (number.decimal or gold.units or "unit" in problem.metadata):
        answer_type = "quantity"  # a row that says nothing: a measured value shows its own precision
        if tolerance is None and number.digits > FLOAT_DIGITS:
            tolerance = FLOAT_NOISE
    return Rules(answer_type, tolerance, tuple(faults))


def _absolute_tolerance(problem: Problem) -> float | None:
    """LoongBench's `answer_tolerance`, which is absolute; 0 means none."""
    try:
        value = float(problem.metadata.get("answer_tolerance"))
    except (TypeError, ValueError):
        return None
    return value if value > 0 else None


def _tolerance_fault(tolerance: float, said: str, answer_type: str | None) -> str | None:
    if answer_type in WITHOUT_TOLERANCE:
        return f"{said}: an answer of type {answer_type} is right or wrong"
    if not tolerance <= WIDEST:
        return f"{said}: wider than {WIDEST:g} of the answer"
    if tolerance < FINEST:
        return f"{said}: finer than floating point"
    return None


def _reference_faults(reference: str | None, rules: Rules) -> list[Fault]:
    if reference is None or not reference.strip():
        return [("no_reference", KINDS["no_reference"])]
    gold = reference_answer(reference)
    if gold is None:
        return [("unparseable_reference", "the worked solution names no answer")]
    # in a box, because an answer that is the reference letter by letter is accepted unread
    itself = rules.compare(rf"\boxed{{{gold}}}", reference)
    if itself.correct is False or gold.lower() == "nan":
        return [("reference_not_equal_to_itself", f"{gold}: {itself.reason}")]
    if itself.correct is None:
        return [("unparseable_reference", f"{gold}: {itself.reason}")]
    decoys = DECOYS.get(rules.answer_type, ("7919", "7927"))
    verdicts = [rules.compare(decoy, reference) for decoy in decoys]
    if all(verdict.correct is None for verdict in verdicts):
        return [("unparseable_reference", f"{gold}: {verdicts[0].reason}")]
    return []


def _check_faults(problem: Problem, check: CheckVerifier) -> Iterator[Fault]:
    try:
        check.check_problems([problem])
    except ValueError as error:
        yield "broken_check", str(error)
        return
    gold = reference_answer(problem.reference)
    if gold is not None:
        verdict = check.verify(problem, rf"\boxed{{{gold}}}")
        if verdict.correct is not True:
            kind = "broken_check" if verdict.correct is None else "check_refuses_reference"
            yield kind, f"on {gold}: {verdict.reason}"
            return
    verdicts = [check.verify(problem, rf"\boxed{{{decoy}}}") for decoy in DECOYS[None]]
    if all(verdict.correct for verdict in verdicts):
        yield "check_accepts_anything", f"among others {', '.join(DECOYS[None][:3])}"
    elif gold is None and all(verdict.correct is None for verdict in verdicts):
        yield "broken_check", verdicts[0].reason


def _tests_faults(problem: Problem, tests: TestsVerifier) -> Iterator[Fault]:
    try:
        tests.check_problems([problem])
    except ValueError as error:
        yield "broken_tests", str(error)
        return
    if _has_solution(problem):
        verdict = tests.verify(problem, f"```python\n{problem.solution_code}\n```")
        if missing := MISSING.search(verdict.reason):
            yield "missing_library", missing[1]
            return
        if verdict.correct is not True:
            yield "broken_tests" if verdict.correct is None else "tests_fail_solution", verdict.reason
            return
    given = read_tests(problem.metadata[tests.key])
    names = {name for test in given if isinstance(test, Asserts) for name in test.free}
    idle = "\n".join(["pass", *(f"def {name}(*given, **named): return None" for name in sorted(names))])
    verdict = tests.verify(problem, f"```python\n{idle}\n```")
    if verdict.correct is None:
        yield "broken_tests", verdict.reason
    elif verdict.correct:
        yield "tests_accept_anything", verdict.reason


class Printed(NamedTuple):
    """What one run gave: `kind` is "" for a run with an answer, else the kind of its failure."""

    kind: str
    answer: str
    several: bool = False


def _program_faults(problem: Problem, rules: Rules, run: Run) -> Iterator[Fault]:
    code = problem.solution_code

    def printed(hash_seed: int, day: str) -> Printed:
        return read_output(*run(code, hash_seed, day))

    today = asks_for_today(code)
    first = printed(0, DAYS[0])
    if first.kind:
        yield first.kind, first.answer
        if today:
            yield "date_dependent", f"not measured; {today[0]}"
        return
    second = printed(1, DAYS[1])
    if not _same_run(first, second, rules):
        yield _cause(first, second, printed, rules)
        return
    if today:
        yield "asks_for_today", today[0]
    if first.several:
        yield "multi_answer", first.answer
    if problem.reference or rules.verify:
        check = rules.verify or (lambda answer: rules.compare(answer, problem.reference))
        verdict = check(first.answer)
        if verdict.correct is not True:
            kind = "undecided" if verdict.correct is None else "wrong"
            yield kind, f"prints {first.answer}, reference {problem.reference} ({verdict.reason})"


def _same_run(one: Printed, other: Printed, rules: Rules) -> bool:
    if one.kind or other.kind or one.answer == other.answer:
        return one.kind == other.kind
    return rules.compare(one.answer, other.answer, FLOAT_NOISE).correct is True


def _cause(first: Printed, second: Printed, printed: Callable, rules: Rules) -> Fault:
    """Why two runs differ that had another hash seed and another day."""
    shown = f"{first.answer} and {second.answer}"
    again = printed(0, DAYS[0])
    if not _same_run(first, again, rules):
        return "non_deterministic", f"two runs alike print {first.answer} and {again.answer}"
    if _same_run(first, printed(0, DAYS[1]), rules):
        return "non_deterministic", f"another hash seed, another answer: {shown}"
    return "date_dependent", f"{shown} on {DAYS[0]} and {DAYS[1]}"


def read_output(status: str, stdout: str, stderr: str) -> Printed:
    """What a run printed, as the one answer it means, or how it failed."""
    if status == "setup_failed":
        return Printed("not_run", stderr.strip() or status)
    if status != "ok":
        last = (stderr.strip().splitlines() or [status])[-1]
        if missing := MISSING.search(last):
            return Printed("missing_library", missing[1])
        return Printed("timeout" if status == "timeout" else "crashed", last)
    text = stdout.replace("\x00", "").strip()
    if not text:
        return Printed("no_output", "it ends without a word")
    marked = extract(text)
    if marked.answer and marked.how not in ("bare", "none"):
        boxes = {content for _, _, content in top_boxes(text)} if marked.how == "box" else ()
        return Printed("", marked.answer, len(boxes) > 1)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 or is_closed(text):
        return Printed("", ROWS.sub("], [", text))
    return Printed("", lines[-1], several=True)


def _short(text: str, most: int = 200) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
