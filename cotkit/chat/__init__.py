"""Asking a model: endpoints, failover, retries, adaptive concurrency, response cache, cost ledger, and the
embedded models. Importing this loads no client: openai and aiohttp come with the first call.
"""

from __future__ import annotations

import importlib

from cotkit.chat.errors import BudgetExceeded, LedgerError, ModelError
from cotkit.records import Attempt, Completion, Usage

_HOME = {
    "CallLedger": "cotkit.chat.ledger",
    "ChatModel": "cotkit.chat.model",
    "ParseError": "cotkit.chat.structured",
    "embedded": "cotkit.chat.embedded",
    "check_sampling": "cotkit.chat.config",
    "load_models": "cotkit.chat.config",
    "local_model": "cotkit.chat.embedded",
    "parse_object": "cotkit.chat.structured",
}
__all__ = ["Attempt", "BudgetExceeded", "Completion", "LedgerError", "ModelError", "Usage"]
__all__ += list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'cotkit.chat' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    value = module if name == "embedded" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
