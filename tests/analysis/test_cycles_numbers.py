"""Numbers over cycles against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from cotkit import analysis
from cotkit.records import Candidate, Judgement, Row, Verdict


def row(id, *verdicts, score=None, kind="sum"):
    """One problem; a verdict is True, False, None (undecided) or "-" (no answer)."""

    def candidate(k, verdict):
        judgement = Judgement(scores={"quality": score}) if score is not None else None
        known = Verdict(
            correct=False if verdict == "-" else verdict, method="no_answer" if verdict == "-" else "number"
        )
        return Candidate(
            iteration=0, sample_index=k, trace=f"text {id}", text="t", verdict=known, judgement=judgement
        )

    candidates = [candidate(k, verdict) for k, verdict in enumerate(verdicts)]
    return Row(index=0, id=id, problem=f"P {id}", type=kind, candidates=candidates)


def test_compare_counts_only_problems_that_both_decided():
    before = [row("a", True), row("b", False), row("c", None), row("d", False), row("only here", True)]
    now = [row("a", True), row("b", True), row("c", True), row("d", True)]
    found = analysis.compare(before, now)
    assert (found.measure, found.n) == ("verified accuracy", 3)
    assert found.champion == pytest.approx(1 / 3) and found.challenger == 1.0
    assert found.p_value == pytest.approx(0.5)  # two gained, none lost: 2 * (1/2)^2
    assert found.standard_error == pytest.approx(math.sqrt(2 - 4 / 3) / 3)


def test_without_verdicts_scores_are_compared_and_a_hold_out_critic_goes_first():
    before = [row(str(i), None, score=0.4) for i in range(10)]
    now = [row(str(i), None, score=0.6 + 0.01 * (i % 2)) for i in range(10)]
    found = analysis.compare(before, now)
    assert found.measure == "critics' score" and found.difference == pytest.approx(0.205)
    assert 0.2 <= found.low < found.high <= 0.21 and math.isnan(found.p_value)
    held = [{str(i): value for i in range(10)} for value in (0.7, 0.5)]
    assert analysis.compare(before, now, *held).difference == pytest.approx(-0.2)
    assert analysis.compare([], now).n == 0


def test_format_and_reasoning_add_up_to_the_gain():
    before = [row(str(i), "-" if i < 6 else i < 8) for i in range(10)]  # answers 4, of these 2 right
    now = [row(str(i), i < 6) for i in range(10)]  # answers 10, of these 6 right
    parts = analysis.gain_parts(before, now)
    assert parts["format"] == pytest.approx((1.0 - 0.4) * (0.5 + 0.6) / 2)
    assert parts["reasoning"] == pytest.approx((0.6 - 0.5) * (0.4 + 1.0) / 2)
    assert sum(parts.values()) == pytest.approx(0.6 - 0.2)


def test_where_nothing_was_answered_before_the_gain_is_all_format():
    parts = analysis.gain_parts(
        [row(str(i), "-") for i in range(10)], [row(str(i), i < 6) for i in range(10)]
    )
    assert parts == {"format": pytest.approx(0.6), "reasoning": pytest.approx(0.0)}


def test_families_never_trained_on_stand_apart():
    before = [row(f"s{i}", False) for i in range(4)] + [row(f"p{i}", False, kind="product") for i in range(4)]
    now = [row(f"s{i}", True) for i in range(4)] + [row(f"p{i}", i == 0, kind="product") for i in range(4)]
    frame = analysis.family_gains(before, now, {"sum": 9}).set_index("family")
    assert list(frame.index) == ["sum", "product", "(all never trained on)"]
    assert frame.loc["sum", "after"] == 1.0 and frame.loc["sum", "p_value"] == pytest.approx(0.125)
    assert frame.loc["(all never trained on)", "after"] == 0.25 and frame.loc["product", "trained"] == 0


def test_dev_measures_keep_undecided_and_unanswered_apart():
    found = analysis.dev_measures([row("a", True), row("b", "-"), row("c", None), row("d", False)])
    assert (found["pass1"]["right"], found["pass1"]["n"]) == (1, 3)
    assert (found["answered"]["right"], found["right_of_answered"]["n"]) == (2, 2)
    assert found["pass_k"] is None and found["score"] == {"n": 0}
    several = analysis.dev_measures([row("a", True, False), row("b", False, False)])
    assert several["pass_k"] == {"k": 2, "value": 0.5, "n": 2}


def test_no_rows_give_no_numbers_and_no_error():
    found = analysis.dev_measures([])
    assert found["pass1"]["n"] == 0 and math.isnan(found["pass1"]["value"])
    assert analysis.family_gains([], [], {}).empty
