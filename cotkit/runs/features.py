"""The types of an exported file's columns, as a dataset card names them.

`datasets` takes a column's type from the first 10 MB of a JSON Lines file: one that is null so far is null
for good there, and the load fails at the first value (huggingface/datasets issue 7222). A card that names the
types (https://huggingface.co/docs/datasets/loading#specify-features) has it read as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotkit.runs.shapes import COLUMNS, PAIR_COLUMNS

_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64"}
_DECLARED = {"string": "string", "bool": "bool", "int": "int64", "float": "float64"}


class Features:
    """What the records hold, taken in one by one: a name of a type, [of a list's items], {field: ...}, or
    None where there was null alone."""

    def __init__(self) -> None:
        self._seen: Any = {}

    def add(self, record: Mapping[str, Any]) -> None:
        self._seen = _merged(self._seen, record)

    def listed(self) -> list[dict[str, Any]]:
        """As `dataset_info` of a card has them."""
        return _fields(self._seen)


def _merged(seen: Any, value: Any) -> Any:
    if value is None:
        return seen
    if isinstance(value, Mapping):
        seen = {} if seen is None else seen
        for name, item in value.items():
            seen[name] = _merged(seen.get(name), item)
        return seen
    if isinstance(value, list):
        item = None if seen is None else seen[0]
        for one in value:
            item = _merged(item, one)
        return [item]
    found = _TYPES[type(value)]
    return "float64" if {seen, found} == {"int64", "float64"} else seen or found


def _fields(seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name} | _typed(feature, name) for name, feature in seen.items()]


def _typed(feature: Any, name: str) -> dict[str, Any]:
    if isinstance(feature, dict):
        return {"struct": _fields(feature)}
    if isinstance(feature, list):
        (item,) = feature
        return {"list": _fields(item) if isinstance(item, dict) else item or "string"}
    declared, _ = (COLUMNS | PAIR_COLUMNS).get(name, ("string", ""))
    return {"dtype": feature or _DECLARED[declared]}
