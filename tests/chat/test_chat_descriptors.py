"""Hundreds of connections under the usual limit on open files; each in a process with a limit of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from asking import Gate

resource = pytest.importorskip("resource")

ASK = """
import asyncio, json, logging, resource, sys
from cotkit import ChatModel, aio
url, transport, width, soft, hard = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
said = []
class Kept(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("cotkit").addHandler(Kept())
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
models = [ChatModel("m", base_url=url, transport=transport, max_concurrency=width) for _ in range(2)]
async def together():
    calls = [models[0].acomplete(f"q{n}") for n in range(int(sys.argv[6]))]
    return await asyncio.gather(*calls)
answers = aio.run(together())
limits = [resource.getrlimit(resource.RLIMIT_NOFILE)]
aio.run(models[1].acomplete("q"))
limits.append(resource.getrlimit(resource.RLIMIT_NOFILE))
print(json.dumps({"failed": sum(len(a.attempts) for a in answers), "limits": limits, "said": said}))
"""


def ask(server, transport, *, width, soft, hard, calls):
    given = server.base_url, transport, width, soft, hard, calls
    command = [sys.executable, "-c", ASK, *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["openai", "aiohttp"])
def test_as_many_files_may_be_open_as_connections_are_wanted(serve, transport):
    gate = Gate(250)

    def script(request):
        if request.user != "q":
            gate.wait()
        return "4"

    found = ask(serve(script), transport, width=250, soft=200, hard=4000, calls=250)
    assert found["failed"] == 0 and found["said"] == []
    first, both = found["limits"]
    assert 500 < first[0] < both[0] <= 4000 and both[0] - first[0] == 500  # the other one's connections too
    assert first[1] == both[1] == 4000


def test_a_limit_that_cannot_be_raised_as_far_is_said_once(serve):
    found = ask(serve(lambda r: "4"), "aiohttp", width=200, soft=250, hard=400, calls=4)
    assert found["limits"] == [[400, 400], [400, 400]]
    assert len(found["said"]) == 1 and "may open 400 files" in found["said"][0]
    assert "asks for up to 400 connections" in found["said"][0] and "ulimit -Hn" in found["said"][0]
    again = ask(serve(lambda r: "4"), "aiohttp", width=8, soft=390, hard=400, calls=4)
    assert again == {"failed": 0, "limits": [[390, 400]] * 2, "said": []}  # enough, and never lowered
