"""What a run tells while it goes: a live bar in Jupyter, tqdm in a terminal, a line each 10 % elsewhere.

The engine's thread only counts; drawing happens in the caller's thread (`tick`), so output lands in the
cell that asked for it and nothing is drawn after an interrupt.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TextIO

from cotkit.records import Row
from cotkit.shown import escaped, mended

Show = Literal["auto", "bar", "lines", "none"]
HEARTBEAT_S = 30.0


class Progress:
    """Counts of a run. `snapshot()` is what monitors read."""

    def __init__(
        self,
        name: str,
        total: int,
        ledger: Any = None,
        kept: int = 0,
        drops: Counter | None = None,
        models: Sequence[Any] = (),
        enough: int | None = None,  # kept problems that end the run before `total`
    ):
        self.name, self.total, self.ledger, self.enough = name, total, ledger, enough
        self._models = [model for model in models if hasattr(model, "stats")]
        self.kept, self.drops = kept, Counter(drops or {})
        self.verdicts: Counter[bool | None] = Counter()  # of the final traces of this sitting
        self._before, self._kept_before = self.done, self.kept
        self._started = time.monotonic()
        self.last_error = ""
        self.stopping: str | None = None  # why no further problem is started

    @property
    def done(self) -> int:
        return self.kept + sum(self.drops.values())

    def add(self, row: Row) -> None:
        if row.accepted:
            self.kept += 1
        else:
            self.drops[row.drop_reason] += 1
        if row.best:
            self.verdicts[row.best.verdict.correct] += 1
        if row.errors:
            self.last_error = f"{row.id}: {row.errors[-1]['kind']}: {row.errors[-1]['message']}"

    def stop(self, why: str) -> None:
        """Start no further problem; those in flight are finished."""
        self.stopping = self.stopping or why

    def snapshot(self) -> dict[str, Any]:
        """Counts, rows_per_minute and eta_s (None = unknown), the ledger's totals, queues, last error."""
        seconds = time.monotonic() - self._started
        new = self.done - self._before
        rate = new / seconds if new and seconds else None
        return {
            "name": self.name,
            "total": self.total,
            "done": self.done,
            "kept": self.kept,
            "enough": self.enough,
            "drops": dict(self.drops),
            "verdicts": dict(self.verdicts),
            "seconds": seconds,
            "rows_per_minute": 60 * rate if rate else None,
            "eta_s": self._left() / rate if rate else None,
            "ledger": self.ledger.totals() if self.ledger else {},
            "models": [model.stats() for model in self._models],
            "last_error": self._last_error(),
            "stopping": self.stopping,
        }

    def _left(self) -> float:
        """Problems still to come, by the share kept so far where the run ends with enough of them."""
        left = self.total - self.done
        if self.enough is None or self.kept == self._kept_before:
            return left
        share = (self.kept - self._kept_before) / (self.done - self._before)
        return min(left, max(0, self.enough - self.kept) / share)

    def _last_error(self) -> str:
        """Of a finished row, else of a request that is being tried again."""
        failures = (e["last_failure"] for m in self._models for e in m.stats()["by_endpoint"].values())
        return self.last_error or next(filter(None, failures), "")

    def line(self) -> str:
        return status_line(self.snapshot())


def status_line(now: dict[str, Any]) -> str:
    """`37/300 done, 30 kept, 7 dropped (5 wrong_answer, 2 truncated), 54 rows/min, 5 min left, ...`"""
    wanted = f" of {now['enough']} wanted" if now.get("enough") else ""
    parts = [f"{now['done']}/{now['total']} done, {now['kept']} kept{wanted}"]
    if dropped := sum(now["drops"].values()):
        why = ", ".join(f"{n} {reason}" for reason, n in Counter(now["drops"]).most_common(4))
        parts.append(f"{dropped} dropped ({why})")
    if now["rows_per_minute"]:
        parts.append(f"{now['rows_per_minute']:.3g} rows/min")
    if now["eta_s"] is not None and now["done"] < now["total"]:
        parts.append(f"{_duration(now['eta_s'])} left")
    if ledger := now["ledger"]:
        tokens = (ledger.get("prompt_tokens") or 0) + (ledger.get("completion_tokens") or 0)
        parts.append(f"{ledger.get('calls', 0)} calls, {tokens:,} tokens")
        cost = ledger.get("cost_usd")
        parts.append("cost unknown" if cost is None else f"${cost:.4g}")
    if now["stopping"]:
        parts.append(f"stopping: {now['stopping']}")
    if now["last_error"]:
        parts.append(f"last error: {now['last_error'][:160]}")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def say_line(text: str, file: TextIO | None = None) -> None:
    """Prints a line (None = to stdout) with escapes for what the stream cannot encode: what a run tells must
    never end it."""
    file = file or sys.stdout
    print(_writable(text, file), file=file, flush=True)


def _writable(text: str, file: TextIO) -> str:
    encoding = getattr(file, "encoding", None) or "utf-8"
    return mended(text).encode(encoding, "backslashreplace").decode(encoding)


def check_show(show: str) -> None:
    if show not in ("auto", "bar", "lines", "none"):
        raise ValueError(f"show must be 'auto', 'bar', 'lines' or 'none', got {show!r}")


class Display:
    """Draws a `Progress`. `tick()` often, `close()` once; both in the caller's thread."""

    def __init__(self, progress: Progress, show: Show = "auto"):
        check_show(show)
        self.progress = progress
        self._draw = {"bar": _bar, "lines": _Lines, "none": _Nothing}[_mode() if show == "auto" else show](
            progress
        )

    def tick(self) -> None:
        self._draw.tick()

    def close(self) -> None:
        self._draw.close()


def _in_jupyter() -> bool:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _mode() -> str:
    if os.environ.get("COTKIT_REPORT"):
        return "lines"
    return "bar" if _in_jupyter() or sys.stderr.isatty() else "lines"


def _bar(progress: Progress) -> Any:
    return _JupyterBar(progress) if _in_jupyter() else _TerminalBar(progress)


class _Nothing:
    def __init__(self, progress: Progress):
        pass

    def tick(self) -> None:
        pass

    close = tick


class _Lines(_Nothing):
    """A line each 10 %, and one at least every HEARTBEAT_S seconds."""

    def __init__(self, progress: Progress):
        self._progress, self._tenth, self._last = progress, 10 * progress.done // max(progress.total, 1), None
        self._at = time.monotonic()

    def tick(self) -> None:
        done = self._progress.done
        tenth = 10 * done // max(self._progress.total, 1)
        if tenth > self._tenth or time.monotonic() - self._at > HEARTBEAT_S:
            self._tenth, self._at = tenth, time.monotonic()
            self._print()

    def close(self) -> None:
        if self._last != self._progress.done:
            self._print()

    def _print(self) -> None:
        self._last = self._progress.done
        say_line(f"{self._progress.name}: {self._progress.line()}")


class _TerminalBar(_Nothing):
    def __init__(self, progress: Progress):
        import tqdm

        self._progress, self._file, name = progress, sys.stderr, _writable(progress.name, sys.stderr)
        self._tqdm = tqdm.tqdm(
            total=progress.total, initial=progress.done, desc=name, file=self._file, dynamic_ncols=True
        )

    def tick(self) -> None:
        now = self._progress.snapshot()
        self._tqdm.update(now["done"] - self._tqdm.n)
        told = _writable(status_line(now).partition(" done, ")[2], self._file)
        self._tqdm.set_postfix_str(told, refresh=True)

    def close(self) -> None:
        self.tick()
        self._tqdm.close()
        say_line(f"{self._progress.name}: {self._progress.line()}", self._file)


class _JupyterBar(_Nothing):
    """HTML that is updated in place: no widget, so a saved notebook still shows the end state."""

    def __init__(self, progress: Progress):
        from IPython.display import HTML, display

        self._progress, self._html, self._at = progress, HTML, 0.0
        self._handle = display(HTML(self._page()), display_id=True)

    def _page(self) -> str:
        now = self._progress.snapshot()
        kept = 100 * now["kept"] / max(now["total"], 1)
        dropped = 100 * sum(now["drops"].values()) / max(now["total"], 1)
        return (
            "<div style='max-width:720px;font-size:.92em'>"
            "<div style='display:flex;height:10px;border-radius:5px;overflow:hidden;background:#8884' "
            f"role='progressbar' aria-valuemin='0' aria-valuemax='{now['total']}' "
            f"aria-valuenow='{now['done']}'>"
            f"<div style='width:{kept:.2f}%;background:#009E73'></div>"
            f"<div style='width:{dropped:.2f}%;background:#E69F00'></div></div>"
            f"<div style='margin-top:4px'>{escaped(now['name'])}: {escaped(status_line(now))}</div>"
            "</div>"
        )

    def tick(self) -> None:
        if time.monotonic() - self._at > 0.5:
            self._at = time.monotonic()
            self._handle.update(self._html(self._page()))

    def close(self) -> None:
        self._handle.update(self._html(self._page()))
