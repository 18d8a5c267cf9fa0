"""Products of complex integers: plain, with a conjugated and with a transposed operand, exact in both parts."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_ROWS, _DEPTH, _COLUMNS = 513, 1024, 511
_TOP = 1 << 5  # a sum of 1024 complex products stays below 2^21


def _whole(rows: int, columns: int, random: Any) -> Any:
    real, imaginary = (torch.randint(-_TOP, _TOP + 1, (rows, columns), generator=random).double() for _ in range(2))
    return torch.complex(real, imaginary)


def run(bench: Bench) -> None:
    """Measures ``complex64.<form>.wrong`` for the forms plain, adjoint and transposed: real and imaginary parts."""
    bench.plain_math()
    random = bench.random()
    left, right = _whole(_ROWS, _DEPTH, random), _whole(_DEPTH, _COLUMNS, random)
    one, two = (tensor.to(torch.complex64).to(bench.device) for tensor in (left, right))
    forms = (
        ("plain", one, two, left @ right),
        ("adjoint", one.t().contiguous().t().conj(), two, left.conj() @ right),
        ("transposed", one, two.t().contiguous().t(), left @ right),
    )
    for name, first, second, want in forms:
        out = torch.full((_ROWS, _COLUMNS), complex("nan+nanj"), dtype=torch.complex64, device=bench.device)
        torch.mm(first, second, out=out)
        bench.exact(f"complex64.{name}.wrong", torch.view_as_real(out), torch.view_as_real(want))
