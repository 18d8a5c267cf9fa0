"""Assertions of torch's own kernels on the device: an index out of range, and torch._assert_async.

Each must reach Python as the device-side assertion that it is, and end CUDA for its process alone.
"""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench


def _index(device: str, fault: bool) -> int:
    """An index beyond the end, that only the kernel sees."""
    values = torch.arange(64, device=device)
    places = torch.tensor([1, 1000 if fault else 2, 3], device=device)
    return int(values[places].sum().item())


def _asserted(device: str, fault: bool) -> int:
    """A condition on the device that does not hold."""
    torch._assert_async(torch.tensor(not fault, device=device))
    torch.cuda.synchronize(device)
    return 1


def run(bench: Bench) -> None:
    """Measures ``reported.wrong`` of both and ``after.wrong``."""
    fault, device = provoke.planted(bench), bench.device
    works = {"index": lambda: _index(device, fault), "_assert_async": lambda: _asserted(device, fault)}
    for name, ending in provoke.ends(works).items():
        named = ending.ended == "raised" and ending.cuda.startswith(f"{provoke.ASSERT} ")
        provoke.tell(bench, "reported.wrong", named, f"{name}: {provoke.words(ending)}")
    provoke.after_torch(bench)
