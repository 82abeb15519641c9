"""Judged and verified rows of runs, a file or any DataFrame: checked, and split by problem."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.scored_sources import scored_frame
from cotkit.runs import Run

if TYPE_CHECKING:
    import pandas

LENGTH = "trace_characters"
SHARES = {"tune": 0.4, "certify": 0.4, "report": 0.2}
LEAST_ROWS, LEAST_PROBLEMS = 50, 10  # with fewer nothing is split, and nothing certified
LEAST_SPREAD = 1e-6  # of a score: thresholds are held to 1e-9
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_MISSING = ("", "none", "nan", "<na>")
# columns of `ThresholdReport.rows`, which no score may be called
_TAKEN = ("id", "problem", "right", "iteration", "length", "model", "split", "tuned")


@dataclass(frozen=True)
class ScoredRows:
    """`frame` holds the rows that have a verdict and every score: id, problem (codes from 0, in the order of
    ids), right, iteration, length (nan where unknown), model (where given) and the score columns. `left_out`
    counts the others by reason; `missing` counts by column; `unlabelled` holds iteration and scores of those
    that lack nothing but a verdict. `judge` is the judge's `describe()` where it is known."""

    frame: pandas.DataFrame
    columns: list[str]
    given: int
    unlabelled: pandas.DataFrame
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
    """Raises ValueError for a column that is not there or not free, a score or label that is none, a row
    without a problem, rows of different judges, or no row that has both a verdict and every score."""
    import pandas

    if isinstance(judge, type):
        raise TypeError(f"judge must be a judge, not the class: {judge.__name__}(...)")
    frame = _read(given, group).rename(columns=str)
    described = judge.describe() if hasattr(judge, "describe") else judge
    described = described or frame.attrs.get("judge")
    if described is not None and not isinstance(described, Mapping):
        raise TypeError(f"judge must be a judge or its describe(), got {judge!r:.80}")
    columns = _columns(frame, score_columns, (label, group))
    taken = frame.reset_index(drop=True)
    right = _labels(taken[label], label)
    scores = {column: _numbers(taken[column], column, "score") for column in columns}
    drafts = _iterations(taken)
    hinted = _flags(taken, "rationalized")
    undecided = ~hinted & right.isna()
    unscored = np.any([values.isna() for values in scores.values()], axis=0)
    without = ~hinted & ~undecided & unscored
    undated = ~(hinted | undecided | without) & drafts.isna()
    left_out = {"rationalized": hinted, "no verdict": undecided, "no score": without, "no iteration": undated}
    left_out = {why: int(rows.sum()) for why, rows in left_out.items()}
    keep = ~(hinted | undecided | without | undated)
    if not keep.any():
        raise ValueError(
            f"none of {len(taken):,} rows has a verdict ({label!r}) and a score ({', '.join(columns)}): "
            f"{left_out['rationalized']:,} rationalized, {left_out['no verdict']:,} without a verdict, "
            f"{left_out['no score']:,} with a verdict but without a score, {left_out['no iteration']:,} with "
            "both but without an iteration"
        )
    names = sorted(taken.loc[keep, "judge"].dropna().astype(str).unique()) if "judge" in taken else []
    if len(names) > 1:
        raise ValueError(f"the rows are of several judges ({', '.join(names)}): tune each judge on its own")
    found = {
        "id": _problems(taken, group),
        "problem": 0,
        "right": right,
        "iteration": drafts,
        "length": _numbers(taken[LENGTH], LENGTH, "length") if LENGTH in taken else np.nan,
    }
    found |= {"model": taken["model"]} if "model" in taken else {}
    found = taken.assign(**found)[[*found]].assign(**scores)
    kept, unlabelled = found[keep], found[undecided & ~unscored & drafts.notna()]
    kept = kept.astype({"right": bool, "iteration": int})
    for column in columns:
        if 0 < np.ptp(kept[column]) < LEAST_SPREAD:
            raise ValueError(
                f"the scores {column!r} differ by less than {LEAST_SPREAD:g}, too little for a threshold: "
                "give them on another scale, such as their logarithm"
            )
    kept["problem"] = pandas.factorize(kept["id"], sort=True)[0]
    # what is drawn depends on no order of the rows; the verdict comes last, so that it orders no ties first
    order = ["problem", "iteration", *columns, "length", "right"]
    return ScoredRows(
        kept.sort_values(order, ignore_index=True),
        columns,
        len(taken),
        unlabelled[["iteration", *columns]],
        left_out,
        {column: int(values[~hinted].isna().sum()) for column, values in scores.items()},
        described,
        names,
        sorted(taken["type"].dropna().astype(str).unique()) if "type" in taken else [],
        sorted(kept["iteration"].unique().tolist()) if "iteration" in taken else None,
    )


def _read(given: Any, group: str | None) -> pandas.DataFrame:
    import pandas

    if isinstance(given, pandas.DataFrame):
        return given
    if not isinstance(given, (str, os.PathLike, Run)) and not (
        isinstance(given, (list, tuple))
        and given
        and all(isinstance(r, (Run, str, os.PathLike)) for r in given)
    ):
        raise TypeError(f"frame must be a Run, Runs, a DataFrame or a file of rows, got {given!r:.80}")
    return scored_frame(given, group or "id")


def _columns(
    frame: pandas.DataFrame, score_columns: Sequence[str] | None, label_and_group: tuple[str, str | None]
) -> list[str]:
    """The score columns, with label and group all there, each once and none under a name that is taken."""
    if isinstance(score_columns, str):
        score_columns = [score_columns]
    if score_columns is None:
        scored = [str(c) for c in frame.columns if str(c).startswith("score_") and frame[c].notna().any()]
        score_columns = [c for c in scored if c != "score_mean"] or scored
    columns = [str(column) for column in score_columns]
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(
            "no score column: name some, or give rows with score_<dimension> (was there a judge?)"
            if not columns
            else f"score_columns names a column twice: {columns}"
        )
    if taken := [column for column in columns if column in (*_TAKEN, *label_and_group)]:
        raise ValueError(
            f"{taken[0]!r} cannot be a score column, the name means something else here: rename it"
        )
    for column in [*(name for name in label_and_group if name), *columns]:
        if column not in frame.columns:
            near = difflib.get_close_matches(column, map(str, frame.columns), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(str, frame.columns))}"
            raise ValueError(f"the data has no column {column!r}; {hint}")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"the data has two columns {twice!r}: rename one")
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


def _numbers(values: pandas.Series, name: str, what: str) -> pandas.Series:
    """Finite numbers; nan for what is missing or infinite."""
    import pandas

    numbers = pandas.to_numeric(values, errors="coerce").astype("Float64").astype(float)
    strange = (
        numbers.isna() & values.notna() & ~values.astype("string").str.strip().str.lower().isin(_MISSING)
    )
    if strange.any():
        at = int(np.flatnonzero(strange)[0])
        raise ValueError(f"row {at}, column {name!r}: the {what} {values.iloc[at]!r} is no number")
    return numbers.where(np.isfinite(numbers)) + 0.0  # no negative zero


def _iterations(frame: pandas.DataFrame) -> pandas.Series:
    """Whole numbers; nan where missing, 0 where none are recorded."""
    import pandas

    if "iteration" not in frame:
        return pandas.Series(0.0, frame.index)
    numbers = _numbers(frame["iteration"], "iteration", "iteration")
    odd = np.flatnonzero(numbers.notna() & ((numbers % 1 != 0) | (numbers < 0)))
    if len(odd):
        raise ValueError(
            f"row {odd[0]}, column 'iteration': {frame['iteration'].iloc[odd[0]]!r} is no whole number from 0"
        )
    return numbers


def _flags(frame: pandas.DataFrame, name: str) -> np.ndarray:
    if name not in frame:
        return np.zeros(len(frame), bool)
    return _labels(frame[name], name).fillna(False).to_numpy(bool)


def _problems(frame: pandas.DataFrame, group: str | None) -> pandas.Series | list[str]:
    if group is None:
        return [str(number) for number in range(len(frame))]
    if frame[group].isna().any():
        at = int(np.flatnonzero(frame[group].isna())[0])
        raise ValueError(
            f"row {at} names no problem in column {group!r}; group=None makes every row its own problem"
        )
    return frame[group].astype(str)


def split_problems(problem: np.ndarray, seed: int) -> np.ndarray:
    """ "tune", "certify" or "report" for each row: 40, 40 and 20 % of the problems, all rows of a problem
    together. Depends on the set of problems and the seed, not on the order of the rows."""
    problems, code = np.unique(problem, return_inverse=True)
    place = np.random.default_rng(seed).permutation(len(problems)) / len(problems)
    bounds = np.cumsum(list(SHARES.values()))[:-1]
    return np.array(list(SHARES))[np.searchsorted(bounds, place, side="right")][code]


def one_a_problem(ids: np.ndarray, seed: int) -> np.ndarray:
    """Positions of one row a problem, drawn by the seed without a look at scores or verdicts."""
    order = np.random.default_rng(seed).permutation(len(ids))
    return np.sort(order[np.unique(ids[order], return_index=True)[1]])
