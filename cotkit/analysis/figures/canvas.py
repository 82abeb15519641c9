"""What every figure of the kit is drawn with: style, size, colours, and the few marks they share.

Every figure is a matplotlib Figure in the kit's style, readable at half its width. The title says what the
figure shows, computed from the data; n and 95 % intervals are drawn or written. Colours are Okabe and Ito's,
which the colour-blind tell apart; right, wrong and undecided also differ by place or label. A frame without
data gives a figure that says so.
"""

from __future__ import annotations

import contextlib
import pathlib
import textwrap
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = pathlib.Path(__file__).parents[2] / "cotkit.mplstyle"
WIDTH = 7.2  # inches
BLUE, ORANGE, GREY, LIGHT = "#0072B2", "#D55E00", "#6E6E6E", "#D9D9D9"
VERDICTS = {"right": BLUE, "wrong": ORANGE, "undecided": GREY}
MAX_POINTS = 300  # a strip of points with more than these is a blot


_STYLED = threading.RLock()


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The kit's matplotlib style, for figures of your own: `with figures.style(): ...`.

    One thread at a time: matplotlib's settings are global, and two that overlap (a cell, and a monitor that
    draws beside it) would each restore what the other had set.
    """
    import matplotlib.style

    with _STYLED, matplotlib.style.context(STYLE):
        yield


def new_axes(height: float, columns: int = 1, rows: int = 1, **options: Any) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def nothing(text: str) -> Figure:
    with style():
        figure, axes = new_axes(1.0)
        axes.axis("off")
        axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)
    return figure


def title(figure: Figure, text: str) -> None:
    figure.suptitle(textwrap.fill(label(text), 66), x=0.01, ha="left", weight="bold", size=12.5)


def beside(axes: Axes, place: float, points: float, text: str, **look: Any) -> None:
    """Text at height `place`, `points` to the right of the axes."""
    where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(label(text), (1, place), (points, 0), va="center", annotation_clip=False, **where, **look)


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def label(text: str) -> str:
    """Text that matplotlib must not read as mathematics."""
    return text.replace("$", r"\$")


def percent_axis(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def bare(axes: Axes) -> None:
    for side in ("left", "top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
