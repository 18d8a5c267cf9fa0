"""PTX text that the driver itself compiles, launched over one element a thread and over a stride: exact, and nothing
beside the result is written."""

from __future__ import annotations

import array
import ctypes
import operator
import os

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver, number_of
from envkit.payload.smoke.driver_only import ptx

_SIZE = (1 << 17) + 13
_GUARD = 256  # bytes before and after the result
_THREADS = 256
_FEW = 7  # blocks of the launch over a stride


def added(one: bytes, two: bytes) -> bytes:
    """The sums of 32-bit numbers, as the device makes them."""
    return array.array("I", [each & raw.WORD for each in map(operator.add, raw.words(one), raw.words(two))]).tobytes()


def run(bench: Bench) -> None:
    """Measures ``plain.wrong`` and ``stride.wrong`` in bytes, the guards included.

    Injected faults: "ulp", "one", and "block", which launches one block fewer; over the stride it drops one of the
    blocks by telling the kernel of fewer elements.
    """
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # a kernel that the driver compiled last year proves nothing of its compiler
    driver = Driver()
    driver.context(number_of(bench.device))
    module = driver.module(ptx.ADD, "PTX text")
    one, two = raw.fresh(4 * _SIZE, 1), raw.fresh(4 * _SIZE, 2)
    guard = bytes([raw.POISON]) * _GUARD
    want = guard + added(one, two) + guard
    blocks = (_SIZE + _THREADS - 1) // _THREADS
    less = int(bench.injected_fault == "block")
    for name, kernel, count, size in (
        ("plain", "ptx_add", blocks - less, _SIZE),
        ("stride", "ptx_add_stride", _FEW, _SIZE - less * _THREADS),
    ):
        with driver.room(len(one), len(two), len(want)) as (a, b, c):
            driver.write(a, one)
            driver.write(b, two)
            driver.fill(c, raw.POISON, len(want))
            pointers = [ctypes.c_uint64(base) for base in (a, b, c + _GUARD)]
            driver.launch(driver.kernel(module, kernel), count, _THREADS, [*pointers, ctypes.c_uint(size)])
            driver.synchronize()
            raw.compare(bench, name + ".wrong", driver.read(c, len(want)), want)
