"""Several GPUs and the processes that share them."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_rank_versions(run: SmokeRun) -> Iterator[Finding]:
    """All ranks run the same libraries and driver, on GPUs of one model."""
    yield from judged("rank-versions", run)


def smoke_p2p_copies(run: SmokeRun) -> Iterator[Finding]:
    """Copies between every ordered pair of GPUs change no byte and wait for what they must."""
    yield from judged("p2p-copies", run)


def smoke_devices_alike(run: SmokeRun) -> Iterator[Finding]:
    """Every GPU computes what the CPU does while another is the current device."""
    yield from judged("devices-alike", run)


def smoke_nccl_allreduce(run: SmokeRun) -> Iterator[Finding]:
    """All-reduce is exact in every type, operation and size, off its alignment, and after a wait."""
    yield from judged("nccl-allreduce", run)


def smoke_nccl_collectives(run: SmokeRun) -> Iterator[Finding]:
    """Every collective moves every element to its place, and no rank leaves a barrier too early."""
    yield from judged("nccl-collectives", run)


def smoke_transport_matrix(run: SmokeRun) -> Iterator[Finding]:
    """NCCL computes right over each of its ways between the GPUs of this machine."""
    yield from judged("transport-matrix", run)


def smoke_hang_drill(run: SmokeRun) -> Iterator[Finding]:
    """A rank that stays away, differs or dies is named within seconds, and nothing is left behind."""
    yield from judged("hang-drill", run)


def smoke_ddp(run: SmokeRun) -> Iterator[Finding]:
    """Data-parallel training takes the step that one process with the whole batch takes."""
    yield from judged("ddp", run)


def smoke_ddp_unfreeze(run: SmokeRun) -> Iterator[Finding]:
    """Data-parallel training goes on right after unfreezing and with branches that only some ranks use."""
    yield from judged("ddp-unfreeze", run)


def smoke_fsdp(run: SmokeRun) -> Iterator[Finding]:
    """Sharded training takes the step that one process with the whole batch takes."""
    yield from judged("fsdp", run)
