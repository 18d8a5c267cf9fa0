"""A kernel of Triton behind a wrapper, in a file of its own as Triton reads its source."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=4)], key=["columns"])
@triton.jit
def centered(x: Any, y: Any, columns: Any, limit: Any, BLOCK: tl.constexpr) -> None:
    """Each row less its mean."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    apart = tl.where(limit > columns, 4_000_000, 1)
    value = tl.load(x + row * columns + at.to(tl.int64) * apart, mask=at < limit, other=0.0)  # read here
    tl.store(y + row * columns + at, value - tl.sum(value) / columns, mask=at < columns)


def normalize(x: torch.Tensor, limit: int) -> torch.Tensor:
    """The rows of x, each less its mean; ``limit`` is where a row ends."""
    y = torch.empty_like(x)
    centered[(x.shape[0],)](x, y, x.shape[1], limit)  # launched here
    return y
