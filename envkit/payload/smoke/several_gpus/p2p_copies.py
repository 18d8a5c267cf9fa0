"""Copies between all ordered pairs of GPUs, contiguous and strided, from and to odd addresses: every byte exact.

A contiguous copy is the driver's; a strided one is a kernel that writes over the link.  Broken peer access (IOMMU,
access control services of a PCIe switch) shows here as wrong bytes or as a hang.
"""

from __future__ import annotations

import statistics
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_BYTES = 1 << 28
_STRIDED = (1 << 22) + 3
_POISON = 0xA5
_ROUNDS = 6
_SLEEP_CYCLES = 100_000_000  # some 50 ms: far longer than the copy that must not overtake


def pattern(source: int, count: int, device: str) -> Any:
    """``count`` integers that GPU ``source`` sends, as int32."""
    return torch.arange(count, dtype=torch.int32, device=device) * 17 + source * 1_000_003


def _settled(*devices: int) -> None:
    for device in devices:
        torch.cuda.synchronize(device)


def _contiguous(bench: Bench, source: int, target: int) -> None:
    """One byte behind the start of an allocation to three behind another's, with what lies around."""
    sent = pattern(source, _BYTES // 4, f"cuda:{source}").view(torch.uint8)[1:]
    there = torch.full((_BYTES + 16,), _POISON, dtype=torch.uint8, device=f"cuda:{target}")
    there[3 : 3 + _BYTES - 1].copy_(sent)
    want = torch.full((_BYTES + 16,), _POISON, dtype=torch.uint8, device=f"cuda:{target}")
    want[3 : 3 + _BYTES - 1] = pattern(source, _BYTES // 4, f"cuda:{target}").view(torch.uint8)[1:]
    _settled(source, target)
    bench.exact("bytes.wrong", there, want)


def _strided(bench: Bench, source: int, target: int) -> None:
    sent = pattern(source, 2 * _STRIDED, f"cuda:{source}")[1::2]
    there = torch.full((3 * _STRIDED,), -1, dtype=torch.int32, device=f"cuda:{target}")
    there[::3].copy_(sent)
    want = torch.full((3 * _STRIDED,), -1, dtype=torch.int32, device=f"cuda:{target}")
    want[::3] = pattern(source, 2 * _STRIDED, f"cuda:{target}")[1::2]
    _settled(source, target)
    bench.exact("strided.wrong", there, want)


def _ordered(bench: Bench, source: int, target: int) -> None:
    """A copy that must wait, on another stream, for what is being written; "order" drops the wait."""
    sent = torch.full((1 << 20,), -1, dtype=torch.int32, device=f"cuda:{source}")
    there = torch.full((1 << 20,), -2, dtype=torch.int32, device=f"cuda:{target}")
    want = pattern(source, 1 << 20, f"cuda:{target}")
    fresh = pattern(source, 1 << 20, f"cuda:{source}")
    _settled(source, target)
    with torch.cuda.device(source):
        writer, copier, written = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
        with torch.cuda.stream(writer):
            torch.cuda._sleep(_SLEEP_CYCLES)
            sent.copy_(fresh)
            written.record(writer)
        with torch.cuda.stream(copier):
            if bench.injected_fault != "order":
                copier.wait_event(written)
            there.copy_(sent, non_blocking=True)
    _settled(source, target)
    bench.exact("order.wrong", there, want)


def _rate(source: int, target: int) -> float:
    """GB/s of a copy of 256 MiB, the median."""
    sent = torch.ones(_BYTES // 4, dtype=torch.float32, device=f"cuda:{source}")
    there = torch.empty_like(sent, device=f"cuda:{target}")
    times = []
    with torch.cuda.device(source):  # torch copies on the source's stream
        for _ in range(_ROUNDS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            there.copy_(sent, non_blocking=True)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
    return float(_BYTES / statistics.median(times[1:]) / 1e6)


def run(bench: Bench) -> None:
    """Measures ``bytes.wrong``, ``strided.wrong`` and ``order.wrong`` over all pairs, ``pairs``, how many of them have
    ``peer.access``, and ``slowest.gbs``, the slowest pair's GB/s."""
    if bench.gpus < 2:
        bench.not_applicable("fewer than two GPUs are here")
    pairs = [(one, other) for one in range(bench.gpus) for other in range(bench.gpus) if one != other]
    reached = [pair for pair in pairs if torch.cuda.can_device_access_peer(*pair)]
    rates = {}
    for source, target in pairs:
        _contiguous(bench, source, target)
        _strided(bench, source, target)
        _ordered(bench, source, target)
        rates[source, target] = _rate(source, target)
        torch.cuda.empty_cache()
    slowest = min(rates, key=lambda pair: rates[pair])
    bench.note("pairs", len(pairs))
    bench.note("peer.access", len(reached))
    bench.note("slowest.gbs", rates[slowest])
    bench.detail = f"the slowest pair is cuda:{slowest[0]} to cuda:{slowest[1]} with {rates[slowest]:.1f} GB/s"
    apart = [f"cuda:{one} to cuda:{other}" for one, other in pairs if (one, other) not in reached]
    if apart:
        bench.detail += "; no peer access: " + ", ".join(apart)
