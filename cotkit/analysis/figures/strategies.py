"""Figures of a comparison of strategies, each drawn from the frame that its table shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cotkit.analysis.diversity import SEEDS
from cotkit.analysis.figures.canvas import (
    BLUE,
    GREY,
    ORANGE,
    bare,
    label,
    new_axes,
    nothing,
    percent_axis,
    share,
    style,
    title,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
SHAPES = ("o", "s", "^", "D", "v", "P")


def look_of(sets: list[str]) -> dict[str, tuple[str, str]]:
    """{set: (colour, shape)}; the seeds are grey crosses."""
    strategies = [name for name in sets if name != SEEDS]
    looks = {name: (COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]) for i, name in enumerate(strategies)}
    return looks | {SEEDS: (GREY, "X")}


def triangle(summary: pandas.DataFrame) -> Figure:
    """Reliability, diversity and difficulty side by side, one line a set, with 95 % intervals."""
    size = int(summary["size"].iloc[0])
    looks, places = look_of(list(summary["set"])), range(len(summary))
    panels = (
        ("accepted_share", "reliability", "attempts accepted", 1),
        ("vendi", "diversity", f"different questions\namong {size:,} (Vendi)", _room(summary["vendi_high"])),
        ("solve_rate", "difficulty", "solver's drafts right\n(left = harder)", 1),
    )
    with style():
        figure, row = new_axes(1.7 + 0.45 * len(summary), 3, sharey=True)
        for axes, (column, name, words, most) in zip(row, panels, strict=True):
            for place, line in zip(places, summary.to_dict("records"), strict=True):
                value, colour = line.get(column, math.nan), looks[line["set"]][0]
                if math.isnan(value):
                    why = "" if column == "accepted_share" and line["set"] == SEEDS else "not measured"
                    axes.text(0, place, why, color=GREY, va="center", size="small")
                    continue
                axes.plot([line[f"{column}_low"], line[f"{column}_high"]], [place] * 2, color=colour)
                axes.plot(value, place, looks[line["set"]][1], color=colour, ms=8, clip_on=False)
            axes.set_xlim(0, most)
            axes.locator_params(axis="x", nbins=3)
            if column != "vendi":
                _shares(axes)
            axes.set_xlabel(words)
            axes.set_title(name, size=11)
            bare(axes)
        row[0].set_yticks(places, [label(name) for name in summary["set"]])
        row[0].set_ylim(len(summary) - 0.5, -0.5)
        title(figure, _triangle_title(summary))
    return figure


def _shares(axes: Axes) -> None:
    """Ticks that leave room beside a neighbouring panel."""
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])


def _room(highest: pandas.Series) -> float:
    return 1.15 * highest.max() if highest.notna().any() else 1.0


def _triangle_title(summary: pandas.DataFrame) -> str:
    made = summary[summary["set"] != SEEDS]
    if len(made) < 2:
        return "Reliability, diversity and difficulty"
    asked = {"most reliable": "accepted_share", "most diverse": "vendi", "hardest": "solve_rate"}
    found = {words: _leader(made, column, words == "hardest") for words, column in asked.items()}
    if not any(found.values()):
        return "Reliability, diversity and difficulty: the strategies are not told apart"
    return ", ".join(f"{words}: {name or 'not told apart'}" for words, name in found.items()).capitalize()


def _leader(made: pandas.DataFrame, column: str, lowest: bool) -> str | None:
    """The set whose interval lies beyond that of every other; None = none does."""
    known = made[made[column].notna()] if column in made else made[:0]
    if len(known) < 2:
        return None
    first = known.loc[known[column].idxmin() if lowest else known[column].idxmax()]
    others = known[known["set"] != first["set"]]
    if lowest:
        clear = first[f"{column}_high"] < others[f"{column}_low"].min()
    else:
        clear = first[f"{column}_low"] > others[f"{column}_high"].max()
    return first["set"] if clear else None


def strategy_funnel(frame: pandas.DataFrame) -> Figure:
    """How many attempts of each strategy passed each step; bars with 95 % intervals."""
    import pandas

    names = list(dict.fromkeys(frame["strategy"]))
    looks, steps = look_of(names), list(dict.fromkeys(frame["step"]))
    with style():
        figure, row = new_axes(1.3 + 0.36 * len(steps), len(names), sharey=True, sharex=True, squeeze=False)
        for axes, name in zip(row[0], names, strict=True):
            lines = frame[frame["strategy"] == name]
            places = range(len(lines))
            axes.barh(places, lines["share"], height=0.66, color=looks[name][0], alpha=0.45)
            axes.hlines(places, lines["share_low"], lines["share_high"], color="#1c2024", lw=1.2)
            for place, count in zip(places, lines["problems"], strict=True):
                words = "not run" if pandas.isna(count) else f"{count:,}"
                axes.annotate(
                    words, (0, place), (4, 0), textcoords="offset points", va="center", size="small"
                )
            axes.set_title(label(name), size=11)
            axes.set_xlim(0, 1)
            _shares(axes)
            axes.set_xlabel("of the attempts")
            bare(axes)
        row[0][0].set_yticks(range(len(steps)), steps)
        row[0][0].set_ylim(len(steps) - 0.5, -0.5)
        last = frame.groupby("strategy", sort=False).tail(1)
        accepted = ", ".join(f"{line.strategy} {_percent(line.share)}" for line in last.itertuples())
        title(figure, f"Accepted attempts: {accepted}")
    return figure


def _percent(value: float) -> str:
    return "none made" if math.isnan(value) else share(value)


def question_map(frame: pandas.DataFrame, kernel: str) -> Figure:
    """Seeds and accepted questions in the plane, one colour and shape a set; near means alike."""
    if frame.empty:
        return nothing("There are too few questions for a map.")
    names = list(dict.fromkeys(frame["set"]))
    with style():
        figure, axes = new_axes(4.6)
        for name, (colour, shape) in look_of(names).items():
            points = frame[frame["set"] == name]
            if len(points):
                words = f"{label(name)} ({len(points):,})"
                look = {"color": colour, "marker": shape, "alpha": 0.7, "linewidths": 0.3}
                axes.scatter(points["x"], points["y"], s=60 if name == SEEDS else 28, label=words, **look)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"near = alike ({kernel})\nt-SNE: distances across the map mean little", size="small")
        axes.grid(False)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        title(figure, f"Where {len(frame):,} questions lie")
    return figure


def solve_rates(frame: pandas.DataFrame, difficulty: pandas.DataFrame) -> Figure:
    """How many of the k drafts were right, problem by problem; the solve rate with 95 % interval over it."""
    known = frame[frame["rate"].notna()]
    measured = difficulty[difficulty["problems"] > 0] if len(difficulty) else difficulty
    if known.empty:
        return nothing("No problem has a solve rate.")
    with style():
        figure, axes = new_axes(1.9 + 0.55 * len(measured))
        for place, line in enumerate(measured.itertuples()):
            _stack(axes, place, known[known["set"] == line.set]["right"], int(line.k))
            height = place + 0.38
            axes.plot([line.solve_rate_low, line.solve_rate_high], [height] * 2, color=ORANGE, lw=2)
            axes.plot(line.solve_rate, height, "D", color=ORANGE, ms=5, clip_on=False)
        axes.set_yticks(
            range(len(measured)),
            [f"{label(line.set)}\n(n = {line.problems:,})" for line in measured.itertuples()],
        )
        axes.set_ylim(len(measured) - 0.4, -0.5)
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        axes.set_xlabel("problems by number of right drafts (diamond: solve rate, 95 % interval)")
        bare(axes)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
        rates = ", ".join(f"{line.set} {share(line.solve_rate)}" for line in measured.itertuples())
        title(figure, f"Solve rate: {rates}")
    return figure


def _stack(axes: Axes, place: int, right: pandas.Series, k: int) -> None:
    """One bar cut by the number of right drafts, from none (dark) to all of them (light)."""
    from matplotlib import colormaps

    left = 0.0
    for number in range(k + 1):
        width = float((right == number).mean())
        colour = colormaps["cividis"](number / k)
        words = f"{number} of {k}" if place == 0 else None
        axes.barh(place, width, 0.5, left, color=colour, edgecolor="white", label=words)
        left += width
