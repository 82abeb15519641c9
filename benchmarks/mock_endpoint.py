"""An OpenAI-compatible endpoint for benchmarks, always in a process of its own; standard library only.

    with Endpoint(latency_ms=500) as endpoint:
        ... requests to endpoint.base_url ...
        endpoint.stats()

HTTP/1.1 with keep-alive, parsed by hand in one asyncio.Protocol, so that the server costs a fraction of what
any client does. A prompt carries a mark `PID=<n>`, and so does its answer: `stats()` counts prompts that hold
more than one mark (mixed), prompts that were answered before (repeated), and requests whose client was gone
when their answer was due (cut): so end those that hang or drip. Each request ends as exactly one of ok,
failed, limited, dropped, garbled and cut. As a judge it is deterministic: by the mark, half of the problems
pass at once, 30 % need one refinement, 20 % two, and each refinement is better than what it refines. As a
writer of problems it marks each with the request's sampling seed. Latencies are drawn anew after each
`reset()`: the same ones. Between `hold()` and `go()` nothing is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import random
import re
import subprocess
import sys
import time
import urllib.request
import zlib
from typing import Any

MARK = re.compile(rb"PID=(\d+)")
VERSION = re.compile(rb"VER=(\d+)")
SEED = re.compile(rb'"seed": ?(\d+)')
REFINEMENTS = (0, 0, 0, 0, 0, 1, 1, 1, 2, 2)  # that a problem needs, by the last digit of its mark's checksum
ENDS = ("ok", "failed", "limited", "dropped", "garbled", "cut")
GARBAGE = b"HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 20\r\n\r\n<html>a proxy</html>"
WORDS = "so the number of parts is added to what was there before and the sum is taken once more "


def refinements(mark: int) -> int:
    """How many the judge asks for."""
    return REFINEMENTS[zlib.crc32(str(mark).encode()) % 10]


class State:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.filler = (WORDS * (1 + options.characters // len(WORDS)))[: options.characters]
        self.reset()

    def reset(self) -> None:
        self.counts = dict.fromkeys(("requests", *ENDS, "mixed", "repeated", "peak"), 0)
        self.latency_s, self.in_flight, self.seen, self.starts = 0.0, 0, set(), []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.random = random.Random(self.options.seed)

    def latency(self) -> float:
        mean, sigma = self.options.latency_ms / 1000, self.options.sigma
        return mean * self.random.lognormvariate(-sigma * sigma / 2, sigma) if sigma else mean

    def over_the_cap(self) -> float | None:
        """Seconds until the next request may start under the requests-per-minute cap, None = now."""
        if not self.options.rpm:
            return None
        now, window = time.monotonic(), 60.0 / self.options.speed_up
        self.starts = [at for at in self.starts if at > now - window]
        if len(self.starts) >= self.options.rpm:
            return self.starts[0] + window - now
        self.starts.append(now)
        return None

    def stats(self) -> dict[str, Any]:
        return {**self.counts, "in_flight": self.in_flight, "latency_s": self.latency_s}


class Connection(asyncio.Protocol):
    def __init__(self, state: State):
        self.state, self.buffer = state, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.gone = transport, asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < size:
                return
            body, self.buffer = self.buffer[end + 4 : size], self.buffer[size:]
            self.answer(head.split(b" ", 2)[1], body)

    def answer(self, path: bytes, body: bytes) -> None:
        if path == b"/stats":
            self.send(200, self.state.stats())
        elif path == b"/reset":
            self.state.reset()
            self.send(200, {})
        elif path in (b"/hold", b"/go"):
            flowing = self.state.flowing
            flowing.set() if path == b"/go" else flowing.clear()
            self.send(200, {})
        else:
            asyncio.get_running_loop().create_task(self.complete(body))

    async def complete(self, body: bytes) -> None:
        state, counts, options = self.state, self.state.counts, self.state.options
        counts["requests"] += 1
        if (wait := state.over_the_cap()) is not None:
            counts["limited"] += 1
            return self.send(429, {"error": {"message": "slow down"}}, f"retry-after-ms: {1000 * wait:.0f}")
        state.in_flight += 1
        counts["peak"] = max(counts["peak"], state.in_flight)
        latency, luck = state.latency(), state.random.random()
        await asyncio.sleep(latency)
        await state.flowing.wait()
        if options.hangs and 1 - luck < options.hangs:
            await self.hang(drip=1 - luck < options.hangs / 2)
        state.in_flight -= 1
        if self.transport.is_closing():
            counts["cut"] += 1
            return None
        if luck < options.drops:
            counts["dropped"] += 1
            return self.transport.abort()
        if luck < options.drops + options.errors:
            counts["failed"] += 1
            return self.send(500, {"error": {"message": "injected"}})
        if luck < options.drops + options.errors + options.limits:
            counts["limited"] += 1
            return self.send(429, {"error": {"message": "injected"}}, "retry-after: 1")
        if luck < options.drops + options.errors + options.limits + options.garbage:
            counts["garbled"] += 1
            return self.transport.write(GARBAGE)
        counts["ok"] += 1
        state.latency_s += latency
        self.send(200, completion(self.words(body), len(body)))

    async def hang(self, drip: bool) -> None:
        """Until the client has gone."""
        if drip:
            self.transport.write(b"HTTP/1.1 200 X\r\ncontent-length: 999\r\n\r\n{")
        while not self.gone.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), 0.1)
            if drip:
                self.transport.write(b" ")

    def words(self, body: bytes) -> str:
        marks = set(MARK.findall(body))
        self.state.counts["mixed"] += len(marks) > 1
        key = hash(body)  # of 64 bits: no two of 100,000 prompts meet by chance
        self.state.counts["repeated"] += key in self.state.seen
        self.state.seen.add(key)
        if b"You write problems." in body:
            return question(int(SEED.search(body)[1]))
        mark = int(next(iter(marks), b"0"))
        if b"Python program" in body:
            return f"```python\nprint({mark})\n```"
        version = max((int(v) for v in VERSION.findall(body)), default=0)
        if b"response_format" in body:
            score = 9 if version >= refinements(mark) else 3 + version
            if b"completeness" in body:  # CAMEL's judge gives plain numbers, for three dimensions
                scores = dict.fromkeys(("correctness", "clarity", "completeness"), score / 10)
                return json.dumps(scores | {"feedback": "go on"})
            return json.dumps({"correctness": {"reason": "scripted", "score": score}, "feedback": "go on"})
        version += b"VER=" in body
        return f"{self.state.filler} PID={mark} VER={version} The answer is \\boxed{{{mark}}}."

    def send(self, status: int, content: dict[str, Any], header: str = "") -> None:
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write((head + (f"{header}\r\n" if header else "") + "\r\n").encode() + body)


def question(mark: int) -> str:
    """A problem whose words no other mark has."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(mark))
    return " ".join(letters + end for end in "stuvwxyz") + f" PID={mark} How many are there?"


def completion(text: str, prompt_characters: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt_characters // 4, "completion_tokens": len(text) // 4}
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "model": "mock", "choices": [choice], "usage": usage}


class Endpoint:
    """The server's process. Options as on the command line, see `parser`."""

    def __init__(self, **options: Any):
        self._options = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]

    def __enter__(self) -> Endpoint:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *self._options], stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._process.stdout.readline())
        return self

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def stats(self) -> dict[str, Any]:
        return self._get("stats")

    def reset(self) -> None:
        self._get("reset")

    def hold(self) -> None:
        self._get("hold")

    def go(self) -> None:
        self._get("go")

    def waited_s(self) -> float:
        """Seconds its process was ready to run, but did not."""
        threads = pathlib.Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9

    def _get(self, path: str) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.port}/{path}", timeout=30) as answer:
            return json.load(answer)

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--latency-ms", type=float, default=0.0)
    arguments.add_argument("--sigma", type=float, default=0.0, help="of a lognormal latency; 0 = fixed")
    arguments.add_argument("--errors", type=float, default=0.0, help="share of requests that get a 500")
    arguments.add_argument("--limits", type=float, default=0.0, help="share of requests that get a 429")
    arguments.add_argument("--drops", type=float, default=0.0, help="share of connections that are dropped")
    arguments.add_argument("--garbage", type=float, default=0.0, help="share of answers that are no JSON")
    arguments.add_argument("--hangs", type=float, default=0.0, help="share of answers that hang, or drip")
    arguments.add_argument("--rpm", type=int, default=0, help="requests a minute, 429 beyond; 0 = no cap")
    arguments.add_argument("--speed-up", type=float, default=1.0, help="a minute is this much shorter")
    arguments.add_argument("--characters", type=int, default=1500, help="of an answer")
    arguments.add_argument("--seed", type=int, default=0)
    return arguments


async def serve(options: argparse.Namespace) -> None:
    state = State(options)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser().parse_args()))
