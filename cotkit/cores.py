"""How many cores there are for this process."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """The cores this process may use: its affinity, cut to a container's quota (cgroup v2); at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        cores = min(cores, int(quota) // int(period))
    except (OSError, ValueError):  # no cgroup, or "max": no quota
        pass
    return max(1, cores)
