"""Self-improvement: an actor writes, critics score, an improver refines, what holds is trained on, and the
trained actor goes on if it measures better on problems that nobody trained on.

One cycle (after STaR, arXiv 2203.14465, ReST-EM, 2312.06585, and Self-Rewarding, 2401.10020):

1. generate   traces of the cycle's problems: a distillation run; cycle 0 may draw them from a teacher
2. filter     a view of the rows and named filters: generated = kept + sum(drops)
3. watch      the critics' noise, their ceiling, their scores of frozen answers
4. export     the training file, with a replay of earlier cycles
5. train      from the champion; without a trainer the cycle is data only
6. evaluate   the challenger on the dev set
7. gate       promoted when better than the champion on the same problems, at least 20 of them, and no alarm
              is red; else rolled back

After the last cycle the test set is touched once, and the final claim comes from it alone. Where the state
lives, and what an interruption leaves, is said in cycles.py; a cycle is in cycle.py, the options in plan.py,
what is asked at the same time in asks.py.
"""

from __future__ import annotations

import functools
import inspect
import json
import pathlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cotkit import analysis
from cotkit.paths import run_folder
from cotkit.pipelines import cycles as state
from cotkit.pipelines.acceptance import is_hurt
from cotkit.pipelines.asks import Asks
from cotkit.pipelines.critics import Scores, Watch, first_traces
from cotkit.pipelines.curriculum import family
from cotkit.pipelines.cycle import SCHEMA_VERSION, Cycle
from cotkit.pipelines.cycles import OVER, Actor, champion_of, once, pointer, read_json
from cotkit.pipelines.plan import CHECKED_HASH, Plan
from cotkit.records import VERIFIER_FAILED, Row
from cotkit.runs import Run, RunFolder, SelfImprovement, dump_json, folder_name, write_json

if TYPE_CHECKING:
    import pandas

FAILED_SHARE = 0.1  # of a held-out set without any answer: the run stops once, for the endpoint to come back


def self_improve(*args: Any, **options: Any) -> SelfImprovement:
    """Runs `cycles` cycles and then the test; blocks. The same call goes on where an earlier one stopped.

    task: problems (anything `load_problems` takes), or {"description", "problems" or "prompts",
        "dimensions"}; prompts have no references, so the critics alone decide.
    actor: the ChatModel to improve, as it is before training. `teacher`: who drafts cycle 0 in its place.
    critics: ChatModels, which become judges with a rotating prompt, or judges; combined by `aggregate`
        ("median", "min", "mean", "majority"). `holdout_critic` scores the dev and test sets (without a
        trainer, the cycle's drafts and picked traces) and selects nothing: what it says stands beside the
        decision, and raises an alarm when the critics rise above it.
    improver: refines what was not accepted, at most `iterations` times; None = the one who drafts.
    trainer: `cotkit.train.EmbeddedTrainer`, `FolderTrainer`, or your own (`cotkit.pipelines.Trainer`); None =
        data-only cycles, marked `trained: false`. dimensions, score_threshold, verifier: as for `distill`.
    cycles: a later call may ask for more; one for fewer takes none back.
    num_generations, teacher_generations: drafts a problem. problems_per_cycle: drawn by difficulty; None =
        all; or one number a cycle.
    few_shot_examples: shown to whoever is not trained, no problem of the task among them; what is trained on
        is the bare problem.
    method: "sft", "dpo", "dpo_sft", "kto", or one a cycle (the last goes on). policy: which traces (sft:
        all_accepted, best, first_correct) or pairs (dpo, dpo_sft: correct_vs_wrong, best_vs_worst,
        first_vs_last, length_controlled, gold_vs_model), or one of each; max_per_problem of each, over all
        cycles. `filters`: a `Filters`.
    min_examples: with fewer, or fewer rows that the training would take, nothing is trained (status
        "no_data"); None = 8, or all problems where there are fewer; 1 without a trainer.
    replay_fraction: share of the training data from earlier cycles; 1 = all of it, accumulated.
    dev, test: problems (or shares) held out by problem and near duplicate; with a trainer dev holds at least
        2, and 20 for any promotion. held_out_types: types that are only tested: all their problems are in the
        test set, beside what is drawn from the others. dev_generations: traces a dev problem; more than one
        show pass@k.
    temperature, max_tokens: of actor, teacher and improver; None = each model's own. A trained actor has what
        `trainer.serve` gives it: EmbeddedTrainer the untrained actor's, where its `chat` says nothing else.
    seed: of all draws, and of what a role samples that has no seed of its own; None = the actor's own, else
        0.
    run, resume, show, budget_usd, budget_calls, budget_tokens: as for `distill`, over the whole run.

    Raises ValueError or TypeError for wrong options before anything is asked. What goes wrong later stands in
    the reports, whatever it is: each cycle has a status. "ok", "no_data" (also what an export or a training
    refused), "rolled_back" and "diverged" are over; "budget" and "failed" stop the run, and the same call
    goes on with that cycle.
    """
    return Loop(Plan(*args, **options)).run()


def estimate_self_improvement(*args: Any, **options: Any) -> pandas.DataFrame:
    """What `self_improve` with these options would ask at most: calls, tokens and cost by step and role."""
    return Plan(*args, **options).estimate()


self_improve.__signature__ = estimate_self_improvement.__signature__ = inspect.signature(Plan)


class Loop:
    """One sitting of a run: what it knows it reads from the folder."""

    def __init__(self, plan: Plan):
        self.plan, self.config = plan, plan.describe()

    def run(self) -> SelfImprovement:
        plan, config = self.plan, self.config
        early = {key: value for key, value in config.items() if key != CHECKED_HASH}
        name = plan.run if plan.run is not None else folder_name("self-improve", early)
        if (run_folder(name) / "config.json").is_file() and CHECKED_HASH not in Run(name).config:
            config = early  # a folder that was made before this was recorded goes on as it was
        runtime = {"cycles": plan.cycles, **plan.budgets}
        with RunFolder(name, config, runtime=runtime, resume=plan.resume) as folder:
            self.root = folder.path
            self.asks = Asks(plan, self.root)
            self.watch = Watch(plan, self.root, self.asks)
            once(self.root / "sets.json", lambda: plan.sets)
            cycles = max(plan.cycles, state.finished(self.root))
            reports: list[dict[str, Any]] = []
            test = stopped = None
            while len(reports) < cycles and stopped is None:
                report = Cycle(self, reports).report()
                reports.append(report)
                write_json(self.root / "champion.json", pointer(champion_of(reports)))
                if report["status"] not in OVER:
                    stopped = f"cycle {report['cycle']}, {report['status']}: {report['decision']['reason']}"
            if stopped is None:
                test, stopped = self._attempt(self._test, reports)
            state.release_local_models()  # all but the champion's, which is served next
            champion, unserved = self._attempt(self.actor, self.manifest(champion_of(reports)))
            self._write_report(reports, stopped, test, unserved, folder.seconds)
            result = SelfImprovement(self.root)
            result.champion = champion
        return result

    def _attempt(self, step: Callable[..., Any], *given: Any) -> tuple[Any, str | None]:
        """What a step gives, or why it gave nothing."""
        try:
            return step(*given), None
        except Exception as error:  # noqa: BLE001 - it stands in the report, and nothing paid is lost
            return None, state.why(error, self.root)

    def manifest(self, report: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Of the training of a cycle, as its trainer is given it back; None = of no training."""
        if report is None:
            return None
        folder = self.root / state.cycle_name(report["cycle"]) / "train"
        sampling = {n: v for n, v in self.plan.actor.endpoints[0].options.sampling.items() if n != "seed"}
        return {**report["training"], "folder": str(folder), "sampling": sampling}

    def actor(self, manifest: Mapping[str, Any] | None) -> Any:
        return self.plan.trainer.serve(manifest) if manifest else self.plan.actor

    def evaluate(self, which: str, actors: Sequence[Actor]) -> list[tuple[list[Row], Scores]]:
        """What each did on a held-out set: verified and scored rows, and the hold-out critic's scores."""
        if not self.plan.of_set(which):
            return [([], None)] * len(actors)
        found, turns = {}, self._turns(actors)
        for number, turn in enumerate(turns, 1):
            models = {id(actor.manifest): self.actor(actor.manifest) for actor in turn}
            asked = [functools.partial(self._evaluated, which, a, models[id(a.manifest)]) for a in turn]
            found |= zip((actor.folder for actor in turn), self.asks.now(*asked), strict=True)
            if number < len(turns) and any(map(state.is_embedded, models.values())):
                state.release_local_models()
        if self.watch.holdout_is_here:  # it would take the machine from the actors
            state.release_local_models()
            for actor in actors:
                rows, _ = found[actor.folder]
                ask = functools.partial(self.watch.held_out, rows, actor.home)
                found[actor.folder] = rows, *self.asks.now(ask)
        return [found[actor.folder] for actor in actors]

    def _turns(self, actors: Sequence[Actor]) -> list[list[Actor]]:
        """Who is asked at the same time, turn by turn: one alone, for a server may hold one model, unless the
        trainer says that what it serves may be asked side by side; and always one alone on this machine."""
        free: list[Actor] = []
        alone: dict[int, list[Actor]] = {}
        side_by_side = getattr(self.plan.trainer, "side_by_side", False)
        for actor in actors:
            among = side_by_side and not (actor.manifest is None and state.is_embedded(self.plan.actor))
            (free if among else alone.setdefault(id(actor.manifest), [])).append(actor)
        first, *others = list(alone.values()) or [[]]
        return [free + first, *others]

    async def _evaluated(self, which: str, actor: Actor, model: Any) -> tuple[list[Row], Scores]:
        """Drafts of a held-out set; greedy when there is one a problem."""
        plan, judge, problems = self.plan, self.plan.dev_judge(), self.plan.of_set(which)
        options = {"judge_all": judge is not None, "score_threshold": None}
        options |= {"unchecked": "keep", "num_generations": plan.dev_generations, "max_iterations": 0}
        options |= {"temperature": 0.0 if plan.dev_generations == 1 else plan.temperature}
        options |= {"seed": plan.seed_of("actor")}
        options |= plan.asking(actor.manifest is not None, actor.examples)
        async with self.watch.holding_out(actor.home) as critic:
            if critic:
                options["after"] = lambda row: critic.ahead(first_traces([row]))
            ask = functools.partial(self.asks.rows, actor.folder, problems, model, judge, **options)
            rows = await self.as_whole_as_can_be(ask, actor.folder, [p.id for p in problems])
            later = self.watch.holdout_is_here
            return rows, None if later else await self.watch.held_out(rows, actor.home, critic)

    async def as_whole_as_can_be(
        self, ask: Callable[..., Awaitable[list[Row]]], folder: pathlib.Path, ids: Sequence[str]
    ) -> list[Row]:
        """The rows that `ask` gives. What an endpoint failed is asked once more at once, and by the next call
        (a judge's failure once, where scores decide); where much is without an answer the run stops once for
        that next call. What fails then too is left out, unless it is most of all."""
        marker, down, again = folder / "asked-again.json", None, False
        calls = read_json(marker)["calls"] if marker.is_file() else 0
        try:
            rows = await ask()  # nothing, where it is whole
            failed = [row for row in rows if analysis.drafts.is_failed(row)]
            unscored = bool(failed) and not self.plan.gold and not calls
            partly = any(not row.candidates or is_hurt(row) for row in failed)
            if again := calls < 2 and (unscored or partly):
                write_json(marker, {"calls": calls + 1, "problems": [row.id for row in failed]})
                rows = await ask(again=True)
        except RuntimeError as error:  # the endpoint is left alone after many faults in a row
            down, rows = error, Run(folder).records() if (folder / "config.json").is_file() else []
        bare = (row for row in rows if all(c.verdict.method in VERIFIER_FAILED for c in row.candidates))
        answered = {row.id for row in rows} - {row.id for row in bare if analysis.drafts.is_failed(row)}
        left = [id for id in ids if id not in answered]
        stops = (down is not None and not again) or len(left) > FAILED_SHARE * len(ids)
        if left and ((stops and not calls) or 2 * len(left) > len(ids)):
            write_json(marker, {"calls": min(calls + 1, 1), "problems": left})
            why = f"; {down}" if down else ""
            raise RuntimeError(
                f"{len(left)} of {len(ids)} problems in {folder} got no answer (first: {left[0]!r}): the "
                f"same call asks them again, and goes on without those that fail then too{why}"
            )
        if down is not None:
            write_json(marker, {"calls": calls + 1, "problems": left})
        return rows

    def _test(self, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """The final claim: the test set is touched here alone, by the actor as it was, as the first cycle
        that held left it, and as it has become; not at all when no cycle held."""
        plan, promoted = self.plan, [r for r in reports if r["decision"]["promoted"]]
        if not promoted or not plan.of_set("test"):
            return None
        home, last = self.root / "test", f"cycle {promoted[-1]['cycle']}"

        def asked(name: str, manifest: Any = None, examples: bool = True) -> Actor:
            folder = home / name.replace(" ", "-")
            return Actor(manifest, folder, folder if name in ("base", last) else None, examples)

        actors = {"base": asked("base")}
        if plan.few_shot_examples:
            actors["base zero-shot"] = asked("base zero-shot", examples=False)
        for report in promoted[:1] + promoted[1:][-1:]:
            name = f"cycle {report['cycle']}"
            actors[name] = asked(name, self.manifest(report))
        earlier = set(home.glob("cycle-*")) - {actor.folder for actor in actors.values()}
        found = dict(zip(actors, self.evaluate("test", list(actors.values())), strict=True))
        rows, held = ({name: one[part] for name, one in found.items()} for part in (0, 1))
        compared = {
            f"{last} against {name}": asdict(analysis.compare(those, rows[last]))
            | {"parts": analysis.gain_parts(those, rows[last])}
            for name, those in rows.items()
            if name != last
        }
        measured = {name: analysis.dev_measures(those) for name, those in rows.items()}
        known = {"n": len(plan.of_set("test")), "champion": last}
        known["earlier_looks"] = sorted(path.name for path in earlier)
        if plan.holdout_critic:
            beside = analysis.compare_held_out(rows["base"], rows[last], held["base"], held[last])
            known["holdout"] = {f"{last} against base": asdict(beside)}
        return {**known, "actors": measured, "comparisons": compared}

    def _write_report(
        self,
        reports: list[dict[str, Any]],
        stopped: str | None,
        test: Any,
        unserved: str | None,
        seconds: float,
    ) -> None:
        counts = [report["counts"] for report in reports]
        at_once = getattr(self.plan.trainer, "side_by_side", False)
        tested = (max if at_once else sum)([0.0, *self._test_turns().values()])
        parts = sum(r["seconds"] for r in reports) + tested
        notes = [f"The champion cannot be served now: {unserved}"] if unserved else []
        report = {
            "schema_version": SCHEMA_VERSION,
            "name": self.root.name,
            "given": sum(count["generated"] for count in counts),
            "kept": sum(count["kept"] for count in counts),
            "drops": _added(count["drops"] for count in counts),
            "unit": "; ".join(dict.fromkeys(count["unit"] for count in counts)),
            "complete": stopped is None,
            "stopped": stopped,
            "seconds": round(max(seconds, parts), 3),
            "sets": dict(Counter(self.plan.sets.values())),
            "champion": pointer(champion_of(reports)),
            "cycles": reports,
            "families": self._families(reports),
            "test": test,
            "cost": state.spent(self.root),
            "notes": self.plan.notes() + notes,
        }
        path, fresh = self.root / "report.json", json.loads(dump_json(report))
        before = read_json(path) if path.is_file() else {}
        if {**before, "seconds": 0} != {**fresh, "seconds": 0}:  # else nothing was done this time
            write_json(path, fresh)

    def _test_turns(self) -> dict[str, float]:
        """Seconds of each turn on the test set; the untrained actor with and without examples is one."""
        turns: dict[str, float] = {}
        for path in (self.root / "test").glob("*/report.json"):
            name = "base" if path.parent.name.startswith("base") else path.parent.name
            turns[name] = max(turns.get(name, 0.0), read_json(path).get("seconds", 0.0))
        return turns

    def _families(self, reports: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """How many different examples the champion was trained on, by family: a replayed one counts once."""
        families = {p.id: family(p) for p in self.plan.problems}
        exports = (
            self.root / state.cycle_name(report["cycle"]) / "export" / name
            for report in reports
            if report["decision"]["promoted"]
            for name in report["files"]
        )
        lines = {line for path in exports if path.is_file() for line in path.read_bytes().splitlines()}
        return dict(Counter(families[json.loads(line)["id"]] for line in sorted(lines)))


def _added(counts: Any) -> dict[str, int]:
    return dict(sum(map(Counter, counts), Counter()))
