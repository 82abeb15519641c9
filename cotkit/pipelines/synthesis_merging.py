"""Shards of a synthesis, merged: what they could not know of each other, and the report of the whole.

Each shard has a pool of its own, so two may have made alike problems. Of two alike accepted problems the
lower attempt stays, as in one process, and the other is `repeated` (what was rewritten from that one stays).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cotkit.pipelines.attempts import attempt_of, refuse_repeated
from cotkit.pipelines.novelty import Novelty
from cotkit.pipelines.synthesis_report import funnel
from cotkit.records import Row
from cotkit.runs import Run


class SynthesisMerging:
    """`settle` each row of all the runs, then ask for the `facts`."""

    def __init__(self, runs: Sequence[Run], reports: Sequence[Mapping[str, Any]]):
        self.config, self.reports = runs[0].config, reports
        self.passed: Counter[str] = Counter()
        self.repeated: dict[int, tuple[int, str]] = {}  # attempt -> the lower one that it repeats, and how
        accepted = (row for run in runs for row in run.iter_records() if row.accepted)
        problems = ((attempt_of(row), row.problem, row.metadata["synthesis"]["lineage"]) for row in accepted)
        index = Novelty.of_gates(self.config["gates"])
        for attempt, question, lineage in sorted(problems):
            if found := next(index.like(question, lineage), None):
                self.repeated[attempt] = found
            else:
                index.add(attempt, question)

    def settle(self, row: Row) -> None:
        """Refuses what repeats a lower attempt, and counts how far the row got."""
        if found := self.repeated.get(attempt_of(row)):
            refuse_repeated(row, found)
        self.passed.update(row.metadata.get("synthesis", {}).get("passed", ()))

    def facts(self, attempts: int) -> dict[str, Any]:
        """What report.json holds beside the counts, for the whole."""
        attempted = sum(report["kept"] + _dropped(report) for report in self.reports)
        notes = (note for report in self.reports for note in report.get("notes", ()))
        tried = (report.get("judge_calibration") for report in self.reports)  # only the first tries it
        judged, votes = "judge" in self.config["roles"], self.config["votes"]
        return {
            "strategy": self.config["strategy"],
            "wanted": None,
            "attempts": attempts,
            "notes": list(dict.fromkeys(notes)),
            "funnel": funnel({**self.passed, "attempted": attempted}, judged, votes),
            "judge_calibration": next((said for said in tried if said is not None), None),
        }


def _dropped(report: Mapping[str, Any]) -> int:
    return sum(count for reason, count in report["drops"].items() if reason != "unfinished")
