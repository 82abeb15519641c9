"""Self-improvement over cycles: is the challenger better, at what, and how much of it is form.

Everything is compared on the same problems, by their first drafts (drafts.py). A gain is split into what came
from giving an answer at all, or a box (format), and what came from giving the right one (reasoning). The
tables and sentences of a whole run are in cycle_tables.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.agreement import weighted_kappa
from cotkit.analysis.alarms import diversity
from cotkit.analysis.calibration import brier
from cotkit.analysis.drafts import Pair, checks, critics_scores, drafts_of, first_drafts, paired, score
from cotkit.analysis.intervals import (
    NAN,
    Rate,
    auc_interval,
    bootstrap_interval,
    mean_interval,
    paired_difference,
    pass_at_k,
)
from cotkit.records import Candidate, Row
from cotkit.shown import mended_frame

if TYPE_CHECKING:
    import pandas

LEAST_ANSWERS = 10  # of an actor, for its share right among the answered to be known


@dataclass(frozen=True)
class Comparison:
    """A challenger against the champion on the same `n` problems: both means, their difference with 95 %
    interval, standard error and exact McNemar p (nan where scores are compared). `left_out`: problems
    without a result of both, because an endpoint or a judge failed or the champion's answer is undecided;
    `undecided`: answers of the challenger that no program could decide, which count as not solved.
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
    left_out: int = 0
    undecided: int = 0

    def in_words(self) -> str:
        without = f", {self.left_out} without a result of both" if self.left_out else ""
        without += f", {self.undecided} undecided now and so not solved" if self.undecided else ""
        if not self.n:
            return f"{self.measure}: nothing to compare{without}"
        p = "" if math.isnan(self.p_value) else f", p = {self.p_value:.2g}"
        interval = f"95 % interval {100 * self.low:+.1f} to {100 * self.high:+.1f}{p}, n = {self.n}{without}"
        means = f"{self.measure} {self.champion:.1%} -> {self.challenger:.1%}"
        return f"{means}: {100 * self.difference:+.1f} points ({interval})"


def compare(before: Iterable[Row], now: Iterable[Row]) -> Comparison:
    """First drafts by verdict, where programs can check at least half of the problems or there are no scores;
    else by the critics' scores (Student's interval over problems). A draft without words is wrong, and has
    the lowest score there is.
    """
    before, now = list(before), list(now)
    pairs, decided = paired(before, now), paired(before, now, decided=True)
    checked = checks(before, now)
    can = sum(checked(row) for row in {row.id: row for row in (*before, *now)}.values())
    if 2 * can < _problems(before, now) or not can:
        scores = [{id: score(pair[side]) for *pair, id in pairs} for side in (0, 1)]
        by_score = _by_score(pairs, *scores, "critics' score", _problems(before, now))
        if not can or by_score.n:
            return by_score
    if not decided:
        return Comparison("verified accuracy", 0, *[NAN] * 7, _problems(before, now))
    right = [[pair[side].verdict.correct for pair in decided] for side in (0, 1)]
    d, means = paired_difference(*right), (sum(flags) / len(flags) for flags in right)
    error = math.sqrt(max(d.gained + d.lost - (d.gained - d.lost) ** 2 / d.n, 0)) / d.n
    found = (d.n, *means, d.difference, d.low, d.high, d.p_value, error)
    undecided = sum(b.verdict.method == "undecided" for _, b, _ in decided)
    return Comparison("verified accuracy", *found, _problems(before, now) - d.n, undecided)


Scores = Mapping[str, float | None]  # by problem id


def compare_held_out(before: Iterable[Row], now: Iterable[Row], first: Scores, then: Scores) -> Comparison:
    """`compare` by the scores of a critic without a say, {id: score} of each side."""
    before, now = list(before), list(now)
    pairs = paired(before, now)
    return _by_score(pairs, first, then, "hold-out critic's score", _problems(before, now))


def _problems(before: Sequence[Row], now: Sequence[Row]) -> int:
    return len({row.id for rows in (before, now) for row in rows})


def _by_score(pairs: Sequence[Pair], old: Scores, new: Scores, measure: str, problems: int) -> Comparison:
    known = [value for scores in (old, new) for value in scores.values() if value is not None]
    lowest = min([0.0, *known])
    sides = [(old.get(id) if a.trace else lowest, new.get(id) if b.trace else lowest) for a, b, id in pairs]
    sides = [side for side in sides if known and None not in side]
    if len(sides) < 2:
        return Comparison(measure, 0, *[NAN] * 7, problems)
    gaps = [now - before for before, now in sides]
    means = np.mean(sides, axis=0).tolist()
    error = float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps))
    bounds = mean_interval(gaps)
    n = len(gaps)
    return Comparison(measure, n, *means, means[1] - means[0], *bounds, NAN, error, problems - n)


def dev_measures(rows: Sequence[Row]) -> dict[str, Any]:
    """What one actor did on a set: accuracy and its parts, pass@k, scores; each with its n. `answered`: an
    answer was found, by any marker, `boxed`: it stood in a box; `silent`: first drafts without words,
    `undecided`: those that a program could not decide. A problem that misses a draft is not in pass@k."""
    checked = checks(rows)
    drafts = list(first_drafts(rows, checked).values())
    decided = [c for c in drafts if c.verdict.correct is not None]
    answered = [c for c in decided if c.verdict.method != "no_answer"]
    boxed = [c for c in decided if is_boxed(c)]
    right = sum(c.verdict.correct for c in decided)
    all_drafts = [own for row in rows if (own := drafts_of(row, checked(row)))]
    k = max(map(len, all_drafts), default=0)
    verdicts = [[c.verdict.correct for c in own] for own in all_drafts if len(own) == k > 1]
    passed = [pass_at_k(len(own), own.count(True), k) for own in verdicts if set(own) != {None}]
    return {
        "pass1": _rate(right, len(decided)),
        "pass_k": {"k": k, "value": float(np.mean(passed)), "n": len(passed)} if passed else None,
        "answered": _rate(len(answered), len(decided)),
        "right_of_answered": _rate(right, len(answered)),
        "boxed": _rate(len(boxed), len(decided)),
        "right_of_boxed": _rate(sum(c.verdict.correct for c in boxed), len(boxed)),
        "score": _score_summary([value for c in drafts if (value := score(c)) is not None]),
        "silent": sum(not c.trace for c in drafts),
        "undecided": len(drafts) - len(decided),
    }


def is_boxed(candidate: Candidate) -> bool:
    r"""Its answer stood in \boxed{}."""
    return candidate.answer_how == "box"


def set_diversity(rows: Sequence[Row]) -> dict[str, float]:
    """Of the `n` first drafts with words: see `alarms.diversity`, and `length`, the mean in characters."""
    traces = [c.trace for c in first_drafts(rows).values() if c.trace]
    length = float(np.mean([len(t) for t in traces])) if traces else NAN
    return {"n": len(traces), "length": length, **diversity(traces)}


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
    """What a report says of a cycle's traces: scores of those that were judged, by critic and dimension, the
    gain of refinement, accuracy, judge."""
    judged = [(row.id, c) for row in rows for c in row.candidates if score(c) is not None]
    return {
        "scores": _scores_by_critic(rows),
        "gain": _refinement_gain(rows),
        "verifier": dev_measures(rows),
        "diversity": set_diversity(rows),
        "judge": _judge_measures(judged, sum(len(row.candidates) for row in rows)),
    }


def _scores_by_critic(rows: Iterable[Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """{critic: {dimension: summary}}; of a panel each judge in it, and last their scores as one."""
    found: dict[str, dict[str, list[float]]] = {}
    whole: dict[str, dict[str, list[float]]] = {}
    for candidate in (c for row in rows for c in row.candidates if c.judgement):
        each, judgement = critics_scores(candidate), candidate.judgement
        for critic, scores in each.items():
            _collect(found.setdefault(critic, {}), scores)
        if judgement.judge not in each:
            _collect(whole.setdefault(judgement.judge, {}), judgement.scores)
    return {
        critic: {name: _score_summary(values) for name, values in dimensions.items()}
        for critic, dimensions in (found | whole).items()
    }


def _collect(into: dict[str, list[float]], scores: Mapping[str, float] | None) -> None:
    for name, value in (scores or {}).items():
        into.setdefault(name, []).append(value)


def room_to_learn(rows: Iterable[Row], kept: Iterable[str]) -> dict[str, int]:
    """What a training on the `kept` traces (the problem id of each) could teach whoever drafted: how many of
    the `problems` with two drafts or more were solved in `every` draft and in `none`, and how many of the
    kept traces (`kept`) are of problems that were solved in every one (`kept_known`)."""
    rows, kept = list(rows), list(kept)
    checked = checks(rows)
    right = {row.id: [c.verdict.correct is True for c in drafts_of(row, checked(row))] for row in rows}
    right = {row.id: right[row.id] for row in rows if checked(row) and len(right[row.id]) > 1}
    every = {id for id, flags in right.items() if all(flags)}
    return {
        "problems": len(right),
        "every": len(every),
        "none": sum(not any(flags) for flags in right.values()),
        "kept": sum(id in right for id in kept),
        "kept_known": sum(id in every for id in kept),
    }


def _refinement_gain(rows: Iterable[Row]) -> dict[str, Any]:
    """From the draft that was refined to its last refinement, whichever of the two is better: the scores'
    mean gain with interval, and how many of those with verdicts were right before and after.

    A draft is refined because it was not accepted; where noisy scores decided that, part of the gain of the
    scores is chance.
    """
    ends = []
    for row in rows:
        refined = [c for c in row.candidates if c.stage == "refine"]
        if not refined:
            continue
        root = last = max(refined, key=lambda c: c.iteration)
        while root.parent is not None:
            root = row.candidates[root.parent]
        ends.append((root, last))
    gains = [score(b) - score(a) for a, b in ends if None not in (score(a), score(b))]
    decided = [(a, b) for a, b in ends if None not in (a.verdict.correct, b.verdict.correct)]
    return {
        "refined": len(ends),
        "mean": float(np.mean(gains)) if gains else None,
        "interval": mean_interval(gains),
        "n": len(gains),
        "right_before": sum(a.verdict.correct for a, _ in decided),
        "right_after": sum(b.verdict.correct for _, b in decided),
        "decided": len(decided),
    }


def _judge_measures(judged: Sequence[tuple[str, Candidate]], traces: int) -> dict[str, Any] | None:
    """The critics against verdicts, and against each other where there are several: the mean standard
    deviation of their scores of a trace, and the weighted kappa of the first two. All of it is of the
    `judged` of `traces`: where programs decide, critics that ask a model see only what can still be chosen,
    mostly right traces."""
    known: dict[str, Any] = {}
    told = [(score(c), c.verdict.correct, id) for id, c in judged if c.verdict.correct is not None]
    if told:
        scores, right, ids = zip(*told, strict=True)
        found = auc_interval(scores, right, ids, resamples=200)
        known |= {"n": len(told), "auc": found.value, "low": found.low, "high": found.high}
        known["brier"] = brier(np.array(scores), np.array(right))
    panels = [list(filter(None, critics_scores(c).values())) for _, c in judged]
    each = [[np.mean(list(scores.values())) for scores in panel] for panel in panels if len(panel) > 1]
    if each:
        known["critics_sd"] = float(np.mean([np.std(means) for means in each]))
        known["kappa"] = weighted_kappa(*np.array([means[:2] for means in each]).T)
    return {"judged": len(judged), "traces": traces, **known} if judged else None


def gain_parts(before: Iterable[Row], now: Iterable[Row]) -> dict[str, Any]:
    """The gain in accuracy as `format` + `reasoning`: accuracy = share answered x right of the answered, each
    factor's change at the mean of the other; on the same `n` problems, with 95 % intervals (problems
    resampled). "by_box": the same where only a box counts as an answer, None where nobody wrote one.

    Where one side gave fewer than `LEAST_ANSWERS` answers nothing is known about its reasoning (`known` is
    False), and all of the gain is counted as format.
    """
    pairs = paired(before, now, decided=True)
    boxes = any(is_boxed(c) for pair in pairs for c in pair[:2])
    by_box = _gain_parts(pairs, is_boxed) if boxes else None
    return {**_gain_parts(pairs, lambda c: c.verdict.method != "no_answer"), "by_box": by_box}


def _gain_parts(pairs: Sequence[Pair], answers: Callable[[Candidate], bool]) -> dict[str, Any]:
    found = [[(a := answers(c), a and bool(c.verdict.correct)) for c in pair[:2]] for pair in pairs]
    flags = np.array(found, float).reshape(len(pairs), 2, 2)  # problem by side: answered, right
    answered = flags[:, :, 0].sum(axis=0).astype(int).tolist()
    known = min(answered) >= LEAST_ANSWERS
    parts: dict[str, Any] = {"n": len(pairs), "known": known, "answered": answered}
    for name in ("format", "reasoning"):
        part = functools.partial(_part, name=name, known=known)
        parts[name] = part(flags) if pairs else NAN
        parts[f"{name}_low"], parts[f"{name}_high"] = bootstrap_interval(flags, part, resamples=500)
    return parts


def _part(flags: np.ndarray, name: str, known: bool) -> float:
    """Of flags (answered, right), problem by side."""
    answered, right = flags.mean(axis=0).T
    if not known or not answered.all():
        return float(right[1] - right[0]) if name == "format" else 0.0
    shares = right / answered
    changed, kept = (answered, shares) if name == "format" else (shares, answered)
    return float((changed[1] - changed[0]) * kept.mean())


def family_gains(before: Sequence[Row], now: Sequence[Row], trained: Mapping[str, int]) -> pandas.DataFrame:
    """Accuracy by family (type) before and after; `trained` counts the examples of each that were trained on.

    Columns: family, n, before, after (with intervals), difference, gained, lost, p_value (of this family
    alone: of twenty one has p < 0.05 by chance), trained. Families trained on come first; a last line sums up
    those that never were. No lines where nothing has a verdict.
    """
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
        d, was, after = paired_difference(old, new), Rate.of_flags(old), Rate.of_flags(new)
        line = {"family": name, "n": d.n, "before": was.value, "before_low": was.low, "before_high": was.high}
        line |= {
            "after": after.value,
            "after_low": after.low,
            "after_high": after.high,
            "difference": d.difference,
        }
        line |= {"gained": d.gained, "lost": d.lost, "p_value": d.p_value}
        lines.append(line | {"trained": trained.get(name, 0)})
    return mended_frame(lines, _FAMILY_COLUMNS)


UNSEEN = "(all never trained on)"
_FAMILY_COLUMNS = [
    "family", "n", "before", "before_low", "before_high", "after", "after_low", "after_high", "difference",
    "gained", "lost", "p_value", "trained",
]  # fmt: skip
