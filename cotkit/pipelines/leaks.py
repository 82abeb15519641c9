"""Signs that a text betrays the reference answer it was made with.

STaR's rationalization (Zelikman et al. 2022, arXiv 2203.14465, section 3) gives the model the answer as a
hint; a trace that says so teaches nothing. A judge that saw the reference may pass it on in its feedback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cotkit.verify import answer_key

# Words of being told, in any trace: "the correct answer is" or "the expected value" are everyday mathematics.
_TOLD = r"""
    (?:the|this|your|that)\s+hint | as\s+hinted
  | (?:given|provided|supplied|stated|reference|gold|target)\s+(?:final\s+)?answer
  | reference\s+solution | answer\s+key
  | answer\s+(?:that\s+)?(?:was|is|were)\s+(?:given|provided|told)
  | answer\s+(?:that\s+)?(?:you|they)\s+(?:gave|told|provided)
  | (?:was|were|am|been)\s+(?:told|given|provided)\s+(?:that\s+|with\s+)?
    the\s+(?:final\s+)?(?:answer|solution|result)
  | told\s+(?:me|us)\b | 参考答案 | 给定(?:的)?答案
"""
# A trace that was written with the answer in view has to be beyond doubt: here everyday turns count too.
_HINTED = r"""
    given\s+(?:that\s+)?the\s+(?:final\s+)?(?:answer|solution|result)
  | (?:we|i)\s+(?:already\s+)?know\s+(?:that\s+)?the\s+(?:final\s+)?(?:answer|solution|result)
  | knowing\s+(?:that\s+)?the\s+(?:final\s+)?(?:answer|solution|result)
  | work(?:s|ing|ed)?\s+backwards?
  | (?:known|expected|correct|desired|required|right)\s+(?:final\s+)?(?:answer|solution|result)
  | (?:answer|solution|result)\s+(?:\w+\s+){0,3}(?:provided|supplied|stated|mentioned|above|told)\b
  | (?:answer|solution|result|total)\s+(?:has|have|ought|needs|is\s+supposed|is\s+known)\s+to\s+be
  | (?:since|because|as|so\s+that)\s+(?:the|our)\s+(?:final\s+)?
    (?:answer|solution|result)\s+(?:is|must|should)
  | (?:answer|solution|result)\s+(?:should|must)\s+be
  | (?:in|by|from|as\s+\w+\s+in)\s+the\s+(?:prompt|hint|note)
"""
_FLAGS = re.IGNORECASE | re.VERBOSE
_PLAIN = re.compile(rf"(?:\b|(?=[参给]))(?:{_TOLD})", _FLAGS)
_STRICT = re.compile(rf"(?:\b|(?=[参给]))(?:{_TOLD}|{_HINTED})", _FLAGS)
_VALUE = re.compile(
    r"\\d?frac\s*(?:\{[^{}]*\}\s*\{[^{}]*\}|\d\d)|-?\d[\d,]*(?:\.\d+)?(?:/\d+)?|[^\W\d_]+(?:-[^\W\d_]+)?"
)
# What stands right before a value that is told as the answer: "the correct answer is", "it should be".
_ANNOUNCED = re.compile(
    r"""\b(?: answer | solution | result | equals?
      | (?:should|must|ought\s+to|has\s+to|needs\s+to)\s+(?:be|have\s+been|equal|get|give|come\s+to) )
    (?: [^\w.;!?] | \bnot\s+\S+\s+but\b | \b(?:is|was|be|been|should|must|would|have|has|to
      |equals?|comes?|out|at|as|of|in|fact|therefore|indeed|really|actually|simply|just|exactly|rather|boxed
      |text)\b )*$""",
    _FLAGS,
)


def trace_leaks(trace: str, hinted: bool = False) -> list[str]:
    """Phrases of a trace that speak of an answer known beforehand; empty = none found.

    `hinted`: the trace was written with the answer in view, so everyday turns such as "we know the answer"
    or "working backwards" count as well.
    """
    pattern = _STRICT if hinted else _PLAIN
    return sorted({" ".join(match[0].lower().split()) for match in pattern.finditer(trace)})


def feedback_leaks(feedback: str, answer: str | None, *seen: str) -> bool:
    """True when the feedback states the reference `answer`, in whatever spelling of its value ("7.0",
    "seven", "$1,234.00"), as the answer ("the result should be 7") or where none of the texts already `seen`
    does.
    """
    if not answer or not answer.strip():
        return False
    places = list(_places(feedback, answer))
    if any(_ANNOUNCED.search(feedback[max(0, place - 80) : place]) for place in places):
        return True
    return bool(places) and not any(any(True for _ in _places(text, answer)) for text in seen)


def _places(text: str, answer: str) -> Iterator[int]:
    """Where a text states the answer."""
    bare = answer.strip()
    for match in re.finditer(rf"(?<![\w.]){re.escape(bare)}(?!\w|\.\d)", text, re.IGNORECASE):
        yield match.start()
    key = answer_key(bare)
    keys = {value: answer_key(value.rstrip(",")) for value in set(_VALUE.findall(text))}
    yield from (match.start() for match in _VALUE.finditer(text) if keys[match[0]] == key)
