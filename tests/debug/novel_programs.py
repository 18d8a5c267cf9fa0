"""Ten programs with a planted fault that were written and labelled before they met `envkit debug`, and their twins.

``python novel_programs.py NAME fault|clean`` on a machine with a GPU; the line that is to be named bears ``# here``, a
kernel's its own mark in ``novel_kernel.py``.  ``LABELS`` holds what the cause must say.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAME, KIND = [*sys.argv[1:3], "", ""][:2]
FAULTY = KIND == "fault"
HERE = Path(__file__).resolve().parent
WIDE = 1024

# By program: the words that the cause must hold (one of each group), and the mark of its kernel if it has one.
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = {
    "refilled": ((("stream", "order", "wait"),), ""),
    "bounded": ((("launch",), ("thread", "resources", "invalid")), ""),
    "wrapped": ((("sum_rows",), ("out of bounds",)), "wrapped"),
    "workspace": ((("stream", "order", "wait"),), ""),
    "halved": ((("nan", "NaN", "not finite", "inf"),), ""),
    "thawed": ((("scale_all",), ("out of bounds", "freed")), "let go"),
    "forked": ((("fork",),), ""),
    "compiled": ((("out of bounds", "assert"),), ""),
    "custom": ((("not on the device", "different devices"),), ""),
    "dangling": ((("SIGSEGV",), ("memset",)), ""),
}


def refilled() -> None:
    """A pinned buffer is filled with the next batch while the copy of the last is still to come."""
    buffer = torch.empty(1 << 24, pin_memory=True)
    side, copied = torch.cuda.Stream(), torch.cuda.Event()
    batches = [torch.empty(1 << 24, device="cuda") for _ in range(6)]
    torch.cuda.synchronize()
    for number, batch in enumerate(batches):
        buffer.fill_(float(number))  # here
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            batch.copy_(buffer, non_blocking=True)
            copied.record()
        if not FAULTY:
            copied.synchronize()
    torch.cuda.synchronize()
    for number, batch in enumerate(batches):
        assert float(batch.mean()) == number, f"batch {number} differs from what was loaded: {float(batch.mean())}"


BOUNDED = """
extern "C" __global__ void __launch_bounds__(256) tile(float* out, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at] = 1.0f;
}
"""


def bounded() -> None:
    """A kernel is launched with more threads than it was compiled for."""
    tile = torch.cuda._compile_kernel(BOUNDED, "tile")
    out = torch.zeros(1 << 16, device="cuda")
    threads = 1024 if FAULTY else 256
    tile(grid=(out.numel() // threads, 1, 1), block=(threads, 1, 1), args=(out, out.numel()))  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


def wrapped() -> None:
    """The offset of a row passes 2**31."""
    from novel_kernel import sum_rows

    rows, columns = (70_000, 40_000) if FAULTY else (2_000, 40_000)
    x = torch.zeros(rows, columns, dtype=torch.int8, device="cuda")
    sums = torch.zeros(rows, dtype=torch.int32, device="cuda")
    sum_rows[(rows,)](x, sums, columns, BLOCK=65536)  # here
    torch.cuda.synchronize()
    print(int(sums.sum()))


class Handle:
    """A handle of cuBLAS with a workspace of its own."""

    def __init__(self, workspace: torch.Tensor) -> None:
        self.library = ctypes.CDLL("libcublas.so.13")
        self.handle = ctypes.c_void_p()
        assert self.library.cublasCreate_v2(ctypes.byref(self.handle)) == 0
        self.workspace = workspace

    def product(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """``out`` becomes left^T right, in column-major order, on a stream."""
        deep, wide = left.shape
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        spot = ctypes.c_void_p(self.workspace.data_ptr())
        self.library.cublasSetStream_v2(self.handle, ctypes.c_void_p(stream.cuda_stream))
        self.library.cublasSetWorkspace_v2(self.handle, spot, ctypes.c_size_t(self.workspace.numel()))  # here
        at = [ctypes.c_void_p(each.data_ptr()) for each in (left, right, out)]
        code = self.library.cublasSgemm_v2(
            self.handle, 0, 1, wide, wide, deep, ctypes.byref(one), at[0], wide, at[1], wide, ctypes.byref(zero),
            at[2], wide,
        )  # fmt: skip
        assert code == 0, code


def workspace() -> None:
    """Two streams multiply with one workspace."""
    spaces = [torch.zeros(32 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
    handles = [Handle(spaces[0]), Handle(spaces[0 if FAULTY else 1])]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    left = [torch.full((1 << 20, 64), number + 1.0, device="cuda") for number in range(2)]
    right = torch.ones(1 << 20, 64, device="cuda")
    outs = [torch.zeros(40, 64, 64, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    for turn in range(40):
        for number in range(2):
            handles[number].product(left[number], right, outs[number][turn], streams[number])
    torch.cuda.synchronize()
    for number in range(2):
        wrong = int((outs[number] != float((number + 1) << 20)).sum())
        assert wrong == 0, f"the products of stream {number} are wrong: {wrong} elements differ"


def halved() -> None:
    """A norm is summed in half precision, which ends at 65504."""
    model = nn.Linear(WIDE, WIDE).cuda().half()
    x = torch.full((64, WIDE), 20.0, device="cuda", dtype=torch.float16)
    for step in range(3):
        out = x if FAULTY else x / 20
        norm = (out * out).sum(1, keepdim=True)  # here
        normed = out / norm * norm
        loss = model(normed).float().square().mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(f"loss is {float(loss)} in step {step}")
        loss.backward()
    print(float(loss))


class Fused:
    """An optimizer's helper that knows gradients by their addresses."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self.flat = torch.zeros(len(weights), 1 << 20, device="cuda")
        for row, weight in zip(self.flat, weights, strict=True):
            weight.grad = row.view_as(weight)
        self.table = torch.tensor([row.data_ptr() for row in self.flat], device="cuda")

    def scale(self) -> None:
        """Halves all gradients."""
        from novel_kernel import scale_all

        scale_all[(len(self.table),)](self.table, 1 << 20, 0.5, BLOCK=1024)  # here


def thawed() -> None:
    """While a part is frozen its gradients are given back; unfrozen, they are scaled where they were."""
    layers = [nn.Linear(WIDE, WIDE, bias=False).cuda() for _ in range(32)]
    weights = [layer.weight for layer in layers]
    fused = Fused(weights)
    for epoch in range(3):
        frozen = epoch == 1
        for weight in weights:
            weight.requires_grad_(not frozen)
        if frozen and FAULTY:
            for weight in weights:
                weight.grad = None
            del fused.flat
            torch.cuda.empty_cache()
        if not frozen:
            out = torch.ones(8, WIDE, device="cuda")
            for layer in layers:
                out = layer(out)
            out.square().mean().backward()
            fused.scale()
        torch.cuda.synchronize()
        print("epoch", epoch, flush=True)


class Moved(Dataset[torch.Tensor]):
    """Examples that come on the GPU."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> torch.Tensor:
        example = torch.full((WIDE,), float(at))
        return example.cuda() if FAULTY else example  # here


def forked() -> None:
    """The workers of a loader are forked from a process that uses CUDA, and use it."""
    model = nn.Linear(WIDE, WIDE).cuda()
    loader = DataLoader(Moved(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for batch in loader:
        model(batch.cuda()).sum().backward()
    print("loaded")


class Tagger(nn.Module):
    """A table and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)
        self.layer = nn.Linear(64, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The tags."""
        return torch.relu(self.layer(self.table(tokens) * 2.0)).sum(-1)


def compiled() -> None:
    """A compiled model is given a token that its table does not have."""
    model = torch.compile(Tagger().cuda())
    tokens = torch.arange(512, device="cuda") % 1000
    for step in range(4):
        if FAULTY and step == 3:
            tokens = tokens + 900
        out = model(tokens)  # here
        print(step, float(out.sum()), flush=True)


class Weighed(torch.autograd.Function):
    """A product with weights that are kept for the way back."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The product."""
        context.kept = weights.cpu() if FAULTY else weights
        return x * weights

    @staticmethod
    def backward(context: Any, *up: torch.Tensor) -> Any:
        """The gradient of the first alone."""
        return up[0] * context.kept, None  # here


def custom() -> None:
    """A function of the program's own keeps what its backward needs on the CPU."""
    layer = nn.Linear(WIDE, WIDE).cuda()
    weights = torch.rand(WIDE, device="cuda")
    for _ in range(3):
        Weighed.apply(layer(torch.ones(8, WIDE, device="cuda")), weights).sum().backward()
    print("done with", float(layer.weight.grad.sum()))  # type: ignore[union-attr]


def dangling() -> None:
    """The C library is given the address of a staging buffer that was let go."""
    staging = torch.empty(1 << 26, pin_memory=True)
    where, size = staging.data_ptr(), staging.numel()
    ready = staging.cuda(non_blocking=True)
    torch.cuda.synchronize()
    if FAULTY:
        del staging
        torch._C._host_emptyCache()
    ctypes.CDLL(None).memset(ctypes.c_void_p(where), 0, ctypes.c_size_t(size))  # here
    print(float(ready.sum()) * 0)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    globals()[NAME]()
    print("done", flush=True)
