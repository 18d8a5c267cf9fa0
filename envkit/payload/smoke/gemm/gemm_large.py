"""Products of the size that speed is measured at, in bf16, fp16 and tf32: every element exact, as integers tell."""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import operand, wrong_in_product

_SIZE = 8192


def run(bench: Bench) -> None:
    """Measures ``bf16.wrong``, ``fp16.wrong`` and ``tf32.wrong``; tf32 is fp32 where the GPU has none."""
    bench.plain_math()
    torch.set_float32_matmul_precision("high")
    random = bench.random_here()
    # deviations of the sums: 23 where bf16 holds integers to 256, 181 of 2048 in fp16, 130000 of 16777216 in tf32
    for name, dtype, top in (("bf16", torch.bfloat16, 1), ("fp16", torch.float16, 2), ("tf32", torch.float32, 64)):
        left, right = (operand(_SIZE, _SIZE, top, random, 6) for _ in range(2))
        out = torch.full((_SIZE, _SIZE), torch.nan, dtype=dtype, device=bench.device)
        torch.mm(left.to(dtype), right.to(dtype), out=out)
        bench.count(name + ".wrong", wrong_in_product(left, right, bench.disturb(out, exact=True), random))
