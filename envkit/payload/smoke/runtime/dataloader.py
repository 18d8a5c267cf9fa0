"""Worker processes of a DataLoader, forked and spawned, must deliver exactly the right batches in order.

Runs in a fresh interpreter: a spawned worker starts from one, and on a GPU the process that loads has used the GPU.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_ITEMS, _BATCH, _WIDTH = 500, 16, 64
_WAIT_S = 600  # far above what it takes: the budget of the whole test, which knows of a busy machine, ends a hang


class Numbered:
    """A data set whose items say which they are; of this module, so that a spawned worker can import it."""

    def __len__(self) -> int:
        return _ITEMS

    def __getitem__(self, index: int) -> Any:
        return torch.arange(_WIDTH) * 7919 + index * 104729


def run(bench: Bench) -> None:
    """Measures ``fork.wrong`` and ``spawn.wrong``: elements that differ, all of a batch that is missing."""
    if bench.on_gpu:
        torch.ones(8, device=bench.device).sum().item()  # the workers' parent holds a CUDA context
    order = torch.randperm(_ITEMS, generator=bench.random())
    want = torch.arange(_WIDTH)[None, :] * 7919 + order[:, None] * 104729
    how: Any = {"sampler": order.tolist(), "num_workers": 2, "pin_memory": bench.on_gpu, "timeout": _WAIT_S}
    for start in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Numbered(), _BATCH, multiprocessing_context=start, **how)
        got = [batch.to(bench.device, non_blocking=True) for batch in loader]
        together = torch.cat(got).cpu() if got else torch.empty(0, _WIDTH, dtype=torch.int64)
        short = max(0, _ITEMS - len(together))
        bench.count(start + ".wrong", short * _WIDTH + max(0, len(together) - _ITEMS) * _WIDTH)
        if len(together) == _ITEMS:
            bench.exact(start + ".wrong", together, want)
