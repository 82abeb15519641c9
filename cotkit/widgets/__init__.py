"""What a person touches in Jupyter: monitors, browsers, explorers.

    monitor.py      RunMonitor: a run in the background, watched and stopped
    traces.py       TraceBrowser: read a run, filter, compare, label (with trace_set.py, words.py)
    pairs.py        PairInspector: which of two traces is better, asked blind
    thresholds.py   ThresholdExplorer: move thresholds, see what they would keep
    strategies.py   StrategyExplorer: what each strategy made of a seed, step by step
    playground.py   ModelPicker, PromptPlayground: see a prompt as it is sent, try it once
    base.py         what all of them are

Each has a static view, so that a saved notebook and a report are readable. ipywidgets is imported when one is
shown.
"""

from __future__ import annotations

import importlib

_HOME = {
    "ModelPicker": "playground",
    "PairInspector": "pairs",
    "PromptPlayground": "playground",
    "RunMonitor": "monitor",
    "StrategyExplorer": "strategies",
    "ThresholdExplorer": "thresholds",
    "TraceBrowser": "traces",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(importlib.import_module(f"cotkit.widgets.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cotkit.widgets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
