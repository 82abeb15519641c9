r"""Text as models write it -> plain lines an arithmetic reader can tokenise.

LaTeX becomes plain signs (`\frac{1}{2}` -> `(1/2)`, `\times` -> `×`, `\text{ pens}` -> ` pens`, `\boxed{7}`
-> `7`), markdown emphasis and list marks go, aligned lines that open or close with `=` are joined to one.
What is not understood becomes a bar `¦`, at which an expression ends: nothing is guessed.
Every pass is linear in the length of the text.
"""

from __future__ import annotations

import re

from cotkit.verify import FONT_COMMANDS, brace_pairs

MAX_LINE = 20_000  # characters of one line that are read
MAX_NESTING = 30

_SIGNS = {
    "times": "×", "cdot": "·", "ast": "*", "div": "÷", "pm": "¦", "approx": "≈", "simeq": "≈", "cong": "≈",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "lt": "<", "gt": ">", "ne": "≠", "neq": "≠",
    "to": "→", "rightarrow": "→", "Rightarrow": "⇒", "implies": "⇒", "therefore": "∴",
    "ldots": "…", "dots": "…", "cdots": "…", "circ": "°", "degree": "°", "lbrace": "¦", "rbrace": "¦",
    "left": "", "right": "", "big": "", "Big": "", "bigl": "", "bigr": "", "displaystyle": "", "limits": "",
    "quad": " ¦ ", "qquad": " ¦ ", "bmod": " mod ", "mod": " mod ", "pounds": "£", "euro": "€",
}  # fmt: skip
_BOXES = {"boxed", "fbox"}
_BINOMIALS = {"binom", "dbinom", "tbinom"}
_FRACTIONS = {"frac", "dfrac", "tfrac", "cfrac"}
# $3 + 4 = 7$, not $3 + $4: signs stand right at both ends of a formula
_MATH = re.compile(r"(?<!\\)\$(?=\S)([^$\n]*[=+*/\\^×÷-][^$\n]*)(?<=[^\s\\])\$(?![\d<])")
_CHOOSE = re.compile(r"(?<!\w)C\((\d+), ?(\d+)\)")
_INDEX = re.compile(r"\[[^\[\]]*\]")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_DOUBLED = re.compile(r"\\\\(?=(?:[dt]?frac|boxed|times|cdot|div|text|approx|left|right)\b|[$%])")
_LIST_MARK = re.compile(
    r"^\s*(?:(?:[-*•]|\d{1,3}[.)]|\(\w{1,2}\)(?!\s*[-+*/×÷=]))\s+"
    r"|(?:step|part|question|day|week|month|year|case|option)\s*#?\d{1,3}\s*[:.)]\s*"
    r"|(?:step|part|question|day|week|month|year|case|option)\s*#?\d{1,3}\s+[-–—]\s+)+",
    re.IGNORECASE,
)


def plain_lines(text: str) -> list[tuple[int, str]]:
    """(1-based line number, plain text) of every line that is not empty; continued lines joined."""
    lines: list[tuple[int, str]] = []
    open_ended = False
    for number, raw in enumerate(text.split("\n"), 1):
        for part in _line_breaks(raw[:MAX_LINE]):
            line = plain(part)
            if not line:
                continue
            if lines and len(lines[-1][1]) < MAX_LINE and (open_ended or line[0] in "=≈"):
                lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line}")
            else:
                lines.append((number, line))
            open_ended = line[-1] in "=≈"
    return lines


def plain(line: str) -> str:
    """One line without LaTeX, markdown and list marks."""
    line = _MATH.sub(r"\1 ", line.replace("$$", " ").replace("{,}", ","))
    if "\\" in line:
        line = _latex(line)
    line = re.sub(r"(?<![\d)])\*\*|\*\*(?![\d(])|`", "", line)
    line = re.sub(r"_\w+|[&_]+", " ", line)
    line = re.sub(r"[{}]", " ", line)
    line = _LIST_MARK.sub("", line)
    line = _CHOOSE.sub(r"(\1 choose \2)", line)
    line = re.sub(r"\b(?:is|are) equal to\b|\bequals\b(?: to\b)?", "=", line)
    return re.sub(r"\s+", " ", line).strip()


def _line_breaks(line: str) -> list[str]:
    if "\\\\" not in line:
        return [line]
    return re.split(r"\\\\(?:\[[^\]]*\])?", _DOUBLED.sub(r"\\", line))


def _latex(text: str, depth: int = 0) -> str:
    if depth > MAX_NESTING:
        return " ¦ "
    text = re.sub(r"(?<=\d)\\[,!;:](?=\d{3})", "", text)  # 1\,000
    out, at, pairs = [], 0, brace_pairs(text)
    while match := _COMMAND.search(text, at):
        out.append(_braces(text[at : match.start()]))
        name, at = match.group(1), match.end()
        if name in _FRACTIONS:
            top, at = _argument(text, at, pairs)
            bottom, at = _argument(text, at, pairs)
            top, bottom = _latex(top, depth + 1).strip(), _latex(bottom, depth + 1).strip()
            out.append(_fraction(out[-1][-1:], top, bottom))
        elif name in _BINOMIALS:
            above, at = _argument(text, at, pairs)
            below, at = _argument(text, at, pairs)
            out.append(f"({_latex(above, depth + 1)} choose {_latex(below, depth + 1)})")
        elif name == "sqrt":
            index = _INDEX.match(text, at)
            inside, at = _argument(text, index.end() if index else at, pairs)
            out.append(" ¦ " if index else f"√({_latex(inside, depth + 1)})")
        elif name in FONT_COMMANDS or name in _BOXES:
            inside, at = _argument(text, at, pairs)
            inside = _latex(inside, depth + 1)
            if name in _BOXES and re.search(r"[\d)%!][ $]*$", "".join(out[-2:])[-20:]):
                out.append("; ")  # 100 \boxed{100} is no 100100, 5 \boxed{1/2} no 5 1/2
            out.append(f" {inside} " if name in FONT_COMMANDS else inside)
        elif name in ("begin", "end"):
            _, at = _argument(text, at, pairs)
        elif name in _SIGNS:
            out.append(_SIGNS[name])
        elif name in "$%#&":
            out.append(name)
        elif name in "()[],;:! \n":
            out.append(" ")
        else:
            out.append(" ¦ ")
    out.append(_braces(text[at:]))
    return "".join(out)


def _fraction(before: str, top: str, bottom: str) -> str:
    if before.isdigit() and top.isdigit() and bottom.isdigit():
        return f" {top}/{bottom}"  # a mixed number: 2\frac{1}{2} = 2 1/2
    if not re.search(r"\d", top + bottom):
        return f" {top}/{bottom}"  # units: pens/box
    simple = re.compile(r"[\d.,]+")
    sides = [side if simple.fullmatch(side) else f"({side})" for side in (top, bottom)]
    return f"({sides[0]}/{sides[1]})"


def _braces(text: str) -> str:
    """`^{2}` -> `^(2)`, `_{i=1}` dropped; other braces stay for the caller."""
    text = re.sub(r"_\{[^{}]*\}", "", text)
    return re.sub(r"\^\{([^{}]*)\}", r"^(\1)", text)


def _argument(text: str, at: int, pairs: dict[int, int]) -> tuple[str, int]:
    """The `{...}` (braces matched) or the single sign after a command, and where it ends."""
    while at < len(text) and text[at] == " ":
        at += 1
    if at >= len(text):
        return "", at
    if text[at] != "{":
        return text[at], at + 1
    end = pairs.get(at, len(text))
    return text[at + 1 : end], end + 1
