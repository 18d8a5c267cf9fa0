"""The driver makes a context, says sane things of the device, and gives all memory back that it gave out.

A round whose count does not come back is repeated: a leak recurs in every round, another process's allocation does not.
"""

from __future__ import annotations

import time

from envkit.payload.smoke import driver as cuda
from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench

_KIB, _MIB = 1 << 10, 1 << 20
_EDGE = 1024  # bytes written and read at both ends of each piece
_ROUNDS = 5
_PAUSE_S = 0.05
_PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED, cuda.h
_ASKED = {
    "threads a block": cuda.MAX_THREADS, "shared bytes a block": cuda.MAX_SHARED, "threads a warp": cuda.WARP,
    "multiprocessors": cuda.MULTIPROCESSORS, "compute mode": cuda.COMPUTE_MODE,
}  # fmt: skip


def insane(said: dict[str, int]) -> list[str]:
    """What no CUDA GPU can say of itself, as "name is value"."""
    least = {"threads a block": 32, "shared bytes a block": 16 * _KIB, "multiprocessors": 1, "total bytes": 1}
    wrong = [name for name, bound in least.items() if said[name] < bound]
    wrong += [] if said["threads a warp"] == 32 else ["threads a warp"]
    wrong += [] if 0 <= said["free bytes"] <= said["total bytes"] else ["free bytes"]
    wrong += [] if said["compute mode"] != _PROHIBITED else ["compute mode"]
    return [f"{name} is {said[name]}" for name in wrong]


def _round(driver: cuda.Driver, bench: Bench, leak: bool) -> int:
    """Takes and frees three pieces; how many bytes did not come back (negative: more came than went)."""
    before, _ = driver.memory()
    taken = []
    for size in (_KIB, 64 * _MIB, before // 2 // _MIB * _MIB):
        address = driver.take(size)
        taken.append(address)
        for place in (0, size - _EDGE):
            data = raw.fresh(_EDGE, size + place)
            driver.write(address + place, data)
            got = raw.disturbed(driver.read(address + place, _EDGE), "ulp" if bench.injected_fault == "ulp" else "")
            bench.count("ends.wrong", raw.differing(got, data))
    for place, address in enumerate(taken):
        if not (leak and place == 1):
            driver.release(address)
    return before - driver.memory()[0]


def run(bench: Bench) -> None:
    """Measures ``attributes.wrong``, ``ends.wrong``, ``leak.bytes`` and, as a figure, ``context.ms``.

    ``leak.offered`` is 0 where the device shares its memory with the host: there everybody allocates and frees.
    Injected faults: "ulp", and "one", which never frees the piece of 64 MiB.
    """
    driver, index = cuda.Driver(), cuda.number_of(bench.device)
    started = time.monotonic()
    driver.context(index)
    free, total = driver.memory()
    bench.note("context.ms", 1e3 * (time.monotonic() - started))
    said = {name: driver.attribute(index, which) for name, which in _ASKED.items()}
    wrong = insane({**said, "total bytes": total, "free bytes": free})
    bench.count("attributes.wrong", len(wrong))
    bench.detail = "; ".join(wrong)
    shared = driver.attribute(index, cuda.INTEGRATED)
    bench.note("leak.offered", 0 if shared else 1)
    _round(driver, bench, False)  # what the driver keeps for itself it takes now
    lost = []
    for _ in range(_ROUNDS):
        lost.append(abs(_round(driver, bench, bench.injected_fault == "one")))
        if not lost[-1]:
            break
        time.sleep(_PAUSE_S)
    bench.note("leak.bytes", min(lost))
