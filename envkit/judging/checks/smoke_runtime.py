"""Streams, memory and processes."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_streams_events(run: SmokeRun) -> Iterator[Finding]:
    """Streams keep the order that events impose, and copies that do not block are right."""
    yield from judged("streams-events", run)


def smoke_dataloader(run: SmokeRun) -> Iterator[Finding]:
    """Forked and spawned workers deliver exactly the right batches."""
    yield from judged("dataloader", run)


def smoke_allocator(run: SmokeRun) -> Iterator[Finding]:
    """Memory used on two streams is not given away too early, and the allocator's own figures hold."""
    yield from judged("allocator", run)


def smoke_cuda_graph(run: SmokeRun) -> Iterator[Finding]:
    """A captured step, replayed with new inputs, gives what it gives without a graph, bit for bit."""
    yield from judged("cuda-graph", run)


def smoke_pinned_copies(run: SmokeRun) -> Iterator[Finding]:
    """Copies from and to pinned memory that do not block move exactly the right bytes."""
    yield from judged("pinned-copies", run)


def smoke_large_launch(run: SmokeRun) -> Iterator[Finding]:
    """Twenty thousand launches in a row on two streams all run, in order."""
    yield from judged("large-launch", run)


def smoke_host_threads(run: SmokeRun) -> Iterator[Finding]:
    """Eight host threads with streams of their own compute exactly, at once."""
    yield from judged("host-threads", run)


def smoke_multiprocessing_fork(run: SmokeRun) -> Iterator[Finding]:
    """Forked, spawned and fork-served processes compute exactly on the device."""
    yield from judged("multiprocessing-fork", run)


def smoke_ipc(run: SmokeRun) -> Iterator[Finding]:
    """A tensor shared with another process holds what that one wrote."""
    yield from judged("ipc", run)


def smoke_allocator_backends(run: SmokeRun) -> Iterator[Finding]:
    """Torch's allocators all keep what they hold, and products under each are exact."""
    yield from judged("allocator-backends", run)


def smoke_oom_recovery(run: SmokeRun) -> Iterator[Finding]:
    """Running out of memory is torch's own error, names the size, and leaves a process that computes exactly."""
    yield from judged("oom-recovery", run)
