"""Runs that are hurt on purpose, round after round, and what must hold after each blow.

    python benchmarks/soak.py --minutes 10 [--seed 0]

A round is one pipeline (soak_runs.py) on one run folder, against an endpoint that fails as the round's
schedule says (errors, 429s, dropped connections, garbage, answers that are slow, hang or drip), in a process
that is killed with SIGKILL, interrupted, started twice at once, or out of disk space, and started again until
it is through. Everything is drawn from the seed, so a round can be run again alone (`--only 17`). After each
blow, and at the end:

    every file has whole lines, no problem has two, no row is gone, given = kept + drops in every run
    no prompt mixed two problems, no row has another one's trace, every trace stands in a ledger
    no call was asked again whose answer was written
    the ledgers know every answer, 500, 429, dropped connection, garbled answer and timeout of the endpoint,
    by kind: all of them where the process ended by itself, or had written what it was given before it was
    hurt ("quiet"); else all but what was in flight, which is at most WIDTH with what the endpoint had not
    answered yet

and when it is through, everything is kept, with as many calls as an unhurt run makes; what the endpoint was
asked again is exactly what was lost in flight. Disks are full for distillation, synthesis and benchmark only:
in the cycles each step has files of its own. An interrupt of shards cuts nothing off, they finish.

The first thing that does not hold ends the soak with exit code 1 and leaves the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mock_endpoint import Endpoint, refinements
from soak_runs import WIDTH

from cotkit import open_run
from cotkit.chat import CallLedger
from cotkit.runs import REPLACING, read_lines

HURTS = {  # of each pipeline
    "distill": ("kill", "interrupt", "twice", "full disk", "none"),
    "shards": ("kill", "interrupt", "none"),
    "synthesize": ("kill", "interrupt", "twice", "full disk", "none"),
    "benchmark": ("kill", "interrupt", "twice", "full disk", "none"),
    "self_improve": ("kill", "interrupt", "twice", "none"),
}
KINDS = {  # in the ledger: at the endpoint
    None: "ok",
    "server": "failed",
    "rate_limit": "limited",
    "connection": "dropped",
    "malformed": "garbled",
    "timeout": "cut",  # as is what a process left behind that was ended
}
ROWS = ("rows.jsonl", "drops.jsonl")
FULL, DOWN = "File too large", "no endpoint of"  # why a run may stop


@dataclass
class Round:
    """What happens in one round."""

    number: int
    seed: int
    pipeline: str = ""
    problems: int = 0
    faults: dict[str, float] = field(default_factory=dict)
    hurts: list[str] = field(default_factory=list)
    transport: str = "aiohttp"
    timeout: int = 120

    def __post_init__(self) -> None:
        chance = random.Random(f"{self.seed}:{self.number}")
        self.pipeline = chance.choice(("distill", *HURTS))
        self.problems = chance.choice((40, 80, 160))
        if self.pipeline in ("synthesize", "self_improve"):  # more calls a problem, and programs
            self.problems //= 2
        self.faults = {
            "errors": chance.choice((0, 0.02, 0.1)),
            "limits": chance.choice((0, 0, 0.01)),
            "drops": chance.choice((0, 0.01, 0.05)),
            "latency_ms": chance.choice((5, 20, 50)),
            "sigma": chance.choice((0, 0.5, 1.5)),
            "seed": chance.randrange(10**6),
        }
        self.hurts = [chance.choice(HURTS[self.pipeline]) for _ in range(chance.randint(1, 4))]
        self.moments = [chance.random() for _ in self.hurts]
        self.quiet = [chance.random() < 0.5 for _ in self.hurts]
        self.transport = chance.choice(("openai", "aiohttp"))
        self.faults["garbage"] = chance.choice((0, 0, 0.01))
        heavy_tailed = self.faults["sigma"] > 1  # no other answer may take as long as the timeout
        self.faults["hangs"] = 0 if heavy_tailed else chance.choice((0, 0.005))
        self.timeout = 6 if self.faults["hangs"] else 120

    @property
    def calls(self) -> int | None:
        """What an unhurt run asks; None where the seed does not tell."""
        each = {"synthesize": lambda n: 3, "benchmark": lambda n: 4, "self_improve": None}
        asked = each.get(self.pipeline, lambda n: 2 * (1 + refinements(n)))
        return asked and sum(map(asked, range(self.problems)))


class Played:
    """One round in one folder: what was done, what was lost in flight by it, and what must hold."""

    def __init__(self, plan: Round, endpoint: Endpoint, folder: pathlib.Path):
        self.plan, self.endpoint, self.folder = plan, endpoint, folder
        self.lost, self.struck = Counter(), Counter()
        self.kept: dict[pathlib.Path, set[str]] = {}  # ids in each run, as they were last seen

    def play(self) -> Counter[str]:
        """The whole round. Raises AssertionError, with what does not hold."""
        plan = self.plan
        for hurt, moment, quiet in zip(plan.hurts, plan.moments, plan.quiet, strict=True):
            if hurt != "none":
                self.strike(hurt, moment, quiet)
        for _ in range(5):  # a problem whose retries were used up is asked again by the next call
            process = self.start()
            output, error = process.communicate(timeout=300)
            assert not ended("none", process.returncode, output, error)
            self.check(0)
            if self.is_through():
                return self.check_calls()
        raise AssertionError("problems that the endpoint failed did not come back")

    def start(self, file_limit: int = 0) -> subprocess.Popen[str]:
        plan, script = self.plan, pathlib.Path(__file__).with_name("soak_runs.py")
        given = [plan.pipeline, self.endpoint.base_url, self.folder, plan.problems, plan.transport]
        given += [plan.timeout, file_limit]
        return subprocess.Popen(
            [sys.executable, str(script), *map(str, given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a kill takes its workers too
        )

    def strike(self, hurt: str, moment: float, quiet: bool) -> None:
        """Starts a process, hurts it at `moment` (0 to 1) of the calls that are left, and checks."""
        plan, endpoint = self.plan, self.endpoint
        finishes = plan.pipeline == "shards" and hurt == "interrupt"  # what is in flight
        quiet = quiet and hurt != "full disk" and not finishes
        before = endpoint.stats()["requests"]
        process = self.start(int(20_000 + moment * 2_000 * plan.problems) if hurt == "full disk" else 0)

        def until(asked: float) -> None:
            wait_for(lambda: endpoint.stats()["requests"] >= asked or process.poll() is not None)

        at_once = True
        if hurt == "twice":
            until(before + 1)
            second = self.start()
            complaint = "".join(second.communicate(timeout=120))
            at_once = second.returncode != 0  # else the first had let go of the folder and was about to end
            assert not at_once or "another process" in complaint, complaint[-2000:]
        if hurt != "full disk" and at_once:
            left = (plan.calls or 11 * plan.problems) - self.known()["ok"]  # 11: the cycles', about
            until(before + 1 + moment * max(left, 0))
            if quiet and process.poll() is None:
                endpoint.hold()
                wait_for(lambda: self.unknown().total() == self.lost.total(), self.difference)
            if hurt == "interrupt":
                process.send_signal(signal.SIGINT)  # nothing where it has ended
            elif process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        asked = endpoint.stats()["requests"]
        output, error = process.communicate(timeout=120)
        endpoint.go()
        struck = ended(hurt, process.returncode, output, error)
        alone = at_once or endpoint.stats()["requests"] == asked
        assert alone, "two processes wrote one folder"
        self.struck[hurt] += struck
        may_lose = WIDTH if struck and not finishes else 0
        self.check(may_lose, quiet=quiet, torn=process.returncode == -signal.SIGKILL)

    # What must hold.

    def check(self, may_lose: int, quiet: bool = False, torn: bool = False) -> None:
        """may_lose: requests that were in flight when the process ended; quiet: their answers were held back
        by the endpoint; torn: a last line may be half."""
        wait_for(lambda: not self.endpoint.stats()["in_flight"])
        seen = self.endpoint.stats()
        assert seen["mixed"] == 0, f"{seen['mixed']} prompts mixed two problems"
        assert seen["peak"] <= WIDTH, f"{seen['peak']} calls in flight, {WIDTH} allowed"
        assert seen["requests"] == sum(seen[name] for name in KINDS.values()), seen
        unknown, lost = self.unknown(), self.lost
        assert unknown >= lost, f"more than the endpoint ever said: {self.difference()}"
        lost_now = unknown - lost
        assert lost_now.total() <= may_lose, f"{self.difference()}; {may_lose} may be in flight"
        assert not quiet or set(lost_now) <= {"cut"}, self.difference()
        self.lost = unknown
        self.check_files(torn)

    def unknown(self) -> Counter[str]:
        """How often the endpoint answered so, and no ledger knows it."""
        known, seen = self.known(), self.endpoint.stats()
        return Counter({name: seen[name] - known[name] for name in KINDS.values()})

    def difference(self) -> str:
        seen = {name: self.endpoint.stats()[name] for name in KINDS.values()}
        known, lost = dict(self.known()), dict(+self.lost)
        return f"the endpoint gave {seen}, the ledgers know {known}; lost in flight before: {lost}"

    def known(self) -> Counter[str]:
        """What the ledgers know, in the endpoint's words."""
        found = Counter()
        for path in self.ledgers():
            with CallLedger(path, read_only=True) as ledger:
                totals = ledger.totals()
            found["ok"] += totals["calls"]
            for kind, count in totals["failed"].items():
                assert kind in KINDS, f"{path} has {count} calls failed as {kind!r}, which no endpoint did"
                found[KINDS[kind]] += count
        return found

    def ledgers(self) -> list[pathlib.Path]:
        """Those that calls were written to; a merge copies them."""
        found = [path for path in self.folder.rglob("calls.jsonl") if REPLACING not in path.parts]
        merged = self.folder / "calls.jsonl" if self.plan.pipeline == "shards" else None
        return [path for path in found if path != merged]

    def runs(self) -> Iterator[pathlib.Path]:
        for path in self.folder.rglob("config.json"):
            if REPLACING not in path.parts and (path.parent / ROWS[0]).exists():
                yield path.parent

    def check_files(self, torn: bool) -> None:
        answered = set()
        for path in self.ledgers():
            for line in whole(path, torn):
                answers = line.get("answers", ())
                asked_again = line.get("kind", "") is None and not answers
                assert not asked_again, f"{path}: a call was asked again whose answer was written: {line}"
                answered.update(answer["completion"]["text"] for answer in answers)
        for run in self.runs():
            rows = {name: whole(run / name, torn) for name in ROWS}
            for row in (row for name in ROWS for row in rows[name]):
                for candidate in row["candidates"]:
                    if not candidate["text"]:
                        continue
                    own = marks(candidate["trace"]) == marks(row["problem"])
                    assert own, f"{run}: problem {row['id']} has another one's trace"
                    assert candidate["text"] in answered, f"{run}: {row['id']} has a trace that nobody gave"
            ids = Counter(row["id"] for name in ROWS for row in rows[name])
            assert ids.total() == len(ids), f"{run}, twice: {[id for id, count in ids.items() if count > 1]}"
            kept = {row["id"] for row in rows["rows.jsonl"]}
            gone = self.kept.get(run, set()) - kept
            assert not gone, f"{run}: rows that were kept are gone: {sorted(gone)}"
            self.kept[run] = kept
            report = open_run(run).report
            given, sums = report["given"], report["kept"] + sum(report["drops"].values())
            assert given == sums, f"{run}: given {given} = {report['kept']} kept + {report['drops']}?"
            if "cycles" not in report:  # the cycles' own root counts traces
                assert report["kept"] == len(kept), f"{run}: {len(kept)} rows, {report['kept']} kept"

    def is_through(self) -> bool:
        """Everything is kept."""
        plan = self.plan
        if plan.pipeline == "self_improve":
            report = json.loads((self.folder / "report.json").read_bytes())
            cycles = [cycle["counts"] for cycle in report["cycles"] if cycle["status"] == "ok"]
            for counts in cycles:
                assert counts["generated"] == counts["kept"] + sum(counts["drops"].values()), counts
            return len(cycles) == 2
        parts = [self.folder / name for name in ("first", "second")]
        reports = [open_run(run).report for run in (parts if plan.pipeline == "benchmark" else [self.folder])]
        for report in reports:
            assert report["given"] == plan.problems, report
        return all(report["kept"] == plan.problems for report in reports)

    def check_calls(self) -> Counter[str]:
        """Of a round that is through: what the endpoint saw in it."""
        seen, known, plan = self.endpoint.stats(), self.known(), self.plan
        if plan.calls is not None:
            assert known["ok"] == plan.calls, f"{known['ok']} calls, {plan.calls} were needed"
            again, lost = seen["repeated"], self.lost["ok"]
            assert again == lost, f"{again} answers were given again, {lost} were lost in flight"
        if plan.pipeline == "shards":
            merged = open_run(self.folder).report["ledger"]
            assert merged["calls"] == known["ok"], f"merged {merged}, the shards know {dict(known)}"
        names = ("requests", "ok", "failed", "limited", "dropped", "garbled", "repeated")
        counts = {name: seen[name] for name in names}
        return Counter(counts, timeouts=known["cut"], cut=self.lost["cut"])


def ended(hurt: str, code: int, output: str, error: str) -> bool:
    """Whether a process was ended by what was done to it; it may have ended before. Raises AssertionError
    where it ended by anything else, or did not name what it was."""
    words = error.strip().rpartition("\n")[2]
    if code == 0:
        reasons = json.loads(output.splitlines()[-1])
        full = [reason for reason in reasons if FULL in reason]
        assert hurt == "full disk" or not full, f"the disk was not full: {full}"
        others = [reason for reason in reasons if FULL not in reason and DOWN not in reason]
        assert not others, f"{hurt}: stopped by {others}"
        return bool(full)
    named = {
        "kill": code == -signal.SIGKILL,
        "twice": code == -signal.SIGKILL,
        "interrupt": code in (-signal.SIGINT, 130) and words.startswith("KeyboardInterrupt"),
        "full disk": code == 1 and FULL in words and ".json" in words,
    }
    assert named.get(hurt), f"{hurt}: ended with {code}: {error[-2000:]}"
    return True


def whole(path: pathlib.Path, torn: bool) -> list[dict[str, Any]]:
    """The lines of a file; the last one may be half only where the process was killed."""
    if not path.exists():
        return []
    content = path.read_bytes()
    assert torn or not content or content.endswith(b"\n"), f"{path} ends in the middle of a line"
    return [line for line, _ in read_lines(path)]


def marks(text: str) -> set[str]:
    return set(re.findall(r"PID=(\d+)", text))


def wait_for(condition: Callable[[], bool], why: Callable[[], str] = str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened. {why()}"
        time.sleep(0.01)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--rounds", type=int, help="as many rounds, whatever the time")
    arguments.add_argument("--only", type=int, help="this round alone")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    began, number, played = time.monotonic(), options.only or 0, 0
    totals, struck, pipelines = Counter(), Counter(), Counter()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        plan = Round(number, options.seed)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cotkit-soak-"))
        try:
            with Endpoint(**plan.faults) as endpoint:
                one = Played(plan, endpoint, folder / "run")
                totals += one.play()
        except Exception as error:  # noqa: BLE001 - also a file that cannot be read
            print(f"round {number} of seed {options.seed} FAILED: {type(error).__name__}: {error}"[:4000])
            print(f"{plan}\nfolder: {folder}", flush=True)
            sys.exit(1)
        shutil.rmtree(folder)
        played += 1
        struck += one.struck
        pipelines[plan.pipeline] += 1
        totals += Counter(problems=plan.problems, lost=one.lost.total() - one.lost["cut"])
        hurts = ", ".join(plan.hurts)
        print(f"round {number}: {plan.pipeline}, {plan.problems} problems, {hurts}: holds", flush=True)
        number += 1
        spent = (time.monotonic() - began) / 60
        if options.only is not None or (
            played >= options.rounds if options.rounds else spent >= options.minutes
        ):
            break
    facts = {"rounds": played, **totals, "hurts": dict(struck), "pipelines": dict(pipelines)}
    print(json.dumps({**facts, "minutes": round((time.monotonic() - began) / 60, 1)}))


if __name__ == "__main__":
    main()
