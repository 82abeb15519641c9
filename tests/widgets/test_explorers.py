"""The explorers without a browser: their state, what they write, and what a saved notebook shows of them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import time

import numpy as np
import pandas
import pytest

import cotkit
from cotkit.analysis import StrategyComparison
from cotkit.widgets import StrategyExplorer, ThresholdExplorer

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "analysis"))

from scored import scored
from synthesis_rows import attempts, report, seeds

JUDGE = cotkit.StepJudge()
ROWS = scored(150, 2, names=JUDGE.dimension_names)
TUNED = {rule: cotkit.tune_thresholds(ROWS, rule=rule, resamples=2) for rule in ("any", "mean", "min")}


def met(rows, rule, thresholds):
    """What a run does with these thresholds, row by row."""
    applied = cotkit.Thresholds(thresholds, JUDGE.dimension_names, rule)
    scores = rows[[f"score_{name}" for name in JUDGE.dimension_names]].set_axis(JUDGE.dimension_names, axis=1)
    return np.array([applied.met(row) for row in scores.to_dict("records")])


@pytest.mark.parametrize(
    "rule, thresholds",
    [
        ("all", {"steps": 0.5, "consistency": 0.4, "form": 0.3}),
        ("all", {"steps": 0.6}),
        ("any", {"steps": 0.7, "form": 0.9}),
        ("mean", 0.6),
        ("mean", 0.7),
    ],
)
def test_the_counts_are_those_of_the_thresholds_a_run_applies(rule, thresholds):
    explorer = ThresholdExplorer(ROWS)
    explorer.choose(rule, thresholds)
    kept, right = met(ROWS, rule, thresholds), ROWS["correct"].to_numpy()
    assert explorer.confusion == {
        ("kept", "right"): (kept & right).sum(),
        ("kept", "wrong"): (kept & ~right).sum(),
        ("dropped", "right"): (~kept & right).sum(),
        ("dropped", "wrong"): (~kept & ~right).sum(),
    }
    precision, recall = explorer.shares["precision"], explorer.shares["recall"]
    assert (precision.successes, precision.n) == ((kept & right).sum(), kept.sum())
    assert (recall.successes, recall.n) == ((kept & right).sum(), right.sum())
    assert precision.low < precision.value < precision.high


@pytest.mark.parametrize("rule, shown", [("any", "any"), ("mean", "mean"), ("min", "all")])
def test_it_begins_at_the_tuned_thresholds_and_goes_back_to_them(rule, shown):
    explorer = ThresholdExplorer(TUNED[rule])
    assert explorer.rule == shown and explorer.is_tuned
    line = TUNED[rule].by_iteration.iloc[0]
    explorer.choose("all", {"consistency": 0.5})
    assert not explorer.is_tuned and "set by hand: no certificate" in explorer.static()
    explorer.reset()
    assert explorer.is_tuned and TUNED[rule].record["reason"].split(":")[0] in explorer.static()
    assert explorer.shares["kept"].value == pytest.approx(
        line["kept"], abs=0.1
    )  # there without the tune split


def test_without_tuned_thresholds_it_begins_by_keeping_everything():
    explorer = ThresholdExplorer(scored(8, 2))
    assert not explorer.is_tuned and explorer.shares["kept"].value == 1.0
    assert "at least 50 labelled rows" in explorer.static()


def test_a_hand_set_threshold_is_saved_as_such_and_a_run_takes_it_with_a_warning(tmp_path):
    report = cotkit.tune_thresholds(ROWS, rule="logistic", judge=JUDGE, resamples=2)
    explorer = ThresholdExplorer(report)
    explorer.choose("any", {"steps": 0.7, "form": 0.9})
    path = explorer.save(tmp_path / "deep" / "thresholds.json")
    written = json.loads(path.read_text())
    assert written["certified"] is False and written["reason"].startswith("set by hand")
    assert written["thresholds"] == {"steps": 0.7, "form": 0.9} and written["rule"] == "any"
    assert not {"weights", "intercept"} & written.keys() and written["p_value"] is None
    assert written["report"]["precision"][0] == explorer.shares["precision"].value
    assert written.keys() == report.record.keys() - {"weights", "intercept"}
    with pytest.warns(UserWarning, match="no certificate stands behind it .set by hand"):
        read = cotkit.Thresholds.for_judge(path, JUDGE)
    assert read.met({"steps": 0.7, "consistency": 0.0, "form": 0.0}) is True
    assert read.met({"steps": 0.6, "consistency": 1.0, "form": 0.8}) is False


def test_what_was_not_moved_keeps_its_certificate(tmp_path):
    sure = cotkit.tune_thresholds(scored(1500, 1), rule="mean", target_precision=0.8, resamples=2)
    assert sure.certified
    explorer = ThresholdExplorer(sure)
    assert json.loads(explorer.save(tmp_path / "a.json").read_text()) == sure.record
    explorer.choose("mean", explorer.limits["the mean"] + 0.01)
    assert json.loads(explorer.save(tmp_path / "b.json").read_text())["certified"] is False


@pytest.mark.parametrize(
    "rule, thresholds, message",
    [
        ("most", 0.5, "rule is one of all, any, mean"),
        ("all", {"colour": 0.5}, "no score 'colour'"),
        ("mean", {"consistency": 0.5}, "no score 'consistency'"),
        ("all", {"consistency": 7}, "lies in 0..1"),
        ("mean", float("nan"), "lies in 0..1"),
    ],
)
def test_what_cannot_be_chosen_is_refused_and_changes_nothing(rule, thresholds, message):
    explorer = ThresholdExplorer(TUNED["any"])
    with pytest.raises(ValueError, match=message):
        explorer.choose(rule, thresholds)
    assert explorer.is_tuned


def test_no_used_score_is_no_threshold(tmp_path):
    explorer = ThresholdExplorer(ROWS)
    explorer.choose("any", {})
    assert explorer.shares["kept"].value == 0.0 and explorer.shares["precision"].n == 0
    with pytest.raises(ValueError, match="no score is used"):
        explorer.save(tmp_path / "t.json")
    _ = explorer.view
    explorer._file.value = str(tmp_path / "t.json")
    explorer._save()
    assert "not saved: no score is used" in explorer._saved.value and not (tmp_path / "t.json").exists()


def test_raw_rewards_and_a_single_score_have_a_slider_over_their_range():
    rows = ROWS[["id", "correct"]].assign(score_reward=6 * ROWS["score_steps"] - 3.5)
    explorer = ThresholdExplorer(rows)
    assert explorer.rules == ("all",) and explorer.ranges["reward"] == (-4, 3)
    _ = explorer.view
    assert explorer._sliders["reward"].min == -4 and explorer._uses["reward"].layout.display == "none"


def test_a_score_that_is_called_mean_is_one_like_others():
    explorer = ThresholdExplorer(ROWS.assign(score_mean=ROWS["score_steps"]), ["score_mean"])
    explorer.choose("all", {"mean": 0.5})
    assert explorer.in_words() == "mean ≥ 0.5" and explorer.view


def test_the_sliders_move_everything():
    explorer = ThresholdExplorer(TUNED["any"])
    _ = explorer.view
    before = explorer.shares["kept"].value
    explorer._sliders["steps"].value = 0.9
    assert explorer.limits["steps"] == 0.9 and "steps ≥ 0.9" in explorer._shown.value
    assert explorer.shares["kept"].value < before
    explorer._rule.value = "mean"
    assert (
        explorer._rows["the mean"].layout.display is None
        and explorer._rows["consistency"].layout.display == "none"
    )
    explorer._boxes["the mean"].value = 0.5
    assert explorer._sliders["the mean"].value == 0.5
    assert (
        "mean ≥ 0.5" in explorer._shown.value
        and f"{explorer.confusion['kept', 'wrong']:,}" in explorer._shown.value
    )
    explorer._rule.value, explorer._uses["steps"].value = "all", False
    assert "steps" not in explorer.in_words() and explorer.limits["steps"] == 0.9
    explorer.reset()
    assert explorer._rule.value == "any" and explorer._uses["steps"].value


def test_problems_are_counted_that_have_a_trace_to_tune_on():
    refined = pandas.concat([ROWS.assign(iteration=0), ROWS[:4].assign(iteration=1, id=["a", "a", "b", "b"])])
    assert "300 labelled traces of 150 problems" in ThresholdExplorer(refined).static()


def test_a_hundred_thousand_rows_answer_a_slider_at_once():
    many = pandas.concat([TUNED["any"].rows] * 334)
    explorer = ThresholdExplorer(
        dataclasses.replace(TUNED["any"], rows=many.assign(id=np.arange(len(many)) // 4))
    )
    _ = explorer.view
    started = time.process_time()
    for step in range(10):
        explorer._sliders["steps"].value = 0.05 + step / 20
    assert (time.process_time() - started) / 10 < 0.25


# StrategyExplorer.

SEEDS = seeds(12)


def compared(count=48, baseline=SEEDS):
    runs = {name: attempts(name, count, p) for name, p in (("few_shot", 0.9), ("evol_instruct", 0.6))}
    for row in runs["few_shot"]:
        del row.metadata["synthesis"]["operator"]
        row.metadata["synthesis"]["seed_ids"] = [f"s{row.index % 12}", f"s{(row.index + 1) % 12}"]
    for row in runs["evol_instruct"]:
        about, before = row.metadata["synthesis"], list(range(row.index % 12, row.index, 12))
        about |= {"seed_ids": [f"s{row.index % 12}"], "lineage": before, "operator_text": "Make it <harder>."}
        about["parents"] = [f"evol_instruct-{before[-1]:05d}"] if before else []
    return StrategyComparison.of(runs, {name: report(rows) for name, rows in runs.items()}, baseline)


COMPARED = compared()


def test_a_seed_has_what_each_strategy_made_of_it_side_by_side():
    explorer = StrategyExplorer(COMPARED)
    explorer.choose("s3")
    assert {name: sorted(n for _, n in made) for name, made in explorer.made.items()} == {
        "few_shot": [2, 3, 14, 15, 26, 27, 38, 39],
        "evol_instruct": [3, 15, 27, 39],
    }
    page = explorer.static()
    assert SEEDS[3].problem in page and "8 attempts" in page
    for name in explorer.made:
        accepted = [explorer.rows[attempt].accepted for attempt in explorer.made[name]]
        assert accepted == sorted(accepted, reverse=True), "accepted ones first"
        assert all(
            explorer.rows[attempt].problem.replace("'", "&#x27;") in page for attempt in explorer.shown(name)
        )


def test_pages_turn_and_stay_at_the_ends():
    explorer = StrategyExplorer(COMPARED)
    explorer.choose("s3")
    assert explorer.pages == 2 and len(explorer.shown("few_shot")) == 4
    first = explorer.shown("few_shot")
    explorer.turn(1), explorer.turn(1)
    assert explorer.page == 1 and not set(first) & set(explorer.shown("few_shot"))
    assert explorer.shown("evol_instruct") == [] and explorer.followed == explorer.shown("few_shot")[0]
    explorer.choose("s4")
    assert explorer.page == 0


def test_the_lineage_of_an_evolved_problem_is_told_step_by_step():
    explorer = StrategyExplorer(COMPARED)
    explorer.choose("s5")
    assert explorer.followed == ("evol_instruct", 41), "the one with most steps behind it"
    assert [row.index for row in explorer.lineage(explorer.followed)] == [5, 17, 29, 41]
    page = explorer.static()
    assert "where evol_instruct 41 comes from" in page and page.count("<li>") == 5
    assert "Make it &lt;harder&gt;." in page and "evol_instruct-00029" in page and "<ins>" in page
    explorer.follow(("few_shot", 5))
    page = explorer.static()
    assert "written from examples" in page and "from s5, s6" in page and "<ins>" not in page


@pytest.mark.parametrize(
    "what, message",
    [
        (lambda e: e.choose("s99"), "no seed 's99'"),
        (lambda e: e.follow(("few_shot", 999)), "no attempt"),
        (
            lambda e: StrategyExplorer(StrategyComparison.of({"a": []}, {"a": report([])})),
            "nothing to explore",
        ),
    ],
)
def test_what_is_not_there_is_refused(what, message):
    with pytest.raises(ValueError, match=message):
        what(StrategyExplorer(COMPARED))


def test_on_the_map_each_question_is_named_and_those_of_the_seed_can_be_focused():
    explorer = StrategyExplorer(COMPARED)
    explorer.choose("s2")
    page = explorer.static()
    assert page.count("<title>") == len(COMPARED.map)
    accepted = sum(explorer.rows[attempt].accepted for made in explorer.made.values() for attempt in made)
    assert page.count("tabindex='0'") == page.count("ck-ring'") == accepted + 1
    by_set = COMPARED.map.groupby("set").size()
    assert all(f"{name} ({count:,})" in page for name, count in by_set.items())


def test_the_funnel_has_counts_and_intervals():
    page = StrategyExplorer(COMPARED).static()
    last = COMPARED.funnel[COMPARED.funnel["step"] == "accepted"].iloc[0]
    assert f"{last.problems} ({last.share:.0%}, {last.share_low:.0%} to {last.share_high:.0%})" in page


def test_without_seeds_attempts_are_still_grouped_by_the_seed_they_name():
    explorer = StrategyExplorer(compared(baseline=()))
    assert len(explorer.seeds) == 12 and "was not given the text" in explorer.static()


def test_braces_markup_and_attempts_without_a_question_do_no_harm():
    runs = {"a": attempts("a", 12, 1.0)}
    odd = "Let $\\{x\\}$ be {0} <script>alert(1)</script> {{ 7 * 7 }}"
    for row in runs["a"][:6]:
        row.problem = f"{odd} {row.index}"
    runs["a"][6].accepted, runs["a"][6].problem, runs["a"][6].drop_reason = False, "", "unparsed"
    explorer = StrategyExplorer(StrategyComparison.of(runs, {"a": report(runs["a"])}, seeds(6)))
    for seed in explorer.seeds:
        explorer.choose(seed)
        page = explorer._repr_html_()
        assert "<script" not in page and page.encode()
    explorer.choose("s0")
    assert "{0} &lt;script&gt;" in explorer.static() and "{{ 7 * 7 }}" in explorer.static()
    for row in runs["a"]:  # half an emoji cannot be sent to a browser
        row.metadata["synthesis"] |= {"operator": "\ud83d", "operator_text": "\ud83d"}
    explorer.choose("s0")
    for control in explorer.view.children:
        json.dumps(control.get_state(), default=repr, ensure_ascii=False).encode("utf-8")
    explorer.choose("s6")
    assert "✗ unparsed" in explorer.static() and explorer.followed is None


def test_an_attempt_that_ended_by_a_fault_of_ours_is_left_out():
    runs = {"a": attempts("a", 12, 1.0)}
    broken = runs["a"][3]
    broken.metadata, broken.candidates, broken.final = {}, [], None
    broken.accepted, broken.drop_reason, broken.retryable = False, "internal_error", True
    explorer = StrategyExplorer(StrategyComparison.of(runs, {"a": report(runs["a"])}, seeds(12)))
    assert len(explorer.rows) == 11 and explorer.static()
    explorer.choose("s3")
    assert explorer.made == {"a": []}


def test_the_controls_follow_and_ask():
    explorer = StrategyExplorer(COMPARED)
    _ = explorer.view
    explorer._seed.value = "s7"
    assert explorer.seed == "s7" and explorer._attempt.value == explorer.followed == ("evol_instruct", 43)
    explorer._attempt.value = ("few_shot", 7)
    assert explorer.followed == ("few_shot", 7) and "where few_shot 7" in explorer._shown[1].value
    explorer.choose("s8")
    assert explorer._seed.value == "s8" and len(explorer._attempt.options) == len(explorer.asked()) == 8


@pytest.mark.parametrize("make", [lambda: ThresholdExplorer(ROWS), lambda: StrategyExplorer(COMPARED)])
def test_a_saved_notebook_shows_the_explorers(make, monkeypatch):
    bundle = make()._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert len(bundle["text/html"]) > 1000
    monkeypatch.setenv("COTKIT_REPORT", "1")
    assert set(make()._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_ten_thousand_attempts_are_explored_without_lag():
    rows = {}
    for name, made in COMPARED.rows.items():
        rows[name] = [
            row.model_copy(
                update={"metadata": {"synthesis": row.metadata["synthesis"] | {"attempt": number}}}
            )
            for number, row in enumerate(made * 105)
        ]
    explorer = StrategyExplorer(dataclasses.replace(COMPARED, rows=rows))
    assert len(explorer.rows) == 10_080
    started = time.process_time()
    for seed in ("s1", "s2", "s3"):
        explorer.choose(seed)
        assert len(explorer.static()) < 1_000_000
    assert (time.process_time() - started) / 3 < 1.0
