"""One attempt of a synthesis: a question a model is asked for, and everything that must then hold.

1. parsed         the reply holds one question of the right form             unparsed, length, start, keyword,
                                                                             unanswerable, copied
2. new            it is like no seed, and like no problem already accepted   copied, repeated, no_gain
3. executable     another call, shown the question alone, writes a program   no_program, program_error,
                  that runs in the sandbox                                   program_timeout, ...
4. deterministic  it prints the same with another hash seed, another day     nondeterministic
5. typed          what it prints is one answer of a known type               no_single_answer
6. agrees         a worked answer, which knows nothing of the program,       answers_disagree, unanswerable
                  comes to the same
7. judged         a judge finds the question well posed, and that the        judge_rejected
                  program answers it
8. solved         most of `votes` answers of an independent solver agree     solver_disagrees

A comparison no program can make is `undecided`. What an endpoint or the machine failed to do is no fault of
the problem: model_..., judge_failed and sandbox_failed are asked again on resume, and so is parent_failed,
what one of them leaves of its chain. Whatever an attempt got is kept in its row. Reproducible: what is asked
and which of two alike questions stays depend on the attempts' numbers, not on which is faster (strategies.py,
pool.py); only how much a `repeated` row got, besides its question, may.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from cotkit import aio
from cotkit.chat import PERMANENT, BudgetExceeded, CallLedger, Completion, ModelError
from cotkit.pipelines.acceptance import best_of
from cotkit.pipelines.distill import note_error, with_examples
from cotkit.pipelines.lineage import inherit, made_problem
from cotkit.pipelines.novelty import Novelty
from cotkit.pipelines.operators import examples_of
from cotkit.pipelines.pair_judge import accepts, calibrate, judge_pair
from cotkit.pipelines.pool import Pool
from cotkit.pipelines.programs import check_repeatable, printed_by, read_program, typed_answer
from cotkit.pipelines.questions import apologises, fault_of, gain, read_question
from cotkit.pipelines.running import Dropped, NotStarted, Places, new_candidate, new_row, seed_of
from cotkit.pipelines.strategies import STRATEGIES, Plan, group_of
from cotkit.pipelines.synthesis_recipe import VERIFIER, Recipe
from cotkit.problems import Problem
from cotkit.prompts import Prompt
from cotkit.records import Candidate, Judgement, Row

STEPS = ("attempted", "parsed", "new", "executable", "deterministic", "typed", "agrees", "judged", "solved")
SHOWN_CODE = 1500  # characters; longer programs are not shown to the coder


class Synthesizer:
    """Turns one attempt into one row. What attempts must know of each other is in the pool."""

    places: Places  # of the run: those that wait for others hold none

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.pool, self.seeds = Pool(Novelty.of_gates(recipe.gates)), Novelty.of_gates(recipe.gates)
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

    def count(self, row: Row) -> None:
        self.passed.update(row.metadata.get("synthesis", {}).get("passed", ()))

    def _settle(self, row: Row) -> None:
        self.count(row)
        self.pool.settle(row.index, made_problem(row) if row.accepted else None, row.retryable)

    async def __call__(self, _: int, place: Problem) -> Row:
        attempt = attempt_of(place)
        row = new_row(attempt, place)
        about = {"strategy": self.recipe.strategy, "attempt": attempt, "passed": ["attempted"], "calls": {}}
        row.metadata["synthesis"] = about
        try:
            try:
                plan = await STRATEGIES[self.recipe.strategy](self.recipe, attempt, self.pool)
                inherit(row, plan)
                async with self.places.of(attempt):
                    with clocked(row):
                        await self._make(row, plan)
                row.accepted = True
            except Dropped as dropped:
                _drop(row, dropped)
            except ModelError as error:
                note_error(row, STEPS[len(about["passed"])], error)
                _drop(row, _unanswered(error))
            self.places.wait(row.id, attempt, row.accepted)
            await self._compare_with_all(row)
            for candidate in row.candidates:
                candidate.accepted = row.accepted and candidate.verdict.correct is True
            row.final = best_of(row.candidates)
            self._settle(row)
        except BaseException as error:  # others may wait for it
            if isinstance(error, (ModelError, BudgetExceeded, NotStarted)) or aio.being_cancelled():
                self.pool.abandon(attempt, error)  # the run ends
            else:
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
        if question and not question.startswith(plan.begins):
            question = f"{plan.begins} {question}"
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
        for text in dict.fromkeys([question, question.removeprefix(plan.begins)]):
            if found := next(self.seeds.like(text, ancestors), None):
                raise Dropped("copied", f"of {found[0]}: {found[1]}")
        if found := self.pool.taken_already(row.index, question, about["lineage"]):
            raise _repetition(found)

    async def _compare_with_all(self, row: Row) -> None:
        """The lower of two alike attempts stays, whatever became of the other and whichever was faster."""
        about = row.metadata["synthesis"]
        if "parsed" not in about["passed"] or row.drop_reason in ("copied", "no_gain"):
            return
        if found := await self.pool.taken(row.index, row.problem, about["lineage"]):
            refuse_repeated(row, found)

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
        found, verdict = await VERIFIER.averify(made_problem(row), answer.text, truncated=answer.truncated)
        return new_candidate(answer, found, verdict, prompt)

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
        return {"ledger": self.ledger, "seed": seed_of(self.recipe.seed, row.id)}

    async def calibrate(self, pairs: int) -> None:
        """What the judge misses and refuses wrongly, on seeds with and without a planted error."""
        rng = random.Random(f"{self.recipe.seed}:calibration")
        judge, seeds = self.judge("judge_calibration"), [s for s in self.recipe.seeds if s.solution_code]
        self.calibration = await calibrate(seeds, pairs, judge, rng, **self.recipe.program)


@contextlib.contextmanager
def clocked(row: Row) -> Iterator[None]:
    """Waiting for others, before and after, is no part of what an attempt took."""
    started = time.monotonic()
    try:
        yield
    finally:
        row.seconds = round(time.monotonic() - started, 3)


def attempt_of(place: Problem) -> int:
    """Its number, from its id."""
    return int(place.id.rpartition("-")[2])


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


def _repetition(found: tuple[int, str]) -> Dropped:
    return Dropped("repeated", f"of attempt {found[0]}: {found[1]}")


def refuse_repeated(row: Row, found: tuple[int, str]) -> None:
    """`found`: the attempt that its question repeats, and how."""
    row.metadata["synthesis"]["passed"] = ["attempted", "parsed"]
    for candidate in row.candidates:
        candidate.accepted = False
    _drop(row, _repetition(found))


def _unanswered(error: ModelError) -> Dropped:
    return Dropped(f"model_{error.kind}", str(error), error.kind not in PERMANENT)


def _drop(row: Row, dropped: Dropped) -> None:
    row.accepted = False
    row.drop_reason, row.detail, row.retryable = dropped.reason, dropped.detail, dropped.retryable


def _note_call(row: Row, stage: str, prompt: Prompt, answer: Completion) -> None:
    made_with = {"prompt": prompt.name, "prompt_hash": prompt.hash, "text": answer.text}
    row.metadata["synthesis"]["calls"][stage] = made_with | answer.provenance()
