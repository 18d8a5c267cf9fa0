"""Kernels of Triton, in a file of their own as Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def add_bias(x, bias, out, count, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The bias of each column is added; which column it is, is told by the caller's width."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = at < count
    values = tl.load(x + at, mask=within)
    tl.store(out + at, values + tl.load(bias + at % width, mask=within), mask=within)  # widened


@triton.jit
def shift_rows(x, out, count, by, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each element becomes the one ``by`` further on."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at + by, mask=at < count), mask=at < count)  # shifted


@triton.jit
def scaled(x, out, count, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A multiple of what is there."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count) * factor, mask=at < count)


@triton.jit
def tiles(x, y, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The product of one tile with another."""
    rows = tl.arange(0, BLOCK)
    at = rows[:, None] * BLOCK + rows[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(count):
        total += tl.dot(tl.load(x + first * BLOCK * BLOCK + at), tl.load(y + first * BLOCK * BLOCK + at))
    tl.store(out + at, total)
