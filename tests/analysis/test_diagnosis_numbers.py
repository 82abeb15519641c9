"""The numbers of a judge's diagnosis, on scores whose bias is known."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest
from scored import scored as threshold_rows
from synthetic_rows import candidate, row

from cotkit.analysis import (
    auc,
    candidates_frame,
    describe_scores,
    diagnosis,
    figures,
    judge_scores,
    panel_scores,
    panel_table,
    panel_weights,
    tune_thresholds,
)
from cotkit.records import Judgement

RNG = np.random.default_rng(7)


def scored(n=400, *, slope=0.0, lenient=0.0, preference=0.0, judge="j", seed=0, talent=0.0):
    """Scores of `n` traces, two a problem, by a judge with known faults; own traces are of model "own"."""
    rng = np.random.default_rng(seed)
    correct = rng.random(n) < 0.5
    length = 2 ** rng.uniform(6, 11, n)
    own = rng.random(n) < 0.5
    score = 0.4 + lenient + 0.2 * correct + slope * np.log2(length / 350) + (preference + talent) * own
    return pandas.DataFrame(
        {
            "trace": [f"t{i}" for i in range(n)],
            "problem": [f"p{i // 2}" for i in range(n)],
            "model": np.where(own, "own", "other"),
            "correct": correct.astype(object),
            "characters": length.round(),
            "judge": judge,
            "dimension": "mean",
            "score": score + rng.normal(0, 0.1, n),
        }
    )


def trait(traits, measure=""):
    """The one trait whose name begins so."""
    (line,) = (found for found in traits if found["measure"].startswith(measure))
    return line


def test_length_bias_is_the_slope_a_doubling_at_equal_verdict():
    line = trait(diagnosis.score_traits(scored(slope=0.05)), "length")
    assert line["value_low"] < 0.05 < line["value_high"] and line["reading"] == "upward"
    fair = trait(diagnosis.score_traits(scored()), "length")
    assert fair["value_low"] < 0 < fair["value_high"] and fair["reading"] == "not told from none"


def test_leniency_is_the_mean_score_against_the_share_that_is_right():
    frame = scored(lenient=0.2).assign(score=lambda f: f["score"].clip(0, 1))
    frame.loc[:9, "correct"] = None
    frame.loc[10:19, "score"] = np.nan
    line = trait(diagnosis.score_traits(frame), "leniency")
    known = frame.iloc[20:]
    assert line["value"] == pytest.approx(known["score"].mean() - known["correct"].astype(float).mean())
    assert line["n"] == 380 and line["value_low"] < line["value"] < line["value_high"]


def test_a_raw_reward_has_no_leniency():
    measures = [
        found["measure"] for found in diagnosis.score_traits(scored().assign(score=lambda f: 4 * f["score"]))
    ]
    assert measures == ["granularity (entropy, bits)", "length (score a doubling)"]


@pytest.mark.parametrize("n", [6, 16])  # two traces a problem
def test_biases_of_a_few_problems_are_not_known(n):
    line = trait(diagnosis.score_traits(scored(n, slope=0.05)), "length")
    assert math.isnan(line["value_low"]) and line["reading"] == "not known"


def test_granularity_counts_the_bits_of_the_values_used():
    frame = scored(8).assign(score=[0.8] * 4 + [1.0] * 4)
    line = trait(diagnosis.score_traits(frame), "granularity")
    assert line["value"] == 1.0 and line["reading"].startswith("2 values; 50 %")
    assert trait(diagnosis.score_traits(frame.assign(score=0.7)), "granularity")["value"] == 0.0


@pytest.mark.parametrize(("preference", "reading"), [(0.1, "upward"), (0.0, "not told from none")])
def test_self_preference_is_what_the_judge_gives_its_own_beyond_what_others_give(preference, reading):
    own = scored(1000, preference=preference, talent=0.2)  # its model does argue better
    other = scored(1000, judge="k", talent=0.2).assign(score=lambda f: f["score"] + RNG.normal(0, 0.1, 1000))
    line = trait(diagnosis.self_preference(own, other, {"own"}))
    assert line["value_low"] < preference < line["value_high"] and line["reading"].startswith(reading)
    assert "beyond what the other judges give" in line["reading"]


def test_with_one_judge_preference_and_better_argument_are_said_to_be_one():
    line = trait(diagnosis.self_preference(scored(talent=0.2), scored(0), {"own"}))
    assert line["value"] == pytest.approx(0.2, abs=0.03) and "one judge alone" in line["reading"]


@pytest.mark.parametrize("models", [set(), {"stranger"}, {"own", "other"}])
def test_self_preference_needs_traces_of_own_and_of_others(models):
    assert not list(diagnosis.self_preference(scored(), scored(0), models))


def scorings(shifts, n=40, noise=0.05):
    base = RNG.uniform(0.3, 0.7, n)
    lines = [
        {"trace": f"t{i}", "problem": f"p{i}", "probe": probe, "repeat": repeat, "dimension": "mean"}
        | {"score": base[i] + shift + RNG.normal(0, noise)}
        for i in range(n)
        for probe, repeat, shift in [("", r, 0.0) for r in range(4)] + [(p, 0, s) for p, s in shifts.items()]
    ]
    return pandas.DataFrame(lines)


def test_probes_show_their_shift_against_the_same_trace():
    found = diagnosis.probe_shifts(scorings({"praise": 0.2, "nothing": 0.0})).set_index("probe")
    praise, nothing = found.loc["praise"], found.loc["nothing"]
    assert praise["shift_low"] < 0.2 < praise["shift_high"] and praise["raised"] > 0.9
    assert nothing["shift_low"] < 0 < nothing["shift_high"]


def test_intervals_of_all_probes_hold_together_at_95_percent():
    misses = 0
    for _ in range(60):
        found = diagnosis.probe_shifts(scorings(dict.fromkeys("abcde", 0.0), n=12))
        misses += bool(((found["shift_low"] > 0) | (found["shift_high"] < 0)).any())
    assert misses <= 9  # 5 % of 60; the chance of more than 9 is below 0.2 %


def test_noise_leaves_out_what_was_scored_once():
    frame = scorings({}, n=30, noise=0.05)
    frame.loc[frame["trace"].isin(["t1", "t2"]) & (frame["repeat"] > 0), "score"] = np.nan
    line = trait(diagnosis.noise(frame))
    assert line["n"] == 28 and line["value"] == pytest.approx(0.05, abs=0.01)
    assert line["value_low"] < line["value"] < line["value_high"]


def judged(i, correct, **scores):
    members = {name: Judgement(scores={"overall": s}, judge=name).model_dump() for name, s in scores.items()}
    made = candidate(correct)
    made.judgement = Judgement(scores={"overall": 0.5}, judge="panel", raw=members)
    return row(i, [made])


def panel_rows(n=200):
    verdicts = [i % 2 == 0 for i in range(n)]
    return [
        judged(i, v, good=0.5 + 0.2 * v + RNG.normal(0, 0.1), bad=RNG.uniform(), wrong=0.7 - 0.1 * v)
        for i, v in enumerate(verdicts)
    ]


def test_the_members_of_a_panel_are_told_apart():
    found = judge_scores([judged(1, True, a=0.25, b=0.75)])
    assert found[["judge", "score"]].values.tolist() == [["panel", 0.5], ["a", 0.25], ["b", 0.75]]


def test_panel_weights_favour_the_judge_that_ranks_right_above_wrong():
    rows = panel_rows()
    weights = panel_weights(rows, ["good", "bad"])
    assert weights["good"] > 0.8 and sum(weights.values()) == pytest.approx(1)
    assert panel_weights(rows, ["good", "wrong"])["wrong"] == 0.0
    tune = {r.id for r in rows[:100]}
    assert panel_weights(rows, ["good", "bad"], tune) == panel_weights(rows[:100], ["good", "bad"])


def test_weights_that_cannot_be_learned_are_refused():
    with pytest.raises(ValueError, match="10 of each"):
        panel_weights(panel_rows(12), ["good", "bad"])
    with pytest.raises(ValueError, match="nothing to weigh"):
        panel_weights(panel_rows(), ["wrong"])


def test_ways_to_combine_judges_are_counted_where_weights_were_not_learned():
    rows = panel_rows(300)
    frame = candidates_frame(rows)
    names = ["good", "bad", "wrong"]
    report = tune_thresholds(frame, resamples=2)
    table = panel_table(report, rows).set_index("way")
    assert list(table.index) == [*names, "median", "majority", "min", "mean", "learned weights"]
    assert (table["n"] == 180).all() and table["auc"].between(table["auc_low"], table["auc_high"]).all()
    outside = set(report.rows.loc[report.rows["split"] != "tune", "id"])
    scores = judge_scores([r for r in rows if r.id in outside])
    table_of = scores[scores["judge"] != "panel"].pivot(index="trace", columns="judge", values="score")
    right = scores.groupby("trace")["correct"].first().reindex(table_of.index).to_numpy(bool)
    assert table["auc"]["median"] == pytest.approx(auc(table_of.median(axis=1).to_numpy(), right))
    assert table["auc"]["majority"] == table["auc"]["median"]  # of three
    assert table["auc"]["learned weights"] > table["auc"]["mean"] > table["auc"]["wrong"]
    tune = set(report.rows.loc[report.rows["split"] == "tune", "id"])
    weights = panel_weights(rows, names, tune)
    assert table["weights"]["learned weights"] == ", ".join(f"{n} {w:.2f}" for n, w in weights.items())


def test_the_members_of_a_panel_are_compared_trace_by_trace():
    rows = panel_rows(100)
    members = panel_scores(rows)
    assert list(members.columns) == ["id", "correct", "good", "bad", "wrong"] and len(members) == 100
    _, scores, agreement = describe_scores(members, ["good", "bad", "wrong"], resamples=20)
    assert scores["reading"].tolist()[0] == "ranks right above wrong"
    assert agreement["measure"].value_counts().to_dict() == {"kappa": 6, "weighted kappa": 3, "alpha": 1}
    assert panel_scores([row(1, [candidate(scores={"a": 1.0})])]).empty  # one judge is no panel


def test_members_are_compared_on_the_traces_that_are_tuned_on():
    rows = panel_rows(100)
    for r in rows:  # a refinement that only the judge that knows nothing likes
        members = {
            name: Judgement(scores={"overall": s}, judge=name) for name, s in (("good", 0.1), ("bad", 1.0))
        }
        raw = {name: judgement.model_dump() for name, judgement in members.items()}
        refined = candidate(True, iteration=1, stage="refine", parent=0)
        refined.judgement = Judgement(scores={"overall": 0.5}, judge="panel", raw=raw)
        r.candidates.append(refined)
    drafts = [r.model_copy(update={"candidates": r.candidates[:1]}) for r in rows]
    assert panel_scores(rows).equals(panel_scores(drafts)) and len(panel_scores(rows, None)) == 200
    assert panel_scores(rows, 1)["good"].eq(0.1).all() and len(panel_scores(rows, 1)) == 100
    assert panel_weights(rows, ["good", "bad"]) == panel_weights(drafts, ["good", "bad"])
    report = tune_thresholds(candidates_frame(rows), resamples=2)
    assert panel_table(report, rows)["n"].tolist() == [60] * 8  # one draft a problem, outside the tune split


def test_scores_of_a_file_are_combined_where_they_lie_on_one_scale():
    frame = threshold_rows(200, 1)
    ways = panel_table(tune_thresholds(frame, resamples=2))["way"].tolist()
    assert ways[:3] == ["score_correctness", "score_clarity", "score_form"] and "median" in ways
    frame["score_form"] *= 10
    assert panel_table(tune_thresholds(frame, resamples=2)).empty
    assert panel_table(tune_thresholds(frame, ["score_clarity"], resamples=2)).empty


def test_the_figure_says_what_it_shows():
    fooled = diagnosis.probe_shifts(scorings({"praise": 0.2, "nothing": 0.0}))
    assert "Fooled by 'praise'" in figures.judge_probes(fooled)._suptitle.get_text()
    upright = diagnosis.probe_shifts(scorings({"nothing": 0.0}, noise=0.0))
    assert "No probe" in figures.judge_probes(upright)._suptitle.get_text()
    assert figures.judge_probes(upright[:0]).axes[0].texts[0].get_text() == "No trace was probed."
