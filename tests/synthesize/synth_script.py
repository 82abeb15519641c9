"""A scripted model for the tests of synthesis: it plays question, code, answer and judge, by attempt."""

from __future__ import annotations

import json
import re
import threading

from cotkit import ChatModel
from cotkit.problems import Problem

THINGS = [
    "apples",
    "pears",
    "plums",
    "cups",
    "pens",
    "maps",
    "keys",
    "coins",
    "shells",
    "stamps",
    "beads",
    "bricks",
    "cards",
    "boats",
    "birds",
]
NAMES = [
    "Ann",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gus",
    "Hana",
    "Ivo",
    "Jill",
    "Kai",
    "Lea",
    "Mo",
    "Nina",
    "Otto",
    "Pia",
]


def seed(number: int, **changes) -> Problem:
    a, b = 3 + number, 4 + 2 * number
    fields = {
        "id": f"s{number}",
        "problem": f"{NAMES[number]} keeps {a} boxes with {b} {THINGS[number]} in each of them. "
        f"What is the total of {THINGS[number]}?",
        "reference": str(a * b),
        "type": "words",
        "answer_type": "number",
        "licence": "Apache-2.0",
        "solution_code": f"boxes = {a}\neach = {b}\nprint(boxes * each)",
    }
    return Problem(**{**fields, **changes})


def seeds(count: int = 4, **changes) -> list[Problem]:
    return [seed(number, **changes) for number in range(count)]


def model(server, **options) -> ChatModel:
    return ChatModel("mock", base_url=server.base_url, **{"max_retries": 1, **options})


def stage(request) -> str:
    if "response_format" in request.body:
        return "judge"
    if "Python program" in request.system:
        return "code"
    return "answer" if request.system.startswith("Solve the problem") else "question"


class Script:
    """Questions are numbered as they are asked: "SID=7; ..." with the answer 2 * 7 + 1.

    `question`, `code`, `answer`, `judge`: (sid) -> reply, in place of the right one. `log` counts the stages.
    """

    def __init__(self, **replies):
        self.replies, self.log = replies, []
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, request):
        kind = stage(request)
        with self._lock:
            self.log.append(kind)
            if kind == "question":  # the same prompt gets the same question, as from a cache
                key = json.dumps(request.body, sort_keys=True)
                sid = self._numbers.setdefault(key, len(self._numbers))
            else:
                sid = sid_of(request)
        return (
            self.replies.get(kind, RIGHT[kind])(sid) if kind != "question" else self._question(sid, request)
        )

    def _question(self, sid, request):
        reply = self.replies.get("question")
        return right_question(sid) if reply is None else reply(sid)

    def count(self, kind: str) -> int:
        return self.log.count(kind)


def sid_of(request) -> int:
    found = re.findall(r"SID=(\d+);", request.messages[-1]["content"])
    return int(found[-1]) if found else -1


def words_for(number: int) -> str:
    """Words that no other number has, so that no two questions are alike."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return " ".join(f"{letters}{end}" for end in ("ba", "do", "fi", "lu", "ne", "po", "ra", "su", "ti", "ve"))


def right_question(sid: int) -> str:
    return f"SID={sid}; {words_for(sid)}: what is {sid} plus {sid + 1}?"


def right_code(sid: int) -> str:
    return f"```python\nprint({sid} + {sid + 1})\n```"


def right_answer(sid: int) -> str:
    return f"{sid} + {sid + 1} = {2 * sid + 1}. The answer is \\boxed{{{2 * sid + 1}}}."


def verdict(question: bool = True, code: bool = True) -> str:
    return json.dumps(
        {"question": {"reason": "seen", "ok": question}, "code": {"reason": "computed", "ok": code}}
    )


RIGHT = {
    "question": right_question,
    "code": right_code,
    "answer": right_answer,
    "judge": lambda sid: verdict(),
}
