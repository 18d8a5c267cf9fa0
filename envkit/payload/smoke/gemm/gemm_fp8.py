"""Products of 8-bit floats (e4m3) with a result in bf16: exact for integers, and as precise as bf16 for random numbers.

``use_fast_accum`` keeps about 14 bits of the sums on some GPUs: random numbers get a limit of their own.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import operand, wrong_in_product

_DEPTH = 1024
_SCALES = (0.5, 4.0)  # powers of two, so that scaling rounds nothing


def _product(left: Any, right: Any, fast: bool) -> Any:
    """Twice ``left @ right.t()`` in bf16, by the two scales; older torch returns the largest element as well."""
    one, two = (torch.tensor(scale, device=left.device) for scale in _SCALES)
    got = torch._scaled_mm(left, right.t(), scale_a=one, scale_b=two, out_dtype=torch.bfloat16, use_fast_accum=fast)
    return got[0] if isinstance(got, tuple) else got


def _must_offer(bench: Bench) -> None:
    if not hasattr(torch, "_scaled_mm"):
        bench.not_applicable("this torch has no product of 8-bit floats")
    if bench.on_gpu:
        if torch.cuda.get_device_capability(bench.device) < (8, 9):
            bench.not_applicable("products of 8-bit floats begin with compute capability 8.9")
        return
    tiny = torch.zeros(16, 16).to(torch.float8_e4m3fn)
    try:
        _product(tiny, tiny, False)
    except NotImplementedError:
        bench.not_applicable("this torch has no product of 8-bit floats on the CPU")


def run(bench: Bench) -> None:
    """Measures ``slow.wrong``, ``fast.wrong`` (integers) and the distances ``slow`` and ``fast`` (random numbers)."""
    _must_offer(bench)
    bench.plain_math()
    random = bench.random_here()
    size = 4096 if bench.on_gpu else 256
    scale = _SCALES[0] * _SCALES[1]
    eight = torch.float8_e4m3fn
    for name, fast in (("slow", False), ("fast", True)):
        # 6 of 8 are zero: bf16 holds integers up to 256, which is 16 deviations of the doubled sums
        left, right = operand(size, _DEPTH, 1, random, 6), operand(size, _DEPTH, 1, random, 6)
        got = _product(left.float().to(eight), right.float().to(eight), fast)
        doubled = bench.disturb(got, exact=True).to(bench.device)
        bench.count(name + ".wrong", wrong_in_product(left * int(scale), right.t(), doubled, random))
    numbers = bench.random()
    inputs = [torch.randn(512, _DEPTH, generator=numbers).to(eight) for _ in range(2)]
    want = inputs[0].double() @ inputs[1].double().t() * scale
    for name, fast in (("slow", False), ("fast", True)):
        bench.close(name, _product(inputs[0].to(bench.device), inputs[1].to(bench.device), fast), want)
