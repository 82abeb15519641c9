"""Names of a package that are imported when they are first used (PEP 562), so that importing it costs little.

    __getattr__, __dir__ = lazy(__name__, {"Run": "folder", "figures": "figures:"})

A name's home is a module of the package; "module:other" gives it another name there, "module:" is the module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, colon, inner = homes[name].partition(":")
        value = importlib.import_module(f"{package}.{home}")
        if inner or not colon:
            value = getattr(value, inner or name)
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
