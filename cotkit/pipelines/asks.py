"""How a self-improvement run asks its models: nothing waits for what it does not depend on.

A step is a coroutine function: drafts of problems, scores of traces. `now` starts its steps at the same time
in the engine's loop and draws their progress in the caller's thread. Only with a budget they go one after the
other, for each must know what the others took.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cotkit import aio
from cotkit.chat import BudgetExceeded
from cotkit.pipelines import cycles as state
from cotkit.pipelines.critics import ask_again
from cotkit.pipelines.distill import prepare
from cotkit.pipelines.progress import Display, Progress
from cotkit.problems import Problem
from cotkit.records import Row
from cotkit.runs import Run

if TYPE_CHECKING:
    from cotkit.pipelines.plan import Plan

Step = Callable[[], Awaitable[Any]]


class Asks:
    """What one sitting of a run asks."""

    def __init__(self, plan: Plan, root: pathlib.Path):
        self.plan, self.root = plan, root
        self.bounded = any(limit is not None for limit in plan.budgets.values())
        self._news: deque[tuple[Progress, bool]] = deque()  # of runs that have begun (True) or ended

    def now(self, *steps: Step) -> list[Any]:
        """The results of the steps; blocks. An error is raised when no other step goes on any more."""
        shown: dict[int, Display] = {}

        def tick() -> None:
            while self._news:
                progress, begins = self._news.popleft()
                if begins:
                    shown[id(progress)] = Display(progress, self.plan.show)
                elif (display := shown.pop(id(progress), None)) is not None:  # an interrupt may have cost it
                    display.close()
            for display in shown.values():
                display.tick()

        try:
            return aio.run(self.together(*steps), tick)
        except KeyboardInterrupt:
            print(f"Interrupted. What is finished is safe in {self.root}; the same call goes on from there.")
            raise
        finally:
            tick()

    async def together(self, *steps: Step) -> list[Any]:
        if self.bounded:
            return [await step() for step in steps]
        return await aio.together([step() for step in steps])

    async def rows(
        self,
        folder: pathlib.Path,
        problems: Sequence[Problem],
        model: Any,
        judge: Any,
        *,
        again: bool = False,
        after: Callable[[Row], None] | None = None,
        **options: Any,
    ) -> list[Row]:
        """A run folder of `distill`, whole; an error when it cannot be finished now. `again`: asks what an
        endpoint failed once more. `after` is told each row that is made."""
        if again or not (folder / "report.json").is_file() or not Run(folder).report["complete"]:
            options |= state.budgets_left(self.root, folder, self.plan.budgets)
            options |= {"verifier": self.plan.verifier} if self.plan.verifier else {}
            options |= {"max_tokens": self.plan.max_tokens, "run": folder}
            work = prepare(problems, model, judge, options)
            if after is not None:
                work.solve = _followed(work.solve, after)
            with self._shown(work.progress):
                run = await work.go()
            why = run.report["stopped"] or "not every problem was finished"
            if not run.report["complete"] or (again and why.startswith("budget_")):
                raise (BudgetExceeded if why.startswith("budget_") else RuntimeError)(why)
        return Run(folder).records()

    async def scores(
        self, judge: Any, items: Sequence[tuple[Problem, str]], folder: pathlib.Path
    ) -> list[float | None]:
        """See `ask_again`."""
        left = state.budgets_left(self.root, folder, self.plan.budgets)
        return await ask_again(judge, items, folder, **left)

    @contextlib.contextmanager
    def _shown(self, progress: Progress) -> Iterator[None]:
        self._news.append((progress, True))
        try:
            yield
        finally:
            self._news.append((progress, False))


def _followed(solve: Callable[..., Awaitable[Row]], after: Callable[[Row], None]) -> Callable:
    async def solve_and_tell(index: int, problem: Problem) -> Row:
        row = await solve(index, problem)
        after(row)
        return row

    return solve_and_tell
