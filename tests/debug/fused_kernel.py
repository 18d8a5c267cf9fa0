"""The Triton kernels of ``fused_programs.py``; the lines that are to be named bear a mark."""

import triton
import triton.language as tl


@triton.jit
def scale_rows(x, scales, out, count, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each row times its scale; ``count`` is believed."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    scale = tl.load(scales + at // width, mask=inside)  # sized
    value = tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, value * scale, mask=inside)


@triton.jit
def add_shifted(x, out, shift, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Adds what lies ``shift`` further on, which is promised to be aligned."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    near = tl.multiple_of(x + shift, 16) + tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)
    value = tl.load(near, mask=inside, other=0.0)  # promised
    tl.store(out + at, value + 1.0, mask=inside)
