"""Levels L1 and L0: a fresh Python with limits but no walls, for machines that have nothing better.

A clean environment, an own session, the resource limits the system has, capped output, a wall clock, and
the death of the process group (Windows: of the process tree, by `taskkill /T`). Such a program may read the
user's files, use the network, and leave a process behind that made itself a session: only for trusted code.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO

from .cancel import Cancellation
from .launch import command, start_environment
from .outcome import MOST_OUTPUT, Stream, answer, cpu_limit, explain, flooded
from .runner import run_as_main

JOIN_S = 1.0  # a process left behind may hold a pipe: its reader is given up


def run(job: dict, cancellation: Cancellation) -> dict:
    """The same answer a monitor gives, and under `no_memory_limit` whether the system refused that limit."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cotkit-sandbox-"))
    try:
        (folder / "box").mkdir()
        (folder / "stdin").write_text(job["stdin"], encoding="utf-8", errors="surrogatepass", newline="")
        (folder / "job.json").write_text(json.dumps(job), encoding="ascii")
        started = time.monotonic()
        with open(folder / "stdin", "rb") as stdin:
            process = subprocess.Popen(
                command("cold", str(folder)),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder / "box",
                env=start_environment(job["hash_seed"]),
                start_new_session=True,
            )
        return watch(process, job, started, cancellation) | proof(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def watch(process: subprocess.Popen, job: dict, started: float, cancellation: Cancellation) -> dict:
    streams = {"stdout": Stream(), "stderr": Stream()}
    readers = [
        threading.Thread(target=drain, args=(getattr(process, name), stream), daemon=True)
        for name, stream in streams.items()
    ]
    for reader in readers:
        reader.start()
    reason = None
    while reason is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            break
        if time.monotonic() - started > job["timeout"]:
            reason = ("timeout", f"it ran longer than {job['timeout']:g} s")
        elif cancellation.cancelled:
            reason = ("killed", "cancelled")
        else:
            reason = flooded(streams)
    kill_group(process)
    exit_code = process.wait()
    seconds = time.monotonic() - started
    for reader in readers:
        reader.join(JOIN_S)
    reason = reason or flooded(streams) or explain(exit_code, 0.0, cpu_limit(job["timeout"]))
    return answer(reason, exit_code, streams, seconds)


def drain(pipe: IO[bytes], stream: Stream) -> None:
    with contextlib.suppress(OSError, ValueError), pipe:
        while stream.total <= MOST_OUTPUT and (chunk := pipe.read1(1 << 16)):
            stream.add(chunk)


def kill_group(process: subprocess.Popen) -> None:
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        process.kill()


def proof(folder: pathlib.Path) -> dict:
    """The job's file goes away right before the first foreign line, so its presence is a failed set-up."""
    if (folder / "job.json").exists():
        return {"status": "setup_failed", "detail": "a fresh Python did not start"}
    return {"no_memory_limit": (folder / "no_memory_limit").exists()}


def main(arguments: list[str]) -> None:
    """In the fresh Python."""
    folder = pathlib.Path(arguments[0])
    job = json.loads((folder / "job.json").read_bytes())
    if not limit_itself(job):
        (folder / "no_memory_limit").touch()
    os.environ.update({name: str(folder / "box") for name in ("HOME", "TMPDIR", "TMP", "MPLCONFIGDIR")})
    (folder / "job.json").unlink()
    run_as_main(job)


def limit_itself(job: dict) -> bool:
    """Whether the memory limit was taken: macOS may refuse it, Windows has none."""
    with contextlib.suppress(ImportError):
        import resource

        cpu = cpu_limit(job["timeout"])
        for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu)):
            resource.setrlimit(limit, (value, value))
        with contextlib.suppress(OSError, ValueError):
            memory = job["memory_mb"] << 20
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            return True
    return False
