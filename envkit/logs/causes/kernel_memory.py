"""Uncorrectable errors of GPU memory, as programs and nvidia-smi tell of them, and failures of the machine's own parts.

Sources: CUDA Runtime API, cudaErrorECCUncorrectable; NVIDIA GPU Memory Error Management; Linux kernel, EDAC and MCE.
"""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story


def ecc_error_of_a_program(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA stopped a program because the GPU's memory gave data that ECC could not correct."""
    events = [
        event
        for event in story.of("cuda-ecc", "cuda-ecc-name", "cuda-ecc-driver-name")
        if event in story.roots  # one that follows from an earlier sticky error is no cause
    ]
    if not events:
        return
    ranks = sorted({event.line.rank for event in events if event.line.rank is not None})
    where = f" on rank {', '.join(map(str, ranks[:8]))}" if ranks else ""
    yield Hypothesis(
        "ecc-uncorrectable",
        "hardware-fault",
        Strength.DECISIVE,
        (events[0].line,),
        f"CUDA reported an uncorrectable ECC error{where}: the GPU's memory is at fault, not the program",
        over=(
            "nccl-timeout-hang",
            "nccl-remote-error",
            "nccl-unhandled-cuda-error",
            "gpu-hardware-unknown-error",
            "cuda-init-no-device",
            "insufficient-evidence",
        ),
    )


def memory_counters(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Counters of nvidia-smi that show a memory which is worn out; weak, for they may be old."""
    for event in story.of("smi-remap-failed")[:1]:
        yield Hypothesis(
            "xid-63/64",
            "hardware-fault",
            Strength.LIKELY,
            (event.line,),
            "nvidia-smi says that a faulty memory row could not be replaced",
            fix="replace the GPU",
        )
    for event in story.of("retired-pending")[:1]:
        yield Hypothesis(
            "xid-63/64",
            "hardware-fault",
            Strength.POSSIBLE,
            (event.line,),
            "nvidia-smi says that a faulty memory page waits for a reset to be taken out of use",
        )
    for event in story.of("smi-ecc-count", "smi-ecc-gpud")[:1]:
        yield Hypothesis(
            "ecc-uncorrectable",
            "hardware-fault",
            Strength.POSSIBLE,
            (event.line,),
            "the GPU counts uncorrectable memory errors",
        )


def recovery_asked_of_nvml(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """nvidia-smi says that the driver asks for a recovery of the GPU."""
    for event in story.of("smi-recovery")[:1]:
        yield Hypothesis(
            "xid-154",
            "hardware-fault",
            Strength.POSSIBLE,
            (event.line,),
            f"nvidia-smi says that the driver asks for a recovery: {event.values['code'].strip()}",
        )


def machine_check(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The machine's own memory or processor failed, which no GPU has a part in."""
    for event in story.of("mce-uncorrected", "edac-uncorrected", "memory-failure")[:1]:
        yield Hypothesis(
            "not-gpu-env",
            "hardware-fault",
            Strength.LIKELY,
            (event.line,),
            "the kernel reports a fault of the machine's own memory or processor",
            decide_by="ipmitool sel list, or edac-util -v, names the memory module",
            fix="drain the node and replace the part that the event log names",
        )
