"""Hostile programs by class, and what may come back of each.

A program sees the constants of `World.constants` (places and numbers of things that are none of its business)
and `libc`, and `attempt`, which goes on after an exception. Whether an attack got through is judged by
`World.breaches`, outside the program; the statuses here only say what the program itself is told.
"""

from __future__ import annotations

from typing import NamedTuple

PRELUDE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(attack):
    try:
        return attack()
    except BaseException as error:
        return error
"""


class Attack(NamedTuple):
    name: str
    code: str
    expected: frozenset[str]
    timeout: float = 30.0


def parse(text: str) -> list[Attack]:
    """Attacks of one class: `### name | statuses | timeout` above each program."""
    attacks = []
    for block in text.strip().split("### ")[1:]:
        head, code = block.split("\n", 1)
        name, statuses, *timeout = (part.strip() for part in head.split("|"))
        attacks.append(Attack(name, PRELUDE + code, frozenset(statuses.split()), *map(float, timeout)))
    return attacks


NETWORK = """
### connect by TCP | error
import socket
socket.create_connection(("127.0.0.1", PORT), 1).send(b"hello")
### send by UDP | error
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", UDP_PORT))
### connect to a unix socket by path | error
import socket
socket.socket(socket.AF_UNIX).connect(STREAM_PATH)
### connect to an abstract unix socket | error
import socket
socket.socket(socket.AF_UNIX).connect(ABSTRACT)
### send to a unix socket by path from a socketpair | error
import socket
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"hello", DATAGRAM_PATH)
### the same by sendmsg | error
import socket
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendmsg([b"hello"], [], 0, DATAGRAM_PATH)
### connect one end of a socketpair anew | error
import socket
one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.connect(DATAGRAM_PATH)
one.send(b"hello")
### fetch by urllib | error
import urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=1)
### connect by asyncio | error
import asyncio
asyncio.run(asyncio.open_connection("127.0.0.1", PORT))
### listen on loopback | error
import socket
socket.create_server(("127.0.0.1", 0))
### use whatever descriptors were inherited | ok
import socket
for number in range(3, 256):
    attempt(lambda: socket.socket(fileno=number).send(b"hello"))
"""

READ = """
### a secret file | error
print(open(CANARY).read())
### the home folder | error
print(os.listdir(HOME))
### the list of users | error
print(open("/etc/passwd").read())
### through a symbolic link | error
os.symlink(CANARY, "link")
print(open("link").read())
### through a hard link | error
os.link(CANARY, "link")
print(open("link").read())
### moved into its own folder | error
os.rename(CANARY, "mine")
print(open("mine").read())
### by a relative path | error
os.chdir("/")
print(open(CANARY[1:]).read())
### its extended attributes | error
print(os.getxattr(CANARY, "user.note"))
### by numpy | error
import numpy
print(numpy.fromfile(CANARY, dtype="u1").tobytes().decode())
### by code in a formula | error
import sympy
print(sympy.sympify(f"__import__('pathlib').Path({CANARY!r}).read_text()"))
### through /proc/self/root | error
print(open("/proc/self/root" + CANARY).read())
### keys in the own environment | ok
print(dict(os.environ), os.environb)
### keys in the environment of every process | ok
for number in os.listdir("/proc") if not attempt(lambda: os.listdir("/proc")) else range(1, 65536):
    found = attempt(lambda: open(f"/proc/{number}/environ", "rb").read())
    if isinstance(found, bytes):
        print(found)
### the memory of the parent | ok
for number in (os.getppid(), PARENT):
    found = attempt(lambda: open(f"/proc/{number}/maps").read())
    print(found if isinstance(found, str) else "")
### the memory of the parent by process_vm_readv | ok
buffer = ctypes.create_string_buffer(64)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
here, there = Piece(ctypes.addressof(buffer), 64), Piece(SECRET_ADDRESS, 64)
libc.process_vm_readv(PARENT, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
print(buffer.raw)
### ptrace the parent | ok
for number in (os.getppid(), PARENT, VICTIM):
    libc.ptrace(16, number, 0, 0)
### shared memory of another program | ok
libc.shmat.restype = ctypes.c_void_p
address = libc.shmat(SHARED_MEMORY, 0, 0o10000)
print(ctypes.string_at(address, 64) if address not in (None, 2**64 - 1) else "")
### names of files, by watching their folder | ok
watch = libc.inotify_init1(0)
if watch >= 0 and libc.inotify_add_watch(watch, HOME.encode(), 0xFFF) >= 0:
    print(os.read(watch, 4096))
### standard input | ok
assert sys.stdin.read() == ""
### other descriptors | ok
import fcntl
print([n for n in range(3, 256) if not isinstance(attempt(lambda: fcntl.fcntl(n, 1)), OSError)] or "none")
"""

WRITE = """
### a new file at home | error
open(HOME + "/new", "w")
### a new folder at home | error
os.mkdir(HOME + "/new")
### over a secret file | error
open(CANARY, "a").write("x")
### remove a secret file | error
os.unlink(CANARY)
### put another file in its place | error
open("fake", "w").write("x")
os.rename("fake", CANARY)
### the shared temporary folders | ok
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    attempt(lambda: open(f"{folder}/{MARK}", "w"))
### a .pth file among the packages | ok
for folder in (PACKAGES, REAL_PACKAGES):
    attempt(lambda: open(f"{folder}/{MARK}.pth", "w").write("#"))
### modes, times, owners, attributes | ok
attempt(lambda: os.chmod(CANARY, 0o777))
attempt(lambda: os.utime(CANARY, (0, 0)))
attempt(lambda: os.chown(CANARY, 1234, 1234))
attempt(lambda: os.setxattr(CANARY, "user.mark", b"x"))
libc.syscall(452, -100, CANARY.encode(), 0o777, 0)
### truncate by path | ok
attempt(lambda: os.truncate(CANARY, 0))
### through a descriptor opened without rights | ok
found = attempt(lambda: os.open(CANARY, os.O_PATH))
attempt(lambda: os.open(f"/proc/self/fd/{found}", os.O_RDWR))
attempt(lambda: os.fchmod(found, 0o777))
### fill the disk with many files | disk
for i in range(60):
    open(str(i), "wb").write(bytes(7 << 20))
### fill the disk with one file | disk
file = open("big", "wb")
for _ in range(300):
    file.write(bytes(1 << 20))
### fill the disk with a reserved file | disk
os.posix_fallocate(os.open("big", os.O_RDWR | os.O_CREAT), 0, 300 << 20)
### fill the disk with removed files | disk
kept = []
for i in range(50):
    kept.append(open(str(i), "wb"))
    os.unlink(str(i))
    kept[-1].write(bytes(7 << 20))
import time
time.sleep(1)
### many empty files | disk
for i in range(6000):
    open(str(i), "w")
import time
time.sleep(1)
### folders deeper than any path | ok error disk
for i in range(3000):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
import time
time.sleep(0.2)
### leave folders nobody may enter | ok disk
os.makedirs("a/b/c")
os.symlink(HOME, "a/home")
open("a/b/c/file", "w")
os.mkdir("closed", 0)
os.umask(0o777)
os.makedirs("x")
"""

PROCESSES = """
### five hundred forks | ok
import time
for _ in range(500):
    if attempt(os.fork) == 0:
        time.sleep(30)
        os._exit(0)
### a shell | error
import subprocess
subprocess.run(["/bin/sh", "-c", f"cat {CANARY}; sleep 30 &"])
### os.system | ok
os.system(f"cat {CANARY}; (sleep 30 &)")
### posix_spawn | error
os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 30"], {})
### replace itself | error
os.execv("/bin/sh", ["sh", "-c", "sleep 30"])
### a pool of processes | error
import multiprocessing
multiprocessing.Pool(2).map(abs, [-1])
### a daemon by double fork | ok
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            import time
            time.sleep(30)
        os._exit(0)
attempt(daemon)
### a grandchild that keeps stdout | ok
import time
if attempt(os.fork) == 0:
    time.sleep(30)
    os._exit(0)
### clone and vfork by number | ok
import platform
numbers = {"x86_64": (56, 57, 58, 435), "aarch64": (220, 435)}[platform.machine()]
for number in numbers:
    if libc.syscall(number, 17, 0, 0, 0, 0) == 0:
        import time
        time.sleep(30)
        os._exit(0)
### two thousand threads | ok error memory killed
import threading, time
for _ in range(2000):
    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
### threads with small stacks | killed error
import threading, time
threading.stack_size(32768)
for _ in range(20000):
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
time.sleep(5)
"""

MEMORY = """
### three gibibytes at once | memory
block = bytearray(3 << 30)
### a list of megabytes | memory
blocks = []
while True:
    blocks.append("x" * 1_000_000)
### a large array | memory
import numpy
numpy.ones(1 << 29)
### forks that add up | ok
import time
for _ in range(4):
    if attempt(os.fork) == 0:
        block = bytearray(700 << 20)
        time.sleep(30)
        os._exit(0)
### memory files | ok
file = attempt(lambda: os.memfd_create("x"))
for _ in range(1400):
    attempt(lambda: os.write(file, bytes(1 << 20)))
### a mapping shared with nobody | error
import mmap
block = mmap.mmap(-1, 3 << 30)
### raise the limit first | memory
import resource
for value in (resource.RLIM_INFINITY, 8 << 30):
    attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (value, value)))
    attempt(lambda: resource.prlimit(0, resource.RLIMIT_AS, (value, value)))
block = bytearray(3 << 30)
### new shared memory | ok
assert libc.shmget(0, 1 << 30, 0o1600) == -1
"""

TIME = """
### an endless loop | timeout | 0.4
while True:
    pass
### all signals ignored | timeout | 0.4
import signal
for number in range(1, 65):
    attempt(lambda: signal.signal(number, signal.SIG_IGN))
while True:
    pass
### all signals blocked | timeout | 0.4
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(100)
### sleep | timeout | 0.4
import time
time.sleep(100)
### a regular expression that never ends | timeout | 0.4
import re
re.match("(a+)+$", "a" * 40 + "b")
### exceptions swallowed | timeout | 0.4
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
### an exit handler that never ends | timeout | 0.4
import atexit, time
atexit.register(time.sleep, 100)
### a thread that never ends | timeout | 0.4
import threading, time
threading.Thread(target=time.sleep, args=(100,)).start()
### stopped by itself | timeout ok | 0.4
import signal, time
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(100)
"""

OUTPUT = """
### endless stdout | output_limit
while True:
    print("x" * 1000)
### endless stderr | output_limit
while True:
    print("x" * 1000, file=sys.stderr)
### endless raw output | output_limit
while True:
    os.write(1, b"\\xff" * 65536)
### one endless line | output_limit
while True:
    sys.stdout.write("x" * 100000)
### a flood from threads | output_limit
import threading
def flood():
    while True:
        os.write(1, b"x" * 65536)
for _ in range(4):
    threading.Thread(target=flood).start()
"""

PARENT = """
### kill the parent | ok
for number in (os.getppid(), PARENT, VICTIM):
    attempt(lambda: os.kill(number, 9))
### kill everybody | ok
attempt(lambda: os.kill(-1, 9))
attempt(lambda: os.kill(0, 9))
attempt(lambda: os.killpg(os.getpgid(0), 9))
### stop the parent | ok
for number in (os.getppid(), PARENT, VICTIM):
    attempt(lambda: os.kill(number, 19))
### signal a thread | ok
for number in (os.getppid(), PARENT, VICTIM):
    libc.tgkill(number, number, 9)
    libc.syscall({"x86_64": 200, "aarch64": 130}[os.uname().machine], number, 9)
### signal by a process descriptor | ok
import signal
found = attempt(lambda: os.pidfd_open(VICTIM))
attempt(lambda: signal.pidfd_send_signal(found, 9))
### signal by an asynchronous descriptor | ok
import fcntl, socket
one, other = socket.socketpair()
for number in (os.getppid(), VICTIM):
    attempt(lambda: fcntl.fcntl(one, fcntl.F_SETOWN, number))
    attempt(lambda: fcntl.fcntl(one, 10, 9))
    attempt(lambda: fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC))
    attempt(lambda: other.send(b"x"))
### limit the parent | ok
import resource
for number in (os.getppid(), PARENT, VICTIM):
    attempt(lambda: resource.prlimit(number, resource.RLIMIT_NOFILE, (3, 3)))
### slow the parent | ok
for number in (os.getppid(), PARENT, VICTIM):
    attempt(lambda: os.setpriority(os.PRIO_PROCESS, number, 19))
    attempt(lambda: os.sched_setaffinity(number, {0}))
"""

INTERPRETER = """
### an astronomic power | timeout memory | 0.4
10**10**10
### the digits of a long number | error
len(str(10**5000))
### the digits of a longer one | timeout memory | 0.4
sys.set_int_max_str_digits(0)
str(7**10**7)
### endless recursion | error killed memory timeout | 0.4
sys.setrecursionlimit(10**9)
def again():
    return again()
again()
### a read from address zero | killed
ctypes.string_at(0)
### a factorial of a factorial | timeout memory error | 0.4
import sympy
print(sympy.factorial(sympy.factorial(12)))
### nested too deep | error memory killed
eval("(" * 100_000 + ")" * 100_000)
### abort | killed
os.abort()
### the builtins removed | ok error
import builtins
for name in list(vars(builtins)):
    delattr(builtins, name)
### the runner's frames and modules overwritten | ok error killed
for module in list(sys.modules.values()):
    for name in list(getattr(module, "__dict__", {})):
        attempt(lambda: setattr(module, name, None))
### stdout closed | ok error
os.close(1)
os.close(2)
print("x")
"""

ESCAPE = """
### new namespaces | ok
for flags in (0x10000000, 0x50000000, 0x20000, 0x20000000):
    assert libc.unshare(flags) == -1
### mounts | ok
os.mkdir("m")
assert libc.mount(b"tmpfs", b"m", b"tmpfs", 0, None) == -1
assert libc.mount(b"/", b"m", None, 4096, None) == -1
assert isinstance(attempt(lambda: os.chroot("/")), OSError)
### io_uring | ok
assert libc.syscall(425, 8, ctypes.create_string_buffer(120)) == -1
### a system call newer than the list | ok
for number in range(463, 480):
    assert libc.syscall(number, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 38
### keys of the kernel's key ring | ok
assert libc.syscall({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 1) == -1
### another user | ok
assert isinstance(attempt(lambda: os.setuid(12345)), OSError)
assert isinstance(attempt(lambda: os.setgid(12345)), OSError)
### devices and sockets in its own folder | ok
import stat
for kind in (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
    assert isinstance(attempt(lambda: os.mknod("node", kind | 0o666, os.makedev(1, 1))), OSError)
### run a program it wrote itself | ok
open("script", "w").write(f"#!/bin/sh\\ncat {CANARY}\\n")
os.chmod("script", 0o755)
assert isinstance(attempt(lambda: os.execv("script", ["script"])), OSError)
### the 32-bit door | killed
assert os.uname().machine == "x86_64" or os.abort()
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (getpid on i386); int 0x80; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
### the x32 door | killed
assert os.uname().machine == "x86_64" or os.abort()
libc.syscall(0x40000000 | 39)
### outlive the monitor | ok
assert libc.prctl(1, 0, 0, 0, 0) == -1
### a faked failure of the set-up | error
print("setup_failed: the walls were not up in time", file=sys.stderr)
for number in range(3, 64):
    attempt(lambda: os.write(number, b"unshare: Operation not permitted"))
os._exit(125)
"""

CLASSES = {
    name.lower(): parse(text)
    for name, text in globals().copy().items()
    if name.isupper() and isinstance(text, str) and name != "PRELUDE"
}
