"""Seventeen programs with a planted fault that users meet every day, written and labelled before they met
`envkit debug`, and their twins.

``python common_programs.py NAME fault|clean`` on a machine with a GPU (``threaded`` and ``uneven`` want two); the line
that is to be named bears ``# here``, a kernel's its own mark in ``common_kernel.py``.  ``LABELS`` holds what the cause
must say.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

if sys.argv[1:2] == ["pooled"]:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"

import torch
from torch import nn

NAME, KIND = [*sys.argv[1:3], "", ""][:2]
FAULTY = KIND == "fault"
HERE = Path(__file__).resolve().parent
WIDE = 512

# By program: the words that the cause must hold (one of each group), and the mark of its kernel if it has one.
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = {
    "fused": ((("add_bias",), ("out of bounds",)), "widened"),
    "narrow": ((("dtype", "data type"), ("AOTInductor", "input")), ""),
    "early": ((("stream", "order", "wait"),), ""),
    "pooled": ((("shift_rows",), ("out of bounds",)), "shifted"),
    "leading": ((("cublasGemmEx", "CUBLAS_STATUS_INVALID_VALUE"),), ""),
    "blanked": ((("nan", "NaN", "not finite"),), ""),
    "handed": ((("process", "producer", "sender"),), ""),
    "inplaced": ((("inplace", "in place", "in-place"),), ""),
    "overwritten": ((("overwritten",),), ""),
    "refed": ((("out of bounds", "freed"),), ""),
    "hosted": ((("cpu", "CPU"),), ""),
    "tiled": ((("shared memory",),), ""),
    "arched": ((("no kernel image", "architecture", "sm_90"),), ""),
    "attended": ((("attention", "kernel"),), ""),
    "spinning": ((("hung", "hangs", "waits"), ("spin",)), ""),
    "threaded": ((("cuda:0",), ("cuda:1",)), ""),
    "uneven": ((("rank 1",),), ""),
}


def net() -> nn.Sequential:
    """A few layers."""
    return nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE)).cuda()


class Biased(nn.Module):
    """A layer whose bias is added by a kernel of the program's own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDE, WIDE, bias=False)
        self.bias = nn.Parameter(torch.randn(WIDE))
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the layer gives, with the bias."""
        from common_kernel import add_bias

        x = self.layer(x)
        out = torch.empty_like(x)
        blocks = (x.numel() + 1023) // 1024
        torch.library.wrap_triton(add_bias)[(blocks,)](x, self.bias, out, x.numel(), self.width, BLOCK=1024)  # here
        return torch.relu(out)


def fused() -> None:
    """A compiled model calls a Triton kernel with a width that its bias does not have."""
    model = torch.compile(Biased(WIDE * 4096 if FAULTY else WIDE).cuda())
    with torch.no_grad():
        for step in range(3):
            print(step, float(model(torch.randn(8192, WIDE, device="cuda")).sum()), flush=True)


class Gate(nn.Module):
    """What is exported."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One gated by the other."""
        return torch.sigmoid(x) * y + 1.0


def narrow() -> None:
    """A package that was made for float32 is given float16."""
    path = Path(tempfile.gettempdir()) / "common-gate.pt2"
    x, y = torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")
    if not path.exists():
        exported = torch.export.export(Gate().cuda(), (x, y))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    loaded = torch._inductor.aoti_load_package(str(path))
    given = [each.half() if FAULTY else each for each in (x, y)]
    out = loaded(*given)  # here
    torch.testing.assert_close(out.float(), Gate()(x, y), rtol=1e-3, atol=1e-3)


def early() -> None:
    """A result is read on the CPU before its copy is done."""
    x = torch.ones(1 << 25, device="cuda")
    torch.cuda.synchronize()
    for step in range(8):
        torch.cuda._sleep(20_000_000)
        x.mul_(2.0)
        copied = x.to("cpu", non_blocking=True)  # here
        if not FAULTY:
            torch.cuda.synchronize()
        mean = float(copied.mean())
        assert mean == 2.0 ** (step + 1), f"step {step}: the mean is {mean}"


def pooled() -> None:
    """A kernel reads beyond the end of its tensor, under the driver's own allocator of memory."""
    from common_kernel import shift_rows

    count = 1 << 20
    x, out = torch.ones(count, device="cuda"), torch.zeros(count, device="cuda")
    by = (1 << 26) if FAULTY else 0
    shift_rows[(count // 1024,)](x, out, count, by, BLOCK=1024)  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


class Blas:
    """cuBLAS, as an extension calls it."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcublas.so.13")
        self.handle = ctypes.c_void_p()
        assert self.library.cublasCreate_v2(ctypes.byref(self.handle)) == 0

    def product(self, left: torch.Tensor, right: torch.Tensor, leading: int) -> torch.Tensor:
        """left right^T in bfloat16, both in row-major order."""
        rows, deep = left.shape
        columns = right.shape[0]
        out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        at = [ctypes.c_void_p(each.data_ptr()) for each in (right, left, out)]
        code = self.library.cublasGemmEx(
            self.handle, 1, 0, columns, rows, deep, ctypes.byref(one), at[0], 14, leading, at[1], 14, deep,
            ctypes.byref(zero), at[2], 14, columns, 68, -1,
        )  # fmt: skip
        if code:
            names = {7: "CUBLAS_STATUS_INVALID_VALUE", 13: "CUBLAS_STATUS_EXECUTION_FAILED"}
            raise RuntimeError(f"CUDA error: {names.get(code, code)} when calling `cublasGemmEx`")
        return out


def leading() -> None:
    """A product in bfloat16 is given the rows of a matrix for the distance between them."""
    blas = Blas()
    left = torch.randn(96, 1024, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        out = blas.product(left, right, 64 if FAULTY else 1024)  # here
    torch.testing.assert_close(out, left @ right.T)


def blanked() -> None:
    """A row of an attention mask hides everything."""
    layers = [net() for _ in range(3)]
    x = torch.randn(16, WIDE, device="cuda")
    lengths = torch.full((16,), 16, device="cuda")
    lengths[5] = 0 if FAULTY else 3
    hidden = torch.arange(16, device="cuda")[None, :] >= lengths[:, None]
    for layer in layers:
        x = layer(x)
        scores = (x @ x.T).masked_fill(hidden, float("-inf"))
        x = torch.softmax(scores, -1) @ x  # here
    loss = layers[0](x).square().mean()
    if not torch.isfinite(loss):
        raise FloatingPointError(f"the loss is {float(loss)}")
    loss.backward()


def _sends(queue: Any, done: Any) -> None:
    tensor = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    queue.put(tensor)  # here
    if not FAULTY:
        done.wait()


def handed() -> None:
    """A process hands a tensor of the GPU over and ends before it is taken."""
    context = torch.multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    sender = context.Process(target=_sends, args=(queue, done))
    torch.ones(1, device="cuda")
    sender.start()
    if FAULTY:
        sender.join()
    tensor = queue.get(timeout=60)  # here
    print(float(tensor.sum()), flush=True)
    del tensor
    done.set()
    sender.join()


def inplaced() -> None:
    """What a layer keeps for its backward is changed in place."""
    first, second = nn.Linear(WIDE, WIDE).cuda(), nn.Linear(WIDE, 8).cuda()
    for _ in range(2):
        hidden = torch.sigmoid(first(torch.randn(32, WIDE, device="cuda")))
        out = second(hidden)
        if FAULTY:
            hidden.mul_(0.5)  # here
        (out.square().mean() + hidden.mean()).backward()


def overwritten() -> None:
    """What a compiled model gave is used after it was called again."""
    model = torch.compile(net().eval(), mode="reduce-overhead")
    kept: list[torch.Tensor] = []
    with torch.no_grad():
        for step in range(6):
            out = model(torch.full((32, WIDE), float(step), device="cuda"))
            kept.append(out if FAULTY else out.clone())
        print([float(each.sum()) for each in kept])  # here


def refed() -> None:
    """A graph is replayed after its input was replaced and let go."""
    model = net()
    batch = torch.randn(1 << 15, WIDE, device="cuda")
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(batch).sum()
        for step in range(3):
            given = torch.full((1 << 15, WIDE), float(step), device="cuda")
            if FAULTY:
                batch = given
                torch.cuda.empty_cache()
            else:
                batch.copy_(given)
            graph.replay()  # here
            print(step, float(out), flush=True)


def hosted() -> None:
    """A Triton kernel is given a tensor of the CPU."""
    from common_kernel import scaled

    x, out = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")
    factors = torch.ones(4096)
    scaled[(4,)](x, out, 4096, 2.0, BLOCK=1024)
    scaled[(4,)](factors if FAULTY else factors.cuda(), out, 4096, 2.0, BLOCK=1024)  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


def tiled() -> None:
    """A kernel asks for more shared memory than a multiprocessor has."""
    from common_kernel import tiles

    block = 128 if FAULTY else 32
    x, y = (torch.ones(4, block, block, device="cuda") for _ in range(2))
    out = torch.zeros(block, block, device="cuda")
    tiles[(1,)](x, y, out, 4, BLOCK=block, num_stages=4)  # here
    torch.cuda.synchronize()
    print(float(out.sum()))


ARCHED = """
__global__ void doubled(float *x, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[at] *= 2.0f;
}
extern "C" void run_doubled(float *x, int count) { doubled<<<(count + 255) / 256, 256>>>(x, count); }
"""


def arched() -> None:
    """An extension was compiled for another GPU."""
    made = Path(tempfile.gettempdir()) / f"libarched-{KIND}.so"
    if not made.exists():
        source = made.with_name(f"arched-{os.getpid()}.cu")
        part = made.with_name(f"libarched-{os.getpid()}.so")
        source.write_text(ARCHED)
        words = [shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-Xcompiler", "-fPIC", "-cudart", "shared"]
        words += ["-gencode", "arch=compute_100,code=sm_100" if FAULTY else "arch=compute_90,code=sm_90"]
        subprocess.run([*words, "-shared", str(source), "-o", str(part)], check=True)
        part.replace(made)
    x = torch.ones(4096, device="cuda")
    ctypes.CDLL(str(made)).run_doubled(ctypes.c_void_p(x.data_ptr()), 4096)  # here
    torch.cuda.synchronize()
    assert float((x * 1.0).sum()) == 8192.0, "the sum differs"


def attended() -> None:
    """Attention is told to use a kernel that does not know its numbers."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = torch.float32 if FAULTY else torch.float16
    query = torch.randn(2, 4, 64, 64, device="cuda", dtype=kind)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = nn.functional.scaled_dot_product_attention(query, query, query)  # here
    print(float(out.float().sum()))


SPIN = """
extern "C" __global__ void spin(const int* flag, float* out)
{
    while (*(volatile const int*)flag == 0) { }
    out[threadIdx.x] = 1.0f;
}
"""


def spinning() -> None:
    """A kernel waits for a flag that nobody sets."""
    spin = torch.cuda._compile_kernel(SPIN, "spin")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(32, device="cuda")
    if not FAULTY:
        flag.fill_(1)
    spin(grid=(1, 1, 1), block=(32, 1, 1), args=(flag, out))
    print(float(out.sum()), flush=True)  # here


def threaded() -> None:
    """A thread works on the first GPU, as the device is a thread's own."""
    torch.cuda.set_device(1)
    model = nn.Linear(WIDE, WIDE).to("cuda")
    failed: list[BaseException] = []

    def works() -> None:
        if not FAULTY:
            torch.cuda.set_device(1)
        batch = torch.randn(8, WIDE, device="cuda")
        try:
            print(float(model(batch).sum()), flush=True)  # here
        except RuntimeError as error:
            failed.append(error)

    worker = threading.Thread(target=works)
    worker.start()
    worker.join()
    if failed:
        raise failed[0]


def uneven() -> None:
    """Two ranks of a sharded model have another number of batches (under torchrun)."""
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4 - (rank if FAULTY else 0)):
        model(torch.randn(8, WIDE, device="cuda")).square().mean().backward()  # here
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    print("rank", rank, "has no more batches", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    globals()[NAME]()
    print("done", flush=True)
