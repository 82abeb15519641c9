"""The run folder: the only hand-over between a pipeline and everything that reads it.

    runs/<name>/
      config.json     what was asked: roles, parameters, prompt hashes, versions (no keys)
      calls.jsonl     response cache and ledger: one row a completed call, written when it completes
      rows.jsonl      one line a problem that was kept, with every candidate
      drops.jsonl     one line a problem that was not, with its drop_reason and every candidate it has
      report.json     counts that add up: given = kept + sum(drops)
      run.lock        held while a pipeline writes here
      stop            made by anyone: start no further problem; the next call takes it away

`RunFolder` is the writing side, `Run` (reading.py) the reading one. A pipeline that is started again on the
same folder goes on where it stopped; what the folder was made with must not differ, and the error says in
which keys it does.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

from cotkit.paths import run_folder
from cotkit.records import Row
from cotkit.runs.digests import DigestMap
from cotkit.runs.journal import Journal, dump_json, read_lines, write_json, write_lines
from cotkit.whole import make_folder, sync_entries

Resume = Literal["auto", "never", "must"]
STOP, REPLACING = "stop", ".replacing"
JOURNALS = ("rows.jsonl", "drops.jsonl")
LINES = ("calls.jsonl", *JOURNALS)
_NEW = 2**63  # in place of the fingerprint of a row of this sitting
_FILES = ("config.json", "report.json", "labels.jsonl", *JOURNALS)


class RunError(ValueError):
    """A run folder cannot be used as asked; the message says what to do."""


def check_resume(resume: str) -> None:
    if resume not in ("auto", "never", "must"):
        raise ValueError(f"resume must be 'auto', 'never' or 'must', got {resume!r}")


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


def _fingerprint(record: dict[str, Any]) -> int:
    """What makes a finished row the row of this problem and no other; below 2**63."""
    key = [record.get(name) for name in ("problem", "reference", "answer_type", "tolerance")]
    programs = [(record.get("metadata") or {}).get(name) for name in ("tests", "check_code")]
    if any(program is not None for program in programs):
        key += programs
    return int.from_bytes(hashlib.sha256(dump_json(key)).digest()[:8]) >> 1


class Finished(Collection[str]):
    """The ids of a run's finished problems: digests in memory, the ids themselves in the folder."""

    def __init__(self, path: pathlib.Path):
        self._path, self._prints = path, DigestMap()

    def add(self, id: str, fingerprint: int) -> None:
        self._prints[id] = fingerprint

    def remove(self, id: str) -> None:
        del self._prints[id]

    def is_row_of(self, problem: Any) -> bool:
        """Whether this problem, as it is now, is finished."""
        known = self._prints.get(problem.id)
        return known == _NEW or (known is not None and known == _fingerprint(vars(problem)))

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and id in self._prints

    def __iter__(self) -> Iterator[str]:
        return (record["id"] for record in _records(self._path))

    def __len__(self) -> int:
        return len(self._prints)


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
        check_resume(resume)
        self.path = run_folder(run)
        if resume == "must" and not (self.path / "config.json").is_file():
            raise RunError(f"resume='must', but {self.path} holds no run; check the name")
        with _usable(self.path):
            make_folder(self.path)
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
            old = read_json(path)
            if not isinstance(old.get("config", {}), dict):
                raise RunError(f"{path} is not what cotkit wrote; restore it or use another run name")
            if lines := config_differences(old.get("config", {}), config):
                raise RunError(
                    f"{self.path} was made with another configuration:\n  "
                    + "\n  ".join(lines)
                    + "\nUse another run name, or resume='never' (the old rows are set aside; answers "
                    "already paid for are found in the cache)."
                )
        elif any((self.path / name).exists() for name in JOURNALS):
            raise RunError(f"{self.path} holds rows but no config.json: it is no run that can be resumed")
        else:
            old = {}
        write_json(path, {"config": config, "runtime": runtime, "created": old.get("created") or _now()})
        (self.path / STOP).unlink(missing_ok=True)
        self.done = Finished(self.path)
        self.reasons: Counter[str] = Counter()
        self.kept = 0
        self._journals = {name: Journal(self.path / name, self._count, shared=False) for name in JOURNALS}
        report = self.path / "report.json"
        self.seconds_before = read_json(report).get("seconds", 0.0) if report.is_file() else 0.0
        self._started = time.monotonic()

    def begin(self) -> None:
        """Problems that an endpoint or a judge failed are to be asked again: takes their lines out, for good
        before another line of theirs is written."""
        path = self.path / "drops.jsonl"
        if not any(record.get("retryable") for record, _ in read_lines(path)):
            return

        def staying() -> Iterator[dict[str, Any]]:
            for record, _ in read_lines(path):
                self.done.remove(record["id"])  # those that stay are counted again
                if not record.get("retryable"):
                    yield record

        self._journals["drops.jsonl"].close()
        write_lines(path, staying())
        self.reasons.clear()
        self._journals["drops.jsonl"] = Journal(path, self._count, shared=False)

    def _count(self, record: dict[str, Any], start: int) -> None:
        known = isinstance(record, dict) and {"id", "accepted", "drop_reason"} <= record.keys()
        if not known or not isinstance(record["id"], str):
            raise RunError(f"{self.path} has a line that is no row: {_short(record)}; remove it")
        if record["id"] in self.done:
            raise RunError(f"{self.path} holds problem {record['id']!r} twice; remove one of its lines")
        drop_reason = None if record["accepted"] else record["drop_reason"]
        self._note(record["id"], drop_reason, _fingerprint(record))

    def _note(self, id: str, drop_reason: str | None, fingerprint: int) -> None:
        self.done.add(id, fingerprint)
        if drop_reason is None:
            self.kept += 1
        else:
            self.reasons[drop_reason] += 1

    def check_problems(self, problems: Sequence[Any]) -> None:
        """Raises RunError when a finished row belongs to no given problem, or to one that has changed."""
        if not self.done or len(self.done) == sum(map(self.done.is_row_of, problems)):
            return
        given = DigestMap()
        for problem in problems:
            given[problem.id] = self.done.is_row_of(problem)
        for id in self.done:
            if id not in given:
                raise RunError(
                    f"{self.path} holds problem {id!r}, which is not among the {len(given)} given. "
                    "Rows may be added to a run, not taken away: use another run name."
                )
            if not given[id]:
                raise RunError(
                    f"problem {id!r} has changed since {self.path} was made. Use another run name, or "
                    "resume='never'."
                )

    def append(self, row: Row) -> None:
        """Write a finished problem: one whole line, at once."""
        self._journals["rows.jsonl" if row.accepted else "drops.jsonl"].append(row)
        self._note(row.id, None if row.accepted else row.drop_reason, _NEW)

    def sync(self) -> None:
        """Force the rows to disk: a power cut then takes none of them. May be called from another thread."""
        for journal in self._journals.values():
            journal.sync()
        sync_entries(self.path)

    @property
    def told_to_stop(self) -> bool:
        return (self.path / STOP).exists()

    @property
    def written(self) -> int:
        """Bytes of rows, drops and calls."""
        return sum(path.stat().st_size for name in LINES if (path := self.path / name).exists())

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
            "bytes": sizes(self.path),
            **facts,
        }
        write_json(self.path / "report.json", report)
        return report

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.ExitStack() as left:
            left.callback(self._lock.release)
            for journal in self._journals.values():
                left.callback(journal.close)


@contextlib.contextmanager
def locked_folder(path: pathlib.Path) -> Iterator[None]:
    """Nobody else writes there meanwhile; RunError when somebody does."""
    with _usable(path):
        make_folder(path)
        lock = _lock(path)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def replaced_run(
    run: str | os.PathLike[str], config: dict[str, Any], *, runtime: dict[str, Any]
) -> Iterator[RunFolder]:
    """A run that takes the place of the one at `run` when the block has ended; after an error the old one
    stays as it was. What else is in the folder stays too, such as labels. Each step is forced to disk before
    the next.
    """
    path = run_folder(run)
    with locked_folder(path):
        new = path / REPLACING
        try:
            for left in new.glob("*"):  # by a process that was killed
                left.unlink()
            with RunFolder(new, config, runtime=runtime) as folder:
                yield folder
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        for name in ("config.json", "report.json"):  # half old and half new it is no run
            (path / name).unlink(missing_ok=True)
        sync_entries(path)
        for names in (LINES, ("report.json", "config.json")):  # with which it is one
            for name in names:
                if (new / name).exists():
                    os.replace(new / name, path / name)
            sync_entries(path)
        shutil.rmtree(new, ignore_errors=True)


def set_aside(path: pathlib.Path) -> None:
    """What resume="never" does to a run: all but its answers goes to superseded/<number>. RunError while
    another process writes there."""
    with locked_folder(path):
        _set_aside(path)


def _set_aside(path: pathlib.Path) -> None:
    present = [name for name in _FILES if (path / name).exists()]
    if not present:
        return
    number = 1
    while (old := path / "superseded" / str(number)).exists():
        number += 1
    make_folder(old)
    for name in present:
        os.replace(path / name, old / name)
    for folder in (old, path):  # in this order: a file may be in both, never in none
        sync_entries(folder)


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


def read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}); restore it or use another run name") from None
    if not isinstance(content, dict):
        raise RunError(f"{path} is not what cotkit wrote; restore it or use another run name")
    return content


def sizes(path: pathlib.Path) -> dict[str, int]:
    """Bytes of the rows that are there: what a report is about."""
    return {name: (path / name).stat().st_size for name in JOURNALS if (path / name).exists()}


def _records(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    for name in JOURNALS:
        for record, _ in read_lines(path / name):
            yield record


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def folder_name(pipeline: str, config: dict[str, Any]) -> str:
    """The default run name: the same configuration gives the same folder, so a repeated call resumes."""
    return f"{pipeline}-{hashlib.sha256(dump_json(config)).hexdigest()[:8]}"
