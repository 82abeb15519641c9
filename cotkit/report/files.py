"""Small files written whole or not at all, and JSON that any reader takes."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import math
import pathlib
import re
import unicodedata
from collections.abc import Collection
from typing import Any

from cotkit.whole import whole_file


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: pathlib.Path, text: str) -> None:
    """`write_bytes` of UTF-8; lone surrogates are written as escapes."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_json(path: pathlib.Path, value: Any) -> None:
    write_text(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """`value` in JSON's own types: numpy's numbers as numbers, nan and inf as None, the rest as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if hasattr(value, "tolist"):  # numpy scalars and arrays, pandas series
        return plain(value.tolist())
    return str(value)


_SAID_BY_SLUG = re.compile(r"[A-Za-z0-9\s.,:;!?'\"()\[\]/_–—‘’“”-]{1,60}")


def slug(text: str, fallback: str = "untitled") -> str:
    """A short lower-case file name: "What refinement bought" -> "what-refinement-bought"."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-")[:60].strip("-") or fallback


def folder_slug(title: str) -> str:
    """`slug`, with a hash where it says less than the title: two titles in Chinese, "C" and "C++", two long
    ones that begin alike are to be two folders. Case, accents and punctuation do not count."""
    letters = "".join(c for c in unicodedata.normalize("NFKD", title) if not unicodedata.combining(c))
    if _SAID_BY_SLUG.fullmatch(letters):
        return slug(title)
    return f"{slug(title)}-{hashlib.sha256(title.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, or where it is taken `name-2`, `name-3`, ..."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain([name], numbered) if candidate not in taken)


def now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
