"""A kernel of Triton, in a file of its own as Triton reads its source."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def scaled(x: Any, y: Any, size: Any, BEYOND: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Doubles what stands before ``size``; with BEYOND the store goes on behind it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    doubled = tl.load(x + at, mask=at < size, other=0.0) * 2
    tl.store(y + at, doubled, mask=at < size + BEYOND)  # here
