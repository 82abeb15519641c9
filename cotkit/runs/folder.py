"""The run folder: the only hand-over between a pipeline and everything that reads it.

    runs/<name>/
      config.json     what was asked: roles, parameters, prompt hashes, versions (no keys)
      calls.sqlite    response cache and ledger: one row a completed call, written when it completes
      rows.jsonl      one line a problem that was kept, with every candidate
      drops.jsonl     one line a problem that was not, with its drop_reason and every candidate it has
      report.json     counts that add up: given = kept + sum(drops)
      run.lock        held while a pipeline writes here
      stop            made by anyone: start no further problem; the next call takes it away

`RunFolder` is the writing side, `Run` the reading one. A pipeline that is started again on the same
folder goes on where it stopped; what the folder was made with must not differ, and the error says in
which keys it does.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import html
import json
import os
import pathlib
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from cotkit.paths import run_folder
from cotkit.records import Row
from cotkit.runs.journal import Journal, dump_json, read_lines, write_json, write_lines

if TYPE_CHECKING:
    import pandas

    from cotkit.runs.export import ExportReport

Resume = Literal["auto", "never", "must"]
STOP, REPLACING = "stop", ".replacing"
_JOURNALS = ("rows.jsonl", "drops.jsonl")
_FILES = ("config.json", "report.json", "labels.jsonl", *_JOURNALS)


class RunError(ValueError):
    """A run folder cannot be used as asked; the message says what to do."""


def config_differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Lines `key: old -> new` for every key, at any depth, in which two configurations differ."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
        if isinstance(before, dict) and isinstance(after, dict):
            lines += config_differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return lines


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _fingerprint(record: dict[str, Any]) -> str:
    """What makes a finished row the row of this problem and no other."""
    key = [record.get(name) for name in ("problem", "reference", "answer_type", "tolerance")]
    programs = [(record.get("metadata") or {}).get(name) for name in ("tests", "check_code")]
    if any(program is not None for program in programs):
        key += programs
    return hashlib.sha256(dump_json(key)).hexdigest()


class RunFolder:
    """The writing side of a run folder; a context manager that holds the folder's lock.

    `config` is what the rows depend on and is compared on resume; `runtime` (budgets, widths, time limits)
    is recorded, not compared.
    """

    def __init__(
        self,
        run: str | os.PathLike[str],
        config: dict[str, Any],
        *,
        runtime: dict[str, Any] | None = None,
        resume: Resume = "auto",
    ):
        if resume not in ("auto", "never", "must"):
            raise ValueError(f"resume must be 'auto', 'never' or 'must', got {resume!r}")
        self.path = run_folder(run)
        if resume == "must" and not (self.path / "config.json").is_file():
            raise RunError(f"resume='must', but {self.path} holds no run; check the name")
        with _usable(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path)
            try:
                self._open(json.loads(dump_json(config)), runtime or {}, resume)
            except BaseException:
                self._lock.release()
                raise

    def _open(self, config: dict[str, Any], runtime: dict[str, Any], resume: Resume) -> None:
        if resume == "never":
            _set_aside(self.path)
        path = self.path / "config.json"
        if path.is_file():
            old = _read_json(path)
            if lines := config_differences(old.get("config", {}), config):
                raise RunError(
                    f"{self.path} was made with another configuration:\n  "
                    + "\n  ".join(lines)
                    + "\nUse another run name, or resume='never' (the old rows are set aside; answers "
                    "already paid for are found in the cache)."
                )
        elif any((self.path / name).exists() for name in _JOURNALS):
            raise RunError(f"{self.path} holds rows but no config.json: it is no run that can be resumed")
        else:
            old = {"created": _now()}
        write_json(path, {"config": config, "runtime": runtime, "created": old["created"]})
        (self.path / STOP).unlink(missing_ok=True)
        self.done: dict[str, str | None] = {}  # id -> fingerprint of a row that was there, None = it is new
        self.reasons: Counter[str] = Counter()
        self.kept = 0
        self._journals = {name: Journal(self.path / name, self._count) for name in _JOURNALS}
        report = self.path / "report.json"
        self.seconds_before = _read_json(report).get("seconds", 0.0) if report.is_file() else 0.0
        self._started = time.monotonic()

    def begin(self) -> None:
        """Problems that an endpoint or a judge failed are to be asked again: takes their lines out, for good
        before another line of theirs is written."""
        path = self.path / "drops.jsonl"
        records = [record for record, _ in read_lines(path)]
        stay = [record for record in records if not record.get("retryable")]
        if len(stay) == len(records):
            return
        self._journals["drops.jsonl"].close()
        write_lines(path, stay)
        _sync_entries(self.path)
        for record in records:
            del self.done[record["id"]]
        self.reasons.clear()
        self._journals["drops.jsonl"] = Journal(path, self._count)

    def _count(self, record: dict[str, Any]) -> None:
        if not isinstance(record, dict) or not {"id", "accepted", "drop_reason"} <= record.keys():
            raise RunError(f"{self.path} has a line that is no row: {_short(record)}; remove it")
        if record["id"] in self.done:
            raise RunError(f"{self.path} holds problem {record['id']!r} twice; remove one of its lines")
        drop_reason = None if record["accepted"] else record["drop_reason"]
        self._note(record["id"], drop_reason, _fingerprint(record))

    def _note(self, id: str, drop_reason: str | None, fingerprint: str | None = None) -> None:
        self.done[id] = fingerprint
        if drop_reason is None:
            self.kept += 1
        else:
            self.reasons[drop_reason] += 1

    def check_problems(self, problems: Iterable[Any]) -> None:
        """Raises RunError when a finished row belongs to no given problem, or to one that has changed."""
        given = {p.id: p for p in problems}
        for id, fingerprint in self.done.items():
            if id not in given:
                raise RunError(
                    f"{self.path} holds problem {id!r}, which is not among the {len(given)} given. "
                    "Rows may be added to a run, not taken away: use another run name."
                )
            if fingerprint not in (None, _fingerprint(dict(given[id]))):
                raise RunError(
                    f"problem {id!r} has changed since {self.path} was made. Use another run name, or "
                    "resume='never'."
                )

    def append(self, row: Row) -> None:
        """Write a finished problem: one whole line, at once."""
        self._journals["rows.jsonl" if row.accepted else "drops.jsonl"].append(row)
        self._note(row.id, None if row.accepted else row.drop_reason)

    def sync(self) -> None:
        """Force the rows to disk: a power cut then takes none of them. May be called from another thread."""
        for journal in self._journals.values():
            journal.sync()
        _sync_entries(self.path)

    @property
    def told_to_stop(self) -> bool:
        return (self.path / STOP).exists()

    @property
    def seconds(self) -> float:
        """Wall time of this run over all its sittings."""
        return self.seconds_before + time.monotonic() - self._started

    def write_report(self, given: int, *, stopped: str | None = None, **facts: Any) -> dict[str, Any]:
        drops = dict(sorted(self.reasons.items(), key=lambda item: (-item[1], item[0])))
        unfinished = given - self.kept - sum(drops.values())
        if unfinished:
            drops["unfinished"] = unfinished
        report = {
            "schema_version": 1,
            "name": self.path.name,
            "given": given,
            "kept": self.kept,
            "drops": drops,
            "complete": not unfinished,
            "stopped": stopped,
            "seconds": round(self.seconds, 3),
            "written": _now(),
            "bytes": _sizes(self.path),
            **facts,
        }
        write_json(self.path / "report.json", report)
        return report

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            for journal in self._journals.values():
                journal.close()
        finally:
            self._lock.release()


@contextlib.contextmanager
def replaced_run(
    run: str | os.PathLike[str], config: dict[str, Any], *, runtime: dict[str, Any], aside: bool = False
) -> Iterator[RunFolder]:
    """A run that takes the place of the one at `run` when the block has ended; after an error the old one
    stays as it was. What else is in the folder stays too, such as labels. aside: the old run is set aside
    with its labels, as by resume="never".
    """
    path = run_folder(run)
    with _usable(path):
        path.mkdir(parents=True, exist_ok=True)
        lock, new = _lock(path), path / REPLACING
    try:
        for left in new.glob("*"):  # by a process that was killed
            left.unlink()
        with RunFolder(new, config, runtime=runtime) as folder:
            yield folder
        if aside:
            _set_aside(path)
        for name in ("report.json", "calls.sqlite-wal", "calls.sqlite-shm"):  # no reader takes them for new
            (path / name).unlink(missing_ok=True)
        for name in ("calls.sqlite", *_JOURNALS, "report.json", "config.json"):  # with which it is a run
            if (new / name).exists():
                os.replace(new / name, path / name)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        lock.release()


def _set_aside(path: pathlib.Path) -> None:
    present = [name for name in _FILES if (path / name).exists()]
    if not present:
        return
    number = 1
    while (old := path / "superseded" / str(number)).exists():
        number += 1
    old.mkdir(parents=True)
    for name in present:
        os.replace(path / name, old / name)


@contextlib.contextmanager
def _usable(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{error.filename or path} cannot be used ({error.strerror}). Nothing was asked: give "
            "run= a name or a path in a folder of yours, with space left."
        ) from error


def _lock(path: pathlib.Path):
    import filelock

    lock = filelock.FileLock(path / "run.lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise RunError(
            f"another process (or another cell of this kernel) is writing to {path}. Wait for it, stop it, "
            "or use another run name."
        ) from None
    return lock


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}); restore it or use another run name") from None
    if not isinstance(content, dict):
        raise RunError(f"{path} is not what cotkit wrote; restore it or use another run name")
    return content


def _sync_entries(folder: pathlib.Path) -> None:
    """Forces to disk which files a folder has; systems that cannot do that do it themselves."""
    with contextlib.suppress(OSError):
        entries = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entries)
        finally:
            os.close(entries)


def _sizes(path: pathlib.Path) -> dict[str, int]:
    return {name: (path / name).stat().st_size for name in _JOURNALS if (path / name).exists()}


def _records(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    for name in _JOURNALS:
        for record, _ in read_lines(path / name):
            yield record


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Run:
    """A run folder, read. `rows` and `drops` are DataFrames, `records()` the full rows with candidates."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = run_folder(path)
        if not (self.path / "config.json").is_file():
            raise RunError(f"{self.path} is no run folder: it has no config.json")

    @property
    def config(self) -> dict[str, Any]:
        return _read_json(self.path / "config.json").get("config", {})

    @property
    def runtime(self) -> dict[str, Any]:
        """What config.json records beside the configuration: budgets, limits, versions of the last call."""
        return _read_json(self.path / "config.json").get("runtime", {})

    @property
    def report(self) -> dict[str, Any]:
        """report.json; where it is not about the rows that are there, as after a kill, their counts and what
        the last report knew."""
        path = self.path / "report.json"
        last = _read_json(path) if path.is_file() else {}
        if last and last.get("stopped") != "running" and last.get("bytes") in (None, _sizes(self.path)):
            return last
        kept = sum(1 for _ in read_lines(self.path / "rows.jsonl"))
        drops = Counter(record["drop_reason"] for record, _ in read_lines(self.path / "drops.jsonl"))
        given = max(last.get("given", 0), kept + sum(drops.values()))
        if unfinished := given - kept - sum(drops.values()):
            drops["unfinished"] = unfinished
        counts = {"given": given, "kept": kept, "drops": dict(drops), "complete": False}
        return {**last, "name": self.path.name, **counts, "stopped": "it is running, or was killed"}

    def iter_records(self) -> Iterator[Row]:
        """The rows one by one, kept ones first, in the order they were finished."""
        return (Row.model_validate(record) for record in _records(self.path))

    def records(self, accepted: bool | None = None) -> list[Row]:
        """All rows in input order; `accepted=True` only the kept ones, `False` only the dropped ones."""
        rows = [row for row in self.iter_records() if accepted is None or row.accepted == accepted]
        return sorted(rows, key=lambda row: row.index)

    @property
    def rows(self) -> pandas.DataFrame:
        """The kept problems, one line each, with their final trace."""
        return rows_frame(self.records(accepted=True))

    @property
    def drops(self) -> pandas.DataFrame:
        """The problems that were not kept, with their drop_reason and the best trace they have."""
        return rows_frame(self.records(accepted=False))

    def export(
        self, path: str | os.PathLike[str], format: str = "trl_sft", *, card: bool = True, **options: Any
    ) -> ExportReport:
        """Write a data set, validated for its target, with a dataset card beside it."""
        from cotkit.runs.export import export_rows

        facts = {"config": self.config, "report": self.report} if card else None
        return export_rows(self.records(), path, format, facts=facts, **options)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {counts_line(self.report)})"

    def _repr_html_(self) -> str:
        report = self.report
        items = [("given", report["given"]), ("kept", report["kept"]), *report["drops"].items()]
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(str(name))}</th><td>{count}</td></tr>"
            for name, count in items
        )
        note = f"<p>{html.escape(report['stopped'])}</p>" if report.get("stopped") else ""
        return f"<b>{html.escape(self.path.name)}</b> <code>{html.escape(str(self.path))}</code>{note}" + (
            f"<table>{cells}</table>"
        )


def counts_line(report: dict[str, Any]) -> str:
    """`12 given = 9 kept + 3 dropped (2 wrong_answer, 1 below_threshold)`, and what is unfinished."""
    drops = dict(report["drops"])
    unfinished = drops.pop("unfinished", 0)
    why = ", ".join(f"{count} {reason}" for reason, count in drops.items())
    tail = (f" ({why})" if why else "") + (f" + {unfinished} unfinished" if unfinished else "")
    return f"{report['given']} given = {report['kept']} kept + {sum(drops.values())} dropped{tail}"


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in a folder, or of that name under `runs/`."""
    return Run(path)


_TEXT = ["id", "problem", "reference", "type", "licence", "drop_reason", "detail"]
_FINAL = ["stage", "trace", "reasoning", "text", "answer", "answer_how"]


def rows_frame(rows: Iterable[Row]) -> pandas.DataFrame:
    """One line a problem: what was asked, the final trace, its verdict and scores, where it came from."""
    import pandas

    table = [_flat(row) for row in rows]
    scores = sorted({key for line in table for key in line if key.startswith("score_")})
    texts = {*_TEXT, *_FINAL}  # of any characters: pandas' own strings hold no lone surrogate
    columns = {
        name: pandas.Series([line.get(name) for line in table], dtype=object if name in texts else None)
        for name in [*_COLUMNS, *scores]
    }
    return pandas.DataFrame(columns)


_COLUMNS = [
    "index", "id", "problem", "reference", "type", "licence", "accepted", "drop_reason", "detail",
    "trace", "reasoning", "text", "answer", "answer_how", "correct", "verdict_method", "iteration", "stage",
    "candidates", "iterations", "truncated", "rationalized", "saw_reference", "score_mean", "model",
    "served_model", "endpoint", "metadata",
]  # fmt: skip


def _flat(row: Row) -> dict[str, Any]:
    line: dict[str, Any] = {name: getattr(row, name) for name in ("index", "accepted", "metadata", *_TEXT)}
    line["candidates"] = len(row.candidates)
    line["iterations"] = 1 + max((c.iteration for c in row.candidates), default=-1)
    best = row.best
    if best is None:
        return line
    line |= {name: getattr(best, name) for name in ("iteration", "truncated", "rationalized", *_FINAL)}
    line["saw_reference"] = best.saw_reference
    line["correct"], line["verdict_method"] = best.verdict.correct, best.verdict.method
    line |= {name: best.call.get(name) for name in ("model", "served_model", "endpoint")}
    if best.judgement is not None and best.judgement.scores:
        line |= {f"score_{name}": value for name, value in best.judgement.scores.items()}
        line["score_mean"] = best.judgement.mean
    return line


def folder_name(pipeline: str, config: dict[str, Any]) -> str:
    """The default run name: the same configuration gives the same folder, so a repeated call resumes."""
    return f"{pipeline}-{hashlib.sha256(dump_json(config)).hexdigest()[:8]}"
