"""Dense solvers by their residuals: LU, Cholesky and SVD, one matrix and a batch of them."""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import residuals

_SHAPES = ((256, 256), (16, 48, 48))


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>.lu`` (A x to b), ``.cholesky`` (L L' to A), ``.svd`` (U S V' to A).

    ``.orthogonal`` is the distance of U' U to the identity.  Residuals are formed in fp64 on the CPU.
    """
    bench.plain_math()
    random = bench.random()
    plain, clean = residuals(bench)
    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        for shape in _SHAPES:
            size = shape[-1]
            matrix = torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)
            matrix += torch.eye(size, dtype=dtype) * (2 * size**0.5)  # far from singular: its spectrum is a disc
            side = torch.randn(*shape[:-1], 8, generator=random, dtype=torch.float64).to(dtype)
            wide = matrix.double()
            answer = plain(torch.linalg.solve(matrix.to(bench.device), side.to(bench.device)))
            clean.close(name + ".lu", wide @ answer, side.double())

            positive = (matrix @ matrix.transpose(-1, -2) / size + torch.eye(size, dtype=dtype)).to(dtype)
            positive = (positive + positive.transpose(-1, -2)) / 2
            lower = plain(torch.linalg.cholesky(positive.to(bench.device)))
            clean.close(name + ".cholesky", lower @ lower.transpose(-1, -2), positive.double())

            left, values, right = torch.linalg.svd(matrix.to(bench.device))
            left, values, right = plain(left), values.cpu().double(), right.cpu().double()
            clean.close(name + ".svd", (left * values[..., None, :]) @ right, wide)
            identity = torch.eye(size, dtype=torch.float64).expand(shape)
            clean.close(name + ".orthogonal", left.transpose(-1, -2) @ left, identity)
