"""Products of small integers, which every floating type holds exactly: not one bit may differ.

The product C = AB is checked by Freivalds: C r = A (B r) in int64 for eight vectors r of +1 and -1.  A single wrong
element changes its row's sum whatever r is, so it is always seen, at a cost that grows with the square of the size
(R. Freivalds, "Fast probabilistic algorithms", 1979).  Operands are chosen so that no partial sum leaves the range in
which the type holds every integer, and so that tf32 would be exact too: this test asks whether the arithmetic is
right, ``gemm-random`` how precise it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.smoke.bench import Bench

_VECTORS = 8


def _operand(rows: int, columns: int, top: int, random: Any) -> Any:
    import torch

    if top > 1:
        return torch.randint(-top, top + 1, (rows, columns), generator=random)
    # -1, 0, 0, 1: half are zero, so that a sum of 4096 products stays within six deviations of 256
    return torch.tensor([-1, 0, 0, 1])[torch.randint(0, 4, (rows, columns), generator=random)]


def wrong_in_product(left: Any, right: Any, product: Any, random: Any) -> int:
    """How many elements are no integers, plus how many rows fail Freivalds; ``left``, ``right`` are int64."""
    import torch

    wide = product.double()
    broken = ~(wide == wide.round()) | wide.isinf()
    whole = torch.where(broken, torch.zeros_like(wide), wide).long()
    signs = torch.randint(0, 2, (right.shape[1], _VECTORS), generator=random) * 2 - 1
    # int64 wraps, and equality modulo a power of two is all that is asked: a difference below it does not vanish
    failing = (whole @ signs != left @ (right @ signs)).any(1) & ~broken.any(1)
    return int(broken.sum()) + int(failing.sum())


def _measure(bench: Bench, name: str, dtype: Any, top: int, size: int) -> None:
    import torch

    random = bench.random()
    for rows, depth, columns, odd in ((size, size, size, False), (129, 1023, 63, True)):
        left, right = _operand(rows, depth, top, random), _operand(depth, columns, top, random)
        out = torch.full((rows, columns), torch.nan, dtype=dtype, device=bench.device)  # what is not written is seen
        one, two = left.to(dtype).to(bench.device), right.to(dtype).to(bench.device)
        if odd:  # a base that is aligned to one element only, and a transposed operand
            one = torch.nn.functional.pad(one, (1, 0))[:, 1:]
            two = two.t().contiguous().t()
        torch.mm(one, two, out=out)
        got = bench.disturb(out.cpu(), exact=True)
        bench.count(name + ".wrong", wrong_in_product(left, right, got, random))


def run(bench: Bench) -> None:
    """Measures ``<dtype>.wrong`` and ``<dtype>.offered`` for fp64, fp32, fp16 and bf16."""
    import torch

    bench.plain_math()
    size = 4096 if bench.on_gpu else 1024
    kinds = (("fp64", torch.float64, 2**20), ("fp32", torch.float32, 2**6), ("fp16", torch.float16, 2))
    for name, dtype, top in (*kinds, ("bf16", torch.bfloat16, 1)):
        bench.attempt(name, partial(_measure, bench, name, dtype, top, size))
