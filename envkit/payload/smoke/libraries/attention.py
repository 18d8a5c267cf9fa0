"""Scaled dot product attention, causal and not, forward and backward, against its formula in fp64 on the CPU.

Torch chooses the kernel; each one by itself is the matter of attention-kernels.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded

_SHAPE = (2, 4, 256, 64)  # batch, heads, sequence, width


def formula(query: Any, key: Any, value: Any, causal: bool) -> Any:
    """Attention as it is defined."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores.softmax(-1) @ value


def kernel(query: Any, key: Any, value: Any, causal: bool) -> Any:
    """Attention by the kernel that torch takes."""
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>`` over output and gradients; ``whole`` is 1 where all types were tried.

    A GPU's plans for one type and mask are compiled for a second, so that the quick level tries one type, causal.
    """
    bench.plain_math()
    random = bench.random()
    full = [torch.randn(*_SHAPE, generator=random, dtype=torch.float64) for _ in range(4)]

    def one_pass(tensors: list[Any], device: str, attend: Any, causal: bool) -> list[Any]:
        query, key, value, seed = (tensor.detach().to(device) for tensor in tensors)
        leaves = [leaf.requires_grad_() for leaf in (query, key, value)]
        out = attend(query, key, value, causal)
        (out * seed).sum().backward()  # a seed given to backward costs an import of a second
        return [out, *(leaf.grad for leaf in leaves)]

    def compare(name: str, dtype: Any) -> None:
        inputs = rounded(full, dtype)
        for causal in (False, True) if whole else (True,):
            wanted = one_pass([tensor.double() for tensor in inputs], "cpu", formula, causal)
            for place, got in enumerate(one_pass(inputs, bench.device, kernel, causal)):
                bench.close(name, got, wanted[place])

    whole = bench.level != "quick" or not bench.on_gpu
    bench.note("whole", int(whole))
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        if whole or name == "bf16":
            bench.attempt(name, partial(compare, name, dtype))
        else:
            bench.note(name + ".offered", 0)
