"""A tune as an auto-tuner makes it, in a process of its own: twenty variants of a kernel compiled, timed, taken down.

Two of them ask for more shared memory than the device has: each must be refused by an error that leaves the process
able to go on, and all others must compute right.
"""

from __future__ import annotations

import array
import ctypes
import time
from typing import Any, NamedTuple

from envkit.payload.smoke import driver as cuda
from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver_only.driver_events import still_adds, untrue
from envkit.payload.smoke.nvrtc import Compiler, Refused, build
from envkit.payload.smoke.sources import text_of

_SIZE = 1 << 16
_TURNS = 5
_BUDGET_S = 60.0
_LEAST_MS = 1e-6  # no kernel takes less, so a time of nothing is none
_OVER = 1024  # bytes beyond the most that a block can have
_STICKY = range(700, 720)  # errors after which the context is lost, cuda.h: illegal address to launch failed
_SOURCE = text_of("kernels/nvrtc_timer.cu")


class Variant(NamedTuple):
    """Threads a block, elements a thread, and by what it must be refused: "compile", "launch" or nothing."""

    threads: int
    each: int
    refuse: str = ""


def variants() -> list[Variant]:
    """Eighteen that fit any GPU and, among them, two that ask for too much shared memory."""
    all_of_them = [Variant(threads, each) for threads in (32, 64, 128, 256, 512, 1024) for each in (1, 2, 4)]
    all_of_them.insert(6, Variant(64, 1, "compile"))
    all_of_them.insert(13, Variant(128, 1, "launch"))
    return all_of_them


def tuned(data: bytes, tile: int) -> bytes:
    """What the kernel makes of 32-bit numbers, a multiple of ``tile`` many: each tile turned round, times 3, plus i."""
    numbers = raw.words(data)
    out = array.array("I")
    for base in range(0, len(numbers), tile):
        turned = reversed(numbers[base : base + tile])
        out.extend([(value * 3 + base + place) & raw.WORD for place, value in enumerate(turned)])
    return out.tobytes()


class _Tune:
    """A tune in this process: its device, its compiler, its input, and the bytes that are too much for a block."""

    def __init__(self, index: int, planted: bool) -> None:
        self.driver = cuda.Driver()
        self.driver.context(index)
        self.index = index
        self.compiler = Compiler()
        most = max(self.driver.attribute(index, which) for which in (cuda.MAX_SHARED, cuda.MAX_SHARED_OPTIN))
        self.over = most + _OVER if planted else 0
        self.data = raw.fresh(4 * _SIZE)

    def one(self, variant: Variant) -> tuple[bytes, list[list[float]]]:
        """The result of a variant, and its times in ms by the events and by the host.

        Raises Refused or CudaFault where it is refused.  What was made is taken down unless the context is lost, where
        taking down would hide the first error.
        """
        driver = self.driver
        fixed = self.over if variant.refuse == "compile" else 0
        options = [f"-DTHREADS={variant.threads}", f"-DEACH={variant.each}", f"-DFIXED={fixed}"]
        module, kernels = build(driver, self.index, _SOURCE, ["tuned"], options, self.compiler)
        stream, start, end = driver.stream(), driver.event(), driver.event()
        addresses = [driver.take(len(self.data)) for _ in range(2)]
        lost = False
        try:
            return self._timed(variant, kernels["tuned"], stream, (start, end), addresses)
        except cuda.CudaFault as fault:
            lost = fault.cuda_code in _STICKY
            raise
        finally:
            if not lost:
                for address in addresses:
                    driver.release(address)
                for event in (start, end):
                    driver.call("cuEventDestroy_v2", event)
                driver.call("cuStreamDestroy_v2", stream)
                driver.call("cuModuleUnload", module)

    def _timed(
        self, variant: Variant, kernel: Any, stream: Any, events: tuple[Any, Any], addresses: list[int]
    ) -> tuple[bytes, list[list[float]]]:
        driver, (start, end) = self.driver, events
        shared = self.over if variant.refuse == "launch" else 0
        driver.write(addresses[0], self.data)
        driver.fill(addresses[1], raw.POISON, len(self.data))
        driver.synchronize()
        arguments: list[Any] = [*(ctypes.c_uint64(each) for each in addresses), ctypes.c_uint(_SIZE)]
        blocks = _SIZE // (variant.threads * variant.each)
        times = []
        for _ in range(_TURNS):
            began = time.monotonic()
            driver.call("cuEventRecord", start, stream)
            driver.launch(kernel, blocks, variant.threads, arguments, stream, shared)
            driver.call("cuEventRecord", end, stream)
            driver.call("cuEventSynchronize", end)
            elapsed_ms = driver.elapsed_ms(start, end)
            times.append([elapsed_ms, 1e3 * (time.monotonic() - began)])
        return driver.read(addresses[1], len(self.data)), times


def _tuned(index: int, injected_fault: str) -> dict[str, Any]:
    """What came of every variant: wrong bytes, times, how many were done, what refused some, which were not refused."""
    tune = _Tune(index, injected_fault != "fault")
    told: dict[str, Any] = {"wrong": 0, "times": [], "done": 0, "refused": [], "missed": []}
    for variant in variants():
        try:
            result, times = tune.one(variant)
        except (Refused, cuda.CudaFault) as refusal:
            if not variant.refuse or getattr(refusal, "cuda_code", 0) in _STICKY:
                raise
            told["refused"].append(str(refusal)[:160])
            continue
        if variant.refuse:
            told["missed"].append(variant.refuse)
        want = tuned(tune.data, variant.threads * variant.each)
        told["wrong"] += raw.differing(raw.disturbed(result, injected_fault), want)
        told["times"] += times
        told["done"] += 1
    return told


def run(bench: Bench) -> None:
    """Measures ``results.wrong`` in bytes, ``elapsed.wrong``, ``refused.missed``, ``variants.done`` and, from this
    process after the tune, ``after.wrong``.

    Injected faults: "ulp", "one", and "fault", a tune in which no variant asks for too much.
    """
    index = cuda.number_of(bench.device)
    told = cuda.in_child(lambda: _tuned(index, bench.injected_fault), _BUDGET_S)
    bench.count("results.wrong", told["wrong"])
    bench.count("elapsed.wrong", sum(untrue(elapsed, wall, _LEAST_MS) for elapsed, wall in told["times"]))
    bench.count("refused.missed", len(told["missed"]))
    bench.note("variants.done", told["done"])
    bench.detail = "; ".join(told["refused"])
    still_adds(bench, index)
