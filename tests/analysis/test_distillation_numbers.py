"""Hand-made rows whose numbers are known, and the cases in which there is little or nothing to count."""

from __future__ import annotations

from collections import Counter

import pandas
import pytest
from synthetic_rows import candidate, make_report, make_rows, row

from cotkit import analysis
from cotkit.analysis import paired_difference, wilson_interval


def kept(number, **fields):
    return row(number, [candidate(accepted=True, **fields)])


def refined(number, start, end, accepted=True):
    """A problem whose one draft was refined once."""
    draft = candidate(start, answer="41" if start is False else "42")
    later = candidate(end, iteration=1, stage="refine", parent=0, accepted=accepted)
    return row(number, [draft, later])


def by_way(rows):
    return analysis.accuracy_comparison(rows).set_index("way")


# the funnel


def test_the_funnel_says_how_far_problems_came_and_why_they_went():
    rows = [
        kept(0),
        kept(1),
        row(2, [candidate(False, answer="41")]),
        row(3, [candidate(False, answer=None)], drop_reason="no_answer"),
        row(4, []),
        row(5, [candidate(True, scores={"form": 0.2})], drop_reason="below_threshold"),
    ]
    frame = analysis.funnel(rows, make_report(rows, given=8)).set_index("step")
    assert frame["problems"].to_dict() == {
        "given": 8, "has a trace": 5, "has an answer": 4, "verified right": 3, "kept: thresholds met": 2,
    }  # fmt: skip
    assert frame["lost"].sum() == 8 - 2
    assert frame.loc["has a trace", "reasons"] == {"unfinished": 2, "model_timeout": 1}
    assert frame.loc["has an answer", "reasons"] == {"no_answer": 1}
    assert frame.loc["verified right", "reasons"] == {"wrong_answer": 1}
    assert frame.loc["kept: thresholds met", "reasons"] == {"below_threshold": 1}
    assert (frame.loc["has a trace", "share_low"], frame.loc["has a trace", "share_high"]) == wilson_interval(
        5, 8
    )


def test_a_problem_stands_where_its_furthest_candidate_stands():
    far = candidate(True, answer="42", scores={"form": 0.1})
    rows = [row(0, [far, candidate(False, answer=None)], drop_reason="below_threshold")]
    frame = analysis.funnel(rows, make_report(rows)).set_index("step")
    assert frame.loc["verified right", "problems"] == 1 and frame["lost"].tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "verdicts, label",
    [([True, True], "verified right"), ([True, None], "right or undecided"), ([None, None], "undecided")],
)
def test_undecided_problems_pass_the_verifier_in_the_open(verdicts, label):
    rows = [kept(number, correct=verdict) for number, verdict in enumerate(verdicts)]
    frame = analysis.funnel(rows, make_report(rows)).set_index("step")
    assert frame.loc[label, "problems"] == 2
    assert frame.loc[label, "undecided"] == frame.loc["kept", "undecided"] == verdicts.count(None)


@pytest.mark.parametrize("changes", [{}, {"judge": False}, {"reference": False}, {"endpoint_fails": 0.5}])
def test_every_lost_problem_has_a_reason_and_the_counts_add_up(changes):
    rows = make_rows(80, seed=2, **changes)
    report = make_report(rows, given=85)
    frame = analysis.funnel(rows, report)
    assert frame["problems"].iloc[0] == 85 and frame["problems"].iloc[-1] == report["kept"]
    totals = sum((Counter(line) for line in frame["reasons"]), Counter())
    assert totals == report["drops"]
    assert [sum(line.values()) for line in frame["reasons"]] == frame["lost"].tolist()


def test_a_rationalized_problem_is_kept_and_counted_apart():
    hinted = candidate(True, iteration=1, stage="rationalize", rationalized=True, accepted=True)
    rows = [row(0, [candidate(False, answer="41"), hinted]), kept(1)]
    frame = analysis.funnel(rows, make_report(rows)).set_index("step")
    assert (frame.loc["kept", "problems"], frame.loc["kept", "rationalized"]) == (2, 1)


# acceptance by iteration


def test_each_round_of_refinement_shows_what_it_bought():
    again = candidate(False, answer="40", iteration=1, stage="refine", parent=0)
    second = candidate(True, iteration=2, stage="refine", parent=1, accepted=True)
    rows = [
        kept(0),
        refined(1, False, True),
        refined(2, True, False, accepted=False),
        row(3, [candidate(False, answer="41"), again, second]),
        refined(4, None, True, accepted=False),
    ]
    frame = analysis.acceptance_by_iteration(rows)
    assert frame["accepted"].tolist() == [1, 2, 3]
    assert frame["newly_accepted"].tolist() == [1, 1, 1]
    assert frame["worked_on"].tolist() == [5, 4, 1]
    assert frame["fixed"].tolist() == [0, 1, 1]
    assert frame["broken"].tolist() == [0, 1, 0]
    assert frame["undecided"].tolist() == [0, 1, 0]
    assert frame["problems"].tolist() == [5, 5, 5]
    assert (frame["share_low"][2], frame["share_high"][2]) == wilson_interval(3, 5)


def test_a_rationalized_trace_is_no_success_of_refinement():
    hinted = candidate(True, iteration=1, stage="rationalize", rationalized=True, accepted=True)
    frame = analysis.acceptance_by_iteration([row(0, [candidate(False, answer="41"), hinted])])
    assert frame["accepted"].tolist() == [0] and frame["iteration"].tolist() == [0]


# accuracy


def test_each_way_of_choosing_a_draft_is_counted_on_the_same_problems():
    def draft(correct, answer, score, sample):
        return candidate(correct, answer=answer, scores={"form": score}, sample_index=sample)

    rows = [
        # the first is wrong, two of three right: the majority finds it, the judge does not
        row(0, [draft(False, "41", 0.9, 0), draft(True, "42", 0.2, 1), draft(True, "42.0", 0.3, 2)]),
        # the first is right, the other two agree on a wrong answer: only the first and the judge find it
        row(1, [draft(True, "42", 0.9, 0), draft(False, "40", 0.1, 1), draft(False, "40.0", 0.1, 2)]),
        row(2, [draft(False, "1", 0.5, 0), draft(False, "2", 0.5, 1), draft(False, "3", 0.5, 2)]),
    ]
    right = by_way(rows)["right"].to_dict()
    assert right == {
        "first draft": 1, "mean of 3 drafts": 3, "majority of 3 drafts": 1, "best score of 3 drafts": 1,
        "any of 3 drafts": 2, "chosen of 3 drafts": 1,
    }  # fmt: skip
    ways = by_way(rows)
    assert ways["n"].to_dict()["mean of 3 drafts"] == 9  # traces
    assert (
        ways["sees_reference"][["first draft", "majority of 3 drafts", "best score of 3 drafts"]].tolist()
        == [False] * 3
    )
    assert ways.loc["any of 3 drafts", "sees_reference"]


def test_the_difference_to_the_first_draft_is_paired():
    rows = [refined(number, False, number < 4) for number in range(10)]
    line = by_way(rows).loc["after refinement"]
    gap = paired_difference([False] * 10, [number < 4 for number in range(10)])
    assert (line["gained"], line["lost"], line["traces"]) == (4, 0, 2.0)
    assert (line["difference"], line["difference_low"], line["p_value"]) == (
        gap.difference,
        gap.low,
        gap.p_value,
    )


def drafted(*answers):
    """A problem with one draft an answer; an answer ending in "!" was verified right."""
    marked = [(a, None) if a is None else (a.rstrip("!"), a.endswith("!")) for a in answers]
    return row(0, [candidate(bool(right), answer=a, sample_index=i) for i, (a, right) in enumerate(marked)])


@pytest.mark.parametrize(
    "problem, majority_is_right",
    [
        pytest.param(
            drafted(r"\frac{1}{3}", "1/2!", "1/3", "0.5!", r"\frac13"), False, id="3 wrong, 2 right"
        ),
        pytest.param(drafted("7", "1,000!", "2000/2!", "7", "1000.0!"), True, id="3 right, 2 wrong"),
        # the verifier, but not the key, knows that x+1 is 1+x: they do not pool because they are right
        pytest.param(drafted("x+1!", "x", "1+x!", "x"), False, id="the verdict pools nothing"),
        pytest.param(drafted("7", "8!", "8!", "7"), False, id="tie: the earliest is wrong"),
        pytest.param(drafted("8!", "7", "7", "8!"), True, id="tie: the earliest is right"),
        pytest.param(drafted("7", "8!"), False, id="all differ: the first draft"),
        pytest.param(drafted(None, None, "8!"), True, id="no answer, no vote"),
        pytest.param(drafted(None, None), False, id="no vote at all: the first draft"),
    ],
)
def test_the_majority_is_found_without_the_verdict(problem, majority_is_right):
    ways = by_way([problem])
    line = ways[ways.index.str.startswith("majority")].iloc[0]
    assert (bool(line["right"]), line["sees_reference"]) == (majority_is_right, False)


def test_undecided_problems_are_left_out_and_counted():
    rows = [kept(0), row(1, [candidate(None)]), row(2, []), row(3, [candidate(False, answer="41")])]
    line = by_way(rows).loc["first draft"]
    assert (line["right"], line["n"], line["undecided"], line["no_trace"]) == (1, 2, 1, 1)


def test_an_undecided_draft_beside_a_right_one_does_not_hide_that_one_was_right():
    rows = [row(0, [candidate(False, answer="1", sample_index=0), candidate(None, answer="x", sample_index=1),
                    candidate(True, sample_index=2, accepted=True)])]  # fmt: skip
    assert by_way(rows).loc["any of 3 drafts", "right"] == 1


def test_traces_written_with_the_answer_in_sight_say_nothing_about_the_model():
    hinted = candidate(True, iteration=1, stage="rationalize", rationalized=True, accepted=True)
    rows = [row(0, [candidate(False, answer="41"), hinted])]
    assert by_way(rows)["right"].to_dict() == {"first draft": 0}
    assert analysis.by_type(rows).loc[0, ["kept", "first_draft", "final"]].tolist() == [1, 0.0, 0.0]


def test_a_judge_that_saw_only_some_drafts_is_not_offered_as_a_way_of_choosing():
    rows = [
        row(
            0,
            [
                candidate(True, scores={"form": 1.0}, accepted=True),
                candidate(False, answer="1", sample_index=1),
            ],
        )
    ]
    assert not any(way.startswith("best score") for way in by_way(rows).index)


def test_one_draft_and_no_refinement_leave_one_way():
    assert by_way(make_rows(5, drafts=1, max_iterations=0)).index.tolist() == ["first draft"]


def test_types_come_in_input_order_with_their_counts():
    rows = [row(0, [candidate(accepted=True)], type="b"), row(1, [candidate(False, answer="1")], type="a"),
            row(2, [candidate(accepted=True)], type="b"), row(3, [candidate(accepted=True)])]  # fmt: skip
    frame = analysis.by_type(rows)
    assert frame["type"].tolist() == ["b", "a", "(no type)"]
    assert frame["problems"].tolist() == [2, 1, 1] and frame["kept"].tolist() == [2, 0, 1]
    assert (frame["kept_share_low"][0], frame["kept_share_high"][0]) == wilson_interval(2, 2)


# the judge


def test_a_judge_that_knows_and_one_that_guesses_are_told_apart():
    knowing = analysis.judge_agreement(make_rows(40, judge_power=0.6)).set_index("dimension")
    guessing = analysis.judge_agreement(make_rows(40, judge_power=0.0)).set_index("dimension")
    assert knowing.loc["mean", "auc_low"] > 0.5
    assert knowing.loc["mean", "reading"] == "scores right traces higher"
    assert guessing.loc["mean", "auc_low"] < 0.5 < guessing.loc["mean", "auc_high"]
    assert guessing.loc["mean", "reading"] == "not told from chance"


def test_traces_the_judge_never_saw_are_counted():
    right = candidate(True, scores={"form": 1.0}, accepted=True)
    wrong = candidate(False, answer="1", scores={"form": 0.1})
    unseen = candidate(False, answer="1", sample_index=1)
    line = analysis.judge_agreement([row(0, [right, unseen]), row(1, [wrong])]).iloc[0]
    assert (line["right"], line["wrong"], line["unjudged"]) == (1, 1, 1)


@pytest.mark.parametrize("saw", [False, True])
def test_a_judge_that_saw_the_reference_is_marked(saw):
    right = candidate(True, scores={"form": 1.0}, accepted=True, judge_saw=saw)
    wrong = candidate(False, answer="1", scores={"form": 0.1}, sample_index=1, judge_saw=saw)
    rows = [row(0, [right, wrong])]
    ways = by_way(rows)["sees_reference"]
    assert ways["best score of 2 drafts"] == saw and not ways["majority of 2 drafts"]
    agreement = analysis.judge_agreement(rows)
    assert agreement["saw_reference"].tolist() == [saw]
    assert ("saw reference" in analysis.readable(agreement).columns) == saw


# cost


def test_unknown_costs_and_tokens_stay_unknown():
    rows = make_rows(4)
    frame = analysis.throughput(rows, make_report(rows)).set_index("role")
    assert frame["cost"].unique().tolist() == ["unknown"] and frame["cost_usd"].isna().all()
    report = make_report(rows)
    report["ledger"]["prompt_tokens"] = report["ledger"]["completion_tokens"] = None
    assert analysis.throughput(rows, report).iloc[-1][["prompt_tokens", "completion_tokens"]].isna().all()


@pytest.mark.parametrize(
    "counts, words",
    [
        ({"cost_usd": None}, "unknown"),
        ({"cost_usd": 0.0, "unknown_cost": 0}, "$0"),
        ({"cost_usd": 0.01234, "unknown_cost": 0}, "$0.01234"),
        ({"cost_usd": 0.5, "unknown_cost": 3}, "at least $0.5"),
    ],
)
def test_a_cost_that_is_only_partly_known_is_a_lower_bound(counts, words):
    from cotkit.analysis.cost import cost_in_words

    assert cost_in_words(counts) == words


def test_the_ledger_is_believed_before_the_rows_and_the_rows_where_there_is_none():
    rows = make_rows(6, seed=3)
    report = make_report(rows)
    report["ledger"]["by_role"]["generator"]["calls"] += 5  # drafts that failed to parse left no candidate
    drafts = sum(c.stage == "draft" for r in rows for c in r.candidates)
    assert analysis.throughput(rows, report).set_index("role").loc["generator", "calls"] == drafts + 5
    from_rows = analysis.throughput(rows, {}).set_index("role")
    assert from_rows.loc["generator", "calls"] == drafts and from_rows["failed"].isna().all()


def test_failed_and_cached_calls_are_shown_apart():
    rows = make_rows(3)
    report = make_report(rows)
    report["ledger"]["by_role"]["generator"] |= {"failed": {"server": 2, "timeout": 1}, "cached": 4}
    line = analysis.throughput(rows, report).set_index("role").loc["generator"]
    assert (line["failed"], line["cached"]) == (3, 4)


# little or nothing to count


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="no rows"),
        pytest.param(make_rows(3, endpoint_fails=1), id="every call failed"),
        pytest.param(make_rows(3, reference=False), id="no reference"),
        pytest.param(make_rows(3, judge=False), id="no judge"),
        pytest.param(make_rows(3, judge=False, reference=False), id="neither"),
        pytest.param(make_rows(1, drafts=1, max_iterations=0), id="one problem, one draft"),
        pytest.param(make_rows(6, skill=0, rationalization=True), id="rationalized"),
    ],
)
def test_every_frame_and_finding_can_be_made(rows):
    report = make_report(rows, given=len(rows) + 1, stopped="the budget is spent")
    of_rows = [
        analysis.acceptance_by_iteration, analysis.accuracy_comparison, analysis.by_type,
        analysis.judge_agreement, analysis.candidates_frame,
    ]  # fmt: skip
    frames = [make(rows) for make in of_rows]
    frames += [make(rows, report) for make in (analysis.funnel, analysis.throughput)]
    for frame in frames:
        assert len(analysis.readable(frame)) == len(frame)
    assert analysis.findings(rows, report)[0].startswith(
        "The run is not complete (the budget is spent): 1 of"
    )


def test_the_candidates_frame_keeps_its_columns_without_rows():
    empty, full = analysis.candidates_frame([]), analysis.candidates_frame(make_rows(3, judge=False))
    assert empty.columns.tolist() == full.columns.tolist()
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


def test_the_candidates_frame_keeps_ids_and_three_valued_verdicts():
    rows = [row(0, [candidate(True), candidate(None), candidate(False, answer=None)], id="007")]
    frame = analysis.candidates_frame(rows)
    assert frame["id"].tolist() == ["007"] * 3
    assert frame["correct"].tolist() == [True, pandas.NA, False]
    assert frame["cost_usd"].isna().all() and frame["completion_tokens"].isna().all()


def test_a_readable_table_puts_the_interval_beside_its_value():
    shown = analysis.readable(analysis.accuracy_comparison([refined(i, False, i < 2) for i in range(4)]))
    cells = [text.replace("\N{NO-BREAK SPACE}", " ") for text in shown["accuracy"]]
    assert cells == ["0.00 [0.00, 0.49]", "0.50 [0.15, 0.85]"]
    assert shown["difference"][1].startswith("+0.50")
    assert not [name for name in shown.columns if "low" in name or "_" in name]


def test_a_readable_table_shows_exceptions_where_there_are_any():
    rows = [kept(0), row(1, [candidate(None)])]
    assert "undecided" in analysis.readable(analysis.accuracy_comparison(rows)).columns
    assert "undecided" not in analysis.readable(analysis.accuracy_comparison(rows[:1])).columns


def test_a_lone_surrogate_in_a_row_reaches_the_tables_as_a_replacement_character():
    broken = row(0, [candidate(True, answer="4\ud800"), candidate(False)]).model_copy(
        update={"type": "t\ud800"}
    )
    frame = analysis.candidates_frame([broken])
    assert frame["answer"].tolist()[0] == "4\ufffd"
    assert frame.groupby("type").size().to_dict() == {"t\ufffd": 2}
