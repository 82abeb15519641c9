"""Judged and verified rows of runs, a file or any DataFrame: checked, and split by problem."""

from __future__ import annotations

import datetime
import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cotkit.analysis.agreement import cohen_kappa
from cotkit.analysis.intervals import Rate
from cotkit.analysis.scored_sources import place, scored_frame
from cotkit.shown import mended

if TYPE_CHECKING:
    import pandas

LENGTH = "trace_characters"
SHARES = {"tune": 0.4, "certify": 0.4, "report": 0.2}
LEAST_ROWS, LEAST_PROBLEMS = 50, 10  # with fewer nothing is split, and nothing certified
LEAST_SPREAD = 1e-6  # of a score: thresholds are held to 1e-9
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_MISSING = ("", "none", "nan", "<na>")
NO_LABELS = ". label='person' takes runs whose traces a person called good or bad in a TraceBrowser(run)"
# columns of `ThresholdReport.rows`, which no score may be called
_TAKEN = ("id", "problem", "right", "iteration", "length", "model", "split", "tuned")


@dataclass(frozen=True)
class ScoredRows:
    """`frame` holds the rows that have a verdict and every score: id, problem (codes from 0, in the order of
    ids), right, iteration, length (nan where unknown), model (where given) and the score columns. `left_out`
    counts the others by reason; `missing` counts by column; `unlabelled` holds iteration and scores of those
    that lack nothing but a verdict; `failures` counts answers and judgements that failed, where that is
    recorded; `audit` compares a person with the verifier. `judge` is the judge's `describe()` where known."""

    frame: pandas.DataFrame
    columns: list[str]
    given: int
    unlabelled: pandas.DataFrame
    left_out: dict[str, int]
    missing: dict[str, int]
    failures: dict[str, int]
    audit: Audit | None
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
    frame = given if isinstance(given, pandas.DataFrame) else scored_frame(given, group or "id")
    frame = frame.rename(columns=str)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"the data has two columns {twice!r}: rename one")
    described = judge.describe() if hasattr(judge, "describe") else judge
    described = described or frame.attrs.get("judge")
    if described is not None and not isinstance(described, Mapping):
        raise TypeError(f"judge must be a judge or its describe(), got {judge!r:.80}")
    columns = _columns(frame, score_columns, (label, group))
    taken = _mended(frame.reset_index(drop=True))
    right = _labels(taken, label)
    scores = {column: _numbers(taken, column) for column in columns}
    drafts = _iterations(taken)
    hinted = _flags(taken, "rationalized")
    undecided = ~hinted & right.isna()
    unscored = np.any([values.isna() for values in scores.values()], axis=0)
    without = ~hinted & ~undecided & unscored
    undated = ~(hinted | undecided | without) & drafts.isna()
    left_out = {"rationalized": hinted, "no verdict": undecided, "no score": without, "no iteration": undated}
    left_out = {why: int(rows.sum()) for why, rows in left_out.items()}
    keep = ~(hinted | undecided | without | undated)
    labels = {why: n for why, n in frame.attrs.get("labels", {}).items() if n}
    if not keep.any():
        raise ValueError(
            f"none of {len(taken):,} rows has a verdict ({label!r}) and a score ({', '.join(columns)}): "
            f"{left_out['rationalized']:,} rationalized, {left_out['no verdict']:,} without a verdict, "
            f"{left_out['no score']:,} with a verdict but without a score, {left_out['no iteration']:,} with "
            "both but without an iteration"
            f"{NO_LABELS if label == 'person' else ''}"
            + "".join(f"; {n:,} {why}" for why, n in labels.items() if label == "person")
        )
    names = sorted(taken.loc[keep, "judge"].dropna().astype(str).unique()) if "judge" in taken else []
    if len(names) > 1:
        raise ValueError(f"the rows are of several judges ({', '.join(names)}): tune each judge on its own")
    found = {
        "id": _problems(taken, group),
        "problem": 0,
        "right": right,
        "iteration": drafts,
        "length": _numbers(taken, LENGTH) if LENGTH in taken else np.nan,
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
        _failures(taken[~hinted]) | labels,
        _audit(taken[~hinted], found.loc[~hinted, "id"]),
        described,
        names,
        sorted(taken["type"].dropna().astype(str).unique()) if "type" in taken else [],
        sorted(kept["iteration"].unique().tolist()) if "iteration" in taken else None,
    )


def _mended(frame: pandas.DataFrame) -> pandas.DataFrame:
    """With texts that can be compared as such: among objects there may be lone surrogates."""
    import pandas

    objects = [name for name, kind in frame.dtypes.items() if kind.kind == "O"]
    return frame.assign(**{n: pandas.Series(list(map(mended, frame[n])), dtype=object) for n in objects})


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
    for column in [*(name for name in label_and_group if name is not None), *columns]:
        if column not in frame.columns:
            near = difflib.get_close_matches(column, map(str, frame.columns), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(str, frame.columns))}"
            hint += NO_LABELS if column == "person" else ""
            raise ValueError(f"the data has no column {column!r}; {hint}")
    return columns


def _labels(frame: pandas.DataFrame, name: str) -> pandas.Series:
    """True, False or NA."""
    text = frame[name].astype("string").str.strip().str.lower()
    truth = text.map(_TRUTH).astype("boolean")
    _refuse(
        frame, name, truth.isna() & text.notna() & ~text.isin(_MISSING), "neither True, False nor missing"
    )
    return truth


def _numbers(frame: pandas.DataFrame, name: str) -> pandas.Series:
    """Finite numbers; nan for what is missing or infinite."""
    import pandas

    given = frame[name]
    if given.dtype.kind in "cmM":
        _refuse(frame, name, given.notna(), "no number")
    elif given.dtype == object:  # among numbers; pandas would make a date one, and fail for the others
        odd = given.map(lambda x: isinstance(x, (complex, datetime.date)) or _is_huge(x))
        _refuse(frame, name, odd.astype(bool), "no number that a score can be")
    numbers = pandas.to_numeric(given, errors="coerce").astype("Float64").astype(float)
    text = frame[name].astype("string").str.strip().str.lower()
    _refuse(frame, name, numbers.isna() & text.notna() & ~text.isin(_MISSING), "no number")
    return numbers.where(np.isfinite(numbers)) + 0.0  # no negative zero


def _is_huge(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > 10**300


def _iterations(frame: pandas.DataFrame) -> pandas.Series:
    """Whole numbers; nan where missing, 0 where none are recorded."""
    import pandas

    if "iteration" not in frame:
        return pandas.Series(0.0, frame.index)
    numbers = _numbers(frame, "iteration")
    odd = numbers.notna() & ((numbers % 1 != 0) | (numbers < 0))
    _refuse(frame, "iteration", odd, "no whole number from 0 on")
    return numbers


def _refuse(frame: pandas.DataFrame, name: str, wrong: pandas.Series, what: str) -> None:
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"{place(frame, at)}, column {name!r}: {frame[name].iloc[at]!r} is {what}")


def _flags(frame: pandas.DataFrame, name: str) -> np.ndarray:
    if name not in frame:
        return np.zeros(len(frame), bool)
    return _labels(frame, name).fillna(False).to_numpy(bool)


def _problems(frame: pandas.DataFrame, group: str | None) -> pandas.Series:
    import pandas

    if group is None:
        return pandas.Series(range(len(frame)), frame.index).astype(str)
    ids = frame[group].astype(str).str.strip()
    none = frame[group].isna() | (ids == "")
    _refuse(frame, group, none, "no problem; group=None makes every row its own problem")
    return ids


def _failures(frame: pandas.DataFrame) -> dict[str, int]:
    found = {}
    if "verdict_method" in frame:
        found["traces without an answer"] = int((frame["verdict_method"] == "no_answer").sum())
    if "judge_error" in frame:
        unread = frame["judge_error"].astype("string").str.contains("parse: ", regex=False, na=False)
        found["judge failed"] = int(frame["judge_error"].notna().sum())
        found["judge failed: its answer could not be read"] = int(unread.sum())
    return found


@dataclass(frozen=True)
class Audit:
    """A person and the verifier on the traces that both decided: `same` verdict, the verifier's errors by the
    person as (errors, traces), which `verifier_errors` takes, and Cohen's kappa."""

    same: Rate
    false_accept: tuple[int, int]
    false_reject: tuple[int, int]
    kappa: float

    def describe(self) -> dict[str, Any]:
        known = {"same": self.same.in_words("traces"), "kappa": None if np.isnan(self.kappa) else self.kappa}
        return known | {"false_accept": list(self.false_accept), "false_reject": list(self.false_reject)}


def _audit(frame: pandas.DataFrame, problems: pandas.Series) -> Audit | None:
    import pandas

    for name in ("person", "correct"):  # a column `person` may also tell who labelled
        if name not in frame:
            return None
        text = frame[name].dropna().astype("string").str.strip().str.lower()
        if not text.isin([*_TRUTH, *_MISSING]).all():
            return None
    said, found = _labels(frame, "person"), _labels(frame, "correct")
    both = said.notna() & found.notna()
    if not both.any():
        return None
    person, verifier = said[both].to_numpy(bool), found[both].to_numpy(bool)
    return Audit(
        Rate.of_grouped(person == verifier, pandas.factorize(problems[both])[0]),
        (int((verifier & ~person).sum()), int((~person).sum())),
        (int((~verifier & person).sum()), int(person.sum())),
        cohen_kappa(person, verifier),
    )


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
