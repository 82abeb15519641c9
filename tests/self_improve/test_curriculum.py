"""Sets that never meet, and problems drawn by difficulty."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from scripted_loop import problems, verdict

from cotkit.pipelines import curriculum
from cotkit.pipelines.curriculum import (
    Sets,
    clusters,
    draw_problems,
    draw_replay,
    near_duplicates,
    numbers_of,
    pass_rates,
    pool,
    split_problems,
)
from cotkit.problems import Problem
from cotkit.records import Candidate, Judgement, Row, Verdict

BASE = "Mia has 7 apples in a basket and buys 5 more at the market. How many apples does Mia have now?"
PAIRS = [
    ("another name", BASE.replace("Mia", "Ben"), True),
    ("a number in words", BASE.replace("7", "seven"), True),
    ("both numbers in words", BASE.replace("7", "Seven").replace("5", "five"), True),
    ("another number in words", BASE.replace("7", "eight"), False),
    ("case and spaces", BASE.upper().replace(" ", "  "), True),
    ("a word added", BASE.replace("buys", "then buys"), True),
    ("the same template with other numbers", BASE.replace("7", "8"), False),
    (
        "the same numbers in another story",
        "A train of 7 wagons gets 5 more. How long is it in wagons?",
        False,
    ),
]


@pytest.mark.parametrize(("what", "text", "near"), PAIRS, ids=[p[0] for p in PAIRS])
def test_near_duplicates(what, text, near):
    assert near_duplicates([BASE, "Something else altogether, with 3.", text]) == ([(0, 2)] if near else [])


def test_a_cluster_is_never_parted_and_children_follow_their_seed():
    twins = [
        Problem(id=f"t{i}", problem=BASE.replace("Mia", name)) for i, name in enumerate(("Mia", "Ben", "Zoe"))
    ]
    child = {"synthesis": {"seed_ids": ["p7"], "parents": ["p7"]}}
    sibling = {"synthesis": {"seed_ids": ["outside"], "parents": []}}
    made = [
        Problem(id="c1", problem="Another question 1", metadata=child),
        Problem(id="c2", problem="Yet another one 2", metadata=sibling),
        Problem(id="c3", problem="The last of them 3", metadata=sibling),
    ]
    given = [*problems(40), *twins, *made]
    for seed in range(8):
        sets = split_problems(given, 10, 10, seed=seed)
        assert len({sets[t.id] for t in twins}) == 1
        assert sets["c1"] == sets["p7"] and sets["c2"] == sets["c3"]
    assert len(set(clusters(given))) == len(given) - 4


def test_the_split_is_fixed_by_seed_and_id_and_of_the_asked_size():
    given = problems(60)
    sets = split_problems(given, 0.2, 15, seed=3)
    assert Counter(sets.values()) == {"train": 33, "dev": 12, "test": 15}
    assert sets == split_problems(given[::-1], 0.2, 15, seed=3) != split_problems(given, 0.2, 15, seed=4)
    assert split_problems(given, 0, 0) == {p.id: "train" for p in given}


@pytest.mark.parametrize(("dev", "test"), [(0.15, 0.25), (12, 20), (0, 0)])
def test_held_out_families_are_in_test_alone_and_dev_is_of_what_is_trained(dev, test):
    """Else promotions would be decided on what nobody trained."""
    given = problems(120)  # 40 of each type
    sets = split_problems(given, dev, test, ["product"])
    where = Counter((p.type, sets[p.id]) for p in given)
    assert where["product", "test"] == 40 and not where["product", "train"] and not where["product", "dev"]
    sizes = (12, 60, 48) if dev else (0, 40, 80)  # shares are of the 80 problems that may be trained on
    assert tuple(Counter(sets.values())[name] for name in ("dev", "test", "train")) == sizes


def test_a_near_duplicate_of_a_held_out_problem_is_not_trained_on():
    twin = Problem(id="twin", problem="PID=1; what is 1 + 1 in the product family, then?", type="sum")
    assert {split_problems([*problems(60), twin], 10, 10, ["product"], s)["twin"] for s in range(4)} == {
        "test"
    }


@pytest.mark.parametrize("made", ["yes", {"seed_ids": "p7"}, {"parents": 7}, [1]])
def test_what_is_no_lineage_is_refused_by_the_name_of_the_problem(made):
    given = [*problems(4), Problem(id="odd", problem="Another question", metadata={"synthesis": made})]
    with pytest.raises(ValueError, match=r"problem 'odd': metadata 'synthesis' .*seed_ids.*another name"):
        split_problems(given, 1, 1)


NUMBERS = [
    ("twenty-five apples and 1,000 pears", "25 apples and one thousand pears"),
    ("three hundred and four", "304"),
    ("two five-litre cans", "2 5-litre cans"),
    ("twice as many as 7.0", "double of 7"),
    ("a dozen eggs", "12 eggs"),
    ("one of the 6 pens", "any of the six pens"),
]


@pytest.mark.parametrize(("words", "digits"), NUMBERS)
def test_numbers_are_the_same_however_they_are_written(words, digits):
    assert numbers_of(words) == numbers_of(digits)
    assert numbers_of("7 and 5") != numbers_of("7 and 6")


def test_one_large_cluster_does_not_swallow_the_test_set():
    """All problems made from one seed belong together, and are too many to be held out."""
    made = {"synthesis": {"seed_ids": ["p1"], "parents": []}}
    family = [
        Problem(id=f"m{i}", problem=f"Another question about topic {i}", metadata=made) for i in range(30)
    ]
    for seed in range(6):
        sets = split_problems([*problems(40), *family], 10, 10, seed=seed)
        assert {sets[p.id] for p in family} == {"train"} and sets["p1"] == "train"
        assert Counter(sets.values())["dev"] == Counter(sets.values())["test"] == 10


def test_drafts_without_words_or_a_verdict_make_a_problem_harder():
    def drafts(*right, silent=0, unverified=0):
        verdicts = [Verdict(correct=flag, method="number") for flag in right]
        verdicts += [Verdict(correct=None, method="model_failed")] * unverified
        made = [
            Candidate(iteration=0, sample_index=i, trace="t", text="t", verdict=verdict)
            for i, verdict in enumerate(verdicts)
        ]
        errors = [{"stage": "draft", "kind": "empty", "sample_index": 8 + i} for i in range(silent)]
        return Row(index=0, id="a", problem="P", reference="7", candidates=made, errors=errors)

    assert pass_rates([drafts(True)]) == {"a": 1.0}
    assert pass_rates([drafts(True, None, None, None)]) == {"a": 0.25}
    assert pass_rates([drafts(None, None)]) == {"a": 0.0}
    assert pass_rates([drafts(True, silent=3)]) == {"a": 0.25}
    assert pass_rates([drafts(silent=2)]) == {"a": 0.0}
    assert pass_rates([drafts(True, False, unverified=2)]) == {"a": 0.5}  # an outage says nothing of them
    assert pass_rates([drafts(unverified=2)]) == {}


def test_where_no_program_can_check_the_share_that_critics_accepted_says_how_hard_a_problem_is():
    unsure = Verdict(correct=None, method="no_reference")

    def drafts(*scores, silent=0):
        made = [
            Candidate(
                iteration=0, sample_index=i, trace="t", text="t", verdict=unsure, accepted=(score or 0) > 0.6,
                judgement=Judgement(scores=None if score is None else {"q": score}),
            )
            for i, score in enumerate(scores)
        ]  # fmt: skip
        errors = [{"stage": "draft", "kind": "empty", "sample_index": 8 + i} for i in range(silent)]
        return Row(index=0, id="a", problem="P", candidates=made, errors=errors)

    assert pass_rates([drafts(0.9, 0.5, 0.7, 0.1)]) == {"a": 0.5}
    assert pass_rates([drafts(0.9, silent=3)]) == {"a": 0.25}
    assert pass_rates([drafts(0.9, None)]) == {"a": 1.0}  # a critic that failed says nothing
    assert pass_rates([drafts(None, None)]) == {}


def test_a_loop_of_critics_alone_has_a_curriculum_too(world):
    def answer(request):
        number = int(str(request.messages).split("PID=")[1].split(";")[0])
        if "response_format" in request.body:
            return verdict(9 if number % 3 == 0 else 3)
        return f"A plain reply to number {number}, try {request.body['seed'] % 97}."

    world.answer = answer
    task = {"description": "Explain.", "prompts": [p.problem for p in problems(60)]}
    options = {"cycles": 2, "dev": 0, "test": 0, "problems_per_cycle": None}
    cycles = world.improve(task=task, critics=[world.model("judge-5")], **options).cycles
    assert [cycle["pools"] for cycle in cycles] == [{"unseen": 60}, {"hard": 40, "easy": 20}]


def test_sets_that_meet_are_an_error_that_names_the_problems():
    held = Sets({"in dev": {"b": BASE}, "in test": {"d": BASE.replace("7", "9")}})
    held.assert_apart({"a": BASE.replace("7", "8")})
    with pytest.raises(AssertionError, match="1 problems are trained on and in test, for instance 'd'"):
        held.assert_apart({"d": "x"})
    with pytest.raises(AssertionError, match="'b', in test, nearly is 'a', which is in dev"):
        Sets({"in dev": {"a": BASE}, "in test": {"b": BASE.replace("7", "seven")}})
    with pytest.raises(AssertionError, match="'a', trained on, nearly is 'b', which is in dev"):
        held.assert_apart({"c": "y", "a": BASE.replace("Mia", "Ben")})


def test_near_duplicates_of_what_is_held_out_are_sought_once(world, monkeypatch):
    """Once when the sets are drawn, once for all cycles together."""
    looked, like = Counter(), curriculum.Novelty.like

    def counting(self, text, *given):
        looked[text] += 1
        return like(self, text, *given)

    monkeypatch.setattr(curriculum.Novelty, "like", counting)
    result = world.improve(["actor-70", "actor-80", "actor-90"])
    assert len(result.cycles) == 3
    sets = json.loads((result.path / "sets.json").read_bytes())
    assert {looked[p.problem] for p in problems() if sets[p.id] != "train"} == {2}


@pytest.mark.parametrize(
    ("rate", "name"),
    [(None, "unseen"), (0, "hard"), (0.25, "hard"), (0.5, "normal"), (0.75, "normal"), (1, "easy")],
)
def test_pools(rate, name):
    assert pool(rate) == name


def test_problems_of_the_normal_pool_are_drawn_most():
    given = problems(600)
    rates = {p.id: (0.0, 0.5, 1.0)[i % 3] for i, p in enumerate(given)}
    drawn = Counter(pool(rates[p.id]) for p in draw_problems(given, rates, 200, "seed"))
    assert drawn["normal"] > 2.5 * drawn["hard"] and drawn["normal"] > 2.5 * drawn["easy"]
    assert drawn["hard"] and drawn["easy"]  # seldom, not never
    assert draw_problems(given, rates, 200, "seed") == draw_problems(given, rates, 200, "seed")
    assert draw_problems(given, rates, None, "seed") == given


@pytest.mark.parametrize(("fraction", "count"), [(0, 0), (0.2, 10), (0.5, 40), (0.9, 100), (1, 100)])
def test_replay_makes_up_its_share_of_the_whole(fraction, count):
    replay = draw_replay(range(100), 40, fraction, "s")
    assert len(replay) == len(set(replay)) == count
