"""Bandwidth of the GPU's memory under a kernel: a = b + 3 c over 1 GiB each, of integers that fp32 holds exactly.

The figure counts two reads and one write an element, as STREAM's triad does.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import timing

_BYTES = 1 << 30
_FACTOR = 3
_B_MASK, _C_MASK = (1 << 22) - 1, (1 << 20) - 1  # 3 c + b stays below 2^23, so that every sum is exact
_CHUNK = 1 << 24


def run(bench: Bench) -> None:
    """Measures ``triad.gbs`` (GB/s, read and written), ``triad.wrong`` (elements), and the clocks meanwhile."""
    torch.cuda.set_device(bench.device)
    watch = clocks.of(bench.device)
    length = timing.fitting(_BYTES, 4) // 4

    def pieces(begin: int) -> tuple[Any, Any]:
        end = min(begin + _CHUNK, length)
        one, two = (timing.words(begin, end, salt, bench.device) for salt in (1, 2))
        return one & _B_MASK, (two >> 7) & _C_MASK

    left, right = (torch.empty(length, dtype=torch.float32, device=bench.device) for _ in range(2))
    for begin in range(0, length, _CHUNK):
        one, two = pieces(begin)
        left[begin : begin + _CHUNK].copy_(one)
        right[begin : begin + _CHUNK].copy_(two)
    out = torch.empty_like(left)

    def triad() -> None:
        torch.add(left, right, alpha=_FACTOR, out=out)

    timing.warm(triad)
    out.fill_(torch.nan)
    reading: dict[str, float] = {}
    seconds = timing.median(timing.each(triad, timing.LAUNCHES, lambda: reading.update(watch.read())))
    timing.disturb(bench, out)
    for begin in range(0, length, _CHUNK):
        one, two = pieces(begin)
        want = one.long() + _FACTOR * two.long()  # in integers, so that no fp32 unit checks itself
        bench.count("triad.wrong", int((~(out[begin : begin + _CHUNK].double() == want)).sum()))
    bench.note("triad.gbs", 3 * 4 * length / seconds / 1e9)
    clocks.record(bench, reading, watch.missing)
