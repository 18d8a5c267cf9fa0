"""Reductions, scans and atomics in Triton, over rows that no block divides."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.triton_kernels import kernels, launched

BLOCK = 1024
_ROWS, _WIDTH, _STRIDE = 301, 1000, 1031
_SIZE, _BINS = (1 << 18) + 13, 37
_POISON = -(2**31)


def _strided(tensor: Any, fill: float, device: str) -> Any:
    """The rows on the device, further apart than they are wide, ``fill`` between them."""
    storage = torch.full((tensor.shape[0], _STRIDE), fill, dtype=tensor.dtype)
    storage[:, :_WIDTH] = tensor
    return storage.to(device)


def _softmax(bench: Bench, module: Any) -> None:
    given = torch.randn(_ROWS, _WIDTH, generator=bench.random()) * 4
    there = _strided(given, float("nan"), bench.device)
    out = torch.full_like(there, float("nan"))
    launched(bench, lambda: module.softmax[(_ROWS,)](there, out, _WIDTH, _STRIDE, BLOCK=BLOCK))
    got = out.cpu()
    bench.close("softmax", got[:, :_WIDTH], torch.softmax(given.double(), dim=1))
    bench.count("softmax.beside.wrong", int((~got[:, _WIDTH:].isnan()).sum()))


def _scan(bench: Bench, module: Any) -> None:
    given = torch.randint(-(2**20), 2**20, (_ROWS, _WIDTH), generator=bench.random()).int()
    there = _strided(given, 2**20, bench.device)
    sums, peaks = (torch.full_like(there, _POISON) for _ in range(2))
    places = torch.full((_ROWS,), -1, dtype=torch.int32, device=bench.device)
    module.scan[(_ROWS,)](there, sums, peaks, places, _WIDTH, _STRIDE, BLOCK=BLOCK)
    bench.exact("sums.wrong", sums.cpu()[:, :_WIDTH], given.long().cumsum(1).int())
    bench.exact("peaks.wrong", peaks.cpu()[:, :_WIDTH], given.cummax(1).values)
    # where several are largest any of them will do
    found = places.cpu().long()
    bench.count("places.wrong", int(((found < 0) | (found >= _WIDTH)).sum()))
    picked = given.gather(1, found.clamp(0, _WIDTH - 1)[:, None])[:, 0]
    bench.exact("places.wrong", picked, given.max(1).values)
    beside = sum(int((tensor.cpu()[:, _WIDTH:] != _POISON).sum()) for tensor in (sums, peaks))
    bench.count("scan.beside.wrong", beside)


def _tally(bench: Bench, module: Any) -> None:
    bins = torch.randint(0, _BINS, (_SIZE,), generator=bench.random()).int()
    there = bins.to(bench.device)
    counts = torch.zeros(_BINS, dtype=torch.int32, device=bench.device)  # a sum begins at zero
    peaks = torch.full_like(counts, -1)
    grid = (-(-_SIZE // BLOCK),)
    # Without atomics, all threads of a block read a count before one of them writes it: far too few are counted.
    module.tally[grid](there, counts, peaks, _SIZE, ATOMIC=bench.injected_fault != "order", BLOCK=BLOCK)
    bench.exact("counts.wrong", counts.cpu(), torch.bincount(bins.long(), minlength=_BINS).int())
    last = torch.stack([(bins == bin).nonzero().max() for bin in range(_BINS)]).int()
    bench.exact("last.wrong", peaks.cpu(), last)


def run(bench: Bench) -> None:
    """Measures the distances ``softmax``, and ``.wrong`` of ``sums``, ``peaks``, ``places``, ``counts``, ``last``, and
    ``.beside.wrong``, what was written between the rows."""
    module = kernels(bench, "triton-reduce")
    torch.cuda.set_device(bench.device)
    _softmax(bench, module)
    _scan(bench, module)
    _tally(bench, module)
