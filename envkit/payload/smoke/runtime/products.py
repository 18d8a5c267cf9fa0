"""A product of small integers that any allocator, thread or process must compute to the last bit."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_TOP = 8  # sums of 1000 products of such integers stay below 2^16, which fp32 holds exactly


def operands(size: int, random: Any) -> tuple[Any, Any, Any]:
    """Two square matrices of integers in fp32 on the CPU, and their product in fp64."""
    left = torch.randint(-_TOP, _TOP + 1, (size, size), generator=random).float()
    right = torch.randint(-_TOP, _TOP + 1, (size, size), generator=random).float()
    return left, right, left.double() @ right.double()


def count_wrong(bench: Bench, name: str, size: int = 384) -> None:
    """Multiplies on the bench's device and counts wrong elements under ``name``; what is not written counts."""
    left, right, want = operands(size, bench.random())
    out = torch.full((size, size), torch.nan, device=bench.device)
    torch.mm(left.to(bench.device), right.to(bench.device), out=out)
    bench.exact(name, out, want)
