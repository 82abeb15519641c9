"""What each format holds, row by row, and how reasoning is written in it."""

from __future__ import annotations

import csv
import json
import os

import pytest
from example_rows import RIGHT, WRONG, candidate, good_and_bad, read_lines, row

from cotkit.records import Judgement
from cotkit.runs.export import FORMATS, export_rows
from cotkit.runs.shapes import BESIDE_MESSAGES, COLUMNS, PAIR_COLUMNS, SHAPES
from cotkit.runs.validate import validate_file

PROBLEM = "What is 2 + 2, asks 000?"
GOOD = "<think>\ntwo and two\nmake four\n</think>\n\nSo it is \\boxed{4}."
BAD = "<think>\ntwo and two\nmake five\n</think>\n\nSo it is \\boxed{5}."
USER = {"role": "user", "content": PROBLEM}
GOOD_REPLY, BAD_REPLY = {"role": "assistant", "content": GOOD}, {"role": "assistant", "content": BAD}
HUMAN = {"from": "human", "value": PROBLEM}

FIRST_ROWS = {
    "trl_sft": {"messages": [USER, GOOD_REPLY]},
    "trl_prompt_completion": {"prompt": [USER], "completion": [GOOD_REPLY]},
    "trl_dpo": {"prompt": [USER], "chosen": [GOOD_REPLY], "rejected": [BAD_REPLY]},
    "trl_dpo_standard": {"prompt": PROBLEM + "\n\n", "chosen": GOOD, "rejected": BAD},
    "trl_kto": {"prompt": [USER], "completion": [GOOD_REPLY], "label": True},
    "sharegpt": {"conversations": [HUMAN, {"from": "gpt", "value": GOOD}]},
    "sharegpt_dpo": {
        "conversations": [HUMAN],
        "chosen": {"from": "gpt", "value": GOOD},
        "rejected": {"from": "gpt", "value": BAD},
    },
    "llamafactory_alpaca": {"instruction": PROBLEM, "input": "", "output": GOOD},
    "axolotl": {"messages": [USER, GOOD_REPLY]},
    "axolotl_dpo": {"messages": [USER], "chosen": GOOD_REPLY, "rejected": BAD_REPLY},
    "openai_sft": {"messages": [USER, {"role": "assistant", "content": "So it is \\boxed{4}."}]},
    "openai_dpo": {
        "input": {"messages": [USER], "tools": [], "parallel_tool_calls": True},
        "preferred_output": [{"role": "assistant", "content": "So it is \\boxed{4}."}],
        "non_preferred_output": [{"role": "assistant", "content": "So it is \\boxed{5}."}],
    },
}


@pytest.mark.parametrize("format", FIRST_ROWS)
def test_a_row_of_each_format_is_exactly_what_its_trainer_reads(format, tmp_path):
    report = export_rows(good_and_bad(), tmp_path / "data.jsonl", format)
    rows = read_lines(tmp_path / "data.jsonl")
    assert rows[0] == FIRST_ROWS[format]
    assert list(rows[0]) == list(SHAPES[format].fields)
    assert len(rows) == report.rows == (6 if format == "trl_kto" else 3)
    assert validate_file(tmp_path / "data.jsonl", format, require_boxed=format != "trl_kto") == []


def test_every_format_has_a_shape_and_the_messages_format_its_white_listed_columns(tmp_path):
    assert set(FORMATS) == set(SHAPES) == {*FIRST_ROWS, "messages", "camel", "parquet", "csv"}
    export_rows(good_and_bad(1), tmp_path / "data.jsonl", "messages")
    (line,) = read_lines(tmp_path / "data.jsonl")
    assert list(line) == ["messages", *BESIDE_MESSAGES]
    assert (line["id"], line["correct"], line["score"], line["model"]) == ("000", True, 0.9, "teacher")
    assert "sk-never" not in json.dumps(line) and "private" not in json.dumps(line)


@pytest.mark.parametrize(
    ("format", "columns"),
    [("trl_dpo", PAIR_COLUMNS), ("trl_sft", BESIDE_MESSAGES), ("trl_kto", BESIDE_MESSAGES)],
)
def test_metadata_puts_only_listed_columns_beside_the_training_data(format, columns, tmp_path):
    export_rows(good_and_bad(), tmp_path / "data.jsonl", format, metadata=True)
    line = read_lines(tmp_path / "data.jsonl")[0]
    assert list(line) == [*SHAPES[format].fields, *columns]
    assert validate_file(tmp_path / "data.jsonl", format) == []


def test_pair_columns_tell_both_sides(tmp_path):
    export_rows(good_and_bad(1), tmp_path / "data.jsonl", "trl_dpo", metadata=True)
    (line,) = read_lines(tmp_path / "data.jsonl")
    assert (line["chosen_score"], line["rejected_score"], line["chosen_correct"]) == (0.9, 0.2, True)


@pytest.mark.parametrize(
    ("reasoning", "message"),
    [
        (None, GOOD_REPLY),
        ("think_tags", GOOD_REPLY),
        (
            "reasoning_content",
            {
                "role": "assistant",
                "content": "So it is \\boxed{4}.",
                "reasoning_content": "two and two\nmake four",
            },
        ),
        ("answer_only", {"role": "assistant", "content": "So it is \\boxed{4}."}),
        ("as_text", {"role": "assistant", "content": "two and two\nmake four\n\nSo it is \\boxed{4}."}),
    ],
)
def test_reasoning_is_written_as_asked(reasoning, message, tmp_path):
    export_rows(good_and_bad(1), tmp_path / "data.jsonl", "trl_sft", reasoning=reasoning)
    assert read_lines(tmp_path / "data.jsonl")[0]["messages"][1] == message


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("2 + 2 = 4. So \\boxed{4}.", None, "2 + 2 = 4. So \\boxed{4}."),  # no tags are invented
        ("\n\n\\boxed{4}\n", "  r \n", "<think>\nr\n</think>\n\n\\boxed{4}"),
        ("r</think>\\boxed{4}", None, "<think>\nr\n</think>\n\n\\boxed{4}"),
        ("<think>r</think>\\boxed{4}", None, "<think>\nr\n</think>\n\n\\boxed{4}"),
    ],
)
def test_think_tags_are_canonical_whatever_the_model_wrote(text, reasoning, content, tmp_path):
    export_rows([row(candidate(text, reasoning=reasoning))], tmp_path / "data.jsonl", "trl_sft")
    assert read_lines(tmp_path / "data.jsonl")[0]["messages"][1]["content"] == content


def test_a_rationalized_trace_is_trained_under_the_original_prompt(tmp_path):
    hinted = candidate(stage="rationalize", rationalized=True, saw_reference=True, feedback="the answer is 4")
    export_rows([row(WRONG, hinted, final=1)], tmp_path / "data.jsonl", "messages")
    (line,) = read_lines(tmp_path / "data.jsonl")
    assert line["messages"][0] == {"role": "user", "content": "What is 2 + 2, asks 007?"}
    assert line["rationalized"] is True
    assert "the answer is 4" not in json.dumps(line)


@pytest.mark.parametrize(
    ("format", "where"),
    [
        ("trl_sft", lambda line: line["messages"][0]),
        ("trl_dpo", lambda line: line["prompt"][0]),
        ("openai_dpo", lambda line: line["input"]["messages"][0]),
        ("sharegpt", lambda line: {"role": "system", "content": line["system"]}),
        ("llamafactory_alpaca", lambda line: {"role": "system", "content": line["system"]}),
    ],
)
def test_a_system_message_goes_where_the_format_has_it(format, where, tmp_path):
    export_rows(good_and_bad(1), tmp_path / "data.jsonl", format, system="Think.")
    assert where(read_lines(tmp_path / "data.jsonl")[0]) == {"role": "system", "content": "Think."}
    assert validate_file(tmp_path / "data.jsonl", format) == []


def test_camel_is_exactly_camels_file(tmp_path):
    draft = candidate("d", False, {"correctness": 0.95, "clarity": 0.9}, accepted=False)
    refined = candidate(
        "r \\boxed{½}", None, {"correctness": 0.98, "clarity": 0.95}, iteration=1, parent=0, accepted=False
    )
    rows = [
        row(draft, refined, id="problem_0", final=1, type="arithmetic", reference="3", problem="1 + 2?"),
        row(id="lost", drop_reason="server"),
    ]
    report = export_rows(rows, tmp_path / "traces.json", "camel")
    expected = {
        "traces": [
            {
                "id": "problem_0",
                "type": "arithmetic",
                "problem": "1 + 2?",
                "solution": "3",
                "final_trace": "r \\boxed{½}",
                "agent_evaluate_success": False,
                "boxed_answer_success": False,
                "improvement_history": [
                    {
                        "iteration": 0,
                        "trace": "d",
                        "evaluation": {"correctness": 0.95, "clarity": 0.9, "feedback": "as told"},
                    },
                    {
                        "iteration": 1,
                        "trace": "r \\boxed{½}",
                        "evaluation": {"correctness": 0.98, "clarity": 0.95, "feedback": "as told"},
                    },
                ],
            }
        ]
    }
    text = (tmp_path / "traces.json").read_text(encoding="utf-8")
    assert text == json.dumps(expected, indent=2, ensure_ascii=False)
    assert (report.rows, report.given, report.drops) == (1, 2, {"server": 1})


@pytest.mark.parametrize(
    ("made", "agent", "boxed", "iterations"),
    [
        (candidate("x"), None, True, 0),  # never judged
        (candidate("x", score=0.9), True, True, 1),
        (candidate("x", score=0.2, accepted=False), False, True, 1),
        (candidate("x", None, 0.9, accepted=True), True, False, 1),  # undecided
    ],
)
def test_camels_two_successes_say_what_judge_and_program_said(made, agent, boxed, iterations, tmp_path):
    export_rows([row(made, type=None, reference=None)], tmp_path / "t.json", "camel")
    (trace,) = json.loads((tmp_path / "t.json").read_bytes())["traces"]
    assert (trace["agent_evaluate_success"], trace["boxed_answer_success"]) == (agent, boxed)
    assert (trace["type"], trace["solution"], len(trace["improvement_history"])) == ("", "", iterations)


def test_camel_rows_without_scores_keep_their_history_and_load_in_camel(tmp_path):
    failed = candidate("d", None, accepted=False, feedback="try again")
    failed.judgement = Judgement(scores=None, error="timeout", judge="judge-a")
    unjudged = candidate("d", False, feedback="try again")
    rows = [
        row(made, candidate("r", False, iteration=1, parent=0), id=id, final=0)
        for id, made in (("failed", failed), ("unjudged", unjudged))
    ]
    failed.feedback = ""
    export_rows(rows, tmp_path / "t.json", "camel")
    traces = json.loads((tmp_path / "t.json").read_bytes())["traces"]
    assert [t["agent_evaluate_success"] for t in traces] == [None, None]
    assert [t["improvement_history"][0]["evaluation"] for t in traces] == [
        {"feedback": "the judge failed: timeout"},
        {"feedback": "try again"},
    ]
    assert [len(t["improvement_history"]) for t in traces] == [2, 2]


def test_tables_keep_ids_as_text_and_unknown_values_empty(tmp_path):
    import pandas

    ids = ["007", "1e5", "12345678901234567890"]
    rows = [row(candidate('a, "b"\nc', None, accepted=True), id=i, licence="MIT") for i in ids]
    export_rows(rows, tmp_path / "t.parquet", "parquet")
    export_rows(rows, tmp_path / "t.csv", "csv")
    table = pandas.read_parquet(tmp_path / "t.parquet")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert list(table.columns) == list(cells[0]) == list(COLUMNS)
    assert list(table["id"]) == [line["id"] for line in cells] == ids
    assert table["correct"].isna().all() and {line["correct"] for line in cells} == {""}
    assert cells[0]["trace"] == table["trace"][0] == 'a, "b"\nc'
    assert table["prompt_tokens"].dtype == "int64" and table["cost_usd"].isna().all()
    for format in ("parquet", "csv"):
        assert validate_file(tmp_path / f"t.{format}", format) == []


def test_final_tables_hold_the_rejected_problems_too(tmp_path):
    export_rows([row(RIGHT), row(WRONG, id="8")], tmp_path / "t.csv", "csv", policy="final")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["accepted"], line["drop_reason"]) for line in lines] == [
        ("true", ""),
        ("false", "wrong_answer"),
    ]


def test_a_data_set_list_that_is_none_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "dataset_info.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"is no data set list .* then export again"):
        export_rows(good_and_bad(), tmp_path / "d.json", "sharegpt")
    assert [path.name for path in tmp_path.iterdir()] == ["dataset_info.json"]


def test_a_data_set_of_the_same_name_is_not_replaced(tmp_path):
    info = tmp_path / "dataset_info.json"
    info.write_text('{"sft": {"file_name": "mine.json"}}', encoding="utf-8")
    for _ in range(2):
        report = export_rows(good_and_bad(), tmp_path / "sft.jsonl", "llamafactory_alpaca")
        (note,) = [w for w in report.warnings if "dataset_info" in w]
        assert "this one is 'sft-jsonl' there" in note
        known = json.loads(info.read_bytes())
        assert {name: entry["file_name"] for name, entry in known.items()} == {
            "sft": "mine.json",
            "sft-jsonl": "sft.jsonl",
        }


def test_llamafactory_and_axolotl_are_told_about_the_file_beside_it(tmp_path):
    import yaml

    (tmp_path / "dataset_info.json").write_text('{"mine": {"file_name": "mine.json"}}', encoding="utf-8")
    for format in ("sharegpt", "sharegpt_dpo", "llamafactory_alpaca"):
        export_rows(good_and_bad(), tmp_path / f"{format}.json", format, system="Think.")
    info = json.loads((tmp_path / "dataset_info.json").read_bytes())
    assert info["mine"] == {"file_name": "mine.json"}
    assert (
        info["sharegpt_dpo"]["ranking"] is True and info["sharegpt_dpo"]["file_name"] == "sharegpt_dpo.json"
    )
    for name in ("sharegpt", "sharegpt_dpo", "llamafactory_alpaca"):
        row0 = json.loads((tmp_path / info[name]["file_name"]).read_bytes())[0]
        assert set(info[name]["columns"].values()) <= set(row0)
    report = export_rows(good_and_bad(), tmp_path / "ax.jsonl", "axolotl_dpo")
    snippet = yaml.safe_load((tmp_path / "ax.axolotl.yaml").read_text(encoding="utf-8"))
    assert report.beside == [str(tmp_path / "ax.axolotl.yaml")]
    assert snippet["rl"] == "dpo" and snippet["datasets"][0]["type"] == "chat_template.default"


def test_every_file_beside_an_export_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    replaced, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (replaced.append(names[1].name), replace(*names)))
    for format in ("axolotl", "sharegpt"):
        facts = {"config": {}, "report": {"name": format}}
        export_rows(good_and_bad(), tmp_path / format / "a.json", format, facts=facts)
    assert replaced == ["a.json", "a.axolotl.yaml", "README.md", "a.json", "dataset_info.json", "README.md"]
