"""A run folder: what it refuses, what it resumes, and counts that add up."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest
from power_cut import Disk

from cotkit.problems import Problem
from cotkit.records import Candidate, Judgement, Row, Verdict
from cotkit.runs import (
    REPLACING,
    Run,
    RunError,
    RunFolder,
    add_label,
    counts_line,
    folder_name,
    labels_frame,
    open_run,
    read_labels,
    replaced_run,
    set_aside,
)

RIGHT, WRONG = (
    Verdict(correct=True, method="number"),
    Verdict(correct=False, method="number", reason="4, not 5"),
)


def problem(n, **changes):
    return Problem(**{"id": f"p{n}", "problem": f"What is {n} + {n}?", "reference": str(2 * n), **changes})


def row(n, accepted=True, reason="wrong_answer", retryable=False, **changes):
    candidate = Candidate(
        trace=f"It is \\boxed{{{2 * n}}}.",
        text=f"It is \\boxed{{{2 * n}}}.",
        answer=str(2 * n),
        answer_how="box",
        iteration=0,
        verdict=RIGHT if accepted else WRONG,
        judgement=Judgement(scores={"clarity": 0.75}),
        accepted=accepted,
    )
    fields = {
        **problem(n).model_dump(exclude={"solution_code"}),
        "index": n,
        "candidates": [candidate],
        "final": 0,
        "accepted": accepted,
        "drop_reason": None if accepted else reason,
        "retryable": retryable,
    }
    return Row(**{**fields, **changes})


def write(path, *rows, config=None, given=None, **options):
    with RunFolder(path, config or {"model": "m"}, **options) as folder:
        for item in rows:
            folder.append(item)
        return folder.write_report(len(rows) if given is None else given)


def test_kept_and_dropped_rows_add_up(tmp_path):
    report = write(tmp_path / "r", row(1), row(2, False), row(3, False, "truncated"), given=5)
    assert report["given"] == report["kept"] + sum(report["drops"].values()) == 5
    assert report["drops"] == {"truncated": 1, "wrong_answer": 1, "unfinished": 2}
    assert not report["complete"]
    run = open_run(tmp_path / "r")
    assert (list(run.rows.id), list(run.drops.id)) == (["p1"], ["p2", "p3"])
    assert list(run.drops.drop_reason) == ["wrong_answer", "truncated"]
    assert run.rows.score_clarity.tolist() == [0.75]
    assert "5 given = 1 kept + 2 dropped (1 truncated, 1 wrong_answer) + 2 unfinished" in repr(run)


def test_records_come_in_input_order_whatever_order_they_finished_in(tmp_path):
    write(tmp_path / "r", row(3), row(1, False), row(2))
    assert [r.id for r in open_run(tmp_path / "r").records()] == ["p1", "p2", "p3"]


@pytest.mark.parametrize("id", ["007", "1e5", "12345678901234567890", "a/b", "é🙂", " padded "])
def test_ids_stay_byte_for_byte(tmp_path, id):
    write(tmp_path / "r", row(1, id=id))
    assert open_run(tmp_path / "r").rows.id.tolist() == [id]
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        assert list(folder.done) == [id]


def test_an_empty_run_has_the_right_columns(tmp_path):
    write(tmp_path / "r", given=0)
    run = open_run(tmp_path / "r")
    assert {"id", "trace", "correct", "drop_reason"} <= set(run.rows.columns)
    assert len(run.rows) == len(run.drops) == 0


def test_another_configuration_is_refused_and_the_differing_keys_are_named(tmp_path):
    write(tmp_path / "r", row(1), config={"model": "a", "judge": {"name": "j", "scale": [0, 10]}, "seed": 0})
    with pytest.raises(RunError) as error:
        write(tmp_path / "r", config={"model": "b", "judge": {"name": "j", "scale": [0, 5]}, "seed": 0})
    text = str(error.value)
    assert "model: a -> b" in text and "judge.scale: [0, 10] -> [0, 5]" in text and "seed" not in text


def test_resume_never_sets_the_old_rows_aside(tmp_path):
    write(tmp_path / "r", row(1), config={"model": "a"})
    report = write(tmp_path / "r", row(2), config={"model": "b"}, resume="never")
    assert report["given"] == 1 and open_run(tmp_path / "r").rows.id.tolist() == ["p2"]
    assert Run(tmp_path / "r" / "superseded" / "1").rows.id.tolist() == ["p1"]


def test_resume_must_needs_a_run(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        write(tmp_path / "r", resume="must")
    with pytest.raises(ValueError, match="'auto', 'never' or 'must'"):
        write(tmp_path / "r", resume="yes")


def test_finished_problems_are_known_again(tmp_path):
    write(tmp_path / "r", row(1), row(2, False))
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        assert set(folder.done) == {"p1", "p2"}
        folder.check_problems([problem(1), problem(2), problem(3)])  # added: fine
        with pytest.raises(RunError, match="'p2', which is not among the 1 given"):
            folder.check_problems([problem(1)])
        with pytest.raises(RunError, match="problem 'p2' has changed"):
            folder.check_problems([problem(1), problem(2, reference="5")])


def test_problems_that_an_endpoint_failed_are_asked_again(tmp_path):
    write(tmp_path / "r", row(1), row(2, False), row(3, False, "model_server", retryable=True))
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        folder.begin()
        assert set(folder.done) == {"p1", "p2"}
        folder.append(row(3))
        report = folder.write_report(3)
    assert report["kept"] == 2 and report["drops"] == {"wrong_answer": 1}


def test_a_refused_resume_takes_nothing_away(tmp_path):
    write(tmp_path / "r", row(1), row(3, False, "model_server", retryable=True))
    before = (tmp_path / "r" / "drops.jsonl").read_bytes()
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder, pytest.raises(RunError, match="'p1'"):
        folder.check_problems([problem(9)])
    assert (tmp_path / "r" / "drops.jsonl").read_bytes() == before


def test_a_second_writer_is_told_to_wait(tmp_path):
    with (
        RunFolder(tmp_path / "r", {"model": "m"}),
        pytest.raises(RunError, match=r"another process .* is writing"),
    ):
        RunFolder(tmp_path / "r", {"model": "m"})
    with RunFolder(tmp_path / "r", {"model": "m"}):
        pass  # freed when the first one ended


def test_a_killed_writer_leaves_no_lock_behind(tmp_path):
    script = (
        "import os, signal, sys; from cotkit.runs import RunFolder;"
        "RunFolder(sys.argv[1], {'model': 'm'}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "r")], check=False)
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        assert not folder.done


def test_a_killed_run_can_be_read_without_a_report(tmp_path):
    write(tmp_path / "r", row(1), row(2, False))
    (tmp_path / "r" / "report.json").unlink()
    report = open_run(tmp_path / "r").report
    assert (report["given"], report["kept"], report["drops"]) == (2, 1, {"wrong_answer": 1})
    assert counts_line(report) == "2 given = 1 kept + 1 dropped (1 wrong_answer)"


def test_a_run_killed_after_an_early_report_is_counted_from_its_rows(tmp_path):
    write(tmp_path / "r", row(1), row(2, False), given=9)
    path = tmp_path / "r" / "report.json"
    stale = {"given": 9, "kept": 0, "drops": {"unfinished": 9}, "stopped": "running", "seconds": 5.0}
    path.write_text(json.dumps(stale))
    report = open_run(tmp_path / "r").report
    assert (report["kept"], report["drops"]) == (1, {"wrong_answer": 1, "unfinished": 7})
    assert report["seconds"] == 5.0 and "killed" in report["stopped"]


@pytest.mark.parametrize("retried", [False, True])
def test_a_run_killed_in_a_later_sitting_is_counted_from_its_rows(tmp_path, retried):
    """The report of the sitting before ended well, but is not about the rows that are there now."""
    write(tmp_path / "r", row(1), row(2, False, "model_server", retryable=True))
    folder = RunFolder(tmp_path / "r", {"model": "m"})
    if retried:
        folder.begin()
    folder.append(row(3))
    folder._lock.release()  # and here it was killed
    report = open_run(tmp_path / "r").report
    drops = {} if retried else {"model_server": 1}
    assert (report["given"], report["kept"], report["drops"]) == (2 + (not retried), 2, drops)
    assert not report["complete"] and "killed" in report["stopped"]


def test_problems_taken_out_of_the_drops_stay_out_after_a_power_cut(tmp_path, monkeypatch):
    """The folder itself is forced to disk before a row of theirs can be."""
    write(tmp_path / "r", row(1, False, "model_server", retryable=True))
    forced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (forced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file))
    )
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        folder.begin()
        assert forced[-1] == str(tmp_path / "r")


def test_a_new_run_is_on_the_disk_before_its_first_row(tmp_path, monkeypatch):
    """Rows without config.json could not be resumed."""
    (tmp_path / "runs").mkdir()
    disk = Disk(monkeypatch, tmp_path / "runs")
    with RunFolder(tmp_path / "runs" / "deep" / "r", {"model": "m"}) as folder:
        disk.after_a_cut(tmp_path / "first")
        folder.append(row(1))
        folder.sync()
        disk.after_a_cut(tmp_path / "later")
    assert write(tmp_path / "first" / "deep" / "r", row(1))["kept"] == 1
    assert write(tmp_path / "later" / "deep" / "r", row(2))["kept"] == 2


def test_what_was_set_aside_and_labels_outlast_a_power_cut(tmp_path, monkeypatch):
    write(tmp_path / "runs" / "r", row(1))
    disk = Disk(monkeypatch, tmp_path / "runs")
    add_label(open_run(tmp_path / "runs" / "r"), "p1", 0, "good")
    disk.after_a_cut(tmp_path / "labelled")
    set_aside(tmp_path / "runs" / "r")
    disk.after_a_cut(tmp_path / "aside")
    for old in (tmp_path / "labelled" / "r", tmp_path / "aside" / "r" / "superseded" / "1"):
        assert open_run(old).report["kept"] == 1 and len(read_labels(open_run(old))) == 1
    assert not (tmp_path / "aside" / "r" / "rows.jsonl").exists()


def test_an_error_on_closing_frees_the_folder(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "r", {"model": "m"})

    def fail(file):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken, pytest.raises(OSError, match=r"rows\.jsonl"):
        broken.setattr(os, "fsync", fail)
        folder.__exit__()
    with RunFolder(tmp_path / "r", {"model": "m"}):
        pass


def test_a_replaced_run_is_the_old_one_or_the_new_one(tmp_path):
    write(tmp_path / "r", row(1))
    (tmp_path / "r" / "labels.jsonl").write_text("{}\n")
    with pytest.raises(KeyError), replaced_run(tmp_path / "r", {"model": "n"}, runtime={}) as folder:
        folder.append(row(2))
        raise KeyError
    run = open_run(tmp_path / "r")
    assert run.config == {"model": "m"} and run.rows.id.tolist() == ["p1"]
    with replaced_run(tmp_path / "r", {"model": "n"}, runtime={"merged": []}) as folder:
        folder.append(row(2))
        with pytest.raises(RunError, match="another process"):
            RunFolder(tmp_path / "r", {"model": "m"})
        folder.write_report(1)
    assert run.config == {"model": "n"} and run.rows.id.tolist() == ["p2"] and run.report["complete"]
    assert (tmp_path / "r" / "labels.jsonl").exists() and not (tmp_path / "r" / REPLACING).exists()


def test_a_run_is_set_aside_with_its_labels_but_not_its_answers(tmp_path):
    write(tmp_path / "r", row(1))
    for name in ("labels.jsonl", "calls.jsonl"):
        (tmp_path / "r" / name).write_text("{}\n")
    with RunFolder(tmp_path / "r", {"model": "m"}), pytest.raises(RunError, match="another process"):
        set_aside(tmp_path / "r")
    set_aside(tmp_path / "r")
    old = tmp_path / "r" / "superseded" / "1"
    assert Run(old).rows.id.tolist() == ["p1"] and (old / "labels.jsonl").exists()
    assert (tmp_path / "r" / "calls.jsonl").exists() and not (tmp_path / "r" / "config.json").exists()


def test_a_replacement_cut_short_is_no_run_until_it_is_made_again(tmp_path, monkeypatch):
    """New rows beside old drops must not be read as a run."""
    write(tmp_path / "r", row(1), row(2, False))
    replace = os.replace

    def killed(source, target):
        if pathlib.Path(source).parent.name == REPLACING and pathlib.Path(source).name == "drops.jsonl":
            raise KeyboardInterrupt
        replace(source, target)

    def replaced():
        with replaced_run(tmp_path / "r", {"model": "n"}, runtime={"merged": []}) as folder:
            folder.append(row(3))
            folder.append(row(4, False))
            folder.write_report(2)

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(os, "replace", killed)
        replaced()
    with pytest.raises(RunError, match="no run folder"):
        open_run(tmp_path / "r")
    assert (tmp_path / "r" / REPLACING).is_dir()  # by which the next one knows that nothing is lost
    replaced()
    assert [r.id for r in open_run(tmp_path / "r").records()] == ["p3", "p4"]


def test_a_relative_path_is_absolute_from_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RunFolder("out/r", {"model": "m"}) as folder:
        (tmp_path / "elsewhere").mkdir()
        os.chdir(tmp_path / "elsewhere")
        folder.append(row(1))
        folder.write_report(1)
    assert open_run(tmp_path / "out" / "r").report["kept"] == 1


def test_a_config_without_its_date_is_gone_on_with(tmp_path):
    write(tmp_path / "r", row(1))
    path = tmp_path / "r" / "config.json"
    path.write_text(json.dumps({"config": {"model": "m"}}))
    write(tmp_path / "r", row(2), given=2)
    assert json.loads(path.read_text())["created"] and open_run(tmp_path / "r").report["kept"] == 2


def test_half_a_character_in_a_label_stays_in_its_frame(tmp_path):
    write(tmp_path / "r", row(1, id="p\ud83d"))
    run = open_run(tmp_path / "r")
    add_label(run, "p\ud83d", 0, "good", note="see \ud83d", by="me")
    shown = labels_frame(run)
    assert (shown["id"].tolist(), shown["note"].tolist()) == (["p\ud83d"], ["see \ud83d"])


EXPORTS = """
import itertools, sys
from cotkit import open_run
run = open_run(sys.argv[1])
for n in itertools.count():
    run.export(sys.argv[2])
    print(n, flush=True)
"""


def test_kill_minus_nine_in_an_export_leaves_a_whole_file(tmp_path):
    write(tmp_path / "r", *(row(n) for n in range(300)))
    target, chance = tmp_path / "out" / "sft.jsonl", random.Random(0)
    open_run(tmp_path / "r").export(target)
    whole = target.read_bytes()
    for _ in range(3):
        command = [sys.executable, "-c", EXPORTS, str(tmp_path / "r"), str(target)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline()
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.communicate()
        assert target.read_bytes() == whole


def test_seconds_are_summed_over_sittings(tmp_path):
    write(tmp_path / "r", row(1))
    path = tmp_path / "r" / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": 100.0}))
    assert write(tmp_path / "r", row(2))["seconds"] >= 100.0


def test_a_folder_with_rows_but_no_config_is_not_taken_over(tmp_path):
    write(tmp_path / "r", row(1))
    (tmp_path / "r" / "config.json").unlink()
    with pytest.raises(RunError, match="no run that can be resumed"):
        RunFolder(tmp_path / "r", {"model": "m"})
    with pytest.raises(RunError, match="no run folder"):
        open_run(tmp_path / "r")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "[1]"),
        ("config.json", '{"config": []}'),
        ("config.json", "{"),
        ("report.json", "[]"),
        ("rows.jsonl", "[1, 2]\n"),
        ("drops.jsonl", '{"a": 1}\n'),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    write(tmp_path / "r", row(1))
    (tmp_path / "r" / name).write_text(content)
    with pytest.raises(RunError, match=name.split(".")[0] if name.endswith(".json") else "no row"):
        RunFolder(tmp_path / "r", {"model": "m"})


def test_a_folder_of_runs_names_them(tmp_path):
    for name in "ba":
        write(tmp_path / "both" / name, row(1))
    with pytest.raises(RunError, match=r"both is no run folder.*Run folders in it: a, b$"):
        open_run(tmp_path / "both")
    for name in "0123456789":
        write(tmp_path / "both" / name, row(1))
    with pytest.raises(RunError, match=r"0, 1, .*, 7 and 4 more$"):
        open_run(tmp_path / "both")


@pytest.mark.parametrize("metadata", [{}, {"k": 1}])
def test_the_rows_of_a_run_can_be_saved_as_parquet(tmp_path, metadata):
    import pandas

    write(tmp_path / "r", row(1, metadata=metadata), row(2))
    open_run(tmp_path / "r").rows.to_parquet(tmp_path / "rows.parquet")
    read = pandas.read_parquet(tmp_path / "rows.parquet")
    assert read.id.tolist() == ["p1", "p2"] and read.metadata.tolist() == [metadata or None, None]


def test_the_same_configuration_gets_the_same_folder_name():
    assert (
        folder_name("distill", {"a": 1})
        == folder_name("distill", {"a": 1})
        != folder_name("distill", {"a": 2})
    )


def test_the_notebook_view_escapes_what_it_shows(tmp_path):
    write(tmp_path / "<b>r", row(1))
    assert "&lt;b&gt;r" in open_run(tmp_path / "<b>r")._repr_html_()
