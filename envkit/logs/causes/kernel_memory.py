"""Uncorrectable errors of GPU memory, as programs and nvidia-smi tell of them, and failures of the machine's own parts.

Sources: CUDA Runtime API, cudaErrorECCUncorrectable; NVIDIA GPU Memory Error Management; Linux kernel, EDAC and MCE.
"""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._worded import worded
from envkit.logs.records import Hypothesis
from envkit.logs.story import Story


def ecc_error_of_a_program(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA stopped a program because the GPU's memory gave data that ECC could not correct."""
    ids = ("cuda-ecc", "ecc-uncorrectable-code", "ecc-uncorrectable-cuew")
    events = [event for event in story.roots if event.signature.id in ids]
    if not events:
        return
    ranks = sorted({event.line.rank for event in events if event.line.rank is not None})
    where = f" on rank {', '.join(map(str, ranks[:8]))}" if ranks else ""
    yield worded("uncorrectable-ecc", events[0].line, where=where)
