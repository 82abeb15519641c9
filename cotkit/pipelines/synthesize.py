"""Synthesis: seed problems in, new problems with a program, an answer and a worked solution out.

After Loong (2025, arXiv 2509.03059), with Self-Instruct and Evol-Instruct as their papers have them. An
attempt is one question a model is asked for, and everything that must then hold. Each on its own, no barrier:

1. parsed         the reply holds one question of the right form              unparsed, length, keyword,
                                                                              unanswerable, copied
2. new            it is like no seed, and like no problem already accepted    copied, repeated, no_gain
3. executable     another call, shown the question alone, writes a program    no_program, program_error,
                  that runs in the sandbox                                    program_timeout, ...
4. deterministic  it prints the same with another hash seed, on another day   nondeterministic
5. typed          what it prints is one answer of a known type                no_single_answer
6. agrees         a worked answer, which knows nothing of the program,        answers_disagree, unanswerable
                  comes to the same
7. judged         a judge finds the question well posed, and that the         judge_rejected
                  program answers it
8. solved         most of `votes` answers of an independent solver agree      solver_disagrees

Each has its drop_reason; a comparison no program can make is `undecided`, and what an endpoint or the machine
failed to do is no fault of the problem: model_..., judge_failed and sandbox_failed are asked again on resume,
and so is parent_failed, what one of them leaves of its chain. Whatever an attempt got is kept in its row.
Reproducible: what an attempt asks and which of two alike questions stays depend on the attempts' numbers, not
on which is faster (strategies.py, pool.py); only how much a `repeated` row got, besides its question, may.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import hashlib
import inspect
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.chat import BudgetExceeded, CallLedger, Completion, ModelError
from cotkit.pipelines.acceptance import best_of
from cotkit.pipelines.distill import note_error, with_examples
from cotkit.pipelines.lineage import inherit, problem_of
from cotkit.pipelines.novelty import Novelty
from cotkit.pipelines.operators import examples_of
from cotkit.pipelines.pair_judge import accepts, calibrate, judge_pair
from cotkit.pipelines.pool import Pool
from cotkit.pipelines.programs import check_repeatable, printed_by, read_program, typed_answer
from cotkit.pipelines.progress import Show, check_show
from cotkit.pipelines.questions import apologises, fault_of, gain, read_question
from cotkit.pipelines.running import Dropped, RunJob, Work, new_row
from cotkit.pipelines.strategies import STRATEGIES, Plan, group_of
from cotkit.pipelines.synthesis_recipe import VERIFIER, Recipe, check_whole, make_recipe
from cotkit.pipelines.synthesis_report import told
from cotkit.problems import Problem, load_problems
from cotkit.prompts import Prompt
from cotkit.records import Candidate, Judgement, Row
from cotkit.runs import Run, folder_name

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

STEPS = ("attempted", "parsed", "new", "executable", "deterministic", "typed", "agrees", "judged", "solved")
ATTEMPTS_EACH = 5  # attempts at most for each problem wanted, when `attempts` is not given
SHOWN_CODE = 1500  # characters; longer programs are not shown to the coder
PERMANENT = ("bad_request", "context_length")  # kinds of failure that asking again does not mend


class Synthesizer:
    """Turns one attempt into one row. What attempts must know of each other is in the pool."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        near, rouge = recipe.gates["near"], recipe.gates["rouge_l"]
        self.pool, self.seeds = Pool(Novelty(near, rouge)), Novelty(near, rouge)
        for seed in recipe.seeds:
            self.seeds.add(f"seed {seed.id}", seed.problem)
        for name, text in examples_of(recipe.operators).items():  # small models copy what they are shown
            self.seeds.add(f"the prompt's {name}", text)
        self.passed: Counter[str] = Counter()
        self.calibration: dict[str, Any] | None = None

    def with_ledger(self, ledger: CallLedger) -> Synthesizer:
        self.ledger = ledger
        return self

    def remember(self, rows: Sequence[Row]) -> None:
        """What earlier sittings on this run folder have finished."""
        for row in rows:
            if row.problem:
                self.pool.ask(row.index, row.problem)
            self._settle(row)

    def _settle(self, row: Row) -> None:
        self.passed.update(row.metadata.get("synthesis", {}).get("passed", ()))
        self.pool.settle(row.index, problem_of(row) if row.accepted else None, row.retryable)

    async def __call__(self, attempt: int, place: Problem) -> Row:
        started = time.monotonic()
        row = new_row(attempt, place)
        about = {"strategy": self.recipe.strategy, "attempt": attempt, "passed": ["attempted"], "calls": {}}
        row.metadata["synthesis"] = about
        try:
            try:
                plan = await STRATEGIES[self.recipe.strategy](self.recipe, attempt, self.pool)
                inherit(row, plan)
                await self._make(row, plan)
                row.accepted = True
            except Dropped as dropped:
                _drop(row, dropped)
            except ModelError as error:
                note_error(row, STEPS[len(about["passed"])], error)
                _drop(row, _unanswered(error))
            await self._refuse_repeated(row)
            for candidate in row.candidates:
                candidate.accepted = row.accepted and candidate.verdict.correct is True
            row.final = best_of(row.candidates)
            row.seconds = round(time.monotonic() - started, 3)
            self._settle(row)
        except (ModelError, BudgetExceeded, asyncio.CancelledError) as error:  # the run ends
            self.pool.abandon(attempt, error)
            raise
        except BaseException:  # others may wait for it
            self.pool.settle(attempt, None, again=True)
            raise
        return row

    async def _make(self, row: Row, plan: Plan) -> None:
        """The steps in their order; each raises Dropped where it fails."""
        passed = row.metadata["synthesis"]["passed"]
        await self._question(row, plan)
        passed.append("parsed")
        self._compare_with_known(row, plan)
        passed.append("new")
        code = row.metadata["solution_code"] = await self._program(row, plan)
        printed = await printed_by(code, **self.recipe.program)
        passed.append("executable")
        await check_repeatable(code, printed, **self.recipe.program)
        passed.append("deterministic")
        row.reference, row.answer_type, row.tolerance = typed_answer(printed, self._kin(plan))
        passed.append("typed")
        await self._worked_answer(row)
        passed.append("agrees")
        if "judge" in self.recipe.roles:
            await self._judge(row, code)
            passed.append("judged")
        if self.recipe.votes:
            await self._votes(row)
            passed.append("solved")

    async def _question(self, row: Row, plan: Plan) -> None:
        recipe, prompt = self.recipe, self.recipe.prompts[f"synth_{self.recipe.strategy}"]
        shown = [
            {"problem": prompt.messages(**asked)[-1]["content"], "trace": text} for asked, text in plan.turns
        ]
        answer = await recipe.roles["generator"].acomplete(
            with_examples(prompt, shown, **plan.values),
            role="generator",
            **self._options(row),
            **recipe.sampling,
        )
        _note_call(row, "question", prompt, answer)
        if answer.truncated:
            raise Dropped("unparsed", "the reply was cut off at max_tokens")
        question = read_question(answer.text)
        if fault := fault_of(question, recipe.gates, [source.problem for source in plan.sources]):
            raise Dropped(*fault)
        row.problem = question
        self.pool.ask(row.index, question)

    def _compare_with_known(self, row: Row, plan: Plan) -> None:
        """Against the parent, the seeds, and what is accepted already; the last word on that is later."""
        question, parent, about = row.problem, plan.parent, row.metadata["synthesis"]
        if parent is not None and (words := gain(question, parent.problem)) < self.recipe.gates["new_words"]:
            raise Dropped("no_gain", f"{words} words that its parent {parent.id} does not have")
        ancestors = [f"seed {id}" for id in about["seed_ids"]] if parent is not None else ()
        if found := next(self.seeds.like(question, ancestors), None):
            raise Dropped("copied", f"of {found[0]}: {found[1]}")
        if found := self.pool.taken_already(row.index, question, about["lineage"]):
            raise Dropped(*_repetition(found))

    async def _refuse_repeated(self, row: Row) -> None:
        """The lower of two alike attempts stays, whatever became of the other and whichever was faster."""
        about = row.metadata["synthesis"]
        if "parsed" not in about["passed"] or row.drop_reason in ("copied", "no_gain"):
            return
        if found := await self.pool.taken(row.index, row.problem, about["lineage"]):
            about["passed"] = ["attempted", "parsed"]
            _drop(row, Dropped(*_repetition(found)))

    async def _program(self, row: Row, plan: Plan) -> str:
        prompt = self.recipe.prompts["synth_code"]
        examples = [
            {"problem": source.problem, "trace": f"```python\n{source.solution_code.strip()}\n```"}
            for source in plan.sources
            if 0 < len(source.solution_code or "") <= SHOWN_CODE
        ][:2]
        messages = with_examples(prompt, examples, problem=row.problem, examples=examples)
        answer = await self.recipe.roles["coder"].acomplete(messages, role="coder", **self._options(row))
        _note_call(row, "code", prompt, answer)
        code = read_program(answer.text)
        if code is None:
            sorry = apologises(answer.text)
            raise Dropped("unanswerable" if sorry else "no_program", _short(answer.text))
        return code

    def _kin(self, plan: Plan) -> list[Problem]:
        """The seeds of the same split and type: their kinds of answer are the ones to expect."""
        return [s for s in self.recipe.seeds if group_of(s) == group_of(plan.seeds[0])]

    async def _worked_answer(self, row: Row) -> None:
        candidate = await self._solve(row, 0, "answerer")
        row.candidates.append(candidate)
        if candidate.answer is None and apologises(candidate.text):
            raise Dropped("unanswerable", _short(candidate.text))
        if candidate.verdict.correct is None:
            raise Dropped("undecided", f"answered {candidate.answer}: {candidate.verdict.reason}")
        if not candidate.verdict.correct:
            said = f"the program prints {row.reference}, the worked answer is {candidate.answer or 'none'}"
            raise Dropped("answers_disagree", said)

    async def _solve(self, row: Row, sample_index: int, role: str) -> Candidate:
        """A worked answer of someone who sees the question alone."""
        prompt, model = self.recipe.prompts["reasoning"], self.recipe.roles[role]
        messages = prompt.messages(problem=row.problem, few_shot=None)
        answer = await model.acomplete(messages, role=role, sample_index=sample_index, **self._options(row))
        found, verdict = await VERIFIER.averify(problem_of(row), answer.text, truncated=answer.truncated)
        return Candidate(
            iteration=0,
            sample_index=sample_index,
            trace=answer.trace,
            reasoning=answer.reasoning,
            text=answer.text,
            answer=found.answer,
            answer_how=found.how,
            truncated=answer.truncated,
            verdict=verdict,
            prompt={"name": prompt.name, "hash": prompt.hash},
            call=answer.provenance(),
        )

    async def _judge(self, row: Row, code: str) -> None:
        judgement = await self.judge("judge")(row.problem, code, row.reference)
        row.metadata["synthesis"]["judgement"] = judgement.model_dump()
        if (accepted := accepts(judgement)) is None:
            raise Dropped("judge_failed", judgement.error, retryable=True)
        if not accepted:
            against = (part for part, score in judgement.scores.items() if not score)
            raise Dropped("judge_rejected", "; ".join(f"{p}: {judgement.reasons[p]}" for p in against))

    def judge(self, role: str) -> Callable[[str, str, str], Awaitable[Judgement]]:
        """(question, program, printed answer) -> Judgement; `role` is what the ledger counts it as."""
        model, prompt = self.recipe.roles["judge"], self.recipe.prompts["synth_judge"]
        return functools.partial(judge_pair, model, prompt, self.ledger, role)

    async def _votes(self, row: Row) -> None:
        """Dropped unless more than half of the votes agree; one that cannot be decided does not."""
        votes = range(1, self.recipe.votes + 1)
        solving = (self._solve(row, index, "solver") for index in votes)
        cast = await asyncio.gather(*solving, return_exceptions=True)
        for index, vote in zip(votes, cast, strict=True):
            if isinstance(vote, ModelError):
                note_error(row, "solved", vote, sample_index=index)
            elif isinstance(vote, BaseException):
                raise vote
            else:
                row.candidates.append(vote)
        agreeing = sum(vote.verdict.correct is True for vote in row.candidates[1:])
        failed = [vote for vote in cast if isinstance(vote, ModelError)]
        if failed and 2 * agreeing <= len(votes) < 2 * (agreeing + len(failed)):
            raise _unanswered(failed[-1])  # the missing votes could still make it a majority
        if 2 * agreeing <= len(votes):
            raise Dropped("solver_disagrees", f"{agreeing} of {len(votes)} votes agree")

    def _options(self, row: Row) -> dict[str, Any]:
        """Each attempt has a seed of its own, the same in every run with this recipe's seed."""
        digest = hashlib.sha256(f"{self.recipe.seed}:{row.id}".encode()).digest()
        return {"ledger": self.ledger, "seed": int.from_bytes(digest[:4]) % 2**31}

    async def calibrate(self, pairs: int) -> None:
        """What the judge misses and refuses wrongly, on seeds with and without a planted error."""
        rng = random.Random(f"{self.recipe.seed}:calibration")
        judge, seeds = self.judge("judge_calibration"), [s for s in self.recipe.seeds if s.solution_code]
        self.calibration = await calibrate(seeds, pairs, judge, rng, **self.recipe.program)

    def funnel(self, attempted: int) -> list[dict[str, Any]]:
        """One entry a step, `problems` = how many attempts passed it; None = no such step in this run."""
        self.passed["attempted"] = attempted  # with those that an error of the program's own ended
        without = {"judged": "judge" not in self.recipe.roles, "solved": not self.recipe.votes}
        return [
            {"step": step, "problems": None if without.get(step) else self.passed[step]} for step in STEPS
        ]


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


def _repetition(found: tuple[int, str]) -> tuple[str, str]:
    return "repeated", f"of attempt {found[0]}: {found[1]}"


def _unanswered(error: ModelError) -> Dropped:
    return Dropped(f"model_{error.kind}", str(error), error.kind not in PERMANENT)


def _drop(row: Row, dropped: Dropped) -> None:
    row.accepted = False
    row.drop_reason, row.detail, row.retryable = dropped.reason, dropped.detail, dropped.retryable


def _note_call(row: Row, stage: str, prompt: Prompt, answer: Completion) -> None:
    made_with = {"prompt": prompt.name, "prompt_hash": prompt.hash, "text": answer.text}
    row.metadata["synthesis"]["calls"][stage] = made_with | answer.provenance()


def synthesized_problems(run: Run | str | os.PathLike[str], *, all: bool = False) -> list[Problem]:
    """The kept problems of a synthesis run (or of its folder), ready for `distill` and `benchmark`.

    The first `n` that were wanted, by attempt number; `all` adds those in flight when there were enough.
    `reference` is what the program (`solution_code`) printed, licence and split are those of the seeds, and
    metadata["synthesis"] says where each comes from.
    """
    run = run if isinstance(run, Run) else Run(run)
    if run.config.get("pipeline") != "synthesize":
        raise ValueError(f"{run.path} is no synthesis run: its rows are no new problems")
    rows = run.records(accepted=True)
    return [problem_of(row) for row in (rows if all else rows[: run.report.get("wanted")])]


def synthesize(
    seeds: Any,
    strategy: str,
    generator: ChatModel,
    judge: ChatModel | None = None,
    *,
    show: Show = "auto",
    **options: Any,
) -> Run:
    """New verifiable problems from seed problems; blocks, can be interrupted and called again.

    seeds: what `load_problems` takes, or its result. Those with `solution_code` show the coder how to write
        and calibrate the judge; metadata["split"] and the licence are inherited, and seeds of different
        splits or types never meet in one prompt.
    strategy: "few_shot", "self_instruct" or "evol_instruct" (strategies.py says what each asks).
    generator: the ChatModel that writes questions. coder: writes their programs, answerer: their worked
        answers, solver: casts the votes; each the generator by default, and the notes say when votes are not
        independent of the worked answers.
    judge: a ChatModel that decides whether question and program fit together; None = not judged.
    n: accepted problems wanted. Attempts in flight when they are reached are finished, and kept too: at most
        twice what is still wanted are in flight. `synthesized_problems` gives the first n.
    attempts: at most so many, by default 5 * n; without n exactly so many (equal attempts compare fairly).
    votes: answers of the solver, of which more than half must agree. 0 = none.
    k: problems a prompt shows (few_shot 3, self_instruct 4); machine_share: of these from the run's own.
    rounds: of evolution in a chain. lag: how many attempts self_instruct and evol_instruct look back; more
        run at once with a larger one, the pool grows sooner with a smaller one.
    operators: of evol_instruct, by name or as {"name", "text"}; None = all of operators.py.
    gates: limits that differ from the strategy's own (questions.py): min_words, max_words, keywords, near,
        rouge_l, new_words.
    prompts: {name: Jinja2 text} in place of the shipped `synth_<strategy>`, `synth_code`, `reasoning`,
        `synth_judge`.
    calibrate_judge: known-good seeds the judge is tried on, each as it is and with a planted error; its miss
        and false-alarm rates stand in run.report["judge_calibration"]. 0 = none.
    seed: of every choice; temperature, top_p, max_tokens: of the question, over the generator's settings.
    program_timeout: seconds for one run of a program; allow_weak_isolation: see `run_python`.
    run, resume: name or path of the run folder; "auto", "never" or "must". n and attempts may be raised.
    budget_usd, budget_tokens, budget_calls, time_limit (s), use_cache, show: as for `distill`.

    Raises ValueError or TypeError for anything wrong with seeds or options, and SandboxTooWeak, before the
    first call. Whatever the models answer, the run ends with counts and reasons.
    """
    check_show(show)
    run = _work(seeds, strategy, generator, judge, options).run(show)
    return told(run, show)


async def asynthesize(
    seeds: Any,
    strategy: str,
    generator: ChatModel,
    judge: ChatModel | None = None,
    *,
    show: Show = "auto",
    **options: Any,
) -> Run:
    """`synthesize` for a cell that awaits; the same options."""
    check_show(show)
    run = await _work(seeds, strategy, generator, judge, options).arun(show)
    return told(run, show)


def start_synthesize(
    seeds: Any, strategy: str, generator: ChatModel, judge: ChatModel | None = None, **options: Any
) -> RunJob:
    """`synthesize` in the background, with the same options: a job with progress, stop and result."""
    return _work(seeds, strategy, generator, judge, options).start()


def _work(
    seeds: Any, strategy: str, generator: ChatModel, judge: ChatModel | None, options: dict[str, Any]
) -> Work:
    known = [option.name for option in OPTIONS]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}"
            raise TypeError(f"synthesize has no option {name!r}; {hint}")
    of_run = {name: options.pop(name) for name in inspect.signature(_open).parameters if name in options}
    recipe = make_recipe(load_problems(seeds), strategy, generator, judge, **options)
    return _open(recipe, **of_run)


def _open(
    recipe: Recipe,
    *,
    n: int | None = None,
    attempts: int | None = None,
    calibrate_judge: int = 8,
    run: str | os.PathLike[str] | None = None,
    resume: str = "auto",
    use_cache: bool = True,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
    time_limit: float | None = None,
) -> Work:
    attempts = _attempts(n, attempts)
    check_whole("calibrate_judge", calibrate_judge, 0)
    if recipe.strategy == "evol_instruct" and recipe.rounds > 1 and attempts <= recipe.lag:
        recipe.notes.append(f"lag={recipe.lag} of {attempts} attempts: no problem is rewritten a second time")
    config, models = recipe.describe(), list({id(m): m for m in recipe.roles.values()}.values())
    budgets = {"budget_usd": budget_usd, "budget_tokens": budget_tokens, "budget_calls": budget_calls}
    made = Synthesizer(recipe)

    async def beside() -> None:
        if "judge" in recipe.roles and calibrate_judge:
            await made.calibrate(calibrate_judge)

    def facts() -> dict[str, Any]:
        return {
            "strategy": recipe.strategy,
            "wanted": n,
            "attempts": attempts,
            "notes": recipe.notes,
            "funnel": made.funnel(len(work.folder.done)),
            "judge_calibration": made.calibration,
            "endpoints": {role: model.stats() for role, model in recipe.roles.items()},
        }

    work = Work(
        [Problem(id=f"{recipe.strategy}-{number:05d}", problem="") for number in range(attempts)],
        made.with_ledger,
        run=run if run is not None else folder_name(recipe.strategy, config),
        config=config,
        runtime={**budgets, "time_limit": time_limit, "n": n, "attempts": attempts},
        resume=resume,
        width=sum(model.max_concurrency for model in models),
        budgets=budgets,
        use_cache=use_cache,
        time_limit=time_limit,
        models=models,
        facts=facts,
        made_from=recipe.seeds,
        enough=n,
        beside=beside,
    )
    made.remember(Run(work.folder.path).records())
    return work


def _attempts(n: int | None, attempts: int | None) -> int:
    for name, value in (("n", n), ("attempts", attempts)):
        if value is not None:
            check_whole(name, value, 1)
    if n is None and attempts is None:
        raise ValueError("say how much: n= accepted problems, attempts= tries, or both")
    if n is not None and attempts is not None and attempts < n:
        raise ValueError(f"attempts={attempts} cannot give n={n} problems")
    return attempts or ATTEMPTS_EACH * n


OPTIONS = [
    option
    for function in (make_recipe, _open)
    for option in inspect.signature(function).parameters.values()
    if option.kind is option.KEYWORD_ONLY
]

for _function in (synthesize, asynthesize, start_synthesize):  # Shift-Tab shows every option by name
    _own = inspect.signature(_function)
    _named = [option for option in _own.parameters.values() if option.kind is not option.VAR_KEYWORD]
    _function.__signature__ = _own.replace(parameters=[*_named, *OPTIONS])
