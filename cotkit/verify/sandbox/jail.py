"""The walls around one program, put up by the process itself through plain system calls (Linux).

- `enter_namespaces`: own users, mounts, network, processes, IPC, host name
- `mount_private_tmpfs`: a folder whose size the kernel limits and that vanishes with the program
- `restrict_files`: Landlock; reading and writing only below listed paths, no TCP, no signals outwards
- `drop_capabilities`: whatever user started the program, it is left without privileges
- `restrict_calls`: seccomp; the calls in syscalls.py are refused

Each wall raises OSError when the kernel does not give it. Structures and constants are those of Linux's
include/uapi/linux: landlock.h, seccomp.h, filter.h, sched.h, mount.h, capability.h, prctl.h.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

from .syscalls import AUDIT_ARCH, FILTERED, PRETENDED, REFUSED, REVIEWED, UNSUPPORTED, numbers

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2
CLONE_THREAD = 0x10000
NEW_NS, NEW_UTS, NEW_IPC = 0x20000, 0x4000000, 0x8000000  # CLONE_NEW*
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION_3 = 0x20080522
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on every machine

# LANDLOCK_ACCESS_FS_*: the 13 rights of ABI 1, then those of later ABIs
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
FIRST_RIGHTS = (1 << 13) - 1
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
LATER_RIGHTS = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
FILE_RIGHTS = WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the others are for folders, EINVAL on a file

# struct sock_filter codes: load a word, jump when equal / greater or equal / any bit set, return
LOAD, JUMP_EQ, JUMP_GE, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
DONE, EPERM, ENOTTY, ENOSYS, ENOTSUP = ERRNO, ERRNO | 1, ERRNO | 25, ERRNO | 38, ERRNO | 95
NUMBER_OFFSET, ARCH_OFFSET, ARGS_OFFSET = 0, 4, 16  # in struct seccomp_data

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, *arguments: int | bytes) -> None:
    words = [a if isinstance(a, bytes) else ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    check(libc.prctl(option, *words), f"prctl({option})")


def die_with_parent() -> None:
    """SIGKILL when the thread that forked this process ends."""
    prctl(PR_SET_PDEATHSIG, 9)


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 when there is none."""
    return max(0, libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def restrict_files(read: Sequence[str], box: str) -> None:
    """Reading below `read`, everything but devices, sockets and exec below `box`, /dev/null; nothing else."""
    abi = landlock_abi()
    handled = FIRST_RIGHTS
    for version, right in LATER_RIGHTS.items():
        handled |= right if abi >= version else 0
    # struct landlock_ruleset_attr: files; since ABI 4 TCP (bind, connect); since 6 scope (sockets, signals)
    attributes = struct.pack("QQQ", handled, 3, 3)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    rules = check(
        libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "Landlock"
    )
    own = handled & ~(EXECUTE | MAKE_CHAR | MAKE_SOCK | MAKE_BLOCK)
    grants = [(path, READ_FILE | READ_DIR) for path in read]
    grants += [(box, own), ("/dev/null", handled & (READ_FILE | WRITE_FILE | TRUNCATE))]
    for path, rights in grants:
        if not os.path.exists(path):
            continue
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        descriptor = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights, descriptor)  # struct landlock_path_beneath_attr, packed
        check(libc.syscall(LANDLOCK_ADD_RULE, rules, 1, rule, 0), f"Landlock rule for {path}")
        os.close(descriptor)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    check(libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def seccomp_filter(machine: str, pid: int) -> bytes:
    """The filter as an array of struct sock_filter, for a process that knows itself as `pid`."""
    filtered = numbers(FILTERED, machine)
    program: list[bytes] = []

    def put(code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        program.append(struct.pack("HBBI", code, if_true, if_false, value))

    def answer(number: int, verdict: int) -> None:
        put(JUMP_EQ, number, 0, 1)
        put(RETURN, verdict)

    def by_argument(name: str, index: int, values: Sequence[int], listed: int, other: int) -> None:
        # the low 32 bits: the kernel takes each of these arguments as an int
        put(JUMP_EQ, filtered[name], 0, len(values) + 3)
        put(LOAD, ARGS_OFFSET + 8 * index)
        for position, value in enumerate(values):
            put(JUMP_EQ, value, len(values) - position, 0)
        put(RETURN, other)
        put(RETURN, listed)

    put(LOAD, ARCH_OFFSET)
    put(JUMP_EQ, AUDIT_ARCH[machine], 1, 0)
    put(RETURN, KILL)
    put(LOAD, NUMBER_OFFSET)
    if machine == "x86_64":  # the x32 numbers would bypass the list
        put(JUMP_GE, 0x40000000, 0, 1)
        put(RETURN, KILL)
    put(JUMP_GE, REVIEWED + 1, 0, 1)
    put(RETURN, ENOSYS)
    tables = [(table, EPERM) for table in REFUSED.values()] + [(PRETENDED, DONE), (UNSUPPORTED, ENOTSUP)]
    for table, verdict in tables:
        for number in numbers(table, machine).values():
            answer(number, verdict)
    answer(filtered["clone3"], ENOSYS)
    put(JUMP_EQ, filtered["clone"], 0, 4)  # threads only
    put(LOAD, ARGS_OFFSET)
    put(JUMP_SET, CLONE_THREAD, 1, 0)
    put(RETURN, EPERM)
    put(RETURN, ALLOW)
    for name in ("kill", "tkill", "tgkill"):  # itself only
        by_argument(name, 0, [pid], ALLOW, EPERM)
    by_argument("prlimit64", 0, [0, pid], ALLOW, EPERM)  # itself only
    by_argument("sendto", 5, [0], ALLOW, EPERM)  # no address: a socketpair's other end only
    by_argument("prctl", 0, [PR_SET_PDEATHSIG], EPERM, ALLOW)  # it dies with the monitor
    # F_SETOWN, F_SETSIG, F_SETOWN_EX send signals to others; F_SETLEASE blocks those who open the file
    by_argument("fcntl", 1, [8, 10, 15, 1024], EPERM, ALLOW)
    # what files and sockets are asked in Python: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
    by_argument("ioctl", 1, [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451], ALLOW, ENOTTY)
    put(RETURN, ALLOW)
    return b"".join(program)


def restrict_calls() -> None:
    program = seccomp_filter(platform.machine(), os.getpid())
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header)


def enter_namespaces() -> None:
    """For this process, and for the next one it forks: that one is process 1 of its own world."""
    user, group = os.getuid(), os.getgid()
    check(libc.unshare(NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount_private_tmpfs(path: str, megabytes: int, most_files: int) -> None:
    if os.getpid() != 1:
        raise OSError("refused to mount outside a namespace of its own")
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "private mounts")
    options = f"size={megabytes}m,nr_inodes={most_files},mode=700".encode()
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    check(libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, options), "tmpfs")


def drop_capabilities() -> None:
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    check(libc.syscall(CAPSET[platform.machine()], header, bytes(24)), "capset")
