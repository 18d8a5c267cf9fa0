"""Each kernel of scaled dot product attention by force, and proof that it was the one that ran.

Half of the combinations of type, mask and width are taken, so that each pair of them occurs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded
from envkit.payload.smoke.libraries._compare import all_close, gradients, stale
from envkit.payload.smoke.libraries.attention import formula, kernel

KERNELS = (  # as the measures call them, as torch.nn.attention.SDPBackend does, and in the autograd node's name
    ("flash", "FLASH_ATTENTION", "FlashAttention"),
    ("efficient", "EFFICIENT_ATTENTION", "EfficientAttention"),
    ("cudnn", "CUDNN_ATTENTION", "CudnnAttention"),
    ("math", "MATH", ""),
)
_FUSED = "ScaledDotProduct"  # how the nodes of all fused kernels begin; the formula in torch's own pieces has none
_BATCH, _HEADS = 2, 3
_QUERIES, _KEYS = 200, 333
_FLASH_FROM = (8, 0)  # the compute capability from which the flash kernels run


def ran(names: list[str], kernel: str) -> bool:
    """Whether the nodes of a result's graph are those of this kernel and of no other."""
    fused = [name for name in names if name.startswith(_FUSED)]
    return all(kernel in name for name in fused) and bool(fused) if kernel else not fused


def _nodes(out: Any) -> list[str]:
    names, waiting, met = [], [out.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        names.append(str(node.name()))
        waiting += [before for before, _ in node.next_functions]
    return names


def run(bench: Bench) -> None:
    """Measures the distances ``<kernel>-<dtype>-<mask>`` over output and gradients, and whether each is offered.

    ``<kernel>-<dtype>-<mask>.other`` counts results that another kernel made, ``flash.lost`` the flash kernels that
    this torch says it has, on a GPU that they are for, and does not offer.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    bench.plain_math()
    random = bench.random()

    def compare(name: str, long: str, node: str, inputs: list[Any], wanted: list[Any], causal: bool) -> None:
        backend = getattr(SDPBackend, long, None)
        if backend is None:
            raise NotImplementedError(f"{long} is not implemented in this torch")
        stale(bench)
        with sdpa_kernel(backend):
            results = gradients(partial(kernel, causal=causal), inputs[:3], inputs[3], bench.device)
        bench.count(name + ".other", int(not ran(_nodes(results[0]), node)))
        all_close(bench, name, results, wanted)

    lost = 0
    promised = (
        bench.on_gpu
        and getattr(torch.backends.cuda, "is_flash_attention_available", bool)()
        and torch.cuda.get_device_capability(bench.device) >= _FLASH_FROM
    )
    for dtype_name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        for causal in (False, True):
            width = 64 if causal == (dtype_name == "bf16") else 128
            lengths = (_QUERIES, _QUERIES if causal else _KEYS)
            full = [
                torch.randn(_BATCH, _HEADS, length, width, generator=random, dtype=torch.float64)
                for length in (lengths[0], lengths[1], lengths[1], lengths[0])
            ]
            inputs = rounded(full, dtype)
            plain = [tensor.double() for tensor in inputs]
            wanted = gradients(partial(formula, causal=causal), plain[:3], plain[3], "cpu")
            for short, long, node in KERNELS:
                name = f"{short}-{dtype_name}-{'causal' if causal else 'plain'}"
                bench.attempt(name, partial(compare, name, long, node, inputs, wanted, causal))
                lost += int(bool(promised) and short == "flash" and not bench.measures[name + ".offered"])
    bench.count("flash.lost", lost)
