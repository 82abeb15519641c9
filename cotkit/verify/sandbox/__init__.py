"""The Python sandbox: programs a model wrote run behind walls, with limits, and always give a result.

program.py holds the public functions and the map of this folder; docs/sandbox.md explains the levels.
"""

from cotkit.verify.sandbox.program import arun_python, isolation, run_programs, run_python
from cotkit.verify.sandbox.records import Isolation, ProgramResult, SandboxTooWeak

__all__ = [
    "Isolation",
    "ProgramResult",
    "SandboxTooWeak",
    "arun_python",
    "isolation",
    "run_programs",
    "run_python",
]
