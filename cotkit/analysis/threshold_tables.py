"""The tables of a ThresholdReport, each from the same arrays: what every score is worth, what every rule
buys, and how that changes with the iteration and the length of a trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis import calibration
from cotkit.analysis.agreement import agreement
from cotkit.analysis.certificate import Errors, conformal_holds, rogan_gladen
from cotkit.analysis.distillation import interval_columns
from cotkit.analysis.intervals import NAN, Auc, Rate, auc_interval, told
from cotkit.analysis.paths import Path, lay_path
from cotkit.analysis.scored_rows import SHARES, Audit, ScoredRows

if TYPE_CHECKING:
    import pandas

LEAST_BEST_OF = 20  # problems with several drafts, for a line on the best of them


@dataclass(frozen=True)
class Bench:
    """The tuned rows as arrays. `problem` holds codes from 0; `parts` masks of the splits ("outside" = not
    tune); `paths` what each rule laid on the tune split, `steps` the first step that keeps each row."""

    columns: list[str]
    scores: np.ndarray  # row by score
    right: np.ndarray
    problem: np.ndarray
    length: np.ndarray
    parts: dict[str, np.ndarray]
    paths: dict[str, Path]
    steps: dict[str, np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """What the tests said about one rule. `step` is the certified step, else the one picked by count on the
    tune split, else None; `tested`, `kept`, `wrong` count problems of the certify split."""

    step: int | None
    certified: bool
    p_value: float
    tested: int
    kept: int
    wrong: int
    best: tuple[int, int]  # right and kept rows of the tune split where most of the kept are right
    labels_needed: int | None


def data_card(data: ScoredRows, rows: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    tuned = rows[rows["tuned"]]
    right = Rate.of_grouped(tuned["right"].to_numpy(), tuned["problem"].to_numpy())
    lines = [("rows given", data.given)]
    lines += [(f"left out: {why}", count) for why, count in data.left_out.items() if count]
    lines += [(f"without {name}", count) for name, count in data.missing.items() if count]
    lines += [(name, count) for name, count in data.failures.items() if count]
    lines += [("person and verifier agree", str(data.audit.same))] if data.audit else []
    lines += [("left out: other iterations", len(rows) - len(tuned))] if len(rows) > len(tuned) else []
    lines += [("rows tuned on", len(tuned)), ("problems", tuned["problem"].nunique())]
    lines += [("right", f"{right.value:.2f} [{right.low:.2f}, {right.high:.2f}]")]
    for part in SHARES:
        inside = tuned[tuned["split"] == part]
        if len(inside):
            lines.append(
                (f"{part} split", f"{len(inside):,} rows of {inside['problem'].nunique():,} problems")
            )
    return pandas.DataFrame(lines, columns=["item", "value"], dtype=object)


def scores_table(bench: Bench, missing: Mapping[str, int]) -> pandas.DataFrame:
    import pandas

    lines = []
    for at, column in enumerate(bench.columns):
        values = bench.scores[:, at]
        counts = np.unique(values, return_counts=True)[1]
        found = auc_interval(values, bench.right, bench.problem)
        line = {"score": column, **interval_columns("auc", found)}
        line |= {"reading": _reading(found, len(counts)), "distinct": len(counts)}
        line |= {"ties": float(counts[counts > 1].sum() / len(values)), "missing": missing[column]}
        lines.append(line | {"lowest": float(values.min()), "highest": float(values.max())})
    return pandas.DataFrame(lines)


def _reading(found: Auc, distinct: int) -> str:
    if math.isnan(found.value):
        return "all rows have the same verdict"
    if distinct == 1:
        return "constant"
    words = ("ranks right above wrong", "ranks wrong above right", "not told from chance")
    return told(found.low, found.high, 0.5, *words)


def rules_table(
    bench: Bench,
    outcomes: Mapping[str, Outcome],
    chosen: str,
    costs: tuple[float, float],
    errors: Errors | None,
) -> pandas.DataFrame:
    import pandas

    part = bench.parts["report"]
    right, problem = bench.right[part], bench.problem[part]
    lines = []
    for name, outcome in outcomes.items():
        step = -1 if outcome.step is None else outcome.step
        kept = bench.steps[name][part] <= step
        line = {"rule": name, "chosen": name == chosen}
        line["threshold"] = "none" if step < 0 else bench.paths[name].in_words(step)
        precision = Rate.of_grouped(right[kept], problem[kept])
        line |= interval_columns("precision", precision)
        if errors is not None:
            behind = len(np.unique(problem[kept]))  # traces of a problem may be alike
            corrected = rogan_gladen(precision.value, behind, errors) if behind else (NAN,) * 3
            line |= interval_columns("true_precision", Rate(0, behind, *corrected))
        line |= interval_columns("recall", Rate.of_grouped(kept[right], problem[right]))
        line |= interval_columns("kept", Rate.of_grouped(kept, problem)) | {"kept_n": int(kept.sum())}
        wrong_kept, right_lost = (kept & ~right).sum(), (right & ~kept).sum()
        line["cost_per_1000"] = 1000 * (costs[0] * wrong_kept + costs[1] * right_lost) / len(right)
        tested = (
            (outcome.certified, outcome.p_value) if name == chosen else (None, NAN)
        )  # six are six chances
        lines.append(line | dict(zip(("certified", "p_value"), tested, strict=True)))
    return pandas.DataFrame(lines)


def unlabelled(
    data: ScoredRows, bench: Bench, path: Path, step: int | None, iteration: int | None
) -> dict[str, Any]:
    """How many scored rows have no verdict, by thirds of the mean rank of the scores (low to high, as
    [without a verdict, all]): where these differ, verdicts are not missing by chance. And the precision if
    all of them that the threshold keeps were wrong."""
    import pandas

    without = data.unlabelled
    without = without[without["iteration"].eq(iteration)] if iteration is not None else without
    scores = np.vstack([bench.scores, without[data.columns].to_numpy(float)])
    missing = np.arange(len(scores)) >= len(bench.scores)
    rank = pandas.DataFrame(scores).rank().mean(axis=1).rank(pct=True)
    third = (np.ceil(3 * rank.to_numpy()) - 1).astype(int)
    kept = path.step_of(scores) <= (-1 if step is None else step)
    right = int((kept[~missing] & bench.right).sum())
    return {
        "rows": int(missing.sum()),
        "of": len(scores),
        "by_score_third": [[int(missing[third == at].sum()), int((third == at).sum())] for at in range(3)],
        "precision_if_wrong": right / int(kept.sum()) if kept.any() else None,
    }


def certificate_table(
    bench: Bench, path: Path, outcome: Outcome, picks: np.ndarray, record: dict[str, Any]
) -> pandas.DataFrame:
    """The precision of the chosen rule, and along its path the two losses conformal risk control can bound,
    each at the level 1 - target; not where the verifier's errors are given, which those bounds leave out.
    `picks`: the rows tested, none where nothing was split."""
    import pandas

    target, level = (f"{100 * x:.3g} %" for x in (record["target_precision"], 1 - record["target_precision"]))
    threshold = "none" if outcome.step is None else path.in_words(outcome.step)
    first = (f"at least {target} of the kept are right", threshold, outcome.certified, outcome.p_value)
    lines = [(*first, outcome.kept, record["reason"])]
    step, right = bench.steps[path.rule][picks], bench.right[picks]
    wrong_kept = calibration.counts_along(step, ~right, len(path))
    right_lost = right.sum() - calibration.counts_along(step, right, len(path))
    losses = (
        (f"at most {level} of all traces are kept and wrong", wrong_kept, len(picks), -1),
        (f"at most {level} of the right traces are lost", right_lost, int(right.sum()), 0),
    )
    for guarantee, lost, n, end in () if record["verifier_errors"] else losses:
        holds = np.flatnonzero(conformal_holds(lost, n, 1 - record["target_precision"]))
        if n and len(holds):
            at = holds[end]
            counted = f"{int(lost[at]):,} of {n:,} in the certify split"
            lines.append((guarantee, path.in_words(at), True, NAN, n, counted))
        else:
            why = "no threshold on the path gives that" if n else "not tested"
            lines.append((guarantee, "none", False, NAN, n, why))
    return pandas.DataFrame(lines, columns=["guarantee", "threshold", "holds", "p_value", "n", "reading"])


def curves(
    bench: Bench,
    outcomes: Mapping[str, Outcome],
    chosen: str,
    costs: tuple[float, float],
    resamples: int,
) -> pandas.DataFrame:
    import pandas

    part = bench.parts["outside"]
    right, problem = bench.right[part], np.unique(bench.problem[part], return_inverse=True)[1]
    tables = []
    for name, path in bench.paths.items():
        step, picked = bench.steps[name][part], outcomes[name].step
        table = calibration.curve(step, right, problem, len(path), costs=costs, resamples=resamples)
        found = auc_interval(-step, right, problem) if name == chosen else Auc(NAN, NAN, NAN, 0, 0)
        single = path.thresholds[:, 0] if path.thresholds.shape[1] == 1 else NAN
        first = {"rule": name, "chosen": name == chosen, "picked": table["step"].eq(picked)}
        first |= {"value": single, "threshold": [path.in_words(at) for at in range(len(path))]}
        first |= interval_columns("auc", found) | {"certified": outcomes[name].certified and name == chosen}
        tables.append(pandas.DataFrame(first, table.index).join(table))
    return pandas.concat(tables, ignore_index=True)


def reliability_table(bench: Bench) -> pandas.DataFrame:
    """Every score, and their mean where there are several."""
    import pandas

    tune, outside, right = bench.parts["tune"], bench.parts["outside"], bench.right
    named = {column: bench.scores[:, at] for at, column in enumerate(bench.columns)}
    if len(named) > 1:
        named["mean of the scores"] = bench.scores.mean(axis=1)
    tables = {}
    for name, values in named.items():
        others = values[outside], right[outside], bench.problem[outside]
        tables[name] = calibration.reliability(values[tune], right[tune], *others, held_out=not tune.all())
    return pandas.concat(tables, names=["score"]).reset_index("score").reset_index(drop=True)


def by_iteration(
    rows: pandas.DataFrame, columns: list[str], path: Path, step: int | None
) -> pandas.DataFrame:
    """Traces of each iteration at one threshold, outside the tune split; then, where problems have several
    traces of the tuned iteration, the best scored of each (the strictest step) beside a trace as drawn: one
    a problem, right by the share of those tied for the best."""
    import pandas

    outside = rows[rows["split"] != "tune"]
    first = path.step_of(outside[columns].to_numpy(float))
    outside = outside.assign(first=first, kept=first <= (-1 if step is None else step))
    groups = [(f"iteration {at}", bool(g["tuned"].any()), g) for at, g in outside.groupby("iteration")]
    tuned = outside[outside["tuned"]]
    several = tuned[tuned.groupby("problem")["problem"].transform("size") > 1]
    if several["problem"].nunique() >= LEAST_BEST_OF:
        most = int(several["problem"].value_counts().max())
        best = several[several["first"] == several.groupby("problem")["first"].transform("min")]
        best = best.groupby("problem", as_index=False)[["kept", "right"]].mean()  # tied drafts count alike
        best["kept"] = best["kept"] == 1
        groups.append((f"best scored of {most} drafts", False, best))
    lines = []
    for name, is_tuned, group in groups:
        kept, right, problem = (group[c].to_numpy() for c in ("kept", "right", "problem"))
        line = {"traces": name, "tuned": is_tuned, "n": len(group)}
        line |= interval_columns("precision", Rate.of_grouped(right[kept], problem[kept]))
        line |= interval_columns("kept", Rate.of_grouped(kept, problem))
        lines.append(line | interval_columns("right", Rate.of_grouped(right, problem)))
    return pandas.DataFrame(lines)


def agreement_table(bench: Bench, resamples: int, audit: Audit | None) -> pandas.DataFrame:
    """Decisions cut each score where it separates right from wrong best on the tune split (Youden's J). The
    last line is of a person and the verifier, where both decided some traces."""
    import pandas

    tune, outside = bench.parts["tune"], bench.parts["outside"]
    right, cuts = bench.right[tune], {}
    for at, column in enumerate(bench.columns):
        path = lay_path("all", bench.scores[tune][:, [at]], right, (column,))
        step = path.step_of(bench.scores[tune][:, [at]])
        kept, hits = (calibration.counts_along(step, w, len(path)) for w in (np.ones(len(right)), right))
        gain = hits / max(right.sum(), 1) - (kept - hits) / max((~right).sum(), 1)
        cuts[column] = float(path.thresholds[np.argmax(gain), 0])
    named = {column: bench.scores[outside, at] for at, column in enumerate(bench.columns)}
    problem = np.unique(bench.problem[outside], return_inverse=True)[1]
    found = agreement(named, cuts, bench.right[outside], problem, resamples=min(resamples, 200))
    if audit is None:
        return found
    line = {"first": "person", "second": "verifier", "measure": "same verdict", "n": audit.same.n}
    return pandas.concat([found, pandas.DataFrame([line | interval_columns("value", audit.same)])])


def length_table(bench: Bench) -> pandas.DataFrame:
    import pandas

    lines, known = [], ~np.isnan(bench.length)
    problem = np.unique(bench.problem[known], return_inverse=True)[1]
    for at, column in enumerate(bench.columns if known.any() else ()):
        against = bench.length[known], bench.right[known], problem
        slope = calibration.length_slope(bench.scores[known, at], *against)
        lines.append((column, *slope, int(known.sum())))
    return pandas.DataFrame(lines, columns=["score", "slope", "slope_low", "slope_high", "n"])


def threshold_grid(rows: pandas.DataFrame, first: str, second: str, levels: int = 11) -> pandas.DataFrame:
    """Precision when both scores must reach a threshold: one line a pair of thresholds (at most `levels` of
    each score), with kept, right, precision and interval. `rows` are those of a ThresholdReport."""
    import pandas

    tuned = rows[rows["tuned"]]
    right, problem = tuned["right"].to_numpy(), tuned["problem"].to_numpy()
    cuts = {}
    for column in (first, second):
        distinct = np.unique(tuned[column])
        spread = np.quantile(tuned[column], np.linspace(0, 1, levels), method="lower")
        cuts[column] = distinct if len(distinct) <= levels else np.unique(spread)
    lines = []
    for a in cuts[first]:
        for b in cuts[second]:
            kept = ((tuned[first] >= a) & (tuned[second] >= b)).to_numpy()
            found = Rate.of_grouped(right[kept], problem[kept])
            lines.append({first: a, second: b, "n": found.n, **interval_columns("precision", found)})
    return pandas.DataFrame(lines)
