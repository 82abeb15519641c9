"""Thresholds for scores, chosen for a stated precision and certified on rows that had no part in the choice.

    tune      40 % of the problems: weights are learned, the path through threshold space is laid, the rule
              is picked, the certificate is planned
    certify   40 %: the fixed sequence of tests runs along that path, on one row a problem
    report    20 %: precision, recall and kept share of what was chosen, on rows nobody has looked at

What the certificate says holds for traces drawn like these, of problems drawn like these: not for the best of
several, and not for traces that were rewritten to please the judge (`by_iteration` shows the difference).
With fewer than 50 rows, 10 problems or only one verdict nothing is split and nothing certified; the tables
then describe all rows.
"""

from __future__ import annotations

import datetime
import html
import math
import numbers
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit import __version__
from cotkit.analysis import threshold_tables as tables
from cotkit.analysis.calibration import counts_along
from cotkit.analysis.certificate import (
    Errors,
    apparent_target,
    check_errors,
    fixed_sequence,
    labels_needed,
    naive_step,
    planned_start,
)
from cotkit.analysis.intervals import Rate, kish
from cotkit.analysis.paths import Path, lay_path
from cotkit.analysis.scored_rows import (
    LEAST_PROBLEMS,
    LEAST_ROWS,
    SHARES,
    ScoredRows,
    one_a_problem,
    scored_rows,
    split_problems,
)
from cotkit.analysis.threshold_findings import reason, threshold_findings
from cotkit.analysis.threshold_tables import Bench, Outcome
from cotkit.rules import RULES, seal
from cotkit.runs import write_json

if TYPE_CHECKING:
    import pandas

LEAST_KEPT = 20  # rows behind a threshold that is picked without a certificate
_SIMPLEST = ("mean", "min", "all", "median", "any", "logistic")  # the first of equals is taken


@dataclass(frozen=True)
class ThresholdReport:
    """What `tune_thresholds` found. Every table is a DataFrame; a share `x` has `x_low`, `x_high` beside it.

    rows          the rows with a verdict and every score: id, problem (a number), right, iteration, length,
                  split ("tune", "certify", "report"; "all" where nothing was split), tuned (of the iteration
                  asked for), model where it is given, and the score columns
    data_card     item, value: what was given, left out and why, and the split
    scores        one line a score: auc [over problems], reading, distinct, ties, missing, lowest, highest
    rules         one line a rule: threshold, precision, recall, kept, cost_per_1000 on the report split;
                  chosen; certified, p_value of the chosen one alone. Where the verifier's
                  errors are given also true_precision
    certificate   one line a guarantee: guarantee, threshold, holds, p_value, n, reading
    curve         one line a rule and step of its path, on rows outside the tune split: precision, recall,
                  kept, false_kept, cost_per_1000 with bands over resampled problems; chosen
    reliability   one line a score, calibration and bin: predicted, right, n, brier, ece, base_brier
    by_iteration  one line an iteration, and one for the best of several drafts: precision and kept share at
                  the chosen threshold, outside the tune split
    agreement     one line a pair: first, second, measure (kappa, weighted kappa, alpha), value, n; and, where
                  a person labelled some, "same verdict" of person and verifier
    length        one line a score: slope a doubling of the length at equal verdict
    record        what `save` writes; among it report.precision (every trace counts) and, where problems have
                  different numbers of traces, report.precision_by_problem (one trace a problem); unlabelled
    """

    rows: pandas.DataFrame
    data_card: pandas.DataFrame
    scores: pandas.DataFrame
    rules: pandas.DataFrame
    certificate: pandas.DataFrame
    curve: pandas.DataFrame
    reliability: pandas.DataFrame
    by_iteration: pandas.DataFrame
    agreement: pandas.DataFrame
    length: pandas.DataFrame
    record: dict[str, Any] = field(repr=False)

    @property
    def certified(self) -> bool:
        return self.record["certified"]

    def findings(self) -> list[str]:
        """What the tables say, in sentences with counts and intervals."""
        return threshold_findings(self)

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write thresholds.json, which `distill(score_threshold=path)` takes."""
        path = pathlib.Path(path).expanduser()
        write_json(path, self.record)
        return path

    def __repr__(self) -> str:
        return f"ThresholdReport({self.record['reason']})"

    def _repr_html_(self) -> str:
        sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.findings())
        return f"<b>{html.escape(self.record['reason'])}</b><ul>{sentences}</ul>"


def tune_thresholds(
    frame: Any,
    score_columns: Sequence[str] | None = None,
    label: str = "correct",
    group: str | None = "id",
    *,
    target_precision: float = 0.9,
    delta: float = 0.1,
    rule: str = "best",
    iteration: int | None = 0,
    verifier_errors: Mapping[str, tuple[int, int]] | None = None,
    costs: tuple[float, float] | None = None,
    judge: Any = None,
    task: str | None = None,
    resamples: int = 400,
    seed: int = 0,
) -> ThresholdReport:
    """The thresholds that keep as many traces as a stated precision allows, with a certificate.

    frame: a Run, several Runs of one judge, a DataFrame (`candidates_frame`), or a file (`scored_frame`).
    score_columns: the score columns, on any scale (default: every `score_<dimension>` that has values).
    label: True, False or missing; "person" = what a person said of a run's traces in a TraceBrowser (good,
        bad; unsure = missing). group: the problem of a row; None = every row is a problem of its own.
    target_precision, delta: of the kept traces at least this share is right; wrong with chance `delta`.
    rule: "all" (every score reaches its own threshold), "any", "mean", "min", "median", "logistic" (learned
        weights), or "best": the one that keeps most on the tune split.
    iteration: tune on traces of this iteration (0 = first drafts); None = on all.
    verifier_errors: {"false_accept": (wrong answers it called right, wrong answers audited),
        "false_reject": (right answers it called wrong, right answers audited)}.
    costs: of a wrong trace kept, of a right one lost; default: those that make a trace worth keeping exactly
        when its chance of being right is the target.
    judge: the judge or its `describe()`, where the frame is no Run. task: what the thresholds are for.
    resamples: of the bands and of the agreement. seed: of splits and resamples.

    Raises ValueError for options that cannot work and data that cannot be read (see `scored_rows`).
    """
    check_tuning(rule, target_precision, delta, iteration, verifier_errors, costs, resamples, seed)
    costs = costs or (1.0, (1 - target_precision) / target_precision)
    target, test_delta = apparent_target(target_precision, verifier_errors, delta)
    data = scored_rows(frame, score_columns, label, group, judge)
    rows, refusal = _split(data, iteration, seed)
    bench = _bench(data, rows, RULES if len(data.columns) > 1 else ("all",))
    chosen = _best_rule(bench, target, seed) if rule == "best" else "all" if len(data.columns) == 1 else rule
    if chosen not in bench.paths:
        needs = "three scores" if rule == "median" else "more right and wrong rows to learn weights"
        raise ValueError(f"rule={rule!r} cannot be used here: it needs {needs}")
    picks = np.flatnonzero(bench.parts["certify"]) if not refusal else np.array([], int)
    picks = picks[one_a_problem(bench.problem[picks], seed)]
    outcomes = {name: _certify(bench, name, picks, target, test_delta) for name in bench.paths}
    outcome, path = outcomes[chosen], bench.paths[chosen]
    rules = tables.rules_table(bench, outcomes, chosen, costs, verifier_errors)
    record = _record(data, bench, path, outcome, rules.set_index("rule").loc[chosen], refusal)
    record |= {"target_precision": float(target_precision), "delta": float(delta), "seed": int(seed)}
    record["unlabelled"] = tables.unlabelled(data, bench, path, outcome.step, iteration)
    record["label"], record["group"], record["audit"] = label, group, data.audit and data.audit.describe()
    record["verifier_errors"] = verifier_errors and {k: [*map(int, v)] for k, v in verifier_errors.items()}
    record["valid_for"] = {
        "iteration": data.iterations if iteration is None or not data.iterations else [int(iteration)],
        "task": task or ", ".join(data.types[:8]) or None,
        "types": data.types,  # of the problems: a run on others is warned
        "models": sorted(rows.loc[rows["tuned"], "model"].dropna().astype(str).unique())
        if "model" in rows
        else [],  # that wrote the traces: likewise
        "traces": "as drawn, not the best of several",
    }
    words = path.in_words(outcome.step) if outcome.step is not None else ""
    record["reason"] = reason(record, words, outcome, target, refusal)
    record["seal"] = seal(record)
    return ThresholdReport(
        rows=rows,
        data_card=tables.data_card(data, rows),
        scores=tables.scores_table(bench, data.missing),
        rules=rules,
        certificate=tables.certificate_table(bench, path, outcome, picks, record),
        curve=tables.curves(bench, outcomes, chosen, costs, resamples),
        reliability=tables.reliability_table(bench),
        by_iteration=tables.by_iteration(rows, data.columns, path, outcome.step),
        agreement=tables.agreement_table(bench, resamples, data.audit),
        length=tables.length_table(bench),
        record=record,
    )


def describe_scores(
    frame: Any,
    score_columns: Sequence[str],
    label: str = "correct",
    group: str | None = "id",
    *,
    iteration: int | None = 0,
    resamples: int = 400,
    seed: int = 0,
) -> tuple[pandas.DataFrame, pandas.DataFrame, pandas.DataFrame]:
    """`rows`, `scores` and `agreement` of a ThresholdReport, for scores that no threshold is wanted of; the
    options are those of `tune_thresholds`."""
    data = scored_rows(frame, score_columns, label, group, None)
    rows, _ = _split(data, iteration, seed)
    bench = _bench(data, rows, ())
    agreement = tables.agreement_table(bench, resamples, data.audit)
    return rows, tables.scores_table(bench, data.missing), agreement


def check_tuning(
    rule: str = "best",
    target_precision: float = 0.9,
    delta: float = 0.1,
    iteration: int | None = 0,
    verifier_errors: Errors | None = None,
    costs: tuple[float, float] | None = None,
    resamples: int = 400,
    seed: int = 0,
) -> None:
    """Raises ValueError for options of `tune_thresholds` that cannot work, whatever the data."""
    counts = {"iteration": (iteration or 0, 0), "resamples": (resamples, 2), "seed": (seed, 0)}
    costs = (1, 1) if costs is None else costs
    for name, value in {"target_precision": target_precision, "delta": delta}.items():
        if not _is(numbers.Real, value) or not 0 < value < 1:
            raise ValueError(f"{name} must lie between 0 and 1, for instance 0.9, got {value!r}")
    if rule not in (*RULES, "best"):
        raise ValueError(f"unknown rule {rule!r}: use 'best' or one of {', '.join(RULES)}")
    for name, (value, least) in counts.items():
        if not (_is(numbers.Integral, value) and value >= least):
            raise ValueError(f"{name} must be a whole number from {least} on, got {value!r}")
    pair = isinstance(costs, (tuple, list)) and len(costs) == 2
    if not pair or not all(_is(numbers.Real, cost) and 0 <= cost < math.inf for cost in costs):
        raise ValueError(f"costs must be (of a wrong trace kept, of a right one lost), got {costs!r}")
    check_errors(verifier_errors)
    apparent_target(target_precision, verifier_errors, delta)


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _split(data: ScoredRows, iteration: int | None, seed: int) -> tuple[pandas.DataFrame, str | None]:
    """The rows with `tuned` and `split`, and why nothing can be certified (None = it can be tried)."""
    rows = data.frame
    tuned = rows["iteration"].eq(iteration) if iteration is not None else rows["right"].notna()
    if not tuned.any():
        have = ", ".join(map(str, sorted(rows["iteration"].unique())))
        raise ValueError(f"no row of iteration {iteration}; there are {have} (iteration=None takes all)")
    n, problems, verdicts = tuned.sum(), rows["problem"][tuned].nunique(), rows["right"][tuned].nunique()
    refusal = None
    if n < LEAST_ROWS:
        refusal = f"at least {LEAST_ROWS} labelled rows are needed"
    elif problems < LEAST_PROBLEMS:
        refusal = f"rows of at least {LEAST_PROBLEMS} problems are needed, these are of {problems}"
    elif verdicts < 2:
        which = "right" if rows["right"][tuned].iloc[0] else "wrong"
        refusal = (
            f"every row with a score is {which}, so nothing shows what the score is worth (a run must judge "
            "wrong traces too: distill(judge_all=True))"
        )
    problem, split = rows["problem"].to_numpy(), np.full(len(rows), "all", object)
    of_tuned = np.isin(problem, problem[tuned])
    for some in (of_tuned, ~of_tuned) if not refusal else ():  # each part gets its share of the tuned ones
        if some.any():
            split[some] = split_problems(problem[some], seed)
    return rows.assign(tuned=tuned, split=split), refusal


def _bench(data: ScoredRows, rows: pandas.DataFrame, rules: Sequence[str]) -> Bench:
    tuned = rows[rows["tuned"]]
    scores, right = tuned[data.columns].to_numpy(float), tuned["right"].to_numpy(bool)
    split = tuned["split"].to_numpy(str)
    parts = {part: (split == part) | (split == "all") for part in SHARES}
    parts["outside"] = (split != "tune") | (split == "all")
    found = {name: lay_path(name, scores[parts["tune"]], right[parts["tune"]], data.names) for name in rules}
    paths = {name: path for name, path in found.items() if path is not None}
    return Bench(
        columns=data.columns,
        scores=scores,
        right=right,
        problem=np.unique(tuned["problem"], return_inverse=True)[1],
        length=tuned["length"].to_numpy(float),
        parts=parts,
        paths=paths,
        steps={name: path.step_of(scores) for name, path in paths.items()},
    )


def _best_rule(bench: Bench, target: float, seed: int) -> str:
    """The rule that keeps most at the target, by cross-fitting on the tune split: paths laid on one half of
    its problems are counted on the other, so that a flexible rule gains nothing by fitting noise."""
    at = np.flatnonzero(bench.parts["tune"])
    problem = np.unique(bench.problem[at], return_inverse=True)[1]
    half = np.random.default_rng(seed).permutation(problem.max() + 1)[problem] % 2 == 0
    kept_share = dict.fromkeys(sorted(bench.paths, key=_SIMPLEST.index), 0.0)
    if half.all():  # a single problem
        return next(iter(kept_share))
    for fit, count in ((at[half], at[~half]), (at[~half], at[half])):
        for name in kept_share:
            path = lay_path(name, bench.scores[fit], bench.right[fit], bench.paths[name].names)
            if path is not None:
                right, kept = _counted(path.step_of(bench.scores[count]), bench.right[count], len(path))
                step = naive_step(right, np.where(kept >= LEAST_KEPT / 2, kept, 0), target)
                kept_share[name] += kept[step] / len(count) if step >= 0 else 0.0
    return max(kept_share, key=kept_share.get)


def _counted(step: np.ndarray, right: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Right and all kept rows at each step of a path."""
    return counts_along(step, right, steps), counts_along(step, np.ones(len(step)), steps)


def _certify(bench: Bench, name: str, picks: np.ndarray, target: float, delta: float) -> Outcome:
    """Plan on the tune split, test on `picks` (none where nothing may be certified)."""
    step, steps, tune = bench.steps[name], len(bench.paths[name]), bench.parts["tune"]
    right, kept = _counted(step[tune], bench.right[tune], steps)
    behind = kept >= min(LEAST_KEPT, kept[-1])
    guess = int(naive_step(right, np.where(behind, kept, 0), target))
    best = np.argmax(np.where(behind, right / np.maximum(kept, 1), -1))
    start = planned_start(right, kept, len(picks) / tune.sum(), target, delta)
    good, tested = _counted(step[picks], bench.right[picks], steps)
    last, p = fixed_sequence(tested - good, tested, target, delta, start)
    certified = bool(len(picks) and last >= 0)
    at = int(last) if certified else guess
    shown = at if at >= 0 else int(start)
    needed = None if certified or guess < 0 else labels_needed(right[behind], kept[behind], target, delta)
    return Outcome(
        step=at if at >= 0 else None,
        certified=certified,
        p_value=float(p[shown]) if len(picks) else math.nan,
        tested=len(picks),
        kept=int(tested[shown]),
        wrong=int(tested[shown] - good[shown]),
        best=(int(right[best]), int(kept[best])),
        labels_needed=needed and math.ceil(needed / SHARES["certify"]),
    )


def _record(
    data: ScoredRows, bench: Bench, path: Path, outcome: Outcome, line: pandas.Series, refusal: str | None
) -> dict[str, Any]:
    """Rule and thresholds, what stands behind them, and the judge; no thresholds where nothing was split."""
    usable = outcome.step is not None and refusal is None
    shares = [name for name in ("precision", "true_precision", "recall", "kept") if name in line]
    known = {
        name: [None if math.isnan(x) else float(x) for x in line[[name, f"{name}_low", f"{name}_high"]]]
        for name in shares
    }
    size, needed = np.bincount(bench.problem), outcome.labels_needed
    if usable and size.min() < size.max():  # what was tested counts each problem once, `precision` each trace
        part = np.flatnonzero(bench.parts["report"])
        part = part[one_a_problem(bench.problem[part], 0)]
        kept = bench.right[part[bench.steps[path.rule][part] <= outcome.step]]
        of_problems = Rate.of(int(kept.sum()), len(kept))
        shown = (of_problems.value, of_problems.low, of_problems.high)
        known["precision_by_problem"] = [None if math.isnan(x) else float(x) for x in shown]
    judge = data.judge or {}
    names = [judge["name"]] if judge.get("name") else data.judge_names
    return {
        "schema_version": 1,
        "cotkit_version": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **path.describe(outcome.step if usable else 0),
        **({} if usable else {"thresholds": None}),
        "certified": outcome.certified,
        "p_value": outcome.p_value if outcome.certified else None,
        "labels_needed": needed and (needed if needed > len(size) else 2 * len(size)),  # as `reason` says
        "report": known if usable else None,
        "n": {
            "rows": len(bench.right),
            "problems": len(size),
            "traces_a_problem": [int(size.min()), int(size.max())],
            "problems_of_equal_size": round(kish(size), 1),  # as many would be worth as much
            "tested": outcome.tested,
            "tested_kept": outcome.kept,
            "tested_wrong": outcome.wrong,
            "report_rows": int(bench.parts["report"].sum()),
        },
        "judge": {"names": names, "prompt_hashes": _prompt_hashes(judge), "description": data.judge},
        "data_hash": data.data_hash,
    }


def _prompt_hashes(described: Any) -> list[str]:
    """Of all prompts in a judge's description, at any depth."""
    if isinstance(described, Mapping):
        prompt = described.get("prompt")
        own = [prompt["hash"]] if isinstance(prompt, Mapping) and "hash" in prompt else []
        return own + [found for value in described.values() for found in _prompt_hashes(value)]
    nested = described if isinstance(described, (list, tuple)) else ()
    return [found for value in nested for found in _prompt_hashes(value)]
