"""Programs that are slow for one planted reason each, and twins that do the same work without it.

``python slow_programs.py NAME fault|clean [cuda]``; the line that is to be named bears the mark ``# slow here``.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAME, FAULTY, DEVICE = sys.argv[1], sys.argv[2] == "fault", "cuda" if sys.argv[3:] == ["cuda"] else "cpu"
WIDE = 4096 if DEVICE == "cuda" else 512
BATCH = 8192 if DEVICE == "cuda" else 64
SECONDS = 13.0 if DEVICE == "cuda" else 12.0


def model() -> nn.Module:
    """Work for tens of milliseconds a step."""
    layers = [nn.Linear(WIDE, WIDE) for _ in range(6)]
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())]).to(DEVICE)


def going() -> bool:
    """Whether the program is to go on: some seconds and steps after it has begun."""
    STEPS.append(time.monotonic())
    return STEPS[-1] - STEPS[0] < SECONDS or len(STEPS) < 30


class Slow(Dataset[torch.Tensor]):
    """Items that take their time to come."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if FAULTY:
            time.sleep(0.002)  # a file system that is slow
        return torch.ones(WIDE)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    """One step of training."""
    optimizer.zero_grad()
    loss = net(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def loader() -> None:
    """Each batch is read by the process that trains."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    small = 16 if DEVICE == "cpu" else 32
    work = torch.ones(BATCH if DEVICE == "cpu" else BATCH // 8, WIDE, device=DEVICE)
    for batch in DataLoader(Slow(), batch_size=small):  # slow here
        work[:small] = batch.to(DEVICE)
        step(net, optimizer, work)
        if not going():
            break


def item() -> None:
    """Each figure of a batch is fetched from the device by itself."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    work = torch.ones(BATCH, WIDE, device=DEVICE)
    total = 0.0
    metric = torch.zeros((), device=DEVICE)
    while going():
        step(net, optimizer, work)
        errors = work[:, 0] * 0.5
        if FAULTY:
            for at in range(len(errors) * (1 if DEVICE == "cuda" else 150)):
                total += errors[at % BATCH].item()  # slow here
        else:
            metric += errors.sum()


def small() -> None:
    """A recurrence that is computed element by element."""
    net = model() if not FAULTY else nn.Linear(WIDE, 8).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    work = torch.ones(BATCH if not FAULTY else 64, WIDE, device=DEVICE)
    while going():
        optimizer.zero_grad()
        out = net(work)
        if FAULTY:
            state = out[:, 0]
            for at in range(600):
                state = state * 0.9 + out[:, at % 8] * 0.1  # slow here
            out = state
        out.square().mean().backward()
        optimizer.step()


def copies() -> None:
    """Each batch is copied from pageable memory (GPU alone)."""
    torch.backends.cuda.matmul.allow_tf32 = True
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    source = torch.ones(16384, WIDE)
    there = source.to(DEVICE)
    while going():
        batch = source.to(DEVICE) if FAULTY else there  # slow here
        step(net, optimizer, batch)


def ranks() -> None:
    """Rank 1 has more to do than the others."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["RANK"])
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    net = DistributedDataParallel(model(), device_ids=[rank] if DEVICE == "cuda" else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    work = torch.ones(BATCH if DEVICE == "cuda" else 64, WIDE, device=DEVICE)
    for _ in range(60 if DEVICE == "cuda" else 30):
        if FAULTY and rank == 1:
            time.sleep(0.15)  # slow here
        step(net, optimizer, work)
    if DEVICE == "cuda":
        dist.destroy_process_group()
        return
    atexit._run_exitfuncs()  # what measures writes its end there; to take gloo down may hang
    os._exit(0)


def single() -> None:
    """Matrix products in single precision on a GPU that has TF32; the twin allows it (GPU alone)."""
    torch.backends.cuda.matmul.allow_tf32 = not FAULTY
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    work = torch.ones(BATCH, WIDE, device=DEVICE)
    while going():
        step(net, optimizer, work)  # slow here


if DEVICE == "cpu":
    torch.set_num_threads(1)  # so that a busy machine, where threads wait for one another, shows the same
STEPS: list[float] = []
{each.__name__: each for each in (loader, item, small, copies, ranks, single)}[NAME]()
print("done")
