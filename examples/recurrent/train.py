"""Train a recurrent model whose decay is frozen at first and then unfrozen.

The task is the running mean of the inputs at each step; how far back it reaches is what the decay has to learn.
``--twin`` takes plain PyTorch in place of the kernels; on a machine without a GPU the kernels need TRITON_INTERPRET=1.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

# Each pool of memory then has a range of addresses of its own, which does not get fragmented.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import wkv
from torch import Tensor, nn

MEAN_OVER = 0.9  # the share of the mean that is kept at each step


class TimeMix(nn.Module):
    """Receptance, key and value as in RWKV, and one decay for each channel."""

    def __init__(self, width: int, recurrence: Callable[..., Tensor]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.r, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.decay = nn.Parameter(torch.linspace(-3.0, 0.0, width))
        self.recurrence = recurrence

    def forward(self, x: Tensor) -> Tensor:
        near = self.norm(x)
        w = torch.exp(-torch.exp(self.decay)).expand(x.shape)
        return x + self.out(self.recurrence(torch.sigmoid(self.r(near)), self.k(near), self.v(near), w))


class Model(nn.Module):
    """A TimeMix between two linear layers."""

    def __init__(self, width: int, recurrence: Callable[..., Tensor]) -> None:
        super().__init__()
        self.into, self.mix, self.head = nn.Linear(1, width), TimeMix(width, recurrence), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(self.into(x)))


def running_mean(x: Tensor) -> Tensor:
    """What the model is to say."""
    mean, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        mean = MEAN_OVER * mean + (1 - MEAN_OVER) * x[:, t]
        out.append(mean)
    return torch.stack(out, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--time", type=int, default=256)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200, help="half of them with the decay frozen")
    parser.add_argument("--twin", action="store_true", help="plain PyTorch in place of the kernels")
    parser.add_argument("--fault", action="store_true", help="with the mistake in the backward pass")
    options = parser.parse_args()

    def by_kernel(r: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return wkv.wkv(r, k, v, w, gradient_like_w=options.fault)

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(options.width, wkv.plain if options.twin else by_kernel).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, options.steps + 1):
        frozen = step <= options.steps // 2
        model.mix.decay.requires_grad_(not frozen)
        x = torch.randn(options.batch, options.time, 1, device=device)
        loss = (model(x) - running_mean(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (1, options.steps // 2, options.steps // 2 + 1, options.steps):
            print(f"step {step}, decay {'frozen' if frozen else 'unfrozen'}: loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
