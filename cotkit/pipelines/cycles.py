"""The state of a self-improvement run, which lives in its folder alone: steps that are done once, the
champion, what was spent, the gate; and `Trainer`, what trains between two cycles. It is read as a
`cotkit.runs.SelfImprovement`.

    runs/<name>/
      config.json     what was asked, compared on resume
      sets.json       {id: train | dev | test}, fixed before anything is generated
      base/           the actor before training on the dev set; the critics' check on frozen answers
      cycle-00/
        generate/     drafts, scores, refinements: a run folder, its rows are the trajectories
        noise/ holdout/ drift/   scores asked again
        export/       the training file, and pairs for a person to label
        train/        the trainer's folder, with trained.json, and how often it was begun
        dev/          the challenger on the dev set: a run folder
        report.json   written last: the cycle is over
        error.txt     where a program failed, if one did
      champion.json   points to the best actor so far
      test/           touched once, after the last cycle
      report.json     everything

A step that left its marker is read, never done again; one that was interrupted finds its answers in the
ledger of its folder. Dev and test problems that an endpoint failed are asked again at once and by the next
call; what fails then too is left out of both sides and counted. Who is champion in a cycle follows from the
reports before it, so that a kill between two writes cannot make a challenger its own champion; champion.json
is written from them, for people.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cotkit import analysis, chat, keys
from cotkit.chat import BudgetExceeded, CallLedger, ModelError
from cotkit.runs import write_json

if TYPE_CHECKING:
    from cotkit.analysis import Alarm, Comparison
    from cotkit.chat import ChatModel


OVER = ("ok", "no_data", "rolled_back", "diverged")  # a cycle of this status is not taken up again


class Refused(Exception):
    """Data that an export or a training does not take: the cycle is over, the champion stays."""


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


def finished(root: pathlib.Path) -> int:
    """How many cycles are over. A call for fewer does not take the others back."""
    number = 0
    while (path := root / cycle_name(number) / "report.json").is_file() and read_json(path)["status"] in OVER:
        number += 1
    return number


def spent(folder: pathlib.Path) -> dict[str, Any]:
    """Of every ledger below a folder: calls (answered), requests (all that count for a budget), tokens and
    dollars; usd None = unknown; by_role {role: {calls, tokens, usd}}. guessed_*: what requests of unknown use
    count for in the budgets."""
    total: dict[str, Any] = {"calls": 0, "requests": 0, "tokens": 0, "usd": None, "unknown_cost": 0}
    total |= {"guessed_tokens": 0, "guessed_usd": 0.0, "by_role": {}}
    for path in sorted(folder.rglob("calls.jsonl")):
        with CallLedger(path, read_only=True) as ledger:
            sums = ledger.totals()
        refused = sums["failed"].get("rate_limit", 0)
        total["calls"] += sums["calls"]
        total["requests"] += sums["calls"] + sum(sums["failed"].values()) - refused
        total["unknown_cost"] += sums["unknown_cost"]
        total["guessed_tokens"] += round(sums.get("guessed_tokens", 0))
        total["guessed_usd"] += sums.get("guessed_usd", 0.0)
        _add(total, sums)
        for role, own in sorted(sums["by_role"].items()):
            spent_by = total["by_role"].setdefault(role, {"calls": 0, "tokens": 0, "usd": None})
            spent_by["calls"] += own["calls"]
            _add(spent_by, own)
    return total


def _add(total: dict[str, Any], sums: Mapping[str, Any]) -> None:
    total["tokens"] += (sums["prompt_tokens"] or 0) + (sums["completion_tokens"] or 0)
    if sums["cost_usd"] is not None:
        total["usd"] = (total["usd"] or 0.0) + sums["cost_usd"]


def seconds_of(root: pathlib.Path) -> list[float]:
    """How long each of the runs in a folder took."""
    return [read_json(path).get("seconds", 0.0) for path in root.glob("*/report.json")]


def release_local_models() -> None:
    """Embedded models take memory that a training needs; the next call to one starts it again."""
    chat.embedded.release_local_models()


def is_embedded(model: Any) -> bool:
    """Whether it runs on this machine, where it needs the memory and the cores for itself."""
    return any(endpoint.identity == "embedded" for endpoint in getattr(model, "endpoints", ()))


_COUNTED_AS = {  # budget: its sums in `spent`
    "budget_usd": ("usd", "guessed_usd"),
    "budget_calls": ("requests",),
    "budget_tokens": ("tokens", "guessed_tokens"),
}


def budgets_left(root: pathlib.Path, step: pathlib.Path, budgets: Mapping[str, Any]) -> dict[str, Any]:
    """What the whole run's budgets leave to a step, whose own ledger counts what it spent itself.
    Raises BudgetExceeded when that is nothing."""
    left = {name: limit for name, limit in budgets.items() if limit is not None}
    if left:
        whole, own = spent(root), spent(step)
        for name in left:
            left[name] -= sum((whole[sums] or 0) - (own[sums] or 0) for sums in _COUNTED_AS[name])
    for name, rest in left.items():
        if rest <= 0:
            raise BudgetExceeded(f"{name}={budgets[name]:g} is spent: raise it and run again to go on")
    return left


def why(error: Exception, folder: pathlib.Path) -> str:
    """What ended a step, in words. What is no fault of an endpoint, a budget or a disk leaves its traceback
    in error.txt."""
    if isinstance(error, (BudgetExceeded, ModelError, OSError, Refused)) or type(error) is RuntimeError:
        return str(error) or type(error).__name__
    where = folder / "error.txt"
    with contextlib.suppress(OSError):  # on a full disk the report is what matters
        folder.mkdir(parents=True, exist_ok=True)
        text = keys.scrub("".join(traceback.format_exception(error)))
        where.write_text(text, "utf-8", "backslashreplace")
    return f"{type(error).__name__}: {keys.scrub(str(error))} (see {where})"


def champion_of(reports: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The report of the cycle whose actor is the best so far; None = the actor the run began with."""
    return next((r for r in reversed(list(reports)) if r["decision"]["promoted"]), None)


def pointer(champion: Mapping[str, Any] | None) -> dict[str, Any]:
    """champion.json: the cycle, and what its trainer serves it from; None = the actor the run began with."""
    return {name: champion and champion[name] for name in ("cycle", "training")}


@dataclass(frozen=True)
class Actor:
    """Who is asked on a held-out set: the one trained as `manifest` says, None = the one before training.
    folder: of its answers; home: of the hold-out critic's scores of them, None = it is not asked."""

    manifest: Mapping[str, Any] | None
    folder: pathlib.Path
    home: pathlib.Path | None
    examples: bool = True


@dataclass(frozen=True)
class Decision:
    promoted: bool
    reason: str


def gate(comparison: Comparison, alarms: Sequence[Alarm]) -> Decision:
    """Whether the challenger becomes champion: it measures better on the dev set, on as many problems as the
    alarms need to speak, and none is red."""
    found, least = comparison.in_words(), analysis.alarms.LEAST
    if red := red_codes(alarms):
        return Decision(False, f"red alarm {red}; {found}")
    if comparison.n < least:
        few = f"{comparison.n} dev problems have a result of both, and no alarm speaks on fewer than {least}"
        return Decision(False, f"{few}; {found}")
    if not comparison.difference > 0:
        return Decision(False, f"no better; {found}")
    return Decision(True, found)


def red_codes(alarms: Sequence[Alarm]) -> str:
    return ", ".join(alarm.code for alarm in alarms if alarm.level == "red")


class Trainer(Protocol):
    """What trains between two cycles, and serves what was trained: `cotkit.train.EmbeddedTrainer`,
    `FolderTrainer`, or yours.

    `train` blocks and may be killed at any time: the same call on the same folder goes on or starts anew. It
    returns a manifest, JSON, which is written down; from that alone `serve` makes the actor, also in a later
    session. Its "status" is "ok", or says why there is nothing to serve ("diverged"); where it has them, the
    report shows "rows" (trained on), "drops" {reason: rows left out}, "steps", "loss_first", "loss_last",
    "seconds" and "warnings". A manifest given back has "folder" too, where the training's folder is now, and
    "sampling", the temperature and so on of the actor before training, to serve it with.

    Optional: `side_by_side = True` where a model that was served can still be asked when another is; else
    they are served and asked one after the other. `check(methods)` refuses options that do not fit, before
    anything is asked. `fitting(method, data, champion)` says how many "rows" of the file a training would
    take, and its "drops": with fewer than `min_examples` none is begun.

    Rows that it does not take are raised as a `cotkit.train.TrainingDataError`, or any exception with a true
    `refuses_data`: the cycle ends as "no_data". Any other exception stops the run as "failed", and the same
    call tries again. All of it stands in the report.
    """

    def describe(self) -> dict[str, Any]:
        """What the result depends on; recorded and compared on resume."""

    def train(
        self, method: str, data: pathlib.Path, champion: Mapping[str, Any] | None, output: pathlib.Path
    ) -> dict[str, Any]:
        """Train on the exported file, from the champion's manifest (None = the untrained base)."""

    def serve(self, manifest: Mapping[str, Any]) -> ChatModel:
        """The trained actor."""
