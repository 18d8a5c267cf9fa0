"""What is asked of a machine's memory: that it is there, whole, free enough, and granted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._host import gib, is_workstation, need_gpu, nvml_answers, setting, switch
from envkit.judging.checks._log import count, log_lines, since_boot
from envkit.judging.checks._outcomes import note, or_unknown, skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host

_GIB = 1024**3
# importing torch and opening a CUDA context takes 1 to 3 GiB; gpud calls a machine unhealthy below 100 MiB
_FREE_LEAST = 512 * 1024**2
_FREE_WANTED = 4 * _GIB
_NODES_DIFFER = 0.10  # of the larger node; a DIMM is an eighth of a socket's at most, what the firmware keeps 1 to 2 %
_CORRECTED_MANY = 10  # sichek's threshold of corrected memory errors
_LARGE_LEAST = 0.01  # of a node's free memory; a proposal: a machine after weeks of work showed 76 % here
_TASKS_LEAST = 2048  # podman's default for a container
_USED, _NEARLY_ALL = 0.80, 0.95  # leptonai/gpud's degrees for threads
_PROCESSES_WANTED = 4096  # a proposal: 8 ranks with 16 loaders of some tens of threads each


def _free(host: Host) -> tuple[int, str]:
    """The bytes that this process may still take, and who says so: the machine or its control group."""
    free, via = host.memory.need("the memory").available, host.memory.via
    group = host.control_group.need("this process's control group")
    if group.memory >= 0 and group.memory - group.memory_used < free:
        return max(group.memory - group.memory_used, 0), f"{host.control_group.via}: memory limit"
    return free, via


def host_available_memory_low(host: Host) -> Iterator[Finding]:
    """There is memory left for a job, in the machine and in this process's control group."""
    free, via = _free(host)
    if free < _FREE_WANTED:
        yield Finding(
            f"{gib(free)} of memory are left, less than {gib(_FREE_WANTED)}",
            Severity.ERROR if free < _FREE_LEAST else Severity.WARNING,
            "memory",
            {f"{free} bytes": via},
            "end leftover processes, or grant more (`docker run --memory`, `srun --mem`); check it with `free -g`",
        )


def host_memory_smaller_than_gpu_memory(host: Host) -> Iterator[Finding]:
    """The machine has at least as much memory as its GPUs together, and grants it."""
    need_gpu(host)
    sizes = [gpu.memory.need(f"the memory of GPU {gpu.index}") for gpu in nvml_answers(host).gpus]
    total, via = host.memory.need("the memory").total, host.memory.via
    limit = host.control_group.need("this process's control group").memory
    if 0 <= limit < total:
        total, via = limit, f"{host.control_group.via}: memory limit"
    if total < sum(sizes):
        yield note(
            f"the machine has {gib(total)} of memory and {len(sizes)} GPUs with {gib(sum(sizes))}",
            "memory",
            {f"{total} bytes": via, f"{sum(sizes)} bytes": "nvmlDeviceGetMemoryInfo"},
            "load and save a model in shards, and pin little; check it with `free -g`",
        )


def host_numa_memory_unequal(host: Host) -> Iterator[Finding]:
    """The NUMA nodes have equal memory, so that no module of one is missing."""
    skip_if(host.processors.need("the processors").hypervisor, "a guest's nodes are what its owner made them")
    skip_if(host.numa.is_unsupported, "this kernel knows no NUMA nodes")
    nodes = [node for node in host.numa.need("the NUMA nodes") if node.processors]
    skip_if(len(nodes) < 2, "all processors are of one node")
    most = max(node.memory for node in nodes)
    for node in nodes:
        if node.memory < most * (1 - _NODES_DIFFER):
            yield warning(
                f"node {node.number} has {gib(node.memory)} and another one {gib(most)}",
                f"node {node.number}",
                {f"{node.memory} bytes": host.numa.via},
                "look for a module that the firmware dropped with `dmidecode -t memory`; check it with "
                "`numactl --hardware`",
            )


def host_system_memory_errors(host: Host) -> Iterator[Finding]:
    """The memory controllers counted no uncorrected error since boot, and few corrected ones."""
    skip_if(host.memory_errors.is_unsupported, "no driver counts this machine's memory errors")
    for one in host.memory_errors.need("the memory controllers"):
        if one.uncorrected or one.corrected >= _CORRECTED_MANY:
            named = [line.text for line in host.log.value or () if f"EDAC {one.name.upper()}: " in line.text]
            yield Finding(
                f"memory controller {one.name} counts {one.uncorrected} uncorrected and {one.corrected} corrected "
                "errors since boot" + (f", the last: `{named[-1]}`" if named else ""),
                Severity.ERROR if one.uncorrected else Severity.WARNING,
                one.name,
                {f"{one.uncorrected} uncorrected, {one.corrected} corrected": host.memory_errors.via}
                | dict.fromkeys(named[-1:], host.log.via),
                "find the module with `ras-mc-ctl --errors` or the server's event log, and have it replaced; check it "
                "with `grep . /sys/devices/system/edac/mc/mc*/*_count`",
            )


def host_memory_fragmented(host: Host) -> Iterator[Finding]:
    """Each node has free blocks of 2 MiB."""
    skip_if(host.numa.is_unsupported, "this kernel knows no NUMA nodes")
    nodes = [node for node in host.numa.need("the NUMA nodes") if node.free >= _GIB]
    skip_if(not nodes, "no node reports 1 GiB of free memory in its Normal zone")
    for node in nodes:
        if node.free_large < _LARGE_LEAST * node.free:
            yield note(
                f"node {node.number} has {gib(node.free)} free, of which {gib(node.free_large)} in blocks of 2 MiB",
                f"node {node.number}",
                {f"{node.free_large} of {node.free} bytes": "/proc/buddyinfo"},
                "`sync; echo 1 > /proc/sys/vm/compact_memory` between two jobs; check it with `cat /proc/buddyinfo`",
            )


def host_transparent_huge_pages_off(host: Host) -> Iterator[Finding]:
    """Programs may get transparent huge pages at least if they ask (madvise)."""
    mode, via = switch(host, "transparent_hugepage")
    if mode not in ("always", "madvise", "never"):
        raise Unknown(f"transparent_hugepage is `{mode[:40]}`, which is no mode that is known")
    if mode == "never":
        yield note(
            "transparent huge pages are switched off",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            {mode: via},
            "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`; check it with `cat` of the same file",
        )


def host_numa_balancing_on(host: Host) -> Iterator[Finding]:
    """The kernel does not move pages between the nodes of a GPU server by itself."""
    need_gpu(host)
    skip_if(all(is_workstation(gpu) for gpu in nvml_answers(host).gpus), "only a server's GPUs are far enough apart")
    skip_if(host.numa.is_unsupported or len(host.numa.need("the NUMA nodes")) < 2, "this machine has one NUMA node")
    mode, via = setting(host, "kernel.numa_balancing")
    if mode:
        yield note(
            "the kernel moves pages between NUMA nodes by itself",
            "kernel.numa_balancing",
            {str(mode): via},
            "bind each rank to its GPU's node and set `sysctl kernel.numa_balancing=0`; check it with "
            "`sysctl kernel.numa_balancing`",
        )


def host_zone_reclaim_on(host: Host) -> Iterator[Finding]:
    """A node that is full takes memory of another one before it drops its cache."""
    skip_if(host.numa.is_unsupported or len(host.numa.need("the NUMA nodes")) < 2, "this machine has one NUMA node")
    mode, via = setting(host, "vm.zone_reclaim_mode")
    if mode:
        yield note(
            f"vm.zone_reclaim_mode is {mode}: a full node drops its cache before it takes memory of another one",
            "vm.zone_reclaim_mode",
            {str(mode): via},
            "`sysctl vm.zone_reclaim_mode=0`; check it with `sysctl vm.zone_reclaim_mode`",
        )


def host_memory_overcommit_off(host: Host) -> Iterator[Finding]:
    """The kernel grants address space beyond its memory, as large processes that fork need."""
    mode, via = setting(host, "vm.overcommit_memory")
    memory = host.memory.need("the memory")
    if mode == 2:
        room = memory.commit_limit - memory.committed
        yield warning(
            f"vm.overcommit_memory is 2 and {gib(max(room, 0))} may still be committed, while "
            f"{gib(memory.available)} are available",
            "vm.overcommit_memory",
            {"2": via, f"{room} bytes": "CommitLimit - Committed_AS"},
            "`sysctl vm.overcommit_memory=0`, or raise vm.overcommit_ratio; check it with `grep Commit /proc/meminfo`",
        )


def host_address_space_limited(host: Host) -> Iterator[Finding]:
    """No limit on address space keeps CUDA from reserving a range as large as all memories together."""
    limits = host.limits.need("this process's limits")
    limit = or_unknown(limits.get("as"), "the limit on address space was not observed")
    if limit.soft >= 0:
        yield warning(
            f"this process may have {gib(limit.soft)} of address space",
            "RLIMIT_AS",
            {str(limit.soft): host.limits.via},
            "limit memory by a control group in its place, and set `ulimit -v unlimited`; check it with `ulimit -v`",
        )


def host_process_limit_too_low(host: Host) -> Iterator[Finding]:
    """This process's limits and control groups allow the threads of a job."""
    limits = host.limits.need("this process's limits")
    group = host.control_group.need("this process's control group")
    limit = or_unknown(limits.get("nproc"), "the limit on processes was not observed")
    if 0 <= limit.soft < _PROCESSES_WANTED:
        yield warning(
            f"this user may have {limit.soft} processes and threads, {_PROCESSES_WANTED} are wanted",
            "RLIMIT_NPROC",
            {str(limit.soft): host.limits.via},
            "set nproc in /etc/security/limits.conf, and `--ulimit nproc` for containers; check it with `ulimit -u`",
        )
    if group.tasks >= 0:
        used = group.tasks_used / group.tasks if group.tasks else 1.0
        if used >= _USED or group.tasks < _TASKS_LEAST:
            yield Finding(
                f"{group.tasks_used} of {group.tasks} threads are taken in this process's control group",
                Severity.ERROR if used >= _NEARLY_ALL else Severity.WARNING,
                "pids.max",
                {f"{group.tasks_used} of {group.tasks}": host.control_group.via},
                "raise it: `docker run --pids-limit`, TasksMax of the unit or the user's slice; check it with "
                "`cat /sys/fs/cgroup/pids.max`",
            )


def host_out_of_memory_kill(host: Host) -> Iterator[Finding]:
    """The kernel killed nothing for want of memory: in this control group, or on the machine since boot."""
    group = host.control_group.need("this process's control group")
    if group.killed:
        yield warning(
            f"the kernel killed processes {group.killed} times in this process's control group because memory ran out",
            "memory.events",
            {f"oom_kill {group.killed}": host.control_group.via},
            "grant more memory, or run fewer data loaders; check it with `cat /sys/fs/cgroup/memory.events`",
        )
        return
    if host.oom_kills.is_unsupported:  # a kernel before the counter
        killed = count(log_lines(host, "oom"))
    else:
        killed = host.oom_kills.need("how often the kernel killed for want of memory")
    if killed:
        lines = [line for line in host.log.value or () if line.topic == "oom"]
        whole = any(not re.search("memory cgroup", line.text, re.IGNORECASE) for line in lines)
        yield Finding(
            f"the kernel killed {killed} processes since boot because memory ran out"
            + (f", the last{since_boot(lines[-1].at)}: `{lines[-1].text}`" if lines else ""),
            Severity.WARNING if whole else Severity.NOTE,
            "/proc/vmstat",
            {f"oom_kill {killed}": host.oom_kills.via} | {line.text: host.log.via for line in lines[-1:]},
            "give jobs a memory limit of their own, fewer workers or more memory, and check what is in /dev/shm; "
            "check it with `journalctl -k -g 'Killed process'`",
        )


CHECKS = rows(__name__)
