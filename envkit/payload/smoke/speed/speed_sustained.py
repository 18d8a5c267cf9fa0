"""Ten seconds of bf16 products without a pause: what is left of the speed once power and heat have their say.

The first product and the last must be the same bits, and integers multiplied after the ten seconds must be right.
"""

from __future__ import annotations

import time

from envkit.payload.lazy import torch
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import product, timing

_SECONDS = 10.0
_STEP_S = 0.1
_AHEAD = 2  # steps that are enqueued before the oldest one is waited for, so that the GPU never waits


def run(bench: Bench) -> None:
    """Measures ``mean.tflops``, ``least.tflops`` (the slowest tenth of a second), ``bits.wrong`` (elements of the last
    product that are not the first one's), ``bf16.wrong``; ``sm.mhz`` and ``sm-least.mhz``, ``power.w`` (means),
    ``temperature.c`` (the highest) and ``throttle.bits`` (all that were ever set)."""
    torch.cuda.set_device(bench.device)
    kind = product.KINDS[0]
    bench.not_applicable_if(product.lacking(kind))
    watch = clocks.of(bench.device)
    multiply = product.multiplier(kind, bench.device)
    size = product.fit(kind, multiply, bench)
    left, right = product.randoms(kind, size, bench)
    first = multiply(left, right)
    one_s = timing.warm(lambda: multiply(left, right))
    launches = max(1, int(_STEP_S / one_s))

    readings: list[dict[str, float]] = []
    events = [torch.cuda.Event(enable_timing=True)]
    events[0].record()
    begun = time.monotonic()
    while time.monotonic() - begun < _SECONDS:
        for _ in range(launches):
            last = multiply(left, right)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append(event)
        if len(events) > _AHEAD:
            events[-_AHEAD].synchronize()
            readings.append(watch.read())
    torch.cuda.synchronize()

    steps = timing.between(events)
    work = 2.0 * size**3 * launches / 1e12
    bench.note("mean.tflops", work * len(steps) / sum(steps))
    bench.note("least.tflops", work / max(steps))
    timing.disturb(bench, last)
    bench.count("bits.wrong", int((~(first == last)).sum()))
    bench.count("bf16.wrong", product.wrong_at(kind, size, multiply, bench))
    clocks.record(bench, summary(readings), watch.missing)
    bench.note("readings", sum(1 for reading in readings if reading))


def summary(readings: list[dict[str, float]]) -> dict[str, float]:
    """One reading of many: the mean, the lowest SM clock beside it, the highest temperature, all bits ever set."""
    found: dict[str, float] = {}
    bits = 0
    for name in sorted({name for reading in readings for name in reading}):
        values = [reading[name] for reading in readings if name in reading]
        found[name] = sum(values) / len(values)
        if name == "temperature.c":
            found[name] = max(values)
        elif name == "sm.mhz":
            found["sm-least.mhz"] = min(values)
        elif name == "throttle.bits":
            for value in values:
                bits |= int(value)
            found[name] = float(bits)
    return found
