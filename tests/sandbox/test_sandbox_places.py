"""The sandbox works wherever it is called from: threads, coroutines, forks, a notebook, another user."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from world import left_over

import cotkit
from cotkit import aio, arun_python, run_python

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_many_threads_at_once():
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: run_python(f"print({i} ** 2)"), range(24)))
    assert [result.stdout for result in results] == [f"{i**2}\n" for i in range(24)]


def test_a_coroutine_leaves_the_loop_free():
    async def scene():
        ticks = 0
        program = asyncio.ensure_future(arun_python("import time; time.sleep(0.3); print('done')"))
        while not program.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks, program.result()

    for run in (asyncio.run, aio.run):
        ticks, result = run(scene())
        assert result.stdout == "done\n"
        assert ticks > 5


def test_a_cancelled_coroutine_kills_its_program():
    async def scene():
        program = asyncio.ensure_future(arun_python("while True: pass", timeout=60))
        while not left_over():
            await asyncio.sleep(0.005)
        program.cancel()
        with pytest.raises(asyncio.CancelledError):
            await program
        while left_over():
            await asyncio.sleep(0.005)

    run_python("1")
    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_forked_child_has_servers_of_its_own():
    run_python("1")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if run_python("print(5)", packages=()).stdout == "5\n" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert run_python("print(6)").stdout == "6\n"


def test_any_thread_may_be_the_first_and_may_end():
    """A server must not die with the thread that started it."""
    fresh = {"hash_seed": 40, "packages": ()}
    thread = threading.Thread(target=run_python, args=("1",), kwargs=fresh)
    thread.start()
    thread.join()
    before = set(cotkit.verify.sandbox.client._servers.values())
    assert run_python("print(7)", **fresh).stdout == "7\n"
    assert set(cotkit.verify.sandbox.client._servers.values()) == before


def test_a_notebook_cell():
    import nbformat
    from nbclient import NotebookClient

    cells = [
        "from cotkit import run_python, arun_python",
        "print(run_python('import math; print(math.comb(9, 4))', packages=()).stdout)",
        "print((await arun_python('print(6 * 7)', packages=())).stdout)",
        "run_python('1 / 0', packages=())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    printed = [cell.outputs[0] for cell in notebook.cells[1:]]
    assert printed[0].text == "126\n\n"
    assert printed[1].text == "42\n\n"
    assert "ZeroDivisionError" in printed[2].data["text/html"]


def as_ordinary_user(command):
    """The command as user 65534. Folders on the way to Python and this repository that it may not enter are
    opened for it: an empty one is mounted over each, in a mount namespace that ends with the command, with
    what leads there mounted inside again.
    """
    ways = [pathlib.Path(p).resolve() for p in (sys.prefix, sys.base_prefix, sys.executable, ROOT)]
    closed = sorted({folder for way in ways for folder in way.parents if not folder.stat().st_mode & 1})
    script = ["set -e", "mount --make-rprivate /"]
    for number, folder in enumerate(closed):
        inside = sorted({folder / way.relative_to(folder).parts[0] for way in ways if folder in way.parents})
        aside = {path: f"/dev/shm/open-{number}-{place}" for place, path in enumerate(inside)}
        script += [f"mkdir {kept} && mount --bind {path} {kept}" for path, kept in aside.items()]
        script += [f"mount -t tmpfs -o mode=755 none {folder}"]
        script += [f"mkdir {p} && mount --move {kept} {p} && rmdir {kept}" for p, kept in aside.items()]
    drop = "exec setpriv --reuid 65534 --regid 65534 --clear-groups"
    return ["unshare", "--mount", "sh", "-c", "\n".join([*script, f'{drop} "$@"']), "sh", *command]


def test_an_ordinary_user_is_as_safe_as_root(thoroughly):
    """The other tests run as whoever runs pytest; when that is root, one of each class runs as nobody."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("the tests already run as an ordinary user")
    tests = str(ROOT / "tests/sandbox/test_attacks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", tests]
    command += ["--basetemp", f"/tmp/nobody-{os.getpid()}"]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COTKIT_TEST_EVERY": "1" if thoroughly else "100",
    }
    done = subprocess.run(
        as_ordinary_user(command), capture_output=True, text=True, env=environment, cwd=ROOT
    )
    shutil.rmtree(f"/tmp/nobody-{os.getpid()}", ignore_errors=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"another user cannot be tried here: {done.stderr}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
