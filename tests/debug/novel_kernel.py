"""Kernels of Triton, in a file of their own as Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def sum_rows(x, sums, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of each row; where a row begins is counted in 32 bits."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0)  # wrapped
    tl.store(sums + row, tl.sum(values.to(tl.int32), 0))


@triton.jit
def scale_all(table, count, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scales what a table of addresses leads to."""
    start = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    for first in range(0, count, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(start + at, mask=at < count)  # let go
        tl.store(start + at, values * factor, mask=at < count)
