"""Products with few elements and long sums, which libraries split among blocks and add up afterwards.

With the switch for reductions in reduced precision off, sums of 100000 that cancel come out exact; with it on, the
error stays within what one rounding for each part explains.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded

_SIZE = 128
_DEPTH = 1 << 15


def _reduced(on: bool) -> None:
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = on
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = on


def cancelling(random: Any) -> tuple[Any, Any]:
    """Two int64 operands: the first half of each sum is near 100000, the second takes it away, a little stays."""
    half = _DEPTH // 2
    first, second = (torch.randint(1, 5, (_SIZE, half), generator=random) for _ in range(2))
    little, other = (torch.randint(-1, 2, (_SIZE, 512), generator=random) for _ in range(2))
    return torch.cat([first, -first, little], 1), torch.cat([second, second, other], 1)


def run(bench: Bench) -> None:
    """Measures ``<dtype>.plain`` and ``<dtype>.reduced`` (distances), and ``<dtype>.cancelling.wrong``."""
    bench.plain_math()
    random = bench.random()
    full = [torch.randn(_SIZE, _DEPTH, generator=random, dtype=torch.float64) for _ in range(2)]
    whole = cancelling(random)
    remains = whole[0].double() @ whole[1].double().t()
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        inputs = rounded(full, dtype)
        want = inputs[0].double() @ inputs[1].double().t()
        left, right = (tensor.to(bench.device) for tensor in inputs)
        for how, on in (("plain", False), ("reduced", True)):
            _reduced(on)
            out = torch.full((_SIZE, _SIZE), torch.nan, dtype=dtype, device=bench.device)
            torch.mm(left, right.t(), out=out)
            bench.close(f"{name}.{how}", out, want)
        _reduced(False)
        out = torch.full((_SIZE, _SIZE), torch.nan, dtype=dtype, device=bench.device)
        torch.mm(whole[0].to(bench.device, dtype), whole[1].to(bench.device, dtype).t(), out=out)
        bench.exact(name + ".cancelling.wrong", out, remains)
