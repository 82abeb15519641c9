"""Self-improvement: an actor writes, critics score, an improver refines, what holds is trained on, and the
trained actor goes on only if it proves better on problems that nobody trained on.

One cycle (after STaR, arXiv 2203.14465, ReST-EM, 2312.06585, and Self-Rewarding, 2401.10020):

1. generate   traces of the cycle's problems: a distillation run; cycle 0 may draw them from a teacher
2. filter     a view of the rows and named filters: generated = kept + sum(drops)
3. watch      the critics' noise, their ceiling, their scores of frozen answers
4. export     the training file, with a replay of earlier cycles
5. train      from the champion; without a trainer the cycle is data only
6. evaluate   the challenger on the dev set
7. gate       against the champion on the same problems, and no red alarm: promoted, or rolled back

After the last cycle the test set is touched once. Where the state lives, and what an interruption leaves, is
said in cycles.py; the options are in plan.py.
"""

from __future__ import annotations

import asyncio
import inspect
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cotkit import analysis
from cotkit.chat import BudgetExceeded, ModelError
from cotkit.pipelines.critics import ask_again
from cotkit.pipelines.curriculum import assert_apart, draw_problems, draw_replay, family, pass_rates, pools
from cotkit.pipelines.cycles import (
    Decision,
    SelfImprovement,
    budgets_left,
    champion_of,
    cycle_name,
    gate,
    once,
    pointer,
    read_json,
    spent,
)
from cotkit.pipelines.distill import distill
from cotkit.pipelines.filters import example_key
from cotkit.pipelines.pairing import Selection, label_sample, select, write_examples
from cotkit.pipelines.plan import Plan
from cotkit.pipelines.progress import Show, check_show
from cotkit.pipelines.watch import Watch
from cotkit.problems import Problem
from cotkit.records import Row
from cotkit.runs import Example, Run, RunFolder, folder_name, write_json

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
OVER = ("ok", "no_data", "rolled_back", "diverged")  # a cycle of this status is not taken up again


class Stopped(Exception):
    """The run cannot go on now; the same call goes on later. `status`: "budget" or "failed"."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status


def self_improve(task: Any, actor: Any, *args: Any, show: Show = "auto", **options: Any) -> SelfImprovement:
    """Runs `cycles` cycles and then the test; blocks. The same call goes on where an earlier one stopped.

    task: problems (anything `load_problems` takes), or {"description", "problems" or "prompts",
    "dimensions"}:
        prompts have no references, so the critics alone decide.
    actor: the ChatModel to improve, as it is before training. `teacher`: who drafts cycle 0 in its place.
    critics: ChatModels, which become judges with a rotating prompt, or judges; combined by `aggregate`
        ("median", "min", "mean", "majority"). `holdout_critic` scores the dev set and selects nothing.
    improver: refines what was not accepted, at most `iterations` times; None = the one who drafts.
    trainer: `cotkit.train.EmbeddedTrainer`, or your own (`cotkit.pipelines.Trainer`); None = data-only
    cycles, marked `trained: false`. dimensions, score_threshold, verifier: as for `distill`.
    num_generations, teacher_generations: drafts a problem. problems_per_cycle: drawn by difficulty; None =
        all; or one number a cycle.
    few_shot_examples: shown to whoever is not trained; what is trained on is the bare problem.
    method: "sft", "dpo", "dpo_sft", "kto", or one a cycle (the last goes on). policy: which traces or pairs
        (`cotkit.runs.views`, or "gold_vs_model"); max_per_problem of each. `filters`: a `Filters`.
    min_examples: with fewer, nothing is trained (status "no_data").
    replay_fraction: share of the training data from earlier cycles; 1 = all of it, accumulated.
    dev, test: problems (or shares) held out by problem and near duplicate; held_out_types: types that are
        only tested. dev_generations: traces a dev problem; more than one show pass@k.
    gate: "not_worse" or "better", see `gate`. probe_size: frozen answers that watch the critics; 0 = none.
    run, resume, budget_usd, budget_calls, budget_tokens: as for `distill`, over the whole run.

    Raises ValueError or TypeError for wrong options before anything is asked. What goes wrong later stands in
    the reports: each cycle has a status ("ok", "no_data", "budget", "failed", "diverged", "rolled_back").
    """
    check_show(show)
    return Loop(Plan(task, actor, *args, **options), show).run()


async def aself_improve(task: Any, actor: Any, *args: Any, **options: Any) -> SelfImprovement:
    """`self_improve` for a cell that awaits; cancelling it lets the step in progress end."""
    return await asyncio.to_thread(self_improve, task, actor, *args, **options)


def estimate_self_improvement(task: Any, actor: Any, *args: Any, **options: Any) -> pandas.DataFrame:
    """What `self_improve` with these options would ask at most: calls, tokens and cost by step and role."""
    return Plan(task, actor, *args, **options).estimate()


class Loop:
    """One sitting of a run: what it knows it reads from the folder."""

    def __init__(self, plan: Plan, show: Show):
        self.plan, self.show, self.config = plan, show, plan.describe()
        self.budgets = {name: getattr(plan, name) for name in ("budget_usd", "budget_calls", "budget_tokens")}

    def run(self) -> SelfImprovement:
        plan = self.plan
        name = plan.run if plan.run is not None else folder_name("self-improve", self.config)
        runtime = {"cycles": plan.cycles, **self.budgets}
        with RunFolder(name, self.config, runtime=runtime, resume=plan.resume) as folder:
            self.root = folder.path
            once(self.root / "sets.json", lambda: plan.sets)
            reports: list[dict[str, Any]] = []
            test = stopped = None
            while len(reports) < plan.cycles and stopped is None:
                report = Cycle(self, reports).report()
                reports.append(report)
                write_json(self.root / "champion.json", pointer(champion_of(reports)))
                if report["status"] not in OVER:
                    stopped = f"cycle {report['cycle']}, {report['status']}: {report['decision']['reason']}"
            if stopped is None:
                try:
                    test = self._test(reports)
                except (Stopped, BudgetExceeded, ModelError) as error:
                    stopped = str(error)
            self._write_report(reports, stopped, test)
            result = SelfImprovement(self.root)
            result.champion = self.actor(champion_of(reports))
        return result

    def actor(self, champion: Mapping[str, Any] | None) -> Any:
        return self.plan.trainer.serve(champion["training"]) if champion else self.plan.actor

    def distil(
        self, folder: pathlib.Path, problems: Sequence[Problem], model: Any, **options: Any
    ) -> list[Row]:
        """A run folder of `distill`, whole; Stopped when it could not be finished."""
        if not (folder / "report.json").is_file() or not Run(folder).report["complete"]:
            options |= budgets_left(self.root, folder, self.budgets)
            options |= {"verifier": self.plan.verifier} if self.plan.verifier else {}
            run = distill(
                problems, model, run=folder, show=self.show, max_tokens=self.plan.max_tokens, **options
            )
            if not run.report["complete"]:
                why = run.report["stopped"] or "not every problem was finished"
                raise Stopped("budget" if why.startswith("budget_") else "failed", why)
        return Run(folder).records()

    def evaluate(self, folder: pathlib.Path, which: str, model: Any, **asking: Any) -> list[Row]:
        """Drafts of a held-out set, verified and scored; greedy when there is one a problem."""
        plan, judge, problems = self.plan, self.plan.dev_judge(), self.plan.of_set(which)
        if not problems:
            return []
        return self.distil(
            folder,
            problems,
            model,
            judge=judge,
            judge_all=judge is not None,
            score_threshold=None,
            unchecked="keep",
            num_generations=plan.dev_generations,
            max_iterations=0,
            temperature=0.0 if plan.dev_generations == 1 else plan.temperature,
            seed=plan.seed,
            **plan.asking(**asking),
        )

    def ask(
        self, judge: Any, items: Sequence[tuple[Problem, str]], folder: pathlib.Path
    ) -> list[float | None]:
        return ask_again(judge, items, folder, **budgets_left(self.root, folder, self.budgets))

    def _test(self, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """The final claim: the test set is touched here alone, by the actor as it was, as the first cycle
        that held left it, and as it has become; not at all when no cycle held."""
        plan, promoted = self.plan, [r for r in reports if r["decision"]["promoted"]]
        if not promoted or not plan.of_set("test"):
            return None
        actors = {"base": (plan.actor, {"trained": False})}
        if plan.few_shot_examples:
            actors["base zero-shot"] = (plan.actor, {"trained": False, "examples": False})
        for report in (promoted[0], promoted[-1]):
            actors[f"cycle {report['cycle']}"] = (self.actor(report), {"trained": True})
        looked = {path.name for path in (self.root / "test").glob("cycle-*")}
        rows = {
            name: self.evaluate(self.root / "test" / name.replace(" ", "-"), "test", model, **asking)
            for name, (model, asking) in actors.items()
        }
        last = f"cycle {promoted[-1]['cycle']}"
        return {
            "n": len(plan.of_set("test")),
            "champion": last,
            "earlier_looks": sorted(looked - {name.replace(" ", "-") for name in actors}),
            "actors": {name: analysis.dev_measures(found) for name, found in rows.items()},
            "comparisons": {
                f"{last} against {name}": {
                    **asdict(analysis.compare(found, rows[last])),
                    "parts": analysis.gain_parts(found, rows[last]),
                }
                for name, found in rows.items()
                if name != last
            },
        }

    def _write_report(self, reports: list[dict[str, Any]], stopped: str | None, test: Any) -> None:
        counts = [report["counts"] for report in reports]
        report = {
            "schema_version": SCHEMA_VERSION,
            "name": self.root.name,
            "given": sum(count["generated"] for count in counts),
            "kept": sum(count["kept"] for count in counts),
            "drops": _added(count["drops"] for count in counts),
            "complete": stopped is None,
            "stopped": stopped,
            "seconds": sum(report["seconds"] for report in reports),
            "sets": dict(Counter(self.plan.sets.values())),
            "champion": pointer(champion_of(reports)),
            "cycles": reports,
            "families": _added(r["families"] for r in reports if r["decision"]["promoted"]),  # trained on
            "test": test,
            "cost": spent(self.root),
            "notes": self.plan.notes(),
        }
        write_json(self.root / "report.json", report)


class Cycle:
    """One cycle. `_go` is the whole of it, in order; `known` gathers what its report says."""

    def __init__(self, loop: Loop, reports: Sequence[Mapping[str, Any]]):
        self.loop, self.plan, self.reports, self.number = loop, loop.plan, list(reports), len(reports)
        self.folder = loop.root / cycle_name(self.number)
        self.watch = Watch(self.plan, loop.root, loop.ask)
        self.champion = champion_of(reports)
        self.method = self.plan.of_cycle("method", self.number)
        self.taught = self.plan.teacher is not None and self.number == 0
        self.alarms: list[analysis.Alarm] = []
        self.counts = dict.fromkeys(("prompts", "attempts", "generated", "kept", "replayed"), 0)
        self.counts |= {"drops": {}, "unit": "traces"}
        self.known: dict[str, Any] = {"training": {"trained": False}, "families": {}, "heldout": None}

    def report(self) -> dict[str, Any]:
        path = self.folder / "report.json"
        if path.is_file() and (earlier := read_json(path))["status"] in OVER:
            return earlier
        try:
            status, decision = self._go()
        except BudgetExceeded as error:
            status, decision = "budget", Decision(False, str(error))
        except (Stopped, ModelError, OSError, RuntimeError) as error:  # a trainer's are among them
            status = getattr(error, "status", "failed")
            decision = Decision(False, str(error) or type(error).__name__)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, self._record(status, decision))
        return read_json(path)

    def _go(self) -> tuple[str, Decision]:
        rows = self._generate()
        noise = self.watch.noise(rows, self.number)
        selection = self._select(rows, noise)
        examples = selection.kept + self._replay(selection)
        self._describe(rows, selection, examples, noise)
        self.alarms += self.watch.critics(rows, self.number, noise["sd"] or 0.0)
        if len(selection.kept) < self.plan.min_examples:
            why = ", ".join(f"{n} {reason}" for reason, n in selection.drops.most_common())
            left = f"{len(selection.kept)} examples are left of the {self.plan.min_examples} needed"
            return "no_data", Decision(False, f"{left} ({why or 'nothing was generated'})")
        data = self._export(examples)
        if self.plan.trainer is None:
            return "ok", Decision(False, "data only: there is no trainer, the actor stays as it is")
        training = self._train(data)
        if training["status"] != "ok":
            return "diverged", Decision(False, f"training {training['status']}: {training.get('detail', '')}")
        decision = self._compare(self.plan.trainer.serve(training))
        return ("ok" if decision.promoted else "rolled_back"), decision

    def _generate(self) -> list[Row]:
        plan, problems, judge = self.plan, self.plan.of_set("train"), self.plan.judge(self.number)
        rates = pass_rates(
            row for report in self.reports if not report["teacher"] for row in self._rows(report)
        )
        count = plan.of_cycle("problems_per_cycle", self.number)
        drawn = draw_problems(problems, rates, count, f"{plan.seed}:{self.number}")
        self.counts["prompts"], self.known["pools"] = len(drawn), pools(problems, rates)
        return self.loop.distil(
            self.folder / "generate",
            drawn,
            plan.teacher if self.taught else self.loop.actor(self.champion),
            judge=judge,
            improver=plan.improver,
            num_generations=plan.teacher_generations if self.taught else plan.num_generations,
            max_iterations=plan.iterations,
            score_threshold=plan.score_threshold if judge else None,
            judge_all=None if plan.gold else True,
            temperature=plan.temperature,
            seed=plan.seed + 1000 * self.number,
            **plan.asking(trained=self.champion is not None),
        )

    def _rows(self, report: Mapping[str, Any]) -> list[Row]:
        """The trajectories of an earlier cycle."""
        return Run(self.loop.root / cycle_name(report["cycle"]) / "generate").records()

    def _select(self, rows: Sequence[Row], noise: Mapping[str, Any]) -> Selection:
        filters = replace(self.plan.filters, noise=noise["sd"] or 0.0)
        return select(rows, self.method, self.plan.policy, filters, self.plan.max_per_problem)

    def _replay(self, selection: Selection) -> list[Example]:
        """What earlier cycles give by this cycle's method, as much as replay_fraction asks; nothing twice."""
        seen = {example_key(example) for example in selection.kept}
        earlier: dict[tuple, Example] = {}
        for report in self.reports:
            found = self._select(self._rows(report), report["noise"]).kept
            earlier |= {key: e for e in found if (key := example_key(e)) not in seen}
        plan, examples = self.plan, list(earlier.values())
        return draw_replay(examples, len(selection.kept), plan.replay_fraction, f"{plan.seed}:{self.number}")

    def _describe(
        self, rows: Sequence[Row], selection: Selection, examples: Sequence[Example], noise: Mapping[str, Any]
    ) -> None:
        """What the report says of generation; and the sets must not meet."""
        held_out = {p.id: p.problem for p in self.plan.problems if self.plan.sets[p.id] != "train"}
        assert_apart({e.row.id: e.row.problem for e in examples}, held_out)
        judgements = [c.judgement for row in rows for c in row.candidates if c.judgement]
        self.counts |= {
            "attempts": sum(len(row.candidates) for row in rows),
            "judged": len(judgements),
            "parse_fail": sum(judgement.scores is None for judgement in judgements),
            "generated": selection.generated,
            "unit": selection.unit,
            "kept": len(selection.kept),
            "drops": dict(selection.drops),
            "replayed": len(examples) - len(selection.kept),
        }
        families = dict(Counter(family(e.row) for e in examples))
        self.known |= {"policy": selection.policy, "noise": dict(noise), "families": families}
        self.known |= analysis.generation_measures(rows)

    def _export(self, examples: Sequence[Example]) -> pathlib.Path:
        path = self.folder / "export" / f"{self.method}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = write_examples(examples, path, self.method, self.plan.description)
        self.known |= {"files": {path.name: written.sha256}, "export_warnings": written.warnings}
        if any(e.rejected for e in examples):
            label_sample(examples, path.with_name("label.csv"), seed=self.plan.seed)
        return path

    def _train(self, data: pathlib.Path) -> dict[str, Any]:
        folder, start = self.folder / "train", self.champion and self.champion["training"]
        made = once(
            folder / "trained.json", lambda: self.plan.trainer.train(self.method, data, start, folder)
        )
        self.known["training"] = {"trained": made["status"] == "ok", "method": self.method, **made}
        return made

    def _compare(self, challenger: Any) -> Decision:
        """The challenger on the dev set against the champion and, for collapse, the first one promoted."""
        alarms, home = analysis.alarms, self.loop.root / "base"
        now = self.loop.evaluate(self.folder / "dev", "dev", challenger, trained=True)
        if self.champion is None:
            before = self.loop.evaluate(home / "dev", "dev", self.plan.actor, trained=False)
        else:
            home = self.loop.root / cycle_name(self.champion["cycle"])
            before = Run(home / "dev").records() if now else []
        held = [self.watch.held_out(before, home), self.watch.held_out(now, self.folder)]
        comparison = analysis.compare(before, now, *held)
        self.alarms += alarms.hacking(before, now, *held)
        if self.champion is not None and now:  # the first training changes the style as a whole
            number = next(r["cycle"] for r in self.reports if r["decision"]["promoted"])
            first = Run(self.loop.root / cycle_name(number) / "dev").records()
            self.alarms += alarms.length_drift(before, now) + alarms.collapse(first, now)
            self.alarms += self.watch.flattery(first, now)
        self.known |= {"heldout": asdict(comparison), "dev": analysis.dev_measures(now)}
        return gate(comparison, self.alarms, self.plan.gate)

    def _record(self, status: str, decision: Decision) -> dict[str, Any]:
        seconds = [read_json(path).get("seconds", 0.0) for path in self.folder.glob("*/report.json")]
        roles = {
            name: getattr(self.plan, name) for name in ("actor", "improver", "teacher", "holdout_critic")
        }
        judge = self.plan.judge(self.number)
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.loop.root.name,
            "cycle": self.number,
            "status": status,
            "method": self.method,
            "task_hash": self.loop.config["task_hash"],
            "roles": {name: getattr(model, "name", None) for name, model in roles.items()},
            "critics": [one.name for one in getattr(judge, "judges", [judge]) if one],
            "teacher": self.taught,
            "champion_before": pointer(self.champion),
            "counts": self.counts,
            "noise": {"sd": None, "n": 0},
            **self.known,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "decision": asdict(decision),
            "cost": spent(self.folder),
            "seconds": sum(seconds) + self.known["training"].get("seconds", 0.0),
        }


def _added(counts: Any) -> dict[str, int]:
    return dict(sum(map(Counter, counts), Counter()))


def _show_options(function: Any) -> None:
    """Shift-Tab shows the options, which `Plan` holds."""
    shown = inspect.Parameter("show", inspect.Parameter.KEYWORD_ONLY, default="auto")
    own = list(inspect.signature(Plan).parameters.values())
    function.__signature__ = inspect.Signature(
        own if function is estimate_self_improvement else [*own, shown]
    )


for _function in (self_improve, aself_improve, estimate_self_improvement):
    _show_options(_function)
