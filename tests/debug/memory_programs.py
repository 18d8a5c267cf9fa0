"""Programs that keep too much memory of a GPU for one planted reason each, and twins that do not.

``python memory_programs.py NAME fault|clean``; the line that is to be named bears the mark ``# kept here``, the one
that allocates ``# made here``.
"""

from __future__ import annotations

import sys
from collections import deque

import torch
from torch import nn

NAME, FAULTY = sys.argv[1], sys.argv[2] == "fault"
MIB = 1 << 20
STEPS = 80


def model() -> nn.Module:
    """Two layers with something to keep between them."""
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64)).cuda()


def trained(net: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    """One step of training; the mean error, without its graph."""
    optimizer.zero_grad()
    loss = net(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def graph() -> None:
    """A score is kept for each step, and with it the graph that it came from."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    history = []
    for _ in range(STEPS):
        batch = torch.randn(2048, 1024, device="cuda")
        trained(net, optimizer, batch)
        score = net(batch).abs().mean()  # made here
        history.append(score if FAULTY else score.item())  # kept here
    print(len(history))


def total() -> None:
    """A running sum of errors carries the graphs of all steps."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    running = torch.zeros((), device="cuda")
    for _ in range(STEPS):
        batch = torch.randn(1024, 1024, device="cuda")
        trained(net, optimizer, batch)
        error = net(batch).abs().mean()  # made here
        running = running + (error if FAULTY else error.detach())  # kept here
    print(float(running))


class Replay:
    """What was seen, for later."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] | deque[torch.Tensor] = [] if FAULTY else deque(maxlen=4)

    def add(self, batch: torch.Tensor) -> None:
        """Keeps a batch."""
        self.seen.append(batch)  # kept here


def tensors() -> None:
    """Each batch is kept; the twin keeps the last four."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    replay = Replay()
    for _ in range(STEPS):
        batch = torch.randn(1024, 1024, device="cuda")  # made here
        trained(net, optimizer, batch)
        replay.add(batch)
    print(len(replay.seen))


def drip() -> None:
    """256 KiB are kept in each step; the twin keeps one number of each on the GPU, as training loops do."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    kept = {"scores": []}
    for _ in range(STEPS):
        batch = torch.randn(256, 1024, device="cuda")
        loss = trained(net, optimizer, batch)
        scores = batch[:, :256].mul(2.0)  # made here
        kept["scores"].append(scores if FAULTY else loss)  # kept here
    print(len(kept["scores"]))


def lengths() -> None:
    """Healthy: batches of other lengths each step, and a cache that fills in the first ten steps."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    cache: dict[int, torch.Tensor] = {}
    for at in range(STEPS):
        batch = torch.randn(64 + 97 * (at * 7 % 13), 1024, device="cuda")
        trained(net, optimizer, batch)
        if len(cache) < 10:
            cache[at] = batch.detach().clone()
    print(len(cache))


def fragments() -> None:
    """Small tensors that stay lie between those that go, so that no large one fits; the twin keeps neighbours."""
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2048 * MIB / whole)
    pieces = [torch.empty(5 * MIB, dtype=torch.uint8, device="cuda") for _ in range(380)]  # made here
    kept = pieces[::4] if FAULTY else pieces[: len(pieces) // 4]
    del pieces
    large = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")  # kept here
    print(len(kept), large.numel())


def oom() -> None:
    """What one step needs is more than there is; the twin keeps nothing of it."""
    size = torch.cuda.get_device_properties(0).total_memory // 24
    hidden = torch.ones(size // 4, device="cuda", requires_grad=FAULTY)
    for _ in range(40):
        hidden = torch.sin(hidden)  # made here
    print(float(hidden[0].detach()))


def large() -> None:
    """One tensor that is larger than the GPU."""
    whole = torch.cuda.get_device_properties(0).total_memory
    print(torch.empty(2 * whole if FAULTY else MIB, dtype=torch.uint8, device="cuda").numel())  # kept here


def others() -> None:
    """A third of the GPU, where somebody else has most of it; the twin finds it free."""
    whole = torch.cuda.get_device_properties(0).total_memory
    print(torch.empty(whole // 3, dtype=torch.uint8, device="cuda").numel())  # kept here


def jax() -> None:
    """JAX takes three quarters of the GPU at its start; the twin's takes what it needs."""
    import os

    if not FAULTY:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax.numpy

    print(jax.numpy.ones(8).sum())
    whole = torch.cuda.get_device_properties(0).total_memory
    print(torch.empty(whole // 2, dtype=torch.uint8, device="cuda").numel())  # kept here


def hold() -> None:
    """Holds most of the GPU until stdin ends: the other process of ``others``."""
    whole = torch.cuda.get_device_properties(0).total_memory
    held = torch.empty(int(whole * 0.8), dtype=torch.uint8, device="cuda")
    print("holding", held.numel(), flush=True)
    sys.stdin.read()


PROGRAMS = (graph, total, tensors, drip, lengths, fragments, oom, large, others, jax, hold)
{each.__name__: each for each in PROGRAMS}[NAME]()
