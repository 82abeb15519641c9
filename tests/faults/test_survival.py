"""Runs that are killed, interrupted, started twice and out of disk, as `make soak` does for longer."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

SOAK = pathlib.Path(__file__).parents[2] / "benchmarks" / "soak.py"


def soak(*arguments):
    return subprocess.run(
        [sys.executable, str(SOAK), *arguments], capture_output=True, text=True, timeout=500, check=False
    )


def test_whatever_is_done_to_a_run_nothing_is_lost_repeated_or_mixed():
    done = soak("--rounds", "2", "--seed", "224")
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rounds"] == 2
    assert {"kill", "interrupt", "twice", "full disk"} <= seen["hurts"].keys(), seen


def test_the_soak_can_fail(tmp_path):
    """A lost row must not go unseen: the same checks on a folder from which one line was taken."""
    program = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "import soak\nfrom mock_endpoint import Endpoint\n"
        "plan = soak.Round(0, 0); plan.hurts = plan.moments = []; folder = pathlib.Path(sys.argv[2])\n"
        "soak.play(plan, folder)\n"
        "rows = (folder / 'rows.jsonl').read_text().splitlines(keepends=True)\n"
        "(folder / 'rows.jsonl').write_text(''.join(rows[1:]))\n"
        "soak.check_books(plan, folder)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(SOAK.parent), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1 and "a problem is missing" in done.stderr, done.stderr


def test_the_table_of_invariants_names_tests_that_exist():
    folder = pathlib.Path(__file__).parent
    named = set(re.findall(r"`(test_\w+)`", (folder / "README.md").read_text(encoding="utf-8")))
    written = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    own = set(re.findall(r"^def (test_\w+)", written, re.M))
    assert not named - own
    assert own - named == {
        "test_truncated_answers_are_dropped_with_their_reason",  # of distillation, not of survival
        "test_the_table_of_invariants_names_tests_that_exist",
    }
