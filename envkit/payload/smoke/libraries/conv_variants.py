"""Convolutions of every kind a network uses, in one, two and three dimensions and both memory layouts, forward and
backward, against fp64 on the CPU; on a GPU also with the algorithm that cuDNN's own timing picks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded
from envkit.payload.smoke.libraries._compare import all_close, stale


class _Kind(NamedTuple):
    """One convolution; ``weight`` is in torch's order, which puts the inputs first where ``transposed``."""

    name: str
    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False


KINDS = (
    _Kind("grouped", (4, 32, 21, 19), (64, 8, 3, 3), padding=1, groups=4),
    _Kind("depthwise", (4, 32, 21, 23), (32, 1, 5, 5), stride=2, padding=2, groups=32),
    _Kind("dilated", (4, 16, 24, 20), (24, 16, 3, 3), padding=2, dilation=2),
    _Kind("transposed", (4, 24, 13, 11), (24, 16, 3, 3), stride=2, padding=1, transposed=True),
    _Kind("pointwise", (4, 48, 19, 17), (40, 48, 1, 1), stride=2),
    _Kind("stem", (2, 3, 45, 47), (16, 3, 7, 7), stride=2, padding=3),
    _Kind("line", (4, 16, 301), (32, 16, 7), padding=3),
    _Kind("volume", (2, 8, 10, 11, 12), (16, 8, 3, 3, 3), padding=1),
)


def _layouts(dimensions: int) -> tuple[Any, ...]:
    last = {2: (torch.channels_last,), 3: (torch.channels_last_3d,)}
    return (torch.contiguous_format, *last.get(dimensions, ()))


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>.<kind>`` over output and the gradients of image, weight and bias."""
    bench.plain_math()
    random = bench.random()

    def convolve(kind: _Kind, image: Any, weight: Any, bias: Any) -> Any:
        pieces = [[kind.stride], [kind.padding], [kind.dilation], kind.transposed, [0], kind.groups]
        pieces = [piece * (image.dim() - 2) if isinstance(piece, list) else piece for piece in pieces]
        return torch.convolution(image, weight, bias, *pieces)

    def one_pass(kind: _Kind, tensors: list[Any], device: str, layout: Any) -> list[Any]:
        image, weight, bias = (tensor.to(device) for tensor in tensors[:3])
        leaves = [image.clone(memory_format=layout), weight.clone(memory_format=layout), bias.clone()]
        for leaf in leaves:
            leaf.requires_grad_()
        out = convolve(kind, *leaves)
        out.backward(tensors[3].to(device).clone(memory_format=layout))
        return [out, *(leaf.grad for leaf in leaves)]

    def compare(name: str, dtype: Any) -> None:
        for kind in KINDS:
            outputs = kind.weight[1] if kind.transposed else kind.weight[0]
            shapes = [kind.image, kind.weight, (outputs,)]
            full = [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]
            full.append(torch.randn(convolve(kind, *full).shape, generator=random, dtype=torch.float64))
            inputs = rounded(full, dtype)
            wanted = one_pass(kind, [tensor.double() for tensor in inputs], "cpu", torch.contiguous_format)
            for layout in _layouts(len(kind.image) - 2):
                for timed in (False, True) if bench.on_gpu else (False,):
                    torch.backends.cudnn.benchmark = timed
                    stale(bench)
                    results = one_pass(kind, inputs, bench.device, layout)
                    all_close(bench, f"{name}.{kind.name}", results, wanted)

    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        bench.attempt(name, partial(compare, name, dtype))
