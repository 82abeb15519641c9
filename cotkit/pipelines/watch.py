"""What the critics are asked besides scoring a cycle's traces, so that their scores can be trusted: how much
they vary, whether they drift, whether words without content please them, and what a critic without a say
thinks.

The frozen answers are the first drafts of cycle 0; they stay the same over the whole run.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from cotkit import analysis
from cotkit.pipelines.critics import PERTURBATIONS, perturbed, repeat_noise
from cotkit.pipelines.cycles import cycle_name
from cotkit.pipelines.plan import NOISE_LEAST, NOISE_SHARE, Plan
from cotkit.problems import Problem
from cotkit.records import Row
from cotkit.runs import Run

Ask = Callable[[Any, Sequence[tuple[Problem, str]], pathlib.Path], list[float | None]]


class Watch:
    """`ask(judge, [(problem, trace)], folder)` gives mean scores, asked once a folder."""

    def __init__(self, plan: Plan, root: pathlib.Path, ask: Ask):
        self.plan, self.root, self.ask = plan, root, ask

    def noise(self, rows: Sequence[Row], cycle: int) -> dict[str, Any]:
        """How much a score varies when the critics are asked again; programs do not vary."""
        judge = self.plan.judge(cycle)
        if judge is None or not judge.calls_model:
            return {"sd": 0.0, "n": 0}
        scored = [(row, c) for row in rows for c in row.candidates if c.judgement and c.judgement.scores]
        count = max(NOISE_LEAST, round(NOISE_SHARE * len(scored)))
        share = scored[:: max(1, len(scored) // count)]
        items = [(problem_of(row), c.trace) for row, c in share]
        again = self.ask(judge, items, self.root / cycle_name(cycle) / "noise")
        return repeat_noise([c.judgement.mean for _, c in share], again)

    def critics(self, rows: Sequence[Row], cycle: int, noise: float) -> list[analysis.Alarm]:
        """Alarms of a cycle's traces, and of the frozen answers: in cycle 0 whether the critics can be
        pleased, later whether they drift."""
        plan, alarms, judge = self.plan, analysis.alarms, self.plan.dev_judge()
        found = alarms.judge_scores(rows, plan.gold) + alarms.improver_echo(rows)
        if judge is None or not plan.probe_size:
            return found
        if cycle == 0:
            return found + alarms.judge_pleased(
                {n: self._shift(n, text) for n, text in PERTURBATIONS.items()}
            )
        again = self.ask(judge, self._frozen(), self.root / cycle_name(cycle) / "drift")
        return found + alarms.judge_drift(self._frozen_scores(), again, noise)

    def flattery(self, first: Sequence[Row], now: Sequence[Row]) -> list[analysis.Alarm]:
        """Phrases that have come up since the first trained actor, and whether the critics like them."""
        phrases = analysis.alarms.new_phrases(first, now)
        watched = phrases if self.plan.dev_judge() and self.plan.probe_size else []
        shifts = {phrase: self._shift(phrase.replace(" ", "-")[:40], f"{phrase}.") for phrase, *_ in watched}
        return analysis.alarms.flattery(phrases, shifts)

    def held_out(self, rows: Sequence[Row], home: pathlib.Path) -> dict[str, float] | None:
        """The hold-out critic's scores of the drafts, {id: score}; it has no say in any selection."""
        if self.plan.holdout_critic is None:
            return None
        items = [(problem_of(row), row.candidates[0].trace) for row in rows if row.candidates]
        scores = self.ask(self.plan.dev_judge(self.plan.holdout_critic), items, home / "holdout")
        return {p.id: score for (p, _), score in zip(items, scores, strict=True) if score is not None}

    def _frozen(self) -> list[tuple[Problem, str]]:
        rows = [row for row in Run(self.root / cycle_name(0) / "generate").records() if row.candidates]
        return [(problem_of(row), row.candidates[0].trace) for row in rows[: self.plan.probe_size]]

    def _frozen_scores(self) -> list[float | None]:
        return self.ask(self.plan.dev_judge(), self._frozen(), self.root / "base" / "probe")

    def _shift(self, name: str, phrase: str) -> float:
        """What a phrase appended to the frozen answers adds to their scores."""
        items, folder = perturbed(self._frozen(), phrase), self.root / "base" / f"probe-{name}"
        pairs = zip(self._frozen_scores(), self.ask(self.plan.dev_judge(), items, folder), strict=True)
        shifts = [b - a for a, b in pairs if None not in (a, b)]
        return sum(shifts) / len(shifts) if shifts else 0.0


def problem_of(row: Row) -> Problem:
    return Problem(**{name: getattr(row, name) for name in Problem.model_fields if name != "solution_code"})
