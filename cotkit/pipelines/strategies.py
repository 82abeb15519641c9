"""What an attempt is asked: few_shot, self_instruct and evol_instruct, each a function that makes a `Plan`.

- few_shot: `k` distinct seeds are shown, a similar problem is asked for
- self_instruct (Wang et al. 2022, arXiv 2212.10560): seeds and problems the run has accepted, in the ratio
  `machine_share`, shuffled; a different problem is asked for. The pool grows while the run goes
- evol_instruct (Xu et al. 2023, arXiv 2304.12244): one problem and one operator. A chain starts at a seed and
  goes on from its last accepted problem, `rounds` times

All choices come from a generator seeded by (seed, strategy, attempt), so a resumed run asks the same, and the
cache has the answers. The first seed goes round all seeds in a shuffled order; what stands beside it comes
from its own group: seeds of other splits, or of other types, are never mixed with it.

How far attempts depend on each other is fixed by `lag`, not by who is faster: attempt i of self_instruct
knows what attempts below i - lag gave and waits for those; evol_instruct runs `lag` chains side by side, so
attempt i goes on from attempt i - lag. A larger lag lets more run at once (`most_at_once`), a smaller one
lets the pool grow sooner. Where none is given, the run's first call chooses it by the models' places
(`fitting_lag`); the folder keeps it, so that other places do not change what is asked.
To add a strategy: a function here, an entry in STRATEGIES, and a prompt `synth_<name>.j2`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cotkit.pipelines.operators import SECOND, Operator
from cotkit.pipelines.pool import Pool
from cotkit.pipelines.questions import situation_of
from cotkit.pipelines.running import Dropped
from cotkit.problems import Problem

if TYPE_CHECKING:
    from cotkit.pipelines.synthesis_recipe import Recipe

T = TypeVar("T")
LEAST_LAG = 8  # that keeps one or two places busy
SPREAD, HANGS = 8, 32  # of lag for each place: enough for lognormal latencies, and for Pareto's


@dataclass(frozen=True)
class Plan:
    """What one attempt asks for, and what it is made from."""

    seeds: list[Problem]
    turns: list[tuple[dict[str, Any], str]]  # shown before: values of what was asked, and the answer
    values: dict[str, Any] = field(default_factory=dict)  # of the prompt
    machine: list[Problem] = field(default_factory=list)  # problems of this run
    parent: Problem | None = None  # the problem that is rewritten
    operator: Operator | None = None
    begins: str = ""  # of the new problem; the reply goes on from it
    round: int = 0

    @property
    def sources(self) -> list[Problem]:
        return [*self.seeds, *self.machine]


async def few_shot(recipe: Recipe, attempt: int, pool: Pool) -> Plan:
    rng = chance(recipe, attempt)
    seeds = shown_with(first_seed(recipe, attempt), recipe, rng, recipe.k)
    return Plan(seeds, [({}, seed.problem) for seed in shuffled(seeds, rng)])


async def self_instruct(recipe: Recipe, attempt: int, pool: Pool) -> Plan:
    rng, first = chance(recipe, attempt), first_seed(recipe, attempt)
    earlier = await pool.accepted_before(attempt - recipe.lag)
    fitting = [problem for problem in earlier if group_of(problem) == group_of(first)]
    machine = shuffled(fitting, rng)[: min(recipe.k - 1, round(recipe.k * recipe.machine_share))]
    seeds = shown_with(first, recipe, rng, recipe.k - len(machine))
    shown = shuffled([*seeds, *machine], rng)
    return Plan(seeds, [({}, problem.problem) for problem in shown], machine=machine)


async def evol_instruct(recipe: Recipe, attempt: int, pool: Pool) -> Plan:
    rng = chance(recipe, attempt)
    chain, round_ = place_in_chain(attempt, recipe.lag, recipe.rounds)
    seed = first_seed(recipe, chain)
    before = [attempt - recipe.lag * back for back in range(round_, 0, -1)]
    machine = await pool.last_of(before)
    parent = machine or seed
    others, situation = shown_with(seed, recipe, rng, 2)[1:], situation_of(parent.problem)
    possible = [
        operator
        for operator in recipe.operators
        if (others or operator.problems == 1) and (situation or not operator.continues)
    ]
    if not possible:
        raise Dropped("no_operator", f"{parent.id} has no question apart from its situation to go on from")
    operator = shuffled(possible, rng)[0]
    second = others[0] if operator.problems == 2 else None

    def asked(problem: str, second: str | None) -> dict[str, Any]:
        shown = situation_of(problem) if operator.continues else problem
        return {"problem": shown, "operator": operator, "second": second}

    return Plan(
        seeds=[seed] if second is None else [seed, second],
        turns=[(asked(problem, second and SECOND), reply) for problem, reply in operator.examples],
        values=asked(parent.problem, second and second.problem),
        begins=situation if operator.continues else "",
        machine=[machine] if machine else [],
        parent=parent,
        operator=operator,
        round=round_,
    )


STRATEGIES: dict[str, Callable[[Recipe, int, Pool], Awaitable[Plan]]] = {
    "few_shot": few_shot,
    "self_instruct": self_instruct,
    "evol_instruct": evol_instruct,
}
SHOWN = {"few_shot": 3, "self_instruct": 4, "evol_instruct": 1}  # problems a prompt shows


def place_in_chain(attempt: int, lag: int, rounds: int) -> tuple[int, int]:
    """(chain, round): blocks of `lag` chains, whose first rounds come first."""
    block, rest = divmod(attempt, lag * rounds)
    round_, chain = divmod(rest, lag)
    return block * lag + chain, round_


def depends(recipe: Recipe) -> bool:
    """Whether an attempt is made from what others gave, so that `lag` matters."""
    return recipe.strategy == "self_instruct" or (recipe.strategy == "evol_instruct" and recipe.rounds > 1)


def fitting_lag(places: int, attempts: int, n: int | None = None) -> int:
    """A lag that keeps so many places busy. No more than the `n` problems wanted; where only attempts are
    counted, no more than half of them, but `SPREAD` a place."""
    if places <= 2:
        return LEAST_LAG
    most = max(SPREAD * places, attempts // 2) if n is None else n
    return max(LEAST_LAG, min(HANGS * places, most))


def most_at_once(recipe: Recipe, attempts: int) -> int:
    """How many of so many attempts run side by side, whatever places there are. Of evol_instruct first rounds
    may be ahead, but what they gave is only known when all lower attempts have asked."""
    if recipe.strategy == "self_instruct":
        return min(attempts, recipe.lag + 1)
    return min(attempts, recipe.lag) if depends(recipe) else attempts


def chance(recipe: Recipe, attempt: int | str) -> random.Random:
    return random.Random(f"{recipe.seed}:{recipe.strategy}:{attempt}")


def shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    """By keys of random(), the one method whose numbers Python promises never to change."""
    return [item for _, item in sorted(((rng.random(), item) for item in items), key=lambda pair: pair[0])]


def first_seed(recipe: Recipe, number: int) -> Problem:
    return recipe.seeds[number % len(recipe.seeds)]


def shown_with(first: Problem, recipe: Recipe, rng: random.Random, count: int) -> list[Problem]:
    """`first` and up to `count` - 1 other seeds of its group."""
    others = [s for s in recipe.seeds if s is not first and group_of(s) == group_of(first)]
    return [first, *shuffled(others, rng)[: count - 1]]


def group_of(problem: Problem) -> tuple[str | None, str | None]:
    """Split and type: only problems alike in both stand in one prompt."""
    return problem.metadata.get("split"), problem.type
