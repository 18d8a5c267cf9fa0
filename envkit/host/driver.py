"""The NVIDIA driver as /proc, /sys and the library directories show it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from envkit.host.place import Source, short
from envkit.model import Observed
from envkit.subjects.host import DriverLibrary, KernelModule, PciGpu
from envkit.versions import Driver

# every driver release has three digits before the first dot, which tells it from a library's own version
DRIVER_VERSION = re.compile(r"[0-9]{3}\.[0-9]+(?:\.[0-9]+)?")

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nouveau", "vfio_pci")
_LIBRARIES = ("libcuda", "libnvidia-ml")
_DIRECTORIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
)


def parse_module_version(text: str) -> KernelModule:
    """The module's version and flavor out of /proc/driver/nvidia/version.

    Its first line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  <version>  <date>", or "NVRM version:
    NVIDIA UNIX Open Kernel Module for x86_64  <version>  Release Build  (...)" for the open one.  Raises
    ValueError on anything else.
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    found = re.search(r"(Open )?Kernel Module\b.*?\s(" + DRIVER_VERSION.pattern + r")\b", line)
    if not found:
        raise ValueError("no line `NVRM version: ... Kernel Module <version>`")
    return KernelModule(found[2], "open" if found[1] else "proprietary")


def module(root: Path) -> Observed[KernelModule]:
    """The loaded kernel module, by /proc/driver/nvidia/version or /sys/module/nvidia/version."""
    proc, sys = root / "proc/driver/nvidia/version", root / "sys/module/nvidia/version"
    try:
        return Observed.of(parse_module_version(proc.read_text(errors="replace")), "/proc/driver/nvidia/version")
    except (OSError, ValueError) as error:
        why = f"/proc/driver/nvidia/version: {short(error)}"
    try:
        return Observed.of(KernelModule(str(Driver(sys.read_text().strip()))), "/sys/module/nvidia/version")
    except (OSError, ValueError) as error:
        return Observed.lost(f"{why}; /sys/module/nvidia/version: {short(error)}")


def modules(root: Path) -> Observed[tuple[str, ...]]:
    """Which of the kernel modules that matter are loaded, by /sys/module; a built-in one counts as loaded."""
    listing = root / "sys/module"
    if not listing.is_dir():
        return Observed.lost("/sys/module is not there")
    return Observed.of(tuple(name for name in _MODULES if (listing / name).is_dir()), "/sys/module")


def pci_gpus(root: Path) -> Observed[tuple[PciGpu, ...]]:
    """NVIDIA's PCI functions with a display class, by /sys/bus/pci/devices."""
    listing = root / "sys/bus/pci/devices"
    found = []
    try:
        for device in sorted(listing.iterdir()):
            if (device / "vendor").read_text().strip() != _NVIDIA:
                continue
            if (device / "class").read_text().startswith(_DISPLAY):
                driver = os.path.basename(os.path.realpath(device / "driver")) if (device / "driver").exists() else ""
                found.append(PciGpu(device.name, (device / "device").read_text().strip(), driver))
    except OSError as error:
        return Observed.lost(f"/sys/bus/pci/devices: {short(error)}")
    return Observed.of(tuple(found), "/sys/bus/pci/devices")


def _directories(root: Path) -> Iterator[Path]:
    for name in _DIRECTORIES:
        yield root / name
    for conf in sorted((root / "etc/ld.so.conf.d").glob("*.conf")):
        for line in conf.read_text(errors="replace").splitlines():
            if line.startswith("/"):
                yield root / line.strip().lstrip("/")


def loadable(path: Path) -> str:
    """Why the dynamic linker cannot take the file, empty if its first bytes are those of an ELF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        if path.is_symlink() and not path.exists():
            return f"its link leads to {os.readlink(path)}, which does not exist"
        return short(error)
    return "" if magic == b"\x7fELF" else "it is empty" if not magic else "it is not an ELF file"


def libraries(root: Path) -> tuple[DriverLibrary, ...]:
    """The user-space driver libraries in the linker's usual directories, each file once."""
    found: dict[str, DriverLibrary] = {}
    for directory in _directories(root):
        for name in _LIBRARIES:
            path = directory / f"{name}.so.1"
            real = os.path.realpath(path)
            if os.path.lexists(path) and real not in found:
                version = re.search(r"\.so\.(" + DRIVER_VERSION.pattern + r")\Z", real)
                shown = "/" + str(path.relative_to(root))
                found[real] = DriverLibrary(name, shown, version[1] if version else "", loadable(path))
    return tuple(found.values())


SOURCES: dict[str, Source] = {
    "module": lambda place: module(place.root),
    "modules": lambda place: modules(place.root),
    "pci_gpus": lambda place: pci_gpus(place.root),
}
