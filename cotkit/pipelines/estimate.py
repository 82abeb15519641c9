"""What a self-improvement run would ask at most, and what that may cost; nothing is asked."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.judge import LLMJudge
from cotkit.pipelines.critics import calls_of_watch
from cotkit.pipelines.distill import with_examples
from cotkit.problems import Problem
from cotkit.prompts import load

if TYPE_CHECKING:
    import pandas

    from cotkit.pipelines.plan import Plan

GUESSED_TOKENS = 512  # of an answer, where nothing sets max_tokens


def estimate(plan: Plan) -> pandas.DataFrame:
    """Calls at most by step and model, with their tokens and cost (nan = the price is not known).

    "again": a critic or a verifier's model whose JSON cannot be read is asked once more. Tokens are guesses:
    four characters each, answers at max_tokens. Not in it: requests that fail and are sent again, training.
    """
    import pandas

    lines = []
    for step, model, calls, characters, answer in _asked(plan):
        endpoint = model.endpoints[0]
        prompt, written = round(calls * characters / 4), calls * answer
        usd = endpoint.price(prompt, written, 0) if endpoint.price else None
        line = {"step": step, "model": model.name, "calls": calls, "prompt_tokens": prompt}
        lines += [line | {"completion_tokens": written, "usd": usd}] if calls else []
    frame = pandas.DataFrame(lines).astype({"usd": float})
    total = {name: frame[name].sum(skipna=False) for name in frame.columns[2:]}
    return pandas.concat([frame, pandas.DataFrame([{"step": "all", **total}])], ignore_index=True)


def _asked(plan: Plan) -> Iterator[tuple[str, Any, int, float, int]]:
    """(step, model, calls, characters of a prompt, tokens of an answer)."""
    train, dev, test = (len(plan.of_set(name)) for name in ("train", "dev", "test"))
    drawn = [min(train, plan.of_cycle("problems_per_cycle", c) or train) for c in range(plan.cycles)]
    drafts = [n * plan.num_generations for n in drawn]
    taught = drawn[0] * plan.teacher_generations if plan.teacher else drafts[0]
    refined = sum(drawn) * plan.iterations
    traces = taught + sum(drafts[1:]) + refined
    evaluated = (dev * (plan.cycles + 1) + 4 * test) * plan.dev_generations if plan.trainer else 0
    scored = traces + calls_of_watch(traces, plan.cycles) + evaluated
    held = dev * (plan.cycles + 1) + 2 * test if plan.trainer else 2 * sum(drawn)

    recipe, teacher = plan.recipe(0), plan.teacher or plan.actor
    problem = statistics.fmean(len(p.problem) for p in plan.problems)
    trace = 4 * (plan.max_tokens or _tokens(teacher))
    shown = {"few_shot": recipe.few_shot, "problem": "", "trace": None, "feedback": "-"}
    prompts = (recipe.prompts[name] for name in ("reasoning", "refine"))
    draft, refine = (problem + _characters(with_examples(prompt, **shown)) for prompt in prompts)
    refine += trace + 4 * GUESSED_TOKENS
    for step, model, calls, characters in (
        ("draft", teacher, taught, draft),
        ("draft", plan.actor, sum(drafts[1:]), draft),
        ("refine", plan.improver or teacher, drawn[0] * plan.iterations, refine),
        ("refine", plan.improver or plan.actor, sum(drawn[1:]) * plan.iterations, refine),
        ("evaluate", plan.actor, evaluated, draft),
    ):
        yield step, model, calls, characters, plan.max_tokens or _tokens(model)

    hold_out = plan.holdout_critic and plan.dev_judge(plan.holdout_critic)
    for step, judges, calls in (("criticise", plan.judge(0), scored), ("hold-out critic", hold_out, held)):
        for judge in _each(judges):
            in_json = isinstance(judge, LLMJudge)
            frame = _characters(judge.messages(Problem(id="", problem=""), "")) if in_json else 0
            for model in judge.models:
                yield from _once_or_twice(step, model, calls, problem + frame + trace, in_json)
    frame = _characters(load("verify").messages(problem="", one="", other="", nonce=""))
    for model in recipe.verifier.models:  # once a side, where a program cannot decide
        yield from _once_or_twice("verify", model, 2 * (traces + evaluated), problem + frame, True)


def _once_or_twice(step: str, model: Any, calls: int, characters: float, in_json: bool) -> Iterator[tuple]:
    yield step, model, calls, characters, _tokens(model)
    if in_json:  # the second prompt holds the first answer
        yield f"{step}, again", model, calls, characters + 4 * _tokens(model), _tokens(model)


def _characters(messages: Sequence[Mapping[str, str]]) -> int:
    return sum(len(message["content"]) for message in messages)


def _tokens(model: Any) -> int:
    """Of an answer, at most."""
    return model.endpoints[0].options.max_tokens or GUESSED_TOKENS


def _each(judge: Any) -> list[Any]:
    """The judges a judge is made of."""
    if judge is None:
        return []
    return [one for part in judge.judges for one in _each(part)] if hasattr(judge, "judges") else [judge]
