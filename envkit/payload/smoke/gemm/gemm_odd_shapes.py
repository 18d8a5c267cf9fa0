"""Products of integers of awkward shapes: sizes that no tile divides, transposed and strided operands, bases moved by
one element.  What lies beside an operand and around the result is NaN, so that reading or writing there is seen."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import operand, wrong_in_product

_SIZES = (1, 7, 63, 129, 4095)
_CPU_SIZES = (1, 7, 129)
_LAYOUTS = (  # is the first operand stored transposed, is the second, and does everything lie inside something larger
    (False, False, False),
    (True, False, False),
    (False, True, False),
    (False, False, True),
    (True, True, True),
)


def _stored(matrix: Any, transposed: bool, inside: bool) -> Any:
    """The same matrix, stored as asked; inside something larger its base is aligned to one element only."""
    rows = (matrix.t() if transposed else matrix).contiguous()
    if inside:
        rows = torch.nn.functional.pad(rows, (1, 2), value=torch.nan)[:, 1:-2]
    return rows.t() if transposed else rows


def _measure(bench: Bench, name: str, dtype: Any, top: int) -> None:
    sizes = _SIZES if bench.on_gpu else _CPU_SIZES
    random = bench.random_here()
    one, two = operand(sizes[-1], sizes[-1], top, random), operand(sizes[-1], sizes[-1], top, random)
    for rows, depth, columns in product(sizes, repeat=3):
        left, right = one[:rows, :depth], two[:depth, :columns]
        typed = left.to(dtype), right.to(dtype)
        for first, second, inside in _LAYOUTS:
            around = torch.full((rows + 2, columns + 3), torch.nan, dtype=dtype, device=bench.device)
            out = around[1:-1, 1:-2] if inside else torch.full_like(around[1:-1, 1:-2], torch.nan)
            torch.mm(_stored(typed[0], first, inside), _stored(typed[1], second, inside), out=out)
            got = bench.disturb(out, exact=True)
            bench.count(name + ".wrong", wrong_in_product(left, right, got, random))
            if inside:
                out.fill_(torch.nan)
                bench.count(name + ".outside", int((~around.isnan()).sum()))


def run(bench: Bench) -> None:
    """Measures ``<dtype>.wrong``, ``<dtype>.outside`` (elements written around the result) and ``<dtype>.offered``."""
    bench.plain_math()
    for name, dtype, top in (("fp32", torch.float32, 2**6), ("fp16", torch.float16, 2), ("bf16", torch.bfloat16, 1)):
        bench.attempt(name, partial(_measure, bench, name, dtype, top))
