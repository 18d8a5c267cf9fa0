"""Asks NVML; the only module that imports pynvml (the nvidia-ml-py package).

Runs in a child, since a sick driver answers with a hang or kills its caller.  A driver that answers is not believed
either: text that is no text, numbers that cannot be and lists without end cost the value that they were given for.
Names, numbers, units and structures are nvml.h's.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from envkit.host import nvml_names as names
from envkit.host.root import Source
from envkit.model import Observed, Reason
from envkit.payload.isolate import Ending
from envkit.subjects.host import gpu
from envkit.versions import Cuda, Driver, Sm

T = TypeVar("T")

_MOST_GPUS = 64  # four times what the largest machine of today holds
_MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
_MOST_LISTED = 1024  # processes or retired pages of one GPU; a page table holds 64 retired pages
_NO_ERROR = -1  # in place of NVML's number

# the GPU lacks the feature, or the driver is older than the question
_NOT_KNOWN = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
_UNSUPPORTED = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_DEPRECATED, *_NOT_KNOWN)

_P2P_READ = 0  # pynvml's own constant is a tuple

# NVML_FI_DEV_*, for nvmlDeviceGetFieldValues
_RECOVERY, _MEMORY_TEMPERATURE = 230, 82
_SLOWDOWN_LIMIT = 194
_THROTTLED = {"power": 74, "thermal": 269, "hw thermal": 270, "hw power brake": 271, "sync boost": 76}
_THROTTLED_THERMAL = 75  # what older drivers have instead of 269
_GPU_FIELDS = (_RECOVERY, _MEMORY_TEMPERATURE, _SLOWDOWN_LIMIT, *_THROTTLED.values(), _THROTTLED_THERMAL)
_LINK_SPEED, _LINK_SPEED_OF_ALL = 164, 90
# of one link each, by its number as the scope; since Blackwell the first three are gone and the others are there
_LINK_ERRORS = {
    "replay": (161,),
    "recovery": (162, 215),
    "crc_flit": (163,),
    "receive": (208,),
    "integrity": (211,),
    "recovery_failed": (214,),
}
# nvmlNvLinkErrorCounter_t, what drivers without these fields are asked
_LINK_COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}
# nvmlValueType_t; no field that is asked for here is a double (0), so that type says that the driver set none
_VALUE = {0: "ullVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class NvmlFault(Exception):
    """A call of NVML without an answer: its error's number, and in words what it did ("returned ...").

    ``code`` is below zero where NVML returned no error: what it said cannot be, or it was not asked.
    """

    def __init__(self, code: int, said: str, reason: Reason | None = None) -> None:
        super().__init__(said)
        self.code = code
        self.reason = reason

    @property
    def unsupported(self) -> bool:
        return self.code in _UNSUPPORTED


@functools.cache
def _error(code: int) -> str:
    names = (name for name in dir(pynvml) if name.startswith("NVML_ERROR_") and getattr(pynvml, name) == code)
    return f"{next(names, 'an unnamed NVML error')} ({code})"


def _fault(code: int) -> NvmlFault:
    return NvmlFault(code, f"returned {_error(code)}")


def _garbage(what: object) -> NvmlFault:
    return NvmlFault(_NO_ERROR, f"returned {what}, which cannot be", Reason.NONSENSE)


def _ask(call: Callable[..., T], *arguments: Any) -> T:
    """The one way to NVML; raises NvmlFault for an error and for text that is none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        raise _fault(int(error.value)) from error
    except pynvml.NVMLLibraryMismatchError as error:
        raise _fault(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from error
    except UnicodeDecodeError as error:
        raise NvmlFault(_NO_ERROR, "returned text that is not UTF-8", Reason.NONSENSE) from error


def _text(value: str | bytes) -> str:
    """Text as a person reads it; NVML leaves it empty, or writes N/A, where the GPU has none."""
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise NvmlFault(_NO_ERROR, "returned text that is not UTF-8", Reason.NONSENSE) from error
    if not text.isprintable():
        raise _garbage(ascii(text))
    if text.strip() in ("", "N/A", "[N/A]"):
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return text.strip()


def _within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise _garbage(value)
    return int(value)


def _word(value: int, words: Mapping[int, T]) -> T:
    if value not in words:
        raise _garbage(value)
    return words[value]


def _mode(value: int) -> gpu.Mode:
    return _word(value, names.MODES)


def _bytes(value: int) -> int:
    return _within(value, 0, 1 << 50)


def _count(value: int) -> int:
    """A counter of 64 bits; all bits set is NVML's way to say that it has none."""
    if value == (1 << 64) - 1:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return _within(value, 0, 1 << 53)


def _address(nvml: str) -> str:
    """NVML's "00000000:65:00.0" as sysfs writes it, "0000:65:00.0"."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", nvml.lower())
    if not found:
        raise _garbage(ascii(nvml))
    return f"{int(found[1], 16):04x}:{found[2]}"


def _observed(via: str, make: Callable[[], T], instead: T | None = None) -> Observed[T]:
    """What ``make`` finds; where it is not supported, ``instead`` if there is one."""
    try:
        return Observed.of(make(), via)
    except NvmlFault as fault:
        if not fault.unsupported:
            return Observed.lost(f"{via} {fault}", via, fault.reason)
        return Observed.unsupported(via) if instead is None else Observed.of(instead, via)


class _Device:
    """One GPU in the conversation: what was asked of it, and how that went."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle: Any = None
        self._answers = 0
        self._faults: list[NvmlFault] = []
        self._fields: dict[int, int | NvmlFault] = {}
        self._gone: NvmlFault | None = None
        try:
            self.handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        except NvmlFault as fault:
            self._fell(fault)

    def _fell(self, fault: NvmlFault) -> None:
        self._faults.append(fault)
        self._gone = NvmlFault(_NO_ERROR, f"was not asked, since another call for this GPU {fault}")

    def ask(self, call: Callable[..., T], *arguments: Any) -> T:
        """The call's answer for this GPU; a GPU that is lost is not asked again, each call may wait for it."""
        if self._gone is not None:
            raise self._gone
        try:
            answer = _ask(call, self.handle, *arguments)
        except NvmlFault as fault:
            if fault.code == pynvml.NVML_ERROR_GPU_IS_LOST:
                self._fell(fault)
            elif not fault.unsupported and fault.code != _NO_ERROR:
                self._faults.append(fault)
            raise
        self._answers += 1
        return answer

    def first(self, calls: Sequence[Callable[..., T]], *arguments: Any) -> T:
        """The answer of the first call that this driver knows, the newest or safest first."""
        for call in calls[:-1]:
            try:
                return self.ask(call, *arguments)
            except NvmlFault as fault:
                if fault.code not in _NOT_KNOWN:
                    raise
        return self.ask(calls[-1], *arguments)

    def optional(self, otherwise: int, call: Callable[..., int], *arguments: Any) -> int:
        """A part of a value, ``otherwise`` where the GPU does not have it."""
        try:
            return self.ask(call, *arguments)
        except NvmlFault as fault:
            if fault.unsupported:
                return otherwise
            raise

    def fields(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int | NvmlFault]:
        """Many numbers in one call, by field and scope, each with an error of its own."""
        answers = self.ask(pynvml.nvmlDeviceGetFieldValues, list(wanted))
        found: dict[tuple[int, int], int | NvmlFault] = {}
        for key, answer in zip(wanted, answers, strict=True):
            code = int(answer.nvmlReturn)
            if code == pynvml.NVML_SUCCESS and answer.valueType in _VALUE:
                found[key] = int(getattr(answer.value, _VALUE[answer.valueType]))
            elif code == pynvml.NVML_SUCCESS:
                found[key] = _garbage(f"a value of type {answer.valueType}")
            elif code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                # what a driver calls a field that it does not know
                found[key] = _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
            else:
                found[key] = _fault(code)
        return found

    def field(self, number: int) -> int:
        """One of the fields of the whole GPU, all of which are asked for once."""
        if not self._fields:
            try:
                answers = self.fields([(wanted, 0) for wanted in _GPU_FIELDS])
                self._fields = {wanted: answers[wanted, 0] for wanted in _GPU_FIELDS}
            except NvmlFault as fault:
                self._fields = dict.fromkeys(_GPU_FIELDS, fault)
        return _number(self._fields[number])

    def listed(self, calls: Sequence[str], kind: Any, *arguments: Any) -> list[Any]:
        """An array that NVML fills, by the first of ``calls`` that the driver knows.

        Not by pynvml's own functions: they make room for as many as the driver says that there are.
        """

        def fill(name: str) -> Callable[[Any], list[Any]]:
            def call(handle: Any) -> list[Any]:
                room, count = (kind * _MOST_LISTED)(), ctypes.c_uint(_MOST_LISTED)
                function = pynvml._nvmlGetFunctionPointer(name)
                code = function(handle, *arguments, ctypes.byref(count), room)
                if code != pynvml.NVML_SUCCESS:
                    raise pynvml.NVMLError(code)
                return list(room[: _within(count.value, 0, _MOST_LISTED)])

            return call

        return self.first([fill(name) for name in calls])

    def state(self) -> str:
        """How the GPU took it, in the words of Gpu.state."""
        codes = [fault.code for fault in self._faults]
        if pynvml.NVML_ERROR_GPU_IS_LOST in codes:
            return "lost"
        if pynvml.NVML_ERROR_RESET_REQUIRED in codes:
            return "needs reset"
        if codes and not self._answers:
            return str(self._faults[0]).removeprefix("returned ")
        return "answers"


def _number(found: int | NvmlFault) -> int:
    if isinstance(found, NvmlFault):
        raise found
    return found


def _ecc(device: _Device, uncorrected: bool, ever: bool) -> int:
    return _count(device.ask(pynvml.nvmlDeviceGetTotalEccErrors, int(uncorrected), int(ever)))


def _remap(device: _Device) -> gpu.RowRemap:
    correctable, uncorrectable, pending, failed = device.ask(pynvml.nvmlDeviceGetRemappedRows)
    correctable, uncorrectable = (_within(count, 0, 1 << 24) for count in (correctable, uncorrectable))
    return gpu.RowRemap(True, correctable, uncorrectable, _mode(pending) == "on", _mode(failed) == "on")


def _sram(device: _Device) -> gpu.Sram:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    device.ask(pynvml.nvmlDeviceGetSramEccErrorStatus, ctypes.byref(status))
    return gpu.Sram(
        _count(status.aggregateUncParity), _count(status.aggregateUncSecDed), _mode(status.bThresholdExceeded) == "on"
    )


def _retired(device: _Device) -> gpu.RetiredPages:
    def pages(cause: int) -> int:
        return len(device.listed(["nvmlDeviceGetRetiredPages"], ctypes.c_ulonglong, ctypes.c_uint(cause)))

    return gpu.RetiredPages(
        pages(pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
        pages(pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
        _mode(device.ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus)) == "on",
    )


def _spare_rows(device: _Device) -> gpu.SpareRows:
    banks = device.ask(pynvml.nvmlDeviceGetRowRemapperHistogram)
    counts = (getattr(banks, name) for name in ("max", "high", "partial", "low", "none"))
    return gpu.SpareRows(*(_within(count, 0, 1 << 24) for count in counts))


def _memory(device: _Device) -> Any:
    """The newer form leaves what the driver keeps for itself out of what is used."""
    return device.first(
        [lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2), pynvml.nvmlDeviceGetMemoryInfo]
    )


def _bar1(device: _Device) -> gpu.Bar1:
    window = device.ask(pynvml.nvmlDeviceGetBAR1MemoryInfo)
    return gpu.Bar1(_bytes(window.bar1Total), _bytes(window.bar1Used))


def _temperature(device: _Device) -> gpu.Temperature:
    """Thresholds as temperatures; since Ada some drivers tell them as margins to the GPU's own limit alone."""
    now = _within(
        device.first([pynvml.nvmlDeviceGetTemperature, pynvml.nvmlDeviceGetTemperatureV], pynvml.NVML_TEMPERATURE_GPU),
        -50,
        250,
    )

    def threshold(which: int, field: int = 0) -> int:
        found = device.optional(-1, pynvml.nvmlDeviceGetTemperatureThreshold, which)
        if found == -1 and field:
            try:
                limit = (device.field(field) + (1 << 31)) % (1 << 32) - (1 << 31)  # signed, however it was typed
                found = now + device.ask(pynvml.nvmlDeviceGetMarginTemperature) - limit
            except NvmlFault as fault:
                if not fault.unsupported:
                    raise
        return _within(found, -1, 250)

    try:
        memory = _within(device.field(_MEMORY_TEMPERATURE), 0, 250) or -1
    except NvmlFault as fault:
        if not fault.unsupported:
            raise
        memory = -1
    return gpu.Temperature(
        now,
        threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, _SLOWDOWN_LIMIT),
        memory,
        threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
    )


def _power(device: _Device) -> gpu.Power:
    least, most = device.ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
    now, limit = device.ask(pynvml.nvmlDeviceGetPowerUsage), device.ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
    default = device.ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
    return gpu.Power(*(_within(value, 0, 100_000_000) for value in (now, limit, default, least, most)))


def _clocks(device: _Device) -> gpu.Clocks:
    def mhz(value: int) -> int:
        return _within(value, 0, 100_000)

    # Held is what differs from the default, which on many boards lies below the most that the GPU can do.
    held = device.optional(0, pynvml.nvmlDeviceGetApplicationsClock, pynvml.NVML_CLOCK_GRAPHICS)
    usual = device.optional(held, pynvml.nvmlDeviceGetDefaultApplicationsClock, pynvml.NVML_CLOCK_GRAPHICS)
    return gpu.Clocks(
        mhz(device.ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)),
        mhz(device.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)),
        0 if held == usual else mhz(held),
    )


def _throttle(device: _Device) -> tuple[str, ...]:
    mask = device.first(
        [pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons]
    )
    if mask >> 16:  # a driver may know reasons that are not named here, but not so many
        raise _garbage(f"{mask:#x}")
    named = {1 << bit: name for bit, name in enumerate(names.REASONS)}
    return tuple(named.get(1 << bit, f"reason {1 << bit:#x}") for bit in range(16) if mask >> bit & 1)


def _throttled_us(device: _Device) -> dict[str, int]:
    """NVML counts nanoseconds."""
    found: dict[str, int] = {}
    for name, number in _THROTTLED.items():
        numbers = (number, _THROTTLED_THERMAL) if name == "thermal" else (number,)
        for candidate in numbers:
            try:
                found[name] = _within(device.field(candidate), 0, 1 << 63) // 1000
                break
            except NvmlFault as fault:
                if not fault.unsupported:
                    raise
    if not found:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return found


_USES: dict[gpu.ProcessKind, str] = {"graphics": "Graphics", "compute": "Compute", "mps": "MPSCompute"}


def _processes(device: _Device, proc: Path) -> tuple[gpu.Process, ...]:
    """One entry for each process, though NVML lists it for each use and each MIG instance."""
    found: dict[int, gpu.Process] = {}
    known = False
    for kind, name in _USES.items():
        calls = [f"nvmlDeviceGet{name}RunningProcesses_v{version}" for version in (3, 2)]
        try:
            rows = device.listed(calls, pynvml.c_nvmlProcessInfo_v3_t)
        except NvmlFault as fault:
            if fault.unsupported:
                continue
            raise
        known = True
        memory: dict[int, int] = {}
        for row in rows:
            # all bits set: the driver does not tell
            told = int(row.usedGpuMemory) if row.usedGpuMemory < 1 << 63 else -1
            before = memory.get(row.pid, 0)
            memory[row.pid] = -1 if told < 0 or before < 0 else _bytes(before + told)
        for pid, used in memory.items():
            found[pid] = _process(proc / str(pid), pid, kind, max(used, found[pid].memory if pid in found else -1))
    if not known:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return tuple(found[pid] for pid in sorted(found))


def _process(place: Path, pid: int, kind: gpu.ProcessKind, memory: int) -> gpu.Process:
    try:
        name = (place / "comm").read_text(encoding="utf-8", errors="replace").strip()
        return gpu.Process(pid, kind, memory, name, place.stat().st_uid == os.getuid())
    except OSError:
        # it ended meanwhile, or lives where this process cannot see it
        return gpu.Process(pid, kind, memory)


def _pcie(device: _Device) -> gpu.PcieLink:
    replays = device.optional(-1, pynvml.nvmlDeviceGetPcieReplayCounter)
    return gpu.PcieLink(
        _within(device.ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration), 1, 16),
        _word(device.ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth), names.LANES),
        _within(device.ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration), 1, 16),
        _word(device.ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth), names.LANES),
        _within(replays, -1, (1 << 32) - 1),
    )


def _links(device: _Device) -> tuple[gpu.NvLink, ...]:
    states: dict[int, bool] = {}
    for link in range(_MOST_LINKS):
        try:
            states[link] = _mode(device.ask(pynvml.nvmlDeviceGetNvLinkState, link)) == "on"
        except NvmlFault as fault:
            if fault.code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                break  # the GPU has no more links
            if not fault.unsupported:
                raise
    if not states:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    active = [link for link, up in states.items() if up]
    numbers = _link_numbers(device, active)
    return tuple(
        _link(device, link, numbers) if up else gpu.NvLink(link, active=False) for link, up in sorted(states.items())
    )


def _link_numbers(device: _Device, active: Sequence[int]) -> Mapping[tuple[int, int], int]:
    """The fields of all active links; one that the driver does not have is left out."""
    wanted = [(_LINK_SPEED_OF_ALL, 0)] if active else []
    for numbers in [(_LINK_SPEED,), *_LINK_ERRORS.values()]:
        wanted += [(number, link) for number in numbers for link in active]
    if not wanted:
        return {}
    try:
        found = device.fields(wanted)
    except NvmlFault as fault:
        if fault.unsupported:
            return {}
        raise
    kept: dict[tuple[int, int], int] = {}
    for key, value in found.items():
        if not (isinstance(value, NvmlFault) and value.unsupported):
            kept[key] = _within(_number(value), 0, (1 << 64) - 1)
    return kept


def _link(device: _Device, link: int, numbers: Mapping[tuple[int, int], int]) -> gpu.NvLink:
    version = device.optional(0, pynvml.nvmlDeviceGetNvLinkVersion, link)
    remote = device.optional(-1, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, link)
    errors: dict[str, int] = {}
    for name, fields in _LINK_ERRORS.items():
        known = [numbers[field, link] for field in fields if (field, link) in numbers]
        if known:
            errors[name] = known[0]
    if not errors:
        for name, counter in _LINK_COUNTERS.items():
            count = device.optional(-1, pynvml.nvmlDeviceGetNvLinkErrorCounter, link, counter)
            if count >= 0:
                errors[name] = count
    return gpu.NvLink(
        link,
        True,
        names.LINK_VERSIONS.get(version, 0),
        _within(numbers.get((_LINK_SPEED, link), numbers.get((_LINK_SPEED_OF_ALL, 0), 0)), 0, 10_000_000),
        "" if remote == -1 else names.REMOTES.get(remote, "other"),
        errors,
    )


class _FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t; pynvml's own has the UUID as text that ends at its first zero, in its older versions."""

    _fields_ = (
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class _FabricInfoV2(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = (("version", ctypes.c_uint), *_FabricInfo._fields_, ("health", ctypes.c_uint))


def _fabric(device: _Device) -> gpu.Fabric:
    def with_health(handle: Any) -> Any:
        info = _FabricInfoV2(ctypes.sizeof(_FabricInfoV2) | 2 << 24)
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        return info

    def without(handle: Any) -> Any:
        info = _FabricInfo()
        pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
        return info

    info = device.first([with_health, without])
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    mask = getattr(info, "health", 0)
    health = {name: _word(mask >> shift & 3, names.FABRIC_TRUTH) for name, shift in names.FABRIC_HEALTH.items()}
    wrong = mask >> names.FABRIC_CONFIGURATION & 15
    health["incorrect configuration"] = "true" if wrong > 1 else "false" if wrong else "not supported"
    return gpu.Fabric(
        _word(info.state, names.FABRIC_STATES),
        _within(info.status, 0, 9999),
        str(uuid.UUID(bytes=bytes(info.cluster))),
        int(info.clique),
        health,
    )


def _mig_instances(device: _Device) -> int:
    if _mode(device.ask(pynvml.nvmlDeviceGetMigMode)[0]) == "off":
        return 0
    there = 0
    for instance in range(_within(device.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount), 0, 64)):
        try:
            device.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, instance)
            there += 1
        except NvmlFault as fault:
            if fault.code not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
    return there


def _inforom(device: _Device) -> str:
    try:
        device.ask(pynvml.nvmlDeviceValidateInforom)
        return "valid"
    except NvmlFault as fault:
        if fault.code == pynvml.NVML_ERROR_CORRUPTED_INFOROM:
            return "corrupt"
        if not fault.unsupported:
            raise
    return _text(device.ask(pynvml.nvmlDeviceGetInforomImageVersion))


def _gsp(device: _Device) -> str:
    if _mode(device.ask(pynvml.nvmlDeviceGetGspFirmwareMode)[0]) == "off":
        return "off"
    return _text(device.ask(pynvml.nvmlDeviceGetGspFirmwareVersion))


def _license(device: _Device) -> str:
    """Asked of a vGPU alone: what bare metal may do without a licence is no question of computing."""
    if device.ask(pynvml.nvmlDeviceGetVirtualizationMode) != pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    said = device.ask(pynvml.nvmlDeviceGetGridLicensableFeatures)
    if not said.isGridLicenseSupported:
        raise _fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    features = said.gridLicensableFeatures[: _within(said.licensableFeaturesCount, 0, 3)]
    return "licensed" if any(feature.featureState for feature in features) else "unlicensed"


def _p2p(device: _Device, others: Sequence[_Device]) -> Mapping[str, gpu.Peer]:
    found: dict[str, gpu.Peer] = {}
    for other in others:
        if other.index == device.index or other.handle is None:
            continue
        status = device.optional(pynvml.NVML_P2P_STATUS_NOT_SUPPORTED, _p2p_status, other.handle)
        found[str(other.index)] = _word(status, names.P2P)
    return found


def _p2p_status(handle: Any, other: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetP2PStatus(handle, other, _P2P_READ))
    except pynvml.NVMLError as error:
        if error.value not in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
            raise
        return int(pynvml.NVML_P2P_STATUS_UNKNOWN)  # one of the two is sick, and the call does not say which


def _pci(handle: Any) -> str:
    return str(pynvml.nvmlDeviceGetPciInfo(handle).busId)


def _read_gpu(device: _Device, others: Sequence[_Device], proc: Path) -> gpu.Gpu:
    ask = device.ask

    def of(via: str, make: Callable[[_Device], T], instead: T | None = None) -> Observed[T]:
        return _observed(via, lambda: make(device), instead)

    def text(call: Callable[[Any], str | bytes]) -> Observed[str]:
        return _observed(call.__name__, lambda: _text(ask(call)))

    def word(call: Callable[[Any], int], words: Mapping[int, T], instead: T | None = None) -> Observed[T]:
        return _observed(call.__name__, lambda: _word(ask(call), words), instead)

    def mode(call: Callable[[Any], int], instead: gpu.Mode | None = None) -> Observed[gpu.Mode]:
        return word(call, names.MODES, instead)

    def pair(call: Callable[[Any], Sequence[int]], which: int, instead: gpu.Mode | None = None) -> Observed[gpu.Mode]:
        return _observed(call.__name__, lambda: _mode(ask(call)[which]), instead)

    def named(call: Callable[[Any], int], known: Mapping[int, str]) -> Observed[str]:
        """Of a list that grows with the products: a number that is not in it is no error."""
        return _observed(call.__name__, lambda: known.get(number := _within(ask(call), 0, 999), f"number {number}"))

    def sm() -> str:
        major, minor = ask(pynvml.nvmlDeviceGetCudaComputeCapability)
        return str(Sm(_within(major, 1, 99), _within(minor, 0, 9)))

    lacks: gpu.Mode = "unsupported"
    ecc = "nvmlDeviceGetTotalEccErrors"
    found = gpu.Gpu(
        device.index,
        uuid=text(pynvml.nvmlDeviceGetUUID),
        name=text(pynvml.nvmlDeviceGetName),
        pci=_observed("nvmlDeviceGetPciInfo", lambda: _address(ask(_pci))),
        sm=_observed("nvmlDeviceGetCudaComputeCapability", sm),
        memory=of("nvmlDeviceGetMemoryInfo", lambda device: _within(_memory(device).total, 1, 1 << 50)),
        persistence=mode(pynvml.nvmlDeviceGetPersistenceMode, lacks),
        ecc=pair(pynvml.nvmlDeviceGetEccMode, 0, lacks),
        ecc_pending=pair(pynvml.nvmlDeviceGetEccMode, 1, lacks),
        ecc_uncorrected=of(ecc, lambda device: _ecc(device, uncorrected=True, ever=False), -1),
        remap=of("nvmlDeviceGetRemappedRows", _remap, gpu.RowRemap(supported=False)),
        recovery=of("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", _recovery, lacks),
        mig=pair(pynvml.nvmlDeviceGetMigMode, 0, lacks),
        mig_pending=pair(pynvml.nvmlDeviceGetMigMode, 1),
        mig_instances=of("nvmlDeviceGetMigDeviceHandleByIndex", _mig_instances),
        minor=_observed(
            "nvmlDeviceGetMinorNumber", lambda: _within(ask(pynvml.nvmlDeviceGetMinorNumber), 0, (1 << 20) - 1)
        ),
        serial=text(pynvml.nvmlDeviceGetSerial),
        brand=named(pynvml.nvmlDeviceGetBrand, names.BRANDS),
        architecture=named(pynvml.nvmlDeviceGetArchitecture, names.ARCHITECTURES),
        part_number=text(pynvml.nvmlDeviceGetBoardPartNumber),
        vbios=text(pynvml.nvmlDeviceGetVbiosVersion),
        inforom=of("nvmlDeviceValidateInforom", _inforom),
        gsp=of("nvmlDeviceGetGspFirmwareVersion", _gsp),
        memory_used=of("nvmlDeviceGetMemoryInfo", lambda device: _bytes(_memory(device).used)),
        bar1=of("nvmlDeviceGetBAR1MemoryInfo", _bar1),
        ecc_corrected=of(ecc, lambda device: _ecc(device, uncorrected=False, ever=False)),
        ecc_uncorrected_ever=of(ecc, lambda device: _ecc(device, uncorrected=True, ever=True)),
        sram=of("nvmlDeviceGetSramEccErrorStatus", _sram),
        retired=of("nvmlDeviceGetRetiredPages", _retired),
        spare_rows=of("nvmlDeviceGetRowRemapperHistogram", _spare_rows),
        temperature=of("nvmlDeviceGetTemperature", _temperature),
        power=of("nvmlDeviceGetPowerUsage", _power),
        clocks=of("nvmlDeviceGetClockInfo", _clocks),
        throttle=of("nvmlDeviceGetCurrentClocksEventReasons", _throttle),
        throttled_us=of("NVML_FI_DEV_CLOCKS_EVENT_REASON_*", _throttled_us),
        pstate=_observed(
            "nvmlDeviceGetPerformanceState", lambda: _within(ask(pynvml.nvmlDeviceGetPerformanceState), 0, 15)
        ),
        compute_mode=word(pynvml.nvmlDeviceGetComputeMode, names.COMPUTE_MODES),
        utilization=_observed(
            "nvmlDeviceGetUtilizationRates", lambda: _within(ask(pynvml.nvmlDeviceGetUtilizationRates).gpu, 0, 100)
        ),
        processes=of("nvmlDeviceGetComputeRunningProcesses", lambda device: _processes(device, proc)),
        display=mode(pynvml.nvmlDeviceGetDisplayActive),
        accounting=mode(pynvml.nvmlDeviceGetAccountingMode),
        pcie=of("nvmlDeviceGetCurrPcieLinkGeneration", _pcie),
        links=of("nvmlDeviceGetNvLinkState", _links),
        fabric=of("nvmlDeviceGetGpuFabricInfoV", _fabric),
        license=of("nvmlDeviceGetGridLicensableFeatures", _license),
        virtual=word(pynvml.nvmlDeviceGetVirtualizationMode, names.VIRTUAL),
        p2p=of("nvmlDeviceGetP2PStatus", lambda device: _p2p(device, others)),
    )
    # last, when everything was asked
    return replace(found, state=Observed.of(device.state(), "NVML"))


def _recovery(device: _Device) -> str:
    """A driver newer than this list may ask for something else, which is an action all the same."""
    action = _within(device.field(_RECOVERY), 0, 255)
    return names.ACTIONS.get(action, f"action {action}")


def _confidential() -> gpu.Confidential:
    if _ask(pynvml.nvmlSystemGetConfComputeState).ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_DISABLED:
        return "off"
    ready = _ask(pynvml.nvmlSystemGetConfComputeGpusReadyState)
    return "on" if ready == pynvml.NVML_CC_ACCEPTING_CLIENT_REQUESTS_TRUE else "not ready"


def _version(call: Callable[[], str | bytes], kind: Callable[[str], Any] = str) -> str:
    """A version that reads as one, or nothing: what cannot be read must not pass for a version."""
    try:
        text = _text(_ask(call))
        kind(text)
    except (NvmlFault, ValueError):
        return ""
    return text


def _cuda() -> str:
    try:
        return str(Cuda.from_int(_within(_ask(pynvml.nvmlSystemGetCudaDriverVersion_v2), 1000, 999_999)))
    except (NvmlFault, ValueError):
        return ""


def read(proc: Path) -> gpu.Nvml:
    """The whole conversation; an error of a single value is that value's, one of the start or the count ends it.

    ``proc`` is where the processes are that NVML names.
    """
    call, driver, cuda, library = "nvmlInit", "", "", ""
    try:
        _ask(pynvml.nvmlInit)
        driver, cuda = _version(pynvml.nvmlSystemGetDriverVersion, Driver), _cuda()
        library = _version(pynvml.nvmlSystemGetNVMLVersion)
        call = "nvmlDeviceGetCount"
        devices = [_Device(index) for index in range(_within(_ask(pynvml.nvmlDeviceGetCount), 0, _MOST_GPUS))]
    except NvmlFault as fault:
        ended: gpu.NvmlEnded = "no library" if fault.code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND else "error"
        return gpu.Nvml(ended, f"{call} {fault}", max(fault.code, 0), driver, cuda, library)
    confidential = _observed("nvmlSystemGetConfComputeState", _confidential)
    gpus = tuple(_read_gpu(device, devices, proc) for device in devices)
    return gpu.Nvml("answered", "", 0, driver, cuda, library, confidential, gpus)


SOURCES: dict[str, Source] = {"nvml": lambda place: Observed.of(read(place.path("proc")), "NVML")}


def join(found: Mapping[str, Observed[Any]], ending: Ending | None) -> Mapping[str, Observed[Any]]:
    """That the driver hung or killed its caller is itself an observation."""
    if found["nvml"].value is not None or ending is None:
        return found
    if ending.ended == "hung":
        return {"nvml": Observed.of(gpu.Nvml("hung", ending.detail), "NVML")}
    if ending.ended == "killed":
        died = gpu.Nvml("killed", f"the process that asked NVML died of {ending.signal}")
        return {"nvml": Observed.of(died, "NVML")}
    return found
