"""A language model as the last step of verification: are two answers the same, where no program can tell?

After the semantic verifier of Loong (arXiv 2509.03059). The model is asked twice with the sides swapped,
without being told which is the reference, and decides only when both verdicts agree, because models prefer a
place (Zheng et al. 2023, arXiv 2306.05685, section 3.3). Both answers stand between markers that no text
inside can close (see llm.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cotkit import aio
from cotkit.chat import PERMANENT, ModelError
from cotkit.judge.llm import nonce
from cotkit.problems import Problem
from cotkit.prompts import load
from cotkit.records import Extraction, Verdict
from cotkit.verify import AnswerVerifier, Verifier, has_program

MODEL_FAILED = "model_failed"  # method of a verdict that the model was asked for and did not give
LONGEST = 20_000  # characters of an answer the model is asked about
SAYS = {"equivalent": True, "different": False, "cannot tell": None}
SCHEMA = {
    "title": "comparison",
    "type": "object",
    "properties": {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": list(SAYS)}},
    "required": ["reason", "verdict"],
    "additionalProperties": False,
}


class ModelVerifier(Verifier):
    """Asks `model` where `first` (default: `AnswerVerifier()`) cannot decide; such verdicts have
    `method="model"`, so that reports count them apart.

    It is asked only where there is an answer and a reference, and never about a problem with a check program
    or tests, whose reference is one right answer of several. An answer or a reference of over 20,000
    characters stays undecided unasked. A model that fails leaves the answer undecided with
    `method="model_failed"`: a run keeps no such trace, whatever a judge says, and the next call asks again.
    """

    calls_model = True

    def __init__(self, model: Any, first: Verifier | None = None):
        if not callable(getattr(model, "acomplete", None)):
            raise TypeError(f"model must be a ChatModel, got {type(model).__name__}")
        if first is not None and not isinstance(first, Verifier):
            raise TypeError(f"first must be a Verifier, got {type(first).__name__}")
        self.model, self.first = model, first or AnswerVerifier()
        self.prompt = load("verify")

    @property
    def models(self) -> list[Any]:
        return [*self.first.models, self.model]

    def describe(self) -> dict[str, Any]:
        return {
            "verifier": "ModelVerifier",
            "model": self.model.describe(),
            "first": self.first.describe(),
            "prompt": {"name": self.prompt.name, "hash": self.prompt.hash},
        }

    def check_problems(self, problems: Iterable[Problem]) -> None:
        self.first.check_problems(problems)

    def can_check(self, problem: Problem) -> bool:
        return self.first.can_check(problem)

    def gold(self, problem: Problem) -> str | None:
        return self.first.gold(problem)

    async def averify(
        self, problem: Problem, text: str, *, truncated: bool = False, ledger: Any = None
    ) -> tuple[Extraction, Verdict]:
        found, verdict = await self.first.averify(problem, text, truncated=truncated, ledger=ledger)
        gold = None if has_program(problem) else self.gold(problem)
        if verdict.correct is not None or gold is None or not found.answer:
            return found, verdict
        if max(len(gold), len(found.answer)) > LONGEST:
            reason = f"an answer of over {LONGEST:,} characters is not sent to a model"
            return found, Verdict(correct=None, method="too_long", reason=reason)
        orders = ((gold, found.answer), (found.answer, gold))
        said = await aio.together(self._ask(problem.problem, *order, ledger) for order in orders)
        correct = said[0].correct if said[0].correct == said[1].correct else None
        reasons = list(dict.fromkeys(one.reason for one in said))
        method = MODEL_FAILED if any(one.method == MODEL_FAILED for one in said) else "model"
        return found, Verdict(correct=correct, method=method, reason="; swapped: ".join(reasons))

    async def _ask(self, problem: str, one: str, other: str, ledger: Any) -> Verdict:
        messages = self.prompt.messages(
            problem=problem, one=one, other=other, nonce=nonce(problem, one, other)
        )
        try:
            completion = await self.model.acomplete(messages, schema=SCHEMA, ledger=ledger, role="verifier")
        except ModelError as error:
            if error.stops_run:
                raise
            lasting = error.kind in PERMANENT or error.kind == "parse"  # no failure of today: undecided
            method = "model" if lasting else MODEL_FAILED
            return Verdict(correct=None, method=method, reason=f"{error.kind}: {error}")
        said = completion.parsed
        reason = f"{said['verdict']}: {said['reason']}"
        return Verdict(correct=SAYS[said["verdict"]], method="model", reason=reason)
