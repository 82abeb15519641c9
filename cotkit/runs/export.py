"""Write a data set for a trainer: a view of the rows, in a format, validated before it gets its name.

`views.py` decides which traces or pairs, `formats.py` how they are written, `shapes.py` and `validate.py`
what a file must hold, `card.py` says how it was made. Everything left out is counted under a reason:
`given = rows + sum(drops)`.

Files are UTF-8 with "\\n"; NaN is null; lone surrogates and U+2028 are JSON escapes. A file whose name ends
in .json is one array, any other JSON Lines. It is written aside, read back, validated and renamed. CSV
carries no types: read it with `pandas.read_csv(path, dtype={"id": str, "answer": str})`.
"""

from __future__ import annotations

import csv
import hashlib
import html
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from cotkit.records import Row
from cotkit.runs.card import card_beside, provenance
from cotkit.runs.formats import FORMATS, Format, camel_row, flat_columns, pair_columns, words_of
from cotkit.runs.journal import dump_json, write_json
from cotkit.runs.shapes import BESIDE_MESSAGES, COLUMNS, PAIR_COLUMNS, SHAPES, arrow_schema
from cotkit.runs.validate import validate_file
from cotkit.runs.views import Example, View, is_truncated, label_view, pair_view, parts, sft_view
from cotkit.shown import mended
from cotkit.whole import whole_file

LONG_CHARS = 3000  # about 1,024 tokens of mathematical text, TRL's default max_length
OPENAI_LEAST_ROWS = 10


class ExportError(ValueError):
    """A row does not hold what its trainer expects; the message names row, field and fix. Nothing is left."""


_OPTIONS = {  # per view, beside those every view takes
    "sft": {"policy", "max_per_problem", "include_rationalized", "require_boxed"},
    "table": {"policy", "max_per_problem", "include_rationalized", "require_boxed"},
    "pairs": {"policy", "min_gap", "max_pairs_per_problem", "require_boxed"},
    "labels": {"include_rationalized", "require_boxed"},
    "camel": set(),
}
_VIEWS = {"sft": sft_view, "table": sft_view, "pairs": pair_view, "labels": label_view}


@dataclass
class ExportReport:
    """What was written and what was not: `given == rows + sum(drops)`, `given` counted in `unit`."""

    path: str
    format: str
    rows: int
    given: int
    drops: dict[str, int]
    unit: str = "problems"
    policy: str | None = None
    reasoning: str | None = None
    columns: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    sha256: str = ""
    bytes: int = 0
    beside: list[str] = field(default_factory=list)  # other files written: the card, trainer snippets
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        why = ", ".join(f"{n} {reason}" for reason, n in self.drops.items())
        return f"{self.format}: {self.rows} rows of {self.given} {self.unit} -> {self.path}" + (
            f" (not written: {why})" if why else ""
        )

    def _repr_html_(self) -> str:
        counts = [(f"given ({self.unit})", self.given), ("rows", self.rows), *self.drops.items()]
        table = "".join(
            f"<tr><th style='text-align:left'>{html.escape(str(name))}</th>"
            f"<td style='text-align:right'>{n}</td></tr>"
            for name, n in counts
        )
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in self.warnings)
        head = ", ".join(text for text in (self.format, self.policy, self.reasoning) if text)
        return (
            f"<b>{html.escape(head)}</b> <code>{html.escape(self.path)}</code> "
            f"({self.bytes:,} bytes, sha256 {self.sha256[:12]})<table>{table}</table>"
            + (f"<ul>{notes}</ul>" if notes else "")
        )


def export_rows(
    rows: Iterable[Row],
    path: str | os.PathLike[str],
    format: str = "trl_sft",
    *,
    policy: str | None = None,
    reasoning: str | None = None,
    system: str | None = None,
    max_per_problem: int | None = None,
    include_rationalized: bool | None = None,
    min_gap: float | None = None,
    max_pairs_per_problem: int | None = None,
    require_boxed: bool | None = None,
    metadata: bool | None = None,
    licence: str | None = None,
    facts: dict[str, Any] | None = None,
) -> ExportReport:
    """Write `rows` (kept and dropped alike, in input order) to `path` and say what became of each.

    policy: which traces or pairs, see `cotkit.runs.views`. SFT: "best" (default), "all_accepted",
        "first_correct"; pairs: "correct_vs_wrong" (default where programs decided), "best_vs_worst",
        "first_vs_last", "length_controlled"; parquet and csv also "final", with rejected problems.
    reasoning: how it is written, see `cotkit.runs.formats`; the default depends on the format.
    system: a system message for every row, for instance the one the generator had.
    max_per_problem, include_rationalized (default True): SFT. min_gap (on 0..1), max_pairs_per_problem
        (default 1): pairs. require_boxed: drop answers without \\boxed{}.
    metadata: put the white-listed columns (id, verdict, scores, model ...) beside the training data.
    licence: for the card; without it the card says what licences the problems state.
    facts: {"config", "report"} of the run; with them a dataset card is written beside the file.

    Raises ValueError for a wrong name, a wrong option or one that the format cannot honour, ExportError
    when a row fails the format's validator. An empty result is an empty file and a warning with the reasons.
    """
    chosen = {
        "policy": policy,
        "max_per_problem": max_per_problem,
        "include_rationalized": include_rationalized,
        "min_gap": min_gap,
        "max_pairs_per_problem": max_pairs_per_problem,
        "require_boxed": require_boxed,
    }
    options = {name: value for name, value in chosen.items() if value is not None}
    target = pathlib.Path(path).expanduser()
    spec = _check(target, format, options, reasoning, system, metadata)
    mode = reasoning or (spec.reasoning[0] if spec.reasoning else None)
    if spec.view == "camel":
        view = _camel_view(rows)
        records = [camel_row(example.row) for example in view.examples]
    else:
        view = _VIEWS[spec.view](rows, **options)
        beside = spec.metadata is None or bool(metadata)
        records = _records(view, format, mode, system, beside)
    report = ExportReport(
        path=str(target),
        format=format,
        rows=len(records),
        given=view.given,
        drops=dict(sorted(view.drops.items(), key=lambda item: (-item[1], item[0]))),
        unit=view.unit,
        policy=view.policy or None,
        reasoning=mode,
        columns=_column_names(format, records),
        provenance=provenance((e.row, c) for e in view.examples for c in (e.candidate, e.rejected) if c),
    )
    _write(target, format, records, bool(require_boxed))
    data = target.read_bytes()
    report.bytes, report.sha256 = len(data), hashlib.sha256(data).hexdigest()
    report.warnings = _warnings(report, view, records, spec)
    report.beside = _write_snippets(target, spec, bool(system))
    if facts is not None:
        card, note = card_beside(target, {**facts, "licence": licence}, report.to_dict())
        report.beside.append(str(card))
        report.warnings += [note] if note else []
    return report


def _check(
    target: pathlib.Path,
    format: str,
    options: dict[str, Any],
    reasoning: str | None,
    system: str | None,
    metadata: bool | None,
) -> Format:
    """Everything that can be refused before a row is read."""
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(sorted(FORMATS))}")
    spec = FORMATS[format]
    if target.is_dir():
        raise ValueError(
            f"{target} is a folder: name a file in it, for instance {target / (format + '.jsonl')}"
        )
    tables = {".parquet": "parquet", ".csv": "csv"}
    if tables.get(target.suffix, format) != format or (
        format in tables.values() and target.suffix == ".jsonl"
    ):
        raise ValueError(f"{target.name} is no name for a {format} file")
    if target.suffix == ".json" and format.startswith("openai"):
        raise ValueError(f"OpenAI takes JSON Lines: name the file {target.stem}.jsonl")
    if unknown := sorted(set(options) - _OPTIONS[spec.view]):
        known = sorted(_OPTIONS[spec.view])
        raise ValueError(f"{format} takes no {', '.join(unknown)}; its options: {', '.join(known) or 'none'}")
    if options.get("policy") == "final" and spec.view != "table":
        raise ValueError("policy='final' keeps rejected traces: it is for parquet and csv, not for training")
    if reasoning is not None and reasoning not in spec.reasoning:
        if not spec.reasoning:
            raise ValueError(f"{format} has columns of its own for reasoning: leave reasoning= out")
        raise ValueError(
            f"{format} cannot carry reasoning={reasoning!r}; it takes {', '.join(spec.reasoning)}"
        )
    if system is not None and not (isinstance(system, str) and system.strip()):
        raise ValueError(f"system must be a text, got {system!r}")
    if system and not spec.system:
        raise ValueError(f"{format} has no place for a system message: leave system= out")
    if metadata is not None and spec.metadata is False:
        raise ValueError(f"{format} takes no columns beside its own: leave metadata= out")
    return spec


def _records(
    view: View, format: str, mode: str | None, system: str | None, beside: bool
) -> list[dict[str, Any]]:
    """The rows of the file; what repeats an earlier row is taken out of the view."""
    spec, key = FORMATS[format], SHAPES[format].key
    records, kept, seen = [], [], set()
    for example in view.examples:
        if spec.view == "table":
            record = flat_columns(example)
        else:
            record = spec.build(words_of(example, mode, system))
            extra = pair_columns(example) if example.rejected else flat_columns(example)
            if beside:
                record |= {
                    name: extra[name] for name in (PAIR_COLUMNS if example.rejected else BESIDE_MESSAGES)
                }
        digest = hashlib.sha256(dump_json([record.get(name) for name in key])).digest()
        if digest in seen:
            view.drops["duplicate"] += 1
            continue
        seen.add(digest)
        kept.append(example)
        records.append(record)
    view.examples = kept
    return records


def _camel_view(rows: Iterable[Row]) -> View:
    """Every problem that has a trace, the rejected ones included, as CAMEL's file has it."""
    view = View("", "problems")
    for row in rows:
        if row.best is None or not row.best.trace.strip():
            view.drops[row.drop_reason or "no_trace"] += 1
        else:
            view.examples.append(Example(row, row.best))
    return view


def _column_names(format: str, records: list[dict[str, Any]]) -> list[str]:
    return list(records[0]) if records else list(SHAPES[format].fields)


def _write(target: pathlib.Path, format: str, records: list[dict[str, Any]], require_boxed: bool) -> None:
    """Aside first, read back and validated, then renamed: the old file or the new one, never a bad one."""
    with whole_file(target) as temporary:
        with open(temporary, "wb") as file:
            if format == "parquet":
                _write_parquet(file, records)
            elif format == "csv":
                file.write(_csv_bytes(records))
            else:
                file.write(_json_bytes(format, records, target.suffix == ".json"))
        if problems := validate_file(temporary, format, require_boxed=require_boxed, limit=5):
            listed = "\n  ".join(map(str, problems))
            raise ExportError(f"{target} was not written, {format} would not train on it:\n  {listed}")


# Line separators that `str.splitlines` would cut a row at; in JSON they can only stand inside a text.
_SEPARATORS = {s.encode(): f"\\u{ord(s):04x}".encode() for s in "\x85\u2028\u2029"}


def _json_bytes(format: str, records: list[dict[str, Any]], array: bool) -> bytes:
    if format == "camel":
        return dump_json({"traces": records}, indent=2)
    if array:
        return dump_json(records, indent=2) + b"\n"
    data = b"".join(dump_json(record) + b"\n" for record in records)
    for separator, escape in _SEPARATORS.items():
        data = data.replace(separator, escape)
    return data


def _without_surrogates(value: Any) -> Any:
    """Parquet and CSV have no escapes for a lone surrogate."""
    return mended(value) if isinstance(value, str) else value


def _write_parquet(file: Any, records: list[dict[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    clean = [{name: _without_surrogates(value) for name, value in record.items()} for record in records]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(clean, schema=arrow_schema()), file)


def _csv_bytes(records: list[dict[str, Any]]) -> bytes:
    import io

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        cells = (_without_surrogates(record[name]) for name in COLUMNS)
        writer.writerow(str(c).lower() if isinstance(c, bool) else c for c in cells)
    return text.getvalue().encode()


def _write_snippets(target: pathlib.Path, spec: Format, system: bool) -> list[str]:
    """What LLaMA-Factory and axolotl need to be told about the file."""
    if spec.dataset_info:
        info = target.with_name("dataset_info.json")
        try:
            known = json.loads(info.read_bytes()) if info.is_file() else {}
        except ValueError as error:
            raise ValueError(f"{info} is no JSON ({error}): repair or remove it, then export again") from None
        columns = {**spec.dataset_info["columns"], **({"system": "system"} if system else {})}
        known[target.stem] = {"file_name": target.name, **spec.dataset_info, "columns": columns}
        write_json(info, known)
        return [str(info)]
    if spec.axolotl:
        import yaml

        snippet = target.with_name(f"{target.stem}.axolotl.yaml")
        config = {"rl": "dpo"} if spec.view == "pairs" else {}
        entry = {"path": target.name, "ds_type": "json", "split": "train", **spec.axolotl}
        text = yaml.safe_dump({**config, "datasets": [entry]}, sort_keys=False, allow_unicode=True)
        snippet.write_text(text, encoding="utf-8", newline="\n")
        return [str(snippet)]
    return []


def _warnings(report: ExportReport, view: View, records: list[dict[str, Any]], spec: Format) -> list[str]:
    """What a trainer will not say."""
    examples, n = view.examples, len(view.examples)
    if not n:
        why = ", ".join(f"{count} {reason}" for reason, count in report.drops.items())
        return [f"the data set is empty: {why or 'no rows were given'}"]
    pairs = [e for e in examples if e.rejected]
    labels = Counter(e.label for e in examples)
    lengths = [len(e.row.problem) + sum(map(len, parts(e.candidate))) for e in examples]
    long = sum(length > LONG_CHARS for length in lengths)
    longer = sum(sum(map(len, parts(e.candidate))) > sum(map(len, parts(e.rejected))) for e in pairs)
    cut = sum(is_truncated(e.rejected) for e in pairs)
    foreign = sum(e.candidate.call.get("model") != e.rejected.call.get("model") for e in pairs)
    apart = sum(bool(parts(e.candidate)[0]) for e in examples)
    damaged = spec.view == "table" and any(
        _without_surrogates(value) != value for record in records for value in record.values()
    )
    said = [
        (
            long and report.format.startswith("trl"),
            f"{long} of {n} rows are longer than {LONG_CHARS:,} characters, about TRL's default max_length "
            "of 1,024 tokens: set max_length, or the box and the end are cut off without a word",
        ),
        (
            report.reasoning == "reasoning_content" and not apart,
            "no trace has reasoning apart from its answer: reasoning_content is null in every row",
        ),
        (
            report.reasoning == "reasoning_content" and apart,
            "many chat templates drop reasoning_content without a word: render one row with yours and look",
        ),
        (
            apart not in (0, n) and report.reasoning == "think_tags",
            f"{apart} of {n} traces have reasoning apart from the answer, the others are one text",
        ),
        (
            len(pairs) >= 20 and longer > 0.65 * len(pairs),
            f"the chosen side is the longer one in {longer} of {len(pairs)} pairs: what is learned may be "
            'length (policy="length_controlled" corrects for it)',
        ),
        (cut, f"{cut} of {n} pairs have a truncated rejected side: it is told apart by its length"),
        (
            foreign,
            f"{foreign} of {n} pairs have sides written by different models: DPO then mostly learns style; "
            "SFT on the chosen side is the safer use",
        ),
        (
            spec.view == "labels" and len(labels) == 1,
            f"every label is {next(iter(labels))}: KTO needs good and bad answers",
        ),
        (
            report.format.startswith("openai") and n < OPENAI_LEAST_ROWS,
            f"OpenAI's fine-tuning wants at least {OPENAI_LEAST_ROWS} rows, this file has {n}",
        ),
        (damaged, "lone surrogates were replaced by U+FFFD: only the JSON formats can carry them"),
    ]
    return [text for holds, text in said if holds]
