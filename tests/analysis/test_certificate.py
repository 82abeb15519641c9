"""Certificates hold as often as they say, on simulated judges whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom
from scored import scored

from cotkit.analysis import auc, certificate, simulate_thresholds, tuning
from cotkit.analysis.certificate import (
    apparent_target,
    conformal_holds,
    fixed_sequence,
    labels_needed,
    naive_step,
    planned_start,
    power,
    rogan_gladen,
)
from cotkit.analysis.scored_rows import one_a_problem, scored_rows, split_problems

DELTA = 0.1


def at_most(share: float, repeats: int) -> float:
    """What the count of an event with this chance exceeds once in a thousand simulations."""
    return binom.ppf(0.999, repeats, share) / repeats


def test_the_certified_threshold_misses_its_target_at_most_delta_of_the_time_and_the_naive_one_does_not():
    table = simulate_thresholds((100, 300, 1000), target_precision=0.9, delta=DELTA, repeats=400)
    certified, naive = (table[table["way"] == way].set_index("labels") for way in ("certified", "naive"))
    assert (certified["missed"] <= at_most(DELTA, 400)).all()
    assert (naive["missed"] > 2 * DELTA).all()
    assert certified["none"].is_monotonic_decreasing and certified["none"][1000] < 0.1
    assert (certified["missed_low"] <= certified["missed"]).all()


def benches(frame, problems, repeats, columns=None, rule="all"):
    """The arrays of `repeats` data sets of so many problems, cut from one frame."""
    data = scored_rows(frame, columns, "correct", "id", None)
    size = problems * len(frame) // frame["id"].nunique()
    for seed in range(repeats):
        part = dataclasses.replace(data, frame=data.frame[seed * size : (seed + 1) * size])
        bench = tuning._bench(part, tuning._split(part, 0, seed)[0], (rule,))
        picks = np.flatnonzero(bench.parts["certify"])
        yield bench, picks[one_a_problem(bench.problem[picks], seed)]


@pytest.mark.parametrize("rule", ["mean", "all"])
def test_the_whole_procedure_keeps_its_promise_with_several_traces_a_problem(rule):
    repeats, columns, missed, found = 200, ["score_correctness", "score_clarity"], 0, 0
    truth = scored(20_000, 1, seed=1, power=(1.2, 1.0))
    for bench, picks in benches(scored(150 * repeats, 3, power=(1.2, 1.0)), 150, repeats, rule=rule):
        outcome = tuning._certify(bench, rule, picks, 0.8, DELTA)
        if outcome.certified:
            found += 1
            kept = bench.paths[rule].step_of(truth[columns].to_numpy()) <= outcome.step
            missed += truth["correct"][kept].mean() < 0.8
    assert found > repeats / 5
    assert missed / repeats <= at_most(DELTA, repeats)


def test_permuted_labels_give_no_certificate_and_an_auc_of_a_half():
    frame, repeats = scored(100 * 200, 1, power=(2.0,)), 200
    frame["correct"] = np.random.default_rng(0).permutation(frame["correct"])
    certified, aucs = 0, []
    for bench, picks in benches(frame, 100, repeats):
        certified += tuning._certify(bench, "all", picks, 0.9, DELTA).certified
        aucs.append(auc(bench.scores[:, 0], bench.right))
    assert certified <= 0.02 * repeats
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.02)


def test_the_sequence_is_the_plain_loop():
    rng = np.random.default_rng(1)
    for _ in range(50):
        kept = np.cumsum(rng.integers(1, 30, 12))
        wrong = np.cumsum(rng.binomial(3, 0.15, 12))
        start, best = int(rng.integers(0, 4)), -1
        for step in range(start, 12):
            if binom.cdf(wrong[step], kept[step], 0.2) > DELTA:
                break
            best = step
        assert fixed_sequence(wrong, kept, 0.8, DELTA, start)[0] == best


def test_nothing_kept_certifies_nothing():
    last, p = fixed_sequence(np.zeros(3), np.zeros(3), 0.9, DELTA)
    assert last == -1 and (p == 1).all()


def test_the_sequence_starts_where_it_can_pass():
    right, kept = np.array([2, 40, 78, 150]), np.array([2, 40, 80, 200])
    chance = power(right, kept, 1.0, 0.9, DELTA)
    assert chance[0] == 0 and chance[1] > 0.8 and planned_start(right, kept, 1.0, 0.9, DELTA) in (1, 2)


def counted(precision, kept=1e9):
    """A tune split so large that its one step's precision is known."""
    return np.array([precision * kept]), np.array([kept])


@pytest.mark.parametrize("precision", [0.92, 0.95, 0.99])
def test_the_labels_needed_give_the_power_they_say(precision):
    n = labels_needed(*counted(precision), 0.9, DELTA)
    rng = np.random.default_rng(0)
    wrong = rng.binomial(n, 1 - precision, 4000)
    passed = (binom.cdf(wrong, n, 0.1) <= DELTA).mean()
    assert passed == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize("precision", [0.5, 0.9, 0.9000001])
def test_no_number_of_labels_suffices_at_or_below_the_target(precision):
    assert labels_needed(*counted(precision), 0.9, DELTA) is None


@pytest.mark.parametrize("grows", [True, False])
def test_conformal_risk_control_keeps_the_expected_loss(grows):
    """Steps keep the lowest scores first or last; the loss of a row grows, or shrinks, along the path."""
    rng, level, steps = np.random.default_rng(2), 0.1, 30
    expected = []
    for _ in range(400):
        score = rng.integers(0, steps, 100)  # lost from this step on, or up to it
        lost = np.array([(score <= s).sum() if grows else (score > s).sum() for s in range(steps)])
        holds = np.flatnonzero(conformal_holds(lost, 100, level))
        at = (holds[-1] if grows else holds[0]) if len(holds) else -1
        truth = (at + 1) / steps
        expected.append(truth if grows else 1 - truth)
    assert np.mean(expected) <= level + 0.005 and np.mean(expected) > level / 2


ERRORS = {"false_accept": (8, 100), "false_reject": (15, 150)}


def test_rogan_gladen_undoes_the_verifiers_errors():
    for true in (0.6, 0.9):
        seen = true * 0.9 + (1 - true) * 0.08
        assert rogan_gladen(seen, 500, ERRORS)[0] == pytest.approx(true)
    assert rogan_gladen(0.95, 50, {"false_accept": (0, 50), "false_reject": (0, 50)})[0] == 0.95


def test_the_corrected_interval_covers_as_it_says():
    rng, hits, repeats = np.random.default_rng(3), 0, 1000
    for _ in range(repeats):
        audit = {
            "false_accept": (rng.binomial(100, 0.08), 100),
            "false_reject": (rng.binomial(150, 0.1), 150),
        }
        seen = rng.binomial(200, 0.85 * 0.9 + 0.15 * 0.08) / 200
        _, low, high = rogan_gladen(seen, 200, audit, confidence=0.9)
        hits += low <= 0.85 <= high
    assert hits / repeats == pytest.approx(0.9, abs=0.04)


def test_a_certificate_by_an_erring_verifier_holds_for_the_truth():
    """One threshold; labels and audit are drawn anew each time, the true precision is just below target."""
    rng, repeats, kept, true = np.random.default_rng(4), 2000, 300, 0.849
    passed = {"blind": 0, "corrected": 0}
    for _ in range(repeats):
        audit = {
            "false_accept": (rng.binomial(150, 0.2), 150),
            "false_reject": (rng.binomial(150, 0.01), 150),
        }
        wrong = rng.binomial(kept, 1 - (true * 0.99 + (1 - true) * 0.2))
        for way, errors in (("blind", None), ("corrected", audit)):
            target, delta = apparent_target(0.85, errors, DELTA)
            passed[way] += fixed_sequence(np.array([wrong]), np.array([kept]), target, delta)[0] == 0
    assert passed["corrected"] / repeats <= DELTA
    assert passed["blind"] / repeats > 2 * DELTA


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        ({"false_accept": (1, 10)}, "false_reject"),
        ({"false_accept": (11, 10), "false_reject": (0, 10)}, "(errors, audited)"),
        ({"false_accept": (0, 0), "false_reject": (0, 10)}, "(errors, audited)"),
    ],
)
def test_an_audit_that_is_none_is_refused(errors, says):
    with pytest.raises(ValueError) as refused:
        certificate.check_errors(errors)
    assert says in str(refused.value)


def test_a_verifier_no_better_than_a_coin_is_refused():
    with pytest.raises(ValueError, match="do not show"):
        apparent_target(0.9, {"false_accept": (5, 10), "false_reject": (5, 10)}, DELTA)


def test_the_naive_step_is_the_laxest_that_counts_to_the_target():
    right, kept = np.array([[9, 17, 24, 50], [0, 1, 2, 3]]), np.array([[10, 20, 26, 60], [1, 3, 5, 8]])
    assert naive_step(right, kept, 0.9).tolist() == [2, -1]
    assert naive_step(np.array([0, 0]), np.array([0, 0]), 0.9) == -1


def test_a_problem_lies_in_one_split_whatever_the_order_of_rows():
    frame = scored(100, 3)
    split = split_problems(frame["id"], 0)
    assert frame.assign(split=split).groupby("id")["split"].nunique().eq(1).all()
    sizes = frame.assign(split=split).groupby("split")["id"].nunique()
    assert sizes.to_dict() == {"tune": 40, "certify": 40, "report": 20}
    turned = frame.iloc[::-1]
    assert (split_problems(turned["id"], 0)[::-1] == split).all()


def test_one_row_a_problem_is_drawn_evenly():
    ids = np.repeat([f"p{i}" for i in range(400)], 4)
    drawn = one_a_problem(ids, 0)
    assert len(drawn) == 400 and len(set(ids[drawn])) == 400
    assert np.bincount(drawn % 4, minlength=4).min() > 60
