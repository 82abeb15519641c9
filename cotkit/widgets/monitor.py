"""RunMonitor: a run that goes on in the background, watched and stopped from the notebook.

    job = cotkit.start_distill(problems, generator)
    RunMonitor(job)

A thread looks at the job twice a second and draws; cells stay free, and Stop works at once, since it does not
wait for a cell. The history (acceptance, calls in flight, 429s) is kept for the figure below the numbers.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from cotkit.pipelines import RunJob, status_line
from cotkit.widgets.base import STYLE, Widget, button, facts, text

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
        models = now.get("models", [])
        self.moments.append(
            {
                "seconds": now["seconds"],
                "done": now["done"],
                "kept": now["kept"],
                "in_flight": sum(model["in_flight"] for model in models),
                "limit": sum(model["limit"] for model in models),
                "rate_limited": sum(model["rate_limited"] for model in models),
            }
        )
        if len(self.moments) > MOMENTS:
            self.moments, self._every = self.moments[::2], 2 * self._every


class RunMonitor(Widget):
    """Watches a `RunJob`: done of total, rate, time left, tokens, cost against budget, acceptance, errors,
    concurrency and 429s over time. `stop()` finishes what is in flight, `cancel()` drops it.
    """

    def __init__(self, job: RunJob):
        self.job, self.history = job, History()
        self.now = job.progress
        self._thread: threading.Thread | None = None

    def refresh(self) -> None:
        """Looks at the job once."""
        self.now = self.job.progress
        self.history.add(self.now)
        if hasattr(self, "_html"):
            self._draw()

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

    @property
    def state(self) -> str:
        if not self.job.done():
            return "stopping" if self.now["stopping"] else "running"
        return "finished" if self.now["done"] == self.now["total"] else "stopped"

    def numbers(self) -> dict[str, str | None]:
        """What is shown, by name; None is left out."""
        now, ledger = self.now, self.now["ledger"]
        tokens = (ledger.get("prompt_tokens") or 0) + (ledger.get("completion_tokens") or 0)
        models = now["models"]
        decided = now["done"] or 1
        shown = {
            "done": f"{now['done']:,} of {now['total']:,}",
            "kept": f"{now['kept']:,} ({100 * now['kept'] / decided:.0f} % of done)",
            "rate": f"{now['rows_per_minute']:.3g} rows/min" if now["rows_per_minute"] else "none yet",
            "left": None if self.job.done() else _left(now),
            "in flight": f"{sum(m['in_flight'] for m in models)} of {sum(m['limit'] for m in models)}",
            "calls": f"{ledger.get('calls', 0):,}",
            "tokens": f"{tokens:,}",
            "cost": "unknown" if ledger.get("cost_usd") is None else f"${ledger['cost_usd']:.4g}",
        }
        budget = {k: v for k, v in now.get("budgets", {}).items() if v is not None}
        if budget:
            shown["budget"] = ", ".join(
                f"{name.removeprefix('budget_')} {value:g}" for name, value in budget.items()
            )
        if limited := sum(m["rate_limited"] for m in models):
            shown["429s"] = f"{limited:,}"
        return shown

    def static(self) -> str:
        drops = "".join(
            f"<tr><td>{text(reason)}</td><td>{count:,}</td></tr>"
            for reason, count in sorted(self.now["drops"].items(), key=lambda item: -item[1])
        )
        failed = self.now["ledger"].get("failed", {})
        failures = ", ".join(f"{count} {kind}" for kind, count in failed.items())
        parts = [
            f"<b>{text(self.now['name'])}</b>: {self.state}"
            + (f" ({text(self.now['stopping'])})" if self.now["stopping"] else ""),
            _bar(self.now),
            facts(self.numbers()),
            f'<table class="ck"><tr><th>dropped because</th><th>problems</th></tr>{drops}</table>'
            if drops
            else "",
            f'<div class="ck-quiet">failed requests: {text(failures)}</div>' if failures else "",
            f'<div class="ck-quiet">last error: {text(self.now["last_error"])}</div>'
            if self.now["last_error"]
            else "",
        ]
        return "".join(f"<div>{part}</div>" for part in parts if part)

    def build(self) -> Any:
        import ipywidgets

        self._html = ipywidgets.HTML()
        self._figure = ipywidgets.HTML()
        self._stop = button(
            "Stop", self.stop, tooltip="Finish what is in flight and stop; the run can go on later"
        )
        self._cancel = button("Cancel", self.cancel, tooltip="Stop at once and drop what is in flight")
        view = ipywidgets.VBox([self._html, ipywidgets.HBox([self._stop, self._cancel]), self._figure])
        self._draw()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="cotkit-monitor")
        self._thread.start()
        return view

    def _watch(self) -> None:
        drawn = 0.0
        while not self.job.done():
            self.refresh()
            if time.monotonic() - drawn > 5:
                self._plot()
                drawn = time.monotonic()
            self.job.wait(REFRESH_S)
        self.refresh()
        self._plot()

    def _draw(self) -> None:
        self._html.value = f"{STYLE}{self.static()}"
        ended = self.job.done()
        self._stop.disabled, self._cancel.disabled = ended or bool(self.now["stopping"]), ended

    def _plot(self) -> None:
        from cotkit.analysis import figures

        if len(self.history.moments) > 1:
            figure = figures.course_of_run(self.history.moments)
            self._figure.value = figures.inline(figure, "The run over time")

    def __repr__(self) -> str:
        return f"RunMonitor({self.state}: {status_line(self.now)})"


def _left(now: dict[str, Any]) -> str:
    if now["done"] >= now["total"]:
        return "nothing"
    if now["eta_s"] is None:
        return "unknown"
    return f"{now['eta_s'] / 60:.0f} min" if now["eta_s"] > 90 else f"{now['eta_s']:.0f} s"


def _bar(now: dict[str, Any]) -> str:
    total = max(now["total"], 1)
    kept, dropped = 100 * now["kept"] / total, 100 * sum(now["drops"].values()) / total
    return (
        f"<div role='progressbar' aria-label='problems done' aria-valuemin='0' "
        f"aria-valuemax='{now['total']}' aria-valuenow='{now['done']}' "
        "style='display:flex;height:10px;max-width:720px;border-radius:5px;"
        "overflow:hidden;background:rgba(128,128,128,.3);margin:4px 0'>"
        f"<div style='width:{kept:.2f}%;background:#009E73'></div>"
        f"<div style='width:{dropped:.2f}%;background:#E69F00'></div></div>"
    )
