"""What a distillation is made with: every option checked before the first call, gathered in a `Recipe`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2

from cotkit.chat import check_sampling
from cotkit.judge import Thresholds
from cotkit.problems import Problem
from cotkit.prompts import Prompt, load_all
from cotkit.verify import AnswerPolicy, AnswerVerifier, Verifier

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

PROMPTS = ("reasoning", "refine", "rationalize", "code")


@dataclass(frozen=True)
class Recipe:
    """Everything a row depends on. `describe()` is what the run folder compares on resume."""

    generator: ChatModel
    judge: Any
    improver: ChatModel
    prompts: dict[str, Prompt]
    thresholds: Thresholds
    num_generations: int
    max_iterations: int
    few_shot: str | Sequence[dict[str, str]] | None
    rationalization: bool
    verifier: Verifier
    show_trace: bool
    judge_all: bool
    require_verdict: bool
    unchecked: str
    seed: int  # of the generator
    improver_seed: int
    sampling: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        seeds = {} if self.improver_seed == self.seed else {"improver_seed": self.improver_seed}
        few_shot = hashlib.sha256(repr(self.few_shot).encode()).hexdigest()[:16] if self.few_shot else None
        return {
            "pipeline": "distill",
            "generator": self.generator.describe(),
            "improver": None if self.improver is self.generator else self.improver.describe(),
            "judge": self.judge.describe() if self.judge else None,
            "prompts": {name: prompt.hash for name, prompt in self.prompts.items()},
            "thresholds": self.thresholds.describe(),
            "few_shot_hash": few_shot,
            "verifier": self.verifier.describe(),
            **seeds,
            **{
                name: getattr(self, name)
                for name in (
                    "num_generations",
                    "max_iterations",
                    "rationalization",
                    "show_trace",
                    "judge_all",
                    "require_verdict",
                    "unchecked",
                    "seed",
                    "sampling",
                )
            },
        }

    @property
    def roles(self) -> dict[str, Any]:
        """Every model the run asks, by what it does."""
        asked = {"generator": self.generator, "improver": self.improver}
        for role, asker in (("judge", self.judge), ("verifier", self.verifier)):
            asked |= {f"{role} {model.name}": model for model in (asker.models if asker else [])}
        return asked


def make_recipe(
    problems: Sequence[Problem],
    generator: ChatModel,
    judge: Any = None,
    *,
    improver: ChatModel | None = None,
    num_generations: int = 1,
    rejection_sampling_n: int | None = None,
    max_iterations: int = 3,
    score_threshold: float | dict[str, float] | str | os.PathLike[str] | None = 0.7,
    rule: str = "all",
    few_shot_examples: str | Sequence[dict[str, str]] | None = None,
    rationalization: bool = False,
    solution_pattern: str | None = None,
    trace_pattern: str | None = None,
    answer_policy: AnswerPolicy | None = None,
    verifier: Verifier | None = None,
    show_trace: bool = True,
    judge_all: bool | None = None,
    require_verdict: bool = True,
    unchecked: str = "refuse",
    prompts: dict[str, str] | None = None,
    seed: int | None = None,
    improver_seed: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
) -> Recipe:
    """The checked options; raises ValueError or TypeError for whatever could not work."""
    improver = improver or generator
    _check_roles(generator, improver, judge)
    drafts = _count("num_generations", num_generations, 1)
    num_generations = _count("rejection_sampling_n", rejection_sampling_n, drafts)
    if 1 != drafts != num_generations:  # 1 is what nobody needs to have said
        raise ValueError(
            f"num_generations={drafts} and rejection_sampling_n={rejection_sampling_n}: both are the number "
            "of drafts a problem; give one of them"
        )
    if not isinstance(max_iterations, int) or isinstance(max_iterations, bool) or max_iterations < 0:
        raise ValueError(f"max_iterations must be 0 or more, got {max_iterations!r}")
    if judge is None and judge_all is True:
        raise ValueError("judge_all=True, but there is no judge to score the drafts: give a judge=")
    if judge_all is None:
        judge_all = not getattr(judge, "calls_model", False)
    _check_flags(
        rationalization=rationalization,
        show_trace=show_trace,
        judge_all=judge_all,
        require_verdict=require_verdict,
    )
    if unchecked not in ("refuse", "keep"):
        raise ValueError(f"unchecked must be 'refuse' or 'keep', got {unchecked!r}")
    verifier = _verifier(verifier, answer_policy, solution_pattern, trace_pattern)
    verifier.check_problems(problems)
    if judge is None and unchecked == "refuse":
        _refuse_unchecked(problems, verifier)
    if judge is None and isinstance(score_threshold, dict):
        raise ValueError("score_threshold names dimensions, but there is no judge to score them")
    if judge is None:
        thresholds = Thresholds.parse(score_threshold, rule=rule)
    else:
        asked = {"max_iterations": max_iterations, "num_generations": num_generations}
        asked["types"] = {problem.type or "" for problem in problems}
        asked["models"] = {generator.model}
        thresholds = Thresholds.for_judge(score_threshold, judge, rule, **asked)
    few_shot = _few_shot(few_shot_examples)
    _refuse_shown(problems, few_shot)
    sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
    for given in (seed, improver_seed):
        check_sampling({**sampling, "seed": given}, None)
    if improver_seed is None:
        improver_seed = own_seed(improver) if seed is None else seed
    if seed is None:
        seed = own_seed(generator) or 0
    recipe = Recipe(
        generator=generator,
        judge=judge,
        improver=improver,
        prompts=load_all(prompts, *PROMPTS),
        thresholds=thresholds,
        num_generations=num_generations,
        max_iterations=max_iterations,
        few_shot=few_shot,
        rationalization=rationalization,
        verifier=verifier,
        show_trace=show_trace,
        judge_all=judge_all,
        require_verdict=require_verdict,
        unchecked=unchecked,
        seed=seed,
        improver_seed=seed if improver_seed is None else improver_seed,
        sampling={name: value for name, value in sampling.items() if value is not None},
    )
    _try_prompts(recipe)
    return recipe


def own_seed(model: Any) -> int | None:
    """The seed that a ChatModel was given, at its first endpoint; None = none."""
    endpoints = getattr(model, "endpoints", None)
    return endpoints[0].options.seed if endpoints else None


def _check_roles(generator: Any, improver: Any, judge: Any) -> None:
    for name, model in (("generator", generator), ("improver", improver)):
        if not hasattr(model, "acandidates"):
            raise TypeError(f"{name} must be a ChatModel, got {type(model).__name__}")
    if judge is not None and not hasattr(judge, "ajudge"):
        raise TypeError(
            f"judge must be an LLMJudge, RewardModelJudge or StepJudge, got {type(judge).__name__}; "
            "wrap a ChatModel as LLMJudge(model)"
        )


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")


def _count(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def as_examples(given: Any) -> str | list[Any] | None:
    """`few_shot_examples` as a text or a list; a generator would be gone after one look."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TypeError(
            "few_shot_examples must be a text or a list of {'problem': ..., 'trace': ...}, "
            f"got {type(given).__name__}"
        )
    return list(given)


def _few_shot(examples: Any) -> str | list[dict[str, str]] | None:
    examples = as_examples(examples)
    if not examples or isinstance(examples, str):
        return examples or None
    for number, example in enumerate(examples):
        if not isinstance(example, dict) or not {"problem", "trace"} <= set(example):
            raise ValueError(
                f"few_shot_examples, item {number}: needs the keys 'problem' and 'trace' (or give one string)"
            )
    return [{"problem": str(e["problem"]), "trace": str(e["trace"])} for e in examples]


def _refuse_shown(problems: Sequence[Problem], few_shot: str | Sequence[dict[str, str]] | None) -> None:
    """ValueError for a worked example that is one of the problems: the model would read its answer."""
    if few_shot is None or isinstance(few_shot, str):
        return
    shown = {" ".join(example["problem"].split()): n for n, example in reversed(list(enumerate(few_shot)))}
    texts = ((problem.id, " ".join(problem.problem.split())) for problem in problems)
    if both := [(id, shown[text]) for id, text in texts if text in shown]:
        (id, number), count = both[0], f" ({len(both)} problems are shown in all)" if both[1:] else ""
        raise ValueError(
            f"few_shot_examples, item {number}: it is the problem {id!r} and shows its answer to the model "
            f"that is to solve it{count}. Leave it out of the examples or of the problems"
        )


def _verifier(
    verifier: Verifier | None, policy: AnswerPolicy | None, solution: str | None, trace: str | None
) -> Verifier:
    if verifier is None:
        return AnswerVerifier(policy, solution_pattern=solution, trace_pattern=trace)
    if not isinstance(verifier, Verifier):
        raise TypeError(f"verifier must be a Verifier, such as AnswerVerifier(), got {verifier!r}")
    both = {"answer_policy": policy, "solution_pattern": solution, "trace_pattern": trace}
    if given := [name for name, value in both.items() if value is not None]:
        raise ValueError(f"{' and '.join(given)} would not be used beside verifier=: give it to the verifier")
    return verifier


def _refuse_unchecked(problems: Sequence[Problem], verifier: Verifier) -> None:
    bare = [problem.id for problem in problems if not verifier.can_check(problem)]
    if bare:
        raise ValueError(
            f"{len(bare)} of {len(problems)} problems have no reference answer (first: id {bare[0]!r}) or "
            "program to check one, and there is no judge, so nothing would check their traces. Give a "
            "judge=, give references, or say unchecked='keep' to keep unchecked traces."
        )


def _try_prompts(recipe: Recipe) -> None:
    """A template that cannot be rendered fails here, before the first paid call."""
    values = {name: f"<{name}>" for name in ("problem", "trace", "feedback", "answer", "few_shot", "form")}
    for name, prompt in recipe.prompts.items():
        try:
            messages = prompt.messages(**values)
        except jinja2.TemplateError as error:
            raise ValueError(f"prompt {name!r}: {error}; it may use {', '.join(values)}") from None
        if not any("<problem>" in message["content"] for message in messages):
            raise ValueError(f"prompt {name!r} does not show the problem: put {{{{ problem }}}} into it")
