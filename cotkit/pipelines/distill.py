"""Distillation: problems in, verified, judged and refined reasoning traces out.

After CAMEL's self-improving chain-of-thought pipeline and STaR (Zelikman et al. 2022, arXiv 2203.14465). For
each problem, on its own:

1. draft      `num_generations` traces; the answer of each is verified by program
2. judge      the drafts that can be chosen are scored; verified first, then the best score
3. refine     while nothing is accepted and at most `max_iterations` times, the best trace so far is
              written again on feedback from the verifier, the thresholds and the judge
4. rationalize  (on request) a problem that was never solved is tried once with the answer as a hint;
              the row is flagged and checked for leaks
5. decide     accepted = verdict not False, thresholds met; final = accepted, then verified, then best score

Every candidate is recorded; the reference is shown to the generator in step 4 only.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
import os
import pathlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2

from cotkit import aio
from cotkit.chat import CallLedger, Completion, ModelError, check_sampling
from cotkit.judge import Thresholds
from cotkit.pipelines.acceptance import best_of, decide, drop_reason, feedback_on, spoilt
from cotkit.pipelines.leaks import trace_leaks
from cotkit.pipelines.progress import Show, check_show
from cotkit.pipelines.running import Misconfigured, RunJob, Work, new_row
from cotkit.problems import Problem, load_problems
from cotkit.prompts import Prompt, load_all
from cotkit.records import Candidate, Row, Stage, Verdict
from cotkit.runs import Run, folder_name
from cotkit.verify import AnswerPolicy, acheck_answer, check_answer, extract, reference_answer

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

PROMPTS = ("reasoning", "refine", "rationalize")


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
    solution_pattern: str | None
    trace_pattern: str | None
    answer_policy: AnswerPolicy
    show_trace: bool
    judge_all: bool
    require_verdict: bool
    unchecked: str
    seed: int
    sampling: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        few_shot = hashlib.sha256(repr(self.few_shot).encode()).hexdigest()[:16] if self.few_shot else None
        return {
            "pipeline": "distill",
            "generator": self.generator.describe(),
            "improver": None if self.improver is self.generator else self.improver.describe(),
            "judge": self.judge.describe() if self.judge else None,
            "prompts": {name: prompt.hash for name, prompt in self.prompts.items()},
            "thresholds": self.thresholds.describe(),
            "few_shot_hash": few_shot,
            "answer_policy": dataclasses.asdict(self.answer_policy),
            **{
                name: getattr(self, name)
                for name in (
                    "num_generations",
                    "max_iterations",
                    "rationalization",
                    "solution_pattern",
                    "trace_pattern",
                    "show_trace",
                    "judge_all",
                    "require_verdict",
                    "unchecked",
                    "seed",
                    "sampling",
                )
            },
        }


class Distiller:
    """Turns one problem into one row. Holds no state of its own: everything goes into the row."""

    def __init__(self, recipe: Recipe, ledger: CallLedger):
        self.recipe, self.ledger = recipe, ledger

    async def __call__(self, index: int, problem: Problem) -> Row:
        started = time.monotonic()
        row = new_row(index, problem)
        await self._draft(row, problem)
        await self._refine(row, problem)
        if self.recipe.rationalization:
            await self._rationalize(row, problem)
        decide(row, self.recipe)
        row.seconds = round(time.monotonic() - started, 3)
        return row

    async def _draft(self, row: Row, problem: Problem) -> None:
        recipe, prompt = self.recipe, self.recipe.prompts["reasoning"]
        messages = with_examples(prompt, recipe.few_shot, problem=problem.problem)
        answers = await recipe.generator.acandidates(
            messages, recipe.num_generations, role="generator", **self._options(problem)
        )
        for index, answer in enumerate(answers):
            if isinstance(answer, ModelError):
                note_error(row, "draft", answer, sample_index=index)
            else:
                row.candidates.append(await self._candidate(answer, problem, "draft", prompt))
        judged = (c for c in row.candidates if recipe.judge_all or self._can_be_chosen(c, row.candidates))
        await aio.together(self._judge(candidate, problem) for candidate in judged)

    def _can_be_chosen(self, candidate: Candidate, drafts: Sequence[Candidate]) -> bool:
        """Verified first, then judged best: a judge's call is spent only on drafts that are still in play."""
        if any(c.verdict.correct for c in drafts) and self.recipe.require_verdict:
            return bool(candidate.verdict.correct)
        return not spoilt(candidate, self.recipe)

    async def _refine(self, row: Row, problem: Problem) -> None:
        for iteration in range(1, self.recipe.max_iterations + 1):
            index = best_of(row.candidates)
            if index is None or row.candidates[index].accepted:
                return
            parent = row.candidates[index]
            if parent.judgement is None:
                await self._judge(parent, problem)  # for its feedback
            if drop_reason(parent, self.recipe) == "judge_failed":
                return  # there is nothing to go by; a resumed run asks the judge again
            try:
                candidate = await self._improve(parent, index, iteration, problem)
            except ModelError as error:
                note_error(row, "refine", error, iteration=iteration)
                return
            if self.recipe.judge_all or not spoilt(candidate, self.recipe):
                await self._judge(candidate, problem)
            row.candidates.append(candidate)

    async def _improve(self, parent: Candidate, index: int, iteration: int, problem: Problem) -> Candidate:
        recipe, prompt = self.recipe, self.recipe.prompts["refine"]
        parent.feedback = feedback_on(parent, recipe.thresholds, self._gold(problem), problem.problem)
        messages = with_examples(
            prompt,
            recipe.few_shot,
            problem=problem.problem,
            trace=parent.text if recipe.show_trace else None,
            feedback=parent.feedback,
        )
        answer = await recipe.improver.acomplete(
            messages, sample_index=iteration, role="improver", **self._options(problem)
        )
        judge_saw = parent.judgement is not None and parent.judgement.saw_reference
        return await self._candidate(
            answer,
            problem,
            "refine",
            prompt,
            iteration=iteration,
            parent=index,
            saw_reference=parent.saw_reference or judge_saw,
        )

    async def _rationalize(self, row: Row, problem: Problem) -> None:
        gold = self._gold(problem)
        if gold is None or any(c.verdict.correct for c in row.candidates):
            return
        prompt = self.recipe.prompts["rationalize"]
        messages = prompt.messages(problem=problem.problem, answer=gold)
        try:
            answer = await self.recipe.generator.acomplete(
                messages, role="rationalizer", **self._options(problem)
            )
        except ModelError as error:
            note_error(row, "rationalize", error)
            return
        iteration = 1 + max((c.iteration for c in row.candidates), default=0)
        candidate = await self._candidate(
            answer, problem, "rationalize", prompt, iteration=iteration, saw_reference=True
        )
        if self.recipe.judge_all or not spoilt(candidate, self.recipe):
            await self._judge(candidate, problem)
        row.candidates.append(candidate)

    async def _candidate(
        self,
        answer: Completion,
        problem: Problem,
        stage: Stage,
        prompt: Prompt,
        *,
        iteration: int = 0,
        parent: int | None = None,
        saw_reference: bool = False,
    ) -> Candidate:
        found = extract(answer.text, self.recipe.trace_pattern)
        return Candidate(
            iteration=iteration,
            sample_index=answer.sample_index,
            stage=stage,
            parent=parent,
            trace=answer.trace,
            reasoning=answer.reasoning,
            text=answer.text,
            answer=found.answer,
            answer_how=found.how,
            truncated=answer.truncated,
            verdict=await self._verify(found.answer, answer.truncated, problem),
            saw_reference=saw_reference,
            rationalized=stage == "rationalize",
            leaks=trace_leaks(answer.trace, hinted=stage == "rationalize") if saw_reference else [],
            prompt={"name": prompt.name, "hash": prompt.hash},
            call=answer.provenance(),
        )

    async def _verify(self, answer: str | None, truncated: bool, problem: Problem) -> Verdict:
        gold = self._gold(problem)
        if gold is None:
            why = (
                "the problem has no reference" if problem.reference is None else "no answer in the reference"
            )
            return Verdict(correct=None, method="no_reference", reason=why)
        if not answer:
            why = "cut off before an answer" if truncated else "no final answer found"
            return Verdict(correct=False, method="no_answer", reason=why)
        policy = self.recipe.answer_policy
        return await acheck_answer(answer, gold, problem.answer_type, problem.tolerance, policy=policy)

    async def _judge(self, candidate: Candidate, problem: Problem) -> None:
        if self.recipe.judge is not None:
            candidate.judgement = await self.recipe.judge.ajudge(problem, candidate.trace, ledger=self.ledger)
        try:
            candidate.accepted = drop_reason(candidate, self.recipe) is None
        except ValueError as error:  # a threshold names a dimension that this reward model does not give
            raise Misconfigured(str(error)) from error

    def _gold(self, problem: Problem) -> str | None:
        if problem.reference is None:
            return None
        return reference_answer(problem.reference, self.recipe.solution_pattern)

    def _options(self, problem: Problem) -> dict[str, Any]:
        """Each problem has a seed of its own, the same in every run with this recipe's seed."""
        digest = hashlib.sha256(f"{self.recipe.seed}:{problem.id}".encode("utf-8", "surrogatepass")).digest()
        return {
            "ledger": self.ledger,
            "seed": int.from_bytes(digest[:4]) % 2**31,
            **self.recipe.sampling,
        }


def with_examples(
    prompt: Prompt, few_shot: str | Sequence[dict[str, str]] | None, **values: str | None
) -> list[dict[str, str]]:
    """The rendered messages; worked examples given as {problem, trace} come as earlier turns of the chat."""
    if few_shot is None or isinstance(few_shot, str):
        return prompt.messages(few_shot=few_shot, **values)
    messages = prompt.messages(few_shot=None, **values)
    turns = [
        {"role": role, "content": example[key]}
        for example in few_shot
        for role, key in (("user", "problem"), ("assistant", "trace"))
    ]
    at = 1 if messages[0]["role"] == "system" else 0
    return messages[:at] + turns + messages[at:]


def note_error(row: Row, stage: str, error: ModelError, **where: int) -> None:
    """Record a call that gave nothing; what stops the whole run goes on."""
    if error.stops_run:
        raise error
    row.errors.append({"stage": stage, "kind": error.kind, "message": str(error), **where})


def _prepare(
    problems: Any,
    generator: ChatModel,
    judge: Any = None,
    *,
    improver: ChatModel | None = None,
    num_generations: int = 1,
    rejection_sampling_n: int | None = None,
    max_iterations: int = 3,
    score_threshold: float | dict[str, float] | None = 0.7,
    rule: str = "all",
    few_shot_examples: str | Sequence[dict[str, str]] | None = None,
    rationalization: bool = False,
    solution_pattern: str | None = None,
    trace_pattern: str | None = None,
    answer_policy: AnswerPolicy | None = None,
    show_trace: bool = True,
    judge_all: bool | None = None,
    require_verdict: bool = True,
    unchecked: str = "refuse",
    prompts: dict[str, str] | None = None,
    seed: int = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    run: str | os.PathLike[str] | None = None,
    resume: str = "auto",
    use_cache: bool = True,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
    time_limit: float | None = None,
) -> Work:
    problems = load_problems(problems)
    improver = improver or generator
    _check_roles(generator, improver, judge)
    num_generations = _count("rejection_sampling_n", rejection_sampling_n, num_generations)
    num_generations = _count("num_generations", num_generations, 1)
    if not isinstance(max_iterations, int) or isinstance(max_iterations, bool) or max_iterations < 0:
        raise ValueError(f"max_iterations must be 0 or more, got {max_iterations!r}")
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
    _check_answers(problems, solution_pattern, trace_pattern)
    if judge is None and unchecked == "refuse":
        _refuse_unchecked(problems, solution_pattern)
    if judge is None and isinstance(score_threshold, dict):
        raise ValueError("score_threshold names dimensions, but there is no judge to score them")
    sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
    check_sampling({**sampling, "seed": seed}, None)
    recipe = Recipe(
        generator=generator,
        judge=judge,
        improver=improver,
        prompts=load_all(prompts, *PROMPTS),
        thresholds=(
            Thresholds.for_judge(score_threshold, judge, rule)
            if judge
            else Thresholds.parse(score_threshold, rule=rule)
        ),
        num_generations=num_generations,
        max_iterations=max_iterations,
        few_shot=_few_shot(few_shot_examples),
        rationalization=rationalization,
        solution_pattern=solution_pattern,
        trace_pattern=trace_pattern,
        answer_policy=answer_policy or AnswerPolicy(),
        show_trace=show_trace,
        judge_all=judge_all,
        require_verdict=require_verdict,
        unchecked=unchecked,
        seed=seed,
        sampling={name: value for name, value in sampling.items() if value is not None},
    )
    _try_prompts(recipe)
    config = recipe.describe()
    judges = judge.models if judge else []
    models = {id(m): m for m in (generator, improver, *judges)}
    roles = {"generator": generator, "improver": improver} | {f"judge {m.name}": m for m in judges}
    budgets = {"budget_usd": budget_usd, "budget_tokens": budget_tokens, "budget_calls": budget_calls}
    return Work(
        problems,
        lambda ledger: Distiller(recipe, ledger),
        run=run if run is not None else folder_name("distill", config),
        config=config,
        runtime={**budgets, "time_limit": time_limit},
        resume=resume,
        width=sum(getattr(m, "max_concurrency", 1) for m in models.values()),
        budgets=budgets,
        use_cache=use_cache,
        time_limit=time_limit,
        models=list(models.values()),
        facts=lambda: {"endpoints": {role: m.stats() for role, m in roles.items() if hasattr(m, "stats")}},
    )


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


def _few_shot(examples: Any) -> str | list[dict[str, str]] | None:
    if not examples:
        return None
    if isinstance(examples, str):
        return examples
    for number, example in enumerate(examples):
        if not isinstance(example, dict) or not {"problem", "trace"} <= set(example):
            raise ValueError(
                f"few_shot_examples, item {number}: needs the keys 'problem' and 'trace' (or give one string)"
            )
    return [{"problem": str(e["problem"]), "trace": str(e["trace"])} for e in examples]


def _check_answers(
    problems: Sequence[Problem], solution_pattern: str | None, trace_pattern: str | None
) -> None:
    """Raises what comparing would: an unknown answer_type, a tolerance or pattern that cannot work."""
    for name, pattern in (("solution_pattern", solution_pattern), ("trace_pattern", trace_pattern)):
        try:
            extract("", pattern)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    kinds = {(p.answer_type, p.tolerance): p.id for p in reversed(problems)}
    for (answer_type, tolerance), first in kinds.items():
        try:
            check_answer("0", "0", answer_type, tolerance)
        except (TypeError, ValueError) as error:
            raise ValueError(f"problem {first!r}: {error}") from None


def _refuse_unchecked(problems: Sequence[Problem], pattern: str | None) -> None:
    bare = [p.id for p in problems if p.reference is None or reference_answer(p.reference, pattern) is None]
    if bare:
        raise ValueError(
            f"{len(bare)} of {len(problems)} problems have no reference answer (first: id {bare[0]!r}) and "
            "there is no judge, so nothing would check their traces. Give a judge=, give references, or say "
            "unchecked='keep' to keep unchecked traces."
        )


def _try_prompts(recipe: Recipe) -> None:
    """A template that cannot be rendered fails here, before the first paid call."""
    values = {name: f"<{name}>" for name in ("problem", "trace", "feedback", "answer", "few_shot")}
    for name, prompt in recipe.prompts.items():
        try:
            messages = prompt.messages(**values)
        except jinja2.TemplateError as error:
            raise ValueError(f"prompt {name!r}: {error}; it may use {', '.join(values)}") from None
        if not any("<problem>" in message["content"] for message in messages):
            raise ValueError(f"prompt {name!r} does not show the problem: put {{{{ problem }}}} into it")


def distill(
    problems: Any,
    generator: ChatModel,
    judge: Any = None,
    *,
    output_path: str | os.PathLike[str] | None = None,
    show: Show = "auto",
    **options: Any,
) -> Run:
    """Distil verified, judged, refined reasoning traces; blocks, can be interrupted and called again.

    problems: what `load_problems` takes, or its result.
    generator: the ChatModel that writes traces (`improver=` another one that refines them).
    judge: LLMJudge, RewardModelJudge, StepJudge, JudgePanel or None (the verifier alone decides).
    num_generations (or `rejection_sampling_n`): drafts a problem; verified first, then judged best.
    max_iterations: refinements at most; 0 = distil only.
    score_threshold, rule: a float every dimension must reach (rule="mean": the mean), or {dimension: float}.
    few_shot_examples: a string, or [{"problem": ..., "trace": ...}] shown as earlier turns.
    rationalization: try a problem that was never solved once more with the answer as a hint (flagged).
    solution_pattern, trace_pattern: regular expressions with one group, for the answer in the reference
        and in the trace; None = the markers of `extract_answer`.
    answer_policy: how answers are compared, an `AnswerPolicy` (docs/verification.md).
    show_trace: False tells the improver what the review found, but not the trace: small models copy it.
    require_verdict: False records the verdict but lets thresholds alone decide.
    judge_all: score every draft (default: for judges that ask no model), not only those that can be chosen.
    unchecked: "keep" keeps traces of problems without reference when there is no judge.
    prompts: {name: Jinja2 text} in place of the shipped `reasoning`, `refine`, `rationalize`.
    seed, temperature, top_p, max_tokens: sampling, over the model's own settings.
    run, resume: name or path of the run folder (default: named by the configuration, so that the same call
        resumes); "auto", "never" (old rows are set aside) or "must".
    budget_usd, budget_tokens, budget_calls, time_limit (s): stop the run cleanly, results kept.
    use_cache: False asks again even where the cache has the answer.
    output_path: also write CAMEL's `{"traces": [...]}` file.
    show: progress as "auto", "bar", "lines" or "none".

    Raises ValueError or TypeError for anything wrong with problems or options, before the first call.
    """
    work = _work(problems, generator, judge, options, show, output_path)
    return _with_traces(work.run(show), output_path)


async def adistill(
    problems: Any,
    generator: ChatModel,
    judge: Any = None,
    *,
    output_path: str | os.PathLike[str] | None = None,
    show: Show = "auto",
    **options: Any,
) -> Run:
    """`distill` for a cell that awaits; the same options."""
    work = _work(problems, generator, judge, options, show, output_path)
    return _with_traces(await work.arun(show), output_path)


def start_distill(problems: Any, generator: ChatModel, judge: Any = None, **options: Any) -> RunJob:
    """`distill` in the background, with the same options: returns a job with progress, stop and result."""
    return _work(problems, generator, judge, options).start()


def _work(
    problems: Any,
    generator: ChatModel,
    judge: Any,
    options: dict[str, Any],
    show: Show = "none",
    output_path: str | os.PathLike[str] | None = None,
) -> Work:
    known = [name for name in inspect.signature(_prepare).parameters if name not in _POSITIONAL]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}"
            raise TypeError(f"distill has no option {name!r}; {hint}")
    check_show(show)
    if output_path is not None:
        target = pathlib.Path(output_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() or not os.access(target.parent, os.W_OK):
            raise ValueError(f"output_path {target} cannot be written: name a file in a folder of yours")
    return _prepare(problems, generator, judge, **options)


_POSITIONAL = ("problems", "generator", "judge")


def _with_traces(run: Run, output_path: str | os.PathLike[str] | None) -> Run:
    if output_path is not None:
        run.export(output_path, format="camel", card=False)
    return run


def _show_options(function: Any) -> None:
    """Shift-Tab in a notebook shows every option by name, though `_prepare` alone holds them."""
    own, options = inspect.signature(function), inspect.signature(_prepare).parameters.values()
    keep = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {p.name for p in keep}
    added = [p for p in options if p.name not in names]
    function.__signature__ = own.replace(parameters=sorted([*keep, *added], key=lambda p: p.kind))


for _function in (distill, adistill, start_distill):
    _show_options(_function)
