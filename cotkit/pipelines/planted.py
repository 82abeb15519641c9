"""Planted errors: small changes to a right program, of the kinds a model makes itself.

Mutation analysis (DeMillo, Lipton and Sayward 1978) turned on a judge: a program with one changed constant,
one swapped operator or one bound off by one looks right and prints a wrong answer. Whether it does print
another answer must be found out by running it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

KINDS = ("constant", "operator", "off_by_one")
_SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
_BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


def planted_errors(code: str) -> list[tuple[str, Callable[[], str]]]:
    """(kind, a function that writes the program) for every single change; [] when it is no Python.

    Few of them are tried, and writing them all would take time that grows with the square of the program.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        (kind, functools.partial(_with, tree, node, name, new))
        for node in ast.walk(tree)
        for kind, name, new in _changes(node)
    ]


def _with(tree: ast.Module, node: ast.AST, name: str, new: object) -> str:
    old = getattr(node, name)
    setattr(node, name, new)
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    finally:
        setattr(node, name, old)


def _changes(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """(kind, attribute, its changed value)."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
        yield "constant", "value", value + 1 if isinstance(value, int) else value * 1.1 or 1.0
    elif isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        yield "operator", "op", _SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _BOUNDS:
        yield "off_by_one", "ops", [_BOUNDS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "range":
        for place, bound in enumerate(node.args[:2]):
            moved = ast.BinOp(bound, ast.Add(), ast.Constant(1))
            yield "off_by_one", "args", [*node.args[:place], moved, *node.args[place + 1 :]]
