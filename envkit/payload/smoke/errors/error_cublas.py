"""A kernel's illegal access that shows itself in the matrix product after it, as CUDA's or cuBLAS's error.

With CUDA_LAUNCH_BLOCKING=1 the launch that is to blame must be the one that fails.
"""

from __future__ import annotations

import ctypes
import re
import time
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.sources import text_of

_SOURCE = text_of("errors/error_cublas.cu")
_CYCLES = 400000000  # 0.2 to 0.4 s at the clocks that GPUs have: longer than it takes to launch a product
_CUBLAS = re.compile(r"CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)")
_WIDTH = 256


def _warmed(device: str) -> tuple[provoke.Gpu, ctypes.c_void_p, Any]:
    """torch's context with cuBLAS ready, the planted kernel, and a matrix."""
    matrix = torch.ones(_WIDTH, _WIDTH, dtype=torch.bfloat16, device=device)
    torch.mm(matrix, matrix)
    torch.cuda.synchronize(device)
    gpu = provoke.begin(device)
    return gpu, gpu.kernel(_SOURCE, "plant"), matrix


def _launch(gpu: provoke.Gpu, kernel: ctypes.c_void_p, matrix: Any, fault: bool, cycles: int) -> None:
    base = matrix.data_ptr()
    shift = provoke.NOWHERE - base if fault else 0
    stream = ctypes.c_void_p(torch.cuda.current_stream(matrix.device).cuda_stream)
    arguments = [ctypes.c_uint64(base), ctypes.c_longlong(shift), ctypes.c_longlong(cycles)]
    gpu.driver.launch(kernel, 1, 1, arguments, stream)


def _product(device: str, fault: bool, cycles: int) -> float:
    """A product behind the planted kernel: still in front of it with many cycles, met by it with none."""
    gpu, kernel, matrix = _warmed(device)
    _launch(gpu, kernel, matrix, fault, cycles)
    if not cycles:
        time.sleep(0.5)  # the fault has happened by now
    out = torch.mm(matrix, matrix)
    torch.cuda.synchronize(device)
    return float(out.float().sum())


def _blocking(device: str, fault: bool) -> dict[str, Any]:
    """What the launch itself says when it waits for its kernel."""
    gpu, kernel, matrix = _warmed(device)
    code = provoke.code_of(lambda: _launch(gpu, kernel, matrix, fault, 0))
    return {"launch": gpu.driver.name_of(code)}


def run(bench: Bench) -> None:
    """Measures ``reported.wrong`` (in two orders), ``blocking.wrong`` (the launch is named) and ``after.wrong``."""
    fault, device = provoke.planted(bench), bench.device
    works = {
        "fault during the product": lambda: _product(device, fault, _CYCLES),
        "fault before the product": lambda: _product(device, fault, 0),
    }
    for name, ending in provoke.ends(works).items():
        told = ending.cuda.startswith(f"{provoke.ILLEGAL_ADDRESS} ") or bool(_CUBLAS.search(ending.detail))
        provoke.tell(bench, "reported.wrong", ending.ended == "raised" and told, f"{name}: {provoke.words(ending)}")
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
    ending = provoke.ends({"launch": lambda: _blocking(device, fault)}, environment=blocking)["launch"]
    value = ending.value if isinstance(ending.value, dict) else {}
    named = value.get("launch") == f"{provoke.ILLEGAL_ADDRESS} ({provoke.NAMES[provoke.ILLEGAL_ADDRESS]})"
    provoke.tell(bench, "blocking.wrong", named, f"CUDA_LAUNCH_BLOCKING=1: {provoke.words(ending)}")
    provoke.after_torch(bench)
