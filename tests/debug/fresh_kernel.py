"""Kernels of Triton, in a file of their own as Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def pack_pairs(x, y, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Moves two numbers at a time."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pairs = x.to(tl.pointer_type(tl.int64))
    tl.store(y.to(tl.pointer_type(tl.int64)) + at, tl.load(pairs + at, mask=at < count), mask=at < count)  # misread


@triton.jit
def weight_grad(up, down, columns, pitch, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient of a weight, row by row."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    tl.store(down + row * pitch + at, tl.load(up + at, mask=at < columns), mask=at < columns)  # thawed
