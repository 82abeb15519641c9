"""The state of a self-improvement run, which lives in its folder alone: steps that are done once, the
champion, what was spent, the gate; `Trainer`, what trains between two cycles; and `SelfImprovement`, the run
as it is read.

    runs/<name>/
      config.json     what was asked, compared on resume
      sets.json       {id: train | dev | test}, fixed before anything is generated
      base/           the actor before training on the dev set; the critics' check on frozen answers
      cycle-00/
        generate/     drafts, scores, refinements: a run folder, its rows are the trajectories
        noise/ holdout/ drift/   scores asked again
        export/       the training file, and pairs for a person to label
        train/        the trainer's folder, with trained.json
        dev/          the challenger on the dev set: a run folder
        report.json   written last: the cycle is over
      champion.json   points to the best actor so far
      test/           touched once, after the last cycle
      report.json     everything

A step that left its marker is read, never done again; one that was interrupted finds its answers in the
ledger of its folder. Who is champion in a cycle follows from the reports before it, so that a kill between
two writes cannot make a challenger its own champion; champion.json is written from them, for people.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cotkit.chat import BudgetExceeded, CallLedger
from cotkit.records import Row
from cotkit.runs import Run, write_json

if TYPE_CHECKING:
    from cotkit.analysis import Alarm, Comparison
    from cotkit.chat import ChatModel


def cycle_name(number: int) -> str:
    return f"cycle-{number:02d}"


def read_json(path: pathlib.Path) -> Any:
    return json.loads(path.read_bytes())


def once(path: pathlib.Path, make: Callable[[], Any]) -> Any:
    """The JSON value of a step: read where its marker stands, else made and written."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, make())
    return read_json(path)


def spent(folder: pathlib.Path) -> dict[str, Any]:
    """Calls, tokens and dollars of every ledger below a folder; usd None = unknown."""
    total: dict[str, Any] = {"calls": 0, "tokens": 0, "usd": None, "unknown_cost": 0}
    for path in sorted(folder.rglob("calls.sqlite")):
        with CallLedger(path) as ledger:
            sums = ledger.totals()
        total["calls"] += sums["calls"]
        total["tokens"] += (sums["prompt_tokens"] or 0) + (sums["completion_tokens"] or 0)
        total["unknown_cost"] += sums["unknown_cost"]
        if sums["cost_usd"] is not None:
            total["usd"] = (total["usd"] or 0.0) + sums["cost_usd"]
    return total


def budgets_left(root: pathlib.Path, step: pathlib.Path, budgets: Mapping[str, Any]) -> dict[str, Any]:
    """What the whole run's budgets leave to a step, whose own ledger counts what it spent itself.
    Raises BudgetExceeded when that is nothing."""
    left = {name: limit for name, limit in budgets.items() if limit is not None}
    if left:
        whole, own = spent(root), spent(step)
        left = {n: limit - (whole[n[7:]] or 0) + (own[n[7:]] or 0) for n, limit in left.items()}
    for name, rest in left.items():
        if rest <= 0:
            raise BudgetExceeded(f"{name}={budgets[name]:g} is spent: raise it and run again to go on")
    return left


def champion_of(reports: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The report of the cycle whose actor is the best so far; None = the actor the run began with."""
    return next((r for r in reversed(list(reports)) if r["decision"]["promoted"]), None)


def pointer(champion: Mapping[str, Any] | None) -> dict[str, Any]:
    """champion.json: the cycle, and what its trainer serves it from; None = the actor the run began with."""
    return {name: champion and champion[name] for name in ("cycle", "training")}


@dataclass(frozen=True)
class Decision:
    promoted: bool
    reason: str


def gate(comparison: Comparison, alarms: Sequence[Alarm]) -> Decision:
    """Whether the challenger becomes champion: its result on the dev set is no lower than the champion's
    minus one standard error of the paired difference, and no alarm is red."""
    found = comparison.in_words()
    if red := [alarm.code for alarm in alarms if alarm.level == "red"]:
        return Decision(False, f"red alarm {', '.join(red)}; {found}")
    if not comparison.n:
        return Decision(False, "no dev problem has a result of both, so nothing speaks for the challenger")
    good = comparison.difference >= -comparison.standard_error
    return Decision(good, found if good else f"not good enough; {found}")


class Trainer(Protocol):
    """What trains between two cycles, and serves what was trained: `cotkit.train.EmbeddedTrainer`, or yours.

    `train` blocks and may be killed at any time: the same call on the same folder goes on or starts anew. It
    returns a manifest, JSON, which is written down; from that alone `serve` makes the actor, also in a later
    session. Its "status" is "ok", or says why there is nothing to serve ("diverged"). What may pass (a full
    disk) is raised as OSError or RuntimeError: the run stops, and the same call tries again.
    """

    def describe(self) -> dict[str, Any]:
        """What the result depends on; recorded and compared on resume."""

    def train(
        self, method: str, data: pathlib.Path, champion: Mapping[str, Any] | None, output: pathlib.Path
    ) -> dict[str, Any]:
        """Train on the exported file, from the champion's manifest (None = the untrained base)."""

    def serve(self, manifest: Mapping[str, Any]) -> ChatModel:
        """The trained actor."""


class SelfImprovement(Run):
    """A self-improvement run, finished or stopped: its `report`, the reports of its `cycles`, all
    trajectories as `records()`. `champion` is the best actor, ready to be asked (None when only read from
    disk)."""

    champion: Any = None

    @property
    def report(self) -> dict[str, Any]:
        return read_json(self.path / "report.json")

    @property
    def cycles(self) -> list[dict[str, Any]]:
        return self.report["cycles"]

    def iter_records(self) -> Iterator[Row]:
        for folder in sorted(self.path.glob("cycle-*/generate")):
            yield from Run(folder).iter_records()

    def records(self, accepted: bool | None = None) -> list[Row]:
        """Cycle by cycle; a problem stands once for each cycle that worked on it."""
        return [row for row in self.iter_records() if accepted is None or row.accepted == accepted]

    def test_rows(self, actor: str) -> list[Row]:
        """What an actor named in `report["test"]["actors"]` did on the test set."""
        return Run(self.path / "test" / actor.replace(" ", "-")).records()
