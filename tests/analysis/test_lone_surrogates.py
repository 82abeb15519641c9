"""Half an emoji, as a model's JSON may hold it, sinks no table: it is shown as U+FFFD."""

from __future__ import annotations

import json

import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic_rows import candidate, make_rows, row

from cotkit import analysis
from cotkit.analysis import diagnosis, figures, positions
from cotkit.analysis.scored_rows import scored_rows
from cotkit.records import Judgement
from cotkit.runs import Run

HALF, WHOLE = "\ud83d", "\ufffd"


def broken_rows(n=4):
    """Two traces a problem, one right and one wrong, with half an emoji wherever a text can stand."""
    rows = []
    for number in range(n):
        traces = [
            candidate(
                right,
                answer=f"4{HALF}",
                trace=f"so {HALF}",
                reason=HALF,
                accepted=right,
                call={"model": f"m{HALF}", "served_model": f"m{HALF}", "endpoint": HALF},
                sample_index=sample,
            )
            for sample, right in enumerate((True, False))
        ]
        for trace, score in zip(traces, (0.8, 0.3), strict=True):
            member = {"scores": {"form": score}, "judge": f"k{HALF}", "saw_reference": False}
            known = {"scores": {"form": score}, "error": HALF, "raw": {"k": member}}
            trace.judgement = Judgement(judge=f"j{HALF}", **known)
        texts = {"problem": f"what {HALF} {number}", "reference": HALF, "licence": HALF, "detail": HALF}
        rows.append(row(number, traces, id=f"p{number}{HALF}", type=f"t{HALF}", **texts))
    return rows


def run_of(folder, rows, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": config}))
    (folder / "rows.jsonl").write_text("".join(json.dumps(one.model_dump()) + "\n" for one in rows))
    report = {"given": len(rows), "kept": len(rows), "drops": {}, "complete": True, "stopped": None}
    (folder / "report.json").write_text(json.dumps(report))
    return Run(folder)


def texts(frame):
    """All that stands in a table, as it is shown; fails where a page could not hold it."""
    shown = frame.to_html()
    shown.encode("utf-8")
    return shown


def test_a_benchmark_is_reported_whatever_a_model_answered(tmp_path):
    runs = {f"{name}{HALF}": run_of(tmp_path / name, broken_rows(), num_generations=2) for name in "ab"}
    found = analysis.BenchmarkReport.from_runs(runs, (1, 2), {f"c{HALF}": f"said {HALF}"})
    assert found.traces["answer"].unique().tolist() == [f"4{WHOLE}"]
    assert found.problems["domain"].unique().tolist() == [f"t{WHOLE}"]
    frames = ("traces", "problems", "cost", "table", "passk", "differences", "errors", "disagreements")
    for frame in (getattr(found, name) for name in frames):
        assert len(texts(frame)) > 100
    assert found.errors.groupby("model")["completions"].sum().to_dict() == {f"a{WHOLE}": 8, f"b{WHOLE}": 8}
    assert "".join(found.findings()).isprintable() and found._repr_html_().encode()
    FigureCanvasAgg(figures.accuracy_map(found.table)).draw()


@pytest.mark.parametrize(
    "table",
    [
        analysis.by_type,
        analysis.candidates_frame,
        analysis.judge_agreement,
        analysis.judge_scores,
        lambda rows: analysis.family_gains(rows, rows, {f"t{HALF}": 2}),
    ],
)
def test_tables_of_rows_hold_them_mended(table):
    assert WHOLE in texts(table(broken_rows())) or table is analysis.judge_agreement


def test_the_members_of_a_panel_are_told_from_the_panel():
    table = analysis.panel_scores(broken_rows())
    assert table.columns.tolist() == ["id", "correct", f"k{WHOLE}"] and len(table) == 8
    many = broken_rows(40)
    weights = analysis.panel_weights(many, [f"k{WHOLE}"], [one.id for one in many])
    assert weights == {f"k{WHOLE}": 1.0}


def test_ids_and_texts_of_scored_rows_are_those_of_the_judges_table(tmp_path):
    rows = broken_rows()
    found = analysis.scored_frame(run_of(tmp_path / "a", rows))
    assert found["id"].unique().tolist() == [f"p{number}{WHOLE}" for number in range(4)]
    assert set(analysis.judge_scores(rows)["problem"]) == set(found["id"])
    same_id = [one.model_copy(update={"id": HALF}) for one in rows]  # then the texts tell them apart
    by_text = analysis.scored_frame(run_of(tmp_path / "b", same_id))["id"]
    assert by_text.unique().tolist() == [f"what {WHOLE} {number}" for number in range(4)]


@pytest.mark.parametrize("given", ["attempts", "file", "frame"])
def test_rows_from_anywhere_are_tuned_on(tmp_path, given):
    rows = broken_rows()
    path = tmp_path / "rows.jsonl"
    lines = [
        {"id": one.id, "type": one.type, "judge": HALF, "correct": c.verdict.correct, "score_form": at / 4}
        for one in rows
        for at, c in enumerate(one.candidates)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {
        "attempts": lambda: run_of(tmp_path / "a", rows).attempts,
        "file": lambda: path,
        "frame": lambda: pandas.DataFrame(lines, dtype=object),
    }[given]()
    found = scored_rows(source, None, "correct", "id", None)
    assert found.frame["id"].unique().tolist() == [f"p{number}{WHOLE}" for number in range(4)]
    assert len(found.frame) == 8


def test_the_tables_of_a_run_are_read_whatever_a_server_called_its_model(tmp_path):
    run = run_of(tmp_path / "a", broken_rows())
    assert run.rows["served_model"].unique().tolist() == [f"m{WHOLE}"]
    assert run.rows["id"].tolist()[0] == f"p0{HALF}", "ids are kept to the letter"


def test_a_judge_is_diagnosed_on_traces_of_any_problem(tmp_path):
    rows = broken_rows()
    scoring = {"probe": "", "repeat": 0, "scores": {"form": 0.5}}
    again = [{**scoring, "repeat": 1, "scores": {"form": 0.6}}, {**scoring, "probe": f"say {HALF}"}]
    frozen = [
        row(n, one.candidates[:1], id=one.id, metadata={"problem_id": one.id, "scorings": [scoring, *again]})
        for n, one in enumerate(rows)
    ]
    run = run_of(tmp_path / "diagnosis", frozen)
    found = diagnosis.JudgeDiagnosis.of(f"j{HALF}", [f"m{HALF}"], run, rows, [True] * len(rows))
    assert found.probes["probe"].tolist() == [f"say {WHOLE}"]
    leniency = found.traits[found.traits["measure"] == "leniency"]
    assert leniency["n"].tolist() == [8], "its own scores, of both traces of each problem"


def test_two_orders_of_a_pair_are_compared_whatever_its_problem_is_called(tmp_path):
    answers = [{"order": order, "better": "first", "trace": order, "right": 0} for order in (0, 1)]
    pairs = [row(n, [], id=f"{n}{HALF}", metadata={"problem_id": HALF, "answers": answers}) for n in range(3)]
    found = positions.PositionBias.of("m", run_of(tmp_path / "pairs", pairs))
    assert found.answers["problem"].unique().tolist() == [WHOLE] and len(found.answers) == 6


def test_what_a_trainer_or_an_alarm_said_stands_in_the_tables_of_a_loop():
    training = {"status": "trained", "warnings": [f"skipped {HALF}"]}
    report = {"cycle": 0, "method": "sft", "training": training, "counts": {"kept": 1, "replayed": 0}}
    assert analysis.training_frame([report])["warnings"].tolist() == [f"skipped {WHOLE}"]


def test_what_is_whole_stays_to_the_letter():
    rows = make_rows(3)
    rows[0].type = "😀 é"
    assert analysis.by_type(rows)["type"].tolist()[0] == "😀 é"
    assert analysis.candidates_frame(rows)["id"].unique().tolist() == [one.id for one in rows]
