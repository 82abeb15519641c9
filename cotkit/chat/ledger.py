"""calls.sqlite: what a run has asked, paid for and been told.

Two tables. `calls` is the ledger: one row a request that ended, answered or failed, with its tokens and
cost. `answers` is the cache: the completion of a call under the key of what was asked. Nobody is given an
answer before both are written, so a killed process loses none that it used; requests that end in the same
turn of the event loop share a transaction, so that the busier the loop, the less each of them costs.

SQLite in WAL mode: a commit is an append to calls.sqlite-wal and survives `kill -9`; `sync()`, which a run
calls every few seconds, makes it survive a power cut too. The main file is written when the ledger is closed,
or once 64 MB wait in the WAL, so that no page is rewritten for each call.
The keys are held in memory: an index in the file would be one more page to write for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotkit.chat.budgets import Budgets
from cotkit.chat.errors import LedgerError
from cotkit.chat.tally import Amount, Tally
from cotkit.records import Completion, Usage

if TYPE_CHECKING:
    from cotkit.chat.endpoint import Endpoint
    from cotkit.chat.model import ChatModel

SCHEMA_VERSION = 1
PAGE = 1024  # bytes: a commit writes whole pages, and most answers are shorter than SQLite's 4 KiB
WAL_PAGES = 65_536
BUSY_S = 10.0

_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, at REAL, seconds REAL, role TEXT, endpoint TEXT, model TEXT,
    kind TEXT,  -- why it failed; NULL = answered
    prompt_tokens INTEGER, completion_tokens INTEGER, cost_usd REAL,  -- NULL = unknown
    guessed_tokens INTEGER, guessed_usd REAL  -- what an unknown use counts for in the budgets
);
CREATE TABLE IF NOT EXISTS answers (id INTEGER PRIMARY KEY, call INTEGER, key BLOB, completion TEXT);
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_SUMS = """
SELECT role, kind, COUNT(*), TOTAL(prompt_tokens), TOTAL(completion_tokens), TOTAL(cost_usd),
    SUM(prompt_tokens IS NULL OR completion_tokens IS NULL), SUM(cost_usd IS NULL),
    TOTAL(guessed_tokens), TOTAL(guessed_usd)
FROM calls GROUP BY role, kind
"""
_INSERT_CALL = """
INSERT INTO calls (at, seconds, role, endpoint, model, kind, prompt_tokens, completion_tokens, cost_usd,
    guessed_tokens, guessed_usd) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_ANSWER = "INSERT INTO answers (call, key, completion) VALUES (?, ?, ?)"
_NOT_STORED = {"parsed", "cached"}
_HINT = "is there space left, and may you write there?"


class CallLedger:
    """The response cache and ledger of one run folder, and the budgets that stop the run.

    budget_usd, budget_tokens, budget_calls: checked before each request, with those in flight counted at
        what such requests took so far; one that would pass a budget raises BudgetExceeded. Retries count,
        429s do not. They bound the whole run: what earlier sessions on this folder spent is counted.
    use_cache: False asks everything again; what is stored stays.

    Raises LedgerError when the file cannot be read, or is not a ledger; nothing in it is changed then.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        budget_calls: int | None = None,
        use_cache: bool = True,
    ):
        self.path, self.use_cache = Path(path), use_cache
        self._lock = threading.RLock()  # totals() is read from the notebook's thread
        self._tallies: dict[str, Tally] = {}
        self.budgets = Budgets(self._tallies, self.path, budget_usd, budget_tokens, budget_calls)
        self.reserved = self.budgets.reserved
        self._turns: dict[bytes, asyncio.Event | None] = {}
        self._ended: list[_Ended] = []  # not yet written
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._trouble():
            self._db = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        """Checks the file, makes the tables of a new one, adds up what earlier sessions spent."""
        tables = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if tables and version != SCHEMA_VERSION:
            raise LedgerError(
                f"{self.path} is no ledger of this version of cotkit (schema {version}, not "
                f"{SCHEMA_VERSION}); it was left as it is. Give the run another folder, or move it away."
            )
        if tables and (found := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found.splitlines()[-1])
        if not tables:
            self._db.execute(f"PRAGMA page_size = {PAGE}")
        self._use_wal()
        if not tables:
            self._db.executescript(_TABLES)
        self._known = dict(self._db.execute("SELECT key, id FROM answers ORDER BY id DESC"))  # first one wins
        for role, *sums in self._db.execute(_SUMS):
            self._tally(role).add(*sums)

    def _use_wal(self) -> None:
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:  # here, SQLite does not itself wait for another process
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        """SQLite's errors, said for the person at the notebook."""
        try:
            with self._lock:
                yield
        except sqlite3.ProgrammingError:
            raise LedgerError(f"{self.path} was closed: open the ledger again") from None
        except sqlite3.OperationalError as error:
            hint = "another process is writing to it" if "locked" in str(error) else _HINT
            raise LedgerError(f"{self.path} cannot be used: {error} ({hint})") from None
        except sqlite3.DatabaseError as error:
            raise LedgerError(
                f"{self.path} is damaged ({error}); it was left as it is. Rename it and run again: finished "
                "rows are kept in rows.jsonl, calls of unfinished ones are asked again. To save what can be "
                f"saved of it: sqlite3 {self.path.name} .recover | sqlite3 saved.sqlite"
            ) from None

    def _tally(self, role: str) -> Tally:
        return self._tallies.setdefault(role, Tally())

    # The cache.

    def find(self, keys: Iterable[bytes], role: str) -> tuple[Completion, bytes] | None:
        """The first stored completion under one of the keys, and its key."""
        if not self.use_cache:
            return None
        for key in keys:
            if (id := self._known.get(key)) is None:
                continue
            with self._trouble():
                row = self._db.execute("SELECT completion FROM answers WHERE id = ?", (id,)).fetchone()
                self._tally(role).cached += 1
            return Completion(**json.loads(row[0]), cached=True), key
        return None

    def turn(self, key: bytes) -> _Turn:
        """`async with`: identical calls take turns, so that the second finds the first one's answer."""
        return _Turn(self._turns, key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """The answers under these keys were no use: they leave the cache and count as kind "parse"."""
        with self._trouble():
            for key in keys:
                if (id := self._known.pop(key, None)) is None:
                    continue
                call, role = self._db.execute(
                    "SELECT calls.id, role FROM answers JOIN calls ON calls.id = call WHERE answers.id = ?",
                    (id,),
                ).fetchone()
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    self._db.execute("UPDATE calls SET kind = 'parse' WHERE id = ?", (call,))
                    self._db.execute("DELETE FROM answers WHERE id = ?", (id,))
                tally = self._tally(role)
                tally.calls -= 1
                tally.failed["parse"] += 1

    # The ledger.

    async def record(
        self,
        *,
        role: str,
        endpoint: str,
        model: str,
        kind: str | None,
        seconds: float,
        usage: Usage | None = None,
        guess: Amount | None = None,
        answers: Iterable[tuple[bytes, Completion]] = (),
    ) -> None:
        """One request has ended: `kind` None = answered, else why it failed. `guess` = what it took, where
        the endpoint does not say; `answers` go into the cache. Returns when it is written.
        """
        usage, guess = usage or Usage(), guess or Amount(1)
        unknown_usage = usage.prompt_tokens is None or usage.completion_tokens is None
        guessed = guess.tokens if unknown_usage else 0, guess.usd if usage.cost_usd is None else 0.0
        spent = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
        loop = asyncio.get_running_loop()
        ended = _Ended(
            row=(time.time(), seconds, role, endpoint, model, kind, *spent, *guessed),
            sums=(kind, 1, *(n or 0 for n in spent), unknown_usage, usage.cost_usd is None, *guessed),
            answers=[(key, _as_json(completion)) for key, completion in answers],
            written=loop.create_future(),
        )
        self._ended.append(ended)
        if len(self._ended) == 1:
            loop.call_soon(self._write)
        await ended.written

    def _write(self) -> None:
        """What has ended since the last time, in one transaction: all of it, or nothing and an error."""
        group, self._ended = self._ended, []
        if not group:  # written when the ledger was closed
            return
        fresh, error = {}, None
        try:
            with self._trouble(), self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for ended in group:
                    call = self._db.execute(_INSERT_CALL, ended.row).lastrowid
                    for key, completion in ended.answers:
                        if key not in self._known:
                            fresh[key] = self._db.execute(_INSERT_ANSWER, (call, key, completion)).lastrowid
            self._known |= fresh
            with self._lock:
                for ended in group:
                    self._tally(ended.row[2]).add(*ended.sums)
        except Exception as trouble:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            error = trouble
        for ended in group:
            if ended.written.done():
                continue
            ended.written.set_result(None) if error is None else ended.written.set_exception(error)

    def totals(self) -> dict[str, Any]:
        """Sums over every session on this folder, and by role; None = nothing is known.

        calls (answered), cached (this session), failed {kind: requests}, prompt_tokens, completion_tokens,
        cost_usd, unknown_usage, unknown_cost (requests the sums know nothing of: they are lower bounds),
        guessed_tokens, guessed_usd (what those count for in the budgets).
        """
        total = Tally()
        with self._lock:
            for tally in self._tallies.values():
                total.merge(tally)
            by_role = {role: tally.report() for role, tally in self._tallies.items()}
        return {**total.report(), "by_role": by_role}

    # What budgets need to know.

    def check_prices(self, *models: ChatModel) -> None:
        """ValueError when `budget_usd` is set and an endpoint of a model has no known price."""
        for model in models:
            if complaint := self.unpriced(model.endpoints):
                raise ValueError(complaint)

    def unpriced(self, endpoints: Iterable[Endpoint]) -> str | None:
        """Why `budget_usd` cannot be watched over these endpoints; None = it can."""
        if math.isinf(self.budgets.limits.usd):
            return None
        unknown = [f"{e.options.model} at {e.label}" for e in endpoints if e.price is None]
        if not unknown:
            return None
        return (
            f"budget_usd is set, but nobody knows the price of {', '.join(unknown)}: give it as "
            "ChatModel(..., price=(dollars per million prompt tokens, the same for completion tokens)), or "
            "(0, 0) where it is free; or set budget_tokens instead"
        )

    def sync(self) -> None:
        """Force what is written to disk: a power cut then takes none of it. Another thread may call it."""
        log = f"{self.path}-wal"
        try:
            with open(log, "rb+") as file:
                os.fsync(file.fileno())
        except FileNotFoundError:
            return  # the ledger is closed, and all in the main file
        except OSError as error:
            raise OSError(error.errno, error.strerror, log) from None

    def close(self) -> None:
        """Writes everything into the main file and closes it. Calling it again does nothing."""
        with self._trouble():
            self._write()
            self._db.close()

    def __enter__(self) -> CallLedger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        totals = self.totals()
        return f"CallLedger({str(self.path)!r}, calls={totals['calls']}, cached={totals['cached']})"


@dataclass
class _Ended:
    """A request to be written: the row of `calls`, what the sums grow by, answers and their keys."""

    row: tuple[Any, ...]
    sums: tuple[Any, ...]
    answers: list[tuple[bytes, str]]
    written: asyncio.Future[None]


class _Turn:
    """turns: the keys whose turn it is; None = nobody waits for its end."""

    def __init__(self, turns: dict[bytes, asyncio.Event | None], key: bytes):
        self._turns, self._key = turns, key

    async def __aenter__(self) -> None:
        while self._key in self._turns:
            ended = self._turns[self._key] = self._turns[self._key] or asyncio.Event()
            await ended.wait()
        self._turns[self._key] = None

    async def __aexit__(self, *exc: object) -> None:
        if (ended := self._turns.pop(self._key)) is not None:
            ended.set()


def _as_json(completion: Completion) -> str:
    """Lone surrogates, which pydantic refuses, survive as escapes."""
    try:
        return completion.model_dump_json(exclude=_NOT_STORED)
    except ValueError:
        return json.dumps(completion.model_dump(exclude=_NOT_STORED))


def merge_ledgers(paths: Iterable[Path], output: Path) -> dict[str, Any]:
    """A new calls.sqlite with all calls and answers of others, and its `totals()`. Raises LedgerError."""
    output.unlink(missing_ok=True)
    with CallLedger(output) as ledger, ledger._trouble():
        for path in paths:
            if not path.is_file():
                continue
            ledger._db.execute("ATTACH ? AS other", (str(path),))
            try:
                with ledger._db:
                    ledger._db.execute("BEGIN IMMEDIATE")
                    first = ledger._db.execute("SELECT COALESCE(MAX(id), 0) FROM calls").fetchone()[0]
                    ledger._db.execute(
                        "INSERT INTO calls SELECT id + ?, at, seconds, role, endpoint, model, kind, "
                        "prompt_tokens, completion_tokens, cost_usd, guessed_tokens, guessed_usd "
                        "FROM other.calls",
                        (first,),
                    )
                    ledger._db.execute(
                        "INSERT INTO answers (call, key, completion) SELECT call + ?, key, completion "
                        "FROM other.answers WHERE key NOT IN (SELECT key FROM answers) ORDER BY id",
                        (first,),
                    )
            finally:
                ledger._db.execute("DETACH other")
    with CallLedger(output) as ledger:
        return ledger.totals()
