"""ChatModel: a model behind one endpoint, or behind several in order of preference.

A call is looked up in the ledger's cache under each endpoint's key, then asked endpoint by endpoint: one that
is down (key, model, money, fault after fault) is left alone and the next one answers; the completion says who
did, and which attempts failed before. A bad request is the caller's, whatever the endpoint: it is not passed
on. Everything runs in the engine's loop (`cotkit.aio`), whoever calls and from where.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import pickle
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from cotkit import aio
from cotkit.chat.config import EndpointOptions, check_number, endpoint_options
from cotkit.chat.dialect import Call, Messages, checked_call
from cotkit.chat.endpoint import Endpoint
from cotkit.chat.errors import DOWN, TRANSIENT, BudgetExceeded, Failure, ModelError
from cotkit.chat.ledger import CallLedger
from cotkit.chat.limiter import Clock
from cotkit.chat.structured import ParseError, ask_again, parse_object
from cotkit.records import Attempt, Completion, Usage
from cotkit.shown import Shown

T = TypeVar("T")

PASSED_ON = DOWN | TRANSIENT | {"circuit_open", "rate_limit"}  # kinds after which the next endpoint is asked
GIVEN_UP_BY = PASSED_ON | {"bad_request"}  # the last only where an endpoint has answered nothing yet

_ADVICE = {
    "auth": "check the key that api_key_env names, and what it is allowed to use",
    "not_found": "check model and base_url (which mostly ends in /v1)",
    "quota": "the account is out of money or quota: top it up, or list a fallback",
    "timeout": "raise timeout, lower max_tokens or max_concurrency",
    "context_length": "shorten the prompt or lower max_tokens",
    "empty": "raise max_tokens, or try another temperature",
    "malformed": "check base_url, which mostly ends in /v1",
    "rate_limit": "it is this call alone: shorten the prompt or lower max_tokens",
}


class ChatModel(Shown):
    """A model behind any OpenAI-compatible endpoint.

    model, base_url, api_key_env: base_url None = OpenAI; api_key_env is the NAME of the variable that holds
        the key (default OPENAI_API_KEY at OpenAI, no key on this machine and network).
    fallbacks: asked in this order when the first cannot answer; a ChatModel, or a dict of options, which
        takes over the sampling parameters it does not set.
    max_concurrency, max_requests_per_minute: never more in flight, or a minute; 429s lower the former for a
        while. The cap is this object's: use one ChatModel for several roles of one endpoint.
    max_retries: of one call, for faults that pass. timeout: seconds from sending a request to the end of its
        answer.
    temperature, top_p, max_tokens, seed, stop, extra_body: sent when set; each call may override them.
    structured: "auto" tries json_schema, then json_object, then the prompt alone.
    price: (US dollars per million prompt tokens, per million completion tokens); None = the shipped table.
    supports_n: several choices in one request; "auto" = at OpenAI only.
    transport: "openai", or "aiohttp": without the openai client's layers, for thousands in flight.
    rate_limit_patience: seconds of nothing but 429 until the endpoint is given up; and that one call waits
        which alone gets 429, while others are answered, until it fails.
    endpoint_name: stands for host and port in rows, config.json and cache keys (for ports that change).
    name: what messages and judges call it. client: see `from_client`. clock: for tests.

    Raises ValueError or TypeError for options that cannot work, before anything is asked.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key_env: str | None = None,
        *,
        fallbacks: Sequence[ChatModel | Mapping[str, Any]] = (),
        name: str | None = None,
        client: Any = None,
        clock: Clock | None = None,
        revive: Callable[[], str] | None = None,  # `local_model`'s: see Endpoint
        **options: Any,
    ):
        own = {"model": model, "base_url": base_url, "api_key_env": api_key_env, **options}
        first = endpoint_options(own)
        self.model, self.name = model, name or model
        self.endpoints = [Endpoint(first, client, clock, revive)]
        for fallback in fallbacks:
            if isinstance(fallback, ChatModel):
                self.endpoints += fallback.endpoints
            elif isinstance(fallback, Mapping):
                self.endpoints.append(Endpoint(endpoint_options(fallback, first.sampling), clock=clock))
            else:
                raise TypeError(f"a fallback must be a ChatModel or a dict of its options, got {fallback!r}")

    @classmethod
    def from_client(cls, client: Any, model: str, **options: Any) -> ChatModel:
        """A ChatModel over an `openai.AsyncOpenAI` of yours (Azure, own transport or headers).

        The client is used in cotkit's own event loop: leave it to cotkit. Its retries are not used.
        """
        import openai

        if not isinstance(client, openai.AsyncOpenAI):
            raise TypeError(f"from_client needs an openai.AsyncOpenAI, got {type(client).__name__}")
        if taken := sorted({"base_url", "api_key_env", "transport"} & options.keys()):
            raise TypeError(f"{', '.join(taken)}: the client has its own")
        return cls(model, str(client.base_url), "", client=client, **options)

    async def acomplete(
        self,
        messages: Messages,
        *,
        sample_index: int = 0,
        ledger: CallLedger | None = None,
        role: str = "generator",
        schema: Any = None,
        logprobs: int | None = None,
        **sampling: Any,
    ) -> Completion:
        """One completion of `messages` (a string is one user message).

        sample_index: tells samples of one prompt apart, in the cache and in the seed (seed + sample_index).
        ledger: the run's cache, ledger and budgets; without one nothing is looked up or written.
        schema: a pydantic model class or a JSON schema; `parsed` then holds the object. An answer that does
            not fit is sent back once with what was wrong.
        logprobs: how many alternatives to report for each token (0 = the tokens' own only).
        sampling: temperature, top_p, max_tokens, seed, stop, extra_body in place of the model's own; None
            leaves the model's own.

        Raises ModelError (its `kind` says what happened, `stops_run` that no endpoint is left), and
        BudgetExceeded before a request that would pass a budget of the ledger.
        """
        call = checked_call(messages, sampling, sample_index, schema, logprobs)
        return await _in_engine(self._complete(call, ledger, role))

    async def acandidates(
        self,
        messages: Messages,
        n: int,
        *,
        ledger: CallLedger | None = None,
        role: str = "generator",
        **sampling: Any,
    ) -> list[Completion | ModelError]:
        """`n` completions with sample_index 0 ... n - 1; a ModelError stands where one failed.

        One request where the endpoint takes `n` (its usage stands at the first completion it brought, the
        others' is unknown; the ledger has the whole), else one each. What the cache holds is not asked again.
        Raises BudgetExceeded.
        """
        check_number("n", n, least=1, whole=True)
        first = checked_call(messages, sampling)
        calls = [first] + [dataclasses.replace(first, sample_index=i, keys={}) for i in range(1, n)]
        return await _in_engine(self._candidates(calls, ledger, role))

    def complete(self, messages: Messages, **options: Any) -> Completion:
        """`acomplete`, blocking: for a notebook cell or a script."""
        return aio.run(self.acomplete(messages, **options))

    async def _complete(self, call: Call, ledger: CallLedger | None, role: str) -> Completion:
        first, key = await self._answer(call, ledger, role)
        if call.schema is None:
            return first
        try:
            first.parsed = parse_object(first.text, call.schema)
            return first
        except ParseError as error:
            complaint = error
        attempts = [*first.attempts, _parse_attempt(first, complaint)]
        follow_up = ask_again(call.messages, first.text, complaint, call.schema)
        again = dataclasses.replace(call, messages=follow_up, keys={})
        second, second_key = await self._answer(again, ledger, role)
        second.attempts = [*attempts, *second.attempts]
        try:
            second.parsed = parse_object(second.text, call.schema)
        except ParseError as error:
            if ledger is not None:
                ledger.forget([key, second_key])
            raise ModelError(
                "parse",
                f"{second.endpoint} ({second.model}) gave no usable object, asked twice: {error}",
                [*second.attempts, _parse_attempt(second, error)],
                raw=second.text,
            ) from None
        second.usage = _sum(first.usage, second.usage)
        second.latency_s = round(first.latency_s + second.latency_s, 4)
        second.cached = first.cached and second.cached
        return second

    async def _answer(
        self, call: Call, ledger: CallLedger | None, role: str
    ) -> tuple[Completion, bytes | None]:
        """The completion and the key it is stored under, from the cache or asked for."""
        if ledger is None:
            completions, _ = await self._ask([call], None, role)
            return completions[0], None
        if complaint := ledger.unpriced(self.endpoints):
            raise BudgetExceeded(complaint)
        keys = [endpoint.dialect.key(call) for endpoint in self.endpoints]
        async with ledger.turn(keys[0]):
            if (found := ledger.find(keys, role)) is not None:
                return found
            completions, endpoint = await self._ask([call], ledger, role)
        return completions[0], keys[self.endpoints.index(endpoint)]

    async def _candidates(
        self, calls: list[Call], ledger: CallLedger | None, role: str
    ) -> list[Completion | ModelError]:
        done: dict[int, Completion | ModelError] = {}
        if len(calls) > 1 and self.endpoints[0].dialect.takes_n:
            done = await self._in_one_request(calls, ledger, role)
        rest = [call for call in calls if call.sample_index not in done]
        if len(rest) == 1:  # the everyday case needs no task of its own
            try:
                done[rest[0].sample_index] = await self._complete(rest[0], ledger, role)
            except ModelError as error:
                done[rest[0].sample_index] = error
            return [done[call.sample_index] for call in calls]
        results = await asyncio.gather(
            *(self._complete(call, ledger, role) for call in rest), return_exceptions=True
        )
        for call, result in zip(rest, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, ModelError):
                raise result
            done[call.sample_index] = result
        return [done[call.sample_index] for call in calls]

    async def _in_one_request(
        self, calls: list[Call], ledger: CallLedger | None, role: str
    ) -> dict[int, Completion | ModelError]:
        """What the cache holds and what one request for the rest brings; the missing are asked one by one."""
        done: dict[int, Completion | ModelError] = {}
        async with contextlib.AsyncExitStack() as turns:
            if ledger is not None:
                if complaint := ledger.unpriced(self.endpoints):
                    raise BudgetExceeded(complaint)
                for call in calls:
                    keys = [endpoint.dialect.key(call) for endpoint in self.endpoints]
                    await turns.enter_async_context(ledger.turn(keys[0]))
                    if (found := ledger.find(keys, role)) is not None:
                        done[call.sample_index] = found[0]
            missing = [call for call in calls if call.sample_index not in done]
            if len(missing) > 1:
                try:
                    completions, _ = await self._ask(missing, ledger, role)
                except ModelError as error:
                    return done | {call.sample_index: error for call in missing}
                fresh = zip(missing, completions, strict=True)
                done |= {call.sample_index: completion for call, completion in fresh if completion}
        return done

    async def _ask(
        self, calls: list[Call], ledger: CallLedger | None, role: str
    ) -> tuple[list[Completion | None], Endpoint]:
        """Asks one endpoint after the other; those left alone come last, and only where a retry may help."""
        attempts: list[Attempt] = []
        ended: dict[Endpoint, Failure] = {}
        turns = [(endpoint, self.endpoints[place + 1 :]) for place, endpoint in enumerate(self.endpoints)]
        for endpoint, others in turns:
            try:
                completions = await endpoint.ask(
                    calls, others=others, attempts=attempts, ledger=ledger, role=role
                )
                return completions, endpoint
            except Failure as error:
                failure = error
            ended.pop(endpoint, None)
            ended[endpoint] = failure
            if failure.kind not in PASSED_ON:
                break  # the caller's own fault, wherever it is asked
            if failure.kind == "circuit_open" and others:
                turns.append((endpoint, ()))  # again when the others have failed: it may be its last resort
        raise self._error(ended, attempts)

    def _error(self, ended: dict[Endpoint, Failure], attempts: list[Attempt]) -> ModelError:
        """What the caller is told when nobody answered; `ended` in the order of asking."""
        *_, last = ended.values()
        if last.kind in GIVEN_UP_BY and all(endpoint.breaker.given_up for endpoint in self.endpoints):
            for endpoint in self.endpoints:
                endpoint.breaker.told()
            kinds = {endpoint.breaker.kind for endpoint in self.endpoints}
            kind = kinds.pop() if len(kinds) == 1 and kinds <= DOWN else "circuit_open"
            reasons = "; ".join(f"{_where(e)}: {e.breaker.reason or last.message}" for e in self.endpoints)
            message = f"no endpoint of {self.name} is usable. {reasons}"
            return ModelError(kind, _advised(kind, message), attempts, stops_run=True)
        asked = [(e, f) for e, f in ended.items() if f.kind != "circuit_open"] or list(ended.items())
        endpoint, failure = asked[-1]
        tries = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
        message = f"{_where(endpoint)} gave no answer{tries}: {failure.message}"
        return ModelError(failure.kind, _advised(failure.kind, message), attempts)

    @property
    def max_concurrency(self) -> int:
        """What a pipeline may usefully keep in flight, over all endpoints."""
        return sum(endpoint.options.max_concurrency for endpoint in dict.fromkeys(self.endpoints))

    def describe(self) -> dict[str, Any]:
        """What the answers depend on, for config.json: a resumed run compares it. No keys, no timeouts."""
        return {
            "model": self.model,
            "endpoints": [
                {
                    "model": endpoint.options.model,
                    "endpoint": endpoint.identity,
                    "parameters": endpoint.dialect.parameters(Call([])),
                }
                for endpoint in self.endpoints
            ],
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: the options travel, never a key; each reads the variable itself."""
        for endpoint in self.endpoints:
            if not endpoint.portable:
                raise pickle.PicklingError(
                    f"{self.name} cannot be sent to another process: it holds a client or a server of this "
                    "one. Use a ChatModel made of a base_url that every worker reaches"
                )
        return _rebuilt, (self.name, [dataclasses.asdict(endpoint.options) for endpoint in self.endpoints])

    def stats(self) -> dict[str, Any]:
        """For monitors: in_flight, waiting, limit, rate_limited (429s), retries; and by endpoint."""
        each, seen = {}, Counter[str]()
        for endpoint in dict.fromkeys(self.endpoints):
            seen[where := _where(endpoint)] += 1  # again with another key
            each[where if seen[where] == 1 else f"{where} #{seen[where]}"] = endpoint.stats()
        counts = ("in_flight", "waiting", "limit", "rate_limited", "retries")
        return {name: sum(s[name] for s in each.values()) for name in counts} | {"by_endpoint": each}

    async def aclose(self) -> None:
        """Closes the connections. Not needed at the end of a program; a later call opens them again."""

        async def close() -> None:
            for endpoint in self.endpoints:
                await endpoint.aclose()

        await _in_engine(close())

    def __repr__(self) -> str:
        asked = "".join(f", {k}={v!r}" for k, v in self.endpoints[0].options.sampling.items())
        places = " -> ".join(_where(endpoint) for endpoint in self.endpoints)
        return f"ChatModel({places}{asked}, max_concurrency={self.max_concurrency})"

    def shown(self) -> dict[str, Any]:
        """Each endpoint in the order of asking: its parameters, what is in flight, whether it is asked."""
        states = {}
        known = zip(dict.fromkeys(self.endpoints), self.stats()["by_endpoint"].items(), strict=True)
        for endpoint, (name, now) in known:
            parameters = ", ".join(f"{k}={v}" for k, v in endpoint.dialect.parameters(Call([])).items())
            left_alone = f"left alone: {now['left_alone']}" if now["left_alone"] else "ready"
            in_flight = f"{now['in_flight']} of {now['limit']} in flight"
            states[name] = [parameters or "parameters: the endpoint's own", in_flight, left_alone]
        return states


_own = inspect.signature(ChatModel).parameters  # Shift-Tab in a notebook shows every option by name
_further = [p for p in inspect.signature(EndpointOptions).parameters.values() if p.name not in _own]
ChatModel.__signature__ = inspect.Signature(
    [p for p in (*_own.values(), *_further) if p.kind is not inspect.Parameter.VAR_KEYWORD]
)


def _rebuilt(name: str, options: list[dict[str, Any]]) -> ChatModel:
    first, *fallbacks = options
    return ChatModel(**first, name=name, fallbacks=fallbacks)


async def _in_engine(coro: Coroutine[Any, Any, T]) -> T:
    """Awaits in the engine's loop, from whichever loop it is called."""
    if aio.inside():
        return await coro
    return await aio.arun(coro)


def _where(endpoint: Endpoint) -> str:
    return f"{endpoint.options.model} at {endpoint.label}"


def _advised(kind: str, message: str) -> str:
    return f"{message} ({_ADVICE[kind]})" if kind in _ADVICE else message


def _parse_attempt(completion: Completion, error: ParseError) -> Attempt:
    return Attempt(endpoint=completion.endpoint, model=completion.model, kind="parse", message=str(error))


def _sum(first: Usage, second: Usage) -> Usage:
    """Both together; unknown where either is."""
    sums = {}
    for name in Usage.model_fields:
        values = getattr(first, name), getattr(second, name)
        sums[name] = None if None in values else sum(values)
    return Usage(**sums)
