"""What a row of each export format must look like.

`SHAPES` says per format which fields a row has and which check each must pass; a check takes a value and the
name of its field and yields (field, what is wrong, the fix). `COLUMNS` is the white list of what may stand
beside the training data: nothing else leaves a run folder, so no key or private field can slip out.
Sources: the trainers' documentation (TRL dataset formats, LLaMA-Factory data/README, axolotl dataset
formats, OpenAI fine-tuning) and, for `camel`, the records of CAMEL's SelfImprovingCoTPipeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cotkit.shown import mended

Found = Iterator[tuple[str, str, str]]  # field, what is wrong, the fix
Check = Callable[[Any, str], Found]

CONTROL = re.compile(  # tokens of chat templates (ChatML, Llama 3, gpt-oss)
    r"<\|(?:im_(?:start|end|sep)|eot_id|(?:start|end)_header_id|(?:begin|end)_of_text|endoftext"
    r"|end|start|channel|message|return|user|assistant|system)\|>"
)

COLUMNS: dict[str, tuple[str, str]] = {
    "id": ("string", "the problem's id, byte for byte"),
    "type": ("string", "the problem's type, as given"),
    "problem": ("string", "the problem text"),
    "reference": ("string", "the gold answer, as given"),
    "trace": ("string", "reasoning and answer as one text"),
    "reasoning": ("string", "the reasoning, where the model gave it apart"),
    "answer": ("string", "the final answer extracted from the trace"),
    "correct": ("bool", "the program's verdict; empty = it cannot be decided"),
    "verdict_method": ("string", "the stage of the check that decided"),
    "score": ("float", "the judge's mean over its dimensions, 0..1; empty = not judged"),
    "scores": ("string", "the judge's scores by dimension, as JSON"),
    "judge": ("string", "who scored"),
    "accepted": ("bool", "whether the run kept the trace"),
    "drop_reason": ("string", "why the run dropped the problem; empty = kept"),
    "iteration": ("int", "0 = first draft"),
    "stage": ("string", "draft, refine or rationalize"),
    "rationalized": ("bool", "written with the answer as a hint"),
    "saw_reference": ("bool", "the generator, or the judge it listened to, saw the reference"),
    "truncated": ("bool", "cut at the token limit"),
    "model": ("string", "the model asked"),
    "served_model": ("string", "the model that the endpoint says answered"),
    "finish_reason": ("string", "why the model stopped"),
    "prompt_tokens": ("int", "of the call; empty = the endpoint does not say"),
    "completion_tokens": ("int", "of the call; empty = the endpoint does not say"),
    "cost_usd": ("float", "of the call; empty = unknown"),
    "prompt_name": ("string", "the prompt that asked for the trace"),
    "prompt_hash": ("string", "hash of that prompt's source"),
    "licence": ("string", "the problem's licence, as given"),
}
BESIDE_MESSAGES = [c for c in COLUMNS if c not in ("problem", "reference", "trace", "reasoning")]
PAIR_COLUMNS: dict[str, tuple[str, str]] = {
    "id": COLUMNS["id"],
    "type": COLUMNS["type"],
    "licence": COLUMNS["licence"],
    **{
        f"{side}_{name}": (COLUMNS[name][0], f"of the {side} trace: {COLUMNS[name][1]}")
        for side in ("chosen", "rejected")
        for name in ("correct", "score", "iteration", "model")
    },
}


def think_text(reasoning: str, answer: str) -> str:
    """The canonical form; other white space makes axolotl's DPO loader lose the whole answer."""
    return f"<think>\n{reasoning.strip()}\n</think>\n\n{answer.strip()}"


def kind(value: Any) -> str:
    names = {type(None): "null", bool: "true/false", int: "int", float: "float", str: "text", list: "list"}
    return names.get(type(value), "object")


def _words(value: Any, field: str) -> Found:
    if not isinstance(value, str):
        yield field, f"is {kind(value)} where text is expected", "write plain text"
    elif not value.strip():
        yield field, "is empty", "drop the row: an empty text trains the model to stop at once"


def _text(value: Any, field: str) -> Found:
    yield from _words(value, field)
    if isinstance(value, str) and mended(value) != value:
        yield field, "holds a lone surrogate", "write U+FFFD in its place: trainers' loaders stop at it"


def _reply(value: Any, field: str) -> Found:
    """A text the model is trained on: its thinking, if any, in the canonical form."""
    yield from _text(value, field)
    if isinstance(value, str) and (token := CONTROL.search(value)):
        yield field, f"holds {token[0]}, which a tokenizer takes for its own", "drop the row, or take it out"
    if not isinstance(value, str) or "think>" not in value:
        return
    before, closed, after = value.partition("</think>")
    canonical = "write '<think>\\n' + reasoning + '\\n</think>\\n\\n' + answer, both stripped"
    if not value.lstrip().startswith("<think>"):
        if closed and "<think>" not in before:
            yield field, "has a closing </think> without an opening <think>", canonical
        return
    reasoning = before.lstrip().removeprefix("<think>")
    if not closed:
        yield field, "opens <think> and never closes it", "drop the row: the answer was cut off"
    elif not reasoning.strip():
        yield field, "has an empty thinking block", "leave the tags out where there is no reasoning"
    elif not after.strip():
        yield field, "has no answer after </think>", "drop the row"
    elif "</think>" in after:
        yield field, "has a second </think>", "drop the row: chat templates cut at the last one"
    elif value.rstrip() != think_text(reasoning, after):
        yield field, "has thinking in other white space than the canonical form", canonical


def _string(value: Any, field: str) -> Found:
    if not isinstance(value, str):
        yield field, f"is {kind(value)} where text is expected", 'write text, "" where there is none'


def _string_or_null(value: Any, field: str) -> Found:
    if value is not None:
        yield from _string(value, field)


def _flag(value: Any, field: str) -> Found:
    if not isinstance(value, bool):
        yield field, f"is {kind(value)} where true or false is expected", "write true or false"


def _flag_or_null(value: Any, field: str) -> Found:
    if value is not None:
        yield from _flag(value, field)


CHAT, SHAREGPT = ("role", "content", "user", "assistant"), ("from", "value", "human", "gpt")


def _turns(start: str, end: str, tags: tuple[str, ...] = CHAT, extra: tuple[str, ...] = ()) -> Check:
    """A list of messages: the system at most first, then the two speakers in turn, from `start` to `end`
    ("user" or "assistant", called as `tags` calls them). `extra` keys may stand in an assistant message."""
    role_key, text_key, user, assistant = tags
    names = {"user": user, "assistant": assistant}
    if start == "user":
        fix = f"the roles are {user} and {assistant} in turn, after at most one system message"
    else:
        fix = "keep the answer alone here; the question belongs in the prompt"

    def check(value: Any, field: str) -> Found:
        if not isinstance(value, list) or not value:
            what = "an empty list" if value == [] else f"{kind(value)} where a list of messages is expected"
            yield field, f"is {what}", f'write [{{"{role_key}": "{names[start]}", "{text_key}": ...}}]'
            return
        expected, last = names[start], None
        for i, message in enumerate(value):
            where = f"{field}[{i}]"
            if not isinstance(message, dict):
                yield where, f"is {kind(message)} where a message is expected", f"keys {role_key}, {text_key}"
                return
            role = message.get(role_key)
            allowed = {role_key, text_key, *(extra if role == assistant else ())}
            if unknown := sorted(set(message) - allowed):
                yield where, f"has the unknown key(s) {unknown}", f"keep only {sorted(allowed)}"
            if "reasoning_content" in allowed:
                yield from _string_or_null(message.get("reasoning_content"), f"{where}.reasoning_content")
            if role == "system" and i == 0 and start == "user":
                yield from _text(message.get(text_key), f"{where}.{text_key}")
                continue
            if role != expected:
                yield f"{where}.{role_key}", f"is {role!r} where {expected!r} is expected", fix
                return
            yield from (_reply if role == assistant else _text)(message.get(text_key), f"{where}.{text_key}")
            last, expected = role, user if role == assistant else assistant
        if last != names[end]:
            yield field, f"ends with {last!r}, not {names[end]!r}", "add the missing turn or drop the row"

    return check


def _one_reply(tags: tuple[str, ...] = CHAT) -> Check:
    inner = _turns("assistant", "assistant", tags)

    def check(value: Any, field: str) -> Found:
        if isinstance(value, dict):
            for where, what, fix in inner([value], field):
                yield where.replace("[0]", "", 1), what, fix
        else:
            yield (
                field,
                f"is {kind(value)} where one message is expected",
                f"write {tags[0]} and {tags[1]}",
            )

    return check


def _openai_input(value: Any, field: str) -> Found:
    if not isinstance(value, dict) or "messages" not in value:
        yield field, "is no object with 'messages'", 'write {"messages": [{"role": "user", ...}]}'
        return
    yield from _turns("user", "user")(value["messages"], f"{field}.messages")
    if unknown := sorted(set(value) - {"messages", "tools", "parallel_tool_calls"}):
        yield field, f"has the unknown key(s) {unknown}", "keep messages, tools, parallel_tool_calls"


def _improvements(value: Any, field: str) -> Found:
    if not isinstance(value, list):
        yield field, f"is {kind(value)} where a list is expected", "write [] where nothing was judged"
        return
    for i, step in enumerate(value):
        where = f"{field}[{i}]"
        if not isinstance(step, dict) or set(step) != {"iteration", "trace", "evaluation"}:
            yield where, "is no object of iteration, trace, evaluation", "write exactly these three keys"
            continue
        if step["iteration"] != i or isinstance(step["iteration"], bool):
            yield (
                f"{where}.iteration",
                f"is {step['iteration']!r}, not {i}",
                "count iterations from 0, in order",
            )
        yield from _words(step["trace"], f"{where}.trace")
        said = step["evaluation"]
        if not isinstance(said, dict) or not isinstance(said.get("feedback"), str):
            yield f"{where}.evaluation", "is no object with a text 'feedback'", "write scores and feedback"
        elif bad := [
            k for k, v in said.items() if k != "feedback" and kind(v) not in ("int", "float", "null")
        ]:
            yield f"{where}.evaluation.{bad[0]}", "is no number", "write a score, or null"


_KINDS = {"string": {"text"}, "bool": {"true/false"}, "int": {"int"}, "float": {"float", "int"}}


def _column(type_name: str) -> Check:
    expected = _KINDS[type_name]

    def check(value: Any, field: str) -> Found:
        if value is not None and kind(value) not in expected:
            yield field, f"is {kind(value)} where {type_name} is expected", f"write {type_name}, or null"

    return check


def _columns(names: dict[str, tuple[str, str]] | list[str]) -> dict[str, Check]:
    table = names if isinstance(names, dict) else {n: COLUMNS[n] for n in names}
    return {name: _column(type_name) for name, (type_name, _) in table.items()}


@dataclass(frozen=True)
class Shape:
    """A row of a format: its `fields`, those that may be there besides, the answer that is trained on and
    the one it is preferred to. `unique` fields may not repeat together."""

    fields: dict[str, Check]
    answer: str
    rejected: str = ""
    optional: dict[str, Check] = field(default_factory=dict)
    unique: tuple[str, ...] = ()
    container: str = "json"  # json = JSON Lines or an array; camel; parquet; csv

    @property
    def key(self) -> tuple[str, ...]:
        return self.unique or tuple(self.fields)


_CONVERSATION = _turns("user", "assistant", extra=("reasoning_content",))
_PROMPT = _turns("user", "user")
_COMPLETION = _turns("assistant", "assistant", extra=("reasoning_content",))
_PLAIN = _turns("assistant", "assistant", extra=("weight",))
_SFT_EXTRA, _PAIR_EXTRA = _columns(BESIDE_MESSAGES), _columns(PAIR_COLUMNS)
_TABLE = {**_columns(COLUMNS), "id": _text, "problem": _text, "trace": _text}

SHAPES: dict[str, Shape] = {
    "messages": Shape({"messages": _CONVERSATION}, "messages", optional=_SFT_EXTRA),
    "trl_sft": Shape({"messages": _CONVERSATION}, "messages", optional=_SFT_EXTRA),
    "trl_prompt_completion": Shape(
        {"prompt": _PROMPT, "completion": _COMPLETION}, "completion", optional=_SFT_EXTRA
    ),
    "trl_dpo": Shape(
        {"prompt": _PROMPT, "chosen": _COMPLETION, "rejected": _COMPLETION},
        "chosen",
        "rejected",
        optional=_PAIR_EXTRA,
    ),
    "trl_dpo_standard": Shape(
        {"prompt": _text, "chosen": _reply, "rejected": _reply}, "chosen", "rejected", optional=_PAIR_EXTRA
    ),
    "trl_kto": Shape(
        {"prompt": _PROMPT, "completion": _COMPLETION, "label": _flag},
        "completion",
        optional=_SFT_EXTRA,
        unique=("prompt", "completion"),
    ),
    "sharegpt": Shape(
        {"conversations": _turns("user", "assistant", SHAREGPT)}, "conversations", optional={"system": _text}
    ),
    "sharegpt_dpo": Shape(
        {
            "conversations": _turns("user", "user", SHAREGPT),
            "chosen": _one_reply(SHAREGPT),
            "rejected": _one_reply(SHAREGPT),
        },
        "chosen",
        "rejected",
        optional={"system": _text},
    ),
    "llamafactory_alpaca": Shape(
        {"instruction": _text, "input": _string, "output": _reply}, "output", optional={"system": _text}
    ),
    "axolotl": Shape({"messages": _CONVERSATION}, "messages", optional=_SFT_EXTRA),
    "axolotl_dpo": Shape(
        {"messages": _PROMPT, "chosen": _one_reply(), "rejected": _one_reply()},
        "chosen",
        "rejected",
        optional=_PAIR_EXTRA,
    ),
    "openai_sft": Shape({"messages": _turns("user", "assistant", extra=("weight",))}, "messages"),
    "openai_dpo": Shape(
        {"input": _openai_input, "preferred_output": _PLAIN, "non_preferred_output": _PLAIN},
        "preferred_output",
        "non_preferred_output",
    ),
    "camel": Shape(
        {
            "id": _string,
            "type": _string,
            "problem": _words,
            "solution": _string,
            "final_trace": _words,
            "agent_evaluate_success": _flag_or_null,
            "boxed_answer_success": _flag,
            "improvement_history": _improvements,
        },
        "final_trace",
        container="camel",
    ),
    "parquet": Shape(_TABLE, "trace", container="parquet", unique=("id", "trace")),
    "csv": Shape(_TABLE, "trace", container="csv", unique=("id", "trace")),
}


def arrow_schema() -> Any:
    """The Parquet table's schema: the same for every run, also for an empty one."""
    import pyarrow

    types = {
        "string": pyarrow.string(),
        "bool": pyarrow.bool_(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
    }
    return pyarrow.schema([(name, types[type_name]) for name, (type_name, _) in COLUMNS.items()])
