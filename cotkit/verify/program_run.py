"""One program in a process of its own: what `audit` uses until it is given a runner. NOT a sandbox.

It bounds time, output and memory and kills everything the program started; the environment is clean. It does
not keep the program from files or the network: only audit programs that you would run yourself.
To be replaced by the sandbox.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import tempfile
import time

from cotkit.verify.moved_clock import on_day

OUTPUT_LIMIT = 1_000_000  # bytes of each stream
MEMORY_LIMIT = 4 << 30  # bytes of address space
LIMITS = f"""try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_LIMIT}, {MEMORY_LIMIT}))
except (ImportError, ValueError, OSError):
    pass
"""


def run_program(
    code: str,
    hash_seed: int = 0,
    fake_date: str = "2025-06-18",
    *,
    timeout: float = 20.0,
    python: str = sys.executable,
) -> tuple[str, str, str]:
    """(status, stdout, stderr) of `code`; status is ok, error, timeout or output_limit.

    `fake_date` (YYYY-MM-DD) is the program's today. `timeout` in seconds.
    """
    with tempfile.TemporaryDirectory(prefix="cotkit-program-") as folder:
        path = pathlib.Path(folder, "program.py")
        path.write_text(LIMITS + on_day(code, fake_date), encoding="utf-8", errors="surrogatepass")
        # -I would ignore PYTHONHASHSEED: it implies -E
        process = subprocess.Popen(
            [python, "-s", "-P", "-B", str(path)],
            cwd=folder,
            env=_environment(folder, hash_seed),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            status, streams = _watch(process, time.monotonic() + timeout)
        finally:
            _end(process)
    stdout, stderr = (stream.decode("utf-8", "replace") for stream in streams)
    return status or ("ok" if process.returncode == 0 else "error"), stdout, stderr


def _environment(folder: str, hash_seed: int) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": folder,
    }


def _watch(process: subprocess.Popen, deadline: float) -> tuple[str, tuple[bytes, bytes]]:
    """Read both streams until the program ends, the time is up or it has printed too much.

    The end of the process counts, not the end of its pipes: a grandchild may hold those open.
    """
    read = {process.stdout: bytearray(), process.stderr: bytearray()}
    status = ""
    with selectors.DefaultSelector() as selector:
        for stream in read:
            selector.register(stream, selectors.EVENT_READ)
        while not status and (selector.get_map() or process.poll() is None):
            ended = process.poll() is not None
            ready = selector.select(0 if ended else min(0.05, max(0.0, deadline - time.monotonic())))
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                read[key.fileobj] += chunk
                if not chunk:
                    selector.unregister(key.fileobj)
            if max(map(len, read.values())) > OUTPUT_LIMIT:
                status = "output_limit"
            elif ended and not ready:
                break
            elif time.monotonic() > deadline:
                status = "timeout"
    return status, tuple(bytes(text[:OUTPUT_LIMIT]) for text in read.values())


def _end(process: subprocess.Popen) -> None:
    """Kill the whole group, also after a normal end: it may have left children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
