"""The process that runs the symbolic stage: `python -m cotkit.verify.symbolic_worker`.

One JSON line in, {"pairs": [[reference, prediction], ...], "options": {...}, "seconds": s}; one JSON line out
for each pair, [correct, reason]. It answers "ready" once SymPy and the parser are loaded. Nothing that a
library prints reaches the wire: the answers go to a private copy of descriptor 1, and 1 points at 2.

It dies with its parent: at the end of its input, by the parent-death signal on Linux, and by its own alarm
when a job outlives its clock. Memory is limited, so a formula that explodes ends this process alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import sys

MEMORY = 2 << 30  # bytes of address space
RECYCLE = 1 << 30  # bytes of resident memory after which the process is replaced
STATM = pathlib.Path("/proc/self/statm")  # Linux
PR_SET_PDEATHSIG = 1


def limit_self() -> None:
    with contextlib.suppress(ValueError, OSError):  # macOS knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(3000)
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def resident() -> int:
    """Bytes of resident memory; on macOS the most so far."""
    if STATM.is_file():  # Linux's ru_maxrss begins at that of the process which started this one
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def answer(pair: list[str], options: dict) -> list:
    from cotkit.verify.symbolic import compare

    try:
        return list(compare(*pair, options))
    except MemoryError:
        return [None, "out of memory"]
    except RecursionError:
        return [None, "nested too deeply"]
    except Exception as error:  # noqa: BLE001  whatever SymPy raises, the pair is undecided
        return [None, f"failed ({type(error).__name__})"]


def main() -> None:
    limit_self()
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    import logging

    logging.disable(logging.CRITICAL)
    answer(["x+1", "1+x"], {})  # loads the parser
    print(json.dumps("ready"), file=wire, flush=True)
    for line in sys.stdin.buffer:
        job = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, job["seconds"] + 2)  # default action: the process ends
        for pair in job["pairs"]:
            print(json.dumps(answer(pair, job["options"])), file=wire, flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if resident() > RECYCLE:
            return


if __name__ == "__main__":
    main()
