"""Bandwidth between pinned host memory and the GPU, in each direction and in both at once, every word looked at.

The host's buffers are allocated on the cores that the kernel names as near to the GPU, so that they lie on its side of
a machine of two sockets.
"""

from __future__ import annotations

import os
from functools import partial

from envkit.payload.lazy import torch
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import timing

_BYTES = 1 << 28
_LAUNCHES = 12
_TOGETHER = 8


def cores(text: str) -> frozenset[int]:
    """The numbers of a kernel's list of cores, as "0-15,32-47".  Raises ValueError for another text."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _near(pci: str) -> frozenset[int]:
    """The cores near the GPU at ``pci``; none where the kernel does not say."""
    # NVML and CUDA write eight digits of domain, sysfs four
    domain, _, rest = pci.lower().partition(":")
    try:
        with open(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/local_cpulist", encoding="ascii") as file:
            return cores(file.read())
    except (OSError, ValueError):
        return frozenset()


def run(bench: Bench) -> None:
    """Measures ``h2d.gbs``, ``d2h.gbs``, ``both.gbs`` (GB/s, both directions added) and ``<which>.wrong`` (words)."""
    torch.cuda.set_device(bench.device)
    pci = clocks.address(torch.cuda.current_device())
    watch = clocks.Clocks(pci)
    near = _near(pci) & os.sched_getaffinity(0)
    if near:
        os.sched_setaffinity(0, near)  # this process is the test's own, and ends with it
    length = timing.fitting(_BYTES, 4) // 4
    up, down = (torch.empty(length, dtype=torch.int32, pin_memory=True) for _ in range(2))
    there, back = (torch.empty(length, dtype=torch.int32, device=bench.device) for _ in range(2))
    timing.write(up, 1)
    timing.write(back, 2)
    reading: dict[str, float] = {}
    for name, target, source, salt in (("h2d", there, up, 1), ("d2h", down, back, 2)):
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        target.fill_(-1)
        copy = partial(target.copy_, source, non_blocking=True)
        seconds = timing.median(timing.each(copy, _LAUNCHES, lambda: reading.update(watch.read())))
        timing.disturb(bench, target)
        bench.count(f"{name}.wrong", timing.wrong(target, salt))
        bench.note(f"{name}.gbs", 4 * length / seconds / 1e9)

    there.fill_(-1)
    down.fill_(-1)
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    start, up_end, down_end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize()
    with torch.cuda.stream(one):
        torch.cuda._sleep(2_000_000)  # about a millisecond, while both directions are enqueued
        start.record(one)
    other.wait_event(start)
    for _ in range(_TOGETHER):
        for stream, target, source in ((one, there, up), (other, down, back)):
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
    up_end.record(one)
    down_end.record(other)
    torch.cuda.synchronize()
    seconds = max(start.elapsed_time(end) for end in (up_end, down_end)) / 1e3
    bench.count("both.wrong", timing.wrong(there, 1) + timing.wrong(down, 2))
    bench.note("both.gbs", 2 * _TOGETHER * 4 * length / seconds / 1e9)
    clocks.record(bench, reading, watch.missing)
    if near:
        bench.detail += f"; host memory taken on {len(near)} cores near the GPU"
