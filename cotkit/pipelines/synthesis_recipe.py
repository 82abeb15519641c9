"""What a synthesis is made with: every option checked before the first call, and gathered in a `Recipe`."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2

from cotkit.chat import check_sampling
from cotkit.pipelines.operators import OPERATORS, Operator, parse_operators
from cotkit.pipelines.questions import check_gates
from cotkit.pipelines.strategies import SHOWN, STRATEGIES, group_of, shuffled
from cotkit.problems import Problem
from cotkit.prompts import Prompt, load_all
from cotkit.verify import AnswerVerifier, run_python

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

VERIFIER = AnswerVerifier()


@dataclass(frozen=True)
class Recipe:
    """Everything a row depends on. `describe()` is what the run folder compares on resume."""

    strategy: str
    seeds: tuple[Problem, ...]  # shuffled: attempt i starts from seed i, round and round
    roles: dict[str, ChatModel]  # generator, coder, answerer, solver and perhaps judge
    prompts: dict[str, Prompt]
    votes: int
    k: int
    machine_share: float
    rounds: int
    lag: int | None  # None until the run chooses it
    operators: tuple[Operator, ...]
    gates: dict[str, Any]
    program: dict[str, Any]  # options of run_python
    seed: int
    sampling: dict[str, Any]  # of the question
    notes: list[str]  # what was cut or left out, and why

    @property
    def models(self) -> list[ChatModel]:
        return list({id(model): model for model in self.roles.values()}.values())

    @property
    def places(self) -> int:
        """Calls that may be in flight, of all models together."""
        return sum(model.max_concurrency for model in self.models)

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for seed in self.seeds:
            digest.update(repr(seed).encode("utf-8", "backslashreplace"))
        plain = ("strategy", "votes", "k", "machine_share", "rounds", "lag", "gates", "seed", "sampling")
        return {
            "pipeline": "synthesize",
            "seeds": {"count": len(self.seeds), "hash": digest.hexdigest()[:16]},
            "roles": {role: model.describe() for role, model in self.roles.items()},
            "prompts": {name: prompt.hash for name, prompt in self.prompts.items()},
            "operators": {operator.name: operator.model_dump() for operator in self.operators},
            "program_timeout": self.program["timeout"],
            "verifier": VERIFIER.describe(),
            **{name: getattr(self, name) for name in plain},
        }


def make_recipe(
    seeds: Sequence[Problem],
    strategy: str,
    generator: ChatModel,
    judge: ChatModel | None = None,
    *,
    coder: ChatModel | None = None,
    answerer: ChatModel | None = None,
    solver: ChatModel | None = None,
    votes: int = 0,
    k: int | None = None,
    machine_share: float = 0.25,
    rounds: int = 4,
    lag: int | None = None,
    operators: Sequence[str | Mapping[str, Any] | Operator] | None = None,
    gates: dict[str, Any] | None = None,
    prompts: dict[str, str] | None = None,
    seed: int = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    program_timeout: float = 10.0,
    allow_weak_isolation: bool = False,
) -> Recipe:
    """The checked options; raises ValueError, TypeError or SandboxTooWeak for whatever could not work."""
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    others = {"coder": coder, "answerer": answerer, "solver": solver}
    roles = {"generator": generator, **{role: model or generator for role, model in others.items()}}
    roles |= {} if judge is None else {"judge": judge}
    for role, model in roles.items():
        if not hasattr(model, "acandidates"):
            raise TypeError(f"{role} must be a ChatModel, got {type(model).__name__}")
    k = SHOWN[strategy] if k is None else k
    for name, value, least in (("k", k, 1), ("rounds", rounds, 1), ("votes", votes, 0)):
        check_whole(name, value, least)
    if lag is not None:
        check_whole("lag", lag, 1)
    if not 0 <= machine_share < 1:
        raise ValueError(f"machine_share must be from 0 to below 1, got {machine_share!r}")
    sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
    check_sampling({**sampling, "seed": seed}, None)
    VERIFIER.check_problems(seeds)
    operators = parse_operators(operators)
    fewest = min(Counter(map(group_of, seeds)).values())
    notes = _notes(seeds, 1 if strategy == "evol_instruct" else k, fewest)
    if votes and roles["solver"] is roles["answerer"]:
        notes.append("the votes come from the model that wrote the worked answers: they are not independent")
    gates, taken_back = check_gates(gates, strategy, [seed.problem for seed in seeds])
    notes += taken_back
    if strategy == "evol_instruct" and fewest == 1 and all(o.problems == 2 for o in operators):
        raise ValueError("every operator needs two problems, but a split and type has one seed: give others")
    recipe = Recipe(
        strategy=strategy,
        seeds=tuple(shuffled(seeds, random.Random(f"{seed}:seeds"))),
        roles=roles,
        prompts=load_all(prompts, f"synth_{strategy}", "synth_code", "reasoning", "synth_judge"),
        votes=votes,
        k=k,
        machine_share=machine_share,
        rounds=rounds,
        lag=lag,
        operators=operators,
        gates=gates,
        program={"timeout": program_timeout, "allow_weak_isolation": allow_weak_isolation},
        seed=seed,
        sampling={name: value for name, value in sampling.items() if value is not None},
        notes=notes,
    )
    _try_prompts(recipe.prompts)
    run_python("", **recipe.program)  # SandboxTooWeak now, not after the first paid call
    return recipe


def check_whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _notes(seeds: Sequence[Problem], k: int, fewest: int) -> list[str]:
    notes = []
    if fewest < k:
        notes.append(f"k={k}, but the smallest split and type has {fewest}: its prompts show no more")
    if bare := sum(not seed.solution_code for seed in seeds):
        notes.append(f"{bare} of {len(seeds)} seeds have no program to show the coder or to try a judge on")
    return notes


def _try_prompts(prompts: dict[str, Prompt]) -> None:
    """A template that cannot be rendered fails here, before the first paid call."""
    names = ("problem", "second", "examples", "few_shot", "code", "printed", "nonce")
    values = {name: f"<{name}>" for name in names}
    tried = (OPERATORS["deepen"], OPERATORS["chain"])  # of both kinds
    for name, prompt in prompts.items():
        try:
            rendered = "".join(str(prompt.messages(operator=one, **values)) for one in tried)
        except jinja2.TemplateError as error:
            raise ValueError(f"prompt {name!r}: {error}; it may use operator, {', '.join(values)}") from None
        needed = ["<problem>"] * (name not in ("synth_few_shot", "synth_self_instruct"))
        needed += ["<code>"] * (name == "synth_judge")
        needed += [one.text for one in tried if name == "synth_evol_instruct"]
        if missing := [text for text in needed if text not in rendered]:
            raise ValueError(f"prompt {name!r} does not show {missing[0]}: see the shipped one for the names")
