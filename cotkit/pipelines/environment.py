"""The agent-environment loop of Loong (arXiv 2509.03059): a problem out, a completion in, a reward back.

An episode is one problem and one step. The reward is the verifier's verdict: 1.0 right, 0.0 wrong, None where
nothing could decide, so that a fault of the checker never teaches a model anything.

    env = Environment(problems, batch=4)
    for problem, step in zip(env.reset(seed=1), env.step(four_completions)): ...
    env.run(model, n=100)      the same loop with a ChatModel, into a run folder
    env.as_trl_reward()        a reward function for TRL's GRPOTrainer
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cotkit import aio
from cotkit.chat import ModelError
from cotkit.pipelines.distill import adistill, distill
from cotkit.problems import Problem, load_problems
from cotkit.records import Extraction, Verdict
from cotkit.runs import Run
from cotkit.shown import Shown
from cotkit.verify import AnswerVerifier, Verifier

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

REWARDS = {True: 1.0, False: 0.0, None: None}
FAULTS = {"timeout": "timeout", "error": "error", "model_failed": "error", "sandbox_failed": "error"}


@dataclass(frozen=True)
class Step(Shown):
    """What one completion earned. `reward` None = nothing could decide: skip it, it is no 0."""

    problem: Problem
    reward: float | None
    outcome: Literal["right", "wrong", "undecidable", "error", "timeout"]  # the last two: of the checker
    verdict: Verdict
    answer: str | None  # the final answer found in the completion
    done: bool = True

    def shown(self) -> dict[str, Any]:
        return vars(self) | {"problem": self.problem.id, "verdict": self.verdict.in_words}


class Environment(Shown):
    """Problems, a verifier, and the loop between them.

    problems: what `load_problems` takes; a Run of `synthesize` (its kept problems); or a synthesizer: a
        function of a seed that gives an iterable of Problems, or an iterator of them (no seeds then).
    verifier: a `Verifier`; None = `AnswerVerifier()`.
    batch: problems an episode. With 1, `reset` gives a Problem and `step` takes one completion, else lists.

    Raises ValueError, naming the problem, when one has nothing to check an answer by.
    """

    def __init__(self, problems: Any, verifier: Verifier | None = None, *, batch: int = 1):
        if verifier is not None and not isinstance(verifier, Verifier):
            raise TypeError(f"verifier must be a Verifier, such as AnswerVerifier(), got {verifier!r}")
        self.verifier, self.batch = verifier or AnswerVerifier(), batch
        self.problems: list[Problem] | None = None  # None = a synthesizer makes them
        self._stream: Iterator[Problem] | None = None
        self._episode: list[Problem] | None = None
        self._seeded = not isinstance(problems, Iterator)
        if not self._seeded:
            self._synthesizer = lambda _: problems
        elif callable(problems):
            self._synthesizer = problems
        else:
            self.problems = [self._checked(problem) for problem in _load(problems)]
        self._check_count("batch", batch)

    def _check_count(self, name: str, count: int) -> None:
        most = count if self.problems is None else len(self.problems)
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
            raise ValueError(f"{name} must be a whole number from 1 to the number of problems, got {count!r}")

    def _checked(self, problem: Problem) -> Problem:
        if not isinstance(problem, Problem):
            raise TypeError(f"a synthesizer gives Problems, got {type(problem).__name__}")
        self.verifier.check_problems([problem])
        if not self.verifier.can_check(problem):
            raise ValueError(
                f"problem {problem.id!r} has nothing to check an answer by: no reward is possible"
            )
        return problem

    def _from(self, seed: int) -> Iterator[Problem]:
        """The problems in the order of `seed`; of a fixed set each one once an epoch, for ever."""
        if self.problems is None:
            yield from map(self._checked, self._synthesizer(seed))
            return
        begun: set[str] = set()  # in the batch that the epoch before left open: no batch has a problem twice
        for epoch in itertools.count(1):
            rng = random.Random(f"{seed}:{epoch - 1}")  # random() is what Python promises never to change
            order = sorted(self.problems, key=lambda p: (p.id in begun, rng.random()))
            yield from order
            begun = {p.id for p in order[len(order) - epoch * len(order) % self.batch :]}

    def reset(self, seed: int | None = None) -> Problem | list[Problem]:
        """The next problem (`batch` of them as a list). A seed starts the order of that seed anew; without
        one the order goes on, from seed 0 the first time. What was not stepped is left behind.
        """
        if seed is not None and not self._seeded:
            raise ValueError("an iterator of problems cannot go back to a seed: give a function of the seed")
        if seed is not None or self._stream is None:
            self._stream = self._from(seed or 0)
        self._episode = drawn = self._drawn(self._stream, self.batch)
        return drawn[0] if self.batch == 1 else list(drawn)

    def _drawn(self, stream: Iterator[Problem], count: int) -> list[Problem]:
        drawn = list(itertools.islice(stream, count))
        if len(drawn) < count:
            raise RuntimeError(f"the synthesizer gave {len(drawn)} of {count} problems and has ended")
        return drawn

    def step(self, completion: str | Sequence[str]) -> Step | list[Step]:
        """Verifies the completion of the problem (one each, in order, for a batch) and ends the episode.

        A verifier that fails on one completion gives that one a reward of None. Raises RuntimeError before
        `reset` and after the step, ValueError for another number of completions, TypeError for what is no
        text, and ModelError when the verifier's model has no endpoint left (the episode then stays open).
        """
        return aio.run(self.astep(completion))

    async def astep(self, completion: str | Sequence[str]) -> Step | list[Step]:
        """`step` for a coroutine."""
        if self._episode is None:
            raise RuntimeError("no episode is open: call reset() before each step()")
        several = isinstance(completion, Iterable) and not isinstance(completion, str)
        completions = [completion] if self.batch == 1 else list(completion) if several else []
        if len(completions) != self.batch:
            raise ValueError(f"this environment takes a list of {self.batch} completions a step")
        steps = await self._steps(self._episode, completions)
        self._episode = None
        return steps[0] if self.batch == 1 else steps

    async def _steps(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Step]:
        if strange := [c for c in completions if not isinstance(c, str)]:
            raise TypeError(f"a completion must be a text, got {strange[0]!r}")
        return await aio.together(map(self._one, problems, completions))

    async def _one(self, problem: Problem, completion: str) -> Step:
        try:
            found, verdict = await self.verifier.averify(problem, completion)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # one completion's fault must not touch another's reward; what ends all of them goes on
            if isinstance(error, ModelError) and error.stops_run:
                raise
            if isinstance(error, asyncio.CancelledError) and aio.being_cancelled():
                raise
            found = Extraction(answer=None, how="error")
            verdict = Verdict(correct=None, method="error", reason=f"{type(error).__name__}: {error}")
        undecided = FAULTS.get(verdict.method, "undecidable")
        outcome = {True: "right", False: "wrong", None: undecided}[verdict.correct]
        return Step(problem, REWARDS[verdict.correct], outcome, verdict, found.answer)

    def run(self, solver: ChatModel, n: int, *, seed: int = 0, **options: Any) -> Run:
        """Plays `n` problems with a model and writes a run folder: the verified traces are its kept rows.

        It is `distill` without judge and refinement on the problems that `reset(seed)` would give; `options`
        are distill's: num_generations, run, show, budgets, max_iterations for further tries. The verifier is
        the environment's own.
        """
        return distill(self._play(n, seed), solver, **self._options(seed, options))

    async def arun(self, solver: ChatModel, n: int, *, seed: int = 0, **options: Any) -> Run:
        """`run` for a cell that awaits."""
        return await adistill(self._play(n, seed), solver, **self._options(seed, options))

    def _play(self, n: int, seed: int) -> list[Problem]:
        self._check_count("n", n)
        return self._drawn(self._from(seed), n)

    def _options(self, seed: int, options: dict[str, Any]) -> dict[str, Any]:
        if "verifier" in options:
            raise TypeError("run has no option 'verifier': give it to Environment(problems, verifier)")
        return {"max_iterations": 0, "seed": seed, **options, "verifier": self.verifier}

    def as_trl_reward(self) -> Callable[..., list[float | None]]:
        """A reward function for TRL's GRPOTrainer (1.16): `reward_funcs=env.as_trl_reward()`.

        The training set needs, beside `prompt`, a column `id` or `problem` that tells which problem a
        completion answers; where it has both, they are to agree. Completions are texts or lists of messages,
        of which the last one counts (its text parts). What holds no text is an empty completion and ends no
        step. None, for what could not be decided, makes the trainer leave the completion out.
        """
        if self.problems is None:
            raise TypeError("a reward function needs a fixed set of problems, not a synthesizer")
        known = {name: {getattr(p, name): p for p in self.problems} for name in ("id", "problem")}

        def verified_answer(prompts: list, completions: list, **columns: Any) -> list[float | None]:
            column = next((name for name in known if name in columns), None)
            if column is None:
                raise ValueError("the training set needs a column 'id' or 'problem', to find the problem by")
            values = [str(value) for value in columns[column]]
            if unknown := [value for value in values if value not in known[column]]:
                raise ValueError(f"the environment holds no problem with {column} {unknown[0]!r}")
            asked = [known[column][value] for value in values]
            texts = columns.get("problem", [problem.problem for problem in asked])
            for problem, text in zip(asked, texts, strict=True):
                if str(text).split() != problem.problem.split():
                    raise ValueError(
                        f"the training set has another problem with id {problem.id!r} than the environment "
                        f"({str(text)[:60]!r}, not {problem.problem[:60]!r}). Fix: give it the ids of the "
                        "environment's problems, or no column 'id'"
                    )
            return [step.reward for step in aio.run(self._steps(asked, list(map(_text_of, completions))))]

        return verified_answer

    def shown(self) -> dict[str, Any]:
        made = "by a synthesizer, as they are asked for" if self.problems is None else len(self.problems)
        types = Counter(problem.type or "no type" for problem in self.problems or ())
        return {
            "problems": made,
            "types": types,
            "verifier": type(self.verifier).__name__,
            "batch": self.batch,
        }

    def __repr__(self) -> str:
        source = "a synthesizer" if self.problems is None else f"{len(self.problems)} problems"
        return f"Environment({source}, {type(self.verifier).__name__}, batch={self.batch})"


def _text_of(completion: Any) -> str:
    """The text of TRL's completion, "" where it has none: an agent's turn, a vision model's image."""
    if isinstance(completion, (list, tuple)):
        completion = completion[-1] if completion else ""
    content = completion.get("content") if isinstance(completion, dict) else completion
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _load(problems: Any) -> list[Problem]:
    if isinstance(problems, Run):
        from cotkit.pipelines.synthesize import synthesized_problems

        problems = synthesized_problems(problems)
    return load_problems(problems)
