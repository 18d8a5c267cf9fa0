"""Products of matrices."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_gemm_exact(run: SmokeRun) -> Iterator[Finding]:
    """Products of small integers have not one wrong element."""
    yield from judged("gemm-exact", run)


def smoke_gemm_random(run: SmokeRun) -> Iterator[Finding]:
    """Products of random numbers are as precise as their type."""
    yield from judged("gemm-random", run)


def smoke_gemm_tf32_exact(run: SmokeRun) -> Iterator[Finding]:
    """Products in tf32 have not one wrong element, and tf32 is used where it is allowed."""
    yield from judged("gemm-tf32-exact", run)


def smoke_gemm_batched(run: SmokeRun) -> Iterator[Finding]:
    """Batched products over strided heads, and products with bias, relu and gelu behind them, are right."""
    yield from judged("gemm-batched", run)


def smoke_gemm_fp8(run: SmokeRun) -> Iterator[Finding]:
    """Products of 8-bit floats are exact for integers and as precise as their result's type."""
    yield from judged("gemm-fp8", run)


def smoke_gemm_int8(run: SmokeRun) -> Iterator[Finding]:
    """Products of 8-bit integers have not one wrong element."""
    yield from judged("gemm-int8", run)


def smoke_gemm_odd_shapes(run: SmokeRun) -> Iterator[Finding]:
    """Products of awkward shapes, layouts and alignments are exact and write nothing beside their result."""
    yield from judged("gemm-odd-shapes", run)


def smoke_gemm_repeat(run: SmokeRun) -> Iterator[Finding]:
    """The same product has the same bits a hundred times."""
    yield from judged("gemm-repeat", run)


def smoke_gemm_split_k(run: SmokeRun) -> Iterator[Finding]:
    """Products with long sums are precise, whichever way their parts are added up."""
    yield from judged("gemm-split-k", run)


def smoke_gemm_large(run: SmokeRun) -> Iterator[Finding]:
    """Products of the size that speed is measured at have not one wrong element."""
    yield from judged("gemm-large", run)


def smoke_gemm_cublas(run: SmokeRun) -> Iterator[Finding]:
    """Products on two streams at once do not disturb one another, and one stream's are taken over by the other."""
    yield from judged("gemm-cublas", run)


def smoke_gemm_complex(run: SmokeRun) -> Iterator[Finding]:
    """Products of complex integers have not one wrong part."""
    yield from judged("gemm-complex", run)
