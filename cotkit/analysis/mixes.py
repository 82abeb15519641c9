"""Which mix of strategies reaches a target at the least cost, and how sure that is.

Every mix on a grid of shares is tried, since the diversity of a mix is no sum of its parts'. How sure the
answer is comes from draws: acceptance and hardness of each strategy from Beta distributions (Jeffreys'
prior), the diversity of each mix from its spread over subsets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.diversity import LEAST, SEEDS
from cotkit.analysis.intervals import NAN
from cotkit.analysis.kernels import vendi_score
from cotkit.analysis.strategies import StrategyComparison, check_target

if TYPE_CHECKING:
    import pandas

SUBSET, SUBSETS = 50, 20  # questions of a mix whose diversity is taken, at most; how many such subsets
DRAWS = 1000
NEAR = 1.1  # a mix that costs at most this times the least is as good
SURE = 0.8  # a mix must reach the target in so many of the draws
UNITS = ("cost_usd", "tokens", "calls")


@dataclass(frozen=True)
class Recommendation:
    """`mix` {strategy: accepted problems to make}, None where no mix is known to do it; `text` says it all.

    `cost` is expected, in `unit`. `reaches`: the share of draws in which the mix reached the target; `best`:
    in which it also cost at most 1.1 times the least of those that did. `options`: all mixes tried.
    """

    text: str
    mix: dict[str, int] | None = None
    cost: float = NAN
    unit: str | None = None
    reaches: float = NAN
    best: float = NAN
    options: pandas.DataFrame | None = None

    def _repr_markdown_(self) -> str:
        return self.text


def recommend(
    found: StrategyComparison, n: int = 100, hard_share: float = 0.0, diversity: float = 0.0, seed: int = 0
) -> Recommendation:
    """The cheapest mix that gives `n` accepted problems, at least `hard_share` of them hard, with a Vendi
    score of at least `diversity` times that of the seeds (without enough seeds: of the most diverse
    strategy), on subsets of one size. What the runs differ in beside the strategy stands in the text. Raises
    ValueError for what is no target.
    """
    import pandas

    check_target(n, hard_share, diversity)
    table = found.reliability.set_index("strategy")
    unit = next((u for u in UNITS if table[u].notna().all() and table[u].any()), None)
    table = table[table["accepted"] >= LEAST]
    if not table.empty:
        table = table.join(found.difficulty.set_index("set")[["hard", "problems"]])
        table = table[table["problems"] >= (LEAST if hard_share else 0)]
    if unit is None or table.empty:
        measured = "accepted problems with a solve rate" if hard_share else "accepted problems"
        lacks = f"no strategy has {LEAST} {measured}" if unit else "what the runs cost is not known"
        return Recommendation(f"Not enough data for a recommendation: {lacks}.")
    target = f"{n:,} accepted problems, {hard_share:.0%} hard, {diversity:.0%} of the reference's diversity"
    rng = np.random.default_rng(seed)
    mixes = _grid(len(table))
    variety, error = _relative_vendi(found, list(table.index), mixes, rng)
    drawn_cost, drawn_hard = (each @ mixes.T for each in _draws(table, unit, rng))
    drawn_variety = variety + rng.standard_normal((DRAWS, 1)) * error
    reached = (drawn_hard >= hard_share) & (drawn_variety >= diversity)
    least = np.where(reached, drawn_cost, np.inf).min(axis=1, keepdims=True)
    options = pandas.DataFrame(mixes, columns=table.index).assign(
        hard=mixes @ table["hard"].to_numpy(),
        diversity=variety,
        cost=n * mixes @ (table[unit] / table["accepted"]).to_numpy(),
        reaches=reached.mean(axis=0),
        best=(reached & (drawn_cost <= NEAR * least)).mean(axis=0),
    )
    sure = options[options["reaches"] >= SURE]
    if sure.empty:
        most = f"none does in more than {options['reaches'].max():.0%} of the draws from what is known"
        return Recommendation(f"No mix surely gives {target}: {most}.", unit=unit, options=options)
    line = sure.loc[sure["cost"].idxmin()]
    shares = line[list(table.index)].to_numpy(float)
    counts = np.diff(np.round(np.cumsum([0, *shares]) * n)).astype(int)  # they add up to n
    mix = {name: int(count) for name, count in zip(table.index, counts, strict=True) if count}
    text = (
        f"For {target}: {', '.join(f'{count:,} of {name}' for name, count in mix.items())}, at an expected "
        f"{_amount(line['cost'], unit)}. In {line['reaches']:.0%} of the draws from what is known this mix "
        f"reached the target, in {line['best']:.0%} at no more than {NEAR:g} times the least cost."
    )
    if found.unlike:
        limits = " ".join(found.unlike)
        text = f"Not a ranking of strategies, since the runs differ otherwise too. {text} {limits}"
    return Recommendation(
        text, mix, float(line["cost"]), unit, float(line["reaches"]), float(line["best"]), options
    )


def _amount(cost: float, unit: str) -> str:
    return f"${cost:,.2f}" if unit == "cost_usd" else f"{cost:,.0f} {unit}"


def _grid(strategies: int) -> np.ndarray:
    """All mixes in steps of a tenth (a fifth, for more than three strategies), one a row."""
    steps = 10 if strategies <= 3 else 5
    parts = itertools.product(range(steps + 1), repeat=strategies)
    return np.array([shares for shares in parts if sum(shares) == steps]) / steps


def _relative_vendi(
    found: StrategyComparison, names: Sequence[str], mixes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Vendi score of each mix over the reference's, and its standard error."""
    sets = found.questions.sets
    members = [sets[name] for name in names]
    reference = [sets[SEEDS]] if len(sets.get(SEEDS, ())) >= LEAST else members
    size = min(SUBSET, min(map(len, (*members, *reference))) // 2)

    def vendi(members: Sequence[np.ndarray], mix: Sequence[float]) -> tuple[float, float]:
        counts = np.diff(np.round(np.cumsum([0, *mix]) * size)).astype(int)
        scores = []
        for _ in range(SUBSETS):
            drawn = map(rng.choice, members, counts, itertools.repeat(False))
            subset = np.concatenate(list(drawn))
            scores.append(vendi_score(found.questions.kernel.cosines(subset, subset)))
        there = sum(len(places) for places, count in zip(members, counts, strict=True) if count)
        return float(np.mean(scores)), float(np.std(scores, ddof=1)) * math.sqrt(size / (there - size))

    base, error = max(vendi([places], [1.0]) for places in reference)
    scores = (vendi(members, mix) for mix in mixes)
    return np.array([(score / base, math.hypot(spread, error) / base) for score, spread in scores]).T


def _draws(table: pandas.DataFrame, unit: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cost of an accepted problem and share of hard ones, by draw and strategy."""
    names = ("attempts", "accepted", "cut_off")
    attempts, accepted, cut = (table[name].to_numpy(float) for name in names)
    attempts += cut
    accepted = accepted + cut * rng.random((DRAWS, 1))  # of those cut off any share may have been good
    passes = rng.beta(accepted + 0.5, attempts - accepted + 0.5, (DRAWS, len(table)))
    problems = table["problems"].fillna(0).to_numpy(float)
    hard = table["hard"].fillna(0).to_numpy(float) * problems
    hardness = rng.beta(hard + 0.5, problems - hard + 0.5, (DRAWS, len(table)))
    return table[unit].to_numpy(float) / attempts / passes, hardness
