"""compare_strategies from runs to frames: the paper's rates played and measured, solvers, kernels, resume."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from mock_server import Reply
from strategy_script import (
    PHYSICS,
    SOLVED,
    model,
    run_in_no_sandbox,
    seeds,
    solver_script,
    strategy_script,
)

import cotkit
from cotkit import ChatModel
from cotkit.pipelines.compare import AT_ONCE, Comparison


@pytest.fixture
def made(serve, tmp_path, monkeypatch):
    """`made(attempts)` -> {strategy: its run}."""
    monkeypatch.setattr("cotkit.pipelines.programs.arun_python", run_in_no_sandbox)

    def make(attempts, judge=True, names=PHYSICS):
        runs = {}
        for name in names:
            playing = model(serve(strategy_script(name)), max_concurrency=32)
            options = {"attempts": attempts, "calibrate_judge": 0, "show": "none", "run": tmp_path / name}
            runs[name] = cotkit.synthesize(seeds(), name, playing, playing if judge else None, **options)
        return runs

    return make


def test_the_papers_physics_rates_come_out_within_their_intervals_and_in_order(made):
    found = cotkit.compare_strategies(made(300), seeds=seeds(), sample=30)
    table = found.reliability.set_index("strategy")
    assert (table["attempts"] == 300).all() and (table["failed"] == 0).all()
    for name, (passes, rejected) in PHYSICS.items():
        assert table["accepted_share_low"][name] <= passes <= table["accepted_share_high"][name]
        lines = found.funnel[found.funnel["strategy"] == name].set_index("step")
        lost = lines.loc["judged", "reasons"].get("judge_rejected", 0) / 300
        assert abs(lost - rejected) < 0.06
    assert table["accepted_share"].is_monotonic_decreasing
    assert (found.differences["difference_high"] < 0).all() and (
        found.differences["shared_seeds"] == 12
    ).all()


def test_what_runs_differ_in_beside_the_strategy_is_said_by_name(made, serve, tmp_path):
    runs = made(12, names=["few_shot", "self_instruct"])
    assert Comparison(runs, seeds=seeds()).result().unlike == []  # a strategy's own gates are no difference
    other = ChatModel("other", base_url=serve(strategy_script("few_shot")).base_url)
    options = {"attempts": 12, "calibrate_judge": 0, "show": "none", "run": tmp_path / "odd", "seed": 3}
    options |= {"temperature": 0.5, "gates": {"near": 0.5}}
    runs["odd"] = cotkit.synthesize(seeds()[:6], "few_shot", other, None, **options)
    found = cotkit.compare_strategies(runs, seeds=seeds()[:6])
    said = "\n".join(found.unlike)
    for part in ("seeds or their order", "gate near", "sampling", "model of the generator"):
        assert f"differ in their {part} (few_shot " in said
    assert "differ in their model of the judge (few_shot mock" in said and "odd none)" in said
    assert "votes" not in said and "prompt" not in said
    assert "6 of the 12 seeds of few_shot are not among those compared with" in said
    assert set(found.unlike) <= set(found.findings())
    assert "Not a ranking" in cotkit.analysis.recommend(found, 10).text


def test_difficulty_comes_from_the_solver_with_equal_k_and_a_second_call_asks_nothing(made, serve, tmp_path):
    runs, server = made(60, judge=False), serve(solver_script())
    other = serve(solver_script(dict.fromkeys(SOLVED, 0.97)))
    options = {"second_solver": model(other), "k": 3, "run": tmp_path / "compared", "show": "none"}
    found = cotkit.compare_strategies(runs, model(server), seeds(), **options)
    table = found.difficulty.set_index("set")
    for name, rate in SOLVED.items():
        assert table["solve_rate_low"][name] <= rate <= table["solve_rate_high"][name]
    assert table["problems"]["seeds"] == 12 and table["undecided"].sum() == 0
    assert found.discrimination.set_index("set")["difference_low"]["evol_instruct"] > 0.2
    accepted = found.reliability["accepted"].sum()
    assert server.calls == other.calls == 3 * (accepted + 12)
    again = cotkit.compare_strategies(runs, model(server), seeds(), **options)
    assert server.calls == 3 * (accepted + 12) and again.difficulty.equals(found.difficulty)
    assert (tmp_path / "compared" / "solver" / "rows.jsonl").exists()


def test_without_a_solver_difficulty_is_left_out_and_said(made):
    found = cotkit.compare_strategies(made(8, judge=False, names=["few_shot"]))
    assert (found.difficulty["problems"] == 0).all()
    assert "No solver was asked: nothing is known of difficulty." in found.findings()
    assert "No seeds were given" in "\n".join(found.notes)


def test_it_can_be_awaited(made, serve, tmp_path):
    runs, server = made(8, judge=False, names=["few_shot"]), serve(solver_script())
    options = {"k": 2, "run": tmp_path / "compared", "show": "none", "kernel": lambda t: [[1.0]] * len(t)}
    found = asyncio.run(cotkit.acompare_strategies(runs, model(server), seeds(), **options))
    assert found.reliability["attempts"].iloc[0] == 8 and found.inside["vendi"].max() < 1.001
    assert server.calls == 2 * found.difficulty["problems"].sum()


def test_a_spent_budget_leaves_every_set_as_many_solved_problems(made, serve, tmp_path):
    server = serve(solver_script())
    options = {"k": 2, "budget_calls": 24, "run": tmp_path / "compared", "show": "none"}
    found = cotkit.compare_strategies(
        made(20, judge=False), model(server, max_concurrency=1), seeds(), **options
    )
    assert server.calls <= 24
    solved = found.difficulty["problems"]
    assert solved.min() >= 2 and solved.max() - solved.min() <= 1
    assert any("lack 2 decided drafts" in note for note in found.notes)


def test_questions_of_several_sets_are_asked_once_and_those_with_two_answers_never_count(made, tmp_path):
    runs = made(8, judge=False, names=["few_shot"])
    path = runs["few_shot"].path / "rows.jsonl"
    twin = tmp_path / "twin"
    twin.mkdir()
    (twin / "config.json").write_bytes((runs["few_shot"].path / "config.json").read_bytes())
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["reference"] = "-5"
    (twin / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = Comparison({**runs, "twin": twin}, seeds=seeds())
    assert len(asked.problems) == 12 + len(rows)
    assert asked.ambiguous == {rows[0]["problem"]}


def test_a_kernel_of_ones_own_is_asked_once_for_each_text(made, tmp_path):
    seen = []

    def alike(texts):
        seen.extend(texts)
        return [[1.0, 0.001 * len(text)] for text in texts]

    options = {"kernel": alike, "run": tmp_path / "compared"}
    runs = made(20, judge=False, names=["few_shot"])
    found = cotkit.compare_strategies(runs, seeds=seeds(), **options)
    assert found.questions.kernel.name == "alike" and found.inside["vendi"].max() < 1.1
    assert len(seen) == len(set(seen)) == 12 + found.reliability["accepted"].iloc[0]


def test_two_functions_of_one_name_never_get_each_others_vectors(made, tmp_path):
    runs, options = made(12, judge=False, names=["few_shot"]), {"run": tmp_path / "compared"}

    class Encoder:
        def __init__(self, kinds):
            self.kinds = kinds

        def encode(self, texts):
            return [[float(n % self.kinds == at) for at in range(9)] for n in range(len(texts))]

    one, nine = Encoder(1), Encoder(9)
    for first, second in (
        (one.encode, nine.encode),
        (lambda texts: one.encode(texts), lambda texts: nine.encode(texts)),
    ):
        alike, apart = (
            cotkit.compare_strategies(runs, seeds=seeds(), kernel=kernel, **options).inside["vendi"]
            for kernel in (first, second)
        )
        assert alike.max() < 1.001 < apart.min()


def test_vectors_are_kept_by_model_and_whole_address(made, serve, tmp_path):
    def script(request):
        size = len(request.body["model"]) + 9 * request.path.startswith("/other")
        return embeddings(request, [1.0] * size)

    server, runs = serve(script), made(4, judge=False, names=["few_shot"])
    other = server.base_url.replace("/v1", "/other/v1")
    kernels = [{"model": m, "base_url": url} for m, url in (("e", server.base_url), ("ee", server.base_url))]
    kernels.append({"model": "e", "base_url": other})
    found = []
    for kernel in [*kernels, *kernels[-1:]]:
        compared = cotkit.compare_strategies(runs, seeds=seeds(), kernel=kernel, run=tmp_path / "compared")
        found.append((compared.questions.kernel.vectors.shape[1], server.calls))
    assert found == [(1, 1), (2, 2), (10, 3), (10, 3)]  # the last one asks nothing


def embeddings(request, vector=None):
    vectors = [vector or [1.0, len(text)] for text in request.body["input"]]
    data = [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(vectors)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": data[::-1], "model": "e", "usage": usage}
    return Reply(raw=json.dumps(body).encode())


def test_no_model_waits_for_another_one(made, serve, tmp_path):
    """The first call of each of the three is answered only when all three were asked."""
    together, first = threading.Barrier(3, timeout=20), set()

    def meets(name, script):
        def reply(request):
            if name not in first:
                first.add(name)
                together.wait()
            return script(request)

        return serve(reply)

    solver, other, vectors = meets("a", solver_script()), meets("b", solver_script()), meets("c", embeddings)
    kernel = {"model": "e", "base_url": vectors.base_url}
    options = {"second_solver": model(other, max_concurrency=1), "kernel": kernel, "k": 1, "show": "none"}
    runs = made(4, judge=False, names=["few_shot"])
    found = cotkit.compare_strategies(
        runs, model(solver, max_concurrency=1), seeds(), run=tmp_path / "compared", **options
    )
    assert solver.calls == other.calls == found.difficulty["problems"].sum()


def test_requests_for_embeddings_do_not_wait_for_each_other(made, serve, tmp_path, monkeypatch):
    monkeypatch.setattr("cotkit.pipelines.compare.BATCH", 2)
    together = threading.Barrier(AT_ONCE, timeout=20)

    def script(request):
        if request.number < AT_ONCE:
            together.wait()
        return embeddings(request)

    server = serve(script)
    kernel = {"model": "e", "base_url": server.base_url}
    runs = made(12, judge=False, names=["few_shot"])
    found = cotkit.compare_strategies(runs, seeds=seeds(), kernel=kernel, run=tmp_path / "compared")
    assert server.calls > AT_ONCE == server.peak
    texts = [text for request in server.log for text in request.body["input"]]
    assert sorted(texts) == sorted(set(texts)) and found.inside["vendi"].notna().any()


def test_an_interrupt_ends_the_solvers_too_and_the_same_call_goes_on(made, serve, tmp_path, capsys):
    """It comes while the kernel is computed, in the caller's thread."""
    server, asked = serve(solver_script()), threading.Event()

    def script(request):
        asked.set()
        return solver_script()(request)

    server.script = script

    def interrupted(texts):
        assert asked.wait(20)  # the solver works meanwhile
        raise KeyboardInterrupt

    runs = made(20, judge=False, names=["few_shot"])
    options = {"k": 1, "run": tmp_path / "compared", "show": "none"}
    with pytest.raises(KeyboardInterrupt):
        cotkit.compare_strategies(runs, model(server), seeds(), kernel=interrupted, **options)
    assert "the same call goes on" in capsys.readouterr().out
    found = cotkit.compare_strategies(runs, model(server), seeds(), **options)
    assert found.difficulty["problems"].sum() == found.reliability["accepted"].sum() + 12
    answered = {json.dumps(request.body, sort_keys=True) for request in server.log}
    assert server.calls - len(answered) <= 16  # but what was in flight, nothing is asked twice


@pytest.mark.parametrize("awaited", [False, True])
def test_a_kernel_that_fails_ends_the_solvers_with_what_is_in_flight(made, serve, tmp_path, awaited):
    runs, solve = made(20, judge=False, names=["few_shot"]), solver_script()
    asked, failed = threading.Event(), threading.Event()

    def script(request):
        asked.set()
        failed.wait(20)
        return Reply(solve(request), delay=0.3)

    def broken(texts):
        asked.wait(20)
        failed.set()
        raise OSError("no such space")

    server = serve(script)
    given = runs, model(server, max_concurrency=2), seeds()
    options = {"k": 1, "kernel": broken, "run": tmp_path / "compared", "show": "none"}
    with pytest.raises(OSError, match="no such space"):
        if awaited:
            asyncio.run(cotkit.acompare_strategies(*given, **options))
        else:
            cotkit.compare_strategies(*given, **options)
    solved = cotkit.open_run(tmp_path / "compared" / "solver")
    assert len(solved.records()) == server.calls <= 2
    assert solved.report["stopped"] == "the kernel failed (OSError)"


def test_the_solvers_can_run_in_shards(made, serve, tmp_path):
    runs, server = made(8, judge=False, names=["few_shot"]), serve(solver_script())
    options = {"k": 1, "run": tmp_path / "compared", "show": "none", "shards": 2}
    with ThreadPoolExecutor(2) as executor:
        found = cotkit.compare_strategies(runs, model(server), seeds(), executor=executor, **options)
    assert found.difficulty["problems"].sum() == server.calls == found.reliability["accepted"].sum() + 12
    assert len(list((tmp_path / "compared" / "solver" / "shards").glob("*/rows.jsonl"))) == 2


def test_an_embeddings_endpoint_is_a_kernel(made, serve, tmp_path):
    server = serve(embeddings)
    kernel = {"model": "e", "base_url": server.base_url}
    runs = made(20, judge=False, names=["few_shot"])
    found = cotkit.compare_strategies(runs, seeds=seeds(), kernel=kernel, run=tmp_path / "compared")
    assert server.log[0].path.endswith("/embeddings") and found.questions.kernel.name.startswith(
        "e at 127.0.0.1"
    )
    assert found.inside["vendi"].notna().any()


def test_a_refused_key_stays_out_of_the_error(made, serve, tmp_path, monkeypatch):
    key = "sk-strategies-0123456789abcdef"
    monkeypatch.setenv("MY_KEY", key)
    server = serve(lambda request: Reply(status=401, error=f"Incorrect API key provided: {key}"))
    kernel = {"model": "e", "base_url": server.base_url, "api_key_env": "MY_KEY"}
    runs = made(4, judge=False, names=["few_shot"])
    with pytest.raises(cotkit.ModelError) as caught:
        cotkit.compare_strategies(runs, seeds=seeds(), kernel=kernel, run=tmp_path / "compared")
    assert caught.value.kind == "auth" and key not in str(caught.value) and caught.value.__context__ is None


def test_half_a_character_in_a_question_or_an_answer_stops_nothing(serve, tmp_path, monkeypatch, capsys):
    """A lone surrogate is kept as it is in the files, and shown as U+FFFD."""
    half = "\ud83d"
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    monkeypatch.setattr("cotkit.pipelines.programs.arun_python", run_in_no_sandbox)
    right = strategy_script("few_shot")

    def spoilt(request):
        is_text = "response_format" not in request.body and "Python program" not in request.system
        return right(request) + f" {half}" if is_text else right(request)

    problems = [
        p.model_copy(update={"id": half + p.id, "problem": p.problem + half, "metadata": {"topic": half}})
        for p in seeds()
    ]
    server, vectors = serve(spoilt), serve(embeddings)
    options = {"attempts": 12, "calibrate_judge": 2, "show": "none", "run": tmp_path / "r", "lag": 4}
    run = cotkit.synthesize(problems, "self_instruct", model(server), model(server), **options)
    assert run.report["kept"] >= 10 and half in run.rows["problem"].iloc[0]
    made = cotkit.synthesized_problems(run)
    assert half in made[0].problem and cotkit.load_problems(made)[0].problem == made[0].problem
    asked = {"solver": model(server), "second_solver": model(server), "k": 1, "show": "none"}
    kernel = {"model": "e", "base_url": vectors.base_url}
    for n, like in enumerate(("tfidf", kernel)):
        where = {"run": tmp_path / f"compared{n}", "kernel": like}
        found = cotkit.compare_strategies({"self_instruct": run}, seeds=problems, **asked, **where)
        assert found.difficulty["problems"].sum() == len(made) + len(problems) == len(found.solve_rates)
    from cotkit.report import Report

    report = Report("half", {})
    for name in ("solve_rates", "coverage", "funnel", "reliability"):
        report.table(getattr(found, name), name)
    report.table([{"problem": p.problem, "reference": p.reference} for p in made], "problems")
    found._repr_html_().encode()
    assert half not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": 0}, ValueError, "k must be a whole number"),
        ({"sample": 2}, ValueError, "sample must be"),
        ({"hard": 1.5}, ValueError, "solve rate up to which"),
        ({"kernel": "bert"}, ValueError, "kernel must be"),
        ({"kernel": {"model": "e", "url": "x"}}, ValueError, "kernel must be"),
        ({"second_solver": ChatModel("m", "http://127.0.0.1:9/v1")}, ValueError, "give both"),
        ({"kernel": {"model": ""}}, ValueError, "name of an embedding model"),
        ({"kernel": {"model": "e", "api_key_env": "NO_SUCH_KEY"}}, ValueError, "NO_SUCH_KEY"),
        ({"temperature": 1}, TypeError, "there is no solver"),
        ({"num_generations": 8}, TypeError, "'num_generations': k= is how many"),
        ({"max_iterations": 3}, TypeError, "'max_iterations': a solver's drafts are not refined"),
        ({"unchecked": "refuse"}, TypeError, "'unchecked': what nothing can check is kept"),
        ({"solver": "gpt"}, TypeError, "ChatModel"),
        ({"seeds": "no such file.jsonl"}, FileNotFoundError, ""),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_asked(made, change, error, words):
    runs = made(2, judge=False, names=["few_shot"])
    with pytest.raises(error, match=words or None):
        cotkit.compare_strategies(runs, **change)


def test_runs_must_be_runs_of_synthesize(made, tmp_path):
    with pytest.raises(TypeError, match="with at least one"):
        cotkit.compare_strategies({})
    with pytest.raises(ValueError, match="name of the baseline"):
        cotkit.compare_strategies({"seeds": tmp_path})


def test_nothing_accepted_is_a_comparison_too(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("cotkit.pipelines.programs.arun_python", run_in_no_sandbox)
    prose = serve(lambda request: "I would rather talk about the weather.")
    run = cotkit.synthesize(seeds(), "few_shot", model(prose), attempts=4, run=tmp_path / "r", show="none")
    found = cotkit.compare_strategies({"few_shot": run})
    line = found.reliability.iloc[0]
    assert (line["attempts"], line["accepted"]) == (4, 0) and math.isnan(line["calls_each"])
    assert "nan" not in "\n".join(found.findings())
