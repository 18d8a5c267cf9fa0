"""The caching allocator: memory used on two streams, its own statistics, and what lies in many blocks at once.

The reader on the other stream sleeps first, so that a block given away too early, in spite of ``record_stream``, is
overwritten before it is read.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_ROUNDS = 4
_ELEMENTS = 4 << 20  # 16 MiB of int32: more than the allocator packs into a shared segment
_SPOILERS = 4
_SLEEP_CYCLES = 20_000_000  # about ten milliseconds
_ALIGNMENT = 512  # bytes: torch's allocator rounds every request up to this (kMinBlockSize in CUDACachingAllocator)
_SIZES = (1, 511, 512, 513, 4095, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (7 << 20) + 3, (33 << 20) + 5)  # bytes


def _across_streams(bench: Bench) -> None:
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    random = bench.random()
    written, seen = torch.cuda.Event(), torch.empty(_ELEMENTS, dtype=torch.int32, device=bench.device)
    for _ in range(_ROUNDS):
        want = torch.randint(1, 2**30, (_ELEMENTS,), generator=random, dtype=torch.int32)
        seen.fill_(-2)
        shared = want.to(bench.device)
        written.record(here)
        with torch.cuda.stream(side):
            side.wait_event(written)
            torch.cuda._sleep(_SLEEP_CYCLES)
            seen.copy_(shared)
        if bench.injected_fault != "order":
            shared.record_stream(side)
        del shared
        spoilers = [torch.full((_ELEMENTS,), -1, dtype=torch.int32, device=bench.device) for _ in range(_SPOILERS)]
        torch.cuda.synchronize()
        bench.exact("streams.wrong", seen, want)
        del spoilers


def _settle() -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _figures(device: str) -> Any:
    found = torch.cuda.memory_stats(device)
    return lambda name: int(found.get(name, 0))


def inconsistent(figure: Any, wanted: int) -> int:
    """How many relations between the allocator's own figures do not hold; ``wanted`` bytes were asked for."""
    held, kept = figure("allocated_bytes.all.current"), figure("reserved_bytes.all.current")
    pools = [
        sum(figure(kind + "." + pool + ".current") for pool in ("small_pool", "large_pool"))
        for kind in ("allocated_bytes", "reserved_bytes")
    ]
    flow = figure("allocated_bytes.all.allocated") - figure("allocated_bytes.all.freed")
    peak = figure("allocated_bytes.all.peak")
    relations = (held >= wanted, kept >= held, peak >= held, pools == [held, kept], flow == held)
    return sum(not holds for holds in relations)


def _blocks(bench: Bench) -> None:
    """Many sizes at once: where they lie, what they hold, what the allocator says of them, what stays afterwards."""
    native = torch.cuda.get_allocator_backend() == "native"
    _settle()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    asked_before = _figures(bench.device)("requested_bytes.all.current")
    random = bench.random()
    wanted = [torch.randint(1, 256, (size,), generator=random, dtype=torch.uint8) for size in _SIZES * 2]
    blocks = [torch.empty(len(want), dtype=torch.uint8, device=bench.device) for want in wanted]
    for place, want in enumerate(wanted):
        blocks[place].copy_(want)
    bench.exact("contents.wrong", torch.cat([block.cpu() for block in blocks]), torch.cat(wanted))

    spans = sorted((block.data_ptr(), block.data_ptr() + block.numel()) for block in blocks)
    bench.count("aligned.wrong", sum(start % _ALIGNMENT != 0 for start, _ in spans))
    bench.count("aligned.wrong", sum(end > spans[place + 1][0] for place, (_, end) in enumerate(spans[:-1])))

    total = sum(len(want) for want in wanted)
    figure = _figures(bench.device)
    bench.count("figures.wrong", int(torch.cuda.memory_allocated() - before < total))
    bench.count("figures.wrong", int(torch.cuda.memory_reserved() < torch.cuda.memory_allocated()))
    if native:  # the driver's own pool keeps fewer figures
        bench.count("figures.wrong", inconsistent(figure, before + total))
        bench.count("figures.wrong", int(figure("requested_bytes.all.current") - asked_before != total))
    del blocks
    _settle()
    bench.count("left.wrong", int(torch.cuda.memory_allocated() != before))
    bench.count("left.wrong", int(torch.cuda.memory_reserved() > reserved))


def run(bench: Bench) -> None:
    """Measures ``streams.wrong`` and ``contents.wrong`` (elements), ``aligned.wrong`` (blocks that are not aligned or
    overlap), ``figures.wrong`` (relations that do not hold) and ``left.wrong`` (memory that stays when all is freed).
    """
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        bench.not_applicable("PYTORCH_NO_CUDA_MEMORY_CACHING turns the caching allocator off")
    torch.cuda.set_device(bench.device)
    torch.ones(1, device=bench.device).sum().item()  # what the first kernel allocates for good comes before
    _across_streams(bench)
    _blocks(bench)
