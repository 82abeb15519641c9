"""Problems that stay in their file: a JSON-lines file of any size, in memory 8 bytes a problem.

`FileTable` is the table of rows that `load_problems` checks in two passes over the file, `ProblemFile` what
it gives: a sequence that reads a problem when it is asked for. Both know where the lines start and how large
and how old the file was, and refuse to read one that has changed since.
"""

from __future__ import annotations

import json
import operator
import os
import pathlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, overload

from cotkit.problems.formats import Table, decode, json_lines
from cotkit.problems.records import Problem, ProblemError

Make = Callable[[int, Any], tuple[Problem | None, list[str]]]  # of a row and its number; and its faults


@dataclass(frozen=True)
class CheckedFile:
    """A file as it was when it was checked. `name` is what the user calls it."""

    name: str
    path: pathlib.Path
    size: int
    changed_ns: int

    @classmethod
    def now(cls, name: str, path: pathlib.Path) -> CheckedFile:
        found = path.stat()
        return cls(name, path.absolute(), found.st_size, found.st_mtime_ns)

    def values(self, offsets: Iterable[int]) -> Iterator[Any]:
        """What the lines at these offsets hold."""
        with open(self.path, "rb") as file:
            end = 0
            for offset in offsets:
                self.refuse_changed(file)
                if offset != end:
                    file.seek(offset)
                line = file.readline()
                end = offset + len(line)
                yield json.loads(decode(self.name, line, offset))

    def refuse_changed(self, file: BinaryIO) -> None:
        found = os.fstat(file.fileno())
        if (found.st_size, found.st_mtime_ns) != (self.size, self.changed_ns):
            raise ProblemError(f"{self.name} has changed since it was checked. Fix: load it again.")


class FileTable(Table):
    """The rows of a JSON-lines file, in memory the offsets of their lines; `scan` comes first."""

    def __init__(self, name: str, path: pathlib.Path):
        super().__init__(name)
        self.file, self._path = CheckedFile.now(name, path), path
        self._offsets = array("Q")
        self._between = array("Q")  # a line that is no row -> the number of the row after it

    def scan(self, see: Callable[[str, Any], None]) -> None:
        with open(self._path, "rb") as file:
            for line, offset, row in json_lines(self.name, file, self.faults):
                number = len(self)
                self._offsets.append(offset)
                self._between.extend([number] * (line - 1 - number - len(self._between)))
                see(self._place(number), row)
            self.file.refuse_changed(file)

    def _place(self, number: int) -> str:
        return f"line {number + 1 + bisect_right(self._between, number)}"

    def at(self, numbers: Sequence[int]) -> Iterator[tuple[int, str, Any]]:
        rows = self.file.values(self._offsets[number] for number in numbers)
        return ((number, self._place(number), row) for number, row in zip(numbers, rows, strict=True))

    def problems(self, make: Make, left_out: set[int], renamed: Mapping[int, str]) -> ProblemFile:
        numbers: Sequence[int] = range(len(self))
        if left_out:
            numbers = array("Q", (number for number in numbers if number not in left_out))
        offsets = array("Q", (self._offsets[number] for number in numbers)) if left_out else self._offsets
        return ProblemFile(self.file, make, offsets, numbers, renamed)

    def __len__(self) -> int:
        return len(self._offsets)


class ProblemFile(Sequence[Problem]):
    """The checked problems of a JSON-lines file, read one by one as they are asked for.

    `load_problems(path, stream=True)` makes it. Whatever takes the result of `load_problems` takes it too; a
    slice is a ProblemFile again. Iterating reads the file from the start; picking single ones opens it each
    time. Raises ProblemError once the file has another size or time than when it was checked.
    """

    def __init__(
        self,
        file: CheckedFile,
        make: Make,
        offsets: array[int],
        numbers: Sequence[int],
        renamed: Mapping[int, str],
    ):
        self._file, self._make, self._renamed = file, make, renamed
        self._offsets, self._numbers = offsets, numbers  # of each problem: of its line, and in the whole file

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def path(self) -> pathlib.Path:
        return self._file.path

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, place: int) -> Problem: ...
    @overload
    def __getitem__(self, place: slice) -> ProblemFile: ...
    def __getitem__(self, place: int | slice) -> Problem | ProblemFile:
        if isinstance(place, slice):
            return self._with(self._offsets[place], self._numbers[place])
        place = operator.index(place)
        offset, number = self._offsets[place], self._numbers[place]
        return next(self._read((offset,), (number,)))

    def __iter__(self) -> Iterator[Problem]:
        return self._read(self._offsets, self._numbers)

    def pick(self, places: Sequence[int]) -> ProblemFile:
        """The problems at these places, in this order."""
        chosen = (array("Q", (whole[place] for place in places)) for whole in (self._offsets, self._numbers))
        return self._with(*chosen)

    def _with(self, offsets: array[int], numbers: Sequence[int]) -> ProblemFile:
        return ProblemFile(self._file, self._make, offsets, numbers, self._renamed)

    def _read(self, offsets: Iterable[int], numbers: Iterable[int]) -> Iterator[Problem]:
        for number, row in zip(numbers, self._file.values(offsets), strict=True):
            problem, faults = self._make(number, row)
            if problem is None:
                raise ProblemError(f"{self.name} has changed since it was checked: {faults[0]}")
            if number in self._renamed:
                problem = problem.model_copy(update={"id": self._renamed[number]})
            yield problem

    def __repr__(self) -> str:
        return f"ProblemFile({self.name!r}: {len(self):,} problems)"
