"""The notebook's end of the fork-server: starts it, sends it jobs, ends it.

One server for each hash seed and set of packages, started when first asked for, at most `MOST_SERVERS` alive.
A job travels on a socket of its own, so any number of threads may wait at once, and closing that socket
(an interrupt, a cancelled task, a dead kernel) kills the program. A forked child of the notebook forgets the
servers of its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from .cancel import Cancellation
from .launch import command, start_environment
from .server import receive, remove, send

MOST_SERVERS = 3
START_S, GRACE_S, CLOSE_S = 60.0, 30.0, 1.0


class ServerFailed(Exception):
    """The fork-server did not start, or ended."""


class Server:
    """One fork-server. `call` may be used by any number of threads."""

    def __init__(self, hash_seed: int, packages: Sequence[str]):
        self.folder = tempfile.mkdtemp(prefix="cotkit-sandbox-")
        os.mkdir(os.path.join(self.folder, "box"))
        self.control, theirs = socket.socketpair()
        self.lock = threading.Lock()
        self.waiting = 0  # calls
        self.process: subprocess.Popen | None = None
        try:
            with theirs:
                self.process = subprocess.Popen(
                    command("server", str(theirs.fileno()), self.folder, *packages),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=start_environment(hash_seed),
                    start_new_session=True,  # Ctrl-C in a notebook is not for it
                )
            self.control.settimeout(START_S)
            if not self.control.recv(1):
                raise OSError(f"it ended before it was ready (packages: {', '.join(packages) or 'none'})")
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise ServerFailed(f"the sandbox's server did not start: {error}") from None
            raise

    def call(self, job: dict, cancellation: Cancellation) -> dict:
        """The monitor's answer. Raises ServerFailed when the server is not there any more."""
        ours, theirs = socket.socketpair()

        def stop() -> None:  # wakes the wait below, and tells the monitor
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)

        with ours, cancellation.stopping_by(stop):
            with theirs:
                try:
                    with self.lock:
                        socket.send_fds(self.control, [b"+"], [theirs.fileno()])
                except OSError as error:
                    raise ServerFailed(f"the sandbox's server has ended: {error}") from None
            ours.settimeout(job["timeout"] + GRACE_S)
            try:
                send(ours, job)
                answer = receive(ours)
            except OSError as error:
                answer, reason = None, str(error)
            else:
                reason = "the process that watches the program ended"
        if cancellation.cancelled:
            return {"status": "killed", "detail": "cancelled"}
        return answer or {"status": "setup_failed", "detail": f"no answer from the sandbox: {reason}"}

    def close(self) -> None:
        self.control.close()  # the server ends when it sees this and its programs have ended
        if self.process:
            try:
                self.process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()  # its monitors die with it, and the programs with them
                self.process.wait()
        remove(self.folder)

    def forget(self) -> None:
        """In a forked child: the server belongs to the parent."""
        self.control.close()
        self.process.returncode = 0


_servers: dict[tuple, Server] = {}  # the one used last comes last
_lock = threading.Lock()


def call(job: dict, packages: Sequence[str], cancellation: Cancellation) -> dict:
    """The answer to a job, from the server it needs; a server that has died is replaced once.

    Raises ServerFailed when no server can be started.
    """
    key = (job["hash_seed"], tuple(packages))
    for last in (False, True):
        with _lock:
            server = _servers.pop(key, None) or Server(*key)
            _servers[key] = server
            server.waiting += 1
            idle = [other for other in _servers if not _servers[other].waiting]
            surplus = [_servers.pop(other) for other in idle[: max(0, len(_servers) - MOST_SERVERS)]]
        for other in surplus:
            other.close()
        try:
            return server.call(job, cancellation)
        except ServerFailed:
            with _lock:
                if _servers.get(key) is server:
                    del _servers[key]
            server.close()
            if last:
                raise
        finally:
            with _lock:
                server.waiting -= 1
    raise AssertionError("unreachable")


def close_servers() -> None:
    """Ends every server of this process; the next program starts one anew."""
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
    for server in servers:
        server.close()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        server.forget()
    _servers.clear()


atexit.register(close_servers)
os.register_at_fork(after_in_child=_after_fork_in_child)
