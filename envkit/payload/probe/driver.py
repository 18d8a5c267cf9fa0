"""The driver as a process of the image meets it: its library, what cuInit says, NVML, its nodes and its version.

Each part that enters the driver is a child of its own, for a driver can crash, and it can hang: both are answers.
The children are started together, and their answers are collected when torch has been imported.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
from collections.abc import Callable
from typing import Any

from envkit.payload.probe import maps, origin, present
from envkit.payload.probe.ask import Questions
from envkit.payload.probe.report import lost, observed

_LIBRARY = "libcuda.so.1"
_ABSENT = f"{_LIBRARY}: cannot open shared object file"
_NO_DEVICE = 100  # CUresult of cuda.h
_ENTER_S = 60.0  # eight GPUs without persistence mode take some 20 s to start
_MODULE = "/proc/driver/nvidia/version"
# where NVIDIA's cuda-compat packages and images put their libcuda, and where toolkits put the stub of it
_COMPAT = ("/usr/local/cuda*/compat", "/usr/local/cuda*/compat/*", "/opt/cuda*/compat", "/opt/nvidia/cuda*/compat")
_STUBS = ("/usr/local/cuda*/lib64/stubs", "/usr/local/cuda*/lib/stubs", "/usr/local/cuda*/targets/*/lib/stubs")
# the driver's own nodes, WSL's, and those of embedded GPUs
_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")
_IN_NAME = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)\Z")
_IN_MODULE = re.compile(r"Kernel Module(?: for [\w-]+)?\s+(\d+(?:\.\d+)+)")


def _load() -> dict[str, Any]:
    """The file that dlopen gives and its cuDriverGetVersion; how it cannot be loaded."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return {"path": "", "error": str(error), "version": 0}
    path = next((one for one in maps.mapped() if os.path.basename(one).startswith("libcuda.so")), "")
    version = ctypes.c_int()
    try:
        code = library.cuDriverGetVersion(ctypes.byref(version))
    except AttributeError:
        code = -1
    return {"path": path, "error": "", "version": 0 if code else version.value}


def _init() -> dict[str, Any]:
    """What cuInit returned and, if that is 0, the devices; ``why`` names the call that failed after it."""
    said: dict[str, Any] = {"init": None, "count": None, "sms": [], "why": ""}
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return {**said, "why": str(error)}
    count, major, minor, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    said["init"] = library.cuInit(0)
    if said["init"]:
        return said
    code = library.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return {**said, "why": f"cuDeviceGetCount returned {code}"}
    said["count"] = count.value
    for index in range(count.value):
        code = library.cuDeviceGet(ctypes.byref(device), index)
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        code = code or library.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        code = code or library.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        if code:
            return {**said, "why": f"asking device {index} for its capability returned {code}"}
        said["sms"].append(f"sm_{major.value}{minor.value}")
    return said


def _nvml() -> dict[str, Any]:
    """NVML's driver version and number of GPUs, or which of its calls returned what (nvml.h)."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return {"nvml": str(error), "count": None}
    code = library.nvmlInit_v2()
    if code:
        return {"nvml": f"nvmlInit returned {code}", "count": None}
    text = ctypes.create_string_buffer(96)
    count = ctypes.c_uint()
    code = library.nvmlSystemGetDriverVersion(text, len(text))
    said = f"nvmlSystemGetDriverVersion returned {code}" if code else text.value.decode("ascii", "replace")
    code = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return {"nvml": said, "count": None if code else count.value}


def module_version(path: str = _MODULE) -> str:
    """The version of the loaded kernel module, empty where there is none or a container hides it."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = _IN_MODULE.search(file.read())
    except OSError:
        return ""
    return found.group(1) if found else ""


def _files(kind: str, folders: tuple[str, ...]) -> list[str]:
    """The libcuda files in ``folders``, and in a directory below one called ``kind`` that LD_LIBRARY_PATH names."""
    named = [glob.escape(entry) for entry in origin.library_path() if kind in entry.split("/")]
    found = {os.path.realpath(path) for folder in (*folders, *named) for path in glob.glob(folder + "/libcuda.so*")}
    return sorted(path for path in found if os.path.isfile(path))


def nodes() -> list[dict[str, str]]:
    """The driver's device nodes, with why one cannot be opened."""
    numbered = glob.glob("/dev/nvidia[0-9]*")
    found: list[dict[str, str]] = []
    for path in [*_NODES, *sorted(numbered, key=lambda path: (len(path), path))]:
        if not os.path.exists(path):
            continue
        why = ""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            why = error.strerror or str(error)
        found.append({"path": path, "error": why})
    return found


def in_cache(library: str, cache: str = origin.CACHE) -> bool:
    """Whether ld.so.cache names a libcuda.so.1 that is the file ``library``; scripts ask it through ldconfig."""
    return any(os.path.realpath(path) == library for path in origin.cached(cache) if path.endswith("/" + _LIBRARY))


class DriverProbe:
    """The driver on its way; started before torch is imported, collected after."""

    def __init__(self, budget_s: float = _ENTER_S) -> None:
        self._load = Questions(_load, budget_s)
        self._init = Questions(_init, budget_s)
        self._nvml = Questions(_nvml, budget_s)
        self._nodes = Questions(nodes, budget_s)  # opening a GPU's node starts the GPU

    def collect(self, owner_of: Callable[[str], str]) -> tuple[dict[str, object], dict[str, object]]:
        """The fields ``devices`` and ``driver``; ``owner_of`` names the wheel that brought the file at a real path."""
        loaded, load_failed = self._load.answer()
        inited, init_failed = self._init.answer()
        nvml, nvml_failed = self._nvml.answer()
        opened, open_failed = self._nodes.answer()
        loaded = loaded or {"path": "", "error": f"dlopen of {_LIBRARY} {load_failed}", "version": 0}
        inited = inited or {"init": None, "count": None, "sms": [], "why": init_failed}
        if opened is None:
            opened = [{"path": "/dev/nvidia*", "error": f"opening them {open_failed}"}]
        value = {
            **_library(inited, loaded, owner_of),
            "module": module_version(),
            "compat": _files("compat", _COMPAT),
            "stubs": _files("stubs", _STUBS),
            "nodes": opened,
            "nvml_count": nvml["count"] if nvml else None,
            "nvml": nvml["nvml"] if nvml else nvml_failed,
        }
        return _devices(inited, loaded), observed(value, "dlopen, cuInit, NVML, /dev")


def _devices(said: dict[str, Any], loaded: dict[str, Any]) -> dict[str, object]:
    if loaded["error"].startswith(_ABSENT):
        return observed([], loaded["error"])
    if said["init"] == _NO_DEVICE:
        return observed([], f"cuInit returned {_NO_DEVICE}, no device")
    why = f"cuInit returned {said['init']}" if said["init"] else said["why"]
    if why:
        return lost(f"asking the driver for its devices: {why}")
    return observed(said["sms"], "cuDeviceGetAttribute")


def _debian_owner(path: str) -> str:
    return next((name for name, _ in present.debian_owners([path]).values()), "")


def _library(said: dict[str, Any], loaded: dict[str, Any], owner_of: Callable[[str], str]) -> dict[str, Any]:
    library = os.path.realpath(loaded["path"]) if loaded["path"] else ""
    in_name = _IN_NAME.search(library)
    version = loaded["version"]
    died = f"cuInit {said['why']}" if library and said["init"] is None else ""
    return {
        "library": library,
        "load_error": loaded["error"] or died,
        "init": said["init"],
        "cuda": f"{version // 1000}.{version % 1000 // 10}" if version else "",
        "file": in_name.group(1) if in_name else "",
        "owner": (owner_of(library) or _debian_owner(library)) if library else "",
        "in_cache": in_cache(library) if library else None,
        "count": said["count"],
    }
