"""Puts a Host together: the sources of each group are read in a child, all of them within a budget.

A child is a fork of this process, which costs some five milliseconds of a processor.  It reads the groups of its lane
one after another and sends each value as soon as it has it: a hang or a death costs what comes after it in its group
and nothing else, for another child goes on with the next.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from envkit.errors import UsageError
from envkit.host import (
    containers,
    cpu,
    disks,
    driver,
    engine,
    fabric,
    files,
    log,
    machine,
    memory,
    modules,
    names,
    network,
    nodes,
    packages,
    pci,
    rdma,
    remote,
    services,
)
from envkit.host.root import HostRoot, Source
from envkit.model import Observed, Reason
from envkit.payload import isolate
from envkit.payload.isolate import Ending, Task
from envkit.records import dataclass
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.host import Host
from envkit.subjects.host.expected import Expected
from envkit.versions import Cuda

_LIVE = Path("/")
_ITS_OWN = 0.95  # of its limit: a child that was stopped before had no time left for a fault of its own
_FILE_S = 2.0  # reading files of /proc, /sys and /etc takes milliseconds; beyond this a file system hangs

Found = Mapping[str, Observed[Any]]


@dataclass(frozen=True, slots=True)
class Group:
    """Sources that one child reads one after another, within ``limit_s`` seconds.

    The groups of a ``lane`` are read by the same child; without one it has a child of its own.  ``sources`` gives them
    by the field of Host that each fills.  Where ``kind`` is given they are no fields, but what the child finds to read,
    each of that type.  ``join`` makes fields of what was found; it is told how the child ended, None if it ended well.
    """

    name: str
    sources: Callable[[HostRoot], Mapping[str, Source]]
    limit_s: float = _FILE_S
    kind: Any = None
    join: Callable[[Found, Ending | None], Found] | None = None
    lane: str = ""


def _nvml(place: HostRoot) -> Observed[Any]:
    from envkit.host import nvml  # pynvml takes as long to import as all else is read: the child alone does it

    return nvml.SOURCES["nvml"](place)


def _nvml_ended(found: Found, ending: Ending | None) -> Found:
    if ending is None:
        return found
    from envkit.host import nvml

    return nvml.join(found, ending)


_NVML = "NVML"

# Lanes, side by side: what the kernel and files say, in two halves; what wakes a driver; what may wait for another
# machine or for a daemon.  The cheapest first: where the budget is short these answer before the others.
GROUPS = (
    Group("the machine", lambda place: {**machine.SOURCES, **cpu.SOURCES, **memory.SOURCES}, lane="files"),
    Group("the driver", lambda place: {**driver.SOURCES, **modules.SOURCES}, lane="files"),
    Group("the packages", lambda place: packages.SOURCES, lane="files"),
    Group("the driver's GPUs", lambda place: driver.GPU_SOURCES, 60.0, lane="driver"),
    # the last ones look into the home directory, which may be another machine's
    Group("the configuration", lambda place: {**files.SOURCES, **containers.SOURCES, **rdma.CONFIGURED}, lane="files"),
    Group("the device nodes", nodes.sources, 60.0, nodes.KIND, nodes.join, lane="driver"),
    Group("the PCI bus", lambda place: {**pci.SOURCES, **network.SOURCES}, lane="devices"),
    Group("the disks", lambda place: disks.SOURCES, lane="devices"),
    # each may wait for a server that is gone, and tells so itself a little earlier
    Group("other machines' file systems", lambda place: remote.SOURCES, 2.0, lane="servers"),
    Group("the names", lambda place: names.SOURCES, 2.0, lane="servers"),
    Group("the services", lambda place: services.SOURCES, 3.0, lane="daemons"),
    Group("the engine", lambda place: engine.SOURCES, 5.0, None, engine.join, lane="daemons"),
    Group("the fabric", lambda place: fabric.SOURCES, lane="devices"),
    Group("the RDMA devices", lambda place: rdma.SOURCES, 3.0, lane="devices"),
    Group("the vital product data", lambda place: fabric.VITAL, 4.0, lane="devices"),
    Group("the kernel log", log.sources, 4.0, lane="devices"),
    # without persistence mode starting the driver takes seconds for each GPU: it may take the whole budget
    Group(_NVML, lambda place: {"nvml": _nvml}, 60.0, None, _nvml_ended),
)


def _unanswered(group: Group, ending: Ending) -> Observed[Any]:
    """A field whose reader did not end well; one that hung or was killed is a sign of a fault."""
    reason = None
    if ending.ended == "hung" and ending.seconds < group.limit_s * _ITS_OWN:
        how = f"had no answer when the budget of all was spent, after {ending.seconds:.1f} s"
    elif ending.ended == "hung":
        how, reason = f"hung: {ending.detail}", Reason.READER_DIED
    elif ending.ended == "killed":
        how, reason = f"was killed by {ending.signal}", Reason.READER_DIED
    else:
        how = f"failed: {ending.detail or ending.ended}"
    return Observed.lost(f"the reader of {group.name} {how}", reason=reason)


# what a file whose text is not what every kernel writes makes of its reader; the other sources must not pay for it
_FAILURES = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)


def _read(group: Group, place: HostRoot) -> Task:
    def work(say: Callable[[Any], None]) -> None:
        sources = group.sources(place)
        say(dict.fromkeys(sources))
        for name, source in sources.items():
            try:
                seen = source(place)
            except _FAILURES as error:
                seen = Observed.lost(f"its reader failed: {type(error).__name__}: {error}")
            say({name: to_plain(seen)})

    return Task(group.name, "", group.limit_s, work, strict=True)


def read_groups(
    groups: tuple[Group, ...], place: HostRoot, budget_s: float, meanwhile: Callable[[], object] | None = None
) -> dict[str, Observed[Any]]:
    """What each field of Host was found to be, all lanes side by side and within ``budget_s`` seconds.

    ``meanwhile`` is called once while the children read, for work of this process that does not wait for them.
    """
    kinds = get_type_hints(Host, include_extras=True)
    found: dict[str, Observed[Any]] = {}
    lanes: dict[str, list[Task]] = {}
    plans: dict[str, tuple[Group, dict[str, Any]]] = {}
    for group in groups:
        # what the child has yet to find may hang it, so it is not looked for here
        plain: dict[str, Any] = dict.fromkeys(() if group.kind else group.sources(place))
        plans[group.name] = (group, plain)
        lanes.setdefault(group.lane or group.name, []).append(_read(group, place)._replace(heard=plain.update))

    def done(task: Task, ending: Ending) -> None:
        group, plain = plans[task.name]
        seen: dict[str, Observed[Any]] = {}
        if not plain and ending.ended != "ran":
            plain[""] = None  # it did not even say what there is to read
        for name, value in plain.items():
            if value is None:
                seen[name] = _unanswered(group, ending)
                continue
            try:
                seen[name] = from_plain(group.kind or kinds[name], value)
            except UsageError as error:
                seen[name] = Observed.lost(f"the reader of {group.name} said something else: {error.message}")
        ended = None if ending.ended == "ran" else ending
        found.update(group.join(seen, ended) if group.join else seen)

    isolate.run([*lanes.values()], budget_s, done, meanwhile=meanwhile, shared=True)
    return found


def observe_host(
    root: Path = _LIVE,
    budget_s: float = 8.0,
    *,
    wanted_cuda: str = "",
    expected: Expected | None = None,
    name: str = "",
    environ: Mapping[str, str] | None = None,
    groups: tuple[Group, ...] = GROUPS,
    meanwhile: Callable[[], object] | None = None,
) -> Host:
    """This machine, or the one whose root lies at ``root``, within ``budget_s`` seconds.

    ``wanted_cuda`` is the toolkit version that shall run here, ``expected`` the contract of the machine, if somebody
    declared them; ``name`` replaces the machine's own; ``environ`` its environment; ``meanwhile`` is as for
    ``read_groups``.  NVML and the C library are always this process's.  Raises UsageError if ``wanted_cuda`` is no
    version.
    """
    if wanted_cuda:
        try:
            Cuda(wanted_cuda)
        except ValueError as error:
            raise UsageError(str(error)) from error
    place = HostRoot(root, os.environ if environ is None else environ)
    return Host(
        name or platform.node() or "this machine",
        wanted_cuda=Observed.of(wanted_cuda, "declared") if wanted_cuda else Observed.lost("none was declared"),
        expected=Observed.of(expected, "declared") if expected else Observed.lost("none was declared"),
        newer_fields=(),
        **read_groups(groups, place, budget_s, meanwhile),
    )


def observe_gpus(budget_s: float = 60.0) -> Host:
    """This machine as NVML alone tells of it: its driver and its GPUs."""
    return observe_host(budget_s=budget_s, groups=tuple(group for group in GROUPS if group.name == _NVML))
