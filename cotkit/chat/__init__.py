"""Asking a model: endpoints, failover, retries, adaptive concurrency, response cache, cost ledger, and the
embedded models. Importing this loads no client: openai and aiohttp come with the first call.
"""

from __future__ import annotations

import importlib

from cotkit.chat.errors import BudgetExceeded, LedgerError, ModelError
from cotkit.records import Attempt, Completion, Usage

_HOME = {  # name: where it is, loaded when first asked for
    "CallLedger": "ledger",
    "ChatModel": "model",
    "ParseError": "structured",
    "WeightsError": "weights",
    "check_sampling": "config",
    "checked_url": "config",
    "classify_failure": "errors:classify",
    "load_models": "config",
    "merge_ledgers": "ledger",
    "local_model": "embedded",
    "model_path": "weights:path",
    "models_table": "weights",
    "parse_object": "structured",
    "pull_model": "weights:pull",
    "read_key": "config",
}
__all__ = ["Attempt", "BudgetExceeded", "Completion", "LedgerError", "ModelError", "Usage", "embedded"]
__all__ += list(_HOME)


def __getattr__(name: str):
    if name == "embedded":
        return importlib.import_module("cotkit.chat.embedded")
    if name not in _HOME:
        raise AttributeError(f"module 'cotkit.chat' has no attribute {name!r}")
    module, _, inner = _HOME[name].partition(":")
    value = getattr(importlib.import_module(f"cotkit.chat.{module}"), inner or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
