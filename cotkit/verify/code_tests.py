"""Running a program that is an answer against the tests of its problem (code_asserts.py reads them).

A candidate is hostile: it may print "PASS", exit, replace built-ins, return objects that equal everything, or
read its own process. So it never shares a process with what it must give:

- an input/output case: the program runs with `input` as stdin; its stdout is compared here
- asserts: the test runs in a process without the candidate. What it calls of the candidate is noted; the
  candidate makes these calls in a process of its own, and the test runs again with the values that came
  back, until it calls nothing new (code_probe.py). Only names and arguments reach the candidate.
- a test that hands over what cannot travel (a function, an object of its own, a coroutine) runs beside the
  candidate. A candidate that looks for it can pass such a test without solving it, and the outcome says so.
- a test that failed without the candidate runs beside it once more: not everything that a right program does
  can be told from one process to another. Where it holds there nothing is decided, so that it forges nothing.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import lzma
import math
import pathlib
import re
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from cotkit.verify.code_asserts import Asserts, Case, short
from cotkit.verify.sandbox import arun_python
from cotkit.verify.sandbox.job import MOST_TEXT
from cotkit.verify.sandbox.outcome import KEPT_BYTES

IMPORTS = re.compile(r"^from cotkit\.verify\.(code_\w+) import (?:\([^)]*\)|.*)$", re.M)
ROUNDS = 40  # runs of the candidate for one test: every value that the next call depends on takes one


class Outcome(NamedTuple):
    """`passed` None = the test itself, or the sandbox, failed, or nobody outside the program could tell."""

    passed: bool | None
    status: str = "ok"  # of the program: ok, error, timeout, ...
    reason: str = ""
    beside: bool = False  # the test ran in the program's process
    certain: bool = True  # False: failed apart from the program, where not everything can be told


async def run_tests(
    code: str, tests: Sequence[Case | Asserts], tolerance: float | None, **options: Any
) -> list[Outcome]:
    """The outcomes of one program's tests in their order, up to the first that ran out of time; `options` are
    those of `arun_python`.
    """
    if len(code) > MOST_TEXT // 2:
        return [Outcome(False, "error", f"the program has more than {MOST_TEXT // 2:,} characters")]
    if all(isinstance(test, Asserts) and not test.beside for test in tests):
        outcomes = await run_apart(code, tests, **options)
        return await confirmed(code, tests, outcomes, **options)
    outcomes = []
    for test in tests:
        if isinstance(test, Case):
            outcomes.append(await run_case(code, test, tolerance, **options))
        elif test.beside:
            outcomes.append(await run_beside(code, test, **options))
        else:
            outcomes += await run_apart(code, [test], **options)
        if outcomes[-1].status == "timeout":
            break
    return await confirmed(code, tests, outcomes, **options)


async def confirmed(
    code: str, tests: Sequence[Case | Asserts], outcomes: list[Outcome], **options: Any
) -> list[Outcome]:
    """A test that failed apart from the program runs beside it too, up to the first that fails there as well:
    where it holds there, only the program can say who is right.
    """
    for number, outcome in enumerate(outcomes):
        if outcome.passed is not False:
            continue
        if outcome.certain:
            break
        other = await run_beside(code, tests[number], **options)
        if other.passed:
            reason = f"it holds only in the program's own process: apart from it, {outcome.reason}"
            outcomes[number] = Outcome(None, "only_beside", short(reason), beside=True)
        elif other.status == "setup_failed":
            outcomes[number] = other
        else:
            break
    return outcomes


async def run_case(code: str, test: Case, tolerance: float | None, **options: Any) -> Outcome:
    result = await arun_python(code, stdin=test.input, **options)
    if result.status != "ok":
        passed = None if result.status == "setup_failed" else False
        return Outcome(passed, result.status, result.detail)
    if result.truncated and len(result.stdout.encode("utf-8", "replace")) > KEPT_BYTES:
        return of_long_output(result.stdout, test.output)
    if same_output(result.stdout, test.output, tolerance):
        return Outcome(True)
    return Outcome(False, "ok", f"printed {short(result.stdout)}")


def of_long_output(printed: str, expected: str) -> Outcome:
    """The sandbox keeps head and tail of a long output: that can show it to be wrong, never to be right."""
    head = printed[: KEPT_BYTES // 8].split("\n")[:-1]
    if not same_output("\n".join(head), "\n".join(expected.split("\n")[: len(head)]), None):
        return Outcome(False, "ok", f"printed {short(printed)}")
    return Outcome(None, "ok", f"it printed more than {KEPT_BYTES >> 10} KiB, too much to compare")


async def run_apart(code: str, tests: Sequence[Asserts], **options: Any) -> list[Outcome]:
    """Runs the tests without the candidate, the candidate's calls without the tests, and the tests again."""
    outcomes: dict[int, Outcome] = {}
    ready = [test.ready() for test in tests]
    talks = {number: {"calls": [], "results": "[]"} for number in range(len(tests))}
    together = True
    for _ in range(ROUNDS):
        waiting = [number for number in talks if number not in outcomes]
        if not waiting:
            break
        asked = [ready[number] | talks[number] for number in waiting]
        told, together = await ask_tests(asked, options, together)
        for number, said in zip(waiting, told, strict=False):
            if isinstance(said, Said):
                outcomes[number] = of_silence(said, talks[number])
                continue
            outcome, reason, calls = said
            if outcome == "beside":
                outcomes[number] = await run_beside(code, tests[number], **options)
            elif calls == talks[number]["calls"]:
                passed = {"held": True, "failed": False, "wrong": False}.get(outcome)
                outcomes[number] = Outcome(passed, "ok", short(reason), certain=outcome != "failed")
            else:
                results = await converse("program", options, code=code, calls=calls)
                if results.value is None:
                    outcomes[number] = results.outcome
                talks[number] = {"calls": calls, "results": results.value}
            if number in outcomes and outcomes[number].status == "timeout":
                talks = {other: talks[other] for other in talks if other <= number}
                break
    unended = Outcome(None, "ok", f"the test was not at its end after {ROUNDS} runs of the program")
    return [outcomes.get(number, unended) for number in talks]


async def ask_tests(asked: list[dict], options: dict, together: bool) -> tuple[list, bool]:
    """What each test told, or the Said of its process; and whether one process could run them all. Where it
    could not, each has one of its own, up to the first that runs out of time.
    """
    if together:
        said = await converse("tests", options, tests=asked)
        told = said.value and read(said.value)
        if isinstance(told, list) and len(told) == len(asked):
            return told, True
        if len(asked) == 1 or said.status == "setup_failed":
            return [said] * len(asked), True
    found: list = []
    for one in asked:
        found += (await ask_tests([one], options, True))[0]
        if isinstance(found[-1], Said) and found[-1].status == "timeout":
            break
    return found, False


def of_silence(said: Said, talk: dict[str, Any]) -> Outcome:
    """Of a test whose process told nothing: the program's fault where it took what the program gave to use up
    time or memory.
    """
    given = talk["results"] != "[]" and any(call[0] != "name" for call in talk["calls"])
    passed = False if given and said.status in ("timeout", "memory") else None
    return Outcome(passed, said.status, f"the test: {said.reason or 'what it told cannot be read'}")


async def run_beside(code: str, test: Asserts, **options: Any) -> Outcome:
    said = await converse("both", options, code=code, test=test.ready())
    if said.value is None:
        return said.outcome._replace(beside=True)
    match read(said.value):
        case [str(outcome), str(reason)]:
            passed = {"held": True, "failed": False, "wrong": False}.get(outcome)
            return Outcome(passed, "ok", short(reason), beside=True)
    return Outcome(False, "error", "what it told cannot be read", beside=True)


class Said(NamedTuple):
    """What a process told, as JSON text; None = it did not get so far, or told too much."""

    value: str | None
    status: str
    reason: str = ""

    @property
    def outcome(self) -> Outcome:
        """Of a program that told nothing."""
        undecided = self.status in ("setup_failed", "too_long")
        return Outcome(None if undecided else False, self.status, self.reason)


async def converse(part: str, options: dict[str, Any], **asked: Any) -> Said:
    """Runs code_probe.py in the part of `program`, `tests` or `both`."""
    word = secrets.token_hex(16)
    stdin = json.dumps({"part": part, "word": word, **asked})
    if len(stdin) > MOST_TEXT:
        return Said(None, "too_long", "the program, its tests and values are too long")
    result = await arun_python(probe(), stdin=stdin, **options)
    _, told, rest = result.stdout.rpartition(f"\n{word}")
    if told:
        size, _, packed = rest.partition("\n")[0].partition(":")
        if size == str(len(packed)):
            with contextlib.suppress(ValueError, lzma.LZMAError):
                return Said(unpacked(packed), result.status)
    if result.truncated and result.status == "ok":
        return Said(None, "too_long", "its values are too long to compare")
    if told:
        return Said(None, "error", "what it told cannot be read")
    ended = "it ended before the test did" if result.status == "ok" else result.status
    return Said(None, result.status, result.detail or ended)


def read(told: str) -> Any:
    try:
        return json.loads(told)
    except (ValueError, RecursionError):
        return None


@functools.cache
def probe() -> str:
    """code_probe.py as one text: nothing of cotkit can be imported in the sandbox."""
    placed: set[str] = set()

    def text(name: str) -> str:
        if name in placed:
            return ""
        placed.add(name)
        source = pathlib.Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        return IMPORTS.sub(lambda found: text(found[1]), source)

    return text("code_probe")


def unpacked(packed: str) -> str:
    text = lzma.LZMADecompressor(memlimit=256 << 20).decompress(base64.b85decode(packed), MOST_TEXT + 1)
    return text.decode("ascii")  # one character too many is refused where it is passed on


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
