"""Runs that are killed, interrupted, started twice and out of disk, as `make soak` does for longer."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

SOAK = pathlib.Path(__file__).parents[2] / "benchmarks" / "soak.py"
sys.path.insert(0, str(SOAK.parent))

import soak  # noqa: E402
from mock_endpoint import Endpoint  # noqa: E402


def test_whatever_is_done_to_a_run_nothing_is_lost_repeated_or_mixed():
    """Three pipelines: both models of a benchmark killed, a distillation started twice, a synthesis without
    disk and then interrupted."""
    command = [sys.executable, str(SOAK), "--rounds", "3", "--seed", "1412"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["pipelines"] == {"benchmark": 1, "distill": 1, "synthesize": 1}
    assert {"kill", "interrupt", "twice", "full disk"} <= seen["hurts"].keys(), seen


FULL = "/x/calls.jsonl cannot be used: File too large (is there space left, and may you write there?)"
ENDS = [  # what is done, exit code, what is printed, last words, whether that was what ended it
    ("kill", -signal.SIGKILL, "", "", True),
    ("kill", 0, "[]", "", False),  # it had ended by itself
    ("twice", 0, "[]", "", False),
    ("interrupt", -signal.SIGINT, "", "Traceback\n  ...\nKeyboardInterrupt\n", True),
    ("full disk", 1, "", "Traceback\n  ...\nOSError: [Errno 27] File too large: '/x/rows.jsonl'", True),
    ("full disk", 0, json.dumps([f"ledger: {FULL}"]), "", True),
    ("full disk", 0, "[]", "", False),
    ("none", 0, '["circuit_open: no endpoint of mock is usable"]', "", False),
]
WRONG_ENDS = [
    *((hurt, 1, "", "Traceback\n  ...\nTypeError: 'NoneType' object") for hurt in soak.HURTS["distill"]),
    ("none", 0, '["internal: something"]', ""),
    ("kill", 0, json.dumps([FULL]), ""),
    ("interrupt", 1, "", FULL),
]


@pytest.mark.parametrize(("hurt", "code", "output", "error", "struck"), ENDS)
def test_a_process_that_ended_by_itself_may_have_lost_nothing(hurt, code, output, error, struck):
    assert soak.ended(hurt, code, output, error) == struck


@pytest.mark.parametrize(("hurt", "code", "output", "error"), WRONG_ENDS)
def test_a_process_that_ends_by_anything_else_fails_the_soak(hurt, code, output, error):
    with pytest.raises(AssertionError):
        soak.ended(hurt, code, output, error)


def lines(folder, name, change):
    path = folder / name
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def another(kind):
    """A call more that failed so."""
    return lambda lines: [*lines, json.dumps(json.loads(lines[0]) | {"kind": kind, "answers": []}) + "\n"]


TAMPERED = [
    ("rows.jsonl", lambda lines: lines[1:], "rows that were kept are gone"),
    ("rows.jsonl", lambda lines: [lines[0], *lines], "twice"),
    ("rows.jsonl", lambda lines: [*lines[:-1], lines[-1][:-9]], "ends in the middle of a line"),
    (
        "rows.jsonl",
        lambda lines: [re.sub(r"PID=\d+ VER", "PID=77 VER", line) for line in lines],
        "another one",
    ),
    ("rows.jsonl", lambda lines: [line.replace("so the", "and the") for line in lines], "nobody gave"),
    ("calls.jsonl", lambda lines: lines[:-1], "the ledgers know"),
    ("calls.jsonl", lambda lines: [*lines, lines[0]], "more than the endpoint ever said"),
    ("calls.jsonl", another("server"), "more than the endpoint ever said"),
    ("calls.jsonl", another("malformed"), "more than the endpoint ever said"),
    ("calls.jsonl", another("timeout"), "more than the endpoint ever said"),
    ("calls.jsonl", another("auth"), "which no endpoint did"),
]


def test_the_soak_can_fail(tmp_path):
    """A whole run, and each of its invariants broken by hand."""
    plan = soak.Round(0, 0)
    plan.pipeline, plan.problems, plan.hurts, plan.moments, plan.quiet = "distill", 40, [], [], []
    folder, whole = tmp_path / "run", tmp_path / "whole"
    with Endpoint() as endpoint:
        played = soak.Played(plan, endpoint, folder)
        played.play()
        shutil.copytree(folder, whole)
        for name, change, message in TAMPERED:
            shutil.rmtree(folder)
            shutil.copytree(whole, folder)
            lines(folder, name, change)
            with pytest.raises(AssertionError, match=message):
                played.check(0)


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
