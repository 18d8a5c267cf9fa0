"""Activation checkpointing, in both implementations, gives, bit for bit, the gradients of the run without it: the
second forward pass brings back the state of the random numbers and that of autocast."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench

_BATCH, _WIDTH, _BLOCKS = 64, 96, 3


def _blocks(device: str) -> Any:
    torch.manual_seed(SEED)
    return torch.nn.ModuleList(
        torch.nn.Sequential(
            torch.nn.LayerNorm(_WIDTH),
            torch.nn.Linear(_WIDTH, 2 * _WIDTH),
            torch.nn.GELU(),
            torch.nn.Dropout(0.4),
            torch.nn.Linear(2 * _WIDTH, _WIDTH),
            torch.nn.Dropout(0.2),
        )
        for _ in range(_BLOCKS)
    ).to(device)


def _gradients(blocks: Any, given: Any, target: Any, way: Any, context: Any) -> Any:
    """Loss and all gradients, the input's too; ``way`` calls a block."""
    torch.manual_seed(SEED + 1)  # of every device
    blocks.zero_grad(set_to_none=True)
    given = given.detach().clone().requires_grad_(True)
    with context():
        value = given
        for block in blocks:
            value = value + way(block, value)
        loss = torch.nn.functional.mse_loss(value.float(), target)
    loss.backward()
    parts = [loss.detach(), given.grad, *(parameter.grad for parameter in blocks.parameters())]
    return torch.cat([part.flatten() for part in parts])


def run(bench: Bench) -> None:
    """Measures ``<type>.reentrant.wrong`` and ``<type>.plain.wrong`` for fp32 and bf16 (autocast): elements of loss and
    gradients that differ; and ``dead.wrong``: gradients that are not finite, or zero in more than half of the elements.
    """
    from torch.utils.checkpoint import checkpoint

    bench.plain_math()
    kind = "cuda" if bench.on_gpu else "cpu"
    random = bench.random()
    given = torch.randn(_BATCH, _WIDTH, generator=random).to(bench.device)
    target = torch.randn(_BATCH, _WIDTH, generator=random).to(bench.device)
    blocks = _blocks(bench.device)
    low: Any = partial(torch.autocast, kind, dtype=torch.bfloat16)
    for name, context in (("fp32", contextlib.nullcontext), ("bf16", low)):
        want = _gradients(blocks, given, target, lambda block, value: block(value), context).cpu()
        bench.count("dead.wrong", int((~want.isfinite()).sum()) + int((want == 0).sum() > len(want) // 2))
        for way, reentrant in (("reentrant", True), ("plain", False)):

            def again(block: Any, value: Any, reentrant: bool = reentrant) -> Any:
                keep = bench.injected_fault != "order"  # without it the mask that is drawn again is another
                return checkpoint(block, value, use_reentrant=reentrant, preserve_rng_state=keep)

            bench.exact(f"{name}.{way}.wrong", _gradients(blocks, given, target, again, context), want)
