"""Products of integers in each sparse format: COO, CSR, BSR, and two of four (cuSPARSELt or CUTLASS), exact."""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import stale

_ROWS, _INNER, _COLUMNS = 512, 384, 48
_DENSITY = 0.02
_BLOCK = 8  # smaller than what torch gives to kernels of Triton where it has them
_AMPERE = 8  # the first major compute capability with bf16 and two of four; CUTLASS's kernels are for it alone


def two_of_four(rows: int, columns: int, random: Any) -> Any:
    """Integers of which exactly two of each four that lie side by side in a row are not zero."""
    values = torch.randint(1, 3, (rows, columns // 4, 4), generator=random)
    values *= torch.randint(0, 2, values.shape, generator=random) * 2 - 1
    order = torch.rand(values.shape, generator=random).argsort(-1)
    return values.masked_fill(order < 2, 0).reshape(rows, columns)


def run(bench: Bench) -> None:
    """Wrong elements: ``<dtype>.coo``, ``.csr``, ``.bsr``, ``.pair``, ``.sampled`` and ``two-of-four.wrong``."""
    if not bench.on_gpu and not torch.backends.mkl.is_available():
        bench.not_applicable("this torch is built without mkl, which it needs for sparse products on the cpu")
    random = bench.random()
    matrix = torch.randint(-3, 4, (_ROWS, _INNER), generator=random)
    matrix[torch.rand(matrix.shape, generator=random) >= _DENSITY] = 0
    matrix[7] = 0  # an empty row
    kept = torch.rand(_ROWS // _BLOCK, _INNER // _BLOCK, generator=random) < 0.2
    blocks = torch.randint(-3, 4, (_ROWS, _INNER), generator=random)
    blocks *= kept.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)
    dense = torch.randint(-2, 3, (_INNER, _COLUMNS), generator=random)
    left = torch.randint(-2, 3, (_ROWS, 16), generator=random)
    right = torch.randint(-2, 3, (16, _INNER), generator=random)

    def here(tensor: Any, dtype: Any) -> Any:
        return tensor.to(dtype).to(bench.device)

    def formats(name: str, dtype: Any) -> None:
        stale(bench)
        side, want = here(dense, dtype), (matrix @ dense).to(dtype)
        places = matrix.nonzero().t()
        values = matrix[places[0], places[1]]
        # each value in two pieces at one place, which the format adds up
        twice = torch.sparse_coo_tensor(
            torch.cat([places, places], 1).to(bench.device),
            here(torch.cat([values - 1, torch.ones_like(values)]), dtype),
            (_ROWS, _INNER),
        )
        bench.exact(name + ".coo", torch.sparse.mm(twice, side), want)
        bench.exact(name + ".coo", twice.coalesce().to_dense(), matrix.to(dtype))
        compressed = here(matrix, dtype).to_sparse_csr()
        bench.exact(name + ".csr", compressed @ side, want)
        blocked = here(blocks, dtype).to_sparse_bsr((_BLOCK, _BLOCK))
        bench.exact(name + ".bsr", blocked @ side, (blocks @ dense).to(dtype))
        other = here(matrix.t().contiguous(), dtype).to_sparse_csr()
        bench.exact(name + ".pair", (compressed @ other).to_dense(), (matrix @ matrix.t()).to(dtype))
        sampled = torch.sparse.sampled_addmm(compressed, here(left, dtype), here(right, dtype), beta=2.0)
        bench.exact(name + ".sampled", sampled.to_dense(), ((left @ right + 2 * matrix) * (matrix != 0)).to(dtype))

    def halves(name: str, dtype: Any) -> None:
        stale(bench)
        compressed = here(matrix, dtype).to_sparse_csr()
        bench.exact(name + ".csr", compressed @ here(dense, dtype), (matrix @ dense).to(dtype))

    def structured() -> None:
        from torch.sparse import semi_structured

        library = getattr(torch.backends, "cusparselt", None)
        major = torch.cuda.get_device_capability(bench.device)[0]
        kinds = []
        if library is not None and library.is_available() and major >= _AMPERE:
            kinds.append(semi_structured.SparseSemiStructuredTensorCUSPARSELT)
        if major == _AMPERE:
            kinds.append(semi_structured.SparseSemiStructuredTensorCUTLASS)
        if not kinds:
            raise NotImplementedError("two of four is not implemented for this GPU in this torch")
        half = two_of_four(256, 512, random)
        side = torch.randint(-1, 2, (512, 128), generator=random)
        for kind in kinds:
            for dtype in (torch.float16, torch.bfloat16):
                stale(bench)
                product = kind.from_dense(here(half, dtype)) @ here(side, dtype)
                bench.exact("two-of-four.wrong", product, (half @ side).to(dtype))

    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        formats(name, dtype)
    if bench.on_gpu:
        bench.attempt("fp16", partial(halves, "fp16", torch.float16))
        if torch.cuda.get_device_capability(bench.device)[0] >= _AMPERE:
            bench.attempt("bf16", partial(halves, "bf16", torch.bfloat16))
        else:
            bench.note("bf16.offered", 0)
        bench.attempt("two-of-four", structured)
