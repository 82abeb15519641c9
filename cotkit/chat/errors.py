"""How a call can fail, and the one place where an HTTP answer is given its kind.

An endpoint turns everything that goes wrong with one request into a `Failure`; what becomes of it depends
on its kind alone. `TRANSIENT` kinds are retried, then the next endpoint is asked; `DOWN` kinds move on at
once and the endpoint is left alone; `rate_limit` parks the endpoint; every other kind is the caller's, as a
`ModelError`. The status decides; words are read only where one status means two things, and only the
endpoint's own: an error may quote the prompt.
"""

from __future__ import annotations

import contextlib
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
    "not_found",  # 404, 405: no such model or path
    "quota",  # the account is out of money: another endpoint may help, waiting does not
    "rate_limit",  # 429
    "server",  # 5xx, 408, 409; an answer that was broken off
    "timeout",
    "connection",  # refused, reset, dropped
    "bad_request",  # 400, 422: our fault, not retried
    "context_length",  # the prompt is too long for the model, or for what the account may send in a minute
    "empty",  # no content
    "refusal",  # of this prompt: by the model, a content filter, a moderation
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
    r"context[ _](length|window|size|limit)|(prompt|input) is too long|too many (input )?tokens"
    r"|reduce the length|(prompt|input|model) length|input token count|must have less than \d+ tokens"
    r"|`max_new_tokens` must be <=",
    re.I,
)
_TOO_LARGE = re.compile(r"request too large|must be reduced", re.I)  # of a 429 that no waiting helps
_QUOTA = re.compile(
    r"insufficient[ _](quota|balance|credits?|funds)|out of credits|used all available credits|credit balance"
    r"|budget has been exceeded|budget_exceeded|account .{0,80}suspended|arrearage|account ?overdue"
    r"|balance is (insufficient|not enough)|\u4f59\u989d\u4e0d\u8db3",
    re.I,
)
_SPENT = re.compile(  # or a rate limit, where it says so
    r"exceeded\w*budget|(key|budget) limit exceeded|spend(ing)? (limit|cap)", re.I
)
_BILLING = re.compile(r"billing", re.I)
_KEY = re.compile(
    r"api[ _]key (is )?(not valid|invalid|expired)|(invalid|incorrect) (api[ _]key|authorization)"
    r"|api_key_invalid|user location is not supported",
    re.I,
)
_MODEL = re.compile(
    r"model\b.{0,80} (does not|doesn't|not) exist|no models? loaded"
    r"|invalid[ _]model\b(?!.{0,20}(param|option|output|response))"
    r"|model_(not_found|not_available|decommissioned)",
    re.I,
)
_NO_ROOM = re.compile(r"max_tokens or model output limit was reached", re.I)  # all of it went into thinking
_UNLOADED = re.compile(r"model (unloaded|has crashed)|failed to load model", re.I)
_FLAGGED = re.compile(
    r"(input|prompt|content|messages?|request|text) (was|were|is|has been|have been) flagged"
    r"|content[ _](policy|filter|management|moderation)|(requires|by|failed) moderation|moderation_blocked"
    r"|(input|prompt|content|request)\b.{0,60} usage (guidelines|polic)|safety[ _](check|filter|system)"
    r"|content exists risk|data_inspection_failed|(inappropriate|sensitive|unsafe) ?content|\u654f\u611f",
    re.I,
)
_ACCOUNT = re.compile(
    r"\b(account|organi[sz]ation|user|key)\b.{0,60}\b(suspended|disabled|deactivated|terminated|banned|blocked)",
    re.I,
)
_ECHO = re.compile(r"""['"\\]+(input|messages|content|prompt)['"\\]+\s*:\s*['"\\\[{]|input_value=""")
LEAST_QUOTED = 8  # characters: a shorter prompt is too likely a word of the endpoint's own
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
    """One request that gave no answer. `param` is the parameter the endpoint named, `words` is what it said
    itself: the codes and the message without what is quoted of the request."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retry_after: float | None = None,
        param: str | None = None,
        words: str = "",
    ):
        super().__init__()
        self.kind, self.message, self.retry_after = kind, message, retry_after
        self.param, self.words = param, words

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def classify(
    status: int,
    headers: Mapping[str, str],
    body: Any,
    sent: Mapping[str, Any] | None = None,
    where: str | None = None,
) -> Failure:
    """The Failure of an HTTP answer that is no success. `body` is the decoded JSON or the raw text.

    sent: the request, whose words are nobody's error where the endpoint quotes them. where: what the message
    begins with, in place of the status.
    """
    error = _error_object(body)
    behind = _error_behind(error)
    message = _sentence(error) or "no message"
    if behind:
        message += f": {_sentence(behind)}"
    retry_after = retry_after_seconds(headers)
    codes = [str(e[n]) for e in (error, behind) for n in ("code", "type") if isinstance(e.get(n), (str, int))]
    words = " ".join([*codes, _spoken(message, sent)])
    return Failure(
        _kind(status, words, retry_after),
        f"{where or f'status {status}'}: {message}",
        retry_after=retry_after,
        param=next((e["param"] for e in (error, behind) if isinstance(e.get("param"), str)), None),
        words=words,
    )


def _kind(status: int, words: str, retry_after: float | None) -> ErrorKind:
    if status == 402 and retry_after is not None:  # OpenRouter: too much in flight for what is left
        return "rate_limit"
    by_rate = status == 429 and (retry_after is not None or _RATE.search(words))
    spent = _QUOTA.search(words) or (_SPENT.search(words) and not by_rate)
    if status == 402 or (status in (400, 403, 412, 429) and spent):
        return "quota"
    if status in (400, 403, 422) and _FLAGGED.search(words) and not _ACCOUNT.search(words):
        return "refusal"
    if status == 429 and _TOO_LARGE.search(words):
        return "context_length"
    if status == 429:
        # Some vendors mention billing in every 429; theirs also say when to come back.
        return "quota" if _BILLING.search(words) and not by_rate else "rate_limit"
    if status in (401, 403) or (status in (400, 422) and _KEY.search(words)):
        return "auth"
    if status in (404, 405, 410, 501) or (status in (400, 422) and _MODEL.search(words)):
        return "not_found"
    if status >= 500 or status in (408, 409, 423, 424, 425, 498, 499):
        return "server"
    if status in (400, 422) and _UNLOADED.search(words):
        return "server"
    if status == 400 and _NO_ROOM.search(words):
        return "empty"
    if status == 413 or _CONTEXT.search(words):
        return "context_length"
    return "bad_request" if 400 <= status < 500 else "malformed"


def _error_object(body: Any) -> Mapping[str, Any]:
    """The error object of the common shapes: {"error": {...}}, {"error": "..."}, {"errors": [{...}]}, {...},
    any of them alone in a list, a text."""
    for _ in range(4):
        inner = (body.get("error") or body.get("errors")) if isinstance(body, Mapping) else None
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        elif isinstance(inner, (Mapping, list)):
            body = inner
        else:
            break
    if not isinstance(body, Mapping):
        return {"message": body} if body else {}
    error, message = body.get("error"), body.get("message") or body.get("detail")
    if isinstance(error, str) and error:
        return {**body, "message": f"{error}: {message}" if isinstance(message, str) and message else error}
    return body


def _error_behind(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the provider behind a gateway said (OpenRouter: metadata.raw); {} = nothing."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if isinstance(raw, str):
        with contextlib.suppress(ValueError, RecursionError):
            raw = json.loads(raw)
    return _error_object(raw) if raw else {}


def _sentence(said: Any) -> str:
    """An error in words; of pydantic's (FastAPI, vLLM) the places and the messages, without what was sent."""
    for _ in range(4):
        inner = (said.get("message") or said.get("detail")) if isinstance(said, Mapping) else None
        if not inner:
            break
        said = inner
    if isinstance(said, str):
        return said
    listed = said if isinstance(said, list) else [said]
    if listed and all(isinstance(one, Mapping) and isinstance(one.get("msg"), str) for one in listed):
        return "; ".join(f"{_place(one.get('loc'))}{one['msg']}" for one in listed)
    return as_json(said) if said else ""


def _place(loc: Any) -> str:
    parts = loc if isinstance(loc, list) else []
    return "".join(f"{part}." for part in parts if isinstance(part, (str, int)))[:-1] + ": " if parts else ""


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(JSON that cannot be written)"


def _spoken(message: str, sent: Mapping[str, Any] | None) -> str:
    """The message without what it quotes of the request: the prompt's words must not decide anything."""
    for one in sent["messages"] if sent else ():
        text = one.get("content")
        if isinstance(text, str) and len(text) >= LEAST_QUOTED:
            for quoted in (
                text,
                json.dumps(text)[1:-1],
                json.dumps(text, ensure_ascii=False)[1:-1],
                repr(text)[1:-1],
            ):
                message = message.replace(quoted, " ")
    echo = _ECHO.search(message)
    return message[: echo.start()] if echo else message


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
