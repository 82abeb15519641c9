"""Shows a view where the report is being made: as HTML in a notebook, as a line of text anywhere else."""

from __future__ import annotations

from typing import Any

from cotkit.report import views
from cotkit.shown import mended

SUMMARY = {"cotkit": "summary"}  # output metadata: the page shows this at its top, not where it was made


def _shell() -> Any:
    """The kernel's IPython shell, or None in a script or a terminal."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return shell if shell is not None and hasattr(shell, "kernel") else None


def _bundle(html: str, text: str) -> dict[str, str]:
    return {"text/html": views.with_style(html), "text/plain": text}


def show(html: str, text: str, metadata: dict[str, Any] | None = None) -> None:
    text = mended(text)  # a lone surrogate can neither be printed nor sent
    if _shell() is None:
        print(text)
        return
    from IPython.display import display

    display(_bundle(html, text), raw=True, metadata=metadata or {})


class CardRow:
    """The metric cards of one cell, side by side: a card that is added updates the row's one output."""

    def __init__(self) -> None:
        self._cell: int | None = None
        self._metrics: dict[str, dict[str, Any]] = {}
        self._handle: Any = None

    def add(self, metric: dict[str, Any]) -> None:
        shell = _shell()
        if shell is None:
            print(views.metric_line(metric))
            return
        from IPython.display import display

        if shell.execution_count != self._cell:
            self._cell, self._metrics, self._handle = shell.execution_count, {}, None
        self._metrics[metric["name"]] = metric
        shown = list(self._metrics.values())
        bundle = _bundle(views.cards(shown), "\n".join(map(views.metric_line, shown)))
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
