"""What a run shows, in sentences computed from its rows, and the traces to look at.

Every sentence carries its counts and its interval and claims no more than the interval supports: what could
be noise is said to be.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.analysis.candidates import chosen_draft, drafts, judge_saw_reference, own_candidates, refinements
from cotkit.analysis.cost import throughput
from cotkit.analysis.distillation import (
    acceptance_by_iteration,
    accuracy_comparison,
    judge_agreement,
)
from cotkit.analysis.intervals import PairedDifference, Rate, bootstrap_interval, paired_difference
from cotkit.records import Candidate, Row

if TYPE_CHECKING:
    import pandas

STEP_JUDGE = "steps"  # the name of judge.StepJudge
JUDGE_SAW = "the judge saw the reference"
LEAST_PROBLEMS = 8  # with right and with wrong traces; with fewer, a bootstrap of medians is too sure


def findings(rows: Sequence[Row], report: dict[str, Any]) -> list[str]:
    """Sentences on yield, accuracy, refinement, the judge, lengths and cost, where the rows support any."""
    parts = (_yield(rows, report), _accuracy(rows), _refinement(rows), _judge(rows), _lengths(rows))
    return [sentence for part in (*parts, _cost(rows, report)) for sentence in part]


def _points(gap: PairedDifference, against: str = "") -> str:
    """ "+31 points against ... (95 % interval +4 to +52, p = 0.01)", and said to be noise where it may be."""
    if not gap.gained and not gap.lost:
        return f"no difference{against}"
    p = "p < 0.001" if gap.p_value < 0.001 else f"p = {gap.p_value:.2g}"
    doubt = "" if gap.is_clear else "; too few problems to tell from noise"
    interval = f"95 % interval {100 * gap.low:+.0f} to {100 * gap.high:+.0f}, {p}{doubt}"
    return f"{100 * gap.difference:+.0f} points{against} ({interval})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _yield(rows: Sequence[Row], report: dict[str, Any]) -> Iterator[str]:
    given = max(report.get("given", 0), len(rows))
    if missing := given - len(rows):
        lost = f"{missing:,} of {given:,} problems are unfinished"
    else:
        lost = "how many problems are unfinished was not recorded"
    if missing or not report.get("complete", True):
        why = f" ({report['stopped']})" if report.get("stopped") else ""
        yield f"The run is not complete{why}: {lost}. The rest is about the {len(rows):,} finished ones."
    if not rows:
        yield "No problem was finished, so there is nothing to report."
        return
    drops = Counter(row.drop_reason or "no reason recorded" for row in rows if not row.accepted)
    why = ", ".join(f"{n:,} {reason}" for reason, n in drops.most_common())
    kept = Rate.of_flags(row.accepted for row in rows)
    yield f"Kept {kept.in_words()}." + (f" Dropped: {why}." if why else "")
    if hinted := sum(row.accepted and row.best.rationalized for row in rows):
        yield (
            f"{hinted:,} of the kept problems were solved only with the answer as a hint (rationalized): "
            "they are flagged and count in no accuracy."
        )


def _accuracy(rows: Sequence[Row]) -> Iterator[str]:
    traces = [c for row in rows for c in own_candidates(row)]
    if not traces:
        return
    ways = accuracy_comparison(rows).set_index("way")
    first = ways.loc["first draft"]
    if not first["n"]:
        rest = "the judge alone" if any(c.judgement for c in traces) else "neither a verdict nor a judge"
        saw = f" ({JUDGE_SAW})" if judge_saw_reference(rows) else ""
        yield (
            "No problem has a decided verdict, so nothing is known about accuracy: what was kept rests on "
            f"{rest}{saw}."
        )
        return
    left_out = f" {_count(int(first['undecided']), 'problem')} without a decided verdict left out."
    yield f"The first draft was right on {_rate(first).in_words()}." + (
        left_out if first["undecided"] else ""
    )
    for name, way in ways.iterrows():
        if name.startswith(("majority", "best score")):
            gap = _points(_gap(way), " against the first draft")
            how = f" ({JUDGE_SAW})" if way["sees_reference"] else ", chosen without the reference"
            yield f"{_capital(name)}{how}: right on {_rate(way).in_words()}, {gap}."
        elif name.startswith("any of"):
            yield (
                f"At least one of the drafts was right on {_rate(way).in_words()}: the most that "
                f"verification can find in up to {way['traces']:.3g} drafts a problem."
            )


def _rate(way: pandas.Series) -> Rate:
    return Rate.of(int(way["right"]), int(way["n"]))


def _gap(way: pandas.Series) -> PairedDifference:
    names = ("n", "gained", "lost", "difference", "difference_low", "difference_high", "p_value")
    return PairedDifference(*(way[name] for name in names))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _refinement(rows: Sequence[Row]) -> Iterator[str]:
    refined = sum(bool(refinements(row)) for row in rows)
    if not refined:
        return
    gap = _accepted_gain(rows)
    steps = acceptance_by_iteration(rows)
    fixed, broken = int(steps["fixed"].sum()), int(steps["broken"].sum())
    kept = (
        f"{gap.gained:,} of {gap.n:,} to the kept ones, {_points(gap)}" if gap.gained else "none to the kept"
    )
    turned = f" It turned {_count(fixed, 'wrong trace')} right and {_count(broken, 'right trace')} wrong."
    told = sum(c.saw_reference for row in rows for c, _ in refinements(row))
    yield (
        f"Refinement was tried on {_count(refined, 'problem')} and added {kept}."
        + (turned if fixed or broken else "")
        + (
            f" {_count(told, 'refined trace')} used feedback by a judge that saw the reference."
            if told
            else ""
        )
        + " What as many further drafts would have added was not measured."
    )


def _accepted_gain(rows: Sequence[Row]) -> PairedDifference:
    """Problems with an accepted draft against problems with an accepted trace of the model's own."""
    before = [any(c.accepted for c in drafts(row)) for row in rows]
    after = [any(c.accepted for c in own_candidates(row)) for row in rows]
    return paired_difference(before, after)


def _judge(rows: Sequence[Row]) -> Iterator[str]:
    judged = [(row.id, c) for row in rows for c in own_candidates(row) if c.judgement]
    if not judged:
        return
    names = sorted({c.judgement.judge for _, c in judged} - {""})
    if STEP_JUDGE in names:
        yield (
            f"The judge ({STEP_JUDGE}) recomputes the arithmetic of a trace: it cannot see a wrong plan, and "
            "words without an equation are not checked."
        )
    agreement = judge_agreement(rows)
    if not agreement.empty:
        named = f" ({', '.join(names)})" if names else ""
        yield from _agreement(agreement.iloc[-1], f"The score of the judge{named}")
    failed = [c.judgement.scores is None for _, c in judged]
    if any(failed):
        rate = Rate.of_grouped(failed, [id for id, _ in judged])
        yield f"The judge failed on {rate.in_words('traces')}; these are in no mean."


def _agreement(found: pandas.Series, score: str) -> Iterator[str]:
    counts = f"{found['right']:,} right and {found['wrong']:,} wrong traces of {found['problems']:,} problems"
    if math.isnan(found["auc"]):
        yield f"Whether the judge tells right from wrong cannot be measured: it scored {counts}."
        return
    auc = f"AUC {found['auc']:.2f}, 95 % interval {found['auc_low']:.2f} to {found['auc_high']:.2f}; {counts}"
    auc += f"; {JUDGE_SAW}" if found["saw_reference"] else ""
    if found["auc_low"] > 0.5:
        yield f"{score} ranks right traces above wrong ones ({auc})."
    elif found["auc_high"] < 0.5:
        yield f"{score} ranks wrong traces above right ones ({auc}): do not rely on it."
    else:
        yield f"{score} is not shown to tell right traces from wrong ones ({auc}; 0.5 is a coin)."
    if found["unjudged"]:
        yield (
            f"The judge was not shown {_count(found['unjudged'], 'further trace')}; where verification chose "
            "what it saw, this comparison is biased (judge_all=True has every draft judged)."
        )


def _lengths(rows: Sequence[Row]) -> Iterator[str]:
    own = [(row.id, c) for row in rows for c in own_candidates(row)]
    if any(c.truncated for _, c in own):
        cut = Rate.of_grouped([c.truncated for _, c in own], [id for id, _ in own])
        yield f"{cut.in_words('traces')} were cut off; a larger max_tokens may save them."
    whole = [(id, c) for id, c in own if c.verdict.correct is not None and not c.truncated]
    fewest = min(len({id for id, c in whole if c.verdict.correct is verdict}) for verdict in (True, False))
    if fewest < LEAST_PROBLEMS:
        return
    gap, low, high = _length_gap(whole)
    if low > 0 or high < 0:
        near, far = sorted((abs(low), abs(high)))
        yield (
            f"Wrong traces are {'longer' if gap > 0 else 'shorter'} than right ones: the medians differ by "
            f"{abs(gap):.0f} characters (95 % interval {near:.0f} to {far:.0f}, {len(whole):,} traces)."
        )


def _length_gap(traces: Sequence[tuple[str, Candidate]]) -> tuple[float, float, float]:
    """Median length of wrong traces minus that of right ones, with an interval over problems."""
    import numpy as np

    def gap(lengths: np.ndarray) -> float:  # right traces as positive, wrong ones as negative numbers
        right, wrong = lengths[lengths > 0], -lengths[lengths < 0]
        return float(np.median(wrong) - np.median(right)) if len(right) and len(wrong) else math.nan

    lengths = np.array([len(c.trace) if c.verdict.correct else -len(c.trace) for _, c in traces])
    return gap(lengths), *bootstrap_interval(lengths, gap, [id for id, _ in traces], resamples=500)


def _cost(rows: Sequence[Row], report: dict[str, Any]) -> Iterator[str]:
    total = throughput(rows, report).iloc[-1]
    if not total["calls"]:
        return
    known = total.notna()
    tokens = f"{total['completion_tokens']:,}" if known["completion_tokens"] else "an unknown number of"
    words = [_count(int(total["calls"]), "call"), f"{tokens} completion tokens"]
    words.append(f"cost {total['cost']}")
    if known["calls_per_kept"]:
        words.append(f"{total['calls_per_kept']:.1f} calls a kept problem")
    if seconds := report.get("seconds"):
        pace = 60 * len(rows) / seconds
        words.append(f"{pace:,.0f} problems a minute" if pace >= 10 else f"{pace:.2g} problems a minute")
    yield ", ".join(words) + "."


def outcome(row: Row) -> str:
    """Why a row was kept or dropped, in one sentence."""
    best = row.best
    if not row.accepted:
        reason = row.drop_reason or "no reason recorded"
        return f"dropped, {reason}" + (f": {row.detail}" if row.detail else "")
    if best.rationalized:
        return "kept, written with the answer as a hint (rationalized)"
    checked = {True: "verified right", None: "verdict undecided", False: "found wrong"}[best.verdict.correct]
    if best.stage == "refine":
        start = chosen_draft(row)
        changed = start is not None and start.answer is not None and start.answer != best.answer
        return f"kept after {_count(best.iteration, 'refinement')}, {checked}" + (
            f"; the draft said {start.answer}" if changed else ""
        )
    verdicts = [c.verdict.correct for c in drafts(row)]
    among = f"; {verdicts.count(True)} of {len(verdicts)} drafts were right"
    return f"kept as drafted, {checked}" + (among if len(verdicts) > 1 and None not in verdicts else "")


def examples(rows: Sequence[Row], accepted: bool = True, k: int = 3, seed: int = 0) -> list[Row]:
    """`k` kept (or dropped) rows that show different things; `outcome` says what each shows.

    Kept rows are drawn in turn from the refined, the rationalized, the hard (some drafts were not right) and
    the easy ones, dropped rows from each drop_reason, common ones first; of each, first the types not yet
    shown. The same seed gives the same rows.
    """
    pool = [row for row in rows if row.accepted == accepted]
    random.Random(seed).shuffle(pool)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in pool:
        groups[_kind(row)].append(row)
    order = ("refined", "rationalized", "hard", "easy")
    rank = {kind: order.index(kind) if accepted else -len(group) for kind, group in groups.items()}
    queues = [groups[kind] for kind in sorted(groups, key=lambda kind: (rank[kind], kind))]
    shown: list[Row] = []
    while len(shown) < min(k, len(pool)):
        for queue in [queue for queue in queues if queue][: k - len(shown)]:
            types = {row.type for row in shown}
            pick = next((row for row in queue if row.type not in types), queue[0])
            queue.remove(pick)
            shown.append(pick)
    return shown


def _kind(row: Row) -> str:
    if not row.accepted:
        return row.drop_reason or ""
    if row.best.rationalized:
        return "rationalized"
    if row.best.stage == "refine":
        return "refined"
    return "easy" if all(c.verdict.correct is not False for c in drafts(row)) else "hard"
