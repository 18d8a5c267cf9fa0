"""The CUDA driver alone."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_driver_context(run: SmokeRun) -> Iterator[Finding]:
    """The driver makes a context on this GPU and gives back every byte that it took."""
    yield from judged("driver-context", run)


def smoke_driver_ptx(run: SmokeRun) -> Iterator[Finding]:
    """The driver compiles PTX text itself, and the kernels compute right and write nothing else."""
    yield from judged("driver-ptx", run)


def smoke_driver_copies(run: SmokeRun) -> Iterator[Finding]:
    """Copies to, from and within the GPU move every byte, from pageable and pinned memory."""
    yield from judged("driver-copies", run)


def smoke_driver_launches(run: SmokeRun) -> Iterator[Finding]:
    """Ten thousand launches over two streams run in the order that their events demand."""
    yield from judged("driver-launches", run)


def smoke_driver_events(run: SmokeRun) -> Iterator[Finding]:
    """Streams and events can be made, timed with and destroyed again and again, as an auto-tuner does."""
    yield from judged("driver-events", run)


def smoke_driver_memory(run: SmokeRun) -> Iterator[Finding]:
    """Nine tenths of the free memory of the GPU hold every pattern that is written to them."""
    yield from judged("driver-memory", run)
