"""Train a small GPT to add two numbers of two digits.

``python train.py`` runs on one GPU, or on the CPU; ``torchrun --nproc-per-node 8 train.py`` on eight GPUs.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

SYMBOLS = "0123456789+="
QUESTION, ANSWER = 6, 3  # "12+34=" and "046"


class Block(nn.Module):
    """Attention and a layer of neurons, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Logits of the next symbol at each place."""

    def __init__(self, width: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        self.symbols = nn.Embedding(len(SYMBOLS), width)
        self.places = nn.Parameter(torch.zeros(QUESTION + ANSWER, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(SYMBOLS), bias=False)

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.symbols(symbols) + self.places[: symbols.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def sums(count: int, draw: torch.Generator) -> Tensor:
    """Rows such as "12+34=046", as indexes into SYMBOLS."""
    a, b = torch.randint(0, 100, (2, count), generator=draw)
    plus, equals = (torch.full((count,), SYMBOLS.index(sign)) for sign in "+=")
    total = a + b
    columns = (a // 10, a % 10, plus, b // 10, b % 10, equals, total // 100, total // 10 % 10, total % 10)
    return torch.stack(columns, 1)


def answer_loss(logits: Tensor, rows: Tensor) -> Tensor:
    """Cross entropy of the answer's symbols; nobody can foretell the question's."""
    return functional.cross_entropy(logits[:, -ANSWER:].flatten(0, 1), rows[:, -ANSWER:].flatten())


@torch.no_grad()
def accuracy(model: nn.Module, rows: Tensor) -> float:
    """The share of sums that the model completes right, symbol by symbol."""
    given = rows[:, :QUESTION]
    for _ in range(ANSWER):
        given = torch.cat((given, model(given)[:, -1:].argmax(-1)), 1)
    return (given == rows).all(1).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=512, help="sums a step and process")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()

    ranks, rank, local = (int(os.environ.get(name, default)) for name, default in
                          (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0")))  # fmt: skip
    on_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{local}" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if ranks > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")

    torch.manual_seed(0)  # the same weights on every rank
    model = GPT(options.width, options.layers).to(device)
    wrapped = DistributedDataParallel(model, device_ids=[local] if on_gpu else None) if ranks > 1 else model
    step_model = wrapped if options.no_compile else torch.compile(wrapped)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=on_gpu)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=options.steps)
    draw = torch.Generator().manual_seed(1 + rank)  # other sums on every rank

    started = time.monotonic()
    for step in range(1, options.steps + 1):
        rows = sums(options.batch, draw).to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = answer_loss(step_model(rows[:, :-1]), rows)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0 and (step % 100 == 0 or step in (1, options.steps)):
            print(f"step {step}: loss {loss.item():.4f} ({time.monotonic() - started:.1f} s)", flush=True)
    if rank == 0:
        right = accuracy(model.eval(), sums(1000, torch.Generator().manual_seed(0)).to(device))
        print(f"{100 * right:.1f} % of 1000 sums are right; {ranks} process(es) on {device.type}", flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
