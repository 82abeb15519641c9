"""Files that are whole or not there, and names that are imported when they are used."""

from __future__ import annotations

import importlib
import os
import pkgutil
import time

import pytest

import cotkit
from cotkit import whole
from cotkit.whole import whole_file


def test_a_file_is_replaced_whole_and_nothing_stays_beside_it(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new" and list(path.parent.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_there(tmp_path):
    path, old = tmp_path / "a[1].txt", time.time() - whole.ABANDONED_S - 1
    for name in (".a[1].txt.0badf00d.tmp", ".b.txt.0badf00d.tmp", ".a[1].txt.tmp"):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (old, old))
    (tmp_path / ".a[1].txt.11111111.tmp").write_text("another process is writing this")
    others = {".b.txt.0badf00d.tmp", ".a[1].txt.tmp"}
    with whole_file(path) as temporary:
        temporary.write_text("new")
    assert {left.name for left in tmp_path.iterdir()} == {path.name, ".a[1].txt.11111111.tmp", *others}
    with whole_file(path, alone=True) as temporary:
        temporary.write_text("new")
    assert {left.name for left in tmp_path.iterdir()} == {path.name, *others}


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
