"""Copies to the device, from it and within it, from pageable and from pinned memory, at odd sizes and offsets.

Every byte is compared, and so is what lies around the copy on either side.
"""

from __future__ import annotations

import ctypes
from typing import Any

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver, number_of

_LARGEST = {"quick": 2 << 20}  # bytes of the largest copy; the other levels take more
_LARGER = 32 << 20
_ROOM = 64  # bytes of pattern around the largest copy
_SHIFTS = ((0, 0), (1, 3), (3, 1))  # offsets of source and target in bytes
_HOST_POISON = 0x5A


class _Copier:
    """The two buffers of the host and the two of the device, and the copies between them."""

    def __init__(self, driver: Driver, source: int, target: int, pinned: bool) -> None:
        self.driver = driver
        self.source = source
        self.target = target
        self.stream = driver.stream() if pinned else None

    def copy(self, function: str, to: int, start: int, size: int) -> None:
        """One copy, over when this returns: pinned memory by a stream, pageable memory by the call that waits."""
        arguments = [ctypes.c_uint64(to), ctypes.c_uint64(start), ctypes.c_size_t(size)]
        if self.stream is None:
            self.driver.call(function + "_v2", *arguments)
            self.driver.synchronize()  # a copy within the device returns before it is done
        else:
            self.driver.call(function + "Async_v2", *arguments, self.stream)
            self.driver.call("cuStreamSynchronize", self.stream)


def _round(bench: Bench, copier: _Copier, kind: str, data: bytes, shifts: tuple[int, int], length: int) -> None:
    """Host, device, elsewhere on the device, host; each piece is ``length`` bytes and full of a pattern before."""
    driver, (out, back) = copier.driver, shifts
    with driver.room(length, length) as (one, two):
        for base in (one, two):
            driver.fill(base, raw.POISON, length)
        driver.synchronize()
        ctypes.memset(copier.source, _HOST_POISON, length)
        ctypes.memmove(copier.source + out, data, len(data))
        copier.copy("cuMemcpyHtoD", one + back, copier.source + out, len(data))
        copier.copy("cuMemcpyDtoD", two + out, one + back, len(data))
        for base, start in ((one, back), (two, out)):
            ctypes.memset(copier.target, _HOST_POISON, length)
            copier.copy("cuMemcpyDtoH", copier.target + back, base + start, len(data))
            got = ctypes.string_at(copier.target, length)
            name = f"{kind}.wrong" if base == one else f"{kind}-within.wrong"
            raw.compare(bench, name, got, raw.framed(data, back, length, _HOST_POISON))
            raw.compare(bench, name, driver.read(base, length), raw.framed(data, start, length))


def run(bench: Bench) -> None:
    """Measures in bytes ``pageable.wrong`` and ``pinned.wrong`` (there and back), and ``pageable-within.wrong`` and
    ``pinned-within.wrong`` (with a copy on the device between).  Injected faults: "ulp" and "one"."""
    driver = Driver()
    driver.context(number_of(bench.device))
    largest = _LARGEST.get(bench.level, _LARGER)
    length = largest + _ROOM
    fresh = raw.fresh(min(largest, 8 << 20) + 7)  # an odd length, so that repeated it lies differently in each page
    data = (fresh * (largest // len(fresh) + 1))[:largest]
    pageable = [ctypes.create_string_buffer(length) for _ in range(2)]
    pinned: list[Any] = [ctypes.c_void_p() for _ in range(2)]
    for pointer in pinned:
        driver.call("cuMemAllocHost_v2", ctypes.byref(pointer), ctypes.c_size_t(length))
    sources = {"pageable": [ctypes.addressof(each) for each in pageable], "pinned": [each.value for each in pinned]}
    for kind, (source, target) in sources.items():
        copier = _Copier(driver, source, target, kind == "pinned")
        for size in (1, 4097, largest - 5):
            for shifts in _SHIFTS:
                room = length if size > largest // 2 else size + _ROOM
                _round(bench, copier, kind, data[:size], shifts, room)
    for pointer in pinned:
        driver.call("cuMemFreeHost", pointer)
