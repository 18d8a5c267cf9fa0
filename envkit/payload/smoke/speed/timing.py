"""Times of work on one GPU, measured by events, and results that are looked at where they lie.

The first launches of a run wait behind a kernel that spins, so that all of them are enqueued before the first begins
and the time of a launch is the GPU's alone (the method of NVIDIA's nvbandwidth).  A warm-up of some time, not of some
launches, lets the clocks rise.  The median is what counts: one launch that an interrupt met does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

LAUNCHES = 24
_WARM_S = 0.05
_WARM_MOST = 200
_SPIN_CYCLES = 6_000_000  # about 3 ms: longer than it takes to enqueue LAUNCHES launches and their events
_WINDOW = 1 << 16
_ODD = -1640531535  # 2^32 by the golden ratio, as int32: multiples of it reach every word once
_CHUNK = 1 << 24


def median(values: list[float]) -> float:
    """The middle value, the mean of the two middle ones of an even number.  Raises IndexError for none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def between(events: list[Any]) -> list[float]:
    """Seconds from each event to the next; all of them must have happened."""
    return [events[number].elapsed_time(events[number + 1]) / 1e3 for number in range(len(events) - 1)]


def each(work: Callable[[], None], launches: int, meanwhile: Callable[[], None] | None = None) -> list[float]:
    """Seconds of each of ``launches`` calls of ``work`` on the current stream; ``meanwhile`` runs beside them."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(launches + 1)]
    torch.cuda._sleep(_SPIN_CYCLES)
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    if meanwhile is not None:
        meanwhile()
    torch.cuda.synchronize()
    return between(events)


def warm(work: Callable[[], None]) -> float:
    """Runs ``work`` for about 50 ms of the GPU's time; the seconds of one call at the end."""
    work()  # loads the kernel
    one_s = median(each(work, 2))
    return median(each(work, int(min(_WARM_MOST, max(3, _WARM_S / max(one_s, 1e-6))))))


def typical(work: Callable[[], None], launches: int = LAUNCHES, meanwhile: Callable[[], None] | None = None) -> float:
    """The median seconds of one call of ``work``, after a warm-up."""
    warm(work)
    return median(each(work, launches, meanwhile))


def disturb(bench: Bench, result: Any) -> None:
    """Lets the bench's injected fault change a piece in the middle of ``result``, which must be contiguous, in
    place."""
    if bench.injected_fault:
        flat = result.view(-1)
        begin = flat.numel() // 2
        piece = flat[begin : begin + _WINDOW]
        piece.copy_(bench.disturb(piece, exact=True))


def words(begin: int, end: int, salt: int, device: str) -> Any:
    """The int32 words ``begin`` to ``end`` of a pattern in which no word comes twice; another ``salt``, another one."""
    return (torch.arange(begin, end, dtype=torch.int64, device=device) * _ODD + salt).to(torch.int32)


def write(target: Any, salt: int) -> None:
    """Fills a flat int32 tensor with the pattern, piece by piece."""
    for begin in range(0, target.numel(), _CHUNK):
        piece = target[begin : begin + _CHUNK]
        piece.copy_(words(begin, begin + piece.numel(), salt, target.device))


def wrong(result: Any, salt: int) -> int:
    """How many words of a flat int32 tensor are not the pattern's."""
    count = 0
    for begin in range(0, result.numel(), _CHUNK):
        piece = result[begin : begin + _CHUNK]
        count += int((piece != words(begin, begin + piece.numel(), salt, result.device)).sum())
    return count


def fitting(bytes_wanted: int, parts: int) -> int:
    """The bytes of each of ``parts`` buffers: as wanted, or less so that all of them take half of a small GPU."""
    total = int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return min(bytes_wanted, total // (2 * parts)) // (1 << 20) * (1 << 20)
