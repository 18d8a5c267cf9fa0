"""Ten thousand launches over two streams that wait for each other by events: their order, and what a launch costs.

Each launch replaces one number by m times it plus s, so that the last value shows the order of all.  The first stream
begins with a kernel that is busy for milliseconds: without the wait the second one overtakes it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver, number_of, pack, plain_order
from envkit.payload.smoke.driver_only import ptx

_STEPS = ((1664525, 1013904223), (22695477, 12345))  # m and s of the two streams: full periods, and no commuting
_BUSY_CYCLES = 40000000  # 20 ms at 2 GHz: far longer than the launches that could overtake it take
_START = 1618033


def stepped(value: int, batches: int, each: int) -> int:
    """The number after so many batches of ``each`` launches, the streams taking turns."""
    for batch in range(batches):
        factor, summand = _STEPS[batch % 2]
        for _ in range(each):
            value = (value * factor + summand) & raw.WORD
    return value


def _batches(driver: Driver, step: Any, packed: Sequence[Any], lanes: Sequence[Any], shape: tuple[int, int]) -> None:
    """The launches, batch for batch in turn; each batch waits for the one before it if ``lanes`` hold events."""
    launch = driver.library.cuLaunchKernel
    batches, each = shape
    for batch in range(batches):
        stream, event = lanes[batch % 2]
        other = lanes[1 - batch % 2][1]
        if batch and other is not None:
            driver.call("cuStreamWaitEvent", stream, other, 0)
        for _ in range(each):
            code = launch(step, 1, 1, 1, 1, 1, 1, 0, stream, packed[batch % 2], None)
            if code:
                driver.check("cuLaunchKernel", code)
        if event is not None:
            driver.call("cuEventRecord", event, stream)
    driver.synchronize()


def run(bench: Bench) -> None:
    """Measures ``order.wrong`` (1000 launches behind a busy kernel), ``value.wrong`` (9000 more), and as a figure
    ``launch.us``, wall time of a launch of the 9000 with what Python costs.

    Injected faults: "ulp", and "order", which makes no stream wait.
    """
    plain_order()
    driver = Driver()
    driver.context(number_of(bench.device))
    module = driver.module(ptx.STEPS, "PTX text")
    step, spin = driver.kernel(module, "ptx_step"), driver.kernel(module, "ptx_spin")
    waits = bench.injected_fault != "order"
    lanes = [(driver.stream(), driver.event() if waits else None) for _ in range(2)]
    with driver.room(4, 8) as (number, busy):
        arguments = [[ctypes.c_uint64(number), ctypes.c_uint(m), ctypes.c_uint(s)] for m, s in _STEPS]
        packed = [pack(each) for each in arguments]
        driver.write(number, _START.to_bytes(4, "little"))
        for stream, _ in lanes:  # what a first launch must load and set up is done before the order counts
            driver.launch(spin, 1, 1, [ctypes.c_uint64(busy), ctypes.c_uint64(1)], stream)
            driver.launch(step, 1, 1, [ctypes.c_uint64(number), ctypes.c_uint(1), ctypes.c_uint(0)], stream)
            driver.synchronize()
        want = _START
        for name, shape in (("order", (20, 50)), ("value", (90, 100))):
            if name == "order":
                driver.launch(spin, 1, 1, [ctypes.c_uint64(busy), ctypes.c_uint64(_BUSY_CYCLES)], lanes[0][0])
            started = time.monotonic()
            _batches(driver, step, packed, lanes, shape)
            took = time.monotonic() - started
            want = stepped(want, *shape)
            raw.compare(bench, name + ".wrong", driver.read(number, 4), want.to_bytes(4, "little"))
        bench.note("launch.us", 1e6 * took / (shape[0] * shape[1]))
