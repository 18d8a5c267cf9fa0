"""Products of 8-bit integers over their whole range, with sums in 32 bits: exact."""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import wrong_in_product

_POISON = -0x5A5A5A5A


def run(bench: Bench) -> None:
    """Measures ``int8.wrong``.

    The second operand is stored transposed, which is the layout that every GPU with this product takes; depth and
    columns are multiples of 8, as torch asks.
    """
    if not hasattr(torch, "_int_mm"):
        bench.not_applicable("this torch has no product of 8-bit integers")
    if bench.on_gpu and torch.cuda.get_device_capability(bench.device) < (8, 0):
        bench.not_applicable("torch offers products of 8-bit integers from compute capability 8.0 on")
    random = bench.random_here()
    size = 4096 if bench.on_gpu else 512
    for rows, depth, columns in ((size, size, size), (137, 1032, 72)):
        left, right = (
            torch.randint(-128, 128, shape, generator=random, device=bench.device, dtype=torch.int8)
            for shape in ((rows, depth), (columns, depth))
        )
        out = torch.full((rows, columns), _POISON, dtype=torch.int32, device=bench.device)
        torch._int_mm(left, right.t(), out=out)
        bench.count("int8.wrong", wrong_in_product(left, right.t(), bench.disturb(out, exact=True), random))
