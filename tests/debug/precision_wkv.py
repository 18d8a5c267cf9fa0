"""A recurrence with weights that are exponentials, as in RWKV: frozen it is well in bfloat16, unfrozen it is not.

The forward pass is a ratio of two sums and keeps its digits.  The gradient of what makes the weights is the difference
of two paths, through the numerator and through the denominator, which all but cancel where the values have a mean.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class TimeMix(nn.Module):
    """wkv in plain torch, one step of time after another, in the dtype that comes in, or ``single`` in float32."""

    def __init__(self, width: int, single: bool) -> None:
        super().__init__()
        self.key = nn.Linear(width, width)
        self.decay, self.bonus = nn.Parameter(torch.full((width,), -2.0)), nn.Parameter(torch.zeros(width))
        self.single = single

    def forward(self, x: Tensor, value: Tensor) -> Tensor:
        key, decay, bonus, given = self.key(x), self.decay, self.bonus, value.dtype
        if self.single:
            key, decay, bonus, value = key.float(), decay.float(), bonus.float(), value.float()
        keep = torch.exp(-torch.exp(decay))
        above = below = torch.zeros_like(value[:, 0])
        out = []
        for step in range(x.shape[1]):
            now = torch.exp(bonus + key[:, step])
            out.append((above + now * value[:, step]) / (below + now))
            weight = torch.exp(key[:, step])
            above = keep * above + weight * value[:, step]  # here: two paths
            below = keep * below + weight
        return torch.stack(out, 1).to(given)


class Model(nn.Module):
    def __init__(self, frozen: bool, single: bool) -> None:
        super().__init__()
        self.value, self.mix, self.out = nn.Linear(32, 32), TimeMix(32, single), nn.Linear(32, 32)
        nn.init.constant_(self.value.bias, 40.0)
        self.mix.requires_grad_(not frozen)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.mix(x, self.value(x)))
        return out


def _made(frozen: bool, single: bool = False) -> tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]:
    return Model(frozen, single), torch.randn(2, 24, 32), lambda out: (out.float() ** 2).sum() / 2


def frozen() -> object:
    return _made(True)


def unfrozen() -> object:
    return _made(False)


def unfrozen_in_single() -> object:
    return _made(False, True)
