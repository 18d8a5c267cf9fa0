"""Asks NVML; the only module that imports pynvml (the nvidia-ml-py package).

Runs in a child, since a sick driver answers with a hang or kills its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import pynvml

from envkit.host.place import Source
from envkit.model import Observed
from envkit.payload.isolate import Ending
from envkit.subjects.host import Gpu, Nvml, RowRemap
from envkit.versions import Cuda, Sm

T = TypeVar("T")

# the GPU lacks the feature, or the driver is older than the question
_UNSUPPORTED = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
LIBRARY_NOT_FOUND = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND

# nvmlDeviceGetFieldValues, field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: the NVML_GPU_RECOVERY_ACTION_* of
# nvml.h
_RECOVERY = {
    0: "none",
    1: "gpu reset",
    2: "node reboot",
    3: "drain peer-to-peer traffic",
    4: "drain and reset",
    5: "recover imex domain",
    6: "bus reset",
    7: "system reboot",
}


class NvmlFault(Exception):
    """A call of NVML that returned an error: its number and name."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(f"{name} ({code})")
        self.code = code


class Api(Protocol):
    """What is asked of NVML; every method raises NvmlFault when NVML returns an error.

    GPUs go by index.  ``start`` comes first.
    """

    def start(self) -> None:
        """Loads the library and initialises it."""

    def driver(self) -> str:
        """The driver's version."""

    def cuda(self) -> int:
        """The highest CUDA version the driver supports, as cudaDriverGetVersion's integer."""

    def count(self) -> int:
        """How many GPUs NVML can reach."""

    def uuid(self, gpu: int) -> str:
        """The GPU's UUID."""

    def name(self, gpu: int) -> str:
        """The product's name."""

    def pci(self, gpu: int) -> str:
        """The PCI address, with a domain of eight digits."""

    def capability(self, gpu: int) -> tuple[int, int]:
        """The compute capability."""

    def memory(self, gpu: int) -> int:
        """The whole memory in bytes."""

    def persistence(self, gpu: int) -> bool:
        """Whether persistence mode is on."""

    def ecc(self, gpu: int) -> tuple[bool, bool]:
        """Whether ECC is on now and will be on after the next reset."""

    def ecc_uncorrected(self, gpu: int) -> int:
        """Uncorrected memory errors since the driver was loaded."""

    def remap(self, gpu: int) -> tuple[int, int, bool, bool]:
        """Remapped rows by correctable and by uncorrectable errors, a remap pending, a remap failed."""

    def recovery(self, gpu: int) -> int:
        """The recovery action the driver asks for."""

    def mig(self, gpu: int) -> bool:
        """Whether MIG mode is on."""


class Library:
    """NVML itself, by way of pynvml."""

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except pynvml.NVMLError as error:
            names = (name for name in dir(pynvml) if name.startswith("NVML_ERROR_"))
            named = [name for name in names if getattr(pynvml, name) == error.value]
            raise NvmlFault(error.value, named[0] if named else "an unnamed NVML error") from error

    def _of(self, call: Callable[..., T], gpu: int, *rest: int) -> T:
        return self._ask(lambda: call(pynvml.nvmlDeviceGetHandleByIndex(gpu), *rest))

    def start(self) -> None:
        self._ask(pynvml.nvmlInit)

    def driver(self) -> str:
        return str(self._ask(pynvml.nvmlSystemGetDriverVersion))

    def cuda(self) -> int:
        return int(self._ask(pynvml.nvmlSystemGetCudaDriverVersion_v2))

    def count(self) -> int:
        return int(self._ask(pynvml.nvmlDeviceGetCount))

    def uuid(self, gpu: int) -> str:
        return str(self._of(pynvml.nvmlDeviceGetUUID, gpu))

    def name(self, gpu: int) -> str:
        return str(self._of(pynvml.nvmlDeviceGetName, gpu))

    def pci(self, gpu: int) -> str:
        return str(self._of(pynvml.nvmlDeviceGetPciInfo, gpu).busId)

    def capability(self, gpu: int) -> tuple[int, int]:
        major, minor = self._of(pynvml.nvmlDeviceGetCudaComputeCapability, gpu)
        return int(major), int(minor)

    def memory(self, gpu: int) -> int:
        return int(self._of(pynvml.nvmlDeviceGetMemoryInfo, gpu).total)

    def persistence(self, gpu: int) -> bool:
        return bool(self._of(pynvml.nvmlDeviceGetPersistenceMode, gpu))

    def ecc(self, gpu: int) -> tuple[bool, bool]:
        now, pending = self._of(pynvml.nvmlDeviceGetEccMode, gpu)
        return bool(now), bool(pending)

    def ecc_uncorrected(self, gpu: int) -> int:
        kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        return int(self._of(pynvml.nvmlDeviceGetTotalEccErrors, gpu, kind, counter))

    def remap(self, gpu: int) -> tuple[int, int, bool, bool]:
        correctable, uncorrectable, pending, failed = self._of(pynvml.nvmlDeviceGetRemappedRows, gpu)
        return int(correctable), int(uncorrectable), bool(pending), bool(failed)

    def recovery(self, gpu: int) -> int:
        field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        handle = self._ask(lambda: pynvml.nvmlDeviceGetHandleByIndex(gpu))
        value = self._ask(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [field]))[0]
        # the call succeeds as a whole even if one field does not; a driver that does not know the field calls
        # it invalid
        if value.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT:
            raise NvmlFault(pynvml.NVML_ERROR_NOT_SUPPORTED, "NVML_ERROR_NOT_SUPPORTED")
        if value.nvmlReturn != pynvml.NVML_SUCCESS:
            raise NvmlFault(int(value.nvmlReturn), "the field's own error")
        return int(value.value.uiVal)

    def mig(self, gpu: int) -> bool:
        return bool(self._of(pynvml.nvmlDeviceGetMigMode, gpu)[0])


def _seen(call: Callable[[], T], via: str, unsupported: T | None = None) -> Observed[T]:
    try:
        return Observed.of(call(), via)
    except NvmlFault as fault:
        if fault.code in _UNSUPPORTED and unsupported is not None:
            return Observed.of(unsupported, via)
        return Observed.lost(f"{via} returned {fault}", via)


def _mode(on: bool) -> str:
    return "on" if on else "off"


def _read_gpu(api: Api, index: int) -> Gpu:
    def remap() -> RowRemap:
        correctable, uncorrectable, pending, failed = api.remap(index)
        return RowRemap(True, correctable, uncorrectable, pending, failed)

    def recovery() -> str:
        action = api.recovery(index)
        return _RECOVERY.get(action, f"action {action}")

    return Gpu(
        index,
        uuid=_seen(lambda: api.uuid(index), "nvmlDeviceGetUUID"),
        name=_seen(lambda: api.name(index), "nvmlDeviceGetName"),
        pci=_seen(lambda: _sysfs_address(api.pci(index)), "nvmlDeviceGetPciInfo"),
        sm=_seen(lambda: str(Sm(*api.capability(index))), "nvmlDeviceGetCudaComputeCapability"),
        memory=_seen(lambda: api.memory(index), "nvmlDeviceGetMemoryInfo"),
        persistence=_seen(lambda: _mode(api.persistence(index)), "nvmlDeviceGetPersistenceMode", "unsupported"),
        ecc=_seen(lambda: _mode(api.ecc(index)[0]), "nvmlDeviceGetEccMode", "unsupported"),
        ecc_pending=_seen(lambda: _mode(api.ecc(index)[1]), "nvmlDeviceGetEccMode", "unsupported"),
        ecc_uncorrected=_seen(lambda: api.ecc_uncorrected(index), "nvmlDeviceGetTotalEccErrors", -1),
        remap=_seen(remap, "nvmlDeviceGetRemappedRows", RowRemap(supported=False)),
        recovery=_seen(recovery, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "unsupported"),
        mig=_seen(lambda: _mode(api.mig(index)), "nvmlDeviceGetMigMode", "unsupported"),
    )


def _sysfs_address(nvml: str) -> str:
    """NVML's "00000000:65:00.0" as sysfs writes it, "0000:65:00.0"."""
    domain, _, rest = nvml.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def read(api: Api) -> Nvml:
    """The whole conversation; an error of a single GPU's value is that value's, any other ends it."""
    call = "nvmlInit"
    try:
        api.start()
        call = "nvmlSystemGetDriverVersion"
        driver = api.driver()
        call = "nvmlSystemGetCudaDriverVersion"
        cuda = str(Cuda.from_int(api.cuda()))
        call = "nvmlDeviceGetCount"
        gpus = tuple(_read_gpu(api, index) for index in range(api.count()))
    except NvmlFault as fault:
        ended = "no library" if fault.code == LIBRARY_NOT_FOUND else "error"
        return Nvml(ended, f"{call} returned {fault}", fault.code)
    return Nvml("answered", driver=driver, cuda=cuda, gpus=gpus)


SOURCES: dict[str, Source] = {"nvml": lambda place: Observed.of(read(Library()), "NVML")}


def join(found: Mapping[str, Observed[Any]], ending: Ending | None) -> Mapping[str, Observed[Any]]:
    """That the driver hung or killed its caller is itself an observation."""
    if found["nvml"].value is None and ending is not None and ending.ended in ("hung", "killed"):
        what = ending.detail if ending.ended == "hung" else f"the process that asked NVML died of {ending.signal}"
        return {"nvml": Observed.of(Nvml(ending.ended, what), "NVML")}
    return found
