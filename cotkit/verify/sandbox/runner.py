"""The last step before foreign code: run a program as `__main__` the way `python program.py` would.

The process is already inside its walls and never returns from here. How it ended is told by the exit code,
with two codes set aside for running out of memory and of disk. (A program can exit with them by itself: it
can lie about how it failed, never about whether it failed for a fault of the sandbox.)
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import linecache
import os
import sys
import threading
import traceback
import types
from typing import NoReturn

from .clock import set_date

OUT_OF_MEMORY, OUT_OF_DISK = 243, 244
DISK_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
FILE = "<program>"
SEEDED = ("random", "numpy.random", "sympy.core.random")  # those that were imported before the program


def run_as_main(job: dict) -> NoReturn:
    code = job["code"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")  # pickle and dataclasses look it up
    main.__file__ = FILE
    sys.argv[:] = [FILE]
    linecache.cache[FILE] = (len(code), None, code.splitlines(True), FILE)
    for name in SEEDED:
        if name in sys.modules:
            sys.modules[name].seed(job["seed"])
    if job["date"]:
        set_date(job["date"])
    sys.stdout.reconfigure(line_buffering=True)  # what was printed is kept when the program is stopped
    exit_code = ending(lambda: exec(compile(code, FILE, "exec"), main.__dict__))
    exit_code = ending(threading._shutdown) or exit_code  # waits for the program's threads
    exit_code = ending(atexit._run_exitfuncs) or exit_code
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code)


def ending(step) -> int:
    """The exit code that `step` asks for; its traceback goes to stderr without the frames of this file."""
    try:
        step()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 255
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever a program may raise
        with contextlib.suppress(BaseException):
            frames = error.__traceback__
            while frames and frames.tb_frame.f_code.co_filename == __file__:
                frames = frames.tb_next
            traceback.print_exception(error.with_traceback(frames))
        if isinstance(error, MemoryError):
            return OUT_OF_MEMORY
        return OUT_OF_DISK if isinstance(error, OSError) and error.errno in DISK_ERRORS else 1
    return 0
