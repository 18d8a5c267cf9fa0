"""A loop over a stride of the whole grid, with fewer and with more threads than elements: each done exactly once."""

from __future__ import annotations

import array
import ctypes

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver, number_of
from envkit.payload.smoke.nvrtc import build
from envkit.payload.smoke.sources import text_of

_SIZE = (1 << 16) + 13
_GUARD = 256  # bytes before and after each result
_SHAPES = ((1, 32), (3, 96), (64, 256), (1000, 128))  # blocks and threads
_SOURCE = text_of("kernels/nvrtc_grid_stride.cu")


def mapped(data: bytes) -> bytes:
    """What the kernel makes of 32-bit numbers."""
    numbers = enumerate(raw.words(data))
    return array.array("I", [(value * 2654435761 + place) & raw.WORD for place, value in numbers]).tobytes()


def run(bench: Bench) -> None:
    """Measures in bytes ``values.wrong`` and ``visits.wrong``, guards included.

    Injected faults: "ulp", "one", and "block", a kernel whose first block does nothing.
    """
    driver, index = Driver(), number_of(bench.device)
    driver.context(index)
    options = ["-DSKIPPED"] if bench.injected_fault == "block" else []
    kernel = build(driver, index, _SOURCE, ["stride_map"], options)[1]["stride_map"]
    data, guard = raw.fresh(4 * _SIZE), bytes([raw.POISON]) * _GUARD
    once = array.array("I", [1]).tobytes() * _SIZE
    results = {"values": guard + mapped(data) + guard, "visits": guard + once + guard}
    room = len(data) + 2 * _GUARD
    for blocks, threads in _SHAPES:
        with driver.room(len(data), room, room) as (a, values, visits):
            driver.write(a, data)
            driver.fill(values, raw.POISON, room)
            driver.write(visits, guard + bytes(len(data)) + guard)
            pointers = [ctypes.c_uint64(a), ctypes.c_uint64(values + _GUARD), ctypes.c_uint64(visits + _GUARD)]
            driver.launch(kernel, blocks, threads, [*pointers, ctypes.c_uint(_SIZE)])
            driver.synchronize()
            for name, base in (("values", values), ("visits", visits)):
                raw.compare(bench, name + ".wrong", driver.read(base, room), results[name])
