"""What a program's run gives back, and what each level of isolation promises."""

from __future__ import annotations

import html
from typing import Literal

from pydantic import BaseModel, ConfigDict

Status = Literal["ok", "error", "timeout", "memory", "output_limit", "disk", "killed", "setup_failed"]
# enforced: holds against hostile code; watched: holds unless a program sets out to evade it; none: no limit
Promise = Literal["enforced", "watched", "none"]

RESOURCES = ("network", "files", "processes", "memory", "disk", "time", "output")


def _promises(*words: Promise) -> dict[str, Promise]:
    return dict(zip(RESOURCES, words, strict=True))


PROMISES: dict[str, dict[str, Promise]] = {
    "L3": _promises("enforced", "enforced", "enforced", "enforced", "enforced", "enforced", "enforced"),
    "L2": _promises("enforced", "enforced", "enforced", "enforced", "watched", "enforced", "enforced"),
    "L1": _promises("none", "none", "watched", "watched", "none", "watched", "enforced"),
    "L0": _promises("none", "none", "watched", "none", "none", "watched", "enforced"),
}


class SandboxTooWeak(RuntimeError):
    """This machine cannot isolate foreign code as asked; the message says what is missing."""


class Isolation(BaseModel):
    """The level this machine reaches, found by attacks on itself, and why it is not a higher one."""

    model_config = ConfigDict(frozen=True)

    level: Literal["L3", "L2", "L1", "L0"]
    missing: tuple[str, ...] = ()

    @property
    def enforced(self) -> dict[str, Promise]:
        return dict(PROMISES[self.level])

    @property
    def weak(self) -> bool:
        return self.level in ("L1", "L0")


class ProgramResult(BaseModel):
    """How a program ended. Only `ok` and `error` end by the program's own will; `setup_failed` is a fault of
    the sandbox or the machine and says nothing about the program: it is never a wrong answer.
    """

    model_config = ConfigDict(frozen=True)

    status: Status
    detail: str = ""  # the reason in words; "" when ok
    stdout: str = ""  # what was printed until the end, also when the program was stopped
    stderr: str = ""
    truncated: bool = False  # only the head and the tail of a stream were kept
    exit_code: int | None = None  # None unless the program ended by itself
    seconds: float = 0.0  # on the wall, from the start of its process
    cpu_seconds: float | None = None
    max_rss_mb: float | None = None  # includes what the imported packages take
    isolation: str  # L3, L2, L1, L0
    enforced: dict[str, Promise]  # by resource
    seed: int
    hash_seed: int

    @property
    def answer(self) -> str | None:
        """The last line of stdout that is not blank."""
        return next((line.strip() for line in reversed(self.stdout.splitlines()) if line.strip()), None)

    def _repr_html_(self) -> str:
        title = f"<b>{self.status}</b> in {self.seconds:.2f} s, isolation {self.isolation}"
        parts = [f"{title}: {html.escape(self.detail)}" if self.detail else title]
        parts += [f"<pre>{html.escape(text)}</pre>" for text in (self.stdout, self.stderr) if text]
        return "".join(parts)
