"""A self-improvement run read from disk: by `open_run`, the command line, a TraceBrowser, as frames."""

from __future__ import annotations

import json

import pandas
import pytest
from scripted_loop import script, verdict

import cotkit
from cotkit import cli
from cotkit.pipelines import SelfImprovement
from cotkit.runs import labels_frame, read_lines
from cotkit.widgets import TraceBrowser


def refined(request):
    """A critic that gives 5, and an improver that is always right."""
    if "response_format" in request.body:
        return verdict(5, "Add it up again.")
    return script(request)


@pytest.fixture
def loop(world):
    """Two cycles of data, with refinements."""
    world.answer = refined
    options = {"critics": [world.model("judge-5")], "improver": world.model("improver-100")}
    return world.improve(cycles=2, iterations=1, score_threshold=0.3, replay_fraction=0, **options)


def test_a_loops_folder_is_opened_as_what_it_is(loop):
    read = cotkit.open_run(loop.path)
    assert type(read) is SelfImprovement and read.report == loop.report
    assert [row.id for row in read.records()] == [row.id for row in loop.records()] != []
    assert len(read.rows) + len(read.drops) == len(read.records()) == 24
    assert type(cotkit.open_run(loop.path / "cycle-00" / "generate")) is cotkit.Run
    assert "SelfImprovement(" in repr(read) and "24 given" not in repr(cotkit.Run(loop.path))


def test_its_kept_traces_are_exported_from_python_and_from_the_shell(loop, tmp_path, capsys):
    report = loop.export(tmp_path / "a.jsonl", policy="all_accepted", metadata=True)
    accepted = [c for row in loop.records() for c in row.candidates if c.accepted]
    assert report.rows == report.given - sum(report.drops.values()) > 12
    assert report.rows + report.drops.get("duplicate", 0) == len(accepted)
    command = ["export", str(loop.path), "-o", str(tmp_path / "b.jsonl"), "--policy", "all_accepted"]
    assert cli.main(command) == 0
    sides = [[row["messages"] for row, _ in read_lines(tmp_path / name)] for name in ("a.jsonl", "b.jsonl")]
    assert sides[0] == sides[1] and len(sides[0]) == report.rows
    card = (tmp_path / "README.md").read_text()
    assert "Given, kept and dropped (traces)" in card and f"| given | {loop.report['given']} |" in card
    assert cli.main(["show", str(loop.path)]) == 0
    shown = capsys.readouterr().out
    assert f"{loop.report['given']} given = {loop.report['kept']} kept" in shown
    assert "cycle 1: ok; data only" in shown


def test_an_export_that_would_write_nothing_is_an_error_that_says_why(world, tmp_path, capsys):
    loop = world.improve(num_generations=1)
    target = tmp_path / "pairs.jsonl"
    target.write_text("of before\n")
    assert cli.main(["export", str(loop.path), "-o", str(target), "--format", "trl_dpo"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "pairs.jsonl was not written: the data set is empty: 12 single_trace" in err
    assert "trl_dpo, policy correct_vs_wrong" in err and target.read_text() == "of before\n"
    assert loop.export(target, format="trl_dpo").warnings == ["the data set is empty: 12 single_trace"]


def test_attempts_are_one_line_a_trace_with_what_was_said_of_it(loop):
    frame, rows = cotkit.open_run(loop.path).attempts, loop.records()
    assert len(frame) == sum(len(row.candidates) for row in rows)
    assert frame["cycle"].value_counts().to_dict().keys() == {0, 1}
    first, line = rows[0].candidates[0], frame.iloc[0]
    assert (line["id"], line["trace"], line["iteration"]) == (rows[0].id, first.trace, 0)
    assert (line["prompt"], line["prompt_hash"]) == (first.prompt["name"], first.prompt["hash"])
    assert line["model"] == "actor-40" and pandas.isna(line["parent"])
    assert line["correct"] == first.verdict.correct and line["accepted"] == first.accepted
    later = frame[frame["stage"] == "refine"]
    assert len(later) and later["parent"].notna().all() and set(later["model"]) == {"improver-100"}
    assert set(frame["score_mean"].dropna()) == {0.5} and frame["score_clarity"].notna().any()


def test_triples_are_attempt_critique_and_what_became_of_it(loop):
    triples, attempts = loop.triples, loop.attempts
    assert len(triples) == (attempts["stage"] == "refine").sum() > 0
    by_place = attempts.set_index(["cycle", "id", "candidate"])
    for line in triples.to_dict("records"):
        improved = by_place.loc[(line["cycle"], line["id"], line["candidate"])]
        attempt = by_place.loc[(line["cycle"], line["id"], improved["parent"])]
        assert (line["attempt"], line["critique"]) == (attempt["trace"], attempt["feedback"])
        assert line["improved"] == improved["trace"] and f"PID={line['id'][1:]};" in line["problem"]
        assert line["became_right"] == (improved["correct"] and not attempt["correct"])
    assert triples["became_right"].all() and triples["critique"].str.len().min() > 0


def test_a_trace_browser_goes_through_all_cycles_and_labels_each_in_its_own(loop):
    browser = TraceBrowser(str(loop.path))
    assert len(browser.traces.lines) == 24
    twice = next(id for id in [row.id for row in loop.records()] if _times(loop, id) == 2)
    browser.show(search=f"{twice} ")
    cycles = []
    for _ in range(2):
        cycles.append(browser.traces.cycle)
        assert browser.traces.row.id == twice and f"cycle {browser.traces.cycle}" in browser.where()
        browser.label("good" if browser.traces.cycle else "bad", candidate=0)
        browser.next()
    assert cycles == [0, 1]
    again = TraceBrowser(cotkit.open_run(loop.path))
    again.show(label="bad")
    assert [(line.id, line.part) for line in again.traces.chosen] == [(twice, 0)]
    assert sorted(labels_frame(loop)["label"]) == ["bad", "good"]
    assert (loop.path / "cycle-01" / "generate" / "labels.jsonl").is_file()
    chosen = list(read_lines(again.export(loop.path / "chosen.jsonl")))
    assert [record["id"] for record, _ in chosen] == [twice]


def _times(loop, id):
    return sum(row.id == id for row in loop.records())


def test_the_key_of_a_request_is_of_the_words_as_they_were_sent(world):
    """A prompt's hash is of its source; rendered with other examples it is another request."""
    runs = []
    for number in (1, 2):
        shown = f"{number} + {number} = {2 * number}. The answer is \\boxed{{{2 * number}}}."
        examples = [{"problem": f"What is {number} + {number}?", "trace": shown}]
        runs.append(world.improve(few_shot_examples=examples, run=f"run-{number}"))
    hashes = [set(run.attempts["prompt_hash"]) for run in runs]
    lines = [[line for line, _ in read_lines(run.parts[0].path / "calls.jsonl")] for run in runs]
    keys = [{answer["key"] for line in each for answer in line["answers"]} for each in lines]
    assert hashes[0] == hashes[1] and len(keys[0]) == len(keys[1]) > 12 and not keys[0] & keys[1]


def test_a_run_that_is_under_way_or_was_killed_says_what_is_over(loop):
    whole = loop.report
    (loop.path / "report.json").unlink()
    (loop.path / "cycle-01" / "report.json").unlink()
    read = cotkit.open_run(loop.path).report
    (first,) = read["cycles"]
    assert first == whole["cycles"][0] and read["given"] == first["counts"]["generated"] < whole["given"]
    assert read["given"] == read["kept"] + sum(read["drops"].values())
    assert read["complete"] is False and "killed" in read["stopped"]
    assert len(cotkit.open_run(loop.path).records()) == 24  # the traces of the second are there


def test_a_report_of_before_is_not_taken_for_one_of_now(loop):
    """The same folder, gone on with for a third cycle and killed in it."""
    (loop.path / "cycle-02").mkdir()
    read = cotkit.open_run(loop.path).report
    assert read["complete"] is False and read["given"] == loop.report["given"]
    assert [cycle["cycle"] for cycle in read["cycles"]] == [0, 1]


def test_thresholds_are_tuned_on_all_cycles_of_one_judge_and_of_no_two(world):
    from cotkit.analysis import scored_frame

    one = world.improve(critics=[cotkit.StepJudge()], cycles=2, run="one")
    frame = scored_frame(one.path)
    assert set(frame["run"]) == {"one/cycle-00/generate", "one/cycle-01/generate"}
    world.answer = refined
    two = world.improve(critics=[world.model("judge-5")], cycles=2, score_threshold=0.3, run="two")
    with pytest.raises(ValueError, match="not judged alike"):
        scored_frame(two.path)


def test_a_plain_run_has_attempts_and_triples_without_a_cycle(loop):
    run = cotkit.Run(loop.path / "cycle-00" / "generate")
    of_loop = loop.attempts
    same = run.attempts.drop(columns="cycle")
    assert run.attempts["cycle"].isna().all()
    pandas.testing.assert_frame_equal(same, of_loop[of_loop["cycle"] == 0].drop(columns="cycle"))
    assert len(run.triples) == (loop.triples["cycle"] == 0).sum()
    json.dumps(run.triples.to_dict("records"), default=str)
