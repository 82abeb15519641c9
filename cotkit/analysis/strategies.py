"""Comparing ways to make problems by the three things that pull against each other: reliability (how many of
the attempts give an accepted problem, and at what cost), diversity and difficulty.

`StrategyComparison.of` computes frames from runs of `synthesize`; in each, an estimate `x` has its 95 %
interval beside it as `x_low` and `x_high`, and nan means that there is nothing to compute it from. An attempt
that an endpoint failed is no failure of its strategy: before it had a question it is counted apart, later it
widens the intervals (`share_of`). `findings` puts the frames into sentences; `recommend` (mixes.py) searches
the mix of strategies that reaches a target at the least cost.
"""

from __future__ import annotations

import html
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis import difficulty as hardness
from cotkit.analysis.cost import cost_in_words
from cotkit.analysis.distillation import interval_columns
from cotkit.analysis.diversity import SEEDS, UNKNOWN, Estimate, Questions, against_seeds, inside
from cotkit.analysis.intervals import NAN, Rate
from cotkit.analysis.kernels import Kernel, question_map, tfidf_kernel
from cotkit.analysis.strategy_findings import on_difficulty, on_diversity, on_reliability
from cotkit.records import Row

if TYPE_CHECKING:
    import pandas

Runs = Mapping[str, Sequence[Row]]  # {strategy: all its rows, kept and dropped}


def facts(row: Row) -> dict[str, Any]:
    """What `synthesize` recorded about an attempt. Raises ValueError for a row of another pipeline."""
    found = row.metadata.get("synthesis")
    if not isinstance(found, dict):
        raise ValueError(f"row {row.id!r} has no metadata['synthesis']: its run was not made by synthesize")
    return found


def family(row: Row) -> str:
    """The seed an attempt is grouped by: the first one it was made from."""
    return (facts(row).get("seed_ids") or [row.id])[0]


def failed(row: Row) -> bool:
    """An endpoint, a judge or the machine failed this attempt: what would have become of it is not known."""
    return row.retryable or (row.drop_reason or "").startswith("model_")


def cut_off(row: Row) -> bool:
    """It failed after it had a question: leaving it out would favour those that were dropped early."""
    return failed(row) and "parsed" in row.metadata.get("synthesis", {}).get("passed", ())


def counted(rows: Sequence[Row]) -> list[Row]:
    """The attempts that shares are of: not those that failed before they had a question."""
    return [row for row in rows if not failed(row) or cut_off(row)]


def share_of(rows: Sequence[Row], reached: Callable[[Row], bool]) -> Rate:
    """The share of `counted` attempts that reach a step, or acceptance; `successes` are those that did.

    Where some were cut off before, the estimate is the product over steps of the share that passes among
    those whose step is known (Kaplan and Meier (1958), JASA 53:457-481), nan where no one's is; it takes
    faults to hit good and bad alike. The interval does not: it is Wilson's, from all of them refused to all
    accepted.
    """
    short = [row for row in rows if not reached(row)]
    there, n, cut = len(rows) - len(short), len(rows), sum(map(failed, short))
    least, most = Rate.of(there, n), Rate.of(there + cut, n)
    if not cut:
        return least
    value, left = 1.0, n
    for _, group in itertools.groupby(sorted(short, key=_steps), _steps):
        ends = [failed(row) for row in group]
        known = left - sum(ends)
        value *= 1 - ends.count(False) / known if known else NAN
        left -= len(ends)
    return replace(least, value=value, high=most.high)


def _steps(row: Row) -> int:
    return len(facts(row).get("passed", ()))


def strategy_funnel(runs: Runs) -> pandas.DataFrame:
    """How far the attempts of each strategy came.

    Columns: strategy, step, problems, share (of the attempts) and of_previous (of those that came to the step
    before), both with interval (`share_of`), lost (at this step, to faults too), reasons ({drop_reason:
    attempts}). A step that no attempt of any strategy passed was not run, and is left out; one that accepted
    attempts of a strategy did without was not run there: its numbers are missing.
    """
    import pandas

    kept = {name: counted(rows) for name, rows in runs.items()}
    every = itertools.chain.from_iterable(kept.values())
    passed = {id(row): ["attempted", *facts(row).get("passed", ())] for row in every}
    furthest = sorted(passed.values(), key=len, reverse=True)
    ran = dict.fromkeys(step for steps in furthest for step in steps)
    lines = []
    for name, attempts in kept.items():
        before = attempts
        for step in (*ran, "accepted"):
            if step != "accepted" and any(r.accepted and step not in passed[id(r)] for r in attempts):
                lines.append({"strategy": name, "step": step, "lost": 0, "reasons": {}})
                continue

            def reached(row: Row, step: str = step) -> bool:
                return row.accepted if step == "accepted" else step in passed[id(row)]

            here = list(filter(reached, before))
            gone = Counter(row.drop_reason for row in before) - Counter(row.drop_reason for row in here)
            share = share_of(attempts, reached)
            if step == "attempted":
                share = replace(share, low=NAN, high=NAN)  # it is no estimate
            line = {"strategy": name, "step": step, "problems": len(here)}
            line |= interval_columns("share", share)
            line |= interval_columns("of_previous", share_of(before, reached))
            lines.append(line | {"lost": len(before) - len(here), "reasons": dict(gone.most_common())})
            before = here
    frame = pandas.DataFrame(lines)
    return frame if frame.empty else frame.astype({"problems": "Int64"})


def reliability(runs: Runs, reports: Mapping[str, dict]) -> pandas.DataFrame:
    """One line a strategy: what came of its attempts and what an accepted problem cost.

    Columns: strategy, attempts (that came to an end), failed (by an endpoint, a judge or the machine),
    cut_off (those of the failed that had a question), accepted, accepted_share with interval, calls, tokens,
    cost_usd, cost (in words), and calls_each, tokens_each, cost_usd_each: for one accepted problem. What
    calibrating the judge took is in none of them. nan = unknown, or nothing was accepted.
    """
    import pandas

    lines = []
    for name, rows in runs.items():
        share = share_of(counted(rows), _accepted)
        ledger = _spent_on_attempts(reports[name].get("ledger") or {})
        line = {"strategy": name, "attempts": len(rows) - sum(map(failed, rows))}
        line |= {"failed": sum(map(failed, rows)), "cut_off": sum(map(cut_off, rows))}
        line |= {"accepted": share.successes, **interval_columns("accepted_share", share)}
        counts = [ledger.get("prompt_tokens"), ledger.get("completion_tokens")]
        spent = {"calls": ledger.get("calls"), "tokens": None if None in counts else sum(counts)}
        for kind, value in (spent | {"cost_usd": ledger.get("cost_usd")}).items():
            line[kind] = NAN if value is None else float(value)
            line[f"{kind}_each"] = line[kind] / share.successes if share.successes else NAN
        lines.append(line | {"cost": cost_in_words(ledger)})
    return pandas.DataFrame(lines)


def _accepted(row: Row) -> bool:
    return row.accepted


def _spent_on_attempts(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger's totals without the calls that tried the judge: they are paid once, however many follow."""
    aside = (ledger.get("by_role") or {}).get("judge_calibration") or {}
    counts = {name for name, total in ledger.items() if isinstance(total, (int, float)) and aside.get(name)}
    return {name: total - aside[name] if name in counts else total for name, total in ledger.items()}


def differences(runs: Runs) -> pandas.DataFrame:
    """Every two strategies: the second's share of accepted attempts minus the first's, paired over seeds.

    The shares themselves speak of these seeds; this interval is meant for other seeds of their kind, so
    attempts of one seed count together. Attempts that were cut off widen it to the worst for either side.
    Columns: first, second, difference with interval (nan without shared seeds), shared_seeds.
    """
    import pandas

    lines = []
    for first, second in itertools.combinations(runs, 2):
        sides = [counted(runs[name]) for name in (first, second)]
        seeds = [[family(row) for row in rows] for rows in sides]
        shared = len({*seeds[0]} & {*seeds[1]})
        gap = UNKNOWN
        if shared:
            least, most = (
                [[row.accepted or (up and failed(row)) for row in rows] for rows in sides] for up in (0, 1)
            )
            value = share_of(sides[1], _accepted).value - share_of(sides[0], _accepted).value
            low = hardness.share_difference(most[0], seeds[0], least[1], seeds[1]).low
            gap = Estimate(value, low, hardness.share_difference(least[0], seeds[0], most[1], seeds[1]).high)
        line = {"first": first, "second": second, **interval_columns("difference", gap)}
        lines.append(line | {"shared_seeds": shared})
    return pandas.DataFrame(lines)


def coverage(runs: Runs) -> pandas.DataFrame:
    """Per strategy and operator, and per strategy and topic: attempts, accepted, share with interval."""
    import pandas

    groups: dict[tuple[str, str, str], list[Row]] = {}
    for name, rows in runs.items():
        for kind, row in itertools.product(("operator", "topic"), counted(rows)):
            if value := facts(row).get(kind):
                groups.setdefault((name, kind, str(value)), []).append(row)
    lines = []
    for (name, kind, _), members in sorted(groups.items(), key=lambda group: group[0]):
        share = share_of(members, _accepted)
        line = {"strategy": name, "kind": kind, "attempts": share.n, "accepted": share.successes}
        lines.append(line | interval_columns("share", share))
    frame = pandas.DataFrame(lines, columns=None if lines else ["strategy", "kind"])
    values = [value for _, _, value in sorted(groups)]
    frame.insert(2, "value", pandas.Series(values, dtype=object))  # a topic may hold a lone surrogate
    return frame


def check_target(n: int = 100, hard_share: float = 0.0, diversity: float = 0.0) -> None:
    """Raises ValueError for what `recommend` takes for no target, whatever the comparison."""
    shares = [type(value) in (int, float) and math.isfinite(value) for value in (hard_share, diversity)]
    if type(n) is not int or n < 1 or not all(shares) or not 0 <= hard_share <= 1 or diversity < 0:
        raise ValueError(
            f"no target: n {n!r} (a whole number, at least 1), hard_share {hard_share!r} (0..1), "
            f"diversity {diversity!r} (0 or more)"
        )


def compared_texts(runs: Runs, seeds: Sequence[Any]) -> list[str]:
    """The questions that are measured, in the order a kernel's vectors have: seeds, then accepted ones."""
    return [p.problem for p in seeds] + [
        row.problem for rows in runs.values() for row in rows if row.accepted
    ]


@dataclass(frozen=True, repr=False)
class StrategyComparison:
    """The frames of a comparison (see the functions that make them); `solve_rates` has one line a problem.

    `notes` say what limits the comparison, `unlike` what its runs differ in beside the strategy; `hard` is
    the solve rate up to which a problem is hard; `questions.kernel.name` says how likeness was measured.
    `rows` and `seeds` are what was compared.
    """

    funnel: pandas.DataFrame
    reliability: pandas.DataFrame
    differences: pandas.DataFrame
    coverage: pandas.DataFrame
    inside: pandas.DataFrame
    against_seeds: pandas.DataFrame
    difficulty: pandas.DataFrame
    discrimination: pandas.DataFrame
    proxies: pandas.DataFrame
    solve_rates: pandas.DataFrame
    map: pandas.DataFrame
    notes: list[str]
    unlike: Sequence[str]
    hard: float
    questions: Questions
    rows: Runs
    seeds: Sequence[Any]

    @classmethod
    def of(
        cls,
        runs: Runs,
        reports: Mapping[str, dict],
        seeds: Sequence[Any] = (),
        *,
        kernel: Kernel | None = None,
        solved: Sequence[Row] = (),
        solved_by_second: Sequence[Row] = (),
        k: int = 4,
        sample: int = 200,
        hard: float = 0.25,
        seed: int = 0,
        unlike: Sequence[str] = (),
    ) -> StrategyComparison:
        """reports: {strategy: its report.json}; seeds: Problems, the baseline.

        kernel: over `compared_texts(runs, seeds)`; None = TF-IDF. solved, solved_by_second: rows of solvers
        with k drafts a problem. sample: questions of a subset for diversity, at most.
        """
        from threadpoolctl import threadpool_limits

        rows = [(name, row) for name in runs for row in runs[name] if row.accepted]
        texts = compared_texts(runs, seeds)
        names = [SEEDS] * len(seeds) + [name for name, _ in rows]
        sets = {
            name: np.flatnonzero(np.array(names) == name) for name in ([SEEDS] if seeds else []) + [*runs]
        }
        topics = [p.metadata.get("topic") for p in seeds] + [facts(row).get("topic") for _, row in rows]
        families = [p.id for p in seeds] + [family(row) for _, row in rows]
        kernel = kernel or tfidf_kernel(texts or [""])
        questions = Questions.of(sets, texts, topics, families, kernel)
        distinct = {name: dict.fromkeys(texts[i] for i in members) for name, members in sets.items()}
        first, second = (hardness.solve_frame(distinct, found, k) for found in (solved, solved_by_second))
        first = _with_proxies(first, seeds, [row for _, row in rows])
        with threadpool_limits(1):  # of BLAS: matrices are small, and threads that wait for each other slow
            diversity, map_ = inside(questions, sample, seed), question_map(kernel, names, seed)
        return cls(
            funnel=strategy_funnel(runs),
            reliability=reliability(runs, reports),
            differences=differences(runs),
            coverage=coverage(runs),
            inside=diversity,
            against_seeds=against_seeds(questions),
            difficulty=hardness.difficulty(first, k, hard),
            discrimination=hardness.discrimination(first, second, k),
            proxies=hardness.proxy_correlations(first[first["set"] != SEEDS]),
            solve_rates=first,
            map=map_,
            notes=[*unlike, *_notes(runs, reports, seeds, first, k)],
            unlike=unlike,
            hard=hard,
            questions=questions,
            rows=runs,
            seeds=seeds,
        )

    def summary(self) -> pandas.DataFrame:
        """The triangle, one line a set, each with interval: accepted_share, vendi (on subsets of `size`, the
        one that the seeds allow too), nearest_seed (cosine), solve_rate, hard (share).
        """
        import pandas

        size = self.inside["size"].min()
        table = pandas.DataFrame({"set": [*self.questions.sets], "size": size})
        for frame, names in (
            (self.reliability.rename(columns={"strategy": "set"}), ["accepted_share"]),
            (self.inside[self.inside["size"] == size], ["vendi"]),
            (self.against_seeds, ["nearest_seed"]),
            (self.difficulty, ["solve_rate", "hard"]),
        ):
            columns = [name + end for name in names for end in ("", "_low", "_high")]
            if not frame.empty:
                table = table.merge(frame[["set", *columns]], on="set", how="left")
        return table

    def findings(self) -> list[str]:
        """Sentences on reliability, diversity and difficulty, and what limits them."""
        parts = (on_reliability(self), on_diversity(self), on_difficulty(self), self.notes)
        return [sentence for part in parts for sentence in part]

    def _repr_html_(self) -> str:
        from cotkit.analysis.views import readable

        notes = "<br>".join(map(html.escape, self.notes))
        return readable(self.summary()).to_html(index=False, na_rep="") + notes

    def __repr__(self) -> str:
        accepted = (f"{r.strategy} {r.accepted}/{r.attempts}" for r in self.reliability.itertuples())
        return f"StrategyComparison(accepted: {', '.join(accepted)})"


def _with_proxies(frame: pandas.DataFrame, seeds: Sequence[Any], rows: Sequence[Row]) -> pandas.DataFrame:
    sources = {p.problem: (None, p.solution_code) for p in seeds}
    for row in rows:
        worked = row.candidates[0].text if row.candidates else None
        sources.setdefault(row.problem, (worked, row.metadata.get("solution_code")))
    found = [hardness.proxies_of(text, *sources[text]) for text in frame["problem"]]
    return frame.assign(**{name: [line[name] for line in found] for name in hardness.PROXIES})


def _notes(
    runs: Runs, reports: Mapping[str, dict], seeds: Sequence[Any], rates: pandas.DataFrame, k: int
) -> Iterator[str]:
    """What limits the comparison."""
    attempts = {name: len(rows) for name, rows in runs.items()}
    if len(set(attempts.values())) > 1:
        each = ", ".join(f"{name} {count:,}" for name, count in attempts.items())
        yield f"The strategies made different numbers of attempts ({each}): compare shares, not totals."
    for name, rows in runs.items():
        if not reports[name].get("complete", True):
            yield f"The run of {name} is not complete ({reports[name].get('stopped') or 'unfinished'})."
        cut = sum(map(cut_off, rows))
        if early := sum(map(failed, rows)) - cut:
            yield f"{early:,} attempts of {name} failed before they had a question: not counted."
        if cut:
            yield (
                f"{cut:,} attempts of {name} were cut off by a fault of an endpoint, judge or machine: its "
                "intervals run from all of them refused to all accepted. Calling synthesize again asks again."
            )
    if not seeds:
        yield "No seeds were given: nothing is measured against them, and there is no baseline."
    if not rates["drafts"].any():
        yield "No solver was asked: nothing is known of difficulty."
    elif missing := int(rates["rate"].isna().sum()):
        yield f"{missing:,} of {len(rates):,} problems lack {k} decided drafts; they are in no solve rate."
