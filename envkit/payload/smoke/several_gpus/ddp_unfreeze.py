"""Data-parallel training that is frozen first, then unfrozen and wrapped again, and a branch that only some ranks use.

DDP learns which parameters want gradients when it wraps a model.  A parameter that is unfrozen later without a new wrap
gets gradients that are never exchanged, and the ranks part in silence.  A parameter that a rank did not use in a step
keeps DDP waiting for it, which is a hang or an error, unless ``find_unused_parameters`` is on.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank
from envkit.payload.smoke.several_gpus import ddp


def _forked(bench: Bench) -> Any:
    """A network with a branch that is taken only if asked for."""

    def forward(self: Any, given: Any, branch: bool) -> Any:
        out = self.trunk(given)
        return self.branch(out) if branch else out

    net = type("Forked", (torch.nn.Module,), {"forward": forward})()
    net.trunk = ddp.model(bench)
    net.branch = torch.nn.Linear(ddp.WIDTH, ddp.WIDTH)
    return net


def _gradients(net: Any) -> Any:
    there = [one.grad for one in net.parameters() if one.requires_grad and one.grad is not None]
    return torch.cat([grad.detach().cpu().double().flatten() for grad in there])


def _missing(net: Any) -> int:
    return sum(one.requires_grad != (one.grad is not None) for one in net.parameters())


def _unfrozen(rank: Rank) -> str:
    """Two steps half frozen, two steps whole, as one process with the whole batch makes them."""
    plain = contextlib.nullcontext
    start = ddp.model(rank.bench)
    alone = copy.deepcopy(start).double()
    inputs, targets = ddp.batch(rank.bench, rank.size)
    ddp.steps(alone, inputs.double(), targets.double(), plain)
    alone.requires_grad_(True)
    ddp.steps(alone, inputs.double(), targets.double(), plain)

    inner = copy.deepcopy(start).to(rank.device)
    given, goal = ddp.mine(rank)
    net = ddp.wrapped(rank, inner)
    with rank.step("train", "frozen"):
        ddp.steps(net, given, goal, plain)
    inner.requires_grad_(True)
    if rank.bench.injected_fault != "order":
        net = ddp.wrapped(rank, inner)
    with rank.step("train", "whole"):
        ddp.steps(net, given, goal, plain)
    rank.bench.count("gradients.wrong", _missing(inner))
    start.requires_grad_(True)
    rank.bench.close("moved", ddp.moved(inner, start), ddp.moved(alone, start))
    return ddp.digest(inner)


def _branched(rank: Rank) -> str:
    """One step in which rank 0 alone uses the branch: its gradient is shared by all."""
    start = _forked(rank.bench)
    inputs, targets = ddp.batch(rank.bench, rank.size)
    alone = copy.deepcopy(start).double()
    for number in range(rank.size):
        part = slice(number * ddp.EACH, (number + 1) * ddp.EACH)
        out = alone(inputs[0, part].double(), number == 0)
        (torch.nn.functional.mse_loss(out, targets[0, part].double()) / rank.size).backward()

    inner = copy.deepcopy(start).to(rank.device)
    net = ddp.wrapped(rank, inner, unused=True)
    given, goal = ddp.mine(rank)
    with rank.step("train", "with a branch"):
        torch.nn.functional.mse_loss(net(given[0], rank.rank == 0), goal[0]).backward()
    rank.bench.count("gradients.wrong", _missing(inner))
    rank.bench.close("branch", _gradients(inner), _gradients(alone))
    with torch.no_grad():
        for parameter in inner.parameters():
            if parameter.grad is not None:
                parameter -= ddp.RATE * parameter.grad
    return ddp.digest(inner)


def _work(rank: Rank) -> dict[str, str]:
    rank.bench.plain_math()
    return {"unfrozen": _unfrozen(rank), "branched": _branched(rank)}


def run(bench: Bench) -> None:
    """Measures the distances ``<backend>.moved`` (parameters after unfreezing) and ``<backend>.branch`` (gradients),
    ``<backend>.gradients.wrong`` (missing or stray ones) and ``<backend>.unequal`` (ranks that parted)."""
    backend, digests = ranks.together(bench, _work)
    bench.count(f"{backend}.unequal", ddp.unequal(digests))
