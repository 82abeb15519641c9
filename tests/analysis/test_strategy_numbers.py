"""Strategies compared: counts that add up, intervals that hold the truth, notes on what limits, the mix."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from synthesis_rows import THINGS, attempts, report, seeds, solved

from cotkit.analysis import Rate, StrategyComparison, compared_texts, figures, recommend, strategy_funnel
from cotkit.analysis.strategies import reliability
from cotkit.records import Row

PHYSICS = {
    "few_shot": 0.939,
    "self_instruct": 0.82,
    "evol_instruct": 0.562,
}  # Loong, arXiv 2509.03059, fig. 2


def compared(runs, reports=None, seed_problems=(), **options):
    reports = reports or {name: report(rows) for name, rows in runs.items()}
    return StrategyComparison.of(runs, reports, seed_problems, **options)


@pytest.fixture(scope="module")
def physics():
    """300 attempts a strategy; self_instruct knows two themes; evol_instruct's problems are hard."""
    runs = {
        "few_shot": attempts("few_shot", 300, 0.939),
        "self_instruct": attempts("self_instruct", 300, 0.82, themes=THINGS[:2]),
        "evol_instruct": attempts("evol_instruct", 300, 0.562),
    }
    baseline = seeds(20)
    texts = compared_texts(runs, baseline)
    chance = {t: {"few": 0.9, "sel": 0.8, "evo": 0.3}.get(t[:3], 0.6) for t in texts}
    reports = {name: report(rows, 200) for name, rows in runs.items()}
    return compared(
        runs, reports, baseline, solved=solved(texts, chance), solved_by_second=solved(texts, 0.9, seed=3)
    )


def test_the_funnel_loses_nothing(physics):
    for name, lines in physics.funnel.groupby("strategy"):
        assert lines["problems"].iloc[0] == 300
        assert (
            lines["problems"].shift(1).iloc[1:] - lines["problems"].iloc[1:] == lines["lost"].iloc[1:]
        ).all()
        assert all(
            sum(reasons.values()) == lost
            for reasons, lost in zip(lines["reasons"], lines["lost"], strict=True)
        )
        assert lines["problems"].iloc[-1] == physics.reliability.set_index("strategy")["accepted"][name]
    assert "judged" not in set(physics.funnel["step"])  # there was no judge: not a step that nobody passed


def test_a_step_that_one_strategy_did_not_run_is_missing_there_and_loses_nothing():
    judged = attempts("judged", 10, 1.0)
    for row in judged:
        row.metadata["synthesis"]["passed"] = [*row.metadata["synthesis"]["passed"], "judged"]
    for order in ("judged", "plain"), ("plain", "judged"):
        runs = {"judged": judged, "plain": attempts("plain", 10, 1.0)}
        funnel = strategy_funnel({name: runs[name] for name in order}).set_index(["strategy", "step"])
        assert funnel["problems"]["judged", "judged"] == 10 and funnel["problems"]["plain", "accepted"] == 10
        assert pandas.isna(funnel["problems"]["plain", "judged"]) and funnel["lost"]["plain", "judged"] == 0
        figures.strategy_funnel(funnel.reset_index())


def test_shares_are_those_that_were_played_and_ordered(physics):
    table = physics.reliability.set_index("strategy")
    for name, share in PHYSICS.items():
        assert table["accepted_share_low"][name] <= share <= table["accepted_share_high"][name]
    assert table["accepted_share"].is_monotonic_decreasing
    assert (physics.differences["difference_high"] < 0).all()
    assert (physics.differences["shared_seeds"] == 20).all()
    assert table["tokens_each"]["evol_instruct"] == pytest.approx(
        300 * 200 / table["accepted"]["evol_instruct"]
    )
    assert table["cost_usd_each"].isna().all() and (table["cost"] == "unknown").all()


def test_intervals_of_shares_hold_the_truth():
    def few(accept, rng):
        return [
            SimpleNamespace(accepted=bool(flag), retryable=False, drop_reason=None)
            for flag in rng.random(40) < accept
        ]

    rng, held = np.random.default_rng(0), []
    for _ in range(200):
        runs = {name: few(share, rng) for name, share in PHYSICS.items()}
        table = reliability(runs, {name: {} for name in runs})
        bounds = zip(table["accepted_share_low"], PHYSICS.values(), table["accepted_share_high"], strict=True)
        held += [low <= share <= high for low, share, high in bounds]
    assert np.mean(held) > 0.93  # of 600


def test_diversity_and_difficulty_are_told_apart(physics):
    triangle = physics.summary().set_index("set")
    assert list(triangle.index) == ["seeds", *PHYSICS]
    assert triangle["vendi_high"]["self_instruct"] < triangle["vendi_low"]["seeds"]
    assert triangle["solve_rate_high"]["evol_instruct"] < triangle["solve_rate_low"]["self_instruct"]
    assert triangle["hard_low"]["evol_instruct"] > triangle["hard_high"]["few_shot"]
    second = physics.discrimination.set_index("set")
    assert second["difference_low"]["evol_instruct"] > 0.4
    assert set(physics.inside["size"]) == {10, physics.reliability["accepted"].min() // 2}


def test_findings_say_what_the_frames_hold(physics):
    text = "\n".join(physics.findings())
    accepted = physics.reliability["accepted"].iloc[0]
    assert f"few_shot: {accepted} of 300 attempts" in text
    assert "self_instruct is less diverse inside than the seeds" in text
    assert "evol_instruct against few_shot: -" in text and "20 shared seeds)" in text
    gap = physics.discrimination.set_index("set").loc["evol_instruct"]
    bounds = f"{100 * gap['difference_low']:+.0f} to {100 * gap['difference_high']:+.0f}"
    points = f"{100 * gap['difference']:+.0f} points for the second (95 % interval {bounds}, "
    assert f"tells the solvers apart: {points}{gap['problems']:.0f} problems)." in text
    solve = physics.difficulty.set_index("set").loc["evol_instruct"]
    n = int(solve["problems"])
    hard, never = (Rate.of(round(solve[name] * n), n).in_words() for name in ("hard", "never"))
    assert f"{hard} are hard, {never} were never solved." in text and "may be hard or wrong" in text
    assert "not shown to go" in text  # the proxies were drawn apart from the solve rates
    assert "nan" not in text
    assert "few_shot" in physics._repr_html_() and "few_shot" in repr(physics)


def test_coverage_by_operator_and_topic(physics):
    lines = physics.coverage.set_index(["strategy", "kind", "value"])
    assert lines.loc[("evol_instruct", "operator", "deepen"), "attempts"] == 150
    assert lines.loc["few_shot", "topic"]["attempts"].sum() == 300


def test_the_cheapest_mix_for_each_target(physics):
    assert recommend(physics, 100).mix == {"few_shot": 100}  # it costs least
    hard = recommend(physics, 100, hard_share=0.3)
    assert set(hard.mix) == {"few_shot", "evol_instruct"} and sum(hard.mix.values()) == 100
    assert hard.reaches >= 0.8 and hard.unit == "tokens" and hard.cost > recommend(physics, 100).cost
    assert "self_instruct" not in recommend(physics, 100, diversity=0.9).mix
    never = recommend(physics, 100, hard_share=0.99)
    assert never.mix is None and "No mix surely gives" in never.text
    assert recommend(physics, 100, hard_share=0.3).text == hard.text  # the same seed, the same answer


@pytest.mark.parametrize(
    "target",
    [{"n": n} for n in (0, 2.5, True, "3", math.inf, math.nan)]
    + [{"hard_share": share} for share in (1.2, math.nan, "0.5")]
    + [{"diversity": floor} for floor in (-1, math.nan, math.inf, None)],
)
def test_a_target_that_is_none_is_refused(physics, target):
    with pytest.raises(ValueError, match="no target"):
        recommend(physics, **target)


def test_few_attempts_give_wide_words_and_no_mix():
    runs = {"few_shot": attempts("few_shot", 6, 0.5), "evol_instruct": attempts("evol_instruct", 6, 0.3)}
    found = compared(runs)
    text = "\n".join(found.findings())
    assert "not told apart" in text and "Too few problems to measure the diversity" in text
    assert "No solver was asked" in text and "No seeds were given" in text and "nan" not in text
    assert "Not enough data" in recommend(found).text and recommend(found).mix is None


def test_hardness_cannot_be_asked_without_a_solver():
    found = compared({"few_shot": attempts("few_shot", 60, 0.9)})
    assert recommend(found).mix == {"few_shot": 100}
    assert "Not enough data" in recommend(found, hard_share=0.2).text


def test_nothing_accepted_and_nothing_attempted():
    found = compared({"few_shot": attempts("few_shot", 5, 0.0), "empty": []})
    assert found.reliability["accepted"].sum() == 0 and math.isnan(found.reliability["tokens_each"].iloc[0])
    assert "nan" not in "\n".join(found.findings()) and found.map.empty
    assert recommend(found).mix is None and found._repr_html_()


def test_attempts_that_an_endpoint_failed_are_no_failure_of_the_strategy():
    found = compared({"few_shot": attempts("few_shot", 100, 1.0, failed=20)})
    line = found.reliability.iloc[0]
    assert (line["attempts"], line["failed"], line["accepted_share"]) == (80, 20, 1.0)
    assert any("20 attempts of few_shot" in note for note in found.notes)


def judged(rows, fails):
    """The same attempts where the judge of those that came to it fails at `fails(index)`."""
    for row in rows:
        if row.accepted and fails(row.index):
            row.accepted, row.drop_reason, row.retryable = False, "judge_failed", True
    return rows


def test_a_judge_that_failed_feigns_no_difference():
    up, half, down = (attempts("few_shot", 60, 0.6) for _ in range(3))
    runs = {"up": up, "half": judged(half, lambda i: i % 2), "down": judged(down, lambda i: True)}
    found = compared(runs)
    table = found.reliability.set_index("strategy")
    assert abs(table["accepted_share"]["half"] - table["accepted_share"]["up"]) < 1e-9
    assert math.isnan(table["accepted_share"]["down"]) and table["accepted_share_low"]["down"] == 0
    assert (table["accepted_share_high"] == table["accepted_share_high"]["up"]).all()
    assert table["cut_off"]["down"] == table["failed"]["down"] == table["accepted"]["up"]
    gaps = found.differences.set_index(["first", "second"])
    assert gaps.loc[("up", "half"), "difference"] == pytest.approx(0)
    assert gaps.loc[("up", "half"), "difference_low"] < 0 < gaps.loc[("up", "half"), "difference_high"]
    text = "\n".join(found.findings())
    assert "down against" not in text and "against down" not in text and "nan" not in text
    assert "half against up: +0 points" in text or "half against up: -0 points" in text
    assert f"{table['cut_off']['down']} attempts of down were cut off" in text
    lines = found.funnel[found.funnel["strategy"] == "down"].set_index("step")
    assert lines["reasons"]["accepted"] == {"judge_failed": table["cut_off"]["down"]}


@pytest.mark.parametrize("seed", range(5))
def test_shares_with_faults_in_the_middle_are_near_the_true_ones_and_their_intervals_hold_them(seed):
    rng, rows = np.random.default_rng(seed), attempts("few_shot", 2000, 0.7, seed=seed)
    for row in rows:  # four in ten die at the program, whatever would have become of them
        passed = row.metadata["synthesis"]["passed"]
        if len(passed) >= 3 and rng.random() < 0.4:
            row.metadata["synthesis"]["passed"] = passed[:3]
            row.accepted, row.drop_reason, row.retryable = False, "sandbox_failed", True
    line = reliability({"few_shot": rows}, {"few_shot": {}}).iloc[0]
    assert abs(line["accepted_share"] - 0.7) < 0.035
    assert line["accepted_share_low"] < 0.7 < line["accepted_share_high"]


def test_runs_that_share_no_seed_have_no_paired_difference():
    runs = {"a": attempts("a", 40, 0.9), "b": attempts("b", 40, 0.2, seed_ids=["other"])}
    found = compared(runs)
    assert found.differences["difference"].isna().all() and "b against a" not in "\n".join(found.findings())


def test_unlike_runs_are_not_ranked_in_silence():
    runs = {"few_shot": attempts("few_shot", 60, 0.9)}
    found = compared(runs, unlike=["The runs differ in their votes."])
    assert found.notes[0] == "The runs differ in their votes."
    assert recommend(found).text.startswith("Not a ranking of strategies")
    assert recommend(found).text.endswith("The runs differ in their votes.")


def test_unequal_attempts_and_unfinished_runs_are_said():
    runs = {"few_shot": attempts("few_shot", 30, 0.9), "evol_instruct": attempts("evol_instruct", 12, 0.9)}
    reports = {name: report(rows) for name, rows in runs.items()}
    reports["evol_instruct"] |= {"complete": False, "stopped": "budget_calls=5 is spent"}
    notes = "\n".join(compared(runs, reports).notes)
    assert "few_shot 30, evol_instruct 12" in notes and "budget_calls=5 is spent" in notes


def test_rows_of_another_pipeline_are_refused():
    with pytest.raises(ValueError, match="was not made by synthesize"):
        strategy_funnel({"x": [Row(index=0, id="p1", problem="?")]})


def test_an_endpoint_that_refuses_for_good_is_no_failure_of_the_strategy_either():
    rows = attempts("few_shot", 100, 1.0, failed=20)
    for row in rows[:20]:
        row.drop_reason, row.retryable = "model_bad_request", False
    line = compared({"few_shot": rows}).reliability.iloc[0]
    assert (line["attempts"], line["failed"], line["accepted_share"]) == (80, 20, 1.0)


def test_a_row_that_an_internal_error_ended_does_not_stop_the_comparison():
    rows = attempts("few_shot", 20, 1.0)
    rows[3] = Row(index=3, id="few_shot-00003", problem="", drop_reason="internal_error", retryable=True)
    assert compared({"few_shot": rows}).funnel["problems"].iloc[0] == 19


def test_trying_the_judge_is_no_cost_of_a_problem():
    rows = attempts("few_shot", 10, 1.0)
    known = report(rows, tokens=100)
    aside = {"calls": 16, "prompt_tokens": 700, "completion_tokens": 100, "cost_usd": None}
    ledger = known["ledger"]
    for name in ("calls", "prompt_tokens", "completion_tokens"):
        ledger[name] += aside[name]
    ledger["by_role"] = {"judge_calibration": aside}
    line = compared({"few_shot": rows}, {"few_shot": known}).reliability.iloc[0]
    assert (line["calls_each"], line["tokens_each"]) == (1, 100)


@pytest.mark.parametrize("n", [1, 3, 5, 25, 101])
def test_a_mix_adds_up_to_what_was_asked(physics, n):
    assert sum(recommend(physics, n, hard_share=0.3).mix.values()) == n
