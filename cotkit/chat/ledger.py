"""calls.jsonl: what a run has asked, paid for and been told.

A journal with one line a request that ended: who was asked, in which role, how it ended (`kind`, null =
answered), its tokens and cost (null = unknown), and, under the key of what was asked, the completions it
brought, which makes the file the response cache too. Answers that were of no use are taken back by a line
`{"forgotten": key, "of": where the line starts, "role": ...}`, the key null where nothing was stored.

Nobody is given an answer before its line is written, so a killed process loses none that it used. `sync()`,
which a run calls every few seconds, makes them survive a power cut too. In memory are the sums, and where the
line of each key is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotkit.chat.budgets import ONE_CALL, Budgets
from cotkit.chat.errors import LedgerError
from cotkit.chat.tally import Amount, Tally
from cotkit.records import Completion, Usage
from cotkit.runs import DigestMap, Journal, JournalError, dump_compact, dump_json, read_lines
from cotkit.whole import whole_file

if TYPE_CHECKING:
    from cotkit.chat.endpoint import Endpoint
    from cotkit.chat.model import ChatModel

KEY_BYTES = 32  # sha256
_NOT_STORED = {"parsed", "cached"}


class CallLedger:
    """The response cache and ledger of one run folder, and the budgets that stop the run.

    budget_usd, budget_tokens, budget_calls: checked before each request, with those in flight counted at
        what such requests took so far; one that would pass a budget raises BudgetExceeded. Retries count,
        429s do not. They bound the whole run: what earlier sessions on this folder spent is counted.
    use_cache: False asks everything again; what is stored stays.
    read_only: for `totals` and `find` of a file that is left as it is.
    shared: False where the caller holds the folder's lock (`run.lock`), as a run does; meanwhile others may
        open its ledger `read_only` alone.

    Raises LedgerError when the file cannot be used, or is not a ledger; nothing in it is changed then.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        budget_calls: int | None = None,
        use_cache: bool = True,
        read_only: bool = False,
        shared: bool = True,
    ):
        self.path, self.use_cache = Path(path).absolute(), use_cache
        self._lock = threading.RLock()  # totals() is read from the notebook's thread
        self._tallies: dict[str, Tally] = {}
        self.budgets = Budgets(self._tallies, self.path, budget_usd, budget_tokens, budget_calls)
        self._broken: LedgerError | None = None
        self._turns: dict[bytes, asyncio.Event | None] = {}
        self._lines = DigestMap()  # key -> where the line with its answer starts
        self._not_stored: set[bytes] = set()  # keys of answers that came again: the stored ones stay
        self._journal: Journal | None = None
        self._lines_read = 0
        try:
            if read_only:
                start = 0
                for line, end in read_lines(self.path):
                    self._read(line, start)
                    start = end
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._journal = Journal(
                    self.path,
                    self._read,
                    shared=shared,
                    owner=self.path.parent / "run.lock" if shared else None,
                )
            self._file = open(self.path, "rb")  # noqa: SIM115 - open for the run's life
        except OSError as error:
            raise self._unusable(error) from None
        except JournalError as error:
            raise LedgerError(
                f"{error} Finished rows do not need {self.path.name}: where it is renamed, only calls of "
                "unfinished ones are asked again."
            ) from None

    def _unusable(self, error: OSError) -> LedgerError:
        why = error.strerror or error
        return LedgerError(
            f"{self.path} cannot be used: {why} (is there space left, and may you write there?)"
        )

    def _read(self, line: dict[str, Any], start: int) -> None:
        """A line that an earlier session wrote."""
        self._lines_read += 1
        try:
            self._take_in(line, [_key(answer["key"]) for answer in line.get("answers", ())], start)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise LedgerError(
                f"{self.path}, line {self._lines_read} is no call of this version of cotkit; the file was "
                "left as it is. Give the run another folder, or move the file away."
            ) from None

    def _take_in(self, line: dict[str, Any], answers: Iterable[bytes], start: int) -> None:
        """A line that stands in the file: what it adds to the sums, and whose answers it holds."""
        with self._lock:
            tally = self._tallies.setdefault(line["role"], Tally())
            if "forgotten" in line:
                tally.take_back("parse")
                if line["forgotten"] and self._lines.get(key := _key(line["forgotten"])) == line["of"]:
                    del self._lines[key]  # else it was said of another ledger's line
                return
            guess = None
            if "guessed_tokens" in line or "guessed_usd" in line:
                guess = Amount(0, line.get("guessed_tokens", 0), line.get("guessed_usd", 0.0))
            tally.add(line["kind"], line["prompt_tokens"], line["completion_tokens"], line["cost_usd"], guess)
            for key in answers:
                if key not in self._lines:  # the first one wins
                    self._lines[key] = start

    # The cache.

    def find(self, keys: Iterable[bytes], role: str) -> tuple[Completion, bytes] | None:
        """The first stored completion under one of the keys, and its key."""
        if not self.use_cache:
            return None
        for key in keys:
            if (found := self._find(key)) is not None:
                with self._lock:
                    self._tallies.setdefault(role, Tally()).cached += 1
                return Completion(**found[1], cached=True), key
        return None

    def _find(self, key: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The line that holds the answer under a key, and the answer."""
        if self._file.closed:
            raise LedgerError(f"{self.path} was closed: open the ledger again")
        if (start := self._lines.get(key)) is None:
            return None
        self._file.seek(start)
        try:
            line = json.loads(self._file.readline())
            answers = {answer["key"]: answer["completion"] for answer in line["answers"]}
            return line, answers[key.hex()]
        except (KeyError, TypeError, ValueError):
            raise LedgerError(f"{self.path} was changed while it was in use: run again to go on") from None

    def turn(self, key: bytes) -> _Turn:
        """`async with`: identical calls take turns, so that the second finds the first one's answer."""
        return _Turn(self._turns, key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """The last answers under these keys were no use: they leave the cache and count as kind "parse"."""
        for key in keys:
            if (found := self._find(key)) is not None:
                forgotten = None if key in self._not_stored else key.hex()
                line = {"forgotten": forgotten, "of": self._lines[key], "role": found[0]["role"]}
                self._take_in(line, (), self._write(line, {}))

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
        the endpoint does not say; `answers` go into the cache. Raises LedgerError when it is not written.
        """
        usage = usage or Usage()
        line: dict[str, Any] = {"at": round(time.time(), 3), "seconds": round(seconds, 4), "role": role}
        line |= {"endpoint": endpoint, "model": model, "kind": kind, **vars(usage)}
        if guess and guess.tokens and None in (usage.prompt_tokens, usage.completion_tokens):
            line["guessed_tokens"] = guess.tokens
        if guess and guess.usd and usage.cost_usd is None:
            line["guessed_usd"] = guess.usd
        answers = dict(answers)
        fresh = {key: completion for key, completion in answers.items() if key not in self._lines}
        self._not_stored.update(answers.keys() - fresh.keys())
        self._take_in(line, fresh, self._write(line, fresh))

    def _write(self, line: dict[str, Any], answers: Mapping[bytes, Completion]) -> int:
        """Where the line starts that now stands in the file."""
        if self._file.closed:
            raise LedgerError(f"{self.path} was closed: open the ledger again")
        written = dump_compact(line)
        if answers:
            stored = (
                b'{"key":"%b","completion":%b}' % (k.hex().encode(), _stored(c)) for k, c in answers.items()
            )
            written = written[:-1] + b',"answers":[' + b",".join(stored) + b"]}"
        try:
            return self._journal.append_line(written + b"\n")
        except OSError as error:
            self._broken = self._unusable(error)
            raise self._broken from None

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

    def reserved(self, role: str, guess: Amount = ONE_CALL) -> contextlib.AbstractAsyncContextManager[None]:
        """`Budgets.reserved`. Raises LedgerError once a line could not be written: what is asked then is paid
        for in vain."""
        if self._broken is not None:
            raise self._broken
        return self.budgets.reserved(role, guess)

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
        if not self._file.closed:
            self._journal.sync()

    def close(self) -> None:
        """Forces what is written to disk and closes the file. Calling it again does nothing."""
        self._file.close()
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> CallLedger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        totals = self.totals()
        return f"CallLedger({str(self.path)!r}, calls={totals['calls']}, cached={totals['cached']})"


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


def _stored(completion: Completion) -> bytes:
    try:
        return completion.model_dump_json(exclude=_NOT_STORED, exclude_none=True).encode()
    except ValueError:  # it refuses lone surrogates
        return dump_json(completion.model_dump(exclude=_NOT_STORED, exclude_none=True))


def _key(text: str) -> bytes:
    key = bytes.fromhex(text)
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    return key


def merge_ledgers(paths: Iterable[Path], output: Path) -> dict[str, Any]:
    """A new calls.jsonl with all calls and answers of others, and its `totals()`. What one of them has
    forgotten is left out, so that it takes no answer from another. Raises LedgerError.
    """
    with whole_file(output) as temporary, open(temporary, "wb") as merged:
        for path in filter(Path.is_file, paths):
            with CallLedger(path, read_only=True) as ledger:
                start = 0
                for line, end in read_lines(path):
                    if "forgotten" in line:
                        line["forgotten"] = None
                    answers = line.pop("answers", ())
                    if known := [a for a in answers if ledger._lines.get(_key(a["key"])) == start]:
                        line["answers"] = known
                    merged.write(dump_json(line) + b"\n")
                    start = end
    with CallLedger(output, read_only=True) as ledger:
        return ledger.totals()
