"""What a synthesis says at its end: how many, the funnel, why not more, and what its judge is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotkit.pipelines.attempts import STEPS, Synthesizer
from cotkit.pipelines.pair_judge import calibration_in_words
from cotkit.pipelines.progress import Show, say_line
from cotkit.runs import Run


def facts(made: Synthesizer, wanted: int | None, attempts: int, attempted: int) -> dict[str, Any]:
    """What report.json holds beside the counts."""
    recipe = made.recipe
    passed = made.passed | {"attempted": attempted}  # with those that an error of the program's own ended
    return {
        "strategy": recipe.strategy,
        "wanted": wanted,
        "attempts": attempts,
        "notes": recipe.notes,
        "funnel": funnel(passed, "judge" in recipe.roles, recipe.votes),
        "judge_calibration": made.calibration,
        "endpoints": {role: model.stats() for role, model in recipe.roles.items()},
    }


def funnel(passed: Mapping[str, int], judged: bool, votes: int) -> list[dict[str, Any]]:
    """How many got through each step. Of a step that the run does not have, `problems` is None."""
    without = {"judged": not judged, "solved": not votes}
    return [{"step": s, "problems": None if without.get(s) else passed.get(s, 0)} for s in STEPS]


def told(run: Run, show: Show) -> Run:
    if show != "none":
        say_line(outcome_of(run.report))
    return run


def outcome_of(report: dict[str, Any]) -> str:
    """What a synthesis gave, in a few lines: the funnel, the shortfall, what its judge is worth."""
    kept, wanted = report["kept"], report["wanted"]
    lines = [f"{report['strategy']}: {kept} problems from {report['funnel'][0]['problems']} attempts"]
    if wanted is not None and kept < wanted:
        lines[0] += f", {wanted - kept} short of the {wanted} wanted"
        lines[0] += "" if report["stopped"] else f" ({report['attempts']} attempts were allowed)"
    elif wanted is not None and kept > wanted:
        lines[0] += f", {kept - wanted} more than wanted: synthesized_problems(run, all=True) has them too"
    lines += [f"  stopped: {report['stopped']}"] if report["stopped"] else []
    steps = ((step["step"], step["problems"]) for step in report["funnel"])
    lines.append("  " + ", ".join(f"{step} {'not done' if n is None else n}" for step, n in steps))
    drops = ", ".join(f"{count} {reason}" for reason, count in report["drops"].items())
    lines += [f"  dropped: {drops}"] if drops else []
    lines += [f"  note: {note}" for note in report["notes"]]
    if (judged := report["judge_calibration"]) is not None:
        lines.append("  judge: " + calibration_in_words(judged))
    return "\n".join(lines)
