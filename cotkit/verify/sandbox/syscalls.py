"""Which system calls a program may not make, with their numbers on x86_64 and aarch64.

Sources: x86_64 numbers from Linux's arch/x86/entry/syscalls/syscall_64.tbl, aarch64 numbers from
include/uapi/asm-generic/unistd.h; every call up to number 462 (Linux 6.10) was read for this list.
An entry is name, x86_64 number, aarch64 number; "-" where the machine has no such call.
"""

from __future__ import annotations

REVIEWED = 462  # the last call that was read; later ones are answered ENOSYS

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # include/uapi/linux/audit.h
MACHINES = tuple(AUDIT_ARCH)

REFUSED = {  # answered EPERM
    # sendmsg passes descriptors and addresses; socketpair stays, asyncio needs it
    "network": """
        socket 41 198, connect 42 203, accept 43 202, accept4 288 242, bind 49 200, listen 50 201,
        sendmsg 46 211, sendmmsg 307 269""",
    "other processes": """
        ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
        process_mrelease 448 448, kcmp 312 272, pidfd_open 434 434, pidfd_getfd 438 438,
        pidfd_send_signal 424 424, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
        migrate_pages 256 238, move_pages 279 239, sched_setaffinity 203 122, sched_setscheduler 144 119,
        sched_setparam 142 118, sched_setattr 314 274, setpriority 141 140, ioprio_set 251 30""",
    "new processes": "fork 57 -, vfork 58 -, execve 59 221, execveat 322 281",
    "namespaces and mounts": """
        unshare 272 97, setns 308 268, mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51,
        open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432,
        fspick 433 433, mount_setattr 442 442, statmount 457 457, listmount 458 458""",
    # Landlock has no rule for owners and watches; before ABI 3 none for truncate
    "files past Landlock": """
        truncate 76 45, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54,
        inotify_init 253 -, inotify_init1 294 26, inotify_add_watch 254 27, fanotify_init 300 262""",
    # memory that RLIMIT_AS does not count, and System V / POSIX objects of the user's other programs
    "shared memory and queues": """
        memfd_create 319 279, memfd_secret 447 447, shmget 29 194, shmat 30 196, shmctl 31 195,
        semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192, msgget 68 186, msgsnd 69 189,
        msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181""",
    "kernel surface": """
        io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, io_setup 206 0,
        bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, keyctl 250 219, add_key 248 217,
        request_key 249 218, name_to_handle_at 303 264, open_by_handle_at 304 265, init_module 175 105,
        finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
        reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,
        quotactl_fd 443 443, modify_ldt 154 -, ioperm 173 -, iopl 172 -, personality 135 92,
        syslog 103 116, sethostname 170 161, setdomainname 171 162, lookup_dcookie 212 18,
        vhangup 153 58, sync 162 81, syncfs 306 267""",
}

# Answered "done" without doing anything: shutil.copy must work, other people's files must stay as they are.
PRETENDED = """
    chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, utime 132 -, utimes 235 -,
    futimesat 261 -, utimensat 280 88"""

# Answered ENOTSUP, as by a disk without extended attributes: Landlock has no rule for them.
UNSUPPORTED = """
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10,
    listxattr 194 11, llistxattr 195 12, flistxattr 196 13, removexattr 197 14, lremovexattr 198 15,
    fremovexattr 199 16"""

# Allowed or not by an argument: see `jail.seccomp_filter`. clone3 is answered ENOSYS, glibc then uses clone.
FILTERED = """
    clone 56 220, clone3 435 435, kill 62 129, tkill 200 130, tgkill 234 131, prlimit64 302 261,
    fcntl 72 25, ioctl 16 29, prctl 157 167, sendto 44 206"""


def numbers(table: str, machine: str) -> dict[str, int]:
    """Name -> number on `machine`, without the calls it does not have."""
    column = 1 + MACHINES.index(machine)
    entries = (entry.split() for entry in table.split(","))
    return {entry[0]: int(entry[column]) for entry in entries if entry[column] != "-"}
