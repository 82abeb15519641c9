"""What the tests of this room share: an endpoint that keeps books, problems, and what must hold."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import pytest
from mock_server import MockServer, Reply

from cotkit import ChatModel
from cotkit.problems import Problem

JUDGED = '{"correctness": {"reason": "r", "score": 9}, "clarity": {"reason": "r", "score": 9}, ' + (
    '"completeness": {"reason": "r", "score": 9}, "feedback": ""}'
)
BOTH_WAYS = pytest.mark.parametrize("transport", ["openai", "aiohttp"], indirect=True)
defaults = {"transport": "openai"}  # see `transport` in conftest.py


@dataclass
class Drip(Reply):
    """Some bytes now and then, for ever."""


class Counting(MockServer):
    """`answered`: how often a completion was given to a request, by its body."""

    def __enter__(self) -> Counting:
        super().__enter__()
        owner, self.answered = self, Counter[str]()

        class Handler(self._http.RequestHandlerClass):
            def _answer(self, request, reply):
                if isinstance(reply, Drip):
                    return self._drip()
                failed = reply.status != 200 or reply.drop or reply.truncate_body or reply.raw is not None
                if reply.content and not failed:
                    with owner._lock:  # before it is sent: whoever has it finds it counted
                        owner.answered[str(request.body)] += 1
                return super()._answer(request, reply)

            def _drip(self):
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                self.wfile.write(b"content-length: 9999\r\n\r\n")
                while True:  # until the client has gone
                    self.wfile.write(b" ")
                    time.sleep(0.02)

        self._http.RequestHandlerClass = Handler
        return self


def model(server, **options) -> ChatModel:
    return ChatModel("mock", base_url=server.base_url, **{"max_concurrency": 8, **defaults, **options})


def problems(count):
    return [
        Problem(id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n))
        for n in range(count)
    ]


def pids(request):
    return [part.split(";")[0] for part in request.user.split("PID=")[1:]]


def solve(request):
    n = int(pids(request)[0])
    return f"PID={n}; {n} + {n} = {2 * n}. The answer is \\boxed{{{2 * n}}}."


def check_books(run, count, server, lost=0):
    """The identities that hold after anything.

    server: all it was asked was for this run. lost: requests that were in flight when a process ended; what
    the server said to them may be in no ledger, and is asked for again.
    """
    report = run.report
    assert report["given"] == count == report["kept"] + sum(report["drops"].values())
    rows = run.records()
    ids = [row.id for row in rows]
    assert len(ids) == len(set(ids))
    for row in rows:
        for candidate in row.candidates:
            if candidate.text:
                assert candidate.text.startswith(f"PID={row.index};")
    answered, known = server.answered.total(), report["ledger"]["calls"]
    assert answered - lost <= known <= answered
    asked = known + sum(report["ledger"]["failed"].values())
    assert server.calls - lost <= asked <= server.calls
    assert answered - len(server.answered) <= lost, "what was answered was asked again"
    return rows
