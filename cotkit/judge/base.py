"""What every judge is: a name, its dimensions, and `ajudge`."""

from __future__ import annotations

from typing import Any

from cotkit import aio
from cotkit.problems import Problem
from cotkit.records import Dimension, Judgement


class Judge:
    """Scores a trace of a problem.

    `dimension_names` None = only known after the first answer. `calls_model` False = scores cost nothing,
    so every draft may be scored. `score_range` is where its scores lie,
    (0, 1) for all but a reward model without a scale: None = any finite number.
    A judge that fails gives `Judgement(scores=None, error=...)`; what must stop a run (`BudgetExceeded`, a
    `ModelError` with `stops_run`) is raised.
    """

    dimensions: tuple[Dimension, ...] = ()
    calls_model = True
    note = ""  # what a notebook shows behind the name

    def __init__(
        self,
        name: str,
        dimension_names: tuple[str, ...] | None,
        score_range: tuple[float, float] | None = (0.0, 1.0),
    ):
        self.name, self.dimension_names, self.score_range = name, dimension_names, score_range

    @property
    def models(self) -> list[Any]:
        """The ChatModels it asks."""
        return []

    def describe(self) -> dict[str, Any]:
        """What a run records about the judge and compares on resume; no keys."""
        raise NotImplementedError

    async def ajudge(self, problem: Problem, trace: str, *, ledger: object = None) -> Judgement:
        raise NotImplementedError

    def judge(self, problem: Problem, trace: str) -> Judgement:
        """`ajudge`, blocking, for a notebook cell."""
        return aio.run(self.ajudge(problem, trace))

    async def aclose(self) -> None:
        """Frees connections the judge opened itself."""

    def _failed(self, error: str, **known: Any) -> Judgement:
        return Judgement(scores=None, error=error, judge=self.name, **known)

    def _repr_markdown_(self) -> str:
        lines = [f"**{type(self).__name__}** `{self.name}`{self.note}"]
        if self.dimensions:
            lines += ["", "| dimension | scale | what it looks at |", "|---|---|---|"]
        for dimension in self.dimensions:
            guide = " ".join(dimension.guide.replace("|", " ").split())
            lines.append(f"| {dimension.name} | {dimension.scale[0]}–{dimension.scale[1]} | {guide} |")
        return "\n".join(lines)

    def __repr__(self) -> str:
        names = (
            "known after the first answer"
            if self.dimension_names is None
            else ", ".join(self.dimension_names)
        )
        return f"{type(self).__name__}({self.name!r}: {names})"
