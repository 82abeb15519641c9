"""Signs that a text betrays the reference answer it was made with.

STaR's rationalization (Zelikman et al. 2022, arXiv 2203.14465, section 3) gives the model the answer as a
hint; a trace that says so teaches nothing. A judge that saw the reference may pass it on in its feedback.
"""

from __future__ import annotations

import re

# Only what speaks of being told: "the correct answer is", "the expected value", "the given number" are
# everyday mathematics.
_PHRASES = re.compile(
    r"""\b(?:
        (?:the|this|your|that)\s+hint | as\s+hinted
      | (?:given|provided|stated|reference|gold|target)\s+(?:final\s+)?answer
      | reference\s+solution | answer\s+key
      | answer\s+(?:that\s+)?(?:was|is|were)\s+(?:given|provided|told)
      | answer\s+(?:that\s+)?(?:you|they)\s+(?:gave|told|provided)
      | (?:was|were|am|been)\s+(?:told|given)\s+(?:that\s+)?the\s+(?:final\s+)?(?:answer|solution|result)
      | (?:given|knowing)\s+that\s+the\s+(?:final\s+)?answer\s+(?:is|must\s+be|should\s+be)
      | told\s+(?:me|us)\s+(?:that\s+)?the\s+answer
    )\b | 参考答案 | 给定(?:的)?答案""",
    re.IGNORECASE | re.VERBOSE,
)


def trace_leaks(trace: str) -> list[str]:
    """Phrases of a trace that speak of an answer known beforehand; empty = none found."""
    return sorted({" ".join(match[0].lower().split()) for match in _PHRASES.finditer(trace)})


def feedback_leaks(feedback: str, answer: str | None, *seen: str) -> bool:
    """True when the feedback states the reference `answer` and none of the texts already `seen` holds it."""
    if not answer or not answer.strip():
        return False
    bare = answer.strip()
    pattern = re.compile(rf"(?<![\w.]){re.escape(bare)}(?!\w|\.\d)", re.IGNORECASE)
    return bool(pattern.search(feedback)) and not any(pattern.search(text) for text in seen)
