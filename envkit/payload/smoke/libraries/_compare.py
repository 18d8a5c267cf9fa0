"""What the tests of libraries share: NaN in the memory that results are written to, and lists of results compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_LARGE = 64 << 20  # bytes; a block of the caching allocator's pool for what is larger than 1 MiB
_SMALL, _BLOCKS = 1 << 20, 16  # blocks of its other pool


def stale(bench: Bench) -> None:
    """Writes the byte 0xFF over blocks of both pools and gives them back; NaN in every floating type, -1 in integers.

    A CPU's allocator promises no reuse, so nothing is done there.
    """
    if not bench.on_gpu:
        return
    blocks: list[Any] = [torch.full((_LARGE,), 255, dtype=torch.uint8, device=bench.device)]
    blocks += [torch.full((_SMALL,), 255, dtype=torch.uint8, device=bench.device) for _ in range(_BLOCKS)]
    torch.cuda.synchronize()


def residuals(bench: Bench) -> tuple[Callable[[Any], Any], Bench]:
    """What brings a factor to the CPU in fp64, disturbed, and a bench for residuals, which are not disturbed again."""

    def plain(tensor: Any) -> Any:
        return bench.disturb(tensor.cpu().double(), exact=False)

    clean = Bench(bench.device)
    clean.measures = bench.measures
    return plain, clean


def gradients(work: Callable[..., Any], tensors: list[Any], seed: Any, device: str) -> list[Any]:
    """What ``work`` makes of the tensors on ``device``, and the gradient of each for ``seed``."""
    leaves = [tensor.detach().to(device).requires_grad_() for tensor in tensors]
    out = work(*leaves)
    return [out, *torch.autograd.grad(out, leaves, seed.to(out.dtype).to(device))]


def all_close(bench: Bench, name: str, results: list[Any], wanted: list[Any]) -> None:
    """``bench.close`` for each of several results.  Raises AssertionError where one is missing."""
    if len(results) != len(wanted):
        raise AssertionError(f"{name}: {len(results)} results, expected {len(wanted)}")
    for place, want in enumerate(wanted):
        bench.close(name, results[place], want)
