"""A reward model as judge: a Python function, an object with `evaluate`, or an endpoint.

    RewardModelJudge(lambda problem, trace: 0.8)
    RewardModelJudge(camel_reward_model)                      # .evaluate(messages) -> {name: number}
    RewardModelJudge.from_endpoint(url, model="nvidia/nemotron-4-340b-reward", api_key_env="NVIDIA_API_KEY")

One number becomes `{"overall": x}`, several keep their names. Rewards are on no common scale (Nemotron's lie
between 0 and about 4, others are logits), so they are kept as they are and thresholds are on that scale too;
with `scale=(low, high)` they are stored on 0..1 and a reward outside is refused, never clamped. No other
judge is needed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from cotkit.chat import BudgetExceeded, ModelError
from cotkit.judge.base import Judge
from cotkit.judge.reward_sources import ChatReward, FunctionReward, ScoreReward
from cotkit.problems import Problem
from cotkit.records import Judgement

ERROR_LENGTH = 500  # characters of an exception's message that are kept


class RewardModelJudge(Judge):
    """Scores traces with a reward model.

    `model`: a function `f(problem: str, trace: str) -> float | dict[str, float]`, plain or async, or an
    object with `evaluate(messages) -> dict` (CAMEL's reward models). A plain function runs in threads,
    `threads` calls at once: 1 for a function that must not run beside itself.
    `dimensions`: the names it gives. Without them they are known after its first answer, and a typo in a
    threshold is found only then. An answer with other names is refused.
    `scale`: (low, high) of its rewards, to store them on 0..1; None keeps them as they are.
    An exception in the function, `sys.exit` too, is a failed judgement ("TypeError: ..."), not tried again.

    Raises TypeError for what is no reward model (a text, a function that does not take two texts) or
    `dimensions` that are one text, ValueError for a scale that is not (low, high) with low < high, for no or
    repeated dimensions, for less than one thread.
    """

    def __init__(
        self,
        model: Callable[[str, str], Any] | Any,
        *,
        dimensions: Iterable[str] | None = None,
        scale: tuple[float, float] | None = None,
        name: str | None = None,
        threads: int = 4,
    ):
        if isinstance(model, str):
            raise TypeError("for an endpoint use RewardModelJudge.from_endpoint(base_url, model=...)")
        own = isinstance(model, (ChatReward, ScoreReward))
        self.source = model if own else FunctionReward(model, threads)
        self.calls_model = own
        self.scale = _checked_scale(scale)
        self._declared = _checked_names(dimensions)
        super().__init__(
            name or f"reward:{self.source.name}", self._declared, None if scale is None else (0.0, 1.0)
        )

    @property
    def models(self) -> list[Any]:
        return [self.source.model] if isinstance(self.source, ChatReward) else []

    @classmethod
    def from_endpoint(
        cls,
        base_url: str,
        *,
        model: str,
        api_key_env: str | None = None,
        kind: Literal["chat_content", "chat_logprobs", "score"] = "chat_content",
        dimensions: Iterable[str] | None = None,
        scale: tuple[float, float] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> RewardModelJudge:
        """A reward model behind HTTP. `api_key_env` is the NAME of the variable that holds the key, "" for an
        endpoint on the internet that wants none.

        `kind="chat_content"`: a chat API that gets the problem as user and the trace as assistant message
        and answers with a number, `name:number` pairs or a JSON object of numbers. `"chat_logprobs"`: the
        same with the rewards in the logprobs (token = name, logprob = reward). `options` go to ChatModel.
        `"score"`: a POST to `base_url` + "/score", or to `base_url` itself when it ends in /score,
        /classify or /pooling (see `reward_sources.ScoreReward`). Options: `timeout` (60 s),
        `max_concurrency` (16).
        Raises ValueError for an unknown kind, an address that is none or that holds a key, a variable that
        is not set; TypeError for an unknown option.
        """
        if kind not in ("chat_content", "chat_logprobs", "score"):
            raise ValueError(f"unknown kind {kind!r}: use 'chat_content', 'chat_logprobs' or 'score'")
        if kind == "score":
            source = ScoreReward(base_url, model, api_key_env, **options)
        else:
            source = ChatReward(base_url, model, api_key_env, kind == "chat_logprobs", **options)
        return cls(source, dimensions=dimensions, scale=scale, name=name)

    async def ajudge(self, problem: Problem, trace: str, *, ledger: object = None) -> Judgement:
        call = None
        try:
            answer, call = await self.source.rewards(problem.problem, trace, ledger)
            scores = self._scores(answer)
        except BudgetExceeded:
            raise
        except ModelError as error:
            if error.stops_run:
                raise
            return self._failed(f"{error.kind}: {error}"[:ERROR_LENGTH])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's function may raise anything
            return self._failed(f"{type(error).__name__}: {error}"[:ERROR_LENGTH], call=call)
        return Judgement(scores=scores, judge=self.name, call=call)

    def _scores(self, answer: Any) -> dict[str, float]:
        """A model's answer, checked. Raises ValueError or TypeError for anything but finite numbers."""
        if not isinstance(answer, Mapping):
            names = self.dimension_names or ()
            answer = {names[0] if len(names) == 1 else "overall": answer}
        if not answer:
            raise ValueError("the reward model gave no score")
        scores = {str(name): self._mapped(_number(value, name), name) for name, value in answer.items()}
        if self.dimension_names is None:
            self.dimension_names = tuple(scores)
        elif set(scores) != set(self.dimension_names):
            raise ValueError(f"the reward model gave {sorted(scores)}, not {sorted(self.dimension_names)}")
        return scores

    def _mapped(self, value: float, name: object) -> float:
        if self.scale is None:
            return value
        low, high = self.scale
        if not low <= value <= high:
            raise ValueError(f"{name}: the reward {value:g} is outside scale=({low:g}, {high:g})")
        return (value - low) / (high - low)

    def describe(self) -> dict[str, Any]:
        return {
            "judge": "RewardModelJudge",
            "name": self.name,
            "model": self.source.describe(),
            "dimensions": None if self._declared is None else list(self._declared),
            "scale": None if self.scale is None else list(self.scale),
        }

    async def aclose(self) -> None:
        await self.source.aclose()


def _number(value: Any, name: object) -> float:
    if hasattr(value, "item") and not isinstance(value, numbers.Real):
        value = value.item()  # a tensor or array of one element
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: a reward must be a number, got {type(value).__name__} {str(value)[:50]!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: a reward must be a finite number, got {value}")
    return float(value)


def _checked_scale(scale: Any) -> tuple[float, float] | None:
    if scale is None:
        return None
    if not isinstance(scale, (tuple, list)) or len(scale) != 2:
        raise ValueError(f"scale must be (low, high), got {scale!r}")
    low, high = (_number(bound, "scale") for bound in scale)
    if low >= high:
        raise ValueError(f"scale must be (low, high) with low below high, got {scale!r}")
    return low, high


def _checked_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str):
        raise TypeError(f"dimensions must be a list of names, for instance [{names!r}]")
    names = tuple(names)
    if not names or len(set(names)) < len(names) or not all(isinstance(n, str) and n.strip() for n in names):
        raise ValueError(f"dimensions must be distinct names, got {list(names)}")
    if "mean" in names:
        raise ValueError("a dimension cannot be called 'mean': that is the mean of all")
    return names
