"""What a judge does besides ranking right above wrong, computed from its scorings.

noise            the same trace scored again: standard deviation within a trace
probes           words added that make no trace better: how far the score moves
leniency         mean score minus the share of traces that is right, of scores on 0..1
granularity      how evenly it uses how many values: entropy in bits
length           how much a score rises when the trace doubles in length, at equal verdict
self-preference  how much better it scores its own model's traces than others', at equal verdict

Noise and probes come from the traces that `diagnose_judge` froze and scored anew; the others from the scores
of this judge that the rows hold, else from the frozen traces. A judge that scores one trace at a time has no
first and second place to prefer; positions.py asks its model about two.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.calibration import length_slope
from cotkit.analysis.candidates import own_candidates
from cotkit.analysis.intervals import NAN, Rate, mean_interval, told
from cotkit.analysis.scored_sources import problem_keys
from cotkit.records import Candidate, Judgement, Row
from cotkit.runs import Run
from cotkit.shown import Shown, mended, mended_frame

if TYPE_CHECKING:
    import pandas

MEAN = "mean"  # of a judge's dimensions
LEAST_EACH = 5  # traces of own and of other models with one verdict, for self-preference
_OF_TRACE = ["trace", "problem", "model", "correct", "characters"]
_SCORING = [*_OF_TRACE, "probe", "repeat", "dimension", "score"]
_TRAIT = ["measure", "dimension", "value", "value_low", "value_high", "n", "reading"]


@dataclass(frozen=True)
class JudgeDiagnosis(Shown):
    """What `diagnose_judge` found. In every table `x` has its interval beside it as `x_low`, `x_high`.

    scorings  one line a scoring and dimension: trace, problem, model, correct, characters, probe ("" = the
              trace as it is), repeat, dimension, score (nan where the judge failed)
    traits    one line a measure and dimension: measure, dimension, value, n, reading
    probes    one line a probe and dimension: shift (mean change of the score), raised (share of the traces
              that score higher), n, failed
    failed    share of the scorings in which the judge failed; they are in no mean
    missing   what was not scored, and why; "" = nothing
    """

    judge: str
    scorings: pandas.DataFrame
    traits: pandas.DataFrame
    probes: pandas.DataFrame
    failed: Rate
    missing: str = ""

    @classmethod
    def of(
        cls, judge: str, models: Collection[str], run: Run, rows: Sequence[Row], scored_by: Sequence[bool]
    ) -> JudgeDiagnosis:
        """From the run of a diagnosis and the rows it was made on; `models`: the names of the judge's own;
        `scored_by`: whether the scores under its name in a row are its own."""
        import pandas

        judge, models = mended(judge), list(map(mended, models))  # as they stand in the tables
        lines = [line for row in run.records() if row.candidates for line in _scorings(row)]
        scorings = mended_frame(lines, _SCORING).astype({"score": float, "correct": object})
        scored = judge_scores(rows)
        mine = scored["row"].map(dict(enumerate(scored_by))).astype(bool)
        own = scored[(scored["judge"] == judge) & mine]
        if own["score"].notna().sum() == 0:
            own = scorings[(scorings["probe"] == "") & (scorings["repeat"] == 0)]
        others = scored[(scored["judge"] != judge) & (scored["dimension"] == MEAN)]
        found = [*noise(scorings), *score_traits(own), *self_preference(own, others, models)]
        failed = Rate.of_flags(scorings.loc[scorings["dimension"] == MEAN, "score"].isna())
        missing = unfinished(run, scorings["trace"].nunique(), "traces")
        traits = pandas.DataFrame(found, columns=_TRAIT)
        return cls(judge, scorings, traits, probe_shifts(scorings), failed, missing)

    def findings(self) -> list[str]:
        """What the tables say, in sentences with counts and intervals."""
        return list(_findings(self))

    def shown(self) -> dict[str, Any]:
        return {"judge": self.judge, "findings": self.findings()}

    def __repr__(self) -> str:
        n, probes = self.scorings["trace"].nunique(), self.probes["probe"].nunique()
        return f"JudgeDiagnosis({self.judge!r}: {n} traces, {probes} probes)"


def unfinished(run: Run, done: int, things: str) -> str:
    """What a diagnosis did not come to, and why; "" = nothing."""
    given, stopped = run.report["given"], run.report["stopped"]
    why = f" ({stopped})" if stopped else ""
    return f"{given - done:,} of {given:,} {things} were not judged{why}" if done < given else ""


def _scorings(row: Row) -> Iterator[dict[str, Any]]:
    (candidate,) = row.candidates
    known = _of_trace(row.id, row.metadata["problem_id"], candidate)
    for scoring in row.metadata["scorings"]:
        for dimension, score in _with_mean(scoring["scores"]).items():
            form = {"probe": scoring["probe"], "repeat": scoring["repeat"]}
            yield known | form | {"dimension": dimension, "score": score}


def _of_trace(trace: str, problem: str, candidate: Candidate) -> dict[str, Any]:
    values = (candidate.call.get("model"), candidate.verdict.correct, len(candidate.trace))
    return dict(zip(_OF_TRACE, (trace, problem, *values), strict=True))


def _with_mean(scores: dict[str, float] | None) -> dict[str, float]:
    """The mean (nan where the judge failed), then each dimension where there are several."""
    if not scores:
        return {MEAN: NAN}
    return {MEAN: sum(scores.values()) / len(scores)} | (scores if len(scores) > 1 else {})


def judge_scores(rows: Sequence[Row]) -> pandas.DataFrame:
    """One line a trace, judge and dimension ("mean" among them): the members of a panel each for itself.
    `problem` is the id, or the text where ids are not unique; `row` the place in `rows`."""
    keys = problem_keys((row.id, row.problem) for row in rows)
    lines = [
        _of_trace(f"{at}: {row.id}, trace {number}", keys[at], candidate)
        | {"judge": judgement.judge, "dimension": dimension, "score": score}
        | {"row": at, "iteration": candidate.iteration}
        for at, row in enumerate(rows)
        for number, candidate in enumerate(own_candidates(row))
        for judgement in _judgements(candidate.judgement)
        for dimension, score in _with_mean(judgement.scores).items()
    ]
    columns = [*_OF_TRACE, "judge", "dimension", "score", "row", "iteration"]
    return mended_frame(lines, columns).astype({"score": float, "correct": object})


def _judgements(given: Judgement | None) -> list[Judgement]:
    if given is None:
        return []
    members = given.raw.values() if isinstance(given.raw, dict) else ()
    return [given, *(Judgement(**m) for m in members if isinstance(m, dict) and "saw_reference" in m)]


def noise(scorings: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """Standard deviation of a trace's scores when it is scored again, over traces scored twice or more."""
    plain = scorings[(scorings["probe"] == "") & scorings["score"].notna()]
    for dimension, group in plain.groupby("dimension", sort=False):
        each = group.groupby("trace").agg(variance=("score", "var"), problem=("problem", "first")).dropna()
        if each.empty:
            continue
        variances = each["variance"].to_numpy()
        interval = mean_interval(variances, each["problem"].to_numpy())
        same = f"{(variances < 1e-18).sum():,} of {len(each):,} traces scored alike every time"
        found = (math.sqrt(max(x, 0.0)) for x in (variances.mean(), *interval))
        yield _trait("noise (standard deviation)", dimension, *found, len(each), same)


def score_traits(scored: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """Granularity of all scores, leniency and length bias of those of traces with a verdict, by dimension.
    No leniency of scores beyond 0..1: what a raw reward differs from a share by is no number."""
    for dimension, group in scored[scored["score"].notna()].groupby("dimension", sort=False):
        shares = group["score"].round(2).value_counts(normalize=True)
        bits = float(-(shares * np.log2(shares)).sum()) + 0.0  # no negative zero
        used = f"{len(shares):,} values; {100 * shares.iloc[0]:.0f} % of the scores are {shares.index[0]:g}"
        yield _trait("granularity (entropy, bits)", dimension, bits, NAN, NAN, len(group), used)
        known = group[group["correct"].notna()]
        if known.empty:
            continue
        score, right = known["score"].to_numpy(), known["correct"].to_numpy(bool)
        if score.min() >= 0 and score.max() <= 1:
            gap = score - right
            means = f"mean score {score.mean():.2f}, {100 * right.mean():.0f} % right"
            interval = mean_interval(gap, known["problem"])
            yield _trait("leniency", dimension, gap.mean(), *interval, len(known), means)
        slope = length_slope(score, known["characters"].to_numpy(float), right, _codes(known["problem"]))
        yield _trait("length (score a doubling)", dimension, *slope, len(known), _sign(slope))


def self_preference(
    own: pandas.DataFrame, others: pandas.DataFrame, models: Collection[str]
) -> Iterator[dict[str, Any]]:
    """How much better a judge scores traces of its own `models` than those of others, at equal verdict.

    `own` and `others`: scores (`judge_scores`) by this judge and by others. Where others scored the same
    traces it is the interaction of judge and generator: what this judge gives beyond what they give. With one
    judge alone, preference and better argument cannot be told apart, and the reading says so. Nothing unless
    own and other models have traces with the same verdict.
    """
    own = own[(own["dimension"] == MEAN) & own["score"].notna() & own["correct"].notna()]
    own = own[own["model"].notna()]
    is_own = own["model"].isin(models)
    cells = own.groupby([is_own, own["correct"].astype(bool)]).size().unstack(fill_value=0)
    if len(cells) < 2 or cells.min().max() < LEAST_EACH:
        return
    beyond = own["score"] - own["trace"].map(others.groupby("trace")["score"].mean())
    compared = beyond.notna().all()
    score = (beyond if compared else own["score"]).to_numpy(float)
    length = np.where(is_own, 2.0, 1.0)  # the slope a doubling is then that from others' traces to its own
    found = length_slope(score, length, own["correct"].to_numpy(bool), _codes(own["problem"]))
    how = "beyond what the other judges give" if compared else "one judge alone: may be better argument"
    yield _trait("self-preference", MEAN, *found, len(own), f"{_sign(found)}, {how}")


def probe_shifts(scorings: pandas.DataFrame) -> pandas.DataFrame:
    """One line a probe and dimension: how the score changes against the same trace as it is (the mean of its
    scorings). Bonferroni's intervals: they hold together at 95 %, so the largest shift is no mere accident.
    """
    import pandas

    plain, probed = scorings[scorings["probe"] == ""], scorings[scorings["probe"] != ""]
    base = plain.groupby(["trace", "dimension"])["score"].mean()
    confidence = 1 - 0.05 / max(probed["probe"].nunique(), 1)
    lines = []
    for (probe, dimension), group in probed.groupby(["probe", "dimension"], sort=False):
        keys = pandas.MultiIndex.from_frame(group[["trace", "dimension"]])
        shift = group["score"].to_numpy() - base.reindex(keys).to_numpy()
        known = ~np.isnan(shift)
        shift, problems = shift[known], group["problem"][known]
        low, high = mean_interval(shift, problems, confidence)
        raised = Rate.of_grouped(shift > 1e-9, problems.to_numpy())
        line = (probe, dimension, shift.mean() if len(shift) else NAN, low, high)
        lines.append((*line, raised.value, raised.low, raised.high, len(shift), int((~known).sum())))
    columns = ["probe", "dimension", "shift", "shift_low", "shift_high"]
    columns += ["raised", "raised_low", "raised_high", "n", "failed"]
    return pandas.DataFrame(lines, columns=columns)


def _trait(*values: Any) -> dict[str, Any]:
    return dict(zip(_TRAIT, values, strict=True))


def _codes(problems: pandas.Series) -> np.ndarray:
    return np.unique(problems.to_numpy(str), return_inverse=True)[1]


def _sign(found: tuple[float, float, float]) -> str:
    _, low, high = found
    if math.isnan(low):
        return "not known"
    return told(low, high, 0, "upward", "downward", "not told from none")


_SENTENCES = {
    "noise (standard deviation)": "Scored again, a trace's score varies by {value:.3f} {interval} (standard "
    "deviation; {reading}).",
    "granularity (entropy, bits)": "Its scores carry {value:.1f} bits at most ({reading}).",
    "leniency": "Leniency: {reading}, a difference of {value:+.2f} {interval} (n = {n:,}).",
    "length (score a doubling)": "A trace twice as long scores {value:+.3f} {interval} at equal verdict: "
    "{reading} (n = {n:,}).",
    "self-preference": "It scores its own model's traces {value:+.3f} {interval} against others' at equal "
    "verdict: {reading} (n = {n:,}).",
}


def _findings(found: JudgeDiagnosis) -> Iterator[str]:
    if found.missing:
        yield f"The diagnosis is not complete: {found.missing}."
    if found.failed.successes:
        yield f"The judge failed in {found.failed.in_words('scorings')}: they are in no mean."
    traits = found.traits[(found.traits["dimension"] == MEAN) & found.traits["value"].notna()]
    for trait in traits.round(3).replace(-0.0, 0.0).to_dict("records"):
        low, high = trait["value_low"], trait["value_high"]
        interval = "(no interval)" if math.isnan(low) else f"[{low:.3f} to {high:.3f}]"
        yield _SENTENCES[trait["measure"]].format(interval=interval, **trait)
    probes = found.probes[(found.probes["dimension"] == MEAN) & found.probes["shift"].notna()]
    probes = probes.sort_values("shift", ascending=False)
    lifted = probes[probes["shift_low"] > 0]
    if len(probes) and not probes["raised"].any():
        yield f"No probe lifts the score of any of the {probes['n'].max():,} traces."
        return
    for line in (lifted if len(lifted) else probes.head(1)).itertuples():
        words = f"{line.shift:+.3f} [{line.shift_low:+.3f} to {line.shift_high:+.3f}], higher on "
        words += f"{100 * line.raised:.0f} % of {line.n:,} traces"
        if len(lifted):
            yield f"The judge is fooled by the probe {line.probe!r}: it moves the score by {words}."
        else:
            yield f"No probe is shown to lift the score; the largest shift is {line.probe!r}, {words}."
