"""The fork-server: a process that has imported the packages once and forks for every program.

    notebook --(control socket: one connection a program)--> server --fork--> monitor --fork--> program

The server only forks. The monitor reads the job, makes the program's process, watches its output, clock and
appetite, kills it, and answers. The program's process puts up its walls (jail.py), proves over a pipe that it
did, closes that pipe and only then runs the first foreign line. However the notebook ends, its ends of the
sockets close, and then everything here ends. This file runs with an empty environment and imports nothing of
cotkit but its neighbours in this folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import secrets
import select
import signal
import socket
import struct
import sys
import tempfile
import time

from . import jail
from .launch import environment
from .outcome import Reason, Stream, answer, cpu_limit, explain, flooded
from .runner import run_as_main

BOX_MB, FILE_MB, MOST_FILES = 32, 8, 4096
MOST_DESCRIPTORS, MOST_THREADS = 64, 256
TICK_S = 0.05

SYSTEM = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/zero", "/dev/urandom"]
MACHINE = ["/sys/devices/system/cpu", "/proc/cpuinfo", "/proc/meminfo"]


def readable() -> list[str]:
    """What a program may read: the system's libraries and this Python's, no home folder, no /etc."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix))
    python = [os.path.join(prefix, folder) for prefix in prefixes for folder in ("lib", "lib64")]
    return SYSTEM + MACHINE + python


def main(arguments: list[str]) -> None:
    """Serves until the control socket closes. Arguments: its descriptor, the folder for boxes, packages."""
    control = socket.socket(fileno=int(arguments[0]))
    folder, packages = arguments[1], arguments[2:]
    for name in packages:
        preload(name)
    sys.stdout.flush()  # what an import printed must not be in the buffer of every fork
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # monitors are not waited for
    with contextlib.suppress(ConnectionError):  # the notebook has gone
        serve(control, folder)
    with contextlib.suppress(ChildProcessError):  # with SIGCHLD ignored this returns when all monitors ended
        os.wait()
    remove(folder)


def serve(control: socket.socket, folder: str) -> None:
    control.sendall(b"+")
    while True:
        _, descriptors, *_ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            return
        with contextlib.suppress(OSError):  # no process to be had: the notebook sees its connection close
            if os.fork() == 0:
                control.close()
                monitor(socket.socket(fileno=descriptors[0]), folder)
        os.close(descriptors[0])


def preload(name: str) -> None:
    """Imports a package. When that fails, the programs that need it will say so themselves."""
    with contextlib.suppress(Exception):
        module = importlib.import_module(name)
        if name == "numpy":
            importlib.import_module("numpy.random")  # lazy in numpy 2; unseeded when imported by the program
        if name == "sympy":  # fills caches: symbolic programs run several times faster
            x = module.Symbol("x")
            module.integrate(x * module.sin(x), x)
            module.solve(x**2 - 3 * x + 2, x)
            module.simplify(module.sin(x) ** 2 + module.cos(x) ** 2)
            module.limit(module.sin(x) / x, x, 0)
            module.Matrix([[1, x], [x, 1]]).det()
            module.nsolve(x**2 - 2, x, 1)


def send(connection: socket.socket, message: dict) -> None:
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("!Q", len(data)) + data)


def receive(connection: socket.socket) -> dict | None:
    """The next message; None when the other end has gone."""
    with connection.makefile("rb") as stream:
        head = stream.read(8)
        size = struct.unpack("!Q", head)[0] if len(head) == 8 else 0
        data = stream.read(size)
    return json.loads(data) if data and len(data) == size else None


def monitor(connection: socket.socket, folder: str) -> None:
    """One program from its job to its answer; never returns."""
    try:
        jail.die_with_parent()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if (job := receive(connection)) is not None:
            send(connection, run(job, folder, connection))
    except Exception as error:  # noqa: BLE001 - the notebook is told, whatever it was
        with contextlib.suppress(OSError):
            send(connection, {"status": "setup_failed", "detail": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def run(job: dict, folder: str, connection: socket.socket) -> dict:
    alone = job["level"] == "L3"
    if alone:
        box = os.path.join(folder, "box")  # a mount point cannot be removed from inside: one for all runs
        jail.enter_namespaces()
    else:
        box = tempfile.mkdtemp(dir=folder)
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "ready")}
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            program(job, box, *(pipes[name][1] for name in pipes))
        finally:
            os._exit(255)
    for _, write in pipes.values():
        os.close(write)
    try:
        watch = Watch(pid, {name: read for name, (read, _) in pipes.items()}, None if alone else box)
        return watch.until_it_ends(started, job["timeout"], connection)
    finally:
        if not alone:
            remove(box)


def program(job: dict, box: str, out: int, err: int, ready: int) -> None:
    """In the program's process: walls first, in this order, then the program."""
    proof = ready
    try:
        jail.die_with_parent()
        os.setsid()
        for old, new in ((text_file(job["stdin"]), 0), (out, 1), (err, 2), (ready, 3)):
            os.dup2(old, new)
        proof = 3
        os.closerange(4, 1024)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # when the machine runs out of memory, this process goes first
        if job["level"] == "L3":
            jail.mount_private_tmpfs(box, BOX_MB, MOST_FILES)
        os.chdir(box)
        os.environ.clear()
        os.environ.update(environment(box, job["hash_seed"]))
        for limit, value in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, cpu_limit(job["timeout"])),
            (resource.RLIMIT_AS, job["memory_mb"] << 20),
            (resource.RLIMIT_FSIZE, FILE_MB << 20),
            (resource.RLIMIT_NOFILE, MOST_DESCRIPTORS),
        ):
            resource.setrlimit(limit, (value, value))
        jail.restrict_files(readable(), box)
        jail.drop_capabilities()
        jail.restrict_calls()
        os.write(proof, b"+")  # a broken pipe when the monitor died before it could be noticed
    except Exception as error:  # noqa: BLE001
        os.write(proof, str(error).encode())
        os._exit(1)
    os.close(proof)
    run_as_main(job)


def text_file(text: str) -> int:
    """A descriptor to read `text` from, sealed against writing."""
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor


class Watch:
    """The monitor's eyes on one process: reads its pipes, and kills it for the first reason found."""

    def __init__(self, pid: int, pipes: dict[str, int], box: str | None):
        self.pid, self.box = pid, box  # box: None when the kernel limits its size
        self.names = {descriptor: name for name, descriptor in pipes.items()}
        self.streams = {name: Stream() for name in pipes}
        self.alive = os.pidfd_open(pid)
        self.next_look = 0.0

    def until_it_ends(self, started: float, timeout: float, connection: socket.socket) -> dict:
        poller = select.poll()
        for descriptor in (*self.names, self.alive, connection.fileno()):
            poller.register(descriptor, select.POLLIN)
        for descriptor in self.names:
            os.set_blocking(descriptor, False)
        reason, ended = None, False
        while not (reason or ended):
            left = started + timeout - time.monotonic()
            if left <= 0:
                reason = ("timeout", f"it ran longer than {timeout:g} s")
                break
            for descriptor, _ in poller.poll(1000 * min(left, TICK_S)):
                if descriptor == self.alive:
                    ended = True
                elif descriptor not in self.names:
                    reason = ("killed", "cancelled")
                elif not self.read(descriptor):
                    poller.unregister(descriptor)
            reason = reason or self.breach()
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
        _, how, usage = os.wait4(self.pid, 0)
        seconds = time.monotonic() - started
        for descriptor in self.names:
            while self.read(descriptor):
                pass
        self.next_look = 0.0
        return self.answer(reason or self.breach(), how, usage, timeout, seconds)

    def read(self, descriptor: int) -> bool:
        """One chunk; False when there is none now, or never again."""
        try:
            chunk = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        self.streams[self.names[descriptor]].add(chunk)
        return bool(chunk)

    def breach(self) -> Reason | None:
        """Why the program must end: it took more than its share."""
        if (flood := flooded(self.streams)) or time.monotonic() < self.next_look:
            return flood
        self.next_look = time.monotonic() + TICK_S
        with contextlib.suppress(OSError):  # it may be gone already
            if os.stat(f"/proc/{self.pid}/task").st_nlink - 2 > MOST_THREADS:
                return "killed", f"it started more than {MOST_THREADS} threads"
        if self.box and (found := disk_use(self.box, self.pid)):
            return "disk", found
        return None

    def answer(self, reason: Reason | None, how: int, usage, timeout: float, seconds: float) -> dict:
        exit_code = os.waitstatus_to_exitcode(how)
        cpu = usage.ru_utime + usage.ru_stime
        proof = bytes(self.streams["ready"].data)
        if proof != b"+":
            reason = ("setup_failed", proof.decode("utf-8", "replace") or "the walls were not up in time")
        elif reason is None:
            reason = explain(exit_code, cpu, cpu_limit(timeout))
        cost = {"cpu_seconds": cpu, "max_rss_mb": usage.ru_maxrss / 1024}
        return answer(reason, exit_code, self.streams, seconds) | cost


def disk_use(box: str, pid: int) -> str:
    """What is wrong with the box of a running program, "" when nothing: for L2, where no kernel limit is."""
    total, files, folders = removed_but_open(pid), 0, [box]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if files > MOST_FILES:
                        return f"it made more than {MOST_FILES} files"
        except FileNotFoundError:
            continue  # removed while we looked
        except OSError as error:  # a folder made unreadable, or a path longer than the kernel takes
            return f"it hid files in its folder ({error.strerror})"
    return f"it wrote more than {BOX_MB} MiB" if total > BOX_MB << 20 else ""


def removed_but_open(pid: int) -> int:
    """Bytes of files without a name that a process still has open."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:  # or it has ended
        for descriptor in descriptors:
            about = os.stat(descriptor.path)
            total += about.st_blocks * 512 if about.st_nlink == 0 else 0
    return total


def remove(folder: str) -> None:
    """Removes a folder a program has left, however deep and whatever its modes: lifts what is below, level
    by level, so that no path grows and nothing recurses. No program runs in it any more.
    """
    unique, lifted = secrets.token_hex(8), 0
    with contextlib.suppress(OSError):
        while entries := list(os.scandir(folder)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                for inner in os.listdir(entry.path):
                    path = os.path.join(entry.path, inner)
                    if os.path.isdir(path) and not os.path.islink(path):
                        os.chmod(path, 0o700)
                    lifted += 1
                    os.rename(path, os.path.join(folder, f"{unique}.{lifted}"))
                os.rmdir(entry.path)
        os.rmdir(folder)
