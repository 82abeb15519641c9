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

A row that is not accepted and that an endpoint, a judge or a verifier's model hurt is asked again by the next
call, with what was answered from the cache. An accepted row is never asked again: where a draft of it failed,
that stands in its `errors`, and reports of drafts count it (the `errors` and `left_out` of a benchmark).

Every candidate is recorded; the reference is shown to the generator in step 4 only. The options are checked
in recipe.py, the decisions stand in acceptance.py.
"""

from __future__ import annotations

import functools
import os
import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cotkit import aio
from cotkit.chat import CallLedger, Completion, ModelError
from cotkit.paths import file_path, run_folder
from cotkit.pipelines.acceptance import ASKED_AGAIN, best_of, decide, drop_reason, feedback_on, spoilt
from cotkit.pipelines.leaks import trace_leaks
from cotkit.pipelines.options import divide, show_options
from cotkit.pipelines.progress import Show, check_show
from cotkit.pipelines.recipe import Recipe, make_recipe
from cotkit.pipelines.running import (
    BETWEEN,
    Misconfigured,
    RunJob,
    Work,
    check_limits,
    new_candidate,
    new_row,
    seed_of,
)
from cotkit.pipelines.shards import refuse_executor, run_shards
from cotkit.problems import Problem, load_problems
from cotkit.prompts import Prompt
from cotkit.records import Candidate, Row, Stage
from cotkit.runs import Run, check_name, folder_name
from cotkit.verify import code_form

if TYPE_CHECKING:
    from cotkit.chat import ChatModel


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
        recipe = self.recipe
        prompt, values = self._asked(problem, "reasoning")
        messages = with_examples(prompt, recipe.few_shot, trace=None, feedback=None, **values)
        answers = await recipe.generator.acandidates(
            messages, recipe.num_generations, role="generator", **self._options(problem, recipe.seed)
        )
        for index, answer in enumerate(answers):
            if isinstance(answer, ModelError):
                note_error(row, "draft", answer, sample_index=index)
        written = (answer for answer in answers if not isinstance(answer, ModelError))
        row.candidates = await aio.together(self._candidate(a, problem, "draft", prompt) for a in written)
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
            if parent.judgement is None and spoilt(parent, self.recipe) != "verifier_failed":
                await self._judge(parent, problem)  # for its feedback
            if drop_reason(parent, self.recipe) in ASKED_AGAIN:
                return  # there is nothing to go by; a resumed run asks the judge or the verifier again
            try:
                candidate = await self._improve(parent, index, iteration, problem)
            except ModelError as error:
                note_error(row, "refine", error, iteration=iteration)
                return
            if self.recipe.judge_all or not spoilt(candidate, self.recipe):
                await self._judge(candidate, problem)
            row.candidates.append(candidate)

    async def _improve(self, parent: Candidate, index: int, iteration: int, problem: Problem) -> Candidate:
        recipe = self.recipe
        prompt, values = self._asked(problem, "refine")
        parent.feedback = feedback_on(
            parent, recipe.thresholds, recipe.verifier.gold(problem), problem.problem
        )
        messages = with_examples(
            prompt,
            recipe.few_shot,
            **values,
            trace=parent.text if recipe.show_trace else None,
            feedback=parent.feedback,
        )
        answer = await recipe.improver.acomplete(
            messages,
            sample_index=iteration,
            role="improver",
            **self._options(problem, recipe.improver_seed),
        )
        saw = parent.saw_reference or (parent.judgement is not None and parent.judgement.saw_reference)
        return await self._candidate(
            answer, problem, "refine", prompt, iteration=iteration, parent=index, saw_reference=saw
        )

    async def _rationalize(self, row: Row, problem: Problem) -> None:
        gold = self.recipe.verifier.gold(problem)
        if gold is None or code_form(problem) or any(c.verdict.correct for c in row.candidates):
            return
        if any(spoilt(c, self.recipe) == "verifier_failed" for c in row.candidates):
            return  # it may be solved; a resumed run asks the verifier again
        prompt = self.recipe.prompts["rationalize"]
        messages = prompt.messages(problem=problem.problem, answer=gold)
        try:
            answer = await self.recipe.generator.acomplete(
                messages, role="rationalizer", **self._options(problem, self.recipe.seed)
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

    def _asked(self, problem: Problem, name: str) -> tuple[Prompt, dict[str, str]]:
        """The prompt `name`, or the one for programs where the answer is a program."""
        if form := code_form(problem):
            return self.recipe.prompts["code"], {"problem": problem.problem, "form": form}
        return self.recipe.prompts[name], {"problem": problem.problem}

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
        found, verdict = await self.recipe.verifier.averify(
            problem, answer.text, truncated=answer.truncated, ledger=self.ledger
        )
        return new_candidate(
            answer,
            found,
            verdict,
            prompt,
            iteration=iteration,
            stage=stage,
            parent=parent,
            saw_reference=saw_reference,
            rationalized=stage == "rationalize",
            leaks=trace_leaks(answer.trace, hinted=stage == "rationalize") if saw_reference else [],
        )

    async def _judge(self, candidate: Candidate, problem: Problem) -> None:
        if self.recipe.judge is not None:
            candidate.judgement = await self.recipe.judge.ajudge(problem, candidate.trace, ledger=self.ledger)
        try:
            candidate.accepted = drop_reason(candidate, self.recipe) is None
        except ValueError as error:  # a threshold names a dimension that this reward model does not give
            raise Misconfigured(str(error)) from error

    def _options(self, problem: Problem, seed: int) -> dict[str, Any]:
        return {"ledger": self.ledger, "seed": seed_of(seed, problem.id), **self.recipe.sampling}


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


def distill(
    problems: Any,
    generator: ChatModel,
    judge: Any = None,
    *,
    output_path: str | os.PathLike[str] | None = None,
    show: Show = "auto",
    executor: Any = None,
    shards: int = 8,
    **options: Any,
) -> Run:
    """Distil verified, judged, refined reasoning traces; blocks, can be interrupted and called again.

    problems: what `load_problems` takes, or its result. A .jsonl file of 16 MB or more is read bit by bit.
    generator: the ChatModel that writes traces (`improver=` another one that refines them).
    judge: LLMJudge, RewardModelJudge, StepJudge, JudgePanel or None (the verifier alone decides).
    num_generations (or `rejection_sampling_n`): drafts a problem; verified first, then judged best.
    max_iterations: refinements at most; 0 = distil only.
    score_threshold, rule: a float every dimension must reach (rule="mean": the mean), {dimension: float}, or
        the thresholds.json of `tune_thresholds`.
    few_shot_examples: a string, or [{"problem": ..., "trace": ...}] shown as earlier turns, none of which may
        be a problem of the run.
    rationalization: try a problem that was never solved once more with the answer as a hint (flagged).
    solution_pattern, trace_pattern: regular expressions with one group, for the answer in the reference
        and in the trace; None = the markers of `extract_answer`.
    answer_policy: how answers are compared, an `AnswerPolicy` (docs/verification.md).
    verifier: in place of these three, an AnswerVerifier, CheckVerifier, TestsVerifier, ModelVerifier, or a
        `Verifier` of your own. None = AnswerVerifier, which also runs check programs and tests of problems.
    show_trace: False tells the improver what the review found, but not the trace: small models copy it.
    require_verdict: False records the verdict but lets thresholds alone decide.
    judge_all: score every draft (default: for judges that ask no model), not only those that can be chosen.
    unchecked: "keep" keeps traces of problems without reference when there is no judge.
    prompts: {name: Jinja2 text} in place of the shipped `reasoning`, `refine`, `rationalize` and `code`
        (which asks for the programs of problems with tests).
    seed, temperature, top_p, max_tokens: sampling, over the models' own settings; without a seed each model's
        own, else 0. improver_seed: of the improver alone.
    run, resume: name or path of the run folder (default: named by the configuration, so that the same call
        resumes); "auto", "never" (old rows are set aside) or "must".
    budget_usd, budget_tokens, budget_calls, time_limit (s): stop the run cleanly, results kept. With an
        executor the budgets are divided among the shards, and time_limit is of the whole call.
    use_cache: False asks again even where the cache has the answer.
    output_path: also write CAMEL's `{"traces": [...]}` file.
    show: progress as "auto", "bar", "lines" or "none".
    executor, shards: run as so many shards on anything with concurrent.futures' `submit`, such as a Dask
        cluster's `Client.get_executor()`; see docs/scaling.md. None = in this process. A model's
        max_concurrency and max_requests_per_minute hold in each shard: divide them by how many run at once.

    Raises ValueError or TypeError for anything wrong with problems or options, before the first call.
    """
    check_show(show)
    traces = _traces_file(output_path)
    if executor is not None:
        return _with_traces(_in_shards(problems, generator, judge, options, show, executor, shards), traces)
    return _with_traces(prepare(problems, generator, judge, options).run(show), traces)


def _in_shards(
    problems: Any,
    generator: ChatModel,
    judge: Any,
    options: dict[str, Any],
    show: Show,
    executor: Any,
    shards: int,
) -> Run:
    problems, recipe, of_run = checked(problems, generator, judge, options)  # before a worker starts
    folder = run_folder(of_run.get("run") or folder_name("distill", recipe.describe()))
    shard = functools.partial(prepare_shard, generator, judge)
    return run_shards(shard, problems, executor, folder, shards, options, show=show)


def prepare_shard(
    generator: ChatModel, judge: Any, problems: Sequence[Problem], options: dict[str, Any]
) -> Work:
    """In the worker."""
    return prepare(problems, generator, judge, options)


async def adistill(
    problems: Any,
    generator: ChatModel,
    judge: Any = None,
    *,
    output_path: str | os.PathLike[str] | None = None,
    show: Show = "auto",
    **options: Any,
) -> Run:
    """`distill` for a cell that awaits; the same options, but for `executor` and `shards`."""
    check_show(show)
    refuse_executor("distill", options)
    traces = _traces_file(output_path)
    return _with_traces(await prepare(problems, generator, judge, options).arun(show), traces)


def start_distill(problems: Any, generator: ChatModel, judge: Any = None, **options: Any) -> RunJob:
    """`distill` in the background: returns a job with progress, stop and result. The same options, but for
    `show`, `output_path`, `executor` and `shards`."""
    refuse_executor("distill", options)
    return prepare(problems, generator, judge, options).start()


def _traces_file(output_path: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """Where CAMEL's file goes, checked."""
    if output_path is None:
        return None
    target = file_path(output_path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        raise ValueError(f"output_path {target} cannot be written: name a file in a folder of yours")
    check_name(target, "camel")
    return target


def prepare(problems: Any, generator: ChatModel, judge: Any, options: dict[str, Any]) -> Work:
    """The checked run, its folder open and nothing asked yet."""
    problems, recipe, of_run = checked(problems, generator, judge, options)
    return _open(problems, recipe, **of_run)


def checked(
    problems: Any, generator: ChatModel, judge: Any, options: dict[str, Any]
) -> tuple[Sequence[Problem], Recipe, dict[str, Any]]:
    """The problems, the recipe, and the options that are the run's alone."""
    of_recipe, of_run = divide("distill", options, make_recipe, _open)
    check_limits(**of_run)
    problems = load_problems(problems, stream="auto")
    return problems, make_recipe(problems, generator, judge, **of_recipe), of_run


def _open(
    problems: Sequence[Problem],
    recipe: Recipe,
    *,
    run: str | os.PathLike[str] | None = None,
    resume: str = "auto",
    use_cache: bool = True,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
    time_limit: float | None = None,
) -> Work:
    config, roles = recipe.describe(), recipe.roles
    models = list({id(model): model for model in roles.values()}.values())
    budgets = {"budget_usd": budget_usd, "budget_tokens": budget_tokens, "budget_calls": budget_calls}
    return Work(
        problems,
        lambda ledger: Distiller(recipe, ledger),
        run=run if run is not None else folder_name("distill", config),
        config=config,
        runtime={**budgets, "time_limit": time_limit},
        resume=resume,
        width=(1 if len(models) == 1 else BETWEEN) * sum(getattr(m, "max_concurrency", 1) for m in models),
        budgets=budgets,
        use_cache=use_cache,
        time_limit=time_limit,
        models=models,
        facts=lambda: {"endpoints": {role: m.stats() for role, m in roles.items() if hasattr(m, "stats")}},
    )


def _with_traces(run: Run, target: pathlib.Path | None) -> Run:
    if target is not None:
        run.export(target, format="camel", card=False)
    return run


show_options((distill, adistill, start_distill), make_recipe, _open)
