"""Where rewards come from: a function, a reward model behind a chat API, a plain HTTP score call.

Each source has `rewards(problem, trace, ledger) -> (answer, call)`, where `answer` is a number or a dict of
numbers as the model gave it and `call` its provenance, plus `describe()` and `aclose()`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import json
import os
import random
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from cotkit.chat import ModelError

ATTEMPTS, FIRST_WAIT_S, LONGEST_WAIT_S = 4, 0.5, 30.0  # of a score call: 429, 5xx, timeouts, connections

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PAIR = re.compile(rf"\s*['\"*]*([^\W\d][\w \-./]*?)['\"*]*\s*[:=]\s*({_NUMBER})\s*")


def conversation(problem: str, trace: str) -> list[dict[str, str]]:
    """What a reward model scores: the problem as the user's message, the trace as the assistant's."""
    return [{"role": "user", "content": problem}, {"role": "assistant", "content": trace}]


class FunctionReward:
    """`f(problem, trace)`, plain or async, or an object with `evaluate(messages)`."""

    def __init__(self, model: Callable[[str, str], Any] | Any, threads: int):
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ValueError(f"threads must be a whole number of at least 1, got {threads!r}")
        evaluate = getattr(model, "evaluate", None)
        if callable(evaluate):
            self._ask = lambda problem, trace: evaluate(conversation(problem, trace))
        elif callable(model):
            _check_signature(model)
            self._ask = model
        else:
            raise TypeError(
                "a reward model is a function f(problem: str, trace: str) or an object with "
                f"evaluate(messages), got {type(model).__name__}"
            )
        asked = evaluate if callable(evaluate) else model
        self.is_async = any(map(inspect.iscoroutinefunction, (asked, getattr(asked, "__call__", None))))  # noqa: B004
        self.name = getattr(model, "__qualname__", None) or type(model).__name__
        self.threads, self._pool = threads, None

    async def rewards(self, problem: str, trace: str, ledger: object) -> tuple[Any, None]:
        if self.is_async:
            return await self._ask(problem, trace), None
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.threads, "cotkit-reward")
        answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, problem, trace)
        return (await answer if inspect.isawaitable(answer) else answer), None

    def describe(self) -> dict[str, Any]:
        return {"function": self.name}

    async def aclose(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _check_signature(function: Callable) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return
    try:
        signature.bind("problem", "trace")
    except TypeError as error:
        raise TypeError(f"the reward function must take (problem, trace): {error}") from None


class ChatReward:
    """A reward model behind a chat API, asked through a `ChatModel` (retries, cache, ledger)."""

    def __init__(self, base_url: str, model: str, api_key_env: str | None, logprobs: bool, **options: Any):
        from cotkit.chat import ChatModel

        self.model = ChatModel(model, base_url, api_key_env, **options)
        self.logprobs, self.name = logprobs, model

    async def rewards(self, problem: str, trace: str, ledger: object) -> tuple[Any, dict[str, Any]]:
        completion = await self.model.acomplete(
            conversation(problem, trace),
            ledger=ledger,
            role="judge",
            logprobs=0 if self.logprobs else None,
        )
        answer = read_logprobs(completion.logprobs) if self.logprobs else read_content(completion.text)
        return answer, completion.provenance()

    def describe(self) -> dict[str, Any]:
        return {"chat": self.model.describe(), "read": "logprobs" if self.logprobs else "content"}

    async def aclose(self) -> None:
        await self.model.aclose()


class ScoreReward:
    """A plain HTTP score call: one POST a trace. Its calls are in no ledger and no cache.

    To `.../score` (vLLM's cross-encoders) go {"model", "text_1": problem, "text_2": trace}; to
    `.../classify` and `.../pooling` {"model", "messages": [user, assistant]}. What comes back: see
    `read_score`. 429, 5xx, timeouts and lost connections are tried again, Retry-After is honoured.
    """

    def __init__(self, base_url: str, model: str, api_key_env: str | None, timeout: float = 60.0):
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url {base_url!r} is no http(s) address")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        url = base_url.rstrip("/")
        ready = url.rsplit("/", 1)[-1] in ("score", "classify", "pooling")
        self.url, self.name, self.timeout = (url if ready else f"{url}/score"), model, timeout
        self.endpoint = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
        self._key = None
        if api_key_env is not None:
            self._key = os.environ.get(api_key_env)
            if not self._key:
                raise ValueError(f"environment variable {api_key_env!r} (api_key_env) is not set")
        self._client, self._loop = None, None

    async def rewards(self, problem: str, trace: str, ledger: object) -> tuple[Any, dict[str, Any]]:
        body: dict[str, Any] = {"model": self.name}
        if self.url.endswith("/score"):
            body |= {"text_1": problem, "text_2": trace}
        else:
            body |= {"messages": conversation(problem, trace)}
        for attempt in range(ATTEMPTS):
            try:
                answer = await self._post(body)
            except _Failure as failure:
                if failure.wait is None or attempt == ATTEMPTS - 1:
                    stops_run = failure.kind in ("auth", "not_found")
                    raise ModelError(failure.kind, str(failure), stops_run=stops_run) from None
                usual = random.uniform(0, FIRST_WAIT_S * 2**attempt)
                await asyncio.sleep(min(failure.wait, LONGEST_WAIT_S) if failure.wait >= 0 else usual)
            else:
                call = {"model": self.name, "endpoint": self.endpoint, "failed_attempts": attempt}
                return read_score(answer), call

    async def _post(self, body: dict[str, Any]) -> Any:
        import httpx

        try:
            reply = await self._http().post(self.url, json=body)
        except httpx.TimeoutException:
            raise _Failure("timeout", f"{self.endpoint} gave no answer within {self.timeout:g} s") from None
        except httpx.TransportError as error:
            raise _Failure("connection", f"{self.endpoint}: {type(error).__name__}: {error}") from None
        if reply.status_code == 200:
            try:
                return reply.json()
            except ValueError:
                raise _Failure("malformed", f"{self.endpoint} answered no JSON", wait=None) from None
        said = f"{self.endpoint} answered {reply.status_code}: {reply.text[:200]}"
        said = said.replace(self._key, "***") if self._key else said
        if reply.status_code == 429 or reply.status_code >= 500:
            kind = "rate_limit" if reply.status_code == 429 else "server"
            raise _Failure(kind, said, _retry_after(reply.headers))
        kind = {401: "auth", 403: "auth", 404: "not_found"}.get(reply.status_code, "bad_request")
        raise _Failure(kind, said, wait=None)

    def _http(self) -> Any:
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop they were made in
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client, self._loop = httpx.AsyncClient(headers=headers, timeout=self.timeout), loop
        return self._client

    def describe(self) -> dict[str, Any]:
        return {"score_url": self.url.split("?")[0], "model": self.name}

    async def aclose(self) -> None:
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None


class _Failure(Exception):
    """A post that gave no score. `wait`: seconds before the next try, -1 = as usual, None = no next try."""

    def __init__(self, kind: str, message: str, wait: float | None = -1):
        super().__init__(message)
        self.kind, self.wait = kind, wait


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return -1


def read_content(text: str) -> float | dict[str, float]:
    """Rewards a model wrote as its answer: `7.5`, `helpfulness:1.6,correctness:1.5`, one `name: number` a
    line, or a JSON object of numbers. Raises ValueError for anything else."""
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if text.startswith("{"):
        try:
            return read_score(json.loads(text))
        except json.JSONDecodeError:
            pass
    rewards: dict[str, float] = {}
    for part in filter(str.strip, re.split(r"[,;\n]", text)):
        pair = _PAIR.fullmatch(part)
        if pair is None or pair[1] in rewards:
            raise ValueError(f"no reward can be read from the answer {text[:200]!r}")
        rewards[pair[1]] = float(pair[2])
    if not rewards:
        raise ValueError("the answer is empty")
    return rewards


def read_logprobs(entries: list[Mapping[str, Any]] | None) -> dict[str, float]:
    """Rewards in the logprobs, as Nemotron-4-340B-Reward gives them: token = name, logprob = reward."""
    if not entries:
        raise ValueError("the answer has no logprobs; is it kind='chat_content'?")
    names = [str(entry.get("token", "")).strip() for entry in entries]
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[^\W\d][\w-]*", name) for name in names):
        raise ValueError(f"the logprobs hold tokens of a text, not named rewards: {names[:5]}")
    return {name: entry.get("logprob") for name, entry in zip(names, entries, strict=True)}


def read_score(body: Any) -> Any:
    """The rewards in the body of a score call: {"score": x}, {"scores": {...}}, {"data": [{"score": x}]},
    vLLM's {"data": [{"probs": [...]}]} and {"data": [{"data": [x]}]}, or a flat object of numbers.

    Several classes become class_0, class_1, ...: which of them is good is the user's to say.
    """
    if isinstance(body, list):
        body = {"data": body}
    if not isinstance(body, Mapping):
        raise ValueError(f"no reward can be read from {str(body)[:200]!r}")
    if isinstance(data := body.get("data"), list):
        if len(data) != 1:
            raise ValueError(f"{len(data)} results came back for one trace")
        return read_score(data[0]) if isinstance(data[0], (Mapping, list)) else data[0]
    for key in ("score", "reward", "scores", "rewards", "probs", "embedding"):
        if key in body:
            return _one_or_classes(body[key])
    if body and all(isinstance(v, (int, float)) for v in body.values()):
        return dict(body)
    raise ValueError(f"no reward can be read from a body with the fields {sorted(map(str, body))}")


def _one_or_classes(value: Any) -> Any:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list):
        return {f"class_{i}": one for i, one in enumerate(value)}
    return value
