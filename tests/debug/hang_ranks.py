"""A small training job of several ranks with one fault, named by the first argument; ``clean`` has none.

With ``-apart`` behind it the losses are collected by a group of its own, on the CPU.

Run it under torchrun; it uses NCCL where there is a GPU for each rank, else gloo, with SHARE_GPU=1 on the first GPU.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, SHARED = 3, bool(os.environ.get("SHARE_GPU"))


class Model(torch.nn.Module):
    """Two ways through it, of which the second can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = torch.nn.Linear(16, 16)
        self.branch = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, branch: bool) -> torch.Tensor:
        x = torch.relu(self.trunk(x))
        return x + self.branch(x) if branch else x


def batch(case: str, rank: int, step: int) -> torch.Tensor:
    """What a data loader gives; the one of rank 1 may never come."""
    if case == "loader" and rank == 1 and step == 1:
        time.sleep(3600)  # stuck here
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 16, generator=generator)


def logged(case: str, rank: int, loss: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    """The mean loss of all ranks, as a training loop prints it."""
    mean = loss.detach().clone() if group is None else loss.detach().cpu()
    if case == "order" and rank == 1:
        dist.broadcast(mean, src=0)  # another operation
    if case == "shapes" and rank == 1:
        mean = mean.repeat(1 << 20)  # other sizes
    dist.all_reduce(mean, group=group)
    dist.barrier(group=group)
    return float(mean.flatten()[0]) / dist.get_world_size()


def main(case: str) -> None:
    rank = int(os.environ["RANK"])
    if case == "absent" and rank == 1:
        time.sleep(3600)  # never joins
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    nccl = gpus >= int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", nccl * int(os.environ["LOCAL_RANK"])) if nccl or SHARED else torch.device("cpu")
    if nccl:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if nccl else "gloo")
    torch.manual_seed(0)
    model = Model().to(device)
    wrapped = DistributedDataParallel(model, device_ids=[device.index] if nccl else None)
    apart = dist.new_group(backend="gloo") if case.endswith("-apart") else None  # for what is printed
    case = case.partition("-")[0]
    if case == "frozen" and rank == 1:
        model.branch.requires_grad_(False)  # after it was wrapped
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(STEPS):
        if case == "leaves" and rank == 1 and step == 2:
            break  # its data ended before the others' did
        inputs = batch(case, rank, step).to(device)
        optimizer.zero_grad()
        loss = wrapped(inputs, branch=not (case == "branch" and rank == 1)).square().mean()
        loss.backward()
        if case == "skips" and rank == 1 and step == 1:
            continue  # and with it the collectives of this step
        mean = logged(case, rank, loss, apart)
        optimizer.step()
        if rank == 0:
            print(f"step {step}: {mean:.6f}", flush=True)
    if case == "message":
        dist.recv(torch.zeros(1, device=device), src=1 - rank)  # and nobody sends
    if case == "leaves" and rank == 1:
        os._exit(0)
    dist.destroy_process_group()


main(sys.argv[1])
