"""A transformer block trained half frozen and then wholly: every gradient against fp64 on the CPU.

Faults of this shape have come from the field: training runs while part of the model is frozen and dies with an
illegal access, or goes wrong, in the backward pass that follows unfreezing.
"""

from __future__ import annotations

import copy
from typing import Any

from envkit.payload.smoke.bench import Bench

_WORDS, _WIDTH, _HEADS = 97, 64, 4
_RATE = 0.05


def _train(model: Any, tokens: Any, targets: Any, context: Any) -> tuple[int, int, list[Any]]:
    """Two steps half frozen, two steps whole; how many gradients should not be or are missing, and the last ones."""
    import torch

    stray = missing = 0
    for frozen in (True, True, False, False):
        for number, layer in enumerate(model):
            for parameter in layer.parameters():
                parameter.requires_grad_(not frozen or number == 2)
        model.zero_grad(set_to_none=True)
        with context():
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).to(_of(model)), targets.flatten())
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                stray += parameter.grad is not None and not parameter.requires_grad
                missing += parameter.grad is None and parameter.requires_grad
                if parameter.grad is not None:
                    parameter -= _RATE * parameter.grad
    return stray, missing, [parameter.grad for parameter in model.parameters()]


def _of(model: Any) -> Any:
    return next(model.parameters()).dtype


def run(bench: Bench) -> None:
    """Measures the distances ``fp32`` and ``bf16`` (autocast) of all gradients, and ``wrong`` (stray or missing).

    Each parameter's gradient is divided by its own size first, so that a small layer counts as much as a large one.
    """
    import contextlib

    import torch

    bench.plain_math()
    torch.manual_seed(int(bench.random().initial_seed()))
    model = torch.nn.Sequential(
        torch.nn.Embedding(_WORDS, _WIDTH),
        torch.nn.TransformerEncoderLayer(_WIDTH, _HEADS, 2 * _WIDTH, dropout=0.0, activation="gelu", batch_first=True),
        torch.nn.Linear(_WIDTH, _WORDS),
    )
    tokens = torch.randint(0, _WORDS, (8, 32), generator=bench.random())
    targets = tokens.roll(1, 1)
    _, _, wanted = _train(copy.deepcopy(model).double(), tokens, targets, contextlib.nullcontext)
    kind = "cuda" if bench.on_gpu else "cpu"
    for name, context in (
        ("fp32", contextlib.nullcontext),
        ("bf16", lambda: torch.autocast(kind, dtype=torch.bfloat16)),
    ):
        trained = copy.deepcopy(model).to(bench.device)
        stray, missing, grads = _train(trained, tokens.to(bench.device), targets.to(bench.device), context)
        bench.count("wrong", stray + missing)
        sizes = [want.norm() / want.numel() ** 0.5 for want in wanted]
        there = [place for place, grad in enumerate(grads) if grad is not None]
        got = torch.cat([(grads[place].cpu().double() / sizes[place]).flatten() for place in there])
        bench.close(name, got, torch.cat([(wanted[place] / sizes[place]).flatten() for place in there]))
