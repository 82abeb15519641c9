r"""Objects out of a model's words; above all: raw LaTeX in JSON strings survives."""

from __future__ import annotations

import json
import time
from typing import Annotated

import pydantic
import pytest

from cotkit.chat import ParseError, parse_object
from cotkit.chat.structured import schema_of


class Score(pydantic.BaseModel):
    reason: str
    score: Annotated[int, pydantic.Field(ge=0, le=10)]


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def text_of(written):
    return parse_object('{"text": "' + written + '"}', TEXT)["text"]


@pytest.mark.parametrize(
    "latex",
    [
        r"\frac{1}{2}", r"\beta", r"\times", r"\neq", r"\nu", r"\text{cm}", r"\boxed{4}", r"\bar x",
        r"\right)", r"\rho", r"\theta", r"\tan x", r"\to", r"\nabla f", r"\notin", r"\forall x", r"\flat",
        r"\binom{n}{k}", r"\underline{x}", r"\upsilon", r"\alpha", r"\sqrt{2}", r"\(x\)", r"\[x\]",
        r"\{1, 2\}", r"5\%", r"\textbf{a} and \textit{b}", r"3 \times 4 \neq 13", r"$\nu$ is a frequency",
        r"E = h\nu", r"\ne 0", r"\neg p", r"a \nmid b", r"\frac{\beta}{\nu}",
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
    ],
)  # fmt: skip
def test_latex_survives_written_raw_and_written_properly(latex):
    assert text_of(latex) == latex
    assert text_of(json.dumps(latex)[1:-1]) == latex


@pytest.mark.parametrize(
    "written, meant",
    [
        (r"one\ntwo", "one\ntwo"),
        (r"First.\nNext, we add.", "First.\nNext, we add."),
        (r"a\tb", "a\tb"),
        (r"a\r\nb", "a\r\nb"),
        (r"Step 1:\n\nuse it", "Step 1:\n\nuse it"),
        (r"Given:\nu = 5", "Given:\nu = 5"),
        (r"so \\frac{1}{2},\nu = 3", "so \\frac{1}{2},\nu = 3"),
        (r"so \\frac{1}{2} m\nu = 3", "so \\frac{1}{2} m\nu = 3"),
        (r"x = \frac{1}{2}\nThen y = 3 \times 2", "x = \\frac{1}{2}\nThen y = 3 \\times 2"),
        (r"say \"hi\" and a\/b", 'say "hi" and a/b'),
        (r"caf\u00e9 \ud83d\ude00", "café 😀"),
        (r"C:\\new\\table", "C:\\new\\table"),
        (r"\treturn 1", "\treturn 1"),
        ("a real\nline break", "a real\nline break"),
    ],
)
def test_real_escapes_stay_what_they_are(written, meant):
    assert text_of(written) == meant


GOOD = Score(reason="r", score=7)


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "r", "score": 7}',
        '{"score": 7, "reason": "r"}',
        '{"score": 7, "reason": "r", "score": 7}',
        '{"reason": "r", "score": "7"}',
        '{"reason": "r", "score": 7.0,}',
        'Here you are [1]:\n```json\n{"reason": "r", "score": 7}\n```\nDone.',
        'With x in {1, 2} and \\boxed{7}: {"reason": "r", "score": 7}',
        '{"reason": "r", "score": 7} or, again, {"score": 7, "reason": "r"}',
        'An example: {"reason": "x"}. Mine: {"reason": "r", "score": 7}',
    ],
)
def test_the_object_is_found_wherever_it_stands(text):
    assert parse_object(text, Score) == GOOD
    assert parse_object(text, Score.model_json_schema()) == {"reason": "r", "score": 7}


@pytest.mark.parametrize(
    "text, said",
    [
        ("seven", "no JSON object"),
        ('{"reason": "r", "score": 7', "does not end"),
        ('{"reason": "r"}', "score"),
        ('{"reason": "r", "score": 11}', "score"),
        ('{"reason": "r", "score": "high"}', "score"),
        ('{"reason": "r", "score": NaN}', "NaN"),
        ("{'reason': 'r', 'score': 7}", "cannot be read"),
        ('{"reason": "r", "score": 7} {"reason": "r", "score": 8}', "2 different"),
        ('{"reason": "r", "score": 1, "score": 9}', "holds 'score' twice"),
        ("{" * 3000, "does not end"),
        ('{"reason": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
    ],
)
def test_what_does_not_fit_is_refused_with_words_a_model_can_act_on(text, said):
    for schema in (Score, Score.model_json_schema()):
        with pytest.raises(ParseError, match=said):
            parse_object(text, schema)


@pytest.mark.parametrize(
    "text, said",
    [
        ("{" * 80_000, "does not end"),
        ('{"' * 40_000, "does not end"),
        ('{"' + r"\"" * 40_000, "does not end"),
        ('{"' + r"\"" * 40_000 + "}", "cannot be read"),
        ('{"a": "' + r"x\nu" * 20_000, "does not end"),
        ("x" * 200_001, "200001 characters long"),
    ],
    ids=range(6),
)
def test_a_hostile_answer_is_refused_without_holding_up_the_loop(text, said):
    started = time.thread_time()
    with pytest.raises(ParseError, match=said):
        parse_object(text, TEXT)
    assert time.thread_time() - started < 1.5  # of the processor; up to minutes where it is quadratic


def test_a_long_answer_with_stray_brackets_still_gives_its_object():
    assert parse_object(r"so \left\{ x " * 50 + "word " * 5000 + '{"text": "it"}', TEXT) == {"text": "it"}


def test_an_array_is_parsed_where_the_schema_wants_one():
    schema = {"type": "array", "items": {"type": "integer"}}
    assert parse_object('as {"said": "[1]"}: [1, "2", 3,]', schema) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_whole_number_written_as_text_keeps_all_its_digits(kind):
    schema = {"type": "object", "properties": {"n": {"type": kind}}, "required": ["n"]}
    for written, number in (
        ("12345678901234567891", 12345678901234567891),
        (" -7 ", -7),
        ("7.0", 7),
        ("1e3", 1000),
    ):
        assert parse_object(json.dumps({"n": written}), schema) == {"n": number}
    for written in ('"1e999"', '"-1e999"', "1e999"):
        with pytest.raises(ParseError):
            parse_object(f'{{"n": {written}}}', schema)


def test_braces_and_quotes_inside_strings_are_words():
    assert text_of(r"a } b { \" c") == 'a } b { " c'


def test_a_schema_is_called_strict_only_where_it_is():
    closed = {**TEXT, "additionalProperties": False}
    assert schema_of(closed).response_format("json_schema")["json_schema"]["strict"] is True
    assert "strict" not in schema_of(TEXT).response_format("json_schema")["json_schema"]
    assert schema_of(TEXT).response_format("prompt") is None
