"""Integers reduced by a tree in shared memory and by atomics: sum, exclusive or, least and greatest, all exact.

One warp comes late to the barrier on purpose, so that one that does not hold shows in every block.
"""

from __future__ import annotations

import ctypes
import functools
import operator

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver, number_of
from envkit.payload.smoke.nvrtc import build
from envkit.payload.smoke.sources import text_of

_THREADS = 256
_BLOCKS = 64
_SIZES = (1, 31, 257, (1 << 18) + 77)
_NAMES = ("sum", "xor", "min", "max")
_LATE_CYCLES = 20000  # 10 us at 2 GHz; the other warps would be through the whole tree by then
_SOURCE = text_of("kernels/nvrtc_reduction.cu")


def reduced(data: bytes) -> bytes:
    """The four results of 32-bit numbers, each as 64 bits."""
    numbers = raw.words(data)
    values = (sum(numbers), functools.reduce(operator.xor, numbers), min(numbers), max(numbers))
    return b"".join(value.to_bytes(8, "little") for value in values)


def run(bench: Bench) -> None:
    """Measures in bytes ``sum.wrong``, ``xor.wrong``, ``min.wrong`` and ``max.wrong``.

    Injected faults: "ulp", "one", and "order", a kernel without the barriers.
    """
    driver, index = Driver(), number_of(bench.device)
    driver.context(index)
    options = [f"-DTHREADS={_THREADS}", f"-DLATE={_LATE_CYCLES}"]
    options += ["-DLOST"] if bench.injected_fault == "order" else []
    kernel = build(driver, index, _SOURCE, ["reduce_tree"], options)[1]["reduce_tree"]
    start = bytes(16) + b"\xff" * 8 + bytes(8)  # what the atomics begin with
    for size in _SIZES:
        data = raw.fresh(4 * size, size)
        want = reduced(data)
        with driver.room(len(data), len(want)) as (x, out):
            driver.write(x, data)
            driver.write(out, start)
            driver.launch(kernel, _BLOCKS, _THREADS, [ctypes.c_uint64(x), ctypes.c_uint(size), ctypes.c_uint64(out)])
            driver.synchronize()
            got = driver.read(out, len(want))
        for place, name in enumerate(_NAMES):
            here = slice(8 * place, 8 * place + 8)
            raw.compare(bench, name + ".wrong", got[here], want[here])
