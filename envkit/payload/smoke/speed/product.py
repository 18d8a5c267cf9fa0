"""Large products of matrices for the tests of speed: how each type is multiplied, on what, and whether it came out.

Times are taken on normal random numbers, because a GPU draws less power and runs faster on zeros and on few distinct
values.  Right or wrong is told on integers that every type holds exactly, of the same size and by the same call, as
``freivalds`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import operand, wrong_in_product
from envkit.payload.smoke.speed import timing

LARGEST = 8192
_SMALLEST = 2048
_LONGEST_S = 0.1  # of one product: a GeForce's fp64 would take seconds at the largest size


class Kind(NamedTuple):
    """One type of product and the compute capability from which tensor cores (or, fp32 and fp64, anything) do it."""

    name: str
    dtype: str
    capability: tuple[int, int]


KINDS = (
    Kind("bf16", "bfloat16", (8, 0)),
    Kind("fp16", "float16", (7, 0)),
    Kind("tf32", "float32", (8, 0)),
    Kind("fp8", "float8_e4m3fn", (8, 9)),
    Kind("fp32", "float32", (0, 0)),
    Kind("fp64", "float64", (0, 0)),
    Kind("int8", "int8", (7, 5)),
)


def lacking(kind: Kind) -> str:
    """Why this torch or this GPU has no product of ``kind``; empty where it has."""
    here = torch.cuda.get_device_capability()
    call = {"fp8": "_scaled_mm", "int8": "_int_mm"}.get(kind.name, "mm")
    if here < kind.capability:
        return f"a GPU of compute capability {here[0]}.{here[1]} has no {kind.name}"
    if not (hasattr(torch, call) and hasattr(torch, kind.dtype)):
        return f"this torch has no product of {kind.name}"
    return ""


def multiplier(kind: Kind, device: str) -> Callable[[Any, Any], Any]:
    """The function that multiplies two matrices of ``kind``; it also sets how fp32 is multiplied from now on."""
    if kind.name == "int8":
        return lambda left, right: torch._int_mm(left, right)
    if kind.name != "fp8":
        torch.set_float32_matmul_precision("high" if kind.name == "tf32" else "highest")
        return lambda left, right: torch.mm(left, right)
    one = torch.ones((), device=device)

    def scaled(left: Any, right: Any) -> Any:
        out = torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
        return out[0] if isinstance(out, tuple) else out  # older ones return the result's largest element as well

    return scaled


def _laid_out(kind: Kind, left: Any, right: Any) -> tuple[Any, Any]:
    """The operands in the layout that the 8-bit kernels ask for: the right one by columns."""
    return (left, right.t().contiguous().t()) if kind.name in ("fp8", "int8") else (left, right)


def randoms(kind: Kind, size: int, bench: Bench) -> tuple[Any, Any]:
    """Two square matrices of fresh random numbers: normal ones, or all int8 alike."""
    random = bench.random_here()
    made = []
    for _ in range(2):
        if kind.name == "int8":
            one = torch.randint(-128, 128, (size, size), dtype=torch.int8, generator=random, device=bench.device)
        else:
            plain = torch.float64 if kind.name == "fp64" else torch.float32
            one = torch.randn(size, size, dtype=plain, generator=random, device=bench.device)
            one = one.to(getattr(torch, kind.dtype))
        made.append(one)
    return _laid_out(kind, made[0], made[1])


def wrong_at(kind: Kind, size: int, multiply: Callable[[Any, Any], Any], bench: Bench) -> int:
    """Wrong elements and rows of one product of integers at ``size``, with the bench's injected fault at work on it.

    A quarter and a half of the elements are not zero: a sum of 8192 products deviates by 32, so that 256, to which bf16
    holds every integer, is eight deviations away.
    """
    random = bench.random_here()
    whole = [operand(size, size, 1, random, zeros) for zeros in (6, 2)]
    left, right = (each.float().to(getattr(torch, kind.dtype)) for each in whole)
    product = multiply(*_laid_out(kind, left, right))
    timing.disturb(bench, product)
    return wrong_in_product(whole[0], whole[1], product, random)


def fit(kind: Kind, multiply: Callable[[Any, Any], Any], bench: Bench) -> int:
    """The largest size of which one product takes at most a tenth of a second on this GPU."""
    left, right = randoms(kind, _SMALLEST, bench)
    multiply(left, right)
    seconds = timing.median(timing.each(lambda: multiply(left, right), 3))
    size = _SMALLEST
    while size < LARGEST and seconds * 8 <= _LONGEST_S:
        size, seconds = size * 2, seconds * 8
    return size
