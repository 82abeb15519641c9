"""What a distillation run did: from its rows to frames of numbers, each with count and interval.

Pure functions over `list[Row]` (kept and dropped ones together, as `Run.records()` gives them) and the
run's `report`. In every frame a share `x` has its 95 % interval beside it as `x_low` and `x_high`; nan means
that there is nothing to compute it from. Undecided verdicts count neither as right nor as wrong; rationalized
traces are left out of everything that speaks of the model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.analysis.candidates import (
    candidates_frame,
    chosen_draft,
    drafts,
    judge_saw_reference,
    own_candidates,
    own_final,
    refinements,
)
from cotkit.analysis.intervals import NAN, Rate, auc_interval, paired_difference, told
from cotkit.records import Candidate, Row
from cotkit.shown import mended_frame
from cotkit.verify import answer_key

if TYPE_CHECKING:
    import pandas


def interval_columns(name: str, estimate: Any) -> dict[str, float]:
    """`name`, `name_low`, `name_high` of a Rate or an Auc."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def funnel(rows: Sequence[Row], report: dict[str, Any]) -> pandas.DataFrame:
    """How far the problems came: one line a step from given to kept, with what was lost on the way and why.

    A problem stands where its furthest candidate stands. Columns: step, problems, share (of the given, with
    interval), lost (since the step before), reasons ({drop_reason: problems}), undecided and rationalized
    (problems among those that came this far).
    """
    import pandas

    given = max(report.get("given", 0), len(rows))
    reached = [_progress(row) for row in rows]
    steps = {0: "given", 1: "has a trace", 2: "has an answer", 3: _verified_label(rows), 4: _kept_label(rows)}
    lines, before = [], given
    for step, name in steps.items():
        here = [row for row, stop in zip(rows, reached, strict=True) if stop >= step]
        problems = len(here) if step else given
        stopped = [row for row, stop in zip(rows, reached, strict=True) if stop == step - 1]
        reasons = Counter(row.drop_reason or "no reason recorded" for row in stopped)
        if step == 1:
            reasons.update(_without_row(rows, report, given))
        share = (
            Rate.of(problems, given) if step else Rate(given, given, 1.0, NAN, NAN)
        )  # given is no estimate
        line = {"step": name, "problems": problems, **interval_columns("share", share)}
        line |= {"lost": before - problems, "reasons": dict(reasons.most_common())}
        line["undecided"] = sum(map(_is_undecided, here)) if step >= 3 else 0
        line["rationalized"] = sum(row.accepted and row.best.rationalized for row in here)
        lines.append(line)
        before = problems
    return pandas.DataFrame(lines)


def _progress(row: Row) -> int:
    """0 nothing, 1 a trace, 2 an answer, 3 an answer not found wrong, 4 kept."""
    return 4 if row.accepted else max((_candidate_progress(c) for c in row.candidates), default=0)


def _candidate_progress(c: Candidate) -> int:
    if c.answer is None:
        return 1
    return 2 if c.verdict.correct is False else 3


def _is_undecided(row: Row) -> bool:
    return not any(c.verdict.correct for c in row.candidates)


def _verified_label(rows: Sequence[Row]) -> str:
    not_wrong = [row for row in rows if _progress(row) >= 3]
    undecided = sum(map(_is_undecided, not_wrong))
    if not undecided:
        return "verified right"
    return "right or undecided" if undecided < len(not_wrong) else "undecided"


def _kept_label(rows: Sequence[Row]) -> str:
    judged = any(c.judgement for row in rows for c in row.candidates)
    return "kept: thresholds met" if judged else "kept"


def _without_row(rows: Sequence[Row], report: dict[str, Any], given: int) -> dict[str, int]:
    """The reasons the report gives for the problems that have no row."""
    missing = given - len(rows)
    rest = Counter(report.get("drops", {})) - Counter(row.drop_reason for row in rows if not row.accepted)
    if sum(rest.values()) == missing:
        return dict(rest)
    return {"unfinished": missing}


def acceptance_by_iteration(rows: Sequence[Row]) -> pandas.DataFrame:
    """The share of all problems that have an accepted trace of the model's own by the end of each iteration.

    Columns: iteration (0 = first drafts), worked_on (problems with a trace of this iteration), accepted (so
    far), problems, share with interval, newly_accepted, and, from each refined trace and the one it was made
    from: fixed (wrong to right), broken (right to wrong), undecided (either verdict is None).
    """
    import pandas

    own = [own_candidates(row) for row in rows]
    first = [min((c.iteration for c in traces if c.accepted), default=math.inf) for traces in own]
    lines = []
    for iteration in range(1 + max((c.iteration for traces in own for c in traces), default=0)):
        accepted = sum(at <= iteration for at in first)
        steps = [
            (parent.verdict.correct, refined.verdict.correct)
            for row in rows
            for refined, parent in refinements(row)
            if refined.iteration == iteration
        ]
        line = {
            "iteration": iteration,
            "worked_on": sum(any(c.iteration == iteration for c in traces) for traces in own),
            "accepted": accepted,
            "problems": len(rows),
            "newly_accepted": first.count(iteration),
            "fixed": steps.count((False, True)),
            "broken": steps.count((True, False)),
            "undecided": sum(None in step for step in steps),
        }
        lines.append(line | interval_columns("share", Rate.of(accepted, len(rows))))
    return pandas.DataFrame(lines)


Pick = Callable[[Row], bool | None]


def _correct(candidate: Candidate | None) -> bool | None:
    return None if candidate is None else candidate.verdict.correct


def _first(row: Row) -> bool | None:
    return _correct(next(iter(drafts(row)), None))


def _majority(row: Row) -> bool | None:
    """The verdict on the answer most drafts give.

    Answers are pooled without a look at any verdict: those with the same `verify.answer_key`, which is strict
    (`72` and `72 apples` vote apart). Of answers with equally many votes the one that the earliest draft
    gives wins; drafts without an answer have no vote.
    """
    votes: dict[str, list[Candidate]] = {}
    for c in drafts(row):
        if c.answer:
            votes.setdefault(answer_key(c.answer), []).append(c)
    return _correct(max(votes.values(), key=len)[0]) if votes else _first(row)


def _best_scored(row: Row) -> bool | None:
    """The verdict on the draft with the highest mean score; ties go to the earlier draft."""
    scored = [c for c in drafts(row) if c.judgement and c.judgement.mean is not None]
    return _correct(max(scored, key=lambda c: c.judgement.mean)) if scored else _first(row)


def _any(candidates: Sequence[Candidate]) -> bool | None:
    verdicts = [c.verdict.correct for c in candidates]
    return True if True in verdicts else None if None in verdicts or not verdicts else False


def _strategies(rows: Sequence[Row]) -> list[tuple[str, Pick, Callable[[Row], int], bool]]:
    """(name, pick, traces a problem costs, whether the reference helps to choose) of what can be compared."""
    most = max((len(drafts(row)) for row in rows), default=0)
    ways = [("first draft", _first, lambda row: 1, False)]
    if most > 1:
        count = lambda row: len(drafts(row))  # noqa: E731
        ways.append((f"majority of {most} drafts", _majority, count, False))
        if all(c.judgement for row in rows for c in drafts(row)):  # else being judged already says something
            ways.append((f"best score of {most} drafts", _best_scored, count, judge_saw_reference(rows)))
        ways.append((f"any of {most} drafts", lambda row: _any(drafts(row)), count, True))
        picked = [_correct(chosen_draft(row)) for row in rows]
        if picked != [_any(drafts(row)) for row in rows]:
            ways.append((f"chosen of {most} drafts", lambda row: _correct(chosen_draft(row)), count, True))
    if any(refinements(row) for row in rows):
        final = lambda row: _correct(own_final(row))  # noqa: E731
        ways.append(("after refinement", final, lambda row: len(own_candidates(row)), True))
    return ways


def accuracy_comparison(rows: Sequence[Row]) -> pandas.DataFrame:
    """Verified accuracy by way of choosing the trace, all on the same problems, each against the first draft.

    The ways: the first draft; the mean over all drafts (pass@1); the answer most drafts give; the draft the
    judge scores best; any of the drafts (pass@n: the verdict picks, an upper bound); the draft the run chose,
    when that is not the same; the trace the run decided on after refinement. Ties, by votes or by
    score, go to the earliest draft. Where `sees_reference` is True the reference helps to choose, through the
    verdict or a judge that saw it: such a line is a yield of right traces, not the accuracy of a model that
    has no reference. `traces` is the mean number of traces a problem costs.

    Only problems on which every way has a verdict are compared (for the mean, n counts their traces);
    `undecided` and `no_trace` problems are counted beside them. The difference (with gained, lost, p_value)
    is `intervals.paired_difference`.
    """
    import pandas

    with_trace = [row for row in rows if drafts(row)]
    ways = _strategies(with_trace)
    picks = [[pick(row) for row in with_trace] for _, pick, _, _ in ways]
    decided = [i for i in range(len(with_trace)) if all(chosen[i] is not None for chosen in picks)]
    same = [with_trace[i] for i in decided]
    base = [picks[0][i] for i in decided]
    lines = []
    for (name, _, traces, sees_reference), chosen in zip(ways, picks, strict=True):
        flags = [chosen[i] for i in decided]
        line = {
            "way": name,
            "right": sum(flags),
            "n": len(flags),
            **interval_columns("accuracy", Rate.of_flags(flags)),
        }
        line["traces"] = sum(map(traces, same)) / len(same) if same else NAN
        line["sees_reference"] = sees_reference
        if name != "first draft":
            gap = paired_difference(base, flags)
            line |= {"difference": gap.difference, "difference_low": gap.low, "difference_high": gap.high}
            line |= {"gained": gap.gained, "lost": gap.lost, "p_value": gap.p_value}
        lines.append(line)
    if max((len(drafts(row)) for row in same), default=0) > 1:
        lines.insert(1, _mean_of_drafts(same))
    columns = [
        *("way", "right", "n", "accuracy", "accuracy_low", "accuracy_high", "traces", "sees_reference"),
        *("difference", "difference_low", "difference_high", "gained", "lost", "p_value"),
    ]
    frame = pandas.DataFrame(lines, columns=columns)
    frame = frame.astype({"right": "Int64", "gained": "Int64", "lost": "Int64"})
    return frame.assign(undecided=len(with_trace) - len(same), no_trace=len(rows) - len(with_trace))


def _mean_of_drafts(rows: Sequence[Row]) -> dict[str, Any]:
    decided = [(row.id, c) for row in rows for c in drafts(row) if c.verdict.correct is not None]
    rate = Rate.of_grouped([c.verdict.correct for _, c in decided], [id for id, _ in decided])
    line = {"way": f"mean of {max(len(drafts(row)) for row in rows)} drafts", "right": rate.successes}
    return {**line, "n": rate.n, **interval_columns("accuracy", rate), "traces": 1.0, "sees_reference": False}


def by_type(rows: Sequence[Row]) -> pandas.DataFrame:
    """Per problem type, in input order: how many were kept, and how many the first draft and the final trace
    of the model's own got right (among the `decided` ones).
    """
    lines = []
    for name in dict.fromkeys(row.type or "(no type)" for row in sorted(rows, key=lambda row: row.index)):
        group = [row for row in rows if (row.type or "(no type)") == name]
        first = Rate.of_flags(_first(row) for row in group)
        final = Rate.of_flags(_correct(own_final(row)) for row in group)
        line = {"type": name, "problems": len(group), "kept": sum(row.accepted for row in group)}
        line |= interval_columns("kept_share", Rate.of(line["kept"], len(group)))
        line |= {
            "decided": first.n,
            **interval_columns("first_draft", first),
            **interval_columns("final", final),
        }
        lines.append(line)
    return mended_frame(lines, None if lines else ["type", "problems", "kept", "kept_share"])


def score_columns(frame: pandas.DataFrame) -> list[str]:
    """The dimensions, then their mean (alone when there is but one)."""
    dimensions = [c for c in frame.columns if c.startswith("score_") and c != "score_mean"]
    return dimensions if len(dimensions) == 1 else [*dimensions, "score_mean"]


def judge_agreement(rows: Sequence[Row]) -> pandas.DataFrame:
    """Does the judge rank right traces above wrong ones? AUC per dimension, interval over problems.

    0.5 is a coin. `reading` puts the interval into words. Traces without a verdict or a score are left out.
    `unjudged` counts those the judge was never shown: where it saw only what verification had left in play,
    the comparison is biased (`judge_all=True` has every draft judged). `saw_reference`: the judge was shown
    the reference, so the AUC is not that of a judge without it. No line = nothing to compare.
    """
    import pandas

    frame = candidates_frame(rows)
    frame = frame[~frame["rationalized"] & frame["correct"].notna()]
    lines = []
    for column in score_columns(frame):
        known = frame[frame[column].notna()]
        if known.empty:
            continue
        found = auc_interval(known[column].to_list(), known["correct"].to_list(), known["id"].to_list())
        line = {"dimension": column.removeprefix("score_"), **interval_columns("auc", found)}
        line |= {"right": found.right, "wrong": found.wrong, "problems": known["id"].nunique()}
        line |= {"unjudged": int(frame["judge"].isna().sum()), "saw_reference": judge_saw_reference(rows)}
        lines.append(line | {"reading": _reading(found)})
    columns = [
        *("dimension", "auc", "auc_low", "auc_high", "right", "wrong", "problems", "unjudged"),
        *("saw_reference", "reading"),
    ]
    return pandas.DataFrame(lines, columns=columns)


def _reading(found: Any) -> str:
    if math.isnan(found.value):
        return "all traces have the same verdict: nothing to compare"
    words = ("scores right traces higher", "scores wrong traces higher", "not told from chance")
    return told(found.low, found.high, 0.5, *words)
