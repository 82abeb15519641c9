"""The program of a generated problem: found in a reply, run twice, and its output read as one typed answer.

The two runs differ in hash seed, in the seed of random numbers and in the day (as in `cotkit.audit`), so a
program whose answer hangs on any of these gives itself away. What counts as one answer is strict: a single
line (or a single bracketed value) of a type that `check_answer` compares; reports are none, and of
"The answer is 7." it is the 7.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from cotkit.pipelines.running import Dropped
from cotkit.problems import Problem
from cotkit.verify import DAYS, FLOAT_NOISE, acheck_answer, arun_python, read_output

LONGEST_ANSWER = 200  # characters
LONGEST_PROGRAM = 100_000  # characters; parsing a longer one takes seconds in which every call stands still
_FENCE = re.compile(r"```[ \t]*(\w*)[^\n]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_NUMBER = r"[-+]?[$€£]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?"
_ITEMS = r"[^,;:=\n]{1,30}(?:,[^,;:=\n]{1,30})+"
_SHAPES = {  # tried in this order
    "number": rf"{_NUMBER}\s?%?",
    "yes_no": r"(?i:true|false|yes|no)",
    "date": r"\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4}",
    "time": r"\d{1,2}:\d{2}(?::\d{2})?(?:\s?[aApP]\.?[mM]\.?)?",
    "ratio": r"\d+(?:\s?:\s?\d+)+",
    "quantity": rf"{_NUMBER}\s?[^\W\d_°µμΩ]{{1,15}}[^,;:=\n]{{0,20}}|{_NUMBER}\s?[°µμΩ][^,;:=\n]{{0,20}}",
    "option": r"\(?[A-H]\)?",
    "list": _ITEMS,
    "set": _ITEMS,
    "interval": r"[\[(].+,.+[\])](?:\s?(?:U|∪)\s?[\[(].+,.+[\])])*",
    "algebra": r"[-+*/^()=.\w\s\\{}]*[a-zA-Z][-+*/^()=.\w\s\\{}]*",
}
_ONLY_HINTED = {"option", "list", "set", "interval", "algebra", "ratio"}  # else an accident of form


def read_program(reply: str) -> str | None:
    """The program in a reply: the last fenced block that is Python, else the whole reply if that is."""
    blocks = [
        code
        for language, code in _FENCE.findall(reply)
        if language.lower() in ("", "python", "py", "python3")
    ]
    return next((code.strip("\n") for code in [*reversed(blocks), reply] if _is_program(code)), None)


def _is_program(code: str) -> bool:
    if len(code) > LONGEST_PROGRAM:
        return False
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call) for statement in body
    )


async def printed_by(code: str, second: bool = False, **options: Any) -> str:
    """What a program prints in its first or second run; `options` are those of `run_python`."""
    result = await arun_python(code, seed=int(second), hash_seed=int(second), date=DAYS[second], **options)
    if result.status == "setup_failed":  # the machine's fault, not the program's
        raise Dropped("sandbox_failed", result.detail, retryable=True)
    if result.status != "ok":
        last = (result.stderr.strip().splitlines() or [result.detail])[-1]
        raise Dropped(f"program_{result.status}", last[:300])
    return result.stdout


async def check_repeatable(code: str, first: str, **options: Any) -> None:
    """Runs the program again, on another day; raises Dropped when it does not print the same answer."""
    try:
        second = await printed_by(code, second=True, **options)
    except Dropped as dropped:
        if dropped.retryable:
            raise
        raise Dropped("nondeterministic", f"the second run ended in {dropped.reason}") from None
    if first == second:
        return
    (one, _), (other, _) = single_answer(first), single_answer(second)
    said = f"two runs print {first.strip()[:100]} and {second.strip()[:100]}"
    verdict = await acheck_answer(other, one, None, FLOAT_NOISE) if one and other else None
    if verdict is None or not verdict.correct:
        undecided = verdict is not None and verdict.correct is None
        raise Dropped("undecided" if undecided else "nondeterministic", said)


def typed_answer(stdout: str, kin: Sequence[Problem]) -> tuple[str, str, float | None]:
    """(answer, answer_type, tolerance) of an output; the tolerance is that of a seed with such an answer."""
    answer, why = single_answer(stdout)
    if answer is None:
        raise Dropped("no_single_answer", why)
    kind = type_of(answer, {seed.answer_type for seed in kin} - {None})
    if kind is None:
        raise Dropped("no_single_answer", f"no type of answer fits {answer[:100]!r}")
    alike = {"number", "quantity"} if kind in ("number", "quantity") else {kind}
    given = [seed.tolerance for seed in kin if seed.answer_type in alike and seed.tolerance]
    return answer, kind, min(given, default=None)


def single_answer(stdout: str) -> tuple[str | None, str]:
    """(the one answer, "") of an output, or (None, why there is none)."""
    text = stdout.strip()
    printed = read_output("ok", stdout, "")
    lines = sum(bool(line.strip()) for line in text.splitlines())
    if printed.kind:
        return None, "the program prints nothing"
    if printed.several or (lines > 1 and text[0] not in "[({"):
        return None, f"the program prints {lines} lines"
    if len(printed.answer) > LONGEST_ANSWER:
        return None, f"the program prints {len(printed.answer)} characters"
    return printed.answer, ""


def type_of(answer: str, hints: Collection[str] = ()) -> str | None:
    """The answer_type of a printed answer, one of `cotkit.verify.ANSWER_TYPES`; None = it has none.

    `hints`: the types that the seeds have. Some are only believed when a seed has them (a letter, a formula,
    words); without any hint words are.
    """
    if (kind := _literal_type(answer)) is not None:
        return "interval" if kind == "list" and "interval" in hints and "list" not in hints else kind
    if answer.lower() in ("none", "nan", "inf", "-inf", "null", "error", "undefined"):
        return None
    for kind, shape in _SHAPES.items():
        if re.fullmatch(shape, answer.strip()) and (kind not in _ONLY_HINTED or kind in hints):
            return "number" if kind == "quantity" and hints and "quantity" not in hints else kind
    short = len(answer.split()) <= 6 and len(answer) <= 60 and not re.search(r"[:=]", answer)
    return "text" if short and ("text" in hints or not hints) else None


def _literal_type(answer: str) -> str | None:
    if answer[:1] not in "[({":
        return None
    try:
        value = ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if isinstance(value, float | int):  # in parentheses
        return "number" if math.isfinite(value) else None
    rows = value if isinstance(value, list) and value and all(isinstance(r, list) for r in value) else []
    if (
        rows
        and len({len(row) for row in rows}) == 1
        and not any(isinstance(x, list) for r in rows for x in r)
    ):
        return "matrix"
    return {list: "list", tuple: "list", set: "set", dict: "dict"}.get(type(value))
