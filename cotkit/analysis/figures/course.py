"""The course of a run while it goes, and figures as HTML for widgets."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cotkit.analysis.figures.canvas import BLUE, GREY, ORANGE, new_axes, style, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def course_of_run(moments: Sequence[dict[str, Any]]) -> Figure:
    """Problems done and kept, and calls in flight with their limit and 429s, against time.

    moments: dicts with seconds, done, kept, in_flight, limit, rate_limited (a count since the start).
    """
    seconds = [moment["seconds"] for moment in moments]
    minutes = seconds[-1] > 300
    time = [value / 60 for value in seconds] if minutes else seconds
    with style():
        figure, (above, below) = new_axes(3.2, rows=2, sharex=True)
        above.plot(time, [m["done"] for m in moments], color=GREY, label="done")
        above.plot(time, [m["kept"] for m in moments], color=BLUE, linestyle="--", label="kept")
        above.set_ylabel("problems")
        above.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        below.plot(time, [m["limit"] for m in moments], color=GREY, linestyle=":", label="limit")
        below.plot(time, [m["in_flight"] for m in moments], color=BLUE, label="in flight")
        below.plot(
            time, [m["rate_limited"] for m in moments], color=ORANGE, linestyle="--", label="429s so far"
        )
        below.set_ylabel("calls")
        below.set_xlabel("minutes" if minutes else "seconds")
        below.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        for axes in (above, below):
            axes.set_ylim(bottom=0)
            axes.yaxis.get_major_locator().set_params(integer=True)
        title(figure, f"{moments[-1]['done']:,} problems done, {moments[-1]['kept']:,} kept")
    return figure


def inline(figure: Figure, caption: str) -> str:
    """The figure as an <img> that holds its picture, with the caption for those who cannot see it."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    encoded = base64.b64encode(data.getvalue()).decode()
    return f'<img alt="{html.escape(caption)}" style="max-width:100%" src="data:image/png;base64,{encoded}">'
