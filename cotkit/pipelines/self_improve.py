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

import inspect
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cotkit import analysis
from cotkit.chat import BudgetExceeded, ModelError
from cotkit.pipelines import cycles as state
from cotkit.pipelines.critics import Watch, ask_again
from cotkit.pipelines.curriculum import assert_apart, draw_problems, draw_replay, family, pass_rates, pools
from cotkit.pipelines.cycles import Decision, SelfImprovement, champion_of, once, pointer, read_json
from cotkit.pipelines.distill import distill
from cotkit.pipelines.pairing import example_key, label_sample, select, write_examples
from cotkit.pipelines.plan import Plan
from cotkit.problems import Problem
from cotkit.records import Row
from cotkit.runs import Example, Run, RunFolder, View, folder_name, pair_view, write_json

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
OVER = ("ok", "no_data", "rolled_back", "diverged")  # a cycle of this status is not taken up again


def self_improve(*args: Any, **options: Any) -> SelfImprovement:
    """Runs `cycles` cycles and then the test; blocks. The same call goes on where an earlier one stopped.

    task: problems (anything `load_problems` takes), or {"description", "problems" or "prompts",
        "dimensions"}; prompts have no references, so the critics alone decide.
    actor: the ChatModel to improve, as it is before training. `teacher`: who drafts cycle 0 in its place.
    critics: ChatModels, which become judges with a rotating prompt, or judges; combined by `aggregate`
        ("median", "min", "mean", "majority"). `holdout_critic` scores the dev set (without a trainer, the
        cycle's drafts and picked traces) and selects nothing.
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
    run, resume, show, budget_usd, budget_calls, budget_tokens: as for `distill`, over the whole run.

    Raises ValueError or TypeError for wrong options before anything is asked. What goes wrong later stands in
    the reports: each cycle has a status ("ok", "no_data", "budget", "failed", "diverged", "rolled_back").
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
                except (BudgetExceeded, ModelError, RuntimeError) as error:
                    stopped = str(error)
            self._write_report(reports, stopped, test)
            result = SelfImprovement(self.root)
            result.champion = self.actor(champion_of(reports))
        return result

    def actor(self, champion: Mapping[str, Any] | None) -> Any:
        return self.plan.trainer.serve(champion["training"]) if champion else self.plan.actor

    def distil(self, folder: pathlib.Path, problems: list[Problem], model: Any, **options: Any) -> list[Row]:
        """A run folder of `distill`, whole; an error when it cannot be finished now."""
        if not (folder / "report.json").is_file() or not Run(folder).report["complete"]:
            options |= state.budgets_left(self.root, folder, self.budgets)
            options |= {"verifier": self.plan.verifier} if self.plan.verifier else {}
            options |= {"show": self.plan.show, "max_tokens": self.plan.max_tokens}
            run = distill(problems, model, run=folder, **options)
            if not run.report["complete"]:
                why = run.report["stopped"] or "not every problem was finished"
                raise (BudgetExceeded if why.startswith("budget_") else RuntimeError)(why)
        return Run(folder).records()

    def evaluate(self, folder: pathlib.Path, which: str, model: Any, **asking: Any) -> list[Row]:
        """Drafts of a held-out set, verified and scored; greedy when there is one a problem."""
        plan, judge, problems = self.plan, self.plan.dev_judge(), self.plan.of_set(which)
        if not problems:
            return []
        options = {"judge": judge, "judge_all": judge is not None, "score_threshold": None}
        options |= {"unchecked": "keep", "num_generations": plan.dev_generations, "max_iterations": 0}
        options |= {"temperature": 0.0 if plan.dev_generations == 1 else plan.temperature, "seed": plan.seed}
        return self.distil(folder, problems, model, **options, **plan.asking(**asking))

    def ask(self, judge: Any, items: Sequence[tuple[Problem, str]], folder: pathlib.Path) -> list:
        return ask_again(judge, items, folder, **state.budgets_left(self.root, folder, self.budgets))

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
        home, last = self.root / "test", f"cycle {promoted[-1]['cycle']}"
        folders = {name: home / name.replace(" ", "-") for name in actors}
        earlier = sorted(path.name for path in set(home.glob("cycle-*")) - set(folders.values()))
        rows = {n: self.evaluate(folders[n], "test", model, **how) for n, (model, how) in actors.items()}
        compared = {
            f"{last} against {name}": asdict(analysis.compare(found, rows[last]))
            | {"parts": analysis.gain_parts(found, rows[last])}
            for name, found in rows.items()
            if name != last
        }
        measured = {name: analysis.dev_measures(found) for name, found in rows.items()}
        known = {"n": len(plan.of_set("test")), "champion": last, "earlier_looks": earlier}
        return {**known, "actors": measured, "comparisons": compared}

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
            "seconds": sum(r["seconds"] for r in reports) + _seconds(self.root, "base", "test"),
            "sets": dict(Counter(self.plan.sets.values())),
            "champion": pointer(champion_of(reports)),
            "cycles": reports,
            "families": _added(r["families"] for r in reports if r["decision"]["promoted"]),  # trained on
            "test": test,
            "cost": state.spent(self.root),
            "notes": self.plan.notes(),
        }
        write_json(self.root / "report.json", report)


class Cycle:
    """One cycle. `_go` is the whole of it, in order; `known` gathers what its report says."""

    def __init__(self, loop: Loop, reports: Sequence[Mapping[str, Any]]):
        self.loop, self.plan, self.reports, self.number = loop, loop.plan, list(reports), len(reports)
        self.folder = loop.root / state.cycle_name(self.number)
        self.watch = Watch(self.plan, loop.root, loop.ask)
        self.champion = champion_of(reports)
        self.method = self.plan.of_cycle("method", self.number)
        self.taught = self.plan.teacher is not None and self.number == 0
        self.alarms: list[analysis.Alarm] = []
        self.counts = dict.fromkeys(("prompts", "attempts", "generated", "kept", "replayed"), 0)
        self.counts |= {"drops": {}, "unit": "traces"}
        # What stays unknown is None, or empty.
        unknown = ("gain", "verifier", "judge", "diversity", "heldout", "dev")
        self.known: dict[str, Any] = dict.fromkeys(unknown)
        self.known |= {name: {} for name in ("families", "files", "hacking", "prompts", "scores")}
        self.known |= {"training": {"trained": False}, "noise": {"sd": None, "n": 0}}

    def report(self) -> dict[str, Any]:
        path = self.folder / "report.json"
        if path.is_file() and (earlier := read_json(path))["status"] in OVER:
            return earlier
        try:
            status, decision = self._go()
        except (BudgetExceeded, ModelError, OSError, RuntimeError) as error:  # a trainer's are among them
            status = "budget" if isinstance(error, BudgetExceeded) else "failed"
            decision = Decision(False, str(error) or type(error).__name__)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, self._record(status, decision))
        return read_json(path)

    def _go(self) -> tuple[str, Decision]:
        rows = self._generate()
        noise = self.watch.noise(rows, self.number)
        view = self._select(rows, noise)
        examples = view.examples + self._replay(view.examples)
        self._describe(rows, view, examples, noise)
        self.alarms += self._data_alarms(rows, examples, noise["sd"] or 0.0)
        if len(view.examples) < self.plan.min_examples:
            why = ", ".join(f"{n} {reason}" for reason, n in view.drops.most_common())
            left = f"{len(view.examples)} examples are left of the {self.plan.min_examples} needed"
            return "no_data", Decision(False, f"{left} ({why or 'nothing was generated'})")
        data = self._export(rows, examples)
        if self.plan.trainer is None:
            return "ok", Decision(False, "data only: there is no trainer, the actor stays as it is")
        training = self._train(data)
        if training["status"] != "ok":
            return "diverged", Decision(False, f"training {training['status']}: {training.get('detail', '')}")
        decision = self._compare(self.plan.trainer.serve(training))
        return ("ok" if decision.promoted else "rolled_back"), decision

    def _generate(self) -> list[Row]:
        plan, problems, judge = self.plan, self.plan.of_set("train"), self.plan.judge(self.number)
        own = [report for report in self.reports if not report["teacher"]]
        rates = pass_rates(row for report in own for row in self._rows(report))
        count = plan.of_cycle("problems_per_cycle", self.number)
        drawn = draw_problems(problems, rates, count, f"{plan.seed}:{self.number}")
        self.counts["prompts"], self.known["pools"] = len(drawn), pools(problems, rates)
        model = plan.teacher if self.taught else self.loop.actor(self.champion)
        drafts = plan.teacher_generations if self.taught else plan.num_generations
        options = {"judge": judge, "judge_all": None if plan.gold else True, "improver": plan.improver}
        options |= {"score_threshold": plan.score_threshold if judge else None, "num_generations": drafts}
        options |= {"max_iterations": plan.iterations, "temperature": plan.temperature}
        options |= {"seed": plan.seed + 1000 * self.number, **plan.asking(self.champion is not None)}
        return self.loop.distil(self.folder / "generate", drawn, model, **options)

    def _rows(self, report: Mapping[str, Any]) -> list[Row]:
        """The trajectories of an earlier cycle."""
        return Run(self.loop.root / state.cycle_name(report["cycle"]) / "generate").records()

    def _select(self, rows: Sequence[Row], noise: Mapping[str, Any]) -> View:
        plan = self.plan
        return select(rows, self.method, plan.policy, plan.filters, plan.max_per_problem, noise["sd"] or 0.0)

    def _replay(self, kept: Sequence[Example]) -> list[Example]:
        """What earlier cycles give by this cycle's method, as much as replay_fraction asks; nothing twice."""
        seen = {example_key(example) for example in kept}
        earlier: dict[tuple, Example] = {}
        for report in self.reports:
            found = self._select(self._rows(report), report["noise"]).examples
            earlier |= {key: e for e in found if (key := example_key(e)) not in seen}
        share, draw = self.plan.replay_fraction, f"{self.plan.seed}:{self.number}"
        return draw_replay(list(earlier.values()), len(kept), share, draw)

    def _data_alarms(self, rows: Sequence[Row], examples: Sequence[Example], noise: float) -> list:
        found = self.watch.critics(rows, self.number, noise)
        if self.plan.trainer is None:
            self.known["hacking"], more = self.watch.selection(rows, self.folder)
            found += more
        longer = [len(e.candidate.trace) > len(e.rejected.trace) for e in examples if e.rejected]
        share = analysis.Rate.of_flags(longer)
        self.known["hacking"] |= {"chosen_longer_share": share.value}
        return found + analysis.alarms.chosen_longer(share, self.plan.gold)

    def _describe(
        self, rows: Sequence[Row], view: View, examples: Sequence[Example], noise: Mapping[str, Any]
    ) -> None:
        """What the report says of generation; and the sets must not meet."""
        assert_apart({e.row.id: e.row.problem for e in examples}, self.plan.held_out())
        judgements = [c.judgement for row in rows for c in row.candidates if c.judgement]
        self.counts |= {
            "attempts": sum(len(row.candidates) for row in rows),
            "judged": len(judgements),
            "parse_fail": sum(judgement.scores is None for judgement in judgements),
            "generated": view.given,
            "unit": view.unit,
            "kept": len(view.examples),
            "drops": dict(view.drops),
            "replayed": len(examples) - len(view.examples),
        }
        families = dict(Counter(family(e.row) for e in examples))
        prompts = {c.prompt["hash"]: c.prompt["name"] for row in rows for c in row.candidates if c.prompt}
        self.known |= {"policy": view.policy or "labels", "noise": dict(noise), "families": families}
        self.known |= {"prompts": prompts, **analysis.generation_measures(rows)}

    def _export(self, rows: Sequence[Row], examples: Sequence[Example]) -> pathlib.Path:
        path = self.folder / "export" / f"{self.method}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = write_examples(examples, path, self.method, self.plan.description)
        self.known |= {"files": {path.name: written.sha256}, "export_warnings": written.warnings}
        if pairs := [e for e in examples if e.rejected] or pair_view(rows).examples:
            label_sample(pairs, path.with_name("label.csv"), seed=self.plan.seed)
        return path

    def _train(self, data: pathlib.Path) -> dict[str, Any]:
        folder, start = self.folder / "train", self.champion and self.champion["training"]
        train = self.plan.trainer.train
        made = once(folder / "trained.json", lambda: train(self.method, data, start, folder))
        self.known["training"] = {"trained": made["status"] == "ok", "method": self.method, **made}
        return made

    def _compare(self, challenger: Any) -> Decision:
        """The challenger on the dev set against the champion and, for collapse, the first one promoted."""
        alarms, home = analysis.alarms, self.loop.root / "base"
        now = self.loop.evaluate(self.folder / "dev", "dev", challenger, trained=True)
        if self.champion is None:
            before = self.loop.evaluate(home / "dev", "dev", self.plan.actor, trained=False)
        else:
            home = self.loop.root / state.cycle_name(self.champion["cycle"])
            before = Run(home / "dev").records() if now else []
        held = [self.watch.held_out(before, home), self.watch.held_out(now, self.folder)]
        comparison = analysis.compare(before, now, *held)
        self.alarms += alarms.hacking(before, now, *held)
        if self.champion is not None and now:  # the first training changes the style as a whole
            number = next(r["cycle"] for r in self.reports if r["decision"]["promoted"])
            first = Run(self.loop.root / state.cycle_name(number) / "dev").records()
            self.alarms += alarms.length_drift(before, now) + alarms.collapse(first, now)
            self.alarms += self.watch.flattery(first, now)
        self.known |= {"heldout": asdict(comparison), "dev": analysis.dev_measures(now)}
        self.known["hacking"] |= alarms.hacking_measures(before, now, *held)
        self.known |= {"diversity": analysis.set_diversity(now)} if now else {}
        return state.gate(comparison, self.alarms)

    def _record(self, status: str, decision: Decision) -> dict[str, Any]:
        names, judge = ("actor", "improver", "teacher", "holdout_critic"), self.plan.judge(self.number)
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.loop.root.name,
            "cycle": self.number,
            "status": status,
            "method": self.method,
            "task_hash": self.loop.config["task_hash"],
            "roles": {role: getattr(getattr(self.plan, role), "name", None) for role in names},
            "critics": [one.name for one in getattr(judge, "judges", [judge]) if one],
            "teacher": self.taught,
            "champion_before": pointer(self.champion),
            "counts": self.counts,
            **self.known,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "decision": asdict(decision),
            "cost": state.spent(self.folder),
            "seconds": _seconds(self.folder) + self.known["training"].get("seconds", 0.0),
        }


def _seconds(root: pathlib.Path, *below: str) -> float:
    """How long the runs in these folders took."""
    reports = [path for name in below or (".",) for path in (root / name).glob("*/report.json")]
    return sum(read_json(path).get("seconds", 0.0) for path in reports)


def _added(counts: Any) -> dict[str, int]:
    return dict(sum(map(Counter, counts), Counter()))
