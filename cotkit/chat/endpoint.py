"""One model at one endpoint: its transport, its queue, its circuit breaker.

`Endpoint.ask` is one call: it waits for its turn, sends, retries what passes by itself, waits out 429s,
learns which parameters are refused, and records every request in the ledger. It gives completions, or raises
the Failure that ended it; which endpoint is asked next is decided in `cotkit.chat.model`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import random
import time
import urllib.parse
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pydantic

from cotkit import aio
from cotkit.chat.breaker import Breaker
from cotkit.chat.config import EndpointOptions, checked_url, read_key
from cotkit.chat.descriptors import make_room
from cotkit.chat.dialect import Call, Dialect
from cotkit.chat.errors import DOWN, TRANSIENT, Failure, scrub
from cotkit.chat.ledger import CallLedger
from cotkit.chat.limiter import Clock, Limiter
from cotkit.chat.prices import Price, price_of
from cotkit.chat.replies import Reply, counts_one_choice, read_completion
from cotkit.chat.tally import Amount
from cotkit.chat.transports import Transport, open_transport
from cotkit.records import Attempt, Completion, Usage

BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
LONGEST_RETRY_AFTER_S = 120.0
COOL_DOWN_S = 1.0  # after a first 429 that does not say how long
EMPTY_RETRIES = 2  # three empty answers to one prompt are no accident
OWN_429S = 4  # of one call, while others are answered: they are about this call, not about the endpoint
CHARACTERS_PER_TOKEN = 4  # only for what budgets expect; English prose, OpenAI's rule of thumb
GUESSED_ANSWER_TOKENS = 500

_callers = itertools.count()


class Endpoint:
    """See the top of this file. Used in the engine's loop only, except for `stats`.

    revive: for a server of ours, which `endpoint_name` stands for: makes sure, blocking, that it runs, and
        returns its base_url now. Called after a connection failure; its RuntimeError says what to do.
    """

    def __init__(
        self,
        options: EndpointOptions,
        client: Any = None,
        clock: Clock | None = None,
        revive: Callable[[], str] | None = None,
    ):
        self.options = options
        self.base_url = checked_url(options.base_url)
        parts = urllib.parse.urlsplit(self.base_url)
        self.host = parts.hostname or ""
        self.label = options.endpoint_name or parts.netloc.lower()
        self.identity = options.endpoint_name or self.label + parts.path
        self._clock = clock or Clock()
        self.limiter = Limiter(options.max_concurrency, options.max_requests_per_minute, self._clock)
        self.breaker = Breaker(self._clock, options.max_concurrency)
        self.dialect = Dialect(options, self.identity, self.host)
        self.retries = self.rate_limited = self.answered = 0
        self._proven = False  # it has given a completion
        self.last_failure = ""
        self._limited_since: float | None = None
        self._client = client
        self._transport: Transport | None = None
        self._closer: weakref.finalize | None = None
        self._revive = revive
        self._reviving: asyncio.Task[str] | None = None
        self._take_key()

    @property
    def portable(self) -> bool:
        """Whether another process can make the same of the options alone."""
        return self._client is None and self._revive is None

    def _take_key(self) -> None:
        key = self._client.api_key if self._client else read_key(self.options.api_key_env, self.base_url)
        self._key = pydantic.SecretStr(key if isinstance(key, str) else "")

    @functools.cached_property
    def price(self) -> Price | None:
        """None = unknown. Looked up when first needed: the table takes a moment to load."""
        return price_of(self.options.model, self.base_url, self.options.price)

    def stats(self) -> dict[str, Any]:
        return {
            "model": self.options.model,
            "in_flight": self.limiter.in_flight,
            "waiting": self.limiter.waiting,
            "limit": self.limiter.limit,
            "rate_limited": self.rate_limited,
            "retries": self.retries,
            "left_alone": self.breaker.reason or None,
            "last_failure": self.last_failure,
        }

    async def ask(
        self,
        calls: Sequence[Call],
        *,
        others: Sequence[Endpoint] = (),
        attempts: list[Attempt],
        ledger: CallLedger | None,
        role: str,
    ) -> list[Completion | None]:
        """The completions of `calls` (one prompt, consecutive samples), None where one has to be asked alone.

        others: the endpoints that could be asked instead. attempts: failed requests are appended to it.
        """
        caller, retries, empties, again = next(_callers), 0, 0, False
        refused = _Refused(self)
        while True:
            alone = not any(other.breaker.admits() for other in others)
            if not self.breaker.admits(alone):
                raise Failure("circuit_open", self.breaker.reason)
            ticket = await self.limiter.acquire(first=again and refused.times < 2)
            if ticket is None:  # the breaker opened meanwhile
                continue
            again, failure, answered, probes = True, None, False, False
            asked, tried = self.base_url, self._reviving
            body = self.dialect.body(calls[0], len(calls) if self.dialect.takes_n else 1)
            try:
                if not self.breaker.admits(alone):  # any more
                    continue
                probes = self.breaker.enter()
                completions = await self._once(body, calls, attempts, ledger, role)
                answered = True
                return completions
            except Failure as error:
                failure = error
                if failure.kind == "connection" and self._revive is not None:
                    await self._make_it_run(failure, asked, tried)
                if failure.kind == "rate_limit":
                    refused.again()
                self._take_in(failure, caller, refused)
            finally:
                self.breaker.leave(probes)
                limited = failure is not None and failure.kind == "rate_limit" and not refused.own
                self.limiter.release(ticket, clean=answered, limited=limited)
            attempts.append(
                Attempt(
                    endpoint=self.label, model=self.options.model, kind=failure.kind, message=failure.message
                )
            )
            if failure.kind == "rate_limit":
                if refused.own:
                    await self._wait_alone(refused, failure)
                continue
            if self.dialect.learn(failure, body):
                continue
            elsewhere = self.breaker.kind is not None and any(o.breaker.admits() for o in others)
            passing = failure.kind in TRANSIENT and not elsewhere
            passing |= failure.kind == "empty" and empties < EMPTY_RETRIES
            if not passing or retries >= self.options.max_retries:
                if failure.kind in TRANSIENT or self._refuses_all(failure):
                    self.breaker.gave_up(hash(str(calls[0].messages)))
                raise failure
            empties += failure.kind == "empty"
            retries += 1
            self.retries += 1
            await self._clock.sleep(_backoff(retries, failure))

    async def _make_it_run(self, failure: Failure, asked: str, tried: asyncio.Task[str] | None) -> None:
        """After the server at `asked` failed: the calls in flight keep their places and share one try.

        tried: the last try when the call was sent; a later one is this call's too.
        """
        if self._reviving is tried and (tried is None or tried.done()):
            self._reviving = asyncio.create_task(asyncio.to_thread(self._revive))
        try:
            now = await asyncio.shield(self._reviving)
        except RuntimeError as error:
            failure.message = scrub(str(error), self._secrets())
            if self.breaker.open(failure, hard=True):
                self.limiter.send_away()
            return
        if now != asked:
            failure.message += "; its server had ended and was started again"
        if now != self.base_url:  # the first of them to be told
            self.base_url = now
            self._take_key()
            await self.aclose()

    async def _wait_alone(self, refused: _Refused, failure: Failure) -> None:
        """Until a call that alone is refused may be tried again; raises its failure after too long."""
        if refused.waited >= self.options.rate_limit_patience:
            failure.message += f" ({refused.times} times, while others were answered)"
            raise failure
        wait = _backoff(refused.times, failure)
        refused.waited += wait
        await self._clock.sleep(wait)

    def _take_in(self, failure: Failure, caller: int, refused: _Refused) -> None:
        """What one failed request means for everyone who uses this endpoint."""
        opened = False
        self.last_failure = f"{failure.kind}: {failure.message}"
        if failure.kind == "rate_limit":
            self.rate_limited += 1
            opened = not refused.own and self._rate_limited(failure)
        elif failure.kind in DOWN:
            opened = self.breaker.open(failure, hard=True)
        elif failure.kind in TRANSIENT:
            opened = self.breaker.failed(failure, caller)
        elif not self._refuses_all(failure):
            self._works()
        if opened:
            self.limiter.send_away()

    def _refuses_all(self, failure: Failure) -> bool:
        """Whether it may be the endpoint or its options and not the prompt: so far nothing was answered."""
        return failure.kind == "bad_request" and not self._proven

    def _rate_limited(self, failure: Failure) -> bool:
        now = self._clock.now()
        if self._limited_since is None:
            self._limited_since = now
        limited_for = now - self._limited_since
        if limited_for >= self.options.rate_limit_patience:
            reason = f"nothing but 429 for {limited_for:.0f} s (rate_limit_patience); last: {failure.message}"
            return self.breaker.open(Failure("rate_limit", reason), hard=True)
        wait = failure.retry_after
        if wait is None:  # as long again as it lasts already, so it doubles
            wait = random.uniform(0.5, 1) * max(limited_for, COOL_DOWN_S)
        least = limited_for / 10  # an endpoint that says "at once" and still refuses is not believed for long
        self.limiter.park(min(max(wait, least), LONGEST_RETRY_AFTER_S))
        return False

    def _works(self) -> None:
        self.answered += 1
        self.breaker.succeeded()
        self._limited_since = None

    async def _once(
        self,
        body: dict[str, Any],
        calls: Sequence[Call],
        attempts: list[Attempt],
        ledger: CallLedger | None,
        role: str,
    ) -> list[Completion | None]:
        """One request, recorded however it ends."""
        transport = self._transport or self._open()
        prompt = calls[0].characters // CHARACTERS_PER_TOKEN
        answer = body.get("max_tokens") or body.get("max_completion_tokens") or GUESSED_ANSWER_TOKENS
        place = contextlib.nullcontext()
        if ledger is not None:
            place = ledger.reserved(role, self._guess(prompt, answer * body.get("n", 1)))
        async with place:
            started = time.monotonic()
            try:
                reply = read_completion(await transport.post(body), body)
            except Failure as failure:
                failure.message = scrub(failure.message, self._secrets())
                self._record(ledger, role, failure.kind, Usage(), (prompt, 0), started)
                raise
            usage = self._usage(reply)
            written = sum(len(a.text) + len(a.reasoning or "") for a in reply.answers)
            tokens = prompt, written // CHARACTERS_PER_TOKEN
            problem = reply.answers[0].problem if len(calls) == 1 else None
            if problem is not None:
                self._record(ledger, role, problem, usage, tokens, started)
                failure = reply.answers[0].failure or Failure(problem, reply.answers[0].detail)
                failure.message = scrub(failure.message, self._secrets())
                raise failure
            latency = time.monotonic() - started
            completions = self._completions(body, calls, attempts, reply, usage, latency)
            answered = zip(calls, completions, strict=True)
            self._record(ledger, role, None, usage, tokens, started, answered)
        self._proven = True
        self._works()
        self.last_failure = ""  # it is of a request that is tried again
        if len(reply.answers) < body.get("n", 1):
            self.dialect.takes_n = False
        return completions

    def _record(
        self,
        ledger: CallLedger | None,
        role: str,
        kind: str | None,
        usage: Usage,
        guessed_tokens: tuple[int, int],
        started: float,
        answered: Iterable[tuple[Call, Completion | None]] = (),
    ) -> None:
        if ledger is None:
            return
        counted = None not in (usage.prompt_tokens, usage.completion_tokens)
        ledger.record(
            role=role,
            endpoint=self.label,
            model=self.options.model,
            kind=kind,
            usage=usage,
            seconds=time.monotonic() - started,
            guess=None if counted else self._guess(*guessed_tokens),
            answers=[(self.dialect.key(call), completion) for call, completion in answered if completion],
        )

    def _completions(
        self,
        body: dict[str, Any],
        calls: Sequence[Call],
        attempts: list[Attempt],
        reply: Reply,
        usage: Usage,
        latency: float,
    ) -> list[Completion | None]:
        """One for each call. The usage of a request with several choices stands at the first of them."""
        params = {name: value for name, value in body.items() if name not in ("model", "messages")}
        if "response_format" in params:
            params["response_format"] = params["response_format"]["type"]
        completions: list[Completion | None] = []
        for call, answer in itertools.zip_longest(calls, reply.answers[: len(calls)]):
            if answer is None or answer.problem:
                completions.append(None)
                continue
            completions.append(
                Completion(
                    text=answer.text,
                    reasoning=answer.reasoning,
                    finish_reason=answer.finish_reason,
                    truncated=answer.truncated,
                    model=self.options.model,
                    served_model=reply.served_model,
                    endpoint=self.label,
                    params=params,
                    seed=body.get("seed"),
                    sample_index=call.sample_index,
                    attempts=list(attempts),
                    usage=usage,
                    latency_s=round(latency, 4),
                    logprobs=answer.logprobs,
                )
            )
            if len(calls) > 1:
                usage = Usage()
        return completions

    def _usage(self, reply: Reply) -> Usage:
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        if counts_one_choice(reply):
            completion = None
        cost = self.price(prompt, completion, reply.cached_tokens) if self.price else None
        return Usage(prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)

    def _guess(self, prompt: int, completion: int) -> Amount:
        cost = self.price(prompt, completion, 0) if self.price else None
        return Amount(1, prompt + completion, cost or 0.0)

    def _secrets(self) -> tuple[str, ...]:
        key = self._key.get_secret_value()
        return (key,) if len(key) >= 4 else ()

    def _open(self) -> Transport:
        """The endpoint's one transport, made in the loop that uses it."""
        _ = self.price  # loads the table now, not after the first answer
        key = self._key.get_secret_value()
        self._transport = open_transport(self.options, self.base_url, self.host, key, self._client)
        make_room(self._transport, 2 * self.options.max_concurrency)
        self._closer = weakref.finalize(self, _close, self._transport, asyncio.get_running_loop())
        return self._transport

    async def aclose(self) -> None:
        """Closes the connections; a later call opens them again. A client from outside is left open."""
        if self._transport is None:
            return
        transport, self._transport = self._transport, None
        self._closer.detach()
        await transport.close()


class _Refused:
    """The 429s of one call: how many `times`, and how many seconds it `waited` by itself for another try."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint, self._answered = endpoint, 0
        self.times, self.waited = 0, 0.0

    def again(self) -> None:
        if not self.times:
            self._answered = self._endpoint.answered
        self.times += 1

    @property
    def own(self) -> bool:
        """They are no reason to slow others down, which are answered, or to give the endpoint up."""
        return self.times >= OWN_429S and self._endpoint.answered > self._answered


def _backoff(retry: int, failure: Failure) -> float:
    """Full jitter (Brooker, "Exponential Backoff And Jitter", 2015); not before the endpoint wants it."""
    jittered = random.uniform(0, min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** min(retry - 1, 10)))
    return max(jittered, min(failure.retry_after or 0.0, LONGEST_RETRY_AFTER_S))


def _close(transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
    """Closes the transport of an endpoint that is garbage, or of a program that ends, without a warning."""
    if loop.is_closed() or not loop.is_running():
        return
    closing = asyncio.run_coroutine_threadsafe(transport.close(), loop)
    with contextlib.suppress(Exception):
        if not aio.inside():
            closing.result(1.0)
