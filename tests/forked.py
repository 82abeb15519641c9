"""Processes that may be killed, each forked from one that has imported what they need.

    with Forked("import cotkit", "work(args)") as forked:
        forked.run("a", 1)  # how it ended: 0, or minus the signal; its errors are in `forked.errors`

An import of torch takes longer than most of what is to be killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

LIMIT_S = 120  # a child that takes longer ends by SIGALRM
PARENT = """
import json, os, signal, sys, traceback

setup, work, limit = sys.argv[1:]
exec(setup)
for line in sys.stdin:
    args, child = json.loads(line), os.fork()
    if child == 0:
        signal.alarm(int(limit))
        os.dup2(2, 1)
        try:
            exec(work, {**globals(), "args": args})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forked:
    def __init__(self, setup: str, work: str):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        command = [sys.executable, "-c", PARENT, setup, work, str(LIMIT_S)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(command, text=True, **pipes)

    def run(self, *args) -> int:
        self._process.stdin.write(json.dumps([*map(str, args)]) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, self.errors
        return int(said)

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        self._process.stdout.close()
        self._errors.close()
