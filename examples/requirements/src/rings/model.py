"""The model."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn


class Classifier(nn.Module):
    """A small perceptron over a point and its distance from the middle."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, points: Tensor) -> Tensor:
        distance = rearrange(points.norm(dim=1), "batch -> batch 1")
        return self.layers(torch.cat((points, distance), 1))
