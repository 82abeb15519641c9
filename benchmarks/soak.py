"""Runs that are hurt on purpose, round after round, and what must hold after each of them.

    python benchmarks/soak.py --minutes 10 [--seed 0]

A round is one run folder: problems through `cotkit.distill` with a judge, against an endpoint that fails as
the round's schedule says (errors, 429s, dropped connections, slow answers), in a process that is killed with
SIGKILL, interrupted, started twice at once, or out of disk space, and started again until it is through.
Everything is drawn from the seed, so a round can be run again alone (`--only 17`). After each round:

    given = kept + drops          no problem lost, none twice
    no trace of another problem   no prompt that mixed two
    the ledger knows every answer that was delivered
    no call was asked again that had been answered, but for those in flight when a process was killed
    what the endpoint failed is kept in the end

The first thing that does not hold ends the soak with exit code 1 and leaves the folder.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field

from mock_endpoint import Endpoint

from cotkit.chat import CallLedger

WIDTH = 12
HURTS = ("kill", "interrupt", "twice", "full disk", "none")
CHILD = """
import resource, sys
import cotkit
sys.path.insert(0, sys.argv[4])
import drivers
base_url, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if limit := int(sys.argv[5]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
model = cotkit.ChatModel("mock", base_url=base_url, max_concurrency=12, max_retries=8, transport=sys.argv[6])
problems = [{"id": str(n), "problem": drivers.problem_text(n), "reference": str(n)} for n in range(count)]
judge = cotkit.LLMJudge(model, ["correctness"])
run = cotkit.distill(problems, model, judge, max_iterations=2, score_threshold=0.8, run=folder, show="none")
"""


@dataclass
class Round:
    """What happens in one round, and what was seen."""

    number: int
    seed: int
    problems: int = 0
    faults: dict[str, float] = field(default_factory=dict)
    hurts: list[str] = field(default_factory=list)
    transport: str = "aiohttp"

    def __post_init__(self) -> None:
        chance = random.Random(f"{self.seed}:{self.number}")
        self.problems = chance.choice((40, 80, 160))
        self.faults = {
            "errors": chance.choice((0, 0.02, 0.1)),
            "limits": chance.choice((0, 0, 0.01)),
            "drops": chance.choice((0, 0.01, 0.05)),
            "latency_ms": chance.choice((5, 20, 50)),
            "sigma": chance.choice((0, 0.5, 1.5)),
            "seed": chance.randrange(10**6),
        }
        self.hurts = [chance.choice(HURTS) for _ in range(chance.randint(1, 4))]
        self.moments = [chance.random() for _ in self.hurts]
        self.transport = chance.choice(("openai", "aiohttp"))


def play(plan: Round, folder: pathlib.Path) -> Counter[str]:
    """One round in `folder`. Raises AssertionError, with what does not hold."""
    with Endpoint(**plan.faults) as endpoint:
        killed = Counter(kill=0)
        for hurt, moment in zip(plan.hurts, plan.moments, strict=True):
            if hurt != "none":
                killed["kill"] += strike(hurt, moment, plan, endpoint, folder)
        for _ in range(5):  # a problem whose retries were used up is asked again by the next call
            last = child(plan, endpoint, folder)
            output = last.communicate(timeout=300)[1]
            assert last.returncode == 0, f"the last call ended with {last.returncode}: {output[-2000:]}"
            if check_books(plan, folder)["kept"] == plan.problems:
                break
        else:
            raise AssertionError("problems that the endpoint failed did not come back")
        return check_calls(plan, endpoint, folder, killed["kill"])


def child(
    plan: Round, endpoint: Endpoint, folder: pathlib.Path, file_limit: int = 0
) -> subprocess.Popen[str]:
    here = str(pathlib.Path(__file__).parent)
    arguments = [endpoint.base_url, str(folder), str(plan.problems), here, str(file_limit), plan.transport]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def strike(hurt: str, moment: float, plan: Round, endpoint: Endpoint, folder: pathlib.Path) -> int:
    """Starts a process and hurts it at `moment` (0 to 1) of it. 1 = calls in flight were cut off."""
    before = endpoint.stats()["ok"]
    limit = int(20_000 + moment * 400_000) if hurt == "full disk" else 0
    process = child(plan, endpoint, folder, limit)
    if hurt == "twice":
        wait_for(lambda: endpoint.stats()["ok"] > before or process.poll() is not None)
        second = child(plan, endpoint, folder)
        complaint = second.communicate(timeout=120)[1]
        started = process.poll() is None
        assert second.returncode or not started, "two processes wrote one folder"
        assert not second.returncode or "another process" in complaint, complaint[-500:]
    aim = before + moment * 2 * plan.problems
    wait_for(lambda: endpoint.stats()["ok"] >= aim or process.poll() is not None)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL if hurt in ("kill", "twice") else signal.SIGINT)
    error = process.communicate(timeout=120)[1]
    allowed = (0, -signal.SIGKILL, -signal.SIGINT, 1, 130)
    assert process.returncode in allowed, f"{hurt}: exit code {process.returncode}: {error[-2000:]}"
    return 1


def wait_for(condition, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def check_books(plan: Round, folder: pathlib.Path) -> dict:
    report = json.loads((folder / "report.json").read_text())
    rows = [
        json.loads(line)
        for name in ("rows.jsonl", "drops.jsonl")
        for line in (folder / name).open(encoding="utf-8")
    ]
    ids = Counter(row["id"] for row in rows)
    assert report["given"] == plan.problems == report["kept"] + sum(report["drops"].values()), report
    assert set(ids) == {str(n) for n in range(plan.problems)}, "a problem is missing"
    assert max(ids.values()) == 1, f"twice: {[id for id, count in ids.items() if count > 1]}"
    for row in rows:
        for candidate in row["candidates"]:
            assert f"PID={row['id']} " in candidate["trace"], f"problem {row['id']} has another one's trace"
    return report


def check_calls(plan: Round, endpoint: Endpoint, folder: pathlib.Path, cut: int) -> Counter[str]:
    seen = endpoint.stats()
    assert seen["mixed"] == 0, f"{seen['mixed']} prompts mixed two problems"
    assert seen["peak"] <= WIDTH, f"{seen['peak']} calls in flight, {WIDTH} allowed"
    with CallLedger(folder / "calls.jsonl", read_only=True) as ledger:
        known = ledger.totals()["calls"]
    unknown = seen["ok"] - known  # delivered to a process that was gone, or that had no disk to write them
    assert 0 <= unknown <= cut * WIDTH, f"the endpoint gave {seen['ok']} answers, the ledger knows {known}"
    assert seen["repeated"] <= unknown, f"{seen['repeated']} generations repeated, {unknown} were cut off"
    return Counter(
        {name: seen[name] for name in ("requests", "ok", "failed", "limited", "dropped", "repeated")}
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--rounds", type=int, help="as many rounds, whatever the time")
    arguments.add_argument("--only", type=int, help="this round alone")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    began, number, totals, hurts = time.monotonic(), options.only or 0, Counter[str](), Counter[str]()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        plan = Round(number, options.seed)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cotkit-soak-"))
        try:
            seen = play(plan, folder / "run")
        except AssertionError as error:
            print(
                f"round {number} of seed {options.seed} FAILED: {error}\n{plan}\nfolder: {folder}", flush=True
            )
            sys.exit(1)
        shutil.rmtree(folder)
        totals += seen
        totals["rounds"] += 1
        totals["problems"] += plan.problems
        hurts += Counter(plan.hurts)
        print(f"round {number}: {plan.problems} problems, {', '.join(plan.hurts)}: holds", flush=True)
        number += 1
        spent = (time.monotonic() - began) / 60
        if options.only is not None or (
            number >= options.rounds if options.rounds else spent >= options.minutes
        ):
            break
    print(json.dumps({**totals, "hurts": dict(hurts), "minutes": round((time.monotonic() - began) / 60, 1)}))


if __name__ == "__main__":
    main()
