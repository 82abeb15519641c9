"""Synthesis: seed problems in, new problems with a program, an answer and a worked solution out.

After Loong (2025, arXiv 2509.03059), with Self-Instruct and Evol-Instruct as their papers have them. Attempts
run side by side, each on its own, no barrier. attempts.py says what must hold of one and the drop_reason of
each step, strategies.py what is asked, pool.py what attempts know of each other; here they become a run.

A shard of a run takes attempts of its own, whole chains of evol_instruct, and has a pool of its own. What
shards cannot know of each other is settled when they are merged (synthesis_merging.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cotkit.executors import check_executor
from cotkit.paths import run_folder
from cotkit.pipelines.attempts import Synthesizer, attempt_of
from cotkit.pipelines.lineage import made_problem
from cotkit.pipelines.options import divide, show_options
from cotkit.pipelines.progress import Show, check_show
from cotkit.pipelines.running import AHEAD, BETWEEN, RunJob, Work, check_limits
from cotkit.pipelines.shards import refuse_executor, run_shards
from cotkit.pipelines.strategies import LEAST_LAG, SPREAD, depends, fitting_lag, most_at_once
from cotkit.pipelines.synthesis_recipe import Recipe, check_whole, make_recipe
from cotkit.pipelines.synthesis_report import facts, told
from cotkit.problems import Problem, load_problems
from cotkit.runs import Run, config_differences, dump_json, folder_name

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

ATTEMPTS_EACH = 5  # attempts at most for each problem wanted, when `attempts` is not given
WAITING = 2000  # attempts that may wait for earlier ones beside those that ask


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
    return [made_problem(row) for row in (rows if all else rows[: run.report.get("wanted")])]


def synthesize(
    seeds: Any,
    strategy: str,
    generator: ChatModel,
    judge: ChatModel | None = None,
    *,
    show: Show = "auto",
    executor: Any = None,
    shards: int = 8,
    **options: Any,
) -> Run:
    """New verifiable problems from seed problems; blocks, can be interrupted and called again.

    seeds: what `load_problems` takes, or its result. Those with `solution_code` show the coder how to write
        and calibrate the judge; metadata["split"] and the licence are inherited, and seeds of different
        splits or types never meet in one prompt.
    strategy: "few_shot", "self_instruct" or "evol_instruct" (docs/synthesis.md).
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
        run at once with a larger one, the pool grows sooner with a smaller one. None = what keeps the models'
        places busy, chosen when the folder is begun and kept in it (docs/synthesis.md). The notes say where
        it leaves places empty, or is too large for any attempt to look back.
    operators: of evol_instruct, by name or as {"name", "text"}; None = all of operators.py.
    gates: limits that differ from the strategy's own (questions.py): min_words, max_words, keywords, near,
        rouge_l, new_words, starts, rules.
    prompts: {name: Jinja2 text} in place of the shipped `synth_<strategy>`, `synth_code`, `reasoning`,
        `synth_judge`.
    calibrate_judge: known-good seeds the judge is tried on, each as it is and with a planted error; its miss
        and false-alarm rates stand in run.report["judge_calibration"]. 0 = none.
    seed: of every choice; temperature, top_p, max_tokens: of the question, over the generator's settings.
    program_timeout: seconds for one run of a program; allow_weak_isolation: see `run_python`.
    run, resume: name or path of the run folder; "auto", "never" or "must". n and attempts may be raised;
        fewer attempts than the folder holds are refused.
    budget_usd, budget_tokens, budget_calls, time_limit (s), use_cache, show: as for `distill`.
    executor, shards: `attempts` as so many shards on anything with concurrent.futures' `submit`, see
        docs/scaling.md. Each has a pool of its own; problems that two shards both have are `repeated`.

    Raises ValueError or TypeError for anything wrong with seeds or options, and SandboxTooWeak, before the
    first call. Whatever the models answer, the run ends with counts and reasons.
    """
    check_show(show)
    if executor is not None:
        asked = (seeds, strategy, generator, judge)
        return told(_in_shards(asked, options, show, executor, shards), show)
    return told(_prepare(seeds, strategy, generator, judge, options).run(show), show)


async def asynthesize(
    seeds: Any,
    strategy: str,
    generator: ChatModel,
    judge: ChatModel | None = None,
    *,
    show: Show = "auto",
    **options: Any,
) -> Run:
    """`synthesize` for a cell that awaits; the same options, but for `executor` and `shards`."""
    check_show(show)
    refuse_executor("synthesize", options)
    return told(await _prepare(seeds, strategy, generator, judge, options).arun(show), show)


def start_synthesize(
    seeds: Any, strategy: str, generator: ChatModel, judge: ChatModel | None = None, **options: Any
) -> RunJob:
    """`synthesize` in the background: a job with progress, stop and result. The same options, but for `show`,
    `executor` and `shards`."""
    refuse_executor("synthesize", options)
    return _prepare(seeds, strategy, generator, judge, options).start()


def check_synthesize(
    seeds: Any, strategy: str, generator: ChatModel, judge: ChatModel | None = None, **options: Any
) -> None:
    """Raises what `synthesize` would for seeds and options that cannot work, whatever is in the folder: a
    notebook asks before it pays for another run."""
    _, of_run = _recipe(seeds, strategy, generator, judge, options)
    _attempts(of_run.get("n"), of_run.get("attempts"), 0)


def _recipe(
    seeds: Any, strategy: str, generator: ChatModel, judge: ChatModel | None, options: dict[str, Any]
) -> tuple[Recipe, dict[str, Any]]:
    """The checked recipe, and the options that are the run's alone."""
    of_recipe, of_run = divide("synthesize", options, make_recipe, _open)
    check_limits(**of_run)
    check_whole("calibrate_judge", of_run.get("calibrate_judge", 0), 0)
    return make_recipe(load_problems(seeds), strategy, generator, judge, **of_recipe), of_run


def _prepare(
    seeds: Any, strategy: str, generator: ChatModel, judge: ChatModel | None, options: dict[str, Any]
) -> Work:
    recipe, of_run = _recipe(seeds, strategy, generator, judge, options)
    return _open(recipe, **of_run)


def _open(
    recipe: Recipe,
    places: Sequence[Problem] | None = None,
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
    """The run, its folder open and nothing asked yet. `places`: the attempts of a shard; None = all."""
    run = run if run is not None else _name(recipe)
    recipe, attempts = _settled(recipe, None if places or resume == "never" else run_folder(run), n, attempts)
    config, made = recipe.describe(), Synthesizer(recipe)
    recipe.notes.extend(_lag_notes(recipe, attempts, n))
    budgets = {"budget_usd": budget_usd, "budget_tokens": budget_tokens, "budget_calls": budget_calls}

    async def beside() -> None:
        if "judge" in recipe.roles and calibrate_judge:
            await made.calibrate(calibrate_judge)

    work = Work(
        _places(recipe, attempts) if places is None else places,
        made.with_ledger,
        run=run,
        config=config,
        runtime={**budgets, "time_limit": time_limit, "n": n, "attempts": attempts},
        resume=resume,
        width=recipe.places if len(recipe.models) == 1 else BETWEEN * recipe.places,
        waiting=recipe.lag if recipe.strategy == "self_instruct" else max(WAITING, recipe.lag),
        budgets=budgets,
        use_cache=use_cache,
        time_limit=time_limit,
        models=recipe.models,
        facts=lambda: facts(made, n, attempts, len(work.folder.done)),
        made_from=recipe.seeds,
        enough=n,
        beside=beside,
    )
    try:
        made.places, before = work.places, Run(work.folder.path)
        made.remember(before.records())
        made.calibration = before.report.get("judge_calibration")  # when this sitting tries it on nothing
        if places is not None:  # nobody waits for what other shards do
            for attempt in set(range(attempts)) - set(map(attempt_of, places)):
                made.pool.settle(attempt, None)
    except BaseException:  # a damaged row, an interrupt while many are read
        work.abandon()
        raise
    return work


def _lag_notes(recipe: Recipe, attempts: int, n: int | None) -> list[str]:
    """What `lag` does to so many attempts."""
    notes, in_flight = [], attempts if n is None else min(attempts, AHEAD * n)
    evolves = recipe.strategy == "evol_instruct"
    without = 0 if evolves else 1  # attempts beyond `lag` that still have nothing to look back at
    reached = math.ceil(attempts / recipe.lag) if evolves else 1
    if depends(recipe) and (attempts <= recipe.lag + without or 1 < reached < recipe.rounds):
        lost = "no prompt shows a problem of this run"
        if evolves:
            often = f"more than {reached} of {recipe.rounds} times" if reached > 1 else "a second time"
            lost = f"no problem is rewritten {often}"
        less = max(1, attempts // (recipe.rounds if evolves else 2))
        less -= less == LEAST_LAG  # its folder would have the name of this one
        change = f". lag={less} would change that" if attempts > less + without else ""
        notes.append(f"lag={recipe.lag} of {attempts} attempts: {lost}{change}")
    if (most := most_at_once(recipe, in_flight)) < (places := recipe.places) <= in_flight:
        notes.append(
            f"lag={recipe.lag} lets {most} attempts run side by side: {places - most} of {places} places "
            f"stay empty. lag={SPREAD * places} uses most of them, and knows the run's problems later"
        )
    return notes


def _attempts(n: int | None, attempts: int | None, held: int) -> int:
    for name, value in (("n", n), ("attempts", attempts)):
        if value is not None:
            check_whole(name, value, 1)
    if n is None and attempts is None:
        raise ValueError("say how much: n= accepted problems, attempts= tries, or both")
    if n is not None and attempts is not None and attempts < n:
        raise ValueError(f"attempts={attempts} cannot give n={n} problems")
    if attempts is not None and attempts < held:
        raise ValueError(
            f"the run folder holds {held} attempts: give attempts={held} or more, or another run"
        )
    return attempts or max(ATTEMPTS_EACH * n, held)


def _name(recipe: Recipe) -> str:
    """Of its folder. A lag that is still to be chosen counts as the least one, whatever the places are."""
    return folder_name(recipe.strategy, recipe.describe() | {"lag": recipe.lag or LEAST_LAG})


def _settled(
    recipe: Recipe, folder: pathlib.Path | None, n: int | None, attempts: int | None, shards: int = 1
) -> tuple[Recipe, int]:
    """The recipe with its lag, and how many attempts. A folder that was begun goes on with the lag it has."""
    paths = [] if folder is None else [*folder.glob("config.json"), *folder.glob("shards/*/config.json")]
    parts = [Run(path.parent) for path in paths]
    lags = [recipe.lag] if recipe.lag is not None else [part.config.get("lag") for part in parts]
    lag = next((lag for lag in lags if isinstance(lag, int) and lag > 0), None)
    lag = lag or _lag_of(recipe, n, _attempts(n, attempts, 0), shards)
    recipe = dataclasses.replace(recipe, lag=lag)
    return recipe, _attempts(n, attempts, _held(parts, recipe.describe()))


def _lag_of(recipe: Recipe, n: int | None, attempts: int, shards: int) -> int:
    """For a folder that is begun now. Shards take blocks of lag x rounds attempts: each as many of them."""
    if not depends(recipe):
        return LEAST_LAG
    attempts /= shards
    lag = fitting_lag(recipe.places, int(attempts), n)
    if recipe.strategy == "evol_instruct":  # as many chains as go through all rounds, and places stay busy
        whole = max(SPREAD * recipe.places, (attempts if n is None else n) // recipe.rounds)
        lag = max(LEAST_LAG, min(lag, int(whole)))
    if shards > 1:
        part = attempts / recipe.rounds
        lag = max(LEAST_LAG, math.ceil(part / math.ceil(part / lag)))
    return lag


def _held(parts: Sequence[Run], config: dict[str, Any]) -> int:
    """How many attempts the parts of this configuration have, up to the last one."""
    config = json.loads(dump_json(config))
    rows = (
        row for part in parts if not config_differences(part.config, config) for row in part.iter_records()
    )
    return max((attempt_of(row) + 1 for row in rows), default=0)


def _places(recipe: Recipe, attempts: int) -> list[Problem]:
    """Empty problems with the ids that the rows will have."""
    return [Problem(id=f"{recipe.strategy}-{number:05d}", problem="") for number in range(attempts)]


def _in_shards(asked: tuple, options: dict[str, Any], show: Show, executor: Any, shards: int) -> Run:
    """`asked`: seeds, strategy, generator and judge."""
    asked = (load_problems(asked[0]), *asked[1:])
    recipe, of_run = _recipe(*asked, options)  # checked before a worker starts
    if of_run.get("n") is not None:
        raise ValueError("shards cannot count what the others accept: give attempts= in place of n=")
    check_executor(executor, shards)
    folder = run_folder(of_run.get("run") or _name(recipe))
    before = None if of_run.get("resume") == "never" else folder
    recipe, attempts = _settled(recipe, before, None, of_run.get("attempts"), shards)
    together = 1 if recipe.strategy == "few_shot" else recipe.lag * recipe.rounds  # chains stay whole
    return run_shards(
        functools.partial(_prepare_shard, asked),
        _places(recipe, attempts),
        executor,
        folder,
        shards,
        {**options, "lag": recipe.lag},
        shard_of=lambda attempt: attempt // together % shards,
        show=show,
    )


def _prepare_shard(asked: tuple, places: Sequence[Problem], options: dict[str, Any]) -> Work:
    """In the worker. Only the first shard tries the judge."""
    recipe, of_run = _recipe(*asked, options)
    if attempt_of(places[0]) > 0:
        of_run["calibrate_judge"] = 0
    return _open(recipe, places, **of_run)


show_options((synthesize, asynthesize, start_synthesize), make_recipe, _open)
