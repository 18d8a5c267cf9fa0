"""Programs with a planted fault for the rungs of `envkit debug --image`, labelled before they ran in any container, and
their twins.

``python boxed_programs.py NAME fault|clean``, on the GPU where there is one and else on the CPU (``bounded``,
``refused``, ``early``, ``spinning`` and ``fetching`` want one); the line that is to be named bears ``# here``.
``LABELS`` holds what the cause must say: of each group of words one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn

NAME, KIND = [*sys.argv[1:3], "", ""][:2]
FAULTY = KIND == "fault"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

LABELS: dict[str, tuple[tuple[str, ...], ...]] = {
    "logged": (("first nan", "nan first"), ("log", "mul", "loss")),
    "rooted": (("infinite", "inf"), ("div", "reciprocal", "truediv")),
    "replaced": (("changed in place",),),
    "bounded": (("add_offsets",), ("out of bounds", "beyond")),
    "refused": (("no kernel image",), ("next", "later", "earlier")),
    "asserted": (("index", "assert"),),
    "mixed": (("cpu", "CPU"),),
    "early": (("stream", "order", "wait"),),
    "spinning": (("spin",),),
    "waiting": (("wait", "hung", "hangs"),),
    "crashed": (("SIGSEGV",), ("scatter",)),
    "fetching": (("waits", "GPU", "nothing to do"),),
    "loading": (("batch", "loader"),),
    "typed": (("number type", "dtype"), ("AOTInductor", "package")),
    "shaped": (("another shape", "dim"), ("AOTInductor", "package")),
    "strided": (("strides",), ("AOTInductor", "package")),
    "hosted": (("another device", "cpu"), ("AOTInductor", "package")),
}


def logged() -> None:
    """The entropy of a policy whose probability of an action is zero."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        chance = torch.softmax(model(torch.randn(16, 8, device=DEVICE)), -1)
        if step == 2:
            kept = chance > (0.25 if FAULTY else 0.0)
            chance = chance * kept
        entropy = chance * torch.log(chance)  # here
        loss = entropy.sum(-1).mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of step {step} is {float(loss)}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rooted() -> None:
    """A batch whose features do not vary is scaled by their deviation."""
    x = torch.randn(32, 8, device=DEVICE)
    if FAULTY:
        x[:, 3] = 1.0
    scaled = (x - x.mean(0) + 1.0) / x.std(0)  # here
    out = nn.Linear(8, 2).to(DEVICE)(scaled)
    if not torch.isfinite(out).all():
        raise ValueError("activations are not finite")


def replaced() -> None:
    """What an activation keeps for its backward is normalized in place."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh()).to(DEVICE)
    for _ in range(2):
        hidden = model(torch.randn(4, 16, device=DEVICE))
        if FAULTY:
            hidden /= 2.0  # here
        hidden.square().sum().backward()


KERNELS = """
__global__ void add_offsets(float *x, const int *offsets, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[offsets[at]] += 1.0f;
}
__global__ void doubled(float *x, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[at] *= 2.0f;
}
extern "C" void run_offsets(float *x, const int *offsets, int count) {
    add_offsets<<<(count + 255) / 256, 256>>>(x, offsets, count);
}
extern "C" void run_doubled(float *x, int count) { doubled<<<(count + 255) / 256, 256>>>(x, count); }
"""


def extension(arch: str) -> ctypes.CDLL:
    """The kernels above as an extension for one architecture, compiled once by nvcc."""
    made = Path(tempfile.gettempdir()) / f"libboxed-{arch}.so"
    if not made.exists():
        source = made.with_name(f"boxed-{arch}-{os.getpid()}.cu")
        part = made.with_name(f"libboxed-{os.getpid()}.so")
        source.write_text(KERNELS)
        words = [shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-Xcompiler", "-fPIC", "-cudart", "shared"]
        words += ["-lineinfo", "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-shared", str(source)]
        subprocess.run([*words, "-o", str(part)], check=True)
        part.replace(made)
    return ctypes.CDLL(str(made))


def pointer(x: torch.Tensor) -> ctypes.c_void_p:
    """Where a tensor's numbers lie."""
    return ctypes.c_void_p(x.data_ptr())


def bounded() -> None:
    """A kernel of an extension follows offsets beyond its tensor."""
    own = extension("90")
    count = 4096
    x = torch.zeros(count, device="cuda")
    offsets = torch.arange(count, dtype=torch.int32, device="cuda")
    if FAULTY:
        offsets[7] = 1 << 28
    own.run_offsets(pointer(x), pointer(offsets), count)  # here
    torch.cuda.synchronize()
    print(float(x.sum()))


def refused() -> None:
    """An extension is compiled for another GPU, and does not look at what its launch answers."""
    own = extension("100" if FAULTY else "90")
    x = torch.ones(4096, device="cuda")
    own.run_doubled(pointer(x), 4096)  # here
    y = x + 1.0
    torch.cuda.synchronize()
    print(float(y.sum()))


def asserted() -> None:
    """A token lies beyond the table."""
    table = nn.Embedding(100, 16).to(DEVICE)
    tokens = torch.tensor([1, 2, 100 if FAULTY else 99], device=DEVICE)
    out = table(tokens)  # here
    print(float(out.sum()))


def mixed() -> None:
    """A mask was left on the CPU."""
    x = torch.randn(64, 64, device=DEVICE)
    keep = torch.ones(64, 64)  # here
    if not FAULTY:
        keep = keep.to(DEVICE)
    print(float((x @ keep).sum()))


def early() -> None:
    """Results are read on the CPU while their copies are on their way."""
    x = torch.ones(1 << 24, device="cuda")
    kept = torch.empty(1 << 24, pin_memory=True)
    torch.cuda.synchronize()
    for step in range(6):
        torch.cuda._sleep(20_000_000)
        x.mul_(2.0)
        kept.copy_(x, non_blocking=True)  # here
        if not FAULTY:
            torch.cuda.synchronize()
        seen = float(kept.mean())
        if seen != 2.0 ** (step + 1):
            raise ValueError(f"wrong mean in step {step}: {seen}")


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


def waiting() -> None:
    """A worker waits for an event that nobody sets, and the main thread for the worker."""
    event = threading.Event()
    torch.ones(4, device=DEVICE).sum()
    if not FAULTY:
        event.set()
    worker = threading.Thread(target=event.wait)
    worker.start()
    worker.join()  # here


SCATTER = """
extern "C" void scatter(float *to, const long *where, long count) {
    for (long at = 0; at < count; at++) to[where[at]] = 1.0f;
}
"""


def crashed() -> None:
    """Code of C++ writes where nothing is."""
    source = Path(tempfile.gettempdir()) / "boxed-scatter.cpp"
    made = source.with_suffix(".so")
    if not made.exists():
        source.write_text(SCATTER)
        subprocess.run(["g++", "-g", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    to, where = torch.zeros(8), torch.arange(8)
    if FAULTY:
        where[5] = 1 << 40
    ctypes.CDLL(str(made)).scatter(pointer(to), pointer(where), ctypes.c_long(8))  # here
    print(float(to.sum()))


def fetching() -> None:
    """Each step asks the GPU for numbers one by one."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x = torch.randn(256, 1024, device="cuda")
    end = time.monotonic() + 12.0
    while time.monotonic() < end:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if FAULTY:
            worst = max(each.item() for each in model[0].bias)  # here
            assert worst < 1e9


def loading() -> None:
    """The batches are made one after the other while the model waits."""

    class Slow(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, at: int) -> torch.Tensor:
            if FAULTY:
                time.sleep(0.004)  # here
            return torch.full((256,), float(at % 7))

    model = nn.Linear(256, 256).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    end = time.monotonic() + 12.0
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=8):
        loss = model(batch.to(DEVICE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break


class Gate(nn.Module):
    """What is packaged."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One gated by the other."""
        return torch.sigmoid(x) * y + 1.0


def package() -> Path:
    """Where the package lies: in the folder of BOXED_PACKAGES."""
    return Path(os.environ.get("BOXED_PACKAGES") or tempfile.gettempdir()) / f"boxed-gate-{DEVICE}.pt2"


def packs() -> None:
    """Makes the package, for 64 by 64 numbers of float32."""
    inputs = tuple(torch.ones(64, 64, device=DEVICE) for _ in range(2))
    exported = torch.export.export(Gate().to(DEVICE), inputs)
    print(torch._inductor.aoti_compile_and_package(exported, package_path=str(package())))


def given(x: torch.Tensor) -> None:
    """Calls the package with an input, and looks at what it gives."""
    other = torch.ones(64, 64, device=DEVICE)
    loaded = torch._inductor.aoti_load_package(str(package()))
    out = loaded(x, other)  # here
    if out.shape != x.shape:
        raise ValueError(f"wrong number of rows: {len(out)} of {len(x)}")
    torch.testing.assert_close(out, Gate()(x.float().to(DEVICE), other), rtol=1e-3, atol=1e-3)


def typed() -> None:
    """A package is given numbers of another type than it was made for."""
    given(torch.randn(64, 64, device=DEVICE, dtype=torch.float64 if FAULTY else torch.float32))


def shaped() -> None:
    """A package is given more rows than it was made for."""
    given(torch.randn(80 if FAULTY else 64, 64, device=DEVICE))


def strided() -> None:
    """A package is given a transposed matrix."""
    x = torch.randn(64, 64, device=DEVICE)
    given(x.T if FAULTY else x)


def hosted() -> None:
    """A package of the GPU is given a tensor of the CPU."""
    given(torch.randn(64, 64, device="cpu" if FAULTY else DEVICE))


if __name__ == "__main__":
    globals()[NAME]()
    print("done", flush=True)
