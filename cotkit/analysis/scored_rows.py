"""Judged and verified rows of runs, a file or any DataFrame: checked, and split by problem."""

from __future__ import annotations

import difflib
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.scored_sources import SUFFIXES, scored_frame
from cotkit.runs import Run, open_run

if TYPE_CHECKING:
    import pandas

LENGTH = "trace_characters"
SHARES = {"tune": 0.4, "certify": 0.4, "report": 0.2}
LEAST_ROWS, LEAST_PROBLEMS = 50, 10  # with fewer nothing is split, and nothing certified
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_MISSING = ("", "none", "nan", "<na>")


@dataclass(frozen=True)
class ScoredRows:
    """`frame` holds the rows that have a verdict and every score: id, right, iteration, length (nan where
    unknown) and the score columns. `left_out` counts the others by reason; `missing` counts by column.
    `judge` is the judge's `describe()` where it is known."""

    frame: pandas.DataFrame
    columns: list[str]
    given: int
    left_out: dict[str, int]
    missing: dict[str, int]
    judge: dict[str, Any] | None
    judge_names: list[str]
    types: list[str]
    iterations: list[int] | None  # None = not recorded

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions as the judge calls them."""
        return tuple(column.removeprefix("score_") for column in self.columns)

    @property
    def data_hash(self) -> str:
        import pandas

        hashed = pandas.util.hash_pandas_object(self.frame[["id", "right", *self.columns]], index=False)
        return hashlib.sha256(hashed.to_numpy().tobytes()).hexdigest()[:16]


def scored_rows(
    given: Any, score_columns: Sequence[str] | None, label: str, group: str | None, judge: Any
) -> ScoredRows:
    """Raises ValueError for a column that is not there, a score or label that is none, a row without a
    problem, runs of different judges, or no row that has both a verdict and every score."""
    frame, described = _read(given, group)
    described = described or (judge.describe() if hasattr(judge, "describe") else judge)
    if described is not None and not isinstance(described, Mapping):
        raise TypeError(f"judge must be a judge or its describe(), got {judge!r:.80}")
    columns = _columns(frame, score_columns)
    for column in [label, *([group] if group else []), *columns]:
        if column not in frame.columns:
            near = difflib.get_close_matches(column, map(str, frame.columns), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(str, frame.columns))}"
            raise ValueError(f"the data has no column {column!r}; {hint}")
    taken = frame.reset_index(drop=True)
    right = _labels(taken[label], label)
    scores = {column: _scores(taken[column], column) for column in columns}
    hinted = _flags(taken, "rationalized")
    undecided = ~hinted & right.isna()
    without = ~hinted & ~undecided & np.any([values.isna() for values in scores.values()], axis=0)
    keep = ~(hinted | undecided | without)
    if not keep.any():
        raise ValueError(
            f"none of {len(taken):,} rows has a verdict ({label!r}) and a score ({', '.join(columns)}): "
            f"{int(hinted.sum()):,} rationalized, {int(undecided.sum()):,} without a verdict, "
            f"{int(without.sum()):,} with a verdict but without a score"
        )
    found = {
        "id": _problems(taken, group),
        "right": right,
        "iteration": taken.get("iteration", 0),
        "length": taken[LENGTH].astype(float) if LENGTH in taken else np.nan,
    }
    kept = taken.assign(**found)[[*found]].assign(**scores)[keep]
    kept = kept.astype({"right": bool, "iteration": int})
    kept = kept.sort_values([*kept.columns], ignore_index=True)  # what is drawn depends on no order of rows
    return ScoredRows(
        kept,
        columns,
        len(taken),
        {
            "rationalized": int(hinted.sum()),
            "no verdict": int(undecided.sum()),
            "no score": int(without.sum()),
        },
        {column: int(values[~hinted].isna().sum()) for column, values in scores.items()},
        described,
        sorted(taken["judge"].dropna().astype(str).unique()) if "judge" in taken else [],
        sorted(taken["type"].dropna().astype(str).unique()) if "type" in taken else [],
        sorted(kept["iteration"].unique().tolist()) if "iteration" in taken else None,
    )


def _read(given: Any, group: str | None) -> tuple[pandas.DataFrame, dict[str, Any] | None]:
    """The rows, and the judge's description where a run tells it."""
    import pandas

    if isinstance(given, pandas.DataFrame):
        return given, None
    if isinstance(given, (str, os.PathLike)) and pathlib.Path(given).suffix.lower() in SUFFIXES:
        return scored_frame(given, group or "id"), None
    runs = given if isinstance(given, (list, tuple)) else [given]
    if not runs or not all(isinstance(run, (Run, str, os.PathLike)) for run in runs):
        raise TypeError(f"frame must be a Run, Runs, a DataFrame or a file of rows, got {given!r:.80}")
    runs = [run if isinstance(run, Run) else open_run(run) for run in runs]
    judges = [run.config.get("judge") for run in runs]
    if any(judge != judges[0] for judge in judges):
        names = ", ".join(str((judge or {}).get("name")) for judge in judges)
        raise ValueError(f"the runs were not judged alike ({names}): tune each judge on its own runs")
    return scored_frame(runs), judges[0]


def _columns(frame: pandas.DataFrame, score_columns: Sequence[str] | None) -> list[str]:
    if isinstance(score_columns, str):
        score_columns = [score_columns]
    if score_columns is None:
        scored = [str(c) for c in frame.columns if str(c).startswith("score_") and frame[c].notna().any()]
        score_columns = [c for c in scored if c != "score_mean"] or scored
    columns = list(score_columns)
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(
            "no score column: name some, or give rows with score_<dimension> (was there a judge?)"
            if not columns
            else f"score_columns names a column twice: {columns}"
        )
    return columns


def _labels(values: pandas.Series, name: str) -> pandas.Series:
    """True, False or NA."""
    text = values.astype("string").str.strip().str.lower()
    truth = text.map(_TRUTH).astype("boolean")
    strange = truth.isna() & text.notna() & ~text.isin(_MISSING)
    if strange.any():
        at = int(np.flatnonzero(strange)[0])
        raise ValueError(f"row {at}, column {name!r}: {values.iloc[at]!r} is neither True, False nor missing")
    return truth


def _scores(values: pandas.Series, name: str) -> pandas.Series:
    """Finite numbers; nan for what is missing or infinite."""
    import pandas

    numbers = pandas.to_numeric(values, errors="coerce").astype("Float64").astype(float)
    strange = (
        numbers.isna() & values.notna() & ~values.astype("string").str.strip().str.lower().isin(_MISSING)
    )
    if strange.any():
        at = int(np.flatnonzero(strange)[0])
        raise ValueError(f"row {at}, column {name!r}: the score {values.iloc[at]!r} is no number")
    return numbers.where(np.isfinite(numbers)) + 0.0  # no negative zero


def _flags(frame: pandas.DataFrame, name: str) -> np.ndarray:
    if name not in frame:
        return np.zeros(len(frame), bool)
    return frame[name].astype("boolean").fillna(False).to_numpy(bool)


def _problems(frame: pandas.DataFrame, group: str | None) -> pandas.Series | list[str]:
    if group is None:
        return [str(number) for number in range(len(frame))]
    if frame[group].isna().any():
        at = int(np.flatnonzero(frame[group].isna())[0])
        raise ValueError(
            f"row {at} names no problem in column {group!r}; group=None makes every row its own problem"
        )
    return frame[group].astype(str)


def split_problems(ids: pandas.Series, seed: int) -> np.ndarray:
    """ "tune", "certify" or "report" for each row: 40, 40 and 20 % of the problems, all rows of a problem
    together. Depends on the set of ids and the seed, not on the order of the rows."""
    problems, code = np.unique(ids.to_numpy(str), return_inverse=True)
    place = np.random.default_rng(seed).permutation(len(problems)) / len(problems)
    bounds = np.cumsum(list(SHARES.values()))[:-1]
    return np.array(list(SHARES))[np.searchsorted(bounds, place, side="right")][code]


def one_a_problem(ids: np.ndarray, seed: int) -> np.ndarray:
    """Positions of one row a problem, drawn by the seed without a look at scores or verdicts."""
    order = np.random.default_rng(seed).permutation(len(ids))
    return np.sort(order[np.unique(ids[order], return_index=True)[1]])
