"""A Triton kernel compiled and run here: an addition whose length is no multiple of the block, exact."""

from __future__ import annotations

import importlib.util
import os
import tempfile

from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.lacking import lacking_c

_SIZE = (1 << 18) + 13
_BLOCK = 1024
_SOURCE = """
import triton
import triton.language as tl


@triton.jit
def add(left, right, out, size, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    tl.store(out + place, tl.load(left + place, mask=inside) + tl.load(right + place, mask=inside), mask=inside)
"""


def run(bench: Bench) -> None:
    """Measures ``add.wrong`` and ``guard.wrong``, the elements beyond the end that were written to."""
    import torch

    if importlib.util.find_spec("triton") is None:
        bench.unfit("triton is not installed")
    torch.cuda.set_device(bench.device)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")  # the home directory may be read-only
        path = os.path.join(folder, "smoke_triton_add.py")
        with open(path, "w") as file:  # triton reads a kernel's source from its file
            file.write(_SOURCE)
        spec = importlib.util.spec_from_file_location("smoke_triton_add", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        random = bench.random()
        left, right = (torch.randint(-(2**30), 2**30, (_SIZE,), generator=random) for _ in range(2))
        out = torch.full((_SIZE + _BLOCK,), -1, device=bench.device)
        try:
            grid = ((_SIZE + _BLOCK - 1) // _BLOCK,)
            module.add[grid](left.to(bench.device), right.to(bench.device), out, _SIZE, BLOCK=_BLOCK)
        except Exception as error:  # which one says "no compiler" differs between releases
            lacking = lacking_c("triton builds its launcher")
            if lacking:
                bench.unfit(f"{lacking} ({type(error).__name__})")
            raise
        got = out.cpu()
    bench.exact("add.wrong", got[:_SIZE], left + right)
    bench.count("guard.wrong", int((got[_SIZE:] != -1).sum()))
