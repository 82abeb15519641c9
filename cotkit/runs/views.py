"""What of a run is trained on: SFT examples, preference pairs and labelled traces as views over rows.

Every candidate stays in the run folder, so a view is computed again, with another policy, at no cost.
A policy is one small function that takes a row and proposes traces or pairs; what may never be trained
towards (`flaw`) and what makes two traces comparable (`incomparable`) is decided in one place each.
What is looked at is counted as `given`, what is left out under a named reason, and the two are counted apart:
`given = len(examples) + sum(drops)` is what must come out. With `lazy=True` the examples are an iterator, and
the counts are complete when it has ended.

SFT: `best` (the final trace of each accepted problem), `all_accepted`, `first_correct`; `final` takes the
final trace of every problem, accepted or not, for tables that are read and not trained on.
Pairs: `correct_vs_wrong` (Iterative RPO, arXiv 2404.19733), `best_vs_worst` (UltraFeedback, arXiv
2310.01377), `first_vs_last` (the draft against its last refinement), `length_controlled` (Meta-Rewarding,
arXiv 2407.19594: among the near-best the shortest is chosen, among the near-worst the longest
rejected).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotkit.records import Candidate, Row, unfinished
from cotkit.runs.shapes import CONTROL
from cotkit.shown import mended

MIN_GAP = 0.1  # one point of a 0-10 scale: below it a difference of scores is mostly the judge's noise
LENGTH_BAND = 0.2  # `length_controlled`: how far below the top score a trace still counts as near-best

_BOX = re.compile(r"\\boxed\s*\{")


@dataclass(frozen=True)
class Example:
    """One training example: `candidate` is the answer to train on, or the chosen one when there is a
    `rejected`; `label` says in labelled data whether the answer is a good one."""

    row: Row
    candidate: Candidate
    rejected: Candidate | None = None
    label: bool | None = None


@dataclass
class View:
    """The examples of a policy, in input order, and why the rest is not among them.

    `unit` says what `given` counts: "problems"; "traces", a problem without any as one; or, where a problem
    may give several pairs, "pairs tried", a problem with none to try as one.
    """

    policy: str
    unit: str
    examples: list[Example] = field(default_factory=list)  # of a lazy view: an iterator
    drops: Counter[str] = field(default_factory=Counter)
    given: int = 0


def parts(candidate: Candidate) -> tuple[str, str]:
    """(reasoning, answer) of a trace, both stripped; reasoning is "" when the model gave none apart.

    A `<think>` block that still stands in the text is taken apart; with a lone `</think>` all before it is
    reasoning (the opening tag came from the chat template). A plain chain of thought that ends in a box
    stays one text: no tags are invented for it.
    """
    if (candidate.reasoning or "").strip():
        return candidate.reasoning.strip(), candidate.text.strip()
    text = candidate.text.strip()
    before, closed, after = text.partition("</think>")
    if closed and (before.startswith("<think>") or "<think>" not in before):
        return before.removeprefix("<think>").strip(), after.strip()
    return "", text


def score(candidate: Candidate) -> float | None:
    """Mean over the judge's dimensions, 0..1; None when not judged, the judge failed, or a score is NaN."""
    mean = candidate.judgement.mean if candidate.judgement else None
    return mean if mean is not None and math.isfinite(mean) else None


def is_truncated(candidate: Candidate) -> bool:
    return (
        candidate.truncated
        or unfinished(candidate.call.get("finish_reason")) in ("cut", "broken")
        or (candidate.text.lstrip().startswith("<think>") and "</think>" not in candidate.text)
    )


def defect(candidate: Candidate, require_boxed: bool = False) -> str | None:
    """Why a trace cannot stand on either side of anything: it holds no answer of the model."""
    reasoning, answer = parts(candidate)
    if unfinished(candidate.call.get("finish_reason")) == "refused":
        return "refusal"
    if not answer:
        return "empty"
    if "</think>" in answer or "</think>" in reasoning:
        return "stray_think_tag"  # chat templates cut at it
    if CONTROL.search(answer) or CONTROL.search(reasoning):
        return "control_token"  # trained on, it ends a turn twice or begins the user's
    if require_boxed and not _BOX.search(answer):
        return "no_box"
    return None


def flaw(candidate: Candidate, include_rationalized: bool = True, require_boxed: bool = False) -> str | None:
    """Why a trace must not be trained towards; None = it may.

    A rationalized trace may (STaR, arXiv 2203.14465, trains on them, under the original prompt) unless its
    hint shows; in pairs it may not, for the model never wrote it from the problem alone.
    """
    if is_truncated(candidate):
        return "truncated"
    if candidate.verdict.correct is False:
        return "wrong"
    if candidate.leaks:
        return "leak"
    if candidate.rationalized and not include_rationalized:
        return "rationalized"
    return defect(candidate, require_boxed)


def normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", mended(text)).split())


def _squeezed(candidate: Candidate) -> str:
    return normalised("\n".join(parts(candidate)))


def rank(candidate: Candidate) -> tuple[int, float]:
    """Sorts best first: the program's verdict before the judge's score."""
    value = score(candidate)
    return (-_VERDICT_RANK[candidate.verdict.correct], math.inf if value is None else -value)


_VERDICT_RANK = {True: 2, None: 1, False: 0}


def history(row: Row) -> list[Candidate]:
    """One trace an iteration: the chain that leads to the final one, and what was tried after it.

    At iteration 0 this is the draft that was selected, not its losing siblings.
    """
    chain, at = set(), row.final
    while at is not None and at not in chain:
        chain.add(at)
        at = row.candidates[at].parent
    parents = {candidate.parent for candidate in row.candidates}
    picked: dict[int, int] = {}
    for index in sorted(range(len(row.candidates)), key=lambda i: (i not in chain, i not in parents, i)):
        picked.setdefault(row.candidates[index].iteration, index)
    return [row.candidates[picked[iteration]] for iteration in sorted(picked)]


def sft_view(
    rows: Iterable[Row],
    policy: str | None = None,
    *,
    max_per_problem: int | None = None,
    include_rationalized: bool = True,
    require_boxed: bool = False,
    lazy: bool = False,
) -> View:
    """Traces to train on. `max_per_problem` keeps the best k of `all_accepted`, which it then implies.

    `first_correct` takes the first verified trace of a problem whatever the judge said (ReST-EM, arXiv
    2312.06585); the other policies take what the run accepted.
    """
    policy = policy or ("all_accepted" if max_per_problem is not None else "best")
    if policy not in ("best", "all_accepted", "first_correct", "final"):
        raise ValueError(
            f"unknown policy {policy!r} for SFT; known: all_accepted, best, first_correct, final"
        )
    if max_per_problem is not None:
        if policy != "all_accepted":
            raise ValueError(f"policy={policy!r} takes one trace a problem: leave max_per_problem out")
        _positive("max_per_problem", max_per_problem)

    def refuse(candidate: Candidate) -> str | None:
        if policy == "final":
            return None if candidate.trace.strip() else "empty"
        return flaw(candidate, include_rationalized, require_boxed)

    def examples() -> Iterator[Example]:
        for row in rows:
            view.given += (len(row.candidates) or 1) if policy == "all_accepted" else 1
            if not row.candidates:
                view.drops[row.drop_reason or "no_trace"] += 1
            elif policy == "all_accepted":
                yield from _accepted(view, row, refuse, max_per_problem)
            elif isinstance(pick := _one_trace(row, policy, refuse), str):
                view.drops[pick] += 1
            else:
                yield Example(row, pick)

    view = View(policy, "traces" if policy == "all_accepted" else "problems")
    view.examples = examples() if lazy else list(examples())
    return view


def _one_trace(row: Row, policy: str, refuse: Callable[[Candidate], str | None]) -> Candidate | str:
    """The trace of a row, or why there is none."""
    if policy == "first_correct":
        correct = [c for c in row.candidates if c.verdict.correct is True]
        good = next((c for c in correct if not refuse(c)), None)
        return good or (refuse(correct[0]) if correct else "no_correct")
    if row.best is None or (policy == "best" and not row.accepted):
        return row.drop_reason or "not_accepted"
    return refuse(row.best) or row.best


def _accepted(view: View, row: Row, refuse: Callable, limit: int | None) -> list[Example]:
    seen: set[str] = set()
    good: list[Candidate] = []
    for candidate in sorted(row.candidates, key=rank):
        text = _squeezed(candidate)
        reason = "not_accepted" if not candidate.accepted else refuse(candidate)
        if reason is None and text in seen:
            reason = "duplicate"
        if reason is None and limit is not None and len(good) == limit:
            reason = "over_max_per_problem"
        if reason:
            view.drops[reason] += 1
        else:
            seen.add(text)
            good.append(candidate)
    return [Example(row, c) for c in row.candidates if any(c is g for g in good)]


def label_view(
    rows: Iterable[Row],
    *,
    include_rationalized: bool = True,
    require_boxed: bool = False,
    lazy: bool = False,
) -> View:
    """Every trace with a label (KTO): True = accepted, False = proven wrong, or below the judge's
    thresholds where no program could decide. A correct trace that a judge refused has no label."""

    def examples() -> Iterator[Example]:
        for row in rows:
            view.given += len(row.candidates) or 1
            if not row.candidates:
                view.drops[row.drop_reason or "no_trace"] += 1
            found = [(c, *_label(c, include_rationalized, require_boxed)) for c in row.candidates]
            labels: dict[str, set[bool | None]] = {}
            for candidate, label, reason in found:
                if not reason:
                    labels.setdefault(_squeezed(candidate), set()).add(label)
            for candidate, label, reason in found:
                if not reason and len(labels[_squeezed(candidate)]) > 1:
                    reason = "contradictory_label"  # one text that a judge once took and once did not
                if reason:
                    view.drops[reason] += 1
                else:
                    yield Example(row, candidate, label=label)

    view = View("", "traces")
    view.examples = examples() if lazy else list(examples())
    return view


def _label(
    candidate: Candidate, include_rationalized: bool, require_boxed: bool
) -> tuple[bool | None, str | None]:
    if candidate.accepted:
        return True, flaw(candidate, include_rationalized, require_boxed)
    if candidate.verdict.correct is True:
        return None, "correct_but_not_accepted"
    if candidate.verdict.correct is None and score(candidate) is None:
        return None, "undecided"
    return False, "rationalized" if candidate.rationalized else defect(candidate)


def incomparable(chosen: Candidate, rejected: Candidate, min_gap: float | None = None) -> str | None:
    """Why two traces make no pair; None = `chosen` is better, and by enough.

    True against False is decided by program and needs no gap. Everything else is decided by scores of the
    same judge on both sides, of a panel by those of the same members, `min_gap` apart (None = MIN_GAP). A
    `min_gap` that is given holds for all.
    """
    whole, answers = zip(*((_squeezed(c), normalised(parts(c)[1])) for c in (chosen, rejected)), strict=True)
    if len(set(whole)) == 1 or len(set(answers)) == 1:  # also when only the thinking differs
        return "identical"
    decided = chosen.verdict.correct is True and rejected.verdict.correct is False
    if decided and min_gap is None:
        return None
    high, low = score(chosen), score(rejected)
    if high is None or low is None:
        return "no_score"
    if _judge(chosen) != _judge(rejected):
        return "different_judges"
    gap = round(high - low, 9)
    if gap <= 0 and not decided:
        return "tie" if gap == 0 else "not_better"
    return "gap_below_min" if gap < (MIN_GAP if min_gap is None else min_gap) else None


def _judge(candidate: Candidate) -> tuple:
    said = candidate.judgement
    model = (said.call or {}).get("model")
    return said.judge, said.saw_reference, tuple(sorted(said.scores)), model, _members(said.raw)


def _members(raw: Any) -> tuple:
    """Of a panel the judges that gave scores, and which: one that failed has no say in the panel's."""
    if not isinstance(raw, Mapping):
        return ()
    gave = {name: one for name, one in raw.items() if isinstance(one, Mapping) and one.get("scores")}
    return tuple(
        (name, tuple(sorted(one["scores"])), (one.get("call") or {}).get("model"), _members(one.get("raw")))
        for name, one in sorted(gave.items())
    )


Proposals = Iterator[tuple[Candidate, Candidate]]


class _NoPair(Exception):
    """A row gives no pair; the message is the drop reason."""


def _sides(row: Row, require_boxed: bool, correctness: bool) -> tuple[list[Candidate], list[Candidate]]:
    """Traces that may be chosen, best first, and that may be rejected, worst first.

    With `correctness` the former are all proven right, the latter all proven wrong. A truncated trace is
    rejected only when there is no other: it is told apart by its length alone.
    """
    own = [c for c in row.candidates if not c.rationalized]
    if not own:
        raise _NoPair("rationalized" if row.candidates else row.drop_reason or "no_trace")
    if len(own) == 1:
        raise _NoPair("single_trace")
    best = sorted(own, key=rank)
    worst = sorted(own, key=_worst_first)
    if correctness:
        best = [c for c in best if c.verdict.correct is True]
        worst = [c for c in worst if c.verdict.correct is False]
        if not best or not worst:
            raise _NoPair("no_wrong" if best else "no_correct")
    chosen = [c for c in best if not flaw(c, require_boxed=require_boxed)]
    rejected = [c for c in worst if not defect(c)]
    if not chosen:
        raise _NoPair(f"chosen_{flaw(best[0], require_boxed=require_boxed)}")
    if not rejected:
        raise _NoPair(f"rejected_{defect(worst[0])}")
    return chosen, rejected


def _worst_first(candidate: Candidate) -> tuple:
    value = score(candidate)
    known = candidate.verdict.correct is False or value is not None
    return (
        not known,
        is_truncated(candidate),
        _VERDICT_RANK[candidate.verdict.correct],
        math.inf if value is None else value,
    )


def _correct_vs_wrong(row: Row, require_boxed: bool) -> Proposals:
    chosen, rejected = _sides(row, require_boxed, correctness=True)
    for shift in range(len(rejected)):  # a fresh partner for every chosen one before any is used again
        for i, candidate in enumerate(chosen):
            yield candidate, rejected[(i + shift) % len(rejected)]


def _best_vs_worst(row: Row, require_boxed: bool) -> Proposals:
    chosen, rejected = _sides(row, require_boxed, correctness=False)
    for candidate in rejected:
        if candidate is not chosen[0]:
            yield chosen[0], candidate


def _first_vs_last(row: Row, require_boxed: bool) -> Proposals:
    steps = [c for c in history(row) if not c.rationalized]
    if not steps:
        raise _NoPair("rationalized" if row.candidates else row.drop_reason or "no_trace")
    if len(steps) == 1:
        raise _NoPair("not_refined")
    if reason := flaw(steps[-1], require_boxed=require_boxed):
        raise _NoPair(f"chosen_{reason}")
    if reason := defect(steps[0]):
        raise _NoPair(f"rejected_{reason}")
    yield steps[-1], steps[0]


def _length_controlled(row: Row, require_boxed: bool) -> Proposals:
    both = {c.verdict.correct for c in row.candidates if not c.rationalized} >= {True, False}
    chosen, rejected = _sides(row, require_boxed, correctness=both)
    scores = [s for c in {id(c): c for c in chosen + rejected}.values() if (s := score(c)) is not None]
    band = LENGTH_BAND * (max(scores) - min(scores)) if scores else 0.0

    def near(pool: list[Candidate]) -> list[Candidate]:
        edge = score(pool[0])
        return [
            c
            for c in pool
            if c.verdict.correct == pool[0].verdict.correct
            and (edge is None or ((s := score(c)) is not None and abs(s - edge) <= band + 1e-9))
        ]

    longest_first = sorted(near(rejected), key=_length, reverse=True)
    for candidate in sorted(near(chosen), key=_length):
        yield from ((candidate, other) for other in longest_first if other is not candidate)


def _length(candidate: Candidate) -> int:
    return sum(map(len, parts(candidate)))


PAIR_POLICIES: dict[str, Callable[[Row, bool], Proposals]] = {
    "correct_vs_wrong": _correct_vs_wrong,
    "best_vs_worst": _best_vs_worst,
    "first_vs_last": _first_vs_last,
    "length_controlled": _length_controlled,
}


def pair_view(
    rows: Iterable[Row],
    policy: str | None = None,
    *,
    min_gap: float | None = None,
    max_pairs_per_problem: int = 1,
    require_boxed: bool = False,
    lazy: bool = False,
) -> View:
    """Preference pairs; `policy=None` means `correct_vs_wrong` where programs decided, else `best_vs_worst`.

    A policy's pairs are tried in its order of preference until `max_pairs_per_problem` are found. With one a
    problem, a problem that gives none is one drop, under the reason of the pair it would have liked best;
    with more, each pair that was tried and refused is one.
    """
    if policy is None:
        rows = list(rows) if isinstance(rows, Iterator) else rows  # which are gone over twice
        decided = any(c.verdict.correct is not None for row in rows for c in row.candidates)
        policy = "correct_vs_wrong" if decided else "best_vs_worst"
    if policy not in PAIR_POLICIES:
        raise ValueError(f"unknown policy {policy!r} for pairs; known: {', '.join(sorted(PAIR_POLICIES))}")
    if min_gap is not None and (isinstance(min_gap, bool) or not 0 <= min_gap <= 1):
        raise ValueError(f"min_gap is a difference of scores on 0..1, got {min_gap!r}")
    _positive("max_pairs_per_problem", max_pairs_per_problem)

    def examples() -> Iterator[Example]:
        for row in rows:
            proposed = PAIR_POLICIES[policy](row, require_boxed)
            found, reasons, tried = _pairs(row, proposed, min_gap, max_pairs_per_problem)
            yield from found
            view.given += tried if several else 1
            view.drops.update(reasons if several else [] if found else reasons[:1])

    several = max_pairs_per_problem > 1
    view = View(policy, "pairs tried" if several else "problems")
    view.examples = examples() if lazy else list(examples())
    return view


def _pairs(
    row: Row, proposed: Proposals, min_gap: float | None, most: int
) -> tuple[list[Example], list[str], int]:
    """The first pairs that hold, why others do not, the one liked best first, and how many were tried; a row
    with none to try counts as one."""
    found: list[Example] = []
    reasons: list[str] = []
    tried = 0
    try:
        for chosen, rejected in proposed:
            tried += 1
            if reason := incomparable(chosen, rejected, min_gap):
                reasons.append(reason)
                continue
            found.append(Example(row, chosen, rejected))
            if len(found) == most:
                break
    except _NoPair as none:
        reasons.append(str(none))
    return found, reasons if tried or reasons else ["single_trace"], tried or 1


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
