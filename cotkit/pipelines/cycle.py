"""One cycle of a self-improvement run; the run itself is in self_improve.py."""

from __future__ import annotations

import functools
import pathlib
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cotkit import analysis
from cotkit.chat import BudgetExceeded
from cotkit.pipelines import cycles as state
from cotkit.pipelines.critics import each_critic
from cotkit.pipelines.curriculum import draw_problems, draw_replay, family, pass_rates, pools
from cotkit.pipelines.cycles import OVER, Actor, Decision, Refused, champion_of, once, pointer, read_json
from cotkit.pipelines.pairing import example_key, label_sample, select, write_examples
from cotkit.records import Row
from cotkit.runs import Example, Run, View, pair_view, write_json

if TYPE_CHECKING:
    from cotkit.pipelines.critics import Watched
    from cotkit.pipelines.self_improve import Loop

SCHEMA_VERSION = 2


class Cycle:
    """One cycle. `_go` is the whole of it, in order; `known` gathers what its report says."""

    def __init__(self, loop: Loop, reports: Sequence[Mapping[str, Any]]):
        self.loop, self.plan, self.reports, self.number = loop, loop.plan, list(reports), len(reports)
        self.folder, self.watch = loop.root / state.cycle_name(self.number), loop.watch
        self.champion = champion_of(reports)
        self.method = self.plan.of_cycle("method", self.number)
        self.taught = self.plan.teacher is not None and self.number == 0
        self.alarms: list[analysis.Alarm] = []
        self.seen: dict[str, Any] = {"outputs": None}  # what the alarms have to look at
        self.seen |= dict.fromkeys(("decided", "scored", "judged", "holdout", "pairs", "refined"), 0)
        self.seen |= dict.fromkeys(("frozen", "drift", "pleased"), 0)
        self.counts = dict.fromkeys(("prompts", "attempts", "generated", "kept", "replayed"), 0)
        self.counts |= {"drops": {}, "unit": "traces"}
        # What stays unknown is None, or empty.
        unknown = ("gain", "room", "verifier", "judge", "diversity", "heldout", "holdout", "dev")
        self.known: dict[str, Any] = dict.fromkeys(unknown)
        self.known |= {name: {} for name in ("families", "files", "hacking", "prompts", "scores")}
        self.known |= {"training": {"trained": False}, "noise": {"sd": None, "n": 0}, "export_warnings": []}

    def report(self) -> dict[str, Any]:
        path, started = self.folder / "report.json", time.monotonic()
        earlier = read_json(path) if path.is_file() else {}
        if earlier.get("status") in OVER:
            return earlier
        try:
            status, decision = self._go()
        except Exception as error:  # noqa: BLE001 - it stands in the report, and nothing paid is lost
            status = "no_data" if isinstance(error, Refused) else "failed"
            status = "budget" if isinstance(error, BudgetExceeded) else status
            decision = Decision(False, state.why(error, self.folder))
        seconds = earlier.get("seconds", 0.0) + time.monotonic() - started
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, self._record(status, decision, seconds))
        return read_json(path)

    def _go(self) -> tuple[str, Decision]:
        rows, watched = self._generate()
        view = self._select(rows, watched.noise)
        examples = view.examples + self._replay(view.examples)
        self._describe(rows, view, examples, watched.noise)
        self.alarms += self._data_alarms(rows, examples, watched)
        if len(view.examples) < self.plan.min_examples:
            why = ", ".join(f"{n} {reason}" for reason, n in view.drops.most_common())
            left = f"{len(view.examples)} examples are left of the {self.plan.min_examples} needed"
            why = why or ("no more problems were drawn" if rows else "nothing was generated")
            return "no_data", Decision(False, f"{left}: {why}")
        data = self._export(rows, examples)
        if self.plan.trainer is None:
            red = state.red_codes(self.alarms)
            mind = f"; red alarm {red}: look at the data before anything is trained on it" if red else ""
            return "ok", Decision(False, f"data only: there is no trainer, the actor stays as it is{mind}")
        training = self._train(data)
        if training["status"] != "ok":
            return "diverged", Decision(False, f"training {training['status']}: {training.get('detail', '')}")
        decision = self._compare(training)
        return ("ok" if decision.promoted else "rolled_back"), decision

    def _generate(self) -> tuple[list[Row], Watched]:
        """The cycle's rows, and what critics say of them when they are asked again."""
        plan, problems, judge = self.plan, self.plan.of_set("train"), self.plan.judge(self.number)
        own = [report for report in self.reports if not report["teacher"]]
        rates = pass_rates((row for report in own for row in self._rows(report)), plan.checks)
        count = plan.of_cycle("problems_per_cycle", self.number)
        drawn = draw_problems(problems, rates, count, f"{plan.seed}:{self.number}")
        self.counts["prompts"], self.known["pools"] = len(drawn), pools(problems, rates)
        model = plan.teacher if self.taught else self.loop.actor(self.loop.manifest(self.champion))
        drafts = plan.teacher_generations if self.taught else plan.num_generations
        options = {"judge_all": None if plan.gold else True, "improver": plan.improver}
        options |= {"score_threshold": plan.score_threshold if judge else None, "num_generations": drafts}
        options |= {"max_iterations": plan.iterations, "temperature": plan.temperature}
        options |= {**plan.seeds(self.number), **plan.asking(self.champion is not None)}
        asks, folder = self.loop.asks, self.folder / "generate"
        ids = [problem.id for problem in drawn]

        def make(**more: Any) -> Awaitable[list[Row]]:
            ask = functools.partial(asks.rows, folder, drawn, model, judge, **options, **more)
            return self.loop.as_whole_as_can_be(ask, folder, ids)

        return asks.now(functools.partial(self.watch.over, make, self.number))[0]

    def _rows(self, report: Mapping[str, Any]) -> list[Row]:
        """The trajectories of an earlier cycle."""
        return Run(self.loop.root / state.cycle_name(report["cycle"]) / "generate").records()

    def _select(self, rows: Sequence[Row], noise: Mapping[str, Any]) -> View:
        plan, policy = self.plan, self.plan.policy_of(self.method)
        sd, cap = noise["sd"] or 0.0, plan.max_per_problem
        return select(rows, self.method, policy, plan.filters, cap, sd, plan.checks, plan.verifier)

    def _replay(self, kept: Sequence[Example]) -> list[Example]:
        """What earlier cycles give by this cycle's method, the latest first, as much as replay_fraction asks;
        nothing twice, and of a problem no more than max_per_problem in all."""
        cap, earlier = self.plan.max_per_problem, []
        seen, per_problem = {example_key(e) for e in kept}, Counter(e.row.id for e in kept)
        for report in reversed(self.reports):
            for example in self._select(self._rows(report), report["noise"]).examples:
                key, id = example_key(example), example.row.id
                if key not in seen and (cap is None or per_problem[id] < cap):
                    seen.add(key)
                    per_problem[id] += 1
                    earlier.append(example)
        return draw_replay(earlier, len(kept), self.plan.replay_fraction, f"{self.plan.seed}:{self.number}")

    def _data_alarms(
        self, rows: Sequence[Row], examples: Sequence[Example], watched: Watched
    ) -> list[analysis.Alarm]:
        found = self.watch.critics(rows, self.number, watched)
        hacking: dict[str, Any] = {"intervals": {}}
        if self.plan.trainer is None:
            measures, more = self.watch.selection(rows, watched)
            hacking |= measures
            found += more
            self.seen["holdout"] = hacking["intervals"].get("holdout_critic_gap", {}).get("n", 0)
        longer = [len(e.candidate.trace) > len(e.rejected.trace) for e in examples if e.rejected]
        share = analysis.Rate.of_flags(longer)
        self.seen |= {"pairs": share.n, **watched.counts()}
        hacking["chosen_longer_share"] = share.value
        hacking["intervals"]["chosen_longer_share"] = {"low": share.low, "high": share.high, "n": share.n}
        self.known["hacking"] = hacking
        return found + analysis.alarms.chosen_longer(share, self.plan.gold)

    def _describe(
        self, rows: Sequence[Row], view: View, examples: Sequence[Example], noise: Mapping[str, Any]
    ) -> None:
        """What the report says of generation; and the sets must not meet."""
        self.plan.held_apart.assert_apart({e.row.id: e.row.problem for e in examples})
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
        critics = each_critic(self.plan.judge(self.number))
        prompts |= {one["prompt_hash"]: one["name"] for one in critics if one["prompt_hash"]}
        self.seen["judged"] = len(judgements)
        self.seen["refined"] = sum(c.parent is not None for row in rows for c in row.candidates)
        self.known |= {"policy": view.policy or "labels", "noise": dict(noise), "families": families}
        self.known |= {"prompts": prompts, **analysis.generation_measures(rows)}
        self.known["room"] = analysis.room_to_learn(rows, [e.row.id for e in view.examples])

    def _export(self, rows: Sequence[Row], examples: Sequence[Example]) -> pathlib.Path:
        path = self.folder / "export" / f"{self.method}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            written = write_examples(examples, path, self.method, self.plan.description or None)
        except ValueError as error:
            raise Refused(f"the export refused the examples: {error}") from error
        self.known |= {"files": {path.name: written.sha256}, "export_warnings": written.warnings}
        if pairs := [e for e in examples if e.rejected] or pair_view(rows).examples:
            label_sample(pairs, path.with_name("label.csv"), seed=self.plan.seed)
        return path

    def _train(self, data: pathlib.Path) -> dict[str, Any]:
        folder, start = self.folder / "train", self.champion and self.loop.manifest(self.champion)
        begun = folder / "sittings.json"

        def train() -> dict[str, Any]:
            state.release_local_models()  # a trainer may load its model to look at the rows
            self._check_fit(data, start)
            write_json(begun, 1 + (read_json(begun) if begun.is_file() else 0))
            made = self.plan.trainer.train(self.method, data, start, folder)
            if not isinstance(made, Mapping) or not isinstance(made.get("status"), str):
                raise TypeError(f"trainer.train gave {made!r}: it must give a manifest with a status")
            return made

        try:
            made = once(folder / "trained.json", train)
        except Exception as error:
            if getattr(error, "refuses_data", False):
                raise Refused(f"the training refused the examples: {error}") from error
            raise
        sittings = read_json(begun) if begun.is_file() else 1
        known = {"trained": made["status"] == "ok", "method": self.method, "sittings": sittings}
        self.known["training"] = known | made
        return made

    def _check_fit(self, data: pathlib.Path, start: Mapping[str, Any] | None) -> None:
        """Too few rows that the training would take are no data, as too few examples are."""
        if not hasattr(self.plan.trainer, "fitting"):
            return
        fits, least = self.plan.trainer.fitting(self.method, data, start), self.plan.min_examples
        if fits["rows"] < least:
            why = ", ".join(f"{n} {reason}" for reason, n in fits["drops"].items())
            raise Refused(f"the training would take {fits['rows']} rows of the {least} needed ({why})")

    def _compare(self, training: Mapping[str, Any]) -> Decision:
        """The challenger on the dev set against the champion and, for collapse, the first one promoted; both
        are the untrained actor in the first training."""
        alarms, loop, home = analysis.alarms, self.loop, self.loop.root / "base"
        manifest = loop.manifest({"cycle": self.number, "training": training})
        challenger = Actor(manifest, self.folder / "dev", self.folder)
        if self.champion is None:
            base = Actor(None, home / "dev", home)
            (before, held_before), (now, held_now) = loop.evaluate("dev", [base, challenger])
        else:
            home = loop.root / state.cycle_name(self.champion["cycle"])
            ((now, held_now),) = loop.evaluate("dev", [challenger])
            before = Run(home / "dev").records() if now else []
            (held_before,) = loop.asks.now(functools.partial(self.watch.held_out, before, home))
        held = (held_before, held_now)
        comparison = analysis.compare(before, now)
        first = self._first_promoted() if self.champion is not None and now else None
        self.alarms += alarms.hacking(before, now, *held) + self._drift(before, first, now)
        self.known |= {"heldout": asdict(comparison), "dev": analysis.dev_measures(now)}
        measures = alarms.hacking_measures(before, now, *held)
        intervals = self.known["hacking"]["intervals"] | measures["intervals"]
        self.known["hacking"] |= {**measures, "intervals": intervals}
        self.known |= {"diversity": analysis.set_diversity(now)} if now else {}
        if self.plan.holdout_critic:
            self.known["holdout"] = asdict(analysis.compare_held_out(before, now, *held))
        self.seen |= {**alarms.compared(before, now), "holdout": intervals["holdout_critic_gap"]["n"]}
        return state.gate(comparison, self.alarms)

    def _first_promoted(self) -> list[Row]:
        """What the first actor promoted did on the dev set."""
        number = next(r["cycle"] for r in self.reports if r["decision"]["promoted"])
        return Run(self.loop.root / state.cycle_name(number) / "dev").records()

    def _drift(self, before: list[Row], first: list[Row] | None, now: list[Row]) -> list[analysis.Alarm]:
        """Alarms of how the outputs change, against the champion and the first actor promoted (None = there
        was none yet)."""
        alarms, first = analysis.alarms, before if first is None else first
        found = alarms.length_drift(before, now) + alarms.collapse(first, now)
        found += self.loop.asks.now(functools.partial(self.watch.flattery, first, now))[0]
        same = not self.taught and self.plan.asking(trained=False) == self.plan.asking(trained=True)
        return found if self.champion is not None or same else alarms.softened(found)

    def _not_looked_at(self) -> dict[str, str]:
        plan, seen = self.plan, self.seen
        seen |= {} if plan.holdout_critic else {"holdout": None}
        known = {"generations": plan.dev_generations, "critics": bool(plan.critics), "verified": plan.gold}
        return analysis.alarms.not_looked_at(**seen, **known, cycle=self.number)

    def _roles(self) -> dict[str, dict[str, str | None] | None]:
        """The model of each role, and the hash of the prompt that it was asked with in this cycle."""
        plan, asked = self.plan, {name: hash for hash, name in self.known["prompts"].items()}
        hashes = {"teacher" if self.taught else "actor": asked.get("reasoning")}
        hashes["improver"] = asked.get("refine")
        models = {role: getattr(plan, role) for role in ("actor", "improver", "teacher")}
        roles = {
            role: model and {"model": model.name, "prompt_hash": hashes.get(role)}
            for role, model in models.items()
        }
        holdout = each_critic(plan.dev_judge(plan.holdout_critic)) if plan.holdout_critic else [None]
        return {**roles, "holdout_critic": holdout[0]}

    def _record(self, status: str, decision: Decision, seconds: float) -> dict[str, Any]:
        parts = sum(state.seconds_of(self.folder)) + (self.known["training"].get("seconds") or 0.0)
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.loop.root.name,
            "cycle": self.number,
            "status": status,
            "method": self.method,
            "task_hash": self.loop.config["task_hash"],
            "roles": self._roles(),
            "critics": each_critic(self.plan.judge(self.number)),
            "teacher": self.taught,
            "champion_before": pointer(self.champion),
            "counts": self.counts,
            **self.known,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "not_looked_at": self._not_looked_at(),
            "decision": asdict(decision),
            "cost": state.spent(self.folder),
            "seconds": round(max(seconds, parts), 3),  # a sitting that was killed left its parts
        }
