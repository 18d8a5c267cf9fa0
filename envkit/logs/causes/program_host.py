"""The machine's own resources: memory, disk, descriptors, threads, and the rights to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, gpu_roots, stated
from envkit.logs.knowledge import statements
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_FOLLOWS = ("nccl-remote-error", "dataloader-shm-bus-error", "insufficient-evidence")
_SHARED = "dataloader-shm-bus-error"
_ABSURD_BYTES = 1 << 40  # no machine that trains has a terabyte to give to one tensor
_GIB = 1 << 30
_ENDED_137 = re.compile(r"\bexit(?:ed)?(?: with)?(?: exit)?(?: code| status)?:? 137\b")  # 128 and signal 9
_MEMORY_NEXT = ("dmesg -T | grep -i -E 'oom|killed process'", "free -g; cat /sys/fs/cgroup/memory.max")
_MORE_MEMORY = "give the job more memory of the machine, or use less: fewer workers, smaller shards, no copy in memory"


def host_resources(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Lines in which the kernel, the scheduler or a library says what the machine ran out of.

    Sources: Linux mm/oom_kill.c and errno(3); Slurm slurmstepd; Kubernetes node-pressure eviction.
    """
    for found in stated(story, "host"):
        yield _semaphore(_with_kill(found, story), story)


def _semaphore(found: Hypothesis, story: Story) -> Hypothesis:
    """A full file system that a semaphore met is /dev/shm, whatever room the disks have (sem_overview(7))."""
    trace = story.traceback_of(found.evidence[0])
    made = trace is not None and any("SemLock" in frame.code for frame in trace.frames)
    if not made or "No space left" not in found.evidence[0].text:
        return found
    says = statements("host")["program-no-space-semaphore"]
    return replace(
        found, category=_SHARED, cause="container-config", because=says.because, fix=says.fix, next=says.next
    )


def _with_kill(found: Hypothesis, story: Story) -> Hypothesis:
    """A death for want of memory with the lines that tell the same of other sides (worker, kernel, shell)."""
    if found.cause != "host-resource" or found.strength is not Strength.DECISIVE:
        return found
    first = found.evidence[0]
    others = [event.line for event in story.of(*_out_of_memory(), "program-shell-killed") if event.line != first]
    others += [line for seen in story.files for line in (*seen.loud, *seen.tail) if _ENDED_137.search(line.text)]
    others = list(dict.fromkeys(others))
    # who waits for a killed rank, or is told by its launcher, only reports it
    return replace(found, evidence=(first, *others[:2]), over=_FOLLOWS)


def _out_of_memory() -> tuple[str, ...]:
    """The wordings of whoever ended the process and says that it was for want of memory."""
    return tuple(name for name, says in statements("host").items() if says.strength == "decisive")


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
            yield _no_memory(event, Strength.LIKELY, why)


def killed_by_the_system(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The shell's word "Killed": signal 9 came from outside, and the kernel's want of memory is its usual sender."""
    events = [each for each in story.roots if each.signature.id in ("program-shell-killed", "program-shell-sigkill")]
    if not events or story.of(*_out_of_memory()) or gpu_roots(story):
        return
    first = events[0]
    # a progress bar before it is on the same line, and tells what the process was at
    alone = sum(seen.lines for seen in story.files) <= 2 and len(first.line.body.split()) <= 2
    why = "the process was killed by signal 9 from outside, which the kernel sends when the machine's memory ends"
    decide = "the kernel's log at that time: it names the killed process if memory was the reason"
    if alone:
        yield Hypothesis("insufficient-evidence", "unknown-cut-log", Strength.LIKELY, (first.line,), why, decide)
    yield _no_memory(first, Strength.POSSIBLE, why, decide)


def _no_memory(event: Event, strength: Strength, why: str, decide: str = "") -> Hypothesis:
    lines = (event.line,)
    return Hypothesis(INNOCENT, "host-resource", strength, lines, why, decide, fix=_MORE_MEMORY, next=_MEMORY_NEXT)
