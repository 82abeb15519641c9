"""The clients that are compared, each run as a process of its own that prints one line of JSON.

    python benchmarks/drivers.py cotkit-aiohttp single --base-url ... --n 1000 --width 100 --out FOLDER

`aiohttp` and `openai` are the floors: `width` tasks over one iterator, nothing checked, each answer written
as a line; `openai` with the client's own two retries. `cotkit-...` is `cotkit.distill` with everything on:
rendering, queue, cache, ledger, verification, journal. `camel` is CAMEL's SelfImprovingCoTPipeline, for which
the process must run in a venv of its own. The jobs: `single` = one trace a problem; `chain` = generate,
judge, refine at most twice; `file` = `single`, the problems left in a .jsonl file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import pathlib
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Any

REFINEMENTS = 2
PASS = 0.8  # the judge gives 0.9, or at most 0.4
Ask = Callable[[list[dict[str, str]], bool], Awaitable[str]]


def problem_text(number: int) -> str:
    return (
        f"PID={number} A crate holds {number} parts and is filled again and again. How many parts are there?"
    )


def messages(
    text: str, system: str = "Reason step by step. End with \\boxed{answer}."
) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


async def pool(numbers: range, width: int, work: Callable[[int], Awaitable[None]]) -> None:
    todo = iter(numbers)

    async def worker() -> None:
        for number in todo:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(min(width, len(numbers)))))


async def bare(ask: Ask, options: argparse.Namespace) -> None:
    """What every tool must do at least, with nothing around it."""
    with open(pathlib.Path(options.out) / "rows.jsonl", "w", encoding="utf-8") as file:

        def keep(number: int, *texts: str) -> None:
            file.write(json.dumps({"id": number, "texts": texts}) + "\n")

        async def single(number: int) -> None:
            keep(number, await ask(messages(problem_text(number)), False))

        async def chain(number: int) -> None:
            trace = await ask(messages(problem_text(number)), False)
            texts = [trace]
            for iteration in range(REFINEMENTS + 1):
                review = await ask(messages(f"{problem_text(number)}\n\n{trace}", "Judge this trace."), True)
                texts.append(review)
                if json.loads(review)["correctness"]["score"] / 10 >= PASS or iteration == REFINEMENTS:
                    break
                trace = await ask(messages(f"{problem_text(number)}\n\n{trace}\n\n{review}"), False)
                texts.append(trace)
            keep(number, *texts)

        work = single if options.job == "single" else chain

        async def work_or_lose(number: int) -> None:
            with contextlib.suppress(Exception):  # as whoever catches an error and goes on
                await work(number)

        await pool(range(options.n), options.width, work_or_lose if options.lose else work)


def request_body(prompt: list[dict[str, str]], judging: bool) -> dict[str, Any]:
    body = {"model": "mock", "messages": prompt, "temperature": 0.7}
    return body | {"response_format": {"type": "json_object"}} if judging else body


async def over_aiohttp(options: argparse.Namespace) -> None:
    import aiohttp

    url = f"{options.base_url}/chat/completions"
    connector = aiohttp.TCPConnector(limit=options.width)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(prompt: list[dict[str, str]], judging: bool) -> str:
            async with session.post(url, json=request_body(prompt, judging)) as answer:
                return (await answer.json())["choices"][0]["message"]["content"]

        await bare(ask, options)


async def over_openai(options: argparse.Namespace) -> None:
    import openai

    places = 2 * options.width
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)(max_connections=places, max_keepalive_connections=places)
    transport = openai.DefaultAioHttpClient(limits=limits)
    client = openai.AsyncOpenAI(api_key="x", base_url=options.base_url, http_client=transport)
    async with client:

        async def ask(prompt: list[dict[str, str]], judging: bool) -> str:
            answer = await client.chat.completions.create(**request_body(prompt, judging))
            return answer.choices[0].message.content

        await bare(ask, options)


def with_cotkit(options: argparse.Namespace) -> None:
    import cotkit

    model = cotkit.ChatModel(
        "mock",
        base_url=options.base_url,
        max_concurrency=options.width,
        max_requests_per_minute=options.rpm or None,
        transport=options.driver.removeprefix("cotkit-"),
        temperature=0.7,
    )
    problems: Any = (
        {"id": str(number), "problem": problem_text(number), "reference": str(number)}
        for number in range(options.n)
    )
    if options.job == "file":
        path = pathlib.Path(options.out) / "problems.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(problem) + "\n" for problem in problems)
        problems = cotkit.load_problems(path, stream=True)
    else:
        problems = list(problems)
    chain = options.job == "chain"
    run = cotkit.distill(
        problems,
        model,
        cotkit.LLMJudge(model, ["correctness"]) if chain else None,
        max_iterations=REFINEMENTS if chain else 0,
        score_threshold=PASS if chain else None,
        run=pathlib.Path(options.out) / "run",
        show="none",
    )
    report = run.report
    assert report["given"] == report["kept"] + sum(report["drops"].values()), report


def with_camel(options: argparse.Namespace) -> None:
    from camel.agents import ChatAgent
    from camel.datagen import SelfImprovingCoTPipeline
    from camel.models import ModelFactory
    from camel.types import ModelPlatformType
    from camel.utils import BaseTokenCounter

    class Words(BaseTokenCounter):
        """In place of tiktoken's, whose tables are fetched from the net at first use; costs less than it."""

        def count_tokens_from_messages(self, messages: list[dict[str, Any]]) -> int:
            return sum(len(str(message.get("content")).split()) for message in messages)

        def encode(self, text: str) -> list[int]:
            return list(range(len(text.split())))

        def decode(self, token_ids: list[int]) -> str:
            return " ".join(map(str, token_ids))

    model = ModelFactory.create(
        model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
        model_type="mock",
        url=options.base_url,
        api_key="x",
        token_counter=Words(),
    )
    pipeline = SelfImprovingCoTPipeline(
        reason_agent=ChatAgent("Reason step by step.", model=model),
        evaluate_agent=ChatAgent("Judge.", model=model),
        problems=[{"problem": problem_text(n), "solution": str(n)} for n in range(options.n)],
        max_iterations=REFINEMENTS,
        score_threshold=PASS,
        output_path=str(pathlib.Path(options.out) / "camel.json"),
        max_workers=options.width,
        batch_size=100,  # its default of 10 waits for the slowest of each 10
    )
    pipeline.generate()


DRIVERS = {
    "aiohttp": lambda options: asyncio.run(over_aiohttp(options)),
    "openai": lambda options: asyncio.run(over_openai(options)),
    "cotkit-openai": with_cotkit,
    "cotkit-aiohttp": with_cotkit,
    "camel": with_camel,
}


def waited_s() -> float:
    """Seconds this process' threads were ready to run, but did not (cotkit's loop has one of its own)."""
    threads = pathlib.Path("/proc/self/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9


def written_bytes() -> int:
    try:
        lines = pathlib.Path("/proc/self/io").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("wchar")).split()[1])
    except OSError:
        return 0


def lines(path: pathlib.Path) -> int:
    with open(path, "rb") as file:  # line by line, or it would be the peak of memory
        return sum(1 for _ in file)


def cpu_s() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("driver", choices=DRIVERS)
    arguments.add_argument("job", choices=("single", "chain", "file"))
    arguments.add_argument("--base-url", required=True)
    arguments.add_argument("--n", type=int, default=100)
    arguments.add_argument("--width", type=int, default=20)
    arguments.add_argument("--rpm", type=float, default=0, help="the cap that cotkit is told")
    arguments.add_argument("--lose", type=int, default=0, help="1: a bare loop goes on without a row")
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    warm(options)
    began, cpu, waited, written = time.monotonic(), cpu_s(), waited_s(), written_bytes()
    DRIVERS[options.driver](options)
    files = [path for path in pathlib.Path(options.out).rglob("*") if path.is_file()]
    rows = [lines(path) for path in files if path.name == "rows.jsonl"]
    print(
        json.dumps(
            {
                "wall_s": time.monotonic() - began,
                "cpu_s": cpu_s() - cpu,
                "waited_s": waited_s() - waited,
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "written_bytes": written_bytes() - written,
                "file_bytes": sum(path.stat().st_size for path in files),
                "rows": sum(rows),
            }
        )
    )


def warm(options: argparse.Namespace) -> None:
    """Imports are start-up, which is measured apart."""
    if options.driver.startswith("cotkit"):
        import cotkit

        _ = cotkit.distill, cotkit.LLMJudge, cotkit.ChatModel
        importlib.import_module("filelock")
        cotkit.check_answer("1", "1")
    libraries = {"aiohttp": ["aiohttp"], "openai": ["openai", "aiohttp"], "camel": ["camel.datagen"]}
    for name in libraries[options.driver.removeprefix("cotkit-")]:
        importlib.import_module(name)


if __name__ == "__main__":
    main()
