"""Faults made on purpose."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_drill_crash(run: SmokeRun) -> Iterator[Finding]:
    """Children that die by a signal, leave, raise or never answer are told apart, and the next one computes right."""
    yield from judged("drill-crash", run)


def smoke_drill_device_assert(run: SmokeRun) -> Iterator[Finding]:
    """Assertions in torch's kernels reach Python as CUDA error 710 and cost one process."""
    yield from judged("drill-device-assert", run)


def smoke_drill_illegal_address(run: SmokeRun) -> Iterator[Finding]:
    """An access to no memory is CUDA error 700 by number and name, sticky, and costs one process."""
    yield from judged("drill-illegal-address", run)


def smoke_drill_misaligned_address(run: SmokeRun) -> Iterator[Finding]:
    """An access wider than its alignment is CUDA error 716 by number and name, sticky, and costs one process."""
    yield from judged("drill-misaligned-address", run)


def smoke_drill_trap(run: SmokeRun) -> Iterator[Finding]:
    """A kernel that traps ends as a failed launch or an illegal instruction, sticky, and costs one process."""
    yield from judged("drill-trap", run)


def smoke_drill_invalid_argument(run: SmokeRun) -> Iterator[Finding]:
    """A launch that no GPU can do is refused by name, and its process computes right afterwards."""
    yield from judged("drill-invalid-argument", run)


def smoke_drill_hang_kernel(run: SmokeRun) -> Iterator[Finding]:
    """A kernel that never ends is told as a hang, can be killed, and leaves a GPU that computes right."""
    yield from judged("drill-hang-kernel", run)


def smoke_drill_fork_after_init(run: SmokeRun) -> Iterator[Finding]:
    """After a fork torch and the driver refuse CUDA in the child at once, and the parent computes right."""
    yield from judged("drill-fork-after-init", run)


def smoke_drill_out_of_memory(run: SmokeRun) -> Iterator[Finding]:
    """Too large an allocation raises OutOfMemoryError, and its process computes right afterwards."""
    yield from judged("drill-out-of-memory", run)


def smoke_drill_cublas(run: SmokeRun) -> Iterator[Finding]:
    """An illegal access surfaces in the product after it, and at its own launch with CUDA_LAUNCH_BLOCKING=1."""
    yield from judged("drill-cublas", run)


def smoke_drill_aoti_wrong_device(run: SmokeRun) -> Iterator[Finding]:
    """A CPU tensor given to a GPU's AOTInductor package ends in an error, never in a wrong result."""
    yield from judged("drill-aoti-wrong-device", run)


def smoke_drill_aoti_dies_at_load(run: SmokeRun) -> Iterator[Finding]:
    """A package whose library cannot be loaded is an exception, or the signal that ended its process."""
    yield from judged("drill-aoti-dies-at-load", run)


def smoke_drill_sanitizer(run: SmokeRun) -> Iterator[Finding]:
    """compute-sanitizer names the kernel and line of four planted faults, and nothing in their clean twins."""
    yield from judged("drill-sanitizer", run)


def smoke_drill_debugger(run: SmokeRun) -> Iterator[Finding]:
    """The debugger and the profilers of the image each see a kernel."""
    yield from judged("drill-debugger", run)
