"""Clocks, power, temperature and throttling of one GPU, read from NVML through ctypes.

The GPU is found by its PCI address, because NVML numbers every GPU of the machine and CUDA only those that
CUDA_VISIBLE_DEVICES leaves, in an order of its own.  What a GPU or a driver does not offer is left out of a reading and
is no error: virtual GPUs, Tegra and GeForce lack this or that.  Nothing is ever set.
"""

from __future__ import annotations

import ctypes
from typing import Any

from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import Driver

_SM, _MEMORY = 1, 2  # nvmlClockType_t, nvml.h
_TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t
_ABSENT = frozenset((3, 4, 13))  # NVML_ERROR_NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND
_IDLE = 0x1
_REASONS = (  # nvmlClocksEventReason* of nvml.h, by bit from 0x1 on
    "gpu idle", "application clocks", "software power cap", "hardware slowdown", "sync boost",
    "software thermal slowdown", "hardware thermal slowdown", "hardware power brake", "display clock",
)  # fmt: skip


def reasons(bits: int) -> tuple[str, ...]:
    """The names of what holds the clocks down; a bit that is not known by name is given in hexadecimal."""
    names = tuple(name for place, name in enumerate(_REASONS) if bits >> place & 1)
    rest = bits >> len(_REASONS) << len(_REASONS)
    return (*names, hex(rest)) if rest else names


def slowing(bits: int) -> tuple[str, ...]:
    """As ``reasons``, without idleness: a GPU that is being measured is not idle, NVML's answer is only late."""
    return reasons(bits & ~_IDLE)


def address(index: int) -> str:
    """The PCI address of the CUDA device ``index`` of this process, as "00000000:1B:00.0"."""
    driver = Driver()
    text = ctypes.create_string_buffer(32)
    driver.call("cuDeviceGetPCIBusId", text, 32, driver.device(index))
    return text.value.decode("ascii")


class Clocks:
    """One GPU as NVML shows it.  ``missing`` says why it cannot be asked; every reading is empty then.

    ``library`` is libnvidia-ml, opened; None looks for it.
    """

    def __init__(self, pci: str, library: Any = None) -> None:
        self.missing = ""
        self._library = library
        self._handle = ctypes.c_void_p()
        if library is None:
            try:
                self._library = ctypes.CDLL("libnvidia-ml.so.1")
            except OSError as error:
                self.missing = f"NVML cannot be opened: {error}"
                return
        code = self._library.nvmlInit_v2()
        if not code:
            code = self._library.nvmlDeviceGetHandleByPciBusId_v2(pci.encode("ascii"), ctypes.byref(self._handle))
        if code:
            self.missing = f"NVML does not know the GPU at {pci}: error {code}"

    def _number(self, kind: Any, names: tuple[str, ...], *arguments: Any) -> int | None:
        """What the first of ``names`` that this NVML has answers; None where the GPU does not offer it.

        Raises RuntimeError for an answer that says neither, as when the GPU has fallen off the bus.
        """
        for name in names:
            try:
                function = getattr(self._library, name)
            except AttributeError:
                continue
            number = kind()
            code = function(self._handle, *arguments, ctypes.byref(number))
            if code and code not in _ABSENT:
                raise RuntimeError(f"{name} returned {code}")
            return None if code else int(number.value)
        return None

    def read(self) -> dict[str, float]:
        """A reading of now: ``sm.mhz``, ``memory.mhz`` and their largest ones, ``power.w``, its limit,
        ``temperature.c`` and ``throttle.bits``, each only where the GPU offers it.  Power is an average of up to a
        second (nvml.h)."""
        if self.missing:
            return {}
        asked = (
            ("throttle.bits", 1.0, ctypes.c_ulonglong, ("nvmlDeviceGetCurrentClocksEventReasons",
                                                        "nvmlDeviceGetCurrentClocksThrottleReasons"), ()),
            ("sm.mhz", 1.0, ctypes.c_uint, ("nvmlDeviceGetClockInfo",), (_SM,)),
            ("power.w", 1e-3, ctypes.c_uint, ("nvmlDeviceGetPowerUsage",), ()),
            ("memory.mhz", 1.0, ctypes.c_uint, ("nvmlDeviceGetClockInfo",), (_MEMORY,)),
            ("temperature.c", 1.0, ctypes.c_uint, ("nvmlDeviceGetTemperature",), (_TEMPERATURE_GPU,)),
            ("sm-most.mhz", 1.0, ctypes.c_uint, ("nvmlDeviceGetMaxClockInfo",), (_SM,)),
            ("memory-most.mhz", 1.0, ctypes.c_uint, ("nvmlDeviceGetMaxClockInfo",), (_MEMORY,)),
            ("power-limit.w", 1e-3, ctypes.c_uint, ("nvmlDeviceGetEnforcedPowerLimit",), ()),
        )  # fmt: skip
        found = {name: (self._number(kind, names, *given), scale) for name, scale, kind, names, given in asked}
        return {name: value * scale for name, (value, scale) in found.items() if value is not None}


def of(device: str) -> Clocks:
    """The clocks of the CUDA device "cuda:N" of this process."""
    return Clocks(address(int(device.partition(":")[2] or 0)))


def told(reading: dict[str, float], missing: str = "") -> str:
    """A reading in words, as "SM 1980 of 1980 MHz, 512 of 700 W, 48 C, held down by software power cap"."""
    if missing or not reading:
        return f"clocks not read: {missing or 'NVML offers none here'}"
    words = []
    for label, unit, value, most in (
        ("SM ", "MHz", "sm.mhz", "sm-most.mhz"),
        ("memory ", "MHz", "memory.mhz", "memory-most.mhz"),
        ("", "W", "power.w", "power-limit.w"),
        ("", "C", "temperature.c", ""),
    ):
        if value in reading:
            limit = f" of {reading[most]:.0f}" if most in reading else ""
            words.append(f"{label}{reading[value]:.0f}{limit} {unit}")
    if "throttle.bits" in reading:
        held = slowing(int(reading["throttle.bits"]))
        words.append("held down by " + " and ".join(held) if held else "held down by nothing")
    return ", ".join(words)


def record(bench: Bench, reading: dict[str, float], missing: str = "") -> None:
    """Puts a reading into the test's measures and, in words, into its detail."""
    for name, value in reading.items():
        bench.measures[name] = value
    bench.detail = told(reading, missing)
