"""Write a data set for a trainer: a view of the rows, in a format, validated before it gets its name.

`views.py` decides which traces or pairs, `formats.py` how they are written, `writing.py` puts them into a
file, `shapes.py` and `validate.py` say what it must hold, `card.py` how it was made. Everything left out is
counted under a reason: `given = rows + sum(drops)`. One row is in memory at a time, and of those before it
digests.

Files are UTF-8 with "\\n"; NaN is null; U+2028 is a JSON escape, and so is a lone surrogate in CAMEL's file;
elsewhere U+FFFD stands for it, for trainers' loaders refuse the escape. A file whose name ends in .json is
one array, any other JSON Lines. It is written aside, read back, validated and renamed. CSV carries no types:
read it with `pandas.read_csv(path, dtype={"id": str, "answer": str})`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from cotkit.records import Candidate, Row
from cotkit.runs.card import Provenance, card_beside, outdate_cards
from cotkit.runs.digests import DigestMap
from cotkit.runs.features import Features
from cotkit.runs.formats import FORMATS, Format, camel_row, flat_columns, pair_columns, words_of
from cotkit.runs.journal import dump_json, write_json
from cotkit.runs.shapes import BESIDE_MESSAGES, PAIR_COLUMNS, SHAPES
from cotkit.runs.validate import validate_file
from cotkit.runs.views import Example, View, is_truncated, label_view, pair_view, parts, sft_view
from cotkit.runs.writing import Record, write_records
from cotkit.shown import Shown, mended
from cotkit.whole import whole_file

_OTHER_KINDS = {".gz", ".zst", ".bz2", ".xz", ".zip", ".xlsx", ".xls", ".arrow", ".feather"}
LONG_CHARS = 3000  # about 1,024 tokens of mathematical text, TRL's default max_length
OPENAI_LEAST_ROWS = 10


class ExportError(ValueError):
    """A row does not hold what its trainer expects, or there is no row and an empty file is not wanted. The
    message names row, field and fix, or why there is nothing; nothing is left."""


_VIEWS = {"sft": sft_view, "table": sft_view, "pairs": pair_view, "labels": label_view}
_OPTIONS = {  # of each view, beside those that every export takes
    name: set(inspect.signature(view).parameters) - {"rows", "lazy"} for name, view in _VIEWS.items()
} | {"camel": set()}


@dataclass
class ExportReport(Shown):
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
    features: list[dict[str, Any]] = field(default_factory=list, repr=False)  # the columns' types

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        why = ", ".join(f"{n} {reason}" for reason, n in self.drops.items())
        return f"{self.format}: {self.rows} rows of {self.given} {self.unit} -> {self.path}" + (
            f" (not written: {why})" if why else ""
        )

    def shown(self) -> dict[str, Any]:
        return {
            "format": ", ".join(text for text in (self.format, self.policy, self.reasoning) if text),
            "file": f"{self.path} ({self.bytes:,} bytes, sha256 {self.sha256[:12]})",
            f"given ({self.unit})": self.given,
            "rows": self.rows,
            "not written": self.drops,
            "warnings": self.warnings,
        }


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
    allow_empty: bool = True,
    facts: dict[str, Any] | None = None,
) -> ExportReport:
    """Write `rows` (kept and dropped alike, in input order) to `path` and say what became of each.

    rows: any iterable; an iterator of pairs without a `policy`, which must be gone over twice, is held whole.
    policy: which traces or pairs, see `cotkit.runs.views`. SFT: "best" (default), "all_accepted",
        "first_correct"; pairs: "correct_vs_wrong" (default where programs decided), "best_vs_worst",
        "first_vs_last", "length_controlled"; parquet and csv also "final", with rejected problems.
    reasoning: how it is written, see `cotkit.runs.formats`; the default depends on the format.
    system: a system message for every row, for instance the one the generator had.
    max_per_problem, include_rationalized (default True): SFT. min_gap (on 0..1), max_pairs_per_problem
        (default 1): pairs. require_boxed: drop answers without \\boxed{}.
    metadata: put the white-listed columns (id, verdict, scores, model ...) beside the training data.
    licence: for the card; without it the card says what licences the problems state.
    allow_empty: without any row write an empty file, with a warning that says why; False = ExportError.
    facts: {"config", "report"} of the run; with them a dataset card is written beside the file.

    Raises ValueError for a wrong name, a wrong option or one that the format cannot honour, ExportError
    when a row fails the format's validator.
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
    view = _camel_view(rows) if spec.view == "camel" else _VIEWS[spec.view](rows, **options, lazy=True)
    written = _Written(spec)
    records = _records(view, format, mode, system, spec.metadata is None or bool(metadata), written)
    with whole_file(target) as temporary:  # the old file or the new one, never a bad one
        with open(temporary, "wb") as file:
            write_records(file, records, format, array=target.suffix == ".json")
        drops = dict(sorted(view.drops.items(), key=lambda item: (-item[1], item[0])))
        if not (written.rows or allow_empty):
            what = f"{format}, policy {view.policy}" if view.policy else format
            raise ExportError(f"{target} was not written: {_why_empty(drops)} ({what}; {view.unit})")
        if problems := validate_file(temporary, format, require_boxed=bool(require_boxed), limit=5):
            listed = "\n  ".join(map(str, problems))
            raise ExportError(f"{target} was not written, {format} would not train on it:\n  {listed}")
        outdate_cards(target)
    report = ExportReport(
        path=str(target),
        format=format,
        rows=written.rows,
        given=view.given,
        drops=drops,
        unit=view.unit,
        policy=view.policy or None,
        reasoning=mode,
        columns=written.columns or list(SHAPES[format].fields),
        provenance=written.provenance.facts(),
        features=written.features.listed() if SHAPES[format].container == "json" else [],
        bytes=target.stat().st_size,
    )
    with open(target, "rb") as file:
        report.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    report.warnings = _warnings(report, written)
    report.beside, notes = _write_snippets(target, spec, bool(system))
    report.warnings += notes
    if facts is not None:
        card, note = card_beside(target, {**facts, "licence": licence}, report.to_dict())
        report.beside.append(str(card))
        report.warnings += [note] if note else []
    return report


class _Written:
    """What is counted while examples are written."""

    def __init__(self, spec: Format):
        self.spec, self.provenance, self.features = spec, Provenance(), Features()
        self.rows, self.columns = 0, list[str]()
        self.counts: Counter[str] = Counter()  # of what a warning is about
        self.labels: Counter[bool | None] = Counter()

    def add(self, example: Example, record: Record) -> None:
        chosen, rejected, counts = example.candidate, example.rejected, self.counts
        self.rows += 1
        self.columns = self.columns or list(record)
        self.features.add(record)
        self.provenance.add(example.row, chosen)
        self.labels[example.label] += 1
        length = _length(chosen)
        counts["long"] += len(example.row.problem) + length > LONG_CHARS
        counts["apart"] += bool(parts(chosen)[0])
        if rejected:
            self.provenance.add(example.row, rejected)
            counts["pairs"] += 1
            counts["longer"] += length > _length(rejected)
            counts["cut"] += is_truncated(rejected)
            counts["foreign"] += chosen.call.get("model") != rejected.call.get("model")


def _length(candidate: Candidate) -> int:
    return sum(map(len, parts(candidate)))


def check_name(target: pathlib.Path, format: str) -> None:
    """ValueError for a name that no file of the format can have."""
    if target.is_dir():
        raise ValueError(
            f"{target} is a folder: name a file in it, for instance {target / (format + '.jsonl')}"
        )
    tables = {".parquet": "parquet", ".csv": "csv"}
    if tables.get(target.suffix, format) != format or (
        format in tables.values() and target.suffix == ".jsonl"
    ):
        raise ValueError(f"{target.name} is no name for a {format} file")
    if target.suffix.lower() in _OTHER_KINDS:
        raise ValueError(
            f"{target.name} is no name for a {format} file, which is written as it is: name it by its own "
            "kind, such as .jsonl, and pack or convert it afterwards"
        )
    if target.suffix == ".json" and format.startswith("openai"):
        raise ValueError(f"OpenAI takes JSON Lines: name the file {target.stem}.jsonl")


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
    check_name(target, format)
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
    if spec.dataset_info:
        _dataset_info(target)
    return spec


def _records(
    view: View, format: str, mode: str | None, system: str | None, beside: bool, written: _Written
) -> Iterator[Record]:
    """The rows of the file; what repeats an earlier one is a drop."""
    key, seen = SHAPES[format].key, DigestMap()
    for example in view.examples:
        record = _record(example, written.spec, mode, system, beside)
        if written.spec.view != "camel":
            given, record = record, _mended(record)
            digest = hashlib.sha256(dump_json([record.get(name) for name in key])).digest()
            if digest in seen:
                view.drops["duplicate"] += 1
                continue
            seen[digest] = 0
            written.counts["damaged"] += record != given
        written.add(example, record)
        yield record


def _mended(value: Any) -> Any:
    """With U+FFFD in place of lone surrogates, at any depth."""
    if isinstance(value, dict):
        return {name: _mended(item) for name, item in value.items()}
    return list(map(_mended, value)) if isinstance(value, list) else mended(value)


def _record(example: Example, spec: Format, mode: str | None, system: str | None, beside: bool) -> Record:
    if spec.view == "camel":
        return camel_row(example.row)
    if spec.view == "table":
        return flat_columns(example)
    record = spec.build(words_of(example, mode, system))
    if beside:
        extra = pair_columns(example) if example.rejected else flat_columns(example)
        record |= {name: extra[name] for name in (PAIR_COLUMNS if example.rejected else BESIDE_MESSAGES)}
    return record


def _camel_view(rows: Iterable[Row]) -> View:
    """Every problem that has a trace, the rejected ones included, as CAMEL's file has it; lazy."""

    def examples() -> Iterator[Example]:
        for row in rows:
            view.given += 1
            if row.best is None or not row.best.trace.strip():
                view.drops[row.drop_reason or "no_trace"] += 1
            else:
                yield Example(row, row.best)

    view = View("", "problems")
    view.examples = examples()
    return view


def _write_snippets(target: pathlib.Path, spec: Format, system: bool) -> tuple[list[str], list[str]]:
    """What LLaMA-Factory and axolotl need to be told about the file: the files written, and notes."""
    if spec.dataset_info:
        info, known = _dataset_info(target)
        columns = {**spec.dataset_info["columns"], **({"system": "system"} if system else {})}
        name, notes = target.stem, []
        if isinstance(old := known.get(name), dict) and old.get("file_name") != target.name:
            name = target.name.replace(".", "-")
            notes = [f"{info.name} has another data set {target.stem!r} already: this one is {name!r} there"]
        known[name] = {"file_name": target.name, **spec.dataset_info, "columns": columns}
        write_json(info, known)
        return [str(info)], notes
    if spec.axolotl:
        import yaml

        snippet = target.with_name(f"{target.stem}.axolotl.yaml")
        config = {"rl": "dpo"} if spec.view == "pairs" else {}
        entry = {"path": target.name, "ds_type": "json", "split": "train", **spec.axolotl}
        text = yaml.safe_dump({**config, "datasets": [entry]}, sort_keys=False, allow_unicode=True)
        with whole_file(snippet) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
        return [str(snippet)], []
    return [], []


def _dataset_info(target: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """LLaMA-Factory's file beside the target, and what it holds."""
    info = target.with_name("dataset_info.json")
    try:
        known = json.loads(info.read_bytes()) if info.is_file() else {}
        if not isinstance(known, dict):
            raise ValueError("it is no object")
    except ValueError as error:
        raise ValueError(
            f"{info} is no data set list ({error}): repair or remove it, then export again"
        ) from None
    return info, known


def _why_empty(drops: dict[str, int]) -> str:
    why = ", ".join(f"{count} {reason}" for reason, count in drops.items())
    return f"the data set is empty: {why or 'no rows were given'}"


def _warnings(report: ExportReport, written: _Written) -> list[str]:
    """What a trainer will not say."""
    n, labels = written.rows, written.labels
    if not n:
        return [_why_empty(report.drops)]
    names = ("pairs", "long", "longer", "cut", "foreign", "apart", "damaged")
    pairs, long, longer, cut, foreign, apart, damaged = (written.counts[name] for name in names)
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
            pairs >= 20 and longer > 0.65 * pairs,
            f"the chosen side is the longer one in {longer} of {pairs} pairs: what is learned may be "
            'length (policy="length_controlled" corrects for it)',
        ),
        (cut, f"{cut} of {n} pairs have a truncated rejected side: it is told apart by its length"),
        (
            foreign,
            f"{foreign} of {n} pairs have sides written by different models: DPO then mostly learns style; "
            "SFT on the chosen side is the safer use",
        ),
        (
            written.spec.view == "labels" and len(labels) == 1,
            f"every label is {next(iter(labels))}: KTO needs good and bad answers",
        ),
        (
            report.format.startswith("openai") and n < OPENAI_LEAST_ROWS,
            f"OpenAI's fine-tuning wants at least {OPENAI_LEAST_ROWS} rows, this file has {n}",
        ),
        (
            damaged,
            f"{damaged} of {n} rows held lone surrogates, which trainers' loaders and tables refuse: U+FFFD "
            "stands in their place",
        ),
    ]
    return [text for holds, text in said if holds]
