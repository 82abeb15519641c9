"""What a key looks like: the one place that knows, for whatever must show or store none.

`looks_like_a_key` finds the known forms anywhere in a text, `scrub` takes them out, `is_variable_name` tells
the name of a variable from a key given in its place, `is_secret_name` knows the names secrets are kept
under. The forms are those the vendors document (a prefix and the letters behind it), so that a model's name,
a path, a hash or base64 is none; a secret without a form is known by its value only (`environment_secrets`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

FORMS = (
    r"\b(?:[spr]k|csk)-(?=[\w*-]*\d)[\w*-]{10,}",  # OpenAI, Anthropic, DeepSeek, OpenRouter, Cerebras
    r"\b[spr]k_(?:live|test)_\w{6,}",  # Stripe
    r"\b(?:hf|gsk|fw|r8|gh[pousr])_[A-Za-z0-9]{20,}",  # Hugging Face, Groq, Fireworks, Replicate, GitHub
    r"\bgithub_pat_\w{20,}",
    r"\b(?:xai|pplx)-[A-Za-z0-9]{20,}",  # xAI, Perplexity (pplx-70b-online is a model)
    r"\b(?:nvapi|glpat|xox[abprs])-(?=[\w-]*\d)[\w-]{16,}",  # NVIDIA, GitLab, Slack
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS
    r"\bAIza[\w-]{30,}",  # Google
    r"\beyJ[\w-]{10,}(?:\.[\w-]{10,}){1,4}",  # JSON Web Token
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"\b[Bb]earer\s+(?=\S*\d)[\w.~+/=-]{8,}",
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",  # https://user:password@host
    r"(?<=[?&])(?i:api[-_]?key|key|token|access_token|secret)=[^&\s]{6,}",
)
_FORMS = re.compile("|".join(FORMS))
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX = re.compile(
    r"(?:[spr]k|csk|hf|gsk|fw|r8|gh[pousr]|xai|pplx|nvapi)_(?=.*(?:\d|[a-z].*[A-Z]|[A-Z].*[a-z]))"
)
_SECRET_NAME = re.compile(
    r"(^|[_-])(key|token|(key|secret|password|passwd|credential)s?|authorization)$|api[_-]?keys?$", re.I
)
SHORTEST_SECRET = 8  # characters of a variable's value; a shorter one stands in too many texts


def looks_like_a_key(text: str) -> bool:
    """Does a text hold something in the form of a key?"""
    return _FORMS.search(text) is not None


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `[key]` for each of the given secrets and for whatever has the form of a key."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "[key]")
    return _FORMS.sub("[key]", text)


def is_variable_name(text: str) -> bool:
    """May a text be the name of an environment variable? False for a key, also one without a known form."""
    if not _VARIABLE.fullmatch(text) or looks_like_a_key(text) or _PREFIX.match(text):
        return False
    unlike_a_name = any(c.islower() for c in text) or "_" not in text
    return not (len(text) >= 20 and any(c.isdigit() for c in text) and unlike_a_name)


def is_secret_name(name: str) -> bool:
    """Is a field or variable of this name likely to hold a secret? Not `max_tokens`, not `api_key_env`."""
    return _SECRET_NAME.search(name) is not None


def environment_secrets() -> dict[str, str]:
    """Value -> variable name of what looks like a secret in the environment, the longest first."""
    found = {
        value: name
        for name, value in os.environ.items()
        if is_secret_name(name) and len(value) >= SHORTEST_SECRET and not value.isdigit()
    }
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))
