"""Room for connections: each is an open file, of which a process may have only so many, mostly 1,024.

That limit is the process's own and may be raised up to the system's.
"""

from __future__ import annotations

import logging
import weakref

SPARE = 300  # for what else is open: run folders, workers, a notebook's kernel

log = logging.getLogger(__name__)
_connections: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
_said: set[int] = set()  # limits that were too low


def make_room(transport: object, connections: int) -> None:
    """Raises the limit so that all transports that are open may have the connections they were given; says so
    where it cannot be raised as far."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _connections[transport] = connections
    wanted = SPARE + sum(_connections.values())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    if soft == endless or soft >= wanted:
        return
    reached = wanted if hard == endless else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, reached), hard))
    except (OSError, ValueError):  # macOS names no limit and has one
        reached = soft
    if reached < wanted and reached not in _said:
        _said.add(reached)
        log.warning(
            "this process may open %d files, but max_concurrency asks for up to %d connections: calls may "
            "fail with 'Too many open files'. Lower max_concurrency, or raise the limit (ulimit -Hn)",
            reached,
            wanted - SPARE,
        )
