"""Numbers over cycles against values worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

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


def test_compare_counts_problems_that_the_champion_decided_and_both_have():
    before = [row("a", True), row("b", False), row("c", None), row("d", False), row("only here", True)]
    now = [row("a", True), row("b", True), row("c", True), row("d", True)]
    found = analysis.compare(before, now)
    assert (found.measure, found.n, found.left_out) == ("verified accuracy", 3, 2)  # c, and only here
    assert "2 without a result of both" in found.in_words()
    assert found.champion == pytest.approx(1 / 3) and found.challenger == 1.0
    assert found.p_value == pytest.approx(0.5)  # two gained, none lost: 2 * (1/2)^2
    assert found.standard_error == pytest.approx(math.sqrt(2 - 4 / 3) / 3)


def test_without_verdicts_scores_are_compared_and_a_hold_out_critic_stands_beside():
    before = [row(str(i), None, score=0.4) for i in range(10)]
    now = [row(str(i), None, score=0.6 + 0.01 * (i % 2)) for i in range(10)]
    found = analysis.compare(before, now)
    assert found.measure == "critics' score" and found.difference == pytest.approx(0.205)
    assert 0.2 <= found.low < found.high <= 0.21 and math.isnan(found.p_value)
    held = [{str(i): value for i in range(10)} for value in (0.7, 0.5)]
    beside = analysis.compare_held_out(before, now, *held)
    assert beside.difference == pytest.approx(-0.2) and beside.measure == "hold-out critic's score"
    assert analysis.compare_held_out(before, now, {}, held[1]).n == 0  # it failed on one side
    assert analysis.compare([], now).n == 0


def silent(id, kind="empty", **fields):
    """A problem on which the model said nothing, or (other kinds) the endpoint failed."""
    errors = [{"stage": "draft", "kind": kind, "message": "", "sample_index": 0}]
    return Row(
        index=0, id=id, problem=f"P {id}", type="sum", errors=errors, retryable=True,
        drop_reason=f"model_{kind}", **fields,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["empty", "refusal", "context_length"])
def test_a_problem_without_an_answer_is_not_solved(kind):
    """A challenger that says nothing where it is not sure is no better for it."""
    before = [row(str(i), i < 5) for i in range(10)]
    now = [row(str(i), True) if i < 5 else silent(str(i), kind) for i in range(10)]
    found = analysis.compare(before, now)
    assert (found.n, found.left_out, found.challenger, found.difference) == (10, 0, 0.5, 0.0)
    measured = analysis.dev_measures(now)
    assert (measured["pass1"]["right"], measured["pass1"]["n"], measured["silent"]) == (5, 10, 5)
    assert measured["answered"]["right"] == 5
    assert analysis.compare(now, [silent(str(i), kind) for i in range(10)]).challenger == 0.0
    assert analysis.family_gains(before, now, {}).iloc[0]["n"] == 10
    bare = [silent(str(i), kind, reference="7") for i in range(10)]
    assert analysis.dev_measures(bare)["pass1"]["n"] == 10


@pytest.mark.parametrize("kind", ["server", "timeout", "connection", "rate_limit", "malformed"])
def test_a_problem_that_the_endpoint_failed_is_left_out_of_both_sides_and_counted(kind):
    before = [row(str(i), True) for i in range(10)]
    now = [row(str(i), True) if i < 6 else silent(str(i), kind) for i in range(10)]
    found = analysis.compare(before, now)
    assert (found.n, found.left_out, found.difference) == (6, 4, 0.0)
    assert analysis.dev_measures(now)["pass1"]["n"] == 6


def test_without_verdicts_a_draft_without_words_has_the_lowest_score():
    before = [row(str(i), None, score=0.6) for i in range(10)]
    now = [row(str(i), None, score=0.7) if i < 5 else silent(str(i)) for i in range(10)]
    found = analysis.compare(before, now)
    assert found.n == 10 and found.challenger == pytest.approx(0.35)
    scores = [dict.fromkeys(ids, 0.5) for ids in ("0123456789", "01234")]
    held = analysis.compare_held_out(before, now, *scores)
    assert held.n == 10 and held.challenger == pytest.approx(0.25)


def test_the_first_of_several_drafts_is_the_first_that_was_asked_for():
    """Where it is without words, the second does not stand in for it."""
    one = row("a", True, True)
    for place, candidate in enumerate(one.candidates, 1):
        candidate.sample_index = place
    one.errors = [{"stage": "draft", "kind": "empty", "sample_index": 0}]
    found = analysis.dev_measures([one, row("b", True, True, True)])
    assert (found["pass1"]["right"], found["pass1"]["n"]) == (1, 2)
    assert found["pass_k"]["k"] == 3 and found["pass_k"]["n"] == 2


def test_an_answer_that_cannot_be_decided_gains_a_challenger_nothing():
    """It answers what it knows and writes \\boxed{10^{10^{10}}} else: neither gate nor claim is fooled."""
    before = [row(str(i), i < 35) for i in range(60)]
    now = [row(str(i), True if i < 26 else None, score=1.0) for i in range(60)]
    found = analysis.compare(before, now)
    assert (found.measure, found.n, found.left_out, found.undecided) == ("verified accuracy", 60, 0, 34)
    assert found.challenger == pytest.approx(26 / 60) and found.difference < -found.standard_error
    assert "34 undecided now and so not solved" in found.in_words()
    parts = analysis.gain_parts(before, now)
    assert parts["reasoning"] == pytest.approx(found.difference) and parts["n"] == 60
    assert analysis.family_gains(before, now, {}).iloc[0]["n"] == 60
    measured = analysis.dev_measures(now)
    assert (measured["pass1"]["n"], measured["undecided"]) == (26, 34)
    other_way = analysis.compare(now, before)  # of a champion's undecided answer nothing is known
    assert (other_way.n, other_way.left_out, other_way.undecided) == (26, 34, 0)
    assert analysis.compare([row(str(i), None) for i in range(5)], now).n == 0


def test_few_problems_that_can_be_checked_among_many_do_not_decide_alone():
    """Whether verdicts or scores decide follows from the problems, not from a challenger's answers."""

    def side(verdict, score):
        rows = [row(str(i), verdict if i < 2 else None, score=score) for i in range(10)]
        for checked in rows[:2]:
            checked.reference = "7"
        return rows

    assert analysis.compare(side(True, 0.8), side(False, 0.9)).measure == "critics' score"
    assert analysis.compare(side(True, 0.8), side(False, None)).n == 2  # there is nothing else to go by


def test_format_and_reasoning_add_up_to_the_gain():
    before = [row(str(i), "-" if i < 30 else i < 40) for i in range(50)]  # answers 20, of these 10 right
    now = [row(str(i), i < 30) for i in range(50)]  # answers 50, of these 30 right
    parts = analysis.gain_parts(before, now)
    assert parts["format"] == pytest.approx((1.0 - 0.4) * (0.5 + 0.6) / 2)
    assert parts["reasoning"] == pytest.approx((0.6 - 0.5) * (0.4 + 1.0) / 2)
    assert parts["format"] + parts["reasoning"] == pytest.approx(0.6 - 0.2)
    assert parts["n"] == 50 and parts["known"] and parts["answered"] == [20, 50]
    for name in ("format", "reasoning"):
        assert parts[f"{name}_low"] < parts[name] < parts[f"{name}_high"]


def boxed(rows, count):
    """The answers of the first so many rows stood in a box, the others were found by another marker."""
    for place, one in enumerate(rows):
        for candidate in one.candidates:
            answered = candidate.verdict.method != "no_answer"
            candidate.answer_how = ("box" if place < count else "phrase") if answered else "none"
    return rows


def test_answers_in_a_box_are_counted_beside_all_that_were_found():
    """A first training mostly teaches the box: what any marker gives is no measure of it."""
    before = boxed(
        [row(str(i), i < 20) for i in range(50)], 12
    )  # all answered, 12 in a box, all of them right
    now = boxed([row(str(i), i < 30) for i in range(50)], 40)  # 40 in a box, 30 of them right
    measured = analysis.dev_measures(before)
    assert (measured["answered"]["right"], measured["right_of_answered"]["value"]) == (50, 0.4)
    assert (measured["boxed"]["right"], measured["boxed"]["n"]) == (12, 50)
    assert (measured["right_of_boxed"]["right"], measured["right_of_boxed"]["n"]) == (12, 12)
    parts = analysis.gain_parts(before, now)
    assert parts["format"] == pytest.approx(0.0) and parts["reasoning"] == pytest.approx(0.2)
    box = parts["by_box"]
    assert box["answered"] == [12, 40] and box["known"]
    assert box["format"] == pytest.approx((0.8 - 0.24) * (1 + 0.75) / 2)
    assert box["reasoning"] == pytest.approx((0.75 - 1) * (0.24 + 0.8) / 2)
    assert box["format"] + box["reasoning"] == pytest.approx(30 / 50 - 12 / 50)
    plain = [boxed([row(str(i), i < 20) for i in range(50)], 0) for _ in range(2)]
    assert analysis.gain_parts(*plain)["by_box"] is None
    undecided = boxed([row("a", None), row("b", True)], 2)
    assert analysis.dev_measures(undecided)["boxed"]["n"] == 1


def test_the_report_says_what_stood_in_a_box():
    before, now = (
        boxed([row(str(i), i < 20) for i in range(50)], 12),
        boxed([row(str(i), i < 30) for i in range(50)], 40),
    )
    actors = {"base": analysis.dev_measures(before), "cycle 0": analysis.dev_measures(now)}
    gap = vars(analysis.compare(before, now)) | {"parts": analysis.gain_parts(before, now)}
    test = {"n": 50, "champion": "cycle 0", "actors": actors, "comparisons": {"cycle 0 against base": gap}}
    report = {
        "cycles": [], "test": test, "seconds": 60.0, "notes": [], "stopped": None,
        "cost": {"usd": None, "calls": 1, "tokens": 1},
    }  # fmt: skip
    said = " ".join(analysis.cycle_findings(report))
    assert (
        "of those with a box, 12 of 12 problems" in said and "of those with a box, 30 of 40 problems" in said
    )
    assert "counting boxes alone, +49.0" in said
    actors["zero-shot"] = analysis.dev_measures(boxed([row(str(i), False) for i in range(50)], 0))
    assert "(0 %, 95 % interval 0 to 7 %); none stood in a box." in " ".join(analysis.cycle_findings(report))
    assert "mark = answered in a box" in analysis.figures.final_accuracy(test).axes[0].get_xlabel()
    whole = [boxed([row(str(i), i < 20) for i in range(50)], 50) for _ in range(2)]
    test["actors"] = {"base": analysis.dev_measures(whole[0])}
    gap["parts"] = analysis.gain_parts(*whole)
    said = " ".join(analysis.cycle_findings(report))
    assert (
        "of those it answered, all in a box, 20 of 50" in said and "counting boxes" not in said
    )  # it would say the same again
    test["actors"] = actors
    for found in actors.values():  # code is not written into boxes
        found["boxed"]["right"] = 0
    gap["parts"]["by_box"] = None
    assert "box" not in " ".join(analysis.cycle_findings(report))
    assert "box" not in analysis.figures.final_accuracy(test).axes[0].get_xlabel()


def test_each_cycle_of_the_figure_has_its_own_number():
    def met(cycle, n, measure):
        held = {"n": n, "measure": measure, "champion": 0.4, "challenger": 0.6, "low": 0.1, "high": 0.3}
        return {"cycle": cycle, "method": "sft", "heldout": held, "decision": {"promoted": True}}

    axes = analysis.figures.dev_results([met(0, 100, "accuracy"), met(1, 98, "accuracy")]).axes[0]
    said = [text.get_text() for text in axes.get_xticklabels()]
    assert "n = 100" in said[0] and "n = 98" in said[1] and "accuracy" not in said[0]
    mixed = analysis.figures.dev_results([met(0, 100, "accuracy"), met(1, 98, "critics' score")]).axes[0]
    assert "critics' score" in mixed.get_xticklabels()[1].get_text()


@pytest.mark.parametrize("cycles", [1, 3, 12])
def test_nothing_crosses_the_number_of_a_cycle(cycles):
    outcomes = [(0.42, 0.42), (0.4, 0.1), (0.0, 0.03), (1.0, 1.0), (0.5, 0.8)]
    reports = [
        {"cycle": cycle, "method": "sft", "decision": {"promoted": False}}
        | {"heldout": {"n": 50, "measure": "accuracy", "champion": a, "challenger": b}
           | {"low": b - a - 0.1, "high": b - a + 0.1}}
        for cycle, (a, b) in zip(range(cycles), itertools.cycle(outcomes), strict=False)
    ]  # fmt: skip
    figure = analysis.figures.dev_results(reports)
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    assert len(axes.texts) == cycles
    for number, report in zip(axes.texts, reports, strict=True):
        box = number.get_window_extent()
        assert number.get_text() == f"{100 * report['heldout']['challenger']:.0f} %"
        assert axes.bbox.y0 < box.y0 and box.y1 < axes.bbox.y1
        high = report["heldout"]["champion"] + report["heldout"]["high"]
        height = axes.transData.inverted().transform(box.min)[1]
        assert height < max(high, 0.13) + 0.2, "it stands by its point"
        for line in axes.lines:
            assert not box.overlaps(line.get_window_extent()), number
    names = [name.get_window_extent() for name in axes.get_xticklabels()]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(names))


def test_a_gain_that_is_not_clear_says_which_one_would_have_been():
    rows_of = lambda right: [row(str(i), i in right) for i in range(100)]  # noqa: E731
    before, now = rows_of(set(range(50))), rows_of(set(range(5, 58)))
    gap = vars(found := analysis.compare(before, now)) | {"parts": analysis.gain_parts(before, now)}
    cost = {"usd": None, "calls": 1, "tokens": 1}
    test = {"actors": {}, "comparisons": {"cycle 1 against cycle 0": gap}}
    report = {"cycles": [], "test": test, "seconds": 60.0, "notes": [], "stopped": None, "cost": cost}
    said = " ".join(analysis.cycle_findings(report))
    assert found.low < 0 < found.high
    assert f"a difference of some {50 * (found.high - found.low):.0f} points is clear" in said
    clear = vars(analysis.compare(before, rows_of(set(range(90))))) | {"parts": gap["parts"]}
    test["comparisons"] = {"cycle 1 against cycle 0": clear}
    assert "may be noise" not in " ".join(analysis.cycle_findings(report))


def test_what_a_cycle_could_teach_is_counted():
    rows = [row("known", True, True), row("some", True, False), row("never", False, "-"), row("one", True)]
    found = analysis.room_to_learn(rows, ["known", "known", "some", "one"])
    assert found == {"problems": 3, "every": 1, "none": 1, "kept": 3, "kept_known": 2}
    assert analysis.room_to_learn([row("a", None, None)], [])["problems"] == 0


def test_families_in_words():
    before = [row(f"{kind}{i}", i < 1, kind=kind) for kind in "abc" for i in range(4)]
    now = [
        row(f"{kind}{i}", i < {"a": 3, "b": 2, "c": 0}[kind], kind=kind) for kind in "abc" for i in range(4)
    ]
    first, second = analysis.family_findings(analysis.family_gains(before, now, {"a": 5, "b": 19}))
    assert first == (
        "Of the families trained on, b is the worst: right on 2 of 4 (before 1), after 19 examples of it."
    )
    assert second == "Never trained on: c 0 of 4 (before 1)."
    assert analysis.family_findings(analysis.family_gains([], [], {})) == []


def test_a_handful_of_scores_has_students_interval():
    """The percentile bootstrap leaves 0 out of [0.1, 0.2, 0.3] with three problems."""
    before, now = (
        [row(str(i), None, score=s + 0.1 * i * late) for i in range(3)] for s, late in ((0.4, 0), (0.5, 1))
    )
    found = analysis.compare(before, now)
    assert found.difference == pytest.approx(0.2) and found.low < 0 < found.high


def test_scores_are_told_apart_by_critic():
    def scored_by(i):
        one = row(str(i), True, score=0.6)
        each = {"one": 0.9, "two": None if i == 0 else 0.3}
        raw = {n: {"judge": n, "scores": None if s is None else {"quality": s}} for n, s in each.items()}
        one.candidates[0].judgement = Judgement(scores={"quality": 0.6}, judge="panel", raw=raw)
        return one

    found = analysis.generation_measures([scored_by(i) for i in range(4)])["scores"]
    assert {name: (of["quality"]["n"], of["quality"]["mean"]) for name, of in found.items()} == {
        "one": (4, pytest.approx(0.9)), "two": (3, pytest.approx(0.3)), "panel": (4, pytest.approx(0.6)),
    }  # fmt: skip
    alone = analysis.generation_measures([row("a", True, score=0.5)])["scores"]
    assert list(alone) == [""] and alone[""]["quality"]["ceiling_share"] == 0


@pytest.mark.parametrize("answers", [0, 1, 9])
def test_where_hardly_anything_was_answered_before_the_gain_is_all_format(answers):
    """A stray wrong answer tells nothing about the reasoning."""
    before = [row(str(i), False if i < answers else "-") for i in range(200)]
    parts = analysis.gain_parts(before, [row(str(i), i < 120) for i in range(200)])
    assert (parts["format"], parts["reasoning"]) == (pytest.approx(0.6), 0.0)
    assert not parts["known"] and parts["answered"] == [answers, 200]
    enough = [[row(str(i), right) for i in range(10)] for right in (False, True)]
    known = analysis.gain_parts(*enough)
    assert known["known"] and known["reasoning"] == pytest.approx(1.0)


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
    empty = analysis.family_gains([], [], {})
    assert empty.empty and {"family", "trained", "after", "n"} <= set(empty.columns)
    assert analysis.gain_parts([], [])["n"] == 0


def refined(id, before, after, right=(None, None)):
    """A draft and its refinement, with these scores and verdicts."""
    one = row(id, *right)
    for candidate, value in zip(one.candidates, (before, after), strict=True):
        candidate.judgement = Judgement(scores={"quality": value})
    one.candidates[1].stage, one.candidates[1].iteration, one.candidates[1].parent = "refine", 1, 0
    one.candidates[1].sample_index, one.final = 0, int(after > before)
    return one


def test_the_gain_of_refinement_is_of_what_was_refined_better_or_worse():
    """The best of several noisy drafts is no refinement."""
    best_of = row("a", None, None, score=0.5)
    best_of.candidates[1].judgement = Judgement(scores={"quality": 0.9})
    best_of.final = 1
    found = analysis.generation_measures([best_of])["gain"]
    assert (found["refined"], found["n"], found["mean"]) == (0, 0, None)
    rows = [refined("b", 0.5, 0.9), refined("c", 0.5, 0.3, (False, True))]
    rows.append(refined("d", 0.5, 0.5, (True, False)))
    found = analysis.generation_measures([best_of, *rows])["gain"]
    assert (found["refined"], found["n"]) == (3, 3) and found["mean"] == pytest.approx(0.2 / 3)
    assert (found["right_before"], found["right_after"], found["decided"]) == (1, 1, 2)


def test_of_which_traces_the_critics_measures_are_is_said():
    rows = [row(str(i), i % 2 == 0, score=0.9 if i % 2 == 0 else 0.4) for i in range(10)]
    for one in rows[6:]:
        one.candidates[0].judgement = None
    judge = analysis.generation_measures(rows)["judge"]
    assert (judge["judged"], judge["traces"], judge["n"], judge["auc"]) == (6, 10, 6, 1.0)


def test_figures_say_of_how_many_and_count_clear_gains_only():
    from cotkit.analysis import figures

    before = [row(f"s{i}", False) for i in range(8)] + [row(f"p{i}", False, kind="product") for i in range(8)]
    now = [row(f"s{i}", True) for i in range(8)] + [row(f"p{i}", i == 0, kind="product") for i in range(8)]
    frame = analysis.family_gains(before, now, {"sum": 9})
    assert {"before_low", "before_high"} <= set(frame.columns)
    said = figures.family_accuracy(frame).get_suptitle()
    assert "1 of 2 families gained clearly" in said
    actors = {"base": analysis.dev_measures(before), "cycle 0": analysis.dev_measures(now[:10])}
    figure = figures.final_accuracy({"n": 16, "champion": "cycle 0", "actors": actors})
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["base", "cycle 0 (n = 10)"]


def test_the_table_of_cycles_has_a_column_a_cycle_and_stays_narrow():
    before, now = [row(str(i), i < 40) for i in range(100)], [row(str(i), i < 65) for i in range(100)]
    counts = {"prompts": 440, "attempts": 1760, "generated": 1234, "kept": 1001, "replayed": 0}
    alarms = [{"level": "red"}, {"level": "amber"}, {"level": "amber"}]
    first = {
        "cycle": 0, "status": "rolled_back", "method": "dpo_sft", "counts": counts, "alarms": alarms,
        "heldout": vars(analysis.compare(before, now)), "training": {"trained": True}, "seconds": 930.0,
        "decision": {"promoted": False}, "dev": analysis.dev_measures(boxed(now, 80)),
        "cost": {
            "calls": 21760, "tokens": 9876543, "usd": 12.346,
            "by_role": {"generator": {"tokens": 9000000}, "judge": {"tokens": 876543}},
        },
    }  # fmt: skip
    short = {"status": "no_data", "heldout": None, "training": {"trained": False}, "alarms": [], "dev": None}
    short["cost"] = first["cost"] | {"usd": None}
    frame = analysis.cycles_frame([first, {**first, **short, "cycle": 1}])
    shown = frame.set_index("measure")
    assert list(frame.columns) == ["measure", "cycle 0", "cycle 1"]
    assert shown["cycle 0"].to_dict() == {
        "status": "rolled_back", "method": "dpo_sft", "problems": "440", "traces": "1,760",
        "kept": "1,001 of 1,234", "replayed": "0", "measured by": "verified accuracy",
        "champion on dev": "40.0%", "challenger on dev": "65.0%", "difference": "+25.0 [+16.0, +33.1]",
        "p": "6e-08", "n": "100", "answered": "100 of 100", "right, answered": "65.0%",
        "in a box": "80 of 100", "right, in a box": "81.2%", "alarms": "1 red, 2 amber",
        "decision": "the champion stays", "calls": "21,760", "tokens": "9,876,543",
        "tokens, generator": "9,000,000", "tokens, judge": "876,543", "cost": "$12.35", "minutes": "15.5",
    }  # fmt: skip
    assert shown.loc[["method", "difference", "decision", "alarms"], "cycle 1"].tolist() == [
        "dpo_sft, not trained", "", "", "none",
    ]  # fmt: skip
    assert shown.loc["cost", "cycle 1"] == "unknown"
    assert max(len(cell) for cell in frame["cycle 0"]) <= 24  # six of these fit beside each other
    left_out = vars(analysis.compare(before, now[:90]))
    assert "left out" in analysis.cycles_frame([{**first, "heldout": left_out}])["measure"].tolist()
