"""Killable processes for the symbolic stage, each with its own clock.

A pool has a queue and up to `size` dispatcher threads; each owns one worker process, hands it one job at a
time and waits for the answers. The clock starts when the worker takes the job, never in the queue. A job that
outlives it costs the worker its life (SIGKILL) and the job its remaining answers (None, "timeout"); the next
job gets a new process. `submit` returns a Future, so a caller may block in any thread or await it in any
event loop; cancelling a job that has not started frees its place. `multiprocessing` is not used: it would run
a user's script again and cannot import functions of a notebook cell.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pathlib
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

import cotkit
from cotkit.cores import available_cores
from cotkit.verify.verdicts import Outcome

Pair = tuple[str, str]
Answered = tuple[list[Outcome], float]
MOST_WORKERS = 4
START_SECONDS = 60.0  # a cold disk may need many
WORKER = "cotkit.verify.symbolic_worker"
KEPT_ENVIRONMENT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")


class WorkerDied(Exception):
    """The process did not start, or ended without an answer."""


class Worker:
    """One process. `run` is called by one thread at a time."""

    def __init__(self, command: Sequence[str]):
        self.process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C in a notebook is not for it
            env=clean_environment(),
        )
        os.set_blocking(self.process.stdin.fileno(), False)
        self.unread = b""
        try:
            if self.line(time.monotonic() + START_SECONDS) != "ready":
                raise WorkerDied("it answered something else than ready")
        except (WorkerDied, TimeoutError, ValueError) as error:
            self.kill()
            raise WorkerDied(f"the checker process did not start: {error}") from None

    def run(self, pairs: Sequence[Pair], options: dict, seconds: float) -> Answered:
        """One outcome a pair, in order; those the clock cut off are (None, "timeout")."""
        outcomes: list[Outcome] = []
        started = time.monotonic()
        deadline = started + seconds
        try:
            self.send({"pairs": pairs, "options": options, "seconds": seconds}, deadline)
            while len(outcomes) < len(pairs):
                correct, reason = self.line(deadline)
                outcomes.append(Outcome(correct, "symbolic", reason))
        except TimeoutError:
            self.kill()
            missing = Outcome(None, "timeout", "the symbolic comparison did not end in time")
            outcomes += [missing] * (len(pairs) - len(outcomes))
        except (WorkerDied, OSError, ValueError) as error:
            self.kill()
            raise WorkerDied(f"the checker process died: {error}") from error
        return outcomes, time.monotonic() - started

    def send(self, job: dict, deadline: float) -> None:
        data = (json.dumps(job) + "\n").encode()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdin, selectors.EVENT_WRITE)
            while data:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                data = data[os.write(self.process.stdin.fileno(), data) :]

    def line(self, deadline: float):
        """The next JSON line; raises TimeoutError at the deadline, WorkerDied when the process is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError("no answer in time")
                chunk = os.read(self.process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise WorkerDied(f"it ended with code {self.process.wait()}")
                self.unread += chunk
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


def clean_environment() -> dict[str, str]:
    """No key of the user, and no module of the working directory, reaches the worker."""
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    home = pathlib.Path(cotkit.__file__).parents[1]
    if home.name not in ("site-packages", "dist-packages"):  # a source tree that may not be installed
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(home), kept.get("PYTHONPATH")]))
    return kept | {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


class WorkerPool:
    """Up to `size` workers, started as jobs come; thread-safe. `close` ends them and fails what is left."""

    def __init__(self, size: int | None = None, command: Sequence[str] | None = None):
        self.size = size or min(available_cores(), MOST_WORKERS)
        self.command = list(command or [sys.executable, "-P", "-m", WORKER])
        self.jobs: queue.SimpleQueue = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.workers: dict[int, Worker] = {}  # by dispatcher
        self.unfinished = 0
        self.closed = False

    def submit(self, pairs: Sequence[Pair], options: dict, seconds: float) -> Future[Answered]:
        """The outcomes in order, and the seconds of the clock they took (waiting in the queue is free)."""
        future: Future[Answered] = Future()
        with self.lock:
            if self.closed:
                raise RuntimeError("the checker's worker pool is closed")
            self.jobs.put((future, list(pairs), options, seconds))
            self.unfinished += 1
            if len(self.threads) < min(self.unfinished, self.size):
                slot = len(self.threads)
                thread = threading.Thread(
                    target=self._dispatch, args=(slot,), daemon=True, name="cotkit-checker"
                )
                self.threads.append(thread)
                thread.start()
        return future

    def _dispatch(self, slot: int) -> None:
        while (job := self.jobs.get()) is not None:
            future, pairs, options, seconds = job
            if future.set_running_or_notify_cancel():
                future.set_result(self._run(slot, pairs, options, seconds))
            with self.lock:
                self.unfinished -= 1
            with contextlib.suppress(WorkerDied, OSError):
                self._worker(slot)  # replaces one that was killed, so that the next job need not wait

    def _run(self, slot: int, pairs: list[Pair], options: dict, seconds: float) -> Answered:
        failure: Exception = WorkerDied("the pool is closed")
        for _ in range(2):  # a worker that died between two jobs is replaced once
            try:
                return self._worker(slot).run(pairs, options, seconds)
            except (WorkerDied, OSError) as error:
                failure = error
        return [Outcome(None, "error", str(failure))] * len(pairs), 0.0

    def _worker(self, slot: int) -> Worker:
        worker = self.workers.get(slot)
        if worker is None or not worker.alive:
            if self.closed:
                raise WorkerDied("the pool is closed")
            worker = self.workers[slot] = Worker(self.command)
            if self.closed:
                worker.kill()
                raise WorkerDied("the pool is closed")
        return worker

    def close(self) -> None:
        with self.lock:
            self.closed = True
            for _ in self.threads:
                self.jobs.put(None)
        for worker in list(self.workers.values()):
            worker.process.kill()
            worker.process.wait()

    def forget(self) -> None:
        """In a forked child: the workers belong to the parent, their pipes must not stay open here."""
        for worker in self.workers.values():
            worker.close_pipes()
            worker.process.returncode = 0  # not ours to wait for


_pool: WorkerPool | None = None
_pool_lock = threading.Lock()


def shared_pool() -> WorkerPool:
    """The process-wide pool; its workers start with the first job."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = WorkerPool()
            atexit.register(_pool.close)
        return _pool


def _after_fork_in_child() -> None:
    global _pool, _pool_lock
    _pool_lock = threading.Lock()
    if _pool is not None:
        _pool.forget()
        atexit.unregister(_pool.close)
        _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
