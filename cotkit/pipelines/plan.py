"""What a self-improvement run is asked to do: its options, checked before anything is paid, and its
estimate."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from cotkit.pipelines.critics import RULES, calls_of_watch, make_panel, with_task
from cotkit.pipelines.curriculum import assert_apart, split_problems
from cotkit.pipelines.pairing import METHODS, Filters
from cotkit.pipelines.progress import Show, check_show
from cotkit.problems import Problem, load_problems
from cotkit.verify import reference_answer

if TYPE_CHECKING:
    import pandas

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
    policy: str | None = None
    max_per_problem: int | None = 4
    min_examples: int = 8
    filters: Filters = field(default_factory=Filters)
    replay_fraction: float = 0.2
    dev: int | float = 0.15
    test: int | float = 0.25
    held_out_types: Sequence[str] = ()
    dev_generations: int = 1
    temperature: float | None = 0.8
    max_tokens: int | None = None
    seed: int = 0
    run: Any = None
    resume: str = "auto"
    budget_usd: float | None = None
    budget_calls: int | None = None
    budget_tokens: int | None = None
    show: Show = "auto"

    def __post_init__(self) -> None:
        self.description, self.problems = self._read_task()
        self.gold = any(p.reference is not None and reference_answer(p.reference) for p in self.problems)
        self.critics = [self.critics] if hasattr(self.critics, "acomplete") else list(self.critics)
        self._check()
        self.sets = split_problems(self.problems, self.dev, self.test, self.held_out_types, self.seed)
        self._check_examples()
        self.judge(0)  # wrong dimensions, rules or prompts are found here

    def _read_task(self) -> tuple[str | None, list[Problem]]:
        if not isinstance(self.task, Mapping) or not _TASK_KEYS & set(self.task):
            return None, load_problems(self.task)
        if unknown := sorted(set(self.task) - _TASK_KEYS):
            raise ValueError(f"task has unknown keys {unknown}; known: {', '.join(sorted(_TASK_KEYS))}")
        self.dimensions = self.dimensions or self.task.get("dimensions")
        description = self.task.get("description")
        if "problems" in self.task:
            return description, load_problems(self.task["problems"])
        prompts = list(self.task.get("prompts") or [description])
        if not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
            raise ValueError("task: each prompt must be a text; or give problems= with references")
        return description, [Problem(id=f"prompt-{i}", problem=p) for i, p in enumerate(prompts, 1)]

    def held_out(self) -> dict[str, str]:
        """{id: text} of the problems that nobody may learn from."""
        return {p.id: p.problem for p in self.problems if self.sets[p.id] != "train"}

    def _check_examples(self) -> None:
        given = [] if isinstance(self.few_shot_examples, str) else self.few_shot_examples or []
        shown = [str(one["problem"]) for one in given if isinstance(one, Mapping) and "problem" in one]
        named = {f"few_shot_examples, item {i}": text for i, text in enumerate(shown, 1)}
        try:
            assert_apart(named, self.held_out())
        except AssertionError as error:
            raise ValueError(f"{error}: give another example") from None

    def _check(self) -> None:
        check_show(self.show)
        for name, least in _WHOLE.items():
            for value in _listed(getattr(self, name)):
                whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
                if not whole and not (value is None and name in _OR_NONE):
                    raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        for name, known in _CHOICES.items():
            if wrong := [value for value in _listed(getattr(self, name)) if value not in known]:
                hint = _NO_CYCLE if wrong[0] in ("ppo", "grpo") else ""
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {wrong[0]!r}{hint}")
        if self.resume == "never":
            raise ValueError("resume='never' would mix two runs: to start anew, use another run name")
        if not 0 <= self.replay_fraction <= 1:
            raise ValueError(f"replay_fraction is a share from 0 to 1, got {self.replay_fraction!r}")
        for name in ("actor", "improver", "teacher"):
            model = getattr(self, name)
            if not hasattr(model, "acandidates") and (name == "actor" or model is not None):
                raise TypeError(f"{name} must be a ChatModel, got {type(model).__name__}")
        if missing := [
            n for n in ("train", "serve", "describe") if self.trainer and not hasattr(self.trainer, n)
        ]:
            raise TypeError(f"trainer has no {', '.join(missing)}: see cotkit.pipelines.Trainer")
        bare = [p.id for p in self.problems if not p.reference]
        if bare and not self.critics:
            raise ValueError(
                f"{len(bare)} of {len(self.problems)} problems have no reference (first: {bare[0]!r}) and "
                "there are no critics, so nothing would tell good answers from bad: give critics=[...]"
            )

    def judge(self, version: int) -> Any:
        """The critics as one judge, with wording `version` of the prompt pool."""
        task = self.description or SOLVE
        return make_panel(self.critics, self.dimensions, task, self.aggregate, self.seed + version)

    def dev_judge(self, who: Any = None) -> Any:
        """The critics (or one other critic) with the first wording: for what is compared between cycles."""
        critics = self.critics if who is None else [who]
        return make_panel(critics, self.dimensions, self.description or SOLVE, self.aggregate, 0)

    def of_cycle(self, name: str, cycle: int) -> Any:
        """The value of an option that may be one a cycle (`method`, `problems_per_cycle`); the last goes
        on."""
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
        own = [m.name for m in self.judge(0).models if m.model == self.actor.model] if self.critics else []
        notes = {
            f"The critic {', '.join(own)} is the actor's own model: models prefer their own words.": own,
            "There was no trainer: the cycles are data only, the actor never changed.": self.trainer is None,
            "No problem has a reference: the critics alone decide, nothing is verified.": not self.gold,
            "More than four cycles on one set of problems mostly overfit.": self.cycles > 4,
        }
        return [text for text, holds in notes.items() if holds]

    def describe(self) -> dict[str, Any]:
        """What the rows and reports depend on, compared on resume. `cycles` may grow."""
        judge, holdout = self.judge(0), self.holdout_critic
        given = sorted((p.id, p.problem, p.reference) for p in self.problems)
        described = ("actor", "improver", "teacher", "trainer", "verifier", "filters")
        return {
            "pipeline": "self_improve",
            "task_hash": _hash([self.description, *given]),
            "sets_hash": _hash(sorted(self.sets.items())),
            **{name: (one := getattr(self, name)) and one.describe() for name in described},
            "critics": judge.describe() if judge else None,
            "holdout_critic": self.dev_judge(holdout).describe() if holdout else None,
            "few_shot_hash": _hash(self.few_shot_examples) if self.few_shot_examples else None,
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def estimate(self) -> pandas.DataFrame:
        """Calls and tokens of the whole run at most, by step and role, and their cost where prices are known;
        nothing is asked. Tokens: four characters each, answers at max_tokens. Training is not in it.
        """
        import pandas

        train, dev, test = (len(self.of_set(name)) for name in ("train", "dev", "test"))
        drawn = [min(train, self.of_cycle("problems_per_cycle", c) or train) for c in range(self.cycles)]
        drafts = [n * self.num_generations for n in drawn]
        taught = drawn[0] * self.teacher_generations if self.teacher else drafts[0]
        refined = sum(drawn) * self.iterations
        traces = taught + sum(drafts[1:]) + refined
        evaluated = (dev * (self.cycles + 1) + 4 * test) * self.dev_generations if self.trainer else 0
        scored = traces + calls_of_watch(traces, self.cycles) + evaluated
        held = dev * (self.cycles + 1) if self.trainer else 2 * sum(drawn)
        critics, holdout = self.judge(0), self.holdout_critic and self.dev_judge(self.holdout_critic)
        steps = [
            ("draft", self.teacher or self.actor, taught),
            ("draft", self.actor, sum(drafts[1:])),
            ("refine", self.improver or self.actor, refined),
            *(("criticise", m, scored) for m in (critics.models if critics else ())),
            *(("hold-out critic", m, held) for m in (holdout.models if holdout else ())),
            ("evaluate", self.actor, evaluated),
        ]
        asked = sum(len(p.problem) for p in self.problems) / len(self.problems) + 900  # characters
        lines = []
        for step, model, calls in steps:
            endpoint = model.endpoints[0]
            prompt = round(calls * asked / 4)
            answer = calls * (self.max_tokens or endpoint.options.max_tokens or 512)
            usd = endpoint.price(prompt, answer, 0) if endpoint.price else None
            line = {"step": step, "model": model.name, "calls": calls, "prompt_tokens": prompt}
            lines += [line | {"completion_tokens": answer, "usd": usd}] if calls else []
        frame = pandas.DataFrame(lines).astype({"usd": float})
        total = {name: frame[name].sum(skipna=False) for name in frame.columns[2:]}
        return pandas.concat([frame, pandas.DataFrame([{"step": "all", **total}])], ignore_index=True)


_TASK_PROMPTS = {"reasoning": "actor", "refine": "improver"}
_WHOLE = {  # option: at least
    "cycles": 1, "iterations": 0, "num_generations": 1, "teacher_generations": 1, "dev_generations": 1,
    "min_examples": 1, "max_per_problem": 1, "problems_per_cycle": 1,
}  # fmt: skip
_OR_NONE = ("max_per_problem", "problems_per_cycle")
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


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()[:16]
