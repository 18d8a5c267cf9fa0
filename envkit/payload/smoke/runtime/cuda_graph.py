"""A training step captured in a CUDA graph and replayed with new inputs: bit for bit what it gives without one.

Every output is overwritten with NaN before a replay, and random numbers must go on from replay to replay.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench

_REPLAYS, _BATCH, _WIDTH, _OUT = 20, 32, 192, 40
_DRAWS = 1000


def _replays(bench: Bench, side: Any) -> None:
    random = bench.random()
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(
        torch.nn.Linear(_WIDTH, _WIDTH),
        torch.nn.GELU(),
        torch.nn.LayerNorm(_WIDTH),
        torch.nn.Linear(_WIDTH, _WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(_WIDTH, _OUT),
    ).to(bench.device)
    inputs = torch.randn(_REPLAYS + 1, _BATCH, _WIDTH, generator=random).to(bench.device)
    targets = torch.randn(_REPLAYS + 1, _BATCH, _OUT, generator=random).to(bench.device)
    parameters = list(model.parameters())

    def step(given: Any, target: Any) -> Any:
        loss = torch.nn.functional.mse_loss(model(given), target)
        return (loss.detach(), *torch.autograd.grad(loss, parameters))

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        given, target = inputs[_REPLAYS].clone(), targets[_REPLAYS].clone()
        for _ in range(3):  # what libraries set up on first use must not be captured
            step(given, target)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = step(given, target)
    for number in range(_REPLAYS):
        with torch.cuda.stream(side):
            for tensor in captured:
                tensor.fill_(torch.nan)
            if bench.injected_fault != "order":
                given.copy_(inputs[number])
                target.copy_(targets[number])
            graph.replay()
            got = torch.cat([tensor.flatten() for tensor in captured])
            want = torch.cat([tensor.flatten() for tensor in step(inputs[number], targets[number])])
        side.synchronize()
        bench.exact("replay.wrong", got, want.cpu())


def _draws(bench: Bench, side: Any) -> None:
    """Numbers drawn by replays against those drawn without a graph, from one seed."""
    with torch.cuda.stream(side):
        torch.cuda.manual_seed(SEED)
        wanted = [torch.rand(_DRAWS, device=bench.device) for _ in range(3)]
        torch.cuda.manual_seed(SEED)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        drawn = torch.rand(_DRAWS, device=bench.device)
    got = []
    for _ in wanted:
        with torch.cuda.stream(side):
            drawn.fill_(torch.nan)
            graph.replay()
            got.append(drawn.clone())
    torch.cuda.synchronize()
    bench.exact("random.wrong", torch.stack(got), torch.stack(wanted).cpu())


def run(bench: Bench) -> None:
    """Measures ``replay.wrong`` (elements of loss and gradients) and ``random.wrong`` (numbers drawn in a graph)."""
    torch.cuda.set_device(bench.device)
    bench.plain_math()
    side = torch.cuda.Stream()
    _replays(bench, side)
    _draws(bench, side)
