"""What a trace's scores must reach.

    0.7                          every dimension must reach 0.7 (rule="mean": their mean must)
    {"correctness": 0.8, ...}    each named dimension must; dimensions that are not named are free
    "thresholds.json"            what `tune_thresholds` found, with its rule, for the judge it was tuned on
    None                         scores are recorded and decide nothing

How scores are held against them is told in cotkit/rules.py.
"""

from __future__ import annotations

import difflib
import json
import math
import numbers
import os
import pathlib
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from cotkit.rules import RULES, TOLERANCE, combined, identity, seal
from cotkit.shown import Shown

Rule = Literal["all", "mean"]


@dataclass(frozen=True)
class Thresholds(Shown):
    """Made by `parse` or `for_judge`. `limit` is a float for all dimensions, a dict by dimension, or None.
    Of a thresholds.json, `dimension_names` are those it was tuned on, `weights` and `intercept` the learned
    ones of rule "logistic", and `certificate` what is recorded about it."""

    limit: float | dict[str, float] | None
    dimension_names: tuple[str, ...] | None = None
    rule: str = "all"
    weights: dict[str, float] | None = None
    intercept: float = 0.0
    certificate: dict[str, Any] | None = None

    @classmethod
    def parse(
        cls,
        score_threshold: float | Mapping[str, Any] | str | os.PathLike[str] | None,
        dimension_names: Iterable[str] | None = None,
        rule: Rule = "all",
        score_range: tuple[float, float] | Literal["auto"] | None = "auto",
    ) -> Thresholds:
        """Checks a threshold before anything is paid for.

        `dimension_names` None: not known until a reward model first answers; names are then checked by the
        first `met`. `score_range` is where scores can lie, None = anywhere (a reward model's raw scores);
        "auto" is 0..1 where the dimensions are known, else anywhere. `for_judge` fills in both.
        Raises ValueError for a value outside the range, an unknown dimension or rule, TypeError for what
        is no number.
        """
        names = None if dimension_names is None else tuple(dimension_names)
        if score_range == "auto":
            score_range = None if names is None else (0.0, 1.0)
        if rule not in ("all", "mean"):
            raise ValueError(f"unknown rule {rule!r}: use 'all' (every dimension) or 'mean'")
        if _is_tuned(score_threshold):
            raise ValueError("a thresholds.json holds for the judge it was tuned on: there is no judge here")
        if score_threshold is None:
            return cls(None, names, rule)
        if not isinstance(score_threshold, Mapping):
            return cls(_number(score_threshold, "score_threshold", score_range), names, rule)
        if rule == "mean":
            raise ValueError("rule='mean' takes one number as score_threshold; a dict names dimensions")
        if not score_threshold:
            raise ValueError(
                "score_threshold is an empty dict: name a dimension, or use None for no threshold"
            )
        if names is not None:
            _check_names(score_threshold, names)
        limit = {
            name: _number(v, f"score_threshold[{name!r}]", score_range) for name, v in score_threshold.items()
        }
        return cls(limit, names, rule)

    @classmethod
    def for_judge(
        cls,
        score_threshold: float | Mapping[str, Any] | str | os.PathLike[str] | None,
        judge: Any,
        rule: Rule = "all",
        *,
        max_iterations: int = 0,
        num_generations: int = 1,
        types: Collection[str] = (),
        models: Collection[str] = (),
    ) -> Thresholds:
        """`parse` with the dimensions and the range of a judge; also takes the path of a thresholds.json, or
        what is in it.

        A file that was tuned on another judge (its prompt, model, dimensions) is refused: ValueError. A file
        without a certificate, one that does not say which judge it is for, one tuned on problems of other
        `types` ("" = without a type) or traces of other `models`, and one for first drafts where
        `max_iterations` rewrites them or the best of `num_generations` is taken,
        warns; `describe()` records the warnings.
        """
        names, score_range = judge.dimension_names, getattr(judge, "score_range", "auto")
        if not _is_tuned(score_threshold):
            return cls.parse(score_threshold, names, rule, score_range)
        tuned, source = _read(score_threshold)
        _check_judge(tuned, judge, source)
        if rule not in ("all", tuned["rule"]):
            raise ValueError(f"{source} was tuned for rule={tuned['rule']!r}: leave rule={rule!r} out")
        over = tuple(tuned["dimensions"])
        if names is not None:
            _check_names(dict.fromkeys(over), tuple(names))
        if isinstance(tuned["thresholds"], Mapping):
            _check_names(tuned["thresholds"], over)
        limits = tuned["thresholds"]
        for name, value in limits.items() if isinstance(limits, dict) else [("thresholds", limits)]:
            _number(value, f"{source}: {name}", (0, 1) if tuned["rule"] == "logistic" else score_range)
        learned = {"intercept": tuned.get("intercept", 0.0), **(tuned.get("weights") or {})}
        for name, value in learned.items():
            _number(value, f"{source}: {name}", None)
        doubts = _doubts(tuned, max_iterations, num_generations, types, models)
        for doubt in doubts:
            warnings.warn(f"{source}: {doubt}", stacklevel=2)
        recorded = ("certified", "target_precision", "delta", "p_value", "n", "data_hash", "valid_for")
        certificate = {name: tuned.get(name) for name in recorded} | {"warnings": doubts}
        certificate["certified"] = _is_certified(tuned)
        weights, intercept = tuned.get("weights"), tuned.get("intercept", 0.0)
        return cls(limits, over, tuned["rule"], weights, intercept, certificate)

    def met(self, scores: Mapping[str, float] | None) -> bool | None:
        """Whether scores reach the thresholds; None where that cannot be said (the judge failed, or left out
        a dimension that counts). Without a threshold always True.

        Raises ValueError when a threshold names a dimension that a reward model does not give.
        """
        if self.limit is None:
            return True
        return not self.shortfalls(scores) if self._complete(scores) else None

    def shortfalls(self, scores: Mapping[str, float] | None) -> dict[str, tuple[float, float]]:
        """{dimension: (score, needed)} for all that fell short ("mean" under rule="mean")."""
        if not scores or self.limit is None:
            return {}
        needed = self.limit if isinstance(self.limit, dict) else dict.fromkeys(scores, self.limit)
        if self.rule in ("mean", "median", "logistic"):
            over = self.dimension_names or tuple(scores)
            if not all(name in scores for name in over):
                return {}
            weights = [self.weights[name] for name in over] if self.weights else None
            one = combined(self.rule, [scores[name] for name in over], weights, self.intercept)
            scores, needed = {self.rule: float(one)}, {self.rule: self.limit}
        short = {
            name: (scores[name], limit)
            for name, limit in needed.items()
            if name in scores and not scores[name] >= limit - TOLERANCE
        }
        return {} if self.rule == "any" and len(short) < len(needed) else short

    def feedback(self, scores: Mapping[str, float] | None) -> str:
        """What fell short and by how much; "" when nothing did."""
        return "; ".join(
            _said(name, score, needed) for name, (score, needed) in self.shortfalls(scores).items()
        )

    def describe(self) -> dict[str, Any]:
        known = {"score_threshold": self.limit, "rule": self.rule}
        if self.weights:
            known |= {"weights": self.weights, "intercept": self.intercept}
        return known | ({"certificate": self.certificate} if self.certificate else {})

    def _complete(self, scores: Mapping[str, float] | None) -> bool:
        if not scores or not all(_finite(score) for score in scores.values()):
            return False
        if isinstance(self.limit, dict) and self.rule == "all":
            if self.dimension_names is None:
                _check_names(self.limit, tuple(scores))
            return all(name in scores for name in self.limit)
        return all(name in scores for name in self.dimension_names or ())


def _is_tuned(given: Any) -> bool:
    if isinstance(given, Mapping):
        return "schema_version" in given or {"thresholds", "rule", "dimensions"} <= given.keys()
    return isinstance(given, os.PathLike) or (
        isinstance(given, str) and pathlib.PurePath(given).suffix[1:].isalpha()  # "0.7" is a number in quotes
    )


def _read(given: Any) -> tuple[dict[str, Any], str]:
    """What a thresholds.json holds, and its name. Raises ValueError for a file that is none, or that found
    no threshold."""
    source = "score_threshold" if isinstance(given, Mapping) else str(given)
    if not isinstance(given, Mapping):
        try:
            given = json.loads(pathlib.Path(given).expanduser().read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"score_threshold={source!r} must be a number, a dict or a thresholds.json: {error}"
            ) from None
    needs = {"rule", "dimensions", "thresholds", "judge"}
    if not isinstance(given, Mapping) or not needs <= given.keys() or not isinstance(given["judge"], Mapping):
        raise ValueError(f"{source} is not what tune_thresholds(...).save() writes")
    if given.get("schema_version") != 1:
        raise ValueError(f"{source} has schema_version {given.get('schema_version')!r}; this cotkit reads 1")
    rule, limits = given["rule"], given["thresholds"]
    if rule not in RULES:
        raise ValueError(f"{source} names the rule {rule!r}; known: {', '.join(RULES)}")
    if limits is None:
        raise ValueError(f"{source} holds no threshold: {given.get('reason')}")
    named = rule in ("all", "any", "min")
    if isinstance(limits, Mapping) != named or limits == {}:
        kind = "a dict of dimensions" if named else "one number"
        raise ValueError(f"{source}: the thresholds of rule {rule!r} must be {kind}, got {limits!r}")
    _check_shape(given, source)
    over, weights = set(given["dimensions"]), given.get("weights")
    if rule != "logistic" and weights:
        raise ValueError(f"{source}: rule {rule!r} has no weights, got {weights!r}")
    if rule == "logistic" and not (weights and set(weights) == over):
        raise ValueError(f"{source}: rule 'logistic' needs a weight for each of {', '.join(sorted(over))}")
    return dict(given), source


class _Judge(BaseModel, strict=True):
    names: list[str] | None = None
    description: dict[str, Any] | None = None


class _ValidFor(BaseModel, strict=True):
    iteration: list[int] | None = None
    task: str | None = None
    types: list[str] | None = None
    models: list[str] | None = None


class _Counts(BaseModel, strict=True):
    traces_a_problem: Annotated[list[int], Field(min_length=2, max_length=2)] = [1, 1]
    rows: int = 0
    problems: int = 0
    tested: int = 0


class _Unlabelled(BaseModel, strict=True):
    rows: int
    of: int


class _File(BaseModel, strict=True):
    """The fields of a thresholds.json that are read; its thresholds are checked against the judge."""

    dimensions: Annotated[list[str], Field(min_length=1)]
    weights: dict[str, float] | None = None
    judge: _Judge
    certified: bool = False
    target_precision: Annotated[float, Field(gt=0, lt=1)] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    valid_for: _ValidFor | None = None
    n: _Counts | None = None
    unlabelled: _Unlabelled | None = None


def _check_shape(given: Mapping[str, Any], source: str) -> None:
    try:
        _File.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{source}, field {where}: {first['msg']}, got {first['input']!r:.80}") from None


def _check_judge(tuned: Mapping[str, Any], judge: Any, source: str) -> None:
    """Refuses a judge that is not the one of the file. The address of a model does not count."""
    before, now = identity(tuned["judge"].get("description")), identity(judge.describe())
    names = tuned["judge"].get("names") or []
    if before is not None:
        differ = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    else:
        differ = ["name"] if names and judge.name not in names else []
    if differ:
        raise ValueError(
            f"{source} was tuned on the judge {', '.join(names)}, this one is {judge.name}; they differ in "
            f"{', '.join(differ)}. Tune thresholds on scores of this judge."
        )


def _is_certified(tuned: Mapping[str, Any]) -> bool:
    return tuned.get("certified") is True and tuned.get("seal") == seal(tuned)


def _doubts(
    tuned: Mapping[str, Any],
    max_iterations: int,
    num_generations: int,
    types: Collection[str],
    models: Collection[str],
) -> list[str]:
    valid = tuned.get("valid_for") or {}
    known = valid.get("types") or [task for task in [valid.get("task")] if task]
    new = sorted(name or "(none given)" for name in set(types) - set(known)) if known else []
    wrote = valid.get("models") or []
    others_wrote = sorted(set(models) - set(wrote)) if wrote else []
    iterations, run = valid.get("iteration") or [0], range(max_iterations + 1)
    others = [at for at in run if at not in iterations]
    few, many = (tuned.get("n") or {}).get("traces_a_problem", (1, 1))
    without = tuned.get("unlabelled") or {"rows": 0, "of": 0}
    found = []
    if tuned.get("certified") and not _is_certified(tuned):
        found.append("it was edited by hand after it was tuned: no certificate stands behind it")
    elif not tuned.get("certified"):
        found.append(f"no certificate stands behind it ({tuned.get('reason')})")
    if tuned["judge"].get("description") is None:
        found.append("it does not record the judge's prompt, so a change of the judge cannot be noticed")
    if others:
        refines = (
            f"refines up to {max_iterations} times: traces rewritten to please the judge reach the threshold "
            "more often than they are right"
        )
        takes = "takes first drafts too" if 0 in others else refines
        found.append(f"it was tuned on iteration {', '.join(map(str, iterations))}, but this run {takes}")
    if new:
        found.append(
            f"it was tuned on problems of type {', '.join(known)}; this run also has {', '.join(new)}"
        )
    if others_wrote:
        found.append(
            f"it was tuned on traces of {', '.join(wrote)}; this run's are of {', '.join(others_wrote)}"
        )
    if few < many:
        found.append(f"its problems had {few} to {many} traces, and it counts each problem once")
    if without["rows"] > 0.02 * without["of"]:
        found.append(f"{without['rows']} of {without['of']} scored traces had no verdict when it was tuned")
    if num_generations > 1:
        found.append(
            f"it holds for traces as drawn; the best scored of {num_generations} is right less often than "
            "its score says, unless a verdict decides"
        )
    return found


def _finite(score: Any) -> bool:
    return isinstance(score, numbers.Real) and not isinstance(score, bool) and math.isfinite(score)


def _number(value: Any, what: str, score_range: tuple[float, float] | None) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {value!r}")
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value}")
    if score_range is not None and not score_range[0] <= value <= score_range[1]:
        low, high = score_range
        meant = value / 10 if 1 < value <= 10 else value / 100
        hint = f"; did you mean {meant:g}?" if (low, high) == (0, 1) and 1 < value <= 100 else ""
        raise ValueError(f"{what} = {value:g} can never be met: scores are stored on {low:g}..{high:g}{hint}")
    return value


def _check_names(named: Mapping[str, float], known: tuple[str, ...]) -> None:
    for name in named:
        if name not in known:
            close = difflib.get_close_matches(str(name).lower(), [k.lower() for k in known], 1)
            match = next((k for k in known if close and k.lower() == close[0]), None)
            hint = f"; did you mean {match!r}?" if match else ""
            raise ValueError(
                f"score_threshold names {name!r}, which is not judged{hint} (judged: {', '.join(known)})"
            )


def _said(name: str, score: float, needed: float) -> str:
    digits = 2
    while digits < 9 and f"{score:.{digits}f}" == f"{needed:.{digits}f}":
        digits += 1
    return f"{name} {score:.{digits}f} is below {needed:.{digits}f} (short by {needed - score:.{digits}f})"
