"""A Triton kernel compiled and run here: an addition whose length is no multiple of the block, exact."""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.triton_kernels import kernels, launched

_SIZE = (1 << 18) + 13
_BLOCK = 1024


def run(bench: Bench) -> None:
    """Measures ``add.wrong`` and ``guard.wrong``, the elements beyond the end that were written to."""
    module = kernels(bench, "triton-add")
    torch.cuda.set_device(bench.device)
    random = bench.random()
    left, right = (torch.randint(-(2**30), 2**30, (_SIZE,), generator=random) for _ in range(2))
    out = torch.full((_SIZE + _BLOCK,), -1, device=bench.device)
    one, two, grid = left.to(bench.device), right.to(bench.device), ((_SIZE + _BLOCK - 1) // _BLOCK,)
    launched(bench, lambda: module.add[grid](one, two, out, _SIZE, SIZE=_BLOCK))
    got = out.cpu()
    bench.exact("add.wrong", got[:_SIZE], left + right)
    bench.count("guard.wrong", int((got[_SIZE:] != -1).sum()))
