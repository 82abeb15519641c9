"""Are these rows fit to train on? TRL asks almost nothing, so everything is asked here, before it starts.

`read_rows` takes an exported file or a list and refuses what no model should learn from: whatever the export
formats' validator finds (empty, identical, duplicate and mislabelled rows, wrong roles and names), ties, one
label only. `fit_to` holds the rows against a tokenizer: what is too long is left out and counted, never cut,
so that `\\boxed{}` and the end of the answer survive; and the chat template must write the reasoning, which
many templates drop without a word.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pathlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2

from cotkit.analysis import auc
from cotkit.runs import FileProblem, validate_file

Rows = str | os.PathLike | Sequence[dict[str, Any]]

_COLUMNS = {  # what each export format trains on; other columns are not looked at
    "trl_sft": ("messages",),
    "trl_prompt_completion": ("prompt", "completion"),
    "trl_dpo": ("prompt", "chosen", "rejected"),
    "trl_dpo_standard": ("prompt", "chosen", "rejected"),
    "trl_kto": ("prompt", "completion", "label"),
}
_SHOWN = 5  # findings in an error
_LEAST_PAIRS = 20  # of fewer chance alone may tell the sides apart
_SHORTCUT = 0.9  # AUC at which the sides of pairs are told apart by length or single words alone


class TrainingDataError(ValueError):
    """Rows that must not be trained on; the message names file, row, field and fix. Every refusal of data is
    one, and it has no subclasses; it is raised before the first step, and the same rows raise it again."""

    refuses_data = True  # what `cotkit.self_improve` knows it by: the cycle ends as "no_data"


@dataclass
class TrainingRows:
    """Rows as TRL takes them; `given = len(rows) + sum(drops)`."""

    name: str  # for messages: the file, or "the rows"
    rows: list[dict[str, Any]]
    sha256: str
    given: int
    drops: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_rows(data: Rows, method: str) -> TrainingRows:
    """The rows of a file or a list for `method`. TrainingDataError for rows that must not be trained on."""
    if isinstance(data, str | os.PathLike):
        path = pathlib.Path(data).expanduser()
        if not path.is_file():
            raise TrainingDataError(f"there is no file {path}: give an exported file or a list of rows")
        rows, name = _parsed(path.read_bytes()), str(path)
    else:
        rows, name, path = list(data), "the rows", None
    if rows == []:
        raise TrainingDataError(f"{name}: no rows to train on. Fix: look at the drops of the export")
    try:
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise TrainingDataError(
            f"{name}: rows hold JSON alone: {error}. Fix: convert that value to text, a number or a list"
        ) from None
    _refuse(name, _findings(rows, path, method))
    made = [new for row in rows for new in _as_trained(row, method)]
    result = TrainingRows(name, made, digest, len(made))
    if method.startswith("dpo") and len(made) >= _LEAST_PAIRS:
        result.warnings += _shortcuts(made)
    return result


def _parsed(content: bytes) -> list[Any] | None:
    """The rows of a JSON Lines or JSON file; None when it is neither: the validator then says where."""
    try:
        if content.lstrip()[:1] == b"[":
            return json.loads(content)
        return [json.loads(line) for line in content.split(b"\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def _format(rows: list[Any] | None, method: str) -> str:
    """The export format that rows of this form are held against, told by the first."""
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    if method == "sft":
        return "trl_prompt_completion" if "completion" in first else "trl_sft"
    if method in ("kto", "grpo"):
        return "trl_kto"
    texts = all(isinstance(first.get(name), str) for name in _COLUMNS["trl_dpo"])
    return "trl_dpo_standard" if texts else "trl_dpo"


def _findings(rows: list[Any] | None, path: pathlib.Path | None, method: str) -> list[FileProblem]:
    form = _format(rows, method)
    columns = _COLUMNS[form]
    if rows is not None and (path is None or method == "grpo"):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "rows.json")
            copy.write_text(json.dumps([_as_kto(row) for row in rows] if method == "grpo" else rows))
            found = validate_file(copy, form, limit=None)
    else:
        found = validate_file(path, form, limit=None)
    found = [f for f in found if f.row is None or not f.field or re.match(r"\w+", f.field)[0] in columns]
    if found or rows is None:
        return found
    if method == "kto" and len({row["label"] for row in rows}) == 1:
        what = f"is {str(rows[0]['label']).lower()} in every row"
        return [FileProblem(None, "label", what, "kto needs wanted and unwanted answers: export both")]
    tie = "is the chosen one's score: a tie", "drop the pair: neither side is better"
    return [FileProblem(i, "rejected_score", *tie) for i, row in enumerate(rows, 1) if _tied(row)]


def _tied(row: dict[str, Any]) -> bool:
    high, low = row.get("chosen_score"), row.get("rejected_score")
    decided = row.get("chosen_correct") is True and row.get("rejected_correct") is False
    return high is not None and high == low and not decided


def _as_kto(row: Any) -> Any:
    """A row that has a prompt alone, with an answer, so that the same validator looks at it."""
    if not isinstance(row, dict) or "prompt" not in row:
        return row
    return {**row, **_prompt_only(row), "completion": [{"role": "assistant", "content": "-"}], "label": True}


def _prompt_only(row: dict[str, Any]) -> dict[str, Any]:
    prompt = row["prompt"]
    return {**row, "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt}


def _refuse(name: str, found: list[FileProblem]) -> None:
    if found:
        lines = "".join(f"\n  {finding}" for finding in found[:_SHOWN])
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise TrainingDataError(f"{name}: {len(found)} finding(s), nothing was trained.{lines}{more}")


def _as_trained(row: dict[str, Any], method: str) -> Iterator[dict[str, Any]]:
    """The columns TRL gets. A conversation gives one row an answer: templates drop earlier reasoning."""
    if method == "grpo":
        yield _prompt_only(row)  # the reward takes the other columns
    elif "messages" in row:
        said = row["messages"]
        for i, message in enumerate(said):
            if message["role"] == "assistant":
                yield {"prompt": said[:i], "completion": [message]}
    else:
        columns = ("prompt", "completion") if method == "sft" else _COLUMNS[_format([row], method)]
        yield {name: row[name] for name in columns}


def _shortcuts(pairs: list[dict[str, Any]]) -> list[str]:
    """Warnings when chosen and rejected are told apart by their length, or by single words, alone."""
    sides = [_said(pair[side]) for side in ("chosen", "rejected") for pair in pairs]
    labels = [True] * len(pairs) + [False] * len(pairs)
    words = [set(re.findall(r"[^\W\d_]+", text.lower())) for text in sides]
    halves = [place % len(pairs) % 2 for place in range(len(sides))]
    seen = {(half, label): Counter() for half in (0, 1) for label in (True, False)}
    for half, label, own in zip(halves, labels, words, strict=True):
        seen[half, label].update(own)
    odds = []
    for half, own in zip(halves, words, strict=True):  # by what the other half says of each word
        wanted, unwanted = seen[1 - half, True], seen[1 - half, False]
        odds.append(round(sum(math.log((wanted[w] + 1) / (unwanted[w] + 1)) for w in own), 9))
    found = {
        "length": ([len(text) for text in sides], "export with policy='length_controlled'"),
        "choice of words": (odds, "look at the pairs for a phrase that only one side has"),
    }
    return [
        f"the {what} alone tells chosen from rejected (AUC {area:.2f} of {len(pairs)} pairs): the model may "
        f"learn that and nothing else; {advice}"
        for what, (scores, advice) in found.items()
        if not 1 - _SHORTCUT <= (area := auc(scores, labels)) <= _SHORTCUT
    ]


def _said(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    return (answer[-1].get("reasoning_content") or "") + answer[-1]["content"]


def fit_to(found: TrainingRows, tokenizer: Any, max_length: int) -> TrainingRows:
    """`found` without the rows that are longer than `max_length` tokens; each drop is counted.

    TrainingDataError when nothing or one label is left, when conversations meet a tokenizer without a chat
    template, when the template refuses a row or leaves its reasoning out, and when a text already begins with
    the token that the tokenizer begins it with.
    """
    render, adds = _renderer(tokenizer, found), _adds_a_beginning(tokenizer)
    rows, drops, warnings = [], Counter(), Counter()
    for number, row in enumerate(found.rows, 1):
        drop = None
        if adds and isinstance(row["prompt"], str) and row["prompt"].startswith(tokenizer.bos_token):
            raise TrainingDataError(
                f"{found.name}: row {number}, field 'prompt': begins with {tokenizer.bos_token}, and the "
                "tokenizer writes it once more: the text is rendered already. Fix: export messages"
            )
        for side in [name for name in ("completion", "chosen", "rejected") if name in row] or [None]:
            try:
                prompt, whole = render(row["prompt"], row[side] if side else None)
            except jinja2.TemplateError as error:
                raise TrainingDataError(
                    f"{found.name}: row {number}, field {side or 'prompt'!r}: the base model's chat template "
                    f"refuses it: {error}. Fix: export messages that it takes (many want user and assistant "
                    "in turn, and no system message)"
                ) from None
            if _tokens(tokenizer, prompt) >= max_length:
                drop = "prompt_too_long"
            elif side and _tokens(tokenizer, whole) > max_length:
                drop = drop or "too_long"
            if side:
                warnings.update(_checked(found.name, number, side, row[side], prompt, whole, tokenizer))
        if drop:
            drops[drop] += 1
        else:
            rows.append(row)
    if not rows:
        raise TrainingDataError(
            f"{found.name}: no row fits into max_length={max_length} tokens. Fix: raise it; {dict(drops)}"
        )
    if set(rows[0]) == set(_COLUMNS["trl_kto"]) and len(labels := {row["label"] for row in rows}) == 1:
        raise TrainingDataError(
            f"{found.name}: field 'label': is {str(*labels).lower()} in every row that fits into "
            f"max_length={max_length} tokens; kto needs wanted and unwanted answers. Fix: raise max_length"
        )
    told = [f"{text} ({count} answers)" for text, count in warnings.items()]
    return TrainingRows(found.name, rows, found.sha256, found.given, dict(drops), [*found.warnings, *told])


def _renderer(tokenizer: Any, found: TrainingRows) -> Callable[[Any, Any], tuple[str, str]]:
    """`render(prompt, answer)`: the text up to the answer, and the whole, as TRL will write them."""
    if isinstance(found.rows[0]["prompt"], str):
        return lambda prompt, answer: (prompt, prompt + answer + (tokenizer.eos_token or ""))
    if not tokenizer.chat_template:
        raise TrainingDataError(
            f"{found.name}: field 'prompt' holds messages, but the base model has no chat template. Fix: set "
            "tokenizer.chat_template and save the model again, or export trl_dpo_standard"
        )

    def render(prompt: Any, answer: Any) -> tuple[str, str]:
        before = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        return before, tokenizer.apply_chat_template([*prompt, *(answer or [])], tokenize=False)

    return render


def _adds_a_beginning(tokenizer: Any) -> bool:
    """Whether it puts its begin-of-text token before a text by itself."""
    return tokenizer.bos_token is not None and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]


def _tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


_NO_PREFIX = (
    "the chat template writes a prompt otherwise once its answer follows, so the model is trained on a "
    "context it will not meet"
)
_NO_END = "the chat template writes no end-of-text token after the answer, so the model may not learn to stop"


def _checked(
    name: str, row: int, side: str, answer: Any, prompt: str, whole: str, tokenizer: Any
) -> Iterator[str]:
    """Warnings about one rendered answer; TrainingDataError when its reasoning is not in what is trained."""
    shared = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
    trained = whole[shared:]
    if shared < len(prompt):
        yield _NO_PREFIX
    if tokenizer.eos_token and tokenizer.eos_token not in trained:
        yield _NO_END
    if not isinstance(answer, list):
        return
    message = answer[-1]
    inside, closed, after = message["content"].rpartition("</think>")
    reasoning = message.get("reasoning_content") or inside.replace("<think>", "")
    for what, text in (("reasoning", reasoning), ("answer", after)):
        if _squeezed(text) not in _squeezed(trained):
            raise TrainingDataError(
                f"{name}: row {row}, field {side!r}: the base model's chat template leaves the {what} out of "
                f"the text that is trained on. Fix: export with reasoning="
                + ("'as_text'" if closed else "'think_tags' or 'as_text'")
            )


def _squeezed(text: str) -> str:
    return " ".join(text.split())
