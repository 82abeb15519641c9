"""Sentences say what the rows hold, with count and interval, and no more than that."""

from __future__ import annotations

import pytest
from synthetic_rows import candidate, make_report, make_rows, row

from cotkit import analysis


def solved(number, **fields):
    return row(number, [candidate(accepted=True, **fields)])


def failed(number, **fields):
    return row(number, [candidate(False, answer="41", **fields)])


def repaired(number):
    draft = candidate(False, answer="41")
    return row(number, [draft, candidate(iteration=1, stage="refine", parent=0, accepted=True)])


def sentence(rows, words, report=None):
    found = [s for s in analysis.findings(rows, report or make_report(rows)) if words in s]
    assert len(found) == 1, found
    return found[0]


def test_a_small_gain_by_refinement_is_not_told_from_noise():
    rows = [solved(i) for i in range(8)] + [repaired(i) for i in range(8, 10)] + [failed(10), failed(11)]
    said = sentence(rows, "Refinement was tried")
    assert (
        "on 2 problems and added 2 of 12 to the kept ones, +17 points (95 % interval -11 to +42, p = 0.5"
        in said
    )
    assert "too few problems to tell from noise" in said


def test_a_gain_on_many_problems_is_stated_plainly():
    rows = (
        [solved(i) for i in range(50)]
        + [repaired(i) for i in range(50, 80)]
        + [failed(i) for i in range(80, 100)]
    )
    said = sentence(rows, "Refinement was tried")
    assert "added 30 of 100 to the kept ones, +30 points (95 % interval +21 to +39, p < 0.001)" in said
    assert "noise" not in said and "further drafts would have added was not measured" in said


def test_refinement_that_helped_nowhere_is_said_to():
    rows = [
        row(
            0,
            [
                candidate(False, answer="1"),
                candidate(False, answer="2", iteration=1, stage="refine", parent=0),
            ],
        )
    ]
    assert "on 1 problem and added none" in sentence(rows, "Refinement was tried")


def test_what_refinement_broke_is_said_too():
    broken = candidate(False, answer="2", iteration=1, stage="refine", parent=0)
    rows = [row(0, [candidate(True), broken]), repaired(1)]
    assert "turned 1 wrong trace right and 1 right trace wrong" in sentence(rows, "Refinement was tried")


def test_the_yield_names_the_drop_reasons():
    rows = [solved(0), failed(1), failed(2), row(3, [])]
    said = sentence(rows, "Kept")
    assert said == (
        "Kept 1 of 4 problems (25 %, 95 % interval 5 to 70 %). Dropped: 2 wrong_answer, 1 model_timeout."
    )


def test_an_unfinished_run_says_so_first():
    rows = make_rows(6)
    report = make_report(rows, given=10, stopped="budget_calls=30 is spent")
    assert analysis.findings(rows, report)[0] == (
        "The run is not complete (budget_calls=30 is spent): 4 of 10 problems are unfinished. "
        "The rest is about the 6 finished ones."
    )


def test_a_run_killed_without_a_report_does_not_claim_to_be_whole():
    rows = make_rows(3)
    report = {"given": 3, "complete": False, "stopped": "the process ended before it wrote a report"}
    assert "how many problems are unfinished was not recorded" in analysis.findings(rows, report)[0]


def test_no_rows_give_one_sentence():
    assert analysis.findings([], make_report([])) == [
        "No problem was finished, so there is nothing to report."
    ]


@pytest.mark.parametrize(
    "judge, rests_on", [(True, "rests on the judge alone"), (False, "rests on neither a verdict nor a judge")]
)
def test_without_verdicts_no_accuracy_is_claimed(judge, rests_on):
    rows = make_rows(5, reference=False, judge=judge, endpoint_fails=0)
    assert rests_on in sentence(rows, "No problem has a decided verdict")
    assert not [s for s in analysis.findings(rows, make_report(rows)) if "was right on" in s]


def test_undecided_problems_are_mentioned_beside_the_accuracy():
    rows = [solved(0), row(1, [candidate(None)])]
    assert sentence(rows, "The first draft").endswith("1 problem without a decided verdict left out.")


def test_hinted_problems_are_mentioned_beside_the_yield():
    hinted = candidate(iteration=1, stage="rationalize", rationalized=True, accepted=True)
    rows = [solved(0), row(1, [candidate(False, answer="41"), hinted])]
    assert sentence(rows, "hint").startswith("1 of the kept problems")
    assert "right on 1 of 2 problems" in sentence(rows, "The first draft")


@pytest.mark.parametrize(
    "power, words",
    [(0.6, "ranks right traces above wrong ones"), (0.0, "is not shown to tell right traces from wrong")],
)
def test_the_judge_is_praised_only_when_the_interval_leaves_out_a_coin(power, words):
    said = sentence(make_rows(30, judge_power=power), "The score of the judge")
    assert words in said and "95 % interval" in said


def test_a_judge_shown_only_what_verification_left_is_flagged():
    right = candidate(scores={"form": 1.0}, accepted=True)
    rows = [row(0, [right, candidate(False, answer="1", sample_index=1)]),
            row(1, [candidate(False, answer="1", scores={"form": 0.0})])]  # fmt: skip
    assert "not shown 1 further trace" in sentence(rows, "this comparison is biased")


def drafts_scored_by_a_judge(**fields):
    return [
        row(i, [candidate(i % 2 == 0, answer=str(i % 2), sample_index=0, scores={"form": 0.9}, **fields),
                candidate(False, answer="1", sample_index=1, scores={"form": 0.1}, **fields)])
        for i in range(20)
    ]  # fmt: skip


@pytest.mark.parametrize("saw", [False, True])
def test_a_choice_by_a_judge_that_saw_the_reference_is_not_passed_off_as_blind(saw):
    rows = drafts_scored_by_a_judge(judge_saw=saw)
    assert sentence(rows, "Best score of 2 drafts").startswith(
        "Best score of 2 drafts (the judge saw the reference): right on"
        if saw
        else "Best score of 2 drafts, chosen without the reference: right on"
    )
    assert ("the judge saw the reference" in sentence(rows, "The score of the judge")) == saw
    assert "chosen without the reference" in sentence(rows, "Majority of 2 drafts")


@pytest.mark.parametrize("saw", [False, True])
def test_without_verdicts_it_is_said_that_the_judge_saw_the_reference(saw):
    rows = [row(0, [candidate(None, scores={"form": 0.9}, judge_saw=saw)])]
    said = sentence(rows, "No problem has a decided verdict")
    assert said.endswith("the judge alone (the judge saw the reference)." if saw else "the judge alone.")


@pytest.mark.parametrize("saw", [False, True])
def test_feedback_of_a_judge_that_saw_the_reference_is_told_beside_what_refinement_gained(saw):
    draft = candidate(False, answer="41", judge_saw=saw, scores={"form": 0.2})
    later = candidate(iteration=1, stage="refine", parent=0, accepted=True, saw_reference=saw)
    said = sentence([row(0, [draft, later])], "Refinement was tried")
    assert ("1 refined trace used feedback by a judge that saw the reference" in said) == saw


def test_what_a_judge_that_recomputes_steps_cannot_see_is_said():
    assert "it cannot see a wrong plan" in sentence(make_rows(4), "The judge (steps) recomputes")
    rows = drafts_scored_by_a_judge()
    assert not [s for s in analysis.findings(rows, make_report(rows)) if "wrong plan" in s]


def test_failed_judgements_and_cut_traces_are_counted():
    rows = [
        row(0, [candidate(judged=True), candidate(False, answer=None, truncated=True, scores={"form": 0.5})])
    ]
    assert "failed on 1 of 2 traces" in sentence(rows, "The judge failed")
    assert "1 of 2 traces" in sentence(rows, "cut off")


def test_a_difference_in_length_is_stated_only_when_it_is_clear():
    same = [solved(i) if i % 2 else failed(i) for i in range(20)]
    assert not [s for s in analysis.findings(same, make_report(same)) if "Wrong traces are" in s]
    longer = [solved(i) if i % 2 else failed(i, trace="and so on. " * (20 + i)) for i in range(20)]
    assert "longer than right ones" in sentence(longer, "Wrong traces are")


def test_an_unknown_cost_is_called_unknown():
    assert "cost unknown" in sentence(make_rows(4), "completion tokens")


@pytest.mark.parametrize("seed", range(5))
def test_every_rate_in_a_sentence_has_its_interval(seed):
    for said in analysis.findings(rows := make_rows(25, seed=seed, rationalization=True), make_report(rows)):
        assert ("%" in said) <= ("95 % interval" in said), said


# examples


def test_examples_show_different_things():
    rows = make_rows(60, rationalization=True, skill=0.4, seed=1)
    shown = analysis.examples(rows, accepted=True, k=3)
    assert {row.best.stage for row in shown} == {"refine", "rationalize", "draft"}
    assert len({row.drop_reason for row in analysis.examples(rows, accepted=False, k=3)}) == 3
    assert [row.id for row in shown] == [row.id for row in analysis.examples(rows, accepted=True, k=3)]
    assert [row.id for row in shown] != [
        row.id for row in analysis.examples(rows, accepted=True, k=3, seed=1)
    ]


def test_examples_never_repeat_nor_run_out():
    rows = [solved(i) for i in range(2)]
    assert sorted(row.id for row in analysis.examples(rows, k=5)) == ["p0", "p1"]
    assert analysis.examples(rows, accepted=False) == []


@pytest.mark.parametrize(
    "row, words",
    [
        (solved(0), "kept as drafted, verified right"),
        (row(0, [candidate(None, accepted=True)]), "kept as drafted, verdict undecided"),
        (repaired(0), "kept after 1 refinement, verified right; the draft said 41"),
        (row(0, [candidate(accepted=True), candidate(False, answer="1", sample_index=1)]),
         "kept as drafted, verified right; 1 of 2 drafts were right"),
        (row(0, [candidate(False, answer="41")], detail="answered 41"), "dropped, wrong_answer: answered 41"),
        (row(0, [], drop_reason="model_auth", detail="no key"), "dropped, model_auth: no key"),
    ],
)  # fmt: skip
def test_the_outcome_of_a_problem_in_words(row, words):
    assert analysis.outcome(row) == words
