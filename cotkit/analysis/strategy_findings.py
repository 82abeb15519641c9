"""The frames of a StrategyComparison in sentences, each with its count and interval."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cotkit.analysis.diversity import SEEDS
from cotkit.analysis.intervals import Rate

if TYPE_CHECKING:
    from cotkit.analysis.strategies import StrategyComparison


def on_reliability(found: StrategyComparison) -> Iterator[str]:
    for line in found.reliability.sort_values("accepted_share", ascending=False).itertuples():
        rate = Rate.of(line.accepted, line.attempts).in_words("attempts")
        if line.cut_off:
            share = "" if math.isnan(line.accepted_share) else f"an estimated {line.accepted_share:.0%}, "
            bounds = (
                f"95 % interval {100 * line.accepted_share_low:.0f} to {100 * line.accepted_share_high:.0f} %"
            )
            rate = f"{line.accepted:,} attempts, {line.cut_off:,} more cut off ({share}{bounds}),"
        tokens = f", {line.tokens_each:,.0f} tokens each" if line.tokens_each > 0 else ""
        money = f", ${line.cost_usd_each:.3g} each" if line.cost_usd_each > 0 else ""
        yield f"{line.strategy}: {rate} accepted{tokens}{money}."
    for line in found.differences.dropna().itertuples():
        low, high = 100 * line.difference_low, 100 * line.difference_high
        doubt = "" if low > 0 or high < 0 else "; not told apart"
        yield (
            f"{line.second} against {line.first}: {100 * line.difference:+.0f} points (95 % interval "
            f"{low:+.0f} to {high:+.0f}, {line.shared_seeds:,} shared seeds{doubt})."
        )


def on_diversity(found: StrategyComparison) -> Iterator[str]:
    known = found.inside[found.inside["vendi"].notna()]
    if missing := [name for name in found.questions.sets if name not in set(known["set"])]:
        yield f"Too few problems to measure the diversity of {', '.join(missing)}."
    for size, group in known.groupby("size"):
        each = [
            f"{line.set} {_in_words(line.vendi, line.vendi_low, line.vendi_high)}"
            for line in group.itertuples()
        ]
        kernel = found.questions.kernel.name
        yield f"Different questions among {size:,} (Vendi score, {kernel}; 95 % interval): {', '.join(each)}."
    alike = known[known["size"] == known["size"].min()].set_index("set")
    far = found.against_seeds.set_index("set")["nearest_seed"]
    for name in alike.index.drop(SEEDS) if SEEDS in alike.index else ():
        if alike["vendi_high"][name] < alike["vendi_low"][SEEDS]:
            yield (
                f"{name} is less diverse inside than the seeds, whatever its distance from them (cosine to "
                f"the nearest seed {far[name]:.2f}; of seeds among themselves {far[SEEDS]:.2f})."
            )


def _in_words(value: float, low: float, high: float) -> str:
    return f"{value:.1f}" + ("" if math.isnan(low) else f" ({low:.1f} to {high:.1f})")


def on_difficulty(found: StrategyComparison) -> Iterator[str]:
    known = found.difficulty[found.difficulty["problems"] > 0] if len(found.difficulty) else found.difficulty
    for line in known.itertuples():
        low, high = 100 * line.solve_rate_low, 100 * line.solve_rate_high
        yield (
            f"On {line.set} the solver is right in {100 * line.solve_rate:.0f} % of its drafts (95 % "
            f"interval {low:.0f} to {high:.0f} %; n = {line.problems:,} problems, k = {line.k} drafts); "
            f"{_of_problems(line.hard, line.problems)} are hard, {_of_problems(line.never, line.problems)} "
            "were never solved."
        )
    if len(known) and known["never"].any():
        yield "A problem that was never solved may be hard or wrong: read some before you train on them."
    for line in found.discrimination.itertuples():
        low, high = 100 * line.difference_low, 100 * line.difference_high
        if low > 0 or high < 0:
            yield (
                f"{line.set} tells the solvers apart: {100 * line.difference:+.0f} points for the second "
                f"(95 % interval {low:+.0f} to {high:+.0f}, {line.problems:,} problems)."
            )
    for line in found.proxies[found.proxies["set"] == "all"].dropna().itertuples():
        verb = "go" if line.correlation_low > 0 or line.correlation_high < 0 else "are not shown to go"
        interval = f"95 % interval {line.correlation_low:+.2f} to {line.correlation_high:+.2f}"
        yield (
            f"{line.proxy.capitalize()} {verb} with the solve rate (Spearman {line.correlation:+.2f}, "
            f"{interval}, {line.problems:,} problems)."
        )


def _of_problems(share: float, problems: int) -> str:
    return Rate.of(round(share * problems), problems).in_words()
