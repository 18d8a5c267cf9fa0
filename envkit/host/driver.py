"""The NVIDIA driver as /proc, /sys, /dev and the library directories show it."""

from __future__ import annotations

import datetime
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from envkit.host import pci
from envkit.host.root import HostRoot, Source, by_name, parsed, short
from envkit.model import Observed
from envkit.subjects.host import DriverGpu, DriverInstall, DriverLibrary, KernelModule, MigCapability, PciGpu, Selinux
from envkit.subjects.host.driver import SelinuxState
from envkit.versions import Driver

# every driver release has three digits before the first dot, which tells it from a library's own version
DRIVER_VERSION = re.compile(r"[0-9]{3}\.[0-9]+(?:\.[0-9]+)?")

_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nouveau", "vfio_pci")
_LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
_MOST_GPUS = 64
_MOST_DENIALS = 20
_AUDIT_BYTES = 1 << 20
_CAPABILITIES = {"perfmon": 38, "sys_admin": 21}  # linux/capability.h
_BOOLEANS = ("container_use_devices", "container_use_xserver_devices")  # of the policy container-selinux
_DIRECTORIES = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib", "usr/lib/wsl/lib", "run/opengl-driver/lib",
)  # fmt: skip


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


def module(place: HostRoot) -> Observed[KernelModule]:
    """The loaded kernel module, by /proc/driver/nvidia/version or /sys/module/nvidia/version.

    Where neither is there no module is loaded, or it is that of another system, as under WSL.
    """
    if not place.exists("proc/driver/nvidia") and not place.exists("sys/module/nvidia"):
        return Observed.unsupported("/proc/driver/nvidia, /sys/module/nvidia")
    told = parsed(place, "proc/driver/nvidia/version", parse_module_version)
    if told.value is not None:
        return told
    listed = parsed(place, "sys/module/nvidia/version", lambda text: KernelModule(str(Driver(text.strip()))))
    return listed if listed.value is not None else Observed.lost(f"{told.missing}; {listed.missing}")


def modules(place: HostRoot) -> Observed[tuple[str, ...]]:
    """Which of the kernel modules that matter are loaded, by /sys/module; a built-in one counts as loaded."""
    try:
        loaded = set(place.names("sys/module"))
    except OSError as error:
        return Observed.lost(f"/sys/module: {short(error)}")
    return Observed.of(tuple(name for name in _MODULES if name in loaded), "/sys/module")


def pci_gpus(place: HostRoot) -> Observed[tuple[PciGpu, ...]]:
    """NVIDIA's PCI functions with a display class."""
    try:
        found = tuple(
            PciGpu(address, place.word(f"{pci.BUS}/{address}/device"), pci.driver_of(place, f"{pci.BUS}/{address}"))
            for address, vendor, code in pci.functions(place)
            if pci.kind_of(vendor, code) == "gpu"
        )
    except OSError as error:
        return Observed.lost(f"/{pci.BUS}: {short(error)}")
    return Observed.of(found, f"/{pci.BUS}")


def _directories(place: HostRoot) -> Iterator[str]:
    """Where the linker looks: the usual directories and those of its configuration."""
    yield from _DIRECTORIES
    for conf in _names(place, "etc/ld.so.conf.d"):
        if conf.endswith(".conf"):
            for line in place.word(f"etc/ld.so.conf.d/{conf}").splitlines():
                if line.startswith("/"):
                    yield line.strip().strip("/")


def loadable(path: Path) -> str:
    """Why the dynamic linker cannot take the file, empty if its header is that of an ELF file and it has its length."""
    try:
        with path.open("rb") as file:
            head, size = file.read(64), os.fstat(file.fileno()).st_size
    except OSError as error:
        return short(error)
    if not head.startswith(b"\x7fELF"):
        return "it is empty" if not head else "it is not an ELF file"
    return _cut(head, size)


def _cut(head: bytes, size: int) -> str:
    """Why an ELF file of ``size`` bytes is not whole: its section table, by elf.h, is the last thing in it."""
    if head[4:6] != b"\2\1":
        return ""  # another word size or byte order has another layout
    if len(head) < 64:
        return f"it is cut off after {size} bytes"
    (table,) = struct.unpack_from("<Q", head, 40)
    each, count = struct.unpack_from("<HH", head, 58)
    end = table + each * count
    return f"it is cut off after {size} of {end} bytes" if end > size else ""


def libraries(place: HostRoot) -> Observed[tuple[DriverLibrary, ...]]:
    """The user-space driver libraries in the linker's usual directories, each file once."""
    found: dict[str, DriverLibrary] = {}
    for directory in _directories(place):
        for name in _LIBRARIES:
            shown = f"{directory}/{name}.so.1"
            link = place.path(directory) / f"{name}.so.1"
            if not os.path.lexists(link):
                continue
            try:
                file, error = place.path(shown), ""
            except OSError as circle:
                file, error = link, short(circle)
            real = str(file) if error else os.path.realpath(file)
            if real not in found:
                if not error and link.is_symlink() and not os.path.lexists(real):
                    error = f"its link leads to {os.readlink(link)}, which does not exist"
                version = re.search(r"\.so\.(" + DRIVER_VERSION.pattern + r")\Z", real)
                found[real] = DriverLibrary(name, f"/{shown}", version[1] if version else "", error or loadable(file))
    return Observed.of(tuple(found.values()), "library directories")


def parse_params(text: str) -> dict[str, str]:
    """The driver's options in force: lines "Name: number" or "Name: \"text\"" of /proc/driver/nvidia/params.

    Raises ValueError if there is none.
    """
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and re.fullmatch(r"\w+", name):
            found[name] = value.strip().strip('"')
    if not found:
        raise ValueError("no line `Name: value`")
    return found


def params(place: HostRoot) -> Observed[dict[str, str]]:
    """The options that the loaded module took, whoever gave them; without a module there are none."""
    if not place.exists("proc/driver/nvidia"):
        return Observed.unsupported("/proc/driver/nvidia")
    return parsed(place, "proc/driver/nvidia/params", parse_params)


def parse_majors(text: str) -> dict[str, int]:
    """NVIDIA's character devices and their major numbers out of /proc/devices; raises ValueError on other text."""
    characters, separator, _ = text.partition("Block devices:")
    if not separator or "Character devices:" not in characters:
        raise ValueError("no list `Character devices:`")
    return {name: int(major) for major, name in re.findall(r"^ *([0-9]+) (nvidia\S*)$", characters, re.MULTILINE)}


def majors(place: HostRoot) -> Observed[dict[str, int]]:
    """The major numbers under which the kernel knows the driver now."""
    return parsed(place, "proc/devices", parse_majors)


def parse_information(text: str) -> DriverGpu:
    """One /proc/driver/nvidia/gpus/ADDRESS/information; raises ValueError without a location or a minor number."""
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    address, minor = said.get("Bus Location", ""), said.get("Device Minor", "")
    if not address or not minor.isdigit():
        raise ValueError("no `Bus Location` and `Device Minor`")
    firmware = "" if said.get("GPU Firmware") == "N/A" else said.get("GPU Firmware", "")
    return DriverGpu(address, int(minor), said.get("GPU UUID", ""), firmware, said.get("GPU Excluded") == "Yes")


def driver_gpus(place: HostRoot) -> Observed[tuple[DriverGpu, ...]]:
    """The GPUs that the driver has taken; reading them asks the driver, and it may wait for a GPU."""
    base = "proc/driver/nvidia/gpus"
    if not place.exists(base):
        return Observed.of((), f"/{base}")
    found = [parse_information(place.word(f"{base}/{name}/information")) for name in place.names(base)[:_MOST_GPUS]]
    return Observed.of(tuple(found), f"/{base}")


def mig_capabilities(place: HostRoot) -> Observed[tuple[MigCapability, ...]]:
    """The rights to MIG instances and whether each has its device file (the driver's README, capabilities)."""
    base, found = "proc/driver/nvidia/capabilities", []
    nodes = set(_names(place, "dev/nvidia-caps"))
    for gpu in [name for name in _names(place, base) if name.startswith("gpu")][:_MOST_GPUS]:
        mig = f"{base}/{gpu}/mig"
        for instance in [name for name in _names(place, mig) if name.startswith("gi")]:
            inside = [f"{instance}/{name}" for name in place.names(f"{mig}/{instance}") if name.startswith("ci")]
            for part in (instance, *inside):
                text = place.word(f"{mig}/{part}/access")
                minor = re.search(r"^DeviceFileMinor: *([0-9]+)$", text, re.MULTILINE)
                if not minor:
                    raise ValueError(f"/{mig}/{part}/access has no line `DeviceFileMinor: number`")
                node = f"nvidia-cap{minor[1]}"
                shown = f"/dev/nvidia-caps/{node}" if node in nodes else ""
                found.append(MigCapability(f"{gpu}/{part}/access", int(minor[1]), shown))
    return Observed.of(tuple(found), f"/{base}")


def dev_char(place: HostRoot) -> Observed[tuple[str, ...]]:
    """The links by number in /dev/char ("195:0") that lead to NVIDIA's device files."""
    found = []
    for name in _names(place, "dev/char"):
        link = place.path("dev/char") / name
        if link.is_symlink() and os.path.basename(os.readlink(link)).startswith("nvidia"):
            found.append(name)
    return Observed.of(tuple(found), "/dev/char")


def suspends(place: HostRoot) -> Observed[int]:
    """How often the machine slept and woke since boot; a kernel without sleep does not count."""
    if not place.exists("sys/power/suspend_stats/success"):
        return Observed.unsupported("/sys/power/suspend_stats")
    return Observed.of(int(place.word("sys/power/suspend_stats/success")), "/sys/power/suspend_stats/success")


def parse_privileges(text: str) -> tuple[str, ...]:
    """Which of our capabilities are in the effective set of /proc/PID/status; raises ValueError without it."""
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]{16})$", text, re.MULTILINE)
    if not found:
        raise ValueError("no line `CapEff:`")
    return tuple(name for name, bit in _CAPABILITIES.items() if int(found[1], 16) >> bit & 1)


def privileges(place: HostRoot) -> Observed[tuple[str, ...]]:
    """The capabilities of this process that open the GPU's counters."""
    return parsed(place, "proc/self/status", parse_privileges)


def profilers(place: HostRoot) -> Observed[tuple[str, ...]]:
    """Where Nsight Compute is installed."""
    toolkits = [f"usr/local/{name}/bin/ncu" for name in _names(place, "usr/local") if name.startswith("cuda")]
    own = [f"opt/nvidia/nsight-compute/{name}/ncu" for name in _names(place, "opt/nvidia/nsight-compute")]
    found = tuple(f"/{path}" for path in ("usr/bin/ncu", *toolkits, *own) if place.exists(path))
    return Observed.of(found, "program directories")


def _names(place: HostRoot, directory: str) -> tuple[str, ...]:
    return place.names(directory) if place.exists(directory) else ()


_LIBCUDA = re.compile(r"libcuda\.so\.(" + DRIVER_VERSION.pattern + ")")


def install(place: HostRoot) -> Observed[DriverInstall]:
    """Every file of libcuda with a version in its name, and whether the .run installer was here."""
    found: dict[str, tuple[str, str]] = {}
    for directory in _directories(place):
        for name in _names(place, directory):
            version = _LIBCUDA.fullmatch(name)
            # the directory may be a link to one that was read already
            if version and not (file := place.path(directory) / name).is_symlink():
                found.setdefault(os.path.realpath(file), (f"/{directory}/{name}", version[1]))
    uninstaller = "/usr/bin/nvidia-uninstall" if place.exists("usr/bin/nvidia-uninstall") else ""
    return Observed.of(DriverInstall(dict(found.values()), uninstaller), "library directories")


def parse_denials(text: str, since: float) -> tuple[str, ...]:
    """The refusals (AVC) of NVIDIA's device files in an audit log, from the second ``since`` of the epoch on."""
    found = []
    for line in text.splitlines():
        stamp = re.search(r"audit\(([0-9]+\.[0-9]+):", line)
        ours = "avc:  denied" in line and re.search(r'(path|name)="(/dev/)?nvidia', line)
        if stamp and ours and float(stamp[1]) >= since:
            found.append(line.strip()[:300])
    return tuple(dict.fromkeys(found))[-_MOST_DENIALS:]


def _denials(place: HostRoot) -> Observed[tuple[str, ...]]:
    name = "var/log/audit/audit.log"
    try:
        booted = re.search(r"^btime ([0-9]+)$", place.word("proc/stat"), re.MULTILINE)
        with place.path(name).open("rb") as file:
            file.seek(-min(_AUDIT_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
            text = file.read(_AUDIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return Observed.unsupported(f"/{name}")
    except OSError as error:
        return Observed.lost(f"/{name}: {short(error)}", f"/{name}")
    if not booted:
        return Observed.lost("/proc/stat does not say when the machine was booted", "/proc/stat")
    return Observed.of(parse_denials(text, float(booted[1])), f"/{name}")


def selinux(place: HostRoot) -> Observed[Selinux]:
    """SELinux's mode, its booleans about devices, and what it refused; without its file system it is off."""
    if not place.exists("sys/fs/selinux/enforce"):
        return Observed.of(Selinux("absent", {}, Observed.lost("SELinux is off")), "/sys/fs/selinux")
    modes: Mapping[str, SelinuxState] = {"1": "enforcing", "0": "permissive"}
    state = modes[place.word("sys/fs/selinux/enforce")]
    booleans = {}
    for name in _BOOLEANS:
        if place.exists(f"sys/fs/selinux/booleans/{name}"):
            booleans[name] = place.word(f"sys/fs/selinux/booleans/{name}").split()[0] == "1"
    return Observed.of(Selinux(state, booleans, _denials(place)), "/sys/fs/selinux")


def today(place: HostRoot) -> Observed[str]:
    """The day of the observation."""
    return Observed.of(datetime.date.today().isoformat(), "clock")


SOURCES: dict[str, Source] = {
    **by_name(module, modules, pci_gpus, today, privileges, suspends, dev_char, mig_capabilities, selinux, profilers),
    "driver_majors": majors,
    "driver_params": params,
    "driver_install": install,
}
# apart, for the driver waits for a GPU that does not answer
GPU_SOURCES = by_name(driver_gpus)
