r"""Answers that are programs: where the code stands in a completion, what its tests are, and running them.

A candidate is hostile: it may print "PASS", exit, replace built-ins, return objects that equal everything, or
read its own process. So a pass needs what the candidate does not have, the expected value:

- an input/output case: the program runs with `input` as stdin; its stdout is compared here, outside
- `assert f(x) == y`: `f(x)` alone is evaluated beside the candidate, in a process of its own, and its value
  comes back as text; `y` is a literal read here, or evaluated in another process without the candidate
- any other test (`assert is_prime(7)`, a `check` function with asserts inside): runs beside the candidate and
  passes when its end is reached, told by a random word. A candidate that returns objects which compare as
  they like, or that finds the word in its own process, passes such a test without solving it.
"""

from __future__ import annotations

import ast
import json
import math
import re
import secrets
from typing import Any, NamedTuple

from cotkit.records import Extraction
from cotkit.verify.extraction import THINK_START, after_thinking
from cotkit.verify.sandbox import arun_python
from cotkit.verify.sandbox.job import MOST_TEXT

PYTHON = {"python", "python3", "py", "py3"}
BLOCK = re.compile(  # fence, language, code, and the fence that closes it ("" = it never closes)
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)(^[ \t]*\1[`~]*[ \t]*$|\Z)", re.M | re.S
)
IDLE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign)
SHOWN = 200  # characters of what a program said, in a reason

# Runs the code of its input, then tells the value of one expression behind a random word.
PROBE = r"""
import json, os, sys, types

asked = json.load(sys.stdin)
channel = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogatepass")
module = sys.modules["program"] = types.ModuleType("program")
names = module.__dict__
end, text = os._exit, repr


def plain(value):
    if type(value).__module__ == "numpy":
        return plain(value.tolist())
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    for kind, same in ((list, list), (tuple, tuple), (set, set), (frozenset, set)):
        if isinstance(value, kind):
            return same(map(plain, value))
    for kind in (str, int, float):
        if isinstance(value, kind) and type(value) is not bool:
            return kind(value)
    return value


exec(compile(asked["code"], "<program>", "exec", dont_inherit=True), names)
names.update(asked["data"])
exec(compile(asked["setup"], "<test>", "exec", dont_inherit=True), names)
value = eval(compile(asked["expression"], "<test>", "eval", dont_inherit=True), names)
channel.write("\n" + asked["word"] + text(plain(value)) + "\n")
channel.flush()
end(0)
"""


def extract_code(text: str | None) -> Extraction:
    """The program in a completion: the last Python block of the visible text, else the last block that names
    no language, else the whole text where it has no block at all. None: no text, blocks of other languages
    only, a block or a thinking that never ends.
    """
    visible = after_thinking(text or "")
    blocks = [match.groups() for match in BLOCK.finditer(visible)]
    if THINK_START.search(BLOCK.sub("", visible)):
        return Extraction(answer=None, how="thinking_not_finished")
    if blocks and not blocks[-1][3]:
        return Extraction(answer=None, how="unclosed_code")
    if not blocks and visible:
        return Extraction(answer=visible, how="whole_text")
    labels = PYTHON if any(block[1].lower() in PYTHON for block in blocks) else {""}
    code = next((block[2] for block in reversed(blocks) if block[1].lower() in labels), "")
    return Extraction(answer=code if code.strip() else None, how="code" if code.strip() else "none")


class Case(NamedTuple):
    """The program reads `input` from stdin and must print `output`."""

    input: str
    output: str


class Expression(NamedTuple):
    """After `setup`, `expression` must have the value of `expected`; None = it only has to be reached."""

    setup: str
    expression: str
    expected: str | None


def read_tests(tests: Any) -> list[Case | Expression]:
    """The tests of a problem: a list of {"input", "output"}, a list of assert statements, or a program.

    In a list each item is a test of its own, and items without an assert (imports, data) go before all of
    them; in a program the statements before an assert go before it. Raises ValueError for anything else.
    """
    if isinstance(tests, str) and tests.strip():
        return of_program(tests)
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        before = "\n".join(test for test in tests if not _asserts(_parsed(test)))
        found = [test for item in tests if _asserts(_parsed(item)) for test in of_program(item)]
        if found:
            return [test._replace(setup=f"{before}\n{test.setup}") for test in found]
    if isinstance(tests, list) and tests and all(isinstance(test, dict) for test in tests):
        cases = [Case(test.get("input"), test.get("output")) for test in tests]
        if all(isinstance(text, str) for case in cases for text in case):
            return cases
    raise ValueError(
        'the tests must be a list of {"input": text, "output": text}, a list of assert statements, or the '
        "text of a test program"
    )


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"the test {_short(source)!r} is not Python: {error}") from None


def _asserts(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Assert) for part in ast.walk(node))


def of_program(source: str) -> list[Expression]:
    """A test for each assert at the top level; one for the whole when asserts stand deeper, or nowhere."""
    body = _parsed(source).body
    asserts = [statement for statement in body if isinstance(statement, ast.Assert)]
    if not asserts or any(_asserts(s) for s in body if not isinstance(s, ast.Assert)):
        if all(isinstance(statement, IDLE) for statement in body):
            raise ValueError(
                f"the test program {_short(source)!r} only defines things: it must call its tests"
            )
        return [Expression(source, "None", None)]
    tests, before = [], []
    for statement in body:
        if not isinstance(statement, ast.Assert):
            before.append(ast.unparse(statement))
            continue
        test = of_assert(statement, "\n".join(before))
        tests.append(test)
        before.append(ast.unparse(statement.test) if test.expected is None else test.expression)
    return tests


def of_assert(statement: ast.Assert, setup: str) -> Expression:
    match statement.test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            sides = ast.unparse(left), ast.unparse(right)
            if literal(sides[0]) is not NO_LITERAL:  # assert 3 == f(x)
                sides = sides[::-1]
            return Expression(setup, *sides)
    return Expression(f"{setup}\n{ast.unparse(statement)}", "None", None)


class Outcome(NamedTuple):
    """`passed` None = the test itself, or the sandbox, failed."""

    passed: bool | None
    status: str = ""  # of the program: ok, error, timeout, ...
    reason: str = ""


async def run_test(code: str, test: Case | Expression, tolerance: float | None, **options: Any) -> Outcome:
    """One test of one program; `options` are those of `arun_python`."""
    if isinstance(test, Case):
        return await run_case(code, test, tolerance, **options)
    expected = test.expected
    if expected is not None and literal(expected) is NO_LITERAL:
        clean = await probe("", test.setup, expected, **options)
        if clean.value is None and clean.reason.startswith("NameError"):  # it needs the candidate's names
            both = f"{test.setup}\nassert ({test.expression}) == ({expected})"
            test, expected = Expression(both, "None", None), None
        elif clean.value is None:
            return Outcome(None, clean.status, f"the test's own value failed: {clean.reason}")
        else:
            expected = clean.value
    given = await probe(code, test.setup, test.expression, **options)
    if given.value is None:
        return Outcome(None if given.status == "setup_failed" else False, given.status, given.reason)
    if expected is None or same_value(given.value, expected):
        return Outcome(True, "ok")
    return Outcome(False, "ok", f"{_short(test.expression)} gave {_short(given.value)}")


async def run_case(code: str, test: Case, tolerance: float | None, **options: Any) -> Outcome:
    result = await arun_python(code, stdin=test.input, **options)
    if result.status != "ok":
        passed = None if result.status == "setup_failed" else False
        return Outcome(passed, result.status, result.detail)
    if same_output(result.stdout, test.output, tolerance):
        return Outcome(True, "ok")
    return Outcome(False, "ok", f"printed {_short(result.stdout)}")


class Told(NamedTuple):
    """`value` as Python writes it; None = the program did not get so far, `reason` says why."""

    value: str | None
    status: str
    reason: str = ""


async def probe(code: str, setup: str, expression: str, data: dict | None = None, **options: Any) -> Told:
    """The value of `expression` after `code` (with the names in `data` added) and `setup`, in the sandbox."""
    word = secrets.token_hex(16)
    asked = {"code": code, "data": data or {}, "setup": setup, "expression": expression, "word": word}
    stdin = json.dumps(asked)
    if len(stdin) > MOST_TEXT:
        return Told(None, "error", "the program and its test are too long")
    result = await arun_python(PROBE, stdin=stdin, **options)
    _, told, rest = result.stdout.rpartition(f"\n{word}")
    if told:
        return Told(rest.split("\n", 1)[0], result.status)
    ended = "it ended before the test did" if result.status == "ok" else result.status
    return Told(None, result.status, result.detail or ended)


NO_LITERAL = object()


def literal(text: str) -> Any:
    """The value of a Python literal; only built-in types can come out, so that `==` means what it says."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return NO_LITERAL


def same_value(given: str, expected: str) -> bool:
    """Equal literals as Python compares them (1 == 1.0, [1] != (1,)); anything else by its text."""
    values = literal(given), literal(expected)
    return given == expected or (NO_LITERAL not in values and values[0] == values[1])


def same_output(given: str, expected: str, tolerance: float | None) -> bool:
    """The same lines, but for spaces at their ends and empty lines at the end of all; with a tolerance, the
    same words, numbers within that relative distance.
    """
    if tolerance is None:
        one, other = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (given, expected))
        return one == other

    def near(pair: tuple[str, str]) -> bool:
        try:
            return pair[0] == pair[1] or math.isclose(*map(float, pair), rel_tol=tolerance)
        except ValueError:
            return False

    words = given.split(), expected.split()
    return len(words[0]) == len(words[1]) and all(map(near, zip(*words, strict=True)))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
