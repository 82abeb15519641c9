"""The level is what the machine proves: each wall that is missing lowers it and is named."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from attacks import CLASSES
from world import World

import cotkit
from cotkit.verify.sandbox import Isolation, SandboxTooWeak, isolation, program, run_python
from cotkit.verify.sandbox.cancel import Cancellation
from cotkit.verify.sandbox.job import Job
from cotkit.verify.sandbox.records import PROMISES, RESOURCES

SERVER, JAIL = "server.py", "jail.py"
REMOVED = {  # line taken out -> the level that is left, and what the self-test says
    (SERVER, "        jail.restrict_calls()\n"): ("L1", "unix socket"),
    (SERVER, "        jail.restrict_files(readable(), box)\n"): ("L1", "was read"),
    (SERVER, '            (resource.RLIMIT_AS, job["memory_mb"] << 20),\n'): ("L1", "memory"),
    (SERVER, "            jail.mount_private_tmpfs(box, BOX_MB, MOST_FILES)\n"): ("L2", "disk"),
    (SERVER, "        jail.enter_namespaces()\n"): ("L2", "refused to mount"),
}


@pytest.mark.parametrize("wall", REMOVED, ids=lambda wall: wall[1].strip()[:28])
def test_a_removed_wall_lowers_the_level_and_is_named(wall, variant):
    level, word = REMOVED[wall]
    if "mount" in wall[1] and isolation().level != "L3":
        pytest.skip(f"a wall of L3, and this machine reaches {isolation().level}")
    found = variant({wall: "            pass\n" if "mount" in wall[1] else ""}).isolation()
    assert found.level == level
    assert word in " ".join(found.missing)


@pytest.mark.any_level
def test_below_l2_foreign_code_is_refused_and_the_message_says_why(monkeypatch):
    monkeypatch.setattr(program, "_isolation", Isolation(level="L1", missing=("L2: Landlock: not there",)))
    with pytest.raises(SandboxTooWeak, match=r"Landlock: not there.*allow_weak_isolation=True"):
        run_python("print(1)")
    with pytest.raises(SandboxTooWeak):
        cotkit.verify.run_programs(["print(1)"])
    result = run_python("print(1)", allow_weak_isolation=True)
    assert (result.status, result.stdout, result.isolation) == ("ok", "1\n", "L1")
    assert result.enforced["network"] == result.enforced["files"] == "none"


WEAK = {
    "print(input()[::-1])": ("ok", "olleh\n"),
    "import sys; sys.exit(3)": ("error", ""),
    "print(1, flush=True)\nwhile True: pass": ("timeout", "1\n"),
    "block = bytearray(2 << 30)": ("memory", ""),
    "while True: print('x' * 9999)": ("output_limit", None),
    "import os; os.abort()": ("killed", ""),
    "import os; print(os.environ.get('COTKIT_TEST_KEY'))": ("ok", "None\n"),
    "import os, time\nif os.fork() == 0: time.sleep(60)": ("ok", ""),
    "import random; print(random.random())": ("ok", "0.8444218515250481\n"),
}


@pytest.mark.any_level
@pytest.mark.parametrize("code", WEAK)
def test_l1_has_the_same_statuses(code):
    status, stdout = WEAK[code]
    seconds = 4 if status == "timeout" else 60  # a cold start on a busy machine is no timeout
    result = program.run_job(Job(code, timeout=seconds, stdin="hello\n"), "L1", Cancellation())
    assert result.status == status, result
    assert stdout is None or result.stdout == stdout


@pytest.mark.any_level
def test_every_level_promises_something_about_every_resource():
    for promises in PROMISES.values():
        assert tuple(promises) == RESOURCES
    assert set(PROMISES["L3"].values()) == {"enforced"}


@pytest.mark.parametrize("abi", [1, 4])
def test_older_versions_of_landlock_hold_as_well(abi, variant):
    old = variant({(JAIL, "    abi = landlock_abi()\n"): f"    abi = min({abi}, landlock_abi())\n"})
    found, attacks = [], CLASSES["read"] + CLASSES["parent"] + CLASSES["write"][:11]

    def attack_and_judge(attack):
        with World() as world:
            answer = old.run_job(Job(world.constants + attack.code), "L2", Cancellation())
            found.extend(f"{attack.name}: {breach}" for breach in world.breaches(answer))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attack_and_judge, attacks[::2]))
    assert found == []


BLOCKED = """
import ctypes, json, platform, struct, sys
from cotkit.verify.sandbox import jail, isolation, run_python
number = {"unshare": {"x86_64": 272, "aarch64": 97}[platform.machine()], "landlock": 444}[sys.argv[1]]
lines = ((jail.LOAD, 0, 0, 0), (jail.JUMP_EQ, 0, 1, number))
lines += ((jail.RETURN, 0, 0, jail.EPERM), (jail.RETURN, 0, 0, jail.ALLOW))
filter_ = b"".join(struct.pack("HBBI", *line) for line in lines)
code = ctypes.create_string_buffer(filter_, len(filter_))
jail.prctl(jail.PR_SET_NO_NEW_PRIVS, 1)
jail.prctl(jail.PR_SET_SECCOMP, 2, struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
run_python('1', packages=(), allow_weak_isolation=True)
print(isolation().model_dump_json())
"""


@pytest.mark.parametrize(
    ("blocked", "level", "word"), [("unshare", "L2", "unshare"), ("landlock", "L1", "Landlock")]
)
def test_a_host_that_blocks_a_call_gives_the_next_level(blocked, level, word):
    """Containers and Ubuntu 24.04 refuse new namespaces; some kernels have no Landlock."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, blocked], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["level"] == level
    assert word in " ".join(found["missing"])


def test_the_page_promises_what_the_code_promises():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"
    ]
    for resource in RESOURCES:
        (row,) = [row for row in rows if row[0].split(" ")[0] == resource and len(row) == 5]
        assert [cell.split(";")[0] for cell in row[1:]] == [PROMISES[level][resource] for level in PROMISES]
    shown = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    (code,) = re.findall(r'^result = run_python\("(.*)"\)$', shown, re.MULTILINE)
    printed, answer = re.search(r"# 'ok', '(.*)', '(.*)'$", shown, re.MULTILINE).groups()
    result = run_python(code.encode().decode("unicode_escape"))
    assert (result.status, result.stdout, result.answer) == ("ok", printed.replace("\\n", "\n"), answer)
