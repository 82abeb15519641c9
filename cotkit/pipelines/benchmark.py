"""Benchmark: models x problems whose answers a program can check, after Loong (arXiv 2509.03059, table 2),
but with counts and intervals.

Each model solves each problem `num_generations` times, without judge or refinement: a distillation run
of drafts, in a folder of its own under runs/<run>/. All models work at the same time and none waits for
another; what ends one model's run (a wrong key, a spent budget, a fault) ends no other's. The same call goes
on where it stopped; with a model or with problems added it asks only for those. The report is read from the
run folders (`cotkit.analysis.BenchmarkReport`).
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotkit import aio
from cotkit.chat import ChatModel
from cotkit.paths import run_folder
from cotkit.pipelines.progress import Show
from cotkit.pipelines.side_by_side import SideBySide
from cotkit.problems import Problem, load_problems
from cotkit.runs import Run, folder_name
from cotkit.verify import AnswerVerifier, Verifier

if TYPE_CHECKING:
    from cotkit.analysis import BenchmarkReport

Models = Mapping[str, ChatModel] | Sequence[ChatModel]


class Benchmark:
    """A prepared benchmark: a run a model, their folders open, nothing asked yet."""

    def __init__(
        self,
        problems: Any,
        models: Models,
        *,
        num_generations: int = 1,
        ks: Sequence[int] | None = None,
        verifier: Verifier | None = None,
        few_shot_examples: str | Sequence[dict[str, str]] | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        seed: int = 0,
        run: str | os.PathLike[str] | None = None,
        resume: str = "auto",
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        budget_calls: int | None = None,
        time_limit: float | None = None,
        executor: Any = None,
        shards: int = 8,
        show: Show = "auto",
    ):
        models, verifier = named(models), verifier or AnswerVerifier()
        problems = load_problems(problems, stream="auto")
        refuse_unverifiable(problems, verifier)
        self.ks = checked_ks(ks, num_generations)
        asked = {"num_generations": num_generations, "few_shot_examples": few_shot_examples, "seed": seed}
        asked |= {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        if run is None:
            run = folder_name("benchmark", asked | {"verifier": verifier.describe()})
        budgets = {"budget_usd": budget_usd, "budget_tokens": budget_tokens, "budget_calls": budget_calls}
        limits = {**shares(budgets, len(models)), "time_limit": time_limit, "resume": resume}
        options = {**asked, **limits, "verifier": verifier, "max_iterations": 0}
        self.folders = {name: run_folder(run) / slug(name) for name in models}
        where = {"show": show, "executor": executor, "shards": shards}
        self.runs = SideBySide(problems, models, self.folders, options, **where)

    async def go(self) -> dict[str, str]:
        """Every model to its end, however the others end. {name: the error that ended it}"""
        ends = await self.runs.go()
        return {
            name: f"{type(end).__name__}: {end}"
            for name, end in ends.items()
            if isinstance(end, BaseException)
        }

    def report(self, failed: dict[str, str]) -> BenchmarkReport:
        from cotkit.analysis import BenchmarkReport

        runs = {name: Run(path) for name, path in self.folders.items() if (path / "config.json").is_file()}
        return BenchmarkReport.from_runs(runs, self.ks, failed)


def benchmark(problems: Any, models: Models, **options: Any) -> BenchmarkReport:
    """Have every model solve every problem, verify the answers, compare; blocks, can be interrupted.

    problems: what `load_problems` takes, or its result. Each needs a reference, or a program that checks
        (metadata `check_code` or `tests`). A problem's `type` is its domain. A .jsonl file of 16 MB or more
        is read bit by bit.
    models: {name: ChatModel}, or a list of ChatModels with different names.
    num_generations: completions a problem. ks: of pass@k; None = 1, 2, 4, ... up to num_generations.
    verifier: how answers are checked; None = the typed ladder of `check_answer`.
    few_shot_examples, temperature, top_p, max_tokens, seed: as for `distill`, the same for every model.
    run: name or path of the folder that gets one run folder a model; None = named by the options, so that the
        same call resumes. resume: "auto", "never" or "must", as for `distill`.
    budget_usd, budget_tokens, budget_calls: for all models together. Each gets an equal share, so that a fast
        model does not spend what the others need; what one leaves is not passed on.
    executor, shards: each model's problems as so many shards on an executor, see `distill`.
    time_limit: seconds, for all models at once. show: progress as "auto", "bar", "lines" or "none".

    Raises ValueError or TypeError for anything wrong with problems, models or options, before the first call.
    A model that fails later stands in the report's `failed` with the reason, beside what it had finished.
    """
    prepared = Benchmark(problems, models, **options)
    with prepared.runs as runs:
        return prepared.report(aio.run(prepared.go(), runs.tick))


async def abenchmark(problems: Any, models: Models, **options: Any) -> BenchmarkReport:
    """`benchmark` for a cell that awaits; the same options."""
    prepared = Benchmark(problems, models, **options)
    with prepared.runs as runs:
        return prepared.report(await aio.arun(prepared.go(), runs.tick))


for _function in (benchmark, abenchmark):  # Shift-Tab in a notebook shows every option
    _function.__signature__ = inspect.signature(Benchmark).replace(return_annotation="BenchmarkReport")


def named(models: Models) -> dict[str, ChatModel]:
    """{name: model}; ValueError or TypeError for no models, for anything else, and for two of one name."""
    if isinstance(models, list | tuple):
        pairs = [(getattr(model, "name", ""), model) for model in models]
    elif isinstance(models, Mapping):
        pairs = list(models.items())
    else:
        kind = type(models).__name__
        raise TypeError(f"models must be {{name: ChatModel}} or a list of ChatModels, got {kind}")
    if not pairs:
        raise ValueError("models is empty: give at least one ChatModel")
    for place, (name, model) in enumerate(pairs):
        if not hasattr(model, "acandidates"):
            raise TypeError(f"models must be ChatModels, got {type(model).__name__}")
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"a model's name must be a text, got {name!r}")
        if name in dict(pairs[:place]):
            raise ValueError(f"two models are called {name!r}: give {{name: ChatModel}} with your own names")
    return dict(pairs)


def refuse_unverifiable(problems: Sequence[Problem], verifier: Verifier) -> None:
    if not isinstance(verifier, Verifier):
        raise TypeError(f"verifier must be a Verifier, such as AnswerVerifier(), got {verifier!r}")
    bare = [problem.id for problem in problems if not verifier.can_check(problem)]
    if bare:
        raise ValueError(
            f"{len(bare)} of {len(problems)} problems have no reference answer or program to check one "
            f"(first: id {bare[0]!r}), so nothing could say who solves them. Give references, or drop them"
        )


def checked_ks(ks: Sequence[int] | None, num_generations: int) -> tuple[int, ...]:
    """The ks in order; None = the powers of two up to num_generations, and num_generations."""
    if type(num_generations) is not int or num_generations < 1:
        raise ValueError(f"num_generations must be a whole number of at least 1, got {num_generations!r}")
    if ks is None:
        return tuple(sorted({*(2**i for i in range(num_generations.bit_length())), num_generations}))
    if not ks or any(type(k) is not int or not 1 <= k <= num_generations for k in ks):
        raise ValueError(
            f"ks must be whole numbers from 1 to num_generations = {num_generations}, got {list(ks)!r}: "
            "pass@k needs at least k completions a problem"
        )
    return tuple(sorted(set(ks)))


def shares(budgets: Mapping[str, float | None], models: int) -> dict[str, float | None]:
    """What each of the models may spend of a total."""
    each = dict(budgets)
    for name, total in budgets.items():
        if isinstance(total, int | float) and not isinstance(total, bool):
            each[name] = total / models if name == "budget_usd" else total // models
            if total > 0 and not each[name]:
                raise ValueError(f"{name}={total} leaves nothing for each of {models} models: raise it")
    return each


def slug(name: str) -> str:
    """A folder name for a model's name; a hash tells apart names that would share one."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower())[:60].strip(".-")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}".lstrip("-")
