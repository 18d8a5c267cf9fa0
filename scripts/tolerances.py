"""Simulates on the CPU what each arithmetic of a product costs, and holds the suite's limits against it.

    python scripts/tolerances.py        prints the table; exit 1 where a limit does not lie between right and wrong

Needs a Python with torch.  Each line is one arithmetic and its distances from fp64 over the same rounded inputs: one
that should run, or one that is to be found out.  A limit must lie above every "right" and below every "wrong".  The
last lines do the same for softmax, normalisation and attention, in the units of the table of operators.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

LIMITS = Path(__file__).resolve().parents[1] / "envkit/judging/checks/smoke_limits/gemm.jsonl"
SIZE = 128
DEPTHS = (1024, 4096)
TENSOR_CORE_BITS = 13  # behind the leading one, of the sums of 8-bit floats on Hopper (arXiv:2412.19437, section 3.3.2)
STEP, PROMOTED = 32, 128  # products that a tensor core adds at once, and after which the sum goes to fp32 (ibidem)


class Simulated(NamedTuple):
    """One simulated arithmetic: whether it is ``right`` for ``measures``, each "TEST MEASURE"."""

    name: str
    right: bool
    measures: tuple[str, ...]
    depth: int
    got: Any
    want: Any


def tf32(tensor: Any) -> Any:
    """Rounds fp32 to 10 bits behind the leading one, to nearest even."""
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def summed(operands: list[Any], dtype: Any) -> Any:
    """The product with a running sum that is rounded to ``dtype`` after every product."""
    left, right = operands
    total = torch.zeros(left.shape[0], right.shape[0], dtype=dtype)
    for place in range(left.shape[1]):
        total = (total.double() + left[:, place, None].double() * right[None, :, place].double()).to(dtype)
    return total


def split(operands: list[Any], dtype: Any, parts: int) -> Any:
    """The product in ``parts`` along the sums, each rounded to ``dtype`` and added in it."""
    left, right = operands
    total = torch.zeros(left.shape[0], right.shape[0], dtype=dtype)
    for one, two in zip(left.chunk(parts, 1), right.chunk(parts, 1), strict=True):
        total = (total.float() + (one.float() @ two.float().t()).to(dtype).float()).to(dtype)
    return total


def short(operands: list[Any], promoted: int) -> Any:
    """The product as a tensor core with short sums does it; every ``promoted`` products join a sum in fp32."""
    left, right = operands
    total = torch.zeros(left.shape[0], right.shape[0])
    part = torch.zeros(left.shape[0], right.shape[0], dtype=torch.float64)
    for first in range(0, left.shape[1], STEP):
        terms = left[:, None, first : first + STEP].double() * right[None, :, first : first + STEP].double()
        largest = torch.maximum(terms.abs().amax(2), part.abs()).clamp(min=1e-30)
        unit = torch.exp2(largest.log2().floor() - TENSOR_CORE_BITS)
        part = (torch.trunc(terms / unit[:, :, None]).sum(2) + torch.trunc(part / unit)) * unit
        if (first + STEP) % promoted == 0:
            total += part.float()
            part = torch.zeros_like(part)
    return total + part.float()


def paths(depth: int, random: Any) -> Iterator[Simulated]:
    """Every arithmetic at one depth."""
    full = [torch.randn(SIZE, depth, generator=random, dtype=torch.float64) for _ in range(2)]

    def product(tensors: list[Any]) -> Any:
        return tensors[0].double() @ tensors[1].double().t()

    single = [tensor.float() for tensor in full]
    want = product(single)
    single_precision = ("gemm-random fp32",)
    yield Simulated("fp32", True, single_precision, depth, single[0] @ single[1].t(), want)
    yield Simulated("fp32, one sum", True, single_precision, depth, summed(single, torch.float32), want)
    rounded = [tf32(tensor) for tensor in single]
    yield Simulated("tf32", True, ("gemm-random tf32",), depth, rounded[0] @ rounded[1].t(), want)
    yield Simulated("tf32 for fp32", False, single_precision, depth, rounded[0] @ rounded[1].t(), want)
    half = [tensor.bfloat16().float() for tensor in single]
    yield Simulated("bf16 for tf32", False, ("gemm-random tf32",), depth, half[0] @ half[1].t(), want)
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        inputs = [tensor.to(dtype) for tensor in full]
        want = product(inputs)
        plain: tuple[str, ...] = (f"gemm-random {name}", f"gemm-split-k {name}.plain")
        plain += ("gemm-repeat first",) if name == "bf16" else ()
        got = (inputs[0].float() @ inputs[1].float().t()).to(dtype)
        yield Simulated(f"{name}, fp32 sums", True, plain, depth, got, want)
        yield Simulated(f"{name}, {name} sums", False, plain, depth, summed(inputs, dtype), want)
        yield Simulated(
            f"{name}, 32 parts", True, (f"gemm-split-k {name}.reduced",), depth, split(inputs, dtype, 32), want
        )
    eight = [tensor.to(torch.float8_e4m3fn) for tensor in single]
    want = product(eight)
    both = ("gemm-fp8 slow", "gemm-fp8 fast")
    got = (eight[0].float() @ eight[1].float().t()).bfloat16()
    yield Simulated("fp8, fp32 sums", True, both, depth, got, want)
    wide = [tensor.double() for tensor in eight]
    yield Simulated("fp8, promoted", True, both[:1], depth, short(wide, PROMOTED).bfloat16(), want)
    yield Simulated("fp8, short sums", True, both[1:], depth, short(wide, depth).bfloat16(), want)
    yield Simulated("fp8 result", False, both, depth, got.to(torch.float8_e4m3fn), want)
    layer = [single[0], single[1] / depth**0.5]
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        inputs = [tensor.to(dtype) for tensor in layer]
        gelu = torch.nn.functional.gelu
        got = (inputs[0].float() @ inputs[1].float().t()).to(dtype)
        want = gelu(product(inputs))
        yield Simulated(f"{name} gelu", True, (f"gemm-batched {name}.gelu",), depth, gelu(got), want)
        fused = (f"gemm-batched {name}.fused-gelu",)
        yield Simulated(f"{name} tanh gelu", True, fused, depth, gelu(got, approximate="tanh"), want)


def units(got: Any, want: Any, eps: float) -> float:
    """The largest distance as the table of operators measures it."""
    want = want.double()
    return float(((got.double() - want).abs() / (eps * (want.abs() + want.square().mean().sqrt()))).max())


def operators(random: Any) -> Iterator[tuple[str, bool, str, float]]:
    """What arithmetics within softmax, layer_norm and attention cost: name, whether right, measure, units.

    A right one of 16 bits rounds its result once, and fp32 within; attention also rounds its weights once.
    """
    rows = torch.randn(64, 2048, generator=random, dtype=torch.float64).bfloat16().double()
    query, key, value = (rows.reshape(64, 64, 32)[:, :40], rows.reshape(64, 64, 32), rows.reshape(64, 64, 32).flip(0))

    def normal(given: Any) -> Any:
        return (given - given.mean(-1, keepdim=True)) * (given.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()

    def attended(within: Any, weights: Any) -> Any:
        scores = within(query) @ within(key).transpose(1, 2) / 32**0.5
        return weights(scores.softmax(-1)) @ within(value)

    def same(given: Any) -> Any:
        return given

    wide, half = 2.0**-23, 2.0**-7
    pairs = (("softmax.sizes", lambda x: x.softmax(-1)), ("normalization.layer", normal))
    for row, work in pairs:
        want = work(rows)
        yield "fp32", True, f"{row}.units", units(work(rows.float()), want, wide)
        yield "tf32 results", False, f"{row}.units", units(tf32(want.float()), want, wide)
        yield "bf16, fp32 within", True, f"{row}.half-units", units(work(rows.float()).bfloat16(), want, half)
    want = attended(same, same)
    yield "fp32", True, "attention.masks.units", units(attended(lambda x: x.float(), same), want, wide)
    yield (
        "tf32 operands",
        False,
        "attention.masks.units",
        units(attended(lambda x: tf32(x.float() * 1.0001), same), attended(lambda x: x * 1.0001, same), wide),
    )
    yield (
        "bf16, fp32 within",
        True,
        "attention.masks.half-units",
        units(attended(same, lambda x: x.bfloat16().double()).bfloat16(), want, half),
    )
    first = (query @ key.transpose(1, 2) / 32**0.5)[:, :, :-1].softmax(-1) @ value[:, :-1]
    yield "a key left out", False, "attention.masks.half-units", units(first, want, half)


def distances(got: Any, want: Any) -> tuple[float, float]:
    """As the suite's ``close`` measures them: by norm, and of the worst element."""
    far, size = (got.double() - want).abs(), want.abs()
    worst = (far / (size + size.square().mean().sqrt())).max()
    return float(far.norm() / size.norm()), float(worst)


def limit(test: str, measure: str) -> float:
    """The limit on GPUs."""
    path = LIMITS.with_name("operators.jsonl") if test == "operators" else LIMITS
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["test"] == test and measure in row["measures"] and "cuda" in row["devices"] and "most" in row:
            return float(row["most"])
    raise SystemExit(f"{LIMITS.name} has no limit for {measure} of {test}")


def main() -> int:
    """Prints the table; 1 where a limit does not hold."""
    random = torch.Generator().manual_seed(1618033)
    bad = 0
    print(f"{'path':<18}{'depth':>6}{'frobenius':>11}{'worst':>10}  limits")
    for path in (path for depth in DEPTHS for path in paths(depth, random)):
        frobenius, worst = distances(path.got, path.want)
        said = []
        for measure in path.measures:
            test, _, name = measure.partition(" ")
            norm, element = limit(test, name + ".frobenius"), limit(test, name + ".worst")
            holds = (frobenius <= norm and worst <= element) if path.right else frobenius > norm
            bad += not holds
            said.append(f"{'' if holds else 'BROKEN '}{measure} {norm:.1e} {element:.1e}")
        kind = "" if path.right else "wrong: "
        print(f"{path.name:<18}{path.depth:>6}{frobenius:>11.2e}{worst:>10.1e}  {kind}{'; '.join(said)}")
    for name, right, measure, found in operators(random):
        most = limit("operators", measure)
        holds = found <= most if right else found > most
        bad += not holds
        print(f"{name:<24}{found:>11.2e}  {'' if right else 'wrong: '}{'' if holds else 'BROKEN '}{measure} {most:g}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
