"""The CUDA driver through ctypes, as far as the suite needs it: which GPUs there are, and one kernel's launch."""

from __future__ import annotations

import ctypes
from typing import Any

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, cuda.h
_CC_MAJOR, _CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*, cuda.h


class NoGpu(Exception):
    """There is no GPU here and nothing claims that there should be one; the text says how that was seen."""


class Driver:
    """libcuda, initialised; every call raises RuntimeError with the driver's own name for what went wrong."""

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

    def name_of(self, code: int) -> str:
        """The driver's name for a result code, with the code."""
        text = ctypes.c_char_p()
        known = self.library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
        return f"{code} ({text.value.decode()})" if known and text.value else str(code)

    def check(self, function: str, code: int) -> None:
        """Raises RuntimeError unless ``code`` is success."""
        if code:
            raise RuntimeError(f"{function} returned {self.name_of(code)}")

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the driver."""
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

    def capability(self, index: int) -> int:
        """The compute capability as the compiler writes it: ten times the major number plus the minor one."""
        parts = []
        for attribute in (_CC_MAJOR, _CC_MINOR):
            value = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self.device(index))
            parts.append(value.value)
        return parts[0] * 10 + parts[1]


def gpus() -> dict[str, Any]:
    """The names of the GPUs that this process sees, or why there is none."""
    try:
        driver = Driver()
    except NoGpu as reason:
        return {"gpus": [], "reason": str(reason)}
    return {"gpus": [driver.model(index) for index in range(driver.count())], "reason": "cuDeviceGetCount says 0"}
