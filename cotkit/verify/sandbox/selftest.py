"""Which level this machine reaches: attacks on itself, judged from outside, before any program is run.

A level holds when a harmless program runs, and when of a hostile one nothing arrives at a listener, nothing
of a secret file is printed, the file and its folder stay as they were, no process is left, and the limits on
time, memory, output and disk stop what exceeds them. What does not hold lowers the level and is named.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator

from .job import Job
from .records import Isolation
from .syscalls import MACHINES

Call = Callable[[Job, str], dict]  # a job and the level to run it at -> the answer

PATIENCE_S = 60.0  # on a machine that is busy, slow is no weakness
HARMLESS = "import json, random, tempfile; print('runs')"
HOSTILE = """
import ctypes, os, socket, time
def attempt(attack):
    try:
        attack()
    except BaseException:
        pass
def linger():
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, {name!r}.encode())  # PR_SET_NAME
        os.setsid()
        time.sleep(60)
        os._exit(0)
attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1))
attempt(lambda: socket.socket(socket.AF_UNIX).connect({path!r}))
attempt(lambda: print(open({canary!r}).read()))
attempt(lambda: open({canary!r}, "a").write("x"))
attempt(lambda: os.chmod({canary!r}, 0o777))
attempt(lambda: open({canary!r} + ".new", "w"))
attempt(linger)
print("done")
"""
TAKE_MEMORY = """
import resource
try:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
except (OSError, ValueError):
    pass
block = bytearray(300 << 20)
"""
LIMITS = {  # what must come back: status, program, options
    "time": ("timeout", "while True: pass", {"timeout": 0.1}),
    "memory": ("memory", TAKE_MEMORY, {"memory_mb": 256}),
    "output": ("output_limit", "while True: print('x' * 65536)", {}),
    "disk": ("disk", "for i in range(8): open(str(i), 'wb').write(bytes(8 << 20))", {}),
}


def find_level(call: Call) -> Isolation:
    """The highest level that holds, and what was missing for a higher one."""
    missing: list[str] = []
    if sys.platform != "linux":
        missing.append(f"{platform.system()} has no walls cotkit knows")
    elif platform.machine() not in MACHINES:
        missing.append(f"no table of system calls for {platform.machine()} processors")
    for level in () if missing else ("L3", "L2"):
        try:
            faults = [f"{level}: {fault}" for fault in weaknesses(level, call)]
        except OSError as error:
            faults = [f"{level}: the self-test could not be made: {error}"]
        if not faults:
            return Isolation(level=level, missing=tuple(missing))
        missing += faults
    return Isolation(level="L1" if os.name == "posix" else "L0", missing=tuple(missing))


def weaknesses(level: str, call: Call) -> Iterator[str]:
    def run(code: str, **options) -> dict:
        return call(Job(code, **{"timeout": PATIENCE_S, **options}), level)

    answer = run(HARMLESS)
    if answer["status"] != "ok" or answer["stdout"] != "runs\n":
        yield f"a harmless program ended as {answer['status']}: {answer['detail']}"
        return
    yield from leaks(run)
    for resource, (status, code, options) in LIMITS.items():
        answer = run(code, **options)
        if answer["status"] != status:
            yield f"the limit on {resource} does not hold ({answer['status']}: {answer['detail']})"


def leaks(run: Callable[[str], dict]) -> Iterator[str]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cotkit-sandbox-test-"))
    canary, secret, name = folder / "canary", secrets.token_hex(16), secrets.token_hex(6)

    def state() -> tuple:
        about = canary.stat()
        names = sorted(entry.name for entry in folder.iterdir())
        return canary.read_text(), about.st_mode, about.st_mtime_ns, names

    try:
        canary.write_text(secret)
        canary.chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
            path = str(folder / "socket")
            local.bind(path)
            local.listen()
            before = state()
            port = tcp.getsockname()[1]
            answer = run(HOSTILE.format(name=name, port=port, path=path, canary=str(canary)))
            for kind, listener in (("TCP", tcp), ("a unix socket", local)):
                if arrived(listener):
                    yield f"a connection arrived by {kind}"
        if secret in answer["stdout"]:
            yield "a file outside was read"
        elif answer["stdout"] != "done\n":
            yield f"the probe ended as {answer['status']}: {answer['detail']}"
        if state() != before:
            yield "a file outside was made or changed"
        if survivors := processes_named(name):
            yield "a process was left behind"
            for pid in survivors:
                os.kill(pid, signal.SIGKILL)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def arrived(listener: socket.socket) -> bool:
    listener.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        listener.accept()[0].close()
        return True
    return False


def processes_named(name: str) -> list[int]:
    found = []
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().strip() == name:
                found.append(int(comm.parent.name))
    return found
