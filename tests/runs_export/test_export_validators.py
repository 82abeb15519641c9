"""Files a user brings: what each validator finds, and where."""

from __future__ import annotations

import copy
import csv
import json

import pytest
from example_rows import good_and_bad, write_lines

from cotkit.runs.export import export_rows
from cotkit.runs.shapes import COLUMNS
from cotkit.runs.validate import validate_file


def user(text="2 + 2?"):
    return {"role": "user", "content": text}


def reply(text="4"):
    return {"role": "assistant", "content": text}


CHAT = {"messages": [user(), reply()]}
PAIR = {"prompt": [user()], "chosen": [reply("4")], "rejected": [reply("5")]}
STRINGS = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
KTO = {"prompt": [user()], "completion": [reply()], "label": True}


def changed(row, **fields):
    return {**copy.deepcopy(row), **fields}


def without(row, name):
    return {key: value for key, value in row.items() if key != name}


def talk(*messages):
    return {"messages": list(messages)}


@pytest.mark.parametrize(
    ("format", "row", "field", "words"),
    [
        # roles and turns
        ("trl_sft", talk(user()), "messages", "ends with 'user'"),
        ("trl_sft", talk(reply()), "messages[0].role", "'user' is expected"),
        ("trl_sft", talk(user(), user(), reply()), "messages[1].role", "'assistant' is expected"),
        ("trl_sft", talk({"role": "human", "content": "?"}, reply()), "messages[0].role", "'human'"),
        ("trl_sft", talk({"from": "human", "value": "?"}), "messages[0]", "unknown key(s) ['from', 'value']"),
        ("trl_sft", talk({"role": "system", "content": ""}, user(), reply()), "messages[0].content", "empty"),
        ("trl_sft", talk(user(), {"role": "system", "content": "s"}), "messages[1].role", "'system'"),
        ("trl_sft", {"messages": "text"}, "messages", "is text where a list of messages"),
        ("trl_sft", {"messages": []}, "messages", "is an empty list"),
        ("trl_sft", talk("hi"), "messages[0]", "is text where a message"),
        # columns under another trainer's name
        ("trl_sft", {"conversations": []}, "messages", "rename 'conversations' to 'messages'"),
        ("trl_sft", {"question": "?", "answer": "!"}, "messages", "is missing"),
        ("trl_dpo", {"question": "?", **without(PAIR, "prompt")}, "prompt", "rename 'question' to 'prompt'"),
        ("trl_dpo_standard", without(STRINGS, "prompt"), "prompt", "is missing"),
        ("sharegpt", CHAT, "conversations", "rename 'messages' to 'conversations'"),
        (
            "sharegpt",
            {"conversations": [{"role": "user", "content": "?"}]},
            "conversations[0]",
            "unknown key",
        ),
        # texts and lists mixed
        ("trl_dpo", changed(PAIR, prompt="2 + 2?"), "prompt", "is text where a list of messages"),
        ("trl_dpo_standard", changed(STRINGS, chosen=[reply()]), "chosen", "is list where text"),
        ("trl_dpo", changed(PAIR, rejected=None), "rejected", "is null where a list"),
        ("trl_dpo", changed(PAIR, rejected=[]), "rejected", "is an empty list"),
        ("trl_dpo", changed(PAIR, rejected=[reply("  ")]), "rejected[0].content", "is empty"),
        ("trl_dpo", changed(PAIR, rejected=[reply(None)]), "rejected[0].content", "is null where text"),
        ("trl_dpo", changed(PAIR, chosen=[user(), reply()]), "chosen[0].role", "belongs in the prompt"),
        ("trl_dpo_standard", changed(STRINGS, rejected=""), "rejected", "is empty"),
        ("axolotl_dpo", changed(PAIR, messages=[user()]), "chosen", "where one message is expected"),
        ("openai_dpo", {"input": [user()]}, "input", "no object with 'messages'"),
        # pairs without a signal
        ("trl_dpo", changed(PAIR, rejected=[reply(" 4\n")]), "rejected", "same text as 'chosen'"),
        (
            "trl_dpo_standard",
            changed(STRINGS, chosen="<think>\na\n</think>\n\n4", rejected="<think>\nb\n</think>\n\n4"),
            "rejected",
            "same text",
        ),
        # labels
        ("trl_kto", changed(KTO, label=1), "label", "is int where true or false"),
        ("trl_kto", changed(KTO, label="true"), "label", "is text where true or false"),
        # thinking
        ("trl_sft", talk(user(), reply("<think>a</think>4")), "messages[1].content", "other white space"),
        (
            "trl_sft",
            talk(user(), reply("<think>\na\n</think>\n4")),
            "messages[1].content",
            "other white space",
        ),
        ("trl_sft", talk(user(), reply("a\n</think>\n\n4")), "messages[1].content", "without an opening"),
        ("trl_sft", talk(user(), reply("<think>\nnever")), "messages[1].content", "never closes"),
        ("trl_sft", talk(user(), reply("<think>\n\n</think>\n\n4")), "messages[1].content", "empty thinking"),
        (
            "trl_sft",
            talk(user(), reply("<think>\na\n</think>\n\n")),
            "messages[1].content",
            "no answer after",
        ),
        (
            "trl_sft",
            talk(user(), reply("<think>\na\n</think>\n\nb</think>")),
            "messages[1].content",
            "second </think>",
        ),
        ("trl_sft", talk(user(), reply("4<|im_end|>")), "messages[1].content", "holds <|im_end|>"),
        ("trl_sft", talk(user("\ud83d?"), reply()), "messages[0].content", "lone surrogate"),
        ("sharegpt_dpo", {"conversations": [], "chosen": 1, "rejected": 1}, "chosen", "is int"),
        # columns that must not leave
        ("trl_sft", changed(CHAT, api_key="sk-x"), "api_key", "is no column of this format"),
        ("trl_sft", changed(CHAT, score="0.5"), "score", "is text where float"),
        ("openai_sft", changed(CHAT, id="1"), "id", "is no column of this format"),
        ("openai_sft", talk(user(), {**reply(), "reasoning_content": "r"}), "messages[1]", "unknown key"),
        (
            "trl_sft",
            talk(user(), {**reply(), "reasoning_content": 1}),
            "messages[1].reasoning_content",
            "is int",
        ),
        ("trl_sft", ["no", "object"], "", "is list, not an object"),
    ],
)
def test_a_bad_row_is_found_with_its_line_and_field(format, row, field, words, tmp_path):
    good = {
        "trl_sft": CHAT,
        "trl_dpo": PAIR,
        "trl_dpo_standard": STRINGS,
        "trl_kto": changed(KTO, completion=[reply("7")]),
        "openai_sft": CHAT,
    }.get(format)
    rows = [good, row] if good else [row]
    problems = validate_file(write_lines(tmp_path / "f.jsonl", *rows), format)
    assert all(problem.row == len(rows) for problem in problems)
    hits = [p for p in problems if p.field == field and words in f"{p.what} {p.fix}"]
    assert hits, "\n".join(map(str, problems))
    assert str(hits[0]).startswith(f"row {len(rows)}, field {field!r}:") and "Fix: " in str(hits[0])


@pytest.mark.parametrize(
    ("format", "row"),
    [
        ("trl_sft", CHAT),
        ("trl_sft", talk({"role": "system", "content": "s"}, user(), reply(), user("more?"), reply("yes"))),
        ("trl_sft", talk(user(), reply("Write `<think>` and then `</think>`."))),
        ("trl_sft", talk(user(), {**reply(), "reasoning_content": None})),
        ("openai_sft", talk(user(), {**reply(), "weight": 0})),
        ("trl_dpo", PAIR),
        ("trl_dpo", changed(PAIR, id="1", chosen_score=0.5)),
        ("trl_dpo_standard", STRINGS),
        ("llamafactory_alpaca", {"instruction": "2 + 2?", "input": "", "output": "4"}),
    ],
)
def test_a_good_foreign_row_is_accepted(format, row, tmp_path):
    assert validate_file(write_lines(tmp_path / "f.jsonl", row), format) == []


@pytest.mark.parametrize(
    ("format", "rows", "field", "words"),
    [
        ("trl_dpo", [PAIR, changed(PAIR, id="again")], "prompt, chosen, rejected", "repeats row 1"),
        ("trl_kto", [KTO, changed(KTO, label=False)], "prompt, completion", "repeats row 1"),
        (
            "trl_sft",
            [changed(CHAT, score=1), changed(talk(user("3?"), reply()), score=0.5)],
            "score",
            "is float here and int in row 1",
        ),
        (
            "trl_sft",
            [changed(CHAT, id="a"), talk(user("3?"), reply())],
            "id",
            "is a column of row 1 only",
        ),
    ],
)
def test_rows_that_do_not_fit_each_other_are_found(format, rows, field, words, tmp_path):
    problems = validate_file(write_lines(tmp_path / "f.jsonl", *rows), format)
    assert [(p.row, p.field) for p in problems if words in p.what] == [(2, field)], problems


def test_null_first_and_a_number_later_is_one_type(tmp_path):
    rows = [changed(CHAT, score=None), changed(talk(user("3?"), reply()), score=0.5)]
    assert validate_file(write_lines(tmp_path / "f.jsonl", *rows), "trl_sft") == []


@pytest.mark.parametrize(
    ("data", "row", "words"),
    [
        (b'{"messages": NaN}\n', 1, "NaN is no JSON"),
        (b'\n{"messages": [\n', 2, "is no JSON"),
        (b'{"messages": "\xff"}\n', 1, "is not UTF-8"),
        (b"[1, 2", None, "is no JSON"),
        (b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 1, "is no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, None, "is no JSON"),
    ],
)
def test_broken_bytes_are_found_with_their_line(data, row, words, tmp_path):
    (tmp_path / "f.jsonl").write_bytes(data)
    (problem,) = validate_file(tmp_path / "f.jsonl", "trl_sft")
    assert problem.row == row and words in problem.what


def test_a_box_is_asked_for_in_the_answer_and_not_in_the_thinking(tmp_path):
    boxed_thoughts = "<think>\n\\boxed{4}\n</think>\n\nfour"
    rows = [talk(user(str(i)), reply(text)) for i, text in enumerate(["\\boxed{4}", boxed_thoughts, "4"])]
    path = write_lines(tmp_path / "f.jsonl", *rows)
    assert validate_file(path, "trl_sft") == []
    assert [p.row for p in validate_file(path, "trl_sft", require_boxed=True)] == [2, 3]


def test_a_long_list_of_findings_is_cut(tmp_path):
    path = write_lines(tmp_path / "f.jsonl", *[{"messages": i} for i in range(50)])
    assert len(validate_file(path, "trl_sft", limit=7)) == 7
    assert len(validate_file(path, "trl_sft", limit=None)) >= 50


def test_an_unknown_format_and_a_missing_file_are_errors(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'dpo'; known: axolotl"):
        validate_file(tmp_path / "f.jsonl", "dpo")
    with pytest.raises(FileNotFoundError):
        validate_file(tmp_path / "f.jsonl", "trl_dpo")


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        (lambda t: t.pop("solution"), "solution", "is missing"),
        (lambda t: t.update(id=7), "id", "is int"),
        (lambda t: t.update(boxed_answer_success=None), "boxed_answer_success", "is null"),
        (lambda t: t.update(extra=1), "extra", "is no column"),
        (
            lambda t: t["improvement_history"][0].update(iteration=1),
            "improvement_history[0].iteration",
            "not 0",
        ),
        (
            lambda t: t["improvement_history"][0].update(evaluation={"clarity": 1.0}),
            "improvement_history[0].evaluation",
            "feedback",
        ),
        (
            lambda t: t["improvement_history"][0]["evaluation"].update(clarity="high"),
            "improvement_history[0].evaluation.clarity",
            "no number",
        ),
    ],
)
def test_a_camel_file_that_camel_would_not_have_written_is_found(change, field, words, tmp_path):
    export_rows(good_and_bad(), tmp_path / "t.json", "camel")
    data = json.loads((tmp_path / "t.json").read_bytes())
    change(data["traces"][1])
    (tmp_path / "t.json").write_text(json.dumps(data), encoding="utf-8")
    problems = validate_file(tmp_path / "t.json", "camel")
    assert any(p.row == 2 and p.field == field and words in p.what for p in problems), problems


def test_a_camel_file_has_one_key(tmp_path):
    (tmp_path / "t.json").write_text("[]", encoding="utf-8")
    assert "not the only key" in validate_file(tmp_path / "t.json", "camel")[0].what


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [("id", [1, 2], "is int64, not string"), ("score", None, "is missing")],
)
def test_a_parquet_file_with_other_columns_or_types_is_found(column, values, words, tmp_path):
    import pandas

    export_rows(good_and_bad(2), tmp_path / "t.parquet", "parquet")
    table = pandas.read_parquet(tmp_path / "t.parquet")
    table = table.drop(columns=column) if values is None else table.assign(**{column: values})
    table.to_parquet(tmp_path / "t.parquet")
    problems = validate_file(tmp_path / "t.parquet", "parquet")
    assert any(p.field == column and words in p.what for p in problems), problems


@pytest.mark.parametrize(
    ("change", "row", "words"),
    [
        (lambda text: text.replace("trace", "Trace", 1), None, "missing, unknown or out of place"),
        (lambda text: text.replace(",true,", ",yes,", 1), 1, "is 'yes', no bool"),
        (lambda text: text.replace(",0.9,", ",nan,", 1), 1, "no number"),
        (lambda text: text + "one cell\n", 3, f"has 1 cells, not {len(COLUMNS)}"),
    ],
)
def test_a_csv_file_with_other_cells_is_found(change, row, words, tmp_path):
    export_rows(good_and_bad(2), tmp_path / "t.csv", "csv")
    text = (tmp_path / "t.csv").read_text(encoding="utf-8")
    (tmp_path / "t.csv").write_text(change(text), encoding="utf-8")
    problems = validate_file(tmp_path / "t.csv", "csv")
    assert any(p.row == row and words in p.what for p in problems), problems


def test_long_cells_of_csv_are_read_with_a_limit_every_machine_takes_and_the_module_is_left_as_it_was(
    tmp_path, monkeypatch
):
    rows = good_and_bad(2)
    rows[0].problem = "x" * 300_000
    export_rows(rows, tmp_path / "t.csv", "csv")
    before, limits, limit = csv.field_size_limit(), [], csv.field_size_limit
    monkeypatch.setattr(csv, "field_size_limit", lambda new: (limits.append(new), limit(new))[1])
    assert validate_file(tmp_path / "t.csv", "csv") == []
    assert max(limits) < 2**31  # a C long of Windows
    assert limit() == before


def test_what_is_no_parquet_file_is_said_plainly(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"id,trace\n")
    assert "no Parquet file" in validate_file(tmp_path / "t.parquet", "parquet")[0].what
