"""Verifiers: a completion of a problem in, its final answer and a verdict out.

    AnswerVerifier  compares the final answer with the reference (check.py); the default everywhere
    CheckVerifier   problem.metadata["check_code"]: a program that defines `check(answer) -> bool`, for
                    problems with several right answers
    TestsVerifier   problem.metadata["tests"]: the answer is a program that must pass them (code_tests.py)

AnswerVerifier passes a problem with tests or a check program on to these; `cotkit.judge.ModelVerifier` asks a
model where none can decide. Foreign programs run in the sandbox only. No answer is False (`no_answer`); a
check or a machine that fails is None.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from cotkit import aio
from cotkit.problems import Problem
from cotkit.records import Extraction, Verdict
from cotkit.shown import Shown
from cotkit.verify.check import acheck_answer, check_answer
from cotkit.verify.code_asserts import Asserts, read_tests
from cotkit.verify.code_blocks import extract_code
from cotkit.verify.code_tests import Said, converse, run_tests
from cotkit.verify.extraction import extract, reference_answer
from cotkit.verify.policy import AnswerPolicy
from cotkit.verify.sandbox.job import Job
from cotkit.verify.sandbox.program import level_for

Verified = tuple[Extraction, Verdict]
UNDECIDED = {"setup_failed": "sandbox_failed", "only_beside": "tests_beside"}  # status of a program: method


class Verifier(Shown):
    """What every verifier is; one of your own gives `describe` and `averify`.

    What must stop a run (`BudgetExceeded`, a `ModelError` with `stops_run`) is raised by `averify`; every
    other failure is a verdict of None with its reason.
    """

    calls_model = False

    @property
    def models(self) -> list[Any]:
        """The ChatModels it asks."""
        return []

    def describe(self) -> dict[str, Any]:
        """What a run records about it and compares on resume; no keys."""
        raise NotImplementedError

    def shown(self) -> dict[str, Any]:
        return self.describe()

    def check_problems(self, problems: Iterable[Problem]) -> None:
        """Raises ValueError, naming the problem, for what no answer could be verified by; before any call."""

    def can_check(self, problem: Problem) -> bool:
        """False when the problem brings nothing to check an answer by."""
        return True

    def gold(self, problem: Problem) -> str | None:
        """The answer in the problem's reference: a hint to give, and what feedback must not tell."""
        return reference_answer(problem.reference)

    async def averify(
        self, problem: Problem, text: str, *, truncated: bool = False, ledger: Any = None
    ) -> Verified:
        """The final answer in `text` and the verdict on it. `truncated`: the text was cut at max_tokens."""
        raise NotImplementedError

    def verify(self, problem: Problem, text: str) -> Verdict:
        """The verdict of `averify`, blocking, for a notebook cell."""
        return aio.run(self.averify(problem, text))[1]


class AnswerVerifier(Verifier):
    """Extracts the final answer and compares it with the reference, as docs/verification.md says.

    policy: how answers are compared. solution_pattern, trace_pattern: regular expressions with one group for
    the answer in the reference and in the completion; None = the markers of `extract_answer`.
    """

    def __init__(
        self,
        policy: AnswerPolicy | None = None,
        *,
        solution_pattern: str | None = None,
        trace_pattern: str | None = None,
    ):
        self.policy = policy or AnswerPolicy()
        if not isinstance(self.policy, AnswerPolicy):
            raise TypeError(f"policy must be an AnswerPolicy, got {type(policy).__name__}")
        _check_pattern("solution_pattern", solution_pattern)
        self.solution_pattern, self.trace_pattern = solution_pattern, trace_pattern
        self.by_program = (TestsVerifier(), CheckVerifier(trace_pattern=trace_pattern))

    def describe(self) -> dict[str, Any]:
        return {
            "verifier": "AnswerVerifier",
            "answer_policy": dataclasses.asdict(self.policy),
            "solution_pattern": self.solution_pattern,
            "trace_pattern": self.trace_pattern,
        }

    def check_problems(self, problems: Iterable[Problem]) -> None:
        tried: set[str | None] = set()  # answer types without a tolerance
        for problem in problems:
            if problem.tolerance is not None or problem.answer_type not in tried:
                try:
                    check_answer("0", "0", problem.answer_type, problem.tolerance)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"problem {problem.id!r}: {error}") from None
                if problem.tolerance is None:
                    tried.add(problem.answer_type)
            for verifier in self.by_program:
                verifier.check_problems([problem])

    def can_check(self, problem: Problem) -> bool:
        return has_program(problem) or self.gold(problem) is not None

    def gold(self, problem: Problem) -> str | None:
        return reference_answer(problem.reference, self.solution_pattern)

    async def averify(
        self, problem: Problem, text: str, *, truncated: bool = False, ledger: Any = None
    ) -> Verified:
        for verifier in self.by_program:
            if verifier.can_check(problem):
                return await verifier.averify(problem, text, truncated=truncated)
        found, gold = extract(text, self.trace_pattern), self.gold(problem)
        if gold is None:
            why = (
                "the problem has no reference" if problem.reference is None else "no answer in the reference"
            )
            return found, Verdict(correct=None, method="no_reference", reason=why)
        if not found.answer:
            return found, _no_answer(truncated, "no final answer found")
        kind, tolerance = problem.answer_type, problem.tolerance
        return found, await acheck_answer(found.answer, gold, kind, tolerance, policy=self.policy)


class ProgramVerifier(Verifier):
    """What the two verifiers that run programs share.

    timeout: seconds for one run of a program. allow_weak_isolation: run also below sandbox level L2.
    """

    key = ""  # of the problem's metadata
    missing = ""  # what a completion without an answer lacks

    def __init__(self, *, timeout: float = 10.0, allow_weak_isolation: bool = False):
        self.options = {"timeout": timeout, "allow_weak_isolation": allow_weak_isolation}
        Job("", **self.options)  # raises what running would

    def describe(self) -> dict[str, Any]:
        return {"verifier": type(self).__name__, **self.options}

    def can_check(self, problem: Problem) -> bool:
        return problem.metadata.get(self.key) is not None

    def check_problems(self, problems: Iterable[Problem]) -> None:
        """Raises ValueError for a program or tests that are none, SandboxTooWeak where they cannot run."""
        for problem in filter(self.can_check, problems):
            try:
                self._read(problem.metadata[self.key])
            except (SyntaxError, ValueError) as error:
                raise ValueError(f"problem {problem.id!r}, metadata {self.key!r}: {error}") from None
            level_for(Job("", **self.options))

    async def averify(
        self, problem: Problem, text: str, *, truncated: bool = False, ledger: Any = None
    ) -> Verified:
        found = self._extract(problem, text)
        if not self.can_check(problem):
            why = f"the problem has no {self.key!r}"
            return found, Verdict(correct=None, method="no_reference", reason=why)
        verdict = await self._verdict(problem, found) if found.answer else None
        if verdict is None:
            return found.model_copy(update={"answer": None}), _no_answer(truncated, self.missing)
        return found, verdict


class CheckVerifier(ProgramVerifier):
    """Asks the problem's own program: `metadata["check_code"]` defines `check(answer: str) -> bool`.

    The answer reaches `check` as a string, never as code. A check that fails, hangs, exits or returns
    anything but True or False leaves the answer undecided. A check that evaluates the answer (`eval`,
    `sympify`) hands its own process to whoever wrote it: read it with `ast.literal_eval` or `json`.
    """

    key, missing = "check_code", "no final answer found"

    def __init__(self, *, trace_pattern: str | None = None, **options: Any):
        super().__init__(**options)
        _check_pattern("trace_pattern", trace_pattern)
        self.trace_pattern = trace_pattern

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "trace_pattern": self.trace_pattern}

    def _read(self, given: Any) -> Any:
        if not isinstance(given, str) or "check" not in given:
            raise ValueError("it must be the text of a program that defines check(answer)")
        return compile(given, "<check_code>", "exec", dont_inherit=True)

    def _extract(self, problem: Problem, text: str) -> Extraction:
        return extract(text, self.trace_pattern)

    async def _verdict(self, problem: Problem, found: Extraction) -> Verdict:
        calls = [["name", "check"], ["call", [["name", "check"], found.answer], {}]]
        code = problem.metadata[self.key]
        said = await converse("program", self.options, code=code, calls=calls)
        told = _told(said)
        if isinstance(told, bool):
            return Verdict(correct=told, method="check", reason="the problem's own check program")
        method = {"timeout": "timeout", "setup_failed": "sandbox_failed"}.get(said.status, "error")
        return Verdict(correct=None, method=method, reason=f"the check program: {told}")


def _told(said: Said) -> bool | str:
    """True or False, else why a check program told neither."""
    if said.value is None:
        return said.reason
    try:
        *_, (value, _) = json.loads(said.value)
    except (ValueError, TypeError, RecursionError):
        return "what it told cannot be read"
    if isinstance(value, dict):
        return ": ".join(map(str, [value.get("error"), *value.get("args", ())]))
    return value if isinstance(value, bool) else f"it returned {str(value)[:80]}, not True or False"


class TestsVerifier(ProgramVerifier):
    """Runs the program in the completion against `metadata["tests"]`: {"input", "output"} cases, assert
    statements, or a test program. How a hostile program is kept from passing: code_tests.py.

    True needs every test, and of each an assert that was reached and held; the reason says how many passed.
    Its method is "tests", or "tests_beside" when a test had to run in the program's own process, where a
    program that looks for it can forge it. A program that fails, or runs out of time or memory, is wrong;
    only a fault of the sandbox or of a test, and what nobody outside the program can compare, are undecided
    (also with "tests_beside": a test that failed apart from the program and holds beside it).
    After a timeout the remaining tests are not run.
    """

    key, missing = "tests", "no code found"
    __test__ = False  # no test class of pytest

    def _read(self, given: Any) -> Any:
        return read_tests(given)

    def _extract(self, problem: Problem, text: str) -> Extraction:
        try:
            tests = self._read(problem.metadata.get(self.key))
        except ValueError:
            tests = []
        wanted = {name for test in tests if isinstance(test, Asserts) for name in test.free}
        return extract_code(text, frozenset(wanted))

    async def _verdict(self, problem: Problem, found: Extraction) -> Verdict | None:
        try:
            tests = self._read(problem.metadata[self.key])
        except ValueError as error:
            return Verdict(correct=None, method="error", reason=str(error))
        outcomes = await run_tests(found.answer, tests, problem.tolerance, **self.options)
        failed = [outcome for outcome in outcomes if not outcome.passed]
        beside = sum(outcome.beside for outcome in outcomes)
        method = "tests_beside" if beside else "tests"
        if not failed:
            where = f", {beside} of them beside the program, which could forge that" if beside else ""
            return Verdict(correct=True, method=method, reason=f"all {len(tests)} tests pass{where}")
        first = next((outcome for outcome in failed if outcome.passed is False), failed[0])
        if found.how == "whole_text" and first.reason.startswith(("SyntaxError", "IndentationError")):
            return None  # prose
        counts = f"{len(outcomes) - len(failed)} of {len(tests)} tests pass"
        reason = f"{counts}; test {outcomes.index(first) + 1}: {first.reason or first.status}"
        method = "tests"
        if first.passed is None:
            method = UNDECIDED.get(first.status, "error")
        return Verdict(correct=first.passed, method=method, reason=reason)


def code_form(problem: Problem) -> str | None:
    """What the program that `problem` asks for must look like, in a sentence; None = it asks for none."""
    if (given := problem.metadata.get(TestsVerifier.key)) is None:
        return None
    try:
        tests = read_tests(given)
    except ValueError:
        return None
    names = sorted({name for test in tests if isinstance(test, Asserts) for name in test.free})
    if not names:
        return "The program reads its input from stdin and prints its output to stdout."
    return f"The program must define {', '.join(names)}. It reads no input."


def has_program(problem: Problem) -> bool:
    """True when the problem brings tests or a check program: its reference is one right answer of several."""
    return any(problem.metadata.get(kind.key) is not None for kind in (TestsVerifier, CheckVerifier))


def _no_answer(truncated: bool, why: str) -> Verdict:
    reason = "cut off before an answer" if truncated else why
    return Verdict(correct=False, method="no_answer", reason=reason)


def _check_pattern(name: str, pattern: str | None) -> None:
    try:
        extract("", pattern)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
