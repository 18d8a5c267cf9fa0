"""The kernel to tune: the sum of each row of a matrix."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def sum_rows(x, out, columns, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """One program for each row.  ALIGNED promises that each row begins at a multiple of 16 bytes, for wide loads."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    whole = columns - columns % BLOCK
    for start in range(0, whole, BLOCK):
        at = x + row * columns + start + tl.arange(0, BLOCK)
        if ALIGNED:
            at = tl.multiple_of(tl.max_contiguous(at, BLOCK), 16)
        total += tl.load(at)
    rest = whole + tl.arange(0, BLOCK)
    total += tl.load(x + row * columns + rest, rest < columns, 0.0)
    tl.store(out + row, tl.sum(total))


def row_sums(x: Tensor, out: Tensor, block: int, warps: int, aligned: bool) -> None:
    """``out[i]`` becomes the sum of row i of ``x``, which is contiguous."""
    sum_rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=block, ALIGNED=aligned, num_warps=warps)
