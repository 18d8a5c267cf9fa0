"""What /sys and /proc say of memory: how much, where, its errors, and what the control groups grant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from envkit.host.cpu import parse_list
from envkit.host.root import HostRoot, by_name
from envkit.model import Observed
from envkit.subjects.host.system import ControlGroup, Memory, MemoryController, NumaNode

_NODES = "sys/devices/system/node"
_CONTROLLERS = "sys/devices/system/edac/mc"
_UNLIMITED = 1 << 60  # version 1 writes the largest multiple of a page for "no limit", just below 2**63
_LARGE = 2 << 20  # a huge page of x86-64, what a driver asks for first
_PAGE = 4096  # of x86-64, whence recorded trees are taken to come


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes, and the counts without a unit as they are; raises ValueError for other text."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number, *unit = rest.split()
        found[name] = int(number) * (1024 if unit == ["kB"] else 1)
    return found


def swap_used(text: str) -> int:
    """The bytes of /proc/swaps that lie on disks; compressed memory is none."""
    used = 0
    for line in text.splitlines()[1:]:
        name, _, _, taken = line.split()[:4]
        if not name.startswith("/dev/zram"):
            used += int(taken) * 1024
    return used


def memory(place: HostRoot) -> Observed[Memory]:
    """The machine's memory; raises KeyError for a kernel that does not say how much is available."""
    info = parse_meminfo(place.word("proc/meminfo"))
    page = info.get("Hugepagesize", 0)
    try:
        used = swap_used(place.word("proc/swaps"))
    except FileNotFoundError:  # a kernel without swapping
        used = 0
    huge = (info.get(name, 0) * page for name in ("HugePages_Total", "HugePages_Free"))
    promised = (info.get(name, 0) for name in ("CommitLimit", "Committed_AS"))
    seen = Memory(info["MemTotal"], info["MemAvailable"], info.get("SwapTotal", 0), used, *huge, *promised)
    return Observed.of(seen, "/proc/meminfo")


def free_blocks(text: str, page: int = _PAGE) -> dict[int, tuple[int, int]]:
    """For each node of /proc/buddyinfo the free bytes of its ordinary zone, and those in blocks of 2 MiB or more."""
    found: dict[int, tuple[int, int]] = {}
    for line in text.splitlines():
        row = re.fullmatch(r"Node\s+([0-9]+),\s+zone\s+(\w+)((?:\s+[0-9]+)+)\s*", line)
        if row is None:
            raise ValueError(f"`{line[:60]}` is no line of /proc/buddyinfo")
        if row[2] == "Normal":
            sizes = [(page << order) * int(count) for order, count in enumerate(row[3].split())]
            large = sum(size for order, size in enumerate(sizes) if page << order >= _LARGE)
            found[int(row[1])] = (sum(sizes), large)
    return found


def numa(place: HostRoot) -> Observed[tuple[NumaNode, ...]]:
    """The nodes; unsupported on a kernel that knows none."""
    try:
        numbers = sorted(int(name[4:]) for name in place.names(_NODES) if re.fullmatch(r"node[0-9]+", name))
    except FileNotFoundError:
        return Observed.unsupported(f"/{_NODES}")
    try:
        blocks = free_blocks(place.word("proc/buddyinfo"), os.sysconf("SC_PAGE_SIZE") if place.live else _PAGE)
    except (PermissionError, FileNotFoundError):  # it has mode 0400 on hardened kernels
        blocks = {}
    found = []
    for number in numbers:
        total = re.search(r"MemTotal:\s+([0-9]+) kB", place.word(f"{_NODES}/node{number}/meminfo"))
        if total is None:
            raise ValueError(f"no MemTotal of node {number}")
        processors = parse_list(place.word(f"{_NODES}/node{number}/cpulist"))
        found.append(NumaNode(number, int(total[1]) * 1024, len(processors), *blocks.get(number, (-1, -1))))
    return Observed.of(tuple(found), f"/{_NODES}")


def memory_errors(place: HostRoot) -> Observed[tuple[MemoryController, ...]]:
    """The counters of the memory controllers; unsupported where no driver counts."""
    try:
        names = [name for name in place.names(_CONTROLLERS) if re.fullmatch(r"mc[0-9]+", name)]
    except FileNotFoundError:
        names = []
    if not names:
        return Observed.unsupported(f"/{_CONTROLLERS}")
    found = []
    for name in names:
        base = f"{_CONTROLLERS}/{name}"
        corrected = int(place.word(f"{base}/ce_count"))
        uncorrected = int(place.word(f"{base}/ue_count"))
        found.append(MemoryController(name, corrected, uncorrected))
    return Observed.of(tuple(found), f"/{_CONTROLLERS}")


def parse_groups(text: str) -> dict[str, str]:
    """/proc/self/cgroup: the path by controller, that of version 2 under "" ."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path.strip("/")
    return found


def _levels(place: HostRoot, base: str, path: str) -> Iterator[str]:
    """The group's directory and those above it; the mount's root alone where the path is the host's, as in a
    container that shares its name space of groups.
    """
    parts = path.split("/") if path else []
    if ".." in parts or not place.exists("/".join([base, *parts])):
        parts = []
    for depth in range(len(parts), -1, -1):
        yield "/".join([base, *parts[:depth]])


def _number(place: HostRoot, name: str) -> int | None:
    """A limit or a count; -1 for "max", None where the file is not there, as in the root group."""
    try:
        text = place.word(name)
    except FileNotFoundError:
        return None
    return -1 if text == "max" or int(text) >= _UNLIMITED else int(text)


def _quota(place: HostRoot, level: str) -> float:
    """The processors that one group grants; -1 for no limit."""
    try:
        quota, period = place.word(f"{level}/cpu.max").split()
    except FileNotFoundError:
        quota = str(_number(place, f"{level}/cpu.cfs_quota_us"))
        period = str(_number(place, f"{level}/cpu.cfs_period_us"))
    return -1 if quota in ("max", "None") or int(quota) < 0 else int(quota) / int(period)


def _cached(place: HostRoot, level: str) -> int:
    """The bytes of a group that the kernel can drop: cached files."""
    text = place.word(f"{level}/memory.stat")
    known = dict(line.split(maxsplit=1) for line in text.splitlines())
    prefix = "total_" if "total_inactive_file" in known else ""
    return int(known[f"{prefix}inactive_file"]) + int(known[f"{prefix}active_file"])


def _memory(place: HostRoot, level: str) -> tuple[int, int] | None:
    """Limit and use of one group, None if it has no limit."""
    for limit, use in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        most = _number(place, f"{level}/{limit}")
        if most is not None and most >= 0:
            return most, max(int(place.word(f"{level}/{use}")) - _cached(place, level), 0)
    return None


def _killed(place: HostRoot, level: str) -> int:
    for name in ("memory.events.local", "memory.events", "memory.oom_control"):
        try:
            found = re.search(r"^oom_kill ([0-9]+)$", place.word(f"{level}/{name}"), re.MULTILINE)
        except FileNotFoundError:
            continue
        if found:
            return int(found[1])
    return 0


def control_group(place: HostRoot) -> Observed[ControlGroup]:
    """What the groups of this process grant, the tightest of each kind."""
    base = "sys/fs/cgroup"
    paths = parse_groups(place.word("proc/self/cgroup"))
    unified = place.exists(f"{base}/cgroup.controllers")

    def levels(controller: str) -> list[str]:
        if not unified and controller in paths:
            return list(_levels(place, f"{base}/{controller}", paths[controller]))
        return list(_levels(place, base, paths[""])) if unified and "" in paths else []

    if not any(levels(controller) for controller in ("cpu", "memory", "pids")):
        return Observed.lost(f"/{base} shows none of this process's control groups")
    quotas = [quota for level in levels("cpu") if (quota := _quota(place, level)) > 0]
    memories = [one for level in levels("memory") if (one := _memory(place, level)) is not None]
    counts = [
        (most, _number(place, f"{level}/pids.current") or 0)
        for level in levels("pids")
        if (most := _number(place, f"{level}/pids.max")) is not None and most >= 0
    ]
    limit, used = min(memories, key=lambda one: one[0] - one[1], default=(-1, 0))
    most, tasks = min(counts, key=lambda one: one[0] - one[1], default=(-1, 0))
    own = levels("memory")[:1]
    killed = _killed(place, own[0]) if own else 0
    return Observed.of(ControlGroup(min(quotas, default=-1), limit, used, most, tasks, killed), f"/{base}")


def oom_kills(place: HostRoot) -> Observed[int]:
    """How often the kernel killed a process for want of memory since boot; unsupported if it does not count."""
    found = re.search(r"^oom_kill ([0-9]+)$", place.word("proc/vmstat"), re.MULTILINE)
    return Observed.of(int(found[1]), "/proc/vmstat") if found else Observed.unsupported("/proc/vmstat")


SOURCES = by_name(memory, control_group, oom_kills, memory_errors, numa)
