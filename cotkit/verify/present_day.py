"""Where a program's source asks for the present day: for programs that cannot be run on another one."""

from __future__ import annotations

import ast


def asks_for_today(code: str) -> list[str]:
    """Where a source asks for the present day, as "line 12: ql.Date.todaysDate()"; [] if it is no Python."""
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and _asks(node)]
        return [f"line {call.lineno}: {ast.unparse(call)[:60]}" for call in sorted(calls, key=_line)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _line(call: ast.Call) -> int:
    return call.lineno


def _asks(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if name in ("todaysDate", "utcnow"):
        return True
    if name in ("today", "now"):
        return isinstance(call.func, ast.Attribute)
    if name in ("localtime", "gmtime", "ctime"):
        return not call.args
    return name in ("datetime64", "Timestamp", "to_datetime") and first in ("today", "now")
