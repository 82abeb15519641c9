"""Diagnosing a judge: what is asked, cached, resumed and counted."""

from __future__ import annotations

import json
import threading

import pytest
from mock_server import Reply

import cotkit
from cotkit import ChatModel, LLMJudge, RewardModelJudge, StepJudge
from cotkit.pipelines.diagnose import PROBES
from cotkit.records import Candidate, Judgement, Row, Verdict
from cotkit.runs import RunFolder

PROBLEMS = 8
SCORINGS = 1 + 3 + len(PROBES)


def row(number: int, model: str = "writer") -> Row:
    trace = f"PID={number}; 2 * {number} = {2 * number}. The answer is \\boxed{{{2 * number}}}."
    right = Verdict(correct=number % 2 == 0, method="number")
    call = {"model": model}
    return Row(
        index=number,
        id=f"p{number}",
        problem=f"What is two times {number}?",
        reference=str(2 * number),
        candidates=[Candidate(iteration=0, trace=trace, text=trace, verdict=right, call=call)],
        final=0,
    )


ROWS = [row(number) for number in range(PROBLEMS)]


def says(score: int) -> str:
    return json.dumps({"overall": {"reason": "seen", "score": score}, "feedback": ""})


def llm(server, **options) -> LLMJudge:
    dimension = {"name": "overall", "guide": "is it right?", "scale": (0, 10)}
    return LLMJudge(ChatModel("mock", server.base_url, max_retries=0, **options), [dimension])


def means(diagnosis) -> dict[str, float]:
    found = diagnosis.probes[diagnosis.probes["dimension"] == "mean"]
    return found.set_index("probe")["shift"].to_dict()


def test_each_trace_is_scored_again_and_probed_and_never_answered_from_the_cache(serve, tmp_path):
    server = serve(lambda request: says(6))
    diagnosis = cotkit.diagnose_judge(ROWS, llm(server), run=tmp_path / "run", show="none")
    assert server.calls == PROBLEMS * SCORINGS
    assert max(request.nth for request in server.log) == 3  # asked once, and three times again
    assert len(diagnosis.scorings[diagnosis.scorings["dimension"] == "mean"]) == PROBLEMS * SCORINGS
    assert diagnosis.failed.n == PROBLEMS * SCORINGS and diagnosis.failed.successes == 0
    assert set(means(diagnosis).values()) == {0.0}
    again = cotkit.diagnose_judge(ROWS, llm(server), run=tmp_path / "run", show="none")
    assert server.calls == PROBLEMS * SCORINGS  # the same call again asks nothing
    assert again.traits.equals(diagnosis.traits)


def test_a_judge_that_falls_for_words_is_found_out_and_one_that_does_not_is_not(serve, tmp_path):
    def pleased(request):
        return says(9 if "very concise" in request.user or "10/10" in request.user else 5)

    fooled = cotkit.diagnose_judge(ROWS, llm(serve(pleased)), run=tmp_path / "a", show="none")
    shifts = means(fooled)
    assert shifts["flattery"] == pytest.approx(0.4) and shifts["injection"] == pytest.approx(0.4)
    assert shifts["padding"] == shifts["fake box"] == shifts["verified"] == 0
    assert [s for s in fooled.findings() if "fooled by the probe 'flattery'" in s and "+0.400" in s]
    upright = cotkit.diagnose_judge(ROWS, llm(serve(lambda r: says(5))), run=tmp_path / "b", show="none")
    assert not any("fooled" in sentence for sentence in upright.findings())
    assert any("No probe lifts the score of any of the 8" in sentence for sentence in upright.findings())


def test_noise_is_the_spread_within_a_trace(serve, tmp_path):
    def wavers(request):
        return says((4, 6, 4, 6)[request.nth])  # every trace: 0.4, 0.6, 0.4, 0.6

    diagnosis = cotkit.diagnose_judge(ROWS, llm(serve(wavers)), probes={}, run=tmp_path / "run", show="none")
    noise = diagnosis.traits.set_index("measure").loc["noise (standard deviation)"]
    assert noise["value"] == pytest.approx(0.115470, abs=1e-5) and noise["n"] == PROBLEMS
    assert diagnosis.probes.empty


def test_scorings_that_fail_are_counted_and_in_no_mean(serve, tmp_path):
    def breaks(request):
        return Reply(status=500) if "10/10" in request.user and "PID=1" in request.user else says(5)

    diagnosis = cotkit.diagnose_judge(ROWS, llm(serve(breaks)), run=tmp_path / "run", show="none")
    injection = diagnosis.probes.set_index(["probe", "dimension"]).loc[("injection", "mean")]
    assert injection["failed"] == 1 and injection["n"] == PROBLEMS - 1 and injection["shift"] == 0
    assert diagnosis.failed.successes == 1
    assert any(f"failed in 1 of {PROBLEMS * SCORINGS} scorings" in s for s in diagnosis.findings())


def test_a_budget_stops_it_and_the_rest_is_done_on_resume(serve, tmp_path):
    server = serve(lambda request: says(5))
    judge = llm(server, max_concurrency=1)
    half = cotkit.diagnose_judge(ROWS, judge, run=tmp_path / "run", budget_calls=40, show="none")
    assert server.calls == 40 and "not complete" in half.findings()[0]
    assert half.scorings["trace"].nunique() == 40 // SCORINGS
    whole = cotkit.diagnose_judge(ROWS, judge, run=tmp_path / "run", show="none")
    assert server.calls == PROBLEMS * SCORINGS and whole.missing == ""


def test_other_traces_in_the_same_folder_are_refused(serve, tmp_path):
    judge = llm(serve(lambda request: says(5)))
    cotkit.diagnose_judge(ROWS[:3], judge, run=tmp_path / "run", show="none")
    with pytest.raises(ValueError, match="traces_hash"):
        cotkit.diagnose_judge(ROWS[3:], judge, run=tmp_path / "run", show="none")


def test_a_share_of_many_traces_is_drawn_by_the_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [row(number) for number in range(400)]
    drawn = [
        set(cotkit.diagnose_judge(rows, StepJudge(), probes={}, seed=seed, show="none").scorings["trace"])
        for seed in (0, 0, 1)
    ]
    assert [len(traces) for traces in drawn] == [40, 40, 40]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_judge_without_a_model_costs_nothing_and_repeats_itself(tmp_path):
    diagnosis = cotkit.diagnose_judge(ROWS, StepJudge(), run=tmp_path / "run", show="none")
    noise = diagnosis.traits[diagnosis.traits["measure"] == "noise (standard deviation)"]
    assert (noise["value"] == 0).all() and set(noise["dimension"]) == {"mean", "steps", "consistency", "form"}
    assert "8 of 8 traces scored alike" in noise["reading"].iloc[0]
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["ledger"]["calls"] == 0


def test_a_reward_function_gets_every_form_of_the_trace(tmp_path):
    seen, lock = [], threading.Lock()

    def reward(problem, trace):
        with lock:
            seen.append(trace)
        return len(trace) / 10_000

    judge = RewardModelJudge(reward, scale=(0, 1), name="length")
    diagnosis = cotkit.diagnose_judge(ROWS[:4], judge, repeats=1, run=tmp_path / "run", show="none")
    plain = [r.candidates[0].trace for r in ROWS[:4]]
    assert sorted(seen) == sorted(
        [*plain, *plain, *(text.replace("{trace}", t) for t in plain for text in PROBES.values())]
    )
    assert means(diagnosis)["padding"] > means(diagnosis)["flattery"] > 0


def test_the_rows_of_several_runs_are_diagnosed_together(serve, tmp_path):
    server = serve(lambda request: f"{request.body['temperature']} The answer is \\boxed{{4}}.")
    runs = [
        cotkit.distill(
            [{"id": "a", "problem": "2 + 2?", "reference": "4"}],
            ChatModel("mock", server.base_url),
            run=tmp_path / name,
            temperature=float(at),
            show="none",
        )
        for at, name in enumerate(("one", "two"))
    ]
    diagnosis = cotkit.diagnose_judge(runs, StepJudge(), show="none")
    assert len(list(tmp_path.glob("diagnose-*/rows.jsonl"))) == 1  # beside the runs
    assert diagnosis.scorings["trace"].nunique() == 2 and set(diagnosis.scorings["problem"]) == {"a"}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"judge": "gpt"}, TypeError, "LLMJudge"),
        ({"data": []}, ValueError, "no trace"),
        ({"data": [{"id": 1}]}, TypeError, "Run.records"),
        ({"share": 0}, ValueError, "share"),
        ({"share": True}, ValueError, "share"),
        ({"repeats": 0}, ValueError, "repeats"),
        ({"probes": {"mine": "no place for it"}}, ValueError, "{trace}"),
        ({"show": "loud"}, ValueError, "show"),
    ],
)
def test_what_cannot_work_is_refused_before_any_call(options, error, words, tmp_path):
    given = {"data": ROWS, "judge": StepJudge(), "run": tmp_path / "run", "show": "none", **options}
    with pytest.raises(error, match=words):
        cotkit.diagnose_judge(given.pop("data"), given.pop("judge"), **given)
    assert not (tmp_path / "run").exists()


def pair_row(number: int, mixed: bool) -> Row:
    """Two traces of one problem: one right and one wrong, or both wrong."""
    made = row(number)
    made.candidates = [
        Candidate(
            iteration=0, trace=f"PID={number} {word}", text=word, verdict=Verdict(correct=right, method="n")
        )
        for word, right in (("GOOD", mixed), ("BAD", False))
    ]
    return made


PAIRS = [pair_row(number, mixed=number < 30) for number in range(40)]


def prefers(choose):
    """A model that compares two traces: `choose(where the good one stands)` is its word."""

    def script(request):
        good = "first" if request.user.index("GOOD") < request.user.index("BAD") else "second"
        return json.dumps({"reason": "seen", "better": choose(good)})

    return script


def compared(serve, tmp_path, choose, **options):
    server = serve(prefers(choose))
    model = ChatModel("mock", server.base_url, max_retries=0)
    found = cotkit.compare_traces(PAIRS, model, run=tmp_path / "run", show="none", **options)
    return found, found.table.set_index("measure"), server


def test_a_model_that_always_says_first_is_found_to_prefer_the_place(serve, tmp_path):
    found, table, server = compared(serve, tmp_path, lambda good: "first", pairs=40)
    assert server.calls == 80
    assert table.loc["first place preferred", ["value", "n"]].tolist() == [1, 80]
    assert table["value_low"]["first place preferred"] > 0.9
    assert table.loc["same choice", ["value", "n"]].tolist() == [0, 40]
    assert table.loc["right one chosen", ["value", "n"]].tolist() == [0.5, 60]
    said = " ".join(found.findings())
    assert "80 of 80 choices" in said and "it prefers the first place" in said and "0 of 40 pairs" in said


def test_a_consistent_model_prefers_no_place_and_its_choices_are_counted(serve, tmp_path):
    found, table, server = compared(serve, tmp_path, lambda good: good, pairs=20)
    assert table["value"].tolist() == [0.5, 1, 1]
    assert table["n"].tolist() == [40, 20, 40]  # problems with a right and a wrong trace come first
    low, high = table.loc["first place preferred", ["value_low", "value_high"]]
    assert low < 0.5 < high and "no preference of a place is shown" in found.findings()[0]
    again = ChatModel("mock", server.base_url, max_retries=0)
    again = cotkit.compare_traces(PAIRS, again, pairs=20, run=tmp_path / "run", show="none")
    assert server.calls == 40 and again.table.equals(found.table)


def test_a_model_that_calls_all_equal_chooses_no_place(serve, tmp_path):
    found, table, _ = compared(serve, tmp_path, lambda good: "equal", pairs=10)
    assert table["n"].tolist() == [0, 10, 20] and table["value"].tolist()[1:] == [1, 0]
    assert len(found.findings()) == 2


def test_comparisons_that_fail_are_counted_and_in_no_measure(serve, tmp_path):
    def fails(request):
        return Reply(status=500) if "PID=3 " in request.user else prefers(lambda good: good)(request)

    model = ChatModel("mock", serve(fails).base_url, max_retries=0)
    found = cotkit.compare_traces(PAIRS[:10], model, run=tmp_path / "run", show="none")
    assert found.failed.successes == 2 and found.table["n"].tolist() == [18, 9, 18]
    assert "failed in 2 of 20 comparisons" in found.findings()[0]


def test_a_model_that_always_fails_measures_nothing(serve, tmp_path):
    model = ChatModel("mock", serve(lambda request: Reply(status=400)).base_url, max_retries=0)
    found = cotkit.compare_traces(PAIRS[:3], model, run=tmp_path / "run", show="none")
    assert found.table["n"].tolist() == [0, 0, 0] and found.table["value"].isna().all()
    (sentence,) = found.findings()
    assert sentence.startswith("It failed in 6 of 6 comparisons")


def test_what_cannot_be_compared_is_refused_before_any_call(tmp_path):
    with pytest.raises(TypeError, match="ChatModel"):
        cotkit.compare_traces(PAIRS, StepJudge(), run=tmp_path / "run")
    model = ChatModel("mock", "http://127.0.0.1:9/v1")
    with pytest.raises(ValueError, match="two different traces"):
        cotkit.compare_traces(ROWS, model, run=tmp_path / "run")
    with pytest.raises(ValueError, match="pairs must be"):
        cotkit.compare_traces(PAIRS, model, pairs=0, run=tmp_path / "run")


def test_scores_of_another_judge_of_the_same_name_are_not_this_ones(tmp_path):
    constant = {0.2: (lambda p, t: 0.2), 1.0: (lambda p, t: 1.0)}
    judges = [RewardModelJudge(constant[x], scale=(0, 1 + n), name="j") for n, x in enumerate((0.2, 1.0))]
    assert judges[0].describe() != judges[1].describe()
    with RunFolder(tmp_path / "r", {"judge": json.loads(json.dumps(judges[0].describe()))}) as folder:
        for number in range(8):
            made = row(number)
            made.candidates[0].judgement = Judgement(scores={"reward": 0.2}, judge="j")
            folder.append(made)
    run = cotkit.open_run(tmp_path / "r")
    for judge, mean in zip(judges, ("mean score 0.20", "mean score 0.50"), strict=True):
        found = cotkit.diagnose_judge(run, judge, probes={}, show="none")
        assert any(mean in sentence for sentence in found.findings())


def test_pairs_of_which_one_order_failed_say_nothing_of_a_place(serve, tmp_path):
    def fails(request):
        good_first = request.user.index("GOOD") < request.user.index("BAD")
        return json.dumps({"reason": "", "better": "first"}) if good_first else Reply(status=400)

    model = ChatModel("mock", serve(fails).base_url, max_retries=0)
    found = cotkit.compare_traces(PAIRS[:10], model, run=tmp_path / "run", show="none")
    assert found.table["n"].tolist() == [0, 0, 0]
    assert "measured: 0 of 10" in found.findings()[0]


def test_two_traces_of_one_text_are_no_pair(tmp_path):
    made = pair_row(1, mixed=True)
    made.candidates[1].trace = made.candidates[0].trace
    with pytest.raises(ValueError, match="two different traces"):
        cotkit.compare_traces([made], ChatModel("mock", "http://127.0.0.1:9/v1"), run=tmp_path / "run")
