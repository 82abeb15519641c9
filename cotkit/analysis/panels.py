"""What several judges are worth together: their median, minimum, majority, and weights learned from verdicts.

Weights are learned on the tune split of a ThresholdReport; what they are worth is counted on the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.diagnosis import MEAN, judge_scores
from cotkit.analysis.intervals import NAN, auc_interval
from cotkit.analysis.paths import lay_path
from cotkit.records import Row
from cotkit.shown import mended

if TYPE_CHECKING:
    import pandas

    from cotkit.analysis.tuning import ThresholdReport

_COLUMNS = ["way", "auc", "auc_low", "auc_high", "n", "weights"]


def panel_weights(
    rows: Sequence[Row],
    judges: Sequence[str],
    problems: Collection[str] | None = None,
    iteration: int | None = 0,
) -> dict[str, float]:
    """Weights for `JudgePanel(rule="mean", weights=...)` that add up to 1: those of a logistic regression of
    the verdict on the judges' mean scores; a judge that would count against itself gets 0.

    `judges`: their names in the rows. `problems`: the ids of the tune split (None = all); thresholds must be
    certified on others. `iteration`: of the traces, as for `tune_thresholds`. Raises ValueError where there
    are fewer than 10 right or 10 wrong traces that all judges scored, or where no judge ranks right above
    wrong.
    """
    table = panel_scores(rows, iteration)
    known = None if problems is None else list(map(mended, problems))
    return _weights(table if known is None else table[table["id"].isin(known)], judges)


def panel_scores(rows: Sequence[Row], iteration: int | None = 0) -> pandas.DataFrame:
    """One line a trace of this iteration (0 = first drafts; None = all) with a verdict: id, correct, and the
    mean score of each member of the panel (missing where that member failed); for `describe_scores`, which
    tells how far the members agree."""
    scored = judge_scores(rows)
    scored = scored if iteration is None else scored[scored["iteration"] == iteration]
    panel = {mended(c.judgement.judge) for row in rows for c in row.candidates if c.judgement}
    scored = scored[(scored["dimension"] == MEAN) & scored["correct"].notna() & ~scored["judge"].isin(panel)]
    names = list(dict.fromkeys(scored["judge"]))
    table = scored.pivot_table("score", "trace", "judge").reindex(columns=names)
    known = scored.groupby("trace")[["problem", "correct"]].first().reindex(table.index)
    table.insert(0, "id", known["problem"])
    table.insert(1, "correct", known["correct"].astype(bool))
    return table.reset_index(drop=True)


def panel_table(report: ThresholdReport, rows: Sequence[Row] = ()) -> pandas.DataFrame:
    """One line a way to make one score of several: each judge alone, median, min, majority, mean, and learned
    weights; auc with interval on the n traces outside the tune split, on which the weights are learned.

    The judges are the members of the panel that scored `rows` (their mean scores of traces of the iteration
    that was tuned on), else the scores of the report of a file, if they lie on 0..1. No line where there is
    one judge only, or where rows of a run were not grouped by "id": its tune split is then none of problems.
    """
    import pandas

    tuned_on = report.record["valid_for"]["iteration"] or []
    table = panel_scores(rows, tuned_on[0] if len(tuned_on) == 1 else None).dropna()
    judges = list(table.columns[2:])
    if rows and report.record["group"] != "id":
        return pandas.DataFrame(columns=_COLUMNS)
    if not rows:
        table, judges = report.rows[report.rows["tuned"]], list(report.scores["score"])
        table = table.rename(columns={"right": "correct"})
        judges = judges if table[judges].stack().between(0, 1).all() else []
    tune = set(report.rows.loc[report.rows["split"] == "tune", "id"])
    apart = table[~table["id"].isin(tune)]
    if len(judges) < 2 or apart.empty:
        return pandas.DataFrame(columns=_COLUMNS)
    scores = apart[judges].to_numpy(float)
    lower_median = np.sort(scores, axis=1)[:, (len(judges) - 1) // 2]
    ways = dict(zip(judges, scores.T, strict=True)) | {"median": np.median(scores, axis=1)}
    ways |= {"majority": lower_median, "min": scores.min(axis=1), "mean": scores.mean(axis=1)}
    lines = [(way, *_auc(values, apart), "") for way, values in ways.items()]
    try:
        weights = _weights(table[table["id"].isin(tune)], judges)
    except ValueError as error:
        lines.append(("learned weights", NAN, NAN, NAN, len(apart), str(error)))
    else:
        said = ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
        lines.append(("learned weights", *_auc(scores @ np.array(list(weights.values())), apart), said))
    return pandas.DataFrame(lines, columns=_COLUMNS)


def _auc(values: np.ndarray, table: pandas.DataFrame) -> tuple[float, float, float, int]:
    found = auc_interval(values, table["correct"], table["id"])
    return found.value, found.low, found.high, len(table)


def _weights(table: pandas.DataFrame, judges: Sequence[str]) -> dict[str, float]:
    table = table.reindex(columns=["correct", *judges]).dropna()
    right = table["correct"].to_numpy(bool)
    path = lay_path("logistic", table[list(judges)].to_numpy(float), right, tuple(judges))
    if path is None:
        counts = f"{right.sum()} right and {(~right).sum()} wrong traces"
        raise ValueError(f"{counts} were scored by all of {list(judges)}: weights need 10 of each")
    weights = np.maximum(path.weights, 0.0)
    if not weights.any():
        raise ValueError("no judge ranks right above wrong traces: there is nothing to weigh")
    return dict(zip(judges, (weights / weights.sum()).tolist(), strict=True))
