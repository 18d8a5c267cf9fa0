"""What runs along one axis: normalisations, softmax, sums, means, extremes, running sums, of short and long rows."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded
from envkit.payload.smoke.libraries._compare import all_close, gradients, stale

_SHAPES = ((384, 771), (5, 30011))


def _kinds() -> dict[str, tuple[int, Any]]:
    """How many of a tensor, its scale and its shift it takes, and what is done to them."""
    functional = torch.nn.functional
    kinds: dict[str, tuple[int, Any]] = {
        "layer-norm": (3, lambda x, scale, shift: functional.layer_norm(x, x.shape[-1:], scale, shift)),
        "batch-norm": (3, lambda x, scale, shift: functional.batch_norm(x, None, None, scale, shift, training=True)),
        "softmax": (1, lambda x: x.softmax(-1)),
        "log-softmax": (1, lambda x: x.log_softmax(-1)),
    }
    if hasattr(functional, "rms_norm"):
        kinds["rms-norm"] = (2, lambda x, scale: functional.rms_norm(x, x.shape[-1:], scale))
    return kinds


def _integers(bench: Bench, random: Any) -> None:
    for shape in _SHAPES:
        small = torch.randint(-9, 10, shape, generator=random)
        tiny = torch.randint(-1, 2, (256, 256), generator=random)  # every partial sum is a bf16 number
        wide = torch.arange(small.numel()).roll(small.numel() // 3).reshape(shape).flip(0)  # no two are equal
        stale(bench)
        here = small.to(bench.device)
        for axis in (0, 1):
            for dtype in (torch.float32, torch.int32):
                given = here.to(dtype)
                kept = dtype if dtype.is_floating_point else torch.int64
                bench.exact("sum.wrong", given.sum(axis), small.sum(axis).to(kept))
                bench.exact("cumsum.wrong", given.cumsum(axis), small.cumsum(axis).to(kept))
            bench.exact("sum.wrong", tiny.to(bench.device).bfloat16().sum(axis), tiny.sum(axis).bfloat16())
            bench.exact("cumsum.wrong", tiny.to(bench.device).bfloat16().cumsum(axis), tiny.cumsum(axis).bfloat16())
            values, places = wide.to(bench.device).float().max(axis)
            want = wide.max(axis)
            bench.exact("max.wrong", values, want.values.float())
            bench.exact("max.wrong", places, want.indices)
            bench.exact("max.wrong", wide.to(bench.device).argmin(axis), wide.argmin(axis))
        bench.exact("sum.wrong", here.float().sum(), small.sum().float())


def run(bench: Bench) -> None:
    """Measures the distances ``<kind>.<dtype>`` with gradients, and ``sum.wrong``, ``cumsum.wrong``, ``max.wrong``."""
    bench.plain_math()
    random = bench.random()
    kinds = _kinds()
    bench.note("rms-norm.offered", "rms-norm" in kinds)
    for shape in _SHAPES:
        sizes = (shape, shape[1:], shape[1:], shape)
        full = [torch.randn(*size, generator=random, dtype=torch.float64) for size in sizes]
        for dtype_name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            inputs = rounded(full, dtype)
            plain = [tensor.double() for tensor in inputs]
            stale(bench)
            for name, (used, work) in kinds.items():
                results = gradients(work, inputs[:used], inputs[3], bench.device)
                all_close(bench, f"{name}.{dtype_name}", results, gradients(work, plain[:used], plain[3], "cpu"))
            here = inputs[0].to(bench.device)
            for axis in (0, 1):
                bench.close(f"reduce.{dtype_name}", here.sum(axis), plain[0].sum(axis))
                bench.close(f"reduce.{dtype_name}", here.mean(axis), plain[0].mean(axis))
                bench.close(f"reduce.{dtype_name}", here.float().var(axis), plain[0].var(axis))
    _integers(bench, random)
