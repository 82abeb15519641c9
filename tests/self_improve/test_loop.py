"""The whole loop on a scripted endpoint: what is promoted, what is rolled back, and what a report says."""

from __future__ import annotations

import json
import re
import time
from collections import Counter

import pytest
from mock_server import Reply
from scripted_loop import FakeTrainer, pid, problems, script, verdict

from cotkit import analysis
from cotkit.pipelines import estimate_self_improvement
from cotkit.pipelines.cycles import gate, spent
from cotkit.pipelines.running import seed_of
from cotkit.runs import Run, RunError


def counts_add_up(report):
    for cycle in report["cycles"]:
        counts = cycle["counts"]
        assert counts["generated"] == counts["kept"] + sum(counts["drops"].values())
    assert report["given"] == report["kept"] + sum(report["drops"].values())


def alarm_levels(cycle):
    return {alarm["code"]: alarm["level"] for alarm in cycle["alarms"]}


def test_a_better_challenger_is_promoted_and_a_poisoned_one_rolled_back(world):
    result = world.improve(["actor-70", "actor-0", "actor-100"], test=12)
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


def shy(request):
    """Like the script; a model called "shy-40" says nothing where it would be wrong."""
    text = script(request)
    return "" if request.body["model"].startswith("shy") and "Guessing" in text else text


def test_a_challenger_that_says_nothing_where_it_is_not_sure_is_no_better(world):
    world.answer = shy
    result = world.improve(["shy-40"], actor=world.model("actor-60"))
    cycle = result.cycles[0]
    held = cycle["heldout"]
    assert cycle["status"] == "rolled_back" and (held["n"], held["left_out"]) == (20, 0)
    assert cycle["dev"]["right_of_answered"]["value"] == 1.0 and cycle["dev"]["silent"] > 0
    better = world.improve(["shy-90"], run="better", actor=world.model("actor-40"))
    assert better.cycles[0]["decision"]["promoted"]
    test = better.report["test"]["actors"]["cycle 0"]["pass1"]
    assert test["n"] == 8 and better.report["test"]["comparisons"]["cycle 0 against base"]["n"] == 8


def test_a_challenger_whose_answers_cannot_be_decided_is_rolled_back(world):
    def evading(request):
        text = script(request)
        guess = request.body["model"].startswith("evading") and "Guessing" in text
        return "The answer is \\boxed{10^{10^{10}}}." if guess else text

    world.answer = evading
    cycle = world.improve(["evading-40"], actor=world.model("actor-60")).cycles[0]
    assert cycle["status"] == "rolled_back" and cycle["heldout"]["undecided"] > 0
    assert cycle["heldout"]["n"] == 20 and "undecided now" in cycle["decision"]["reason"]


def test_what_failed_is_asked_again_by_one_later_call_and_not_for_ever(world):
    options = {"task": problems(62), "dev": 30}
    folder = world.improve(["actor-90"], run="look", **options).path
    sets = json.loads((folder / "sets.json").read_bytes())
    test = sorted(int(id[1:]) for id, name in sets.items() if name == "test")
    world.answer = failing("actor-90", test[:1])
    asked = []
    for _ in range(4):
        before = world.server.calls
        report = world.improve(["actor-90"], **options).report
        asked.append(world.server.calls - before)
        stopped = report["stopped"]
    assert stopped is None and report["test"]["comparisons"]["cycle 0 against base"]["left_out"] == 1
    assert asked[1] > 0 and asked[2:] == [0, 0]


def failing(model, pids, until=10**9):
    """The endpoint of `model` fails for these problems until it was asked so often for each."""
    asked = Counter()

    def answer(request):
        if request.body["model"] == model and "response_format" not in request.body and pid(request) in pids:
            asked[pid(request)] += 1
            if asked[pid(request)] <= until:
                return Reply(status=500)
        return script(request)

    return answer


def dev_numbers(folder):
    sets = json.loads((folder / "sets.json").read_bytes())
    return sorted(int(id[1:]) for id, name in sets.items() if name == "dev")


def test_what_the_endpoint_failed_is_asked_again_and_else_left_out_of_both_sides_and_counted(world):
    options = {"task": problems(62), "dev": 30}
    dev = dev_numbers(world.improve(["actor-90"], run="look", **options).path)[::10]
    world.answer = failing("actor-90", dev, until=2)  # both tries of the first asking
    passing = world.improve(["actor-90"], run="passing", **options).cycles[0]
    assert (passing["heldout"]["n"], passing["heldout"]["left_out"]) == (30, 0)
    world.answer = failing("actor-90", dev)
    lasting = world.improve(["actor-90"], run="lasting", **options).cycles[0]
    assert lasting["status"] == "ok" and (lasting["heldout"]["n"], lasting["heldout"]["left_out"]) == (27, 3)
    assert "3 without a result of both" in lasting["decision"]["reason"]


def test_a_dev_draft_that_the_endpoint_failed_beside_others_stays_away(world):
    """Of solved and unsolved problems alike."""
    dev = dev_numbers(world.improve(["actor-90"], run="look").path)[0]
    tries = []

    def answer(request):
        second = pid(request) == dev and request.body.get("seed") == seed_of(0, f"p{dev}") + 1
        if second and request.body["model"] == "actor-0":
            tries.append(request)
            if len(tries) <= 2:  # both tries of the first asking
                return Reply(status=500)
        return script(request)

    world.answer = answer
    roles = {"actor": world.model("actor-0"), "teacher": world.model("teacher-90")}
    result = world.improve(["actor-90"], **roles, dev_generations=2)
    rows = Run(result.path / "base" / "dev").records()
    assert len(tries) == 2 and sorted({len(row.candidates) for row in rows}) == [1, 2]


def test_an_endpoint_that_is_gone_fails_the_cycle_and_the_next_call_goes_on(world):
    """Although there are too few problems for the endpoint to be given up."""
    world.answer = lambda request: Reply(status=500)
    first = world.improve(["actor-90"], run="gone")
    assert first.cycles[0]["status"] == "failed" and "got no answer" in first.report["stopped"]
    world.answer = script
    assert world.improve(["actor-90"], run="gone").cycles[0]["status"] == "ok"


def test_where_much_is_without_an_answer_the_run_stops_once_for_the_next_call(world):
    options = {"task": problems(62), "dev": 30, "test": 8}
    dev = dev_numbers(world.improve(["actor-90"], run="look", **options).path)[::4]
    for run, until, kept in (("comes back", 8, 30), ("stays away", 10**9, 22)):
        world.answer = failing("actor-90", dev, until=until)
        first = world.improve(["actor-90"], run=run, **options)
        assert first.cycles[0]["status"] == "failed" and "8 of 30 problems" in first.report["stopped"]
        assert first.report["test"] is None
        if until == 8:
            world.answer = script
        second = world.improve(["actor-90"], run=run, **options).cycles[0]
        assert second["status"] == "ok" and second["heldout"]["n"] == kept
        assert second["heldout"]["left_out"] == 30 - kept


def test_an_endpoint_that_is_down_is_never_taken_for_problems_that_fail(world):
    world.answer = lambda r: Reply(status=500) if r.body["model"] == "actor-90" else script(r)
    for _ in range(3):
        report = world.improve(["actor-90"]).report
        assert report["cycles"][0]["status"] == "failed" and report["stopped"]
    world.answer = script
    assert world.improve(["actor-90"]).cycles[0]["status"] == "ok"


def test_a_promotion_needs_enough_problems_and_says_so(world):
    few = world.improve(["actor-100"], dev=19, run="few").cycles[0]
    assert few["status"] == "rolled_back" and "no alarm speaks on fewer than 20" in few["decision"]["reason"]
    enough = world.improve(["actor-100"]).cycles[0]
    assert enough["decision"]["promoted"]


@pytest.mark.parametrize(
    ("difference", "n", "red", "promoted", "words"),
    [
        (0.1, 50, False, True, "accuracy"),
        (0.0, 50, False, False, "no better"),
        (-0.05, 50, False, False, "no better"),
        (0.1, 50, True, False, "red alarm ceiling"),
        (0.1, 19, False, False, "fewer than 20"),
        (float("nan"), 0, False, False, "fewer than 20"),
    ],
)
def test_the_gate(difference, n, red, promoted, words):
    found = analysis.Comparison("verified accuracy", n, 0.5, 0.5, difference, -0.1, 0.1, 0.5, 0.04)
    alarms = [analysis.Alarm("ceiling", "red", 1.0, 0.9, "x"), analysis.Alarm("opening", "amber", 1, 0, "x")]
    decision = gate(found, alarms[not red :])
    assert decision.promoted is promoted and words in decision.reason


def test_pairs_are_there_to_be_labelled_whatever_is_trained(world):
    result = world.improve(["actor-90"], problems_per_cycle=None)
    sheet = (result.path / "cycle-00/export/label.csv").read_text()
    assert sheet.startswith("number,problem,A,B,") and "PID=" in sheet


def test_what_is_trained_on_is_the_bare_problem_of_the_train_set(world):
    shots = [{"problem": "What is 1 + 1?", "trace": "1 + 1 = 2. The answer is \\boxed{2}."}]
    result = world.improve(["actor-90", "actor-90"], few_shot_examples=shots, replay_fraction=0.5)
    sets = json.loads((result.path / "sets.json").read_bytes())
    train = {p.problem for p in problems() if sets[p.id] == "train"}
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
    return f"On number {pid(request)} a {word} answer, with reasons that follow from one another."


def test_critics_alone_decide_a_task_without_references(world):
    world.answer = careful_or_hasty
    task = {"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]}
    options = {"task": task, "method": "dpo", "dev": 20, "test": 8}
    fine = world.improve(["actor-1"], critics=[world.model("judge-9")], **options)
    cycle = fine.cycles[0]
    assert cycle["heldout"]["measure"] == "critics' score" and cycle["policy"] == "best_vs_worst"
    assert cycle["decision"]["promoted"] and cycle["verifier"]["pass1"]["n"] == 0
    assert cycle["holdout"] is None and "holdout" not in fine.report["test"]
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
    assert cycle["heldout"]["measure"] == "critics' score" and cycle["heldout"]["difference"] > 0
    assert cycle["holdout"]["measure"] == "hold-out critic's score" and cycle["holdout"]["difference"] <= 0


@pytest.mark.parametrize("answers", ["8", "fails"])
def test_the_hold_out_critic_stands_beside_the_decision_and_the_final_claim(world, answers):
    """It selects nothing, also where the critics alone decide, and one that fails changes nothing."""

    def answer(request):
        if request.body["model"] == "judge-7":  # would have it the other way round
            careful = "careful" in str(request.messages)
            return verdict(3 if careful else 8) if answers == "8" else "no JSON"
        return careful_or_hasty(request)

    world.answer = answer
    task = {"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]}
    result = world.improve(
        ["actor-1"], task=task, critics=[world.model("judge-4")], holdout_critic=world.model("judge-7"),
        method="dpo", score_threshold=0.35,
    )  # fmt: skip
    cycle, gap = result.cycles[0], "cycle 0 against base"
    assert cycle["heldout"]["measure"] == "critics' score" and cycle["heldout"]["difference"] > 0
    if answers == "fails":
        assert cycle["decision"]["promoted"] and cycle["holdout"]["n"] == 0
        test = result.report["test"]
        assert test["comparisons"][gap]["measure"] == "critics' score" and test["holdout"][gap]["n"] == 0
    else:
        assert cycle["holdout"]["difference"] < 0 and alarm_levels(cycle)["holdout_gap"] == "red"
    assert any("hold-out critic" in said for said in analysis.cycle_findings(result.report))


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
    assert "red alarm holdout_gap" in pleasing["decision"]["reason"] and pleasing["status"] == "ok"
    assert pleasing["hacking"]["holdout_critic_gap"] == pytest.approx(0.4)
    honest = world.improve(**options, improver=world.model("plain"), run="honest").cycles[0]
    assert "holdout_gap" not in alarm_levels(honest) and honest["hacking"]["holdout_critic_gap"] == 0


def test_the_best_of_several_noisy_scores_is_no_sign_of_pleasing(world):
    """Without training: the hold-out critic sees the same in what was picked as in the first drafts."""

    def answer(request):
        if "response_format" not in request.body:
            return f"A plain reply to number {pid(request)}, try {request.body['seed'] % 97}."
        return verdict(3 + request.number * 7919 % 5 if request.body["model"] == "judge-5" else 5)

    world.answer = answer
    cycle = world.improve(
        task={"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]},
        critics=[world.model("judge-5")], holdout_critic=world.model("judge-6"), num_generations=4,
        problems_per_cycle=None, score_threshold=0.3,
    ).cycles[0]  # fmt: skip
    assert cycle["hacking"]["holdout_critic_gap"] > 0.05 and cycle["noise"]["sd"] > 0.05
    assert "holdout_gap" not in alarm_levels(cycle)


def test_the_first_training_is_watched_as_strictly_where_both_are_asked_alike(world):
    def answer(request):
        if request.body["model"] == "parrot-1":
            return "Always the same careful words, with reasons that follow from one another."
        return careful_or_hasty(request)

    world.answer = answer
    task = {"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]}
    cycle = world.improve(["parrot-1"], task=task, critics=[world.model("judge-9")], method="dpo").cycles[0]
    assert cycle["status"] == "rolled_back" and alarm_levels(cycle)["duplicates"] == "red"


def test_a_first_training_that_changes_the_style_is_watched_softly(world):
    """The untrained actor is asked with other prompts than the one trained on bare problems."""

    def wordy(request):
        text = script(request)
        if request.body["model"] != "wordy-90":
            return text
        return text.replace("(try", " ".join(str(pid(request) * n) for n in range(50)) + " (try")

    world.answer = wordy
    cycle = world.improve(["wordy-90"]).cycles[0]
    assert cycle["decision"]["promoted"] and alarm_levels(cycle)["length_drift"] == "amber"
    assert "untrained actor" in next(a["text"] for a in cycle["alarms"] if a["code"] == "length_drift")


def test_alarms_that_were_not_looked_at_are_named_in_the_report(world):
    report = world.improve(["actor-90"]).report
    unseen = report["cycles"][0]["not_looked_at"]
    assert unseen["narrowing"].startswith("one draft") and unseen["judge_drift"] == "there are no critics"
    assert "collapse" not in unseen and "distinct_1" not in unseen and "length_drift" not in unseen
    frame = analysis.unwatched_frame(report["cycles"])
    assert set(frame.columns) == {"cycle", "alarms", "why"} and len(frame) == len(set(unseen.values()))
    assert "narrowing" in " ".join(frame["alarms"])
    assert not any("not looked at" in said for said in analysis.cycle_findings(report))  # a table has them
    data_only = world.improve(run="data").cycles[0]["not_looked_at"]
    assert data_only["length_drift"] == "no challenger was evaluated"


def test_the_report_shows_what_each_training_did(world):
    class Telling(FakeTrainer):
        def train(self, *args):
            told = {"rows": 5, "drops": {"too_long": 2}, "steps": 7, "loss_first": 2.5, "loss_last": 1.5}
            return {**super().train(*args), **told, "warnings": ["chosen answers became less likely"]}

    report = world.improve(["x", "x"], trainer=Telling(world.server, ["actor-70", "actor-90"])).report
    frame = analysis.training_frame(report["cycles"])
    counts = report["cycles"][0]["counts"]
    line = frame.iloc[0]
    assert line["examples"] == counts["kept"] + counts["replayed"] and len(frame) == 2
    assert (line["rows"], line["left_out"], line["steps"], line["loss_last"]) == (5, "2 too_long", 7, 1.5)
    assert "less likely" in line["warnings"]
    said = " ".join(analysis.cycle_findings(report))
    assert "left out 2 too_long, and took 5 rows" in said and "became less likely" in said
    assert analysis.training_frame(world.improve(run="data").cycles).empty


def test_the_refinement_gain_is_said(world):
    def answer(request):
        if "response_format" in request.body:
            return verdict(9 if "careful" in str(request.messages) else 5)
        word = "careful" if request.body["model"] == "improver" else "plain"
        return f"On number {pid(request)} a {word} answer, try {request.body['seed'] % 97}."

    world.answer = answer
    task = {"description": "Explain the sum.", "prompts": [p.problem for p in problems(60)]}
    report = world.improve(task=task, critics=[world.model("judge-9")], iterations=1, num_generations=1,
                           improver=world.model("improver")).report  # fmt: skip
    gain = report["cycles"][0]["gain"]
    assert (gain["n"], gain["mean"]) == (12, pytest.approx(0.4))
    assert any("refinement changed the scores by +0.40" in said for said in analysis.cycle_findings(report))
    assert "gain of refinement" in set(analysis.trust_frame(report["cycles"])["measure"])


SCHEMA = {
    "schema_version", "run_id", "cycle", "status", "task_hash", "roles", "critics", "prompts", "counts",
    "scores", "gain", "verifier", "heldout", "diversity", "hacking", "judge", "training", "cost", "decision",
    "alarms", "files",
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
    assert {"reasoning"} < set(first["prompts"].values()) and first["files"]["sft.jsonl"]
    frame = analysis.trust_frame(report["cycles"])
    assert {"distinct_2", "length_ratio", "critics_sd"} <= set(frame["measure"])
    assert list(frame.columns) == ["measure", "cycle 0", "cycle 1"]
    assert report["seconds"] > sum(c["seconds"] for c in report["cycles"])  # base and test too


def test_the_time_of_a_run_is_all_of_it_and_stays_when_nothing_is_done(served_world):
    world = served_world
    world.answer = lambda r: Reply(script(r), delay=0.05 if "response_format" in r.body else 0)
    started = time.monotonic()
    critics = [world.model("judge-8", max_concurrency=2)]
    report = world.improve(["actor-90"], critics=critics).report
    wall = time.monotonic() - started
    assert 0.6 * wall < report["seconds"] <= wall + 0.1  # also scores that are asked again
    assert 0.4 * report["seconds"] < report["cycles"][0]["seconds"] <= report["seconds"]
    assert world.improve(["actor-90"], critics=critics).report["seconds"] == report["seconds"]


def test_what_is_asked_side_by_side_takes_its_time_once(served_world):
    """The untrained actor is asked with and without examples at the same time, on one connection."""
    world = served_world
    world.answer = lambda r: Reply(script(r), delay=0.03)
    shots = [{"problem": "What is 1 + 1?", "trace": "1 + 1 = 2. The answer is \\boxed{2}."}]
    actor = world.model("actor-40", max_concurrency=1)
    started = time.monotonic()
    report = world.improve(["actor-90"], actor=actor, test=16, few_shot_examples=shots).report
    assert set(report["test"]["actors"]) == {"base", "base zero-shot", "cycle 0"}
    assert report["seconds"] <= time.monotonic() - started + 0.1


def test_fewer_cycles_than_before_take_nothing_back(world):
    first = world.improve(["actor-70", "actor-90"])
    calls, report = world.server.calls, first.report
    again = world.improve(["actor-70", "actor-90"], cycles=1)
    assert again.report == report and world.server.calls == calls
    pointer = json.loads((again.path / "champion.json").read_bytes())
    assert pointer["cycle"] == 1 and again.champion.model == "actor-90"


def test_replayed_traces_keep_the_cap_of_a_problem_and_are_counted_once(world):
    result = world.improve(
        ["actor-70", "actor-85", "actor-100"],
        replay_fraction=1.0,
        max_per_problem=2,
        problems_per_cycle=None,
        num_generations=2,
    )
    assert [c["decision"]["promoted"] for c in result.cycles] == [True] * 3
    for call in world.trainer.calls:
        per_problem = Counter(row["id"] for row in call["rows"])
        assert max(per_problem.values()) <= 2
    assert result.cycles[2]["counts"]["replayed"] > 0
    different = {json.dumps(row) for call in world.trainer.calls for row in call["rows"]}
    assert sum(result.report["families"].values()) == len(different)
    assert len(different) < sum(len(call["rows"]) for call in world.trainer.calls)


def test_failed_and_unreadable_requests_of_other_steps_count_for_a_budget(world):
    def answer(request):
        if "response_format" in request.body:
            return "no JSON at all"
        return Reply(status=500) if pid(request) % 5 == 0 and request.nth == 0 else script(request)

    world.answer = answer
    options = {"critics": [world.model("judge-8")], "run": "limited"}
    limited = world.improve(["actor-90"], budget_calls=60, **options)
    assert limited.report["stopped"] and world.server.calls <= 60
    assert spent(limited.path)["requests"] == world.server.calls > spent(limited.path)["calls"]
    world.improve(["actor-90"], budget_calls=90, **options)
    assert world.server.calls <= 90


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
    assert world.server.calls == calls + 2 * (20 + 8)  # base and challenger on dev and test, nothing again


@pytest.mark.parametrize(("rows", "status"), [(3, "no_data"), (4, "ok")])
def test_rows_that_the_training_would_leave_out_are_no_examples(world, rows, status):
    class Fitting(FakeTrainer):
        def fitting(self, method, data, champion):
            assert data.is_file() and champion is None
            return {"rows": rows, "drops": {"too_long": 9}}

    report = world.improve(trainer=Fitting(world.server, ["actor-90"]), min_examples=4).report
    cycle = report["cycles"][0]
    assert cycle["status"] == status and cycle["counts"]["kept"] > 4 and report["stopped"] is None
    if status == "no_data":
        assert "would take 3 rows of the 4 needed (9 too_long)" in cycle["decision"]["reason"]
        assert not world.trainer.calls


def test_what_a_trainer_serves_it_can_ask_like_the_actor_before(world):
    class Telling(FakeTrainer):
        def serve(self, manifest):
            served.append(manifest)
            return super().serve(manifest)

    served = []
    actor = world.model("actor-40", temperature=0.3, top_p=0.9, max_tokens=99, seed=5)
    world.improve(trainer=Telling(world.server, ["actor-90"]), actor=actor)
    assert served and all(
        manifest["sampling"] == {"temperature": 0.3, "top_p": 0.9, "max_tokens": 99} for manifest in served
    )


class Refusal(ValueError):
    refuses_data = True


class Breaking(FakeTrainer):
    """Raises `error` while there is one; or gives back what is no manifest."""

    error: object = None

    def train(self, *args):
        if isinstance(self.error, Exception):
            raise self.error
        return super().train(*args) if self.error is None else self.error


def test_rows_that_a_training_refuses_end_the_cycle_and_the_run_goes_on(world):
    trainer = Breaking(world.server, ["actor-90", "actor-90"])
    trainer.error = Refusal("kto needs wanted and unwanted answers: label is true in every row")
    report = world.improve(["x", "x"], trainer=trainer).report
    assert [c["status"] for c in report["cycles"]] == ["no_data", "no_data"] and report["stopped"] is None
    assert "label is true in every row" in report["cycles"][0]["decision"]["reason"]
    assert report["champion"]["cycle"] is None and report["cycles"][0]["counts"]["kept"] > 0
    counts_add_up(report)


def test_the_embedded_trainers_refusal_is_known():
    from cotkit.train import TrainingDataError

    assert TrainingDataError.refuses_data


def test_an_export_that_refuses_is_named(world, monkeypatch):
    def refuse(*given):
        raise ValueError("row 3, field 'chosen': empty")

    monkeypatch.setattr("cotkit.pipelines.cycle.write_examples", refuse)
    report = world.improve(["actor-90"]).report
    assert report["cycles"][0]["status"] == "no_data" and report["stopped"] is None
    assert "row 3, field 'chosen'" in report["cycles"][0]["decision"]["reason"]


FAULTS = [TypeError("no number"), KeyError("x"), MemoryError(), AssertionError("no"), {}, "no manifest"]


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_of_a_trainers_program_is_named_and_nothing_paid_is_lost(world, error):
    trainer = Breaking(world.server, ["actor-90"])
    trainer.error = error
    first = world.improve(["x"], trainer=trainer)
    cycle = first.cycles[0]
    assert cycle["status"] == "failed" and first.report["stopped"]
    assert first.report["champion"]["cycle"] is None
    assert "error.txt" in cycle["decision"]["reason"]
    said = (first.path / "cycle-00/error.txt").read_text()
    assert "Traceback" in said and "trainer" in said
    calls, trainer.error = world.server.calls, None
    second = world.improve(["x"], trainer=trainer)
    assert second.cycles[0]["status"] == "ok" and second.report["stopped"] is None
    assert world.server.calls == calls + 2 * (20 + 8)


def test_a_champion_that_cannot_be_served_stands_in_the_notes(world):
    class Gone(FakeTrainer):
        gone = False

        def serve(self, manifest):
            if self.gone:
                raise ValueError("adapter: there is no file student.gguf")
            assert manifest.get("folder", "cycle-00/train").endswith("cycle-00/train")
            return super().serve(manifest)

    trainer = Gone(world.server, ["actor-90"])
    assert world.improve(["x"], trainer=trainer).champion.model == "actor-90"
    trainer.gone = True
    again = world.improve(["x"], trainer=trainer)
    assert again.champion is None and again.report["champion"]["cycle"] == 0
    assert any("student.gguf" in note for note in again.report["notes"])


def test_a_disk_that_is_full_at_the_test_is_named_and_the_next_call_goes_on(world, monkeypatch):
    from cotkit.pipelines.self_improve import Loop

    evaluate = Loop.evaluate

    def full(self, which, actors):
        if which == "test":
            raise OSError(28, "No space left on device")
        return evaluate(self, which, actors)

    monkeypatch.setattr(Loop, "evaluate", full)
    first = world.improve(["actor-90"])
    assert "No space left" in first.report["stopped"] and first.report["test"] is None
    assert first.report["champion"]["cycle"] == 0
    monkeypatch.setattr(Loop, "evaluate", evaluate)
    assert world.improve(["actor-90"]).report["test"]["champion"] == "cycle 0"


def test_servers_of_embedded_models_are_released_before_a_training_and_at_the_end(world, monkeypatch):
    done = []
    monkeypatch.setattr("cotkit.chat.embedded.release_local_models", lambda: done.append("released"))

    class Noting(FakeTrainer):
        def train(self, *args):
            done.append("trains")
            return super().train(*args)

        def serve(self, manifest):
            done.append("serves")
            return super().serve(manifest)

    world.improve(["x"], trainer=Noting(world.server, ["actor-90"]))
    assert done == ["released", "trains", "serves", "serves", "released", "serves"]  # dev, test, champion


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
    task = problems(80)
    result = world.improve(["actor-90"], task, held_out_types=["product"], dev=20, test=10)
    of_type = {p.id: p.type for p in task}
    assert "product" not in {of_type[row.id] for row in Run(result.path / "base" / "dev").records()}
    assert any("all 27 problems of the types held out of training (product) and 10 others" in note
               for note in result.report["notes"])  # fmt: skip
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
        {"few_shot_examples": [{"problem": p.problem.upper(), "trace": "t"} for p in problems()]},
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
        "cycles": 2, "dev": 20, "test": 8, "iterations": 1, "num_generations": 2,
    }  # fmt: skip
    actor = world.model("actor-40")
    frame = estimate_self_improvement(
        problems(), actor, trainer=FakeTrainer(world.server, ["a-7"]), **options
    )
    assert world.server.calls == 0
    world.improve(["actor-70", "actor-90"], actor=actor, **options)
    assert world.server.calls <= frame["calls"].iloc[-1] and frame["usd"].iloc[-1] > 0


def test_more_cycles_on_a_run_that_saw_its_test_set_say_so(world):
    world.improve(["actor-70", "actor-80", "actor-90"], cycles=2)
    report = world.improve(["actor-70", "actor-80", "actor-90"], cycles=3).report
    assert len(report["cycles"]) == 3 and report["test"]["earlier_looks"] == ["cycle-1"]
    assert any("looked at before" in said for said in analysis.cycle_findings(report))
