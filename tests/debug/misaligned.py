"""A kernel that loads 16 bytes at once, given a slice that begins 4 bytes into its tensor."""

from __future__ import annotations

import sys

import torch
from launching import Kernel


def add(kernel: Kernel, given: torch.Tensor) -> torch.Tensor:
    quads = given.numel() // 4
    out = torch.zeros(quads, device="cuda")
    kernel.launch((quads + 127) // 128, 128, given, out, quads)  # launched here
    return out


def main(fault: bool) -> None:
    kernel = Kernel("misaligned.cu", "add_quads")
    whole = torch.ones(4097, device="cuda")
    out = add(kernel, whole[1:] if fault else whole[1:].clone())
    assert float(out.sum()) == 4096.0, "the result is wrong"
    print("right", flush=True)


main(sys.argv[1] == "fault")
