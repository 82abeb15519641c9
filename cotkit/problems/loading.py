"""`load_problems`: read, validate every row, then filter, shuffle and cut.

Nothing is filtered before everything is validated, so a file is either sound or refused as a whole, and the
message is the same whatever `limit` is. Rows that repeat others are found by hashes of their ids and texts,
and compared themselves only where hashes are equal: so a file that is streamed needs no text in memory.
"""

from __future__ import annotations

import itertools
import os
import random
import warnings
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cotkit.problems.files import FileTable, Make, ProblemFile
from cotkit.problems.formats import Table
from cotkit.problems.forms import MAPPABLE, Form, build
from cotkit.problems.records import Problem, ProblemError
from cotkit.problems.sources import Stream, find_rows

_SHOWN = 5
_PROGRAMS = ("check_code", "tests")  # what checks an answer in place of a reference


def load_problems(
    path_or_name: str | os.PathLike[str] | Iterable[Any],
    limit: int | None = None,
    seed: int = 0,
    *,
    shuffle: bool = False,
    type: str | Sequence[str] | None = None,
    fields: Mapping[str, str] | None = None,
    duplicates: Literal["error", "fix"] = "error",
    split: str | None = None,
    subset: str | None = None,
    stream: Stream = False,
) -> Sequence[Problem]:
    """The problems of a source, in its own order unless `shuffle`: a list, or with `stream` a ProblemFile.

    path_or_name: a path to .json, .jsonl, .csv or .parquet; the name of shipped problems ("word_problems"); a
        Hugging Face id ("org/name", with `split` and `subset`; needs the package `datasets`); or a list of
        dicts or Problems, or a pandas DataFrame. Row forms are recognised by their fields (see
        `cotkit.problems.forms`). A ProblemFile is taken as it is: it was checked.
    limit: at most this many problems, taken last: after the filter and the shuffle.
    seed: of the shuffle; the same order on every machine and Python version.
    type: keep problems of this type, or of any of these types.
    fields: your column names, {"problem": "my_text", "reference": "gold", "id": "uid"}.
    duplicates: "error" refuses two rows with one id or one text; "fix" keeps the first of equal texts and
        gives an id that another text has already a number ("a", "a-2"), with a warning that counts both.
    stream: True leaves the problems of a .jsonl file in it, checked all the same, and reads them as they are
        asked for: 8 bytes of memory a problem. "auto" does so from 16 MB on.

    Ids stay text byte for byte; a whole number becomes its decimal text. Where no row has an id, a row's id
    is its number in the source, from "0".

    Raises ProblemError (a ValueError) naming row, field and fix; FileNotFoundError; ImportError when
    `datasets` is missing; ValueError or TypeError for options that make no sense.
    """
    _check_options(limit, seed, duplicates, stream)
    if isinstance(path_or_name, ProblemFile) and split is None and subset is None:
        problems, name = path_or_name, path_or_name.name
    else:
        table = find_rows(path_or_name, split, subset, stream)
        problems, name = _validate(table, fields, duplicates), table.name
    if type is not None:
        problems = _of_type(problems, type, name)
    if shuffle:
        rng = random.Random(seed)  # random() is the method Python promises never to change
        keys = array("d", (rng.random() for _ in range(len(problems))))
        problems = _pick(problems, sorted(range(len(problems)), key=keys.__getitem__))
    return problems if limit is None else problems[:limit]


def problems_frame(problems: Iterable[Problem]):
    """The problems as a pandas DataFrame: one row each, plain metadata values as columns of their own.

    Optional columns that are empty for all problems are left out.
    """
    import pandas

    rows = []
    for problem in problems:
        extra = {k: v for k, v in problem.metadata.items() if not isinstance(v, dict | list)}
        known = problem.model_dump(exclude={"metadata"})
        rows.append(known | {k: v for k, v in extra.items() if k not in known})
    fixed = ["id", "type", "problem", "reference"]
    names = list(dict.fromkeys([*fixed, *MAPPABLE, *(name for row in rows for name in row)]))
    used = [n for n in names if n in fixed or any(row.get(n) is not None for row in rows)]
    cells = ([row.get(name) for row in rows] for name in used)
    kinds = ((values, object if any(isinstance(v, str) for v in values) else None) for values in cells)
    frame = pandas.DataFrame({n: pandas.Series(values, dtype=kind) for n, (values, kind) in enumerate(kinds)})
    frame.columns = pandas.Index(used, dtype=object)  # pandas' own strings hold no lone surrogate
    return frame


def _check_options(limit: int | None, seed: int, duplicates: str, stream: Stream) -> None:
    for name, value in (("limit", 1 if limit is None else limit), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}; leave it out to load everything")
    if duplicates not in ("error", "fix"):
        raise ValueError(f'duplicates must be "error" or "fix", not {duplicates!r}')
    if stream not in (True, False, "auto"):
        raise ValueError(f'stream must be True, False or "auto", not {stream!r}')


def _validate(table: Table, fields: Mapping[str, str] | None, duplicates: str) -> Sequence[Problem]:
    form = Form(fields)
    table.scan(form.see)
    if not form.rows and not table.faults:
        raise ProblemError(f"{table.name} holds no problems. Fix: give at least one row.")
    make = _maker(form, table.name) if form.rows else None
    faults, made = list(table.faults), []
    ids, texts, bare = array("q"), array("q"), array("Q")
    for number, place, row in table.at(range(len(table))):
        problem, found = make(number, row)
        faults += [f"{place}: {fault}" for fault in found]
        ids.append(hash(problem and problem.id))
        texts.append(hash(problem and problem.problem.strip()))
        if problem and problem.reference is None and not any(map(problem.metadata.get, _PROGRAMS)):
            bare.append(number)
        if not isinstance(table, FileTable):
            made.append(problem)
    alike = ((n, place, make(n, row)[0]) for n, place, row in table.at(_alike(ids, texts)))
    alike = [(number, place, problem) for number, place, problem in alike if problem]
    left_out, renamed = set[int](), dict[int, str]()
    if duplicates == "error":
        faults += _repeats(alike)
    else:
        left_out, renamed = _without_repeats(alike, ids)
    if faults:
        shown = "".join(f"\n  {fault}" for fault in faults[:_SHOWN])
        more = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ProblemError(f"{table.name}: {count}, nothing was loaded.{shown}{more}", faults)
    kept = len(table) - len(left_out)
    bare = [number for number in bare if number not in left_out] if left_out else bare
    if 0 < len(bare) < kept:
        ((_, first, _),) = table.at(bare[:1])
        text = f"{len(bare)} of {kept} problems have no reference (the first in {first})"
        warnings.warn(f"{table.name}: {text}: they can be judged, not verified", stacklevel=3)
    elif len(bare) == kept and (column := form.unread_reference(row for _, _, row in table.at(bare))):
        warnings.warn(
            f"{table.name}: no problem has a reference, but the field {column!r} looks like one. If it is: "
            f'load_problems(..., fields={{"reference": {column!r}}})',
            stacklevel=3,
        )
    if isinstance(table, FileTable):
        return table.problems(make, left_out, renamed)
    for number, id in renamed.items():
        made[number] = made[number].model_copy(update={"id": id})
    return [problem for number, problem in enumerate(made) if number not in left_out]


@dataclass(frozen=True)
class _OfRow:
    """The Problem of a row with its number, or None, and its faults."""

    columns: dict[str, str]
    brings_ids: bool

    def __call__(self, number: int, row: Any) -> tuple[Problem | None, list[str]]:
        return build(row, self.columns, None if self.brings_ids else str(number))


def _maker(form: Form, name: str) -> Make:
    if form.ready == form.rows:
        return _ready
    if form.ready:
        raise ProblemError(f"{name} mixes Problem objects with other rows. Fix: give one kind.")
    return _OfRow(form.columns(name), form.brings_ids)


def _ready(number: int, problem: Problem) -> tuple[Problem, list[str]]:
    return problem, [] if problem.problem.strip() else ["the problem has no text. Fix: remove it."]


def _alike(*columns: array[int]) -> list[int]:
    """The numbers of the rows with a hash that another row has too, which nearly always is a repeat."""
    alike = set[int]()
    for hashes in columns:
        twice = {one for one, other in itertools.pairwise(sorted(hashes)) if one == other}
        if twice:
            alike.update(number for number, one in enumerate(hashes) if one in twice)
    return sorted(alike)


def _repeats(located: Iterable[tuple[int, str, Problem]]) -> list[str]:
    """A fault for each row that repeats an id or a text; it names both rows."""
    by_id: dict[str, tuple[str, Problem]] = {}
    by_text: dict[str, tuple[str, Problem]] = {}
    faults = []
    for _, place, problem in located:
        first = by_id.setdefault(problem.id, (place, problem))
        if first[0] != place:
            both = ", with the same text" if first[1].problem.strip() == problem.problem.strip() else ""
            faults.append(
                f"{place}: the id {problem.id!r} stands in {first[0]} already{both}. Fix: give every row its "
                'own id (1 and "1" are one id), map another field, fields={"id": ...}, or load with '
                'duplicates="fix".'
            )
            continue
        first = by_text.setdefault(problem.problem.strip(), (place, problem))
        if first[0] != place:
            faults.append(
                f"{place} (id {problem.id!r}): the same text as {first[0]} (id {first[1].id!r}), "
                f'{problem.problem[:60]!r}. Fix: remove one, or load with duplicates="fix".'
            )
    return faults


def _without_repeats(
    located: Iterable[tuple[int, str, Problem]], ids: Iterable[int]
) -> tuple[set[int], dict[int, str]]:
    """The numbers of the rows that repeat a text, and new ids for those that repeat an id. `ids`: the hashes
    of all ids there are."""
    left_out, renamed = set[int](), dict[int, str]()
    references, contradictions = dict[str, str](), list[str]()  # of each text; the rows that say another
    used, taken = set[str](), set[int]()
    for number, place, problem in located:
        text, reference = problem.problem.strip(), (problem.reference or "").strip()
        if text in references:
            left_out.add(number)
            if reference != references[text]:
                contradictions.append(f"{place}: {reference[-60:]!r}, kept is {references[text][-60:]!r}")
            continue
        references[text] = reference
        id = problem.id
        if id in used:
            taken = taken or set(ids)
            names = (f"{id}-{another}" for another in itertools.count(2))
            id = renamed[number] = next(name for name in names if hash(name) not in taken)
            taken.add(hash(id))
        used.add(id)
    if left_out or renamed:
        said = f"duplicates: {len(left_out)} rows left out (the text of an earlier row), "
        said += f"{len(renamed)} ids numbered"
        if contradictions:
            said += (
                f"; {len(contradictions)} of the rows left out have another reference ({contradictions[0]})"
            )
        warnings.warn(said, stacklevel=4)
    return left_out, renamed


def _of_type(problems: Sequence[Problem], wanted: str | Sequence[str], name: str) -> Sequence[Problem]:
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    present, chosen = Counter[str | None](), array("Q")
    for place, problem in enumerate(problems):
        present[problem.type] += 1
        if problem.type in wanted:
            chosen.append(place)
    unknown = [kind for kind in wanted if kind not in present]
    if unknown or not wanted:
        shown = ", ".join(f"{kind!r} ({count})" for kind, count in present.items())
        asked = f"no problem has the type {unknown[0]!r}" if unknown else "type is an empty list"
        raise ValueError(f"{name}: {asked}; types present: {shown}")
    return _pick(problems, chosen)


def _pick(problems: Sequence[Problem], places: Sequence[int]) -> Sequence[Problem]:
    if isinstance(problems, ProblemFile):
        return problems.pick(places)
    return [problems[place] for place in places]
