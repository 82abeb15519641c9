"""calls.sqlite: what a run has asked, paid for and been told.

Two tables. `calls` is the ledger: one row a request that ended, answered or failed, with its tokens and
cost. `answers` is the cache: the completion of a call under the key of what was asked. Both are written, in
one transaction, the moment a request ends, so a killed process loses no answer it was given.

SQLite in WAL mode: a commit is an append to calls.sqlite-wal and survives `kill -9`. The main file is
written when the ledger is closed, or once 64 MB wait in the WAL, so that no page is rewritten for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotkit.chat.config import check_number
from cotkit.chat.errors import BudgetExceeded, LedgerError
from cotkit.chat.tally import Amount, Tally
from cotkit.records import Completion, Usage

if TYPE_CHECKING:
    from cotkit.chat.endpoint import Endpoint
    from cotkit.chat.model import ChatModel

SCHEMA_VERSION = 1
WAL_PAGES = 16_384  # of 4 KiB
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
CREATE UNIQUE INDEX IF NOT EXISTS answers_by_key ON answers (key);
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_SUMS = """
SELECT role, kind, COUNT(*), TOTAL(prompt_tokens), TOTAL(completion_tokens), TOTAL(cost_usd),
    SUM(prompt_tokens IS NULL OR completion_tokens IS NULL), SUM(cost_usd IS NULL),
    TOTAL(guessed_tokens), TOTAL(guessed_usd)
FROM calls GROUP BY role, kind
"""


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
        check_number("budget_usd", budget_usd, least=0, optional=True)
        check_number("budget_tokens", budget_tokens, least=0, whole=True, optional=True)
        check_number("budget_calls", budget_calls, least=0, whole=True, optional=True)
        self.path, self.use_cache = Path(path), use_cache
        limits = (budget_calls, budget_tokens, budget_usd)
        self._budget = Amount(*(math.inf if limit is None else limit for limit in limits))
        self._bounded = any(limit is not None for limit in limits)
        self._lock = threading.RLock()  # totals() is read from the notebook's thread
        self._tallies: dict[str, Tally] = {}
        self._in_flight = Amount()
        self._settled: list[asyncio.Future[None]] = []
        self._turns: dict[bytes, _Turn] = {}
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
        self._use_wal()
        if not tables:
            self._db.executescript(_TABLES)
        self._known = {row[0] for row in self._db.execute("SELECT key FROM answers")}
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
            hint = "another process is writing to it" if "locked" in str(error) else "is the disk full?"
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
            if key not in self._known:
                continue
            with self._trouble():
                row = self._db.execute("SELECT completion FROM answers WHERE key = ?", (key,)).fetchone()
                self._tally(role).cached += 1
            return Completion(**json.loads(row[0]), cached=True), key
        return None

    @contextlib.asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[None]:
        """Identical calls take turns, so that the second finds the first one's answer in the cache."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    def forget(self, keys: Iterable[bytes]) -> None:
        """The answers under these keys were no use: they leave the cache and count as kind "parse"."""
        with self._trouble():
            for key in keys:
                found = self._db.execute(
                    "SELECT calls.id, role FROM answers JOIN calls ON calls.id = call WHERE key = ?", (key,)
                ).fetchone()
                if found is None:
                    continue
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    self._db.execute("UPDATE calls SET kind = 'parse' WHERE id = ?", found[:1])
                    self._db.execute("DELETE FROM answers WHERE key = ?", (key,))
                self._known.discard(key)
                tally = self._tally(found[1])
                tally.calls -= 1
                tally.failed["parse"] += 1

    # The ledger.

    def record(
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
        the endpoint does not say; `answers` go into the cache.
        """
        usage, guess = usage or Usage(), guess or Amount(1)
        unknown_usage = usage.prompt_tokens is None or usage.completion_tokens is None
        guessed_tokens = guess.tokens if unknown_usage else 0
        guessed_usd = guess.usd if usage.cost_usd is None else 0.0
        spent = (usage.prompt_tokens, usage.completion_tokens, usage.cost_usd)
        row = (time.time(), seconds, role, endpoint, model, kind, *spent, guessed_tokens, guessed_usd)
        with self._trouble(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            call = self._db.execute(
                "INSERT INTO calls (at, seconds, role, endpoint, model, kind, prompt_tokens, "
                "completion_tokens, cost_usd, guessed_tokens, guessed_usd) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
            stored = [(call, key, _as_json(completion)) for key, completion in answers]
            self._db.executemany(
                "INSERT OR IGNORE INTO answers (call, key, completion) VALUES (?, ?, ?)", stored
            )
            self._tally(role).add(
                kind,
                1,
                *(number or 0 for number in spent),
                unknown_usage,
                usage.cost_usd is None,
                guessed_tokens,
                guessed_usd,
            )
        self._known.update(key for _, key, _ in stored)

    def totals(self) -> dict[str, Any]:
        """Sums over every session on this folder, and by role; None = nothing is known.

        calls (answered), cached (this session), failed {kind: requests}, prompt_tokens, completion_tokens,
        cost_usd, unknown_usage, unknown_cost (requests the sums know nothing of: they are lower bounds).
        """
        total = Tally()
        with self._lock:
            for tally in self._tallies.values():
                total.merge(tally)
            by_role = {role: tally.report() for role, tally in self._tallies.items()}
        return {**total.report(), "by_role": by_role}

    # The budgets.

    def check_prices(self, *models: ChatModel) -> None:
        """ValueError when `budget_usd` is set and an endpoint of a model has no known price."""
        for model in models:
            if complaint := self.unpriced(model.endpoints):
                raise ValueError(complaint)

    def unpriced(self, endpoints: Iterable[Endpoint]) -> str | None:
        """Why `budget_usd` cannot be watched over these endpoints; None = it can."""
        if math.isinf(self._budget.usd):
            return None
        unknown = [f"{e.options.model} at {e.label}" for e in endpoints if e.price is None]
        if not unknown:
            return None
        return (
            f"budget_usd is set, but nobody knows the price of {', '.join(unknown)}: give it as "
            "ChatModel(..., price=(dollars per million prompt tokens, the same for completion tokens)), or "
            "(0, 0) where it is free; or set budget_tokens instead"
        )

    @contextlib.asynccontextmanager
    async def reserved(self, role: str, guess: Amount = Amount(1)) -> AsyncIterator[None]:  # noqa: B008
        """Holds a place in the budgets for one request; `guess` serves until there is a mean to go by.

        Where only the requests in flight could make it too many, waits until they have ended. Raises
        BudgetExceeded.
        """
        if not self._bounded:
            yield
            return
        while not self._fits(expected := self._expected(role, guess), first=expected is guess):
            settled = asyncio.get_running_loop().create_future()
            self._settled.append(settled)
            await settled
        self._in_flight += expected
        try:
            yield
        finally:
            self._in_flight -= expected
            for settled in self._settled:
                if not settled.done():
                    settled.set_result(None)
            self._settled.clear()

    def _expected(self, role: str, guess: Amount) -> Amount:
        """What one more request of this role takes: the mean so far."""
        tally = self._tallies.get(role)
        if tally is None or not tally.billed:
            return guess
        return Amount(1, tally.spent.tokens / tally.billed, tally.spent.usd / tally.billed)

    def _fits(self, expected: Amount, first: bool) -> bool:
        """True = it may start, False = wait for those in flight; raises when there is no room at all."""
        spent = sum((tally.spent for tally in self._tallies.values()), Amount())
        if not self._passed(spent + self._in_flight + expected):
            return True
        if self._in_flight.calls:
            return False
        if first and not self._passed(spent + Amount(1, min(expected.tokens, 1), min(expected.usd, 1e-6))):
            return True  # a role's first request is only guessed at: it shows what they really take
        over = self._passed(spent + expected)
        allowed = getattr(self._budget, over.removeprefix("budget_"))
        raise BudgetExceeded(
            f"{over}={allowed:g} is spent: {self._summary(spent)}. Everything paid for is kept in "
            f"{self.path}: raise {over} and run again to go on."
        )

    def _passed(self, amount: Amount) -> str | None:
        """The budget that `amount` would pass."""
        for name in ("calls", "tokens", "usd"):
            if getattr(amount, name) > getattr(self._budget, name) + 1e-9:
                return f"budget_{name}"
        return None

    def _summary(self, spent: Amount) -> str:
        return f"{spent.calls:g} requests, {spent.tokens:,.0f} tokens, ${spent.usd:.4f}"

    def close(self) -> None:
        """Writes everything into the main file and closes it. Calling it again does nothing."""
        with self._trouble():
            self._db.close()

    def __enter__(self) -> CallLedger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        totals = self.totals()
        return f"CallLedger({str(self.path)!r}, calls={totals['calls']}, cached={totals['cached']})"


@dataclass
class _Turn:
    """The lock of one key, dropped with its last user."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


def _as_json(completion: Completion) -> str:
    """ASCII, so that lone surrogates survive."""
    return json.dumps(completion.model_dump(exclude={"parsed", "cached"}))


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
                        "INSERT OR IGNORE INTO answers (call, key, completion) "
                        "SELECT call + ?, key, completion FROM other.answers ORDER BY id",
                        (first,),
                    )
            finally:
                ledger._db.execute("DETACH other")
    with CallLedger(output) as ledger:
        return ledger.totals()
