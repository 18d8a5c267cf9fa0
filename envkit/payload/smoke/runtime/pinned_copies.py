"""Copies from pinned memory to the GPU and back that do not block, of odd sizes between odd addresses.

The stream sleeps before each pair of copies; the bytes around the target, on both sides, must stay as they were.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_SIZES = (1, 3, 255, 4097, (1 << 20) + 7, 5_000_011)  # bytes
_OFFSETS = (0, 1, 13)
_FRAME = 64  # bytes left around each target, less the offset
_PATTERN = 0xA5
_SLEEP_CYCLES = 5_000_000  # two to three milliseconds


def _framed(data: Any, offset: int) -> Any:
    """What a target must hold afterwards: the data at its offset, the pattern around it."""
    whole = torch.full((len(data) + _FRAME,), _PATTERN, dtype=torch.uint8)
    whole[offset : offset + len(data)] = data
    return whole


def run(bench: Bench) -> None:
    """Measures ``device.wrong`` and ``host.wrong`` (bytes), and ``pinned.wrong`` (buffers that are not pinned)."""
    torch.cuda.set_device(bench.device)
    random = bench.random()
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    for size in _SIZES:
        for offset in _OFFSETS:
            data = torch.randint(0, _PATTERN, (size + _FRAME,), generator=random, dtype=torch.uint8)
            source = data.pin_memory()
            there = torch.full((size + _FRAME,), _PATTERN, dtype=torch.uint8, device=bench.device)
            back = torch.full((size + _FRAME,), _PATTERN, dtype=torch.uint8).pin_memory()
            bench.count("pinned.wrong", int(not source.is_pinned()) + int(not back.is_pinned()))
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(_SLEEP_CYCLES)
                there[7 : 7 + size].copy_(source[offset : offset + size], non_blocking=True)
                back[offset + 5 : offset + 5 + size].copy_(there[7 : 7 + size], non_blocking=True)
                done.record(side)
            if bench.injected_fault != "order":
                done.synchronize()
            host = back.clone()
            torch.cuda.synchronize()
            want = data[offset : offset + size]
            bench.exact("device.wrong", there, _framed(want, 7))
            bench.exact("host.wrong", host, _framed(want, offset + 5))
