"""A scripted world for the loop: models whose accuracy is in their name, and a trainer that renames them."""

from __future__ import annotations

import json

from cotkit import ChatModel
from cotkit.problems import Problem

KINDS = ("sum", "product", "difference")
WAYS = ("Adding the number to itself", "Counting on from the first one", "Doubling what is there")


def problems(count: int = 52, **changes) -> list[Problem]:
    return [
        Problem(
            **{
                "id": f"p{n}",
                "problem": f"PID={n}; what is {n} + {n} in the {KINDS[n % 3]} family?",
                "reference": str(2 * n),
                "type": KINDS[n % 3],
                **changes,
            }
        )
        for n in range(1, count + 1)
    ]


def pid(request) -> int:
    return int(request.user.split("PID=")[1].split(";")[0])


def verdict(body_scores: int, feedback: str = "Be clear.") -> str:
    names = ("correctness", "clarity", "completeness")
    scores = {name: {"reason": "seen", "score": body_scores} for name in names}
    return json.dumps({**scores, "feedback": feedback})


def script(request):
    """A model called "actor-40" is right on four of ten problems, a judge called "judge-8" gives 8."""
    name = request.body["model"]
    if "response_format" in request.body:
        return verdict(int(name.split("-")[-1]))
    n, skill, seed = pid(request), int(name.split("-")[-1]), request.body.get("seed", 0)
    right = (n * 7 + seed % 5) % 10 < skill / 10
    words, answer = (WAYS[n % 3], 2 * n) if right else ("Guessing from the look of it", n)
    return f"{n} + {n} = {answer}: {words} (try {seed % 97}). The answer is \\boxed{{{answer}}}."


def model(server, name: str, **options) -> ChatModel:
    return ChatModel(name, **{"base_url": server.base_url, "max_retries": 1, "price": (0, 0), **options})


class FakeTrainer:
    """ "Trains" by moving on to the next name of a list."""

    def __init__(self, server, names, **options):
        self.server, self.names, self.options = server, list(names), options
        self.calls: list[dict] = []

    def describe(self):
        return {"trainer": "fake", "names": self.names}

    def train(self, method, data, champion, output):
        number = int(output.parent.name.removeprefix("cycle-"))
        rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
        self.calls.append({"method": method, "rows": rows, "champion": champion})
        return {"status": "ok", "model": self.names[number], "seconds": 1.0, "rows": len(rows)}

    def serve(self, manifest):
        return model(self.server, manifest["model"], **self.options)
