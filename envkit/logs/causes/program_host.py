"""The machine's own resources: memory, disk, descriptors, threads, and the rights to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, Says, gpu_roots, stated
from envkit.logs.records import Event, Hypothesis, Line, Strength
from envkit.logs.story import Story

_FOLLOWS = ("nccl-remote-error", "dataloader-shm-bus-error", "insufficient-evidence")
_ABSURD_BYTES = 1 << 40  # no machine that trains has a terabyte to give to one tensor
_GIB = 1 << 30
_MEMORY_NEXT = ("dmesg -T | grep -i -E 'oom|killed process'", "free -g; cat /sys/fs/cgroup/memory.max")
_MORE_MEMORY = "give the job more memory of the machine, or use less: fewer workers, smaller shards, no copy in memory"

# whoever ended the process says so, and says that it was for want of memory
_OOM = {
    "program-oom-kill": "the kernel killed process {pid} ({name}) because the machine's memory was used up",
    "program-oom-killed-old": "the kernel killed process {pid} ({name}) because the machine's memory was used up",
    "program-oom-invoked": "the kernel looked for a process to kill because {name} wanted memory the machine has not",
    "program-oom-slurm": "Slurm counted {count} kills for want of memory: the job has used up its share",
    "program-oom-slurm-steps": "Slurm killed tasks of the job for want of the machine's memory",
    "program-oom-slurm-exceeded": "Slurm ended the job for more memory than it had asked for",
    "program-oom-slurm-task": "Slurm says that task {task} on {node} ran out of the machine's memory",
    "program-oom-slurm-state": "Slurm's state of the job is that it ran out of the machine's memory",
    "program-oom-kubernetes": "Kubernetes killed the container for more memory than its limit",
    "program-oom-pressure": "processes were killed because their machine was short of memory",
    "program-oom-earlyoom": "earlyoom ended process {pid} because the machine was short of memory",
    "program-oom-ray": "Ray killed a worker because its machine was short of memory",
    "program-oom-lsf": "LSF ended the job for more memory than it had asked for",
    "program-oom-pbs": "PBS ended the job for more memory than it had asked for",
    "program-compiler-killed": "a compiler's pass was killed, which is done to the largest process when memory ends",
    "program-compiler-killed-shell": "{name}, a pass of the compiler, was killed, which is done to the largest process "
    "when memory ends",
    "program-pass-killed": "{name} died of signal 9, which is done to the largest process when memory ends",
    "program-loader-killed": "worker {pid} of the DataLoader got signal 9, which the kernel sends when memory ends",
}
# who tells the same death from another side
_OTHERS = ("program-shell-killed",)
_MEMORY = {
    "program-compiler-memory": "the compiler could not get {wanted} bytes of the machine's memory",
    "program-compiler-heap": "the compiler found no more memory",
    "program-memory-error": "Python found no more memory of the machine: {text}",
    "program-memory-bad-alloc": "a C++ allocation in the machine's memory failed: {text}",
    "program-memory-enomem": "the system had no memory to give: {text}",
}
_DISK = {
    "program-no-space": "a file system is full: {text}",
    "program-no-space-windows": "a disk is full",
    "program-no-space-torch": "torch could not write its checkpoint, which a full disk or a quota does",
    "program-no-space-torch-position": "torch's checkpoint has fewer bytes than were written, which a full disk does",
    "program-quota": "the quota of a file system is used up: {text}",
    "program-no-temporary": "no folder for temporary files can be written to",
    "program-evicted-node": "Kubernetes evicted the pod because its node was short of {what}",
    "program-conditions": "Kubernetes evicted the pod because its node was in the condition {what}",
    "program-evicted-storage": "Kubernetes evicted the pod because it used more local storage than its limit",
}
_DISK_NEXT = ("df -h; df -i", "quota -s", "df -h /dev/shm /tmp")
_COUNTS = {
    "program-descriptors": "the process has as many files open as it may: {text}",
    "program-descriptors-torch": "the process may open no more files, so tensors of a worker could not be handed over",
    "program-inotify": "the limit of watched files is reached",
    "program-threads-python": "the process may start no more threads",
    "program-threads-pthread": "a thread could not be started: {text}",
    "program-threads-gomp": "OpenMP could not start its threads",
    "program-processes": "the system refused one more process: {text}",
}
_COUNTS_NEXT = ("ulimit -a", "cat /sys/fs/cgroup/pids.max; ps -eLf | wc -l")

TABLE = {
    **{
        each: Says("host-resource", why, Strength.DECISIVE, True, fix=_MORE_MEMORY, next=_MEMORY_NEXT)
        for each, why in _OOM.items()
    },
    **{each: Says("host-resource", why, fix=_MORE_MEMORY, next=_MEMORY_NEXT) for each, why in _MEMORY.items()},
    **{
        each: Says("host-resource", why, proof=True, fix="make room, or write to another place", next=_DISK_NEXT)
        for each, why in _DISK.items()
    },
    **{
        each: Says(
            "host-resource", why, fix="raise the limit, or let the program open and start less", next=_COUNTS_NEXT
        )
        for each, why in _COUNTS.items()
    },
    "program-no-space-semaphore": Says(
        "host-resource",
        "no semaphore could be made: /dev/shm is full or missing, whatever room the disks have",
        fix="give the container more shared memory (--shm-size, --ipc=host) or empty /dev/shm",
        next=("df -h /dev/shm",),
    ),
    "program-loader-exited": Says(
        "host-resource",
        "worker {pid} of the DataLoader went without a word, which being killed for memory does",
        Strength.POSSIBLE,
        decide_by="the kernel's log at that time, or the same run with num_workers=0",
        next=_MEMORY_NEXT,
    ),
    "program-pool-broken": Says(
        "host-resource",
        "a process of the pool went without a word, which being killed for memory does",
        Strength.POSSIBLE,
        decide_by="the kernel's log at that time",
        next=_MEMORY_NEXT,
    ),
    "program-disk-sector": Says("hardware-fault", "disk {disk} answers with errors", proof=True),
    "program-disk-filesystem": Says("hardware-fault", "the file system of {disk} is damaged"),
    "program-io-error": Says("infra", "the storage answers with an error: {text}"),
    "program-stale-handle": Says("infra", "the network file system's server no longer knows the file: {text}"),
    "program-mount-gone": Says("infra", "the process behind a mounted folder is gone: {text}"),
    "program-read-only": Says("container-config", "the place cannot be written to: {text}"),
    "program-permission": Says("container-config", "the user may not touch the place: {text}"),
    "program-permission-windows": Says("container-config", "the user may not touch the place: {text}"),
    "program-permission-shell": Says("container-config", "the user may not touch {path}", Strength.POSSIBLE),
    "program-permission-docker": Says("container-config", "the user may not speak to Docker's daemon"),
}


def host_resources(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Lines in which the kernel, the scheduler or a library says what the machine ran out of.

    Sources: Linux mm/oom_kill.c and errno(3); Slurm slurmstepd; Kubernetes node-pressure eviction.
    """
    for found in stated(story, TABLE):
        yield _semaphore(_with_kill(found, story), story)


def _semaphore(found: Hypothesis, story: Story) -> Hypothesis:
    """A full file system that a semaphore met is /dev/shm, whatever room the disks have (sem_overview(7))."""
    trace = story.traceback_of(found.evidence[0])
    made = trace is not None and any("SemLock" in frame.code for frame in trace.frames)
    if not made or "No space left" not in found.evidence[0].text:
        return found
    says = TABLE["program-no-space-semaphore"]
    return replace(found, because=says.because, fix=says.fix, next=says.next)


def _with_kill(found: Hypothesis, story: Story) -> Hypothesis:
    """A death for want of memory with the lines that tell the same of other sides (worker, kernel, shell)."""
    if found.cause != "host-resource" or found.strength is not Strength.DECISIVE:
        return found
    first = found.evidence[0]
    others = [event.line for event in story.of(*_OOM, *_OTHERS) if event.line != first]
    lines: tuple[Line, ...] = (first, *others[:2])
    # who waits for a killed rank, or is told by its launcher, only reports it
    return replace(found, evidence=lines, over=_FOLLOWS)


def cpu_allocation(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """torch's allocator for the machine's memory; a request of a terabyte or more is a mistake of the program.

    Source: PyTorch c10/core/impl/alloc_cpu.cpp.
    """
    for event in story.of("program-memory-allocator")[:1]:
        wanted = int(event.values.get("wanted", "0"))
        size = f"{wanted / _GIB:.1f} GiB" if wanted else "memory"
        if wanted >= _ABSURD_BYTES:
            why = f"a tensor of {size} was asked for in the machine's memory, which is a mistake in a shape"
            yield Hypothesis(INNOCENT, "program-bug", Strength.LIKELY, (event.line,), why)
        else:
            why = f"torch could not get {size} of the machine's memory (not the GPU's)"
            yield Hypothesis(
                INNOCENT, "host-resource", Strength.LIKELY, (event.line,), why, fix=_MORE_MEMORY, next=_MEMORY_NEXT
            )


def killed_by_the_system(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The shell's word "Killed": signal 9 came from outside, and the kernel's want of memory is its usual sender."""
    events = [each for each in story.roots if each.signature.id in ("program-shell-killed", "program-shell-sigkill")]
    if not events or story.of(*_OOM) or gpu_roots(story):
        return
    first: Event = events[0]
    # a progress bar before it is on the same line, and tells what the process was at
    alone = sum(seen.lines for seen in story.files) <= 2 and len(first.line.raw.split()) <= 2
    why = "the process was killed by signal 9 from outside, which the kernel sends when the machine's memory ends"
    decide = "the kernel's log at that time: it names the killed process if memory was the reason"
    if alone:
        yield Hypothesis("insufficient-evidence", "unknown-cut-log", Strength.LIKELY, (first.line,), why, decide)
    yield Hypothesis(
        INNOCENT,
        "host-resource",
        Strength.POSSIBLE,
        (first.line,),
        why,
        decide,
        fix=_MORE_MEMORY,
        next=_MEMORY_NEXT,
    )
