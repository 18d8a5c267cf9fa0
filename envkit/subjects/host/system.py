"""The machine around the GPUs: processors, memory, clocks, limits, file systems, names."""

from __future__ import annotations

from typing import Literal

from envkit.records import dataclass
from envkit.subjects.host.values import Count, Told, ToldAmount

RemoteEnded = Literal["answered", "hung", "error"]


@dataclass(frozen=True, slots=True)
class Frequency:
    """How fast processors may run: one line for all that are governed alike.

    ``limit`` is the most in force and ``most`` what the processor can do, in kHz.  ``driver`` and ``governor`` are the
    kernel's words; ``preference`` the energy preference where the driver has one, else empty.
    """

    processors: Count
    driver: str
    governor: str
    preference: str = ""
    limit: Count = 0
    most: Count = 0


@dataclass(frozen=True, slots=True)
class Processors:
    """The processors by number; ``usable`` are those on which this process may run.

    ``smt`` is the kernel's word for simultaneous multithreading ("on", "off", "forceoff", "notsupported", ...), empty
    where it has none; ``hypervisor`` whether they are a guest's.
    """

    present: Count
    online: Count
    usable: Count
    smt: str = ""
    hypervisor: bool = False


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the kernel sets the processors' clocks: empty ``frequencies`` where it does not (a guest, most often).

    ``boost`` is "on" or "off", empty if the driver has no such switch.
    """

    frequencies: tuple[Frequency, ...] = ()
    boost: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of /proc/meminfo and /proc/swaps, in bytes.

    ``swap_used`` leaves out compressed memory (zram), which is no disk.  ``huge`` is set aside for huge pages,
    ``huge_free`` the part of it that nobody uses.  ``commit_limit`` and ``committed`` count where overcommitting is
    forbidden.
    """

    total: Count
    available: Count
    swap: Count = 0
    swap_used: Count = 0
    huge: Count = 0
    huge_free: Count = 0
    commit_limit: Count = 0
    committed: Count = 0


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A node: its memory in bytes and how many processors belong to it.

    ``free`` counts the free bytes of its ordinary zone and ``free_large`` those of them in blocks of at least 2 MiB,
    both -1 where the kernel does not tell.
    """

    number: Count
    memory: Count
    processors: Count
    free: Told = -1
    free_large: Told = -1


@dataclass(frozen=True, slots=True)
class MemoryController:
    """A memory controller's count of corrected and uncorrected errors since boot."""

    name: str
    corrected: Count
    uncorrected: Count


@dataclass(frozen=True, slots=True)
class Throttling:
    """How long processors were slowed by heat since boot, in ms: the package that was worst, and of how many."""

    packages: Count
    worst_ms: Count


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """What the control groups of this process grant, its own and those above it; -1 for unlimited.

    ``processors`` is the quota in whole processors (2.5 for 250 ms in 100 ms).  ``memory`` is the limit and
    ``memory_used`` what counts against it and cannot be dropped, in bytes, of the tightest group.  ``tasks`` and
    ``tasks_used`` count processes and threads.  ``killed`` is how often the kernel killed in the own group for want of
    memory.
    """

    processors: ToldAmount = -1
    memory: Told = -1
    memory_used: Count = 0
    tasks: Told = -1
    tasks_used: Count = 0
    killed: Count = 0


@dataclass(frozen=True, slots=True)
class Clock:
    """The source of the kernel's ticks, and the others that it could take."""

    source: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """What adjtimex(2) says: whether somebody disciplines the clock, and the most it may be off, in microseconds."""

    synchronised: bool
    most_error_us: Count


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount: where, of what kind, of which device; ``read_only`` by its own options, ``frozen`` by its file
    system's, which the kernel sets after an error.
    """

    path: str
    kind: str
    device: str
    read_only: bool = False
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class RemoteMount:
    """A mount of another machine's files and how it answered statvfs(2): ``ended`` is "answered", "hung" (``detail``
    says for how long) or "error" (``detail`` is the error).
    """

    path: str
    kind: str
    device: str
    ended: RemoteEnded
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Raid:
    """An array of /proc/mdstat: its members wanted and in use (0 for a level without spares), and the failed."""

    name: str
    active: bool
    level: str = ""
    wanted: Count = 0
    working: Count = 0
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NvmeDrive:
    """An NVMe controller; ``state`` is the kernel's word ("live", "resetting", "dead", ...)."""

    name: str
    state: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """What the machine's own name and "localhost" lead to; ``error`` of a name that leads nowhere, else empty."""

    hostname: str
    addresses: tuple[str, ...] = ()
    error: str = ""
    localhost: tuple[str, ...] = ()
    localhost_error: str = ""


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path that a variable names.

    ``kind`` is "directory", "file", "other" or "absent"; ``writable`` whether this user may write there or, where it
    is absent, create it; ``holds`` the entries looked for that are there ("bin/nvcc", "control"); ``executable``
    whether this user may run a file, None where nobody asked.
    """

    variable: str
    path: str
    kind: str
    writable: bool = False
    holds: tuple[str, ...] = ()
    executable: bool | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """Processes and threads of the machine, and open files, each with the most there can be."""

    threads: Count
    most_threads: Count
    most_pids: Count
    files: Count
    most_files: Count
