"""Alarms of a self-improvement run: the actor collapses, pleases its judge instead of doing better, or the
judge drifts or has no more to say.

Each function looks at rows, mostly two sets of first drafts on the same dev problems, and returns the
alarms it raises: amber = look at it, red = the challenger is not promoted. The limits are proposals; what
noise could do at about a hundred problems stays quiet, and with fewer than `LEAST` there is no alarm, only
less to go by.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cotkit.analysis.diversity import distinct_n
from cotkit.analysis.intervals import bootstrap_interval, paired_difference
from cotkit.analysis.kernels import words
from cotkit.records import Candidate, Row

LEAST = 20
PHRASE_SHARE, PHRASE_BEFORE = 0.2, 0.02  # a phrase is new when so many outputs hold it, and so few did before
LIMITS = {  # code: (amber, red)
    "distinct_1": (0.10, 0.25), "distinct_2": (0.10, 0.25), "distinct_3": (0.10, 0.25),  # relative fall
    "compression": (0.15, 0.40),  # relative rise of the zlib ratio
    "duplicates": (0.01, 0.05),  # rise of the share of outputs that repeat another problem's
    "narrowing": (0.01, 0.01),  # fall of pass@k while pass@1 rises
    "proxy_without_gold": (0.5, 0.5),  # rise of the scores in standard deviations, verdicts flat
    "holdout_gap": (0.05, 0.10),  # rise of critics' score minus hold-out critic's, on 0..1
    "length_drift": (0.2, 0.5),  # relative rise of the mean length
    "flattery": (PHRASE_SHARE, PHRASE_SHARE),  # share of the outputs with a new phrase
    "judge_pleased": (0.03, math.inf),  # what words without content add to a score, on 0..1
    "judge_drift": (0.05, 0.10),  # shift of the scores of frozen answers, on 0..1
    "judge_failures": (0.05, 0.20), "ceiling": (0.50, 0.90), "improver_echo": (0.50, math.inf),  # shares
}  # fmt: skip


@dataclass(frozen=True)
class Alarm:
    """`value` passed `threshold`; `level` is "amber" or "red"."""

    code: str
    level: str
    value: float
    threshold: float
    text: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def raised(code: str, value: float, text: str, sure: bool = True) -> list[Alarm]:
    """The alarm that `value` raises by `LIMITS[code]`, if any; unless `sure` at most an amber one."""
    amber, red = LIMITS[code]
    if not value > amber:
        return []
    level = "red" if value > red and sure else "amber"
    return [Alarm(code, level, round(value, 4), red if level == "red" else amber, text)]


def first_drafts(rows: Iterable[Row]) -> dict[str, Candidate]:
    """{problem id: its first draft}."""
    drafts = {row.id: [c for c in row.candidates if c.stage == "draft"] for row in rows}
    return {id: min(own, key=lambda c: c.sample_index) for id, own in drafts.items() if own}


def score(candidate: Candidate) -> float | None:
    """The critics' mean score on 0..1; None when there is none."""
    return candidate.judgement.mean if candidate.judgement else None


def diversity(texts: Sequence[str], size: int | None = None) -> dict[str, float]:
    """distinct-n of `size` words (distinct-n falls with length), the zlib ratio of as many characters times
    six, and the share of texts that repeat another word for word."""
    tokens, left = [], size or sum(len(words(text)) for text in texts)
    for text in texts:
        tokens.append(words(text)[:left])
        left -= len(tokens[-1])
    whole = "\n".join(texts).encode("utf-8", "replace")[: size and 6 * size]
    found = {f"distinct_{n}": distinct_n(tokens, n) for n in (1, 2, 3)}
    found["compression"] = len(whole) / len(zlib.compress(whole))
    found["duplicates"] = 1 - len({" ".join(text.split()) for text in texts}) / max(len(texts), 1)
    return found


def collapse(first: Sequence[Row], now: Sequence[Row]) -> list[Alarm]:
    """Mode collapse: outputs become alike, or fewer problems are solved by any draft while first drafts gain
    (arXiv 2407.05013), against the first actor promoted, on the same problems.
    """
    pairs = _paired(first, now)
    if len(pairs) < LEAST:
        return []
    old, new = ([pair[i].trace for pair in pairs] for i in (0, 1))
    size = min(sum(len(words(text)) for text in side) for side in (old, new))
    a, b = diversity(old, size), diversity(new, size)
    alarms = []
    for n in (1, 2, 3):
        name = f"distinct_{n}"
        alarms += raised(name, 1 - b[name] / a[name], f"distinct-{n} {a[name]:.2f} -> {b[name]:.2f}")
    rise = b["compression"] / a["compression"] - 1
    alarms += raised("compression", rise, f"zlib ratio {a['compression']:.2f} -> {b['compression']:.2f}")
    repeats = f"outputs that repeat another: {a['duplicates']:.0%} -> {b['duplicates']:.0%}"
    return alarms + raised("duplicates", b["duplicates"] - a["duplicates"], repeats) + _narrowing(first, now)


def _narrowing(first: Sequence[Row], now: Sequence[Row]) -> list[Alarm]:
    if max(len(row.candidates) for row in now) < 2:
        return []
    before, after = ({row.id: row for row in rows if _decided(row)} for rows in (first, now))
    ids = [id for id in after if id in before]
    one = [[first_drafts([side[id]])[id].verdict.correct is True for id in ids] for side in (before, after)]
    k = [[any(c.verdict.correct for c in side[id].candidates) for id in ids] for side in (before, after)]
    gain, loss = paired_difference(*one), paired_difference(*k)
    text = f"first drafts right {gain.difference:+.0%}, any draft right {loss.difference:+.0%}"
    return raised("narrowing", -loss.difference if gain.difference > 0.01 else 0.0, text, loss.is_clear)


def _decided(row: Row) -> bool:
    return any(c.verdict.correct is not None for c in row.candidates)


def hacking(
    before: Sequence[Row],
    now: Sequence[Row],
    holdout_before: Mapping[str, float] | None = None,
    holdout_now: Mapping[str, float] | None = None,
) -> list[Alarm]:
    """Scores rise against the champion's while verdicts, or a critic without a say ({id: score}), do not.

    Source of the pattern: Gao et al. (2022), Scaling laws for reward model overoptimization, arXiv
    2210.10760.
    """
    scored = [(a, b, id) for a, b, id in _paired(before, now) if None not in (score(a), score(b))]
    alarms = []
    decided = [(a, b) for a, b, _ in scored if None not in (a.verdict.correct, b.verdict.correct)]
    if len(decided) >= LEAST:
        old, new = (np.array([score(pair[i]) for pair in decided]) for i in (0, 1))
        gold = paired_difference(*([pair[i].verdict.correct for pair in decided] for i in (0, 1)))
        spread = float(old.std() or np.concatenate([old, new]).std())
        rise = float(new.mean() - old.mean()) / spread if spread else 0.0
        text = f"scores rose by {rise:.1f} standard deviations, verified accuracy by {gold.difference:+.1%}"
        sure = gold.high < 0.01 or gold.is_clear
        alarms += raised("proxy_without_gold", rise if gold.difference <= 0 else 0.0, text, sure)
    if holdout_before and holdout_now:
        known = [(a, b, id) for a, b, id in scored if id in holdout_before and id in holdout_now]
        gaps = [score(b) - holdout_now[id] - score(a) + holdout_before[id] for a, b, id in known]
        if len(gaps) >= LEAST and bootstrap_interval(gaps, resamples=500)[0] > 0:
            rise = float(np.mean(gaps))
            alarms += raised("holdout_gap", rise, f"scores rose {rise:.2f} more than the hold-out critic's")
    return alarms


def length_drift(before: Sequence[Row], now: Sequence[Row]) -> list[Alarm]:
    """Outputs grow longer than the champion's on the same problems."""
    pairs = _paired(before, now)
    a, b = (sum(len(pair[i].trace) for pair in pairs) / max(len(pairs), 1) for i in (0, 1))
    rise = b / a - 1 if len(pairs) >= LEAST else 0.0
    return raised("length_drift", rise, f"mean length {a:.0f} -> {b:.0f} characters")


def new_phrases(first: Sequence[Row], now: Sequence[Row]) -> list[tuple[str, float, float]]:
    """(phrase, share of outputs before, now) of three to six words that have come up, the commonest first; of
    phrases within each other the longest; five at most."""
    pairs = _paired(first, now)
    if len(pairs) < LEAST:
        return []
    old, new = (Counter(p for pair in pairs for p in _phrases(pair[i].trace)) for i in (0, 1))
    shares = [(phrase, old[phrase] / len(pairs), count / len(pairs)) for phrase, count in new.items()]
    shares = [one for one in shares if one[1] <= PHRASE_BEFORE and one[2] >= PHRASE_SHARE]
    longest: list[tuple[str, float, float]] = []
    for one in sorted(shares, key=lambda one: (-one[2], -len(one[0]), one[0])):
        if not any(one[0] in kept[0] for kept in longest):
            longest.append(one)
    return longest[:5]


def _phrases(text: str) -> set[str]:
    """Runs of three to six words without digits or full stops between."""
    plain = re.findall(r"[^\W\d_]+|\d+|[.!?\n]", text.lower())
    grams = (gram for n in (3, 4, 5, 6) for gram in zip(*(plain[i:] for i in range(n)), strict=False))
    return {" ".join(gram) for gram in grams if all(word.isalpha() for word in gram)}


def flattery(phrases: Sequence[tuple[str, float, float]], shifts: Mapping[str, float]) -> list[Alarm]:
    """New phrases: red when the judge likes them, that is when a frozen answer's score rises with the phrase
    appended ({phrase: shift})."""
    alarms = []
    for phrase, before, share in phrases:
        shift = shifts.get(phrase, 0.0)
        text = f"{phrase!r} in {share:.0%} of the outputs ({before:.0%} before), worth {shift:+.2f} a score"
        alarms += raised("flattery", share + 1e-9, text, sure=shift > LIMITS["judge_pleased"][0])
    return alarms


def judge_pleased(shifts: Mapping[str, float]) -> list[Alarm]:
    """Words without content, appended to frozen answers, raise their scores ({name: mean shift})."""
    found = [(f"words of {name} add {shift:.2f} to a score", shift) for name, shift in shifts.items()]
    return [alarm for text, shift in found for alarm in raised("judge_pleased", shift, text)]


def judge_drift(
    first: Sequence[float | None], again: Sequence[float | None], noise: float = 0.0
) -> list[Alarm]:
    """The same judge scores frozen answers otherwise than at first, by more than twice what noise
    explains."""
    moves = [b - a for a, b in zip(first, again, strict=True) if None not in (a, b)]
    shift = abs(float(np.mean(moves))) if len(moves) >= 5 else 0.0
    if shift <= 2 * noise * math.sqrt(2 / max(len(moves), 1)):
        return []
    return raised("judge_drift", shift, f"the scores of {len(moves)} frozen answers moved by {shift:.2f}")


def judge_scores(rows: Iterable[Row], verified: bool) -> list[Alarm]:
    """Critics that fail, and scores at their ceiling: red only where no verdict decides beside them."""
    judged = [c.judgement for row in rows for c in row.candidates if c.judgement]
    scores = [judgement.mean for judgement in judged if judgement.scores]
    if len(judged) < LEAST:
        return []
    failed = 1 - len(scores) / len(judged)
    alarms = raised("judge_failures", failed, f"the critics failed on {failed:.0%} of {len(judged)} traces")
    top = sum(value > 1 - 1e-9 for value in scores) / max(len(scores), 1)
    return alarms + raised(
        "ceiling", top, f"{top:.0%} of {len(scores)} scores are the highest there is", not verified
    )


def improver_echo(rows: Iterable[Row]) -> list[Alarm]:
    """The improver gives back what it was to improve."""
    pairs = [(c, row.candidates[c.parent]) for row in rows for c in row.candidates if c.parent is not None]
    same = sum(c.trace.split() == parent.trace.split() for c, parent in pairs) / max(len(pairs), 1)
    text = f"{same:.0%} of {len(pairs)} improved traces are the earlier one, unchanged"
    return raised("improver_echo", same if len(pairs) >= 5 else 0.0, text)


def _paired(before: Sequence[Row], now: Sequence[Row]) -> list[tuple[Candidate, Candidate, str]]:
    """First drafts of the same problems: (before, now, id)."""
    a, b = first_drafts(before), first_drafts(now)
    return [(a[id], b[id], id) for id in b if id in a]
