"""Numbers, figures and findings from finished runs. Reads rows and reports; never calls a model.

    intervals.py     rates, paired differences and AUC with their uncertainty
    candidates.py    the traces of rows: which are the model's own; the frame analysis starts from
    distillation.py  funnel, acceptance, accuracy, types, scores, the judge's agreement with the verdict
    cost.py          calls, tokens, money and latency
    conclusions.py   findings in sentences, and examples to look at
    figures.py       one figure for each of these frames
    views.py         trace cards and readable tables as HTML

Names are imported when they are first used: pandas and matplotlib load with the function that needs them.
"""

from __future__ import annotations

import importlib

_PUBLIC = {
    "intervals": [
        "Auc", "PairedDifference", "Rate", "auc", "auc_interval", "bootstrap_interval", "paired_difference",
        "pass_at_k", "wilson_interval",
    ],
    "candidates": ["candidates_frame"],
    "distillation": [
        "acceptance_by_iteration", "accuracy_comparison", "by_type", "funnel", "judge_agreement",
    ],
    "cost": ["throughput"],
    "conclusions": ["examples", "findings", "outcome"],
    "views": ["readable", "trace_cards"],
}  # fmt: skip
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted([*_HOME, "figures"])


def __getattr__(name: str):
    if name == "figures":
        return importlib.import_module("cotkit.analysis.figures")
    if name in _HOME:
        value = getattr(importlib.import_module(f"cotkit.analysis.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cotkit.analysis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
