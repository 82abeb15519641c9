"""What is asked of the sandbox, checked before anything is started."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import re
from collections.abc import Sequence

PACKAGES = ("numpy", "sympy")
LEAST_MEMORY_MB = 256  # address space of Python and these packages, and something to compute in
MOST_SECONDS = 24 * 3600.0
MOST_TEXT = 4 << 20  # characters, of a program and of its stdin
MOST_SEED = 2**32 - 1  # of PYTHONHASHSEED and of numpy.random.seed


@dataclasses.dataclass(frozen=True)
class Job:
    """The arguments of `run_python`, whose docstring explains them."""

    code: str
    timeout: float = 10.0
    memory_mb: int = 1024
    stdin: str = ""
    seed: int = 0
    hash_seed: int = 0
    date: str | None = None
    packages: Sequence[str] = PACKAGES
    allow_weak_isolation: bool = False

    def __post_init__(self) -> None:
        for name in ("code", "stdin"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {type(value).__name__}")
        if len(self.stdin) > MOST_TEXT:
            raise ValueError(f"stdin has {len(self.stdin):,} characters, at most {MOST_TEXT:,} are passed on")
        if not (_is_number(self.timeout) and 0 < self.timeout <= MOST_SECONDS):
            raise ValueError(f"timeout must be seconds above 0 and up to a day, got {self.timeout!r}")
        if not (_is_whole(self.memory_mb) and LEAST_MEMORY_MB <= self.memory_mb < 1 << 30):
            raise ValueError(f"memory_mb must be {LEAST_MEMORY_MB} or more, got {self.memory_mb!r}")
        for name in ("seed", "hash_seed"):
            if not (_is_whole(value := getattr(self, name)) and 0 <= value <= MOST_SEED):
                raise ValueError(f"{name} must be a whole number from 0 to {MOST_SEED}, got {value!r}")
        if self.date is not None and not _is_date(self.date):
            raise ValueError(f"date must be a day as YYYY-MM-DD, got {self.date!r}")
        if not isinstance(self.packages, (list, tuple)) or not all(map(_is_package, self.packages)):
            raise ValueError(f"packages must be a list of importable names, got {self.packages!r}")

    def wire(self, level: str) -> dict:
        """What travels to the process that runs it."""
        passed_on = ("timeout", "memory_mb", "stdin", "seed", "hash_seed", "date")
        return {name: getattr(self, name) for name in passed_on} | {
            "code": unfenced(self.code),
            "level": level,
        }


def unfenced(code: str) -> str:
    """The inside of a program that is one Markdown fence, any other program as it is."""
    first, _, rest = code.strip().partition("\n")
    inside, _, last = rest.rpartition("\n")
    fence = re.match("`{3,}|~{3,}", first)
    return inside if fence and last.strip() == fence[0] else code


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_date(value: object) -> bool:
    with contextlib.suppress(ValueError, TypeError):
        return datetime.date.fromisoformat(value).isoformat() == value
    return False


def _is_package(name: object) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
