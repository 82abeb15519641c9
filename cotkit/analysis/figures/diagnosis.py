"""Figures of a judge's diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cotkit.analysis.figures.canvas import (
    BLUE,
    GREY,
    ORANGE,
    bare,
    beside,
    label,
    new_axes,
    nothing,
    share,
    style,
    title,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


def judge_probes(probes: pandas.DataFrame) -> Figure:
    """How far words that make no trace better move the mean score; orange where they lift it. The intervals
    hold together at 95 %."""
    shown = probes[(probes["dimension"] == "mean") & probes["shift"].notna()].reset_index(drop=True)
    if shown.empty:
        return nothing("No trace was probed.")
    lifted = shown[shown["shift_low"] > 0]
    with style():
        figure, axes = new_axes(1.3 + 0.42 * len(shown))
        axes.axvline(0, color=GREY, lw=1)
        for place, line in shown.iterrows():
            color = ORANGE if place in lifted.index else BLUE
            errors = [[line["shift"] - line["shift_low"]], [line["shift_high"] - line["shift"]]]
            axes.errorbar(line["shift"], place, xerr=errors, fmt="o", color=color, capsize=4, lw=1.5)
            words = f"higher on {share(line['raised'])} of {line['n']:,}"
            beside(axes, place, 10, words, color=GREY, size="small")
        axes.set_yticks(range(len(shown)), [label(name) for name in shown["probe"]])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.margins(x=0.15)
        axes.set_xlabel("change of the score")
        bare(axes)
        if lifted.empty:
            title(figure, "No probe is shown to lift the score")
        else:
            worst = lifted.loc[lifted["shift"].idxmax()]
            title(figure, f"Fooled by {worst['probe']!r}: the score moves by {worst['shift']:+.2f}")
    return figure
