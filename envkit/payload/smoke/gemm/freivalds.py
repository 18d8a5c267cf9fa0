"""Operands of small integers, and the check of their product that every exact test of products shares.

The product C = AB is checked by Freivalds: C r = A (B r) in int64 for eight vectors r of +1 and -1.  A single wrong
element changes its row's sum whatever r is, so it is always seen, at a cost that grows with the square of the size
(R. Freivalds, "Fast probabilistic algorithms", 1979).  The sums are done where the product lies, element by element,
so that no product of matrices checks a product of matrices.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch

_VECTORS = 8
_AT_ONCE = 1 << 25  # elements of an intermediate result: 256 MiB


def operand(rows: int, columns: int, top: int, random: Any, zeros: int = 2) -> Any:
    """Integers from ``-top`` to ``top`` as int32, on the generator's device.

    With ``top`` 1, ``zeros`` of ``zeros + 2`` elements are zero: a sum of K products has the deviation
    2 sqrt(K) / (zeros + 2), which must lie far below the largest integer that the type of the result holds.
    """

    def draw(low: int, high: int) -> Any:
        return torch.randint(low, high, (rows, columns), generator=random, device=random.device, dtype=torch.int32)

    if top > 1:
        return draw(-top, top + 1)
    drawn = draw(0, zeros + 2)
    return (drawn == 0).int() - (drawn == 1).int()


def _times(matrix: Any, vectors: Any) -> Any:
    """``matrix @ vectors`` in int64; it wraps, and equality modulo a power of two sees every difference below it."""
    rows = max(1, _AT_ONCE // (matrix.shape[1] * vectors.shape[1]))
    parts = [(part.long().unsqueeze(2) * vectors).sum(1) for part in matrix.split(rows)]
    return torch.cat(parts)


def wrong_in_product(left: Any, right: Any, product: Any, random: Any) -> int:
    """How many elements are no integers, plus how many rows fail Freivalds; ``left``, ``right`` are integers."""
    draws = torch.randint(0, 2, (right.shape[1], _VECTORS), generator=random, device=random.device)
    signs = draws.to(left.device) * 2 - 1
    want = _times(left, _times(right, signs))
    rows = max(1, _AT_ONCE // product.shape[1])
    wrong = torch.zeros((), dtype=torch.int64, device=left.device)
    for first in range(0, product.shape[0], rows):
        got, sums = product[first : first + rows].to(left.device), want[first : first + rows]
        wide = got.double()
        broken = ~(wide == wide.round()) | wide.isinf()
        whole = torch.where(broken, torch.zeros_like(wide), wide).long()
        failing = (_times(whole, signs) != sums).any(1) & ~broken.any(1)
        wrong += broken.sum() + failing.sum()
    return int(wrong)
