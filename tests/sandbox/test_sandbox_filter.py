"""The seccomp filter decides as listed, on both machines: its instructions are interpreted here."""

from __future__ import annotations

import pathlib
import re
import struct

import pytest

from cotkit.verify.sandbox import jail
from cotkit.verify.sandbox.syscalls import (
    AUDIT_ARCH,
    FILTERED,
    MACHINES,
    PRETENDED,
    REFUSED,
    REVIEWED,
    UNSUPPORTED,
    numbers,
)

pytestmark = pytest.mark.any_level
TABLES = (*REFUSED.values(), PRETENDED, UNSUPPORTED, FILTERED)
PID = 4321
HEADERS = {
    "x86_64": pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": pathlib.Path("/usr/include/asm-generic/unistd.h"),
}


def decide(machine, number, *arguments, arch=None):
    """What the kernel would return: runs the classic BPF program on a struct seccomp_data."""
    words = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=IIQ6Q", number, arch or AUDIT_ARCH[machine], 0, *words)
    program = list(struct.iter_unpack("HBBI", jail.seccomp_filter(machine, PID)))
    accumulator = position = 0
    while True:
        code, if_true, if_false, value = program[position]
        position += 1
        if code == jail.RETURN:
            return value
        if code == jail.LOAD:
            accumulator = struct.unpack_from("=I", data, value)[0]
            continue
        holds = {
            jail.JUMP_EQ: accumulator == value,
            jail.JUMP_GE: accumulator >= value,
            jail.JUMP_SET: bool(accumulator & value),
        }[code]
        position += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_listed_calls_are_refused_and_others_pass(machine):
    listed = [number for table in TABLES for number in numbers(table, machine).values()]
    assert len(listed) == len(set(listed))
    wanted = dict.fromkeys(range(REVIEWED + 1), jail.ALLOW)
    for table in REFUSED.values():
        wanted |= dict.fromkeys(numbers(table, machine).values(), jail.EPERM)
    wanted |= dict.fromkeys(numbers(PRETENDED, machine).values(), jail.DONE)
    wanted |= dict.fromkeys(numbers(UNSUPPORTED, machine).values(), jail.ENOTSUP)
    for number in wanted.keys() - set(numbers(FILTERED, machine).values()):
        assert decide(machine, number, 1, 2, 3) == wanted[number], number
    assert decide(machine, REVIEWED + 1) == jail.ENOSYS
    assert decide(machine, 0, arch=0x40000003) == jail.KILL  # i386


NEGATIVE = {jail.EPERM, jail.ENOSYS, jail.ENOTTY}
ARGUMENTS = {  # call -> arguments that pass, arguments that do not
    "clone": ([(0x3D0F00,)], [(17,), (0x10000000,), (0,)]),
    "clone3": ([], [(0,)]),
    "kill": ([(PID, 9)], [(1, 9), (0, 9), (-1, 9), (-PID, 9)]),
    "tkill": ([(PID, 9)], [(1, 9)]),
    "tgkill": ([(PID, 7, 9)], [(1, 1, 9)]),
    "prlimit64": ([(0, 7), (PID, 7)], [(1, 7)]),
    "fcntl": ([(3, 4), (3, 1)], [(3, 8), (3, 10), (3, 15), (3, 1024)]),
    "ioctl": ([(1, 0x5401), (1, 0x5421)], [(1, 0x5412), (1, 0x8901), (1, 0x40049409)]),
    "prctl": ([(15,)], [(1,)]),
    "sendto": ([(3, 0, 1, 0, 0, 0)], [(3, 0, 1, 0, 99, 16)]),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", ARGUMENTS)
def test_some_calls_are_decided_by_an_argument(machine, call):
    number = numbers(FILTERED, machine)[call]
    passing, refused = ARGUMENTS[call]
    assert {decide(machine, number, *arguments) for arguments in passing} <= {jail.ALLOW}
    assert {decide(machine, number, *arguments) for arguments in refused} <= {
        jail.EPERM,
        jail.ENOSYS,
        jail.ENOTTY,
    }


def test_x32_numbers_end_the_program():
    assert decide("x86_64", 0x40000000 | 1) == jail.KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernel_headers(machine):
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    text = HEADERS[machine].read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", text)}
    compared = 0
    for table in TABLES:
        listed = numbers(table, machine)
        for name in (entry.split()[0] for entry in table.split(",")):
            if name in known:
                assert listed.get(name) == known[name], name
                compared += 1
    assert compared > 100
