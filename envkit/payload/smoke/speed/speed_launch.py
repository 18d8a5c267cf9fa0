"""What it costs to start a kernel that does next to nothing: by a launch, by a graph of one, and in one of a thousand.

All through the CUDA driver, so that torch's own share is not in it.  The kernel adds 1 to a counter: a launch that was
reported and did not happen is missing there.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver
from envkit.payload.smoke.sources import text_of
from envkit.payload.smoke.speed import timing

_PTX = text_of("speed/speed_launch.ptx").encode()
_CAPABILITY = 70  # the oldest GPU that this text is for
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_ROUNDS = 9
_LAUNCHES = 500  # fewer than a stream's queue holds, so that no launch waits for the GPU
_REPLAYS = 100
_NODES = 1000


class _Kernel:
    """The counting kernel in this process's context, and a stream of its own."""

    def __init__(self, driver: Driver, counter: int) -> None:
        self._driver = driver
        self._function = driver.kernel(driver.module(_PTX, "PTX text"), "count")
        self.stream = driver.stream()
        self._counter = ctypes.c_uint64(counter)
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self._counter))
        self._launch = driver.library.cuLaunchKernel
        self._launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]

    def launch(self) -> None:
        """Enqueues the kernel: one block of one thread."""
        code = self._launch(self._function, 1, 1, 1, 1, 1, 1, 0, self.stream, self._parameters, None)
        if code:
            self._driver.check("cuLaunchKernel", code)

    def synchronize(self) -> None:
        """Waits for everything enqueued."""
        self._driver.call("cuStreamSynchronize", self.stream)

    def graph(self, nodes: int) -> Callable[[], None]:
        """A graph of ``nodes`` launches, one after another; what is returned enqueues it."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver.call("cuStreamBeginCapture_v2", self.stream, _RELAXED)
        for _ in range(nodes):
            self.launch()
        self._driver.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self._driver.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        enqueue: Any = self._driver.library.cuGraphLaunch

        def replay() -> None:
            code = enqueue(ready, self.stream)
            if code:
                self._driver.check("cuGraphLaunch", code)

        return replay


def _enqueued(kernel: _Kernel, work: Callable[[], None], times: int) -> tuple[float, float]:
    """Microseconds of the host for one call, and of host and GPU until all is done, the median of some rounds."""
    host, whole = [], []
    for _ in range(_ROUNDS):
        kernel.synchronize()
        before = time.perf_counter()
        for _ in range(times):
            work()
        enqueued = time.perf_counter()
        kernel.synchronize()
        host.append((enqueued - before) / times * 1e6)
        whole.append((time.perf_counter() - before) / times * 1e6)
    return timing.median(host), timing.median(whole)


def run(bench: Bench) -> None:
    """Measures ``launch.us`` and ``graph.us`` (the host's time for one launch of a kernel, of a graph of one kernel),
    ``stream.us`` (one launch until it is done, many in a row), ``node.us`` (one kernel of a graph of a thousand), and
    ``launches.wrong`` (1 if the count of launches is not right)."""
    torch.cuda.set_device(bench.device)
    counter = torch.zeros(1, dtype=torch.int32, device=bench.device)  # makes the device's context current, too
    torch.cuda.synchronize()
    driver = Driver()
    capability = driver.capability(torch.cuda.current_device())
    if capability < _CAPABILITY:
        least = f"compute capability {_CAPABILITY / 10} and newer"
        bench.not_applicable(f"the kernel is for {least}, this GPU has {capability / 10}")
    kernel = _Kernel(driver, int(counter.data_ptr()))
    for _ in range(_LAUNCHES):
        kernel.launch()
    host, whole = _enqueued(kernel, kernel.launch, _LAUNCHES)
    bench.note("launch.us", host)
    bench.note("stream.us", whole)
    small, large = kernel.graph(1), kernel.graph(_NODES)
    small()
    host, _ = _enqueued(kernel, small, _REPLAYS)
    bench.note("graph.us", host)
    large()
    _, whole = _enqueued(kernel, large, 3)
    bench.note("node.us", whole / _NODES)
    kernel.synchronize()
    launched = _LAUNCHES * (1 + _ROUNDS) + 1 + _REPLAYS * _ROUNDS + _NODES * (1 + 3 * _ROUNDS)
    bench.exact("launches.wrong", counter, torch.tensor([launched], dtype=torch.int32))
