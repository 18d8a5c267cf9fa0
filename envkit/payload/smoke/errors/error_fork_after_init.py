"""A fork of a process that uses CUDA: torch and the driver refuse in the child, at once, and the parent goes on."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from envkit.payload import isolate
from envkit.payload.lazy import torch
from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_REFUSAL = "Cannot re-initialize CUDA in forked subprocess"  # torch/cuda/__init__.py
_FORK_S = 10.0


def _torch(device: str) -> float:
    return float(torch.ones(3, device=device).sum())


def _driver() -> dict[str, int]:
    library: Any = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_uint64()
    started = int(library.cuInit(0))
    return {"cuInit": started, "cuMemAlloc": int(library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)))}


def _forks(device: str, fault: bool, injected_fault: str) -> dict[str, Any]:
    """Uses CUDA, forks twice, and uses it again."""
    if fault:
        provoke.torch_product(device, "")
    found = provoke.ends({"torch": lambda: _torch(device), "driver": _driver}, _FORK_S)
    wrong = provoke.torch_product(device, injected_fault)
    return {"torch": list(found["torch"]), "driver": list(found["driver"]), "wrong": wrong}


def run(bench: Bench) -> None:
    """Measures ``reported.wrong`` (two refusals), ``same.wrong`` (the parent) and ``after.wrong``."""
    fault = provoke.planted(bench)
    work = partial(_forks, bench.device, fault, bench.injected_fault)
    parent = provoke.ends({"parent": work}, 2 * _FORK_S + provoke.CHILD_S)["parent"]
    if parent.ended != "ran":
        raise RuntimeError(f"the process that forked after it had used CUDA ended otherwise: {provoke.words(parent)}")
    by_torch = isolate.Ending(*parent.value["torch"])
    refused = by_torch.ended == "raised" and _REFUSAL in by_torch.detail
    provoke.tell(bench, "reported.wrong", refused, f"torch in the fork: {provoke.words(by_torch)}")
    by_driver = isolate.Ending(*parent.value["driver"])
    codes = by_driver.value if isinstance(by_driver.value, dict) else {}
    refused = codes.get("cuInit") == provoke.NOT_INITIALIZED and codes.get("cuMemAlloc", 0) != 0
    provoke.tell(bench, "reported.wrong", refused, f"the driver in the fork: {provoke.words(by_driver)}")
    bench.count("same.wrong", parent.value["wrong"])
    provoke.after_torch(bench)
