"""What changed between two texts, word by word, as HTML: inserted and deleted words are marked by underlining
and striking out, not by colour alone.
"""

from __future__ import annotations

import difflib
import re

from cotkit.widgets.base import text

_WORD = re.compile(r"\s+|\w+|[^\w\s]")
MOST_WORDS = 4000  # difflib is quadratic at worst; longer texts are compared line by line


def word_diff(before: str, after: str) -> str:
    """HTML of `after`, with what was taken from `before` and what was added marked."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) > MOST_WORDS:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(text("".join(new[c:d])))
            continue
        if b > a:
            parts.append(f"<del>{text(''.join(old[a:b]))}</del>")
        if d > c:
            parts.append(f"<ins>{text(''.join(new[c:d]))}</ins>")
    return "".join(parts)
