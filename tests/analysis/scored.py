"""Seeded scored rows whose truth is known, for tests of thresholds."""

from __future__ import annotations

import numpy as np
import pandas as pd


def scored(
    problems: int = 200,
    drafts: int = 3,
    *,
    seed: int = 0,
    power: tuple[float, ...] = (2.0, 1.0, 0.5),
    names: tuple[str, ...] = ("correctness", "clarity", "form"),
    base: float = 0.5,
    alike: float = 0.7,
    iterations: int = 1,
    pleased: float = 0.1,
) -> pd.DataFrame:
    """One line a trace, as `candidates_frame` gives it. `alike`: how much the traces of a problem share their
    luck; `power`: how far right traces score above wrong ones, in standard deviations; `pleased`: what a
    refinement gains in score without becoming right."""
    rng = np.random.default_rng(seed)
    problem = np.repeat(np.arange(problems), drafts)
    ease = rng.normal(size=problems)
    parts = []
    for iteration in range(iterations):
        luck = alike * ease[problem] + np.sqrt(1 - alike**2) * rng.normal(size=len(problem))
        right = luck + base > 0
        part = {"id": [f"p{number}" for number in problem], "iteration": iteration, "correct": right}
        for name, strength in zip(names, power, strict=False):
            score = 0.5 + 0.2 * (strength * (right - 0.5) + rng.normal(size=len(problem)))
            part[f"score_{name}"] = np.clip(np.round(score + pleased * iteration, 1), 0, 1)
        part["trace_characters"] = (300 * np.exp(0.4 * rng.normal(size=len(problem)))).astype(int)
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)
