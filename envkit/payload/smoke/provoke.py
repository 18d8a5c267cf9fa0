"""Faults made on purpose, each in a process of its own, and the proof that they cost that process alone.

A child plants the fault and must end as that fault is documented to end; a second child then computes an exact product
on the same device.  Measures: ``reported.wrong`` counts faults that were not reported as they should be,
``after.wrong`` what the next process computes wrong.
"""

from __future__ import annotations

import array
import ctypes
import operator
import os
import resource
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from envkit.payload import isolate
from envkit.payload.lazy import torch
from envkit.payload.smoke import nvrtc, raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import CudaFault, Driver, number_of
from envkit.payload.smoke.sources import text_of

# cuda.h, CUresult, and driver_types.h, which numbers the same faults alike
INVALID_VALUE, NOT_INITIALIZED = 1, 3
ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT = 700, 702, 710
ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, LAUNCH_FAILED = 715, 716, 719
NAMES = {
    INVALID_VALUE: "CUDA_ERROR_INVALID_VALUE",
    NOT_INITIALIZED: "CUDA_ERROR_NOT_INITIALIZED",
    ILLEGAL_ADDRESS: "CUDA_ERROR_ILLEGAL_ADDRESS",
    LAUNCH_TIMEOUT: "CUDA_ERROR_LAUNCH_TIMEOUT",
    ASSERT: "CUDA_ERROR_ASSERT",
    ILLEGAL_INSTRUCTION: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    MISALIGNED_ADDRESS: "CUDA_ERROR_MISALIGNED_ADDRESS",
    LAUNCH_FAILED: "CUDA_ERROR_LAUNCH_FAILED",
}
NOWHERE = 0x100  # in the lowest page, which no process can map: not on a GPU, and not on a host that a GPU may read
CHILD_S = 30.0  # a CUDA start takes 0.3 s alone and some seconds beside seven other GPUs' processes
_WIDTH = 48
_GUARD = 256  # bytes before and after the result
_PRODUCT = text_of("errors/product.cu")
_HIDERS = ("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_WAITS_ON_EXCEPTION")  # either changes how and when a fault is told


def _calm(environment: Mapping[str, str]) -> None:
    """Makes this process die quickly and without a dump, with ``environment`` for CUDA's start."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in _HIDERS:
        os.environ.pop(name, None)
    os.environ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] = "0"
    os.environ["CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION"] = "0"
    os.environ.update(environment)


def _task(name: str, work: Callable[[], Any], seconds: float, environment: Mapping[str, str]) -> isolate.Task:
    def begin(_: Callable[[Any], None]) -> Any:
        _calm(environment)
        return work()

    return isolate.Task(name, "", seconds, begin)


def ends(
    works: Mapping[str, Callable[[], Any]],
    seconds: float = CHILD_S,
    environment: Mapping[str, str] | None = None,
    together: bool = False,
) -> dict[str, isolate.Ending]:
    """How each piece of work ends in a child of its own, one after another, each within ``seconds``.

    ``together`` is for work that does not break the GPU: a fault of one process can stop what another runs there at
    that moment.  Raises NotApplicable where a piece of work does.
    """
    found: dict[str, isolate.Ending] = {}
    lane = [_task(name, work, seconds, environment or {}) for name, work in works.items()]
    lanes = [[task] for task in lane] if together else [lane]
    isolate.run(lanes, seconds * len(lane) + 10.0, lambda task, ending: found.update({task.name: ending}))
    for ending in found.values():
        if ending.ended == "not-applicable":
            raise isolate.NotApplicable(ending.detail)
    return found


def heard_end(
    work: Callable[[Callable[[Any], None]], Any], seconds: float, heard: Callable[[Any], None]
) -> isolate.Ending:
    """How work that says where it stands ends in a child, within ``seconds``; ``heard`` gets what it says."""

    def begin(say: Callable[[Any], None]) -> Any:
        _calm({})
        return work(say)

    return isolate.run_one(isolate.Task("child", "", seconds, begin, heard=heard))


def words(ending: isolate.Ending) -> str:
    """How a child ended, in one line."""
    said = ending.value if ending.ended == "ran" else ending.detail
    return " ".join(filter(None, (ending.ended, ending.signal, ending.cuda, str(said or "")[:300]))).replace("\n", " ")


def tell(bench: Bench, measure: str, right: bool, said: str) -> None:
    """Counts one more expectation under ``measure``, as wrong unless it is ``right``, and notes what was seen."""
    bench.count(measure, int(not right))
    bench.detail = "\n".join(filter(None, (bench.detail, said)))


def planted(bench: Bench) -> bool:
    """Whether the fault is to be planted."""
    return bench.injected_fault != "fault"


class Gpu(NamedTuple):
    """A driver with the device's context current, and the number of the device."""

    driver: Driver
    number: int

    def kernel(self, source: str, name: str) -> ctypes.c_void_p:
        """A kernel that is compiled here."""
        return nvrtc.build(self.driver, self.number, source, [name])[1][name]


def begin(device: str) -> Gpu:
    """CUDA in this process, for good: to be called in children only."""
    gpu = Gpu(Driver(), number_of(device))
    gpu.driver.context(gpu.number)
    return gpu


def code_of(work: Callable[[], Any]) -> int:
    """The number of the driver's error that ``work`` ends with, 0 for none."""
    try:
        work()
    except CudaFault as fault:
        return fault.cuda_code
    return 0


def driver_product(gpu: Gpu, injected_fault: str) -> int:
    """Wrong elements, those around the result included, of a product of whole numbers without a framework."""
    driver, size, width = gpu.driver, _WIDTH * _WIDTH, _WIDTH
    kernel = gpu.kernel(_PRODUCT, "product")
    one, two = raw.fresh(4 * size, 1), raw.fresh(4 * size, 2)
    rows = [raw.words(one)[row * width : (row + 1) * width] for row in range(width)]
    columns = [raw.words(two)[column::width] for column in range(width)]
    products = [sum(map(operator.mul, row, column)) & raw.WORD for row in rows for column in columns]
    want = raw.framed(array.array("I", products).tobytes(), _GUARD, 4 * size + 2 * _GUARD)
    with driver.room(len(one), len(two), len(want)) as (a, b, c):
        driver.write(a, one)
        driver.write(b, two)
        driver.fill(c, raw.POISON, len(want))
        pointers = [ctypes.c_uint64(base) for base in (a, b, c + _GUARD)]
        driver.launch(kernel, (size + 127) // 128, 128, [*pointers, ctypes.c_int(width)])
        driver.synchronize()
        got = raw.disturbed(driver.read(c, len(want)), injected_fault)
    return sum(map(operator.ne, raw.words(got), raw.words(want)))


def torch_product(device: str, injected_fault: str) -> int:
    """Wrong elements of torch's product of small whole numbers."""
    bench = Bench(device, injected_fault)
    a, b = (torch.randint(-8, 9, (_WIDTH, _WIDTH), generator=bench.random()) for _ in range(2))
    out = torch.full((_WIDTH, _WIDTH), float("nan"), device=device)
    torch.mm(a.float().to(device), b.float().to(device), out=out)
    bench.exact("after.wrong", out, (a @ b).float())
    return int(bench.measures["after.wrong"])


def after(bench: Bench, product: Callable[[], int]) -> None:
    """Measures ``after.wrong`` by a product in a new process.

    Raises NotApplicable when that process says that this machine cannot do it, CudaFault when a CUDA error ended it,
    and RuntimeError for any other end.
    """
    ending = ends({"after": product})["after"]
    if ending.ended != "ran":
        last = ending.stderr_tail.strip().splitlines()[-1:] if ending.ended == "killed" else []
        said = "; ".join(filter(None, (words(ending), *last, bench.detail)))
        message = f"the process after the fault ended otherwise: {said}"
        raise CudaFault(message, ending.cuda) if ending.cuda else RuntimeError(message)
    bench.count("after.wrong", int(ending.value))


def after_driver(bench: Bench) -> None:
    """``after`` without a framework."""
    after(bench, lambda: driver_product(begin(bench.device), bench.injected_fault))


def after_torch(bench: Bench) -> None:
    """``after`` by torch."""
    after(bench, lambda: torch_product(bench.device, bench.injected_fault))


class KernelFault(NamedTuple):
    """A kernel ``plant(char* base, long long shift)`` that does no harm with a shift of 0, and what shift does it.

    ``shift`` gets the address of ``base``.  ``codes`` are the errors by which the fault may be told.
    """

    source: str
    shift: Callable[[int], int]
    codes: tuple[int, ...]


def _provoked(device: str, plant: KernelFault, fault: bool) -> dict[str, Any]:
    """The first error of the launch and the wait for it, and the errors of two later calls."""
    gpu = begin(device)
    driver = gpu.driver
    kernel = gpu.kernel(plant.source, "plant")
    base = driver.take(4096)
    driver.fill(base, 0, 4096)
    driver.synchronize()
    arguments = [ctypes.c_uint64(base), ctypes.c_longlong(plant.shift(base) if fault else 0)]
    code = code_of(lambda: driver.launch(kernel, 1, 32, arguments)) or code_of(driver.synchronize)
    again = [code_of(lambda: driver.take(4096)), code_of(lambda: driver.read(base, 4096))]
    return {"code": code, "name": driver.name_of(code), "again": again}


def driver_faults(bench: Bench, plants: Mapping[str, KernelFault]) -> None:
    """Plants faults that end a context: measures ``reported``, ``sticky`` (later calls say the same) and ``after``."""
    fault = planted(bench)
    works = {name: (lambda plant=plant: _provoked(bench.device, plant, fault)) for name, plant in plants.items()}
    for name, ending in ends(works).items():
        value = ending.value if isinstance(ending.value, dict) else {}
        code = value.get("code", 0)
        named = code in plants[name].codes and value["name"] == f"{code} ({NAMES[code]})"
        tell(bench, "reported.wrong", named, f"{name}: {value.get('name') or words(ending)}")
        sticky = bool(code) and value["again"] == [code, code]
        tell(bench, "sticky.wrong", sticky, "" if sticky else f"{name}: later calls gave {value.get('again')}")
    after_driver(bench)
