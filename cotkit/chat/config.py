"""What an endpoint is and how it is asked: options checked before anything is paid, and `load_models`.

A models file gives each role a list of endpoints, asked in that order:

    roles:
      generator:
        - {model: deepseek-chat, base_url: https://api.deepseek.com/v1, api_key_env: DEEPSEEK_API_KEY}
        - {model: gpt-4o-mini}
      judge: {model: gpt-4o-mini, temperature: 0}

Keys are given by the NAME of an environment variable. No message here repeats a value that could be one.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotkit.keys import is_variable_name

if TYPE_CHECKING:
    from cotkit.chat.model import ChatModel

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_HOST = "api.openai.com"
SAMPLING = ("temperature", "top_p", "max_tokens", "seed", "stop")
STRUCTURED = ("json_schema", "json_object", "prompt")  # from the strictest to what every model can do
TRANSPORTS = ("openai", "aiohttp")
RESERVED = {"model", "messages", "n", "stream", "response_format"}  # not for extra_body


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """One model at one endpoint. Raises ValueError or TypeError for anything that could not work."""

    model: str
    base_url: str | None = None  # None = OpenAI
    api_key_env: str | None = None  # name of the variable that holds the key; "" = this endpoint wants none
    max_concurrency: int = 16
    max_requests_per_minute: float | None = None
    max_retries: int = 5  # of one call on this endpoint, for faults that pass; 429 does not count
    timeout: float = 120.0  # seconds from sending the request to the end of the answer
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    extra_body: Mapping[str, Any] | None = None  # further fields of the request
    structured: str = "auto"
    price: tuple[float, float] | None = None  # US dollars per million prompt, completion tokens
    supports_n: bool | str = "auto"  # several answers in one request; "auto" = only at OpenAI
    rate_limit_patience: float = 600.0  # seconds of nothing but 429 before the endpoint is given up
    transport: str = "openai"
    endpoint_name: str | None = None  # stands for host and port in rows, config and cache keys

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise ValueError(f"model must be the model's name, got {self.model!r}")
        read_key(self.api_key_env, checked_url(self.base_url))
        check_number("max_concurrency", self.max_concurrency, least=1, whole=True)
        check_number("max_requests_per_minute", self.max_requests_per_minute, above=0, optional=True)
        check_number("max_retries", self.max_retries, least=0, whole=True)
        check_number("timeout", self.timeout, above=0)
        check_number("rate_limit_patience", self.rate_limit_patience, least=0)
        check_sampling({name: getattr(self, name) for name in SAMPLING}, self.extra_body)
        if self.structured not in ("auto", *STRUCTURED):
            raise ValueError(f"structured must be auto, {', '.join(STRUCTURED)}; got {self.structured!r}")
        if self.supports_n not in ("auto", True, False):
            raise ValueError(f"supports_n must be True, False or 'auto', got {self.supports_n!r}")
        if self.transport not in TRANSPORTS:
            raise ValueError(f"transport must be {' or '.join(TRANSPORTS)}, got {self.transport!r}")
        if self.price is not None:
            rule = "price is a pair: US dollars per million prompt tokens, and per million completion tokens"
            if not isinstance(self.price, (tuple, list)) or len(self.price) != 2:
                raise ValueError(f"{rule}; got {self.price!r}")
            for number in self.price:
                check_number(rule, number, least=0)

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set."""
        values = {name: getattr(self, name) for name in SAMPLING}
        return {name: value for name, value in values.items() if value is not None}


def endpoint_options(given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> EndpointOptions:
    """Options from a mapping (a fallback, an entry of a models file); unknown names are refused."""
    known = [field.name for field in dataclasses.fields(EndpointOptions)]
    if "api_key" in given:
        raise TypeError(
            "api_key is no option: put the key in an environment variable and give its name as api_key_env"
        )
    refuse_unknown(given, known, "option")
    if "model" not in given:
        raise TypeError("an endpoint needs a model")
    return EndpointOptions(**{**(defaults or {}), **given})


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str, advice: str = "") -> None:
    """TypeError for the first name that is not known, with the nearest one that is."""
    known = list(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise TypeError(f"unknown {what} {name!r}: {hint}known: {', '.join(known)}{advice}")


_LIMITS = {
    "temperature": {"least": 0},
    "top_p": {"above": 0, "most": 1},
    "max_tokens": {"least": 1, "whole": True},
    "seed": {"whole": True},
}


def check_sampling(sampling: Mapping[str, Any], extra_body: Mapping[str, Any] | None) -> None:
    """TypeError or ValueError for a sampling parameter no endpoint could take; None = not set."""
    for name, limits in _LIMITS.items():
        if sampling.get(name) is not None:
            check_number(name, sampling[name], **limits)
    stop = sampling.get("stop")
    if not (stop is None or (isinstance(stop, (str, list)) and all(isinstance(part, str) for part in stop))):
        raise TypeError(f"stop must be a string or a list of strings, got {stop!r}")
    if extra_body is None:
        return
    if not isinstance(extra_body, Mapping):
        raise TypeError(f"extra_body must be a dict of further request fields, got {extra_body!r}")
    check_number("the seed in extra_body", extra_body.get("seed"), whole=True, optional=True)
    if taken := sorted(RESERVED & set(extra_body)):
        raise ValueError(f"extra_body cannot set {', '.join(taken)}: cotkit sets it")
    for name, value in extra_body.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"extra_body[{name!r}] cannot be sent as JSON: {error}") from None
    _check_names("extra_body", extra_body)


def _check_names(where: str, value: Any) -> None:
    """TypeError for a name that is no text: each encoder makes something else of it."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{where} has the field {name!r}: the names of fields must be texts")
            _check_names(f"{where}[{name!r}]", part)
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            _check_names(f"{where}[{place}]", part)


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    whole: bool = False,
    optional: bool = False,
) -> None:
    if optional and value is None:
        return
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not fits or not abs(value) <= sys.float_info.max:  # not for NaN either
        raise TypeError(f"{name} must be a {'whole ' if whole else ''}number, got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    if above is not None and value <= above:
        raise ValueError(f"{name} must be more than {above}, got {value!r}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, got {value!r}")


_HOST = re.compile(r"[\w.-]+|[0-9a-fA-F:.]+(%\w+)?")  # a name, or an IPv6 address without its brackets


def checked_url(base_url: str | None) -> str:
    """The base_url without its last slash; ValueError, without repeating it, when it could hold a key.

    None = OpenAI, or what OPENAI_BASE_URL says, as for OpenAI's own client.
    """
    if base_url is None:
        base_url = os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
    base_url = base_url.strip() if isinstance(base_url, str) else base_url
    try:
        parts = urllib.parse.urlsplit(base_url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        valid = valid and bool(_HOST.fullmatch(parts.hostname)) and bool(parts.hostname.encode("idna"))
        valid = valid and base_url.isprintable() and " " not in base_url  # urlsplit drops line breaks
    except (ValueError, AttributeError, TypeError):
        valid = False
    if not valid:
        raise ValueError("base_url must be an address such as https://api.deepseek.com/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"base_url of host {parts.hostname} must hold no user, key or query: they would end up in files. "
            "Give the key's variable as api_key_env, or your own client to ChatModel.from_client"
        )
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise ValueError("base_url ends before /chat/completions: cut that part off")
    return base_url.rstrip("/")


def read_key(api_key_env: str | None, base_url: str) -> str | None:
    """The key's value, None = the endpoint wants none. ValueError says which variable to set."""
    host = urllib.parse.urlsplit(base_url).hostname or ""
    if api_key_env is None:
        if host == OPENAI_HOST:
            api_key_env = "OPENAI_API_KEY"
        elif is_local(host):
            return None
        else:
            raise ValueError(
                f"{host} needs a key: put it in an environment variable and give the variable's name as "
                'api_key_env (api_key_env="" = this endpoint wants no key)'
            )
    if api_key_env == "":
        return None
    if not isinstance(api_key_env, str) or not is_variable_name(api_key_env):
        raise ValueError(
            "api_key_env must be the NAME of an environment variable, such as OPENAI_API_KEY. What was given "
            "looks like a key itself; it is not repeated here"
        )
    key = os.environ.get(api_key_env, "").strip()
    if not key:
        raise ValueError(
            f"the environment variable {api_key_env} (api_key_env, for {host}) is not set: set it before "
            f'starting Python, or in the notebook: os.environ["{api_key_env}"] = getpass.getpass()'
        )
    if not (key.isascii() and key.isprintable()):
        raise ValueError(
            f"the environment variable {api_key_env} (api_key_env, for {host}) holds a character that no key "
            "has, such as a line break or a dash or dots that an editor made: copy the key again"
        )
    return key


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_local(host: str) -> bool:
    """This machine, or one of this network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".localhost"))


def load_models(path: str | os.PathLike) -> dict[str, ChatModel]:
    """{role: ChatModel} of a YAML file (see the top of this file); a role's list is its order of failover.

    Raises ValueError that names the file, the role, the endpoint's place in the list and the field.
    """
    import yaml

    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    roles = content.get("roles") if isinstance(content, dict) else None
    if not isinstance(roles, dict) or not roles or set(content) != {"roles"}:
        raise ValueError(f"{path} must hold one entry `roles:` with an entry for each role")
    return {str(role): _model_of(role, entries, path) for role, entries in roles.items()}


def _model_of(role: Any, entries: Any, path: Path) -> ChatModel:
    from cotkit.chat.model import ChatModel

    entries = [entries] if isinstance(entries, dict) else entries
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: role {role!r} must hold an endpoint or a list of endpoints")
    for place, entry in enumerate(entries, 1):
        where = f"{path}: role {role!r}, endpoint {place}"
        if not isinstance(entry, dict):
            raise ValueError(f"{where} must be options such as {{model: ..., base_url: ...}}")
        for field, value in entry.items():
            if "${" in str(value):
                raise ValueError(
                    f"{where}: {field}: ${{...}} is never expanded: write the value itself, and for a key "
                    "the NAME of its environment variable (api_key_env: NAME)"
                )
        try:
            endpoint_options({k: v for k, v in entry.items() if k != "name" or place > 1})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from None
    first, *others = entries
    return ChatModel(**first, fallbacks=others)
