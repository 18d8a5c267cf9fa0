"""Two steps of sharded training (fully_shard), one layer frozen, against one process with the whole batch in fp64."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank
from envkit.payload.smoke.several_gpus import ddp


def _offered(bench: Bench) -> tuple[Any, Any]:
    """fully_shard and its precision policy, which moved between releases."""
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        try:
            from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
        except ImportError:
            bench.not_applicable("this torch has no fully_shard")
    if bench.device == "cpu" and not hasattr(torch.cpu.Stream, "record_event"):
        bench.not_applicable("the fully_shard of this torch works on GPUs alone")
    return fully_shard, MixedPrecisionPolicy


def _work(rank: Rank) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard, policy = _offered(rank.bench)
    rank.bench.plain_math()
    start = ddp.model(rank.bench)
    want, _ = ddp.wanted(rank.bench, rank.size)
    inputs, targets = ddp.mine(rank)
    with rank.step("init_device_mesh"):
        mesh = init_device_mesh("cuda" if rank.backend == "nccl" else "cpu", (rank.size,))
    low = policy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for name, precision in (("fp32", policy()), ("bf16", low)):
        net = copy.deepcopy(start).to(rank.device)
        with rank.step("shard", name):
            for layer in net:
                if list(layer.parameters()):
                    fully_shard(layer, mesh=mesh, mp_policy=precision)
            fully_shard(net, mesh=mesh, mp_policy=precision)
        if rank.bench.injected_fault == "order":  # what it drops is the exchange of gradients
            net.set_requires_gradient_sync(False)
        with rank.step("train", name):
            ddp.steps(net, inputs, targets, contextlib.nullcontext)
        with rank.step("full_tensor", name):
            got = ddp.moved(net, start)
            frozen = net[0].weight.full_tensor().detach().cpu()
        rank.bench.close(name, got, want)
        rank.bench.count("frozen.wrong", int((~(frozen == start[0].weight.detach())).sum()))


def run(bench: Bench) -> None:
    """Measures the distances ``<backend>.fp32`` and ``<backend>.bf16`` of how far the parameters moved, and
    ``<backend>.frozen.wrong`` (frozen elements that changed)."""
    ranks.together(bench, _work)
