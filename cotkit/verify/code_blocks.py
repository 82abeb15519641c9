"""Where the program stands in a completion: its fenced blocks, and which of them is meant."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Sequence
from typing import NamedTuple

from cotkit.records import Extraction
from cotkit.verify.extraction import THINK_START, after_thinking

PYTHON = {"python", "python3", "py", "py3"}
FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+-]*)(.*)$")
TAGS = re.compile(r"</?answer>", re.I)
BEGINS = re.compile(r"(def|class|import|from|async|@\w+)\b")  # a line of Python, in prose


class Block(NamedTuple):
    language: str
    code: str
    closed: bool = True


def extract_code(text: str | None, wanted: frozenset[str] = frozenset()) -> Extraction:
    """The program in a completion: of the Python blocks of the visible text the last one that defines all the
    names `wanted` (else any of them, else the last block); where no block names a language, of those; the
    whole text where it has no block. None: no text, blocks of other languages only, a block or a thinking
    that never ends.
    """
    visible = TAGS.sub("\n", after_thinking(text or "")).replace("\r\n", "\n")
    blocks, prose = fenced(visible)
    if THINK_START.search(prose):
        return Extraction(answer=None, how="thinking_not_finished")
    if blocks and not blocks[-1].closed:
        return Extraction(answer=None, how="unclosed_code")
    if not blocks and visible.strip():
        return Extraction(answer=after_prose(visible), how="whole_text")
    labels = PYTHON if any(block.language in PYTHON for block in blocks) else {""}
    programs = [block.code for block in reversed(blocks) if block.language in labels and block.code.strip()]
    if not programs:
        return Extraction(answer=None, how="none")
    code = max(programs, key=lambda program: len(wanted & defined(program)))  # the last of the best
    return Extraction(answer=code, how="code")


def after_prose(text: str) -> str:
    """The text from its first line on from where it is Python; all of it where there is none."""
    lines = text.split("\n")
    for number in [0, *(n for n, line in enumerate(lines) if BEGINS.match(line))]:
        rest = "\n".join(lines[number:])
        try:
            ast.parse(rest)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return rest
    return text


def fenced(text: str) -> tuple[list[Block], str]:
    """The fenced blocks without the indent of their fence, and the text outside them. A fence with a language
    inside an open block belongs to it, and so do fences inside a docstring of Python.
    """
    blocks, prose, inside, opened = [], [], [], None
    for line in text.split("\n"):
        match = FENCE.match(line)
        if opened is None:
            if match and not (inline := match[4].strip().endswith(match[2]) and match[4].strip()):
                opened, inside = match, []
            elif match and inline:  # ```python def f(x): return x```
                blocks.append(Block(match[3].lower(), match[4].strip().rstrip(match[2][0]).strip()))
            else:
                prose.append(line)
        elif match and closes(match, opened) and not in_string(inside, opened[3].lower()):
            blocks.append(Block(opened[3].lower(), "\n".join(inside)))
            opened = None
        else:
            inside.append(line.removeprefix(opened[1]))
    if opened is not None:
        blocks.append(Block(opened[3].lower(), "\n".join(inside), closed=False))
    return blocks, "\n".join(prose)


def closes(match: re.Match, opened: re.Match) -> bool:
    return match[2].startswith(opened[2]) and not (match[3] or match[4].strip(" \t`~"))


def in_string(lines: Sequence[str], language: str) -> bool:
    """True where a text in triple quotes is open at the end of these lines of Python."""
    if language not in PYTHON:
        return False
    quote = None
    for mark in re.finditer(r'\\.|"""|\'\'\'|#[^\n]*', "\n".join(lines), re.S):
        if mark[0] in ('"""', "'''"):
            quote = None if quote == mark[0] else quote or mark[0]
        elif mark[0].startswith("#") and quote and quote in mark[0]:
            quote = None
    return quote is not None


def defined(program: str) -> set[str]:
    """The names a program binds at its top level; none when it is not Python."""
    try:
        table = symtable.symtable(program, "<program>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {name.get_name() for name in table.get_symbols() if bound(name)}


def bound(name: symtable.Symbol) -> bool:
    return name.is_assigned() or name.is_imported() or name.is_namespace()
