"""Which rows are refused before a training, with row, field and fix; needs no training library."""

from __future__ import annotations

import json

import pytest
from tiny import KTO, PAIRS, SFT, answer, needs_training, said, tiny_tokenizer

from cotkit.train import TrainingDataError
from cotkit.train.data import fit_to, read_rows

ASK, YES, NO = [said("user", "2 + 2?")], [said("assistant", "It is 4.")], [said("assistant", "It is 5.")]


def pair(**changed) -> dict:
    row = {"prompt": ASK, "chosen": YES, "rejected": NO, **changed}
    return {name: value for name, value in row.items() if value is not ...}


REFUSED = [
    ("dpo", pair(rejected=YES), "row 2, field 'rejected': is the same text as 'chosen'"),
    ("dpo", pair(rejected=[said("assistant", " It  is 4. ")]), "same text as 'chosen'"),
    ("dpo", PAIRS[0], "repeats row 1"),
    ("dpo", pair(chosen_score=0.5, rejected_score=0.5), "row 2, field 'rejected_score': .* a tie"),
    ("dpo", pair(rejected=[said("assistant", " ")]), r"row 2, field 'rejected\[0\].content': is empty"),
    ("dpo", pair(rejected=[]), "row 2, field 'rejected': is an empty list"),
    ("dpo", pair(rejected=None), "row 2, field 'rejected': is null"),
    ("dpo", pair(prompt=..., question="2 + 2?"), "rename 'question' to 'prompt'"),
    ("dpo", pair(prompt="2 + 2?"), "row 2, field 'prompt': is text where a list of messages is expected"),
    ("dpo_sft", pair(chosen=[said("gpt", "It is 4.")]), r"chosen\[0\].role': is 'gpt'"),
    ("dpo", ["no object"], "row 2, field '': is list, not an object"),
    ("sft", {"messages": [said("human", "2 + 2?"), said("gpt", "4")]}, "is 'human' where 'user' is expected"),
    ("sft", {"messages": ASK}, "ends with 'user', not 'assistant'"),
    ("sft", {"messages": [*ASK, said("assistant", None)]}, "row 2"),
    ("sft", {"messages": [*ASK, said("assistant", "<think>\ncut off")]}, "opens <think> and never closes it"),
    ("sft", {"messages": [*ASK, said("assistant", "so 4</think>4")]}, "without an opening <think>"),
    ("kto", {"prompt": ASK, "completion": YES, "label": 1}, "row 2, field 'label': is int"),
    ("grpo", {"question": "2 + 2?"}, "row 2, field 'prompt': is missing.* rename 'question'"),
    ("grpo", {"prompt": " "}, "row 2, field 'prompt.*is empty"),
]
SOUND = {"sft": SFT[0], "dpo": PAIRS[0], "dpo_sft": PAIRS[0], "kto": KTO[0], "grpo": {"prompt": "1 + 1?"}}


@pytest.mark.parametrize(("method", "row", "words"), REFUSED)
def test_rows_no_model_should_learn_from_are_refused_with_row_and_field(method, row, words):
    with pytest.raises(TrainingDataError, match=f"(?s)the rows: .*{words}.*Fix: "):
        read_rows([SOUND[method], row], method)


def test_a_file_is_named_in_the_error_and_its_line_counted(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps(PAIRS[0]) + "\n" + json.dumps(pair(rejected=YES)) + "\n")
    with pytest.raises(TrainingDataError, match=r"pairs.jsonl: 1 finding.*\n  row 2, field 'rejected'"):
        read_rows(file, "dpo")
    file.write_text('{"messages": [\n')
    with pytest.raises(TrainingDataError, match=r"row 1, .* is no JSON"):
        read_rows(file, "sft")
    file.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(TrainingDataError, match="is no JSON"):
        read_rows(file, "sft")
    with pytest.raises(TrainingDataError, match="there is no file"):
        read_rows(tmp_path / "none.jsonl", "sft")
    with pytest.raises(TrainingDataError, match="no rows to train on"):
        read_rows([], "sft")


def test_labels_that_are_all_alike_teach_kto_nothing():
    with pytest.raises(TrainingDataError, match="'label': is true in every row"):
        read_rows([row for row in KTO if row["label"]], "kto")


@pytest.mark.parametrize("value", [{1, 2}, object(), {1: "a", "b": 2}])
def test_rows_that_are_no_json_are_refused_as_data(value):
    with pytest.raises(TrainingDataError, match=r"the rows: rows hold JSON alone: .*Fix: convert"):
        read_rows([{**SFT[0], "cycle": value}], "sft")


def test_other_columns_do_not_matter_and_are_not_trained_on():
    rows = [{**row, "cycle": i, "score": [i, "x"][i % 2]} for i, row in enumerate(SFT)]
    assert read_rows(rows, "sft").rows[0] == {
        "prompt": SFT[0]["messages"][:1],
        "completion": SFT[0]["messages"][1:],
    }


def test_a_conversation_gives_one_row_an_answer():
    again = [said("user", "And 3 + 3?"), said("assistant", "It is 6.")]
    rows = read_rows([{"messages": [*ASK, *YES, *again]}], "sft").rows
    assert [row["completion"][0]["content"] for row in rows] == ["It is 4.", "It is 6."]
    assert rows[1]["prompt"] == [*ASK, *YES, again[0]]


MANY = [
    pair(prompt=[said("user", p)], chosen=[said("assistant", answer(p))], rejected=[said("assistant", no)])
    for p, no in (
        (p, answer(p, 1 + n % 7)) for n, p in enumerate(f"What is {n} + {40 + n}?" for n in range(24))
    )
]


def test_pairs_that_length_alone_tells_apart_are_warned_of():
    longer = [
        {**row, "rejected": [said("assistant", row["rejected"][0]["content"] + " Yes!")]} for row in MANY
    ]
    assert "the length alone tells chosen from rejected (AUC 0.0" in read_rows(longer, "dpo").warnings[0]
    assert read_rows(MANY, "dpo").warnings == []
    assert read_rows(longer[:19], "dpo").warnings == []  # of so few chance alone may tell them apart


def test_pairs_that_single_words_tell_apart_are_warned_of():
    unsure = [
        {**row, "chosen": [said("assistant", row["chosen"][0]["content"] + " " + ending)]}
        for row, ending in zip(MANY, ["Surely so!", "So it is!"] * len(MANY), strict=False)
    ]
    for row in unsure:
        row["rejected"] = [said("assistant", row["rejected"][0]["content"] + " Perhaps!!")]  # as long
    (warning,) = read_rows(unsure, "dpo").warnings
    assert "choice of words alone tells" in warning


# What needs a tokenizer


@needs_training
def test_rows_longer_than_max_length_are_left_out_by_name_never_cut():
    tokenizer = tiny_tokenizer()
    long = {"messages": [said("user", "What is 1 + 1?"), said("assistant", "one " * 200 + "\\boxed{2}")]}
    asked = {"messages": [said("user", "please " * 200), said("assistant", "\\boxed{2}")]}
    found = read_rows([*SFT, long, asked], "sft")
    kept = fit_to(found, tokenizer, 128)
    assert kept.drops == {"too_long": 1, "prompt_too_long": 1} and len(kept.rows) == len(SFT)
    assert kept.given == len(kept.rows) + sum(kept.drops.values())
    with pytest.raises(TrainingDataError, match=r"no row fits into max_length=8 tokens\. Fix: raise it"):
        fit_to(found, tokenizer, 8)


THINK = "<think>\nTwo and two.\n</think>\n\nIt is 4."
APART = {"role": "assistant", "content": "It is 4.", "reasoning_content": "Two and two."}
STYLES = [  # which templates write the reasoning (True), leave it out (None = the rows are refused)
    ("qwen3", APART, True),
    ("qwen3", said("assistant", THINK), True),
    ("qwen2_5", APART, None),
    ("qwen2_5", said("assistant", THINK), True),
    ("llama3_2", APART, None),
    ("llama3_2", said("assistant", THINK), True),
    ("gemma3", APART, None),
    ("gemma3", said("assistant", THINK), True),
    ("deepseek_r1_distill", said("assistant", THINK), None),
    ("deepseek_r1_distill", said("assistant", "Two and two.\n\nIt is 4."), True),
]


@needs_training
@pytest.mark.parametrize(("template", "message", "kept"), STYLES)
def test_a_template_that_drops_the_reasoning_is_refused(template, message, kept):
    found = read_rows([{"prompt": ASK, "completion": [message]}], "sft")
    if kept:
        assert len(fit_to(found, tiny_tokenizer(template), 512).rows) == 1
    else:
        with pytest.raises(
            TrainingDataError, match=r"row 1, field 'completion': .* leaves the reasoning out"
        ):
            fit_to(found, tiny_tokenizer(template), 512)


@needs_training
def test_messages_need_a_chat_template_and_one_that_never_ends_is_warned_of():
    tokenizer = tiny_tokenizer(None)
    with pytest.raises(TrainingDataError, match=r"no chat template\. Fix"):
        fit_to(read_rows(SFT, "sft"), tokenizer, 128)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role + ': ' + m.content }}\n{% endfor %}"
    warnings = fit_to(read_rows(SFT, "sft"), tokenizer, 128).warnings
    assert any("no end-of-text token" in text and f"({len(SFT)} answers)" in text for text in warnings)


@needs_training
def test_a_template_that_refuses_a_message_is_a_refusal_of_data_with_its_row():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('System role not supported') }}"
    words = r"row 1, field 'completion': .* System role not supported\. Fix"
    with pytest.raises(TrainingDataError, match=words):
        fit_to(read_rows(SFT, "sft"), tokenizer, 128)


@needs_training
def test_labels_that_are_all_alike_once_long_rows_are_out_are_refused():
    rows = [row if row["label"] else {**row, "completion": [said("assistant", "no " * 300)]} for row in KTO]
    rows = [{**row, "prompt": [said("user", f"{i}?")]} for i, row in enumerate(rows)]
    with pytest.raises(TrainingDataError, match="is true in every row that fits into max_length=128"):
        fit_to(read_rows(rows, "kto"), tiny_tokenizer(), 128)


@needs_training
def test_plain_text_pairs_need_no_template():
    rows = [{n: v if isinstance(v, str) else v[0]["content"] for n, v in row.items()} for row in PAIRS]
    assert len(fit_to(read_rows(rows, "dpo"), tiny_tokenizer(None), 128).rows) == len(PAIRS)
