"""Products of normal random numbers, by type, against fp64 over the same rounded inputs: how precise the stack is.

A silently enabled tf32 puts fp32 near 3e-4 and an accumulation in fp16 puts fp16 near 2e-3, whatever the size.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded

_SIZE = 1024


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>.frobenius`` and ``.worst`` for fp64, fp32, fp16, bf16, and tf32 on a GPU."""
    bench.plain_math()
    random = bench.random()
    operands = [torch.randn(_SIZE, _SIZE, generator=random, dtype=torch.float64) for _ in range(2)]

    def product(name: str, dtype: Any) -> None:
        left, right = rounded(operands, dtype)
        got = left.to(bench.device) @ right.to(bench.device)
        bench.close(name, got, left.double() @ right.double())

    kinds = (("fp64", torch.float64), ("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16))
    for name, dtype in kinds:
        bench.attempt(name, partial(product, name, dtype))
    if bench.on_gpu:
        torch.set_float32_matmul_precision("high")
        product("tf32", torch.float32)
