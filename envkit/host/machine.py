"""What /proc, /sys and the C library say of the machine; nothing here can hang."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from envkit.host.place import Source
from envkit.model import Observed
from envkit.subjects.host import Limit

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)
_LIMITS = {"Max locked memory": "memlock", "Max open files": "nofile", "Max stack size": "stack"}


def kernel(root: Path) -> Observed[str]:
    """The kernel's release."""
    path = root / "proc/sys/kernel/osrelease"
    try:
        return Observed.of(path.read_text().strip(), "/proc/sys/kernel/osrelease")
    except OSError as error:
        return Observed.lost(f"/proc/sys/kernel/osrelease: {error.strerror}")


def parse_os_release(text: str) -> str:
    """PRETTY_NAME out of os-release(5); raises ValueError if there is none."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")
    raise ValueError("no PRETTY_NAME")


def os_name(root: Path) -> Observed[str]:
    """The distribution's name."""
    try:
        return Observed.of(parse_os_release((root / "etc/os-release").read_text()), "/etc/os-release")
    except (OSError, ValueError) as error:
        return Observed.lost(f"/etc/os-release: {error}")


def glibc(root: Path) -> Observed[str]:
    """The version of the running C library; it cannot be read out of a recorded tree."""
    if root != Path("/"):
        return Observed.lost("a recorded tree does not run")
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return Observed.lost("the C library is not glibc", "confstr")
    name, _, version = text.partition(" ")
    if name != "glibc":
        return Observed.lost(f"the C library calls itself `{text}`", "confstr")
    return Observed.of(version, "confstr CS_GNU_LIBC_VERSION")


def cgroup(root: Path) -> Observed[str]:
    """ "v2", "v1" or "hybrid" (v1 controllers beside a v2 tree), by what lies in /sys/fs/cgroup."""
    base = root / "sys/fs/cgroup"
    if (base / "cgroup.controllers").exists():
        return Observed.of("v2", "/sys/fs/cgroup/cgroup.controllers")
    if (base / "memory").is_dir() or (base / "devices").is_dir():
        unified = (base / "unified/cgroup.controllers").exists()
        return Observed.of("hybrid" if unified else "v1", "/sys/fs/cgroup")
    return Observed.lost("/sys/fs/cgroup shows neither version")


def parse_limits(text: str) -> dict[str, Limit]:
    """memlock, nofile and stack out of /proc/PID/limits; raises ValueError if one of them is not there."""
    found: dict[str, Limit] = {}
    for line in text.splitlines():
        for label, name in _LIMITS.items():
            if line.startswith(label):
                soft, hard = (-1 if word == "unlimited" else int(word) for word in line[len(label) :].split()[:2])
                found[name] = Limit(soft, hard)
    if len(found) != len(_LIMITS):
        raise ValueError(f"only {len(found)} of {len(_LIMITS)} limits are listed")
    return found


def limits(root: Path) -> Observed[Mapping[str, Limit]]:
    """This process's limits."""
    try:
        return Observed.of(parse_limits((root / "proc/self/limits").read_text()), "/proc/self/limits")
    except (OSError, ValueError) as error:
        return Observed.lost(f"/proc/self/limits: {error}")


def infiniband(root: Path) -> Observed[tuple[str, ...]]:
    """The RDMA devices; without the directory the kernel has none."""
    listing = root / "sys/class/infiniband"
    if not (root / "sys/class").is_dir():
        return Observed.lost("/sys/class is not there")
    names = sorted(path.name for path in listing.iterdir()) if listing.is_dir() else []
    return Observed.of(tuple(names), "/sys/class/infiniband")


def environment(variables: Mapping[str, str]) -> Observed[Mapping[str, str]]:
    """The variables that decide what CUDA sees, as far as they are set."""
    return Observed.of({name: variables[name] for name in _VARIABLES if name in variables}, "environment")


SOURCES: dict[str, Source] = {
    "kernel": lambda place: kernel(place.root),
    "os": lambda place: os_name(place.root),
    "glibc": lambda place: glibc(place.root),
    "cgroup": lambda place: cgroup(place.root),
    "limits": lambda place: limits(place.root),
    "infiniband": lambda place: infiniband(place.root),
    "environment": lambda place: environment(place.environ),
}
