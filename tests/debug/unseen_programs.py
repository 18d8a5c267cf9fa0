"""Programs with a planted fault that were written before anybody looked at the rules that judge them, and twins.

``python unseen_programs.py NAME fault|clean`` on a machine with a GPU; the line that is to be named bears ``# here``.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAME, FAULTY = sys.argv[1], sys.argv[2] == "fault"
WIDE = 2048
STARTED = time.monotonic()


def net(depth: int = 4) -> nn.Sequential:
    """A few layers on the GPU."""
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(WIDE, WIDE), nn.GELU())]).cuda()


def steps(seconds: float = 9.0) -> Any:
    """Numbers of steps until the time is over."""
    number = 0
    while time.monotonic() - STARTED < seconds + 6 or number < 60:
        number += 1
        yield number


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    """One step."""
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss


# --- memory -----------------------------------------------------------------------------------------------------------


def features() -> None:
    """Features of each step are kept by its number."""
    model, seen = net(), {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for number in steps():
        batch = torch.randn(256, WIDE, device="cuda")
        train(model, optimizer, batch)
        with torch.no_grad():
            seen[number if FAULTY else number % 4] = model[:4](batch)  # here
        time.sleep(0.04)


def hooks() -> None:
    """A hook keeps the outputs of a layer, with their graphs."""
    model = net()
    kept: Any = [] if FAULTY else deque(maxlen=3)

    def keep(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        kept.append(output if FAULTY else output.detach().mean())  # here

    model[2].register_forward_hook(keep)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in steps():
        train(model, optimizer, torch.randn(256, WIDE, device="cuda"))
        time.sleep(0.04)


def errors() -> None:
    """Exceptions that are kept keep the frames in which they were raised."""
    model, failed = net(), []
    for _ in steps():
        try:
            _checked(model, torch.randn(512, WIDE, device="cuda"))
        except ValueError as error:
            failed.append(error)
        time.sleep(0.04)


def _checked(model: nn.Module, batch: torch.Tensor) -> None:
    hidden = model(batch)  # here
    raise ValueError(f"the norm is {float(hidden.norm()):.3f}")


def evaluation() -> None:
    """An evaluation collects outputs on the GPU with their graphs."""
    model, outputs = net(), []
    for _ in steps():
        batch = torch.randn(256, WIDE, device="cuda")
        if FAULTY:
            outputs.append(model(batch))  # here
        else:
            with torch.no_grad():
                outputs.append(model(batch).mean(dim=1).cpu())
        time.sleep(0.04)


def optimizers() -> None:
    """Each phase of a schedule gets an optimizer, and those before stay with their states."""
    model, phases = net(), []
    for number in steps():
        if number % 8 == 1:
            phases.append(torch.optim.Adam(model.parameters(), lr=1e-4))
        train(model, phases[-1], torch.randn(64, WIDE, device="cuda"))  # here
        time.sleep(0.04)


# --- time -------------------------------------------------------------------------------------------------------------


class Items(Dataset[torch.Tensor]):
    """Items that are there at once."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(WIDE)


def _augmented(items: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.stack(items)
    if FAULTY:
        for _ in range(12):
            batch = torch.fft.ifft(torch.fft.fft(batch)).real.contiguous()  # here
    return batch


def collate() -> None:
    """Batches are made ready by the process that trains."""
    torch.set_num_threads(1)
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Items(), batch_size=128, collate_fn=_augmented, num_workers=0 if FAULTY else 4)
    for _, batch in zip(steps(), loader, strict=False):
        big = batch.cuda(non_blocking=True).repeat(32, 1)
        for _ in range(3):
            train(model, optimizer, big)


def emptied() -> None:
    """The allocator's cache is emptied in each step."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(1024, WIDE, device="cuda")
    for _ in steps():
        train(model, optimizer, batch)
        if FAULTY:
            torch.cuda.empty_cache()  # here


def metrics() -> None:
    """Outputs go to the CPU in each step for a metric."""
    model, seen = net(), 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(8192, WIDE, device="cuda")
    for number in steps():
        train(model, optimizer, batch)
        if FAULTY or number % 200 == 0:
            seen += float(model(batch).detach().cpu().numpy().std())  # here


def samples() -> None:
    """A loop over the samples of a batch, each by itself."""
    model = net(2)
    batch = torch.randn(256, WIDE, device="cuda")
    for _ in steps():
        with torch.no_grad():
            rows = [model(row) for row in batch]  # here
        torch.stack(rows)


def saves() -> None:
    """Each step writes a checkpoint."""
    model = net(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(256, WIDE, device="cuda")
    for _ in steps():
        train(model, optimizer, batch)
        torch.save(model.state_dict(), "/tmp/last.pt")  # here


# --- kernels, devices, libraries --------------------------------------------------------------------------------------


def raw() -> None:
    """A kernel that CuPy compiles at run time, with one block too many."""
    import cupy

    code = 'extern "C" __global__ void shifted(const float* x, float* y, int n) {\n'
    code += "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    code += "    y[i] = x[i] + 1.0f;\n}\n" if FAULTY else "    if (i < n) y[i] = x[i] + 1.0f;\n}\n"
    shifted = cupy.RawKernel(code, "shifted", options=("-lineinfo",))
    x = cupy.ones(1 << 16, cupy.float32)
    y = cupy.empty_like(x)
    shifted((x.size // 256 + 64,), (256,), (x, y, x.size))  # here
    cupy.cuda.Device().synchronize()
    print(float(y.sum()))


def jitted() -> None:
    """A kernel that numba compiles at run time, with an index behind the end."""
    import numpy
    from numba import cuda

    @cuda.jit(debug=False, lineinfo=True)
    def halved(x: Any, y: Any) -> None:
        i = cuda.grid(1)
        y[i + 100_000_000] = x[i % x.size] / 2

    x = cuda.to_device(numpy.ones(1 << 16, numpy.float32))
    y = cuda.device_array_like(x)
    halved[256, 256](x, y)  # here
    cuda.synchronize()


def masked() -> None:
    """A kernel of Triton whose store has no mask."""
    import triton
    from unseen_kernel import scaled

    x = torch.ones(100_003, device="cuda")
    y = torch.empty_like(x)
    beyond = 1 << 30 if FAULTY else 0
    scaled[(triton.cdiv(x.numel() + beyond // 256, 1024),)](x, y, x.numel(), BEYOND=beyond, BLOCK=1024)  # here
    torch.cuda.synchronize()
    print(float(y.sum()))


class Windowed(nn.Module):
    """A layer whose window is a plain attribute, which .cuda() does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDE, WIDE)
        self.window = torch.hann_window(WIDE)  # made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The windowed product."""
        return self.layer(x) * self.window  # here


def windowed() -> None:
    """A tensor that stayed on the CPU."""
    model = Windowed().cuda()
    print(float(model(torch.randn(8, WIDE, device="cuda")).sum()))


def blas() -> None:
    """cuBLAS is given a matrix that is smaller than what it is to read."""
    import cupy
    from cupy_backends.cuda.libs import cublas

    size = 1024
    a = cupy.ones((size, size) if not FAULTY else (size // 4, size // 4), cupy.float32)
    b, c = cupy.ones((size, size), cupy.float32), cupy.zeros((size, size), cupy.float32)
    one, zero = torch.ones(1).numpy(), torch.zeros(1).numpy()
    handle = cupy.cuda.device.get_cublas_handle()
    cublas.sgemm(  # here
        handle, 0, 0, size, size, size, one.ctypes.data, a.data.ptr, size, b.data.ptr, size, zero.ctypes.data,
        c.data.ptr, size,
    )  # fmt: skip
    cupy.cuda.Device().synchronize()
    print(float(c.sum()))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    globals()[NAME]()
