"""Two runs from one seed, with torch's deterministic algorithms, are the same bit for bit.

The net holds what may sum in no fixed order otherwise: an embedding, a strided convolution, indexed sums.
"""

from __future__ import annotations

import os
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench

_STEPS, _BATCH, _WORDS, _WIDTH = 4, 32, 50, 32
_SUMMED, _PLACES = 20_000, 97


def _train(device: str, tokens: Any, places: Any, targets: Any) -> Any:
    """All parameters and losses of a few steps."""
    embedding = torch.nn.Embedding(_WORDS, _WIDTH).to(device)
    convolution = torch.nn.Conv2d(1, 8, 3, stride=2, padding=1).to(device)
    head = torch.nn.Linear(8 * 16 * 16, _PLACES).to(device)
    parameters = [*embedding.parameters(), *convolution.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    losses = []
    for _ in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        pictures = embedding(tokens)[:, None]
        features = torch.nn.functional.dropout(convolution(pictures).relu(), 0.3)
        value = head(features.flatten(1))
        sums = torch.zeros(7, _PLACES, device=device).index_add(0, places, value)
        sums = sums.index_put((places,), value, accumulate=True)
        loss = torch.nn.functional.cross_entropy(value, targets) + sums.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().reshape(1))
    return torch.cat([*losses, *(parameter.detach().flatten() for parameter in parameters)])


def _sums(bench: Bench) -> None:
    random = bench.random()
    places = torch.randint(0, _PLACES, (_SUMMED,), generator=random)
    values = torch.randint(-50, 51, (_SUMMED, 4), generator=random)
    want = torch.zeros(_PLACES, 4, dtype=torch.int64).index_add_(0, places, values)
    for kind in (torch.float32, torch.int64):
        zeros = torch.zeros(_PLACES, 4, dtype=kind, device=bench.device)
        there, given = places.to(bench.device), values.to(kind).to(bench.device)
        bench.exact("sums.wrong", zeros.index_add(0, there, given), want)
        bench.exact("sums.wrong", zeros.index_put((there,), given, accumulate=True), want)
        bench.exact("sums.wrong", zeros.scatter_add(0, there[:, None].expand(-1, 4), given), want)


def run(bench: Bench) -> None:
    """Measures ``again.wrong`` (elements of losses and parameters that differ between two runs), ``sums.wrong``
    (elements of indexed sums) and ``infinite`` (elements of a run)."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts, and asked for by torch
    bench.plain_math()
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    random = bench.random()
    tokens = torch.randint(0, _WORDS, (_BATCH, _WIDTH), generator=random).to(bench.device)
    places = torch.randint(0, 7, (_BATCH,), generator=random).to(bench.device)
    targets = torch.randint(0, _PLACES, (_BATCH,), generator=random).to(bench.device)
    torch.manual_seed(SEED)
    want = _train(bench.device, tokens, places, targets).cpu()
    if bench.injected_fault != "order":  # without it the second run starts from other numbers
        torch.manual_seed(SEED)
    bench.exact("again.wrong", _train(bench.device, tokens, places, targets), want)
    bench.count("infinite", int((~want.isfinite()).sum()))
    _sums(bench)
