"""Products of small integers, which every floating type, and tf32, holds exactly: not one bit may differ."""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import operand, wrong_in_product


def _measure(bench: Bench, name: str, dtype: Any, top: int, size: int) -> None:
    random = bench.random_here()
    for rows, depth, columns, odd in ((size, size, size, False), (129, 1023, 63, True)):
        left, right = operand(rows, depth, top, random), operand(depth, columns, top, random)
        out = torch.full((rows, columns), torch.nan, dtype=dtype, device=bench.device)  # what is not written is seen
        one, two = left.to(dtype), right.to(dtype)
        if odd:  # a base that is aligned to one element only, and a transposed operand
            one = torch.nn.functional.pad(one, (1, 0))[:, 1:]
            two = two.t().contiguous().t()
        torch.mm(one, two, out=out)
        bench.count(name + ".wrong", wrong_in_product(left, right, bench.disturb(out, exact=True), random))


def run(bench: Bench) -> None:
    """Measures ``<dtype>.wrong`` and ``<dtype>.offered`` for fp64, fp32, fp16 and bf16."""
    bench.plain_math()
    size = 4096 if bench.on_gpu else 1024
    kinds = (("fp64", torch.float64, 2**20), ("fp32", torch.float32, 2**6), ("fp16", torch.float16, 2))
    for name, dtype, top in (*kinds, ("bf16", torch.bfloat16, 1)):
        bench.attempt(name, partial(_measure, bench, name, dtype, top, size))
