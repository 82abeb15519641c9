"""A benchmark of models in sentences, computed from the frames of its report: each with counts and interval,
and none that claims more than the interval supports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cotkit.analysis.benchmark import ALL, MEAN
from cotkit.analysis.intervals import Rate

if TYPE_CHECKING:
    from cotkit.analysis.benchmark import BenchmarkReport

MANY = 0.1  # of the completions: worth a word
FEW = 30  # problems in a domain, below which its accuracy is little more than an anecdote


def benchmark_findings(report: BenchmarkReport) -> list[str]:
    parts = (_incomplete, _accuracies, _differences, _losses, _small_domains, _costs, _doubts)
    return [sentence for part in parts for sentence in part(report)]


def _incomplete(report: BenchmarkReport) -> Iterator[str]:
    for model, why in report.failed.items():
        missing = report.unfinished.get(model, 0)
        lost = f"{missing:,} of its completions are missing" if missing else "it gave no completion"
        yield f"{model} is not complete ({why}): {lost}. What follows is about what was finished."


def _accuracies(report: BenchmarkReport) -> Iterator[str]:
    if report.traces.empty:
        yield "No model finished a problem, so there is nothing to compare."
        return
    for model, own in report.table.set_index("domain").groupby("model", sort=False):
        total, mean = own.loc[ALL], own.loc[MEAN]
        apart = ", ".join(f"{total[name]:,} {name}" for name in ("undecided", "failed") if total[name])
        counted = f" Counted apart: {apart}{_bounds(total)}." if apart else ""
        if not total["n"]:
            yield f"{model}: no completion was decided, so nothing is known about its accuracy.{counted}"
            continue
        rate = Rate(total["right"], total["n"], *(total[f"accuracy{end}"] for end in ("", "_low", "_high")))
        each = f"; the mean of {len(own) - 2} domains is {_percent(mean)}" if len(own) > 3 else ""
        yield f"{model} was right on {rate.in_words('decided completions')}{each}.{counted}"


def _bounds(total: Any) -> str:
    """What the accuracy would be, were all undecided completions wrong, and were all of them right."""
    known = total["n"] + total["undecided"]
    if not total["undecided"]:
        return ""
    low, high = (100 * right / known for right in (total["right"], total["right"] + total["undecided"]))
    return f" (with the undecided all wrong or all right: {low:.0f} to {high:.0f} %)"


def _percent(line: Any) -> str:
    value, low, high = (100 * line[f"accuracy{end}"] for end in ("", "_low", "_high"))
    return f"{value:.0f} % ({low:.0f} to {high:.0f} %)"


def _differences(report: BenchmarkReport) -> Iterator[str]:
    unclear = []
    for gap in report.differences.itertuples():
        first, second, sign = (
            (gap.first, gap.second, 1) if gap.difference > 0 else (gap.second, gap.first, -1)
        )
        low, high = sorted((100 * sign * gap.difference_low, 100 * sign * gap.difference_high))
        words = f"{100 * abs(gap.difference):.0f} points, 95 % interval {low:+.0f} to {high:+.0f}"
        if gap.clear:
            p = "< 0.001" if gap.p_holm < 0.001 else f"= {gap.p_holm:.2g}"
            yield f"{second} is right more often than {first}: {words}, Holm's p {p}, {gap.n:,} problems."
        elif gap.n:
            unclear.append(f"{second} and {first} ({words}, {gap.n:,} problems)")
    if unclear:
        more = f"; and {len(unclear) - 4} more pairs" if len(unclear) > 4 else ""
        yield f"Not told apart by these problems: {'; '.join(unclear[:4])}{more}."


def _losses(report: BenchmarkReport) -> Iterator[str]:
    words = {
        "no_answer": "gave no answer that could be found in {}; worked examples show the form",
        "truncated": "was cut off before a right answer in {}; a larger max_tokens may help",
    }
    for model, own in report.traces.groupby("model", sort=False):
        for outcome, said in words.items():
            share = Rate.of_grouped(own["outcome"].eq(outcome).to_list(), own["id"].to_list())
            if share.value >= MANY:
                yield f"{model} {said.format(share.in_words('completions'))}. They count as not right."


def _small_domains(report: BenchmarkReport) -> Iterator[str]:
    sizes = report.problems["domain"].value_counts()
    if len(sizes) > 1 and sizes.median() < FEW:
        size = f"{sizes.min()} to {sizes.max()}" if sizes.min() < sizes.max() else f"{sizes.min()}"
        yield f"A domain has {size} problems: too few to say in which domain a model is better."


def _costs(report: BenchmarkReport) -> Iterator[str]:
    for line in report.cost[report.cost["calls"] > 0].itertuples():
        tokens = _amount(line.completion_tokens, line.unknown_usage)
        each = _amount(line.tokens_per_solved, line.unknown_usage)
        each = f", {each} a solved problem" if line.tokens_per_solved == line.tokens_per_solved else ""
        yield f"{line.model}: {line.calls:,} calls, {tokens} completion tokens{each}, cost {line.cost}."
        if line.verifier_calls:
            tokens = _amount(line.verifier_completion_tokens, line.verifier_unknown_usage)
            yield (
                f"Verifying {line.model}'s answers took {line.verifier_calls:,} more calls and {tokens} "
                "completion tokens of the verifier's model, counted apart."
            )


def _amount(count: float, unknown: int) -> str:
    """A sum in words; nan = nothing is known, `unknown` calls are not in it."""
    return f"{'at least ' if unknown else ''}{count:,.0f}" if count == count else "an unknown number of"


def _doubts(report: BenchmarkReport) -> Iterator[str]:
    found, given = report.disagreements, f"of {len(report.problems):,} problems"
    nobody = found[found["kind"] != "split"]
    if len(found) > len(nobody):
        yield f"{len(found) - len(nobody):,} {given} are solved by some models and missed by others."
    if len(nobody):
        shared = int((nobody["given_by"] > 1).sum())
        agree = f"; on {shared:,} of them models agree on another answer" if shared else ""
        yield (
            f"Nobody solves {len(nobody):,} {given}{agree}. They are hard, or their reference is wrong: read "
            "them before the next run."
        )
