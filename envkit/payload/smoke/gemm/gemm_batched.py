"""Batched products over strided heads, and products with what libraries fuse behind them: bias, relu, gelu.

All but gelu are exact.  The fused gelu is the form with tanh on a GPU and the exact one on a CPU, 2e-4 apart in norm.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded

_HEADS, _LENGTH, _DEPTH = 6, 197, 64
_ROWS, _IN, _OUT = 261, 1000, 520


def _heads(tensor: Any) -> Any:
    """The heads of an attention layer: a batch whose matrices lie interleaved, so that rows stride over all heads."""
    return tensor.view(_LENGTH, _HEADS, _DEPTH).transpose(0, 1)


def _poisoned(bench: Bench, dtype: Any, *shape: int) -> Any:
    return torch.full(shape, torch.nan, dtype=dtype, device=bench.device)


def _batched(bench: Bench, name: str, dtype: Any, top: int) -> None:
    random = bench.random()
    query, key = (torch.randint(-top, top + 1, (_LENGTH, _HEADS * _DEPTH), generator=random) for _ in range(2))
    bias = torch.randint(-top, top + 1, (_HEADS, _LENGTH, _LENGTH), generator=random)
    one, two = (_heads(tensor.to(bench.device, dtype)) for tensor in (query, key))
    out = _poisoned(bench, dtype, _HEADS, _LENGTH, _LENGTH)
    torch.bmm(one, two.transpose(1, 2), out=out)
    want = _heads(query.double()) @ _heads(key.double()).transpose(1, 2)
    bench.exact(name + ".bmm.wrong", out, want)
    out = _poisoned(bench, dtype, _HEADS, _LENGTH, _LENGTH)
    torch.baddbmm(bias.to(bench.device, dtype), one, two.transpose(1, 2), beta=-1, alpha=2, out=out)
    bench.exact(name + ".baddbmm.wrong", out, 2 * want - bias)


def _fused(bench: Bench, name: str, dtype: Any, top: int) -> None:
    random = bench.random()
    shapes = ((_ROWS, _IN), (_OUT, _IN), (_OUT,))
    whole = [torch.randint(-top, top + 1, shape, generator=random) for shape in shapes]
    image, weight, bias = (tensor.to(bench.device, dtype) for tensor in whole)
    want = whole[0].double() @ whole[1].double().t() + whole[2]
    bench.exact(name + ".linear.wrong", torch.nn.functional.linear(image, weight, bias), want)
    out = _poisoned(bench, dtype, _ROWS, _OUT)
    torch._addmm_activation(bias, image, weight.t(), use_gelu=False, out=out)
    bench.exact(name + ".relu.wrong", out, want.clamp(min=0))

    full = [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]
    full[1] /= _IN**0.5
    inputs = rounded(full, dtype)
    image, weight, bias = (tensor.to(bench.device) for tensor in inputs)
    want = torch.nn.functional.linear(*(tensor.double() for tensor in inputs))
    got = torch.nn.functional.gelu(torch.nn.functional.linear(image, weight, bias))
    bench.close(name + ".gelu", got, torch.nn.functional.gelu(want))
    out = _poisoned(bench, dtype, _ROWS, _OUT)
    torch._addmm_activation(bias, image, weight.t(), use_gelu=True, out=out)
    form = "tanh" if bench.on_gpu else "none"
    bench.close(name + ".fused-gelu", out, torch.nn.functional.gelu(want, approximate=form))


def _measure(bench: Bench, name: str, dtype: Any, top: int) -> None:
    _batched(bench, name, dtype, top)
    _fused(bench, name, dtype, top)


def run(bench: Bench) -> None:
    """Measures for fp32 and bf16 the counts ``<dtype>.bmm.wrong``, ``.baddbmm.wrong``, ``.linear.wrong`` and
    ``.relu.wrong``, the distances ``<dtype>.gelu`` and ``.fused-gelu``, and ``<dtype>.offered``."""
    bench.plain_math()
    for name, dtype, top in (("fp32", torch.float32, 2**6), ("bf16", torch.bfloat16, 1)):
        bench.attempt(name, partial(_measure, bench, name, dtype, top))
