"""Vector loads from every base: four floats, two halves or two bfloat16 at once, and words that lie at odd bytes.

Bases at all offsets of 0 to 15 bytes take a scalar head, vectors and a scalar tail; bases at odd bytes are read as two
aligned words.  The numbers are small integers, so every result is exact, and what lies around it must stay.
"""

from __future__ import annotations

import array
import ctypes
import random
import struct
from collections.abc import Sequence
from typing import Any

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import SEED, Bench
from envkit.payload.smoke.driver import Driver, number_of
from envkit.payload.smoke.nvrtc import build
from envkit.payload.smoke.sources import text_of

_SIZES = (1, 2, 5, 4099)  # elements: less than a head, and with every rest
_GUARD = 64  # bytes around each result
_THREADS = 128
# bytes, the largest number whose double is exact, and the first compute capability with arithmetic on two of them
_TYPES = {"fp32": (4, 1 << 22, 0), "fp16": (2, 1000, 53), "bf16": (2, 100, 80)}
# No header is used, so that no image lacks one: halves and bfloat16 are added as the PTX instruction does.
_SOURCE = text_of("kernels/nvrtc_alignment.cu")


def encoded(kind: str, numbers: Sequence[int]) -> bytes:
    """Small integers as the device holds them; bfloat16 is the upper half of a float, which holds them exactly."""
    if kind == "fp16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    floats = array.array("f", numbers).tobytes()
    if kind == "fp32":
        return floats
    halves = bytearray(len(floats) // 2)
    halves[0::2], halves[1::2] = floats[2::4], floats[3::4]
    return bytes(halves)


def _check(
    bench: Bench, driver: Driver, kernel: Any, name: str, shifts: tuple[int, int], words: tuple[bytes, bytes, int]
) -> None:
    """One launch from bases moved by ``shifts`` bytes; ``words``: the input, the result and the number of elements."""
    data, want, count = words
    place, back = _GUARD + shifts[0], _GUARD + shifts[1]
    room = len(data) + 2 * _GUARD + 16
    with driver.room(room, room) as (x, y):
        driver.fill(x, raw.POISON, room)
        driver.fill(y, raw.POISON, room)
        driver.write(x + place, data)
        pointers = [ctypes.c_uint64(x + place), ctypes.c_uint64(y + back)]
        blocks = (count + _THREADS - 1) // _THREADS
        driver.launch(kernel, blocks, _THREADS, [*pointers, ctypes.c_uint(count)])
        driver.synchronize()
        got = driver.read(y, room)
    raw.compare(bench, name, got, raw.framed(want, back, room))


def run(bench: Bench) -> None:
    """Measures in bytes ``fp32.wrong``, ``fp16.wrong``, ``bf16.wrong`` (where ``.offered``) and ``askew.wrong``.

    Injected faults: "ulp", "one", and "block", kernels that leave out the tail.
    """
    driver, index = Driver(), number_of(bench.device)
    driver.context(index)
    names = [f"twice_{kind}" for kind in _TYPES]
    options = ["-DSKIPPED"] if bench.injected_fault == "block" else []
    kernels = build(driver, index, _SOURCE, [*names, "straighten"], options)[1]
    here = driver.capability(index)
    for kind, (_, _, least) in _TYPES.items():
        bench.note(f"{kind}.offered", int(here >= least))
    draw = random.Random(SEED)
    for size in _SIZES:
        for kind, (width, most, least) in _TYPES.items():
            if here < least:
                continue
            numbers = [draw.randint(-most, most) or 1 for _ in range(size)]
            words = (encoded(kind, numbers), encoded(kind, [2 * number for number in numbers]), size)
            for shift in range(0, 16, width):
                _check(bench, driver, kernels[f"twice_{kind}"], f"{kind}.wrong", (shift, shift), words)
        data = raw.fresh(4 * size, size)
        for shift in range(16):
            _check(bench, driver, kernels["straighten"], "askew.wrong", (shift, 0), (data, data, size))
