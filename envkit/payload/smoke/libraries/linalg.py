"""Factorisations, of one tall matrix and of a batch of small ones, by their residuals: QR, eigenvalues, SVD by each
method, Cholesky, least squares, the inverse."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import residuals, stale

_SHAPES = ((160, 96), (12, 40, 24))
_SIDES = 5
_METHODS = ("gesvd", "gesvdj")  # of the SVD; torch takes a name on CUDA only


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>.<method>`` of what the factors multiply to, formed in fp64 on the CPU.

    ``.orthogonal`` is the distance of Q' Q to the identity, ``.svd-methods`` is measured on a GPU only, and ``.order``
    counts eigenvalues that are out of order.
    """
    bench.plain_math()
    random = bench.random()
    plain, clean = residuals(bench)

    def svd(name: str, matrix: Any, wide: Any, method: str) -> None:
        how = {"driver": method} if method else {}
        left, values, right = torch.linalg.svd(matrix, full_matrices=False, **how)
        left, right = plain(left), plain(right)
        clean.close(name, (left * values.cpu().double()[..., None, :]) @ right, wide)

    def factors(name: str, dtype: Any, shape: tuple[int, ...]) -> None:
        columns = shape[-1]
        # the wide margin of rows over columns keeps the singular values of a Gaussian matrix away from zero
        matrix = torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)
        side = torch.randn(*shape[:-1], _SIDES, generator=random, dtype=torch.float64).to(dtype)
        identity = torch.eye(columns, dtype=torch.float64).expand(*shape[:-2], columns, columns)
        wide, wide_side = matrix.double(), side.double()
        turned = wide.transpose(-1, -2)
        there = matrix.to(bench.device)

        unit, upper = (plain(factor) for factor in torch.linalg.qr(there))
        clean.close(name + ".qr", unit @ upper, wide)
        clean.close(name + ".orthogonal", unit.transpose(-1, -2) @ unit, identity)

        normal = (turned @ wide / shape[-2]).to(dtype)
        normal = (normal + normal.transpose(-1, -2)) / 2
        square = normal.double()
        values, vectors = torch.linalg.eigh(normal.to(bench.device))
        vectors, values = plain(vectors), values.cpu().double()
        clean.count(name + ".order", int((~(values.diff() >= 0)).sum()))
        clean.close(name + ".eigh", (vectors * values[..., None, :]) @ vectors.transpose(-1, -2), square)
        clean.close(name + ".orthogonal", vectors.transpose(-1, -2) @ vectors, identity)

        few = wide_side[..., :columns, :].to(dtype)
        lower = torch.linalg.cholesky(normal.to(bench.device))
        answer = plain(torch.cholesky_solve(few.to(bench.device), lower))
        clean.close(name + ".cholesky-solve", square @ answer, few.double())
        clean.close(name + ".inverse", square @ plain(torch.linalg.inv(normal.to(bench.device))), identity)

        answer = plain(torch.linalg.lstsq(there, side.to(bench.device)).solution)
        clean.close(name + ".lstsq", answer, torch.linalg.solve(turned @ wide, turned @ wide_side))

        svd(name + ".svd", there, wide, "")
        for method in _METHODS if bench.on_gpu else ():
            svd(name + ".svd-methods", there, wide, method)

    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        for shape in _SHAPES:
            stale(bench)
            factors(name, dtype, shape)
