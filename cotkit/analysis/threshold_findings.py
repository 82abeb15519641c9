"""What a ThresholdReport shows, in sentences: each with its counts, and no surer than its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cotkit.analysis.threshold_tables import Outcome
    from cotkit.analysis.tuning import ThresholdReport

LEAST_WORTH = 30  # problems of equal size; with fewer, intervals over traces are too narrow
MANY_UNLABELLED = 0.02  # share of the scored rows without a verdict that is worth a sentence


def reason(
    record: dict[str, Any], words: str, outcome: Outcome, tested_target: float, refusal: str | None
) -> str:
    """The certificate in words: what is certified, or why it is not and what it would take.
    `tested_target` is by the verifier's labels, above the target where the verifier errs."""
    n, target, delta = record["n"], _percent(record["target_precision"]), _percent(record["delta"])
    if outcome.certified:
        errors = ", the verifier's own errors counted in" if record["verifier_errors"] else ""
        counts = f"{outcome.wrong:,} of {outcome.kept:,} kept were wrong among {outcome.tested:,} problems"
        each = "" if n["traces_a_problem"][1] == 1 else ", each problem counted once"
        return (
            f"certified: at least {target} of the traces with {words} are right{each} (such a certificate "
            f"fails with chance {delta} at most{errors}; {counts} tested, p = {outcome.p_value:.2g})"
        )
    text = f"not certifiable with n = {n['problems']:,} labelled problems ({n['rows']:,} rows): "
    if refusal:
        return text + refusal
    right, kept = outcome.best
    if outcome.step is None:
        aim = f"{_percent(tested_target)} by the verifier" if record["verifier_errors"] else target
        return (
            f"{text}no threshold reached {aim} in the tune split (at best {right:,} of {kept:,} kept traces "
            "were right); more labels may or may not show one"
        )
    if outcome.labels_needed is None:
        return (
            f"{text}the tune split ({right:,} of {kept:,} kept right at best) is too near the target to "
            "say how many are needed"
        )
    needed = float(f"{outcome.labels_needed:.2g}")
    if outcome.labels_needed <= n["problems"]:
        return (
            f"{text}about {needed:,.0f} should have been enough by the tune split, so one of the two splits "
            "was drawn by luck; as many labelled problems again may show which"
        )
    return f"{text}about {needed:,.0f} labelled problems needed, by an estimate from the tune split"


def threshold_findings(report: ThresholdReport) -> list[str]:
    record = report.record
    chosen = report.rules.set_index("rule").loc[record["rule"]]
    said = [f"{record['reason'][0].upper()}{record['reason'][1:]}."]
    if record["thresholds"] is not None:
        how = "" if report.certified else ", picked by count on the tune split and not certified"
        said.append(
            f"On the {record['n']['report_rows']:,} traces of the report split the rule {record['rule']} "
            f"({chosen['threshold']}{how}) keeps {_share(chosen, 'kept')} and finds "
            f"{_share(chosen, 'recall')} of the right ones; {_share(chosen, 'precision')} of what it keeps "
            "is right."
        )
        if not math.isnan(chosen.get("true_precision", math.nan)):
            said.append(f"With the verifier's errors taken out: {_share(chosen, 'true_precision')}.")
    return [
        *said,
        *_units(record),
        *_unlabelled(record),
        *_audit(record),
        *(f"{n:,} {item}." for item, n in report.data_card.itertuples(index=False) if "labels " in item),
        *_scores(report),
        *_calibrated(report),
        *_iterations(report),
        *_lengths(report),
    ]


def _units(record: dict[str, Any]) -> Iterator[str]:
    few, many = record["n"]["traces_a_problem"]
    worth = record["n"]["problems_of_equal_size"]
    if many > few and worth < LEAST_WORTH:
        yield (
            f"A few problems hold most traces ({many:,} of {record['n']['rows']:,} belong to one): all are "
            f"worth {worth:g} problems of equal size, and no interval over them is to be trusted."
        )
    found = (record["report"] or {}).get("precision_by_problem")
    if found and found[0] is not None:
        by_trace = dict(zip(("x", "x_low", "x_high"), record["report"]["precision"], strict=True))
        by_problem = dict(zip(("x", "x_low", "x_high"), found, strict=True))
        missed = by_trace["x_high"] < record["target_precision"]
        yield (
            f"Problems have {few:,} to {many:,} traces, and what is certified counts each problem once: on "
            f"the report split {_share(by_problem, 'x')} of the kept are right with one trace a problem, "
            f"{_share(by_trace, 'x')} when every trace counts{', below the target' if missed else ''}."
        )


def _unlabelled(record: dict[str, Any]) -> Iterator[str]:
    without = record["unlabelled"]
    if without["rows"] > MANY_UNLABELLED * without["of"]:
        thirds = ", ".join(_percent(a / max(b, 1)) for a, b in without["by_score_third"])
        lowest = without["precision_if_wrong"]
        at_worst = (
            f" Were all of them that are kept wrong, {_percent(lowest)} would be right." if lowest else ""
        )
        yield (
            f"{without['rows']:,} of {without['of']:,} scored traces have no verdict, and no certificate "
            f"speaks for them (of the lowest, middle and highest third of scores: {thirds}).{at_worst}"
        )


def _audit(record: dict[str, Any]) -> Iterator[str]:
    if audit := record["audit"]:
        kappa = "" if audit["kappa"] is None else f", kappa {audit['kappa']:.2f}"
        yield f"A person and the verifier give the same verdict on {audit['same']}{kappa}."
        errors = {name: tuple(audit[name]) for name in ("false_accept", "false_reject")}
        if lacking := [name for name, (_, n) in errors.items() if not n]:
            word = "wrong" if "false_accept" in lacking else "right"
            yield f"It is no audit yet: the person calls none of these traces {word}."
        elif record["label"] != "person":
            yield f"As an audit of the verifier that is verifier_errors={errors}."


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _share(line: Mapping[str, Any], name: str) -> str:
    if math.isnan(line[name]):
        return "none"
    low, high = 100 * line[f"{name}_low"], 100 * line[f"{name}_high"]
    return f"{100 * line[name]:.0f} % [{low:.0f} to {high:.0f} %]"


def _scores(report: ThresholdReport) -> Iterator[str]:
    for line in report.scores.itertuples():
        auc = f"AUC {line.auc:.2f}, 95 % interval {line.auc_low:.2f} to {line.auc_high:.2f}"
        if line.reading == "not told from chance":
            yield f"{line.score} is not shown to tell right from wrong ({auc}; 0.5 is a coin)."
        elif line.reading == "constant":
            yield f"{line.score} is the same on every row: it tells nothing."
        elif not math.isnan(line.auc):
            yield f"{line.score} {line.reading} ({auc})."
    if (missing := report.scores["missing"].max()) > len(report.rows) / 5:
        yield (
            f"{missing:,} rows have no score. Where the verifier chose what the judge was shown, all of this "
            "is biased: distill(judge_all=True) has every draft judged."
        )


def _calibrated(report: ThresholdReport) -> Iterator[str]:
    """Of the last score: the mean, where there are several."""
    table = report.reliability[report.reliability["score"] == report.reliability["score"].iloc[-1]]
    found = table.groupby("calibration", sort=False)[["brier", "ece", "base_brier"]].first()
    best, base = found["brier"].idxmin(), found["base_brier"].iloc[0]
    worth = "better than" if found["brier"][best] < base else "no better than"
    yield (
        f"As a probability, {table['score'].iloc[0]} has a Brier score of {found['brier']['raw']:.3f} and an "
        f"ECE of {found['ece']['raw']:.3f} as given; the best calibration ({best}) has a Brier score of "
        f"{found['brier'][best]:.3f}, {worth} the base rate alone ({base:.3f})."
    )


def _iterations(report: ThresholdReport) -> Iterator[str]:
    lines = report.by_iteration.dropna(subset="precision").to_dict("records")
    tuned = next((line for line in lines if line["tuned"]), None)
    for line in lines:
        if tuned and not line["tuned"]:
            lower = line["precision_high"] < tuned["precision_low"]
            yield (
                f"At the same threshold {_share(line, 'precision')} of the kept are right for "
                f"{line['traces']}, against {_share(tuned, 'precision')} of the traces it was tuned on"
                f"{': what holds for those does not hold here' if lower else ''}."
            )


def _lengths(report: ThresholdReport) -> Iterator[str]:
    for line in report.length.itertuples():
        if line.slope_low > 0 or line.slope_high < 0:
            slope = f"{line.slope:+.3f} [{line.slope_low:+.3f} to {line.slope_high:+.3f}]"
            yield (
                f"{line.score} changes by {slope} when a trace is twice as long, at equal verdict "
                f"(n = {line.n:,})."
            )
