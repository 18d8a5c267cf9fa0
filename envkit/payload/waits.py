"""How long processes waited for a processor, so that a busy machine is not taken for a hang.

A budget is meant for what a process does, or fails to do.  The time in which it was ready to run and the kernel gave
the processor to others is neither: it says something about the machine.  Linux counts that time for each thread (the
second number of /proc/PID/task/TID/schedstat, in nanoseconds; Documentation/scheduler/sched-stats.rst).  A process
that sleeps or spins for ever waits for no processor, or for its share only, and is still ended.

Where the kernel does not count (CONFIG_SCHED_INFO is off, or a sandbox stands in its place), no wait is seen, and
budgets are wall time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress

LONGEST = 8.0  # times its budget: where a task ends in any case, however little of the machine it got
_EVERY_S = 0.5  # compilers start processes that live for a second
_COST = 0.05  # at most this part of a processor goes into looking: a machine may have thousands of processes


def processes() -> dict[int, list[bytes]]:
    """Of every process the fields of /proc/PID/stat behind its name: state, parent, group, session, ... (proc(5))."""
    found: dict[int, list[bytes]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # it may be gone
            found[int(name)] = file.read().rpartition(b")")[2].split()
    return {pid: fields for pid, fields in found.items() if len(fields) > 3}


def _waited(pid: int) -> dict[int, float]:
    """Seconds that each thread of a process has waited for a processor in its life."""
    found: dict[int, float] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
            found[int(thread)] = int(file.read().split()[1]) / 1e9
    return found


class Waits:
    """Follows some processes and all below them."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._next = self._looked + _EVERY_S
        self._seen: dict[int, float] = {}

    def since(self, roots: Iterable[int]) -> dict[int, float]:
        """For each of ``roots``, the seconds since the last look that it or a process below it waited for a processor.

        Of several threads that waited at once, the one that waited longest counts.  Empty while it is too early to look
        again.
        """
        now = time.monotonic()
        if now < self._next:
            return {}
        spent = time.thread_time()  # not wall time, which is long just where there is something to see
        children: dict[int, list[int]] = {}
        for pid, fields in processes().items():
            children.setdefault(int(fields[1]), []).append(pid)
        seen: dict[int, float] = {}
        found: dict[int, float] = {}
        for root in roots:
            longest, below = 0.0, [root]
            while below:
                pid = below.pop()
                below += children.get(pid, ())
                for thread, waited in _waited(pid).items():
                    seen[thread] = waited
                    longest = max(longest, waited - self._seen.get(thread, 0.0))
            found[root] = min(longest, now - self._looked)
        self._seen, self._looked = seen, now
        self._next = now + max(_EVERY_S, (time.thread_time() - spent) / _COST)
        return found
