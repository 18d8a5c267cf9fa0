"""A kernel that reads what other threads write to shared memory, with no __syncthreads between."""

from __future__ import annotations

import sys

import torch
from launching import Kernel


def reverse(kernel: Kernel, given: torch.Tensor, wait: int) -> torch.Tensor:
    out = torch.zeros_like(given)
    kernel.launch(given.numel() // 256, 256, given, out, wait)  # launched here
    return out


def main(fault: bool) -> None:
    kernel = Kernel("missing_barrier.cu", "reverse_block")
    given = torch.arange(64 * 256, dtype=torch.float32, device="cuda")
    out = reverse(kernel, given, 0 if fault else 1)
    wanted = given.view(64, 256).flip(1).reshape(-1)
    assert torch.equal(out, wanted), f"mismatch in {int((out != wanted).sum())} elements"
    print("right", flush=True)


main(sys.argv[1] == "fault")
