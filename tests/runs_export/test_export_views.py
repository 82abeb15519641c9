"""Which traces and pairs a policy takes, and that everything it leaves out has a named reason."""

from __future__ import annotations

import itertools
import random

import pytest
from example_rows import RIGHT, WRONG, candidate, row

from cotkit.records import Judgement
from cotkit.runs.views import defect, flaw, history, incomparable, label_view, pair_view, parts, sft_view

HINTED = {"rationalized": True, "saw_reference": True, "stage": "rationalize"}


def texts(view) -> list[str]:
    return [example.candidate.text for example in view.examples]


def pairs(view) -> list[tuple[str, str]]:
    return [(example.candidate.text, example.rejected.text) for example in view.examples]


@pytest.mark.parametrize(
    ("candidates", "options", "taken", "drops"),
    [
        ([RIGHT], {}, [RIGHT.text], {}),
        ([], {}, [], {"wrong_answer": 1}),
        ([WRONG], {}, [], {"wrong_answer": 1}),
        ([candidate(truncated=True)], {}, [], {"truncated": 1}),
        ([candidate(finish_reason="length")], {}, [], {"truncated": 1}),
        ([candidate("<think>never closed", accepted=True)], {}, [], {"truncated": 1}),
        ([candidate(finish_reason="content_filter")], {}, [], {"refusal": 1}),
        ([candidate(" \n ", reasoning="all the words")], {}, [], {"empty": 1}),
        ([candidate("5", False, accepted=True)], {}, [], {"wrong": 1}),
        ([candidate(leaks=["as the hint says"], **HINTED)], {}, [], {"leak": 1}),
        ([candidate("4", **HINTED)], {}, ["4"], {}),
        ([candidate("4", **HINTED)], {"include_rationalized": False}, [], {"rationalized": 1}),
        ([candidate("four, no box")], {"require_boxed": True}, [], {"no_box": 1}),
        ([candidate("4</think>", reasoning="r")], {}, [], {"stray_think_tag": 1}),
        ([candidate("\\boxed{4}<|im_end|>")], {}, [], {"control_token": 1}),
        ([candidate("4", reasoning="<|start|>user")], {}, [], {"control_token": 1}),
        ([candidate("a <| b |> c, 1 <|x|> 2")], {}, ["a <| b |> c, 1 <|x|> 2"], {}),
        ([candidate("a"), candidate("b")], {"policy": "all_accepted"}, ["a", "b"], {}),
        ([candidate("a"), candidate(" a  ")], {"policy": "all_accepted"}, ["a"], {"duplicate": 1}),
        ([candidate("a"), WRONG], {"policy": "all_accepted"}, ["a"], {"not_accepted": 1}),
        (
            [candidate("a", score=0.1), candidate("b", score=0.9)],
            {"max_per_problem": 1},
            ["b"],
            {"over_max_per_problem": 1},
        ),
        (
            [WRONG, candidate("4", accepted=False), candidate("four")],
            {"policy": "first_correct"},
            ["4"],
            {},
        ),
        ([WRONG], {"policy": "first_correct"}, [], {"no_correct": 1}),
        ([WRONG], {"policy": "final"}, [WRONG.text], {}),
    ],
)
def test_sft_takes_what_may_be_trained_on_and_names_why_it_leaves_the_rest(candidates, options, taken, drops):
    view = sft_view([row(*candidates)], **options)
    assert texts(view) == taken
    assert dict(view.drops) == drops
    assert view.given == len(taken) + sum(drops.values())


@pytest.mark.parametrize(
    ("candidates", "options", "expected", "reason"),
    [
        ([RIGHT, WRONG], {}, (RIGHT.text, WRONG.text), None),
        ([RIGHT], {}, None, "single_trace"),
        ([RIGHT, candidate("also \\boxed{4}")], {}, None, "no_wrong"),
        ([WRONG, candidate("6", False)], {}, None, "no_correct"),
        ([candidate("x"), candidate("x ", False)], {}, None, "identical"),
        ([candidate("ﬁve x"), candidate("five   x", False)], {}, None, "identical"),
        (
            [candidate("x", reasoning="one way"), candidate("x", False, reasoning="another")],
            {},
            None,
            "identical",
        ),
        ([candidate("x", truncated=True), WRONG], {}, None, "chosen_truncated"),
        ([RIGHT, candidate("", False)], {}, None, "rejected_empty"),
        ([candidate("x", leaks=["hint"]), WRONG], {}, None, "chosen_leak"),
        ([candidate("4", **HINTED), WRONG, candidate("6", False)], {}, None, "no_correct"),
        (
            [candidate("sure"), candidate("no", False, finish_reason="content_filter")],
            {},
            None,
            "rejected_refusal",
        ),
        ([candidate("a", score=0.5), candidate("b", False, 0.4)], {"min_gap": 0.2}, None, "gap_below_min"),
        ([candidate("a", score=0.5), candidate("b", False)], {"min_gap": 0.2}, None, "no_score"),
        ([candidate("a", score=0.3), candidate("b", False, 0.8)], {}, ("a", "b"), None),  # verdict over score
        (
            [candidate("short", False, truncated=True), RIGHT, candidate("whole", False)],
            {},
            (RIGHT.text, "whole"),
            None,
        ),
    ],
)
def test_correct_vs_wrong_is_decided_by_the_program(candidates, options, expected, reason):
    view = pair_view([row(*candidates)], "correct_vs_wrong", **options)
    assert pairs(view) == ([expected] if expected else [])
    assert dict(view.drops) == ({reason: 1} if reason else {})


def judged(text: str, score: float | None, correct: bool | None = None, **fields):
    return candidate(text, correct, score, **fields)


@pytest.mark.parametrize(
    ("candidates", "options", "expected", "reason"),
    [
        ([judged("a", 0.9), judged("b", 0.5), judged("c", 0.1)], {}, ("a", "c"), None),
        ([judged("a", 0.4), judged("b", 0.4), judged("c", 0.4)], {}, None, "tie"),
        ([judged("a", 0.45), judged("b", 0.4)], {}, None, "gap_below_min"),
        ([judged("a", 0.45), judged("b", 0.4)], {"min_gap": 0.01}, ("a", "b"), None),
        ([judged("a", 0.4), judged("b", 0.4)], {"min_gap": 0}, None, "tie"),
        ([judged("a", 0.4), judged("b", None)], {}, None, "no_score"),
        ([judged("a", 0.4), judged("b", float("nan"))], {}, None, "no_score"),
        ([judged("a", 0.9), judged("b", None), judged("c", 0.2)], {}, ("a", "c"), None),
        ([judged("a", 0.9), judged("b", 0.1, judge="judge-b")], {}, None, "different_judges"),
        ([judged("a", 0.9), judged("b", {"overall": 0.1})], {}, None, "different_judges"),
        ([judged("a", 0.9, False), judged("b", 0.1, False)], {}, None, "chosen_wrong"),
        ([judged("a", 0.9, True), judged("b", 0.1, True)], {}, ("a", "b"), None),
        ([judged("a", 0.9, False), judged("b", 0.1, True)], {}, ("b", "a"), None),
    ],
)
def test_best_vs_worst_needs_comparable_scores_that_differ_by_more_than_noise(
    candidates, options, expected, reason
):
    view = pair_view([row(*candidates)], "best_vs_worst", **options)
    assert pairs(view) == ([expected] if expected else [])
    assert dict(view.drops) == ({reason: 1} if reason else {})


@pytest.mark.parametrize(
    ("candidates", "final", "expected", "reason"),
    [
        ([WRONG, candidate("4", iteration=1, parent=0, stage="refine")], 1, ("4", WRONG.text), None),
        ([judged("a", 0.2), judged("b", 0.8, iteration=1, parent=0)], 1, ("b", "a"), None),
        ([judged("a", 0.8), judged("b", 0.2, iteration=1, parent=0)], 0, None, "not_better"),
        ([judged("a", 0.8)], 0, None, "not_refined"),
        ([WRONG, candidate("4", iteration=1, **HINTED)], 1, None, "not_refined"),
        (
            [candidate("lost", False), candidate("5", False), candidate("4", iteration=1, parent=1)],
            2,
            ("4", "5"),
            None,
        ),
    ],
)
def test_first_vs_last_pairs_the_selected_draft_with_its_last_refinement(candidates, final, expected, reason):
    view = pair_view([row(*candidates, final=final)], "first_vs_last")
    assert pairs(view) == ([expected] if expected else [])
    assert dict(view.drops) == ({reason: 1} if reason else {})


def test_length_controlled_takes_the_shortest_near_best_and_the_longest_near_worst():
    drafts = [
        judged("long and best " * 5, 0.95),
        judged("short", 0.92),
        judged("tiny", 0.6),
        judged("bad", 0.1),
        judged("bad and long " * 5, 0.12),
    ]
    view = pair_view([row(*drafts)], "length_controlled")
    assert pairs(view) == [("short", drafts[4].text)]


def test_pairs_of_one_problem_take_fresh_partners_first():
    right = [candidate(f"right {i}", score=1 - i / 10) for i in range(2)]
    wrong = [candidate(f"wrong {i}", False, i / 10) for i in range(2)]
    taken = pairs(pair_view([row(*right, *wrong)], max_pairs_per_problem=3))
    assert taken == [("right 0", "wrong 0"), ("right 1", "wrong 1"), ("right 0", "wrong 1")]


@pytest.mark.parametrize(("correct", "policy"), [(True, "correct_vs_wrong"), (None, "best_vs_worst")])
def test_the_default_pairs_follow_the_program_where_it_decided_anything(correct, policy):
    assert pair_view([row(candidate(correct=correct))]).policy == policy


def test_judges_that_saw_the_reference_are_not_compared_with_judges_that_did_not():
    seen = judged("b", 0.1)
    seen.judgement = Judgement(scores={"correctness": 0.1}, judge="judge-a", saw_reference=True)
    assert incomparable(judged("a", 0.9), seen) == "different_judges"


def scored_by(text: str, mean: float, **members: float | None):
    """Scored by a panel; a member that failed gave None."""
    raw = {
        name: {"judge": name, "scores": None if score is None else {"q": score}}
        for name, score in members.items()
    }
    made = candidate(text, None)
    made.judgement = Judgement(scores={"q": mean}, judge="panel", raw=raw)
    return made


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (scored_by("b", 0.5, lenient=0.9, strict=0.5, third=0.5), "different_judges"),
        (scored_by("b", 0.5, lenient=0.9, strict=None, third=0.1), "different_judges"),
        (scored_by("b", 0.3, lenient=0.4, strict=0.2, third=None), None),
    ],
)
def test_scores_of_a_panel_are_compared_only_when_the_same_members_gave_them(other, reason):
    one_failed = scored_by("a", 0.7, lenient=0.9, strict=0.5, third=None)
    assert incomparable(one_failed, other) == reason
    view = pair_view([row(one_failed, other)], "best_vs_worst")
    assert dict(view.drops) == ({reason: 1} if reason else {}) and view.given == 1


def test_each_pair_that_was_tried_is_counted_where_a_problem_may_give_several():
    drafts = [judged(f"text {i}", score) for i, score in enumerate((0.9, 0.5, 0.85, 0.9))]
    view = pair_view([row(*drafts), row(drafts[0])], "best_vs_worst", max_pairs_per_problem=9)
    assert pairs(view) == [("text 0", "text 1")] and view.unit == "pairs tried"
    assert dict(view.drops) == {"gap_below_min": 1, "tie": 1, "single_trace": 1}
    assert view.given == 3 + 1  # of four drafts the best meets three; the other problem has none to try
    one = pair_view([row(*drafts), row(drafts[0])], "best_vs_worst")
    assert (one.given, one.unit, dict(one.drops)) == (2, "problems", {"single_trace": 1})


@pytest.mark.parametrize(
    ("made", "label", "reason"),
    [
        (RIGHT, True, None),
        (WRONG, False, None),
        (judged("a", 0.2, accepted=False), False, None),
        (judged("a", None, accepted=False), None, "undecided"),
        (judged("a", 0.2, True, accepted=False), None, "correct_but_not_accepted"),
        (candidate("4", truncated=True), None, "truncated"),
        (candidate("", False), None, "empty"),
    ],
)
def test_a_label_needs_a_decision(made, label, reason):
    view = label_view([row(made)])
    assert [example.label for example in view.examples] == ([label] if reason is None else [])
    assert dict(view.drops) == ({reason: 1} if reason else {})


@pytest.mark.parametrize("accepted", [(True, False), (False, True)])
def test_a_text_with_two_labels_has_none(accepted):
    """A judge near its threshold, asked twice of the same words."""
    drafts = [judged("same", 0.9 if yes else 0.2, accepted=yes) for yes in accepted]
    view = label_view([row(*drafts, judged("other", 0.9, accepted=True)), row(drafts[0], id="b")])
    assert [e.candidate.text for e in view.examples] == ["other", "same"]
    assert dict(view.drops) == {"contradictory_label": 2}


@pytest.mark.parametrize(
    ("text", "reasoning", "expected"),
    [
        ("answer", " r ", ("r", "answer")),
        ("<think>r</think>answer", None, ("r", "answer")),
        ("r\n</think>\n\nanswer", None, ("r", "answer")),  # the opening tag came from the chat template
        ("First 2 + 2. So \\boxed{4}.", None, ("", "First 2 + 2. So \\boxed{4}.")),
        ("In code: `<think>x</think>`", None, ("", "In code: `<think>x</think>`")),
        ("answer", "", ("", "answer")),
    ],
)
def test_reasoning_is_told_from_the_answer_only_where_the_model_did(text, reasoning, expected):
    assert parts(candidate(text, reasoning=reasoning)) == expected


def test_history_has_one_trace_an_iteration_and_follows_the_chain_to_the_final_one():
    drafts = [candidate("d0"), candidate("d1", sample_index=1)]
    refined = [candidate("r1", iteration=1, parent=1), candidate("r2", iteration=2, parent=1)]
    assert [c.text for c in history(row(*drafts, *refined, final=3))] == ["d1", "r1", "r2"]
    assert [c.text for c in history(row(*drafts, *refined, final=1))] == ["d1", "r1", "r2"]
    assert [c.text for c in history(row(*drafts, *refined, final=0))] == ["d0", "r1", "r2"]
    hinted = candidate("h", iteration=3, **HINTED)
    assert [c.text for c in history(row(*drafts, *refined, hinted, final=4))] == ["d1", "r1", "r2", "h"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sft_view([], "bestest"), "unknown policy 'bestest' for SFT"),
        (lambda: sft_view([], "best", max_per_problem=2), "one trace a problem"),
        (lambda: sft_view([], max_per_problem=0), "at least 1"),
        (lambda: pair_view([], "best"), "unknown policy 'best' for pairs"),
        (lambda: pair_view([], min_gap=7), "0..1"),
        (lambda: pair_view([], max_pairs_per_problem=True), "whole number"),
    ],
)
def test_impossible_policies_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def random_rows(seed: int) -> list:
    rng = random.Random(seed)
    made = []
    for index in range(40):
        drafts = [
            candidate(
                rng.choice(["x", "y", "", "z \\boxed{4}", "<think>cut", "a</think>b"]),
                rng.choice([True, False, None]),
                rng.choice([None, 0.1, 0.5, 0.55, float("nan")]),
                iteration=i,
                parent=i - 1 if i else None,
                truncated=rng.random() < 0.2,
                rationalized=rng.random() < 0.2,
                judge=rng.choice("ab"),
                leaks=["hint"] * (rng.random() < 0.1),
            )
            for i in range(rng.randrange(5))
        ]
        made.append(row(*drafts, id=str(index), final=rng.randrange(len(drafts)) if drafts else None))
    return made


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_rows_the_counts_add_up_and_no_bad_trace_is_chosen(seed):
    rows = random_rows(seed)
    problems = len(rows)
    for policy, most in itertools.product(
        ["correct_vs_wrong", "best_vs_worst", "first_vs_last", "length_controlled"], [1, 3]
    ):
        view = pair_view(rows, policy, max_pairs_per_problem=most)
        assert view.given == len(view.examples) + view.drops.total()
        assert view.given == problems if most == 1 else view.given >= problems
        for e in view.examples:
            assert e.candidate.verdict.correct is not False and not e.candidate.truncated
            assert not e.candidate.rationalized and not e.candidate.leaks
            assert parts(e.candidate)[1] != parts(e.rejected)[1] != ""
    tried = 0
    for own in ([c for c in r.candidates if not c.rationalized] for r in rows):
        right = sum(c.verdict.correct is True and not flaw(c) for c in own)
        wrong = sum(c.verdict.correct is False and not defect(c) for c in own)
        tried += right * wrong or 1
    assert pair_view(rows, "correct_vs_wrong", max_pairs_per_problem=1000).given == tried
    traces = sum(max(1, len(r.candidates)) for r in rows)
    for view, count in [
        *((sft_view(rows, policy), problems) for policy in ("best", "first_correct", "final")),
        (sft_view(rows, "all_accepted"), traces),
        (label_view(rows), traces),
    ]:
        assert view.given == len(view.examples) + view.drops.total() == count
