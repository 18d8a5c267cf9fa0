"""Bandwidth of the GPU's own memory: 2 GiB copied on the device, many times what its caches hold, and looked at whole.

The figure counts bytes read and bytes written, as a datasheet's memory bandwidth does.
"""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import timing

_BYTES = 1 << 31
_SALT = 17


def run(bench: Bench) -> None:
    """Measures ``copy.gbs`` (GB/s, read and written), ``copy.wrong`` (words), and the clocks meanwhile."""
    torch.cuda.set_device(bench.device)
    watch = clocks.of(bench.device)
    length = timing.fitting(_BYTES, 2) // 4
    source = torch.empty(length, dtype=torch.int32, device=bench.device)
    timing.write(source, _SALT)
    target = torch.empty_like(source)
    timing.warm(lambda: target.copy_(source))
    target.fill_(-1)  # so that the timed copies must have written it
    reading: dict[str, float] = {}
    times = timing.each(lambda: target.copy_(source), timing.LAUNCHES, lambda: reading.update(watch.read()))
    timing.disturb(bench, target)
    bench.count("copy.wrong", timing.wrong(target, _SALT))
    bench.note("copy.gbs", 2 * 4 * length / timing.median(times) / 1e9)
    clocks.record(bench, reading, watch.missing)
