"""Models with one fault of precision each, and their clean twins, as `envkit debug --precision` takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, Any, Callable[[Tensor], Tensor]]


def squares(outputs: Tensor) -> Tensor:
    return (outputs.float() ** 2).sum() / 2


class Block(nn.Module):
    """Attention, dropout, a feed-forward part: what most models are made of."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        heads = [part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.down(functional.gelu(self.up(self.after(x)))))


class Words(nn.Module):
    def __init__(self, words: int = 128, width: int = 64) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks, self.norm = nn.Sequential(Block(width), Block(width)), nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.blocks(self.embed(ids))))
        return out


def words() -> Made:
    """Clean in every dtype, also under autocast."""
    targets = torch.randint(0, 128, (2, 32))
    ids = torch.randint(0, 128, (2, 32))
    return Words(), ids, lambda out: functional.cross_entropy(out.float().flatten(0, 1), targets.flatten())


def pictures() -> Made:
    """Clean: convolutions with biases in front of batch norms, whose gradients are zero and are noise in any dtype."""
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10)
    )
    targets = torch.randint(0, 10, (16,))
    return layers, torch.randn(16, 3, 16, 16), lambda out: functional.cross_entropy(out, targets)


class Residual(nn.Module):
    """Convolutions, batch norms and ReLUs, one block upon another."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                          nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16))
            for _ in range(depth)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = functional.relu(x + block(x))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def residual() -> Made:
    """Clean: of its many ReLUs some lie within rounding of zero, and may take either side."""
    targets = torch.randint(0, 10, (16,))
    return Residual(12), torch.randn(16, 3, 16, 16), lambda out: functional.cross_entropy(out.float(), targets)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.inner(x)[0][:, -1])
        return out


def recurrent() -> Made:
    targets = torch.randint(0, 10, (8,))
    return Recurrent(), torch.randn(8, 12, 16), lambda out: functional.cross_entropy(out.float(), targets)


def encoder() -> Made:
    """Clean under autocast: torch's attention with dropout goes to single precision by its own choice."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True)
    targets = torch.randn(8, 24, 64)
    return nn.TransformerEncoder(layer, 2), torch.randn(8, 24, 64), lambda out: ((out.float() - targets) ** 2).mean()


def steps_inside() -> Made:
    """Clean: the loss takes a step of Adam, which leaves marks for the profiler."""
    model, weight, targets = _perceptron(), nn.Parameter(torch.randn(1)), torch.randn(64, 1)
    adam = torch.optim.Adam([weight])

    def loss(out: Tensor) -> Tensor:
        adam.zero_grad()
        ((out.detach().float() * weight - targets) ** 2).mean().backward()
        adam.step()
        return ((out.float() - targets) ** 2).mean()

    return model, torch.randn(64, 32), loss


class Exponent(nn.Module):
    """Beyond float16 by far, and beyond single precision where ``factor`` is large."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(16, 16), factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(1 + torch.exp(self.inner(x).abs() * self.factor))  # here: exponent


def exponent() -> Made:
    return Exponent(20.0), torch.randn(16, 16), squares


def exponent_in_single() -> Made:
    return Exponent(150.0), torch.randn(16, 16), squares


class Spread(nn.Module):
    """Normalises; the variance as a difference of two large numbers, or as it should be."""

    def __init__(self, stable: bool) -> None:
        super().__init__()
        self.inner, self.stable = nn.Linear(32, 32), stable

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        if self.stable:
            return functional.layer_norm(x.float() + 50.0, (32,)).to(x.dtype)
        x = x + 50.0
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean  # here: cancels
        return (x - mean) / (variance.abs() + 1e-5).sqrt()


def cancels() -> Made:
    return Spread(False), torch.randn(16, 32), squares


def keeps() -> Made:
    goal = torch.randn(16, 32)
    return Spread(True), torch.randn(16, 32), lambda out: ((out.float() - goal) ** 2).sum() / 2


class Large(nn.Module):
    """A norm by its own hands: the squares leave the range of float16."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(32, 32), factor

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x) * self.factor
        return x / torch.sqrt((x * x).sum(-1, keepdim=True))  # here: overflows


def _aimed() -> Callable[[Tensor], Tensor]:
    """The distance from a goal; of a norm the squares themselves are constant, and their gradient is zero."""
    goal = torch.randn(8, 32)
    return lambda out: ((out.float() - goal) ** 2).sum() / 2


def overflows() -> Made:
    return Large(1000.0), torch.randn(8, 32), _aimed()


def in_range() -> Made:
    return Large(1.0), torch.randn(8, 32), _aimed()


def stays_on_a_sphere() -> Made:
    """Every gradient is zero but for rounding, in any dtype."""
    return Large(1.0), torch.randn(8, 32), squares


class Masked(nn.Module):
    """-1e9 becomes -inf in float16, and heals in a softmax, unless a row holds nothing else."""

    def __init__(self, whole_row: bool) -> None:
        super().__init__()
        self.inner, self.whole_row = nn.Linear(16, 16), whole_row

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        mask = torch.ones(8, 8, dtype=x.dtype).triu(0 if self.whole_row else 1)
        scores = x @ x.transpose(-2, -1) + mask * -1e9  # here: masks
        return torch.softmax(scores, -1) @ x


def heals() -> Made:
    return Masked(False), torch.randn(2, 8, 16), squares


def masks_a_row() -> Made:
    return Masked(True), torch.randn(2, 8, 16), squares


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def fades() -> Made:
    """A loss so small that its gradients have no number in float16."""
    return _perceptron(), torch.randn(2048, 32), lambda out: (out.float() ** 2).mean() * 1e-4  # here: fades


def scaled() -> Made:
    return _perceptron(), torch.randn(2048, 32), lambda out: (out.float() ** 2).mean() * 1e-4 * 2.0**20


class Inverse(nn.Module):
    def __init__(self, single: bool) -> None:
        super().__init__()
        self.inner, self.single = nn.Linear(8, 8), single

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x) + 8 * torch.eye(8, dtype=x.dtype)
        return torch.linalg.inv(x.float() if self.single else x)  # here: inverts


def refused() -> Made:
    return Inverse(False), torch.randn(8, 8), squares


def accepted() -> Made:
    return Inverse(True), torch.randn(8, 8), squares


class Holes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        beside = torch.empty(x.shape)
        with torch.no_grad():
            torch.mm(x, self.two.weight, out=beside)  # here: passes by
        with torch.autocast("cpu", enabled=False):
            off = self.two(x)  # here: off
        return self.one(x).float() + beside + off + x.bfloat16().float()  # here: there and back


def holes() -> Made:
    return Holes(), torch.randn(8, 16), squares


class Positions(nn.Module):
    """Rotary angles in the model's own dtype: bfloat16 has no odd numbers above 256, and a cosine asks for them all."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.register_buffer("rates", 1e4 ** (-torch.arange(0, 32, 2) / 32))

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), self.rates)
        angles = torch.cat([angles, angles], -1)
        x = self.inner(x)
        turned = torch.cat([-x[..., 16:], x[..., :16]], -1)
        return x * angles.cos() + turned * angles.sin()  # here: turns


def positions() -> Made:
    return Positions(), torch.randn(1, 1024, 32), squares


def already_broken() -> Made:
    """NaN in any dtype: the dtype is not to be blamed."""

    class Logs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return torch.log(-self.inner(x).abs() - 1)  # here: logs

    return Logs(), torch.randn(4, 8), squares


def dies() -> Made:
    """A crash of the wanted dtype alone."""

    class Crash(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            if x.dtype != torch.float32:
                import ctypes

                ctypes.string_at(0)
            out: Tensor = self.inner(x)
            return out

    return Crash(), torch.randn(4, 8), squares


_library = torch.library.Library("envkit_test", "DEF")
_library.define("shaken(Tensor x) -> Tensor")
_library.define("broken(Tensor x) -> Tensor")


def _shaken(x: Tensor) -> Tensor:
    import os

    return x + int.from_bytes(os.urandom(2), "little") * 1e-6


def _broken(x: Tensor) -> Tensor:
    return x * (float("nan") if x.dtype != torch.float32 else 1.0)


_library.impl("shaken", _shaken, "CPU")
_library.impl("broken", _broken, "CPU")


class Custom(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner, self.op = nn.Linear(8, 8), getattr(torch.ops.envkit_test, name)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = self.op(self.inner(x))  # here: custom
        return out


def shaken() -> Made:
    return Custom("shaken"), torch.randn(4, 8), squares


def broken() -> Made:
    return Custom("broken"), torch.randn(4, 8), squares
