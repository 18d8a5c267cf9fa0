"""The CUDA driver through ctypes, as far as the suite needs it: devices, memory, modules, launches, streams, events."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envkit.payload import cuda_error, isolate

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, cuda.h
_CC_MAJOR, _CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*, cuda.h
MAX_THREADS, MAX_SHARED, WARP, CLOCK_KHZ, MULTIPROCESSORS = 1, 8, 10, 13, 16  # CU_DEVICE_ATTRIBUTE_*, cuda.h
INTEGRATED, COMPUTE_MODE, MAX_SHARED_OPTIN = 18, 20, 97
_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size, cuda.h
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING, cuda.h
_ORDERING = ("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS")


class NoGpu(Exception):
    """There is no GPU here and nothing claims that there should be one; the text says how that was seen."""


class CudaFault(cuda_error.Failed):
    """A function of the driver failed, with the number of its error and the driver's own name for it."""


class Driver:
    """libcuda, initialised; every call raises CudaFault with the driver's own name for what went wrong."""

    def __init__(self) -> None:
        try:
            self.library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            if "cannot open shared object file" in str(error) and "libcuda.so.1:" in str(error):
                raise NoGpu("there is no libcuda.so.1 in this container") from None
            raise
        code = self.library.cuInit(0)
        if code == _NO_DEVICE:
            raise NoGpu(f"cuInit says {self.name_of(code)}")
        self.check("cuInit", code)

    def _bare_name(self, code: int) -> str:
        text = ctypes.c_char_p()
        known = self.library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
        return text.value.decode() if known and text.value else ""

    def name_of(self, code: int) -> str:
        """The driver's name for a result code, with the code."""
        name = self._bare_name(code)
        return f"{code} ({name})" if name else str(code)

    def check(self, function: str, code: int, detail: str = "") -> None:
        """Raises CudaFault unless ``code`` is success."""
        if code:
            message = f"{function} returned {self.name_of(code)}" + (f": {detail}" if detail else "")
            raise CudaFault(message, f"{code} {self._bare_name(code)}")

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the driver; an int goes as a C int, so an address or a size must be a ctypes value."""
        self.check(function, getattr(self.library, function)(*arguments))

    def count(self) -> int:
        """How many devices this process sees."""
        number = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def model(self, index: int) -> str:
        """The device's name."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, 256, self.device(index))
        return text.value.decode("utf-8", "replace")

    def device(self, index: int) -> ctypes.c_int:
        """The handle of a device."""
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), index)
        return handle

    def attribute(self, index: int, which: int) -> int:
        """A number that the device says of itself (CUdevice_attribute)."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, self.device(index))
        return value.value

    def capability(self, index: int) -> int:
        """The compute capability as the compiler writes it: ten times the major number plus the minor one."""
        return self.attribute(index, _CC_MAJOR) * 10 + self.attribute(index, _CC_MINOR)

    def context(self, index: int) -> ctypes.c_void_p:
        """Makes the device's primary context current in this thread."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device(index))
        self.call("cuCtxSetCurrent", context)
        return context

    def synchronize(self) -> None:
        """Waits for all work of the context; the fault of an earlier kernel is raised here."""
        self.call("cuCtxSynchronize")

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the current device, as the driver counts them for all processes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def take(self, size: int) -> int:
        """The address of ``size`` new bytes on the device."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def release(self, address: int) -> None:
        """Frees what ``take`` gave."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    @contextlib.contextmanager
    def room(self, *sizes: int) -> Iterator[list[int]]:
        """Device memory of these sizes for as long as the block lasts."""
        addresses: list[int] = []
        try:
            addresses += [self.take(size) for size in sizes]
            yield addresses
        except CudaFault:  # the context may be broken: freeing would hide the first error behind a second one
            addresses.clear()
            raise
        finally:
            for address in addresses:
                self.release(address)

    def write(self, address: int, data: bytes) -> None:
        """Copies bytes to the device."""
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_char_p(data), ctypes.c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        """Copies bytes from the device."""
        raw = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", raw, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return raw.raw

    def fill(self, address: int, byte: int, size: int) -> None:
        """Sets every one of ``size`` bytes on the device."""
        self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))

    def module(self, code: bytes, what: str = "a module") -> ctypes.c_void_p:
        """Loads machine code or PTX text, which the driver compiles; its compiler's words go into the error."""
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        load = self.library.cuModuleLoadDataEx
        loaded = load(ctypes.byref(module), ctypes.c_char_p(code), ctypes.c_uint(2), options, values)
        said = log.value.decode("utf-8", "replace").strip()
        self.check(f"cuModuleLoadDataEx of {what}", loaded, said)
        return module

    def kernel(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of a module by its name."""
        kernel = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
        return kernel

    def launch(
        self,
        kernel: ctypes.c_void_p,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        stream: ctypes.c_void_p | None = None,
        shared: int = 0,
    ) -> None:
        """Launches a kernel over one dimension; ``arguments`` are ctypes values, ``shared`` bytes a block."""
        packed = pack(arguments)
        self.call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, ctypes.c_uint(shared), stream, packed, None)

    def stream(self) -> ctypes.c_void_p:
        """A new stream that waits for no other."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return stream

    def event(self) -> ctypes.c_void_p:
        """A new event that keeps the time."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event

    def elapsed_ms(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Milliseconds of the device between two events that are over."""
        value = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(value), start, end)
        return value.value


def pack(arguments: Sequence[Any]) -> Any:
    """The addresses of ctypes values as a launch takes them; the values must outlive the launch's call."""
    return (ctypes.c_void_p * max(1, len(arguments)))(*[ctypes.addressof(value) for value in arguments])


def number_of(device: str) -> int:
    """The number of a device's name: 1 of "cuda:1"."""
    return int(device.rpartition(":")[2])


def plain_order() -> None:
    """Drops, before the driver starts, what would order independent streams: a lost wait would not show under it."""
    for name in _ORDERING:
        os.environ.pop(name, None)


def in_child(work: Callable[[], Any], budget_s: float) -> Any:
    """What ``work`` returns in a fork of this process, which must not have used CUDA yet.

    Raises NotApplicable where the child said so, CudaFault for a CUDA error in it, RuntimeError for any other end.
    """
    ending = isolate.run_one(isolate.Task("child", "", budget_s, lambda _: work()))
    if ending.ended == "ran":
        return ending.value
    if ending.ended == "not-applicable":
        raise isolate.NotApplicable(ending.detail)
    words = " ".join(filter(None, (ending.ended, ending.signal, ending.detail)))
    last = ending.stderr_tail.strip().splitlines()[-3:] if ending.ended in ("killed", "hung") else []
    message = f"in a child process: {'; '.join((words, *last))}"
    raise CudaFault(message, ending.cuda) if ending.cuda else RuntimeError(message)


def gpus() -> dict[str, Any]:
    """The names of the GPUs that this process sees, or why there is none."""
    try:
        driver = Driver()
    except NoGpu as reason:
        return {"gpus": [], "reason": str(reason)}
    return {"gpus": [driver.model(index) for index in range(driver.count())], "reason": "cuDeviceGetCount says 0"}
