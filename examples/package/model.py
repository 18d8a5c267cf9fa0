"""The model, and what its package says of its input: export.py writes it, run.py and runner.cpp check by it."""

from __future__ import annotations

from torch import Tensor, nn

WIDTH = 64
KEY = "input0"  # of the package's metadata
INPUT = "float32 {device} * 64"  # dtype, device, then sizes; * is any


class Layer(nn.Module):
    """A small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).softmax(-1)


def misfit(stated: str, given: Tensor) -> str:
    """Why ``given`` is not the input that a package states; empty if it is."""
    dtype, device, *sizes = stated.split()
    if str(given.dtype) != f"torch.{dtype}":
        return f"it is {given.dtype}, the package takes torch.{dtype}"
    if given.device.type != device:
        return f"it is on {given.device.type}, the package takes {device}"
    fits = len(sizes) == given.dim() and all(
        want in ("*", str(got)) for want, got in zip(sizes, given.shape, strict=True)
    )
    return "" if fits else f"its shape is {list(given.shape)}, the package takes [{', '.join(sizes)}]"
