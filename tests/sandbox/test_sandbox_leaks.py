"""Nothing stays behind: not after hundreds of programs, not after a death of any process in the chain."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
from world import left_over, until

from cotkit import run_programs, run_python
from cotkit.verify.sandbox import client

SLEEPY = "print('up'); import time; time.sleep(60)"
KINDS = [
    "print(1)",
    "import numpy, sympy; print(sympy.sqrt(8))",
    "1 / 0",
    "import os, time\nos.makedirs('a/b'); open('a/b/c', 'w').write('x' * 1000)\nos.mkdir('closed', 0)",
    "import threading, time\n"
    "for _ in range(8): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
    "import os\ntry: os.fork()\nexcept OSError: print('refused')",
    "import os, tempfile\nf = [tempfile.TemporaryFile() for _ in range(20)]\nos.write(1, b'x' * 100_000)",
    "import os; os.abort()",
]


def own_state():
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "mounts": pathlib.Path("/proc/self/mountinfo").read_text(),
        "files": {server.folder: sorted(os.listdir(server.folder)) for server in client._servers.values()},
    }


def test_hundreds_of_programs_leak_no_process_no_file_no_descriptor(thoroughly):
    run_python("print(1)")
    until(lambda: not left_over())
    before = own_state()
    results = run_programs([KINDS[i % len(KINDS)] for i in range(1000 if thoroughly else 300)], workers=3)
    assert {result.status for result in results} == {"ok", "error", "killed"}
    until(lambda: not left_over())  # the last monitors have answered and are about to end
    assert own_state() == before


def monitor_of(server):
    """The process the server forked for the program that runs now."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == server.process.pid:
                return int(path.parent.name)
    return None


def in_thread(work):
    box = []
    thread = threading.Thread(target=lambda: box.append(work()))
    thread.start()
    return thread, box


def the_server():
    run_python("print(1)", packages=())
    return client._servers[(0, ())]


def test_the_program_ends_with_its_monitor_and_the_set_up_is_to_blame():
    server = the_server()
    thread, box = in_thread(lambda: run_python(SLEEPY, packages=()))
    os.kill(until(lambda: len(left_over()) == 2 and monitor_of(server)), signal.SIGKILL)
    thread.join()
    until(lambda: left_over() == [])
    assert box[0].status == "setup_failed"
    assert box[0].detail


def test_a_server_that_died_is_replaced():
    server = the_server()
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert run_python("print(2)", packages=()).stdout == "2\n"
    assert not os.path.exists(server.folder)


def test_a_server_that_dies_under_a_program_takes_it_along():
    server = the_server()
    thread, box = in_thread(lambda: run_python(SLEEPY, packages=()))
    until(lambda: len(left_over()) == 2)
    os.kill(server.process.pid, signal.SIGKILL)
    thread.join()
    assert box[0].status == "setup_failed"
    until(lambda: not processes_in(server.folder))


def processes_in(folder):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


NOTEBOOK = f"""
import threading
from cotkit import run_python
from cotkit.verify.sandbox import client
run_python("1", packages=())
print(next(iter(client._servers.values())).folder, flush=True)
try:
    run_python({SLEEPY!r}, packages=(), timeout=60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_notebook_ends_everything_ends(deadly):
    with subprocess.Popen([sys.executable, "-c", NOTEBOOK], stdout=subprocess.PIPE, text=True) as notebook:
        folder = notebook.stdout.readline().strip()
        try:
            until(lambda: len(processes_in(folder)) == 3)  # server, monitor, program
            notebook.send_signal(deadly)
            rest = notebook.stdout.read()
        finally:
            notebook.kill()
    assert rest == ("interrupted\n" if deadly == signal.SIGINT else "")
    until(lambda: not processes_in(folder) and not os.path.exists(folder))


STARTING = """
import subprocess, sys, time
from cotkit.verify.sandbox import client
class Popen(subprocess.Popen):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        print(given[0][-2], flush=True)  # the folder
        time.sleep(60)
client.subprocess.Popen = Popen
client.Server(0, ("numpy",))
"""


def test_when_the_notebook_ends_while_the_server_starts_nothing_is_left():
    with subprocess.Popen([sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True) as notebook:
        folder = notebook.stdout.readline().strip()
        notebook.kill()
    assert folder
    until(lambda: not processes_in(folder) and not os.path.exists(folder))


def test_only_three_servers_are_kept():
    run_programs([{"code": "1", "hash_seed": seed, "packages": ()} for seed in range(10, 15)], workers=1)
    assert len(client._servers) == 3
    assert (14, ()) in client._servers


def test_what_a_package_prints_or_lacks_is_not_the_programs_affair():
    result = run_python("print(1)", packages=["this", "a_missing_package"])
    assert (result.status, result.stdout) == ("ok", "1\n")


def test_a_server_that_cannot_start_is_a_failed_set_up(monkeypatch):
    run_python("1", packages=())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run_python("print(1)", hash_seed=77)
    assert (result.status, result.stdout) == ("setup_failed", "")
    assert "did not start" in result.detail
