"""Verifiers: check programs, tests for code answers, and which of them a problem is passed to."""

from __future__ import annotations

import pytest

from cotkit import AnswerPolicy, AnswerVerifier, CheckVerifier, Problem, TestsVerifier, aio, load_problems
from cotkit.verify import Verifier, code_tests, isolation
from cotkit.verify.code_asserts import Asserts, Case, read_tests
from cotkit.verify.code_blocks import extract_code
from cotkit.verify.code_tests import same_output


@pytest.fixture(scope="module", autouse=True)
def walls():
    if isolation().weak:
        pytest.skip(f"this machine reaches isolation {isolation().level} only")


def problem(**metadata) -> Problem:
    return Problem(id="p", problem="a problem", reference=None, metadata=metadata)


def python(code: str) -> str:
    return f"Here it is.\n```python\n{code}\n```\nDone."


# --- problems with several right answers

DIVISOR = """
import json
def check(answer):
    value = json.loads(answer)
    return isinstance(value, int) and 1 < value < 91 and 91 % value == 0
"""
ANSWERS = [
    (r"\boxed{7}", True, "check"),
    (r"So \boxed{13} it is.", True, "check"),
    (r"\boxed{8}", False, "check"),
    ("I cannot say.", False, "no_answer"),
    (r"\boxed{seven}", None, "error"),  # this check raises on it
]


@pytest.mark.parametrize(("text", "correct", "method"), ANSWERS)
def test_a_check_program_accepts_every_right_answer(text, correct, method):
    verdict = CheckVerifier().verify(problem(check_code=DIVISOR), text)
    assert (verdict.correct, verdict.method) == (correct, method)


FAILING_CHECKS = {
    "raises": ("def check(answer):\n    raise KeyError('x')", "error", "KeyError"),
    "returns a number": ("def check(answer):\n    return 1", "error", "returned 1"),
    "returns nothing": ("def check(answer):\n    pass", "error", "returned None"),
    "exits": ("import sys\ndef check(answer):\n    sys.exit(0)", "error", "SystemExit"),
    "exits at once": ("import os\ndef check(answer):\n    print('True')\n    os._exit(0)", "error", "ended"),
    "hangs": ("def check(answer):\n    while True: pass", "timeout", "longer than 1 s"),
    "reads stdin": ("def check(answer):\n    return input()", "error", "EOFError"),
    "defines nothing": ("checked = True", "error", "check"),
    "is no Python": ("def check(", "error", "SyntaxError"),
    "floods": ("def check(answer):\n    while True: print('x' * 1000)", "error", "MiB"),
}


@pytest.mark.parametrize(("code", "method", "reason"), FAILING_CHECKS.values(), ids=FAILING_CHECKS.keys())
def test_a_check_that_fails_decides_nothing(code, method, reason):
    verdict = CheckVerifier(timeout=1).verify(problem(check_code=code), r"\boxed{7}")
    assert (verdict.correct, verdict.method) == (None, method)
    assert reason in verdict.reason


def test_what_a_check_prints_is_not_its_verdict():
    code = "def check(answer):\n    print('True', answer)\n    return False"
    assert CheckVerifier().verify(problem(check_code=code), r"\boxed{True}").correct is False


HOSTILE_ANSWERS = [
    "'); print('True'); import os; os._exit(0); ('",
    '__import__("os")._exit(0)',
    '"""\nTrue\n"""',
    "True\nTrue",
    "\\",
    "{answer}",
    "\x00",
]


@pytest.mark.parametrize("answer", HOSTILE_ANSWERS)
def test_the_answer_is_data_and_reaches_the_check_as_it_is(answer):
    code = f"seen = {answer.strip()!r}\ndef check(answer):\n    return False if answer == seen else None"
    verdict = CheckVerifier(trace_pattern="(?s)<<(.*)>>").verify(problem(check_code=code), f"<<{answer}>>")
    assert (verdict.correct, verdict.method) == (False, "check") or answer == "\x00"
    assert verdict.correct is not True


def test_a_problem_without_a_check_program_is_undecided():
    verdict = CheckVerifier().verify(problem(), r"\boxed{7}")
    assert (verdict.correct, verdict.method) == (None, "no_reference")


# --- code answers: honest programs

SQUARE = ["assert f(2) == 4", "assert f(3) == 9", "assert f(-11) == 121"]
HONEST = {
    "plain": ("def f(x):\n    return x * x", SQUARE),
    "of numpy": ("import numpy as np\ndef f(x):\n    return np.int64(x) ** 2", SQUARE),
    "a float": ("def f(x):\n    return float(x * x)", SQUARE),
    "chatty": ("print('PASS')\ndef f(x):\n    print(x)\n    return x * x", SQUARE),
    "with a main part": (
        "def f(x):\n    return x * x\nif __name__ == '__main__':\n    print(f(int(input())))", SQUARE
    ),
    "with a dataclass": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n"
        "    x: int\ndef f(x):\n    return A(x).x ** 2",
        SQUARE,
    ),
    "nested": (
        "def f(x):\n    return {'b': (x, {x}), 'a': [None]}", ["assert f(1) == {'a': [None], 'b': (1, {1})}"]
    ),
    "a counter": ("from collections import Counter as f", ["assert f('aab') == {'b': 1, 'a': 2}"]),
    "an array": ("import numpy\nf = numpy.arange", ["assert f(3).tolist() == [0, 1, 2]"]),
    "infinite": ("def f():\n    return float('inf')", ["assert f() == float('inf')"]),
    "turned round": ("def f(x):\n    return x", ["assert [1, 2] == f([1, 2])"]),
    "computed": ("def f(x):\n    return sorted(x)", ["import random", "assert f([3, 1]) == sorted([3, 1])"]),
    "by property": (
        "def f(x):\n    return x[::-1]", ["assert f(f('abc')) == 'abc'", "assert f('ab') == f('ab')"]
    ),
    "by truth": ("def f(x):\n    return x > 2", ["assert f(3)", "assert not f(1)"]),
    "with a message": ("def f(x):\n    return x", ["assert f(1) == 1, 'f is wrong'"]),
    "close": ("def f(x):\n    return x / 3", ["assert abs(f(1) - 0.3333) < 1e-3"]),
    "a class": (
        "class Stack(list):\n    push = list.append",
        "s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2\nassert s.pop() == 1\nassert len(s) == 0",
    ),
    "of frozensets": (
        "def f():\n    return {frozenset({1, 2}): {frozenset({3})}}",
        ["assert f() == {frozenset({2, 1}): {frozenset({3})}}"],
    ),
    "a Decimal": (
        "from decimal import Decimal\ndef f():\n    return [Decimal('1.50')]",
        ["from decimal import Decimal", "assert f() == [Decimal('1.5')]"],
    ),
    "a Fraction": (
        "from fractions import Fraction\ndef f():\n    return Fraction(2, 4)",
        ["from fractions import Fraction as F", "assert f() == F(1, 2)", "assert f() == 0.5"],
    ),
    "infinity in a list": (
        "def f():\n    return [float('inf'), 1.0]", ["assert f() == [float('inf'), 1]"]
    ),
    "not a number": (
        "import math\ndef f():\n    return math.nan", ["import math", "assert math.isnan(f())"]
    ),
    "a long int": ("def f(n):\n    return 2 ** n", ["assert f(20000) == 2 ** 20000"]),
    "a date": (
        "import datetime\ndef f():\n    return datetime.date(2024, 2, 29)",
        ["import datetime", "assert f() == datetime.date(2024, 2, 29)"],
    ),
    "numpy in a list": (
        "import numpy as np\ndef f():\n    return [np.float32(0.5), np.bool_(True), np.int8(3)]",
        ["assert f() == [0.5, True, 3]"],
    ),
    "a named tuple": (
        "from collections import namedtuple\nf = namedtuple('P', 'x y')",
        ["assert f(1, 2) == (1, 2)", "assert f(1, 2).y == 2"],
    ),
    "a generator": ("def f(n):\n    yield from range(n)", ["assert list(f(3)) == [0, 1, 2]"]),
    "an endless generator": (
        "import itertools as f", ["import itertools as i", "assert list(i.islice(f.count(2), 2)) == [2, 3]"]
    ),
    "objects": (
        "class Node:\n    def __init__(self, x):\n        self.x, self.next = x, None",
        "a, b = Node(1), Node(2)\na.next = b\nassert a.next.x == 2 and a.next is b\n"
        "assert b.next is None and isinstance(a, Node)",
    ),
    "in place": (
        "def f(a):\n    a.sort()", ["a = [3, 1]\nassert f(a) is None\nassert a == [1, 3]"]
    ),
    "joined": ("def f(x):\n    return x * x", ["assert f(2) == 4 and f(3) == 9 and 3 < f(2) < 5"]),
    "of all": ("def f(x):\n    return x * x", ["assert all(f(i) == i * i for i in range(99) if i != 3)"]),
    "of all, the name used again": (
        "def f(x):\n    return x + 1",
        "def t():\n    x = 10\n    assert all(f(x) == x + 1 for x in [1, 2])\n    assert f(x) == 11\nt()",
    ),
    "of all, twice": (
        "def f(x):\n    return x",
        "assert all(f(i) == i for i in range(50))\nassert all(f(i) > j for i in range(9) for j in range(i))",
    ),
    "of all, of its own name": ("def f(x):\n    return x", "x = [1, 2]\nassert all(f(x) == x for x in x)"),
    "of many": ("def f(x):\n    return x", ["assert sorted(f(-i) for i in range(9)) == list(range(-8, 1))"]),
    "nested calls": ("def f(x):\n    return x + 1", ["assert f(f(f(1))) == 4", "assert f(1) in (2, 3)"]),
    "with an exception": (
        "def f(x):\n    raise ValueError(x)",
        "try:\n    f(-1)\n    assert False\nexcept ValueError as error:\n    assert str(error) == '-1'",
    ),
    "only an exception": (
        "def f(x):\n    raise KeyError(x)", "try:\n    f(-1)\n    assert False\nexcept KeyError:\n    pass"
    ),
    "in a main part": (
        "def f(x):\n    return x",
        "def test():\n    assert f(1) == 1\nif __name__ == '__main__':\n    test()",
    ),
    "a built-in's name": ("def sum(a, b):\n    return 6", ["assert sum(10, 15) == 6"]),
    "a long list": ("def f(n):\n    return list(range(n))", ["assert f(20000) == list(range(20000))"]),
    "a check function": (
        "def f(x):\n    return x * x",
        "def check(candidate):\n    for x in range(5):\n        assert candidate(x) == x ** 2\ncheck(f)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "tests"), HONEST.values(), ids=HONEST.keys())
def test_a_right_program_passes(code, tests):
    verdict = TestsVerifier().verify(problem(tests=tests), python(code))
    assert (verdict.correct, verdict.method) == (True, "tests"), verdict.reason


WRONG = {
    "wrong once": ("def f(x):\n    return abs(x) * x", "2 of 3 tests pass; test 3: f(-11) gave -121"),
    "wrong always": ("def f(x):\n    return 0", "0 of 3 tests pass; test 1: f(2) gave 0"),
    "another kind": ("def f(x):\n    return str(x * x)", "gave '4'"),
    "no such function": ("def g(x):\n    return x * x", "NameError"),
    "raises": ("def f(x):\n    raise ValueError('no')", "ValueError: no"),
    "no Python": ("def f(x:", "SyntaxError"),
    "endless": ("def f(x):\n    while True: pass", "0 of 3 tests pass; test 1: it ran longer than 1 s"),
    "hungry": ("def f(x):\n    return len([0] * 10**10)", "memory"),
    "recursive": ("def f(x):\n    return f(x)", "RecursionError"),
    "flooding": ("def f(x):\n    while True: print('x' * 10**5)", "MiB"),
    "a long value": ("def f(x):\n    return 'x' * 200_000", "0 of 3"),
}


@pytest.mark.parametrize(("code", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_program_is_wrong_and_the_reason_counts(code, reason):
    verdict = TestsVerifier(timeout=1).verify(problem(tests=SQUARE), python(code))
    assert (verdict.correct, verdict.method) == (False, "tests")
    assert reason in verdict.reason


BESIDE = {
    "a function": ("def f(g, x):\n    return g(x)", ["assert f(lambda x: x + 1, 2) == 3"]),
    "an object of the test": (
        "def f(node):\n    return node.value",
        "class Node:\n    def __init__(self, value):\n        self.value = value\nassert f(Node(3)) == 3",
    ),
    "a coroutine": ("async def f(x):\n    return x", ["import asyncio", "assert asyncio.run(f(2)) == 2"]),
    "coroutines in a loop": (
        "async def f(x):\n    return x",
        "import asyncio\nasync def t():\n    assert all([await f(i) == i for i in [1]])\nasyncio.run(t())",
    ),
    "a file that the test writes": (
        "def f(path):\n    return open(path).read()",
        "with open('a.txt', 'w') as file:\n    file.write('hi')\nassert f('a.txt') == 'hi'",
    ),
    "an exception of its own": (
        "class Mine(Exception): pass\ndef f():\n    raise Mine()",
        "try:\n    f()\n    assert False\nexcept Mine:\n    pass",
    ),
}


@pytest.mark.parametrize(("code", "tests"), BESIDE.values(), ids=BESIDE.keys())
def test_what_cannot_travel_is_tested_beside_the_program_and_the_verdict_says_so(code, tests):
    verdict = TestsVerifier().verify(problem(tests=tests), python(code))
    assert (verdict.correct, verdict.method) == (True, "tests_beside"), verdict.reason
    assert "1 of them beside the program, which could forge that" in verdict.reason
    assert TestsVerifier().verify(problem(tests=tests), python("def f(*a): pass")).correct is False


UNSETTLED = {
    "objects of the program": (
        ["assert f(1) == f(1)"],
        "class A:\n    def __eq__(self, other): return True\ndef f(x): return A()",
        "equal",
    ),
    "an object of the test": (
        "class A:\n    pass\nassert f(1) == A()", "class A: pass\ndef f(x): return A()", "equal"
    ),
    "arithmetic": (
        ["assert abs(f(1) - 0.3) < 1e-3"],
        "class E:\n    def __sub__(self, o): return 0\ndef f(x): return E()",
        "compute",
    ),
    "asserts in a void loop": ("for x in []:\n    assert f(x)", "def f(x): return x", "asserted nothing"),
    "asserts behind a condition": (
        "import sys\nif sys.argv[1:]:\n    assert f(2)", "def f(x): return x", "asserted nothing"
    ),
    "asserts that are caught": (
        "try:\n    assert f(2) == 4\nexcept Exception:\n    print('no')", "def f(x): return 0", "nothing"
    ),
    "a coroutine that nobody runs": (
        "async def t():\n    assert f(2) == 4\nt()", "def f(x): return 0", "asserted nothing"
    ),
    "a library that is not there": (
        ["import no_such_library", "assert f(1) == 1"], "def f(x): return 1", "no_such_library"
    ),
    "a value that is too long": (
        ["import random", "assert f(9) == [random.random()]"],
        "import os\ndef f(x): return os.urandom(10**5)",
        "too long",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tests", "code", "reason"), UNSETTLED.values(), ids=UNSETTLED.keys())
def test_what_nobody_outside_the_program_can_tell_is_undecided(tests, code, reason):
    verdict = TestsVerifier().verify(problem(tests=tests), python(code))
    assert (verdict.correct, verdict.method) == (None, "error"), verdict.reason
    assert reason in verdict.reason


def test_a_test_that_needs_too_many_runs_of_the_program_is_undecided(monkeypatch):
    monkeypatch.setattr(code_tests, "ROUNDS", 4)
    for calls, correct in ((2, True), (9, None)):
        tests = f"x = 0\nfor i in range({calls}):\n    x += f(x)\nassert x == {2**calls - 1}"
        verdict = TestsVerifier().verify(problem(tests=tests), python("def f(x):\n    return x + 1"))
        assert verdict.correct is correct and (correct or "after 4 runs" in verdict.reason)


def test_a_long_value_is_compared_as_a_whole():
    tests = ["assert f() == 'x' * 100_000"]
    for code, correct in {"'x' * 100_000": True, "'x' * 50_000 + 'y' + 'x' * 49_999": False}.items():
        verdict = TestsVerifier().verify(problem(tests=tests), python(f"def f():\n    return {code}"))
        assert verdict.correct is correct, code


def test_a_long_output_is_never_right_by_its_ends():
    expected = "\n".join(map(str, range(30_000)))
    tests = [{"input": "", "output": expected}]
    for code, correct in {"range(30_000)": None, "range(1, 30_000)": False}.items():
        verdict = TestsVerifier().verify(problem(tests=tests), python(f"for i in {code}: print(i)"))
        assert verdict.correct is correct, verdict.reason


def test_what_equals_for_python_equals_here_and_nothing_more():
    tests = ["assert f() == [1, 2]"]
    for value, correct in {"[1, 2.0]": True, "(1, 2)": False, "[1, 2, 3]": False, "'[1, 2]'": False}.items():
        verdict = TestsVerifier().verify(problem(tests=tests), python(f"def f():\n    return {value}"))
        assert verdict.correct is correct, value


# --- code answers: hostile programs

LOOK = "import sys, os\nasked = sys.modules['__main__'].asked\n"
HOSTILE = {
    "says so": "print('PASS')\nprint('True')\nprint('3 of 3 tests pass')\ndef f(x): return None",
    "exits": "import sys\nsys.exit(0)",
    "exits hard": "import os\nos._exit(0)",
    "exits when called": "import os\ndef f(x): os._exit(0)",
    "equals everything": "class E:\n    def __eq__(self, other): return True\ndef f(x): return E()",
    "an int that equals everything": (
        "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return E()"
    ),
    "a dict that lies": "class E(dict):\n    def __eq__(self, o): return True\ndef f(x): return E()",
    "replaces built-ins": (
        "import builtins\nfor name in ('eval', 'repr', 'compile', 'exec', 'isinstance', 'type'):\n"
        "    setattr(builtins, name, lambda *a, **k: True)\ndef f(x): return True"
    ),
    "knows the word": LOOK + "os.write(1, ('\\n' + asked['word'] + 'True\\n').encode())\nos._exit(0)",
    "turns the word round": LOOK + "asked['expression'] = 'True'\ndef f(x): return None",
    "empties what the expected value is computed from": ("def f(x):\n    x.clear()\n    return []"),
    "strips asserts": (
        "import builtins\nreal = builtins.compile\n"
        "builtins.compile = lambda *a, **k: real(*a, **{**k, 'optimize': 2})\ndef f(x): return 0"
    ),
    "answers another question": LOOK + "asked['calls'] = []\ndef f(x): return None",
    "tells what cannot be read": (
        LOOK + "os.write(1, ('\\n' + asked['word'] + '3:' + 'AAA\\n').encode())\nos._exit(0)"
    ),
    "closes the channel": "import os\nos.closerange(0, 100)\ndef f(x): return x",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "replaces json": "import sys\nsys.modules['json'] = sys.modules['os'] = None\ndef f(x): return x",
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_program_does_not_pass(code):
    verdict = TestsVerifier(timeout=2).verify(problem(tests=SQUARE), python(code))
    assert (verdict.correct, verdict.method) == (False, "tests"), verdict.reason


FORGEABLE_ONCE = {
    "a check function": "def check(c):\n    assert c(2) == 4\n    assert c(3) == 9\ncheck(f)",
    "joined": ["assert f(2) == 4 and f(3) == 9"],
    "of all": ["assert all(f(i) == i * i for i in range(5))"],
    "a loop": "for i in range(3):\n    assert f(i) == i * i",
    "in": ["assert f(2) in (4, 5)"],
    "turned round": "e = 4\nassert e == f(2)",
    "nested": ["assert (f(2) == 4) == True"],
    "a changed argument": ["a = [3, 1]\nassert f(a) == sorted(a)"],
    "a slice": ["assert f([3, 1])[:1] == [1]"],
    "a key": ["r = f(2)\nr.sort(key=len)\nassert r == ['a']"],
    "by map": ["assert all(map(lambda x: f(x) == x * x, [2, 3]))"],
}
FORGERIES = {
    "an object": (
        "class E:\n    def __eq__(self, other): return True\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__\n"
        "    def __bool__(self): return True\ndef f(x): return E()"
    ),
    "the word": HOSTILE["knows the word"],
    "an empty list": HOSTILE["empties what the expected value is computed from"],
    "the end of the test's loop": "def f(x): raise StopIteration",
}


@pytest.mark.parametrize("code", FORGERIES.values(), ids=FORGERIES.keys())
def test_no_usual_form_of_a_test_can_be_forged(code):
    tests = [test for tests in FORGEABLE_ONCE.values() for test in read_tests(tests)]
    outcomes = aio.run(code_tests.run_tests(code, tests, None, timeout=5))
    passed = dict(
        zip(FORGEABLE_ONCE, [(outcome.passed, outcome.beside) for outcome in outcomes], strict=True)
    )
    assert passed == dict.fromkeys(FORGEABLE_ONCE, (False, False))


def test_data_of_a_test_never_reaches_the_program():
    look = LOOK + "def f(x): raise ValueError(repr(asked['calls']))"
    tests = ["cases = [(2, 987654321)]", "assert f(cases[0][0]) == cases[0][1]"]
    verdict = TestsVerifier().verify(problem(tests=tests), python(look))
    assert verdict.correct is False and "'f'], 2], {}" in verdict.reason and "987" not in verdict.reason


def test_the_expected_value_is_not_in_the_programs_process():
    look = LOOK + "def f(x):\n    return repr(asked) + repr(sys._getframe(1).f_globals) + sys.stdin.read()"
    for expected in ("987654321", "sum([987654000, 321])"):
        tests = [f"assert f(2) == {expected}"]
        verdict = TestsVerifier().verify(problem(tests=tests), python(look))
        assert verdict.correct is False and "f(2)" in verdict.reason
        assert "987654" not in verdict.reason


def test_a_program_that_meets_its_tests_only_in_state_is_caught_by_fresh_processes():
    code = "answers = iter([4, 9, 121])\ndef f(x): return next(answers)"
    verdict = TestsVerifier().verify(problem(tests=SQUARE), python(code))
    assert verdict.correct is False and "1 of 3" in verdict.reason


# --- input and output

SUM = [{"input": "2 3\n", "output": "5\n"}, {"input": "1 1", "output": "2"}]
PROGRAMS = {
    "right": ("a, b = map(int, input().split())\nprint(a + b, ' ')\nprint()", True, "all 2"),
    "wrong": ("print(5)", False, "1 of 2 tests pass; test 2: printed 5"),
    "both": ("print('5')\nprint('2')", False, "0 of 2"),
    "right, then fails": (
        "a, b = map(int, input().split())\nprint(a + b)\n1 / 0",
        False,
        "ZeroDivisionError",
    ),
    "silent": ("pass", False, "0 of 2"),
    "asks too much": ("input(); input(); input()", False, "EOFError"),
}


@pytest.mark.parametrize(("code", "correct", "reason"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_input_output_cases_are_compared_outside(code, correct, reason):
    verdict = TestsVerifier().verify(problem(tests=SUM), python(code))
    assert verdict.correct is correct and reason in verdict.reason


def test_printed_numbers_are_compared_within_the_problems_tolerance():
    assert not same_output("0.33333", "0.3333", None)
    assert same_output("x 0.33333\n", "x 0.3333", 1e-3)
    assert not same_output("x 0.34", "x 0.3333", 1e-3) and not same_output("y 1", "x 1", 1e-3)


# --- tests that are broken, machines that fail


def test_a_broken_test_decides_nothing_unless_another_one_fails():
    right, wrong = python("def f(x):\n    return x * x"), python("def f(x):\n    return x")
    broken = problem(tests=["assert f(2) == 4", "assert f(3) == 1 / 0"])
    verdict = TestsVerifier().verify(broken, right)
    assert (verdict.correct, verdict.method) == (None, "error") and "ZeroDivisionError" in verdict.reason
    assert TestsVerifier().verify(broken, wrong).correct is False


def test_a_sandbox_that_cannot_start_a_program_decides_nothing(monkeypatch):
    from cotkit.verify.sandbox import program

    failed = {"status": "setup_failed", "detail": "no walls"}
    monkeypatch.setattr(program, "in_walls", lambda *job: failed)
    for verifier, metadata in ((TestsVerifier(), {"tests": SQUARE}), (TestsVerifier(), {"tests": SUM})):
        verdict = verifier.verify(problem(**metadata), python("def f(x): return x"))
        assert (verdict.correct, verdict.method) == (None, "sandbox_failed") and "no walls" in verdict.reason
    verdict = CheckVerifier().verify(problem(check_code=DIVISOR), r"\boxed{7}")
    assert (verdict.correct, verdict.method) == (None, "sandbox_failed")


# --- where the code stands, and what tests are

CODE = {
    "last python block": ("```python\na = 1\n```\nbetter:\n```python\na = 2\n```", "a = 2", "code"),
    "python before others": ("```py\na = 1\n```\n```text\nout\n```\n```\nx\n```", "a = 1", "code"),
    "a block without a name": ("```\na = 1\n```", "a = 1", "code"),
    "tildes": ("~~~python3\na = 1\n~~~", "a = 1", "code"),
    "whole text": ("a = 1", "a = 1", "whole_text"),
    "after the thinking": ("<think>```python\nbad\n```\n</think>\n```python\na = 1\n```", "a = 1", "code"),
    "in the thinking only": ("<think>```python\na = 1\n```\n</think>", None, "none"),
    "thinking never ends": ("<think> a = 1", None, "thinking_not_finished"),
    "written while thinking": ("<think>\n```python\na = 1\n```\nbut", None, "thinking_not_finished"),
    "cut off": ("```python\na = 1\nb =", None, "unclosed_code"),
    "another language": ("```rust\nfn main() {}\n```", None, "none"),
    "an empty block": ("```python\n\n```", None, "none"),
    "nothing": ("", None, "none"),
    "line ends of Windows": ("x\r\n```python\r\na = 1\r\n```\r\nDone", "a = 1", "code"),
    "in a list": ("1. so:\n\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b", "code"),
    "usage in the last block": (
        "```python\ndef f(): pass\n```\nSo:\n```python\nprint(f(2))\n```",
        "def f(): pass",
        "code",
    ),
    "a later better one": (
        "```python\ndef f(): 1\n```\nSo:\n```python\ndef f(): 2\n```",
        "def f(): 2",
        "code",
    ),
    "an answer tag": ("<answer>\na = 1\n</answer>", "a = 1", "whole_text"),
    "a block in an answer tag": ("<answer>\n```python\na = 1\n```\n</answer>", "a = 1", "code"),
    "after prose": ("Here it is:\n\ndef f(x):\n    return x", "def f(x):\n    return x", "whole_text"),
    "a block in a line": ("```python def f(): pass```", "def f(): pass", "code"),
    "a fence in a docstring": (
        '```python\ndef f():\n    """x\n    ```\n    f()\n    ```\n    """\n```\nDone',
        'def f():\n    """x\n    ```\n    f()\n    ```\n    """',
        "code",
    ),
}


@pytest.mark.parametrize(("text", "code", "how"), CODE.values(), ids=CODE.keys())
def test_where_the_code_stands(text, code, how):
    found = extract_code(text, frozenset({"f"}))
    assert ((found.answer or "").strip() or None, found.how) == (code, how)


def test_prose_is_no_code_and_a_cut_program_says_so():
    verifier, asked = TestsVerifier(), problem(tests=SQUARE)
    for text in ("I do not know how.", "", "```text\nno\n```"):
        verdict = verifier.verify(asked, text)
        assert (verdict.correct, verdict.method) == (False, "no_answer"), text


TESTS = {
    "cases": ([{"input": "a", "output": "b", "more": 1}], [Case("a", "b")]),
    "asserts": (["x = 1", "assert f(x) == 2"], [Asserts("x = 1\nassert f(x) == 2", ("f",))]),
    "a program": ("x = 1\nassert f(x) == g(2)", [Asserts("x = 1\nassert f(x) == g(2)", ("f", "g"))]),
    "a built-in's name": (["assert sum(10, 15) == 6"], [Asserts("assert sum(10, 15) == 6", ("sum",))]),
    "an exception of its own": (
        "try:\n    f()\n    assert False\nexcept Mine:\n    pass",
        [Asserts("try:\n    f()\n    assert False\nexcept Mine:\n    pass", ("Mine", "f"), beside=True)],
    ),
    "JSON text": ('[{"input": "1", "output": "2"}]', [Case("1", "2")]),
    "JSON text of APPS": ('{"inputs": ["1"], "outputs": ["2"]}', [Case("1", "2")]),
    "JSON text of asserts": ('["assert f(1) == 2"]', [Asserts("assert f(1) == 2", ("f",))]),
}  # fmt: skip


@pytest.mark.parametrize(("tests", "read"), TESTS.values(), ids=TESTS.keys())
def test_how_tests_are_read(tests, read):
    assert read_tests(tests) == read


BAD_TESTS = [
    [],
    "",
    3,
    {"input": "a"},
    [{"input": 1, "output": 2}],
    ["x = 1"],
    ["assert f("],
    [SUM[0], "assert f(1)"],
    "def check(candidate):\n    assert candidate(2) == 4",  # never called: it would pass anything
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(2), 4)",
    ["def check(candidate):\n    assert candidate(2) == 4", "check(f)"],
    '"""Tests."""\nx: int = 3\ndef check(c):\n    assert c(2) == 4\n',
    "try:\n    import numpy\nexcept ImportError:\n    pass\ndef check(c):\n    assert c(2) == 4\n",
    "f(2) == 4",
    "print(f(2))  # 4",
    "assert (f(2) == 4, 'wrong')",
    "assert 1 == 1",
    [{"input": "1 " * 2_600_000, "output": "1"}],
    '{"inputs": ["1"], "outputs": []}',
]


@pytest.mark.parametrize("tests", BAD_TESTS, ids=[str(tests)[:60] for tests in BAD_TESTS])
def test_tests_that_are_none_are_refused_and_never_raise_in_a_run(tests):
    with pytest.raises(ValueError, match="problem 'p', metadata 'tests'"):
        AnswerVerifier().check_problems([problem(tests=tests)])
    assert TestsVerifier().verify(problem(tests=tests), python("a = 1")).correct is None


def test_a_check_program_that_is_none_is_refused():
    for code in (3, "def check(", "x = 1"):
        with pytest.raises(ValueError, match="problem 'p', metadata 'check_code'"):
            AnswerVerifier().check_problems([problem(check_code=code)])


# --- which verifier a problem is passed to


def test_one_verifier_takes_a_mixed_set():
    verifier = AnswerVerifier()
    cases = [
        (problem(), "x", None, "no_reference"),
        (Problem(id="a", problem="q", reference="1/2"), r"\boxed{0.5}", True, "number"),
        (problem(check_code=DIVISOR), r"\boxed{13}", True, "check"),
        (problem(tests=SQUARE), python("def f(x):\n    return x * x"), True, "tests"),
        (problem(tests=None, check_code=None), "x", None, "no_reference"),
    ]
    for asked, text, correct, method in cases:
        verdict = verifier.verify(asked, text)
        assert (verdict.correct, verdict.method) == (correct, method)
    assert [verifier.can_check(asked) for asked, *_ in cases] == [False, True, True, True, False]
    verifier.check_problems([asked for asked, *_ in cases])


def test_the_answer_is_found_and_compared_as_the_verifier_was_told():
    strict = AnswerVerifier(trace_pattern="A<(.*?)>", solution_pattern="G<(.*?)>")
    gold = Problem(id="a", problem="q", reference="1 G<0.333>")
    assert strict.verify(gold, "A<1/3>").correct is False
    loose = AnswerVerifier(AnswerPolicy(rounding=0.01), trace_pattern="A<(.*?)>", solution_pattern="G<(.*?)>")
    assert loose.verify(gold, "A<1/3>").correct is True
    assert strict.describe() != loose.describe() and strict.describe()["trace_pattern"] == "A<(.*?)>"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AnswerVerifier("strict"), "AnswerPolicy"),
        (lambda: AnswerVerifier(trace_pattern="("), "trace_pattern"),
        (lambda: AnswerVerifier(solution_pattern="a"), "solution_pattern"),
        (lambda: CheckVerifier(timeout=0), "timeout"),
        (lambda: TestsVerifier(timeout="long"), "timeout"),
        (lambda: CheckVerifier(seconds=3), "seconds"),
    ],
)
def test_a_bad_option_is_refused_when_the_verifier_is_made(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_a_verifier_of_ones_own_needs_two_methods():
    class Shortest(Verifier):
        def describe(self):
            return {"verifier": "Shortest"}

        async def averify(self, problem, text, *, truncated=False, ledger=None):
            from cotkit.records import Extraction, Verdict

            return Extraction(answer=text, how="all"), Verdict(correct=len(text) < 5, method="short")

    assert Shortest().verify(problem(), "abc").correct is True and Shortest().can_check(problem())


def test_rows_with_tests_load_without_a_reference_and_without_a_complaint(recwarn):
    rows = [
        {"id": 1, "question": "f?", "tests": SQUARE},
        {"id": 2, "question": "g?", "metadata": {"check_code": DIVISOR}},
        {"id": 3, "question": "h?", "answer": "4"},
        {"id": 4, "question": "sum?", "metadata": {"tests": SUM, "tests_passed_by": "us"}},
    ]
    loaded = load_problems(rows)
    assert not recwarn.list and all(map(AnswerVerifier().can_check, loaded))
    verdict = AnswerVerifier().verify(loaded[3], python("print(sum(map(int, input().split())))"))
    assert verdict.correct is True and loaded[0].metadata["tests"] == SQUARE
