"""In which order a run asks: nothing waits for what it does not depend on, and what the machine, a trainer or
a budget cannot have at the same time is asked one after the other. What critics are asked again (noise,
frozen answers, drift) is drawn from all drafts, and so waits for the last of them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
import virtual_time
from mock_server import Reply
from scripted_loop import FakeTrainer, model, pid, problems, script

from cotkit.chat import BudgetExceeded
from cotkit.pipelines import asks, self_improve
from cotkit.verify import CheckVerifier

SERVER = SimpleNamespace(base_url=virtual_time.URL)


def flow(folder, names=(), law="fixed", side_by_side=True, width=10, embedded=(), **options):
    """A run in virtual time on 120 problems, 40 of them dev and 20 test; models in `embedded` run here."""

    def one(name, **given):
        here = {"endpoint_name": "embedded"} if name in embedded else {}
        return model(SERVER, name, **{"max_concurrency": width, **here, **given})

    class Trainer(FakeTrainer):
        def serve(self, manifest):
            return one(manifest["model"])

    trainer = Trainer(SERVER, names) if names else None
    if side_by_side and trainer:
        trainer.side_by_side = True
    given = {
        "cycles": max(1, len(names)), "dev": 40, "test": 20, "iterations": 0, "num_generations": 1,
        "problems_per_cycle": 30, "min_examples": 4, "show": "none", "run": str(folder / "run"),
    }  # fmt: skip
    wide = {"max_concurrency": 500}
    with virtual_time.engine(script, law, seed=width) as world:
        roles = {"critics": [one("judge-8", **wide)], "holdout_critic": one("judge-7", **wide)}
        given |= {"actor": one("actor-40"), "trainer": trainer, **roles, **options}
        result = self_improve(problems(120), **given)
    world.report = result.report
    return world


def spans(world, folder, which):
    """{model: (start, end)} of the drafts of a set."""
    sets = json.loads((folder / "run/sets.json").read_bytes())
    found = {}
    for call in world.calls:
        if "response_format" not in call.request.body and sets[f"p{pid(call.request)}"] == which:
            start, end = found.get(call.model, (call.started, 0.0))
            found[call.model] = start, max(end, call.started + call.seconds)
    return found


def idle(world):
    """Seconds between the first call and the last in which nothing was in flight."""
    ends, gaps = 0.0, 0.0
    for call in sorted(world.calls, key=lambda call: call.started):
        gaps += max(0.0, call.started - ends)
        ends = max(ends, call.started + call.seconds)
    return gaps


def test_a_cycle_takes_as_long_as_its_real_dependencies(tmp_path):
    """Each call a second: an actor makes 10 drafts at a time, and all that are there are scored at once.

    Generation: 30 drafts and their scores, then all critics are asked again at the same time; dev: 40 drafts
    of either actor, scores, hold-out scores; test: the same with 20.
    """
    world = flow(tmp_path, ["actor-70"])
    assert world.report["cycles"][0]["decision"]["promoted"] and world.report["stopped"] is None
    assert world.seconds == pytest.approx((3 + 1 + 1) + (4 + 1 + 1) + (2 + 1 + 1))
    assert idle(world) == 0.0


def test_later_cycles_and_refinements_have_no_barrier_either(tmp_path):
    """Wrong drafts, 60 % of the actor's, are refined and the refinement is scored."""
    shots = [{"problem": "What is 1 + 1?", "trace": "1 + 1 = 2. The answer is \\boxed{2}."}]
    options = {"iterations": 1, "few_shot_examples": shots, "improver": None}
    world = flow(tmp_path, ["actor-70", "actor-90"], width=100, **options)
    assert [c["decision"]["promoted"] for c in world.report["cycles"]] == [True, True]
    generated = 4 + 1  # draft, score, refinement, score; then what is asked again
    assert world.seconds <= 2 * generated + 2 * 3 + 3 + 1e-9  # two dev sets, and a test of four actors
    assert len(world.report["test"]["actors"]) == 4 and idle(world) == 0.0


@pytest.mark.parametrize("law", ["lognormal", "pareto"])
def test_drafts_and_their_scores_wait_for_nobody(tmp_path, law):
    """However long single calls take: as fast as an ideal pool of either model."""
    narrow = model(SERVER, "judge-8", max_concurrency=10)
    world = flow(tmp_path, law=law, critics=[narrow], holdout_critic=None, problems_per_cycle=None)
    drafts = [call for call in world.calls if "response_format" not in call.request.body]
    chains, judged = [], []
    for draft in drafts:
        shown = f"{script(draft.request)}\n<<<end of answer"  # as it is, and the first time
        right = "Guessing" not in shown  # the others are scored later, among the frozen answers
        scored = next((call for call in world.calls if right and shown in call.request.user), None)
        chains.append([(call.model, call.seconds) for call in (draft, scored) if call])
        judged += [scored] if scored else []
    ends = max(call.started + call.seconds for call in (*drafts, *judged))
    assert len(drafts) == 60 and len(judged) > 15
    assert ends <= virtual_time.flow_schedule(chains, {"actor-40": 10, "judge-8": 10}, 60) / 0.98


@pytest.mark.parametrize("law", ["lognormal", "pareto"])
def test_actors_of_a_held_out_set_wait_for_nobody(tmp_path, law):
    world = flow(tmp_path, ["actor-70"], law, critics=(), holdout_critic=None)
    for which, count in (("dev", 40), ("test", 20)):
        asked = spans(world, tmp_path, which)
        assert set(asked) == {"actor-40", "actor-70"}
        for name, (start, end) in asked.items():
            sets = json.loads((tmp_path / "run/sets.json").read_bytes())
            own = [
                call.seconds
                for call in world.calls
                if call.model == name and sets[f"p{pid(call.request)}"] == which
            ]
            assert len(own) == count
            assert end - start <= virtual_time.list_schedule(own, 10) / 0.98
        assert asked["actor-40"][0] == asked["actor-70"][0]


def test_without_a_trainer_the_hold_out_critic_scores_while_drafts_are_made(tmp_path):
    world = flow(tmp_path)
    assert world.report["cycles"][0]["hacking"]["intervals"]["holdout_critic_gap"]["n"] > 5
    assert world.seconds == pytest.approx(3 + 1 + 1)  # drafts; scores; the critics again, the hold-out critic
    assert idle(world) == 0.0
    first = {name: min(c.started for c in world.calls if c.model == name) for name in ("judge-8", "judge-7")}
    assert first == {"judge-8": 1.0, "judge-7": 1.0}  # the first drafts are there, the last not begun


def apart(world, *names):
    """Whether no two of these models were in flight at the same time."""
    calls = sorted((c for c in world.calls if c.model in names), key=lambda call: call.started)
    ends = dict.fromkeys(names, 0.0)
    for call in calls:
        if any(call.started < end for name, end in ends.items() if name != call.model):
            return False
        ends[call.model] = max(ends[call.model], call.started + call.seconds)
    return True


def test_models_of_this_machine_are_asked_one_after_the_other_and_released_between(tmp_path, monkeypatch):
    released = []
    monkeypatch.setattr("cotkit.chat.embedded.release_local_models", lambda: released.append(1))
    names = ["actor-40", "actor-60", "actor-80", "judge-7"]
    shots = [{"problem": "What is 1 + 1?", "trace": "1 + 1 = 2. The answer is \\boxed{2}."}]
    options = {"embedded": names, "few_shot_examples": shots, "side_by_side": False}
    world = flow(tmp_path, ["actor-60", "actor-80"], **options)
    assert [c["decision"]["promoted"] for c in world.report["cycles"]] == [True, True]
    assert apart(world, *names[:3])
    # before each training; after the first actor on dev; after the first two of the test; before the hold-out
    # critic on dev, twice, and on the test; at the end
    assert len(released) == 2 + 1 + 2 + 3 + 1
    dev = spans(world, tmp_path, "dev")
    holdout = [c.started for c in world.calls if c.model == "judge-7"]
    assert min(holdout) >= min(end for _, end in dev.values())  # it would take the cores from the actor
    base = [c for c in world.calls if c.model == "actor-40"]
    shown = [(c.started, len(c.request.messages) > 1) for c in base]
    tested = [at for at, _ in shown if at >= spans(world, tmp_path, "test")["actor-40"][0]]
    assert len(tested) == 40 and max(tested) - min(tested) == 3  # with and without examples at the same time


@pytest.mark.parametrize("side_by_side", [False, True])
def test_what_a_trainer_serves_one_at_a_time_is_asked_before_it_serves_another(world, side_by_side):
    """Its server holds one model: it has no other one once it has been started with that."""

    class Reloading(FakeTrainer):
        current = None

        def serve(self, manifest):
            self.current = manifest["model"]
            return super().serve(manifest)

    trainer = Reloading(world.server, ["actor-70", "actor-90"])
    trainer.side_by_side = side_by_side
    trained = set(trainer.names)

    def answer(request):
        gone = request.body["model"] in trained - {trainer.current}
        return Reply(status=404, error="no such model") if gone else script(request)

    world.answer = answer
    report = world.improve(["x", "x"], trainer=trainer).report
    if side_by_side:  # it says what is not so
        assert "no such model" in report["stopped"]
    else:
        assert report["stopped"] is None and set(report["test"]["actors"]) == {"base", "cycle 0", "cycle 1"}


def test_with_a_budget_steps_go_one_after_the_other(tmp_path):
    world = flow(tmp_path, ["actor-70"], budget_calls=10_000)
    for which in ("dev", "test"):
        asked = sorted(spans(world, tmp_path, which).values())
        assert asked[0][1] <= asked[1][0]
    assert world.report["stopped"] is None
    whole = world.report["cost"]["requests"]
    free = flow(tmp_path / "free", ["actor-70"])
    assert free.report["cost"]["requests"] == whole and free.seconds < world.seconds
    assert free.report["test"] == world.report["test"]


def test_an_interrupt_ends_all_that_is_asked_and_the_same_call_goes_on(served_world, monkeypatch, capsys):
    world = served_world
    world.answer = lambda r: Reply(script(r), delay=0.05)
    shown = asks.Display

    class Interrupting(shown):
        def tick(self):
            if self.progress.name == "dev" and self.progress.done:
                raise KeyboardInterrupt

    options = {"actor": world.model("actor-40", max_concurrency=2)}
    with monkeypatch.context() as patch:
        patch.setattr(asks, "Display", Interrupting)
        with pytest.raises(KeyboardInterrupt):
            world.improve(["actor-90"], **options)
    assert "Interrupted. What is finished is safe in " in capsys.readouterr().out
    calls = world.server.calls
    report = world.improve(["actor-90"], **options).report
    assert report["stopped"] is None and report["cycles"][0]["status"] == "ok"
    in_flight = 2 + 16  # of the two actors
    assert calls < world.server.calls <= 2 * 12 + 2 * (20 + 8) + in_flight


def test_each_run_under_way_has_its_line_of_progress(world, capsys):
    world.improve(["actor-90"], show="lines")
    said = capsys.readouterr().out
    assert said.count("dev: 20/20 done") == 2  # base and challenger
    assert said.count("generate: 12/12 done") == 1 and "cycle-0: 8/8 done" in said


def test_what_stops_one_step_is_raised_when_the_others_have_ended(tmp_path):
    asked = asks.Asks(SimpleNamespace(budgets={"budget_usd": None}, show="none"), tmp_path)
    ended = []

    async def failing():
        raise BudgetExceeded("spent")

    async def slow():
        await asyncio.sleep(0.01)
        ended.append("slow")

    with pytest.raises(BudgetExceeded):
        asked.now(failing, slow)
    assert ended == ["slow"]


def test_critics_of_this_machine_are_asked_one_after_the_other(tmp_path):
    world = flow(tmp_path, embedded=("actor-40", "judge-8", "judge-7"))
    assert apart(world, "judge-8", "judge-7")


def test_a_hold_out_critic_of_this_machine_waits_for_all_actors(tmp_path):
    world = flow(tmp_path, ["actor-70"], side_by_side=False, embedded=("actor-70", "judge-7"))
    assert apart(world, "actor-70", "judge-7")


def test_an_interrupt_while_progress_is_first_drawn_is_an_interrupt(tmp_path, monkeypatch):
    class Interrupted(asks.Display):
        def __init__(self, *given):
            raise KeyboardInterrupt

    monkeypatch.setattr(asks, "Display", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        flow(tmp_path, ["actor-70"])


def test_what_the_verifier_can_make_nothing_of_is_left_to_the_critics(tmp_path):
    """A verifier of programs, and problems that have references only."""
    world = flow(tmp_path, verifier=CheckVerifier())
    counts = world.report["cycles"][0]["counts"]
    assert counts["kept"] > 0 and "undecided" not in counts["drops"]
