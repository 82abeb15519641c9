"""What a program sees and what comes back: as from `python program.py`, with a status for every end."""

from __future__ import annotations

import math

import pytest

from cotkit import ProgramResult, run_programs, run_python
from cotkit.verify.sandbox.outcome import explain

HARMLESS = {  # program -> what it prints
    "numpy and sympy": (
        "import numpy as np, sympy as sp\nx = sp.Symbol('x')\n"
        "print(sp.integrate(x**2, (x, 0, 3)), np.linalg.det(np.eye(3)))",
        "9 1.0\n",
    ),
    "its own files": (
        "import os, shutil, tempfile\n"
        "os.makedirs('a/b')\nopen('a/x.txt', 'w').write('text')\nos.rename('a/x.txt', 'a/b/y.txt')\n"
        "shutil.copy2('a/b/y.txt', 'z.txt')\n"
        "with tempfile.NamedTemporaryFile('w+') as f, tempfile.TemporaryDirectory() as d:\n"
        "    f.write('more'); f.seek(0); print(open('z.txt').read(), f.read(), os.path.isdir(d))\n"
        "open(os.path.expanduser('~/home.txt'), 'w').close()\nshutil.rmtree('a')\n"
        "print(sorted(os.listdir('.')))",
        "text more True\n['home.txt', 'z.txt']\n",
    ),
    "threads and asyncio": (
        "import asyncio, threading, concurrent.futures\n"
        "with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(abs, [-1, -2])))\n"
        "async def f():\n    await asyncio.sleep(0.001)\n    return await asyncio.to_thread(lambda: 7)\n"
        "print(asyncio.run(f()))",
        "3\n7\n",
    ),
    "output into nothing": (
        "import contextlib, os\n"
        "with open(os.devnull, 'w') as null, contextlib.redirect_stdout(null): print(1)\n"
        "print(2)",
        "2\n",
    ),
    "pickle, dataclasses and type hints": (
        "from __future__ import annotations\nimport dataclasses, pickle, typing\n"
        "@dataclasses.dataclass\nclass P:\n    x: int\n    y: typing.ClassVar[int] = 3\n"
        "print(pickle.loads(pickle.dumps(P(4))), typing.get_type_hints(P)['x'])",
        "P(x=4) <class 'int'>\n",
    ),
    "the main guard": (
        "import sys\nif __name__ == '__main__':\n    print(__file__, sys.argv)",
        "<program> ['<program>']\n",
    ),
    "a thread that prints after the end": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\nprint('soon')",
        "soon\nlate\n",
    ),
    "an exit handler": ("import atexit\natexit.register(print, 'bye')\nprint('hi', end=' ')", "hi bye\n"),
    "time zones and randomness of the system": (
        "import os, secrets, zoneinfo\n"
        "print(zoneinfo.ZoneInfo('Asia/Tokyo'), len(os.urandom(3)), len(secrets.token_bytes(4)))",
        "Asia/Tokyo 3 4\n",
    ),
    "signals to itself": (
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: print('alarm'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.1)\nsignal.raise_signal(signal.SIGALRM)",
        "alarm\nalarm\n",
    ),
    "one Markdown fence": ("```python\nprint('fenced')\n```\n", "fenced\n"),
    "one longer Markdown fence": ("\n~~~~\nprint('''\n```''')\n~~~~", "\n```\n"),
    "text of every kind": ("print('∑ é 🎲', '\\x00', repr('\\ud800'))", "∑ é 🎲 \x00 '\\ud800'\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_programs_run_as_in_plain_python(name):
    code, printed = HARMLESS[name]
    result = run_python(code)
    assert (result.status, result.stdout, result.stderr) == ("ok", printed, ""), result
    assert (result.exit_code, result.detail, result.truncated) == (0, "", False)


def test_pandas_runs_without_being_imported_before():
    result = run_python("import pandas as pd\nprint(pd.DataFrame({'a': [1, 2]}).a.sum())", timeout=60)
    assert (result.status, result.stdout) == ("ok", "3\n"), result


ENDS = {  # program -> status, exit code, what stderr ends with
    "1 / 0": ("error", 1, "ZeroDivisionError: division by zero\n"),
    "import sys; sys.exit(3)": ("error", 3, ""),
    "import sys; sys.exit('no solution')": ("error", 1, "no solution\n"),
    "raise SystemExit": ("ok", 0, ""),
    "print('x'": ("error", 1, "SyntaxError: '(' was never closed\n"),
    "input()": ("error", 1, "EOFError: EOF when reading a line\n"),
    "import no_such_module": ("error", 1, "ModuleNotFoundError: No module named 'no_such_module'\n"),
    "raise KeyboardInterrupt": ("error", 1, "KeyboardInterrupt\n"),
    "a = [0]\nwhile True: a *= 2": ("memory", None, "MemoryError\n"),
    "open('f', 'wb').write(bytes(9 << 20))": ("disk", None, "[Errno 27] File too large\n"),
    "import os; os._exit(7)": ("error", 7, ""),
    "import os; os.abort()": ("killed", None, ""),
    "import threading\nthreading.Thread(target=exit).start()": ("ok", 0, ""),
    "x = '\x00'": ("error", 1, "source code string cannot contain null bytes\n"),
    "x = '\ud800'": ("error", 1, "surrogates not allowed\n"),
    "x = " + "-" * 100_000 + "1": ("memory", None, ""),
    "x = 1\n" * 50_000: ("ok", 0, ""),
    "": ("ok", 0, ""),
}


@pytest.mark.parametrize("code", ENDS, ids=lambda code: repr(code[:30]))
def test_every_end_has_its_status(code):
    result = run_python(code)
    status, exit_code, stderr = ENDS[code]
    assert (result.status, result.exit_code) == (status, exit_code), result
    assert result.stderr.endswith(stderr)
    assert bool(result.detail) == (status != "ok")
    if stderr:
        assert result.detail in result.stderr or status != "error"


def test_a_traceback_shows_the_program_alone():
    result = run_python("def f(x):\n    return 1 / x\n\nprint(1)\nf(0)")
    assert result.stderr.splitlines()[:-1] == [
        "Traceback (most recent call last):",
        '  File "<program>", line 5, in <module>',
        "    f(0)",
        '  File "<program>", line 2, in f',
        "    return 1 / x",
        "           ~~^~~",
    ]


def test_what_was_printed_before_a_timeout_is_kept():
    result = run_python("print('step 1')\nwhile True: pass", timeout=0.3)
    assert (result.status, result.stdout, result.exit_code) == ("timeout", "step 1\n", None)
    assert result.seconds >= 0.3


def test_of_a_long_output_the_head_and_the_tail_are_kept():
    result = run_python("print('first')\nfor i in range(40_000): print('x' * 50)\nprint('answer: 42')")
    assert (result.status, result.truncated, result.answer) == ("ok", True, "answer: 42")
    assert result.stdout.startswith("first\nxxx")
    assert len(result.stdout) < 70_000
    assert "1,974,481 bytes left out" in result.stdout


def test_a_hundred_megabytes_of_output_are_not_taken():
    result = run_python("print('x' * 100_000_000)")
    assert result.status == "output_limit"
    assert len(result.stdout) < 70_000
    assert "4 MiB" in result.detail


def test_a_program_of_many_megabytes_is_an_error_with_a_reason():
    result = run_python("x = '" + "y" * (5 << 20) + "'")
    assert result.status == "error"
    assert "characters" in result.detail
    assert run_python("x = '" + "y" * (1 << 20) + "'").status == "ok"


def test_standard_input_is_what_was_given():
    result = run_python("import sys\nprint(input())\nprint(sys.stdin.read()[::-1])", stdin="3 4\né\n")
    assert result.stdout == "3 4\n\né\n"


DRAWS = """
import random, numpy, sympy, sympy.core.random
print(random.random(), numpy.random.rand(), sympy.core.random.rng.random(), hash("a"), {"a", "b", "c", "d"})
"""


def test_the_same_seeds_give_the_same_output_and_others_do_not():
    first, again, other, another = run_programs(
        [DRAWS, DRAWS, {"code": DRAWS, "seed": 5}, {"code": DRAWS, "hash_seed": 5}]
    )
    assert first.stdout == again.stdout
    words, seeded, hashed = (result.stdout.split(maxsplit=3) for result in (first, other, another))
    assert all(a != b for a, b in zip(words[:3], seeded[:3], strict=True))
    assert words[3] == seeded[3]
    assert words[:3] == hashed[:3]
    assert words[3] != hashed[3]
    assert (other.seed, another.hash_seed) == (5, 5)


DATES = """
from datetime import date, datetime, timedelta, timezone
import datetime as module, pickle, time
stamp = datetime.now(timezone.utc)
print(date.today(), datetime.now().date(), stamp.date(), time.strftime("%Y-%m-%d"), time.gmtime().tm_year)
print(datetime.fromtimestamp(time.time()).year, isinstance(date(2020, 1, 1), date), isinstance(3, date))
print(isinstance(stamp, date), stamp + timedelta(days=1) > stamp, pickle.loads(pickle.dumps(stamp)) == stamp)
print(time.gmtime(0).tm_year, datetime.strptime("2001", "%Y").year, module.datetime.utcnow().year)
"""


def test_a_program_may_be_given_another_day():
    result = run_python(DATES, date="2031-05-17")
    assert result.stdout == (
        "2031-05-17 2031-05-17 2031-05-17 2031-05-17 2031\n2031 True False\nTrue True True\n1970 2001 2031\n"
    ), result
    assert run_python("import datetime; print(datetime.date.today())").stdout[:4] != "2031"


def test_limits_are_the_callers():
    fits = "block = bytearray(600 << 20); print(len(block) >> 20)"
    assert run_python(fits, memory_mb=1024).stdout == "600\n"
    assert run_python(fits, memory_mb=512).status == "memory"


def test_the_result_says_what_was_enforced_and_what_it_cost():
    result = run_python("sum(range(10**6))")
    assert isinstance(result, ProgramResult)
    assert result.isolation in ("L3", "L2")
    assert set(result.enforced.values()) <= {"enforced", "watched"}
    assert 0 < result.cpu_seconds < 5
    assert 10 < result.max_rss_mb < 500
    assert ProgramResult.model_validate_json(result.model_dump_json()) == result


def test_the_notebook_shows_output_as_text():
    shown = run_python("print('<script>')")._repr_html_()
    assert "<b>ok</b>" in shown
    assert "&lt;script&gt;" in shown


def test_many_programs_come_back_in_their_order():
    results = run_programs(
        [f"import time; time.sleep({0.05 if i % 3 else 0.2}); print({i})" for i in range(9)], workers=3
    )
    assert [result.answer for result in results] == [str(i) for i in range(9)]
    assert run_programs([]) == []


WRONG = {
    "timeout": [0, -1, math.nan, math.inf, "10", True, None],
    "memory_mb": [0, 100, 1024.0, "1024"],
    "seed": [-1, 2**32, 1.5, None],
    "hash_seed": [-1, "random"],
    "date": ["yesterday", "2031-02-30", 2031],
    "packages": ["numpy", ["numpy; import os"], [1]],
    "stdin": [b"x", None, "x" * (5 << 20)],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]], ids=lambda v: str(v)[:20]
)
def test_wrong_arguments_are_refused_with_their_name(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        run_python("print(1)", **{name: value})


def test_nothing_runs_when_one_of_many_has_a_wrong_argument():
    def programs():
        yield "print(1)"
        yield {"code": "print(1)", "timeout": -1}

    with pytest.raises(ValueError, match="timeout"):
        run_programs(programs())
    with pytest.raises(TypeError, match="time_out"):
        run_programs(["print(1)"], time_out=3)
    with pytest.raises(TypeError, match="code"):
        run_python(b"print(1)")
    with pytest.raises(ValueError, match="workers"):
        run_programs(["print(1)"], workers=0)


def test_a_program_may_end_itself_with_a_signal_that_has_no_name():
    result = run_python("import os, signal\nsignal.signal(40, signal.SIG_DFL)\nos.kill(os.getpid(), 40)")
    assert result.status != "setup_failed"
    assert explain(-40, 0.0, 11) == ("killed", "signal 40")
    assert explain(-9, 0.0, 11)[0] == "killed" and explain(-11, 0.0, 11) == ("killed", "SIGSEGV")
