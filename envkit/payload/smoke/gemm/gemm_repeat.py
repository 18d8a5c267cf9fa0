"""The same product a hundred times: kernel, shape and addresses are the same, so every result has the bits of the
first."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_SIZE = 4096
_TIMES = 100
_ROWS = 32  # of the first result that are compared with fp64


def repeated(bench: Bench, left: Any, right: Any, times: int) -> Any:
    """The first of ``times`` products; counts under ``differing`` the elements of the others that differ from it."""
    first = torch.mm(left, right)
    out = torch.empty_like(first)
    differing = torch.zeros((), dtype=torch.int64, device=first.device)
    for number in range(1, times):
        out.fill_(torch.nan)
        torch.mm(left, right, out=out)
        got = bench.disturb(out, exact=True).to(first.device) if number == times // 2 else out
        differing += (got.view(torch.int16) != first.view(torch.int16)).sum()
    bench.count("differing", int(differing))
    return first


def run(bench: Bench) -> None:
    """Measures ``differing`` (elements), ``nonfinite`` (of the first result), and the distance ``first``."""
    bench.plain_math()
    random = bench.random_here()
    left, right = (torch.randn(_SIZE, _SIZE, generator=random, device=bench.device).bfloat16() for _ in range(2))
    first = repeated(bench, left, right, _TIMES)
    bench.count("nonfinite", int((~first.isfinite()).sum()))
    bench.close("first", first[:_ROWS], left[:_ROWS].cpu().double() @ right.cpu().double())
