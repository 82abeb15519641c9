"""P(yes): how sure a model is that a trace is right, read from the probabilities of one token.

A model too small to write scores may still lean towards "Yes" where a trace is right. It is asked one
question, answers with one token, and the logprobs of the likeliest tokens give P(yes) = yes / (yes + no),
where every spelling counts (`Yes`, ` yes`, `YES`). After P(True) of Kadavath et al. (2022), arXiv 2207.05221.
The number ranks traces; it is no calibrated probability, so its threshold is found with `tune_thresholds`,
not set at 0.5. A model that thinks before it answers has no such token: it fails, and counts as failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from cotkit.judge.llm import nonce
from cotkit.judge.reward import RewardModelJudge
from cotkit.judge.reward_sources import ChatReward
from cotkit.prompts import load
from cotkit.records import Dimension

ALTERNATIVES = 10  # likeliest first tokens that are looked at
P_YES = Dimension(name="p_yes", guide="probability of Yes: the final answer is correct", scale=(0, 1))


class ConfidenceJudge(RewardModelJudge):
    """Scores traces by P(yes), on 0..1, in the one dimension `p_yes`; one call and one token a trace.

    `model`: a ChatModel whose endpoint gives logprobs (OpenAI, vLLM, llama.cpp; the embedded models do).
    It never sees the reference. Raises TypeError for what is no ChatModel.
    """

    def __init__(self, model: Any, *, name: str | None = None):
        if not callable(getattr(model, "acomplete", None)):
            raise TypeError(f"model must be a ChatModel, got {type(model).__name__}")
        source = YesReward(model)
        super().__init__(source, dimensions=[P_YES.name], scale=(0, 1), name=name or f"p_yes:{source.name}")
        self.dimensions, self.note = (P_YES,), ", one token a trace, does not see the reference"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "judge": "ConfidenceJudge"}


class YesReward(ChatReward):
    """Asks a ChatModel whether a trace is right; the reward is P(yes)."""

    def __init__(self, model: Any):
        self.model, self.name, self.prompt = model, model.name, load("confidence")

    async def rewards(self, problem: str, trace: str, ledger: object) -> tuple[float, dict[str, Any]]:
        completion = await self.model.acomplete(
            self.prompt.messages(problem=problem, trace=trace, nonce=nonce(problem, trace)),
            ledger=ledger,
            role="judge",
            logprobs=ALTERNATIVES,
            max_tokens=1,
            temperature=0,
        )
        return p_yes(completion.logprobs), completion.provenance()

    def describe(self) -> dict[str, Any]:
        prompt = {"name": self.prompt.name, "hash": self.prompt.hash}
        return {"chat": self.model.describe(), "read": "p_yes", "prompt": prompt}


def p_yes(entries: list[Mapping[str, Any]] | None) -> float:
    """P(yes) from the logprobs of the first token. Raises ValueError where neither yes nor no is likely."""
    if not entries:
        raise ValueError("the answer has no logprobs: P(yes) needs an endpoint that gives them")
    first = entries[0].get("top_logprobs") or []
    if len(first) < 2:  # of one token alone P(yes) would be 0 or 1
        raise ValueError("the answer has no alternatives: P(yes) needs an endpoint that gives top_logprobs")
    yes, no = (_mass(first, word) for word in ("yes", "no"))
    if not yes + no > 0:
        said = [entry.get("token") for entry in first[:5]]
        raise ValueError(f"neither Yes nor No is among the likeliest first tokens: {said}")
    return yes / (yes + no)


def _mass(entries: Iterable[Mapping[str, Any]], word: str) -> float:
    spelled = (e for e in entries if str(e.get("token", "")).strip().strip("*\"'.").lower() == word)
    return sum(math.exp(min(e["logprob"], 0.0)) for e in spelled if e.get("logprob") is not None)
