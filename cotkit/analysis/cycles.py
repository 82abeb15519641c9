"""Self-improvement over cycles: is the challenger better, at what, and how much of it is form.

Everything is compared on the same problems, by their first drafts. A gain is split into what came from giving
an answer at all (format) and what came from giving the right one (reasoning).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.agreement import weighted_kappa
from cotkit.analysis.alarms import diversity, first_drafts, paired, score
from cotkit.analysis.calibration import brier
from cotkit.analysis.intervals import (
    NAN,
    Rate,
    auc_interval,
    bootstrap_interval,
    paired_difference,
    pass_at_k,
)
from cotkit.records import Candidate, Row

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Comparison:
    """A challenger against the champion on the same `n` problems: both means, their difference with 95 %
    interval, standard error and exact McNemar p (nan where `measure` is "critics' score": no verdicts).
    """

    measure: str
    n: int
    champion: float
    challenger: float
    difference: float
    low: float
    high: float
    p_value: float
    standard_error: float

    def in_words(self) -> str:
        if not self.n:
            return "nothing to compare"
        p = "" if math.isnan(self.p_value) else f", p = {self.p_value:.2g}"
        interval = f"95 % interval {100 * self.low:+.1f} to {100 * self.high:+.1f}{p}, n = {self.n}"
        means = f"{self.measure} {self.champion:.1%} -> {self.challenger:.1%}"
        return f"{means}: {100 * self.difference:+.1f} points ({interval})"


def compare(
    before: Iterable[Row],
    now: Iterable[Row],
    scores_before: Mapping[str, float] | None = None,
    scores_now: Mapping[str, float] | None = None,
) -> Comparison:
    """First drafts by verdict; where none is decided, by score (bootstrap over problems): the hold-out
    critic's ({id: score}) when given, else the critics' own.
    """
    before, now = list(before), list(now)
    if decided := paired(before, now, decided=True):
        right = [[pair[side].verdict.correct for pair in decided] for side in (0, 1)]
        d, means = paired_difference(*right), (sum(flags) / len(flags) for flags in right)
        error = math.sqrt(max(d.gained + d.lost - (d.gained - d.lost) ** 2 / d.n, 0)) / d.n
        return Comparison("verified accuracy", d.n, *means, d.difference, d.low, d.high, d.p_value, error)
    pairs = paired(before, now)
    old = scores_before or {id: score(a) for a, _, id in pairs}
    new = scores_now or {id: score(b) for _, b, id in pairs}
    pairs = [(old[id], new[id]) for *_, id in pairs if None not in (old.get(id), new.get(id))]
    if len(pairs) < 2:
        return Comparison("critics' score", 0, *[NAN] * 7)
    gaps = [y - x for x, y in pairs]
    means = np.mean(pairs, axis=0).tolist()
    error = float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps))
    return Comparison(
        "critics' score", len(gaps), *means, means[1] - means[0], *bootstrap_interval(gaps), NAN, error
    )


def dev_measures(rows: Sequence[Row]) -> dict[str, Any]:
    """What one actor did on a set: accuracy and its parts, pass@k, scores; each with its n."""
    drafts = list(first_drafts(rows).values())
    decided = [c for c in drafts if c.verdict.correct is not None]
    answered = [c for c in decided if c.verdict.method != "no_answer"]
    right = sum(c.verdict.correct for c in decided)
    k = min((len(row.candidates) for row in rows), default=0)
    verdicts = [[c.verdict.correct for c in row.candidates] for row in rows if k > 1]
    passed = [pass_at_k(len(own), own.count(True), k) for own in verdicts if set(own) != {None}]
    return {
        "pass1": _rate(right, len(decided)),
        "pass_k": {"k": k, "value": float(np.mean(passed)), "n": len(passed)} if passed else None,
        "answered": _rate(len(answered), len(decided)),
        "right_of_answered": _rate(right, len(answered)),
        "score": _score_summary([value for c in drafts if (value := score(c)) is not None]),
    }


def set_diversity(rows: Sequence[Row]) -> dict[str, float]:
    """Of the first drafts: see `alarms.diversity`, and `length`, the mean in characters."""
    traces = [c.trace for c in first_drafts(rows).values()]
    return {"length": float(np.mean([len(t) for t in traces])) if traces else NAN, **diversity(traces)}


def _rate(right: int, n: int) -> dict[str, Any]:
    rate = Rate.of(right, n)
    return {"value": rate.value, "low": rate.low, "high": rate.high, "right": right, "n": n}


def _score_summary(scores: Sequence[float]) -> dict[str, Any]:
    """Of scores on 0..1: n, mean, sd, quantiles, and the share at the highest score."""
    if not len(scores):
        return {"n": 0}
    quantiles = dict(zip(("p10", "p50", "p90"), np.quantile(scores, [0.1, 0.5, 0.9]).tolist(), strict=True))
    top = sum(value > 1 - 1e-9 for value in scores) / len(scores)
    moments = {"mean": float(np.mean(scores)), "sd": float(np.std(scores))}
    return {"n": len(scores), **moments, **quantiles, "ceiling_share": top}


def generation_measures(rows: Sequence[Row]) -> dict[str, Any]:
    """What a report says of a cycle's traces: scores by dimension, gain of refinement, accuracy, judge."""
    judged = [(row.id, c) for row in rows for c in row.candidates if score(c) is not None]
    dimensions: dict[str, list[float]] = {}
    for _, candidate in judged:
        for name, value in candidate.judgement.scores.items():
            dimensions.setdefault(name, []).append(value)
    first = first_drafts(rows)
    ends = [(score(first[row.id]), score(row.best)) for row in rows if row.id in first and row.best]
    gains = [b - a for a, b in ends if None not in (a, b)]
    gain = {"mean": float(np.mean(gains)) if gains else None, "n": len(gains)}
    return {
        "scores": {name: _score_summary(values) for name, values in dimensions.items()},
        "gain": {**gain, "interval": bootstrap_interval(gains, resamples=500)},
        "verifier": dev_measures(rows),
        "diversity": set_diversity(rows),
        "judge": _judge_measures(judged),
    }


def _judge_measures(judged: Sequence[tuple[str, Candidate]]) -> dict[str, Any] | None:
    """The critics against verdicts, and against each other where there are several: the mean standard
    deviation of their scores of a trace, and the weighted kappa of the first two."""
    known: dict[str, Any] = {}
    told = [(score(c), c.verdict.correct, id) for id, c in judged if c.verdict.correct is not None]
    if told:
        scores, right, ids = zip(*told, strict=True)
        found = auc_interval(scores, right, ids, resamples=200)
        known |= {"n": len(told), "auc": found.value, "low": found.low, "high": found.high}
        known["brier"] = brier(np.array(scores), np.array(right))
    panels = [c.judgement.raw.values() for _, c in judged if isinstance(c.judgement.raw, dict)]
    panels = [[one["scores"] for one in raw if isinstance(one, dict) and one.get("scores")] for raw in panels]
    each = [[np.mean(list(scores.values())) for scores in panel] for panel in panels if len(panel) > 1]
    if each:
        known["critics_sd"] = float(np.mean([np.std(means) for means in each]))
        known["kappa"] = weighted_kappa(*np.array([means[:2] for means in each]).T)
    return known or None


def gain_parts(before: Sequence[Row], now: Sequence[Row]) -> dict[str, float]:
    """The gain in accuracy as `format` + `reasoning`: accuracy = share answered x right of the answered, each
    factor's change at the mean of the other. Where one side answered nothing, all of it is format, for
    nothing is known about the reasoning.
    """
    sides = [dev_measures(rows) for rows in (before, now)]
    f, r = ([side[name]["value"] for side in sides] for name in ("answered", "right_of_answered"))
    known = [value for value in r if not math.isnan(value)]
    if not known:
        return dict.fromkeys(("format", "reasoning"), NAN)
    r = [known[0] if math.isnan(value) else value for value in r]
    return {"format": (f[1] - f[0]) * sum(r) / 2, "reasoning": (r[1] - r[0]) * sum(f) / 2}


def family_gains(before: Sequence[Row], now: Sequence[Row], trained: Mapping[str, int]) -> pandas.DataFrame:
    """Accuracy by family (type) before and after; `trained` counts the examples of each that were trained on.

    Columns: family, n, before, after (with interval), difference, gained, lost, p_value, trained. Families
    trained on come first; a last line sums up those that never were.
    """
    import pandas

    types = {row.id: row.type or "problem" for row in now}
    groups: dict[str, list[tuple[bool, bool]]] = {}
    for a, b, id in paired(before, now, decided=True):
        flags = (a.verdict.correct, b.verdict.correct)
        groups.setdefault(types[id], []).append(flags)
        if not trained.get(types[id]):
            groups.setdefault(UNSEEN, []).append(flags)
    lines = []
    for name in sorted(groups, key=lambda name: (name == UNSEEN, not trained.get(name), name)):
        old, new = zip(*groups[name], strict=True)
        d, after = paired_difference(old, new), Rate.of_flags(new)
        line = {"family": name, "n": d.n, "before": sum(old) / d.n, "after": after.value}
        line |= {"after_low": after.low, "after_high": after.high, "difference": d.difference}
        line |= {"gained": d.gained, "lost": d.lost, "p_value": d.p_value}
        lines.append(line | {"trained": trained.get(name, 0)})
    return pandas.DataFrame(lines)


UNSEEN = "(all never trained on)"


def cycles_frame(reports: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """One line a cycle: what it made, kept, trained and decided."""
    import pandas

    lines = []
    for report in reports:
        held, levels = report["heldout"] or {}, [alarm["level"] for alarm in report["alarms"]]
        counts = ("prompts", "attempts", "generated", "kept", "replayed")
        compared = ("n", "champion", "challenger", "difference", "low", "high", "p_value")
        lines.append(
            {name: report[name] for name in ("cycle", "status", "method")}
            | {name: report["counts"][name] for name in counts}
            | {name: held.get(name) for name in compared}
            | {"red": levels.count("red"), "amber": levels.count("amber")}
            | {"trained": report["training"]["trained"], "promoted": report["decision"]["promoted"]}
            | {"calls": report["cost"]["calls"], "minutes": report["seconds"] / 60}
        )
    return pandas.DataFrame(lines)


def trust_frame(reports: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """What the alarms look at: one line a measure, one column a cycle.

    Diversity is the challenger's on the dev set, where there is none that of the cycle's drafts; auc, brier
    and critics_sd are the critics' on the cycle's traces.
    """
    import pandas

    cycles = {}
    for report in reports:
        judge = {name: (report["judge"] or {}).get(name) for name in ("auc", "brier", "critics_sd")}
        known = {**(report["diversity"] or {}), **report["hacking"], **judge}
        cycles[f"cycle {report['cycle']}"] = known | {"judge_noise": report["noise"]["sd"]}
    frame = pandas.DataFrame(cycles, dtype=float).dropna(how="all")
    return frame.reset_index(names="measure")


def cycle_findings(report: Mapping[str, Any]) -> list[str]:
    """Sentences on a whole self-improvement run, from its report.json."""
    said = []
    for cycle in report["cycles"]:
        counts, name = cycle["counts"], f"Cycle {cycle['cycle']}"
        kept = f"kept {counts['kept']:,} of {counts['generated']:,} {counts['unit']}"
        outcome = "promoted" if cycle["decision"]["promoted"] else "the champion stays"
        said.append(f"{name} ({cycle['status']}): {kept}; {outcome}: {cycle['decision']['reason']}.")
        said += [f"{name}, {a['level']} alarm {a['code']}: {a['text']}." for a in cycle["alarms"]]
    test = report["test"] or {"actors": {}, "comparisons": {}}
    if not report["test"]:
        why = report["stopped"] or "nothing was promoted, or it is empty"
        said.append(f"The test set was not touched: {why}.")
    if looks := ", ".join(test.get("earlier_looks", ())):
        said.append(f"The test set was looked at before, after fewer cycles ({looks}): no first look.")
    for name, found in test["actors"].items():
        rates = [found[key] for key in ("pass1", "right_of_answered")]
        rate, right = (Rate.of(one["right"], one["n"]) for one in rates)
        if rate.n:
            answered = f"of those it answered, {right.in_words()}"
            said.append(f"Test, {name}: right on {rate.in_words()}; {answered}.")
    for name, gap in test["comparisons"].items():
        numbers = {key: NAN if value is None else value for key, value in gap.items() if key != "parts"}
        found = Comparison(**numbers)
        doubt = "" if found.low > 0 or found.high < 0 else ", which may be noise"
        said.append(f"Test, {name}: {found.in_words()}{doubt}; {_parts_in_words(gap['parts'])}.")
    cost = report["cost"]
    usd = "at an unknown price" if cost["usd"] is None else f"for ${cost['usd']:.2f}"
    spent = f"{cost['calls']:,} calls, {cost['tokens']:,} tokens {usd}, {report['seconds'] / 60:.0f} minutes"
    return [*said, f"In all: {spent}.", *report["notes"]]


def _parts_in_words(parts: Mapping[str, float | None]) -> str:
    if None in parts.values():
        return "nothing was answered"
    form, reasoning = (100 * parts[name] + 0.0 for name in ("format", "reasoning"))  # no -0
    return f"{form:+.1f} from the format, {reasoning:+.1f} from the reasoning"
