"""Small models with a fault each, and their clean twins; ``# here`` marks the line that must be named."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

GPU = os.environ.get("PLACEMENT_GPU", "cuda")
OTHER = os.environ.get("PLACEMENT_OTHER", "cuda:1")


class Net(nn.Module):
    def __init__(self, first: str, second: str, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.one = nn.Linear(4, 8, device=first)
        self.norm = nn.BatchNorm1d(8, device=first)
        self.two = nn.Linear(8, 2, device=second, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.one(x)))  # here: inputs
        return self.two(hidden)  # here: second


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, index: Tensor) -> Tensor:
        return self.head(self.table(index))  # here: index


def clean() -> Any:
    return Net(GPU, GPU), torch.randn(3, 4, device=GPU)


def cpu_input() -> Any:
    return Net(GPU, GPU), torch.randn(3, 4)


def two_gpus() -> Any:
    return Net(GPU, OTHER), torch.randn(3, 4, device=GPU)


def moved() -> Any:
    return Net("cpu", "cpu").to(GPU), torch.randn(3, 4).to(GPU)


def called_cuda() -> Any:
    return Net("cpu", "cpu").cuda(), torch.randn(3, 4).cuda()


def context() -> Any:
    with torch.device(GPU):
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1)), torch.tensor([[1.0, 2.0, 3.0, 4.0]])


def embedding() -> Any:
    return Words().to(GPU), torch.tensor([1, 2, 3])


def embedding_clean() -> Any:
    return Words().to(GPU), {"index": torch.tensor([1, 2, 3], device=GPU)}


def half_float() -> Any:
    return Net(GPU, GPU, torch.float16), torch.randn(3, 4, device=GPU)


def half_clean() -> Any:
    return Net(GPU, GPU).half(), torch.randn(3, 4, device=GPU, dtype=torch.float16)


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net(GPU, GPU, torch.float16)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.float16):
            return self.net(x)


def autocast() -> Any:
    return Autocast(), torch.randn(3, 4, device=GPU)


class Frozen(nn.Module):
    """A frozen part that was left on the CPU; its output is carried over at every step."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4, device=place)
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(4, 2, device=GPU)

    def forward(self, x: Tensor) -> Tensor:
        features = self.frozen(x.to(self.frozen.weight.device))
        return self.head(features.to(self.head.weight.device))  # here: carried


def frozen() -> Any:
    return Frozen("cpu"), torch.randn(3, 4, device=GPU)


def frozen_clean() -> Any:
    return Frozen(GPU), torch.randn(3, 4, device=GPU)


class Frozen2(Frozen):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.frozen(x))  # here: frozen


def frozen_mixed() -> Any:
    return Frozen2("cpu"), torch.randn(3, 4, device=GPU)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, device=GPU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        if y.sum().item() > 1e9:  # here: item
            y = -y
        kept = y[y > -1e9]  # here: mask
        scale = torch.tensor([2.0]).to(y.device)  # here: copy
        return kept * scale


def reader() -> Any:
    return Reader(), torch.randn(3, 4, device=GPU)


class Allowed(nn.Module):
    """What looks mixed and is allowed: numbers without dimensions, and indexes on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, device=GPU)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) * self.scale
        y = y[torch.tensor([0, 1])]  # here: read
        y[torch.tensor([0])] = 1.0  # here: write
        return torch.where(y > 0, y, torch.zeros_like(y))


def allowed() -> Any:
    return Allowed(), torch.randn(3, 4, device=GPU)


class Library(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.conv = nn.Conv1d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.recurrent(self.encoder(x))
        y = self.conv(y.transpose(1, 2))
        y = nn.functional.scaled_dot_product_attention(y[:, None], y[:, None], y[:, None]).squeeze(1)
        return nn.functional.cross_entropy(y, torch.zeros(y.shape[0], y.shape[2], dtype=torch.long, device=y.device))


def library() -> Any:
    return Library().to(GPU), torch.randn(2, 5, 8).to(GPU)


def library_lstm() -> Any:
    model = Library().to(GPU)
    model.recurrent.to("cpu")
    return model, torch.randn(2, 5, 8).to(GPU)


def optimizer() -> Any:
    net = Net("cpu", "cpu")
    adam = torch.optim.Adam(net.parameters())
    net(torch.randn(3, 4)).sum().backward()
    adam.step()
    net.to(GPU)
    return {"model": net, "inputs": torch.randn(3, 4, device=GPU), "optimizer": adam, "loss": lambda out: out.mean()}


def on_cpu() -> Any:
    return Net("cpu", "cpu"), (torch.randn(3, 4),)


def raises() -> Any:
    raise ValueError("no such checkpoint: best.pt")  # here: raises


def wrong_answer() -> Any:
    return nn.Linear(2, 2)


def hangs() -> Any:
    time.sleep(600)


def floods() -> Any:
    for _ in range(100):
        sys.stdout.write("x" * (1 << 20) + "\n")
    sys.stderr.write("the last word\n")
    return clean()


def dies() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def exits() -> Any:
    os._exit(3)


def quits() -> Any:
    sys.exit("done")


class Copes(nn.Module):
    """Its code catches what torch refuses and fails for another reason later."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, device=GPU)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.fc(x)
        except RuntimeError:
            y = self.fc(x.to(GPU))
        if y.shape[0] == 3:
            raise KeyError("another reason")  # here: another
        return y


def copes() -> Any:
    return Copes(), torch.randn(2, 4)


def copes_not() -> Any:
    return Copes(), torch.randn(3, 4)


class Forks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, device=GPU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        child = os.fork()  # here: fork
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return y


def forks() -> Any:
    return Forks(), torch.randn(3, 4, device=GPU)


class ForksFirst(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return x + 1


def forks_without_cuda() -> Any:
    return ForksFirst(), torch.randn(3, 4)


class Moves(nn.Module):
    """What moves a tensor to where it lies returns it, unless a copy is asked for."""

    def forward(self, x: Tensor) -> Tensor:
        same = (x.to(x.device), x.to(x.device, x.dtype), x.to(x.dtype), x.to(x), x.to(x.device, x.dtype, False, False))
        if not all(each is x for each in same):
            raise ValueError("a move to the same place copies")
        if x.to(x.device, x.dtype, False, True) is x or x.to(x, copy=True) is x:
            raise ValueError("a copy that was asked for is none")
        if x.to("meta", torch.float16).dtype != torch.float16:
            raise ValueError("a move elsewhere loses the dtype")
        return x * 2


def moves() -> Any:
    return Moves(), torch.randn(3, 4, device=GPU)


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, device=GPU)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x).reshape(7)  # here: shape


def shape() -> Any:
    return Raises(), torch.randn(3, 4, device=GPU)
