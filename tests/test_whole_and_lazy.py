"""Files that are whole or not there, and names that are imported when they are used."""

from __future__ import annotations

import fcntl
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest
from power_cut import Disk

import cotkit
from cotkit.whole import whole_file


def test_a_file_is_replaced_whole_and_nothing_stays_beside_it(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new" and list(path.parent.iterdir()) == [path]


HALF = """
import sys
from cotkit.whole import whole_file
with whole_file(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_there(tmp_path):
    """And nothing that one who lives is writing, however old the clock says it is."""
    path, others = tmp_path / "a[1].txt", {".b.txt.0badf00d.tmp", ".a[1].txt.tmp"}
    for name in others:
        (tmp_path / name).write_text("half")
    command = [sys.executable, "-c", HALF, str(path)]
    lives, dead = (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    written = [process.stdout.readline().strip() for process in (lives, dead)]
    dead.kill()
    dead.communicate()
    assert all((tmp_path / name).read_text() == "half" for name in written)
    for name in written:
        os.utime(tmp_path / name, (0, 0))
    with whole_file(path) as temporary:
        temporary.write_text("new")
    assert {left.name for left in tmp_path.iterdir()} == {path.name, written[0], *others}
    lives.communicate("")
    assert lives.returncode == 0 and path.read_text() == "half"
    assert {left.name for left in tmp_path.iterdir()} == {path.name, *others}


def test_who_is_alone_removes_what_was_left_without_asking(tmp_path):
    """Also where there are no locks."""
    left = tmp_path / ".a.txt.0badf00d.tmp"
    with open(left, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with whole_file(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
        assert left.exists()
        with whole_file(tmp_path / "a.txt", alone=True) as temporary:
            temporary.write_text("new")
    assert not left.exists()


def test_a_file_that_is_written_is_there_after_a_power_cut(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(monkeypatch, root)
    for name in ("deep/er/a.txt", "b.txt"):
        with whole_file(root / name) as temporary:
            temporary.write_text("new")
    disk.after_a_cut(tmp_path / "after")
    for name in ("deep/er/a.txt", "b.txt"):
        assert (tmp_path / "after" / name).read_text() == "new"


def test_what_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def lazy_packages():
    yield "cotkit"
    yield from (p.name for p in pkgutil.iter_modules(cotkit.__path__, "cotkit.") if p.ispkg)
    yield "cotkit.analysis.figures"


@pytest.mark.parametrize("name", list(lazy_packages()))
def test_every_public_name_of_a_room_is_there(name):
    room = importlib.import_module(name)
    for public in getattr(room, "__all__", ()):
        assert getattr(room, public) is not None
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'no_such_name'"):
        _ = room.no_such_name
