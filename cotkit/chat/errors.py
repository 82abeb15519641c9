"""How a call can fail, and the one place where an HTTP answer is given its kind.

An endpoint turns everything that goes wrong with one request into a `Failure`; what becomes of it depends
on its kind alone. `TRANSIENT` kinds are retried, then the next endpoint is asked; `DOWN` kinds move on at
once and the endpoint is left alone; `rate_limit` parks the endpoint; every other kind is the caller's, as a
`ModelError`. The status decides; words are read only where one status means two things.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any, Literal

from cotkit import keys
from cotkit.records import Attempt

ErrorKind = Literal[
    "auth",  # 401, 403
    "not_found",  # 404: no such model or path
    "quota",  # the account is out of money: another endpoint may help, waiting does not
    "rate_limit",  # 429
    "server",  # 5xx, 408, 409
    "timeout",
    "connection",  # refused, reset, dropped
    "bad_request",  # 400, 422: our fault, not retried
    "context_length",  # the prompt is too long for the model, or for what the account may send in a minute
    "empty",  # no content
    "refusal",  # refusal or content_filter
    "parse",  # no valid object after the re-ask
    "malformed",  # the body is not a chat completion
    "circuit_open",  # every endpoint of the model is down
    "ledger",  # calls.jsonl cannot be read or written
]
TRANSIENT = frozenset({"server", "timeout", "connection", "malformed"})
DOWN = frozenset({"auth", "not_found", "quota"})
PERMANENT = frozenset({"bad_request", "context_length"})  # asking again does not mend them
MESSAGE_LENGTH = 400  # an error page is not worth more

_CONTEXT = re.compile(
    r"context[ _](length|window|size)|prompt is too long|too many (input )?tokens|reduce the length", re.I
)
_TOO_LARGE = re.compile(r"request too large|must be reduced", re.I)  # of a 429 that no waiting helps
_QUOTA = re.compile(r"insufficient[ _](quota|balance|credits?|funds)|out of credits|credit balance", re.I)
_BILLING = re.compile(r"billing", re.I)
_RATE = re.compile(r"per[ _-]?(second|minute|hour|day)|rate[ _-]?limit|retry", re.I)


class ModelError(Exception):
    """A call that gave no answer. `kind` classifies it, `attempts` lists every try.

    `stops_run` is True where going on with other problems is pointless (bad key, endpoints down).
    `raw` is the last text of the model where it answered, but not as asked (kind "parse").
    """

    def __init__(
        self,
        kind: str,
        message: str,
        attempts: list[Attempt] | None = None,
        stops_run: bool = False,
        raw: str | None = None,
    ):
        super().__init__(message)
        self.kind, self.attempts, self.stops_run, self.raw = kind, attempts or [], stops_run, raw


class LedgerError(ModelError):
    """calls.jsonl cannot be read or written. Nothing in it was changed; the message says what to do."""

    def __init__(self, message: str):
        super().__init__("ledger", message, stops_run=True)


class BudgetExceeded(Exception):
    """A budget of the run is spent, or cannot be watched; raised before the call that would pass it."""


class Failure(Exception):
    """One request that gave no answer. `param` is the parameter the endpoint named."""

    def __init__(
        self, kind: str, message: str, *, retry_after: float | None = None, param: str | None = None
    ):
        super().__init__()
        self.kind, self.message, self.retry_after, self.param = kind, message, retry_after, param

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def classify(status: int, headers: Mapping[str, str], body: Any) -> Failure:
    """The Failure of an HTTP answer that is no success. `body` is the decoded JSON or the raw text."""
    error = _error_object(body)
    message = str(error.get("message") or error.get("detail") or body or "no message")
    retry_after = retry_after_seconds(headers)
    words = f"{error.get('code')} {error.get('type')} {message}"
    param = error.get("param")
    return Failure(
        _kind(status, words, retry_after),
        f"status {status}: {message}",
        retry_after=retry_after,
        param=param if isinstance(param, str) else None,
    )


def _kind(status: int, words: str, retry_after: float | None) -> str:
    if status == 402 or (status in (400, 403, 429) and _QUOTA.search(words)):
        return "quota"
    if status == 429 and _TOO_LARGE.search(words):
        return "context_length"
    if status == 429:
        # Some vendors mention billing in every 429; theirs also say when to come back.
        billing = _BILLING.search(words) and retry_after is None and not _RATE.search(words)
        return "quota" if billing else "rate_limit"
    if status in (401, 403):
        return "auth"
    if status == 404:
        return "not_found"
    if status >= 500 or status in (408, 409, 425):
        return "server"
    if status == 413 or _CONTEXT.search(words):
        return "context_length"
    return "bad_request" if 400 <= status < 500 else "malformed"


def _error_object(body: Any) -> Mapping[str, Any]:
    """The error object of the common shapes: {"error": {...}}, {"error": "..."}, {...}, a text."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        return error
    return {"message": error if isinstance(error, str) else json.dumps(error)} if error else {}


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The wait an endpoint asks for: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, scale in ((milliseconds, 1000), (value, 1)):
        try:
            seconds = float(text) / scale
        except (TypeError, ValueError):
            continue
        if not math.isnan(seconds):
            return max(0.0, seconds)
    at, said = _seconds_of(value), _seconds_of(headers.get("date"))
    if at is None:
        return None
    return max(0.0, at - (time.time() if said is None else said))  # by the endpoint's clock, not by ours


def _seconds_of(date: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, AttributeError):
        return None


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """The text without the given secrets, without anything that looks like a key, and not too long."""
    text = keys.scrub(text, secrets)
    return text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH] + " ..."
