"""Options: what cannot work is refused before anything is asked; whose sampling counts; what is estimated."""

from __future__ import annotations

import json
import re
import warnings

import pytest
from scripted_loop import FakeTrainer, pid, problems, script, verdict

from cotkit.judge import ModelVerifier
from cotkit.pipelines import Filters, estimate_self_improvement
from cotkit.pipelines.plan import Plan
from cotkit.pipelines.running import seed_of
from cotkit.records import Extraction, Verdict
from cotkit.verify import Verifier, isolation

WRONG = [
    ({"policy": "random"}, ValueError, r"policy 'random' fits no method of this run.*all_accepted"),
    ({"policy": "best", "method": "dpo"}, ValueError, r"policy 'best' fits no method.*best_vs_worst"),
    ({"policy": "best_vs_worst"}, ValueError, "fits no method.*first_correct"),
    ({"policy": "final"}, ValueError, "fits no method"),
    ({"policy": "best", "method": "kto"}, ValueError, "kto: none"),
    ({"policy": ["best", "all_accepted"]}, ValueError, "more than one for 'sft'"),
    ({"policy": "first_vs_last", "method": "dpo"}, ValueError, "iterations of at least 1"),
    ({"policy": "gold_vs_model", "method": "dpo"}, ValueError, "worked solutions"),
    ({"method": "dpo", "num_generations": 1}, ValueError, "cycle 0, dpo: .* raise num_generations"),
    ({"method": ["sft", "dpo"], "cycles": 2, "num_generations": 1}, ValueError, "cycle 1, dpo"),
    ({"method": []}, ValueError, "method is an empty list"),
    ({"task": {"description": " ", "problems": problems()}}, ValueError, "description must be a text"),
    ({"task": {"description": 7, "problems": problems()}}, ValueError, "description must be a text"),
    ({"problems_per_cycle": []}, ValueError, "problems_per_cycle is an empty list"),
    ({"score_threshold": {"clarity": 0.5}}, ValueError, "no judge"),
    ({"temperature": "hot"}, TypeError, "temperature"),
    ({"max_tokens": 0}, ValueError, "max_tokens"),
    ({"seed": "lucky"}, TypeError, "seed"),
    ({"few_shot_examples": [{"question": "Q", "trace": "T"}]}, ValueError, "'problem' and 'trace'"),
    ({"verifier": "strict"}, TypeError, "verifier must be a Verifier"),
    ({"filters": "long"}, TypeError, "filters must be a Filters"),
    ({"filters": Filters(max_chars=None)}, TypeError, "whole numbers"),
    ({"budget_usd": "5"}, TypeError, "budget_usd must be a number"),
    ({"budget_tokens": 1e6}, TypeError, "budget_tokens must be a whole number"),
    ({"budget_calls": -1}, ValueError, "budget_calls must be at least 0"),
    ({"min_examples": 0}, ValueError, "min_examples"),
    ({"critics": "gpt"}, TypeError, r"critics must be ChatModels or judges, got str: give ChatModel\("),
    ({"critics": ["gpt"]}, TypeError, "critics must be ChatModels or judges, got str"),
    ({"critics": None}, TypeError, "critics must be ChatModels or judges, got NoneType"),
    ({"holdout_critic": "gpt"}, TypeError, "holdout_critic must be ChatModels or judges, got str"),
    ({"num_generations": [4, 2]}, ValueError, r"num_generations must be a whole number .*got \[4, 2\]"),
    ({"cycles": [2]}, ValueError, "cycles must be a whole number"),
    ({"aggregate": ["median"]}, ValueError, "aggregate must be one of"),
    ({"held_out_types": "product"}, TypeError, r"held_out_types is a list of types: give \['product'\]"),
    ({"held_out_types": None}, TypeError, "held_out_types is a list of types"),
    ({"test": float("inf")}, ValueError, "test is a number of problems, or a share below 1, got inf"),
    ({"dev": float("nan")}, ValueError, "dev is a number of problems"),
    ({"replay_fraction": "a"}, ValueError, "replay_fraction is a share from 0 to 1, got 'a'"),
    (
        {"few_shot_examples": [{"problem": p.problem, "trace": "t"} for p in problems()]},
        ValueError,
        r"item 0: it is the problem 'p1' .* \(52 problems are shown in all\)",
    ),
    ({"few_shot_examples": 5}, TypeError, "few_shot_examples must be a text or a list .*got int"),
    ({"few_shot_examples": {"problem": "Q", "trace": "T"}}, TypeError, "few_shot_examples .*got dict"),
    (
        {"task": problems(40, metadata={"synthesis": "yes"})},
        ValueError,
        "problem 'p1': metadata 'synthesis'",
    ),
    ({"min_examples": 500, "max_per_problem": 2}, ValueError, "min_examples=500 is out of reach"),
]


@pytest.mark.parametrize(("options", "kind", "words"), WRONG, ids=[str(w[0])[:60] for w in WRONG])
def test_what_cannot_work_is_refused_before_anything_is_asked(world, options, kind, words):
    with pytest.raises(kind, match=words):
        world.improve(**options)
    assert world.server.calls == 0 and not (world.folder / "run").exists()


def test_what_critics_alone_cannot_give_is_refused(world):
    task = {"description": "Explain it.", "prompts": [p.problem for p in problems()]}
    critics = [world.model("judge-8")]
    wrong = [
        ({"policy": "correct_vs_wrong", "method": "dpo"}, "a program can check"),
        ({"policy": "first_correct"}, "a program can check"),
        ({"method": "kto", "score_threshold": None}, "bad answers too"),
        ({"score_threshold": {"clarty": 0.5}}, "clarity"),
        ({"score_threshold": 7}, "score_threshold"),
        ({"dimensions": ["claritee"]}, "claritee"),
    ]
    for options, words in wrong:
        with pytest.raises(ValueError, match=words):
            world.improve(task=task, critics=critics, **options)
    with pytest.raises(ValueError, match="teacher_generations"):
        world.improve(method="dpo", teacher=world.model("teacher-90"))
    assert world.server.calls == 0


def test_what_a_policy_needs_may_be_there(world):
    solved = problems(40, metadata={"solution": "One and one and more are that many."})
    for options in (
        {"policy": "gold_vs_model", "method": "dpo", "num_generations": 1, "task": solved},
        {"policy": "first_vs_last", "method": "dpo", "num_generations": 1, "iterations": 1},
        {"policy": ["first_correct", "length_controlled"], "method": ["sft", "dpo_sft"], "cycles": 2},
        {"method": "dpo", "teacher": world.model("teacher-90"), "teacher_generations": 2},
    ):
        Plan(**{"task": problems(40), "actor": world.model("actor-40"), "iterations": 0, **options})


def test_wrong_worked_solutions_are_left_out_and_counted(world):
    def solved(n, said):
        solution = f"Adding {n} to {n} gives what was asked for. The answer is \\boxed{{{said}}}."
        return problems(n, metadata={"solution": solution})[-1]

    task = [solved(n, 2 * n if n % 2 else n) for n in range(1, 41)]
    options = {"policy": "gold_vs_model", "method": "dpo", "problems_per_cycle": None, "dev": 0, "test": 0}
    counts = world.improve(task=task, actor=world.model("actor-0"), num_generations=1, **options).cycles[0][
        "counts"
    ]
    assert (counts["attempts"], counts["generated"], counts["kept"]) == (40, 40, 20)
    assert counts["drops"] == {"worked_solution_wrong": 20}


def test_each_method_takes_the_policy_that_is_its_own(world):
    several = {"method": ["sft", "dpo"], "policy": ["first_correct", "best_vs_worst"]}
    plan = Plan(problems(40), world.model("actor-40"), **several)
    assert [plan.policy_of(m) for m in ("sft", "dpo", "kto")] == ["first_correct", "best_vs_worst", None]
    result = world.improve(
        cycles=2, method=["sft", "dpo"], policy=["best", "length_controlled"], problems_per_cycle=None
    )
    assert [c["policy"] for c in result.cycles] == ["best", "length_controlled"]
    assert all(c["counts"]["kept"] for c in result.cycles)


def test_a_trainer_is_asked_whether_its_options_fit_the_methods(world):
    class Choosy(FakeTrainer):
        def check(self, methods):
            if "dpo" in methods:
                raise ValueError("beta must be a number above 0")

    world.improve(trainer=Choosy(world.server, ["actor-90"]))
    calls = world.server.calls
    with pytest.raises(ValueError, match="beta"):
        world.improve(trainer=Choosy(world.server, ["actor-90"]), method=["sft", "dpo"], run="other")
    assert world.server.calls == calls


@pytest.mark.parametrize("dev", [0, 1, 0.01])
def test_a_trainer_needs_problems_to_be_judged_by(world, dev):
    with pytest.raises(ValueError, match=r"dev=.* holds out [01] of 52 problems"):
        world.improve(["actor-90"], dev=dev)
    assert world.server.calls == 0
    assert world.improve(dev=dev).cycles[0]["status"] == "ok"  # data alone need no dev set


def test_a_dev_set_too_small_for_any_promotion_is_said_before_and_in_the_report(world):
    with pytest.warns(UserWarning, match="8 problems, and no trained actor is promoted on fewer than 20"):
        report = world.improve(["actor-90"], dev=8).report
    assert any("promoted on fewer than 20" in note for note in report["notes"])


def sampled(world, model, name="temperature"):
    return {r.body.get(name) for r in world.server.log if r.body["model"] == model}


def test_each_roles_own_temperature_counts_unless_the_option_is_given(world):
    roles = {
        "actor": world.model("actor-10", temperature=0.3),
        "teacher": world.model("teacher-20", temperature=0.2),
        "improver": world.model("improver-90", temperature=0.9, max_tokens=77),
        "critics": [world.model("judge-8", temperature=0.1)],
    }
    world.improve(**roles, cycles=2, iterations=1)
    assert [sampled(world, m) for m in ("actor-10", "teacher-20", "judge-8")] == [{0.3}, {0.2}, {0.1}]
    assert sampled(world, "improver-90") == {0.9} and sampled(world, "improver-90", "max_tokens") == {77}
    assert sampled(world, "actor-10", "max_tokens") == {None}
    world.server.log.clear()
    world.improve(**roles, cycles=2, iterations=1, temperature=0.5, max_tokens=50, run="given")
    for model in ("actor-10", "teacher-20", "improver-90"):
        assert sampled(world, model) == {0.5} and sampled(world, model, "max_tokens") == {50}
    assert sampled(world, "judge-8") == {0.1}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"teacher_generations": 2, "num_generations": 1},
        {"temperature": 0, "dev_generations": 2, "num_generations": 1},
    ],
)
def test_drafts_that_would_all_be_the_same_are_warned_of(world, options):
    cold = world.model("cold-40", temperature=0)
    taught = "teacher_generations" in options
    roles = {"actor": world.model("actor-40"), "teacher": cold} if taught else {"actor": cold}
    with pytest.warns(UserWarning, match="_generations=[24] at temperature 0 gives the same draft"):
        Plan(problems(40), **roles, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Plan(problems(40), **roles, **options | {"temperature": 0.7})


def test_an_empty_description_is_none(world):
    plan = Plan({"description": "", "problems": problems(40)}, world.model("actor-40"))
    assert plan.description is None and "actor" not in str(plan.asking(trained=False))


def test_critics_that_are_trained_on_and_decide_are_noted(world):
    task = {"description": "Explain it.", "prompts": [p.problem for p in problems(200)]}
    trainer = FakeTrainer(world.server, ["actor-90"])

    def notes(**options):
        given = {"trainer": trainer, "critics": [world.model("judge-8")], **options}
        return "\n".join(Plan(task, world.model("actor-40"), **given).notes())

    assert "trained to please" in notes()
    assert "trained to please" not in notes(holdout_critic=world.model("judge-7"))
    assert "trained to please" not in notes(trainer=None)


def test_without_a_temperature_none_is_sent(world):
    world.improve()
    assert sampled(world, "actor-40") == {None}


def test_the_actors_own_seed_counts_unless_the_option_is_given(world):
    def plan(own=None, **options):
        return Plan(problems(40), world.model("actor-40", seed=own), **options)

    assert [plan().seed, plan(7).seed, plan(7, seed=3).seed] == [0, 7, 3]
    assert plan(7).sets == plan(seed=7).sets != plan().sets
    world.improve(actor=world.model("actor-40", seed=7))
    own = sampled(world, "actor-40", "seed")
    world.server.log.clear()
    world.improve(seed=7, run="given")
    assert sampled(world, "actor-40", "seed") == own


def seeds_of(world, model, own):
    """Whether all that a model sampled was sampled by `own`, moved by problem, cycle and sample alone."""
    sent = [r for r in world.server.log if r.body["model"] == model]
    starts = [own + 1000 * cycle for cycle in range(2)]
    moved = [{seed_of(start, f"p{pid(r)}") + n for start in starts for n in range(3)} for r in sent]
    return bool(sent) and all(r.body["seed"] in seeds for r, seeds in zip(sent, moved, strict=True))


def test_a_roles_own_seed_is_the_seed_of_its_calls_and_the_loops_where_it_has_none(world):
    def improve(run, **own):
        world.server.log.clear()
        names = {"actor": "actor-10", "teacher": "teacher-20", "improver": "improver-90"}
        roles = {role: world.model(name, seed=own.get(role)) for role, name in names.items()}
        result = world.improve(**roles, cycles=2, iterations=1, seed=own.get("loop"), run=run)
        return json.loads((result.path / "cycle-01/generate/config.json").read_text())["config"]

    config = improve("all", actor=7, teacher=5, improver=3, loop=2)
    assert seeds_of(world, "actor-10", 7) and seeds_of(world, "teacher-20", 5)
    assert seeds_of(world, "improver-90", 3) and not seeds_of(world, "improver-90", 2)
    assert (config["seed"], config["improver_seed"]) == (1007, 1003)
    config = improve("none", loop=2)
    assert all(seeds_of(world, name, 2) for name in ("actor-10", "teacher-20", "improver-90"))
    assert config["seed"] == 1002 and "improver_seed" not in config  # as it was before roles had their own
    improve("actor's", actor=7)
    assert all(seeds_of(world, name, 7) for name in ("actor-10", "teacher-20", "improver-90"))


def test_a_trained_actor_samples_by_the_untrained_ones_seed(world):
    world.improve(["actor-90"], actor=world.model("actor-40", seed=7), seed=3)
    assert seeds_of(world, "actor-40", 7) and seeds_of(world, "actor-90", 7)


def test_worked_examples_may_come_from_a_generator(world):
    shots = [{"problem": "What is 99 + 99?", "trace": "The answer is \\boxed{198}."}]
    world.improve(few_shot_examples=(one for one in shots), cycles=2)
    assert {len(r.messages) for r in world.server.log} == {4}


def test_a_critic_that_is_the_actors_own_model_is_warned_of_and_noted(world):
    with pytest.warns(UserWarning, match="actor-8 is the actor's own model"):
        plan = Plan(problems(40), world.model("actor-8"), [world.model("judge-8"), world.model("actor-8")])
    assert any("The critic actor-8 is the actor's own model" in note for note in plan.notes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Plan(problems(40), world.model("actor-8"), [world.model("judge-8")])


class Even(Verifier):
    """Needs no reference: an answer of even length is right."""

    def describe(self):
        return {"verifier": "Even"}

    async def averify(self, problem, text, *, truncated=False, ledger=None):
        return Extraction(answer=text, how="whole_text"), Verdict(correct=len(text) % 2 == 0, method="even")


def test_a_verifier_of_ones_own_is_enough_to_check_by(world):
    task = {"description": "Explain it.", "prompts": [p.problem for p in problems(40)]}
    report = world.improve(task=task, verifier=Even()).report
    assert report["cycles"][0]["verifier"]["pass1"]["n"] == 12
    assert not any("critics alone" in note for note in report["notes"])


@pytest.mark.skipif(isolation().weak, reason="no sandbox on this machine")
@pytest.mark.parametrize(
    "program", [{"check_code": "def check(answer):\n    return answer == '4'"}, {"tests": "assert f(1) == 2"}]
)
def test_problems_that_bring_a_program_are_checked_by_it(world, program):
    plan = Plan(problems(20, reference=None, metadata=program), world.model("actor-40"))
    assert plan.gold and not plan.unchecked
    another = problems(20, reference=None, metadata={"tests": "assert f(1) == 3"})
    other = Plan(another, world.model("actor-40"))
    assert other.describe()["task_hash"] != plan.describe()["task_hash"]


def test_verdicts_decide_where_most_problems_have_them_and_the_others_are_counted(world):
    with_answers, bare = problems(20), problems(40, reference=None)[20:]
    critics = [world.model("judge-8")]

    def plan(*task):
        return Plan([*task], world.model("actor-40"), critics)

    assert plan(*with_answers, *bare[:5]).gold and not plan(*with_answers[:3], *bare).gold
    (note,) = (n for n in plan(*with_answers, *bare[:5]).notes() if "critics alone" in n)
    assert "5 of 25 problems" in note
    with pytest.raises(ValueError, match=r"5 of 25 problems .*'p21'.* no critics"):
        Plan([*with_answers, *bare[:5]], world.model("actor-40"))


def test_one_text_as_prompts_is_one_prompt(world):
    plan = Plan({"prompts": "Explain rain."}, world.model("actor-40"), [world.model("judge-8")])
    assert [p.problem for p in plan.problems] == ["Explain rain."]
    assert plan.min_examples == 1 and plan.of_set("train") == plan.problems


@pytest.mark.parametrize(("count", "trained", "least"), [(40, True, 8), (8, True, 5), (40, False, 1)])
def test_few_problems_ask_for_few_examples(world, count, trained, least):
    trainer = FakeTrainer(world.server, ["actor-90"]) if trained else None
    plan = Plan(problems(count), world.model("actor-40"), trainer=trainer, dev=0.3, test=0.1)
    assert plan.min_examples == least


def held_out_text(world):
    plan = Plan(problems(40), world.model("actor-40"), dev=8, test=8)
    return next(iter(plan.held_out().values()))


@pytest.mark.parametrize(
    "form", ["{0}", "Q: {0} A: 7", "First line.\n\n  {0}\nThe answer is 7.", "Solved: {1} ... so 7"]
)
def test_a_text_of_worked_examples_holds_nothing_that_is_held_out(world, form):
    text = held_out_text(world)
    shots = form.format(text, text.upper().replace(" ", "  "))
    with pytest.raises(ValueError, match=r"few_shot_examples.* held out"):
        world.improve(few_shot_examples=shots)
    assert world.server.calls == 0
    world.improve(few_shot_examples="Q: What is 99 + 99? A: 198")


def test_the_trace_of_a_worked_example_may_not_hold_one_either(world):
    shots = [{"problem": "What is 99 + 99?", "trace": f"As in: {held_out_text(world)} The answer is 198."}]
    with pytest.raises(ValueError, match="held out"):
        world.improve(few_shot_examples=shots)


def test_the_estimate_counts_that_critics_are_asked_again(world):
    """No critic ever gives JSON that can be read."""
    world.answer = lambda r: "no JSON" if "response_format" in r.body else script(r)
    options = {
        "critics": [world.model("judge-8"), world.model("judge-7")], "holdout_critic": world.model("judge-6"),
        "cycles": 2, "iterations": 1, "num_generations": 2, "dev": 8, "test": 8,
    }  # fmt: skip
    frame = estimate_self_improvement(problems(), world.model("actor-40"), **options)
    calls = frame.set_index(["step", "model"])["calls"]
    for step, model in (("criticise", "judge-8"), ("criticise", "judge-7"), ("hold-out critic", "judge-6")):
        assert calls[step, model] == calls[f"{step}, again", model] > 0
    world.improve(**options, problems_per_cycle=None)
    asked = [r for r in world.server.log if "response_format" in r.body]
    again = [r for r in asked if any(m["role"] == "assistant" for m in r.messages)]
    assert 2 * len(again) == len(asked) and world.server.calls <= frame["calls"].iloc[-1]


def test_the_teachers_refinements_are_priced_as_the_teachers(world):
    """In cycle 0 whoever drafts refines, where there is no improver."""
    options = {"cycles": 3, "iterations": 2, "dev": 8, "test": 8, "problems_per_cycle": 10}
    roles = {"actor": world.model("actor-10"), "teacher": world.model("teacher-10", price=(1.0, 2.0))}
    frame = estimate_self_improvement(problems(), **roles, **options)
    refined = frame[frame["step"] == "refine"].set_index("model")["calls"]
    assert dict(refined) == {"teacher-10": 20, "actor-10": 40}
    world.improve(**roles, **options)
    asked = [r.body["model"] for r in world.server.log if is_refinement(r)]
    assert 0 < asked.count("teacher-10") <= 20 and 0 < asked.count("actor-10") <= 40
    own = estimate_self_improvement(problems(), **roles, improver=world.model("improver-90"), **options)
    assert set(own[own["step"] == "refine"]["model"]) == {"improver-90"}


def is_refinement(request):
    return "Review:" in request.system


@pytest.mark.parametrize(
    "changed", [{"tolerance": 0.5}, {"answer_type": "number"}, {"metadata": {"solution": "One and one."}}]
)
def test_a_change_of_what_decides_a_verdict_is_noticed_between_sittings(world, changed, monkeypatch):
    monkeypatch.setenv("COTKIT_ROOT", str(world.folder))

    def improve(**changes):
        return world.improve(task=problems(52, **changes), run=None)

    first = improve()
    with pytest.raises(ValueError, match="checked_hash"):
        improve(**changed)
    path = first.path / "config.json"
    known = json.loads(path.read_text())
    del known["config"]["checked_hash"]  # as in a folder from before this was recorded
    path.write_text(json.dumps(known))
    calls = world.server.calls
    assert improve().path == first.path and world.server.calls == calls


def test_the_estimate_knows_how_long_a_critics_prompt_is(world):
    world.answer = lambda r: verdict(8) if "response_format" in r.body else script(r)
    options = {"critics": [world.model("judge-8")], "iterations": 0, "max_tokens": 60}
    shots = [{"problem": "What is 99 + 99?", "trace": "99 + 99 = 198. " * 40}]
    frame = estimate_self_improvement(
        problems(40), world.model("actor-40"), few_shot_examples=shots, **options
    ).set_index("step")
    world.improve(**options, few_shot_examples=shots, num_generations=4)
    for step, model in (("draft", "actor-40"), ("criticise", "judge-8")):
        sent = [r for r in world.server.log if r.body["model"] == model]
        real = max(sum(len(m["content"]) for m in r.messages) for r in sent) / 4
        guessed = frame["prompt_tokens"][step] / frame["calls"][step]
        assert 0.9 * real < guessed < 1.6 * real, step


def test_the_estimate_counts_a_model_that_verifies(world):
    plain = estimate_self_improvement(problems(40), world.model("actor-40"))
    model = ModelVerifier(world.model("verifier-1"))
    frame = estimate_self_improvement(problems(40), world.model("actor-40"), verifier=model).set_index("step")
    traces = plain["calls"].iloc[-1]
    assert frame["calls"]["verify"] == frame["calls"]["verify, again"] == 2 * traces
    assert re.match("verifier-1", frame["model"]["verify"])
