"""A kernel that never ends: its process is told as hung, can be killed, and leaves a GPU that computes right.

The same kernel is first run with its end in sight; the process that hangs gets several times as long.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from envkit.payload import isolate
from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_SOURCE = """
extern "C" __global__ void plant(volatile unsigned* flag)
{
    while (!flag[0]) {}
    flag[1] = 7;
}
"""
_SPARE_S = 4.0


def _spin(device: str, flag: int, say: Callable[[Any], None]) -> dict[str, Any]:
    """Waits for a kernel that waits for ``flag``, which nobody sets later."""
    gpu = provoke.begin(device)
    driver = gpu.driver
    kernel = gpu.kernel(_SOURCE, "plant")
    base = driver.take(8)
    driver.write(base, flag.to_bytes(4, "little") + bytes(4))
    say("launching")
    code = provoke.code_of(lambda: driver.launch(kernel, 1, 1, [ctypes.c_uint64(base)]))
    code = code or provoke.code_of(driver.synchronize)
    left = 0 if code else int.from_bytes(driver.read(base + 4, 4), "little")
    return {"code": code, "name": driver.name_of(code), "left": left}


def _launched(device: str, flag: int, seconds: float) -> tuple[isolate.Ending, bool]:
    """How the process ended, and whether it had come to its launch."""
    heard: list[Any] = []
    ending = provoke.heard_end(lambda say: _spin(device, flag, say), seconds, heard.append)
    return ending, "launching" in heard


def run(bench: Bench) -> None:
    """Measures ``ready.wrong`` (the kernel whose end is in sight), ``reported.wrong`` and ``after.wrong``.

    A GPU that drives a display may end the kernel itself, by the error that is named for it.
    """
    started = time.monotonic()
    ending, _ = _launched(bench.device, 1, provoke.CHILD_S)
    if ending.ended == "not-applicable":
        bench.not_applicable(ending.detail)
    well = ending.ended == "ran" and ending.value["left"] == 7
    provoke.tell(bench, "ready.wrong", well, "" if well else f"the kernel that ends: {provoke.words(ending)}")
    seconds = _SPARE_S + 3 * min(time.monotonic() - started, provoke.CHILD_S)
    ending, launched = _launched(bench.device, 0 if provoke.planted(bench) else 1, seconds)
    hung = ending.ended == "hung" and launched and "did not die" not in ending.detail
    watched = ending.ended == "ran" and ending.value["code"] == provoke.LAUNCH_TIMEOUT
    provoke.tell(bench, "reported.wrong", hung or watched, f"the kernel that does not: {provoke.words(ending)}")
    provoke.after_driver(bench)
