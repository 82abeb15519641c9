"""What a disk holds when the power goes: of files and folders that which was forced, and nothing else."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection


class Disk:
    """`seen(disk)` is called before each fsync and each rename. What `root` holds at first is on the disk.

    eager: these names are on the disk as soon as a rename gives them, before anything that was not forced.
    """

    def __init__(
        self,
        monkeypatch,
        root: pathlib.Path,
        seen: Callable[[Disk], None] = lambda disk: None,
        *,
        eager: Collection[str] = (),
    ):
        self.root = root
        self._files: dict[int, bytes] = {}  # inode: what was forced
        self._folders: dict[int, dict[str, tuple[int, bool]]] = {}  # inode: {name: (inode, is a folder)}
        self._held: dict[int, int] = {}  # open, so that no inode is given to another file
        fsync, replace = os.fsync, os.replace
        for path in (root, *root.rglob("*")):
            self._force(path)

        def force(file):
            seen(self)
            fsync(file)
            self._force(pathlib.Path(os.readlink(f"/proc/self/fd/{file}")))

        def rename(old, new):
            seen(self)
            replace(old, new)
            if new.name in eager:
                there = self._folders.setdefault(self._inode(new.parent), {})
                there[new.name] = self._inode(new), new.is_dir()

        monkeypatch.setattr(os, "fsync", force)
        monkeypatch.setattr(os, "replace", rename)

    def _force(self, path: pathlib.Path) -> None:
        if path.is_dir():
            inside = {entry.name: (self._inode(entry), entry.is_dir()) for entry in path.iterdir()}
            self._folders[self._inode(path)] = inside
        else:
            self._files[self._inode(path)] = path.read_bytes()

    def _inode(self, path: pathlib.Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def after_a_cut(self, to: pathlib.Path) -> None:
        """Writes down what is left, outside the root."""
        self._write(self._inode(self.root), to)

    def _write(self, folder: int, to: pathlib.Path) -> None:
        to.mkdir()
        for name, (inode, is_folder) in self._folders.get(folder, {}).items():
            if is_folder:
                self._write(inode, to / name)
            else:
                (to / name).write_bytes(self._files.get(inode, b""))
