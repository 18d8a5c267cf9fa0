"""More memory than the GPU has: torch raises OutOfMemoryError, and the same process goes on to compute right."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_MORE = 1 << 30


def _exhaust(device: str, fault: bool, injected_fault: str) -> dict[str, Any]:
    size = torch.cuda.get_device_properties(device).total_memory + _MORE if fault else _MORE >> 10
    before = torch.cuda.memory_allocated(device)
    said = ""
    try:
        torch.empty(size, dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError as error:
        said = f"{type(error).__name__}: {error}"
    kept = torch.cuda.memory_allocated(device) - before
    return {"said": said, "kept": kept, "wrong": provoke.torch_product(device, injected_fault)}


def run(bench: Bench) -> None:
    """Measures ``reported.wrong``, ``kept.bytes`` (of what was not given), ``same.wrong`` and ``after.wrong``."""
    fault = provoke.planted(bench)
    ending = provoke.ends({"memory": lambda: _exhaust(bench.device, fault, bench.injected_fault)})["memory"]
    value = ending.value if isinstance(ending.value, dict) else {}
    provoke.tell(bench, "reported.wrong", bool(value.get("said")), value.get("said") or provoke.words(ending))
    if value:
        bench.count("kept.bytes", value["kept"])
        bench.count("same.wrong", value["wrong"])
    provoke.after_torch(bench)
