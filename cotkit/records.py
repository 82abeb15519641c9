"""The records that travel between rooms: what an endpoint answered, what a check and a judge said, and the
row of a finished problem. (`Problem`, what goes in, lives in `cotkit.problems`.)
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cotkit.shown import Shown

SCHEMA_VERSION = 1

# How endpoints say that an answer is no whole one; with a finish_reason that is not here it is whole.
_UNFINISHED = {
    "cut": ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"),
    "broken": ("error", "abort", "network_error", "insufficient_system_resource"),
    "refused": (
        *("content_filter", "content_filtered", "guardrail_intervened", "refusal"),
        *("safety", "sensitive", "recitation", "prohibited_content", "blocklist", "spii"),
    ),
}
_WHY_UNFINISHED = {reason: why for why, reasons in _UNFINISHED.items() for reason in reasons}

VERIFIER_FAILED = frozenset({"model_failed", "sandbox_failed"})  # methods of a verdict that was not come to

Stage = Literal["draft", "refine", "rationalize"]


class Usage(BaseModel):
    """Tokens and US dollars of one call. None = the endpoint or the price table does not say; never 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


def unfinished(finish_reason: Any) -> str | None:
    """Why an answer that ended so is no whole one: "cut" at a limit, "broken" off by a fault, "refused" (by
    the model or a filter); None = it is whole."""
    if not isinstance(finish_reason, str):
        return None
    return _WHY_UNFINISHED.get(finish_reason.partition(":")[0].lower())  # "content_filter: RECITATION"


class Attempt(BaseModel):
    """One try that failed before the answer came."""

    endpoint: str
    model: str
    kind: str  # a ModelError kind
    message: str = ""


class Completion(Shown, BaseModel):
    """One model answer. `text` is what the user sees, `reasoning` the chain of thought apart from it."""

    text: str
    reasoning: str | None = None  # None = the model gave none; "" = it gave an empty one
    finish_reason: str | None = None
    truncated: bool = False  # cut at max_tokens, or a <think> that never closed
    model: str  # asked for
    served_model: str | None = None  # said by the endpoint
    endpoint: str  # host[:port] of base_url, never a key
    params: dict[str, Any] = Field(default_factory=dict)
    seed: int | None = None
    sample_index: int = 0
    attempts: list[Attempt] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    latency_s: float = 0.0
    cached: bool = False
    logprobs: list[dict[str, Any]] | None = None
    parsed: Any = None  # the validated object when a schema was asked for

    @property
    def trace(self) -> str:
        """Reasoning and answer as one text, in the canonical `<think>` form."""
        if not (self.reasoning or "").strip():
            return self.text
        return f"<think>\n{self.reasoning.strip()}\n</think>\n\n{self.text}"

    def provenance(self) -> dict[str, Any]:
        """Everything but the words: what a row records about the call. Where logprobs were asked for
        (`extra_body={"logprobs": True}`), the mean over the tokens, `mean_logprob`, stands for them.
        """
        known = self.model_dump(exclude={"text", "reasoning", "logprobs", "parsed"})
        given = [entry.get("logprob") for entry in self.logprobs or ()]
        if given and all(isinstance(logprob, (int, float)) for logprob in given):
            known["mean_logprob"] = sum(given) / len(given)
        return known

    def shown(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "model": f"{self.served_model or self.model} at {self.endpoint}",
            "ended by": f"{self.finish_reason}{', cut off' if self.truncated else ''}",
            "took": f"{self.latency_s:.1f} s{', from the cache' if self.cached else ''}",
            "tokens": self.usage.completion_tokens,
            "cost in USD": self.usage.cost_usd,
        }


class Verdict(Shown, BaseModel):
    """`correct` is True, False, or None when it cannot be decided; `method` names the stage that decided."""

    model_config = ConfigDict(frozen=True)

    correct: bool | None
    method: str
    reason: str = ""

    @property
    def in_words(self) -> str:
        return {True: "✓ right", False: "✗ wrong", None: "? undecided"}[self.correct]

    def shown(self) -> dict[str, Any]:
        return {"verdict": self.in_words, "by": self.method, "because": self.reason}


class Extraction(Shown, BaseModel):
    """The final answer found in a completion and the marker it stood in; `answer` None = none found."""

    model_config = ConfigDict(frozen=True)

    answer: str | None
    how: str


class Dimension(Shown, BaseModel):
    """One axis a judge scores: asked for on the integer `scale` (low, high), stored on 0..1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    guide: str
    scale: tuple[int, int] = (0, 10)
    anchors: dict[int, str] = Field(default_factory=dict)


# JSON has no NaN, so that a folder may hold null in its place.
Score = Annotated[float, BeforeValidator(lambda score: math.nan if score is None else score)]


class Judgement(Shown, BaseModel):
    """Scores on 0..1 by dimension. `scores` is None when the judge failed, as one has that gives a score that
    is no finite number; `error` then says why.

    A judge that failed is never a 0: it is left out of means and counted in the open.
    """

    scores: dict[str, Score] | None
    reasons: dict[str, str] = Field(default_factory=dict)
    feedback: str = ""
    judge: str = ""
    saw_reference: bool = False
    error: str | None = None
    raw: Any = None
    call: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _no_number_is_no_score(self) -> Judgement:
        strange = [name for name, score in (self.scores or {}).items() if not math.isfinite(score)]
        if strange:
            said = ", ".join(f"{name}: {self.scores[name]}" for name in strange)
            self.scores, self.error = None, self.error or f"{said} is no number"
        return self

    @property
    def mean(self) -> float | None:
        """Over the dimensions, always a finite number; None when there is none."""
        mean = sum(self.scores.values()) / len(self.scores) if self.scores else math.nan
        return mean if math.isfinite(mean) else None

    def shown(self) -> dict[str, Any]:
        return {
            "scores": self.scores,
            "failed": self.error,
            "reasons": self.reasons,
            "feedback": self.feedback,
        }


class Candidate(Shown, BaseModel):
    """One trace of one problem, with everything that is known about it."""

    iteration: int  # 0 = first draft
    sample_index: int = 0  # among the drafts of one problem
    stage: Stage = "draft"
    parent: int | None = None  # index of the candidate it was refined from
    trace: str  # reasoning + answer as one text
    reasoning: str | None = None  # reasoning apart from the text, when the model gives it apart
    text: str  # the visible answer
    answer: str | None = None  # extracted final answer
    answer_how: str = ""  # the marker it stood in
    truncated: bool = False
    verdict: Verdict
    judgement: Judgement | None = None  # None = not judged
    accepted: bool = False
    feedback: str = ""  # what the next iteration is told
    saw_reference: bool = False  # the generator, or the judge whose feedback it used, saw the reference
    rationalized: bool = False
    leaks: list[str] = Field(default_factory=list)  # signs that the hint shows
    prompt: dict[str, str] = Field(default_factory=dict)  # name, hash
    call: dict[str, Any] = Field(default_factory=dict)  # Completion.provenance()

    @property
    def score(self) -> float | None:
        """The judge's mean score; None when not judged, or when the judge failed."""
        return self.judgement.mean if self.judgement else None

    def rank(self) -> tuple:
        """Sorts worst first: accepted, then the program's verdict, an answer at all, the mean score; earlier
        candidates win ties.
        """
        return (
            self.accepted,
            {True: 2, None: 1, False: 0}[self.verdict.correct],
            self.answer is not None and not self.truncated,
            -math.inf if self.score is None else self.score,
            -self.iteration,
            -self.sample_index,
        )

    def shown(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "answer": self.answer,
            "verdict": f"{self.verdict.in_words} ({self.verdict.method}) {self.verdict.reason}",
            "scores": self.judgement and (self.judgement.scores or self.judgement.error),
            "stage": f"{self.stage}, iteration {self.iteration}",
            "model": self.call.get("served_model") or self.call.get("model"),
        }


class Row(Shown, BaseModel):
    """A finished problem: the problem, every candidate, and the decision recorded beside them.

    `accepted` rows are kept (rows.jsonl), the others are dropped with a `drop_reason` (drops.jsonl);
    both keep every candidate, so a policy can be run again without a call.
    """

    schema_version: int = SCHEMA_VERSION
    version: str = ""  # of cotkit
    index: int  # position in the input
    id: str
    problem: str
    reference: str | None = None
    type: str | None = None
    answer_type: str | None = None
    tolerance: float | None = None
    licence: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    candidates: list[Candidate] = Field(default_factory=list)
    errors: list[dict[str, Any]] = Field(default_factory=list)  # failed calls: stage, kind, message
    final: int | None = None  # index into candidates; None = no trace at all
    accepted: bool = False
    drop_reason: str | None = None
    detail: str = ""  # the drop in words: which dimension fell short, what the endpoint said
    retryable: bool = False  # not accepted, and an endpoint or a judge failed: a resumed run asks again
    seconds: float = 0.0

    @property
    def best(self) -> Candidate | None:
        return None if self.final is None else self.candidates[self.final]

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "problem": self.problem,
            "reference": self.reference,
            "outcome": "kept" if self.accepted else f"dropped: {self.drop_reason} {self.detail}",
            **(self.best.shown() if self.best else {"errors": [e.get("message") for e in self.errors]}),
            "candidates": len(self.candidates),
        }
