"""A small job of one or several ranks on the processor, which prints about its work as long jobs do.

import ranks
ranks.train(60, each=called_with_the_number_of_a_step)
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch import distributed, nn

RANK = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
log = logging.getLogger("job")


def train(
    steps: int, each: Callable[[int], None] | None = None, first: int = 0, shown: int = 1, bar: bool = False
) -> nn.Module:
    """Steps ``first`` to ``steps``, told on one line of ``shown`` each; ``each`` is called before a step is done."""
    form = f"%(asctime)s [rank {RANK}] %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stdout)
    torch.manual_seed(RANK)
    torch.set_num_threads(1)
    if WORLD > 1 and not distributed.is_initialized():
        distributed.init_process_group("gloo")
    log.info("torch %s, rank %d of %d, error policy: abort, max_retries=3", torch.__version__, RANK, WORLD)
    model = nn.Sequential(nn.Embedding(512, 32), nn.Flatten(), nn.Linear(32 * 16, 64), nn.GELU(), nn.Linear(64, 512))
    for name, weight in model.named_parameters():
        log.info("  %-12s %-14s %8d", name, tuple(weight.shape), weight.numel())
    warnings.warn("lr_scheduler: warmup_steps=0, the first steps may be unstable", UserWarning, stacklevel=1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(first, steps):
        begun = time.perf_counter()
        if each:
            each(step)
        ids = torch.randint(0, 512, (16, 16))
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0])
        optimizer.zero_grad()
        loss.backward()
        if WORLD > 1:
            for weight in model.parameters():
                distributed.all_reduce(weight.grad)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        took = 1000 * (time.perf_counter() - begun)
        if bar and RANK == 0:
            done = 24 * (step + 1 - first) // (steps - first)
            sys.stderr.write(f"\rsteps {step + 1}/{steps} [{'=' * done:24}] loss={loss.item():.4f}")
        if step % shown == 0:
            log.info("step %d loss %.4f grad_norm %.3f %.1f ms failed_samples=0", step, loss.item(), norm, took)
    return model
