"""Points on three rings."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def points(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """``count`` points and which of three rings each lies on."""
    draw = np.random.default_rng(seed)
    ring = draw.integers(0, 3, count)
    angle, radius = draw.uniform(0, 2 * np.pi, count), ring + 1 + draw.normal(0, 0.1, count)
    both = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1)
    return torch.from_numpy(both.astype(np.float32)), torch.from_numpy(ring)
