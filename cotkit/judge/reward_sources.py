"""Where rewards come from: a function, a reward model behind a chat API, a plain HTTP score call.

Each source has `rewards(problem, trace, ledger) -> (answer, call)`, where `answer` is a number or a dict of
numbers as the model gave it and `call` its provenance, plus `describe()` and `aclose()`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import hashlib
import inspect
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from cotkit.chat import ModelError, checked_url, classify_failure, read_key
from cotkit.keys import scrub
from cotkit.records import Completion

RETRIES = 3  # of a score call
MESSAGE_LENGTH = 400  # an error page is not worth more

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
        answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._call, problem, trace)
        return (await answer if inspect.isawaitable(answer) else answer), None

    def _call(self, problem: str, trace: str) -> Any:
        try:
            return self._ask(problem, trace)
        except (StopIteration, SystemExit) as error:  # no future can carry these; they would end the loop
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

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
    """A plain HTTP score call: one POST a trace, cached and counted in the run's ledger (cost unknown).

    To `.../score` (vLLM's cross-encoders) go {"model", "text_1": problem, "text_2": trace}; to
    `.../classify` and `.../pooling` {"model", "messages": [user, assistant]}. What comes back: see
    `read_score`. OpenAI's client sends them: 429, 5xx, timeouts and lost connections are tried again.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key_env: str | None,
        timeout: float = 60.0,
        max_concurrency: int = 16,
    ):
        url = checked_url(base_url)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self._key = read_key(api_key_env, url)
        ready = url.rsplit("/", 1)[-1] in ("score", "classify", "pooling")
        self.url, self.name, self.timeout = (url if ready else f"{url}/score"), model, timeout
        if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int) or max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, got {max_concurrency!r}")
        self._places = asyncio.Semaphore(max_concurrency)
        self._client, self._loop = None, None

    async def rewards(self, problem: str, trace: str, ledger: Any) -> tuple[Any, dict[str, Any]]:
        body: dict[str, Any] = {"model": self.name}
        if self.url.endswith("/score"):
            body |= {"text_1": problem, "text_2": trace}
        else:
            body |= {"messages": conversation(problem, trace)}
        host = urlsplit(self.url).netloc
        call = {"model": self.name, "endpoint": host}
        if ledger is None:
            return read_score(await self._post(host, body)), call
        key = hashlib.sha256(json.dumps([self.url, body]).encode()).digest()
        async with ledger.turn(key):
            if found := ledger.find([key], "judge"):
                return read_score(json.loads(found[0].text)), call
            answer = await self._counted(host, body, key, ledger)
        return read_score(answer), call

    async def _counted(self, host: str, body: dict[str, Any], key: bytes, ledger: Any) -> Any:
        """The answer, asked within the budgets and recorded."""
        record = functools.partial(ledger.record, role="judge", endpoint=host, model=self.name)
        async with ledger.reserved("judge"):
            started = time.monotonic()
            try:
                answer = await self._post(host, body)
            except ModelError as error:
                record(kind=error.kind, seconds=time.monotonic() - started)
                raise
            stored = Completion(text=json.dumps(answer), model=self.name, endpoint=host)
            record(kind=None, seconds=time.monotonic() - started, answers=[(key, stored)])
        return answer

    async def _post(self, host: str, body: dict[str, Any]) -> Any:
        import openai

        try:
            async with self._places:
                answer = await self._open().post(self.url, cast_to=object, body=body)
            return json.loads(answer) if isinstance(answer, str) else answer  # JSON said to be plain text
        except ValueError as error:
            kind, message = "malformed", f"the answer is no JSON: {error}"
        except openai.APIStatusError as error:
            failed = classify_failure(error.status_code, error.response.headers, error.body)
            kind, message = failed.kind, failed.message
        except openai.APITimeoutError:
            kind, message = "timeout", f"no answer within {self.timeout:g} s"
        except openai.APIConnectionError as error:
            kind, message = "connection", str(error.__cause__ or error)
        # outside of `except`: a traceback must not show the client's own error, key and all
        said = scrub(f"{host}: {message}", [self._key or ""])
        raise ModelError(kind, said[:MESSAGE_LENGTH], stops_run=kind in ("auth", "not_found", "quota"))

    def _open(self) -> Any:
        import openai

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop they were made in
            key = self._key or "none"
            self._client = openai.AsyncOpenAI(api_key=key, timeout=self.timeout, max_retries=RETRIES)
            self._client.organization = self._client.project = None  # OpenAI's own business
            self._loop = loop
        return self._client

    def describe(self) -> dict[str, Any]:
        return {"score_url": self.url, "model": self.name}

    async def aclose(self) -> None:
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.close()
        self._client = None


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
