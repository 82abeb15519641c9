"""Running foreign Python: `run_python` in a cell, `arun_python` in a coroutine, `run_programs` for many.

    isolation() by selftest.py, once -> L3, L2: client.py -> server.py -> jail.py, runner.py
                                     -> L1, L0: cold.py, only when allowed

Every call gives a ProgramResult, whatever the program does; only wrong arguments and a machine that is too
weak raise. docs/sandbox.md says what each level enforces and what it does not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cotkit.cores import available_cores
from cotkit.executors import in_chunks

from . import cold
from .cancel import Cancellation
from .job import MOST_TEXT, PACKAGES, Job
from .records import PROMISES, Isolation, ProgramResult, SandboxTooWeak
from .selftest import find_level

CHUNK = 32  # programs that are sent to an executor together

_isolation: Isolation | None = None
_lock = threading.Lock()
# They start when first used.
_threads = ThreadPoolExecutor(available_cores(), thread_name_prefix="cotkit-sandbox")


def run_python(
    code: str,
    timeout: float = 10.0,
    memory_mb: int = 1024,
    *,
    stdin: str = "",
    seed: int = 0,
    hash_seed: int = 0,
    date: str | None = None,
    packages: Sequence[str] = PACKAGES,
    allow_weak_isolation: bool = False,
) -> ProgramResult:
    """Runs a program in the sandbox and waits; safe in any thread, an interrupt kills the program.

    timeout: seconds on the wall from the start of its process; waiting for a start is free.
    memory_mb: address space in MiB, including about 150 for Python, numpy and sympy.
    seed: of `random`, `numpy.random` and sympy; hash_seed: PYTHONHASHSEED, fixed so that set order is too.
    date: the day it is for the program, YYYY-MM-DD, from noon on; what is moved and what not: clock.py.
    packages: imported before the program starts, so that importing them costs it nothing. For each
        combination of hash_seed and packages a server process is started and kept, three at most.
    allow_weak_isolation: run also where the program could read files and use the network.

    A program inside one Markdown fence is taken out of it. Raises SandboxTooWeak below level L2, ValueError
    or TypeError for wrong arguments, and nothing else: what the program does is in the result's `status`.
    """
    job = Job(code, timeout, memory_mb, stdin, seed, hash_seed, date, packages, allow_weak_isolation)
    return run_job(job, level_for(job), Cancellation())


async def arun_python(code: str, timeout: float = 10.0, memory_mb: int = 1024, **options) -> ProgramResult:
    """`run_python` for any event loop, as many at once as there are cores. Cancelling kills the program."""
    job, cancellation = Job(code, timeout, memory_mb, **options), Cancellation()

    def work() -> ProgramResult:
        return run_job(job, level_for(job), cancellation)

    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, work)
    except asyncio.CancelledError:
        cancellation.cancel()
        raise


def run_programs(
    programs: Iterable[str | dict], workers: int | None = None, *, executor: Any = None, **options
) -> list[ProgramResult]:
    """Many programs, `workers` at once (default: one a core); results in the order of the programs.

    executor: where they run, in chunks: anything with concurrent.futures' `submit`, such as a Dask cluster's
        `Client.get_executor()`; `workers` then counts in each of its processes. None = on this machine.

    A program is its code, or a dict of `run_python`'s arguments that go before `options`. All arguments are
    checked before the first program runs.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number of at least 1, got {workers!r}")
    programs = list(programs)
    jobs = [Job(**options | (item if isinstance(item, dict) else {"code": item})) for item in programs]
    if executor is not None:
        return in_chunks(executor, run_programs, programs, CHUNK, workers=workers, **options)
    levels = [level_for(job) for job in jobs]
    cancellation = Cancellation()
    with ThreadPoolExecutor(workers or available_cores(), thread_name_prefix="cotkit-sandbox") as pool:
        try:
            return list(pool.map(run_job, jobs, levels, [cancellation] * len(jobs)))
        except BaseException:  # an interrupt: end what runs, start nothing more
            cancellation.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def isolation() -> Isolation:
    """The level this machine reaches, found once a process by attacks on itself."""
    return _found_by(Job(""))


def _found_by(first: Job) -> Isolation:
    """Attacks go to the server that the first job needs, so that no other is started for them."""
    global _isolation

    def attack(job: Job, level: str) -> dict:
        job = dataclasses.replace(job, hash_seed=first.hash_seed, packages=first.packages)
        return in_walls(job, level, Cancellation())

    with _lock:
        if _isolation is None:
            _isolation = find_level(attack)
        return _isolation


def level_for(job: Job) -> str:
    found = _found_by(job)
    if found.weak and not job.allow_weak_isolation:
        raise SandboxTooWeak(
            f"this machine reaches isolation {found.level} only: a program could read your files and use the"
            f" network. Missing: {'; '.join(found.missing)}. docs/sandbox.md says what gives a machine L2 or"
            " L3. To run programs you trust anyway, pass allow_weak_isolation=True (cotkit audit:"
            " --allow-weak-isolation)."
        )
    return found.level


def run_job(job: Job, level: str, cancellation: Cancellation) -> ProgramResult:
    promises = dict(PROMISES[level])
    if len(job.code) > MOST_TEXT:
        answer = {"status": "error", "detail": f"the program has more than {MOST_TEXT:,} characters"}
    elif level in ("L3", "L2"):
        answer = in_walls(job, level, cancellation)
    else:
        answer = without_walls(job, level, cancellation)
        if answer.pop("no_memory_limit", False):
            promises["memory"] = "none"
    return ProgramResult(**answer, isolation=level, enforced=promises, seed=job.seed, hash_seed=job.hash_seed)


def in_walls(job: Job, level: str, cancellation: Cancellation) -> dict:
    from . import client  # only Linux has what it imports

    try:
        return client.call(job.wire(level), job.packages, cancellation)
    except (client.ServerFailed, OSError) as error:
        return {"status": "setup_failed", "detail": str(error)}


def without_walls(job: Job, level: str, cancellation: Cancellation) -> dict:
    try:
        return cold.run(job.wire(level), cancellation)
    except OSError as error:
        return {"status": "setup_failed", "detail": str(error)}


def _after_fork_in_child() -> None:
    global _lock, _threads
    _lock, _threads = threading.Lock(), ThreadPoolExecutor(available_cores())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
