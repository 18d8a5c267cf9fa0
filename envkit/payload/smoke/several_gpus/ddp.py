"""Two steps of data-parallel training, one layer frozen, against one process with the whole batch in fp64.

What is compared is how far the parameters moved: the start would hide a wrong step.  After each step all ranks must
hold the same parameters, bit for bit.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank

WIDTH, EACH = 256, 16
STEPS = 2
RATE = 10  # the loss is a mean over elements, so gradients are small: steps of the size of the parameters


def model(bench: Bench) -> Any:
    """A small network with the suite's numbers, its first layer frozen."""
    torch.manual_seed(int(bench.random().initial_seed()))
    net = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, 4 * WIDTH),
        torch.nn.LayerNorm(4 * WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(4 * WIDTH, WIDTH),
    )
    net[0].requires_grad_(False)
    return net


def batch(bench: Bench, size: int) -> tuple[Any, Any]:
    """The whole batch for ``size`` ranks: inputs and targets in fp32."""
    random = bench.random()
    shape = (STEPS, size * EACH, WIDTH)
    return torch.randn(*shape, generator=random), torch.randn(*shape, generator=random)


def steps(net: Any, inputs: Any, targets: Any, context: Any, rate: float = RATE) -> None:
    """Trains ``net`` by plain gradient descent, one step a row of ``inputs``."""
    optimizer = torch.optim.SGD([one for one in net.parameters() if one.requires_grad], lr=rate)
    for number in range(len(inputs)):
        given, goal = inputs[number], targets[number]
        optimizer.zero_grad(set_to_none=True)
        with context():
            out = net(given)
        torch.nn.functional.mse_loss(out.to(goal.dtype), goal).backward()
        optimizer.step()


def moved(net: Any, start: Any) -> Any:
    """How far each trained parameter moved from ``start``, one vector in fp64 on the CPU, each by its own size.

    ``net`` may hold distributed tensors, which are gathered: then all ranks must call this.
    """
    there = dict(start.named_parameters())
    parts = []
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
            parts.append((whole.detach().cpu().double() - there[name].detach().double()).flatten())
    return torch.cat(parts)


def digest(net: Any) -> str:
    """A hash of all parameters, bit for bit."""
    found = hashlib.sha256()
    for parameter in net.parameters():
        flat = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
        found.update(bytes(flat.tolist()))
    return found.hexdigest()


def wanted(bench: Bench, size: int) -> tuple[Any, Any]:
    """How far one process with the whole batch moves the trained parameters, and its network, in fp64."""
    start = model(bench)
    alone = copy.deepcopy(start).double()
    inputs, targets = batch(bench, size)
    steps(alone, inputs.double(), targets.double(), contextlib.nullcontext)
    return moved(alone, start), alone


def mine(rank: Rank) -> tuple[Any, Any]:
    """This rank's part of the batch, on its device."""
    inputs, targets = batch(rank.bench, rank.size)
    part = slice(rank.rank * EACH, (rank.rank + 1) * EACH)
    return inputs[:, part].to(rank.device), targets[:, part].to(rank.device)


def wrapped(rank: Rank, net: Any, what: str = "", unused: bool = False) -> Any:
    """``net`` in DistributedDataParallel, by all ranks together."""
    from torch.nn.parallel import DistributedDataParallel

    devices = [rank.rank] if rank.backend == "nccl" else None
    with rank.step("wrap", what):
        return DistributedDataParallel(net, device_ids=devices, find_unused_parameters=unused)


def _work(rank: Rank) -> dict[str, str]:
    rank.bench.plain_math()
    start = model(rank.bench)
    want, _ = wanted(rank.bench, rank.size)
    inputs, targets = mine(rank)
    kind = "cuda" if rank.backend == "nccl" else "cpu"
    digests = {}
    low: Any = partial(torch.autocast, kind, dtype=torch.bfloat16)
    for name, context in (("fp32", contextlib.nullcontext), ("bf16", low)):
        net = wrapped(rank, copy.deepcopy(start).to(rank.device), name)
        # what "order" drops is the exchange of gradients
        apart = net.no_sync() if rank.bench.injected_fault == "order" else contextlib.nullcontext()
        with rank.step("train", name), apart:
            steps(net, inputs, targets, context)
        rank.bench.close(name, moved(net.module, start), want)
        frozen = net.module[0].weight.detach().cpu()
        rank.bench.count("frozen.wrong", int((~(frozen == start[0].weight.detach())).sum()))
        digests[name] = digest(net.module)
    return digests


def unequal(digests: list[dict[str, str]]) -> int:
    """How many digests of how many ranks are not rank 0's."""
    return sum(each[name] != digests[0][name] for each in digests for name in digests[0])


def run(bench: Bench) -> None:
    """Measures the distances ``<backend>.fp32`` and ``<backend>.bf16`` (autocast) of how far the parameters moved,
    ``<backend>.frozen.wrong`` (frozen elements that changed) and ``<backend>.unequal`` (ranks whose parameters are not
    rank 0's)."""
    backend, digests = ranks.together(bench, _work)
    bench.count(f"{backend}.unequal", unequal(digests))
