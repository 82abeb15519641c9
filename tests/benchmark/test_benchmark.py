"""`benchmark` against scripted endpoints: who is asked what, what a failure costs, what is resumed."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from mock_server import Reply

import cotkit
from cotkit import ChatModel, abenchmark, benchmark, open_run
from cotkit.analysis import BenchmarkReport
from cotkit.pipelines.benchmark import slug
from cotkit.problems import Problem


def problems(count, domains=("sums", "more sums")):
    return [
        Problem(
            id=f"p{n}",
            problem=f"PID={n}; what is {n} + {n}?",
            reference=str(2 * n),
            type=domains[n % len(domains)],
        )
        for n in range(1, count + 1)
    ]


def number(request):
    return int(request.user.split("PID=")[1].split(";")[0])


def solve(request):
    return f"\\boxed{{{2 * number(request)}}}"


def by_model(**scripts):
    """Each model has a script of its own."""
    return lambda request: scripts[request.body["model"]](request)


def models(server, *names, **options):
    return {name: ChatModel(name, server.base_url, max_retries=0, **options) for name in names}


def quiet(*arguments, **options):
    return benchmark(*arguments, **{"show": "none", **options})


def asked(server, model):
    return sum(request.body["model"] == model for request in server.log)


def totals(report):
    return report.table[report.table["domain"] == "all problems"].set_index("model")


def test_every_model_solves_every_problem_once_and_only_drafts(serve, tmp_path):
    server = serve(by_model(good=solve, poor=lambda r: "\\boxed{7}"))
    report = quiet(problems(6), models(server, "good", "poor"), run=tmp_path / "b")
    assert (asked(server, "good"), asked(server, "poor")) == (6, 6)
    assert totals(report)["right"].to_dict() == {"good": 6, "poor": 0}
    assert report.domains == ["more sums", "sums"] and not report.failed
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"good", "poor"}


def test_the_report_is_rebuilt_from_the_run_folders_alone(serve, tmp_path):
    server = serve(solve)
    report = quiet(problems(3), models(server, "m"), num_generations=2, run=tmp_path / "b")
    again = BenchmarkReport.from_runs({"m": open_run(tmp_path / "b" / "m")}, ks=(1, 2))
    assert again.table.equals(report.table) and again.passk.equals(report.passk) and report.ks == (1, 2)


def test_all_models_work_at_the_same_time(serve, tmp_path):
    together = threading.Barrier(3, timeout=20)

    def script(request):
        together.wait()  # answers only when all three models have asked
        return solve(request)

    server = serve(script)
    report = quiet(problems(2), models(server, "a", "b", "c", max_concurrency=1), run=tmp_path / "b")
    assert totals(report)["right"].to_list() == [2, 2, 2]


def test_a_failing_model_loses_nothing_of_the_others(serve, tmp_path):
    server = serve(by_model(good=solve, down=lambda r: Reply(status=401, error="no such key")))
    report = quiet(problems(4), models(server, "down", "good"), run=tmp_path / "b")
    assert totals(report)["right"].to_dict() == {"good": 4}
    assert list(report.failed) == ["down"] and "401" in report.failed["down"]
    assert "down is not complete" in report.findings()[0]


def test_a_fault_inside_one_models_run_is_told_beside_the_others(serve, tmp_path, monkeypatch):
    from cotkit.runs import RunFolder

    append = RunFolder.append

    def full(self, row):
        if self.path.name == "bad":
            raise OSError("No space left on device")
        append(self, row)

    monkeypatch.setattr(RunFolder, "append", full)
    report = quiet(problems(4), models(serve(solve), "bad", "good"), run=tmp_path / "b")
    assert totals(report)["right"].to_dict() == {"good": 4}
    assert report.failed == {"bad": "OSError: No space left on device"}


def test_problems_whose_calls_fail_are_counted_apart_and_asked_again(serve, tmp_path):
    down = [True]
    server = serve(lambda r: Reply(status=500, error="down") if down and number(r) == 2 else solve(r))
    report = quiet(problems(3), models(server, "m"), run=tmp_path / "b")
    line = totals(report).loc["m"]
    assert (line["right"], line["failed"], line["n"], line["accuracy"]) == (2, 1, 2, 1.0)
    down.clear()
    before = server.calls
    assert totals(quiet(problems(3), models(server, "m"), run=tmp_path / "b"))["right"].to_list() == [3]
    assert server.calls == before + 1


def test_the_same_call_asks_nothing_and_additions_ask_only_for_themselves(serve, tmp_path):
    server = serve(solve)
    quiet(problems(3), models(server, "a"), run=tmp_path / "b")
    quiet(problems(3), models(server, "a"), run=tmp_path / "b")
    assert server.calls == 3
    quiet(problems(3), models(server, "a", "new"), run=tmp_path / "b")
    assert (asked(server, "a"), asked(server, "new")) == (3, 3)
    report = quiet(problems(5), models(server, "a", "new"), run=tmp_path / "b")
    assert (asked(server, "a"), asked(server, "new")) == (5, 5) and len(report.problems) == 5


def test_without_a_name_the_same_options_resume_and_others_do_not(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    server = serve(solve)
    for temperature, calls in ((0.5, 2), (0.5, 2), (0.7, 4)):
        quiet(problems(2), models(server, "a"), temperature=temperature)
        assert server.calls == calls
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_total_budget_is_shared_alike(serve, tmp_path):
    server = serve(solve)
    report = quiet(problems(9), models(server, "a", "b"), budget_calls=8, run=tmp_path / "b")
    assert (asked(server, "a"), asked(server, "b")) == (4, 4)
    assert set(report.failed) == {"a", "b"} and "budget_calls=4" in report.failed["a"]
    assert report.unfinished == {"a": 5, "b": 5}


NAMES = [
    "plain-1.5b",
    "org/model",
    "org:model",
    "org-model",
    "Org-Model",
    "embedded:qwen2.5",
    "../..",
    "a" * 300,
    "模型",
    ".",
]


def test_folder_names_are_safe_and_their_own():
    slugs = [slug(name) for name in NAMES]
    assert len({s.lower() for s in slugs}) == len(NAMES) and slugs[0] == "plain-1.5b"
    for text in slugs:
        assert text.isascii() and not set(text) & set('/\\:*?"<>| ') and 0 < len(text) < 80 and text[0] != "."


def test_names_with_slashes_and_colons_keep_their_name_in_the_report(serve, tmp_path):
    server = serve(solve)
    named = {name: ChatModel("m", server.base_url) for name in NAMES[1:4]}
    report = quiet(problems(1), named, run=tmp_path / "b")
    assert report.models == NAMES[1:4] and len(list((tmp_path / "b").iterdir())) == 3


def test_a_list_of_models_goes_by_their_names(serve, tmp_path):
    server = serve(solve)
    report = quiet(problems(1), list(models(server, "a", "b").values()), run=tmp_path / "b")
    assert report.models == ["a", "b"]


M = ChatModel("m", "http://127.0.0.1:9/v1")
BAD = [
    ({"models": []}, ValueError, "models is empty"),
    ({"models": M}, TypeError, "or a list of ChatModels"),
    ({"models": {"m": "gpt-4o"}}, TypeError, "must be ChatModels, got str"),
    ({"models": {"": M}}, ValueError, "name must be a text"),
    ({"models": [M, M]}, ValueError, "two models are called 'm'"),
    ({"num_generations": 0}, ValueError, "num_generations"),
    ({"num_generations": 2, "ks": (1, 3)}, ValueError, "from 1 to num_generations = 2"),
    ({"ks": ()}, ValueError, "ks must be whole numbers"),
    ({"budget_calls": 1, "models": {"a": M, "b": M}}, ValueError, "leaves nothing for each of 2 models"),
    ({"budget_usd": 1.0}, ValueError, "price"),
    ({"temperature": -1}, ValueError, "temperature"),
    ({"temprature": 1}, TypeError, "temprature"),
    ({"verifier": "exact"}, TypeError, "must be a Verifier"),
    ({"show": "loud"}, ValueError, "show must be"),
    ({"resume": "must"}, ValueError, "resume='must'"),
    (
        {"few_shot_examples": [{"problem": problems(2)[1].problem, "trace": "\\boxed{4}"}]},
        ValueError,
        "few_shot_examples, item 0: it is the problem 'p2'",
    ),
]


@pytest.mark.parametrize(("options", "error", "says"), BAD, ids=[str(list(options)) for options, _, _ in BAD])
def test_what_cannot_work_is_refused_before_anything_is_asked(tmp_path, options, error, says):
    given = {"models": {"m": M}, "run": tmp_path / "b", **options}
    with pytest.raises(error, match=says):
        quiet(problems(2), given.pop("models"), **given)


def test_a_wrong_option_for_one_model_leaves_every_folder_free(serve, tmp_path):
    server = serve(solve)
    quiet(problems(2), models(server, "b"), run=tmp_path / "x")
    changed = {**models(server, "a"), "b": ChatModel("another", server.base_url)}
    with pytest.raises(ValueError, match="another"):
        quiet(problems(2), changed, run=tmp_path / "x")
    assert server.calls == 2  # a was not asked either
    assert totals(quiet(problems(2), models(server, "a", "b"), run=tmp_path / "x"))["right"].to_list() == [
        2,
        2,
    ]


@pytest.mark.filterwarnings("ignore:.*no reference")
def test_problems_nobody_can_check_are_refused_with_their_count(tmp_path):
    bare = [*problems(2), Problem(id="bare", problem="Write a poem.")]
    with pytest.raises(ValueError, match=r"1 of 3 problems have no reference answer .*first: id 'bare'"):
        quiet(bare, {"m": M}, run=tmp_path / "b")


def test_abenchmark_awaits_the_same(serve, tmp_path):
    server = serve(solve)
    report = asyncio.run(abenchmark(problems(2), models(server, "a"), run=tmp_path / "b", show="none"))
    assert totals(report)["right"].to_list() == [2]


def test_no_key_is_in_any_file_or_text(serve, tmp_path, monkeypatch):
    key = "sk-benchmark-0123456789"
    monkeypatch.setenv("BENCH_KEY", key)
    server = serve(by_model(good=solve, down=lambda r: Reply(status=401, error=f"bad key {key}")))
    both = {name: ChatModel(name, server.base_url, "BENCH_KEY", max_retries=0) for name in ("good", "down")}
    report = quiet(problems(2), both, run=tmp_path / "b")
    texts = [repr(report), report._repr_html_(), *report.findings(), json.dumps(report.failed)]
    texts += [file.read_bytes().decode("utf-8", "replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(key in text for text in texts)


DOMAINS = [
    "advanced_math",
    "advanced_physics",
    "finance",
    "graph_discrete_math",
    "mathematical_programming",
    "medicine",
]


def loongbench(folder):
    for name in DOMAINS:
        path = folder / "loongbench" / f"{name}.json"
        if not path.is_file():
            pytest.skip(f"no LoongBench rows of {name} in the test data")
        for problem in cotkit.load_problems(path, limit=15, duplicates="fix"):
            yield problem.model_copy(update={"id": f"{name}/{problem.id}"})


@pytest.mark.filterwarnings("ignore:.*duplicates")
def test_loongbench_references_are_judged_right_and_those_of_other_rows_wrong(shared_data, serve, tmp_path):
    rows = list(loongbench(shared_data))
    place = {problem.problem.strip(): number for number, problem in enumerate(rows)}

    def answer(shift):
        def script(request):
            number = place[request.messages[-1]["content"].strip()]
            return f"So the answer is \\boxed{{{rows[(number + shift) % len(rows)].reference}}}."

        return script

    server = serve(by_model(right=answer(0), other=answer(1)))
    report = quiet(rows, models(server, "right", "other"), run=tmp_path / "b")
    assert len(report.domains) == len(DOMAINS)
    lines = totals(report)
    assert lines.loc["right", "right"] + lines.loc["right", "undecided"] == len(rows) == 90
    assert lines.loc["right", "undecided"] <= 2
    same = sum(rows[n].reference.strip() == rows[(n + 1) % 90].reference.strip() for n in range(90))
    assert lines.loc["other", "right"] <= same + 1
