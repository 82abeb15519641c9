"""RunMonitor: a run that goes on in the background, watched and stopped from the notebook.

    job = cotkit.start_distill(problems, generator)
    RunMonitor(job)

A thread looks at the job twice a second and draws; cells stay free, and Stop works at once, since it does not
wait for a cell. The history (acceptance, calls in flight, 429s) is kept for the figure below the numbers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cotkit.analysis import Rate
from cotkit.pipelines import RunJob, status_line
from cotkit.widgets.base import Widget, button, facts, text

REFRESH_S = 0.5
MOMENTS = 600  # of the history; older ones are thinned out


class History:
    """Moments of a run: seconds, done, kept, in flight, limit, 429s; thinned out, so that it stays small."""

    def __init__(self) -> None:
        self.moments: list[dict[str, float]] = []
        self._every, self._seen = 1, 0

    def add(self, now: dict[str, Any]) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        queues = {
            name: sum(model[name] for model in now["models"])
            for name in ("in_flight", "limit", "rate_limited")
        }
        self.moments.append({name: now[name] for name in ("seconds", "done", "kept")} | queues)
        if len(self.moments) > MOMENTS:
            self.moments, self._every = self.moments[::2], 2 * self._every


class RunMonitor(Widget):
    """Watches a `RunJob`: done of total, rate, time left, calls, tokens and cost against budget, acceptance,
    verdicts, errors, concurrency and 429s over time. `stop()` ends what is in flight, `cancel()` drops it.

    start: gives the job again, so that `resume()` can go on with what was stopped; `job` is the newest one.
    """

    def __init__(self, job: RunJob, start: Callable[[], RunJob] | None = None):
        self.job, self._start, self.history = job, start, History()
        self.now = job.progress

    def refresh(self) -> None:
        """Looks at the job once."""
        self.now = self.job.progress
        self.history.add(self.now)
        self.redraw()

    def settle(self) -> None:
        self.job.wait()
        self.refresh()

    def stop(self) -> None:
        """Starts no further problem and finishes those in flight; the same call goes on later."""
        self.job.stop()
        self.refresh()

    def cancel(self) -> None:
        """Ends at once: calls in flight are dropped, finished rows stay."""
        self.job.cancel()
        self.job.wait(10)
        self.refresh()

    def resume(self) -> None:
        """Goes on with a run that has ended early. Raises ValueError when there is nothing to go on with."""
        if self._start is None or self.state != "stopped":
            raise ValueError("only a stopped run goes on, and only with start=, which gives its job again")
        self.job, self.history = self._start(), History()
        self.refresh()
        if self._view is not None:  # else it is watched once it is shown
            self._watch_on()

    @property
    def state(self) -> str:
        if not self.job.done():
            return "stopping" if self.now["stopping"] else "running"
        enough = self.now["enough"] is not None and self.now["kept"] >= self.now["enough"]
        return "finished" if enough or self.now["done"] == self.now["total"] else "stopped"

    def numbers(self) -> dict[str, str | None]:
        """What is shown, by name; None is left out."""
        now, ledger, models, limits = self.now, self.now["ledger"], self.now["models"], self.now["budgets"]
        tokens = (ledger.get("prompt_tokens") or 0) + (ledger.get("completion_tokens") or 0)
        cost, decided = ledger.get("cost_usd"), sum(now["verdicts"].values())
        return {
            "done": f"{now['done']:,} of {now['total']:,}",
            "kept": str(Rate.of(now["kept"], now["done"])),
            "wanted": None if now["enough"] is None else f"{now['kept']:,} of {now['enough']:,} kept",
            "right": f"{now['verdicts'].get(True, 0):,} of {decided:,} final traces" if decided else None,
            "undecided": now["verdicts"].get(None),
            "rate": f"{now['rows_per_minute']:.3g} rows/min" if now["rows_per_minute"] else "none yet",
            "left": None if self.job.done() else _left(now),
            "in flight": _of(sum(m["in_flight"] for m in models), sum(m["limit"] for m in models)),
            "calls": _of(ledger.get("calls", 0), limits.get("budget_calls")),
            "tokens": _of(tokens, limits.get("budget_tokens")),
            "cost": "unknown" if cost is None else "$" + _of(cost, limits.get("budget_usd")),
            "429s": sum(m["rate_limited"] for m in models) or None,
        }

    def static(self) -> str:
        now, failed = self.now, self.now["ledger"].get("failed", {})
        drops = sorted(now["drops"].items(), key=lambda drop: -drop[1])
        words = {
            "dropped because": ", ".join(f"{count:,} {reason}" for reason, count in drops),
            "failed requests": ", ".join(f"{count:,} {kind}" for kind, count in failed.items()),
            "last error": now["last_error"],
        }
        why = f" ({text(now['stopping'])})" if now["stopping"] else ""
        said = "".join(f"<div>{name}: {text(what)}</div>" for name, what in words.items() if what)
        name = f"<div><b>{text(now['name'])}</b>: {self.state}{why}</div>"
        return f"{name}{_bar(now)}{facts(self.numbers())}{said}"

    def build(self) -> list[Any]:
        import ipywidgets

        self._html, self._figure = ipywidgets.HTML(), ipywidgets.HTML()
        self._stop = button(
            "Stop", self.stop, tooltip="Finish what is in flight and stop; it can go on later"
        )
        self._cancel = button("Cancel", self.cancel, tooltip="Stop at once and drop what is in flight")
        self._resume = button("Resume", self.resume, tooltip="Go on where the run stopped")
        self._resume.layout.display = None if self._start else "none"
        self._watch_on()
        return [self._html, ipywidgets.HBox([self._stop, self._cancel, self._resume]), self._figure]

    def _watch_on(self) -> None:
        self._thread = threading.Thread(
            target=self._watch, args=(self.job,), daemon=True, name="cotkit-monitor"
        )
        self._thread.start()

    def _watch(self, job: RunJob) -> None:
        drawn = 0.0
        while not job.done():
            self.refresh()
            if time.monotonic() - drawn > 5:
                self._plot()
                drawn = time.monotonic()
            job.wait(REFRESH_S)
        self.refresh()
        self._plot()

    def draw(self) -> None:
        self._html.value = self.static()
        ended = self.job.done()
        self._stop.disabled, self._cancel.disabled = ended or bool(self.now["stopping"]), ended
        self._resume.disabled = self.state != "stopped"

    def _plot(self) -> None:
        from cotkit.analysis import figures

        if len(self.history.moments) > 1:
            figure = figures.course_of_run(self.history.moments)
            self._figure.value = figures.inline(figure, "The run over time")

    def __repr__(self) -> str:
        return f"RunMonitor({self.state}: {status_line(self.now)})"


def _of(spent: float, limit: float | None) -> str:
    """`1,200`, or against a limit `1,200 of 5,000`."""
    both = [spent] if limit is None else [spent, limit]
    return " of ".join(f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" for value in both)


def _left(now: dict[str, Any]) -> str:
    if now["done"] >= now["total"]:
        return "nothing"
    if now["eta_s"] is None:
        return "unknown"
    return f"{now['eta_s'] / 60:.0f} min" if now["eta_s"] > 90 else f"{now['eta_s']:.0f} s"


def _bar(now: dict[str, Any]) -> str:
    """Kept and dropped of the total; the numbers stand below it."""
    total = max(now["total"], 1)
    kept, dropped = 100 * now["kept"] / total, 100 * sum(now["drops"].values()) / total
    return (
        f"<div class='ck-done' role='progressbar' aria-label='problems done' aria-valuemin='0' "
        f"aria-valuemax='{now['total']}' aria-valuenow='{now['done']}'>"
        f"<i style='width:{kept:.2f}%;background:#009E73'></i>"
        f"<i style='width:{dropped:.2f}%;background:#E69F00'></i></div>"
    )
