"""Asking a model: endpoints, failover, retries, adaptive concurrency, response cache, cost ledger, and the
embedded models. Importing this loads no client: openai and aiohttp come with the first call.
"""

from __future__ import annotations

from cotkit.chat.errors import PERMANENT, BudgetExceeded, LedgerError, ModelError
from cotkit.lazy import lazy
from cotkit.records import Attempt, Completion, Usage

_HOME = {  # name: where it is, loaded when first asked for
    "embedded": "embedded:",
    "CallLedger": "ledger",
    "ChatModel": "model",
    "ParseError": "structured",
    "WeightsError": "weights",
    "check_budgets": "budgets",
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
__all__ = ["PERMANENT", "Attempt", "BudgetExceeded", "Completion", "LedgerError", "ModelError", "Usage"]
__all__ += list(_HOME)
__getattr__, __dir__ = lazy(__name__, _HOME)
