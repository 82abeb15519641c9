"""A self-improvement run as tables and sentences, from the reports of its cycles and its report.json."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.analysis.cycles import UNSEEN, Comparison
from cotkit.analysis.intervals import NAN, Rate, bounded
from cotkit.shown import mended_frame

if TYPE_CHECKING:
    import pandas


def cycles_frame(reports: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """What each cycle made, kept, trained, decided and cost: one line a measure, one column a cycle.

    kept: of the generated traces or pairs; difference: of challenger and champion, paired, in points with
    95 % interval; left out: dev problems without a result of both; answered, in a box: the challenger's dev
    drafts with an answer that was found by any marker, and in a box, with the share right of either.
    """
    return _by_cycle(reports, _made)


def _by_cycle(
    reports: Sequence[Mapping[str, Any]], lines: Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]]
) -> pandas.DataFrame:
    """One line a measure, one column a cycle; measures that no cycle has are left out."""
    import pandas

    cycles = {f"cycle {report['cycle']}": dict(lines(report)) for report in reports}
    measures = list(dict.fromkeys(name for known in cycles.values() for name in known))
    frame = pandas.DataFrame(cycles, measures, dtype=object).dropna(how="all").fillna("")
    return frame.reset_index(names="measure")


def _made(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    counts, levels = report["counts"], Counter(alarm["level"] for alarm in report["alarms"])
    yield "status", report["status"]
    yield "method", report["method"] + ("" if report["training"]["trained"] else ", not trained")
    yield "problems", f"{counts['prompts']:,}"
    yield "traces", f"{counts['attempts']:,}"
    yield "kept", f"{counts['kept']:,} of {counts['generated']:,}"
    yield "replayed", f"{counts['replayed']:,}"
    held = report["heldout"] or {}
    compared = _comparison(held) if held.get("n") else None
    yield "measured by", compared and compared.measure
    yield "champion on dev", compared and f"{compared.champion:.1%}"
    yield "challenger on dev", compared and f"{compared.challenger:.1%}"
    points = compared and [100 * value for value in (compared.difference, compared.low, compared.high)]
    yield "difference", points and "{:+.1f} [{:+.1f}, {:+.1f}]".format(*points)
    yield "p", compared and (None if math.isnan(compared.p_value) else f"{compared.p_value:.2g}")
    yield "n", compared and f"{compared.n:,}"
    yield "left out", f"{held['left_out']:,}" if held.get("left_out") else None
    measured = report.get("dev") or {}
    for name, share, right in _FORMS:
        if (measured.get(share) or {}).get("right"):
            yield name, "{right:,} of {n:,}".format(**measured[share])
            yield f"right, {name}", f"{measured[right]['value']:.1%}"
    raised = [f"{levels[level]} {level}" for level in ("red", "amber") if levels[level]]
    yield "alarms", ", ".join(raised) or "none"
    outcome = "promoted" if report["decision"]["promoted"] else "the champion stays"
    yield "decision", outcome if held else None
    cost = report["cost"]
    yield "calls", f"{cost['calls']:,}"
    yield "tokens", f"{cost['tokens']:,}"
    yield from ((f"tokens, {role}", f"{own['tokens']:,}") for role, own in cost.get("by_role", {}).items())
    yield "cost", "unknown" if cost["usd"] is None else f"${cost['usd']:,.2f}"
    yield "minutes", f"{report['seconds'] / 60:.1f}"


_FORMS = [("answered", "answered", "right_of_answered"), ("in a box", "boxed", "right_of_boxed")]


def training_frame(reports: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """One line a training: how many `examples` were exported for it, on how many `rows` it trained and what
    it left out (what its trainer says, nothing where it says nothing), steps, losses, warnings of the export
    and of the training."""
    lines = []
    for report in reports:
        made, counts = report["training"], report["counts"]
        if "status" not in made:
            continue
        lines.append(
            {"cycle": report["cycle"], "method": report["method"], "status": made["status"]}
            | {"examples": counts["kept"] + counts["replayed"], "rows": made.get("rows")}
            | {"left_out": _counted(made.get("drops") or {})}
            | {name: made.get(name) for name in ("steps", "loss_first", "loss_last")}
            | {"minutes": (made.get("seconds") or 0.0) / 60, "warnings": "; ".join(_warnings(report))}
        )
    return mended_frame(lines, _TRAINING_COLUMNS)


_TRAINING_COLUMNS = [
    "cycle", "method", "status", "examples", "rows", "left_out", "steps", "loss_first", "loss_last",
    "minutes", "warnings",
]  # fmt: skip


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in counts.items())


def _warnings(report: Mapping[str, Any]) -> list[str]:
    return [*(report.get("export_warnings") or ()), *(report["training"].get("warnings") or ())]


def trust_frame(reports: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """What the alarms look at: one line a measure, one column a cycle, with n and 95 % interval where there
    is one.

    Diversity is the challenger's on the dev set, where there is none that of the cycle's drafts; auc, brier
    and critics_sd are the critics' on those of the cycle's traces that they judged ("judged").
    """
    return _by_cycle(reports, _trusted)


def _trusted(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    diversity, hacking, judge = (dict(report.get(name) or {}) for name in ("diversity", "hacking", "judge"))
    if n := diversity.pop("n", None):
        yield "outputs", f"n = {n}"
    yield from ((name, _cell(value)) for name, value in diversity.items())
    intervals = hacking.pop("intervals", None) or {}
    yield from ((name, _cell(value, **intervals.get(name, {}))) for name, value in hacking.items())
    if "judged" in judge:
        yield "judged", f"{judge['judged']} of {judge['traces']} traces"
    if "auc" in judge:
        yield "auc", _cell(judge["auc"], judge["low"], judge["high"], judge["n"])
        yield "brier", _cell(judge["brier"], n=judge["n"])
    if "critics_sd" in judge:
        yield "critics_sd", _cell(judge["critics_sd"])
    yield "judge_noise", _cell(report["noise"]["sd"], n=report["noise"]["n"])
    gain = report.get("gain") or {}
    if gain.get("n"):
        yield "gain of refinement", _cell(gain["mean"], *gain["interval"], gain["n"])


def _cell(value: float | None, *bounds: float | None, **known: Any) -> str | None:
    """In words; NaN is null in a report."""
    return None if value is None or value != value else bounded(value, *bounds, **known)


def unwatched_frame(reports: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """The alarms that could not be raised, and why. Columns: cycle, alarms, why."""
    lines = [
        {"cycle": report["cycle"], "alarms": alarms, "why": why}
        for report in reports
        for why, alarms in _unwatched(report).items()
    ]
    return mended_frame(lines, ["cycle", "alarms", "why"])


def _unwatched(report: Mapping[str, Any]) -> dict[str, str]:
    """{why: the alarms that were not looked at}."""
    found: dict[str, list[str]] = {}
    for code, why in (report.get("not_looked_at") or {}).items():
        found.setdefault(why, []).append(code)
    return {why: ", ".join(codes) for why, codes in found.items()}


def cycle_findings(report: Mapping[str, Any]) -> list[str]:
    """Sentences on a whole self-improvement run, from its report.json."""
    said = [sentence for cycle in report["cycles"] for sentence in _said_of_cycle(cycle)]
    test = report["test"] or {"actors": {}, "comparisons": {}}
    if not report["test"]:
        why = report["stopped"] or "nothing was promoted, or it is empty"
        said.append(f"The test set was not touched: {why}.")
    if looks := ", ".join(test.get("earlier_looks", ())):
        said.append(f"The test set was looked at before, after fewer cycles ({looks}): no first look.")
    boxes = any(found["boxed"]["right"] for found in test["actors"].values())
    for name, found in test["actors"].items():
        names = ("pass1", "right_of_answered", "right_of_boxed")
        rate, right, boxed = (Rate.of(one["right"], one["n"]) for one in map(found.get, names))
        if rate.n:
            all_boxed = ", all in a box" if boxes and boxed.n == right.n else ""
            forms = f"of those it answered{all_boxed}, {right.in_words()}"
            if boxes and not all_boxed:
                forms += f"; of those with a box, {boxed.in_words()}" if boxed.n else "; none stood in a box"
            unknown = f"; {n} more are undecided" if (n := found.get("undecided")) else ""
            said.append(f"Test, {name}: right on {rate.in_words()}; {forms}{unknown}.")
    for name, gap in test["comparisons"].items():
        found, parts = _comparison(gap), gap["parts"]
        doubt = _doubt(found)
        form = f"; {_parts_in_words(parts)}" if parts["n"] else ""
        if (boxed := parts["by_box"]) and boxed["answered"] != parts["answered"]:
            form += f"; counting boxes alone, {_parts_in_words(boxed)}"
        said.append(f"Test, {name}: {found.in_words()}{doubt}{form}.")
    for name, gap in (test.get("holdout") or {}).items():
        found = _comparison(gap)
        said.append(f"Test, {name}, beside it: {found.in_words()}{_doubt(found)}.")
    cost = report["cost"]
    usd = "at an unknown price" if cost["usd"] is None else f"for ${cost['usd']:.2f}"
    spent = f"{cost['calls']:,} calls, {cost['tokens']:,} tokens {usd}, {report['seconds'] / 60:.0f} minutes"
    return [*said, f"In all: {spent}.", *report["notes"]]


def _doubt(found: Comparison) -> str:
    """That a difference may be noise, and how large it would have had to be."""
    if found.low > 0 or found.high < 0 or not found.n:
        return ""
    least = 100 * (found.high - found.low) / 2
    return f", which may be noise: on these problems a difference of some {least:.0f} points is clear"


def family_findings(frame: pandas.DataFrame) -> list[str]:
    """Sentences on `family_gains`: the worst family of those trained on, and those never trained on."""
    said, own = [], frame[frame["family"] != UNSEEN]
    if len(trained := own[own["trained"] > 0]):
        worst = trained.sort_values(["after", "n"], ascending=[True, False]).iloc[0]
        said.append(
            f"Of the families trained on, {worst['family']} is the worst: right on {_moved(worst)}, after "
            f"{worst['trained']:,} examples of it."
        )
    unseen = [f"{line['family']} {_moved(line)}" for _, line in own[own["trained"] == 0].iterrows()]
    return said + ([f"Never trained on: {'; '.join(unseen)}."] if unseen else [])


def _moved(line: Mapping[str, Any]) -> str:
    counts = [round(line[side] * line["n"]) for side in ("before", "after")]
    return f"{counts[1]} of {line['n']} (before {counts[0]})"


def _comparison(found: Mapping[str, Any]) -> Comparison:
    """As it stands in a report, where NaN is null."""
    names = Comparison.__dataclass_fields__
    return Comparison(**{key: NAN if found[key] is None else found[key] for key in names if key in found})


def _said_of_cycle(cycle: Mapping[str, Any]) -> Iterator[str]:
    counts, name, made = cycle["counts"], f"Cycle {cycle['cycle']}", cycle["training"]
    kept = f"kept {counts['kept']:,} of {counts['generated']:,} {counts['unit']}"
    outcome = "promoted" if cycle["decision"]["promoted"] else "the champion stays"
    yield f"{name} ({cycle['status']}): {kept}; {outcome}: {cycle['decision']['reason']}."
    if made.get("drops"):
        yield f"{name}: the training left out {_counted(made['drops'])}, and took {made['rows']:,} rows."
    if (sittings := made.get("sittings") or 1) > 1:
        yield f"{name}: the training was interrupted and went on; it took {sittings} sittings."
    yield from (f"{name}, warning: {text}." for text in _warnings(cycle))
    gain, judge = cycle.get("gain") or {}, cycle.get("judge") or {}
    if gain.get("refined"):
        yield f"{name}: {_refined_in_words(gain)}."
    room = cycle.get("room") or {}
    if room.get("kept") and not cycle["teacher"]:
        solved = (
            f"{room['every']:,} of {room['problems']:,} problems in every draft, {room['none']:,} in none"
        )
        known = f"{room['kept_known']:,} of {room['kept']:,} kept traces teach what it could do already"
        yield f"{name}: its actor solved {solved}; {known}, and none teaches what it never solved."
    if judge and cycle["noise"]["sd"] is None:
        yield f"{name}: how much the critics' scores vary is not known, for they failed when asked again."
    if judge.get("judged", 0) < judge.get("traces", 0):
        seen = f"{judge['judged']:,} of {judge['traces']:,} traces, those that could still be chosen"
        yield f"{name}: the critics saw {seen}; their scores and what is said of them are of these alone."
    if held := cycle.get("holdout"):
        yield f"{name}, beside the decision: {_comparison(held).in_words()}."
    yield from (f"{name}, {a['level']} alarm {a['code']}: {a['text']}." for a in cycle["alarms"])


def _refined_in_words(gain: Mapping[str, Any]) -> str:
    said = [f"{gain['refined']:,} traces were refined"]
    if gain["n"]:
        low, high = gain["interval"]
        bounds = "" if low is None else f", 95 % interval {low:+.2f} to {high:+.2f}"
        said.append(f"refinement changed the scores by {gain['mean']:+.2f} (n = {gain['n']}{bounds})")
    if gain["decided"]:
        said.append(
            f"right: {gain['right_before']} before, {gain['right_after']} after, of {gain['decided']}"
        )
    return "; ".join(said)


def _parts_in_words(parts: Mapping[str, Any]) -> str:
    words = []
    for name in ("format", "reasoning"):
        value, low, high = (100 * (parts[key] or 0.0) + 0.0 for key in (name, f"{name}_low", f"{name}_high"))
        words.append(f"{value:+.1f} ({low:+.1f} to {high:+.1f}) from the {name}")  # + 0.0: no -0
    if not parts["known"]:
        few = " and ".join(f"{n}" for n in parts["answered"])
        words.append(f"with {few} answers before and after nothing is known of the reasoning apart")
    return ", ".join(words)
