"""A kernel that adds into a tensor that nobody has filled."""

from __future__ import annotations

import sys

import torch
from launching import Kernel


def add(kernel: Kernel, given: torch.Tensor, fault: bool) -> torch.Tensor:
    out = (torch.empty if fault else torch.zeros)(given.numel(), device="cuda")
    kernel.launch((given.numel() + 255) // 256, 256, given, out, given.numel())  # launched here
    return out


def main(fault: bool) -> None:
    kernel = Kernel("uninitialized.cu", "add_into")
    given = torch.ones(1000, device="cuda")
    out = add(kernel, given, fault)
    print("sum", float(out.sum()), flush=True)


main(sys.argv[1] == "fault")
