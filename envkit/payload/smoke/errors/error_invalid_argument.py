"""A launch with more threads a block than any GPU has: refused by name, and the process computes right afterwards."""

from __future__ import annotations

import ctypes
from typing import Any

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_THREADS = 2048  # a block has 1024 at most (CUDA programming guide, technical specifications)
_SOURCE = """
extern "C" __global__ void plant(unsigned* base)
{
    base[threadIdx.x] = 7;
}
"""


def _refused(device: str, threads: int, injected_fault: str) -> dict[str, Any]:
    gpu = provoke.begin(device)
    driver = gpu.driver
    kernel = gpu.kernel(_SOURCE, "plant")
    base = driver.take(4 * _THREADS)
    code = provoke.code_of(lambda: driver.launch(kernel, 1, threads, [ctypes.c_uint64(base)]))
    code = code or provoke.code_of(driver.synchronize)
    return {"code": code, "name": driver.name_of(code), "wrong": provoke.driver_product(gpu, injected_fault)}


def run(bench: Bench) -> None:
    """Measures ``reported.wrong``, ``same.wrong`` (the same process afterwards) and ``after.wrong`` (the next)."""
    threads = _THREADS if provoke.planted(bench) else 32
    ending = provoke.ends({"launch": lambda: _refused(bench.device, threads, bench.injected_fault)})["launch"]
    value = ending.value if isinstance(ending.value, dict) else {}
    expected = f"{provoke.INVALID_VALUE} ({provoke.NAMES[provoke.INVALID_VALUE]})"
    said = f"a launch of {threads} threads: {value.get('name') or provoke.words(ending)}"
    provoke.tell(bench, "reported.wrong", value.get("name") == expected, said)
    if "wrong" in value:
        bench.count("same.wrong", value["wrong"])
    provoke.after_driver(bench)
