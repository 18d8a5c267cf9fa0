"""Large products of matrices for the tests of speed: how each type is multiplied, on what, and whether it came out.

Times are taken on normal random numbers, because a GPU draws less power and runs faster on zeros and on few distinct
values.  Right or wrong is told on integers that every type holds exactly, of the same size and by the same call, with
Freivalds' method (R. Freivalds, "Fast probabilistic algorithms", 1979) in fp64 on the same GPU: C r = A (B r) for eight
vectors r of +1 and -1.  One wrong element changes its row's sum whatever r is.  That the GPU's arithmetic is right
when it is compared with a CPU's is the task of ``gemm-exact``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import timing

LARGEST = 8192
_SMALLEST = 2048
_LONGEST_S = 0.1  # of one product: a GeForce's fp64 would take seconds at the largest size
_VECTORS = 8


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


def integers(kind: Kind, size: int, bench: Bench) -> tuple[Any, Any]:
    """Two square matrices of -1, 0 and 1, a quarter and a half of them not zero: a sum of 8192 products deviates by 32,
    so that 256, to which bf16 holds every integer, is eight deviations away."""
    random = bench.random_here()
    made = []
    for zeros in (6, 2):
        choice = torch.tensor([1.0, -1.0] + [0.0] * zeros, device=bench.device)
        picked = torch.randint(0, zeros + 2, (size, size), generator=random, device=bench.device)
        made.append(choice[picked].to(getattr(torch, kind.dtype)))
    return _laid_out(kind, made[0], made[1])


def _wide(matrix: Any) -> Any:
    """The matrix in fp64, by way of fp32, into which every type here but fp64 fits."""
    return matrix if matrix.element_size() == 8 else matrix.float().double()


def wrong(left: Any, right: Any, product: Any, bench: Bench) -> int:
    """How many elements of ``product`` are no integers, plus how many of its rows fail Freivalds, all in fp64."""
    wide = product.double()
    broken = ~(wide == wide.round()) | wide.isinf()
    whole = torch.where(broken, torch.zeros_like(wide), wide)
    signs = torch.randint(0, 2, (right.shape[1], _VECTORS), generator=bench.random()) * 2 - 1
    vectors = signs.double().to(product.device)
    # every number here is an integer below 2^53: fp64 makes no error in any order
    failing = (whole @ vectors != _wide(left) @ (_wide(right) @ vectors)).any(1) & ~broken.any(1)
    return int(broken.sum()) + int(failing.sum())


def wrong_at(kind: Kind, size: int, multiply: Callable[[Any, Any], Any], bench: Bench) -> int:
    """As ``wrong``, of one product of integers at ``size``, with the bench's injected fault at work on it."""
    left, right = integers(kind, size, bench)
    product = multiply(left, right)
    timing.disturb(bench, product)
    return wrong(left, right, product, bench)


def fit(kind: Kind, multiply: Callable[[Any, Any], Any], bench: Bench) -> int:
    """The largest size of which one product takes at most a tenth of a second on this GPU."""
    left, right = randoms(kind, _SMALLEST, bench)
    multiply(left, right)
    seconds = timing.median(timing.each(lambda: multiply(left, right), 3))
    size = _SMALLEST
    while size < LARGEST and seconds * 8 <= _LONGEST_S:
        size, seconds = size * 2, seconds * 8
    return size
