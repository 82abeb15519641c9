"""`tune_thresholds` from rows to thresholds.json: right numbers, clear refusals, nothing chosen and certified
on the same rows."""

from __future__ import annotations

import json
import re
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scored import scored
from synthetic_rows import make_rows

import cotkit
from cotkit import analysis
from cotkit.rules import RULES

FAST = {"resamples": 20}


@pytest.fixture(scope="module")
def report():
    return cotkit.tune_thresholds(scored(400, 3, iterations=2), target_precision=0.9, **FAST)


def test_a_good_judge_is_certified_and_the_report_split_confirms_it(report):
    assert report.certified and report.record["p_value"] <= 0.1
    chosen = report.rules.set_index("rule").loc[report.record["rule"]]
    assert chosen["chosen"] and chosen["certified"] and chosen["precision_high"] >= 0.9
    assert report.record["report"]["precision"][0] == chosen["precision"]
    assert report.certificate["holds"][0] and "certified: at least 90 %" in repr(report)


def test_the_splits_are_of_whole_problems_and_cover_every_iteration(report):
    rows = report.rows
    assert rows.groupby("id")["split"].nunique().eq(1).all()
    assert rows.groupby("split")["id"].nunique().to_dict() == {"tune": 160, "certify": 160, "report": 80}
    assert rows.loc[rows["tuned"], "iteration"].eq(0).all() and (~rows["tuned"]).sum() == 1200


def test_the_numbers_of_the_report_split_are_plain_counts(report):
    tuned = report.rows[report.rows["tuned"] & (report.rows["split"] == "report")]
    line = report.rules.set_index("rule").loc["mean"]
    threshold = float(line["threshold"].split("≥")[1])
    mean = tuned[["score_correctness", "score_clarity", "score_form"]].mean(axis=1)
    kept = mean >= threshold - 5e-5  # as it is shown, in four digits
    assert line["kept_n"] == kept.sum()
    assert line["precision"] == pytest.approx(tuned["right"][kept].mean())
    assert line["recall"] == pytest.approx(kept[tuned["right"]].mean())
    assert line["kept"] == pytest.approx(kept.mean())


def test_the_choice_does_not_depend_on_the_rows_it_is_certified_and_reported_on(report):
    frame = scored(400, 3, iterations=2)
    split = dict(zip(report.rows["id"], report.rows["split"], strict=True))
    other = frame["id"].map(split).ne("tune")
    frame.loc[other, "correct"] = np.random.default_rng(0).permutation(frame.loc[other, "correct"])
    again = cotkit.tune_thresholds(frame, target_precision=0.9, **FAST)
    assert again.record["rule"] == report.record["rule"] and not again.certified
    same = ["rule", "step", "threshold"]
    assert again.curve[same].equals(report.curve[same])


def test_the_order_of_the_rows_changes_nothing(report):
    turned = scored(400, 3, iterations=2).iloc[::-1]
    again = cotkit.tune_thresholds(turned, target_precision=0.9, **FAST)
    assert again.record["thresholds"] == pytest.approx(report.record["thresholds"])
    assert again.rules["precision"].to_numpy() == pytest.approx(report.rules["precision"].to_numpy())


def test_refined_traces_that_please_the_judge_are_shown_beside_the_drafts():
    frame = scored(600, 3, iterations=3, pleased=0.15, power=(2.0,))
    report = cotkit.tune_thresholds(frame, **FAST)
    table = report.by_iteration.set_index("traces")
    assert table["precision"]["iteration 2"] < table["precision"]["iteration 0"] - 0.05
    assert table["kept"]["iteration 2"] > table["kept"]["iteration 0"]
    assert table["tuned"].tolist() == [True, False, False, False]
    assert any("does not hold here" in sentence for sentence in report.findings())


def test_the_best_of_several_drafts_is_less_right_than_its_score_says():
    frame = scored(800, 8, power=(1.0,), alike=0.95)  # hard problems are hard for every draft
    report = cotkit.tune_thresholds(frame, target_precision=0.85, **FAST)
    table = report.by_iteration.set_index("traces")
    assert table["precision"]["best scored of 8 drafts"] < table["precision"]["iteration 0"]


def test_a_useless_score_is_named_and_not_certified():
    frame = scored(300, 1, power=(0.0,), names=("noise",))
    report = cotkit.tune_thresholds(frame, target_precision=0.9, **FAST)
    assert report.scores["reading"][0] == "not told from chance" and not report.certified
    assert report.record["thresholds"] is None
    assert re.search(
        r"no threshold reached 90 % .* \d+ of \d+ kept .* may or may not", report.record["reason"]
    )
    assert "not shown to tell right from wrong" in " ".join(report.findings())


def test_too_few_labels_say_about_how_many_are_needed():
    few = scored(60, 1, power=(2.5,), base=1.0)
    report = cotkit.tune_thresholds(few, target_precision=0.9, delta=0.01, **FAST)
    assert not report.certified
    assert re.search(r"about \d[\d,]* labelled problems needed, by an estimate", report.record["reason"])
    assert "n = 60 labelled problems" in report.record["reason"]
    enough = cotkit.tune_thresholds(
        scored(3 * report.record["labels_needed"], 1, power=(2.5,), base=1.0), delta=0.01, **FAST
    )
    assert enough.certified


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (scored(10, 1), "at least 50 labelled rows"),
        (scored(3, 40), "at least 10 problems"),
        (scored(100, 1).assign(correct=True), "every row with a score is right"),
        (scored(100, 1).assign(correct=False), "judge_all=True"),
    ],
)
def test_what_cannot_be_certified_is_still_described(frame, says):
    report = cotkit.tune_thresholds(frame, **FAST)
    assert not report.certified and report.record["thresholds"] is None and says in report.record["reason"]
    assert len(report.curve) and set(report.rows["split"]) == {"all"}
    assert set(report.reliability["calibration"]) == {"raw"}  # nothing is held out to measure a fit on
    assert "no score" not in report.findings()[0] and report._repr_html_()
    json.dumps(report.record, allow_nan=False)


def test_a_constant_judge_tells_nothing():
    report = cotkit.tune_thresholds(scored(200, 1, power=(1.0,)).assign(score_correctness=0.5), **FAST)
    assert report.scores["reading"][0] == "constant" and report.scores["auc"][0] == 0.5
    assert not report.certified


def test_scores_keep_their_own_scale():
    frame = scored(300, 2, power=(2.0,))
    unit = cotkit.tune_thresholds(frame, **FAST)
    ten = cotkit.tune_thresholds(frame.assign(score_correctness=1 + 9 * frame["score_correctness"]), **FAST)
    (threshold,), (on_ten,) = (r.record["thresholds"].values() for r in (unit, ten))
    assert on_ten == pytest.approx(1 + 9 * threshold)
    assert ten.rules["precision"].equals(unit.rules["precision"])


def test_missing_labels_scores_and_rationalized_rows_are_left_out_and_counted():
    frame = scored(200, 2).astype({"correct": object})
    frame.loc[0:9, "correct"] = None
    frame.loc[10:14, "score_clarity"] = np.nan
    frame.loc[15, "score_form"] = np.inf
    frame["rationalized"] = frame.index == 16
    report = cotkit.tune_thresholds(frame, **FAST)
    card = report.data_card.set_index("item")["value"]
    left_out = [card[f"left out: {why}"] for why in ("no verdict", "no score", "rationalized")]
    assert left_out == [10, 6, 1] and card["rows tuned on"] == 400 - 17
    assert card["without score_clarity"] == 5


def test_a_csv_file_reads_as_its_frame(tmp_path):
    frame = scored(100, 2).astype({"correct": "boolean"})
    frame.loc[3, "correct"] = pd.NA
    frame.to_csv(tmp_path / "scored.csv", index=False)
    read = cotkit.tune_thresholds(tmp_path / "scored.csv", **FAST)
    given = cotkit.tune_thresholds(frame, **FAST)
    assert read.record["data_hash"] == given.record["data_hash"]
    assert read.record["thresholds"] == given.record["thresholds"]


def test_candidates_of_a_run_are_taken_as_they_are():
    frame = analysis.candidates_frame(make_rows(150, judge_power=0.5))
    report = cotkit.tune_thresholds(frame, target_precision=0.7, **FAST)
    assert report.record["judge"]["names"] == ["steps"]
    assert report.record["valid_for"]["iteration"] == [0]
    assert set(report.record["dimensions"]) == {"arithmetic", "conclusion", "form"}
    assert "one_step" in report.record["valid_for"]["task"] and len(report.length) == 3


def test_the_verifiers_errors_make_the_certificate_stricter():
    frame = scored(500, 1, power=(2.0,))
    plain = cotkit.tune_thresholds(frame, target_precision=0.85, **FAST)
    audit = {"false_accept": (20, 200), "false_reject": (0, 200)}
    careful = cotkit.tune_thresholds(frame, target_precision=0.85, verifier_errors=audit, **FAST)
    assert careful.record["thresholds"]["correctness"] >= plain.record["thresholds"]["correctness"]
    line = careful.rules.iloc[0]
    assert line["true_precision"] < line["precision"]
    assert line["true_precision_low"] < line["true_precision"] < line["true_precision_high"]
    assert careful.record["verifier_errors"] == {"false_accept": [20, 200], "false_reject": [0, 200]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"score_columns": ["score_corectness"]}, "did you mean 'score_correctness'?"),
        ({"label": "right"}, "no column 'right'"),
        ({"group": "problem"}, "no column 'problem'"),
        ({"score_columns": []}, "no score column"),
        ({"score_columns": ["score_form", "score_form"]}, "twice"),
        ({"score_columns": ["id"]}, "rename it"),
        ({"label": "id"}, "neither True, False nor missing"),
        ({"target_precision": 90}, "between 0 and 1"),
        ({"delta": 0}, "between 0 and 1"),
        ({"rule": "sum"}, "'best' or one of"),
        ({"iteration": 4}, "there are 0"),
        ({"iteration": "0"}, "iteration must be a whole number"),
        ({"costs": (1, -1)}, "costs must be"),
        ({"costs": 3}, "costs must be"),
        ({"costs": "ab"}, "costs must be"),
        ({"costs": (float("nan"), 1)}, "costs must be"),
        ({"target_precision": "0.9"}, "between 0 and 1"),
        ({"resamples": 0}, "resamples must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"verifier_errors": {"false_accept": (1, 2)}}, "false_reject"),
        ({"verifier_errors": {"false_accept": 3, "false_reject": (1, 2)}}, "must be (errors, audited)"),
        ({"rule": "median", "score_columns": ["score_form", "score_clarity"]}, "three scores"),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(options, says):
    with pytest.raises(ValueError) as refused:
        cotkit.tune_thresholds(scored(60, 1), **options)
    assert says in str(refused.value)


def test_rows_without_any_verdict_or_problem_are_refused():
    frame = scored(60, 1)
    with pytest.raises(ValueError, match="60 without a verdict"):
        cotkit.tune_thresholds(frame.assign(correct=pd.NA))
    frame.loc[7, "id"] = None
    with pytest.raises(ValueError, match=r"row 7, column 'id'.*no problem"):
        cotkit.tune_thresholds(frame)
    assert cotkit.tune_thresholds(frame, group=None, **FAST).record["n"]["problems"] == 60
    with pytest.raises(TypeError, match="must be a Run"):
        cotkit.tune_thresholds([1, 2])


def test_a_rule_that_is_asked_for_is_the_one_that_is_tuned():
    frame = scored(200, 2)
    for rule in RULES:
        record = cotkit.tune_thresholds(frame, rule=rule, resamples=2).record
        assert record["rule"] == rule
        assert isinstance(record["thresholds"], dict) == (rule in ("all", "any", "min"))
        assert ("weights" in record) == (rule == "logistic")


@pytest.mark.parametrize("rule", RULES)
def test_a_run_decides_as_the_report_counted(rule):
    frame = scored(200, 2)
    report = cotkit.tune_thresholds(frame, target_precision=0.7, rule=rule, resamples=2)
    names = ("correctness", "clarity", "form")
    judge = SimpleNamespace(name="j", dimension_names=names, score_range=(0.0, 1.0), describe=dict)
    with pytest.warns(UserWarning, match="does not record the judge"):
        read = cotkit.Thresholds.for_judge(json.loads(json.dumps(report.record)), judge)
    rows = report.rows[report.rows["split"] == "report"]
    met = [
        read.met(dict(zip(names, line, strict=True)))
        for line in rows[[f"score_{name}" for name in names]].itertuples(index=False)
    ]
    line = report.rules.set_index("rule").loc[rule]
    assert sum(met) == line["kept_n"] > 0 and rows["right"][met].mean() == line["precision"]


def test_the_best_rule_is_the_one_that_fits_the_scores():
    """One telling score and two of noise: their mean or minimum wastes what one alone shows."""
    frame = scored(800, 1, power=(2.0, 0.0, 0.0))
    assert cotkit.tune_thresholds(frame, **FAST).record["rule"] in ("all", "logistic")


def test_nan_never_reaches_the_file(tmp_path, report):
    path = report.save(tmp_path / "made" / "thresholds.json")
    read = json.loads(path.read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(report.record)) and read["schema_version"] == 1
    assert {"thresholds", "rule", "certified", "target_precision", "delta", "n", "judge", "data_hash",
            "created", "valid_for", "cotkit_version"} <= read.keys()  # fmt: skip
    assert [p.name for p in path.parent.iterdir()] == ["thresholds.json"]


def test_two_scores_make_a_grid_of_counts(report):
    grid = analysis.threshold_grid(report.rows, "score_correctness", "score_clarity")
    tuned = report.rows[report.rows["tuned"]]
    line = grid.iloc[len(grid) // 2]
    kept = (tuned["score_correctness"] >= line["score_correctness"]) & (
        tuned["score_clarity"] >= line["score_clarity"]
    )
    assert line["n"] == kept.sum() and line["precision"] == pytest.approx(tuned["right"][kept].mean())


def test_public_solutions_are_a_frame_like_any_other(shared_data):
    """Right and wrong solutions of public models, scored by their length: whatever comes, it is honest."""
    rows = pd.read_json(shared_data / "gsm8k_model_solutions.jsonl", lines=True)
    frame = rows.assign(score_brevity=lambda f: -f["solution"].str.len())
    report = cotkit.tune_thresholds(frame, label="is_correct", group="problem_index", **FAST)
    assert report.record["n"]["rows"] == len(rows) and not np.isnan(report.scores["auc"][0])
    assert report.record["n"]["tested"] == round(0.4 * frame["problem_index"].nunique())


@pytest.mark.parametrize("levels", [[0.8], [0.0, 0.5, 1.0]])
def test_the_best_of_several_drafts_by_a_score_that_tells_nothing_is_right_as_often_as_any(levels):
    """Ties are decided for no verdict: else a constant judge would seem to pick the wrong drafts."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.repeat(range(500), 4), "correct": rng.random(2000) < 0.6})
    table = cotkit.tune_thresholds(
        frame.assign(score_a=rng.choice(levels, 2000)), target_precision=0.55, **FAST
    ).by_iteration.set_index("traces")
    best, drawn = table.loc["best scored of 4 drafts"], table.loc["iteration 0"]
    assert best["right_low"] <= drawn["right"] <= best["right_high"] and best["n"] == 300


@pytest.mark.parametrize(
    "name", ["right", "iteration", "length", "split", "tuned", "problem", "correct", "id"]
)
def test_a_score_may_not_take_the_name_of_what_it_is_held_against(name):
    frame = scored(60, 1, power=(1.0,))
    frame[name] = frame.pop("score_correctness")
    if name != "correct":
        frame["id"] = range(60)
    with pytest.raises(ValueError, match="rename it"):
        cotkit.tune_thresholds(frame, [name])


def test_problems_named_by_their_text_cost_no_memory():
    frame = scored(5000, 1, power=(2.0,))
    frame.loc[0, "id"] = "long" * 1500
    tracemalloc.start()
    cotkit.tune_thresholds(frame, resamples=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # as fixed-width text every copy of the ids would take 120 MB


def test_rows_without_an_iteration_are_left_out_and_counted_and_odd_ones_are_named():
    frame = scored(100, 1).astype({"iteration": object})
    frame.loc[3, "iteration"] = None
    for iteration in (0, None):
        card = cotkit.tune_thresholds(frame, iteration=iteration, **FAST).data_card.set_index("item")["value"]
        assert card["left out: no iteration"] == 1 and card["rows tuned on"] == 99
    for odd in ("draft", 0.5, -1):
        frame.loc[3, "iteration"] = odd
        with pytest.raises(ValueError, match=r"row 3, column 'iteration'.*is no whole number|is no number"):
            cotkit.tune_thresholds(frame)


def test_rows_of_several_judges_are_not_tuned_together():
    frame = scored(100, 1).assign(judge=["a", "b"] * 50)
    with pytest.raises(ValueError, match=r"several judges \(a, b\)"):
        cotkit.tune_thresholds(frame)


def unequal(problems=300, seed=0):
    """One problem in eight is hard and has 20 traces; the others have one."""
    rng = np.random.default_rng(seed)
    heavy = rng.random(problems) < 0.125
    problem = np.repeat(np.arange(problems), np.where(heavy, 20, 1))
    right = rng.random(len(problem)) < np.where(heavy[problem], 0.5, 0.95)
    score = np.clip(np.round(0.6 + 0.1 * right + 0.1 * rng.normal(size=len(problem)), 1), 0, 1)
    return pd.DataFrame({"id": problem, "correct": right, "score_a": score})


def test_a_certificate_says_that_it_counts_each_problem_once_and_what_traces_give():
    report = cotkit.tune_thresholds(unequal(), target_precision=0.8, **FAST)
    assert report.certified and "each problem counted once" in report.record["reason"]
    assert report.record["n"]["traces_a_problem"] == [1, 20]
    by_trace, by_problem = (report.record["report"][f"precision{x}"][0] for x in ("", "_by_problem"))
    assert by_trace < 0.75 < by_problem
    said = next(sentence for sentence in report.findings() if "counts each problem once" in sentence)
    assert "1 to 20 traces" in said and said.endswith("below the target.")


def test_verdicts_that_are_missing_more_often_for_low_scores_are_said():
    frame = scored(400, 1, power=(2.0,)).astype({"correct": object})
    lost = ~frame["correct"].astype(bool) & (np.random.default_rng(0).random(400) < 0.5)
    frame.loc[lost, "correct"] = None
    report = cotkit.tune_thresholds(frame, target_precision=0.85, **FAST)
    unlabelled = report.record["unlabelled"]
    assert (unlabelled["rows"], unlabelled["of"]) == (lost.sum(), 400)
    low, _, high = (without / n for without, n in unlabelled["by_score_third"])
    assert low > 2 * high and sum(n for _, n in unlabelled["by_score_third"]) == 400
    kept = frame["score_correctness"] >= report.record["thresholds"]["correctness"] - 1e-9
    assert unlabelled["precision_if_wrong"] == (kept & frame["correct"].eq(True)).sum() / kept.sum()
    assert any("have no verdict" in sentence for sentence in report.findings())
    whole = cotkit.tune_thresholds(scored(400, 1, power=(2.0,)), **FAST)
    assert not any("have no verdict" in sentence for sentence in whole.findings())


def test_no_sentence_says_that_labels_cannot_help_or_that_fewer_would():
    for seed in range(12):
        record = cotkit.tune_thresholds(
            scored(100, 1, seed=seed, power=(1.5,)), target_precision=0.9, resamples=2
        ).record
        assert "no number of labels" not in record["reason"]
        needed = re.search(r"about ([\d,]+) labelled problems needed", record["reason"])
        assert needed is None or int(needed[1].replace(",", "")) >= 100
        assert record["labels_needed"] is None or record["labels_needed"] > 100
    only_wrong = scored(100, 1, power=(2.0,), base=9.0)
    only_wrong.loc[3, "correct"] = False
    record = cotkit.tune_thresholds(only_wrong, target_precision=0.99, seed=3, **FAST).record
    assert "more than 99 %" not in record["reason"]


def test_with_the_verifiers_errors_the_precision_that_was_tested_is_the_one_named():
    record = cotkit.tune_thresholds(
        scored(200, 1, seed=7, power=(0.9,), base=1.0),
        target_precision=0.85,
        verifier_errors={"false_accept": (60, 300), "false_reject": (0, 300)},
        **FAST,
    ).record
    named = float(re.search(r"no threshold reached ([\d.]+) % by the verifier", record["reason"])[1])
    right, kept = map(int, re.search(r"at best (\d+) of (\d+)", record["reason"]).groups())
    assert right / kept < named / 100 + 0.0005 and named > 85


def test_bounds_that_leave_the_verifiers_errors_out_are_not_shown_with_them():
    audit = {"false_accept": (20, 200), "false_reject": (0, 200)}
    table = cotkit.tune_thresholds(
        scored(300, 1, power=(2.0,)), target_precision=0.85, verifier_errors=audit, **FAST
    )
    assert len(table.certificate) == 1 and "true_precision" in table.record["report"]


def test_only_the_chosen_rule_is_called_certified(report):
    rules = report.rules.set_index("chosen")
    assert rules.loc[True, "certified"] and rules.loc[False, "certified"].isna().all()
    assert rules.loc[False, "p_value"].isna().all()


def test_scores_too_small_to_tell_thresholds_apart_are_refused():
    frame = scored(60, 1, power=(2.0,))
    with pytest.raises(ValueError, match="give them on another scale"):
        cotkit.tune_thresholds(frame.assign(score_correctness=1e-10 * frame["score_correctness"]))


def test_the_prompt_hashes_of_judges_inside_judges_are_recorded():
    inner = {"judge": "JudgePanel", "judges": [{"source": {"prompt": {"name": "confidence", "hash": "b"}}}]}
    described = {"name": "panel", "judges": [{"prompt": {"name": "judge", "hash": "a"}}, inner]}
    record = cotkit.tune_thresholds(scored(60, 1), judge=described, **FAST).record
    assert record["judge"]["prompt_hashes"] == ["a", "b"]


def test_columns_that_are_numbers_flags_in_words_and_classes_are_taken_or_named():
    frame = scored(60, 1, power=(2.0,)).rename(columns={"score_correctness": 0})
    report = cotkit.tune_thresholds(frame.assign(rationalized="false"), [0], **FAST)
    assert report.record["dimensions"] == ["0"] and len(report.rows) == 60
    with pytest.raises(ValueError, match="two columns"):
        cotkit.tune_thresholds(pd.concat([frame, frame[[0]]], axis=1), [0])
    with pytest.raises(ValueError, match=r"column 'trace_characters'.*no number"):
        cotkit.tune_thresholds(frame.assign(trace_characters="long"), [0])
    with pytest.raises(TypeError, match="not the class"):
        cotkit.tune_thresholds(frame, [0], judge=cotkit.StepJudge)


def test_one_problem_that_holds_most_traces_is_named():
    frame = scored(120, 1, power=(2.0,))
    heavy = scored(1, 400, power=(2.0,)).assign(id="p0")
    report = cotkit.tune_thresholds(pd.concat([frame, heavy]), **FAST)
    assert any("401 of 520 belong to one" in sentence for sentence in report.findings())
    assert not any(
        "belong to one" in sentence for sentence in cotkit.tune_thresholds(frame, **FAST).findings()
    )


def test_scores_that_no_threshold_is_wanted_of_are_described_alike(report):
    frame, columns = scored(400, 3, iterations=2), list(report.scores["score"])
    rows, scores, agreement = analysis.describe_scores(frame, columns, resamples=20)
    assert rows.equals(report.rows) and scores.equals(report.scores) and agreement.equals(report.agreement)


def test_few_tuned_problems_among_many_are_all_three_parts():
    many, few = scored(400, 1), scored(10, 6).assign(iteration=1)
    frame = pd.concat([many, few.assign(id="x" + few["id"])])
    for seed in range(20):
        rows = analysis.describe_scores(frame, ["score_form"], iteration=1, seed=seed, resamples=2)[0]
        parts = rows[rows["tuned"]].groupby("split")["problem"].nunique()
        assert parts.to_dict() == {"tune": 4, "certify": 4, "report": 2}


def test_a_column_that_names_the_annotator_is_no_label():
    frame = scored(60, 1).assign(person="alice", q=lambda f: f["id"])
    frame.loc[3, "id"] = None
    assert cotkit.tune_thresholds(frame, group="q", **FAST).record["audit"] is None
    audit = cotkit.tune_thresholds(frame.assign(person=True), group="q", **FAST)
    assert "person calls none of these traces wrong" in " ".join(audit.findings())
    assert "verifier_errors=" not in " ".join(audit.findings())


@pytest.mark.parametrize(
    "score", [1j, 10**400, pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-01").date()]
)
def test_what_is_no_score_is_named(score):
    frame = scored(60, 1, power=(2.0,)).astype({"score_correctness": object})
    frame["score_correctness"] = [score, *frame["score_correctness"][1:]]
    for given in (frame, frame.assign(score_correctness=[score] * 60)):
        with pytest.raises(ValueError, match="row 0, column 'score_correctness'"):
            cotkit.tune_thresholds(given, **FAST)


def test_ids_that_differ_in_blanks_are_one_problem_and_no_column_is_refused():
    frame = scored(60, 2)
    frame.loc[::2, "id"] += " "
    assert cotkit.tune_thresholds(frame, **FAST).record["n"]["problems"] == 60
    with pytest.raises(ValueError, match="no column ''"):
        cotkit.tune_thresholds(frame, group="")
    for nothing in (None, {}):
        with pytest.raises(TypeError, match="what is read must be"):
            cotkit.tune_thresholds(nothing)


def test_the_curve_calls_only_the_chosen_rule_certified(report):
    assert set(report.curve.loc[report.curve["certified"], "rule"]) == {report.record["rule"]}
