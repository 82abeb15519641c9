r"""One spelling for every answer: what different hands write for the same thing becomes the same text.

`canonical` changes notation and never value: `\dfrac12` -> `\frac{1}{2}`, `−7` -> `-7`, `$\boxed{5}$` -> `5`,
`sqrt(2)` -> `\sqrt{2}`, `\begin{pmatrix}1\\2\end{pmatrix}` -> `[[1],[2]]`, SymPy's `Interval.open(1, 6)` ->
`(1,6)`; the tables are in `notation.py`. `key` squeezes a canonical text further, so that equal keys mean
equal answers. Callers bound the length.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from cotkit.verify import notation

CACHED = 8192  # texts
WRAPPERS = [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("__", "__"), ("`", "`")]
WRAPPERS += [('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’")]
BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
DOLLAR = re.compile(r"(?<!\\)\$")
WRAPPED = re.compile(r"[\s$\\*_`\"'“‘]|.*[\s.,;]\Z", re.S)  # what `unwrap` can take something from
PLAIN = re.compile(r"[+-]?\d+(?:\.\d+)?|[A-Za-z]")
NESTED_IN_BRACKETS = re.compile(r"^[(\[{]\s*(\[\[.*\]\])\s*[)\]}]$", re.S)
TAKES_ARGUMENTS = re.compile(r"\\(frac|binom|sqrt|overline)(?![A-Za-z])")
ROOT_INDEX = re.compile(r"\s*\[[^\[\]]*\]")
ONE_TOKEN = re.compile(r"\\[A-Za-z]+|\S")
ONE_NUMBER = re.compile(r"\\[A-Za-z]+|\d+|\S")
SOLUTION = re.compile(r"\[?\{([A-Za-z]\w*: ?[^{}:,]+(?:, ?[A-Za-z]\w*: ?[^{}:,]+)*)\}\]?")  # {x: 1, y: 7}
RELATION = re.compile(r"[<>=]")
IDLE_SPACE = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")
ONE_SIGN_IN_BRACES = re.compile(r"([\^_])\{([A-Za-z0-9])\}")
SPACE_AFTER_COMMAND = re.compile(r"\\([a-z]+) (?![A-Za-z])")
OPEN, CLOSE = "([{", ")]}"


@lru_cache(CACHED)
def canonical(text: str) -> str:
    """The text in the kit's one spelling."""
    text = text.strip()
    if PLAIN.fullmatch(text):
        return text
    text = unwrap(in_ascii(text))
    text = from_python(text)
    if "\\" in text:
        text = plain_latex(text)
    text = without_dollars(text)
    for pattern, replacement in notation.PATTERNS if notation.HAS_PATTERN.search(text) else ():
        text = pattern.sub(replacement, text)
    text = unwrap(with_braces(text))
    if text.count("[[") == 1 and (nested := NESTED_IN_BRACKETS.match(text)) and is_closed(text[1:-1].strip()):
        return nested[1]  # an array environment inside its own brackets
    return text


@lru_cache(CACHED)
def key(text: str) -> str:
    """A canonical text without the spaces, braces and signs that carry no meaning."""
    if "\\" in text:
        text = text.replace(r"\cdot ", "*").replace(r"\times ", "*")
    if " " in text:
        text = IDLE_SPACE.sub("", text)
    if "{" in text:
        text = ONE_SIGN_IN_BRACES.sub(r"\1\2", text)
    return SPACE_AFTER_COMMAND.sub(r"\\\1", text) if "\\" in text else text


def in_ascii(text: str) -> str:
    """Typographic signs as ASCII or LaTeX."""
    if text.isascii():
        return text.replace("\x00", "")
    text = unicodedata.normalize("NFC", text)
    for sign, fraction in notation.VULGAR.items():
        text = text.replace(sign, f" {fraction} ")
    for table, command in ((notation.RAISED, "^"), (notation.LOWERED, "_")):
        run = re.compile(f"[{''.join(table)}]+")
        text = run.sub(lambda m, c=command, t=table: f"{c}{{{''.join(t[sign] for sign in m[0])}}}", text)
    return text.translate(notation.CHARACTERS)


def unwrap(text: str) -> str:
    """The text without what stands round it: a box, math delimiters, bold, quotes, one final stop."""
    for _ in range(12):
        if not WRAPPED.match(text):
            break
        before = text = text.strip()
        if (match := BOXED.match(text)) and closing(text, match.end() - 1) == len(text) - 1:
            text = text[match.end() : -1]
        for left, right in WRAPPERS:
            inner = text[len(left) : -len(right)]
            whole = len(text) > len(left + right) and text.startswith(left) and text.endswith(right)
            if whole and left not in inner and right not in inner and not inner.endswith("\\"):
                text = inner
        if text.endswith((".", ",", ";")) and not text.endswith(("..", ".m.", "\\,", "\\;")):
            text = text[:-1]
        if text == before:
            break
    return text


def from_python(text: str) -> str:
    """What NumPy and SymPy print, as mathematics."""
    for _ in range(20 if "(" in text else 0):
        match = notation.CALL.search(text)
        end = closing(text, match.end() - 1) if match else None
        if end is None:
            break
        inside, template = text[match.end() : end].strip().strip("'"), notation.CALLS[match[1]]
        arguments = [part.strip() for part in split_top(inside, ",")]
        if match[1] == "Union":
            new = template.join(arguments)
        elif "{all}" in template:
            new = template.format(all=inside or "{}")
        elif f"{{{len(arguments)}" in template or len(arguments) < 2:
            break
        else:
            new = template.format(*arguments)
        text = text[: match.start()] + new + text[end + 1 :]
    text = conditions(text)
    if solution := SOLUTION.fullmatch(text):
        pairs = [part.split(":", 1) for part in split_top(solution[1], ",")]
        text = ", ".join(f"{name.strip()} = {value.strip()}" for name, value in pairs)
    if "[" not in text:
        return text
    if text.startswith("[["):
        text = re.sub(r"\](?:\s|\\n)+(?=\[)", "], ", text)  # the rows NumPy prints
    return notation.NUMPY_ROW.sub(lambda row: re.sub(r"(?<=[\d.])\s+(?=[-+\d.])", ", ", row[0]), text)


def conditions(text: str) -> str:
    """SymPy's `(-6 < b) & (b < 6)` as `-6 < b and b < 6`, `|` as "or"."""
    for sign, word in (("|", " or "), ("&", " and ")) if RELATION.search(text) else ():
        parts = [part.strip() for part in split_top(text, sign)]
        if len(parts) > 1 and all(map(is_closed, parts)):
            return word.join(conditions(part[1:-1]) for part in parts)
    return text


def plain_latex(text: str) -> str:
    """Spacing, sizes, fonts and synonyms of LaTeX taken out."""
    text = notation.CROSS_PRODUCT.sub(r"\1\\cross ", text)
    text = notation.MATRIX.sub(nested_lists, notation.SYSTEM.sub(equations, text))
    if r"\begin" not in text:
        text = notation.LINE_BREAK.sub(", ", text)
        text = re.sub(r"\\\\(?=[A-Za-z{}])", r"\\", text)  # doubled backslashes of a JSON string
    for pattern, replacement in notation.SPACING:
        text = pattern.sub(replacement, text)
    for _ in range(10):
        before, text = text, notation.FONTS.sub(without_font, text)
        if text == before:
            break
    return notation.COMMAND.sub(lambda m: "" if m[1] else notation.COMMANDS.get(m[2], m[0]), text)


def without_font(match: re.Match) -> str:
    command, content = match.groups()
    if command.startswith("operatorname") and content.strip().isalpha():
        return f"\\{content.strip()} "
    return content if command.startswith(("math", "b", "rm", "oper")) else f" {content} "


def equations(match: re.Match) -> str:
    """A system, one equation or inequality a row, as `x=1 and y=2`; a function by cases stays as it is."""
    brace, name, content = match.groups()
    rows = [notation.AT_A_RELATION.sub(" ", row).strip(" \n,;.") for row in notation.ROW_END.split(content)]
    rows = [row for row in rows if row]
    whole = rows and all(notation.RELATION.search(row) and "&" not in row for row in rows)
    return " and ".join(rows) if whole and (brace or name == "cases") else match[0]


def nested_lists(match: re.Match) -> str:
    rows = [row.split("&") for row in notation.ROW_END.split(match[1]) if row.strip()]
    return "[" + ",".join("[" + ",".join(cell.strip() for cell in row) + "]" for row in rows) + "]"


def without_dollars(text: str) -> str:
    r"""Inline math signs dropped; a dollar before or after an amount becomes `\$`."""
    signs = [match.start() for match in DOLLAR.finditer(text)] if "$" in text else ()
    if not signs:
        return text
    money = len(signs) % 2 == 1 or all(re.match(r"\$\s?\d", text[at:]) for at in signs)
    return DOLLAR.sub(r"\\$" if money else " ", text)


def with_braces(text: str) -> str:
    r"""`\frac12`, `\sqrt2`, `\sqrt(2)` with their arguments in braces."""
    for match in reversed(list(TAKES_ARGUMENTS.finditer(text))) if "\\" in text else ():
        at, arguments = match.end(), ""
        if root := ROOT_INDEX.match(text, at):
            at, arguments = root.end(), root[0].strip()
        for _ in range(2 if match[1] in ("frac", "binom") else 1):
            content, at = argument(text, at, match[1] == "sqrt")
            arguments += f"{{{content}}}"
        text = text[: match.end()] + arguments + text[at:]
    return text


def argument(text: str, at: int, of_root: bool) -> tuple[str, int]:
    """The argument that starts at `at`, without its braces, and where it ends."""
    while text[at : at + 1] == " ":
        at += 1
    if text[at : at + 1] == "{" or (of_root and text[at : at + 1] == "("):
        end = closing(text, at)
        return (text[at + 1 : end].strip(), end + 1) if end is not None else (text[at + 1 :], len(text))
    token = (ONE_NUMBER if of_root else ONE_TOKEN).match(text, at)
    if token is None:
        return "", at
    end = token.end()
    while token[0][0] == "\\" and text[end : end + 1] == "{" and (close := closing(text, end)) is not None:
        end = close + 1
    return text[token.start() : end], end


def closing(text: str, start: int) -> int | None:
    r"""Where the bracket at `start` closes; brackets are counted by kind, `\{` as a brace of its own."""
    opening, mate = text[start], CLOSE[OPEN.index(text[start])]
    escaped = text[start - 1 : start] == "\\"
    level = 0
    for k in range(start, len(text)):
        if text[k] in "{}" and text[k - 1 : k] == "\\" and not escaped:
            continue
        level += (text[k] == opening) - (text[k] == mate)
        if level == 0:
            return k
    return None


def is_closed(text: str) -> bool:
    """One bracketed whole: the first bracket closes at the end."""
    return text != "" and text[0] in OPEN and closing(text, 0) == len(text) - 1


def split_top(text: str, separators: str) -> list[str]:
    """The pieces between separators that stand in no bracket."""
    pieces, level, start = [], 0, 0
    for k, sign in enumerate(text):
        level += (sign in OPEN) - (sign in CLOSE)
        if sign in separators and level <= 0:
            pieces.append(text[start:k])
            start = k + 1
    return [*pieces, text[start:]]


def depth(text: str) -> int:
    """How many brackets stand inside one another."""
    deepest = now = 0
    for sign in text:
        now += (sign in OPEN) - (sign in CLOSE)
        deepest = max(deepest, now)
    return deepest
