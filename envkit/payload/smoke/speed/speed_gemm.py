"""Products of two matrices of 8192 rows and columns beside the peak of each type; ``product`` says how.

A run of the level "quick" measures bf16 alone; from "full" on there are fp16, tf32, fp8, fp32, fp64 and int8 as well.
"""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import product, timing


def _measure(bench: Bench, kind: product.Kind, watch: clocks.Clocks) -> dict[str, float]:
    multiply = product.multiplier(kind, bench.device)
    size = product.fit(kind, multiply, bench)
    left, right = product.randoms(kind, size, bench)
    reading: dict[str, float] = {}
    seconds = timing.typical(lambda: multiply(left, right), timing.LAUNCHES, lambda: reading.update(watch.read()))
    bench.note(f"{kind.name}.tflops", 2.0 * size**3 / seconds / 1e12)
    bench.note(f"{kind.name}.size", size)
    bench.count(f"{kind.name}.wrong", product.wrong_at(kind, size, multiply, bench))
    return reading


def run(bench: Bench) -> None:
    """Measures ``<type>.timed`` (1, or 0 where it is not asked for or not there), ``types.timed`` (how many are),
    ``<type>.tflops``, ``<type>.size`` and ``<type>.wrong`` (elements and rows); and the clocks under the first type."""
    torch.cuda.set_device(bench.device)
    watch = clocks.of(bench.device)
    reading: dict[str, float] = {}
    left_out = []
    for kind in product.KINDS:
        reason = product.lacking(kind)
        if kind.name != "bf16" and bench.level == "quick":
            reason = f"{kind.name} is for the level full"
        bench.note(f"{kind.name}.timed", 0 if reason else 1)
        if reason:
            left_out.append(reason)
            continue
        seen = _measure(bench, kind, watch)
        reading = reading or seen
        torch.cuda.empty_cache()
    timed = sum(bench.measures[f"{kind.name}.timed"] for kind in product.KINDS)
    if not timed:
        bench.not_applicable("; ".join(left_out))
    bench.note("types.timed", timed)
    clocks.record(bench, reading, watch.missing)
    if bench.level != "quick" and left_out:
        bench.detail += "; " + "; ".join(left_out)
