"""What a benchmark of models shows: a `BenchmarkReport`, read from run folders, one a model.

Every completion that was to be given has one outcome: right, wrong, no_answer, truncated (cut off before a
right answer), undecided (the verifier cannot tell), failed (no completion came), unfinished. The first four
are decided, and an accuracy is right / decided: nobody gains by not answering; the others are counted apart.

The problem is the unit of every interval: several completions of one problem do not feign certainty. Sources:
Wilson (1927) for rates; Chen et al. (2021), arXiv 2107.03374, for pass@k; McNemar (1947), exact, and Holm
(1979), Scandinavian Journal of Statistics 6:65-70, for pairs of models. benchmark_findings.py puts it into
words.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from cotkit.analysis.candidates import drafts
from cotkit.analysis.cost import throughput
from cotkit.analysis.distillation import interval_columns
from cotkit.analysis.intervals import (
    NAN,
    Rate,
    mean_interval,
    paired_difference,
    pass_at_k,
    wilson_interval,
)
from cotkit.analysis.views import readable
from cotkit.records import Candidate, Row
from cotkit.shown import escaped, mended, mended_frame
from cotkit.verify import answer_key

if TYPE_CHECKING:
    from cotkit.runs import Run

DECIDED = ("right", "wrong", "no_answer", "truncated")
OUTCOMES = (*DECIDED, "undecided", "failed", "unfinished")
ALL, MEAN = "all problems", "mean of domains"  # the totals among the domains of `table`
NO_DOMAIN = "(no domain)"
TRACE_COLUMNS = ("model", "id", "domain", "sample_index", "outcome", "kind", "answer")


@dataclass(frozen=True)
class BenchmarkReport:
    """Models x problems, from run folders alone: `BenchmarkReport.from_runs({name: open_run(...)})`.

    `traces` has one line a completion (kind: the verdict's method, or how the call failed), `problems` one
    a problem; `table`, `passk`, `differences`, `errors` and `disagreements` are computed from them, `cost`
    from the ledgers. `failed` names the models that are not complete and why; `unfinished` counts completions
    that were never asked for.
    """

    runs: dict[str, Run]
    traces: pandas.DataFrame
    problems: pandas.DataFrame
    cost: pandas.DataFrame
    unfinished: dict[str, int]
    failed: dict[str, str] = field(default_factory=dict)
    ks: tuple[int, ...] = (1,)

    @classmethod
    def from_runs(
        cls, runs: Mapping[str, Run], ks: Sequence[int] = (1,), failed: Mapping[str, str] | None = None
    ) -> BenchmarkReport:
        """Read `{model's name: Run}`; `ks` of pass@k; `failed` {name: reason} says what the runs do not.

        Raises ValueError when two runs hold different problems under one id.
        """
        runs = {mended(name): run for name, run in runs.items()}
        reasons = {mended(name): mended(why) for name, why in (failed or {}).items()}
        traces, costs, unfinished = [], [], {}
        problems: dict[str, Row] = {}
        for name, run in runs.items():
            rows, report, asked = run.records(), run.report, run.config.get("num_generations", 1)
            for row in rows:
                _check_same(problems.setdefault(row.id, row), row, name)
                traces += _outcomes(name, row, asked)
            costs.append(_cost(name, rows, report))
            unfinished[name] = asked * (report.get("given", len(rows)) - len(rows))
            if reason := _why_incomplete(rows, report):
                reasons.setdefault(name, mended(reason))
        in_order = sorted(problems.values(), key=lambda row: row.index)
        table = [(row.id, _domain(row), row.problem, row.reference) for row in in_order]
        frames = (
            mended_frame(traces, TRACE_COLUMNS),
            mended_frame(table, ["id", "domain", "problem", "reference"]),
            pandas.DataFrame(costs, columns=[*_cost("", (), {})]),  # of a line, where there is none too
        )
        return cls(runs, *frames, unfinished, reasons, tuple(ks))

    @property
    def models(self) -> list[str]:
        return list(self.runs)

    @property
    def domains(self) -> list[str]:
        return list(dict.fromkeys(self.problems["domain"]))

    @functools.cached_property
    def table(self) -> pandas.DataFrame:
        """One line a model and domain, then its totals: MEAN (each domain weighs alike) and ALL.

        Columns: model, domain, problems (finished), the outcomes in completions, n (decided completions),
        accuracy with interval. A domain where nothing is decided is in no mean.
        """
        lines, order = [], self.domains
        for model, own in self._by_model():
            parts = [_accuracy(model, domain, part) for domain, part in own.groupby("domain", sort=False)]
            parts.sort(key=lambda part: order.index(part["domain"]))
            lines += [*parts, _mean_of_domains(model, parts), _accuracy(model, ALL, own)]
        return pandas.DataFrame(
            lines, columns=None if lines else ["model", "domain", "right", "n", "accuracy"]
        )

    @functools.cached_property
    def passk(self) -> pandas.DataFrame:
        """The chance that one of k completions is right, without bias, by model and k, over the problems with
        at least k decided ones (`left_out` counts the others).
        """
        lines = []
        for model, own in self._by_model():
            shares = _right_by_problem(own)
            for k in self.ks:
                flags = [f for f in shares.values() if len(f) >= k]
                values = [pass_at_k(len(f), sum(f), k) for f in flags]
                estimate = interval_columns("pass_at_k", _mean_over_problems(values, sum(map(len, flags))))
                left_out = own["id"].nunique() - len(flags)
                lines.append(
                    {"model": model, "k": k, "problems": len(flags), **estimate, "left_out": left_out}
                )
        return pandas.DataFrame(lines)

    @functools.cached_property
    def differences(self) -> pandas.DataFrame:
        """Every two models on the problems decided for both: accuracy of `second` less that of `first`.

        gained and lost: problems that `second` gets right more, and less, often. p_value: of McNemar's exact
        test, with several completions of the sign-flip test; p_holm: Holm's over all pairs. clear: p_holm
        below 0.05 and an interval without 0.
        """
        right = {model: _right_by_problem(own) for model, own in self._by_model()}
        lines = []
        for first, second in itertools.combinations(right, 2):
            common = [id for id in right[first] if id in right[second]]
            gap = paired_completions(*([right[model][id] for id in common] for model in (first, second)))
            lines.append({"first": first, "second": second, **gap})
        for line, p in zip(lines, holm([line["p_value"] for line in lines]), strict=True):
            clear = p < 0.05 and not line["difference_low"] <= 0 <= line["difference_high"]
            line |= {"p_holm": p, "clear": clear}
        return pandas.DataFrame(lines)

    @functools.cached_property
    def errors(self) -> pandas.DataFrame:
        """Completions by model, outcome and kind, with their share of all the model was to give."""
        lines = []
        for model, missing in self.unfinished.items():
            own = self.traces[self.traces["model"] == model]
            counts = Counter(zip(own["outcome"], own["kind"], strict=True))
            if missing:
                counts["unfinished", self.failed.get(model, "")] = missing
            for outcome, kind in sorted(counts, key=lambda key: (OUTCOMES.index(key[0]), -counts[key])):
                n = counts[outcome, kind]
                lines.append((model, outcome, kind, n, n / counts.total()))
        return pandas.DataFrame(lines, columns=["model", "outcome", "kind", "completions", "share"])

    @functools.cached_property
    def disagreements(self) -> pandas.DataFrame:
        """Problems that some models solve and others do not ("split"), or that nobody solves.

        Solved: one of the completions is right. common_answer: the wrong answer that most models give,
        given_by how many; where models agree on another answer than the reference, that may be wrong.
        """
        lines, by_id = [], dict(iter(self.traces.groupby("id")))
        for id, domain, _, reference in self.problems.itertuples(index=False):
            own = by_id[id]
            decided = own[own["outcome"].isin(DECIDED)].groupby("model", sort=False)["outcome"]
            solved = [model for model, outcomes in decided if "right" in set(outcomes)]
            missed = [model for model, _ in decided if model not in solved]
            if missed:
                kind = "split" if solved else "nobody solves it"
                who = ", ".join(solved), ", ".join(missed)
                lines.append((id, domain, kind, *who, reference, *_common_answer(own)))
        columns = ["id", "domain", "kind", "solved_by", "missed_by", "reference", "common_answer", "given_by"]
        frame = pandas.DataFrame(lines, columns=columns)
        return frame.sort_values(["kind", "given_by"], ascending=[True, False], ignore_index=True)

    def findings(self) -> list[str]:
        """Sentences computed from the frames; what could be noise is said to be."""
        from cotkit.analysis.benchmark_findings import benchmark_findings

        return benchmark_findings(self)

    def _by_model(self) -> Iterator[tuple[str, pandas.DataFrame]]:
        """The models that finished a problem, with their traces."""
        return iter(self.traces.groupby("model", sort=False))

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escaped(f'{name}: {why}')}</p>" for name, why in self.failed.items())
        totals = self.table[self.table["domain"].isin([MEAN, ALL])]
        return notes + readable(totals.reset_index(drop=True)).to_html(index=False)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} not complete" if self.failed else ""
        return f"BenchmarkReport({len(self.models)} models, {len(self.problems)} problems{failed})"


def _domain(row: Row) -> str:
    """A problem's type; one that is called like a total is told from it."""
    return f"{row.type} (domain)" if row.type in (ALL, MEAN) else row.type or NO_DOMAIN


def _check_same(first: Row, row: Row, model: str) -> None:
    if (row.problem, row.reference) != (first.problem, first.reference):
        raise ValueError(
            f"problem {row.id!r} of {model!r} is another than in the run before: models are compared on the "
            "same problems. Give runs of one set of problems."
        )


def _outcomes(model: str, row: Row, asked: int) -> Iterator[tuple]:
    """A line of `traces` for each of the `asked` completions of a problem."""
    domain, made = _domain(row), drafts(row)
    for c in made:
        yield model, row.id, domain, c.sample_index, _outcome(c), c.verdict.method, c.answer
    kinds = [error["kind"] for error in row.errors] or [row.drop_reason]
    for kind in (kinds * asked)[: asked - len(made)]:
        yield model, row.id, domain, -1, "failed", kind, None


def _outcome(c: Candidate) -> str:
    if c.verdict.correct is not False:
        return "right" if c.verdict.correct else "undecided"
    if c.truncated:
        return "truncated"
    return "no_answer" if c.verdict.method == "no_answer" else "wrong"


def _why_incomplete(rows: Sequence[Row], report: dict[str, Any]) -> str | None:
    if not report.get("complete", True):
        return report.get("stopped") or "some problems are unfinished"
    if rows and not any(row.candidates for row in rows):
        return rows[-1].detail or rows[-1].drop_reason
    return None


def _accuracy(model: str, domain: str, own: pandas.DataFrame) -> dict[str, Any]:
    decided = own[own["outcome"].isin(DECIDED)]
    rate = Rate.of_grouped((decided["outcome"] == "right").to_list(), decided["id"].to_list())
    counts = {outcome: int((own["outcome"] == outcome).sum()) for outcome in OUTCOMES[:-1]}
    line = {"model": model, "domain": domain, "problems": own["id"].nunique(), **counts}
    return {**line, "n": rate.n, **interval_columns("accuracy", rate)}


def _mean_of_domains(model: str, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of the domains' accuracies, with Wilson's interval on the effective number of observations.

    Its variance adds up over domains, each with two observations more at the mean of all: a domain with 0
    of 2 right is not known exactly. (Simulated with 3 to 16 domains of 1 to 20 problems, the 95 % interval
    holds the true mean 92 to 100 times in 100.)
    """
    known = [part for part in parts if part["n"]]
    line = {key: sum(part[key] for part in parts) for key in ("problems", *OUTCOMES[:-1], "n")}
    sizes = [min(part["n"], part["problems"]) for part in known]
    pairs = list(zip((part["accuracy"] for part in known), sizes, strict=True))
    mean, rate = sum(p for p, _ in pairs) / max(len(pairs), 1), Rate.of(0, 0)
    smooth = [((p * n + 2 * mean) / (n + 2), n) for p, n in pairs]
    if pairs:
        variance = sum(q * (1 - q) / n for q, n in smooth) / len(pairs) ** 2
        effective = max(mean * (1 - mean) / variance, 1.0) if 0 < mean < 1 else sum(sizes)
        rate = Rate(line["right"], line["n"], mean, *wilson_interval(mean * effective, effective))
    return {"model": model, "domain": MEAN, **line, **interval_columns("accuracy", rate)}


def _right_by_problem(own: pandas.DataFrame) -> dict[str, list[bool]]:
    """{problem: was each of its decided completions right?}"""
    decided = own[own["outcome"].isin(DECIDED)]
    return {id: [o == "right" for o in part] for id, part in decided.groupby("id", sort=False)["outcome"]}


def _mean_over_problems(values: Sequence[float], completions: int) -> Rate:
    """The mean of values on 0..1, one a problem; Wilson's interval on the effective number of observations.

    That is v(1-v) / variance, the variance of the mean as a bootstrap over problems estimates it, kept
    between the numbers of problems and of completions. Unlike a percentile interval it is no point at 0 or 1.
    """
    m = len(values)
    if not m:
        return Rate.of(0, 0)
    value = float(np.mean(values))
    variance = float(np.var(values, ddof=1)) / m if m > 1 else 0.0
    effective = min(max(value * (1 - value) / variance if variance else m, m), completions)
    return Rate(round(value * m), m, value, *wilson_interval(value * effective, effective))


def paired_completions(first: Sequence[list[bool]], second: Sequence[list[bool]]) -> dict[str, Any]:
    """Two models on the same problems: `first[i]` says which completions of problem i were right.

    One completion each: `paired_difference`. Several: the mean difference of the shares right, with Student's
    interval over problems and the exact sign-flip test; where all problems differ alike, a spread of zero is
    no certainty, and the interval is that of the problems gained and lost, times the difference of each.
    """
    if all(len(flags) == 1 for flags in (*first, *second)):
        gap = paired_difference([flags[0] for flags in first], [flags[0] for flags in second])
        low, high, difference, p = gap.low, gap.high, gap.difference, gap.p_value
    else:
        # exact: shares that are alike must not differ by the noise of floating point
        a, b = ([Fraction(sum(flags), len(flags)) for flags in side] for side in (first, second))
        steps = [now - before for before, now in zip(a, b, strict=True)]
        gap = paired_difference([step < 0 for step in steps], [step > 0 for step in steps])
        if len(set(steps)) > 1:
            low, high = mean_interval(list(map(float, steps)))
        else:
            each = float(abs(steps[0])) or 1.0
            low, high = each * gap.low, each * gap.high
        low, high = max(-1.0, low), min(1.0, high)
        difference, p = float(sum(steps)) / gap.n, sign_flip_test(steps)
    line = {"n": gap.n, "gained": gap.gained, "lost": gap.lost, "difference": difference}
    return line | {"difference_low": low, "difference_high": high, "p_value": p}


EXACT = 2**28  # additions of a test over all sign patterns
MOST_SUMS = 2**20  # different sums of such a test, 8 bytes each
FLIPS = 100_000  # sign patterns that are drawn where all are too many


def sign_flip_test(steps: Sequence[Fraction | int]) -> float:
    """Two-sided p of "each paired difference is as likely with the other sign", from all 2^n sign patterns;
    where their sums are too many and too fine, from `FLIPS` patterns drawn with a fixed seed.

    With differences of 1, 0 and -1 it is McNemar's exact test. Sources: Fisher (1935), The Design of
    Experiments, section 21; for drawn patterns, with the observed one among them, Phipson and Smyth (2010),
    Statistical Applications in Genetics and Molecular Biology 9:39.
    """
    moved = [Fraction(step) for step in steps if step]
    scale = math.lcm(*(step.denominator for step in moved))
    whole = [int(step * scale) for step in moved]
    scale = math.gcd(*whole) or 1
    whole = [step // scale for step in whole]
    size = sum(map(abs, whole)) + 1
    return _all_flips(whole) if size <= MOST_SUMS and size * len(whole) <= EXACT else _drawn_flips(whole)


def _all_flips(steps: Sequence[int]) -> float:
    chance = np.ones(1)  # of each sum of the positive ones, from 0
    for step in map(abs, steps):
        wider = np.zeros(len(chance) + step)
        wider[: len(chance)] += chance / 2
        wider[step:] += chance / 2
        chance = wider
    sums = 2 * np.arange(len(chance)) - len(chance) + 1
    return min(1.0, float(chance[np.abs(sums) >= abs(sum(steps))].sum()))


def _drawn_flips(steps: Sequence[int]) -> float:
    most = max(map(abs, steps))  # may be beyond the numbers of numpy
    sizes = np.array([abs(step) / most for step in steps])
    observed = abs(sum(steps)) / most - 1e-9 * sizes.sum()  # an equal sum counts, whatever its last digit
    rng, block, beyond = np.random.default_rng(0), max(1, MOST_SUMS // len(sizes)), 0
    for start in range(0, FLIPS, block):
        drawn = rng.integers(0, 256, (min(block, FLIPS - start), len(sizes) // 8 + 1), np.uint8)
        positive = np.unpackbits(drawn, axis=1, count=len(sizes))
        beyond += int((np.abs(2 * (positive @ sizes) - sizes.sum()) >= observed).sum())
    return (beyond + 1) / (FLIPS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down p-values, for all comparisons together; nan (no comparison) stays nan."""
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, least = list(p_values), 0.0
    for rank, (p, place) in enumerate(tested):
        adjusted[place] = least = max(least, min(1.0, (len(tested) - rank) * p))
    return adjusted


def _common_answer(own: pandas.DataFrame) -> tuple[str | None, int]:
    """The wrong answer that most models give to a problem, and how many do."""
    wrong = own[(own["outcome"] == "wrong") & own["answer"].notna()]
    groups = [part for _, part in wrong.groupby(wrong["answer"].map(answer_key), sort=False)]
    most = max(groups, key=lambda part: part["model"].nunique(), default=None)
    return (None, 0) if most is None else (most["answer"].iloc[0], most["model"].nunique())


def _cost(model: str, rows: Sequence[Row], report: dict[str, Any]) -> dict[str, Any]:
    """What a model took, in all, by problem and by solved problem; nan = unknown, or none solved.

    Calls, tokens and money are the model's own; those of a model that verifies its answers stand apart, in
    the verifier_ columns. seconds: of the whole run, in which other models may have used the same machine.
    """
    by_role = throughput(rows, report).set_index("role")
    total = by_role.loc["generator" if "generator" in by_role.index else "all"]
    ledger = (report.get("ledger") or {}).get("by_role", {})
    solved = sum(any(c.verdict.correct for c in drafts(row)) for row in rows)
    line = {"model": model, "problems": len(rows), "solved": solved}
    line |= interval_columns("solved_share", Rate.of(solved, len(rows)))
    for name in ("calls", "prompt_tokens", "completion_tokens", "cost_usd", "cost", "latency_p50"):
        line[name] = NAN if pandas.isna(total[name]) else total[name]
    own, verifier = ledger.get("generator", {}), ledger.get("verifier", {})
    line |= {name: own.get(name, 0) for name in ("unknown_usage", "unknown_cost")}
    for name in ("calls", "completion_tokens", "cost_usd", "unknown_usage"):
        line[f"verifier_{name}"] = NAN if (count := verifier.get(name, 0)) is None else count
    line["seconds"] = report.get("seconds", NAN)
    for unit, count in (("problem", len(rows)), ("solved", solved)):
        for name, amount in (("tokens", "completion_tokens"), ("usd", "cost_usd"), ("seconds", "seconds")):
            line[f"{name}_per_{unit}"] = line[amount] / count if count else NAN
    return line
