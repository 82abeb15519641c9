"""The process of an embedded model: llama.cpp's server on 127.0.0.1, which ends when its last user is gone.

`cotkit.chat.embedded` starts it as `python -m cotkit.chat.embedded_server FOLDER`. The folder is all that the
server and its users share:

    settings.json  what to serve: weights, adapter, threads, slots, context
    state.json     the server's pid, start time and port; there while it answers
    users/         one empty file a process that uses the server, `<pid>-<start time>`
    lock           held by whoever starts, joins or ends the server
    server.log     what llama.cpp has to say
    ../key         the key each request must carry, one for all servers of a person on a machine

Every second the server looks whether its users still run, so a kernel that was killed frees it too. Files
are readable by their owner only; the key is in no argument, environment variable or log of the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

WATCH_S = 1.0
PROMPT_CACHE_MIB = 256  # prefixes kept when a slot turns to another prompt (generator, judge, generator ...)


def birth(pid: int) -> str | None:
    """When a process started, in ticks or words that only serve to compare; None = it does not run.

    A pid is used again after its process ended; pid and start time together are not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() else _birth_by_ps(pid)
    fields = stat.rpartition(")")[2].split()  # the name before ")" may hold anything
    return None if fields[0] in "ZX" else fields[19]  # proc(5): state is field 3, starttime 22


def _birth_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, *started = subprocess.run(command, capture_output=True, text=True).stdout.split() or ["Z"]
    return None if state[0] in "ZX" else "".join(filter(str.isalnum, "".join(started)))


class ServerFolder:
    def __init__(self, folder: Path):
        import filelock

        self.folder = folder
        self.users_folder = folder / "users"
        self.users_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.lock = filelock.FileLock(folder / "lock", mode=0o600)
        self.log = folder / "server.log"

    def join(self, pid: int) -> None:
        (self.users_folder / f"{pid}-{birth(pid)}").touch(mode=0o600)

    def leave(self, pid: int) -> None:
        for file in self.users_folder.glob(f"{pid}-*"):
            file.unlink(missing_ok=True)

    def users(self) -> list[int]:
        """The processes that use the server; the files of those that ended are removed."""
        running = []
        for file in self.users_folder.glob("*-*"):
            pid, _, started = file.name.partition("-")
            if birth(int(pid)) == started:
                running.append(int(pid))
            else:
                file.unlink(missing_ok=True)
        return running

    def write(self, name: str, content: dict) -> None:
        """Whole or not at all, readable by the owner only."""
        part = self.folder / f"{name}.part"
        part.touch(mode=0o600)
        part.write_text(json.dumps(content))
        part.replace(self.folder / name)

    def state(self) -> dict | None:
        """The state of a server that runs; what one left behind that was killed is removed."""
        file = self.folder / "state.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # none, or another version's
            state = json.loads(file.read_text())
            if birth(state["pid"]) == state["started"]:
                return state
        file.unlink(missing_ok=True)
        return None

    def key(self) -> str:
        """The key of this person's servers on this machine, made when it is first asked for."""
        file = self.folder.parent / "key"
        if not file.exists():
            part = self.folder / f"key.{os.getpid()}.{threading.get_ident()}"
            part.touch(mode=0o600)
            part.write_text(secrets.token_urlsafe(32))
            with contextlib.suppress(FileExistsError):
                os.link(part, file)  # of several at once one succeeds, and the file is never half there
            part.unlink()
        return file.read_text()


def start_server(settings: dict, key: str):
    """llama.cpp's server, loaded and listening on a free port of 127.0.0.1."""
    # OpenMP workers spin at barriers by default: two threads on a busy machine then stall each other.
    os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["weights"]
    params.model_alias = {settings["name"]}
    if settings["adapter"]:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(settings["adapter"], 1.0)]
    params.port = 0
    params.api_keys = [key]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["ctx"] * settings["parallel"]  # the total over the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.offline, params.ui, params.fit_params = True, False, False
    params.verbosity = 1  # errors only: no prompts in the log
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:  # llama.cpp has written why
        sys.exit(f"llama.cpp did not start: {error}")


def wait_for_the_last_user(place: ServerFolder) -> None:
    """Returns with the lock held, so that nobody joins a server that is about to end."""
    import filelock

    while True:
        if not place.users():
            with contextlib.suppress(filelock.Timeout, FileNotFoundError):  # no folder: nobody can join
                place.lock.acquire(timeout=0)
                if not place.users():
                    return
                place.lock.release()
        time.sleep(WATCH_S)


def main(folder: str) -> None:
    place = ServerFolder(Path(folder))
    settings = json.loads((place.folder / "settings.json").read_text())
    signal.signal(signal.SIGTERM, lambda *_: end(place, 0))
    server = start_server(settings, place.key())
    try:
        me = os.getpid()
        port = int(server.listening_address.rpartition(":")[2])
        place.write("state.json", {"pid": me, "started": birth(me), "port": port})
        wait_for_the_last_user(place)
    except OSError:  # the disk is full, or somebody cleared the cache
        traceback.print_exc()
        end(place, 1)
    end(place, 0)


def end(place: ServerFolder, code: int) -> None:
    (place.folder / "state.json").unlink(missing_ok=True)
    os._exit(code)  # a clean exit would wait for the threads of llama.cpp, which never end


if __name__ == "__main__":
    main(sys.argv[1])
