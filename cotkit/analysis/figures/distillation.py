"""Figures of a distillation run, each drawn from the frame that its table shows."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from cotkit.analysis.distillation import score_columns
from cotkit.analysis.figures.canvas import (
    BLUE,
    GREY,
    LIGHT,
    MAX_POINTS,
    ORANGE,
    VERDICTS,
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
    import numpy as np
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 4  # side by side; with more none can be read
TENTHS = (-0.05, 1.05)  # judges score in tenths of 0..1: one bar each


def funnel(frame: pandas.DataFrame) -> Figure:
    """Bars from given to kept, what each step lost in a lighter tone, and the reasons beside it."""
    given, kept = int(frame["problems"].iloc[0]), int(frame["problems"].iloc[-1])
    if not given:
        return nothing("No problem was given.")
    with style():
        figure, axes = new_axes(0.75 + 0.5 * len(frame))
        places = range(len(frame))
        axes.barh(places, frame["problems"], height=0.62, color=BLUE)
        axes.barh(places, frame["lost"], left=frame["problems"], height=0.62, color=LIGHT)
        axes.set_yticks(places, [label(step) for step in frame["step"]])
        axes.invert_yaxis()
        axes.set_xlim(0, given)
        axes.set_xlabel("problems")
        axes.xaxis.get_major_locator().set_params(integer=True)
        bare(axes)
        room = 14 + 8 * len(f"{given:,}")  # points
        for place, line in zip(places, frame.itertuples(), strict=True):
            beside(axes, place, room, f"{line.problems:,}", weight="bold", ha="right")
            if line.lost:
                beside(axes, place, room + 10, _reasons(line.lost, line.reasons), color=GREY, size="small")
        title(figure, _funnel_title(frame, given, kept))
    return figure


def _funnel_title(frame: pandas.DataFrame, given: int, kept: int) -> str:
    if unfinished := frame["reasons"].iloc[1].get("unfinished"):
        return f"{kept:,} of {given:,} problems kept so far, {unfinished:,} unfinished"
    interval = f"{100 * frame['share_low'].iloc[-1]:.0f} to {share(frame['share_high'].iloc[-1])}"
    hinted = f", {hints:,} with a hint" if (hints := frame["rationalized"].iloc[-1]) else ""
    return f"{kept:,} of {given:,} problems kept{hinted}: {share(kept / given)}, 95 % interval {interval}"


def _reasons(lost: int, reasons: dict[str, int]) -> str:
    """ "-5: 4 wrong_answer, 1 truncated", on two lines at most."""
    named = list(reasons.items())
    shown = named if len(named) <= 3 else named[:2]
    parts = [f"{count:,}\N{NO-BREAK SPACE}{reason}" for reason, count in shown]
    if len(named) > len(shown):
        parts.append(f"{sum(count for _, count in named[2:]):,} other")
    text = f"\N{MINUS SIGN}{lost:,}: " + ", ".join(parts)
    return textwrap.fill(text, 34, max_lines=2, placeholder=" ...", break_on_hyphens=False)


def acceptance(frame: pandas.DataFrame) -> Figure:
    """Share of problems with an accepted trace by the end of each iteration, with intervals."""
    if frame["problems"].iloc[0] == 0:
        return nothing("No problem was finished.")
    first, last = frame.iloc[0], frame.iloc[-1]
    with style():
        figure, axes = new_axes(3.4)
        errors = [frame["share"] - frame["share_low"], frame["share_high"] - frame["share"]]
        axes.errorbar(
            frame["iteration"], frame["share"], yerr=errors, color=BLUE, marker="o", capsize=4, lw=1.5
        )
        for line in frame.itertuples():
            axes.annotate(
                f"{line.accepted:,}",
                (line.iteration, line.share),
                (7, 5),
                textcoords="offset points",
                weight="bold",
            )
        axes.set_xticks(frame["iteration"], [_step(line) for line in frame.itertuples()])
        axes.set_xlim(-0.4, len(frame) - 0.6)
        axes.set_ylim(0, 1.04)
        percent_axis(axes.yaxis)
        axes.set_ylabel("problems accepted so far")
        words = f"{share(first['share'])} of {int(last['problems']):,} problems accepted as drafted"
        title(figure, words if len(frame) == 1 else f"{words}, {share(last['share'])} after refinement")
    return figure


def _step(line: Any) -> str:
    if line.iteration == 0:
        return f"first drafts\n{line.worked_on:,} problems"
    changes = f"{line.fixed:,} fixed, {line.broken:,} broken"
    return f"refinement {line.iteration}\n{line.worked_on:,} problems\n{changes}"


def accuracy(frame: pandas.DataFrame) -> Figure:
    """Verified accuracy by way of choosing the trace: dot and interval; hollow where the reference helped."""
    if frame.empty or not frame["n"].iloc[0]:
        return nothing("No problem has a decided verdict: there is no accuracy to show.")
    with style():
        figure, axes = new_axes(1.25 + 0.36 * len(frame))
        for place, line in enumerate(frame.itertuples()):
            axes.plot(
                [line.accuracy_low, line.accuracy_high],
                [place, place],
                color=BLUE,
                lw=2,
                solid_capstyle="butt",
            )
            face = "white" if line.sees_reference else BLUE
            look = {"color": BLUE, "markerfacecolor": face, "markersize": 7, "markeredgewidth": 1.5}
            axes.plot(line.accuracy, place, "o", clip_on=False, **look)  # whole also at 0 and 100 %
            beside(axes, place, 85, f"{line.right:,} of {line.n:,}", ha="right")
            beside(axes, place, 150, f"{line.traces:.1f}".removesuffix(".0"), ha="right")
        beside(axes, -0.8, 85, "right", ha="right", color=GREY, size="small")
        beside(axes, -0.8, 150, "traces each", ha="right", color=GREY, size="small")
        axes.set_yticks(range(len(frame)), [label(way) for way in frame["way"]])
        axes.set_ylim(len(frame) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        hollow = "; hollow: chosen with the reference" if frame["sees_reference"].any() else ""
        axes.set_xlabel(f"verified right (95 % interval{hollow})")
        bare(axes)
        first, last = frame.iloc[0], frame.iloc[-1]
        shown = [first] if len(frame) == 1 else [first, last]
        title(figure, "Verified right: " + ", ".join(f"{w['way']} {share(w['accuracy'])}" for w in shown))
    return figure


def scores(candidates: pandas.DataFrame, agreement: pandas.DataFrame | None = None) -> Figure:
    """Judge scores by verdict: right traces upward, wrong ones downward, one panel a dimension and one for
    their mean; of more than `MOST_PANELS` the title names those that are not drawn.

    `agreement` (from `judge_agreement`) writes each dimension's AUC over its panel.
    """
    own = candidates[~candidates["rationalized"]]
    scored = own.dropna(axis="columns", how="all")
    every = [column for column in score_columns(scored) if column in scored]
    if not every:
        return nothing("No trace has a judge's score.")
    columns = every if len(every) <= MOST_PANELS else [*every[: MOST_PANELS - 1], "score_mean"]
    with style():
        figure, grid = new_axes(2.9, len(columns), sharey=True, squeeze=False)
        for axes, column in zip(grid[0], columns, strict=True):
            _mirrored(axes, own, column)
            name = column.removeprefix("score_")
            axes.set_title(
                label(name) + _auc(agreement, name), size=9.5, weight="normal", loc="center", pad=6
            )
            axes.set_xlabel("score")
        first, decided = grid[0][0], own["correct"].notna().any()
        top = 1.3 * max(abs(limit) for axes in grid[0] for limit in axes.dataLim.intervaly)
        first.set_ylim(-top if decided else 0, top)
        first.set_ylabel("share of the traces")
        first.yaxis.set_major_formatter(lambda value, _: share(abs(value)))
        if decided:
            first.text(0.04, 0.97, "right", color=BLUE, va="top", transform=first.transAxes)
            first.text(0.04, 0.03, "wrong", color=ORANGE, transform=first.transAxes)
        left = ", ".join(c.removeprefix("score_") for c in every if c not in columns)
        title(figure, _score_title(own, columns) + (f"; not drawn: {left}" if left else ""))
    return figure


def _mirrored(axes: Axes, own: pandas.DataFrame, column: str) -> None:
    import numpy as np

    edges = _bins(own[column].dropna().to_numpy())
    width = edges[1] - edges[0]
    groups = {True: (BLUE, 1), False: (ORANGE, -1)} if own["correct"].notna().any() else {None: (GREY, 1)}
    for correct, (color, sign) in groups.items():
        group = own if correct is None else own[own["correct"].eq(correct).fillna(False)]
        counts, _ = np.histogram(group[column].dropna(), edges)
        middles = edges[:-1] + width / 2
        axes.bar(middles, sign * counts / max(counts.sum(), 1), width=0.85 * width, color=color)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xlim(edges[0] - 0.2 * width, edges[-1] + 0.2 * width)
    if edges[0] == TENTHS[0]:
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    else:
        axes.locator_params(axis="x", nbins=4)


def _bins(values: np.ndarray) -> np.ndarray:
    """Edges of equal bars: tenths of 0..1; of other rewards each whole number, or eleven bars."""
    import numpy as np

    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        return np.linspace(*TENTHS, 12)
    if (values % 1 == 0).all() and high - low <= 10:
        return np.arange(low - 0.5, high + 1)
    half = (high - low) / 20 or 0.5
    return np.linspace(low - half, high + half, 12)


def _auc(agreement: pandas.DataFrame | None, name: str) -> str:
    if agreement is None or name not in set(agreement["dimension"]):
        return ""
    line = agreement.set_index("dimension").loc[name]
    if math.isnan(line["auc"]):
        return ""
    return f"\nAUC {line['auc']:.2f}\n[{line['auc_low']:.2f}, {line['auc_high']:.2f}]"


def _score_title(own: pandas.DataFrame, columns: list[str]) -> str:
    judged = own[own[columns[-1]].notna()]
    right, wrong = int(judged["correct"].sum()), int((~judged["correct"].fillna(True)).sum())
    if not right and not wrong:
        return f"Judge scores of {len(judged):,} traces without a verdict"
    return f"Judge scores of {right:,} right and {wrong:,} wrong traces"


def lengths(candidates: pandas.DataFrame) -> Figure:
    """Length of the traces by verdict: points, quartiles and median; crosses were cut off."""
    import numpy as np

    own = candidates[~candidates["rationalized"]]
    counted = own["completion_tokens"].notna().all() and len(own)
    own = own.assign(length=(own["completion_tokens"] if counted else own["trace_characters"]).astype(float))
    verdict = (
        own["correct"]
        .map({True: "right", False: "wrong"})
        .astype(object)
        .where(own["correct"].notna(), "undecided")
    )
    groups = [(name, own[verdict == name]) for name in VERDICTS if (verdict == name).any()]
    if not groups:
        return nothing("There is no trace to measure.")
    rng = np.random.default_rng(0)
    with style():
        figure, axes = new_axes(1.2 + 0.75 * len(groups))
        for place, (name, group) in enumerate(groups):
            shown = group if len(group) <= MAX_POINTS else group.sample(MAX_POINTS, random_state=0)
            height = place + 0.16 + 0.2 * rng.random(len(shown))
            for cut, marker in ((False, "o"), (True, "x")):
                chosen = (shown["truncated"] == cut).to_numpy(bool)
                axes.plot(
                    shown["length"][chosen],
                    height[chosen],
                    marker,
                    color=VERDICTS[name],
                    ms=4,
                    alpha=0.5,
                    mew=1,
                )
            low, middle, high = group["length"].quantile([0.25, 0.5, 0.75])
            axes.plot([low, high], [place - 0.06] * 2, color=VERDICTS[name], lw=5, solid_capstyle="butt")
            axes.plot(middle, place - 0.06, "o", color="white", markeredgecolor=VERDICTS[name], ms=6, mew=1.5)
        axes.set_yticks(range(len(groups)), [f"{name}\n(n = {len(group):,})" for name, group in groups])
        axes.set_ylim(len(groups) - 0.45, -0.45)
        axes.set_xlim(0)
        crosses = "; crosses: cut off" if own["truncated"].any() else ""
        unit = "completion tokens" if counted else "characters"
        axes.set_xlabel(f"{unit} a trace (bar: middle half, circle: median{crosses})")
        bare(axes)
        medians = ", ".join(f"{name} {group['length'].median():.0f}" for name, group in groups)
        title(figure, f"Median length in {unit}: {medians}")
    return figure


def calls(frame: pandas.DataFrame) -> Figure:
    """Calls, tokens and latency by role."""
    roles = frame[(frame["role"] != "all") & (frame["calls"] > 0)]
    total = frame.iloc[-1]
    if roles.empty:
        return nothing("No call was made.")
    with style():
        figure, (left, middle, right) = new_axes(1.6 + 0.4 * len(roles), 3, sharey=True)
        places = range(len(roles))
        left.barh(places, roles["calls"].astype(float), height=0.6, color=BLUE)
        left.bar_label(
            left.containers[0], [f"{count:,}" for count in roles["calls"]], padding=3, size="small"
        )
        left.margins(x=0.3)
        left.set_xlabel("calls")
        prompt, completion = (
            roles[c].astype(float).fillna(0) / 1000 for c in ("prompt_tokens", "completion_tokens")
        )
        middle.barh(places, prompt, height=0.6, color=LIGHT, label="prompt")
        middle.barh(places, completion, left=prompt, height=0.6, color=BLUE, label="completion")
        for place, known in zip(places, roles["completion_tokens"].notna(), strict=True):
            if not known:
                middle.text(0, place, " unknown", va="center", color=GREY)
        middle.set_xlabel("tokens (thousands)")
        figure.legend(*middle.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        timed = roles["timed"] > 0
        where = [place for place, known in zip(places, timed, strict=True) if known]
        right.hlines(where, roles["latency_p50"][timed], roles["latency_p90"][timed], color=BLUE, lw=2)
        right.plot(roles["latency_p50"][timed], where, "o", color=BLUE)
        right.set_xlim(0)
        right.set_xlabel("seconds a call\n(median to p90)")
        left.set_yticks(places, [label(role) for role in roles["role"]])
        left.set_ylim(len(roles) - 0.5, -0.5)
        for axes in (left, middle, right):
            axes.locator_params(axis="x", nbins=4)
            bare(axes)
        title(figure, _calls_title(total))
    return figure


def _calls_title(total: pandas.Series) -> str:
    each = total["calls_per_kept"]
    kept = "" if math.isnan(each) else f", {each:.1f} a kept problem"
    return f"{total['calls']:,} calls{kept}; cost {total['cost']}"
