"""Comparing strategies: solves what they made, and the seeds, and hands all of it to the analysis.

A reference solver writes k drafts for every accepted problem and every seed, each verified (a distillation
run of drafts in `<run>/solver`; `<run>/second_solver` for another one); where embeddings are wanted they are
asked for. All of this at the same time: no model waits for another. What is computed from it, without a
model, is `cotkit.analysis.StrategyComparison`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cotkit import aio, analysis  # numpy comes with the first name of analysis that is used
from cotkit.chat import ChatModel, ModelError, checked_url, classify_failure, read_key
from cotkit.keys import scrub
from cotkit.paths import run_folder
from cotkit.pipelines.questions import ORIGINAL
from cotkit.pipelines.side_by_side import SideBySide
from cotkit.pipelines.synthesis_recipe import check_whole
from cotkit.pipelines.synthesize import synthesized_problems
from cotkit.problems import Problem, load_problems
from cotkit.records import Row
from cotkit.rules import identity
from cotkit.runs import Run, folder_name
from cotkit.whole import whole_file

if TYPE_CHECKING:
    from cotkit.analysis import StrategyComparison

SEEDS = "seeds"
BATCH, AT_ONCE = 256, 4  # texts in one request for embeddings, and such requests in flight
DECIDED = {  # of each solver's run, and what says it here
    "num_generations": "k= is how many drafts each problem gets",
    "max_iterations": "a solver's drafts are not refined",
    "unchecked": "what nothing can check is kept, and counted as undecided",
}
Embed = Callable[[list[str]], Any]


class Comparison:
    """What is to be compared and asked; everything checked, nothing asked yet."""

    def __init__(
        self,
        runs: Mapping[str, Run | str | os.PathLike[str]],
        solver: ChatModel | None = None,
        seeds: Any = None,
        *,
        second_solver: ChatModel | None = None,
        k: int = 4,
        kernel: str | Embed | Mapping[str, Any] = "tfidf",
        sample: int = 200,
        hard: float = 0.25,
        seed: int = 0,
        run: str | os.PathLike[str] | None = None,
        **options: Any,
    ):
        if not isinstance(runs, Mapping) or not runs:
            raise TypeError("runs must be {strategy: run of synthesize}, with at least one")
        if SEEDS in runs:
            raise ValueError(f"{SEEDS!r} is the name of the baseline: give the strategy another one")
        check_comparison(solver, second_solver, k=k, kernel=kernel, sample=sample, hard=hard, **options)
        solvers = {"solver": solver, "second_solver": second_solver}
        self.solvers = {role: model for role, model in solvers.items() if model is not None}
        self.runs = {name: one if isinstance(one, Run) else Run(one) for name, one in runs.items()}
        self.seeds = [] if seeds is None else load_problems(seeds)
        made = {name: synthesized_problems(one, all=True) for name, one in self.runs.items()}
        self.problems, self.ambiguous = _distinct({SEEDS: self.seeds, **made})
        self.embed = _embedder(kernel)
        self.measures = {"k": k, "sample": sample, "hard": hard, "seed": seed}
        described = {"runs": {name: str(one.path) for name, one in self.runs.items()}, "k": k}
        described |= {role: model.describe() for role, model in self.solvers.items()}
        self.folder = run_folder(folder_name("compare", described) if run is None else run)
        self.where = {name: options.pop(name) for name in ("show", "executor", "shards") if name in options}
        drafts = {"num_generations": k, "max_iterations": 0, "unchecked": "keep", "seed": seed}
        self.options = {**options, **drafts}
        self.solved: dict[str, list[Row]] = {}
        self._failed: Exception | None = None  # the kernel's

    def solving(self) -> SideBySide:
        """The solvers' runs, their folders open, nothing asked yet."""
        solvers = self.solvers if self.problems else {}
        folders = {role: self.folder / role for role in solvers}
        return SideBySide(self.problems, solvers, folders, self.options, **self.where)

    def ask_kernel(self, solving: SideBySide) -> None:
        """Asks for `kernel` while the problems are solved. Where it fails there will be no comparison: what
        is in flight is finished and kept, nothing new is begun, and `take` raises its error."""
        try:
            _ = self.kernel
        except Exception as error:  # noqa: BLE001 - a function of the user's, and the network
            self._failed = error
            solving.stop(f"the kernel failed ({type(error).__name__})")

    def take(self, ends: Mapping[str, Run | BaseException]) -> None:
        """The solvers' runs; raises what ended one of them, or the kernel."""
        if self._failed is not None:
            raise self._failed
        for role, end in ends.items():
            if isinstance(end, BaseException):
                raise end
            self.solved[role] = [row for row in end.records() if row.problem not in self.ambiguous]

    @functools.cached_property
    def rows(self) -> dict[str, list[Row]]:
        return {name: run.records() for name, run in self.runs.items()}

    @functools.cached_property
    def kernel(self) -> Any:
        """How alike the questions are, by vectors that are asked for now; None = TF-IDF."""
        if self.embed is None or not (texts := analysis.compared_texts(self.rows, self.seeds)):
            return None
        return analysis.given_kernel(_vectors(*self.embed, texts, self.folder), len(texts), self.embed[0])

    def _foreign(self) -> Iterator[str]:
        known = {seed.id for seed in self.seeds}
        for name, made in self.rows.items():
            used = {id for row in made for id in row.metadata.get("synthesis", {}).get("seed_ids", ())}
            if known and (others := len(used - known)):
                yield f"{others:,} of the {len(used):,} seeds of {name} are not among those compared with."

    def result(self) -> StrategyComparison:
        return analysis.StrategyComparison.of(
            self.rows,
            {name: run.report for name, run in self.runs.items()},
            self.seeds,
            kernel=self.kernel,
            unlike=[*unlike({name: run.config for name, run in self.runs.items()}), *self._foreign()],
            solved=self.solved.get("solver", ()),
            solved_by_second=self.solved.get("second_solver", ()),
            **self.measures,
        )


def check_comparison(
    solver: ChatModel | None = None,
    second_solver: ChatModel | None = None,
    *,
    k: int = 4,
    kernel: str | Embed | Mapping[str, Any] = "tfidf",
    sample: int = 200,
    hard: float = 0.25,
    **options: Any,
) -> None:
    """Raises what `compare_strategies` would for options that cannot work, whatever the runs: a notebook asks
    before it pays for them."""
    for name, value, least in (("k", k, 1), ("sample", sample, 3)):
        check_whole(name, value, least)
    if isinstance(hard, bool) or not isinstance(hard, (int, float)) or not 0 <= hard < 1:
        raise ValueError(f"hard is the solve rate up to which a problem is hard, in 0..1, got {hard!r}")
    for role, model in {"solver": solver, "second_solver": second_solver}.items():
        if model is not None and not hasattr(model, "acandidates"):
            raise TypeError(f"{role} must be a ChatModel, got {type(model).__name__}")
    if solver is None and second_solver is not None:
        raise ValueError("second_solver is compared with solver: give both")
    for name in filter(DECIDED.get, options):
        raise TypeError(f"compare_strategies has no option {name!r}: {DECIDED[name]}")
    if solver is None and options:
        raise TypeError(f"{sorted(options)[0]} is an option of the solver's run, but there is no solver")
    _embedder(kernel)


def compare_strategies(
    runs: Mapping[str, Run | str | os.PathLike[str]],
    solver: ChatModel | None = None,
    seeds: Any = None,
    **options: Any,
) -> StrategyComparison:
    """Compare ways to make problems by reliability, diversity and difficulty; blocks, can be interrupted.

    runs: {strategy: its run of `synthesize`, or the run's name}. Equal numbers of attempts compare best;
        where they differ the result says so.
    seeds: what the runs were made from, as for `load_problems`: the baseline. None = no baseline.
    solver: the ChatModel whose solve rate is the difficulty; None leaves difficulty out. second_solver: of
        another strength: which sets tell the two apart? k: drafts a problem of each.
    kernel: how alike questions are: "tfidf"; an endpoint that speaks OpenAI's embeddings API, {"model": ...,
        "base_url": ..., "api_key_env": ...}, whose vectors are kept in the folder; or a function {list of
        texts -> one vector each}, which every call asks anew: no two functions can be told apart for sure.
    sample: questions of the equal-size subsets that diversity is measured on, at most.
    hard: the solve rate up to which a problem is hard.
    run: name or path of the folder for the solvers' runs; None = named by runs and solvers, so that the same
        call resumes, and asks only for problems that came in since.
    Further options go to each solver's `distill`: temperature, top_p, max_tokens, resume, show, time_limit,
        budget_usd, budget_tokens, budget_calls (for each solver), verifier, few_shot_examples, executor,
        shards. num_generations, max_iterations and unchecked are decided: TypeError.

    Raises ValueError or TypeError for anything wrong with runs, seeds or options, before the first call.
    """
    comparison = Comparison(runs, solver, seeds, **options)
    with comparison.solving() as solving:
        ends = aio.run(solving.go(), solving.tick, meanwhile=lambda: comparison.ask_kernel(solving))
    comparison.take(ends)
    return comparison.result()


async def acompare_strategies(
    runs: Mapping[str, Run | str | os.PathLike[str]],
    solver: ChatModel | None = None,
    seeds: Any = None,
    **options: Any,
) -> StrategyComparison:
    """`compare_strategies` for a cell that awaits; the same options."""
    comparison = Comparison(runs, solver, seeds, **options)
    with comparison.solving() as solving:
        solved = aio.arun(solving.go(), solving.tick)
        ends, _ = await aio.together([solved, asyncio.to_thread(comparison.ask_kernel, solving)])
    await asyncio.to_thread(comparison.take, ends)
    return await asyncio.to_thread(comparison.result)


def unlike(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What runs differ in beside the strategy, a sentence each; addresses of models do not count.

    Prompts and gates that only some strategies have, or have with another default, are part of the strategy.
    """
    told: dict[str, dict[str, str]] = {}
    for name, config in configs.items():
        for part, value in _parts(config).items():
            told.setdefault(part, {})[name] = value
    roles = {part for part in told if part.startswith("model of")}
    for part, values in told.items():
        if part in roles:
            values = {name: values.get(name, "none") for name in configs}
        if len(set(values.values())) > 1:
            each = ", ".join(f"{name} {value}" for name, value in values.items())
            yield f"The runs differ in their {part} ({each}): differences may come from that."


def _parts(config: Mapping[str, Any]) -> dict[str, str]:
    """{what should be the same in all runs: its value, in words}"""
    seeds = config.get("seeds", {})
    parts = {"seeds or their order": f"{seeds.get('count')} of hash {seeds.get('hash')}"}
    for role, model in config.get("roles", {}).items():
        if role != "solver" or config.get("votes"):
            said = json.dumps(identity(model), sort_keys=True)
            parts[f"model of the {role}"] = (
                f"{model['model']} #{hashlib.sha256(said.encode()).hexdigest()[:6]}"
            )
    parts |= {f"prompt {name}": hash for name, hash in config.get("prompts", {}).items()}
    for name, value in config.get("gates", {}).items():
        own = config["strategy"] == "self_instruct" and name in ORIGINAL
        parts[f"gate {name}{' of self_instruct' * own}"] = str(value)
    return parts | {name: str(config.get(name)) for name in ("votes", "sampling", "program_timeout")}


def _distinct(sets: Mapping[str, Sequence[Problem]]) -> tuple[list[Problem], set[str]]:
    """Each question once, under an id that names its set; and the texts that have several references.

    Sets take turns, so that a budget that runs out leaves each as many solved problems as the others.
    """
    references: dict[str, set[str | None]] = {}
    queues: list[list[Problem]] = []
    for name, problems in sets.items():
        queues.append([])
        for problem in problems:
            if problem.problem not in references:
                queues[-1].append(problem.model_copy(update={"id": f"{name}/{problem.id}"}))
            references.setdefault(problem.problem, set()).add(problem.reference)
    longest = max(map(len, queues))
    turns = [queue[i] for i in range(longest) for queue in queues if i < len(queue)]
    return turns, {text for text, several in references.items() if len(several) > 1}


def _embedder(kernel: Any) -> tuple[str, Embed, str | None] | None:
    """(name, function, what its vectors are kept under) of a kernel; None = TF-IDF."""
    if isinstance(kernel, str) and kernel == "tfidf":
        return None
    if callable(kernel):
        return getattr(kernel, "__name__", type(kernel).__name__), kernel, None
    if not isinstance(kernel, Mapping) or not {"model"} <= set(kernel) <= {
        "model",
        "base_url",
        "api_key_env",
    }:
        raise ValueError(
            "kernel must be 'tfidf', a function of a list of texts, or an endpoint as {'model': ..., "
            f"'base_url': ..., 'api_key_env': ...}}, got {kernel!r}"
        )
    model, url = kernel["model"], checked_url(kernel.get("base_url"))
    if not isinstance(model, str) or not model:
        raise ValueError(f"kernel: model must be the name of an embedding model, got {model!r}")
    key = read_key(kernel.get("api_key_env"), url)
    asked = functools.partial(_embeddings, model=model, url=url, key=key)
    return f"{model} at {urlsplit(url).netloc}", asked, f"{model} at {url}"


def _embeddings(texts: list[str], model: str, url: str, key: str | None) -> list[list[float]]:
    import openai

    texts = [text.encode("utf-8", "replace").decode() for text in texts]  # no lone surrogate can be sent
    failed: ModelError | None = None
    vectors: list[list[float]] = []

    def ask(start: int) -> list[list[float]]:
        batch = texts[start : start + BATCH]
        answer = client.embeddings.create(model=model, input=batch, encoding_format="float")
        return [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]

    threads = ThreadPoolExecutor(AT_ONCE, "cotkit-embeddings")
    with openai.OpenAI(base_url=url, api_key=key or "none", max_retries=5) as client:
        client.organization = client.project = None  # OpenAI's own business
        try:
            for some in threads.map(ask, range(0, len(texts), BATCH)):
                vectors += some
        except openai.APIStatusError as error:
            known = classify_failure(error.status_code, error.response.headers, error.body)
            failed = ModelError(known.kind, scrub(f"{urlsplit(url).netloc}: {known.message}", [key or ""]))
        except openai.APIConnectionError as error:
            failed = ModelError("connection", f"{urlsplit(url).netloc}: {error.__cause__ or error}")
        finally:  # at an error and an interrupt too
            threads.shutdown(wait=False, cancel_futures=True)
    if failed is not None:
        raise failed  # outside of `except`: a traceback must not show the client's own error, key and all
    return vectors


def _vectors(name: str, embed: Embed, kept_as: str | None, texts: Sequence[str], folder: pathlib.Path) -> Any:
    """The vectors of the texts, each asked for once; those of an endpoint are kept in `embeddings.npz` of the
    folder. Two functions may have one name, so that theirs are not."""
    import numpy as np

    keys = [hashlib.sha256(f"{kept_as}\0{t}".encode("utf-8", "surrogatepass")).hexdigest() for t in texts]
    path = folder / "embeddings.npz"
    known: dict[str, Any] = {}
    if kept_as is not None and path.is_file():
        with np.load(path) as stored:
            known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if new:
        vectors = analysis.given_kernel(embed(list(new.values())), len(new), name).vectors
        known = {**{key: known[key] for key in keys if key in known}, **dict(zip(new, vectors, strict=True))}
    if new and kept_as is not None:
        with whole_file(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, keys=np.array(list(known)), vectors=np.array(list(known.values())))
    return np.array([known[key] for key in keys])
