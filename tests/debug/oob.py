"""A kernel whose caller passes the wrong pitch: it writes far beyond its tensor, and the error comes up later."""

from __future__ import annotations

import sys

import torch
from launching import Kernel


def scale(kernel: Kernel, rows: int, pitch: int) -> torch.Tensor:
    given = torch.arange(rows, dtype=torch.float32, device="cuda")
    out = torch.zeros(rows, device="cuda")
    kernel.launch((rows + 255) // 256, 256, given, out, rows, pitch)  # launched here
    return out


def main(fault: bool) -> None:
    kernel = Kernel("oob.cu", "scale_rows")
    out = scale(kernel, 1000, 1 << 20 if fault else 1)
    weight = torch.ones(1000, 8, device="cuda")
    print("sum", float((out @ weight).sum()), flush=True)
    assert float(out.sum()) == 999000.0, "the result is wrong"


main(sys.argv[1] == "fault")
