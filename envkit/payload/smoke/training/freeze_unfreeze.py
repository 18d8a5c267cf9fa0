"""A transformer block trained half frozen and then wholly: every gradient against fp64 on the CPU.

The block is also run under activation checkpointing, with a function behind it that brings its own backward pass.
"""

from __future__ import annotations

import copy
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_WORDS, _WIDTH, _HEADS = 97, 64, 4
_RATE = 0.05


def _train(model: Any, tokens: Any, targets: Any, context: Any) -> tuple[int, int, list[Any]]:
    """Two steps half frozen, two steps whole; how many gradients should not be or are missing, and the last ones."""
    stray = missing = 0
    for frozen in (True, True, False, False):
        for number, layer in enumerate(model):
            for parameter in layer.parameters():
                parameter.requires_grad_(not frozen or number == len(model) - 1)
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


def _in_pieces(model: Any) -> Any:
    """The model with its block checkpointed and a square behind it, whose backward pass is written by hand."""
    from torch.utils.checkpoint import checkpoint

    class Square(torch.autograd.Function):  # type: ignore[misc]  # torch is not there when this is type-checked
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            ctx.save_for_backward(value)
            return value + value * value / 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (value,) = ctx.saved_tensors
            return grads[0] * (1 + value)

    class Block(torch.nn.Module):  # type: ignore[misc]  # torch is not there when this is type-checked
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, value: Any) -> Any:
            return Square.apply(checkpoint(self.inner, value, use_reentrant=False))

    return torch.nn.Sequential(model[0], Block(model[1]), model[2])


def _plain(model: Any) -> Any:
    """What the model in pieces is, without checkpointing and with torch's own derivative."""

    class Squared(torch.nn.Module):  # type: ignore[misc]  # torch is not there when this is type-checked
        def forward(self, value: Any) -> Any:
            return value + value * value / 2

    return torch.nn.Sequential(model[0], model[1], Squared(), model[2])


def run(bench: Bench) -> None:
    """Measures the distances ``fp32`` and ``bf16`` (autocast) of all gradients, ``pieces`` (the model in pieces, fp32),
    and ``wrong`` (stray or missing).  Checkpointing imports for seconds, so that the quick level leaves ``pieces`` out.

    Each parameter's gradient is divided by its own size first, so that a small layer counts as much as a large one.
    """
    import contextlib

    bench.plain_math()
    torch.manual_seed(int(bench.random().initial_seed()))
    model = torch.nn.Sequential(
        torch.nn.Embedding(_WORDS, _WIDTH),
        torch.nn.TransformerEncoderLayer(_WIDTH, _HEADS, 2 * _WIDTH, dropout=0.0, activation="gelu", batch_first=True),
        torch.nn.Linear(_WIDTH, _WORDS),
    )
    tokens = torch.randint(0, _WORDS, (8, 32), generator=bench.random())
    targets = tokens.roll(1, 1)
    _, _, whole = _train(copy.deepcopy(model).double(), tokens, targets, contextlib.nullcontext)
    kind = "cuda" if bench.on_gpu else "cpu"
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):  # its plans are compiled for a second; attention has them
        torch.backends.cuda.enable_cudnn_sdp(False)
    kinds: list[tuple[str, Any, Any, Any]] = [
        ("fp32", copy.deepcopy(model), contextlib.nullcontext, whole),
        ("bf16", copy.deepcopy(model), lambda: torch.autocast(kind, dtype=torch.bfloat16), whole),
    ]
    bench.note("pieces.offered", int(bench.level != "quick"))
    if bench.level != "quick":
        _, _, pieces = _train(_plain(copy.deepcopy(model)).double(), tokens, targets, contextlib.nullcontext)
        kinds.append(("pieces", _in_pieces(copy.deepcopy(model)), contextlib.nullcontext, pieces))
    for name, made, context, wanted in kinds:
        trained = made.to(bench.device)
        stray, missing, grads = _train(trained, tokens.to(bench.device), targets.to(bench.device), context)
        bench.count("wrong", stray + missing)
        sizes = [want.norm() / want.numel() ** 0.5 for want in wanted]
        there = [place for place, grad in enumerate(grads) if grad is not None]
        got = torch.cat([(grads[place].cpu().double() / sizes[place]).flatten() for place in there])
        bench.close(name, got, torch.cat([(wanted[place] / sizes[place]).flatten() for place in there]))
