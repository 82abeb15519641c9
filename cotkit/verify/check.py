"""`check_answer`: one verdict on one answer.

The typed ladder runs inline; what only algebra can settle goes to the worker pool and the ladder runs again
with the answers. `check_answer` blocks and may be called from any thread; `acheck_answer` never blocks the
event loop. Symbolic answers are remembered, failures of the checker are not.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from cotkit.executors import in_chunks
from cotkit.records import Verdict
from cotkit.verify.extraction import after_thinking, extract, is_one_value, reference_answer
from cotkit.verify.ladder import Comparison
from cotkit.verify.normalise import canonical, is_closed
from cotkit.verify.numbers import shown_tolerance
from cotkit.verify.policy import AnswerPolicy, check_answer_type, check_tolerance
from cotkit.verify.quantities import read_quantity
from cotkit.verify.verdicts import FAILURES, Outcome
from cotkit.verify.workers import Answered, shared_pool

REMEMBERED = 20_000  # symbolic answers
AHEAD = 8  # jobs of algebra that `check_answers` has in the workers' queue
CHUNK = 64  # answers that are sent to an executor together
INLINE = 200  # characters; longer texts climb the ladder outside the event loop
DEFAULT_POLICY = AnswerPolicy()
INTEGER = re.compile(r"[+-]?\d{1,15}")
UNMARKED = re.compile(r"[-+\d.,/%$ ]{1,40}")

_remembered: dict[tuple, Outcome] = {}  # each step on it is atomic, so threads need no lock


def check_answer(
    prediction: str | None,
    reference: str | None,
    answer_type: str | None = None,
    tolerance: float | None = None,
    *,
    policy: AnswerPolicy = DEFAULT_POLICY,
) -> Verdict:
    r"""Is `prediction` the same answer as `reference`?

    Both are answers ("72", `\frac{1}{2}`); a whole completion or worked solution works too, its final answer
    is extracted first. `answer_type` is one of `cotkit.verify.ANSWER_TYPES`, None = found out from the texts.
    `tolerance` is relative, above 0 and below 1. `correct` is None where no program can tell; `method` names
    the stage that decided: no answer is False with "no_answer", no usable reference None with "no_reference".
    Never raises on any text; ValueError or TypeError for an unknown type, a bad tolerance, or a non-text.
    """
    check = Check(prediction, reference, answer_type, tolerance, policy)
    while check.verdict is None:
        check.resume(shared_pool().submit(*check.job).result())
    return check.verdict


SIGNATURE = inspect.signature(check_answer)


async def acheck_answer(
    prediction: str | None,
    reference: str | None,
    answer_type: str | None = None,
    tolerance: float | None = None,
    *,
    policy: AnswerPolicy = DEFAULT_POLICY,
) -> Verdict:
    """`check_answer` for a coroutine: the loop stays free, and cancelling gives the place back."""
    arguments = (prediction, reference, answer_type, tolerance, policy)
    short = len(prediction or "") + len(reference or "") <= INLINE
    check = Check(*arguments) if short else await asyncio.to_thread(Check, *arguments)
    while check.verdict is None:
        check.resume(await asyncio.wrap_future(shared_pool().submit(*check.job)))
    return check.verdict


def check_answers(
    answers: Iterable[tuple | dict[str, Any]], *, executor: Any = None, **options: Any
) -> list[Verdict]:
    """Many checks; verdicts in the order of the answers. What needs algebra is worked on side by side.

    An answer is (prediction, reference), or a dict of `check_answer`'s arguments that go before `options`.
    executor: where they are checked, in chunks: anything with concurrent.futures' `submit`, such as a Dask
        cluster's `Client.get_executor()`. None = in this process.

    Raises TypeError or ValueError, naming the row, before the first check.
    """
    rows = [_arguments(number, answer, options) for number, answer in enumerate(answers)]
    if executor is not None:
        return in_chunks(executor, check_answers, rows, CHUNK)
    checks = [Check(**row) for row in rows]
    undecided = deque(check for check in checks if check.verdict is None)
    asked: dict[Future, Check] = {}
    try:
        while undecided or asked:
            while undecided and len(asked) < AHEAD:  # runs that go on beside this need the workers too
                check = undecided.popleft()
                check.look_again()
                if check.verdict is None:
                    asked[shared_pool().submit(*check.job)] = check
            for answered in wait(asked, return_when=FIRST_COMPLETED).done:
                check = asked.pop(answered)
                check.resume(answered.result())
                if check.verdict is None:
                    undecided.appendleft(check)
    except BaseException:  # an interrupt
        for answered in asked:
            answered.cancel()
        raise
    return [check.verdict for check in checks]


def _arguments(number: int, answer: Any, options: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(answer, dict):
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise TypeError(f"row {number}: give (prediction, reference) or a dict, got {answer!r:.80}")
        answer = dict(zip(("prediction", "reference"), answer, strict=True))
    try:
        bound = SIGNATURE.bind(**options | answer)
        bound.apply_defaults()
        check_arguments(*bound.arguments.values())
    except (TypeError, ValueError) as error:
        raise type(error)(f"row {number}: {error}") from None
    return bound.arguments


class Check:
    """One check under way: `verdict`, or the `job` the worker pool must do first."""

    def __init__(self, prediction, reference, answer_type, tolerance, policy: AnswerPolicy):
        check_arguments(prediction, reference, answer_type, tolerance, policy)
        self.job: tuple[list, dict, float] | None = None
        self.verdict = quick(prediction, reference, answer_type, tolerance)
        if self.verdict is None:
            self.reference = reference_answer(reference)
            self.prediction, missing = the_answer(prediction)
            self.verdict = at_once(self.prediction, self.reference, missing, policy.longest)
        if self.verdict is None:
            if answer_type == "quantity" and tolerance is None:
                gold = read_quantity(canonical(self.reference))
                tolerance = gold and gold.number and shown_tolerance(gold.number)
            self.comparison = Comparison(policy, answer_type, tolerance)
            self.seconds = policy.seconds  # of the symbolic stage, for the whole check
            self.options = (
                ("tolerance", tolerance),
                ("rounding", policy.rounding),
                ("positive_symbols", policy.positive_symbols),
            )
            self.climb()

    def look_again(self) -> None:
        """Others may have asked the same in the meantime."""
        self.job = None
        self.climb()

    def climb(self) -> None:
        """Run the ladder with the symbolic answers known so far; ask for those that it still wants."""
        comparison = self.comparison
        while self.job is None:
            comparison.wanted = []
            try:
                outcome = comparison.compare(self.reference, self.prediction)
            except Exception as error:  # noqa: BLE001  a fault of the checker must not sink a run
                outcome = Outcome(None, "error", f"the checker failed: {error!r}"[:200])
            if outcome.correct is not None or not comparison.wanted:
                self.verdict = Verdict(**outcome._asdict())
                return
            missing = []
            for pair in comparison.wanted:
                if (known := _remembered.get((pair, self.options))) is not None:
                    comparison.answers[pair] = known
                elif self.seconds <= 0:
                    comparison.answers[pair] = Outcome(None, "timeout", "the comparison did not end in time")
                else:
                    missing.append(pair)
            if missing:
                self.job = (missing, dict(self.options), self.seconds)

    def resume(self, answered: Answered) -> None:
        """Go on with what a worker answered."""
        (pairs, _, _), self.job = self.job, None
        outcomes, seconds = answered
        self.seconds -= seconds
        self.comparison.answers |= dict(zip(pairs, outcomes, strict=True))
        if len(_remembered) > REMEMBERED:
            _remembered.clear()
        for pair, outcome in zip(pairs, outcomes, strict=True):
            if outcome.method not in FAILURES:
                _remembered[pair, self.options] = outcome
        self.climb()


def check_arguments(prediction, reference, answer_type, tolerance, policy) -> None:
    for name, value in (("prediction", prediction), ("reference", reference)):
        if value is not None and not isinstance(value, str):
            raise TypeError(
                f"check_answer compares texts: {name} is {type(value).__name__}, give str({name})"
            )
    check_answer_type(answer_type)
    if tolerance is not None:
        check_tolerance(tolerance, "tolerance")
    if not isinstance(policy, AnswerPolicy):
        raise TypeError(f"policy must be an AnswerPolicy, got {type(policy).__name__}")


def quick(prediction, reference, answer_type, tolerance) -> Verdict | None:
    """Two plain integers need no ladder."""
    if answer_type not in (None, "number") or tolerance is not None or not prediction or not reference:
        return None
    if INTEGER.fullmatch(prediction) and INTEGER.fullmatch(reference):
        correct = int(prediction) == int(reference)
        return Verdict(correct=correct, method="number", reason="equal" if correct else "different values")
    return None


def the_answer(prediction: str | None) -> tuple[str | None, str]:
    """The answer inside a prediction, else (None, why there is none)."""
    if prediction is None or not prediction.strip():
        return None, "the prediction is empty"
    if UNMARKED.fullmatch(prediction) or is_closed(prediction.strip()):
        return prediction.strip(), ""
    found = extract(prediction)
    if found.how not in ("none", "bare"):
        return found.answer, found.how.replace("_", " ")
    visible = after_thinking(prediction)
    if not visible:
        return None, "nothing after the thinking"
    if not is_one_value(visible):
        return None, "several lines without a marked answer"
    return visible, ""


def at_once(prediction: str | None, reference: str | None, missing: str, longest: int) -> Verdict | None:
    """The verdict that needs no comparison."""
    if reference is None:
        return Verdict(correct=None, method="no_reference", reason="the reference holds no answer")
    if prediction is None:
        return Verdict(correct=False, method="no_answer", reason=missing)
    if prediction == reference and reference.lower() != "nan":
        return Verdict(correct=True, method="same", reason="the same text")
    if max(len(reference), len(prediction)) > longest:
        return Verdict(correct=None, method="too_long", reason=f"an answer of over {longest} characters")
    return None
