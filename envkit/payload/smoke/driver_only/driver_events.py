"""What the timer of an auto-tuner does, in a process of its own: streams and events, made, used and destroyed.

Times come from the device, and the host's own clock bounds them.  Afterwards this process, which had not touched CUDA
before the child did, computes with a context of its own.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from envkit.payload.smoke import driver as cuda
from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver_only import ptx
from envkit.payload.smoke.driver_only.driver_ptx import added

_ROUNDS, _TURNS = 5, 20
_BUSY_CYCLES = 500000  # a quarter of a millisecond at 2 GHz
_BUDGET_S = 30.0
_SIZE = 4099


def untrue(elapsed_ms: float, wall_ms: float, least_ms: float) -> bool:
    """Whether events tell a time that cannot be: no number, less than half of what the kernel takes at the device's
    highest clock, or more than the host waited (two clocks may differ by a tenth of a millisecond and a hundredth)."""
    return not least_ms / 2 <= elapsed_ms <= wall_ms * 1.01 + 0.1


def _timed(index: int, wait: bool) -> list[list[float]]:
    """For each turn of each round: milliseconds by the events, milliseconds by the host, and the least it can be."""
    driver = cuda.Driver()
    driver.context(index)
    cycles = ctypes.c_uint64(_BUSY_CYCLES)
    khz = driver.attribute(index, cuda.CLOCK_KHZ)
    least_ms = _BUSY_CYCLES / khz if khz > 0 else 0.0
    turns = []
    for _ in range(_ROUNDS):
        module = driver.module(ptx.STEPS, "PTX text")
        spin = driver.kernel(module, "ptx_spin")
        address = driver.take(8)
        streams = [driver.stream(), driver.stream()]
        events = [[driver.event(), driver.event()] for _ in streams]
        driver.launch(spin, 1, 1, [ctypes.c_uint64(address), ctypes.c_uint64(1)], streams[0])
        driver.synchronize()
        for turn in range(_TURNS):
            stream, (start, end) = streams[turn % 2], events[turn % 2]
            began = time.monotonic()
            driver.call("cuEventRecord", start, stream)
            driver.launch(spin, 1, 1, [ctypes.c_uint64(address), cycles], stream)
            driver.call("cuEventRecord", end, stream)
            if wait:
                driver.call("cuEventSynchronize", end)
            elapsed_ms = driver.elapsed_ms(start, end)
            turns.append([elapsed_ms, 1e3 * (time.monotonic() - began), least_ms])
        for event in (*events[0], *events[1]):
            driver.call("cuEventDestroy_v2", event)
        for stream in streams:
            driver.call("cuStreamDestroy_v2", stream)
        driver.release(address)
        driver.call("cuModuleUnload", module)
        driver.synchronize()
    return turns


def still_adds(bench: Bench, index: int) -> None:
    """Measures ``after.wrong``: bytes that this process, which has not used CUDA yet, computes wrong."""
    driver = cuda.Driver()
    driver.context(index)
    kernel = driver.kernel(driver.module(ptx.ADD, "PTX text"), "ptx_add")
    one, two = raw.fresh(4 * _SIZE, 1), raw.fresh(4 * _SIZE, 2)
    with driver.room(len(one), len(two), len(one)) as bases:
        driver.write(bases[0], one)
        driver.write(bases[1], two)
        driver.fill(bases[2], raw.POISON, len(one))
        arguments: list[Any] = [ctypes.c_uint64(base) for base in bases]
        driver.launch(kernel, (_SIZE + 255) // 256, 256, [*arguments, ctypes.c_uint(_SIZE)])
        driver.synchronize()
        raw.compare(bench, "after.wrong", driver.read(bases[2], len(one)), added(one, two))


def run(bench: Bench) -> None:
    """Measures ``elapsed.wrong`` of 100 times, ``after.wrong`` and, as a figure, ``kernel.ms``.

    Injected faults: "ulp", and "order", which asks for the time before the kernel can be over.
    """
    index = cuda.number_of(bench.device)
    cuda.plain_order()
    turns = cuda.in_child(lambda: _timed(index, bench.injected_fault != "order"), _BUDGET_S)
    wrong = [turn for turn in turns if untrue(*turn)]
    bench.count("elapsed.wrong", len(wrong))
    bench.note("kernel.ms", sorted(turn[0] for turn in turns)[len(turns) // 2])
    if wrong:
        told, host, least = wrong[0]
        bench.detail = f"events told {told:.4f} ms; the host waited {host:.4f} ms, and the kernel takes {least:.4f} ms"
    still_adds(bench, index)
