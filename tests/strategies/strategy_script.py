"""A scripted model that plays a strategy: its questions, programs, worked answers and judge, with the rates
at which its attempts fail; and a solver with a solve rate for each strategy.
"""

from __future__ import annotations

import json
import random
import re
from types import SimpleNamespace

from cotkit import ChatModel
from cotkit.problems import Problem

# Loong (arXiv 2509.03059, fig. 2), advanced physics: pass, judge-rejected and non-executable. Of few-shot and
# Self-Instruct only the pass rates are known; how the rest divides is made up.
PHYSICS = {
    "few_shot": (0.939, 0.040),
    "self_instruct": (0.820, 0.120),
    "evol_instruct": (0.562, 0.298),
}
SOLVED = {"few_shot": 0.92, "self_instruct": 0.83, "evol_instruct": 0.62, "seeds": 0.718}  # table 3
ENDS = ("ba", "do", "fi", "lu", "ne", "po", "ra", "su", "ti", "ve")


def model(server, **options) -> ChatModel:
    return ChatModel("mock", base_url=server.base_url, **{"max_retries": 1, **options})


def question(tag: str, number: int) -> str:
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    words = " ".join(f"{letters}{tag[0]}{end}" for end in ENDS)  # words that no other question has
    return f"ID={tag}:{number}; {words}: what is {number} plus {number + 1}?"


def seeds(count: int = 12) -> list[Problem]:
    return [
        Problem(
            id=f"s{i}",
            problem=question("seeds", i),
            reference=str(2 * i + 1),
            type="sums",
            answer_type="number",
            solution_code=f"print({i} + {i + 1})",
            metadata={"topic": f"t{i % 3}"},
        )
        for i in range(count)
    ]


def asked_about(request) -> tuple[str, int]:
    tag, number = re.findall(r"ID=(\w+):(\d+);", request.messages[-1]["content"])[-1]
    return tag, int(number)


def strategy_script(name: str):
    """Replies of the model that plays the strategy, whatever its role."""
    passes, rejected = PHYSICS[name]

    def fate(number: int) -> str:
        draw = random.Random(f"{name}:{number}").random()
        return "pass" if draw < passes else "reject" if draw < passes + rejected else "crash"

    def reply(request) -> str:
        if "response_format" in request.body:
            ok = fate(asked_about_pair(request)) != "reject"
            return json.dumps(
                {"question": {"reason": "seen", "ok": True}, "code": {"reason": "seen", "ok": ok}}
            )
        if "Python program" in request.system:
            _, number = asked_about(request)
            crash = "raise SystemExit(1)  # " if fate(number) == "crash" else ""
            return f"```python\n{crash}print({number} + {number + 1})\n```"
        if request.system.startswith("Solve the problem"):
            return f"They are added. The answer is \\boxed{{{2 * asked_about(request)[1] + 1}}}."
        return question(name, request.body["seed"] % 10**6)  # each attempt has a seed of its own

    def asked_about_pair(request) -> int:
        return int(re.search(rf"ID={name}:(\d+);", request.user)[1])

    return reply


def solver_script(rates=SOLVED):
    """Right with the rate of the set that the question comes from."""

    def reply(request) -> str:
        tag, number = asked_about(request)
        right = random.Random(f"{tag}{number}{request.body.get('seed')}").random() < rates[tag]
        return f"\\boxed{{{2 * number + 1 if right else -1}}}"

    return reply


async def run_in_no_sandbox(code: str, **options) -> SimpleNamespace:
    """Stands in for the sandbox, which has tests of its own: the two programs the script writes."""
    fine = re.fullmatch(r"print\((\d+) \+ (\d+)\)", code)
    printed = f"{int(fine[1]) + int(fine[2])}\n" if fine else ""
    facts = {"stderr": "" if fine else "SystemExit: 1", "detail": "", "seconds": 0.0, "isolation": "none"}
    return SimpleNamespace(status="ok" if fine else "error", stdout=printed, answer=printed.strip(), **facts)
