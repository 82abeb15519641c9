"""The first drafts of rows, which are what one actor did: what it said, and where it said nothing.

A model that says nothing has not solved the problem: an empty answer, a refusal and a problem that is too
long for it stand as a draft without words that is wrong. Nor has a challenger solved it by an answer that no
program can decide, where the champion's was decided. What an endpoint failed is no draft at all: such a
problem is left out of both sides of a comparison and counted, as is one on which the champion's answer is
undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cotkit.records import VERIFIER_FAILED, Candidate, Row, Verdict
from cotkit.verify import has_program

SILENT = frozenset({"empty", "refusal", "context_length"})  # kinds of ModelError that are the model's doing
Pair = tuple[Candidate, Candidate, str]  # before, now, problem id


def is_failed(row: Row) -> bool:
    """An endpoint, a judge or the machine gave no result, and may the next time."""
    return row.retryable and (row.drop_reason or "").removeprefix("model_") not in SILENT


def checks(*sides: Iterable[Row]) -> Callable[[Row], bool]:
    """Whether a program would decide an answer to the problem of a row: it has a reference or a program that
    the verifier can use, or the verifier needs none, since it decided others that have none."""
    bare = [row for rows in sides for row in rows if not _has_key(row)]
    free = any(c.verdict.correct is not None for row in bare for c in row.candidates)
    return lambda row: free or _has_key(row)


def _has_key(row: Row) -> bool:
    if row.candidates and all(c.verdict.method == "no_reference" for c in row.candidates):
        return False  # the verifier makes nothing of what is there
    return bool(row.reference) or has_program(row)


def drafts_of(row: Row, checked: bool) -> list[Candidate]:
    """The drafts in the order they were asked for; one without words where the model said nothing, wrong
    where the problem can be `checked`. What could not be verified for a failure is no draft."""
    drafts = (c for c in row.candidates if c.stage == "draft")
    said = [c for c in drafts if c.verdict.method not in VERIFIER_FAILED]
    for error in row.errors:
        if error.get("stage") == "draft" and error.get("kind") in SILENT:
            verdict = Verdict(correct=False if checked else None, method="no_answer", reason=error["kind"])
            place = error.get("sample_index", 0)
            said.append(Candidate(iteration=0, sample_index=place, trace="", text="", verdict=verdict))
    return sorted(said, key=lambda c: c.sample_index)


def first_drafts(rows: Iterable[Row], checked: Callable[[Row], bool] | None = None) -> dict[str, Candidate]:
    """{problem id: its first draft}."""
    rows = list(rows)
    checked = checked or checks(rows)
    drafts = {row.id: drafts_of(row, checked(row)) for row in rows}
    return {id: own[0] for id, own in drafts.items() if own}


def paired(before: Iterable[Row], now: Iterable[Row], decided: bool = False) -> list[Pair]:
    """First drafts of the same problems; with `decided` where the first has a verdict, and then a second one
    without is wrong (method "undecided")."""
    before, now = list(before), list(now)
    checked = checks(before, now)
    a, b = first_drafts(before, checked), first_drafts(now, checked)
    pairs = [(a[id], b[id], id) for id in b if id in a]
    if not decided:
        return pairs
    return [(a, _decided(b), id) for a, b, id in pairs if a.verdict.correct is not None]


def _decided(candidate: Candidate) -> Candidate:
    if candidate.verdict.correct is not None:
        return candidate
    verdict = Verdict(correct=False, method="undecided", reason=candidate.verdict.reason)
    return candidate.model_copy(update={"verdict": verdict})


def spoken(pairs: Sequence[Pair]) -> list[Pair]:
    """Where both said something: texts are compared there."""
    return [pair for pair in pairs if pair[0].trace and pair[1].trace]


def score(candidate: Candidate) -> float | None:
    """The critics' mean score on 0..1; None when there is none."""
    return candidate.judgement.mean if candidate.judgement else None


def critics_scores(candidate: Candidate) -> dict[str, dict[str, float] | None]:
    """{critic: its scores by dimension, None = it failed}; of a panel those of each judge in it."""
    judgement = candidate.judgement
    if judgement is None:
        return {}
    each = judgement.raw if isinstance(judgement.raw, dict) else {}
    if each and all(isinstance(one, dict) and {"judge", "scores"} <= set(one) for one in each.values()):
        return {name: one["scores"] for name, one in each.items()}
    return {judgement.judge: judgement.scores}


def scored(pairs: Sequence[Pair]) -> list[Pair]:
    """Where the critics scored both."""
    return [pair for pair in pairs if None not in (score(pair[0]), score(pair[1]))]
