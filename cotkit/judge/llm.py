"""A language model as judge: one call a trace, a reason before each score, integers on a stated scale.

The trace is data: it stands between markers that carry a code made from the hash of what is judged, so no
trace can close them, and the prompt says that instructions inside are not to be followed. An answer that
does not fit is sent back once with the error (by the chat model); after that the judgement has no scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2

from cotkit.chat import ModelError
from cotkit.judge.base import Judge
from cotkit.judge.dimensions import answer_schema, parse_dimensions, read_answer
from cotkit.problems import Problem
from cotkit.prompts import load_all
from cotkit.records import Dimension, Judgement


class LLMJudge(Judge):
    """Scores traces with a chat model.

    `model`: a `ChatModel`. `dimensions`: None (correctness, clarity, completeness), names of these, dicts
    `{"name", "guide", "scale": (low, high), "anchors": {score: text}}` or `Dimension`s.
    `show_reference=True` lets the judge see the reference; its judgements then say so.
    `prompt`: your own Jinja2 text in place of prompts/judge.j2, with the variables problem, trace,
    reference (None when hidden), dimensions, nonce.
    """

    def __init__(
        self,
        model: Any,
        dimensions: Iterable[Dimension | Mapping[str, Any] | str] | None = None,
        *,
        show_reference: bool = False,
        prompt: str | None = None,
        name: str | None = None,
    ):
        if not callable(getattr(model, "acomplete", None)):
            raise TypeError(f"model must be a ChatModel, got {type(model).__name__}")
        if not isinstance(show_reference, bool):
            raise TypeError(f"show_reference must be True or False, got {show_reference!r}")
        self.model, self.show_reference = model, show_reference
        self.dimensions = parse_dimensions(dimensions)
        super().__init__(name or f"llm:{_model_name(model)}", tuple(d.name for d in self.dimensions))
        self.note = ", sees the reference" if show_reference else ", does not see the reference"
        self.schema = answer_schema(self.dimensions)
        self.prompt = load_all(None if prompt is None else {"judge": prompt}, "judge")["judge"]
        self._check_prompt()

    def _check_prompt(self) -> None:
        shown = {"problem": "questionwords", "trace": "tracewords"}  # which no filter (tojson, e) changes
        probe = Problem(id="check", problem=shown["problem"], reference="referencewords")
        try:
            rendered = str(self.messages(probe, shown["trace"])).lower()
        except jinja2.UndefinedError as error:
            raise ValueError(
                f"the judge's prompt uses a variable it is not given: {error} "
                "(it gets problem, trace, reference, dimensions, nonce)"
            ) from None
        if missing := [name for name, words in shown.items() if words not in rendered]:
            raise ValueError(f"the judge's prompt never shows {{{{ {missing[0]} }}}}")

    def messages(self, problem: Problem, trace: str) -> list[dict[str, str]]:
        """The messages a call sends."""
        reference = problem.reference if self.show_reference else None
        return self.prompt.messages(
            problem=problem.problem,
            trace=trace,
            reference=reference,
            dimensions=self.dimensions,
            nonce=nonce(problem.problem, trace, reference or ""),
        )

    async def ajudge(self, problem: Problem, trace: str, *, ledger: object = None) -> Judgement:
        known = {"saw_reference": self.show_reference and problem.reference is not None}
        try:
            completion = await self.model.acomplete(
                self.messages(problem, trace), schema=self.schema, ledger=ledger, role="judge"
            )
        except ModelError as error:
            if error.stops_run:
                raise
            return self._failed(f"{error.kind}: {error}", raw=error.raw, **known)
        known |= {"raw": completion.text, "call": completion.provenance()}
        try:
            scores, reasons, feedback = read_answer(completion.parsed, self.dimensions)
        except ValueError as error:
            return self._failed(f"parse: {error}", **known)
        return Judgement(scores=scores, reasons=reasons, feedback=feedback, judge=self.name, **known)

    @property
    def models(self) -> list[Any]:
        return [self.model]

    def describe(self) -> dict[str, Any]:
        return {
            "judge": "LLMJudge",
            "name": self.name,
            "model": self.model.describe(),
            "dimensions": [dimension.model_dump(mode="json") for dimension in self.dimensions],
            "show_reference": self.show_reference,
            "prompt": {"name": self.prompt.name, "hash": self.prompt.hash},
        }


def nonce(*texts: str) -> str:
    """A code that stands in none of the texts, the same for the same texts."""
    joined = "\0".join(texts)
    code, tries = "", 0
    while not code or code in joined:
        code = hashlib.sha256(f"{tries}\0{joined}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        tries += 1
    return code


def _model_name(model: Any) -> str:
    return str(getattr(model, "name", None) or getattr(model, "model", None) or type(model).__name__)
