"""A journal loses at most the line that was being written, and never a character of the others."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys

import filelock
import pytest

from cotkit.runs.journal import Journal, JournalError, dump_json, read_lines, write_json


def lines(path):
    return [record for record, _ in read_lines(path)]


def ignore(record, start):
    pass


TEXTS = {
    "line separator": "a\u2028b\u2029c",
    "emoji and CJK": "🙂 参考答案",
    "lone surrogate": "x\ud800y",
    "quotes and newlines": 'a "b"\n\tc\r\n',
    "NUL": "a\x00b",
    "latex": r"\frac{1}{2} \boxed{\beta}",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_any_text_comes_back_as_it_was(tmp_path, text):
    journal = Journal(tmp_path / "j.jsonl", ignore)
    journal.append({"id": "007", "text": text})
    journal.append({"id": "1e5", "text": "next"})
    journal.close()
    assert lines(journal.path) == [{"id": "007", "text": text}, {"id": "1e5", "text": "next"}]
    assert journal.path.read_bytes().count(b"\n") == 2


def test_nan_and_infinity_are_written_as_null():
    assert json.loads(dump_json({"a": [math.nan, {"b": -math.inf}], "c": 1.5})) == {
        "a": [None, {"b": None}],
        "c": 1.5,
    }


@pytest.mark.parametrize("tail", [b'{"id": "2", "te', b'{"id": "2"}', b"\xff\xfe", b"{}garbage\n"])
def test_a_torn_last_line_loses_only_that_row(tmp_path, tail):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"id": "1"}\n' + tail)
    seen = []
    journal = Journal(path, lambda record, start: seen.append(record))
    assert journal.torn
    assert seen == [{"id": "1"}]
    journal.append({"id": "3"})
    journal.close()
    assert lines(path) == [{"id": "1"}, {"id": "3"}]


def test_damage_before_the_last_line_is_reported_and_nothing_is_changed(tmp_path):
    path = tmp_path / "j.jsonl"
    before = b'{"id": "1"}\n{"id": \n{"id": "3"}\n'
    path.write_bytes(before)
    with pytest.raises(JournalError, match=r"j\.jsonl, line 2 is not JSON"):
        Journal(path, ignore)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_no_half_line(tmp_path):
    """A file size limit stands in for the full disk: the write fails after a part of the line."""
    script = """
import resource, signal, sys, pathlib
from cotkit.runs.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(pathlib.Path(sys.argv[1]))
journal.append({"id": "1"})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    journal.append({"id": "2", "text": "x" * 5000})
except OSError as error:
    print(type(error).__name__)
journal.append({"id": "3"})
"""
    path = tmp_path / "j.jsonl"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.stdout.strip() == "OSError", done.stderr
    assert lines(path) == [{"id": "1"}, {"id": "3"}]


def test_kill_minus_nine_loses_no_finished_line(tmp_path):
    script = """
import pathlib, sys
from cotkit.runs.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]))
for i in range(10**9):
    journal.append({"id": str(i), "text": "x" * 3000})
    print(i, flush=True)
"""
    path = tmp_path / "j.jsonl"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    reported = [process.stdout.readline() for _ in range(200)][-1]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    journal = Journal(path, ignore)
    journal.close()
    ids = [record["id"] for record in lines(path)]
    assert len(ids) > int(reported)
    assert ids == [str(i) for i in range(len(ids))]


def test_write_json_replaces_the_whole_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "report.json"
    write_json(path, {"a": 1})
    write_json(path, {"b": math.nan})
    assert json.loads(path.read_text()) == {"b": None}
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


OPENER = """
import pathlib, sys
from cotkit.runs.journal import Journal
while True:
    Journal(pathlib.Path(sys.argv[1]))._file.close()
"""


def test_opening_a_journal_cuts_off_nothing_that_another_process_is_just_writing(tmp_path):
    path = tmp_path / "j.jsonl"
    path.touch()
    opener = subprocess.Popen([sys.executable, "-c", OPENER, str(path)])
    try:
        journal = Journal(path, ignore)
        for n in range(300):
            journal.append({"n": n, "text": "a" * 100_000})
    finally:
        opener.kill()
        opener.wait()
    assert [record["n"] for record, _ in read_lines(path)] == list(range(300))


def test_while_somebody_holds_the_owner_s_lock_nobody_else_writes(tmp_path):
    path, owner = tmp_path / "j.jsonl", tmp_path / "run.lock"
    beside = Journal(path, ignore, owner=owner)
    beside.append({"n": 0})
    with filelock.FileLock(owner):
        journal = Journal(path, ignore, shared=False)
        journal.append({"n": 1})
        with pytest.raises(OSError, match="a run is writing to it"):
            Journal(path, ignore, owner=owner)
        with pytest.raises(OSError, match="a run is writing to it"):
            beside.append({"n": -1})
        journal.append({"n": 2})
        journal.close()
    beside.append({"n": 3})
    assert [record["n"] for record in lines(path)] == [0, 1, 2, 3]


class HalfWritten:
    """A file that is full once, in the middle of a line."""

    def __init__(self, file):
        self._file, self._full = file, True

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, line):
        if not self._full:
            return self._file.write(line)
        self._full = False
        self._file.write(line[: len(line) // 2])
        raise OSError(errno.ENOSPC, "no space left")


def test_half_a_line_that_could_not_be_cut_off_spoils_no_other(tmp_path, monkeypatch):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, ignore, shared=False)
    journal.append({"n": 0})
    journal._file = HalfWritten(journal._file)
    with monkeypatch.context() as broken, pytest.raises(OSError, match="no space left"):
        broken.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "io")))
        journal.append({"n": 1, "text": "a" * 100})
    journal.append({"n": 2})
    journal.append({"n": 3})
    journal.close()
    assert [record["n"] for record in lines(path)] == [0, 2, 3]


@pytest.mark.parametrize("left", [0, 5, 20, 200_033])
def test_a_line_is_never_glued_to_what_was_cut(tmp_path, left):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, ignore)
    journal.append({"n": 0})
    journal.append({"n": 1, "text": "a" * 200_000})
    journal.append({"n": 2})
    os.truncate(path, left)
    journal.append({"n": 3})
    journal.append({"n": 4})
    journal.close()
    kept = [0] * (left > 5) + [1] * (left > 200_000)
    assert [record["n"] for record in lines(path)] == [*kept, 3, 4]
