"""Kernels that NVRTC compiles from source."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_vector_add_nvrtc(run: SmokeRun) -> Iterator[Finding]:
    """NVRTC compiles a kernel for this GPU, the driver loads it, and it computes right."""
    yield from judged("vector-add-nvrtc", run)


def smoke_nvrtc_reduction(run: SmokeRun) -> Iterator[Finding]:
    """A tree in shared memory and atomics reduce integers exactly: barriers hold."""
    yield from judged("nvrtc-reduction", run)


def smoke_nvrtc_grid_stride(run: SmokeRun) -> Iterator[Finding]:
    """A loop over a stride of the grid does every element exactly once."""
    yield from judged("nvrtc-grid-stride", run)


def smoke_nvrtc_alignment(run: SmokeRun) -> Iterator[Finding]:
    """Vector loads with scalar heads and tails are right from every base."""
    yield from judged("nvrtc-alignment", run)


def smoke_nvrtc_timer(run: SmokeRun) -> Iterator[Finding]:
    """A tune of twenty compiled variants survives those that are refused, and its times are true."""
    yield from judged("nvrtc-timer", run)
