"""A stray write that torch's cache of memory hides: ``uncached.py fault|clean``.

A large block is given back to the cache, and what comes after it lies at its beginning: behind that, the memory is
still there, so that a kernel that writes too far meets no error, and only a wrong sum tells of it.  A tensor with an
allocation of its own ends where it ends.
"""

from __future__ import annotations

import sys

import torch

SOURCE = """
extern "C" __global__ void fill_far(float* out, int far)
{
    long at = blockIdx.x * 256L + threadIdx.x;
    out[at + far] = 3.0f; // far
}
"""


def main(kind: str) -> None:
    """Fills a tensor, or, some hundred megabytes behind it, another."""
    fill = torch.cuda._compile_kernel(SOURCE, "fill_far")
    del_later = torch.empty(1 << 28, device="cuda")
    del del_later
    out = torch.zeros(1 << 20, device="cuda")
    fill(grid=(1 << 12, 1, 1), block=(256, 1, 1), args=(out, 1 << 26 if kind == "fault" else 0))  # here
    total = float(out.sum())
    assert total == 3.0 * out.numel(), f"the sum differs: {total}"
    print("sum", total, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
