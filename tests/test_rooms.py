"""The package's shape: arrows go one way, and a room imports another room's front door, never its inside."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "cotkit"
# Lower may not import higher; rooms on one level may not import each other.
LEVELS = [
    {"shown"},
    {
        "cores",
        "csv_cells",
        "executors",
        "records",
        "paths",
        "aio",
        "prompts",
        "keys",
        "whole",
        "lazy",
        "rules",
    },
    {"problems", "runs"},
    {"chat", "verify"},
    {"judge", "analysis"},
    {"pipelines", "train"},
    {"widgets", "report"},
    {"compat", "cli"},
]
LEVEL = {room: height for height, rooms in enumerate(LEVELS) for room in rooms}
ROOMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cotkit":
            names = [node.module] if node.module != "cotkit" else [f"cotkit.{a.name}" for a in node.names]
            yield from ((node.lineno, name.split(".")[1:]) for name in names)
        elif isinstance(node, ast.Import):
            yield from (
                (node.lineno, a.name.split(".")[1:]) for a in node.names if a.name.startswith("cotkit.")
            )


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_go_one_way(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for line, parts in imports(path):
        other = parts[0]
        if other == own or other not in LEVEL:
            continue
        assert LEVEL[other] < LEVEL[own], f"{path}:{line}: {own} may not import {other}"
        assert len(parts) == 1 or other not in ROOMS, (
            f"{path}:{line}: {other} is entered by its __init__ only"
        )


def test_every_room_has_a_level():
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert files | ROOMS == set(LEVEL)


def test_the_levels_are_those_that_contributing_shows():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = text.split("## How the code is laid out")[1].split("```")[1].split("\n")
    assert [set(re.findall(r"\w+", line)) for line in reversed(shown) if line] == LEVELS
