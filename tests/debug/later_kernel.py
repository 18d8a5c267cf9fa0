"""A kernel of Triton, in a file of its own as Triton reads its source."""

import triton
import triton.language as tl


@triton.jit
def rotate(x, y, size, shift, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Moves each number on by ``shift``."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at + shift, tl.load(x + at, mask=at < size), mask=at < size)  # kernel
