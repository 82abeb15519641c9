"""How one endpoint wants to be asked: the request's body, the cache key, and what its refusals teach.

"OpenAI-compatible" leaves room: some models want `max_completion_tokens`, some take no temperature or seed,
some no JSON schema or system message, few more than one choice. A 400 that names such a thing changes the
dialect once, for all later calls; what was really sent stands in `Completion.params`. The cache key holds
what was asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotkit.chat import structured
from cotkit.chat.config import (
    OPENAI_HOST,
    SAMPLING,
    STRUCTURED,
    EndpointOptions,
    check_number,
    check_sampling,
    refuse_unknown,
)
from cotkit.chat.errors import Failure
from cotkit.shown import mended

CACHE_VERSION = 1
DISPENSABLE = ("temperature", "top_p", "seed")  # left out, with a warning, where they are refused

_UNSUPPORTED = re.compile(
    r"unsupported|(not|n't) (be )?(support|permit|allow)|unrecogni[sz]ed|unknown|unexpected"
    r"|extra (input|field)|deprecated|\buse\b.{0,60}\binstead|only the default|incompatible"
    r"|only [\d.]+ is allowed|may only be set to|must be (set to )?[\d.]+ (for|with|when)",
    re.I,
)
_FORMAT = re.compile(
    r"response[ _]?format|schema|json[ _]?(object|mode|validate)|(generate|validate) json|structured|grammar"
    r"|guided|output_config",
    re.I,
)
_NO_SYSTEM = re.compile(
    r"system'? role (is )?not supported|only user and assistant roles|roles must alternate"
    r"|does not support '(system|developer)'|developer instruction is not enabled",
    re.I,
)

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

log = logging.getLogger(__name__)

Messages = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Call:
    """What is asked: one completion, with its index among the samples of the same prompt."""

    messages: list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)  # in place of the endpoint's own
    sample_index: int = 0
    schema: structured.Schema | None = None
    logprobs: int | None = None  # alternatives a token; 0 = only the token's own
    keys: dict[Any, bytes] = field(default_factory=dict)  # of the dialects that were asked for one

    @property
    def characters(self) -> int:
        return sum(len(str(message.get("content", ""))) for message in self.messages)


def checked_call(
    messages: Messages,
    sampling: Mapping[str, Any],
    sample_index: int = 0,
    schema: Any = None,
    logprobs: int | None = None,
) -> Call:
    """The call, checked: a wrong one raises ValueError or TypeError here, before anything is asked."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    messages = [dict(message) for message in messages]
    if not messages or not all("role" in message and "content" in message for message in messages):
        raise ValueError("messages must be a text, or a list of {'role': ..., 'content': ...}")
    refuse_unknown(sampling, (*SAMPLING, "extra_body"), "sampling parameter", "; others go into extra_body")
    check_sampling(sampling, sampling.get("extra_body"))
    check_number("sample_index", sample_index, least=0, whole=True)
    check_number("logprobs", logprobs, least=0, whole=True, optional=True)
    given = {name: value for name, value in sampling.items() if value is not None}
    return Call(
        messages, given, sample_index, None if schema is None else structured.schema_of(schema), logprobs
    )


class Dialect:
    """`takes_n`: whether one request may ask for several choices."""

    def __init__(self, options: EndpointOptions, identity: str, host: str):
        self._options, self._identity = options, identity
        self._sampling, self._extra = options.sampling, options.extra_body or {}
        self.takes_n = host == OPENAI_HOST if options.supports_n == "auto" else options.supports_n
        self._mode = STRUCTURED[0] if options.structured == "auto" else options.structured
        self._refused: set[str] = set()
        self._takes_system = True

    def parameters(self, call: Call) -> dict[str, Any]:
        """The parameters of a call as asked for; the seed moves on with the sample index."""
        asked = {**self._sampling, **call.sampling}
        asked |= {**self._extra, **asked.pop("extra_body", {})}
        if "seed" in asked:
            asked["seed"] += call.sample_index
        if call.logprobs is not None:
            asked["logprobs"] = True
        if call.logprobs:
            asked["top_logprobs"] = call.logprobs
        return asked

    def key(self, call: Call) -> bytes:
        """sha256 of whatever changes the answer, and of nothing else (no key, no timeout, no retries)."""
        if self not in call.keys:
            call.keys[self] = self._key(call)
        return call.keys[self]

    def _key(self, call: Call) -> bytes:
        asked = {
            "endpoint": self._identity,
            "model": self._options.model,
            "messages": call.messages,
            "parameters": self.parameters(call),
            "schema": call.schema and call.schema.as_json,
            "structured": self._options.structured if call.schema else None,
            "sample_index": call.sample_index,
            "version": CACHE_VERSION,
        }
        return hashlib.sha256(_canonical(asked).encode()).digest()

    def body(self, call: Call, n: int = 1) -> dict[str, Any]:
        """The request."""
        parameters, messages = self.parameters(call), call.messages
        for name in self._refused & parameters.keys():
            value = parameters.pop(name)
            if name == "max_tokens":
                parameters["max_completion_tokens"] = value
        if n > 1:
            parameters["n"] = n
        if call.schema is not None:
            if self._mode != "json_schema":
                messages = structured.with_schema(messages, call.schema)
            if (wanted := call.schema.response_format(self._mode)) is not None:
                parameters["response_format"] = wanted
        if not self._takes_system:
            messages = _without_system(messages)
        return {"model": self._options.model, "messages": [_sendable(m) for m in messages], **parameters}

    def learn(self, failure: Failure, sent: dict[str, Any]) -> bool:
        """True when the refusal names something this dialect can do without: ask again, it differs now."""
        if failure.kind != "bad_request":
            return False
        named = {failure.param} if failure.param else set(re.findall(r"\w+", failure.words))
        words = f"{failure.param} {failure.words}"
        if _NO_SYSTEM.search(words) and any(m.get("role") == "system" for m in sent["messages"]):
            if self._takes_system:
                log.warning("%s takes no system message: its text goes to the user's", self._options.model)
            self._takes_system = False
            return True
        if "response_format" in sent and _FORMAT.search(words) and self._options.structured == "auto":
            simpler = STRUCTURED.index(sent["response_format"]["type"]) + 1
            self._mode = STRUCTURED[max(simpler, STRUCTURED.index(self._mode))]
            return True
        if "n" in sent and "n" in named:
            self.takes_n = False
            return True
        if not _UNSUPPORTED.search(words):  # such as a value out of range
            return False
        refused = next(
            (name for name in ("max_tokens", *DISPENSABLE) if name in named and name in sent), None
        )
        if refused is None:
            return False
        if refused in DISPENSABLE and refused not in self._refused:
            log.warning("%s takes no %s: it is not sent any more", self._options.model, refused)
        self._refused.add(refused)
        return True


def _without_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The text of the system messages put before that of the first user message."""
    said = [message["content"] for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    place = next((i for i, message in enumerate(rest) if message["role"] == "user"), None)
    if place is None:
        return [{"role": "user", "content": _joined(said)}, *rest] if said else messages
    first = rest[place]
    return [*rest[:place], {**first, "content": _joined([*said, first["content"]])}, *rest[place + 1 :]]


def _joined(contents: list[Any]) -> Any:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    parts = [[{"type": "text", "text": c}] if isinstance(c, str) else list(c) for c in contents]
    return [part for some in parts for part in some]


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    """Lone surrogates cannot be sent as UTF-8: the replacement character stands for them."""
    content = message.get("content")
    if not isinstance(content, str) or content.isascii():
        return message
    return {**message, "content": mended(content)}
