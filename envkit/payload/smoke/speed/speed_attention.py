"""Flash attention of bf16, forward and for training, with and without a causal mask; one head is looked at in fp64.

Operations are counted as usual: two products forward, five backward, half of each with a causal mask.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import timing

_BATCH, _HEADS, _LENGTH, _WIDTH = 4, 16, 4096, 128
_FORWARD = 4.0 * _BATCH * _HEADS * _LENGTH * _LENGTH * _WIDTH
_TRAINING = 3.5 * _FORWARD  # the backward pass has five products where the forward one has two
_LAUNCHES = 20


def reference(query: Any, key: Any, value: Any, grad: Any, causal: bool) -> tuple[Any, Any, Any, Any]:
    """One head's output and the gradients of query, key and value, in the type of the arguments (length by width)."""
    scale = query.shape[1] ** -0.5
    score = (query @ key.t()).mul_(scale)
    if causal:
        score.masked_fill_(torch.ones_like(score, dtype=torch.bool).triu_(1), -torch.inf)
    weight = torch.softmax(score, 1)
    out = weight @ value
    inner = weight * ((grad @ value.t()) - (grad * out).sum(1, keepdim=True))
    return out, inner @ key * scale, inner.t() @ query * scale, weight.t() @ grad


def _measure(bench: Bench, name: str, causal: bool, watch: clocks.Clocks) -> dict[str, float]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    random = bench.random_here()
    shape = (_BATCH, _HEADS, _LENGTH, _WIDTH)
    query, key, value, grad = (
        torch.randn(shape, dtype=torch.bfloat16, generator=random, device=bench.device) for _ in range(4)
    )
    share = 0.5 if causal else 1.0
    leaves = (query, key, value)
    reading: dict[str, float] = {}

    def attend() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def train() -> None:
        for leaf in leaves:
            leaf.grad = None
        attend().backward(grad)

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with torch.no_grad():
            seconds = timing.typical(attend, _LAUNCHES)
        bench.note(f"{name}.forward.tflops", share * _FORWARD / seconds / 1e12)
        for leaf in leaves:
            leaf.requires_grad_(True)
        seconds = timing.typical(train, _LAUNCHES, lambda: reading.update(watch.read()))
        bench.note(f"{name}.training.tflops", share * _TRAINING / seconds / 1e12)
        for leaf in leaves:
            leaf.grad = None
        out = attend()
        out.backward(grad)
    at = (_BATCH - 1, _HEADS - 1) if causal else (0, 0)
    whole = [tensor[at].detach().cpu().double() for tensor in (query, key, value, grad)]
    want = reference(whole[0], whole[1], whole[2], whole[3], causal)
    got = (out, query.grad, key.grad, value.grad)
    for number, label in enumerate(("out", "dq", "dk", "dv")):
        bench.close(f"{name}.{label}", got[number][at], want[number])
    return reading


def run(bench: Bench) -> None:
    """Measures ``<plain, causal>.<forward, training>.tflops``, and ``<which>.<out, dq, dk, dv>.frobenius`` and
    ``.worst`` of one head; and the clocks under training."""
    torch.cuda.set_device(bench.device)
    here = torch.cuda.get_device_capability()
    if here < (8, 0):
        bench.not_applicable(f"flash attention of bf16 needs compute capability 8.0, this GPU has {here[0]}.{here[1]}")
    watch = clocks.of(bench.device)
    reading: dict[str, float] = {}
    for name, causal in (("plain", False), ("causal", True)):
        reading = _measure(bench, name, causal, watch)
    clocks.record(bench, reading, watch.missing)
