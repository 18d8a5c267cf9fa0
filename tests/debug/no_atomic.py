"""A histogram whose threads add to shared bins with no atomic."""

from __future__ import annotations

import sys

import torch
from launching import Kernel


def count(kernel: Kernel, given: torch.Tensor, atomic: int) -> torch.Tensor:
    out = torch.zeros(given.numel() // 256, 16, dtype=torch.int32, device="cuda")
    kernel.launch(given.numel() // 256, 256, given, out, atomic)  # launched here
    return out


def main(fault: bool) -> None:
    kernel = Kernel("no_atomic.cu", "count_bins")
    given = torch.arange(32 * 256, dtype=torch.int32, device="cuda")
    out = count(kernel, given, 0 if fault else 1)
    total = int(out.sum())
    assert total == given.numel(), f"the counts differ: {total} of {given.numel()}"
    print("right", flush=True)


main(sys.argv[1] == "fault")
