"""Figures of a benchmark of models, each drawn from the frame of a `BenchmarkReport` that its table shows."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from cotkit.analysis.figures.canvas import (
    BLUE,
    GREY,
    LIGHT,
    ORANGE,
    WIDTH,
    bare,
    beside,
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
    from matplotlib.figure import Figure

TOTALS = ("mean of domains", "all problems")
LOOK = {  # of an outcome: colour and hatching, so that no bar is told by its colour alone
    "right": (BLUE, ""),
    "wrong": (ORANGE, ""),
    "no_answer": ("#E69F00", "///"),
    "truncated": ("#CC79A7", "\\\\\\"),
    "undecided": ("#999999", "..."),
    "failed": ("#F0E442", "xxx"),
    "unfinished": (LIGHT, "---"),
}
COLOURS = (BLUE, "#E69F00", "#009E73", "#CC79A7", ORANGE, "#56B4E9")
MARKERS = "osD^vPX*"


def accuracy_map(table: pandas.DataFrame) -> Figure:
    """Domain x model: each cell says the accuracy, its 95 % interval, n, and how many are undecided ("?")."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    if table.empty:
        return nothing("No model finished a problem.")
    models, domains = list(dict.fromkeys(table["model"])), list(dict.fromkeys(table["domain"]))
    domains = [*(d for d in domains if d not in TOTALS), *TOTALS]
    colours = colormaps["Blues"]
    with style():
        figure, axes = new_axes(1.1 + 0.46 * len(domains))
        figure.set_figwidth(max(WIDTH, 2.2 + 1.25 * len(models)))
        for line in table.itertuples():
            x, y = models.index(line.model), domains.index(line.domain)
            tone = "white" if math.isnan(line.accuracy) else colours(0.08 + 0.72 * line.accuracy)
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=tone, edgecolor="white", lw=2))
            ink = "white" if line.accuracy > 0.8 else "#1c2024"
            value, detail = _cell(line)
            axes.text(x + 0.5, y + 0.36, value, ha="center", va="center", color=ink, weight="bold", size=10)
            axes.text(x + 0.5, y + 0.73, detail, ha="center", va="center", color=ink, size=8)
        axes.axhline(len(domains) - len(TOTALS), color="#1c2024", lw=1.2)
        axes.set_xlim(0, len(models))
        axes.set_ylim(len(domains), 0)
        names = [label(textwrap.fill(model, 22)) for model in models]
        axes.set_xticks([x + 0.5 for x in range(len(models))], names)
        axes.set_yticks([y + 0.5 for y in range(len(domains))], [label(d.replace("_", " ")) for d in domains])
        axes.xaxis.tick_top()
        axes.grid(visible=False)
        for side in axes.spines.values():
            side.set_visible(False)
        title(figure, _map_title(table))
    return figure


def _cell(line: Any) -> tuple[str, str]:
    apart = f", {line.undecided}?" if line.undecided else ""
    if not line.n:
        return "no value", f"n 0{apart}"
    interval = f"{100 * line.accuracy_low:.0f}\N{EN DASH}{100 * line.accuracy_high:.0f}"
    return share(line.accuracy), f"{interval}, n {line.n:,}{apart}"


def _map_title(table: pandas.DataFrame) -> str:
    totals = table[(table["domain"] == "all problems") & (table["n"] > 0)].sort_values("accuracy")
    if totals.empty:
        return "No completion could be decided"
    best = totals.iloc[-1]
    interval = f"95 % interval {100 * best['accuracy_low']:.0f} to {share(best['accuracy_high'])}"
    return f"Right on all problems: {best['model']} {share(best['accuracy'])}, {interval}"


def model_differences(frame: pandas.DataFrame) -> Figure:
    """Every two models on the same problems: dot and 95 % interval; filled where the difference is clear."""
    known = frame[frame["n"] > 0] if len(frame) else frame
    if known.empty:
        return nothing("There are no two models with decided answers to the same problems.")
    with style():
        figure, axes = new_axes(1.35 + 0.5 * len(known))
        for place, line in enumerate(known.itertuples()):
            axes.plot([line.difference_low, line.difference_high], [place] * 2, color=BLUE, lw=2)
            face = BLUE if line.clear else "white"
            axes.plot(line.difference, place, "o", color=BLUE, markerfacecolor=face, ms=7, mew=1.5)
            beside(axes, place, 36, f"{line.n:,}", ha="right")
            beside(axes, place, 92, "< 0.001" if line.p_holm < 0.001 else f"{line.p_holm:.2g}", ha="right")
        beside(axes, -0.75, 36, "n", ha="right", color=GREY, size="small")
        beside(axes, -0.75, 92, "Holm's p", ha="right", color=GREY, size="small")
        axes.axvline(0, color="#1c2024", lw=1)
        names = [f"{line.second}\nminus {line.first}" for line in known.itertuples()]
        axes.set_yticks(range(len(known)), [label(name) for name in names], size=9)
        axes.set_ylim(len(known) - 0.4, -0.6)
        axes.set_xlim(-1, 1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f}" if value else "0")
        axes.set_xlabel("points more right on the same problems (95 % interval; hollow: not clear)")
        bare(axes)
        clear = int(known["clear"].sum())
        title(figure, f"{clear} of {len(known)} differences between models are clear")
    return figure


def passk(frame: pandas.DataFrame) -> Figure:
    """pass@k by model with 95 % bands over problems; the markers tell models apart, too."""
    known = frame[frame["problems"] > 0] if len(frame) else frame
    if known.empty:
        return nothing("No problem has enough decided completions for pass@k.")
    ks = sorted(set(known["k"]))
    with style():
        figure, axes = new_axes(3.6)
        for number, (model, own) in enumerate(known.groupby("model", sort=False)):
            bounds = own["k"], own["pass_at_k_low"], own["pass_at_k_high"]
            axes.plot(own["k"], own["pass_at_k"], label=label(model), **_mark(number))
            draw = axes.fill_between if len(own) > 1 else axes.vlines  # a single k has no band
            draw(*bounds, color=COLOURS[number % 6], alpha=0.15 if len(own) > 1 else 1)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        percent_axis(axes.yaxis)
        axes.set_xlabel("k completions a problem")
        axes.set_ylabel("at least one is right")
        figure.legend(loc="outside lower center", ncols=2)
        last = known[known["k"] == ks[-1]].sort_values("pass_at_k").iloc[-1]
        words = f"{last['model']} {share(last['pass_at_k'])} of {last['problems']:,} problems"
        title(figure, f"pass@{ks[-1]}: {words}")
    return figure


def solved_cost(frame: pandas.DataFrame) -> Figure:
    """Share of problems solved against what a solved one takes, both with 95 % intervals: in US dollars where
    every price is known and somebody charges, else in completion tokens."""
    priced = len(frame) and not frame["unknown_cost"].any() and (frame["cost_usd"] > 0).any()
    unit, name = ("usd", "US dollars") if priced else ("tokens", "completion tokens")
    known = frame[frame[f"{unit}_per_solved"] > 0] if len(frame) else frame
    if known.empty:
        return nothing("No model solved a problem at a known cost.")
    each = known[f"{unit}_per_solved"]
    with style():
        figure, axes = new_axes(3.6)
        for number, line in enumerate(known.assign(each=each).itertuples()):
            spent = line.each * line.solved_share  # on every problem
            yerr = [[line.each - spent / line.solved_share_high], [spent / line.solved_share_low - line.each]]
            xerr = [[line.solved_share - line.solved_share_low], [line.solved_share_high - line.solved_share]]
            named = label(f"{line.model} ({line.solved:,} of {line.problems:,})")
            axes.errorbar(
                line.solved_share, line.each, yerr, xerr, label=named, ms=8, lw=1.5, **_mark(number)
            )
        axes.set_yscale("log")
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        axes.yaxis.set_major_formatter(lambda value, _: _plain(value))
        axes.yaxis.set_minor_formatter(lambda value, _: _plain(value) if f"{value:e}"[0] in "25" else "")
        none = ", ".join(frame["model"][frame["solved"] == 0])
        axes.set_xlabel(
            label("problems solved (95 % interval)" + (f"\nnone solved by {none}" if none else ""))
        )
        axes.set_ylabel(f"{name}\na solved problem")
        figure.legend(loc="outside lower center", ncols=2)
        best = known["model"][each.idxmin()]
        title(figure, f"A solved problem takes {_plain(each.min())} {name} at least ({best})")
    return figure


def _plain(amount: float) -> str:
    """1,017 and 0.00123; no powers of ten for a reader."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _mark(number: int) -> dict[str, str]:
    """The colour and the marker of a model."""
    return {"color": COLOURS[number % 6], "marker": MARKERS[number % len(MARKERS)]}


def outcomes(errors: pandas.DataFrame) -> Figure:
    """What became of each model's completions: bars by outcome, hatched and counted."""
    if errors.empty:
        return nothing("No completion was asked for.")
    counts = errors.pivot_table("completions", "model", "outcome", "sum", fill_value=0, sort=False)
    shown = [outcome for outcome in LOOK if outcome in counts.columns]
    with style():
        figure, axes = new_axes(1.5 + 0.5 * len(counts))
        left = counts[shown[0]] * 0.0
        for outcome in shown:
            (colour, hatch), part = LOOK[outcome], counts[outcome] / counts.sum(axis=1)
            look = {"facecolor": colour, "hatch": hatch, "label": outcome.replace("_", " ")}
            axes.barh(range(len(counts)), part, 0.62, left, **look)
            for place, (n, width, start) in enumerate(zip(counts[outcome], part, left, strict=True)):
                if width > 0.035:
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                    where = {"ha": "center", "va": "center", "bbox": box, "size": "small"}
                    axes.text(start + width / 2, place, f"{n:,}", **where)
            left = left + part
        axes.set_yticks(range(len(counts)), [label(model) for model in counts.index])
        axes.set_ylim(len(counts) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        axes.set_xlabel("share of the completions (counts in the bars)")
        bare(axes)
        figure.legend(loc="outside lower center", ncols=4)
        right, total = counts.get("right", left * 0).sum(), counts.to_numpy().sum()
        title(figure, f"{right:,.0f} of {total:,} completions right")
    return figure
