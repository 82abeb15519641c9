"""The export formats: one line of `FORMATS` each, and the words they are built from.

To add a format: a line here, its shape in `shapes.py`, a case in the tests.

The prompt is the clean problem text as the user's turn, after a `system` message if one is given: never the
rubric, the feedback, the hint or the worked examples that the generator saw. How reasoning is written:

- `think_tags`         "<think>\\n" + reasoning + "\\n</think>\\n\\n" + answer, where the model gave its
                       reasoning apart; a plain chain of thought that ends in its answer stays as it is
- `reasoning_content`  the reasoning in a field beside `content` (null where there is none)
- `answer_only`        what the user sees, without the reasoning given apart
- `as_text`            reasoning, blank line, answer, no tags
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cotkit.records import Candidate, Row
from cotkit.runs.journal import dump_json
from cotkit.runs.shapes import COLUMNS, PAIR_COLUMNS, think_text
from cotkit.runs.views import Example, history, is_truncated, parts, score

REASONING = ("think_tags", "reasoning_content", "answer_only", "as_text")
_PLAIN_TEXT = ("think_tags", "answer_only", "as_text")  # for formats without a field for reasoning
_OPENAI = ("answer_only", "think_tags", "as_text")  # OpenAI's fine-tuning knows no reasoning


@dataclass(frozen=True)
class Words:
    """The words of one example, ready to be put into a format."""

    problem: str
    system: str | None
    answer: dict[str, Any]  # an assistant message
    rejected: dict[str, Any] | None = None
    label: bool | None = None

    @property
    def prompt(self) -> list[dict[str, Any]]:
        user = {"role": "user", "content": self.problem}
        return [{"role": "system", "content": self.system}, user] if self.system else [user]

    def system_column(self) -> dict[str, str]:
        return {"system": self.system} if self.system else {}


@dataclass(frozen=True)
class Format:
    """`view`: sft, pairs, labels, camel or table. `reasoning`: the modes it can carry, default first.
    `metadata`: the white-listed columns may stand beside the training data (None = they always do)."""

    view: str
    build: Callable[[Words], dict[str, Any]] | None = None
    reasoning: tuple[str, ...] = REASONING
    metadata: bool | None = False
    system: bool = True
    dataset_info: dict[str, Any] | None = None  # LLaMA-Factory
    axolotl: dict[str, Any] | None = None


def _gpt(message: dict[str, Any]) -> dict[str, str]:
    return {"from": "gpt", "value": message["content"]}


def _human(words: Words) -> dict[str, str]:
    return {"from": "human", "value": words.problem}


FORMATS: dict[str, Format] = {
    "messages": Format("sft", lambda w: {"messages": [*w.prompt, w.answer]}, metadata=None),
    "trl_sft": Format("sft", lambda w: {"messages": [*w.prompt, w.answer]}, metadata=True),
    "trl_prompt_completion": Format(
        "sft", lambda w: {"prompt": w.prompt, "completion": [w.answer]}, metadata=True
    ),
    "trl_dpo": Format(
        "pairs",
        lambda w: {"prompt": w.prompt, "chosen": [w.answer], "rejected": [w.rejected]},
        metadata=True,
    ),
    "trl_dpo_standard": Format(  # TRL joins the two strings, so the prompt ends with the gap between them
        "pairs",
        lambda w: {
            "prompt": w.problem + "\n\n",
            "chosen": w.answer["content"],
            "rejected": w.rejected["content"],
        },
        _PLAIN_TEXT,
        metadata=True,
        system=False,
    ),
    "trl_kto": Format(
        "labels",
        lambda w: {"prompt": w.prompt, "completion": [w.answer], "label": w.label},
        metadata=True,
    ),
    "sharegpt": Format(
        "sft",
        lambda w: {"conversations": [_human(w), _gpt(w.answer)], **w.system_column()},
        _PLAIN_TEXT,
        dataset_info={"formatting": "sharegpt", "columns": {"messages": "conversations"}},
    ),
    "sharegpt_dpo": Format(
        "pairs",
        lambda w: {
            "conversations": [_human(w)],
            "chosen": _gpt(w.answer),
            "rejected": _gpt(w.rejected),
            **w.system_column(),
        },
        _PLAIN_TEXT,
        dataset_info={
            "formatting": "sharegpt",
            "ranking": True,
            "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
        },
    ),
    "llamafactory_alpaca": Format(
        "sft",
        lambda w: {
            "instruction": w.problem,
            "input": "",
            "output": w.answer["content"],
            **w.system_column(),
        },
        _PLAIN_TEXT,
        dataset_info={"columns": {"prompt": "instruction", "query": "input", "response": "output"}},
    ),
    "axolotl": Format(
        "sft",
        lambda w: {"messages": [*w.prompt, w.answer]},
        metadata=True,
        axolotl={"type": "chat_template", "field_messages": "messages"},
    ),
    "axolotl_dpo": Format(  # its loader copies role and content alone
        "pairs",
        lambda w: {"messages": w.prompt, "chosen": w.answer, "rejected": w.rejected},
        _PLAIN_TEXT,
        metadata=True,
        axolotl={
            "type": "chat_template.default",
            "field_messages": "messages",
            "field_chosen": "chosen",
            "field_rejected": "rejected",
        },
    ),
    "openai_sft": Format("sft", lambda w: {"messages": [*w.prompt, w.answer]}, _OPENAI),
    "openai_dpo": Format(
        "pairs",
        lambda w: {
            "input": {"messages": w.prompt, "tools": [], "parallel_tool_calls": True},
            "preferred_output": [w.answer],
            "non_preferred_output": [w.rejected],
        },
        _OPENAI,
    ),
    "camel": Format("camel", reasoning=(), system=False),
    "parquet": Format("table", reasoning=(), system=False),
    "csv": Format("table", reasoning=(), system=False),
}


def message(candidate: Candidate, mode: str) -> dict[str, Any]:
    """The trace as an assistant message, its reasoning written in `mode`."""
    thinking, answer = parts(candidate)
    if mode == "reasoning_content":
        return {"role": "assistant", "content": answer, "reasoning_content": thinking or None}
    if thinking and mode == "think_tags":
        answer = think_text(thinking, answer)
    elif thinking and mode == "as_text":
        answer = f"{thinking}\n\n{answer}"
    return {"role": "assistant", "content": answer}


def words_of(example: Example, mode: str, system: str | None) -> Words:
    return Words(
        problem=example.row.problem.strip(),
        system=system,
        answer=message(example.candidate, mode),
        rejected=message(example.rejected, mode) if example.rejected else None,
        label=example.label,
    )


def flat_columns(example: Example) -> dict[str, Any]:
    """Every white-listed column of one trace."""
    row, candidate = example.row, example.candidate
    thinking, answer = parts(candidate)
    judgement, call = candidate.judgement, candidate.call
    usage = call.get("usage") or {}
    cost, mean = usage.get("cost_usd"), score(candidate)
    values = {
        "id": row.id,
        "type": row.type,
        "problem": row.problem,
        "reference": row.reference,
        "trace": think_text(thinking, answer) if thinking else answer,
        "reasoning": thinking or None,
        "answer": candidate.answer,
        "correct": candidate.verdict.correct,
        "verdict_method": candidate.verdict.method,
        "score": mean,
        "scores": dump_json(judgement.scores).decode() if judgement and judgement.scores else None,
        "judge": (judgement.judge or None) if judgement else None,
        "accepted": candidate.accepted,
        "drop_reason": row.drop_reason,
        "iteration": candidate.iteration,
        "stage": candidate.stage,
        "rationalized": candidate.rationalized,
        "saw_reference": candidate.saw_reference,
        "truncated": is_truncated(candidate),
        "model": call.get("model"),
        "served_model": call.get("served_model"),
        "finish_reason": call.get("finish_reason"),
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cost_usd": None if cost is None else float(cost),
        "prompt_name": candidate.prompt.get("name"),
        "prompt_hash": candidate.prompt.get("hash"),
        "licence": row.licence,
    }
    return {name: values[name] for name in COLUMNS}


def pair_columns(example: Example) -> dict[str, Any]:
    flat = {
        "chosen": flat_columns(example),
        "rejected": flat_columns(Example(example.row, example.rejected)),
    }
    values = {name: flat["chosen"][name] for name in ("id", "type", "licence")}
    for name in PAIR_COLUMNS:
        if name not in values:
            side, _, column = name.partition("_")
            values[name] = flat[side][column]
    return values


def camel_row(row: Row) -> dict[str, Any]:
    """CAMEL's record of a problem. What it cannot say: undecided is false, a missing text "".

    `agent_evaluate_success` is null where no judge scored the final trace, and true only where the run
    accepted it. The history has one trace an iteration; it is empty where, as in CAMEL, nothing was judged.
    """
    best, steps = row.best, history(row)
    told = len(steps) > 1 or any(step.judgement for step in steps)
    return {
        "id": row.id,
        "type": row.type or "",
        "problem": row.problem,
        "solution": row.reference or "",
        "final_trace": best.trace,
        "agent_evaluate_success": None if score(best) is None else best.accepted,
        "boxed_answer_success": best.verdict.correct is True,
        "improvement_history": [
            {"iteration": i, "trace": step.trace, "evaluation": _evaluation(step)}
            for i, step in enumerate(steps if told else [])
        ],
    }


def _evaluation(candidate: Candidate) -> dict[str, Any]:
    judgement = candidate.judgement
    if judgement is None:
        return {"feedback": candidate.feedback}
    failed = f"the judge failed: {judgement.error}" if judgement.error else ""
    return {**(judgement.scores or {}), "feedback": judgement.feedback or candidate.feedback or failed}
