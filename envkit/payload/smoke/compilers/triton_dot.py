"""A matrix product in Triton, tile by tile, with shapes that no tile divides: exact on integers, close on the rest.

The operands lie in larger storage full of NaN, and so does the result: a mask that does not hold reads or leaves NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.triton_kernels import kernels, launched

TILE = {"ROWS": 64, "COLUMNS": 32, "DEPTH": 32}
_SHAPES = ((150, 93, 70), (64, 32, 33), (301, 65, 517))  # rows, columns, depth
_AROUND = 8  # elements of NaN behind each row, rows of it behind the last


class _Kind(NamedTuple):
    name: str
    capability: tuple[int, int]
    precision: str


_KINDS = (_Kind("fp16", (7, 0), "ieee"), _Kind("bf16", (8, 0), "ieee"), _Kind("tf32", (8, 0), "tf32"))


def _type(kind: _Kind) -> Any:
    return {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}[kind.name]


def _held(kind: _Kind, tensor: Any) -> Any:
    """The tensor in values that the type holds exactly; tf32 keeps 10 bits behind the leading one."""
    if kind.name == "tf32":
        return (tensor.float().view(torch.int32) & -(1 << 13)).view(torch.float32)
    return tensor.to(_type(kind))


def _amid_nan(tensor: Any, device: str) -> Any:
    """The tensor on the device as a view of a larger one that is NaN elsewhere."""
    rows, columns = tensor.shape
    storage = torch.full((rows + _AROUND, columns + _AROUND), float("nan"), dtype=tensor.dtype)
    storage[:rows, :columns] = tensor
    return storage.to(device)[:rows, :columns]


def multiply(bench: Bench, kernel: Any, kind: _Kind, left: Any, right: Any) -> tuple[Any, int]:
    """The product in fp32, and how many elements beside it were written to."""
    (rows, depth), columns = left.shape, right.shape[1]
    one, other = (_amid_nan(tensor, bench.device) for tensor in (left, right))
    whole = torch.full((rows + _AROUND, columns + _AROUND), float("nan"), device=bench.device)
    grid = (-(-rows // TILE["ROWS"]), -(-columns // TILE["COLUMNS"]))
    strides = (one.stride(0), other.stride(0), whole.stride(0))

    def launch() -> None:
        kernel[grid](one, other, whole, rows, columns, depth, *strides, PRECISION=kind.precision, **TILE)

    launched(bench, launch)
    got = whole.cpu()
    beside = int((~got[rows:].isnan()).sum() + (~got[:rows, columns:].isnan()).sum())
    return got[:rows, :columns], beside


def _try(bench: Bench, kernel: Any, kind: _Kind) -> None:
    random = bench.random()
    for rows, columns, depth in _SHAPES:
        shapes = ((rows, depth), (depth, columns))
        whole = [_held(kind, torch.randint(-8, 9, shape, generator=random).float()) for shape in shapes]
        got, beside = multiply(bench, kernel, kind, whole[0], whole[1])
        bench.exact(f"{kind.name}.exact.wrong", got.double(), whole[0].double() @ whole[1].double())
        bench.count(f"{kind.name}.beside.wrong", beside)
        real = [_held(kind, torch.randn(*shape, generator=random)) for shape in shapes]
        got, beside = multiply(bench, kernel, kind, real[0], real[1])
        bench.close(kind.name, got, real[0].double() @ real[1].double())
        bench.count(f"{kind.name}.beside.wrong", beside)


def run(bench: Bench) -> None:
    """Measures of fp16, bf16 and tf32 ``.offered``, ``.exact.wrong``, ``.beside.wrong`` and the two distances."""
    module = kernels(bench, "triton-dot")
    torch.cuda.set_device(bench.device)
    capability = torch.cuda.get_device_capability(bench.device)
    for kind in _KINDS:
        bench.note(f"{kind.name}.offered", capability >= kind.capability)
        if capability >= kind.capability:
            _try(bench, module.product, kind)
