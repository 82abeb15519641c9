"""Planted errors: small changes to a right program, of the kinds a model makes itself.

Mutation analysis (DeMillo, Lipton and Sayward 1978) turned on a judge: a program with one changed constant,
one swapped operator or one bound off by one looks right and prints a wrong answer. Whether it does print
another answer must be found out by running it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

KINDS = ("constant", "operator", "off_by_one")
_SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
_BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


def planted_errors(code: str) -> list[tuple[str, str]]:
    """(kind, program) for every single change, in the order of the source; [] when it is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for node in ast.walk(tree):
        for kind, name, new in _changes(node):
            old = getattr(node, name)
            setattr(node, name, new)
            found.append((kind, ast.unparse(ast.fix_missing_locations(tree))))
            setattr(node, name, old)
    return found


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
