"""What hostile programs are after, set up outside, and the truth about whether they got it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import resource
import secrets
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time

from cotkit.verify.sandbox import ProgramResult, client

REAL_PACKAGES = sysconfig.get_path("purelib")
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", REAL_PACKAGES)
IPC_CREAT, IPC_RMID = 0o1000, 0


class World:
    """One for each attack: run `world.constants + code` inside `with World() as world`, ask `breaches`."""

    def __enter__(self) -> World:
        self.exit = contextlib.ExitStack()
        self.folder = pathlib.Path(self.exit.enter_context(tempfile.TemporaryDirectory(prefix="world-")))
        self.secret, self.mark = f"secret-{secrets.token_hex(16)}", f"mark-{secrets.token_hex(8)}"
        home, packages = self.folder / "home", self.folder / "site-packages"
        home.mkdir(mode=0o700)
        packages.mkdir()
        self.canary = home / "canary"
        self.canary.write_text(self.secret)
        self.canary.chmod(0o600)
        with contextlib.suppress(OSError):  # where the disk has such
            os.setxattr(self.canary, "user.note", self.secret.encode())
        self._open_now_and_then(home / f"name-{self.secret}")
        self.sockets = {
            "TCP": socket.create_server(("127.0.0.1", 0)),
            "UDP": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX),
            "unix datagram": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX),
        }
        places = {"unix": f"{self.folder}/stream", "unix datagram": f"{self.folder}/datagram"}
        places |= {"UDP": ("127.0.0.1", 0), "abstract": f"\0{self.mark}"}
        for kind, listener in self.sockets.items():
            self.exit.enter_context(listener)
            if kind in places:
                listener.bind(places[kind])
            if kind in ("unix", "abstract"):
                listener.listen()
            listener.setblocking(False)
        self.memory = ctypes.create_string_buffer(self.secret.encode(), 64)
        self.shared = self._shared_memory()
        self.victim = subprocess.Popen(["sleep", "600"])
        self.exit.callback(self.victim.wait)
        self.exit.callback(self.victim.kill)
        values = {
            "HOME": str(home),
            "CANARY": str(self.canary),
            "PACKAGES": str(packages),
            "REAL_PACKAGES": REAL_PACKAGES,
            "MARK": self.mark,
            "PORT": self.sockets["TCP"].getsockname()[1],
            "UDP_PORT": self.sockets["UDP"].getsockname()[1],
            "STREAM_PATH": places["unix"],
            "DATAGRAM_PATH": places["unix datagram"],
            "ABSTRACT": places["abstract"],
            "PARENT": os.getpid(),
            "VICTIM": self.victim.pid,
            "SECRET_ADDRESS": ctypes.addressof(self.memory),
            "SHARED_MEMORY": self.shared,
        }
        self.constants = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        self.before = self.state()
        return self

    def __exit__(self, *error) -> None:
        self.exit.close()

    def _open_now_and_then(self, path: pathlib.Path) -> None:
        """So that whoever watches the folder learns a name it does not know."""
        path.touch()
        stop = threading.Event()

        def keep_opening() -> None:
            while not stop.wait(0.01):
                path.read_bytes()

        thread = threading.Thread(target=keep_opening)
        thread.start()
        self.exit.callback(thread.join)
        self.exit.callback(stop.set)

    def _shared_memory(self) -> int:
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        number = libc.shmget(0, 4096, IPC_CREAT | 0o600)
        assert number >= 0
        address = libc.shmat(number, None, 0)
        ctypes.memmove(address, self.memory, len(self.memory))
        self.exit.callback(lambda: libc.shmctl(number, IPC_RMID, None))
        self.exit.callback(lambda: libc.shmdt(ctypes.c_void_p(address)))
        return number

    def state(self) -> dict:
        """Everything that must stay as it is."""
        files = {}
        for path in (self.folder, *self.folder.rglob("*")):
            about = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            owner = (about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns)
            files[str(path)] = (*owner, content, tuple(os.listxattr(path)))
        pids = (os.getpid(), self.victim.pid)
        return {
            "files": files,
            "limits": [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids],
            "priorities": [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids],
            "processors": [os.sched_getaffinity(pid) for pid in pids],
        }

    def breaches(self, result: ProgramResult) -> list[str]:
        """What the program got through to; [] when the walls held."""
        found = [f"a message arrived by {kind}" for kind in self.sockets if self._arrived(kind)]
        secrets_ = {"the secret was read": self.secret, "the user's environment was read": KEY}
        for breach, secret in secrets_.items():
            if secret in result.stdout or secret in result.stderr:
                found.append(breach)
        if "root:x:0" in result.stdout:
            found.append("the list of users was read")
        after = self.state() if self.canary.exists() else {}
        found += [f"{what} changed" for what in self.before if after.get(what) != self.before[what]]
        if self.victim.poll() is not None or process_state(self.victim.pid) in "TZ":
            found.append("another process was killed or stopped")
        marked = [path for folder in SHARED_FOLDERS for path in pathlib.Path(folder).glob(f"{self.mark}*")]
        for path in marked:
            found.append(f"a file was left: {path}")
            path.unlink()
        if len(result.stdout) + len(result.stderr) > 1 << 18:
            found.append("the output was not capped")
        return found

    def _arrived(self, kind: str) -> bool:
        listener = self.sockets[kind]
        with contextlib.suppress(BlockingIOError):
            if listener.type == socket.SOCK_DGRAM:
                return bool(listener.recv(64))
            listener.accept()[0].close()
            return True
        return False


KEY = f"key-{secrets.token_hex(16)}"
os.environ["COTKIT_TEST_KEY"] = KEY  # in the parent's environment before any server starts


def process_state(pid: int) -> str:
    """R, S, D, T (stopped), Z (dead)"""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def left_over() -> list[int]:
    """Processes of this process's sandbox servers other than these: monitors, programs, their children."""
    servers = {server.process.pid: server.folder.encode() for server in client._servers.values()}
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command, pid = path.read_bytes(), int(path.parent.name)
            if pid not in servers and any(folder in command for folder in servers.values()):
                found.append(pid)
    return found


def until(condition, seconds=20.0):
    """Waits for a state of the system, with a deadline that only a failure reaches."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)
    return found
