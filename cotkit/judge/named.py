"""Judges by name, as the parameters of a notebook give them.

"step" recomputes the arithmetic and asks no model; "p_yes" asks the run's own model for one token, "same" for
scores; any other name is that of another model that scores.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from cotkit.judge.base import Judge
from cotkit.judge.confidence import ConfidenceJudge
from cotkit.judge.llm import LLMJudge
from cotkit.judge.panel import JudgePanel
from cotkit.judge.steps import StepJudge

NAMES = ("step", "p_yes", "same")


def named_judge(name: str, model: str, connect: Callable[[str], Any], others: bool) -> Judge:
    """The judge of this name. `connect` gives the ChatModel of a model's name, `model` is the run's own;
    `others`: whether there is an endpoint at which models of any name can be asked.

    Raises ValueError, before anything is asked, for a name that is none of these, or nearly one of `NAMES`.
    """
    if name == "step":
        return StepJudge()
    if not (name in (*NAMES, model) or name.startswith("embedded:") or others):
        known = f"'step', 'p_yes', 'same', {model!r}, 'embedded:...'"
        raise ValueError(f"no judge {name!r}: give {known}, or base_url or api_key_env for such a model")
    if (near := difflib.get_close_matches(name, NAMES, 1, 0.75)) and near[0] != name:
        raise ValueError(f"no judge {name!r}: did you mean {near[0]!r}?")
    kind = ConfidenceJudge if name == "p_yes" else LLMJudge
    return kind(connect(model if name in NAMES else name))


def named_panel(names: Sequence[str], model: str, connect: Callable[[str], Any], others: bool) -> Judge:
    """The judge of these names: a JudgePanel where there are several. Raises ValueError for none."""
    if not names:
        raise ValueError(f"no judge is named: give some of {', '.join(NAMES)}, or a model")
    judges = [named_judge(name, model, connect, others) for name in names]
    return JudgePanel(judges) if len(judges) > 1 else judges[0]
