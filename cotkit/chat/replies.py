"""Reading a chat completion: the answer, the reasoning apart from it, usage; what is no answer at all.

Pure functions over the decoded JSON body. Servers differ in where they put the chain of thought:
`reasoning_content` (DeepSeek, vLLM), `reasoning` (OpenRouter, Groq), `reasoning_details` (OpenRouter), parts
of a content list (Mistral), or in the text between marks (llama.cpp, Ollama, plain vLLM): `<think>`, or those
of another family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotkit.chat.errors import Failure, as_json, classify
from cotkit.records import unfinished

MOST_TOKENS = 2**53  # more counts nothing; JSON's numbers are exact up to here

_WRONG_PATH = "Unexpected endpoint or method"  # LM Studio's 404, inside a 200

# Of other families than <think>: how a thought begins and ends. (<thinking> is what prompts ask for: a text.)
_MARKS = (
    ("[THINK]", "[/THINK]"),  # Mistral
    ("<seed:think>", "</seed:think>"),
    ("<thought>", "</thought>"),  # Gemini
    ("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"),  # gpt-oss
)
_TAG = re.compile(r"</?think>")
_CODE_OR_TAG = re.compile(r"```.*?```|`[^`\n]*`|</?think>", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """One choice of a chat completion. `problem` is a kind of failure where it is no answer."""

    text: str
    reasoning: str | None = None
    finish_reason: str | None = None
    truncated: bool = False
    logprobs: list[dict[str, Any]] | None = None
    problem: str | None = None
    detail: str = ""
    failure: Failure | None = None  # where the choice is an error


@dataclass(frozen=True)
class Reply:
    """What one request brought. Token counts are None where the endpoint does not say."""

    answers: list[Answer]
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int = 0  # of the prompt, cheaper at some endpoints
    served_model: str | None = None


def read_completion(body: Any, sent: Mapping[str, Any] | None = None) -> Reply:
    """The Reply in a decoded body. Raises Failure ("malformed", or what an error inside a 200 says).

    sent: the request; see `classify`.
    """
    try:
        return _read_body(body, sent)
    except RecursionError:
        raise Failure("malformed", "the body is JSON nested too deeply") from None


def _read_body(body: Any, sent: Mapping[str, Any] | None) -> Reply:
    if not isinstance(body, dict):
        raise Failure("malformed", f"the body is no chat completion: {str(body)[:200]!r}")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        if body.get("error") or body.get("object") == "error":
            raise _error_in_body(body.get("error") or body, sent)
        if _filtered(body.get("prompt_filter_results")):
            raise Failure("refusal", "stopped by a content filter")
        raise Failure("malformed", f"a chat completion without choices: {as_json(body)[:200]}")
    usage = body.get("usage") if isinstance(body.get("usage"), dict) else {}
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    total = _count(usage.get("total_tokens"))
    if None not in (prompt, completion, total):  # Gemini and xAI leave thoughts out of the answer's count
        completion = max(completion, total - prompt)
    thought = completion or _details(usage, "completion_tokens_details").get("reasoning_tokens")
    served = body.get("model")
    return Reply(
        answers=[_read_choice(choice, bool(thought), sent) for choice in choices],
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=_count(_details(usage, "prompt_tokens_details").get("cached_tokens")) or 0,
        served_model=served if isinstance(served, str) else None,
    )


def _error_in_body(error: Any, sent: Mapping[str, Any] | None) -> Failure:
    """Some gateways answer 200 and put the upstream error, with its status, into the body."""
    code = str(error.get("code")) if isinstance(error, dict) else ""
    if re.fullmatch("[45][0-9]{2}", code):
        return classify(int(code), {}, {"error": error}, sent)
    status = 404 if _WRONG_PATH in str(error) else 502
    return classify(status, {}, {"error": error}, sent, "an error inside a 200")


def _filtered(results: Any) -> bool:
    """Whether Azure's `prompt_filter_results` say that the prompt was stopped."""
    results = results if isinstance(results, list) else []
    found = [one.get("content_filter_results") for one in results if isinstance(one, dict)]
    return any(
        isinstance(said, dict) and said.get("filtered") is True
        for filters in found
        if isinstance(filters, dict)
        for said in filters.values()
    )


def _details(usage: dict[str, Any], name: str) -> dict[str, Any]:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _count(value: Any) -> int | None:
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if counts else None


def _read_choice(choice: Any, thought_in_secret: bool, sent: Mapping[str, Any] | None) -> Answer:
    if isinstance(choice, dict) and choice.get("error"):
        failure = _error_in_body(choice["error"], sent)
        return Answer("", problem=failure.kind, detail=failure.message, failure=failure)
    finish_reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    why = unfinished(finish_reason)
    if why == "broken":
        return Answer("", problem="server", detail=f"the endpoint ended its answer with {finish_reason!r}")
    message = choice.get("message") if isinstance(choice, dict) else None
    if isinstance(message, list) and len(message) == 1:  # as Nemotron's reward endpoint answers
        message = message[0]
    if message is None and why is not None:  # Gemini's blocked prompts
        message = {}
    if not isinstance(message, dict):
        raise Failure("malformed", "a choice without a message")
    text, inline = _content(message.get("content"))
    reasoning = _reasoning_field(message)
    reasoning = inline if reasoning is None else reasoning
    text, thought, unclosed = split_think(text)
    if reasoning:
        reasoning = _untagged(reasoning)
        if thought and thought not in reasoning:  # a parser parted a piece of it only
            reasoning = f"{reasoning}\n{thought}"
    elif thought is not None:
        reasoning = thought
    cut = why == "cut"
    logprobs = _logprobs(choice.get("logprobs"))
    problem, detail = None, ""
    if message.get("refusal") or why == "refused":
        problem, detail = "refusal", str(message.get("refusal") or "stopped by a content filter")
    elif not text.strip() and not logprobs:  # a reward model may answer in its logprobs alone
        text = ""
        if not unclosed and not (cut and (reasoning or thought_in_secret)):
            problem = "empty"
            detail = "reasoning without an answer" if reasoning else "an answer without content"
    return Answer(
        text=text,
        reasoning=reasoning,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        truncated=cut or unclosed,
        logprobs=logprobs,
        problem=problem,
        detail=detail,
    )


def _logprobs(logprobs: Any) -> list[dict[str, Any]] | None:
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    known = isinstance(tokens, list) and all(isinstance(token, dict) for token in tokens)
    return tokens if known else None


def _content(content: Any) -> tuple[str, str | None]:
    """(text, reasoning) of a message's content: a string, None, or a list of parts."""
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list):
        return "", None
    parts = [part for part in content if isinstance(part, dict)]
    thinking = [part for part in parts if part.get("type") in ("thinking", "reasoning")]
    text = "".join(part["text"] for part in parts if part not in thinking and _is_text(part.get("text")))
    return text, _joined([part.get("thinking", part) for part in thinking]) if thinking else None


def _reasoning_field(message: dict[str, Any]) -> str | None:
    """The first reasoning field that is there; "" (the model gave an empty one) differs from None."""
    found = None
    for name in ("reasoning_content", "reasoning", "reasoning_details"):
        value = message.get(name)
        text = value if _is_text(value) else _joined(value) if isinstance(value, list) else None
        if text:
            return text
        found = text if found is None else found
    return found


def _joined(parts: list[Any]) -> str:
    """The words in a list of reasoning parts; encrypted parts hold none."""
    words = []
    for part in parts:
        if isinstance(part, list):
            words.append(_joined(part))
        elif isinstance(part, dict):
            words.append(next((part[k] for k in ("text", "summary") if _is_text(part.get(k))), ""))
        elif _is_text(part):
            words.append(part)
    return "".join(words)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def split_think(text: str) -> tuple[str, str | None, bool]:
    """(answer, reasoning, unclosed) of a text that may hold `<think>`; reasoning None = it holds none.

    A text that opens with `<think>` is reasoning up to the tag that closes it. A closing tag without an
    opening one (the opening tag was part of the prompt): everything before it is reasoning. Tags in code, and
    tags later in the text, are words. So it is with the marks of another family, where they are closed.
    """
    begins = text.lstrip()
    if begins[:1] in ("<", "["):
        for opening, closing in _MARKS:
            if begins.startswith(opening) and closing in begins:
                thought, _, answer = begins.removeprefix(opening).partition(closing)
                thought, answer = thought.removesuffix("<|end|>"), answer.removesuffix("<|return|>")
                if answer.strip() or opening != "<thought>":  # which a prompt may ask for, around all of it
                    return answer.lstrip(), thought.strip(), False
    if "think>" not in text:
        return text, None, False
    tags = list(_TAG.finditer(text))
    plain = [match for match in _CODE_OR_TAG.finditer(text) if match[0][0] == "<"]
    if not text.lstrip().startswith("<think>"):
        if plain and plain[0][0] == "</think>" and begins[:1] not in ("{", "["):  # JSON that speaks of a tag
            return text[plain[0].end() :].lstrip(), text[: plain[0].start()].strip(), False
        return text, None, False
    start = tags[0].end()
    close = _closing(plain) or next((tag for tag in reversed(tags) if tag[0] == "</think>"), None)
    if close is None:
        return "", text[start:].strip(), True
    return text[close.end() :].lstrip(), text[start : close.start()].strip(), False


def _untagged(reasoning: str) -> str:
    bare = reasoning.strip()
    if not bare.startswith("<think>") and not bare.endswith("</think>"):
        return reasoning
    return bare.removeprefix("<think>").removesuffix("</think>").strip()


def _closing(tags: list[re.Match[str]]) -> re.Match[str] | None:
    """The tag that closes the first one, inner pairs skipped; None when they do not pair up."""
    depth = 0
    for tag in tags:
        depth += 1 if tag[0] == "<think>" else -1
        if depth == 0:
            return tag
    return None


def counts_one_choice(reply: Reply) -> bool:
    """True when `completion_tokens` of several choices is fewer than their words: it counts one only."""
    counted = reply.completion_tokens
    if len(reply.answers) == 1 or counted is None:
        return False
    return counted < sum(len(f"{answer.reasoning or ''} {answer.text}".split()) for answer in reply.answers)
