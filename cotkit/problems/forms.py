"""From a row to a Problem: which field holds what, and what makes a row no problem.

The forms are told apart by their fields alone, and one source has one form:

    cotkit      problem, reference
    CAMEL       problem, solution (also the output {"traces": [...]} of its pipeline)
    GSM8K       question, answer ending in "#### 72"
    LoongBench  question, final_answer, rationale, metadata
    plain       problem | question | prompt, and reference | final_answer | answer | solution or none of them

Where several fields could hold the reference, the first of that list does and the others are kept in
`metadata`: a plain answer comes before a worked solution. A user's own names are mapped with `fields`.
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cotkit.problems.records import Problem, ProblemError
from cotkit.records import Row

TEXT_FIELDS = ("problem", "question", "prompt")
REFERENCE_FIELDS = ("reference", "final_answer", "answer", "solution")
_LIKE_A_REFERENCE = {  # what data sets call it elsewhere, in lower case
    *REFERENCE_FIELDS,
    "correct_answer", "expected_answer", "expected_output", "gold", "gold_answer", "golden_answer", "gt",
    "ground_truth", "groundtruth", "gt_answer", "reference_answer", "target",
}  # fmt: skip
MAPPABLE = tuple(name for name in Problem.model_fields if name != "metadata")

_EXPECTED = (
    "cotkit (problem, reference), CAMEL (problem, solution), GSM8K (question, answer), "
    "LoongBench (question, final_answer, rationale, metadata), or any of "
    "problem/question/prompt with reference/final_answer/answer/solution"
)
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?=\s|$)")  # and perhaps a unit
_WIDEST = 0.01  # of the answer; a wider tolerance accepts wrong answers
_GSM8K_END = re.compile(r"####\s*[-$\d][\d,.]*\s*\Z")
# What an earlier run wrote beside a problem is no part of the problem: by the fields it is known by, of which
# the first is a list, for others have a list of candidates too.
_RESULTS = {
    ("candidates", "accepted", "drop_reason"): set(Row.model_fields) - set(Problem.model_fields),
    ("improvement_history",): {
        "final_trace",
        "agent_evaluate_success",
        "boxed_answer_success",
        "improvement_history",
    },
}


def problem_from_row(
    row: Any, where: str = "the row", *, default_id: str = "0", fields: Mapping[str, str] | None = None
) -> Problem:
    """The Problem of one row in any known form. `where` names the row in errors, `default_id` is used when
    it has no id. Raises ProblemError (a ValueError) that lists every fault of the row.
    """
    if isinstance(row, Problem):
        return row
    form = Form(fields)
    form.see("", row)
    problem, faults = build(row, form.columns(where), default_id)
    if problem is None:
        raise ProblemError(f"{where}: " + " ".join(faults), faults)
    return problem


class Form:
    """What the rows of a source look like: `see` each of them, then ask for the `columns`."""

    def __init__(self, fields: Mapping[str, str] | None = None):
        self._own = dict(fields or {})
        self._id = self._own.get("id", "id")
        self.rows = self.ready = 0  # all, and those that are Problems already
        self.brings_ids = False  # at least one row has an id
        self._first: Any = None
        self._fields: dict[Any, None] = {}
        self._filled: set[tuple[str, ...]] = set()  # which of TEXT_FIELDS and REFERENCE_FIELDS a row fills
        self._places: dict[str, str] = {}  # one of these fields -> the first row that fills it

    def see(self, place: str, row: Any) -> None:
        if not self.rows or (not isinstance(self._first, Mapping) and isinstance(row, Mapping)):
            self._first = row
        self.rows += 1
        if not isinstance(row, Mapping):
            self.ready += isinstance(row, Problem)
            return
        self._fields.update(dict.fromkeys(row))
        if not self.brings_ids and row.get(self._id, "") != "":
            self.brings_ids = True
        filled = tuple(name for name in (*TEXT_FIELDS, *REFERENCE_FIELDS) if not _absent(row.get(name)))
        if filled not in self._filled:
            self._filled.add(filled)
            for name in filled:
                self._places.setdefault(name, place)

    def columns(self, name: str) -> dict[str, str]:
        """{field of a Problem: column that holds it} for all rows of the source `name`."""
        if not isinstance(self._first, Mapping):
            raise ProblemError(f"{name}: {_not_a_row(self._first)}")
        found = list(self._fields)
        own = self._checked_own(found, name)
        columns = {field: field for field in MAPPABLE if field in found}
        columns.pop("reference", None)
        if "licence" not in columns and "license" in found:
            columns["licence"] = "license"
        columns |= own
        columns["problem"] = own.get("problem") or self._text_column(found, name)
        reference = own.get("reference") or self._reference_column(found, set(own.values()), name)
        if reference:
            columns["reference"] = reference
        loong = columns["problem"] == "question" and reference == "final_answer"
        if loong and "rationale" in found and "solution_code" not in columns:
            columns["solution_code"] = "rationale"
        return columns

    def unread_reference(self, rows: Iterable[Any]) -> str | None:
        """A field of `rows`, none of which has a reference, that by its name could hold one."""
        alike = (
            re.sub(r"[\s-]+", "_", str(name).strip().lower()) in _LIKE_A_REFERENCE for name in self._fields
        )
        own = self._own.values()
        found = [name for name, like in zip(self._fields, alike, strict=True) if like and name not in own]
        if not found:
            return None
        return next((name for row in rows for name in found if not _absent(row.get(name))), None)

    def _checked_own(self, found: list[str], name: str) -> dict[str, str]:
        for field, column in self._own.items():
            if field not in MAPPABLE:
                raise ValueError(
                    f"fields: {field!r} is no field of a problem; possible: {', '.join(MAPPABLE)}"
                )
            if column not in found:
                raise ProblemError(f"{name}: fields names the column {column!r}; found: {_list(found)}")
        return self._own

    def _text_column(self, found: list[str], name: str) -> str:
        present = [field for field in TEXT_FIELDS if field in found]
        if not present:
            raise ProblemError(
                f"{name}: the field 'problem' is missing, and so is any other that could hold the text. "
                f"Fields found: {_list(found)}. Expected: {_EXPECTED}. "
                'Fix: rename a field, or map it: fields={"problem": "my_text", "reference": "my_answer"}.'
            )
        if len(present) > 1:
            self._refuse_mixture(present, name, "problem")
        return present[0]

    def _reference_column(self, found: list[str], taken: set[str], name: str) -> str | None:
        present = [field for field in REFERENCE_FIELDS if field in found and field not in taken]
        if not present:
            return None
        for filled in self._filled:
            if present[0] not in filled and not set(present).isdisjoint(filled):
                self._refuse_mixture(present, name, "reference")
        return present[0]

    def _refuse_mixture(self, present: list[str], name: str, field: str) -> None:
        """One source has one form: raise, naming a row for each field that could be meant."""
        places = ((column, self._places.get(column)) for column in present)
        shown = [f"{column!r}" + (f" (first in {place})" if place else "") for column, place in places]
        raise ProblemError(
            f"{name}: the {field} could stand in {' or '.join(shown)}; one source has one form. "
            f'Fix: say which, fields={{"{field}": "{present[0]}"}}, or split the source.'
        )


def build(row: Any, columns: Mapping[str, str], default_id: str | None) -> tuple[Problem | None, list[str]]:
    """The Problem of `row`, or None and all its faults.

    `default_id` None means that the other rows bring ids, so this one must too.
    """
    if not isinstance(row, Mapping):
        return None, [_not_a_row(row)]
    faults: list[str] = []
    values: dict[str, Any] = {
        "id": _id(row, columns.get("id", "id"), default_id, faults),
        "problem": _text(row, columns["problem"], faults, required=True),
        "tolerance": _tolerance(row, columns.get("tolerance", "tolerance"), faults, below=1.0),
    }
    for field in ("reference", "type", "answer_type", "solution_code", "licence"):
        values[field] = _text(row, columns[field], faults) if field in columns else None
    values["metadata"] = _metadata(row, columns, faults)
    _fill_in(values, columns)
    given = {name: value for name, value in values.items() if value is not None}  # pydantic keeps their names
    return (None if faults else Problem(**given)), faults


def _fill_in(values: dict[str, Any], columns: Mapping[str, str]) -> None:
    """What a form says elsewhere than in a field of its own."""
    gsm8k = columns["problem"] == "question" and columns.get("reference") == "answer"
    if gsm8k and values["answer_type"] is None and _GSM8K_END.search(values["reference"] or ""):
        values["answer_type"] = "number"
    if columns.get("solution_code") == "rationale":  # LoongBench
        for field, key in (("type", "domain"), ("licence", "license")):
            said = values["metadata"].get(key)
            if values[field] is None and isinstance(said, str) and said.strip():
                values[field] = said
        _loongbench_answer(values)


def _loongbench_answer(values: dict[str, Any]) -> None:
    """How a LoongBench answer is compared, where the row says so: a value beside a `unit` is a quantity,
    right to the digits it shows; `answer_tolerance` is absolute, and believed where it is a small part of it.
    """
    said, number = values["metadata"], _NUMBER.match(values["reference"] or "")
    if number is None:
        return
    measured = str(said.get("unit") or "").strip() or "." in number[0]
    if values["answer_type"] is None and "unit" in said and measured:
        values["answer_type"] = "quantity"
    absolute, size = _tolerance(said, "answer_tolerance", []) or 0.0, abs(float(number[0]))
    if values["tolerance"] is None and 0 < absolute <= _WIDEST * size:
        values["tolerance"] = absolute / size


def _id(row: Mapping, column: str, default: str | None, faults: list[str]) -> str:
    value = row.get(column)
    if column not in row or value == "":
        if default is None:
            faults.append(
                f"field {column!r} is missing, other rows have one. Fix: give every row an id, or none."
            )
        return default or ""
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(int(value))
    fix = 'write it as text: "..."'
    if value is None:
        fix = "leave the field out of all rows, or give each an id"
    faults.append(f"field {column!r} must be text or a whole number, not {_kind(value)}. Fix: {fix}.")
    return ""


def _text(row: Mapping, column: str, faults: list[str], required: bool = False) -> str | None:
    value = row.get(column)
    if isinstance(value, str):
        if value.strip():
            return value
        if required:
            faults.append(f"field {column!r} is empty. Fix: fill it in, or remove the row.")
    elif value is not None:
        faults.append(f"field {column!r} must be text, not {_kind(value)}. Fix: {_text_fix(value)}.")
    elif required:
        state = "is null" if column in row else "is missing"
        faults.append(
            f"field {column!r} {state}; the row has {_list(row)}. Fix: fill it in, or remove the row."
        )
    return None


def _text_fix(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "leave a missing value out, or write null"
    if isinstance(value, numbers.Number):
        return f'write it as text: "{value}"'
    return "give one text, or name another column with fields={...}"


def _tolerance(row: Mapping, column: str, faults: list[str], below: float = math.inf) -> float | None:
    value = row.get(column)
    if _absent(value):
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < below:  # nor nan or inf
        fix = "give a relative tolerance such as 0.01, or leave the field out"
        faults.append(f"field {column!r} must be a number from 0 to below 1, not {_kind(value)}. Fix: {fix}.")
        return None
    return number or None  # 0 is none


def _metadata(row: Mapping, columns: Mapping[str, str], faults: list[str]) -> dict[str, Any]:
    """Every other field of the row, with an inner "metadata" object spread out; JSON values only."""
    used = set(columns.values()) | {"metadata"}
    for signs, results in _RESULTS.items():
        if isinstance(row.get(signs[0]), list) and row.keys() >= set(signs):
            used |= results
    extra = {str(key): value for key, value in row.items() if key not in used}
    inner = row.get("metadata")
    if isinstance(inner, Mapping):
        if both := sorted(set(map(str, inner)) & set(extra)):
            faults.append(f"field {both[0]!r} stands in the row and in its 'metadata'. Fix: rename one.")
        extra = {str(key): value for key, value in inner.items()} | extra
    elif not _absent(inner):
        extra["metadata"] = inner
    kept = {}
    for key, value in extra.items():
        try:
            kept[key] = plain(value)
        except TypeError as error:
            faults.append(f"field {key!r} holds {error}, which is no text. Fix: leave the field out.")
    return kept


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: NaN and infinities are None, dates and decimals text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    raise TypeError(f"a {type(value).__name__}")


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _not_a_row(row: Any) -> str:
    fix = 'write {"problem": ...}' if isinstance(row, str) else "give an object with named fields"
    return f"a row must be an object with named fields, not {_kind(row)}. Fix: {fix}."


def _kind(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def _list(names: Any) -> str:
    names = [repr(name) for name in names]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "none"
