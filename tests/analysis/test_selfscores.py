"""Scores that need no judge, and the frame thresholds are tuned on."""

from __future__ import annotations

import io
import json
import math

import pandas
import pytest
from synthetic_rows import candidate, make_rows, row

from cotkit.analysis import candidates_frame, scored_frame, self_consistency, tune_thresholds
from cotkit.runs import RunFolder, add_label, open_run


def shares(*rows):
    frame = candidates_frame(rows)
    return self_consistency(frame).round(3).tolist()


def drafts(*answers, **fields):
    return [candidate(answer=a, sample_index=i, **fields) for i, a in enumerate(answers)]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["4", "4", "4", "5"], [0.667, 0.667, 0.667, 0]),
        (["1/2", "0.5", r"\frac12", "50/100"], [1, 1, 1, 1]),  # spellings of one answer
        (["4", None, "4"], [0.5, 0, 0.5]),  # no answer agrees with none
        ([None, None], [0, 0]),
        (["4", "5"], [0, 0]),
    ],
)
def test_the_share_of_the_other_drafts_that_agree(answers, expected):
    assert shares(row(1, drafts(*answers))) == expected


def test_a_lone_draft_has_no_score():
    assert math.isnan(shares(row(1, drafts("4")))[0])


def test_problems_do_not_vote_for_each_other():
    assert shares(row(1, drafts("4", "4")), row(2, drafts("4", "5"))) == [1, 1, 0, 0]


def test_only_drafts_vote_and_a_trace_that_saw_the_answer_has_no_score():
    refined = candidate(answer="4", stage="refine", iteration=1, parent=0)
    hinted = candidate(answer="4", stage="rationalize", iteration=2, rationalized=True)
    found = shares(row(1, [*drafts("4", "5", "5"), refined, refined, hinted]))
    assert found[:5] == [0, 0.5, 0.5, 0.333, 0.333] and math.isnan(found[5])


def test_mean_logprob_is_there_where_it_was_recorded():
    calls = [candidate(call={"mean_logprob": -0.25}), candidate(call={})]
    found = candidates_frame([row(1, calls)])["mean_logprob"].tolist()
    assert found[0] == -0.25 and math.isnan(found[1])


LINES = {
    "csv": "id,correct,score_a,trace\n007,True,0.5,abc\n8,,0.25,\n",
    "jsonl": '{"id": "007", "correct": true, "score_a": 0.5, "trace": "abc"}\n\n'
    '{"id": "8", "correct": null, "score_a": 0.25, "trace": null}\n',
}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_of_scored_rows_are_read_with_their_ids_as_written(kind, tmp_path):
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        (tmp_path / "rows.jsonl").write_text(LINES["jsonl"])
        scored_frame(tmp_path / "rows.jsonl").drop(columns="trace_characters").to_parquet(path)
    else:
        path.write_text(LINES[kind])
    frame = scored_frame(path)
    assert frame["id"].tolist() == ["007", "8"] and frame["score_a"].tolist() == [0.5, 0.25]
    assert frame["trace_characters"].iloc[0] == 3 and frame["correct"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.jsonl", b'{"id": 1}\n{"id": 2,}\n', "line 2 is not JSON"),
        ("rows.jsonl", b"[1, 2]\n", "line 1 is no JSON object"),
        ("rows.jsonl", b"[" * 100_000 + b"]" * 100_000 + b"\n", "line 1 is not JSON"),
        ("rows.jsonl", b"\n", "empty"),
        ("rows.csv", b"", "cannot be read: it is empty"),
        ("rows.csv", b"id;correct;score_a\n1;True;0.5\n", "separated by ';'"),
        ("rows.csv", b"id,correct\n1,True\n2,True,5,6\n", "line 3"),
        ("rows.csv", "id\nZo\xeb\n".encode("latin-1"), "not UTF-8"),
        ("rows.jsonl", "Zo\xeb\n".encode("latin-1"), "not UTF-8"),
        ("rows.parquet", b"PAR0", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        scored_frame(tmp_path / name)
    assert name in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        scored_frame(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="no run"):
        scored_frame([])


def test_runs_stand_below_each_other_by_name(tmp_path):
    for name, seed in (("one", 0), ("two", 1)):
        with RunFolder(tmp_path / name, {"seed": seed}) as folder:
            for made in make_rows(6, seed=seed, endpoint_fails=0):
                folder.append(made)
    frame = scored_frame([tmp_path / "one", tmp_path / "two"])
    assert frame["run"].unique().tolist() == ["one", "two"]
    alone = scored_frame(tmp_path / "two")
    assert frame["self_consistency"][frame["run"] == "two"].tolist() == pytest.approx(
        alone["self_consistency"].tolist(), nan_ok=True
    )  # equal ids in two runs do not vote for each other


def test_ids_may_be_any_text_and_traces_may_be_empty(tmp_path):
    (tmp_path / "rows.csv").write_text("id,correct,score_a,trace\nNA,True,0.5,\n,True,0.5,\n7.0,True,0.5,\n")
    frame = scored_frame(tmp_path / "rows.csv")
    assert frame["id"].isna().tolist() == [False, True, False] and frame["id"].iloc[2] == "7.0"
    assert frame["trace_characters"].isna().all()
    (tmp_path / "rows.jsonl").write_text('\ufeff{"id": 1, "trace": 12}\n', encoding="utf-8")
    assert scored_frame(tmp_path / "rows.jsonl")["trace_characters"].tolist() == [2]


def test_what_is_neither_run_nor_file_of_rows_is_told_what_is(tmp_path):
    for name in ("rows.csv.gz", "rows.xlsx", "nowhere"):
        with pytest.raises(FileNotFoundError, match=r"a run folder, or one file that ends in \.csv"):
            scored_frame(tmp_path / name)
    with pytest.raises(ValueError, match="by itself"):
        scored_frame([tmp_path / "one.csv", tmp_path / "two.csv"])


def test_runs_of_different_judges_are_not_put_together(tmp_path):
    for name in ("one", "two"):
        with RunFolder(tmp_path / name, {"judge": {"name": name}}) as folder:
            for made in make_rows(6, endpoint_fails=0):
                folder.append(made)
    with pytest.raises(ValueError, match=r"not judged alike \(one, two\): they differ in name"):
        scored_frame([tmp_path / "one", tmp_path / "two"])
    assert scored_frame([tmp_path / "one"]).attrs["judge"] == {"name": "one"}


LINE = '{"id": "a", "correct": %s, "score_a": %s}\n'


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "rows.csv",
            'id,correct,score_a,trace\na,1,0.5,"two\nlines"\n\nb,0,high,x\n',
            "line 5, column 'score_a'",
        ),
        ("rows.csv", "id,correct,score_a\na,1,0.5\nb,maybe,0.5\n", "line 3, column 'correct'"),
        ("rows.csv", "id,correct,score_a\na,1,0.5\n,0,0.5\n", "line 3, column 'id'"),
        (
            "rows.jsonl",
            LINE % ("true", "0.5") + "\n\n" + LINE % ("false", '"high"'),
            "line 4, column 'score_a'",
        ),
        ("rows.parquet", LINE % ("true", "0.5") + LINE % ('"maybe"', "0.5"), "row 1, column 'correct'"),
    ],
)
def test_a_wrong_value_is_named_by_file_and_line(name, content, says, tmp_path):
    path = tmp_path / name
    if path.suffix == ".parquet":
        pandas.read_json(io.StringIO(content), lines=True).astype(str).to_parquet(path)
    else:
        path.write_text(content)
    with pytest.raises(ValueError) as caught:
        tune_thresholds(path)
    assert f"{path}, {says}" in str(caught.value)


def test_rows_are_named_by_their_line_wherever_they_stand_now(tmp_path):
    (tmp_path / "rows.csv").write_text("id,correct,score_a\na,1,0.5\nb,1,high\n")
    frame = scored_frame(tmp_path / "rows.csv")
    by_score = frame.sort_values("score_a", ascending=False, ignore_index=True)
    for changed in (frame.iloc[::-1], frame[1:], frame[1:].reset_index(drop=True), by_score):
        with pytest.raises(ValueError, match=r"rows.csv, line 3, column 'score_a'"):
            tune_thresholds(changed)


@pytest.fixture
def labelled(tmp_path):
    """A run of 80 problems with three drafts each. A person called half of the traces good or bad, mostly as
    the verifier does, and was unsure of one."""
    with RunFolder(tmp_path / "run", {"judge": {"name": "steps"}}) as folder:
        for made in make_rows(80, seed=3, judge_power=0.5, endpoint_fails=0):
            made.problem += f" ({made.id})"
            folder.append(made)
    run = open_run(tmp_path / "run")
    said = {}
    for made in run.records():
        for number, trace in enumerate(made.candidates):
            correct = trace.verdict.correct
            if made.index % 2 == 0 and correct is not None and not trace.rationalized:
                said[made.id, number] = correct != (made.index % 20 == 0)
                add_label(run, made.id, number, "good" if said[made.id, number] else "bad")
    unsure = next(iter(said))
    add_label(run, *unsure, "unsure")
    del said[unsure]
    return run, said


def test_what_a_person_said_is_ground_truth_where_it_is_asked_for(labelled):
    run, said = labelled
    frame = scored_frame(run)
    keys = list(zip(frame["id"], frame["candidate"], strict=True))
    assert {key: bool(v) for key, v in zip(keys, frame["person"], strict=True) if not pandas.isna(v)} == said
    report = tune_thresholds(run, label="person", iteration=None, target_precision=0.6, resamples=2)
    scored = frame["score_arithmetic"].notna() & frame["person"].notna() & ~frame["rationalized"]
    assert len(report.rows) == scored.sum() and report.record["label"] == "person"
    assert report.rows["right"].sum() == (frame["person"][scored] == True).sum()  # noqa: E712


@pytest.mark.parametrize("label", ["correct", "person"])
def test_person_and_verifier_are_compared(labelled, label):
    run, _ = labelled
    frame = scored_frame(run)
    both = frame[frame["person"].notna() & frame["correct"].notna() & ~frame["rationalized"]]
    report = tune_thresholds(run, label=label, iteration=None, target_precision=0.6, resamples=2)
    line = report.agreement[report.agreement["measure"] == "same verdict"].iloc[0]
    assert line["n"] == len(both) and line["value"] == (both["person"] == both["correct"]).mean()
    assert line["value_low"] < line["value"] < line["value_high"]
    accepted = int((both["correct"] & ~both["person"]).sum())
    assert report.record["audit"]["false_accept"] == [accepted, int((~both["person"]).sum())]
    sentences = " ".join(report.findings())
    assert (
        f"the same verdict on {(both['person'] == both['correct']).sum()} of {len(both)} traces" in sentences
    )
    assert ("verifier_errors={'false_accept'" in sentences) == (label == "correct")
    assert "person and verifier agree" in set(report.data_card["item"])


def test_a_run_that_nobody_labelled_says_how_to(tmp_path):
    with RunFolder(tmp_path / "run", {}) as folder:
        for made in make_rows(6, endpoint_fails=0):
            folder.append(made)
    with pytest.raises(ValueError, match=r"TraceBrowser\(run\)"):
        tune_thresholds(tmp_path / "run", label="person")
    assert "audit" in tune_thresholds(tmp_path / "run", iteration=None, resamples=2).record
    with pytest.raises(ValueError, match=r"no column 'person'.*TraceBrowser\(run\)"):
        tune_thresholds(pandas.DataFrame({"id": [1], "correct": [1], "score_a": [1]}), label="person")


def test_failed_answers_and_judgements_are_on_the_data_card():
    failed = candidate(True, judged=True)
    failed.judgement.error = "parse: score 'high' is no whole number"
    silent = candidate(False, answer=None, scores={"a": 0.1})
    rows = [row(n, [candidate(n % 2 == 0, scores={"a": 0.5}), silent]) for n in range(8)]
    rows += [row(8, [failed]), row(9, [candidate(True, judged=True)])]
    card = tune_thresholds(candidates_frame(rows), resamples=2).data_card.set_index("item")["value"]
    assert card["traces without an answer"] == 8 and card["judge failed"] == 2
    assert card["judge failed: its answer could not be read"] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("id,correct,score_a\na,1,0.5,\nb,0,0.5,\n", "line 2 has 4 fields, the header 3"),
        ("id,correct,score_a\na,1,0.5\nb,0\n", "line 3 has 2 fields, the header 3"),
        ("id,correct,score_a,score_a\na,1,0.5,0.1\n", "names 'score_a' twice"),
    ],
)
def test_a_csv_whose_lines_do_not_fit_its_header_is_refused(content, says, tmp_path):
    (tmp_path / "F.CSV").write_text(content)
    for given in (tmp_path / "F.CSV", [str(tmp_path / "F.CSV")]):
        with pytest.raises(ValueError, match=says):
            scored_frame(given)


def test_long_ids_of_jsonl_keep_their_digits_and_blank_ones_are_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    ids = [2**60, 2**60 + 1, 7.0, 0.5]
    path.write_text("".join(json.dumps({"id": i, "correct": True, "score_a": 0.5}) + "\n" for i in ids))
    assert scored_frame(path)["id"].tolist() == [str(2**60), str(2**60 + 1), "7", "0.5"]
    path.write_text('{"id": "p1", "correct": 1, "score_a": 1}\n{"id": " ", "correct": 1, "score_a": 1}\n')
    with pytest.raises(ValueError, match="line 2, column 'id'"):
        tune_thresholds(path)


def saved(path, rows, judge=None):
    with RunFolder(path, {"judge": judge or {"name": "j"}}) as folder:
        for made in rows:
            folder.append(made)
    return open_run(path)


def asked(id, text, trace="t"):
    made = row(0, [candidate(True, scores={"a": 0.5}, trace=trace)])
    made.id, made.problem = id, text
    return made


def test_problems_of_several_runs_are_told_apart_by_their_text_where_ids_are_not_unique(tmp_path):
    first = saved(tmp_path / "a", [asked("0", "one?"), asked("1", "two?")])
    other = saved(tmp_path / "b", [asked("0", "three?"), asked("1", "four?")])
    shifted = saved(tmp_path / "c", [asked("0", "two?"), asked("1", "five?")])
    assert scored_frame(first)["id"].tolist() == ["0", "1"]
    assert scored_frame([first, other])["id"].nunique() == 4
    assert scored_frame([first, shifted])["id"].nunique() == 3
    with pytest.raises(ValueError, match="given twice"):
        scored_frame([first, tmp_path / "a"])
    with pytest.raises(ValueError, match="differ in prompt"):
        scored_frame([first, saved(tmp_path / "d", [asked("0", "x")], {"name": "j", "prompt": 1})])
    assert (
        len(scored_frame([first, saved(tmp_path / "e", [asked("9", "x")], {"name": "j", "endpoint": 1})]))
        == 3
    )


def test_a_label_holds_for_the_trace_it_was_given_to(tmp_path):
    run = saved(tmp_path / "a", [asked("0", "one?"), asked("1", "two?")])
    for id in ("0", "1"):
        add_label(run, id, 0, "good", by="ann")
    add_label(run, "1", 0, "bad", by="bob")
    with pytest.raises(ValueError, match="no candidate 3"):
        add_label(run, "1", 3, "bad")
    assert scored_frame(run)["person"].tolist() == [True, False]
    rows = [asked("0", "one?", "another"), asked("2", "two?")]
    (tmp_path / "a" / "rows.jsonl").write_text("")
    (tmp_path / "a" / "drops.jsonl").write_text("".join(r.model_dump_json() + "\n" for r in rows))
    frame = scored_frame(run)
    assert frame["person"].isna().all()
    assert frame.attrs["labels"]["labels are about other traces, not used"] == 1
    assert frame.attrs["labels"]["labels of traces that are not there, not used"] == 1
    with RunFolder(tmp_path / "a", {"judge": None}, resume="never"):
        pass
    assert (tmp_path / "a" / "superseded" / "1" / "labels.jsonl").is_file()
    assert not (tmp_path / "a" / "labels.jsonl").exists()


@pytest.mark.parametrize(
    "line", ['{"id": "0", "candidate": 0}', "5", '{"id": "0", "candidate": "0", "label": "good"}',
             '{"id": "0", "candidate": 0, "label": "Good"}'],
)  # fmt: skip
def test_a_label_that_is_none_is_named_by_its_line(line, tmp_path):
    run = saved(tmp_path / "a", [asked("0", "one?")])
    (tmp_path / "a" / "labels.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"labels.jsonl, line 1"):
        scored_frame(run)


def test_persons_who_differ_are_counted(tmp_path):
    run = saved(tmp_path / "a", [asked("0", "one?")])
    add_label(run, "0", 0, "good", by="ann")
    add_label(run, "0", 0, "bad", by="bob")
    assert scored_frame(run).attrs["labels"]["labels on which persons differ, the last word is taken"] == 1
