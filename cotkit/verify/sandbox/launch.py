"""How a Python that will run foreign code is started: nothing of the user's comes along."""

from __future__ import annotations

import os
import pathlib
import sys

FLAGS = ("-s", "-P", "-B")  # no user packages, no current folder, no .pyc; -I would ignore PYTHONHASHSEED
KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT")  # what this Python may need to start at all
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# The folder of this file is imported as a package of its own: cotkit and its imports stay outside.
BOOT = """
import sys, types
package = sys.modules["cotkit_sandbox"] = types.ModuleType("cotkit_sandbox")
package.__path__ = [sys.argv[1]]
from cotkit_sandbox import {module}
{module}.main(sys.argv[2:])
"""


def command(module: str, *arguments: str) -> list[str]:
    """Runs `main(arguments)` of a module of this folder in a fresh Python."""
    folder = str(pathlib.Path(__file__).parent)
    return [sys.executable, *FLAGS, "-c", BOOT.format(module=module), folder, *arguments]


def start_environment(hash_seed: int) -> dict[str, str]:
    """What the fresh Python needs; the program sees `environment`."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | environment("/", hash_seed)


def environment(box: str, hash_seed: int) -> dict[str, str]:
    """All that a program finds in os.environ."""
    return {
        "PATH": "/usr/bin:/bin",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "HOME": box,
        "TMPDIR": box,
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": box,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONUTF8": "1",
        **ONE_THREAD,
    }
