"""`load_problems`: read, validate every row, then filter, shuffle and cut.

Nothing is filtered before everything is validated, so a file is either sound or refused as a whole, and the
message is the same whatever `limit` is.
"""

from __future__ import annotations

import itertools
import os
import random
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from cotkit.problems.formats import Table
from cotkit.problems.forms import MAPPABLE, build, recognise
from cotkit.problems.records import Problem, ProblemError
from cotkit.problems.sources import find_rows

_SHOWN = 5

Located = list[tuple[str, Problem]]


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
) -> list[Problem]:
    """The problems of a source, in its own order unless `shuffle`.

    path_or_name: a path to .json, .jsonl, .csv or .parquet; the name of shipped problems ("word_problems"); a
        Hugging Face id ("org/name", with `split` and `subset`; needs the package `datasets`); or a list of
        dicts or Problems, or a pandas DataFrame. Row forms are recognised by their fields (see
        `cotkit.problems.forms`).
    limit: at most this many problems, taken last: after the filter and the shuffle.
    seed: of the shuffle; the same order on every machine and Python version.
    type: keep problems of this type, or of any of these types.
    fields: your column names, {"problem": "my_text", "reference": "gold", "id": "uid"}.
    duplicates: "error" refuses two rows with one id or one text; "fix" keeps the first of equal texts and
        gives an id that another text has already a number ("a", "a-2"), with a warning that counts both.

    Ids stay text byte for byte; a whole number becomes its decimal text. Where no row has an id, a row's id
    is its number in the source, from "0".

    Raises ProblemError (a ValueError) naming row, field and fix; FileNotFoundError; ImportError when
    `datasets` is missing; ValueError or TypeError for options that make no sense.
    """
    _check_options(limit, seed, duplicates)
    table = find_rows(path_or_name, split, subset)
    located = _validate(table, fields, duplicates)
    problems = _of_type([problem for _, problem in located], type, table.name)
    if shuffle:
        rng = random.Random(seed)  # random() is the method Python promises never to change
        keys = [rng.random() for _ in problems]
        problems = [problems[i] for i in sorted(range(len(problems)), key=keys.__getitem__)]
    return problems[:limit]


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
    return pandas.DataFrame([[row.get(n) for n in used] for row in rows], columns=used)


def _check_options(limit: int | None, seed: int, duplicates: str) -> None:
    for name, value in (("limit", 1 if limit is None else limit), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}; leave it out to load everything")
    if duplicates not in ("error", "fix"):
        raise ValueError(f'duplicates must be "error" or "fix", not {duplicates!r}')


def _validate(table: Table, fields: Mapping[str, str] | None, duplicates: str) -> Located:
    if not table.rows and not table.faults:
        raise ProblemError(f"{table.name} holds no problems. Fix: give at least one row.")
    located, faults = _build_all(table, fields) if table.rows else ([], [])
    faults = table.faults + faults
    if duplicates == "error":
        faults += _repeats(located)
    else:
        located = _without_repeats(located)
    if faults:
        shown = "".join(f"\n  {fault}" for fault in faults[:_SHOWN])
        more = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ProblemError(f"{table.name}: {count}, nothing was loaded.{shown}{more}", faults)
    programs = ("check_code", "tests")  # what checks an answer in place of a reference
    bare = [
        place
        for place, problem in located
        if problem.reference is None and not any(problem.metadata.get(key) for key in programs)
    ]
    if 0 < len(bare) < len(located):
        text = f"{len(bare)} of {len(located)} problems have no reference (the first in {bare[0]})"
        warnings.warn(f"{table.name}: {text}: they can be judged, not verified", stacklevel=3)
    return located


def _build_all(table: Table, fields: Mapping[str, str] | None) -> tuple[Located, list[str]]:
    ready = [isinstance(row, Problem) for _, row in table.rows]
    if all(ready):
        empty = [place for place, problem in table.rows if not problem.problem.strip()]
        return table.rows, [f"{place}: the problem has no text. Fix: remove it." for place in empty]
    if any(ready):
        raise ProblemError(f"{table.name} mixes Problem objects with other rows. Fix: give one kind.")
    columns = recognise(table.rows, table.name, fields)
    id_column = columns.get("id", "id")
    brings_ids = any(isinstance(row, Mapping) and row.get(id_column, "") != "" for _, row in table.rows)
    located, faults = [], []
    for number, (place, row) in enumerate(table.rows):
        problem, found = build(row, columns, None if brings_ids else str(number))
        faults += [f"{place}: {fault}" for fault in found]
        if problem is not None:
            located.append((place, problem))
    return located, faults


def _repeats(located: Located) -> list[str]:
    """A fault for each row that repeats an id or a text; it names both rows."""
    by_id: dict[str, tuple[str, Problem]] = {}
    by_text: dict[str, tuple[str, Problem]] = {}
    faults = []
    for place, problem in located:
        first = by_id.setdefault(problem.id, (place, problem))
        if first[0] != place:
            both = ", with the same text" if first[1].problem == problem.problem else ""
            faults.append(
                f"{place}: the id {problem.id!r} stands in {first[0]} already{both}. Fix: give every row its "
                'own id (1 and "1" are one id), map another field, fields={"id": ...}, or load with '
                'duplicates="fix".'
            )
            continue
        first = by_text.setdefault(problem.problem, (place, problem))
        if first[0] != place:
            faults.append(
                f"{place} (id {problem.id!r}): the same text as {first[0]} (id {first[1].id!r}), "
                f'{problem.problem[:60]!r}. Fix: remove one, or load with duplicates="fix".'
            )
    return faults


def _without_repeats(located: Located) -> Located:
    """The first row of each text, with ids made unique by a number."""
    texts: set[str] = set()
    taken = {problem.id for _, problem in located}
    used: set[str] = set()
    kept: Located = []
    renamed = 0
    for place, problem in located:
        if problem.problem in texts:
            continue
        texts.add(problem.problem)
        if problem.id in used:
            names = (f"{problem.id}-{number}" for number in itertools.count(2))
            free = next(name for name in names if name not in taken)
            taken.add(free)
            problem, renamed = problem.model_copy(update={"id": free}), renamed + 1
        used.add(problem.id)
        kept.append((place, problem))
    if renamed or len(kept) < len(located):
        warnings.warn(
            f"duplicates: {len(located) - len(kept)} rows left out (the text of an earlier row), "
            f"{renamed} ids numbered",
            stacklevel=4,
        )
    return kept


def _of_type(problems: list[Problem], wanted: str | Sequence[str] | None, name: str) -> list[Problem]:
    if wanted is None:
        return problems
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    present = Counter(problem.type for problem in problems)
    unknown = [kind for kind in wanted if kind not in present]
    if unknown or not wanted:
        shown = ", ".join(f"{kind!r} ({count})" for kind, count in present.items())
        asked = f"no problem has the type {unknown[0]!r}" if unknown else "type is an empty list"
        raise ValueError(f"{name}: {asked}; types present: {shown}")
    return [problem for problem in problems if problem.type in wanted]
