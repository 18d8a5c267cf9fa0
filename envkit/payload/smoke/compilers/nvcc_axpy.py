"""A CUDA program of one's own: compiled by nvcc for this GPU, linked with cudart and cuBLAS, run as a process.

It adds whole numbers with a kernel and with cuBLAS; the copy back waits for the kernel by an event, on another stream.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
from typing import Any

from envkit.payload import isolate, programs
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import stages
from envkit.payload.smoke.compilers.lacking import lacking_nvcc, nvcc
from envkit.payload.smoke.sources import text_of

SOURCE = text_of("compilers/nvcc_axpy.cu")
_SIZE, _FACTOR = (1 << 20) + 13, 3
_BUILD_S, _RUN_S = 150.0, 60.0
_SAID = 2000


def toolkit(said: str) -> str:
    """The toolkit's folder by what ``nvcc --dryrun`` prints, since nvcc may be a wrapper; empty if it tells none."""
    found = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    return os.path.realpath(found[1].strip()) if found else ""


def cublas(root: str) -> str:
    """The folder of cuBLAS's library in a toolkit that has its header too, else empty."""
    if not root or not os.path.exists(os.path.join(root, "include", "cublas_v2.h")):
        return ""
    places = [os.path.join(root, "lib64"), *glob.glob(os.path.join(root, "targets", "*", "lib"))]
    return next((place for place in places if os.path.exists(os.path.join(place, "libcublas.so"))), "")


def must(what: str, command: list[str], timeout_s: float) -> str:
    """What the command printed; raises stages.Ended, with the CUDA error that it names, where it does not return 0."""
    code, said = programs.told(command, timeout_s)
    if code == 0:
        return said
    error = re.search(r"^cuda: (\d+ \w+)$", said, re.MULTILINE)
    how = f"signal {-code}" if code < 0 else f"status {code}"
    text = f"{what} ended with {how}: {said[:_SAID] or 'it said nothing'}"
    raise stages.Ended(text, isolate.Ending("raised", text, cuda=error[1] if error else ""))


def build(folder: str, arch: str) -> tuple[str, bool]:
    """Compiles the program for ``arch`` in ``folder``; its path, and whether cuBLAS is in it."""
    source, program = os.path.join(folder, "axpy.cu"), os.path.join(folder, "axpy")
    with open(source, "w") as file:
        file.write(SOURCE)
    library = cublas(toolkit(programs.told([nvcc(), "--dryrun", source, "-o", program], _RUN_S)[1]))
    words = [nvcc(), f"-arch={arch}", source, "-o", program]
    if library:
        words += ["-DWITH_CUBLAS", "-L" + library, "-Xlinker", f"-rpath={library}", "-lcublas"]
    must("nvcc", words, _BUILD_S)
    return program, bool(library)


def raw(tensor: Any) -> bytes:
    """The bytes of a contiguous CPU tensor, without numpy."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def run(bench: Bench) -> None:
    """Measures ``kernel.wrong``, ``cublas.offered`` and ``cublas.wrong``."""
    bench.not_applicable_if(lacking_nvcc("the program is built"))
    folder = stages.own_folder(bench, "nvcc-axpy")
    major, minor = torch.cuda.get_device_capability(bench.device)
    program, with_cublas = build(folder, f"sm_{major}{minor}")
    random = bench.random()
    x, y = (torch.randint(-(2**20), 2**20, (_SIZE,), generator=random).float() for _ in range(2))
    given, made = os.path.join(folder, "input"), os.path.join(folder, "output")
    with open(given, "wb") as file:
        file.write(raw(x) + raw(y))
    index = str(torch.device(bench.device).index or 0)
    words = [program, index, str(_SIZE), str(_FACTOR), given, made]
    must("the program", words, _RUN_S)
    with open(made, "rb") as file:
        got = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    bench.exact("kernel.wrong", got[:_SIZE], x * _FACTOR + y)
    bench.note("cublas.offered", with_cublas)
    if with_cublas:
        bench.exact("cublas.wrong", got[_SIZE:], x * _FACTOR + y)
