"""What a process left: its output, head and tail of it, and the status its end amounts to."""

from __future__ import annotations

import math
import signal

from .runner import OUT_OF_DISK, OUT_OF_MEMORY

KEPT_BYTES = 64 << 10  # of each stream: its head and its tail, where answers are printed
MOST_OUTPUT = 4 << 20  # of each stream, then the program is stopped
LONGEST_DETAIL = 300  # characters


class Stream:
    """What a pipe brought: all of it, or its head and its tail."""

    def __init__(self) -> None:
        self.total, self.data = 0, bytearray()

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self.data += chunk
        if len(self.data) > 2 * KEPT_BYTES:
            del self.data[KEPT_BYTES // 2 : -KEPT_BYTES // 2]

    @property
    def truncated(self) -> bool:
        return self.total > KEPT_BYTES

    def text(self) -> str:
        if not self.truncated:
            return self.data.decode("utf-8", "replace")
        half = KEPT_BYTES // 2
        head, tail = (part.decode("utf-8", "replace") for part in (self.data[:half], self.data[-half:]))
        return f"{head}\n... {self.total - 2 * half:,} bytes left out ...\n{tail}"


Reason = tuple[str, str]  # status, and why in words


def flooded(streams: dict[str, Stream]) -> Reason | None:
    for name, stream in streams.items():
        if stream.total > MOST_OUTPUT:
            return "output_limit", f"it wrote more than {MOST_OUTPUT >> 20} MiB to {name}"
    return None


def answer(reason: Reason, exit_code: int, streams: dict[str, Stream], seconds: float) -> dict:
    """The fields of a ProgramResult that tell what happened."""
    status, detail = reason
    stdout, stderr = streams["stdout"], streams["stderr"]
    error = stderr.text()
    if status == "error" and error.strip():
        detail = error.strip().rpartition("\n")[2][:LONGEST_DETAIL]  # the exception
    return {
        "status": status,
        "detail": detail,
        "exit_code": exit_code if status in ("ok", "error") else None,
        "stdout": stdout.text(),
        "stderr": error,
        "truncated": stdout.truncated or stderr.truncated,
        "seconds": seconds,
    }


def cpu_limit(timeout: float) -> int:
    return math.ceil(timeout) + 1  # the clock on the wall comes first unless threads burn several cores


def explain(exit_code: int, cpu: float, most_cpu: int) -> Reason:
    """Status and reason of a process that ended by itself or by the kernel's hand."""
    if exit_code == 0:
        return "ok", ""
    if exit_code == OUT_OF_MEMORY:
        return "memory", "it asked for more memory than it may have"
    if exit_code == OUT_OF_DISK:
        return "disk", "it wrote more than it may"
    if exit_code > 0:
        return "error", f"it ended with exit code {exit_code}"
    if exit_code == -signal.SIGKILL and cpu > most_cpu - 0.5:
        return "timeout", f"it used more than {most_cpu} s of processor time"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # the real-time signals between SIGRTMIN and SIGRTMAX have no name
        name = f"signal {-exit_code}"
    return "killed", name if name != "SIGKILL" else "SIGKILL: by itself, or the machine ran out of memory"
