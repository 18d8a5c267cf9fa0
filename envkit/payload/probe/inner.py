"""The process that is observed: it imports torch as a user's process would and reports line by line.

Each finished field is a line of JSON on its own pipe, so that a crash loses only what was not yet seen.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from typing import NoReturn

from envkit.payload.probe import libs, maps, origin, torchside, wheels
from envkit.payload.probe.ask import ask


def observed(value: object, via: str) -> dict[str, object]:
    """A field that was seen."""
    return {"value": value, "via": via, "missing": ""}


def lost(why: str) -> dict[str, object]:
    """A field that was not seen, with the reason."""
    return {"value": None, "via": "", "missing": why}


class Pipe:
    """Writes one line a field."""

    def __init__(self, number: int) -> None:
        self._file = os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")

    def send(self, line: dict[str, object]) -> None:
        """Writes ``line`` at once."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def doing(self, what: str) -> None:
        """Says what comes next, for the case that it never ends."""
        self.send({"doing": what})

    def field(self, name: str, value: dict[str, object]) -> None:
        """One observed or lost field."""
        self.send({"field": name, "observed": value})


def _devices() -> list[str]:
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if "libcuda.so.1: cannot open shared object file" not in str(error):
            raise  # something claims to be the driver and cannot be loaded: that is no absence
        return ["", str(error)]
    count, major, minor, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    code = driver.cuInit(0)
    if code == 100:  # CUDA_ERROR_NO_DEVICE of cuda.h
        return ["", "cuInit returned 100, no device"]
    code = code or driver.cuDeviceGetCount(ctypes.byref(count))
    found: list[str] = []
    for index in range(count.value):
        code = code or driver.cuDeviceGet(ctypes.byref(device), index)
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        code = code or driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        code = code or driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        found.append(f"sm_{major.value}{minor.value}")
    if code:
        raise OSError(f"the driver returned {code}")
    return found


def devices() -> dict[str, object]:
    """The capabilities of the devices that the driver shows; none, if there is no driver."""
    found, why = ask(_devices, 60.0)
    if why:
        return lost(f"asking the driver for its devices: {why}")
    if found[:1] == [""]:
        return observed([], found[1])
    return observed(found, "cuDeviceGetAttribute")


def _requires(dists: list[wheels.Dist]) -> list[dict[str, str]]:
    return [
        {"of": dist.name, "of_version": dist.version, "text": text}
        for dist in dists
        if dist.name in ("torch", "cuda-toolkit")
        for text in dist.requires
    ]


def _libraries(
    spelled: list[str],
    before: list[str],
    opened: dict[str, str],
    owned: dict[str, list[wheels.Entry]],
    known: dict[str, str],
) -> list[dict[str, str]]:
    entries, gone = origin.library_path(), maps.deleted()
    earlier: list[origin.Searches] = []
    told: list[dict[str, str]] = []
    for path in spelled:
        name = libs.family(path)
        how = origin.derive(path, earlier, set(before), opened, entries) if name else ""
        lists = origin.searches(path)
        if lists:
            earlier.append(lists)
        if not name:
            continue
        real = os.path.realpath(path)
        version, via = ("", "") if libs.is_torch(name) else libs.version(name, path)
        owner, owner_version = wheels.owner_of(real, owned, known)
        told.append(
            {
                "name": name,
                "soname": os.path.basename(path),
                "path": real + (" (deleted)" if real in gone or path in gone else ""),
                "version": version,
                "version_via": via,
                "owner": owner,
                "owner_version": owner_version,
                "found_via": how,
            }
        )
    return told


def _unmapped(mapped: set[str], owned: dict[str, list[wheels.Entry]]) -> list[dict[str, str]]:
    """The libraries of CUDA families that a RECORD lists, that are on disk and that were not mapped."""
    told: list[dict[str, str]] = []
    for real, listed in sorted(owned.items()):
        name = libs.family(real)
        if name and not libs.is_torch(name) and real not in mapped and os.path.exists(real):
            told.append(
                {
                    "name": name,
                    "soname": os.path.basename(real),
                    "path": real,
                    "owner": listed[0].owner,
                    "owner_version": listed[0].version,
                    "found_via": "on disk, not mapped",
                }
            )
    return told


def _report(pipe: Pipe, with_torch: bool) -> None:
    pipe.field("python", observed(platform.python_version(), sys.executable))
    pipe.field("platform", observed(platform.machine(), "uname"))
    libc, number = platform.libc_ver()
    pipe.field("libc", observed(f"{libc} {number}", "confstr") if number else lost("this libc does not say"))
    pipe.doing("reading the installed distributions")
    dists = wheels.distributions()
    pipe.field("wheels", observed([{"name": d.name, "version": d.version} for d in dists], "importlib.metadata"))
    pipe.field("requires", observed(_requires(dists), "METADATA"))
    pipe.doing("asking the driver for its devices")
    pipe.field("devices", devices())
    owned = wheels.owners(dists)
    known: dict[str, str] = {}
    real: list[str] = []
    if with_torch:
        before = maps.mapped()
        pipe.doing("import torch")
        ended, opened = torchside.import_torch()
        pipe.field("torch_import", observed(ended, "importlib.import_module"))
        pipe.doing("asking torch for its build")
        pipe.field("torch", _build(ended))
        torch_cuda = [path for path in maps.mapped() if libs.family(path) == "torch_cuda"]
        pipe.doing("loading what torch loads late")
        if torch_cuda:
            pipe.field("late", observed(torchside.load_late(torch_cuda[0], opened), "dlopen"))
        else:
            pipe.field("late", observed([], "libtorch_cuda.so is not mapped"))
        pipe.doing("asking the mapped libraries for their versions")
        told = _libraries(maps.mapped(), before, opened, owned, known)
        pipe.field("libraries", observed(told, "dl_iterate_phdr"))
        pipe.field("unmapped", observed(_unmapped({library["path"] for library in told}, owned), "RECORD"))
        families = sorted({library["name"] for library in told})
        pipe.field("bindings", observed(libs.bindings(families, torch_cuda[0] if torch_cuda else ""), "dlsym, dladdr"))
        real = [library["path"] for library in told if not libs.is_torch(library["name"])]
    pipe.doing("comparing files with RECORD")
    try:
        pipe.field("overwritten", observed(wheels.overwritten(dists, real, known), "RECORD"))
    except OSError as error:
        pipe.field("overwritten", lost(f"comparing files with RECORD: {error}"))


def _build(ended: str) -> dict[str, object]:
    if ended != "done":
        return lost(f"import torch: {ended}")
    try:
        return observed(torchside.build(), "torch._C")
    except Exception as error:  # a torch that cannot name its build is data
        return lost(f"torch does not name its build: {type(error).__name__}: {error}")


def main(argv: list[str]) -> NoReturn:
    """Observes this process; ``argv`` is the number of the pipe and, to leave torch out, "--no-torch"."""
    pipe = Pipe(int(argv[0]))
    _report(pipe, "--no-torch" not in argv)
    pipe.send({"end": True})
    sys.stderr.flush()
    os._exit(0)  # unloading a broken CUDA stack is nobody's question and has been seen to crash


def fields() -> tuple[str, ...]:
    """The names of all fields, in the order in which they are reported."""
    first = ("python", "platform", "libc", "wheels", "requires", "devices")
    return (*first, "torch_import", "torch", "late", "libraries", "unmapped", "bindings", "overwritten")
