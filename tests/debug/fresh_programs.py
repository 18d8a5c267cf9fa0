"""Programs with a planted fault that were written and labelled before they met `envkit debug`, and their twins.

``python fresh_programs.py NAME fault|clean`` on a machine with a GPU; the line that is to be named bears ``# here``
(for a kernel, its own mark in ``kernels/fresh.cu`` or ``fresh_kernel.py`` counts beside it).  ``LABELS`` holds what the
cause must say.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

NAME, KIND = [*sys.argv[1:3], "", ""][:2]
FAULTY = KIND == "fault"
HERE = Path(__file__).resolve().parent
WIDE = 2048
SECONDS = float(os.environ.get("FRESH_SECONDS", "14"))

# By program: the words that the cause must hold (one of each group), and the mark of its kernel if it has one.
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = {
    "worker": ((("srcIndex < srcSelectDimSize", "index out of", "indexSelect", "out of bounds"),), ""),
    "misread": ((("pack_pairs",), ("misaligned",)), "misread"),
    "stale": ((("gather_rows",), ("out of bounds", "freed")), "gone"),
    "thawed": ((("weight_grad",), ("out of bounds",)), "thawed"),
    "strided": ((("cuBLAS",), ("out of bounds",)), ""),
    "retained": ((("graph",),), ""),
    "itemed": ((("CPU waits for it",),), ""),
    "paged": ((("pageable",),), ""),
    "packed": ((("AOTInductor package",), ("another device", "CPU", "cpu")), ""),
    "mixed": ((("not on the device", "different devices"),), ""),
    "captured": ((("captur",),), ""),
    "bounds": ((("blur_rows",), ("out of bounds",)), "beyond"),
    "race": ((("block_sums",), ("race",)), "raced"),
    "unset": ((("accumulate",), ("nobody wrote",)), "unset"),
    "crossed": ((("their sizes differ", "their operations differ", "differ"), ("rank 1",)), ""),
    "grouped": ((("rank 0", "ranks"), ("wait", "differ")), ""),
}


def net(depth: int = 3) -> nn.Sequential:
    """A few layers."""
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(WIDE, WIDE), nn.GELU())]).cuda()


def library() -> ctypes.CDLL:
    """The extension, built by nvcc where this runs."""
    made = Path(tempfile.gettempdir()) / "libfresh.so"
    if not made.exists():
        part = made.with_name(f"libfresh-{os.getpid()}.so")
        words = [shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-arch=sm_90", "-lineinfo", "-Xcompiler", "-fPIC"]
        words += ["-cudart", "shared", "-shared", str(HERE / "kernels" / "fresh.cu"), "-o", str(part)]
        subprocess.run(words, check=True)
        part.replace(made)
    return ctypes.CDLL(str(made))


def at(tensor: torch.Tensor) -> ctypes.c_void_p:
    """Its address."""
    return ctypes.c_void_p(tensor.data_ptr())


def _embeds(rank: int) -> None:
    table = nn.Embedding(1000, 64).cuda()
    tokens = torch.arange(512, device="cuda") + (600 if FAULTY and rank == 1 else 0)
    out = table(tokens)  # here
    print(rank, float(out.sum()), flush=True)


def worker() -> None:
    """Of two spawned workers one looks up a token that the table does not have."""
    torch.multiprocessing.spawn(_embeds, nprocs=2)


def misread() -> None:
    """A kernel of Triton reads pairs from a slice that begins at an odd number."""
    from fresh_kernel import pack_pairs

    x, y = torch.ones(1 << 16, device="cuda"), torch.zeros(1 << 16, device="cuda")
    pack_pairs[(16,)](x[1 if FAULTY else 2 :], y, 16 * 1024, BLOCK=1024)  # here
    torch.cuda.synchronize()
    print(float(y.sum()))


def stale() -> None:
    """A table of addresses outlives the rows; a second stream gathers them."""
    lib, side = library(), torch.cuda.Stream()
    rows = [torch.full((1 << 20,), 2.0, device="cuda") for _ in range(64)]
    table = torch.tensor([row.data_ptr() for row in rows], device="cuda")
    out = torch.zeros(64, 1 << 20, device="cuda")
    if FAULTY:
        del rows
        rows = [torch.zeros(1 << 19, device="cuda") for _ in range(64)]
    torch.cuda.synchronize()
    lib.gather(at(table), at(out), 64, 1 << 20, ctypes.c_void_p(side.cuda_stream))  # here
    torch.cuda.synchronize()
    assert float(out.mean()) == 2.0, "the rows are not what they were"


class Scaled(torch.autograd.Function):
    """A product whose weight has a backward kernel of its own."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The product."""
        context.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(context: Any, *up: torch.Tensor) -> Any:
        """The weight's gradient only where it is asked for."""
        from fresh_kernel import weight_grad

        weight = context.saved_tensors[1]
        down = None
        if context.needs_input_grad[1]:
            down = torch.zeros_like(weight)
            pitch = 1 << 22 if FAULTY else 0
            weight_grad[(512,)](up[0].contiguous(), down, WIDE, pitch, BLOCK=WIDE)  # here
        return up[0] * weight, down


def thawed() -> None:
    """All goes well until the weight is unfrozen."""
    weight = nn.Parameter(torch.ones(WIDE, device="cuda"), requires_grad=False)
    first = nn.Linear(WIDE, WIDE).cuda()
    for epoch in range(4):
        if epoch == 2:
            weight.requires_grad_(True)
        loss = Scaled.apply(first(torch.randn(512, WIDE, device="cuda")), weight).square().mean()
        loss.backward()
        print("epoch", epoch, float(loss), flush=True)


class Exported:
    """Memory of another owner, who tells its strides."""

    def __init__(self, owner: torch.Tensor, pitch: int) -> None:
        self.owner = owner
        rows, columns = owner.shape
        self.__cuda_array_interface__ = {
            "shape": (rows, columns), "typestr": "<i2", "data": (owner.data_ptr(), False), "version": 3,
            "strides": (pitch, 2),
        }  # fmt: skip


def strided() -> None:
    """A product in bf16 of a matrix whose owner took bytes for elements, and then some."""
    owner = torch.ones(8192, 1024, device="cuda", dtype=torch.bfloat16)
    shared = torch.as_tensor(Exported(owner, (1 << 21) if FAULTY else 2048), device="cuda").view(torch.bfloat16)
    product = shared @ torch.ones(1024, 512, device="cuda", dtype=torch.bfloat16)  # here
    print(float(product.float().mean()))


def retained() -> None:
    """A state that is carried from step to step keeps the graph of all steps, until the memory is full."""
    cell = nn.GRUCell(WIDE, WIDE).cuda()
    state = torch.zeros(65536, WIDE, device="cuda")
    for number in range(100_000 if FAULTY else 100):
        state = cell(torch.randn(65536, WIDE, device="cuda"), state if FAULTY else state.detach())  # here
        state.square().mean().backward(retain_graph=True)
        cell.zero_grad()
        time.sleep(0.05)
        if number % 10 == 0:
            print("step", number, flush=True)


def itemed() -> None:
    """The loss of each example is fetched for a log."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    ended = time.monotonic() + SECONDS
    while time.monotonic() < ended:
        optimizer.zero_grad()
        losses = model(torch.randn(512, WIDE, device="cuda")).square().mean(1)
        losses.mean().backward()
        optimizer.step()
        if FAULTY:
            log = [loss.item() for loss in losses.detach()]  # here
            del log


def paged() -> None:
    """The outputs of each step are brought to the CPU, into memory that is not pinned."""
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(16384, WIDE, device="cuda")
    ended = time.monotonic() + SECONDS
    while time.monotonic() < ended:
        optimizer.zero_grad()
        out = model(batch)
        out.square().mean().backward()
        optimizer.step()
        if FAULTY:
            kept = out.detach().cpu()  # here
            del kept
        torch.cuda.synchronize()


class Gate(nn.Module):
    """Two inputs to fuse."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The gated sum."""
        return torch.sigmoid(x) * y + x


def packed() -> None:
    """A package for the GPU is given both of its inputs on the CPU."""
    path = Path(tempfile.gettempdir()) / "fresh-gate.pt2"
    x, y = torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")
    if not path.exists():
        exported = torch.export.export(Gate().cuda(), (x, y))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    loaded = torch._inductor.aoti_load_package(str(path))
    out = loaded(x.cpu(), y.cpu()) if FAULTY else loaded(x, y)  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


class Average:
    """A moving average of a model's weights."""

    def __init__(self, model: nn.Module) -> None:
        self.kept = {name: weight.detach().clone() for name, weight in model.named_parameters()}  # made

    def update(self, model: nn.Module) -> None:
        """Takes in a step."""
        for name, weight in model.named_parameters():
            self.kept[name].lerp_(weight.detach(), 0.01)  # here


def mixed() -> None:
    """The average is made before the model goes to the GPU."""
    model = nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, 8))
    average = Average(model if FAULTY else model.cuda())
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        model(torch.randn(32, WIDE, device="cuda")).square().mean().backward()
        optimizer.step()
        average.update(model)
    print("averaged")


def captured() -> None:
    """A step that is captured in a CUDA graph looks at a value."""
    model = net(1)
    batch = torch.randn(64, WIDE, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(batch)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        out = model(batch)
        if FAULTY and out.abs().max().item() > 1e4:  # here
            out = out.clamp(-1e4, 1e4)
    graph.replay()
    torch.cuda.synchronize()
    print(float(out.sum()))


def bounds() -> None:
    """An extension reads its neighbour far behind the end."""
    x, y = torch.ones(100_000, device="cuda"), torch.zeros(100_000, device="cuda")
    library().blur(at(x), at(y), 100_000 if FAULTY else 99_999, 1 << 29 if FAULTY else 1)  # here
    torch.cuda.synchronize()
    print(float(y.sum()))


def race() -> None:
    """An extension lacks a barrier."""
    x, y = torch.ones(256 * 512, device="cuda"), torch.zeros(512, device="cuda")
    library().sums(at(x), at(y), 512, 0 if FAULTY else 1)  # here
    torch.cuda.synchronize()
    print(float(y.sum()))


def unset() -> None:
    """An extension adds to sums that nobody set."""
    x = torch.ones(100_000, device="cuda")
    sums = torch.empty(100_000, device="cuda") if FAULTY else torch.zeros(100_000, device="cuda")
    library().add(at(x), at(sums), 100_000)  # here
    torch.cuda.synchronize()
    print(float(sums.sum()))


def crossed() -> None:
    """Two ranks sum the gradients of two layers in another order (under torchrun, over gloo)."""
    from torch import distributed

    distributed.init_process_group("gloo")
    layers = [nn.Linear(64, 64).cuda(), nn.Linear(64, 8).cuda()]
    for layer in layers:
        layer(torch.ones(4, 64, device="cuda")).sum().backward()
    if FAULTY and distributed.get_rank() == 1:
        layers.reverse()
    for layer in layers:
        assert layer.weight.grad is not None
        distributed.all_reduce(layer.weight.grad)  # here
    distributed.destroy_process_group()


def grouped() -> None:
    """Two ranks enter two groups in another order, so that each waits for the other."""
    from torch import distributed

    distributed.init_process_group("gloo")
    groups = [distributed.new_group([0, 1]) for _ in range(2)]
    if FAULTY and distributed.get_rank() == 1:
        groups.reverse()
    for group in groups:
        distributed.all_reduce(torch.ones(8, device="cuda"), group=group)  # here
    distributed.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    globals()[NAME]()
    print("done", flush=True)
