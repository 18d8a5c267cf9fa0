"""Running out of GPU memory is an error of its own type that says what was asked, and leaves a process that works.

The slow way, many blocks until no more fits, is walked under a cap on this process: nobody else loses memory.
"""

from __future__ import annotations

import re
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.runtime.products import count_wrong

_GIB, _MIB = 1 << 30, 1 << 20
_CAP = 2 * _GIB
_CHUNK = 256 * _MIB
_AFTER = 0.9  # of the cap, in one block, once all is given back: what was split must have become whole again


def names_size(text: str, size: int) -> bool:
    """Whether an allocator's message names ``size`` bytes: torch writes two decimals and a binary unit."""
    shown = (f"{size / _GIB:.2f} GiB", f"{size / _MIB:.2f} MiB")
    return any(re.search(r"(?<![0-9.])" + re.escape(one), text) for one in shown)


def _refused(size: int, device: str) -> tuple[str, Any]:
    """What the allocator said to a request, empty if it was granted, and what it gave."""
    kind: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    try:
        return "", torch.empty(size, dtype=torch.uint8, device=device)
    except kind as error:
        return str(error) or "nothing", None  # the exception itself would keep this frame


def _cap(size: int, total: int, device: str) -> None:
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / total), device)


def _fill(bench: Bench, total: int) -> None:
    _cap(_CAP, total, bench.device)
    held: list[Any] = []
    said = ""
    while not said and len(held) <= _CAP // _CHUNK:
        said, chunk = _refused(_CHUNK if bench.injected_fault != "fault" else _MIB, bench.device)
        if chunk is not None:
            held.append(chunk.view(torch.int32).fill_(len(held) + 1))
    bench.count("refusal.wrong", int(not names_size(said, _CHUNK)))
    bench.note("held", len(held))
    _cap(total, total, bench.device)  # comparing needs memory too
    for number, chunk in enumerate(held):
        bench.count("kept.wrong", int((chunk != number + 1).sum()))


def run(bench: Bench) -> None:
    """Measures ``refusal.wrong`` (requests that were granted, or refused without their size), ``kept.wrong`` (elements
    of what was held meanwhile), ``held`` (blocks until memory ran out), ``left.wrong`` (memory that stays, or is not
    whole again) and ``product.wrong``.  Any other error than torch's out of memory ends the test."""
    torch.cuda.set_device(bench.device)
    bench.plain_math()
    total = torch.cuda.get_device_properties(bench.device).total_memory
    count_wrong(bench, "product.wrong")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()

    asked = (total // _GIB + 2) * _GIB
    said, given = _refused(asked if bench.injected_fault != "fault" else _MIB, bench.device)
    bench.count("refusal.wrong", int(not names_size(said, asked)))
    del given
    count_wrong(bench, "product.wrong")

    _fill(bench, total)
    _cap(_CAP, total, bench.device)
    whole, given = _refused(int(min(_CAP, total) * _AFTER), bench.device)
    bench.count("left.wrong", int(bool(whole)))
    del given
    _cap(total, total, bench.device)
    torch.cuda.synchronize()
    bench.count("left.wrong", int(torch.cuda.memory_allocated() > before))
    count_wrong(bench, "product.wrong")
