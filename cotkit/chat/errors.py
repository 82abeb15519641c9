"""How a call can fail."""

from __future__ import annotations

from typing import Literal

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
    "context_length",  # the prompt is too long for the model
    "empty",  # no content
    "refusal",  # refusal or content_filter
    "parse",  # no valid object after the re-ask
    "malformed",  # the body is not a chat completion
    "circuit_open",  # every endpoint of the model is down
]


class ModelError(Exception):
    """A call that gave no answer. `kind` classifies it, `attempts` lists every try.

    `stops_run` is True where going on with other problems is pointless (bad key, endpoints down).
    """

    def __init__(
        self, kind: str, message: str, attempts: list[Attempt] | None = None, stops_run: bool = False
    ):
        super().__init__(message)
        self.kind, self.attempts, self.stops_run = kind, attempts or [], stops_run


class BudgetExceeded(Exception):
    """A budget of the run is spent; raised before the call that would pass it."""
