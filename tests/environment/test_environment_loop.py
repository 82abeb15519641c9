"""The environment: episodes, rewards that never touch one another, the loop with a model, TRL's reward."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from mock_server import Reply

from cotkit import ChatModel, Environment, ModelError, ModelVerifier, Problem, open_run
from cotkit.records import Extraction, Row, Verdict
from cotkit.runs import RunError, RunFolder
from cotkit.verify import Verifier


def problems(count: int, **changes) -> list[Problem]:
    return [Problem(id=f"p{n}", problem=f"{n} + {n}?", reference=str(2 * n), **changes) for n in range(count)]


def right(problem: Problem) -> str:
    return f"\\boxed{{{problem.reference}}}"


def model(server, **options) -> ChatModel:
    return ChatModel("mock", base_url=server.base_url, **{"max_retries": 0, **options})


class Scripted(Verifier):
    """Does what the completion says."""

    def describe(self):
        return {"verifier": "Scripted"}

    async def averify(self, problem, text, *, truncated=False, ledger=None):
        if text == "crash":
            raise RuntimeError("the verifier broke")
        if text == "cancel":
            raise asyncio.CancelledError
        if text == "exit":
            raise SystemExit(1)
        correct = {"right": True, "wrong": False}.get(text)
        return Extraction(answer=text, how="all"), Verdict(correct=correct, method=text, reason=text)


def test_one_failure_touches_no_other_reward():
    said = ["right", "crash", "wrong", "right", "timeout", "exit", "ellipsis", "error", "cancel"]
    said += ["model_failed", "sandbox_failed"]  # no word on the completion
    env = Environment(problems(11), Scripted(), batch=11)
    env.reset()
    steps = env.step(said)
    assert [step.reward for step in steps] == [1.0, None, 0.0, 1.0, *[None] * 7]
    assert [step.outcome for step in steps] == [
        "right", "error", "wrong", "right", "timeout", "error", "undecidable", "error", "error",
        "error", "error",
    ]  # fmt: skip
    assert steps[1].verdict.reason == "RuntimeError: the verifier broke" and all(s.done for s in steps)


def test_a_wrong_answer_a_missing_one_and_an_undecidable_one_are_told_apart():
    items = [*problems(2), Problem(id="f", problem="f?", reference="Paris, France")]
    env = Environment(items, batch=3)
    drawn = env.reset(seed=3)
    texts = {"p0": r"\boxed{7}", "p1": "I do not know.", "f": r"\boxed{Paris}"}
    steps = {step.problem.id: step for step in env.step([texts[p.id] for p in drawn])}
    outcomes = {name: (step.outcome, step.reward, step.verdict.method) for name, step in steps.items()}
    assert outcomes["p0"][:2] == outcomes["p1"][:2] == ("wrong", 0.0)
    assert outcomes["p1"][2] == "no_answer" and outcomes["f"][:2] == ("undecidable", None)


def test_a_step_belongs_to_the_problem_that_was_given():
    env = Environment(problems(40), batch=10)
    for _ in range(4):
        drawn = env.reset()
        steps = env.step([right(p) for p in drawn])
        assert [step.problem for step in steps] == drawn and {step.reward for step in steps} == {1.0}


def test_the_same_seed_gives_the_same_problems_and_another_seed_others():
    def ids(env, seed):
        return [p.id for p in env.reset(seed=seed)]

    one, other = Environment(problems(50), batch=20), Environment(problems(50), batch=20)
    assert ids(one, 7) == ids(other, 7) == ids(one, 7) != ids(one, 8)
    assert ids(one, 7) != [f"p{n}" for n in range(20)]  # not the first slice of the file
    first, again = [ids(one, 7), [p.id for p in one.reset()]], [ids(other, 7), [p.id for p in other.reset()]]
    assert first == again and not set(first[0]) & set(first[1])


def test_an_epoch_gives_each_problem_once_and_the_next_one_in_another_order():
    env = Environment(problems(6))
    epochs = [[env.reset().id for _ in range(6)] for _ in range(5)]
    assert all(sorted(epoch) == [f"p{n}" for n in range(6)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_every_place_of_the_first_batch_is_drawn_evenly():
    env = Environment(problems(5), batch=2)
    counts = Counter(p.id for seed in range(1000) for p in env.reset(seed=seed))
    assert len(counts) == 5 and all(
        abs(count - 400) < 5 * (2000 * 0.2 * 0.8) ** 0.5 for count in counts.values()
    )


def test_steps_out_of_turn_are_refused():
    env = Environment(problems(3), batch=2)
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        env.step(["a", "b"])
    drawn = env.reset()
    for wrong in (["a"], ["a", "b", "c"], "ab", None, iter(["a"])):
        with pytest.raises(ValueError, match="list of 2 completions"):
            env.step(wrong)
    with pytest.raises(TypeError, match="a completion must be a text, got None"):
        env.step(["a", None])
    assert [step.reward for step in env.step([right(p) for p in drawn])] == [1.0, 1.0]  # still open until now
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        env.step(["a", "b"])


def test_a_single_problem_takes_a_single_completion():
    env = Environment(problems(3))
    drawn = env.reset(seed=1)
    assert isinstance(drawn, Problem) and env.step(right(drawn)).reward == 1.0
    env.reset()
    with pytest.raises(TypeError, match="must be a text"):
        env.step(["a"])


def test_it_steps_in_a_running_loop():
    async def cell():
        env = Environment(problems(2))
        return await env.astep(right(env.reset())), env.step(right(env.reset()))

    assert [step.reward for step in asyncio.run(cell())] == [1.0, 1.0]


BAD = [
    (lambda: Environment([]), ValueError, "no problems"),
    (lambda: Environment(problems(2), batch=3), ValueError, "batch must be"),
    (lambda: Environment(problems(2), batch=0), ValueError, "batch must be"),
    (lambda: Environment(problems(2), "exact"), TypeError, "verifier must be a Verifier"),
    (lambda: Environment([Problem(id="a", problem="q")]), ValueError, "'a' has nothing to check"),
    (
        lambda: Environment(problems(1, answer_type="integer")),
        ValueError,
        "problem 'p0': unknown answer_type",
    ),
    (lambda: Environment(lambda seed: [{"problem": "q"}]).reset(), TypeError, "synthesizer gives Problems"),
    (lambda: Environment(lambda seed: problems(1), batch=2).reset(), RuntimeError, "1 of 2 problems"),
    (lambda: Environment(lambda seed: problems(3)).run(None, n=8), RuntimeError, "3 of 8 problems"),
    (lambda: Environment(iter(problems(3))).reset(seed=1), ValueError, "cannot go back"),
    (lambda: Environment(iter(problems(3))).as_trl_reward(), TypeError, "fixed set"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD, ids=[message for *_, message in BAD])
def test_what_cannot_work_is_refused_in_words(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_no_batch_has_a_problem_twice_where_epochs_meet():
    env = Environment(problems(7), batch=5)
    drawn = [problem.id for _ in range(70) for problem in env.reset()]
    assert all(len({*drawn[i : i + 5]}) == 5 for i in range(0, len(drawn), 5))
    assert all(len({*drawn[i : i + 7]}) == 7 for i in range(0, len(drawn), 7))  # each once an epoch


def test_a_synthesizer_makes_fresh_problems_from_the_seed():
    asked = []

    def synthesizer(seed):
        asked.append(seed)
        return (
            Problem(id=f"{seed}-{n}", problem=f"{seed} + {n}?", reference=str(seed + n)) for n in range(99)
        )

    env = Environment(synthesizer, batch=2)
    assert [p.id for p in env.reset(seed=5)] == ["5-0", "5-1"] and [p.id for p in env.reset()] == [
        "5-2",
        "5-3",
    ]
    assert [p.id for p in env.reset(seed=5)] == ["5-0", "5-1"] and asked == [5, 5]
    assert [step.reward for step in env.step([r"\boxed{5}", r"\boxed{5}"])] == [1.0, 0.0]


def test_an_iterator_goes_on_where_it_is():
    env = Environment(iter(problems(4)))
    assert [env.reset().id for _ in range(4)] == ["p0", "p1", "p2", "p3"]
    with pytest.raises(RuntimeError, match="has ended"):
        env.reset()


def test_a_dead_endpoint_of_the_verifier_is_raised_and_the_episode_stays_open(serve):
    up = [False]

    def script(request):
        return '{"reason": "x", "verdict": "equivalent"}' if up[0] else Reply(status=401, error="no key")

    server = serve(script)
    item = Problem(id="f", problem="f?", reference="Paris, France")
    env = Environment([item], ModelVerifier(model(server)))
    env.reset()
    with pytest.raises(ModelError):
        env.step(r"\boxed{Paris}")
    up[0] = True
    env.verifier = ModelVerifier(model(server))
    assert env.step(r"\boxed{Paris}").reward == 1.0


# --- the loop with a model


def solves_even(request) -> str:
    n = int(request.messages[-1]["content"].split()[0])
    return f"I add. \\boxed{{{2 * n if n % 2 == 0 else 1}}}"


def test_a_model_plays_the_loop_into_a_run_folder(serve, tmp_path):
    server = serve(solves_even)
    env = Environment(problems(10))
    run = env.run(model(server), 6, seed=4, run=tmp_path / "r", show="none", num_generations=2)
    drawn = [env.reset(seed=4).id] + [env.reset().id for _ in range(5)]
    rows = run.records()
    assert [row.id for row in rows] == drawn and server.calls == 12
    assert all(row.accepted == (int(row.id[1:]) % 2 == 0) and len(row.candidates) == 2 for row in rows)
    more = env.run(model(server), 10, seed=4, run=tmp_path / "r", show="none", num_generations=2)
    assert len(more.records()) == 10 and server.calls == 20  # goes on where it was


def test_another_verifier_is_another_run(serve, tmp_path):
    server = serve(solves_even)
    Environment(problems(2)).run(model(server), 2, run=tmp_path / "r", show="none")
    with pytest.raises(RunError, match=r"verifier\.verifier: AnswerVerifier -> Scripted"):
        Environment(problems(2), Scripted()).run(model(server), 2, run=tmp_path / "r", show="none")


def test_another_verifier_for_the_loop_is_refused(serve, tmp_path):
    env, server = Environment(problems(2)), serve(solves_even)
    for run in (env.run, lambda *given, **options: asyncio.run(env.arun(*given, **options))):
        with pytest.raises(TypeError, match=r"'verifier': give it to Environment\(problems, verifier\)"):
            run(model(server), 2, verifier=Scripted(), run=tmp_path / "r")
    assert server.calls == 0 and not (tmp_path / "r").exists()


def test_the_loop_can_be_awaited_and_counts_are_checked(serve, tmp_path):
    env = Environment(problems(2))
    server = serve(solves_even)
    run = asyncio.run(env.arun(model(server), 2, run=tmp_path / "r", show="none"))
    assert run.report["given"] == 2
    for n in (0, 3, "2"):
        with pytest.raises(ValueError, match="n must be a whole number"):
            env.run(model(server), n)


# --- TRL

EXTRA = {"trainer_state": None, "log_extra": print, "log_metric": print, "completion_ids": [[1]] * 3}


@pytest.mark.parametrize("column", ["id", "problem"])
@pytest.mark.parametrize("conversational", [False, True])
def test_trl_gets_one_reward_a_completion(column, conversational):
    items = [*problems(2), Problem(id="f", problem="f?", reference="Paris, France")]
    texts = [r"\boxed{0}", r"\boxed{7}", r"\boxed{Paris}"]
    completions = [[{"role": "assistant", "content": t}] for t in texts] if conversational else texts
    reward = Environment(items).as_trl_reward()
    columns = {column: [getattr(p, column) for p in items]}
    assert reward(prompts=["x"] * 3, completions=completions, **columns, **EXTRA) == [1.0, 0.0, None]
    assert reward.__name__ == "verified_answer"


def test_trl_rewards_survive_a_verifier_that_breaks():
    items = problems(3)
    reward = Environment(items, Scripted()).as_trl_reward()
    given = reward(prompts=["x"] * 3, completions=["right", "crash", "wrong"], id=[p.id for p in items])
    assert given == [1.0, None, 0.0]


def test_one_odd_completion_never_ends_a_training_step():
    """Nothing said, a call of a tool without text, and the parts of a vision model's turn."""
    items = problems(4)
    parts = [{"type": "text", "text": rf"It is \boxed{{{items[3].reference}}}."}, {"type": "image"}]
    completions = [
        [],
        [{"role": "assistant", "tool_calls": []}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": parts}],
    ]
    reward = Environment(items).as_trl_reward()
    assert reward(prompts=["x"] * 4, completions=completions, id=[p.id for p in items]) == [
        0.0,
        0.0,
        0.0,
        1.0,
    ]


@pytest.mark.parametrize(
    ("odd", "reward"),
    [
        ([r"\boxed{0}"], 1.0),
        ([{"content": [r"\boxed{0}"]}], 1.0),
        ({"role": "assistant", "content": r"\boxed{0}"}, 1.0),
        (None, 0.0),
        ([None], 0.0),
        ([{"content": [None]}], 0.0),
        ([{"content": [{"type": "text", "text": 3}]}], 0.0),
        ([{"content": 5}], 0.0),
        ([{"content": {"text": "x"}}], 0.0),
        (7, 0.0),
        (b"x", 0.0),
    ],
)
def test_what_holds_no_text_is_an_empty_completion(odd, reward):
    items = problems(2)
    given = Environment(items).as_trl_reward()(
        prompts=["x"] * 2, completions=[odd, r"\boxed{2}"], id=["p0", "p1"]
    )
    assert given == [reward, 1.0]


def test_trl_is_told_of_ids_that_are_other_problems():
    reward = Environment(
        [{"problem": "2+2?", "reference": "4"}, {"problem": "3+3?", "reference": "6"}]
    ).as_trl_reward()
    given = {"prompts": ["x"] * 2, "completions": [r"\boxed{6}", r"\boxed{4}"], "problem": ["3+3?", "2+2?"]}
    assert reward(**given) == reward(**given, id=[1, 0]) == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"another problem with id '0' .*'3\+3\?', not '2\+2\?'"):
        reward(**given, id=[0, 1])


def test_trl_is_told_what_its_data_set_lacks():
    reward = Environment(problems(1)).as_trl_reward()
    with pytest.raises(ValueError, match="column 'id' or 'problem'"):
        reward(prompts=["x"], completions=["y"], solution=["0"])
    with pytest.raises(ValueError, match="no problem with id 'p9'"):
        reward(prompts=["x"], completions=["y"], id=["p9"])


def test_the_kept_problems_of_a_synthesis_run_are_its_problems(tmp_path):
    kept = {"index": 0, "id": "few_shot-00000", "problem": "2 + 2?", "reference": "4", "accepted": True}
    dropped = {**kept, "index": 1, "id": "few_shot-00001", "accepted": False, "drop_reason": "repeated"}
    with RunFolder(tmp_path / "s", {"pipeline": "synthesize"}) as folder:
        for record in (kept, dropped):
            folder.append(Row(**record, metadata={"synthesis": {}, "solution_code": "print(4)"}))
    env = Environment(open_run(tmp_path / "s"))
    assert env.reset().id == "few_shot-00000" and env.step(r"\boxed{4}").reward == 1.0
