"""Each alarm in a whole run: once where it must be raised, and what follows, once where it must not."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from scripted_loop import pid, problems, script, verdict

from cotkit import analysis
from cotkit.pipelines import cycle as cycle_module
from cotkit.pipelines.critics import PERTURBATIONS


def levels(cycle):
    return {alarm["code"]: alarm["level"] for alarm in cycle["alarms"]}


def is_judged(request):
    return "response_format" in request.body


def critic(judge):
    """The script, with `judge(request)` for the critics' scores."""
    return lambda request: verdict(judge(request)) if is_judged(request) else script(request)


def watched(world, names=(), **options):
    """Critics that let through what programs do."""
    return world.improve(names, critics=[world.model("judge-5")], score_threshold=0.3, **options)


WORDINGS = {
    "critic_v1": "You criticise an answer",
    "critic_v2": "You look for what is wrong",
    "critic_v3": "You compare an answer",
}


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_critic_that_words_please_is_named_in_the_cycle_that_it_chooses_in(world, wording):
    """Each wording is tried in the cycle of its own, on the same frozen answers, and once."""

    def judge(request):
        text = str(request.messages)
        return 5 + 3 * (PERTURBATIONS["praise"] in text and WORDINGS[wording] in text)

    world.answer = critic(judge)
    cycles = watched(world, cycles=4).cycles
    named = [cycle["cycle"] for cycle in cycles if "judge_pleased" in levels(cycle)]
    assert named == [list(WORDINGS).index(wording)]
    said = next(a["text"] for a in cycles[named[0]]["alarms"] if a["code"] == "judge_pleased")
    assert "praise" in said and "+0.30" in said and levels(cycles[named[0]])["judge_pleased"] == "amber"
    unseen = ["judge_pleased" in cycle["not_looked_at"] for cycle in cycles]
    assert unseen == [False, False, False, True]
    assert "tried in an earlier cycle" in cycles[3]["not_looked_at"]["judge_pleased"]


def test_a_made_up_box_is_among_what_is_tried(world):
    world.answer = critic(lambda request: 5 + 3 * ("boxed{42}" in str(request.messages)))
    texts = [a["text"] for a in watched(world).cycles[0]["alarms"] if a["code"] == "judge_pleased"]
    assert len(texts) == 1 and "box" in texts[0]


def test_a_seed_that_begins_with_another_wording_has_that_one_tried(world):
    pleasing = (WORDINGS["critic_v2"], PERTURBATIONS["assurance"])
    world.answer = critic(lambda request: 5 + 3 * all(words in str(request.messages) for words in pleasing))
    cycle = watched(world, seed=1).cycles[0]
    assert levels(cycle).get("judge_pleased") == "amber" and "critic_v2" in cycle["critics"][0]["name"]


def test_a_critic_that_drifts_keeps_the_champion(world):
    shift = 0

    def judge(request):
        return 5 + shift

    def answer(request):
        nonlocal shift
        shift = 2 if request.body["model"] == "actor-70" else shift  # from the evaluation of cycle 0 on
        return critic(judge)(request)

    world.answer = answer
    first, second = watched(world, ["actor-70", "actor-90"]).cycles
    assert first["decision"]["promoted"]
    assert first["not_looked_at"]["judge_drift"] == "from the second cycle on"
    assert levels(second)["judge_drift"] == "red" and second["status"] == "rolled_back"
    assert "judge_drift" in second["decision"]["reason"]
    world.answer = critic(lambda request: 5)
    second = watched(world, ["actor-70", "actor-90"], run="steady").cycles[1]
    assert "judge_drift" not in levels(second) | second["not_looked_at"] and second["decision"]["promoted"]


PHRASE = "A wonderfully lucid and complete solution."


@pytest.mark.parametrize(("liked", "level"), [(True, "red"), (False, "amber")])
@pytest.mark.parametrize("names", [["flat-70"], ["actor-60", "flat-90"]])
def test_a_phrase_that_pleases_the_critic_keeps_the_champion_in_the_first_training_too(
    world, liked, level, names
):
    def answer(request):
        if is_judged(request):
            return verdict(5 + 3 * (liked and PHRASE.lower()[:-1] in str(request.messages).lower()))
        praise = f" {PHRASE}" if request.body["model"].startswith("flat") else ""
        return script(request) + praise

    world.answer = answer
    cycle = watched(world, names).cycles[-1]
    assert levels(cycle)["flattery"] == level and ("flattery" in cycle["decision"]["reason"]) is liked
    assert cycle["decision"]["promoted"] is (not liked and len(names) == 1)  # the later one drifts in style


def test_without_a_new_phrase_there_is_no_flattery(world):
    world.answer = critic(lambda request: 5)
    cycle = watched(world, ["actor-70"]).cycles[0]
    assert "flattery" not in levels(cycle) | cycle["not_looked_at"]


def narrow(request):
    """Four drafts of "actor-41" are right on two in five of the problems each, and on others each; those of
    "narrow-50" on the same half."""
    n, seed = pid(request), request.body.get("seed", 0)
    right = n % 2 == 0 if request.body["model"] == "narrow-50" else (n * 7 + seed % 5) % 10 < 4
    answer = 2 * n if right else n
    return f"{n} twice is {answer} by way {seed % 7} and {n * n}. The answer is \\boxed{{{answer}}}."


def test_a_first_training_after_which_any_draft_solves_less_is_rolled_back(world):
    """First drafts gain, and fewer problems are solved by any of four drafts: no change of style."""
    world.answer = narrow
    options = {"dev_generations": 4, "temperature": 0.8}
    clear = world.improve(["narrow-50"], task=problems(110), dev=70, **options).cycles[0]
    assert levels(clear)["narrowing"] == "red" and clear["status"] == "rolled_back"
    assert clear["heldout"]["difference"] > 0 and "narrowing" in clear["decision"]["reason"]
    few = world.improve(["narrow-50"], run="few", **options).cycles[0]  # 20 dev problems
    said = next(a for a in few["alarms"] if a["code"] == "narrowing")
    assert said["level"] == "amber" and "may be noise" in said["text"] and few["decision"]["promoted"]
    world.answer = script
    broad = world.improve(["actor-90"], run="broad", **options).cycles[0]
    assert "narrowing" not in levels(broad) | broad["not_looked_at"]


def styled(name, n, right):
    """What a critic that looks at style tells from what "rough-1" writes; no words that come up."""
    answer, arrow = 2 * n if right else n, "->" if name == "rough-1" else "=>"
    return f"Number {n} {arrow} {answer}, {n * n}. The answer is \\boxed{{{answer}}}."


def test_scores_that_leap_while_hardly_more_is_right_keep_the_champion(world):
    """Verdicts decide, and the challenger measures better by a point: the gate alone would promote it."""
    options = {"task": problems(160), "dev": 110, "actor": world.model("rough-1")}
    sets = json.loads((world.improve(run="look", **options).path / "sets.json").read_bytes())
    more = min(n for n in range(1, 160, 2) if sets[f"p{n}"] == "dev")

    def answer(request):
        n, name = pid(request), request.body["model"]
        if is_judged(request):
            return verdict(8 + n % 2 if "=>" in str(request.messages) else 3 + n % 3)
        right = {"rough-1": n % 2 == 0, "smooth-1": n % 2 == 0 or n == more, "better-1": n % 4 != 1}[name]
        return styled(name, n, right)

    world.answer = answer
    cycle = watched(world, ["smooth-1"], run="smooth", **options).cycles[0]
    assert cycle["heldout"]["measure"] == "verified accuracy" and 0 < cycle["heldout"]["difference"] < 0.01
    assert levels(cycle)["proxy_without_gold"] == "red" and cycle["status"] == "rolled_back"
    better = watched(world, ["better-1"], run="better", **options).cycles[0]
    assert "proxy_without_gold" not in levels(better) | better["not_looked_at"]
    assert better["decision"]["promoted"]


@pytest.mark.parametrize("blind", [True, False])
def test_scores_that_no_longer_tell_right_from_wrong(world, blind):
    def answer(request):
        n = pid(request)
        if is_judged(request):
            text = str(request.messages)
            right = f"boxed{{{2 * n}}}" in text
            return verdict(5 + n % 2 if blind and "=>" in text else 8 if right else 4)
        name = request.body["model"]
        return styled(name, n, n % 5 < (2 if name == "rough-1" else 3))

    world.answer = answer
    options = {"task": problems(100), "dev": 60, "actor": world.model("rough-1")}
    cycle = watched(world, ["smooth-1"], **options).cycles[0]
    assert levels(cycle).get("proxy_gold_correlation") == ("amber" if blind else None)
    assert "proxy_gold_correlation" not in cycle["not_looked_at"]


@pytest.mark.parametrize("fails", [True, False])
def test_critics_that_fail(world, fails):
    def answer(request):
        broken = fails and is_judged(request) and pid(request) % 2
        return "no JSON" if broken else critic(lambda r: 5 + pid(r) % 3)(request)

    world.answer = answer
    options = {"actor": world.model("actor-100"), "problems_per_cycle": None}
    cycle = watched(world, **options).cycles[0]
    assert levels(cycle).get("judge_failures") == ("red" if fails else None)
    assert "judge_failures" not in cycle["not_looked_at"]
    few = watched(world, run="few", **options | {"problems_per_cycle": 8}).cycles[0]["not_looked_at"]
    assert few["judge_failures"] == few["ceiling"] == "16 traces were judged, fewer than 20"
    assert "one_score" not in few


@pytest.mark.parametrize("longer", [True, False])
def test_pairs_whose_chosen_side_is_the_longer_one(world, longer):
    def answer(request):
        n = pid(request)
        right = request.body.get("seed", 0) % 2
        answer = 2 * n if right else n
        more = " Counting on from the first one, step by step, gives it." if longer and right else ""
        return f"Number {n:03} goes to {answer:03}.{more} The answer is \\boxed{{{answer}}}."

    world.answer = answer
    options = {"task": problems(120), "method": "dpo", "num_generations": 4, "problems_per_cycle": None}
    cycle = world.improve(max_per_problem=1, **options).cycles[0]
    assert cycle["counts"]["kept"] >= 20 and "chosen_longer" not in cycle["not_looked_at"]
    assert levels(cycle).get("chosen_longer") == ("amber" if longer else None)
    few = world.improve(run="few", **options | {"problems_per_cycle": 12}, max_per_problem=1).cycles[0]
    kept = few["counts"]["kept"]
    assert few["not_looked_at"]["chosen_longer"] == f"{kept} pairs to train on, fewer than 20"
    sft = world.improve(run="sft").cycles[0]["not_looked_at"]
    assert sft["chosen_longer"] == "0 pairs to train on, fewer than 20"


def test_a_critic_that_always_gives_ten_is_named_in_a_run_of_a_few_prompts(world):
    """Nothing else would say that it kept everything because it always does."""

    def answer(request):
        return verdict(10) if is_judged(request) else f"A plain reply to number {pid(request)}."

    world.answer = answer
    task = {"description": "Explain.", "prompts": [p.problem for p in problems(12)]}
    options = {"task": task, "critics": [world.model("judge-10")], "dev": 0, "test": 0, "num_generations": 1}
    cycle = world.improve(**options).cycles[0]
    assert cycle["counts"]["kept"] == 12 and levels(cycle)["one_score"] == "red"  # nothing else decides
    assert "red alarm one_score" in cycle["decision"]["reason"]
    (said,) = (a["text"] for a in cycle["alarms"] if a["code"] == "one_score")
    assert "judge-10" in said and "12 of the 12 traces" in said
    world.answer = lambda r: verdict(6 + pid(r) % 4) if is_judged(r) else answer(r)
    honest = world.improve(run="honest", **options).cycles[0]
    assert "one_score" not in levels(honest) | honest["not_looked_at"]
    assert honest["not_looked_at"]["ceiling"] == "12 traces were judged, fewer than 20"


def test_of_three_critics_the_one_without_a_mind_of_its_own_is_named_and_the_others_decide(world):
    world.answer = lambda request: (
        verdict(10 if request.body["model"] == "judge-10" else 5 + pid(request) % 4)
        if is_judged(request)
        else f"A plain reply to number {pid(request)}."
    )
    critics = [world.model(f"judge-{n}") for n in (1, 10, 2)]
    task = {"description": "Explain.", "prompts": [p.problem for p in problems(12)]}
    cycle = world.improve(task=task, critics=critics, dev=0, test=0, num_generations=1).cycles[0]
    (said,) = (a for a in cycle["alarms"] if a["code"] == "one_score")
    assert said["level"] == "amber" and "critic 2 (judge-10, critic_v2)" in said["text"]


def test_frozen_answers_that_the_critics_could_not_score_are_said_to_be_too_few(world):
    """The probes of the first cycle, drift in the second, and what makes flattery red."""
    asked = Counter()

    def answer(request):
        text = str(request.messages)
        appended = any(words in text for words in PERTURBATIONS.values())
        asked[appended] += is_judged(request)
        return "no JSON" if is_judged(request) and pid(request) % 4 else critic(lambda r: 5)(request)

    world.answer = answer
    options = {"actor": world.model("actor-100"), "min_examples": 1}
    first, second = watched(world, ["actor-100", "actor-100"], **options).cycles
    n = first["not_looked_at"]["judge_pleased"].split()[0]
    assert asked[True] and int(n) < 5
    assert first["not_looked_at"]["judge_pleased"] == f"{n} frozen answers with scores, fewer than 5"
    assert second["not_looked_at"]["judge_drift"].startswith(f"{n} frozen answers with scores then and now")
    assert "amber at most" in first["not_looked_at"]["flattery"]


def test_a_problem_of_the_dev_set_that_comes_up_in_a_later_cycle_stops_the_run(world, monkeypatch):
    """The sets are held apart in every cycle, not only when they are drawn."""
    draw = cycle_module.draw_problems
    folder = world.improve(["actor-100"], run="look").path
    sets = json.loads((folder / "sets.json").read_bytes())
    held = next(p for p in problems() if sets[p.id] == "dev")

    def leaking(given, rates, count, seed):
        copy = held.model_copy(update={"id": "leak", "problem": held.problem.replace("what is", "What is")})
        return draw(given, rates, count, seed) + ([copy] if seed.endswith(":1") else [])

    monkeypatch.setattr(cycle_module, "draw_problems", leaking)
    result = world.improve(["actor-100", "actor-100"])
    first, second = result.cycles
    assert (first["status"], second["status"]) == ("ok", "failed")
    assert "'leak'" in second["decision"]["reason"] and repr(held.id) in second["decision"]["reason"]
    assert len(world.trainer.calls) == 1 and result.report["stopped"]


def test_a_cycles_report_has_the_model_and_the_prompt_of_every_role_and_each_critics_scores(world):
    world.answer = critic(lambda r: 9 if r.body["model"] == "judge-9" else 5 + pid(r) % 3)
    critics = [world.model("judge-9"), world.model("judge-8")]
    result = world.improve(
        ["actor-70", "actor-90"], critics=critics, holdout_critic=world.model("judge-7"),
        teacher=world.model("teacher-90"), improver=world.model("improver-80"), iterations=1,
    )  # fmt: skip
    first, second = result.cycles
    assert [one["model"] for one in first["critics"]] == ["judge-9", "judge-8"]
    assert first["critics"][0]["name"] == "critic 1 (judge-9, critic_v1)"
    hashes = [{one["prompt_hash"] for one in cycle["critics"]} for cycle in (first, second)]
    assert len(hashes[0] | hashes[1]) == 3 and hashes[0] <= set(first["prompts"])
    roles = first["roles"]
    assert {name: role["model"] for name, role in roles.items()} == {
        "actor": "actor-40", "improver": "improver-80", "teacher": "teacher-90", "holdout_critic": "judge-7",
    }  # fmt: skip
    assert first["prompts"][roles["teacher"]["prompt_hash"]] == "reasoning"
    assert first["prompts"][roles["improver"]["prompt_hash"]] == "refine"
    assert roles["actor"]["prompt_hash"] is None  # the teacher drafted
    assert second["roles"]["actor"]["prompt_hash"] and second["roles"]["teacher"]["prompt_hash"] is None
    assert roles["holdout_critic"]["prompt_hash"]
    scores = first["scores"]
    assert list(scores) == [one["name"] for one in first["critics"]] + ["panel"]
    nine, other, both = (found["clarity"] for found in scores.values())
    assert nine["mean"] == pytest.approx(0.9) and nine["sd"] == pytest.approx(0)
    assert other["n"] == nine["n"] and both["mean"] == pytest.approx((nine["mean"] + other["mean"]) / 2)
    figure = analysis.figures.score_cycles(result.cycles)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "critic 1: judge-9", "critic 2: judge-8", "panel",
    ]  # fmt: skip
    shown = analysis.cycles_frame(result.cycles).set_index("measure")["cycle 0"]
    cost = first["cost"]
    assert set(cost["by_role"]) >= {"generator", "judge"} and shown["cost"] == "$0.00"
    assert sum(own["tokens"] for own in cost["by_role"].values()) == cost["tokens"] > 0
    assert shown["tokens"] == f"{cost['tokens']:,}"
    assert shown["tokens, judge"] == f"{cost['by_role']['judge']['tokens']:,}"
    assert shown["in a box"] == "20 of 20" and shown["right, in a box"] == shown["right, answered"]
