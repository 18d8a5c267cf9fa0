"""Sparse times dense, with integers, so that the answer is exact whatever the order of the sums."""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_ROWS, _COLUMNS, _WIDTH = 2048, 1536, 64
_DENSITY = 0.01


def run(bench: Bench) -> None:
    """Measures ``<dtype>.product``, ``<dtype>.vector`` and ``<dtype>.dense``: wrong elements of CSR products."""
    if not bench.on_gpu and not torch.backends.mkl.is_available():
        bench.not_applicable("this torch is built without mkl, which it needs for sparse products on the cpu")
    random = bench.random()
    matrix = torch.randint(-9, 10, (_ROWS, _COLUMNS), generator=random)
    matrix[torch.rand(_ROWS, _COLUMNS, generator=random) >= _DENSITY] = 0
    matrix[7] = 0  # an empty row
    dense = torch.randint(-9, 10, (_COLUMNS, _WIDTH), generator=random)
    want = matrix @ dense
    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        compressed = matrix.to(dtype).to(bench.device).to_sparse_csr()
        right = dense.to(dtype).to(bench.device)
        bench.exact(name + ".product", compressed @ right, want.to(dtype))
        bench.exact(name + ".vector", compressed @ right[:, 0].contiguous(), want[:, 0].to(dtype))
        bench.exact(name + ".dense", compressed.to_dense(), matrix.to(dtype))
