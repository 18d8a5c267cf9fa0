"""A 3x3 convolution, forward and backward, in both memory layouts, against fp64 on the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>.<layout>`` over output, input gradient and weight gradient."""
    bench.plain_math()
    random = bench.random()
    shapes = ((8, 64, 28, 28), (64, 64, 3, 3), (8, 64, 28, 28))
    full = [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]
    layouts = (("nchw", torch.contiguous_format), ("nhwc", torch.channels_last))

    def one_pass(tensors: list[Any], device: str, layout: Any) -> list[Any]:
        image, weight, seed = (tensor.to(device).clone(memory_format=layout) for tensor in tensors)
        image.requires_grad_()
        weight.requires_grad_()
        out = torch.nn.functional.conv2d(image, weight, padding=1)
        (out * seed).sum().backward()  # a seed given to backward costs an import of a second
        return [out, image.grad, weight.grad]

    def compare(name: str, dtype: Any) -> None:
        inputs = rounded(full, dtype)
        wanted = one_pass([tensor.double() for tensor in inputs], "cpu", torch.contiguous_format)
        for layout_name, layout in layouts:
            for place, got in enumerate(one_pass(inputs, bench.device, layout)):
                bench.close(f"{name}.{layout_name}", got, wanted[place])

    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        bench.attempt(name, partial(compare, name, dtype))
