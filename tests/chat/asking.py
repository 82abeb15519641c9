"""What the tests of this room share: time that passes at once, and short names."""

from __future__ import annotations

import asyncio
import threading

from cotkit import aio
from cotkit.chat import ChatModel


class VirtualClock:
    """Sleeping takes no time, but the clock moves on by it; sleeps that overlap overlap here too."""

    def __init__(self):
        self.time, self.slept = 1000.0, []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.time + seconds
        await asyncio.sleep(0)
        self.time = max(self.time, until)


defaults = {"transport": "openai"}  # tests of asking are run over each transport: see conftest.py


def model(server, name="mock", **options) -> ChatModel:
    return ChatModel(name, base_url=server.base_url, **{"clock": VirtualClock(), **defaults, **options})


def ask_all(chat: ChatModel, prompts, **options) -> list:
    """All at once, in the engine; a failed one leaves its exception."""

    async def together():
        calls = [chat.acomplete(prompt, **options) for prompt in prompts]
        return await asyncio.gather(*calls, return_exceptions=True)

    return aio.run(together())


class Gate:
    """Holds requests until `count` of them are there, so that a test controls what is in flight together."""

    def __init__(self, count: int):
        self._barrier = threading.Barrier(count)

    def wait(self) -> None:
        self._barrier.wait(timeout=20)
