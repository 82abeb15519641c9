"""Figures of tuned thresholds, each drawn from a table of a ThresholdReport."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
    "precision": "of the kept, right (precision)",
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
                axes.bar(
                    edges[:-1],
                    sign * counts / max(counts.sum(), 1),
                    np.diff(edges),
                    align="edge",
                    color=color,
                )
            axes.axhline(0, color="black", lw=0.8)
            auc = (
                ""
                if math.isnan(line.auc)
                else f"\nAUC {line.auc:.2f} [{line.auc_low:.2f}, {line.auc_high:.2f}]"
            )
            axes.set_title(label(_name(line.score)) + auc, size=9.5, weight="normal", loc="center", pad=6)
            axes.set_xlabel("score")
        first = grid[0][0]
        top = 1.3 * max(abs(limit) for axes in grid[0] for limit in axes.dataLim.intervaly)
        first.set_ylim(-top, top)
        first.set_ylabel("share of the traces")
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
    area = np.trapezoid([0, *path["recall"], 1], [0, *path["false_kept"], 1])
    words = f"{_of(path)}: area under the ROC curve {area:.2f}; 0.5 is a coin ({_n(path)} traces)"
    figure, axes = _along(path, "false_kept", "recall", words)
    axes.plot([0, 1], [0, 1], color=LIGHT, lw=1.2, zorder=1)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def precision_recall(curve: pandas.DataFrame, target: float) -> Figure:
    """Precision against recall along the path of the chosen rule, with band, target and chosen threshold."""
    path = curve[curve["chosen"]]
    reached = path.loc[path["precision"] >= target, "recall"].max()
    found = "no threshold" if math.isnan(reached) else f"up to {share(reached)} of the right ones"
    words = f"At {share(target)} precision: {found} ({_n(path)} traces)"
    figure, axes = _along(path, "recall", "precision", words, target)
    axes.set(xlim=(0, 1), ylim=(_floor(path.loc[path["kept_n"] >= FEW, "precision_low"]), 1.01))
    return figure


def cost_curve(curve: pandas.DataFrame) -> Figure:
    """Expected cost of 1,000 traces along the path of the chosen rule, with its band."""
    path = curve[curve["chosen"]]
    least = path.loc[path["cost_per_1000"].idxmin()]
    words = f"Least cost {least['cost_per_1000']:.0f} per 1,000 traces, at {least['threshold']}"
    figure, axes = _along(path, "value" if _is_single(path) else "step", "cost_per_1000", words)
    axes.set_ylim(0)
    return figure


def _along(
    path: pandas.DataFrame, x: str, y: str, words: str, target: float | None = None
) -> tuple[Figure, Axes]:
    """One column of the curve against another, with its band and the chosen threshold: full where it is
    certified, hollow where it is not."""
    with style():
        figure, axes = new_axes(3.4)
        axes.plot(path[x], path[y], color=BLUE, marker="." if len(path) < 25 else None)
        axes.fill_between(path[x], path[f"{y}_low"], path[f"{y}_high"], color=BLUE, alpha=0.18, lw=0)
        for line in path[path["picked"]].itertuples():
            look = {"mfc": "black" if line.certified else "white", "ms": 8, "zorder": 3, "clip_on": False}
            axes.plot(getattr(line, x), getattr(line, y), "o", color="black", **look)
        for axis, name in ((axes.xaxis, x), (axes.yaxis, y)):
            if name in AXES:
                percent_axis(axis)
            axis.set_label_text(
                AXES.get(name) or (_axis_of(path) if axis is axes.xaxis else "cost of 1,000 traces")
            )
        if target is not None:
            _target(axes, target)
        _title(figure, words)
    return figure, axes


def threshold_curve(curve: pandas.DataFrame, target: float) -> Figure:
    """The key figure: precision, recall and kept share against the threshold, with bands and the choice."""
    path = curve[curve["chosen"]]
    at = path["value"] if _is_single(path) else path["step"]
    with style():
        figure, axes = new_axes(3.9)
        for name, color, words in (
            ("precision", BLUE, "precision"), ("recall", ORANGE, "recall"), ("kept", GREEN, "kept"),
        ):  # fmt: skip
            axes.plot(at, path[name], color=color, label=words, marker="." if len(path) < 25 else None)
            axes.fill_between(at, path[f"{name}_low"], path[f"{name}_high"], color=color, alpha=0.18, lw=0)
        _target(axes, target)
        picked = path[path["picked"]]
        if len(picked):
            axes.axvline(at[picked.index[0]], color="black", lw=1, ls="--")
        axes.set_ylim(0, 1.02)
        percent_axis(axes.yaxis)
        axes.set_ylabel("share of the traces")
        axes.set_xlabel(_axis_of(path))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        _title(figure, _curve_title(path, picked))
    return figure


def _curve_title(path: pandas.DataFrame, picked: pandas.DataFrame) -> str:
    if picked.empty:
        return f"No threshold of rule {_of(path)} reaches the target ({_n(path)} traces)"
    line = picked.iloc[0]
    known = "certified" if line["certified"] else "not certified"
    return (
        f"{line['threshold']} ({known}): {share(line['precision'])} right, {share(line['recall'])} of the "
        f"right found, {share(line['kept'])} of {_n(path)} kept"
    )


def reliability(table: pandas.DataFrame, score: str | None = None) -> Figure:
    """Share right against predicted chance: raw, Platt and isotonic, with Brier and ECE. `score`: one of the
    table's; default the last, the mean where there are several."""
    score = score or table["score"].iloc[-1]
    chosen = table[table["score"] == score]
    with style():
        ways = dict(list(chosen.groupby("calibration", sort=False)))
        figure, grid = new_axes(3.2, len(ways), sharey=True, squeeze=False)
        for axes, (name, bins) in zip(grid[0], ways.items(), strict=True):
            color = CALIBRATIONS[name]
            errors = [bins["right"] - bins["right_low"], bins["right_high"] - bins["right"]]
            axes.plot([0, 1], [0, 1], color=LIGHT, lw=1.2)
            axes.errorbar(
                bins["predicted"],
                bins["right"],
                yerr=errors,
                color=color,
                marker="o",
                ms=4,
                lw=1.2,
                capsize=2,
            )
            facts = f"Brier {bins['brier'].iloc[0]:.3f}, ECE {bins['ece'].iloc[0]:.3f}"
            axes.set_title(f"{name}\n{facts}", size=9.5, weight="normal", loc="center")
            axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1])
            percent_axis(axes.xaxis)
        percent_axis(grid[0][0].yaxis)
        grid[0][0].set_ylabel("right")
        grid[0][len(ways) // 2].set_xlabel("predicted chance of being right (bins of equal count)")
        base, n = chosen["base_brier"].iloc[0], chosen.loc[chosen["calibration"] == "raw", "n"].sum()
        best = chosen.groupby("calibration")["brier"].first()
        _title(
            figure,
            f"{_name(score)}: Brier {best.min():.3f} at best ({best.idxmin()}), {base:.3f} by the base rate "
            f"(n = {n:,})",
        )
    return figure


def threshold_heat(grid: pandas.DataFrame) -> Figure:
    """Precision over two thresholds that must both be reached (`threshold_grid`), with counts; hatched where
    fewer than 20 traces stand behind a cell."""
    from matplotlib.patches import Rectangle

    first, second = grid.columns[:2]
    table = {name: grid.pivot(index=second, columns=first, values=name) for name in ("precision", "n")}
    with style():
        figure, axes = new_axes(1.6 + 0.3 * len(table["n"]))
        solid = grid[grid["n"] >= FEW]
        least = _floor(solid["precision"])
        shades = axes.imshow(table["precision"], origin="lower", aspect="auto", vmin=least, vmax=1)
        for (y, x), n in np.ndenumerate(table["n"].to_numpy()):
            value = table["precision"].to_numpy()[y, x]
            if n < FEW:
                look = {"facecolor": "#F2F2F2", "edgecolor": LIGHT, "hatch": "////", "lw": 0}
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
            dark = n >= FEW and value < (least + 1) / 2
            axes.text(x, y, f"{n:,}", ha="center", va="center", size=7.5, color="white" if dark else "black")
        axes.set_xticks(range(table["n"].shape[1]), [f"{v:.2g}" for v in table["n"].columns])
        axes.set_yticks(range(table["n"].shape[0]), [f"{v:.2g}" for v in table["n"].index])
        axes.grid(False)
        axes.set_xlabel(label(f"{_name(first)} at least"))
        axes.set_ylabel(label(f"{_name(second)} at least"))
        bar = figure.colorbar(shades, label="of the kept, right")
        percent_axis(bar.ax.yaxis)
        words = f"Fewer than {FEW} traces behind every pair of thresholds"
        if len(solid):
            low, high = share(solid["precision"].min()), share(solid["precision"].max())
            words = f"Of the kept, {low} to {high} right, counted, not certified (numbers: traces kept)"
        _title(figure, words)
    return figure


def kappa_matrix(agreement: pandas.DataFrame) -> Figure:
    """Kappa of every two decisions (scores at their best cut, and the verdict), with interval."""
    table = agreement[agreement["measure"] == "kappa"]
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    if len(names) == 2:
        line = table.iloc[0]
        found = f"{line['value']:.2f} [{line['value_low']:.2f}, {line['value_high']:.2f}]"
        return nothing(f"One score alone: its kappa with the verdict is {found} (n = {line['n']:,}).")
    with style():
        figure, axes = new_axes(1.0 + 0.55 * len(names))
        square = np.full((len(names), len(names)), np.nan)
        for line in table.itertuples():
            y, x = names.index(line.second), names.index(line.first)
            square[y, x] = line.value
            text = (
                "none"
                if math.isnan(line.value)
                else f"{line.value:.2f}\n[{line.value_low:.2f}, {line.value_high:.2f}]"
            )
            axes.text(
                x,
                y,
                text,
                ha="center",
                va="center",
                size=8.5,
                color="white" if line.value < 0.55 else "black",
            )
        axes.imshow(
            square[1:, :-1],
            vmin=0,
            vmax=1,
            aspect="auto",
            extent=(-0.5, len(names) - 1.5, len(names) - 0.5, 0.5),
        )
        slant = {"rotation": 90} if len(names) > 4 else {}
        axes.set_xticks(range(len(names) - 1), [label(_name(name)) for name in names[:-1]], **slant)
        axes.set_yticks(range(1, len(names)), [label(_name(name)) for name in names[1:]])
        axes.grid(False)
        alpha = agreement.loc[agreement["measure"] == "alpha", "value"]
        verdict = table[table["second"] == "verdict"]
        best = verdict.loc[verdict["value"].fillna(-1).idxmax()]
        words = f"; Krippendorff's alpha of all scores {alpha.iloc[0]:.2f}" if len(alpha) else ""
        _title(
            figure,
            f"Kappa with the verdict at most {best['value']:.2f} ({_name(best['first'])}){words} "
            f"(n = {best['n']:,})",
        )
    return figure


def score_by_length(rows: pandas.DataFrame, slopes: pandas.DataFrame, score: str | None = None) -> Figure:
    """A score against the length of the trace, by verdict. `score`: default the first of `slopes`."""
    known = rows[rows["tuned"] & rows["length"].notna()]
    if known.empty or slopes.empty:
        return nothing("The lengths of the traces are not known.")
    slope = slopes[slopes["score"] == (score or slopes["score"].iloc[0])].iloc[0]
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
        words = f"{slope['slope']:+.3f} [{slope['slope_low']:+.3f}, {slope['slope_high']:+.3f}]"
        words = f"{_name(slope['score'])} by a doubling of the length: {words} at equal verdict"
        _title(figure, f"{words} (n = {slope['n']:,})")
    return figure


def precision_by_iteration(table: pandas.DataFrame, target: float) -> Figure:
    """Precision at the chosen threshold by iteration and for the best of several drafts: winner's curse."""
    if table["precision"].isna().all():
        return nothing("No trace reaches the threshold.")
    with style():
        figure, axes = new_axes(1.3 + 0.42 * len(table))
        for place, line in enumerate(table.itertuples()):
            color = BLUE if line.tuned else ORANGE
            axes.plot([line.precision_low, line.precision_high], [place, place], color=color, lw=2)
            axes.plot(line.precision, place, "o", color=color, clip_on=False)
            kept = "none kept" if math.isnan(line.precision) else f"{share(line.kept)} of {line.n:,} kept"
            beside(axes, place, 130, kept, ha="right")
        axes.axvline(target, color="black", lw=1, ls=":")
        names = [label(line.traces) + (" (tuned)" if line.tuned else "") for line in table.itertuples()]
        axes.set_yticks(range(len(table)), names)
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.set_xlim(_floor(table["precision_low"]), 1)
        axes.locator_params(axis="x", nbins=5)
        percent_axis(axes.xaxis)
        axes.set_xlabel("of the kept, right (95 % interval; dotted: the target)")
        bare(axes)
        words = ", ".join(
            f"{line.traces} {share(line.precision)}" for line in table.dropna(subset="precision").itertuples()
        )
        _title(figure, f"Right at the same threshold: {words}")
    return figure


def rules_front(curve: pandas.DataFrame, target: float) -> Figure:
    """Precision against kept share of every rule: above and to the right wins. Dots: the thresholds."""
    with style():
        figure, axes = new_axes(3.8)
        for rule, path in curve.groupby("rule", sort=False):
            color, dashes = LOOKS[rule]
            axes.plot(path["kept"], path["precision"], dashes, color=color, lw=1.6, label=rule)
            picked = path[path["picked"]]
            axes.plot(
                picked["kept"], picked["precision"], "o", color=color, ms=8 if path["chosen"].any() else 5
            )
        _target(axes, target)
        for axis, words in ((axes.xaxis, "of all traces, kept"), (axes.yaxis, "of the kept, right")):
            percent_axis(axis)
            axis.set_label_text(words)
        axes.set(xlim=(0, 1), ylim=(_floor(curve.loc[curve["kept_n"] >= FEW, "precision"]), 1.01))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
        picked = curve[curve["chosen"] & curve["picked"]]
        if len(picked):
            line = picked.iloc[0]
            words = (
                f"The chosen rule, {line['rule']}, keeps {share(line['kept'])}, of which "
                f"{share(line['precision'])} right (counted on {_n(curve[curve['chosen']])} traces)"
            )
        else:
            able = (curve["precision"] >= target) & (curve["kept_n"] >= FEW)
            who = "the chosen rule has no threshold" if able.any() else "no rule reaches it"
            words = f"At {share(target)} precision: {who} ({_n(curve[curve['chosen']])} traces)"
        _title(figure, words)
    return figure


def _target(axes: Axes, target: float) -> None:
    axes.axhline(target, color="black", lw=1, ls=":")
    beside(axes, target, 4, f"target\n{share(target)}", size="small")


def _title(figure: Figure, text: str) -> None:
    title(figure, text.replace(" %", "\N{NO-BREAK SPACE}%").replace("≥ ", "≥\N{NO-BREAK SPACE}"))


def _floor(values: pandas.Series) -> float:
    least = values.min()
    return 0.0 if math.isnan(least) else min(0.6, max(0.0, math.floor(10 * least - 0.5) / 10))


def _name(column: str) -> str:
    return column.removeprefix("score_")


def _is_single(path: pandas.DataFrame) -> bool:
    return bool(path["value"].notna().all())


def _of(path: pandas.DataFrame) -> str:
    """What the threshold is set on: the one score, or the rule."""
    rule = path["rule"].iloc[0]
    return label(path["threshold"].iloc[0].split(" ≥ ")[0]) if rule == "all" and _is_single(path) else rule


def _axis_of(path: pandas.DataFrame) -> str:
    if path["rule"].iloc[0] == "logistic":
        return "learned chance of being right at least"
    return (
        f"{_of(path)} at least" if _is_single(path) else f"step of rule {_of(path)}, from strict to lenient"
    )


def _n(path: pandas.DataFrame) -> str:
    return f"{int(path['kept_n'].max()):,}"
