"""Figures of a self-improvement run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.analysis.cycles import UNSEEN
from cotkit.analysis.figures.canvas import (
    BLUE,
    GREY,
    LIGHT,
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
    from matplotlib.figure import Figure


def dev_results(reports: Sequence[Mapping[str, Any]]) -> Figure:
    """The challenger of each cycle against the champion it met, on the dev set; hollow = rolled back."""
    met = [r for r in reports if (r["heldout"] or {}).get("n")]
    if not met:
        return nothing("No challenger was evaluated on a dev set.")
    with style():
        figure, axes = new_axes(3.6)
        for place, report in enumerate(met):
            held, promoted = report["heldout"], report["decision"]["promoted"]
            bounds = [min(max(held["champion"] + held[side], 0), 1) for side in ("low", "high")]
            axes.plot([place - 0.25, place + 0.25], [held["champion"]] * 2, color=GREY, lw=2)
            axes.plot([place, place], bounds, color=BLUE, lw=1.5)
            axes.plot(place, held["challenger"], "o", color=BLUE, mfc=BLUE if promoted else "white", ms=8)
            top = max(held["challenger"], *bounds)
            if top <= held["champion"] <= top + 0.13:  # the bar would cross the number
                top = held["champion"]
            look = {"textcoords": "offset points", "ha": "center", "va": "bottom"}
            axes.annotate(share(held["challenger"]), (place, top), (0, 6), **look)
        said = "bar = champion, line = 95 % interval of the difference"
        outcome = {True: "promoted", False: "rolled back"}
        several = len({r["heldout"]["measure"] for r in met}) > 1
        names = [f"cycle {r['cycle']}, {r['method']}\n{outcome[r['decision']['promoted']]}" for r in met]
        for place, held in enumerate(r["heldout"] for r in met):
            names[place] += f", n = {held['n']}" + (f"\n{held['measure']}" if several else "")
        if len(met) > 5:  # there is no room for more
            sizes = sorted({r["heldout"]["n"] for r in met})
            names, n = [str(r["cycle"]) for r in met], " to ".join(map(str, sizes[:1] + sizes[1:][-1:]))
            said = f"cycle, n = {n}; hollow = rolled back\n{said}"
        axes.set_xticks(range(len(met)), names)
        axes.set_xlim(-0.6, len(met) - 0.4)
        axes.set_ylim(0, 1.12)
        percent_axis(axes.yaxis)
        axes.set_ylabel(" or ".join(dict.fromkeys(r["heldout"]["measure"] for r in met)))
        axes.set_xlabel(said)
        last = [r["heldout"]["challenger"] for r in met if r["decision"]["promoted"]]
        first = share(met[0]["heldout"]["champion"])
        words = f"from {first} to {share(last[-1])}" if last else f"no challenger beat the {first}"
        title(figure, f"On the dev set: {words}")
    return figure


def final_accuracy(test: Mapping[str, Any] | None) -> Figure:
    """Every actor on the test set: share answered (light), in a box (mark), share right (dark) with
    interval."""
    actors = {
        name: found for name, found in (test or {"actors": {}})["actors"].items() if found["pass1"]["n"]
    }
    if not actors:
        return nothing("The test set was not touched, or has no verdicts.")
    boxes = any(found["boxed"]["right"] for found in actors.values())
    with style():
        figure, axes = new_axes(1.3 + 0.5 * len(actors))
        for place, found in enumerate(actors.values()):
            right = found["pass1"]
            axes.barh(place, found["answered"]["value"], height=0.6, color=LIGHT)
            axes.barh(place, right["value"], height=0.6, color=BLUE)
            if boxes:
                edge, ends = [found["boxed"]["value"]] * 2, [place - 0.3, place + 0.3]
                axes.plot(edge, ends, color=ORANGE, lw=2.5, clip_on=False)
            axes.plot([right["low"], right["high"]], [place, place], color="black", lw=1.5)
            axes.text(1.02, place, share(right["value"]), va="center", transform=axes.get_yaxis_transform())
        few = {
            name: f" (n = {n})" for name, found in actors.items() if (n := found["pass1"]["n"]) < test["n"]
        }
        axes.set_yticks(range(len(actors)), [label(name + few.get(name, "")) for name in actors])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        said = f"of {test['n']} test problems: light = answered, dark = right with 95 % interval"
        axes.set_xlabel(f"{said}\nmark = answered in a box" if boxes else said)
        bare(axes)
        best = test["champion"]
        title(figure, f"Test: {best} is right on {share(actors[best]['pass1']['value'])}" if best else "Test")
    return figure


def family_accuracy(frame: pandas.DataFrame) -> Figure:
    """Before and after by family; hollow points were never trained on."""
    if frame.empty:
        return nothing("No problem of a family has a verdict before and after.")
    with style():
        figure, axes = new_axes(1.3 + 0.3 * len(frame))
        for place, line in enumerate(frame.itertuples()):
            color = BLUE if line.trained else ORANGE
            axes.plot([line.before, line.after], [place, place], color=LIGHT, lw=4, zorder=1)
            axes.plot([line.after_low, line.after_high], [place, place], color=color, lw=1)
            axes.plot(line.before, place, "|", color=GREY, ms=12, mew=2)
            axes.plot(line.after, place, "o", color=color, mfc=color if line.trained else "white")
        axes.set_yticks(range(len(frame)), [label(f"{x.family} (n = {x.n})") for x in frame.itertuples()])
        axes.set_xlim(-0.02, 1.02)
        percent_axis(axes.xaxis)
        axes.set_ylim(len(frame) - 0.5, -0.5)
        axes.set_xlabel("right: bar = before, point = after; hollow = never trained on")
        bare(axes)
        own = frame[frame["family"] != UNSEEN]
        clear = own.loc[own["p_value"] < 0.05, "difference"]
        gained, lost = (clear > 0).sum(), (clear < 0).sum()
        title(figure, f"{gained} of {len(own)} families gained clearly, {lost} lost (p < 0.05 each)")
    return figure


def score_cycles(reports: Sequence[Mapping[str, Any]]) -> Figure:
    """The critics' scores of each cycle's traces, critic by critic: median and the middle 80 % of each
    dimension. Of a panel also its scores as one."""
    scored = [r for r in reports if any(r.get("scores", {}).values())]
    names = list(dict.fromkeys(name for r in scored for found in r["scores"].values() for name in found))
    if not names:
        return nothing("No critic scored a trace.")
    most = max(len(r["scores"]) for r in scored)  # a critic has another wording in each cycle, and its place
    with style():
        figure, rows = new_axes(1.2 + 1.6 * most, rows=most, sharex=True, squeeze=False)
        for place, (axes,) in enumerate(rows):
            known = [(r, [*r["scores"].items()][place]) for r in scored if len(r["scores"]) > place]
            _draw_scores(axes, names, [(r["cycle"], found) for r, (_, found) in known])
            report, (critic, _) = known[0]
            model = {one["name"]: one["model"] for one in report["critics"]}.get(critic)
            name = f"critic {place + 1}: {model}" if model else critic
            axes.set_title(label(name), loc="left", size=10)
            axes.set_xticks([r["cycle"] for r in scored])
        axes.set_xlabel("cycle")
        figure.supylabel("score: median, middle 80 %", size=10)
        lines = rows[0][0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside lower center", ncols=3, frameon=False)
        each = [one for r in scored for found in r["scores"].values() for one in found.values()]
        top = max(one["ceiling_share"] for one in each)
        words = f"up to {share(top)} of them at the ceiling" if top else "none at the ceiling"
        title(figure, f"Critics' scores by cycle: {words}")
    return figure


def _draw_scores(axes: Any, names: Sequence[str], cycles: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
    """One critic's: a line a dimension."""
    for place, name in enumerate(names):
        known = [(cycle, found[name]) for cycle, found in cycles if name in found]
        x = [cycle + 0.12 * (place - (len(names) - 1) / 2) for cycle, _ in known]
        color = (BLUE, ORANGE, GREY)[place % 3]
        axes.vlines(x, [s["p10"] for _, s in known], [s["p90"] for _, s in known], color=color, lw=1.5)
        axes.plot(x, [s["p50"] for _, s in known], "o-", color=color, label=label(name), lw=1)
    axes.set_ylim(-0.02, 1.04)
