"""Figures of tuned thresholds, each drawn from a table of a ThresholdReport."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.figures.canvas import (
    BLUE,
    GREY,
    LIGHT,
    MAX_POINTS,
    ORANGE,
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREEN, PURPLE = "#009E73", "#AA4499"
FEW = 20  # rows behind a cell of the heat map that is hatched
CALIBRATIONS = {"raw": GREY, "platt": BLUE, "isotonic": ORANGE}
AXES = {
    "false_kept": "wrong traces kept", "recall": "right traces kept (recall)",
    "precision": "of the kept, right (precision)", "cost_per_1000": "cost of 1,000 traces",
}  # fmt: skip
LOOKS = {
    "all": (BLUE, "-"), "any": (ORANGE, "-"), "mean": (GREEN, "-"), "min": (BLUE, ":"),
    "median": (GREEN, ":"), "logistic": (PURPLE, "-"),
}  # fmt: skip


def verdict_histograms(rows: pandas.DataFrame, scores: pandas.DataFrame) -> Figure:
    """Scores of right rows upward, of wrong ones downward, one panel a score, with its AUC."""
    tuned = rows[rows["tuned"]]
    right = tuned["right"].to_numpy()
    with style():
        figure, grid = new_axes(2.9, len(scores), sharey=True, squeeze=False)
        for axes, line in zip(grid[0], scores.itertuples(), strict=True):
            values = tuned[line.score].to_numpy()
            edges = np.histogram_bin_edges(values, 11 if line.distinct <= 11 else 20)
            for verdict, color, sign in ((right, BLUE, 1), (~right, ORANGE, -1)):
                counts = np.histogram(values[verdict], edges)[0]
                heights = sign * counts / max(counts.sum(), 1)
                axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=color)
            axes.axhline(0, color="black", lw=0.8)
            auc = "" if math.isnan(line.auc) else f"\nAUC {_found(line, 'auc')}"
            axes.set_title(label(_name(line.score)) + auc, size=9.5, weight="normal", loc="center", pad=6)
            axes.set_xlabel("score")
        first = grid[0][0]
        top = 1.3 * max(abs(limit) for axes in grid[0] for limit in axes.dataLim.intervaly)
        first.set(ylim=(-top, top), ylabel="share of the traces")
        first.yaxis.set_major_formatter(lambda value, _: share(abs(value)))
        first.text(0.04, 0.97, "right", color=BLUE, va="top", transform=first.transAxes)
        first.text(0.04, 0.03, "wrong", color=ORANGE, transform=first.transAxes)
        _title(figure, f"Scores of {right.sum():,} right and {(~right).sum():,} wrong traces")
    return figure


def roc(curve: pandas.DataFrame) -> Figure:
    """Right traces kept against wrong traces kept, along the path of the chosen rule, with its band."""
    path = curve[curve["chosen"]]
    if path[["recall", "false_kept"]].isna().any(axis=None):
        return nothing("All traces have the same verdict: there is no ROC curve.")
    area = _found(path.iloc[0], "auc")
    words = f"{_of(path)}: area under the ROC curve {area}; 0.5 is a coin ({_n(path)} traces)"
    figure, axes = _along(path, "false_kept", ["recall"], words)
    axes.plot([0, 1], [0, 1], color=LIGHT, lw=1.2, zorder=1)
    # dotted: scores beyond those of the tune split have no step of their own
    axes.plot([0, *path["false_kept"], 1], [0, *path["recall"], 1], ":", color=BLUE, lw=1.2)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def precision_recall(curve: pandas.DataFrame, target: float) -> Figure:
    """Precision against recall along the path of the chosen rule, with band, target and chosen threshold."""
    path = curve[curve["chosen"]]
    reached = path.loc[(path["precision"] >= target) & (path["kept_n"] >= FEW), "recall"].max()
    missed = f"no threshold that keeps {FEW} traces"
    found = missed if math.isnan(reached) else f"up to {share(reached)} of the right ones"
    words = f"At {share(target)} precision: {found} ({_n(path)} traces)"
    figure, axes = _along(path, "recall", ["precision"], words, target)
    axes.set(xlim=(0, 1), ylim=(_floor(path.loc[path["kept_n"] >= FEW, "precision_low"]), 1.01))
    return figure


def cost_curve(curve: pandas.DataFrame) -> Figure:
    """Expected cost of 1,000 traces along the path of the chosen rule, with its band."""
    path = curve[curve["chosen"]]
    least = path.loc[path["cost_per_1000"].idxmin()]
    words = f"Least cost {least['cost_per_1000']:.0f} per 1,000 traces, at {least['threshold']}"
    figure, axes = _along(path, _x_of(path), ["cost_per_1000"], words)
    axes.set_ylim(0)
    return figure


def threshold_curve(curve: pandas.DataFrame, target: float) -> Figure:
    """The key figure: precision, recall and kept share against the threshold, with bands and the choice."""
    path = curve[curve["chosen"]]
    words = f"No threshold of rule {_of(path)} reaches the target ({_n(path)} traces)"
    for line in _picked(path):
        found, kept = (
            f"{share(line['recall'])} of the right found",
            f"{share(line['kept'])} of {_n(path)} kept",
        )
        words = f"{line['threshold']} ({line['known']}): {share(line['precision'])} right, {found}, {kept}"
    figure, axes = _along(path, _x_of(path), ["precision", "recall", "kept"], words, target)
    axes.set(ylim=(0, 1.02), ylabel="share of the traces")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _along(
    path: pandas.DataFrame, x: str, ys: list[str], words: str, target: float | None = None
) -> tuple[Figure, Axes]:
    """Columns of the curve against another one, with bands. The chosen threshold is a dot on one column, full
    where it is certified, and a line through several."""
    with style():
        figure, axes = new_axes(3.4 + 0.25 * (len(ys) - 1))
        for y, color in zip(ys, (BLUE, ORANGE, GREEN), strict=False):
            axes.plot(path[x], path[y], color=color, label=y, marker="." if len(path) < 25 else None)
            axes.fill_between(path[x], path[f"{y}_low"], path[f"{y}_high"], color=color, alpha=0.18, lw=0)
        for line in _picked(path):
            if len(ys) == 1:
                look = {"mfc": "black" if line["certified"] else "white", "ms": 8, "zorder": 3}
                axes.plot(line[x], line[ys[0]], "o", color="black", clip_on=False, **look)
            else:
                axes.axvline(line[x], color="black", lw=1, ls="--")
        for axis, name in ((axes.xaxis, x), (axes.yaxis, ys[0])):
            if name in path and name not in ("value", "step", "cost_per_1000"):
                percent_axis(axis)
            axis.set_label_text(AXES.get(name) or _axis_of(path))
        if target is not None:
            _target(axes, target)
        _title(figure, words)
    return figure, axes


def reliability(table: pandas.DataFrame) -> Figure:
    """Share right against predicted chance, raw, Platt and isotonic, with Brier and ECE: of the score, or of
    the mean of several."""
    score = table["score"].iloc[-1]
    chosen = table[table["score"] == score]
    with style():
        ways = dict(list(chosen.groupby("calibration", sort=False)))
        figure, grid = new_axes(3.2, len(ways), sharey=True, squeeze=False)
        for axes, (name, bins) in zip(grid[0], ways.items(), strict=True):
            errors = [bins["right"] - bins["right_low"], bins["right_high"] - bins["right"]]
            look = {"color": CALIBRATIONS[name], "marker": "o", "ms": 4, "lw": 1.2, "capsize": 2}
            axes.plot([0, 1], [0, 1], color=LIGHT, lw=1.2)
            axes.errorbar(bins["predicted"], bins["right"], yerr=errors, **look)
            facts = f"Brier {bins['brier'].iloc[0]:.3f}, ECE {bins['ece'].iloc[0]:.3f}"
            axes.set_title(f"{name}\n{facts}", size=9.5, weight="normal", loc="center")
            axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1])
            percent_axis(axes.xaxis)
        percent_axis(grid[0][0].yaxis)
        grid[0][0].set_ylabel("right")
        grid[0][len(ways) // 2].set_xlabel("predicted chance of being right (bins of equal count)")
        base, n = chosen["base_brier"].iloc[0], chosen.loc[chosen["calibration"] == "raw", "n"].sum()
        best = chosen.groupby("calibration")["brier"].first()
        words = f"Brier {best.min():.3f} at best ({best.idxmin()}), {base:.3f} by the base rate (n = {n:,})"
        _title(figure, f"{_name(score)}: {words}")
    return figure


def threshold_heat(grid: pandas.DataFrame) -> Figure:
    """Precision over two thresholds that must both be reached (`threshold_grid`), with counts; hatched where
    fewer than 20 traces stand behind a cell."""
    from matplotlib.patches import Rectangle

    first, second = grid.columns[:2]
    precision, counts = (grid.pivot(index=second, columns=first, values=v) for v in ("precision", "n"))
    solid = grid.loc[grid["n"] >= FEW, "precision"]
    least = _floor(solid)
    with style():
        figure, axes = new_axes(1.6 + 0.3 * len(counts))
        shades = axes.imshow(precision, origin="lower", aspect="auto", vmin=least, vmax=1)
        look = {"facecolor": "#F2F2F2", "edgecolor": LIGHT, "hatch": "////", "lw": 0}
        for (y, x), n in np.ndenumerate(counts.to_numpy()):
            if n < FEW:
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
            dark = n >= FEW and precision.to_numpy()[y, x] < (least + 1) / 2
            axes.text(x, y, f"{n:,}", ha="center", va="center", size=7.5, color="white" if dark else "black")
        axes.set_xticks(range(counts.shape[1]), [f"{v:.2g}" for v in counts.columns])
        axes.set_yticks(range(counts.shape[0]), [f"{v:.2g}" for v in counts.index])
        axes.grid(False)
        axes.set(xlabel=label(f"{_name(first)} at least"), ylabel=label(f"{_name(second)} at least"))
        percent_axis(figure.colorbar(shades, label="of the kept, right").ax.yaxis)
        words = f"Fewer than {FEW} traces behind every pair of thresholds"
        if len(solid):
            words = f"Of the kept, {share(solid.min())} to {share(solid.max())} right"
            words += ", counted, not certified (numbers: traces kept)"
        _title(figure, words)
    return figure


def kappa_matrix(agreement: pandas.DataFrame) -> Figure:
    """Kappa of every two decisions (scores at their best cut, and the verdict), with interval."""
    table = agreement[agreement["measure"] == "kappa"]
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    if len(names) == 2:
        found, n = _found(table.iloc[0], "value"), table["n"].iloc[0]
        return nothing(f"One score alone: its kappa with the verdict is {found} (n = {n:,}).")
    with style():
        figure, axes = new_axes(1.0 + 0.55 * len(names))
        square = np.full((len(names), len(names)), np.nan)
        for line in table.itertuples():
            y, x = names.index(line.second), names.index(line.first)
            square[y, x] = line.value
            text = "none" if math.isnan(line.value) else _found(line, "value").replace(" ", "\n", 1)
            look = {"ha": "center", "va": "center", "size": 8.5}
            axes.text(x, y, text, color="white" if line.value < 0.55 else "black", **look)
        place = (-0.5, len(names) - 1.5, len(names) - 0.5, 0.5)
        axes.imshow(square[1:, :-1], vmin=0, vmax=1, aspect="auto", extent=place)
        slant = {"rotation": 90} if len(names) > 4 else {}
        axes.set_xticks(range(len(names) - 1), [label(_name(name)) for name in names[:-1]], **slant)
        axes.set_yticks(range(1, len(names)), [label(_name(name)) for name in names[1:]])
        axes.grid(False)
        verdict = table[table["second"] == "verdict"]
        best = verdict.loc[verdict["value"].fillna(-1).idxmax()]
        words = f"Kappa with the verdict at most {best['value']:.2f} ({_name(best['first'])})"
        for alpha in agreement.loc[agreement["measure"] == "alpha", "value"]:
            words += f"; Krippendorff's alpha of all scores {alpha:.2f}"
        _title(figure, f"{words} (n = {best['n']:,})")
    return figure


def score_by_length(rows: pandas.DataFrame, slopes: pandas.DataFrame) -> Figure:
    """The first score against the length of the trace, by verdict."""
    known = rows[rows["tuned"] & rows["length"].notna()]
    if known.empty or slopes.empty:
        return nothing("The lengths of the traces are not known.")
    slope = slopes.iloc[0]
    rng = np.random.default_rng(0)
    with style():
        figure, axes = new_axes(3.2)
        for right, color, marker in ((True, BLUE, "o"), (False, ORANGE, "x")):
            group = known[known["right"] == right]
            shown = group.sample(min(len(group), MAX_POINTS), random_state=0)
            spread = np.ptp(known[slope["score"]]) * 0.02 * rng.normal(size=len(shown))
            look = {"color": color, "ms": 4, "alpha": 0.5, "label": "right" if right else "wrong"}
            axes.plot(shown["length"], shown[slope["score"]] + spread, marker, **look)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("characters of the trace (doubling from mark to mark)")
        axes.set_ylabel(label(_name(slope["score"])) + "\n(points moved apart)")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        words = f"{_name(slope['score'])} against length: no slope is known"
        if not math.isnan(slope["slope"]):
            words = f"{_name(slope['score'])} by a doubling of the length: {_found(slope, 'slope', '+.3f')}"
            words += " at equal verdict"
        _title(figure, f"{words} (n = {slope['n']:,})")
    return figure


def precision_by_iteration(table: pandas.DataFrame, target: float) -> Figure:
    """Precision at the chosen threshold by iteration and for the best of several drafts: winner's curse."""
    if table["precision"].isna().all():
        return nothing("No trace reaches the threshold.")
    with style():
        figure, axes = new_axes(1.3 + 0.42 * len(table))
        colors = [BLUE if tuned else ORANGE for tuned in table["tuned"]]
        axes.hlines(range(len(table)), table["precision_low"], table["precision_high"], colors, lw=2)
        axes.scatter(table["precision"], range(len(table)), c=colors, zorder=3, clip_on=False)
        for place, line in enumerate(table.itertuples()):
            kept = "none kept" if math.isnan(line.precision) else f"{share(line.kept)} of {line.n:,} kept"
            beside(axes, place, 130, kept, ha="right")
        axes.axvline(target, color="black", lw=1, ls=":")
        names = [label(line.traces) + (" (tuned)" if line.tuned else "") for line in table.itertuples()]
        axes.set_yticks(range(len(table)), names)
        axes.set(ylim=(len(table) - 0.4, -0.6), xlim=(_floor(table["precision_low"]), 1))
        axes.locator_params(axis="x", nbins=5)
        percent_axis(axes.xaxis)
        axes.set_xlabel("of the kept, right (95 % interval; dotted: the target)")
        bare(axes)
        kept = table.dropna(subset="precision")
        words = ", ".join(f"{line.traces} {share(line.precision)}" for line in kept.itertuples())
        _title(figure, f"Right at the same threshold: {words}")
    return figure


def rules_front(curve: pandas.DataFrame, target: float) -> Figure:
    """Precision against kept share of every rule: above and to the right wins. Dots: the thresholds."""
    path = curve[curve["chosen"]]
    with style():
        figure, axes = new_axes(3.8)
        for rule, steps in curve.groupby("rule", sort=False):
            color, dashes = LOOKS[rule]
            axes.plot(steps["kept"], steps["precision"], dashes, color=color, lw=1.6, label=rule)
            picked = steps[steps["picked"]]
            size = 8 if steps["chosen"].any() else 5
            axes.plot(picked["kept"], picked["precision"], "o", color=color, ms=size)
        _target(axes, target)
        for axis, words in ((axes.xaxis, "of all traces, kept"), (axes.yaxis, "of the kept, right")):
            percent_axis(axis)
            axis.set_label_text(words)
        axes.set(xlim=(0, 1), ylim=(_floor(curve.loc[curve["kept_n"] >= FEW, "precision"]), 1.01))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
        able = ((curve["precision"] >= target) & (curve["kept_n"] >= FEW)).any()
        missed = "the chosen rule has no threshold" if able else f"no rule reaches it with {FEW} traces kept"
        words = f"At {share(target)} precision: {missed}"
        for line in _picked(path):
            kept, precision = _found(line, "kept", ".0%"), _found(line, "precision", ".0%")
            words = f"Rule {line['rule']} ({line['known']}) keeps {kept}, of which {precision} right"
        _title(figure, f"{words} (of {_n(path)} traces)")
    return figure


def _picked(path: pandas.DataFrame) -> list[dict[str, Any]]:
    """The line of the chosen threshold, none where there is no threshold."""
    known = np.where(path["certified"], "certified", "not certified")
    return path.assign(known=known)[path["picked"]].to_dict("records")


def _target(axes: Axes, target: float) -> None:
    axes.axhline(target, color="black", lw=1, ls=":")
    beside(axes, target, 4, f"target\n{share(target)}", size="small")


def _title(figure: Figure, text: str) -> None:
    title(figure, text.replace(" %", "\N{NO-BREAK SPACE}%").replace("≥ ", "≥\N{NO-BREAK SPACE}"))


def _found(line: Any, name: str, form: str = ".2f") -> str:
    """ "0.71 [0.62, 0.79]" from a line of a table (a tuple, a Series or a dict)."""
    get = line.get if hasattr(line, "get") else lambda key: getattr(line, key)
    value, low, high = (format(get(key), form) for key in (name, f"{name}_low", f"{name}_high"))
    return f"{value} [{low}, {high}]".replace("%", " %")


def _floor(values: pandas.Series) -> float:
    least = values.min()
    return 0.0 if math.isnan(least) else min(0.6, max(0.0, math.floor(10 * least - 0.5) / 10))


def _name(column: str) -> str:
    return column.removeprefix("score_")


def _x_of(path: pandas.DataFrame) -> str:
    return "value" if path["value"].notna().all() else "step"


def _of(path: pandas.DataFrame) -> str:
    """What the threshold is set on: the one score, or the rule."""
    rule, single = path["rule"].iloc[0], _x_of(path) == "value"
    return label(path["threshold"].iloc[0].split(" ≥ ")[0]) if rule == "all" and single else rule


def _axis_of(path: pandas.DataFrame) -> str:
    if path["rule"].iloc[0] == "logistic":
        return "learned chance of being right at least"
    if _x_of(path) == "value":
        return f"{_of(path)} at least"
    return f"step of rule {_of(path)}, from strict to lenient"


def _n(path: pandas.DataFrame) -> str:
    return f"{path['n'].iloc[0]:,}"
