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

from cotkit.lazy import lazy

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
__getattr__, __dir__ = lazy(__name__, _HOME)
