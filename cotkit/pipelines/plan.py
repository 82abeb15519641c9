"""What a self-improvement run is asked to do: its options, checked before anything is paid."""

from __future__ import annotations

import functools
import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from cotkit import analysis
from cotkit.chat import check_budgets
from cotkit.pipelines.critics import PROMPT_POOL, RULES, make_panel, with_task
from cotkit.pipelines.curriculum import Sets, family, split_problems
from cotkit.pipelines.estimate import estimate
from cotkit.pipelines.pairing import GOLD, METHODS, Filters
from cotkit.pipelines.progress import Show, check_show
from cotkit.pipelines.recipe import Recipe, as_examples, make_recipe, own_seed
from cotkit.problems import Problem, load_problems
from cotkit.records import Row
from cotkit.verify import AnswerVerifier, Verifier, has_program

if TYPE_CHECKING:
    import pandas

_OF_PAIRS = ("correct_vs_wrong", "best_vs_worst", "first_vs_last", "length_controlled", GOLD)
POLICIES = {  # method: its policies
    "sft": ("all_accepted", "best", "first_correct"), "dpo": _OF_PAIRS, "dpo_sft": _OF_PAIRS, "kto": (),
}  # fmt: skip
LEAST_EXAMPLES = 8
LEAST_DEV = 2  # with fewer nothing can be compared
CHECKED_HASH = "checked_hash"  # of what decides a verdict beside the reference; early folders have none
SOLVE = "Solve the problem, with reasoning that can be checked step by step and one final answer."
_TASK_KEYS = {"description", "problems", "prompts", "dimensions"}


@dataclass
class Plan:
    """The options of `self_improve`, which documents them."""

    task: Any
    actor: Any
    critics: Sequence[Any] = ()
    improver: Any = None
    _: KW_ONLY
    cycles: int = 1
    iterations: int = 1
    trainer: Any = None
    teacher: Any = None
    holdout_critic: Any = None
    dimensions: Sequence[Any] | None = None
    aggregate: str = "median"
    score_threshold: float | dict[str, float] | None = 0.7
    num_generations: int = 4
    teacher_generations: int = 1
    problems_per_cycle: int | Sequence[int | None] | None = None
    few_shot_examples: Any = None
    verifier: Any = None
    method: str | Sequence[str] = "sft"
    policy: str | Sequence[str] | None = None
    max_per_problem: int | None = 4
    min_examples: int | None = None
    filters: Filters = field(default_factory=Filters)
    replay_fraction: float = 0.2
    dev: int | float = 0.15
    test: int | float = 0.25
    held_out_types: Sequence[str] = ()
    dev_generations: int = 1
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    run: Any = None
    resume: str = "auto"
    budget_usd: float | None = None
    budget_calls: int | None = None
    budget_tokens: int | None = None
    show: Show = "auto"

    def __post_init__(self) -> None:
        self.description, self.problems = self._read_task()
        self.critics = _critics(self.critics, "critics")
        if self.holdout_critic is not None:
            _critics([self.holdout_critic], "holdout_critic")
        self.few_shot_examples = as_examples(self.few_shot_examples)
        self._check()
        self.unchecked = self._unchecked()
        self._bare = frozenset(self.unchecked)
        self.gold = 2 * len(self.unchecked) <= len(self.problems)  # verdicts decide, else scores
        if self.seed is None:
            self.seed = own_seed(self.actor) or 0
        self.sets = split_problems(self.problems, self.dev, self.test, self.held_out_types, self.seed)
        if self.min_examples is None:
            self.min_examples = min(LEAST_EXAMPLES, len(self.of_set("train"))) if self.trainer else 1
        self._check_examples_needed()
        self._check_dev()
        self._check_drafts()
        if own := self._own_critics():
            warnings.warn(own, stacklevel=4)  # at the caller of `self_improve`
        for wording in range(min(self.cycles, len(PROMPT_POOL))):
            self.recipe(wording)  # what `distill` would refuse later
        self.dev_judge(self.holdout_critic)
        self._check_policy()
        self._check_examples()

    def _read_task(self) -> tuple[str | None, list[Problem]]:
        if not isinstance(self.task, Mapping) or not _TASK_KEYS & set(self.task):
            return None, load_problems(self.task)
        if unknown := sorted(set(self.task) - _TASK_KEYS):
            raise ValueError(f"task has unknown keys {unknown}; known: {', '.join(sorted(_TASK_KEYS))}")
        self.dimensions = self.dimensions or self.task.get("dimensions")
        description = self.task.get("description") or None
        if description is not None and not (isinstance(description, str) and description.strip()):
            raise ValueError(f"task: the description must be a text, got {description!r}")
        if "problems" in self.task:
            return description, load_problems(self.task["problems"])
        prompts = self.task.get("prompts") or [description]
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        if not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
            raise ValueError("task: each prompt must be a text; or give problems= with references")
        return description, [Problem(id=f"prompt-{i}", problem=p) for i, p in enumerate(prompts, 1)]

    @property
    def budgets(self) -> dict[str, int | float | None]:
        return {name: getattr(self, name) for name in ("budget_usd", "budget_calls", "budget_tokens")}

    def held_out(self) -> dict[str, str]:
        """{id: text} of the problems that nobody may learn from."""
        return {p.id: p.problem for p in self.problems if self.sets[p.id] != "train"}

    @functools.cached_property
    def held_apart(self) -> Sets:
        """The same, to hold against what is learnt from; dev and test themselves do not meet."""
        names = ("dev", "test")
        return Sets({f"held out for {n}": {p.id: p.problem for p in self.of_set(n)} for n in names})

    def _check_examples(self) -> None:
        """The worked examples hold no problem of dev or test."""
        given = self.few_shot_examples or []
        if isinstance(given, str):
            shown, whole = [line for line in given.splitlines() if line.strip()], given
        else:
            shown = [str(one["problem"]) for one in given]
            whole = "\n".join(str(one[key]) for one in given for key in ("problem", "trace"))
        unit = "line" if isinstance(given, str) else "item"
        named = {f"few_shot_examples, {unit} {i}": text for i, text in enumerate(shown, 1)}
        try:
            if given:
                self.held_apart.assert_apart(named, "shown to the actor")
        except AssertionError as error:
            raise ValueError(f"{error}: give another example") from None
        for id, problem in self.held_out().items():
            if len(words := _words(problem)) > 20 and f" {words} " in f" {_words(whole)} ":
                raise ValueError(f"few_shot_examples holds problem {id!r}, held out: give another example")

    def _check(self) -> None:
        check_show(self.show)
        if empty := [name for name in _A_CYCLE if not _listed(getattr(self, name))]:
            raise ValueError(f"{empty[0]} is an empty list: give one value, or one a cycle")
        for name, least in _WHOLE.items():
            for value in self._values(name):
                whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
                if not whole and not (value is None and name in _OR_NONE):
                    raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise TypeError(f"seed must be a whole number, got {self.seed!r}")
        check_budgets(**self.budgets)
        for name, known in _CHOICES.items():
            if wrong := [value for value in self._values(name) if value not in known]:
                hint = _NO_CYCLE if wrong[0] in ("ppo", "grpo") else ""
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {wrong[0]!r}{hint}")
        if self.resume == "never":
            raise ValueError("resume='never' would mix two runs: to start anew, use another run name")
        share = self.replay_fraction
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise ValueError(f"replay_fraction is a share from 0 to 1, got {share!r}")
        for name in ("actor", "improver", "teacher"):
            model = getattr(self, name)
            if not hasattr(model, "acandidates") and (name == "actor" or model is not None):
                raise TypeError(f"{name} must be a ChatModel, got {type(model).__name__}")
        if missing := [
            n for n in ("train", "serve", "describe") if self.trainer and not hasattr(self.trainer, n)
        ]:
            raise TypeError(f"trainer has no {', '.join(missing)}: see cotkit.pipelines.Trainer")
        if hasattr(self.trainer, "check"):  # cotkit.train's: their options, without training
            self.trainer.check(dict.fromkeys(_listed(self.method)))
        if self.verifier is not None and not isinstance(self.verifier, Verifier):
            raise TypeError(f"verifier must be a Verifier, got {type(self.verifier).__name__}")
        lengths = [getattr(self.filters, name, None) for name in ("min_chars", "max_chars")]
        if not isinstance(self.filters, Filters) or not all(isinstance(n, int) for n in lengths):
            raise TypeError(f"filters must be a Filters, its lengths whole numbers, got {self.filters!r}")

    def _values(self, name: str) -> list[Any]:
        """The values of an option: several where it may be one a cycle."""
        value = getattr(self, name)
        return _listed(value) if name in _A_CYCLE else [value]

    def _unchecked(self) -> list[str]:
        """The ids of problems that bring nothing to check an answer by: critics alone judge these."""
        verifier = self.verifier or AnswerVerifier()
        bare = [p.id for p in self.problems if not verifier.can_check(p)]
        if bare and not self.critics:
            raise ValueError(
                f"{len(bare)} of {len(self.problems)} problems bring nothing to check an answer by, neither "
                f"a reference nor a program (first: {bare[0]!r}), and there are no critics to score it: give "
                "critics=[...]"
            )
        return bare

    def checks(self, row: Row) -> bool:
        """Whether the verifier can check an answer to the problem of a row."""
        return row.id not in self._bare

    def _check_examples_needed(self) -> None:
        trained, a_problem = len(self.of_set("train")), self.max_per_problem
        if a_problem and self.min_examples > trained * a_problem:
            raise ValueError(
                f"min_examples={self.min_examples} is out of reach: there are {trained} problems to train "
                f"on, and of each at most max_per_problem={a_problem} examples"
            )

    def _check_dev(self) -> None:
        """A trainer needs problems to be judged by."""
        held, given = len(self.of_set("dev")), len(self.problems)
        if self.trainer is not None and held < LEAST_DEV:
            raise ValueError(
                f"dev={self.dev} holds out {held} of {given} problems, and on these it is decided whether "
                "training helped: give more problems, a larger dev, or no trainer"
            )
        if few := self._few_dev():
            warnings.warn(few, stacklevel=5)  # at the caller of `self_improve`

    def _check_drafts(self) -> None:
        """Several drafts of a problem are to differ."""
        drafted = dict.fromkeys(("num_generations", "dev_generations"), self.actor)
        drafted["teacher_generations"] = self.teacher
        for name, model in drafted.items():
            own = model and model.endpoints[0].options.temperature
            if getattr(self, name) > 1 and (own if self.temperature is None else self.temperature) == 0:
                said = f"{name}={getattr(self, name)} at temperature 0 gives the same draft as often"
                warnings.warn(f"{said}: set temperature, or {name}=1", stacklevel=5)

    def _own_critics(self) -> str:
        asked = self.judge(0).models if self.critics else []
        own = ", ".join(model.name for model in asked if model.model == self.actor.model)
        return f"The critic {own} is the actor's own model: models prefer their own words." if own else ""

    def _few_dev(self) -> str:
        held, least = len(self.of_set("dev")), analysis.alarms.LEAST
        if self.trainer is None or held >= least:
            return ""
        return (
            f"The dev set holds {held} problems, and no trained actor is promoted on fewer than {least}: "
            "give more problems or a larger dev."
        )

    def _held_out_types(self) -> str:
        """What dev and test are made of where types are held out."""
        if not self.held_out_types:
            return ""
        test = [family(p) in self.held_out_types for p in self.of_set("test")]
        return (
            f"The test set holds all {sum(test)} problems of the types held out of training "
            f"({', '.join(self.held_out_types)}) and {len(test) - sum(test)} others; the "
            f"{len(self.of_set('dev'))} dev problems, which decide promotions, are of the trained types."
        )

    def policy_of(self, method: str) -> str | None:
        """The policy given for what this method is trained on; None = the usual one."""
        return next((p for p in _listed(self.policy) if p in POLICIES[method]), None)

    def _check_policy(self) -> None:
        """Refuses a policy that no method takes, and what could give no example."""
        methods = dict.fromkeys(_listed(self.method))
        given = [policy for policy in _listed(self.policy) if policy is not None]
        known = "; ".join(f"{m}: {', '.join(POLICIES[m]) or 'none'}" for m in methods)
        for policy in given:
            if not any(policy in POLICIES[method] for method in methods):
                raise ValueError(f"policy {policy!r} fits no method of this run; known: {known}")
        for method in methods:
            if len([policy for policy in given if policy in POLICIES[method]]) > 1:
                raise ValueError(f"policy={self.policy!r} names more than one for {method!r}; known: {known}")
        checked = len(self.unchecked) < len(self.problems)
        verified = (checked, "problems that a program can check")
        solutions = (str(p.metadata.get("solution") or p.reference or "") for p in self.problems)
        solved = any(len(text.split()) > 3 for text in solutions)  # see `pairing`
        needs = {
            "correct_vs_wrong": verified,
            "first_correct": verified,
            "first_vs_last": (self.iterations > 0, "iterations of at least 1"),
            GOLD: (solved, "worked solutions (as `solution`, or in the reference)"),
        }
        for policy in given:
            if policy in needs and not needs[policy][0]:
                raise ValueError(f"policy {policy!r} needs {needs[policy][1]}")
        if "kto" in methods and not checked and self.score_threshold is None:
            raise ValueError("method 'kto' needs bad answers too: without references give a score_threshold")
        for cycle in range(self.cycles):
            method = self.of_cycle("method", cycle)
            name = "teacher_generations" if self.teacher and not cycle else "num_generations"
            pairs = POLICIES[method] is _OF_PAIRS and self.policy_of(method) != GOLD
            if pairs and getattr(self, name) + self.iterations < 2:
                raise ValueError(f"cycle {cycle}, {method}: one trace a problem makes no pair: raise {name}")

    def recipe(self, cycle: int) -> Recipe:
        """What the drafts of a cycle are made with, by an actor that is not trained yet."""
        taught, judge = self.teacher is not None and cycle == 0, self.judge(cycle)
        return make_recipe(
            self.problems,
            self.teacher if taught else self.actor,
            judge,
            improver=self.improver,
            num_generations=self.teacher_generations if taught else self.num_generations,
            max_iterations=self.iterations,
            score_threshold=self.score_threshold,
            verifier=self.verifier,
            judge_all=None if self.gold else True,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            **self.seeds(cycle),
            **self.asking(trained=False),
        )

    def seed_of(self, role: str, cycle: int = 0) -> int:
        """The seed of what a role samples in a cycle: its own, else the loop's, moved by the cycle."""
        own = own_seed(getattr(self, role))
        return (self.seed if own is None else own) + 1000 * cycle

    def seeds(self, cycle: int) -> dict[str, int | None]:
        """The seeds of a cycle's drafts and refinements, as options of `distill`."""
        drafter = "teacher" if self.teacher is not None and cycle == 0 else "actor"
        improver = self.seed_of("improver", cycle) if self.improver is not None else None
        return {"seed": self.seed_of(drafter, cycle), "improver_seed": improver}

    def judge(self, version: int) -> Any:
        """The critics as one judge, with wording `version` of the prompt pool."""
        task = self.description or SOLVE
        return make_panel(self.critics, self.dimensions, task, self.aggregate, self.seed + version)

    def dev_judge(self, who: Any = None) -> Any:
        """The critics (or one other critic) with the first wording: for what is compared between cycles."""
        critics = self.critics if who is None else [who]
        return make_panel(critics, self.dimensions, self.description or SOLVE, self.aggregate, 0)

    def of_cycle(self, name: str, cycle: int) -> Any:
        """The value of an option that may be one a cycle; the last goes on."""
        values = _listed(getattr(self, name))
        return values[min(cycle, len(values) - 1)]

    def asking(self, trained: bool, examples: bool = True) -> dict[str, Any]:
        """How an actor is asked: a trained one as it was trained, with the bare problem; else with the
        shipped prompts and the worked examples."""
        prompts = {}
        if self.description:
            prompts = {name: with_task(p, self.description) for name, p in _TASK_PROMPTS.items()}
        elif trained or not examples:
            prompts = {"reasoning": "{{ problem }}"}
        shots = self.few_shot_examples if examples and not trained else None
        return {"prompts": prompts or None, "few_shot_examples": shots}

    def of_set(self, name: str) -> list[Problem]:
        return [p for p in self.problems if self.sets[p.id] == name]

    def notes(self) -> list[str]:
        """What a reader of the report must know."""
        own, bare, few = self._own_critics(), len(self.unchecked), self._few_dev()
        apart = self._held_out_types()
        pleased = self.trainer and not self.gold and self.holdout_critic is None
        notes = {
            own: own,
            "There was no trainer: the cycles are data only, the actor never changed.": self.trainer is None,
            f"No program can check the answers to {bare} of {len(self.problems)} problems: on these the "
            "critics alone decide, and nothing is verified.": bare,
            few: few,
            apart: apart,
            "The critics that the actor is trained to please also decide whether it is promoted; a "
            "holdout_critic would show when they alone are pleased.": pleased,
            "More than four cycles on one set of problems mostly overfit.": self.cycles > 4,
        }
        return [text for text, holds in notes.items() if holds]

    def describe(self) -> dict[str, Any]:
        """What the rows and reports depend on, compared on resume. `cycles` may grow."""
        judge, holdout = self.judge(0), self.holdout_critic
        given: list = sorted((p.id, p.problem, p.reference) for p in self.problems)
        given += sorted((p.id, repr(p.metadata)) for p in self.problems if has_program(p))
        how = sorted((p.id, p.answer_type, p.tolerance, p.metadata.get("solution")) for p in self.problems)
        described = ("actor", "improver", "teacher", "trainer", "verifier", "filters")
        return {
            "pipeline": "self_improve",
            "task_hash": _hash([self.description, *given]),
            CHECKED_HASH: _hash(how),
            "sets_hash": _hash(sorted(self.sets.items())),
            **{name: (one := getattr(self, name)) and one.describe() for name in described},
            "critics": judge.describe() if judge else None,
            "holdout_critic": self.dev_judge(holdout).describe() if holdout else None,
            "few_shot_hash": _hash(self.few_shot_examples) if self.few_shot_examples else None,
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def estimate(self) -> pandas.DataFrame:
        return estimate(self)


_TASK_PROMPTS = {"reasoning": "actor", "refine": "improver"}
_WHOLE = {  # option: at least
    "cycles": 1, "iterations": 0, "num_generations": 1, "teacher_generations": 1, "dev_generations": 1,
    "min_examples": 1, "max_per_problem": 1, "problems_per_cycle": 1,
}  # fmt: skip
_A_CYCLE = ("method", "problems_per_cycle")  # options that may be a list
_OR_NONE = ("min_examples", "max_per_problem", "problems_per_cycle")
_CHOICES = {"aggregate": RULES, "method": tuple(METHODS), "resume": ("auto", "must", "never")}
_NO_CYCLE = (
    ": TRL has no PPO any more, and GRPO samples and rewards by itself instead of learning from a cycle's "
    "traces: cotkit.train.train('grpo', ..., reward=cotkit.Environment(problems).as_trl_reward())"
)
_PLAIN = (
    "iterations", "aggregate", "score_threshold", "num_generations", "teacher_generations",
    "problems_per_cycle", "method", "policy", "max_per_problem", "min_examples", "replay_fraction",
    "dev_generations", "temperature", "max_tokens", "seed",
)  # fmt: skip


def _critics(given: Any, name: str) -> list[Any]:
    """Models and judges as a list; one may stand alone."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, Mapping))
    critics = list(given) if several else [given]
    for critic in critics:
        if not hasattr(critic, "acomplete") and not hasattr(critic, "ajudge"):
            raise TypeError(
                f"{name} must be ChatModels or judges, got {type(critic).__name__}: give ChatModel(...), or "
                "StepJudge()"
            )
    return critics


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()[:16]
