"""The judge of a generated problem, and how far it can be trusted.

A chat model reads question, program and printed answer and decides two things, reasons first: is the question
well posed, and does the program answer it. `calibrate` asks it about pairs whose truth is known: programs of
seeds as they are, and the same with one planted error (planted.py). What it misses and what it refuses
wrongly are its miss and false-alarm rates, printed beside its verdicts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cotkit import aio
from cotkit.chat import CallLedger, ChatModel, ModelError
from cotkit.judge import nonce
from cotkit.pipelines.planted import KINDS, planted_errors
from cotkit.pipelines.programs import printed_by, single_answer
from cotkit.pipelines.running import Dropped
from cotkit.problems import Problem
from cotkit.prompts import Prompt
from cotkit.records import Judgement
from cotkit.verify import acheck_answer

PARTS = ("question", "code")
MOST_TRIED = 12  # planted errors run until one changes the answer


def _closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_DECISION = _closed(reason={"type": "string"}, ok={"type": "boolean"})
SCHEMA = {"title": "check", **_closed(**dict.fromkeys(PARTS, _DECISION))}


async def judge_pair(
    model: ChatModel, prompt: Prompt, ledger: CallLedger, role: str, question: str, code: str, printed: str
) -> Judgement:
    """Scores 1.0 or 0.0 for `question` and `code`; scores None when the judge failed."""
    code_mark = nonce(question, code, printed)
    messages = prompt.messages(problem=question, code=code, printed=printed, nonce=code_mark)
    try:
        answer = await model.acomplete(messages, schema=SCHEMA, ledger=ledger, role=role)
    except ModelError as error:
        if error.stops_run:
            raise
        return Judgement(scores=None, error=f"{error.kind}: {error}", judge=model.name, raw=error.raw)
    parts = {part: answer.parsed[part] for part in PARTS}
    return Judgement(
        scores={part: float(said["ok"]) for part, said in parts.items()},
        reasons={part: said["reason"] for part, said in parts.items()},
        judge=model.name,
        raw=answer.text,
        call=answer.provenance(),
    )


def accepts(judgement: Judgement) -> bool | None:
    """None = the judge failed."""
    return None if judgement.scores is None else all(judgement.scores.values())


async def calibrate(
    seeds: Sequence[Problem],
    pairs: int,
    judge: Callable[[str, str, str], Awaitable[Judgement]],
    rng: random.Random,
    **options: Any,
) -> dict[str, Any]:
    """Miss and false-alarm rates on up to `pairs` known-good seeds, each also with one planted error.

    `judge(question, code, printed)` is asked twice a pair; `options` are those of `run_python`. A seed is
    left out when its program does not run or contradicts its reference, or no error changes its answer.
    """
    from cotkit.analysis import Rate

    known: list[str] = []  # kinds of the errors
    asked: list[asyncio.Future[Judgement]] = []  # at once, while the next programs run
    try:
        for seed in seeds:
            if len(known) < pairs and (right := await _right_answer(seed, options)) is not None:
                kinds = [*KINDS[len(known) % len(KINDS) :], *KINDS]  # each kind gets its turn first
                if (planted := await _planted(seed, right, kinds, rng, options)) is not None:
                    kind, code, wrong = planted
                    known.append(kind)
                    pair = ((seed.solution_code, right), (code, wrong))
                    asked += [asyncio.ensure_future(judge(seed.problem, *shown)) for shown in pair]
        said = [accepts(judgement) for judgement in await aio.together(asked)]
    finally:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    untouched, spoilt = said[::2], said[1::2]
    kinds = {kind: [0, 0] for kind in KINDS}
    for kind, accepted in zip(known, spoilt, strict=True):
        kinds[kind][0] += accepted is True
        kinds[kind][1] += accepted is not None
    return {
        "pairs": len(known),
        "miss": dataclasses.asdict(Rate.of_flags(spoilt)),
        "false_alarm": dataclasses.asdict(Rate.of_flags(a if a is None else not a for a in untouched)),
        "missed_by_kind": {kind: {"missed": missed, "of": of} for kind, (missed, of) in kinds.items()},
        "undecided": said.count(None),
    }


def calibration_in_words(known: dict[str, Any]) -> str:
    """What a report prints beside the judge's verdicts."""
    from cotkit.analysis import Rate

    if not known["pairs"]:
        return "not calibrated, no seed has a program that runs and an error that changes its answer"
    missed = Rate(**known["miss"]).in_words("planted errors")
    refused = Rate(**known["false_alarm"]).in_words("right pairs")
    failed = f"; {known['undecided']} times no verdict" if known["undecided"] else ""
    return f"misses {missed}, refuses {refused}{failed}"


async def _right_answer(seed: Problem, options: dict[str, Any]) -> str | None:
    """What the seed's program prints, when nothing speaks against it."""
    answer = await _printed(seed.solution_code, options)
    if answer is None or seed.reference is None:
        return answer
    verdict = await acheck_answer(answer, seed.reference, seed.answer_type, seed.tolerance)
    return answer if verdict.correct else None


async def _planted(
    seed: Problem, right: str, kinds: Sequence[str], rng: random.Random, options: dict[str, Any]
) -> tuple[str, str, str] | None:
    """(kind, program, its answer) of the first planted error that changes the answer."""
    errors = [
        (kinds.index(kind), rng.random(), kind, make) for kind, make in planted_errors(seed.solution_code)
    ]
    for _, _, kind, make in sorted(errors)[:MOST_TRIED]:
        wrong = await _printed(code := make(), options)
        if wrong is None:
            continue
        verdict = await acheck_answer(wrong, right, seed.answer_type, seed.tolerance)
        if verdict.correct is False:
            return kind, code, wrong
    return None


async def _printed(code: str, options: dict[str, Any]) -> str | None:
    try:
        return single_answer(await printed_by(code, **options))[0]
    except Dropped:
        return None
