"""Programs with a planted fault that were written before they met `envkit debug`, and twins without it.

``python later_programs.py NAME fault|clean`` on a machine with a GPU; the line that is to be named bears ``# here``,
and that of the kernel its own mark in ``kernels/several.cu``.  What is slow prints what share of its steps the planted
lines took, by its own clock.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAME, FAULTY = sys.argv[1], sys.argv[2] == "fault"
HERE = Path(__file__).resolve().parent
DEVICE = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"  # without CUDA, which no fork may have met
WIDE = 2048 if DEVICE == "cuda" else 128
SECONDS = float(os.environ.get("LATER_SECONDS", "14"))
SPENT: list[float] = []
MARKS: list[float] = []


def net(depth: int = 4) -> nn.Sequential:
    """A few layers."""
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(WIDE, WIDE), nn.GELU())]).to(DEVICE)


def going() -> Iterator[int]:
    """Numbers of steps until the time is over."""
    started, number = time.monotonic(), 0
    while time.monotonic() - started < SECONDS or number < 60:
        number += 1
        MARKS.append(time.monotonic())
        yield number
    whole = MARKS[-1] - MARKS[20]
    print(f"TRUTH {sum(SPENT[20:]) / whole:.3f} of {1000 * whole / (len(MARKS) - 21):.2f} ms", flush=True)


@contextmanager
def planted() -> Iterator[None]:
    """The clock of the planted lines."""
    began = time.monotonic()
    yield
    SPENT.append(time.monotonic() - began)


def stepped(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    """One step of training."""
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss


# --- time -------------------------------------------------------------------------------------------------------------


def cropped() -> None:
    """Each step chooses its crops in plain Python."""
    import random

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(2048, WIDE, device=DEVICE)
    for _ in going():
        with planted():
            crops = sorted(random.random() for _ in range(12_000 if FAULTY else 10))  # here
        stepped(model, optimizer, batch * crops[0])
        if DEVICE == "cuda":
            torch.cuda.current_stream().synchronize()


def checked() -> None:
    """Each gradient is asked whether it is finite, one by one."""
    model = net(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(256, WIDE, device=DEVICE)
    for number in going():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        with planted():
            if FAULTY or number % 500 == 0:
                for weight in model.parameters():
                    assert weight.grad is not None
                    if not bool(torch.isfinite(weight.grad).all()):  # here
                        raise SystemExit("not finite")
        optimizer.step()


def uploads() -> None:
    """Masks come from NumPy in every step; the twin keeps them on the GPU."""
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    masks = torch.ones(8192, WIDE * 2)
    there = masks.to(DEVICE)
    batch = torch.randn(8192, WIDE, device=DEVICE)
    for _ in going():
        with planted():
            mask = masks.to(DEVICE) if FAULTY else there  # here
        stepped(model, optimizer, batch * mask[:, :WIDE])


class Averaged:
    """A moving average of a model's weights."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.kept = [weight.detach().clone() for weight in model.parameters()]

    @torch.no_grad()
    def update(self) -> None:
        """One by one; the twin does all at once."""
        if not FAULTY:
            torch._foreach_lerp_(self.kept, [weight.detach() for weight in self.model.parameters()], 0.01)
            return
        for kept, weight in zip(self.kept, self.model.parameters(), strict=True):
            kept.mul_(0.99).add_(weight.detach() * 0.01)  # here


def averaged() -> None:
    """An average of many small weights, one by one."""
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(400)]).to(DEVICE)
    average = Averaged(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, foreach=True)
    weights = list(model.parameters())
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    for _ in going():
        optimizer.step()
        with planted():
            average.update()


class Files(Dataset[torch.Tensor]):
    """Files that are decoded by one worker."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if FAULTY:
            until = time.monotonic() + 0.0008
            while time.monotonic() < until:
                pass
        return torch.ones(WIDE)


def decoded() -> None:
    """One worker decodes for a GPU that is faster than it."""
    model = net(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = iter(DataLoader(Files(), batch_size=64, num_workers=1 if FAULTY else 4, pin_memory=DEVICE == "cuda"))
    for _ in going():
        with planted():
            batch = next(loader)  # here
        stepped(model, optimizer, batch.to(DEVICE, non_blocking=True).repeat(16, 1))


# --- memory -----------------------------------------------------------------------------------------------------------


class Meter:
    """A moving average of the loss."""

    def __init__(self) -> None:
        self.value: Any = 0.0

    def update(self, loss: torch.Tensor) -> None:
        """Takes in the loss of a step."""
        self.value = 0.9 * self.value + 0.1 * (loss if FAULTY else loss.detach())  # here


def smoothed() -> None:
    """A meter's average carries the graph of every step."""
    model, meter = net(3), Meter()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in going():
        batch = torch.randn(512, WIDE, device=DEVICE)
        stepped(model, optimizer, batch)
        meter.update(model(batch).square().mean())
        time.sleep(0.05)
    print(float(meter.value))


@functools.lru_cache(maxsize=None if FAULTY else 8)
def positions(length: int) -> torch.Tensor:
    """A table for each length."""
    return torch.arange(length * 1024, device=DEVICE, dtype=torch.float32).sin()  # here


def cached() -> None:
    """A cache of functools keeps a table for every length that ever came."""
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for number in going():
        batch = torch.randn(256, WIDE, device=DEVICE)
        stepped(model, optimizer, batch * positions(1000 + number)[0])
        time.sleep(0.05)


def holes() -> None:
    """Blocks of growing length leave holes in which nothing fits; the twin gives everything back."""
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(6 * 2**30 / whole)
    blocks: dict[int, torch.Tensor] = {}
    for turn in range(900):
        blocks[turn] = torch.empty((2 + turn % 5) * 2**20, dtype=torch.uint8, device="cuda")
        if turn % 3 and FAULTY:
            blocks[turn + 100_000] = torch.empty(3 * 2**20, dtype=torch.uint8, device="cuda")
    for turn in [each for each in blocks if each < 100_000]:
        del blocks[turn]
    print(len(blocks), torch.empty(2560 * 2**20, dtype=torch.uint8, device="cuda").numel())  # here


def crowded() -> None:
    """Half of the GPU, while another process holds most of it; the twin runs without that process."""
    whole = torch.cuda.get_device_properties(0).total_memory
    parts = [torch.empty(whole // 8, dtype=torch.uint8, device="cuda") for _ in range(4)]  # here
    print(len(parts))


def holder() -> None:
    """The other process of ``crowded``: holds three quarters until its stdin ends."""
    whole = torch.cuda.get_device_properties(0).total_memory
    held = torch.empty(int(whole * 0.75), dtype=torch.uint8, device="cuda")
    print("holding", held.numel(), flush=True)
    sys.stdin.read()


def beside_jax() -> None:
    """JAX makes the inputs and takes three quarters of the GPU for it; the twin's JAX stays on the CPU."""
    if not FAULTY:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy

    inputs = jax.random.normal(jax.random.PRNGKey(0), (256, WIDE))
    batch = torch.from_numpy(numpy.array(inputs)).cuda()
    size = torch.cuda.get_device_properties(0).total_memory // 3
    print(float(batch.sum()), torch.zeros(size // 4, device="cuda").numel())  # here


# --- native code ------------------------------------------------------------------------------------------------------


def extension() -> ctypes.CDLL:
    """The extension, built where this runs."""
    source, folder = HERE / "kernels" / "pooled.cpp", Path(tempfile.gettempdir())
    made = folder / "libpooled.so"
    if not made.exists():
        compiler = shutil.which("nvcc")
        part = folder / f"libpooled-{os.getpid()}.so"
        words = [compiler, "-x", "cu", "-Xcompiler", "-fPIC", "-cudart", "shared"] if compiler else ["g++", "-fPIC"]
        subprocess.run([*words, "-g", "-O0", "-shared", str(source), "-o", str(part)], check=True)
        part.replace(made)
    library = ctypes.CDLL(str(made))
    library.pooled.restype = ctypes.c_float
    return library


def pooled() -> None:
    """A function of the CPU is given a tensor's address on the GPU."""
    rows = torch.ones(4096, device=DEVICE)
    given = rows if FAULTY else rows.cpu()
    address = given.data_ptr() if DEVICE == "cuda" or not FAULTY else 64
    print(extension().pooled(ctypes.c_void_p(address), 4096))  # here


def staged() -> None:
    """A staging buffer was never allocated."""
    rows = torch.ones(1 << 16, dtype=torch.uint8, device=DEVICE).cpu()
    staging = ctypes.c_void_p(None) if FAULTY else ctypes.create_string_buffer(1 << 16)
    extension().staged(staging, ctypes.c_void_p(rows.data_ptr()), ctypes.c_long(1 << 16))  # here


def refused() -> None:
    """An extension throws an exception of C++ through ctypes."""
    rows = torch.ones(100 if FAULTY else 128, device=DEVICE)
    print(extension().refused(rows.numel()))  # here


def flushed() -> None:
    """A thread of the extension writes to counters that are gone."""
    counters = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    kept = counters.cpu()
    address = 0 if FAULTY else kept.data_ptr()
    extension().flushed(ctypes.c_void_p(address), 64)  # here


# --- several tools ----------------------------------------------------------------------------------------------------


def beyond_and_race() -> None:
    """One kernel writes behind its tensor, another misses a barrier."""
    from launching import Kernel

    x, y = torch.ones(1 << 16, device="cuda"), torch.zeros(1 << 16, device="cuda")
    Kernel("several.cu", "sum_tile").launch(256, 256, x, y, 0 if FAULTY else 1)  # here
    Kernel("several.cu", "shift_tail").launch(256, 256, x, y, 1 << 16, 8 if FAULTY else 0)  # here
    torch.cuda.synchronize()


def unset_and_race() -> None:
    """One kernel reads what nobody wrote, another misses a barrier."""
    from launching import Kernel

    x = torch.ones(1 << 16, device="cuda")
    carry = torch.empty(1 << 16, device="cuda") if FAULTY else torch.zeros(1 << 16, device="cuda")
    y = torch.zeros(1 << 16, device="cuda")
    Kernel("several.cu", "add_carry").launch(256, 256, x, carry, 1 << 16)  # here
    Kernel("several.cu", "sum_tile").launch(256, 256, x, y, 0 if FAULTY else 1)  # here
    torch.cuda.synchronize()


# --- kernels, libraries, streams --------------------------------------------------------------------------------------


def _trial(offset: int) -> None:
    from launching import Kernel

    whole, out = torch.ones(1 << 14, device="cuda"), torch.zeros(1 << 14, device="cuda")
    Kernel("several.cu", "load_quads").launch(8, 128, whole[offset:], out, 1000)  # here
    torch.cuda.synchronize()


def forked() -> None:
    """A tuner forks a child for each candidate; one is given a misaligned slice, and the tuner goes on."""
    fork = multiprocessing.get_context("fork")
    for offset in (0, 4, 3 if FAULTY else 8):
        child = fork.Process(target=_trial, args=(offset,))
        child.start()
        child.join()
        print("candidate", offset, child.exitcode, flush=True)


class Mixed(nn.Module):
    """Two inputs and something to fuse."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """The scaled activation."""
        return nn.functional.silu(x * scale) + 1


def packaged() -> None:
    """A package for the GPU is given one input of the CPU."""
    path = Path(os.environ.get("LATER_PACKAGE", tempfile.gettempdir() + "/mixed.pt2"))
    x, scale = torch.ones(64, 64, device="cuda"), torch.ones(64, device="cuda")
    if NAME == "packaged" and not path.exists():
        exported = torch.export.export(Mixed().cuda(), (x, scale))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    loaded = torch._inductor.aoti_load_package(str(path))
    out = loaded(x, scale.cpu() if FAULTY else scale)  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


class Gated(torch.autograd.Function):
    """A function with a kernel of its own in its backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        """Twice."""
        return x * 2

    @staticmethod
    def backward(context: Any, *up: torch.Tensor) -> torch.Tensor:
        """By the kernel."""
        from launching import Kernel

        (given,) = up
        down = torch.empty_like(given)
        kernel = Kernel("several.cu", "grad_rows")
        kernel.launch(given.numel() // 256 + 1, 256, given.contiguous(), down, given.numel(), STRIDE)  # here
        return down


STRIDE = 1 << 12 if FAULTY else 1


def unfrozen() -> None:
    """The part whose backward pass is wrong is frozen at first."""
    first, head = nn.Linear(WIDE, WIDE).cuda(), nn.Linear(WIDE, 8).cuda()
    first.requires_grad_(False)
    for epoch in range(4):
        if epoch == 2:
            first.requires_grad_(True)
        loss = head(Gated.apply(first(torch.randn(512, WIDE, device="cuda")))).square().mean()
        loss.backward()
        print("epoch", epoch, float(loss), flush=True)


class View:
    """Memory that somebody else owns, as large as they say."""

    def __init__(self, owner: torch.Tensor, rows: int, columns: int) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (rows, columns), "typestr": "<i2", "data": (owner.data_ptr(), False), "version": 2,
        }  # fmt: skip


def halves() -> None:
    """A product in bf16 of a matrix whose owner told twenty thousand times its size."""
    owner = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
    rows = 1 << 20 if FAULTY else 64
    wide = torch.as_tensor(View(owner, rows, 4096 if FAULTY else 64), device="cuda").view(torch.bfloat16)
    product = wide @ torch.ones(wide.shape[1], 64, device="cuda", dtype=torch.bfloat16)  # here
    print(float(product.float().sum()))


class Lookup(nn.Module):
    """A table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1000, 64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Their rows, scaled."""
        return self.table[ids].sin() * 2  # here


def compiled() -> None:
    """An index behind the table, in what torch.compile made."""
    model = torch.compile(Lookup().cuda())
    ids = torch.arange(4096, device="cuda") % (1024 if FAULTY else 1000)
    print(float(model(ids).sum()))


def tritoned() -> None:
    """A kernel of Triton stores behind its tensor."""
    import triton
    from later_kernel import rotate

    x = torch.ones(100_003, device="cuda")
    y = torch.zeros_like(x)
    rotate[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1 << 28 if FAULTY else 0, BLOCK=1024)  # here
    torch.cuda.synchronize()
    print(float(y.sum()))


def cupied() -> None:
    """A kernel of CuPy takes columns for rows."""
    import cupy

    source = r"""
    extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
        int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
        if (row >= rows || column >= columns) return;
        y[column * PITCH + row] = x[row * columns + column];
    }
    """
    kernel = cupy.RawKernel(source.replace("PITCH", "columns" if FAULTY else "rows"), "transpose")
    x = cupy.ones((64, 8192), cupy.float32)
    y = cupy.zeros((8192, 64), cupy.float32)
    kernel((512, 4), (16, 16), (x, y, 64, 8192))  # here
    cupy.cuda.Device().synchronize()
    print(float(y.sum()))


def streams() -> None:
    """A tensor is given back while another stream still reads it."""
    side = torch.cuda.Stream()
    wrong = 0
    for _ in range(40):
        torch.cuda.synchronize()
        data = torch.ones(1 << 24, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(4_000_000)
            total = data.sum()  # here
        if not FAULTY:
            data.record_stream(side)
        del data
        torch.zeros(1 << 24, device="cuda").fill_(7)
        torch.cuda.synchronize()
        wrong += int(float(total) != 1 << 24)
    assert not wrong, f"{wrong} sums are wrong"


def pinned() -> None:
    """A pinned buffer is filled anew while it is still copied."""
    buffer = torch.empty(1 << 24, pin_memory=True)
    wrong = 0
    for number in range(20):
        buffer.fill_(number)
        torch.cuda._sleep(4_000_000)
        there = buffer.to("cuda", non_blocking=True)  # here
        if not FAULTY:
            torch.cuda.synchronize()
        buffer.fill_(-1)
        wrong += int(float(there.max()) != number or float(there.min()) != number)
    assert not wrong, f"{wrong} batches are wrong"


def numbaed() -> None:
    """A kernel of numba without a guard."""
    import numpy
    from numba import cuda

    @cuda.jit(lineinfo=True)
    def doubled(x: Any, y: Any, far: Any) -> None:
        at = cuda.grid(1)
        y[at + far] = x[at] * 2

    x = cuda.to_device(numpy.ones(1 << 16, numpy.float32))
    y = cuda.device_array_like(x)
    doubled[256, 256](x, y, 1 << 28 if FAULTY else 0)  # here
    cuda.synchronize()
    print(float(y.copy_to_host().sum()))


def overflow() -> None:
    """The product of a row and a width does not fit in 32 bits."""
    from launching import Kernel

    rows, columns = (3000, 1 << 20) if FAULTY else (300, 1 << 10)
    x, out = torch.zeros(rows, columns, device="cuda"), torch.zeros(rows, 32, device="cuda")
    Kernel("several.cu", "copy_rows").launch(rows, 32, x, out, rows, columns)  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


def launched() -> None:
    """A block of more threads than any GPU has."""
    import cupy

    source = 'extern "C" __global__ void scale(float* x) { x[threadIdx.y * blockDim.x + threadIdx.x] *= 2; }'
    kernel = cupy.RawKernel(source, "scale")
    x = cupy.ones(4096, cupy.float32)
    kernel((1,), (64, 64) if FAULTY else (32, 32), (x,))  # here
    cupy.cuda.Device().synchronize()
    print(float(x.sum()))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.path.insert(0, str(HERE.parent.parent))
    globals()[NAME]()
    print("done")
