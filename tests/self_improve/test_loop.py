"""The whole loop on a scripted endpoint: what is promoted, what is rolled back, and what a report says."""

from __future__ import annotations

import json
import re

import pytest
from scripted_loop import FakeTrainer, pid, problems, script, verdict

from cotkit import analysis
from cotkit.pipelines import estimate_self_improvement
from cotkit.runs import RunError


def counts_add_up(report):
    for cycle in report["cycles"]:
        counts = cycle["counts"]
        assert counts["generated"] == counts["kept"] + sum(counts["drops"].values())
    assert report["given"] == report["kept"] + sum(report["drops"].values())


def alarm_levels(cycle):
    return {alarm["code"]: alarm["level"] for alarm in cycle["alarms"]}


def test_a_better_challenger_is_promoted_and_a_poisoned_one_rolled_back(world):
    result = world.improve(["actor-70", "actor-0", "actor-100"])
    report = result.report
    counts_add_up(report)
    assert [c["status"] for c in report["cycles"]] == ["ok", "rolled_back", "ok"]
    poisoned = report["cycles"][1]
    assert not poisoned["decision"]["promoted"] and poisoned["heldout"]["challenger"] == 0
    assert report["cycles"][2]["champion_before"]["cycle"] == 0  # trained on from the last one that held
    assert world.trainer.calls[2]["champion"]["model"] == "actor-70"
    pointer = json.loads((result.path / "champion.json").read_bytes())
    assert pointer["cycle"] == 2 and result.champion.model == "actor-100"
    gap = report["test"]["comparisons"]["cycle 2 against base"]
    assert gap["difference"] > 0.3 and gap["parts"]["reasoning"] == pytest.approx(gap["difference"])
    said = " ".join(analysis.cycle_findings(report))
    assert "rolled_back" in said and "Test, cycle 2" in said


def test_pairs_are_there_to_be_labelled_whatever_is_trained(world):
    result = world.improve(["actor-90"], problems_per_cycle=None)
    sheet = (result.path / "cycle-00/export/label.csv").read_text()
    assert sheet.startswith("number,problem,A,B,") and "PID=" in sheet


def test_what_is_trained_on_is_the_bare_problem_of_the_train_set(world):
    shots = [{"problem": "What is 1 + 1?", "trace": "1 + 1 = 2. The answer is \\boxed{2}."}]
    result = world.improve(["actor-90", "actor-90"], few_shot_examples=shots, replay_fraction=0.5)
    sets = json.loads((result.path / "sets.json").read_bytes())
    train = {p.problem for p in problems(40) if sets[p.id] == "train"}
    for call in world.trainer.calls:
        for row in call["rows"]:
            assert [m["role"] for m in row["prompt"]] == ["user"]
            assert row["prompt"][0]["content"] in train and row["correct"] is True
    assert 0 < result.cycles[1]["counts"]["replayed"] <= result.cycles[1]["counts"]["kept"]
    texts = [str(row["prompt"]) + str(row["completion"]) for row in world.trainer.calls[1]["rows"]]
    assert len(texts) == len(set(texts))
    shown = {len(r.messages) > 1 for r in world.server.log if r.body["model"] == "actor-90"}
    assert shown == {False}  # a trained actor is asked as it was trained
    assert any("1 + 1" in str(r.messages) for r in world.server.log if r.body["model"] == "actor-40")


def test_the_test_set_is_asked_last_and_once(world):
    result = world.improve(["actor-70", "actor-90"])
    sets = json.loads((result.path / "sets.json").read_bytes())
    test = {int(id[1:]) for id, name in sets.items() if name == "test"}
    asked = [pid(request) in test for request in world.server.log]
    assert sum(asked) == len(test) * 3  # base, first trained actor, champion
    assert asked == sorted(asked)


def test_the_same_call_again_asks_nothing_and_changes_nothing(world):
    first = world.improve(["actor-70", "actor-90"])
    calls, report = world.server.calls, first.report
    again = world.improve(["actor-70", "actor-90"])
    assert world.server.calls == calls and again.report == report and not world.trainer.calls


def test_another_configuration_is_refused_with_what_differs(world):
    world.improve()
    with pytest.raises(RunError, match="num_generations"):
        world.improve(num_generations=3)


def test_without_a_trainer_the_cycles_are_data_only(world):
    result = world.improve(cycles=2)
    report = result.report
    assert [c["training"]["trained"] for c in report["cycles"]] == [False, False]
    assert all(c["counts"]["kept"] > 0 and not c["decision"]["promoted"] for c in report["cycles"])
    assert report["test"] is None and any("data only" in note for note in report["notes"])
    assert len(result.records()) == 2 * 12 and (result.path / "cycle-01/export/sft.jsonl").exists()


def test_an_actor_that_says_nothing_gives_no_data_and_the_champion_stays(world):
    world.answer = lambda r: "" if r.body["model"].startswith("actor") else script(r)
    report = world.improve(["actor-90"]).report
    cycle = report["cycles"][0]
    assert cycle["status"] == "no_data" and cycle["counts"]["drops"] == {"model_empty": 12}
    assert "model_empty" in cycle["decision"]["reason"] and not world.trainer.calls
    assert report["champion"]["cycle"] is None


def test_a_critic_that_always_gives_ten_and_an_improver_that_echoes_are_named(world):
    world.answer = lambda request: re.sub(r" \(try \d+\)", "", script(request))
    critics = [world.model("judge-10")]
    result = world.improve(
        ["actor-90"],
        critics=critics,
        iterations=1,
        num_generations=1,
        problems_per_cycle=None,
        task=problems(60),
    )
    levels = alarm_levels(result.cycles[0])
    assert levels["ceiling"] == "amber"  # programs decide beside it
    assert levels["improver_echo"] == "amber"
    said = " ".join(analysis.cycle_findings(result.report))
    assert "ceiling" in said and "improver_echo" in said


def careful_or_hasty(request):
    """Two drafts, one careful; judge-9 tells them apart, judge-10 does not."""
    if "response_format" in request.body:
        careful = "careful" in str(request.messages) or request.body["model"] == "judge-10"
        return verdict(int(request.body["model"].split("-")[1]) if careful else 3)
    word = "careful" if request.body["seed"] % 2 or request.body["model"] != "actor-40" else "hasty"
    return f"A {word} answer to number {pid(request)}, with reasons that follow from one another."


def test_critics_alone_decide_a_task_without_references(world):
    world.answer = careful_or_hasty
    task = {"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]}
    options = {"task": task, "method": "dpo", "dev": 20, "test": 8}
    fine = world.improve(["actor-1"], critics=[world.model("judge-9")], **options)
    cycle = fine.cycles[0]
    assert cycle["heldout"]["measure"] == "critics' score" and cycle["policy"] == "best_vs_worst"
    assert cycle["decision"]["promoted"] and cycle["verifier"]["pass1"]["n"] == 0
    for row in world.trainer.calls[0]["rows"]:
        assert "careful" in row["chosen"][0]["content"] and "hasty" in row["rejected"][0]["content"]
        assert row["prompt"][0] == {"role": "system", "content": "Explain the sum."}
    assert any("critics alone" in note for note in fine.report["notes"])
    flat = world.improve(["actor-1"], critics=[world.model("judge-10")], run="flat", **options)
    assert flat.cycles[0]["status"] == "no_data" and alarm_levels(flat.cycles[0])["ceiling"] == "red"


def test_a_critic_that_is_pleased_where_the_hold_out_critic_is_not_keeps_the_champion(world):
    """The challenger praises itself; the critic in the loop likes that, the other one does not."""

    def answer(request):
        if "response_format" in request.body:
            pleased = "flawless" in str(request.messages) and request.body["model"] == "judge-5"
            return verdict(9 if pleased else 5 + request.body["messages"][-1]["content"].count("careful"))
        if request.body["model"] == "flatterer-1":
            return f"This flawless reply concerns number {pid(request)} in full."
        return careful_or_hasty(request)

    world.answer = answer
    task = {"description": "Explain the sum.", "prompts": [p.problem for p in problems(80)]}
    result = world.improve(
        ["flatterer-1"], task=task, critics=[world.model("judge-5")], holdout_critic=world.model("judge-6"),
        method="dpo", dev=30, test=8, score_threshold=0.5,
    )  # fmt: skip
    cycle = result.cycles[0]
    assert cycle["status"] == "rolled_back" and alarm_levels(cycle)["holdout_gap"] == "red"


def test_without_training_the_hold_out_critic_watches_what_the_critics_pick(world):
    """The improver learns to please judge-5; judge-6 sees the same plain answer as before."""

    def answer(request):
        if "response_format" in request.body:
            pleased = "flawless" in str(request.messages) and request.body["model"] == "judge-5"
            return verdict(9 if pleased else 5)
        style = "flawless" if request.body["model"] == "pleaser" else "plain"
        return f"This {style} reply concerns number {pid(request)} in full, try {request.body['seed'] % 97}."

    world.answer = answer
    options = {
        "task": {"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]},
        "critics": [world.model("judge-5")], "iterations": 1, "num_generations": 1,
        "problems_per_cycle": None, "cycles": 1,
    }  # fmt: skip
    options["holdout_critic"] = world.model("judge-6")
    pleasing = world.improve(**options, improver=world.model("pleaser")).cycles[0]
    assert alarm_levels(pleasing)["holdout_gap"] == "red"
    assert pleasing["hacking"]["holdout_critic_gap"] == pytest.approx(0.4)
    honest = world.improve(**options, improver=world.model("plain"), run="honest").cycles[0]
    assert "holdout_gap" not in alarm_levels(honest) and honest["hacking"]["holdout_critic_gap"] == 0


SCHEMA = {
    "schema_version", "run_id", "cycle", "status", "task_hash", "roles", "prompts", "counts", "scores",
    "gain", "verifier", "heldout", "diversity", "hacking", "judge", "training", "cost", "decision", "alarms",
    "files",
}  # fmt: skip


def test_every_cycle_reports_in_one_schema_however_it_ended(world):
    critics = [world.model("judge-8"), world.model("judge-7")]
    report = world.improve(["actor-90", "actor-0"], critics=critics, run="full").report
    world.answer = lambda r: "" if r.body["model"].startswith("actor") else script(r)
    empty = world.improve(["actor-90"], run="empty").cycles[0]
    stopped = world.improve(["actor-90"], run="stopped", budget_calls=3).cycles[0]
    assert [c["status"] for c in report["cycles"]] == ["ok", "rolled_back"]
    for cycle in (*report["cycles"], empty, stopped):
        assert set(cycle) >= SCHEMA
    first = report["cycles"][0]
    assert first["diversity"]["distinct_2"] > 0 and first["hacking"]["length_ratio"] > 0
    assert first["judge"]["critics_sd"] == pytest.approx(0.05) and 0 <= first["judge"]["brier"] <= 1
    assert set(first["prompts"].values()) == {"reasoning"} and first["files"]["sft.jsonl"]
    frame = analysis.trust_frame(report["cycles"])
    assert {"distinct_2", "length_ratio", "critics_sd"} <= set(frame["measure"])
    assert list(frame.columns) == ["measure", "cycle 0", "cycle 1"]
    assert report["seconds"] > sum(c["seconds"] for c in report["cycles"])  # base and test too


def test_a_budget_stops_the_run_and_more_of_it_goes_on_without_paying_twice(world):
    whole = world.improve(["actor-70"], run="whole")
    calls = world.server.calls
    stopped = world.improve(["actor-70"], budget_calls=30)
    assert stopped.cycles[-1]["status"] == "budget" and world.server.calls == calls + 30
    assert "budget_calls" in stopped.report["stopped"] and stopped.report["test"] is None
    again = world.improve(["actor-70"])
    assert world.server.calls == 2 * calls and again.report["stopped"] is None
    assert again.report["test"] == whole.report["test"]
    assert again.report["cost"]["calls"] == calls


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("No space left at checkpoint 50")]
)
def test_a_training_that_cannot_go_on_is_named_and_tried_again(world, error):
    class Failing(FakeTrainer):
        def train(self, *args):
            if error is not None:
                raise error
            return super().train(*args)

    first = world.improve(["actor-90"], trainer=Failing(world.server, ["actor-90"]))
    assert first.cycles[0]["status"] == "failed" and "No space left" in first.report["stopped"]
    assert first.report["champion"]["cycle"] is None and first.report["test"] is None
    calls, error = world.server.calls, None
    second = world.improve(["actor-90"], trainer=Failing(world.server, ["actor-90"]))
    assert second.cycles[0]["status"] == "ok" and second.report["stopped"] is None
    assert world.server.calls == calls + 8 * 4  # base and challenger on dev and on test, nothing again


def test_a_diverged_training_keeps_the_champion_and_the_next_cycle_goes_on(world):
    class Diverging(FakeTrainer):
        def train(self, method, data, champion, output):
            made = super().train(method, data, champion, output)
            return {**made, "status": "diverged", "detail": "loss is NaN"} if len(self.calls) == 1 else made

    report = world.improve(["actor-90"] * 2, trainer=Diverging(world.server, ["actor-90"] * 2)).report
    assert [c["status"] for c in report["cycles"]] == ["diverged", "ok"]
    assert "NaN" in report["cycles"][0]["decision"]["reason"]


def test_a_teacher_drafts_cycle_0_and_the_actor_the_others(world):
    result = world.improve(["actor-70", "actor-90"], teacher=world.model("teacher-90"))
    models = [{c.call["model"] for row in run.records() for c in row.candidates} for run in runs(result)]
    assert models == [{"teacher-90"}, {"actor-70"}]
    assert result.cycles[0]["teacher"] and result.cycles[1]["pools"] == {"unseen": 24}


def runs(result):
    from cotkit import open_run

    return [open_run(folder) for folder in sorted(result.path.glob("cycle-*/generate"))]


def test_problems_are_drawn_by_how_hard_they_were(world):
    result = world.improve(["actor-60", "actor-60"])
    first, second = (run.records() for run in runs(result))
    assert len(first) == len(second) == 12 and sum(result.cycles[1]["pools"].values()) == 24
    assert {row.id for row in first} != {row.id for row in second}


def test_held_out_families_are_tested_and_never_trained_on(world):
    result = world.improve(["actor-90"], held_out_types=["product"], dev=10, test=10)
    assert "product" not in result.cycles[0]["families"]
    frame = analysis.family_gains(
        result.test_rows("base"), result.test_rows("cycle 0"), result.report["families"]
    )
    unseen = frame[frame["family"] == "(all never trained on)"].iloc[0]
    assert unseen["trained"] == 0 and unseen["n"] > 0


BAD = [
    ({"cycles": 0}, ValueError, "cycles"),
    ({"method": "ppo"}, ValueError, "grpo"),
    ({"aggregate": "best"}, ValueError, "majority"),
    ({"method": ["sft", "grpo"]}, ValueError, "as_trl_reward"),
    ({"show": "loud"}, ValueError, "show"),
    (
        {"few_shot_examples": [{"problem": p.problem.upper(), "trace": "t"} for p in problems(40)]},
        ValueError,
        "few_shot_examples, item .* held out",
    ),
    ({"trainer": object()}, TypeError, "train, serve"),
    ({"replay_fraction": 2}, ValueError, "replay_fraction"),
    ({"task": {"description": "x", "promts": ["a"]}}, ValueError, "promts"),
    ({"task": {"description": "x", "prompts": ["a", "b"]}}, ValueError, "no critics"),
    ({"dev": 30, "test": 30}, ValueError, "to train on"),
    ({"held_out_types": ["sums"]}, ValueError, "sums"),
    ({"nonsense": 1}, TypeError, "nonsense"),
    ({"resume": "never"}, ValueError, "another run name"),
]


@pytest.mark.parametrize(("options", "kind", "words"), BAD)
def test_wrong_options_are_refused_before_anything_is_asked(world, options, kind, words):
    with pytest.raises(kind, match=words):
        world.improve(**options)
    assert world.server.calls == 0 and not (world.folder / "run").exists()


def test_the_estimate_asks_nothing_and_is_never_below_what_is_asked(world):
    options = {
        "critics": [world.model("judge-8", price=(1.0, 2.0))], "holdout_critic": world.model("judge-7"),
        "cycles": 2, "dev": 8, "test": 8, "iterations": 1, "num_generations": 2,
    }  # fmt: skip
    actor = world.model("actor-40")
    frame = estimate_self_improvement(
        problems(40), actor, trainer=FakeTrainer(world.server, ["a-7"]), **options
    )
    assert world.server.calls == 0
    world.improve(["actor-70", "actor-90"], actor=actor, **options)
    assert world.server.calls <= frame["calls"].iloc[-1] and frame["usd"].iloc[-1] > 0


def test_more_cycles_on_a_run_that_saw_its_test_set_say_so(world):
    world.improve(["actor-70", "actor-80", "actor-90"], cycles=2)
    report = world.improve(["actor-70", "actor-80", "actor-90"], cycles=3).report
    assert len(report["cycles"]) == 3 and report["test"]["earlier_looks"] == ["cycle-1"]
    assert any("looked at before" in said for said in analysis.cycle_findings(report))
