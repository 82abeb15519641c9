"""Each alarm of a self-improvement run: once where it must be raised, once where it must not."""

from __future__ import annotations

import random

import pytest

from cotkit.analysis import Rate, alarms
from cotkit.records import Candidate, Judgement, Row, Verdict

WORDS = [
    "add",
    "take",
    "share",
    "count",
    "weigh",
    "double",
    "halve",
    "sort",
    "cut",
    "join",
    "paint",
    "pack",
    "carry",
    "sell",
    "buy",
    "lend",
    "mix",
    "bake",
]
N = 80


def draft(text, right=True, score=None, sample=0, **fields):
    judgement = Judgement(scores={"quality": score}) if score is not None else None
    verdict = Verdict(correct=right, method="number")
    return Candidate(
        iteration=0,
        sample_index=sample,
        trace=text,
        text=text,
        verdict=verdict,
        judgement=judgement,
        **fields,
    )


def rows(make, n=N):
    """`make(i, rng)` gives the candidates of problem i."""
    rng = random.Random(0)
    return [Row(index=i, id=str(i), problem=f"Problem {i}", candidates=make(i, rng)) for i in range(n)]


def varied(i, rng, ending=""):
    """Thirty words that differ from problem to problem."""
    return f"{i} " + " ".join(rng.choice(WORDS) + rng.choice(WORDS) for _ in range(30)) + ending


def templated(i, rng):
    return f"{i} first we look at the numbers of the problem and then we add them to find the total we want"


def levels(found):
    return {alarm.code: alarm.level for alarm in found}


def texts(make, **fields):
    return rows(lambda i, rng: [draft(make(i, rng), **fields)])


DIVERSE, ANOTHER = texts(varied), rows(lambda i, rng: [draft(varied(i + 500, random.Random(i)))])


def test_outputs_that_become_alike_are_a_collapse_and_others_are_not():
    found = levels(alarms.collapse(DIVERSE, texts(templated)))
    assert {found[f"distinct_{n}"] for n in (1, 2, 3)} == {"red"} and found["compression"] == "red"
    assert not alarms.collapse(DIVERSE, ANOTHER)
    assert not alarms.collapse(texts(templated), texts(templated))  # a form it always had


def test_longer_outputs_are_compared_on_the_same_number_of_words():
    """distinct-n falls with length, so twice as long must not look like a collapse."""
    longer = texts(lambda i, rng: varied(i, rng) + varied(i + 1, rng))
    assert "distinct_2" not in levels(alarms.collapse(DIVERSE, longer))


@pytest.mark.parametrize(("repeated", "level"), [(0, None), (3, "amber"), (10, "red")])
def test_outputs_that_repeat_another_problems_word_for_word(repeated, level):
    now = rows(lambda i, rng: [draft("the same words" if i < repeated else varied(i, rng))])
    assert levels(alarms.collapse(DIVERSE, now)).get("duplicates") == level


@pytest.mark.parametrize(("topics", "level"), [(80, None), (60, "amber"), (20, "red")])
def test_fewer_different_outputs_than_before(topics, level):
    def about(many):
        topic = [WORDS[i % many % 18] + WORDS[i % many // 18] for i in range(N)]
        return texts(lambda i, rng: f"{i} " + " ".join(word + topic[i] for word in WORDS[:8]))

    assert levels(alarms.collapse(about(80), about(topics))).get("vendi") == level


@pytest.mark.parametrize(
    ("before", "now", "level"),
    [(0.05, 0.1, None), (0.05, 0.4, "amber"), (0.05, 0.8, "red"), (0.75, 0.8, None)],
)
def test_outputs_that_begin_alike_and_did_not_before(before, now, level):
    def opening(share):
        alike = "Let us think step by step. "
        return texts(lambda i, rng: (alike if i < share * N else "") + varied(i, rng))

    assert levels(alarms.collapse(opening(before), opening(now))).get("opening") == level


@pytest.mark.parametrize(("spread", "level"), [(30, None), (20, None), (5, "amber")])
def test_outputs_that_all_get_one_length(spread, level):
    before, now = (
        texts(lambda i, rng, s=s: " ".join(rng.choice(WORDS) + str(i) for _ in range(60 + i % 2 * s)))
        for s in (30, spread)
    )
    assert levels(alarms.collapse(before, now)).get("length_spread") == level


def with_k(share_first, share_any, n=N):
    """Four drafts a problem; the first is right on `share_first`, any on `share_any` of the problems."""

    def make(i, rng):
        first, any_of = i < share_first * n, i < share_any * n
        right = [first, any_of and not first, False, False]
        return [draft(varied(i, rng), right[k], sample=k) for k in range(4)]

    return rows(make, n)


def test_first_drafts_gain_while_fewer_problems_are_solved_by_any():
    assert levels(alarms.collapse(with_k(0.3, 0.8), with_k(0.5, 0.55)))["narrowing"] == "red"
    assert (
        levels(alarms.collapse(with_k(0.3, 0.8), with_k(0.5, 0.77))).get("narrowing") == "amber"
    )  # may be noise
    assert "narrowing" not in levels(alarms.collapse(with_k(0.3, 0.8), with_k(0.5, 0.85)))
    assert "narrowing" not in levels(alarms.collapse(with_k(0.5, 0.8), with_k(0.4, 0.5)))  # just worse


def test_on_few_problems_a_loss_of_any_draft_is_said_with_its_doubt():
    """From 15 to 10 of 20: five lost and none gained has p = 0.06."""
    (found,) = [
        a for a in alarms.collapse(with_k(0.3, 0.75, 20), with_k(0.5, 0.5, 20)) if a.code == "narrowing"
    ]
    assert found.level == "amber" and "may be noise" in found.text and "n = 20" in found.text
    before, now = with_k(0.3, 0.75), with_k(0.5, 0.5)
    for row in (*before[19:], *now[19:]):  # no program can check the others
        for candidate in row.candidates:
            candidate.verdict = Verdict(correct=None, method="no_reference")
    assert "narrowing" not in levels(alarms.collapse(before, now))


def judged(score, right, n=N):
    """Scores around `score`, verdicts right on that share of the problems."""
    return rows(lambda i, rng: [draft(varied(i, rng), i < right * n, score + (i % 5 - 2) / 20)], n)


@pytest.mark.parametrize(
    ("score", "right", "level"),
    [
        (0.8, 0.4, "red"),
        (0.8, 0.5, "red"),  # a leap, and nothing more is right
        (0.8, 0.51, "red"),
        (0.8, 0.53, "amber"),  # two more, which may be noise
        (0.56, 0.5, "amber"),
        (0.8, 0.6, None),  # it is clear that more is right
        (0.5, 0.4, None),
        (0.52, 0.5, None),
    ],
)
def test_scores_that_rise_while_verdicts_do_not(score, right, level):
    found = levels(alarms.hacking(judged(0.5, 0.5, 100), judged(score, right, 100)))
    assert found.get("proxy_without_gold") == level


def test_scores_that_rise_by_chance_are_no_sign_of_anything():
    """Of twenty problems, whose scores vary by as much as they rise."""
    found = []
    for seed in range(40):
        rng = random.Random(seed)
        before, now = ([draft("x", i % 2 == 0, rng.gauss(0.5, 0.1)) for i in range(20)] for _ in range(2))
        sides = [rows(lambda i, _, side=side: [side[i]], 20) for side in (before, now)]
        found.append("proxy_without_gold" in levels(alarms.hacking(*sides)))
    assert sum(found) <= 3


@pytest.mark.parametrize(
    ("critics", "holdout", "level"),
    [(0.8, 0.5, "red"), (0.58, 0.5, "amber"), (0.8, 0.8, None), (0.5, 0.5, None)],
)
def test_critics_that_rise_above_the_hold_out_critic(critics, holdout, level):
    before, now = judged(0.5, 0.5), judged(critics, 0.6)
    noisy = {row.id: holdout + random.Random(row.id).uniform(-0.02, 0.02) for row in now}
    found = levels(alarms.hacking(before, now, {row.id: 0.5 for row in before}, noisy))
    assert found.get("holdout_gap") == level


def told_apart(by):
    """Half of the drafts are right; their scores lie `by` above the others', with a spread of 0.1."""
    return rows(lambda i, rng: [draft(varied(i, rng), i % 2 == 0, rng.gauss(0.5 + by * (i % 2 == 0), 0.1))])


@pytest.mark.parametrize(("by", "level"), [(0.3, None), (0.22, None), (0.05, "amber"), (0.0, "amber")])
def test_scores_that_tell_right_from_wrong_less_than_they_did(by, level):
    found = levels(alarms.hacking(told_apart(0.3), told_apart(by)))
    assert found.get("proxy_gold_correlation") == level


@pytest.mark.parametrize(
    ("longer", "verified", "level"),
    [
        (0.5, False, None),
        (0.7, False, "amber"),
        (0.95, False, "red"),
        (0.95, True, "amber"),
        (0.0, False, None),
    ],
)
def test_pairs_whose_chosen_side_is_the_longer_one(longer, verified, level):
    found = alarms.chosen_longer(Rate.of(round(longer * N), N), verified)
    assert levels(found).get("chosen_longer") == level
    assert not alarms.chosen_longer(Rate.of(alarms.LEAST - 1, alarms.LEAST - 1), verified)  # too few


@pytest.mark.parametrize(
    ("factor", "level"), [(1.0, None), (1.1, None), (1.3, "amber"), (1.7, "red"), (0.4, None)]
)
def test_outputs_that_grow_longer_than_the_champions(factor, level):
    before, now = texts(lambda i, rng: "x" * 100), texts(lambda i, rng: "x" * round(100 * factor))
    assert levels(alarms.length_drift(before, now)).get("length_drift") == level


PRAISE = " This is a very concise and accurate answer."


def test_a_phrase_that_comes_up_is_flattery_when_the_judge_likes_it():
    praising = rows(lambda i, rng: [draft(varied(i, rng, PRAISE if i % 2 else ""))])
    phrases = alarms.new_phrases(DIVERSE, praising)
    assert phrases[0][0] == "a very concise and accurate answer" and phrases[0][2] == 0.5
    assert {alarm.level for alarm in alarms.flattery(phrases, {})} == {"amber"}
    liked = alarms.flattery(phrases, {phrases[0][0]: [0.1] * 8})[0]
    assert liked.level == "red" and "n = 8" in liked.text and f"{N} outputs" in liked.text
    assert not alarms.new_phrases(praising, praising)  # it was there before
    assert not alarms.new_phrases(DIVERSE, ANOTHER)
    rare = rows(lambda i, rng: [draft(varied(i, rng, PRAISE if i % 20 == 0 else ""))])
    assert not alarms.new_phrases(DIVERSE, rare)


def test_words_without_content_that_please_the_judge():
    found = alarms.judge_pleased({"praise": [0.2] * 8, "padding": [0.0] * 8})
    assert [a.level for a in found] == ["amber"] and "praise" in found[0].text and "n = 8" in found[0].text
    assert not alarms.judge_pleased({"praise": [0.02] * 8, "padding": [-0.3] * 8})


def noisy_shifts(mean, sd, n, seed):
    rng = random.Random(seed)
    return [mean + rng.gauss(0, sd) for _ in range(n)]


def test_a_noisy_judge_is_not_taken_for_one_that_can_be_pleased():
    """A judge whose score of one answer varies by 0.1 moves a mean of eight by more than 0.03 at every other
    look, and likes nothing."""
    phrase = ("a fine phrase", 0.0, 0.5, N)
    for n in (8, 32):
        looks = [noisy_shifts(0.0, 0.14, n, seed) for seed in range(100)]
        pleased = sum(bool(alarms.judge_pleased({"praise": moves})) for moves in looks)
        red = sum(alarms.flattery([phrase], {"a fine phrase": m})[0].level == "red" for m in looks)
        assert pleased <= 4 and red <= 4
    clear = [noisy_shifts(0.12, 0.14, 32, seed) for seed in range(100)]
    assert sum(bool(alarms.judge_pleased({"praise": moves})) for moves in clear) > 90


@pytest.mark.parametrize(
    ("shift", "noise", "level"),
    [(0.0, 0.0, None), (0.07, 0.01, "amber"), (0.2, 0.01, "red"), (0.2, 0.5, None)],
)
def test_a_judge_that_scores_frozen_answers_otherwise(shift, noise, level):
    first = [0.3 + 0.05 * i for i in range(8)]
    found = alarms.judge_drift(first, [score + shift for score in first], noise)
    assert levels(found).get("judge_drift") == level


def test_a_failed_judgement_is_no_drift():
    assert not alarms.judge_drift([0.5, None] * 5, [0.5, 0.9] * 5)
    assert not alarms.judge_drift([0.5] * 4, [0.9] * 4)  # too few to tell


@pytest.mark.parametrize(
    ("top", "verified", "level"),
    [(0.3, False, None), (0.7, False, "amber"), (1.0, False, "red"), (1.0, True, "amber")],
)
def test_scores_at_their_ceiling(top, verified, level):
    found = alarms.judge_scores(
        rows(lambda i, rng: [draft("x", score=1.0 if i < top * N else 0.6)]), verified
    )
    assert levels(found).get("ceiling") == level


def by_two(first, second, n):
    """Traces that two critics scored, each by a function of the trace's number."""

    def make(i, rng):
        each = {"one": {"quality": first(i)}, "two": {"quality": second(i)}}
        raw = {name: {"judge": name, "scores": scores} for name, scores in each.items()}
        mean = (first(i) + second(i)) / 2
        return [draft(f"trace {i}").model_copy(
            update={"judgement": Judgement(scores={"quality": mean}, judge="panel", raw=raw)}
        )]  # fmt: skip

    return rows(make, n)


@pytest.mark.parametrize(
    ("n", "first", "second", "verified", "expected"),
    [
        (5, lambda i: 1.0, lambda i: 1.0, False, ["red", "red"]),
        (5, lambda i: 1.0, lambda i: 1.0, True, ["amber", "amber"]),
        (5, lambda i: 0.5, lambda i: 0.5, False, ["red", "red"]),  # whichever score it is
        (5, lambda i: 1.0, lambda i: i / 5, False, ["amber"]),  # the other one decides
        (5, lambda i: 0.2 * i, lambda i: 1 - 0.2 * i, False, []),  # the mean is the same, the scores are not
        (4, lambda i: 1.0, lambda i: 1.0, False, []),
        (80, lambda i: 1.0, lambda i: float(i > 0), False, ["amber"]),
        (200, lambda i: float(i > 0), lambda i: float(i > 1), False, ["amber"]),  # 99.5 % of its traces
    ],
)
def test_a_critic_that_gives_everything_one_score_is_named_whatever_the_number(
    n, first, second, verified, expected
):
    found = [a for a in alarms.judge_scores(by_two(first, second, n), verified) if a.code == "one_score"]
    assert [alarm.level for alarm in found] == expected
    assert all(name in alarm.text for name, alarm in zip(("one", "two"), found, strict=False))
    assert not expected or f"of the {n} traces" in found[0].text


def test_one_trace_scored_again_and_again_is_one_trace():
    same = [Row(index=0, id="1", problem="P", candidates=[draft("x", score=1.0)] * 10)]
    assert not alarms.judge_scores(same, False)


@pytest.mark.parametrize(("failed", "level"), [(0.0, None), (0.1, "amber"), (0.5, "red")])
def test_critics_that_fail(failed, level):
    def make(i, rng):
        candidate = draft("x", score=0.5)
        if i < failed * N:
            candidate.judgement = Judgement(scores=None, error="parse: no JSON")
        return [candidate]

    assert levels(alarms.judge_scores(rows(make), True)).get("judge_failures") == level


@pytest.mark.parametrize(("echoed", "level"), [(0.2, None), (0.9, "amber")])
def test_an_improver_that_gives_back_what_it_was_given(echoed, level):
    def make(i, rng):
        first = varied(i, rng)
        again = Candidate(
            iteration=1, stage="refine", parent=0, text="", trace=first if i < echoed * N else varied(i, rng),
            verdict=Verdict(correct=False, method="number"),
        )  # fmt: skip
        return [draft(first, False), again]

    assert levels(alarms.improver_echo(rows(make))).get("improver_echo") == level


def test_every_alarm_says_of_how_many_it_speaks():
    found = alarms.collapse(DIVERSE, texts(templated)) + alarms.collapse(with_k(0.3, 0.8), with_k(0.5, 0.55))
    found += alarms.hacking(judged(0.5, 0.5), judged(0.8, 0.4))
    found += alarms.hacking(told_apart(0.3), told_apart(0.0))
    found += alarms.length_drift(texts(lambda i, rng: "x" * 100), texts(lambda i, rng: "x" * (160 + i)))
    found += alarms.judge_drift([0.5] * 8, [0.8, 0.7] * 4)
    assert len({alarm.code for alarm in found}) >= 8
    for alarm in found:
        assert f"n = {8 if alarm.code == 'judge_drift' else N}" in alarm.text
    texts_of = {alarm.code: alarm.text for alarm in found}
    for code in ("length_drift", "proxy_gold_correlation", "judge_drift"):
        assert "[" in texts_of[code]  # with the interval
    few = [draft("x", score=1.0)]
    same, ceiling = alarms.judge_scores(rows(lambda i, rng: few), False)
    assert "95 % interval" in ceiling.text and "80" in ceiling.text and "80" in same.text


def test_against_the_untrained_actor_a_change_of_style_is_amber_and_a_loss_or_a_trick_what_it_is():
    found = alarms.collapse(DIVERSE, texts(templated))
    soft = alarms.softened(found)
    assert [alarm.code for alarm in soft] == [alarm.code for alarm in found]
    assert {alarm.level for alarm in found} == {"red", "amber"} and {a.level for a in soft} == {"amber"}
    assert "untrained actor" in soft[0].text and soft[0].threshold == alarms.LIMITS[soft[0].code][0]
    loss = [a for a in alarms.collapse(with_k(0.3, 0.8), with_k(0.5, 0.55)) if a.code == "narrowing"]
    trick = alarms.flattery([("a fine phrase", 0.0, 0.5, N)], {"a fine phrase": [0.1] * 8})
    repeats = texts(lambda i, rng: "the same words" if i < 10 else varied(i, rng))
    repeated = [a for a in alarms.collapse(DIVERSE, repeats) if a.code == "duplicates"]
    for kept in (loss, trick, repeated):
        assert [alarm.level for alarm in kept] == ["red"] and alarms.softened(kept) == kept


def test_picking_by_noisy_scores_is_no_gap_to_the_hold_out_critic():
    """The best of four noisy scores lies above the truth, and the hold-out critic says so."""
    before, now = judged(0.5, 0.5), judged(0.58, 0.5)
    still = {row.id: 0.5 for row in before}
    assert levels(alarms.hacking(before, now, still, still))["holdout_gap"] == "amber"
    assert "holdout_gap" not in levels(alarms.hacking(before, now, still, still, chance=0.09))
    much = alarms.hacking(before, judged(0.8, 0.5), still, still, chance=0.09)
    assert levels(much)["holdout_gap"] == "red" and "at most 0.09" in str(much)


def silent(row, kind="empty"):
    row.candidates, row.errors = [], [{"stage": "draft", "kind": kind, "sample_index": 0}]
    return row


def test_outputs_are_compared_where_both_said_something():
    half = [silent(row) if i % 2 else row for i, row in enumerate(texts(varied))]
    assert not alarms.collapse(DIVERSE, half) and not alarms.length_drift(DIVERSE, half)
    assert alarms.hacking_measures(DIVERSE, half)["intervals"]["length_ratio"]["n"] == N // 2


def test_fewer_problems_solved_by_any_draft_counts_drafts_without_words():
    now = with_k(0.5, 0.85)
    for row in now[N // 4 :]:
        silent(row)
    for row in now[N // 4 :]:
        row.errors *= 4
    found = {a.code: a for a in alarms.collapse(with_k(0.1, 0.9), now)}
    assert found["narrowing"].level == "red" and f"n = {N}" in found["narrowing"].text


SITUATION = {
    "generations": 2, "critics": True, "holdout": 30, "verified": True, "refined": 30, "cycle": 1,
    "decided": 100, "scored": 100, "judged": 50, "pairs": 30, "frozen": 32, "drift": 32, "pleased": 32,
}  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "changed", "codes"),
    [
        (100, {}, set()),
        (100, {"generations": 1}, {"narrowing"}),
        (100, {"holdout": None}, {"holdout_gap"}),
        (100, {"holdout": 5}, {"holdout_gap"}),
        (100, {"refined": 0}, {"improver_echo"}),
        (100, {"cycle": 0}, {"judge_drift"}),
        (100, {"verified": False}, {"narrowing", "proxy_without_gold", "proxy_gold_correlation"}),
        (None, {}, {"distinct_1", "length_drift", "flattery", "narrowing", "proxy_without_gold"}),
        (5, {}, {"distinct_1", "length_drift", "flattery", "narrowing", "proxy_without_gold"}),
        (100, {"critics": False}, {"judge_pleased", "ceiling", "one_score", "holdout_gap", "judge_drift"}),
        (100, {"critics": False, "frozen": 0}, {"judge_pleased", "one_score", "judge_failures"}),
        (100, {"decided": 19}, {"narrowing"}),
        (100, {"scored": 19}, {"proxy_without_gold", "proxy_gold_correlation"}),
        (100, {"judged": 19}, {"ceiling", "judge_failures"}),
        (100, {"judged": 4}, {"ceiling", "judge_failures", "one_score"}),
        (100, {"pairs": 19}, {"chosen_longer"}),
        (100, {"frozen": 4}, {"flattery"}),
        (100, {"drift": 4}, {"judge_drift"}),
        (100, {"pleased": 4}, {"judge_pleased"}),
        (100, {"pleased": None}, {"judge_pleased"}),
    ],
)
def test_what_was_not_looked_at_is_named_with_its_reason(outputs, changed, codes):
    found = alarms.not_looked_at(outputs, **SITUATION | changed)
    assert set(found) >= codes and set(found) <= set(alarms.LIMITS) and all(found.values())
    assert bool(found) == bool(codes)
    assert outputs != 100 or "critics" in changed or set(found) == codes


def test_few_problems_raise_nothing():
    few = alarms.LEAST - 1
    before, now = (rows(lambda i, rng: [draft(varied(i, rng), score=0.2)], few) for _ in range(2))
    alike = rows(lambda i, rng: [draft(templated(i, rng) * 3, False, score=1.0)], few)
    assert not alarms.collapse(before, alike) and not alarms.hacking(now, alike)
    assert not alarms.length_drift(before, alike)
    assert set(levels(alarms.judge_scores(alike, False))) == {"one_score"}
