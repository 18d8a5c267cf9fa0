"""What /proc, /sys and the C library say of the machine; nothing here can hang."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from envkit.host.root import HostRoot, Source, by_name, parsed
from envkit.model import Observed
from envkit.payload.probe import environ
from envkit.subjects.host import Limit

# beside those that steer CUDA and its kin
_PREFIXES, _MORE = ("CUFILE_",), ("TMPDIR",)
# curl(1): programs read them in small letters, most of them in capitals too
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"})
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
# an address may hold a user's password, with any signs in it: what stands before its last "@" is left out
_ADDRESS = re.compile(r"://\S*@")
_PROXY = re.compile(r"^(?!\w+://).*@")  # programs take a proxy without a scheme too
_MACHINES = {b"\x3e\x00": "x86_64", b"\xb7\x00": "aarch64"}  # 64-bit, little-endian
_LIMITS = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max stack size": "stack",
    "Max processes": "nproc",
    "Max address space": "as",
}


def kernel(place: HostRoot) -> Observed[str]:
    """The kernel's release."""
    return parsed(place, "proc/sys/kernel/osrelease", str.strip)


def architecture(place: HostRoot) -> Observed[str]:
    """The processor as uname says it, or as the ELF header of a tree's own programs does (e_machine of elf.h)."""
    if place.live:
        return Observed.of(os.uname().machine, "uname")
    with place.path("usr/bin/env").open("rb") as file:
        head = file.read(20)
    made = _MACHINES.get(head[18:20]) if head[:6] == b"\x7fELF\x02\x01" else None
    if made is None:
        return Observed.lost("/usr/bin/env is no program of a processor known here", "/usr/bin/env")
    return Observed.of(made, "/usr/bin/env")


def parse_os_release(text: str) -> str:
    """PRETTY_NAME out of os-release(5); raises ValueError if there is none."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")
    raise ValueError("no PRETTY_NAME")


def os_name(place: HostRoot) -> Observed[str]:
    """The distribution's name."""
    return parsed(place, "etc/os-release", parse_os_release)


def glibc(place: HostRoot) -> Observed[str]:
    """The version of the running C library; it cannot be read out of a recorded tree."""
    if not place.live:
        return Observed.lost("a recorded tree does not run")
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return Observed.lost("the C library is not glibc", "confstr")
    name, _, version = text.partition(" ")
    if name != "glibc":
        return Observed.lost(f"the C library calls itself `{text}`", "confstr")
    return Observed.of(version, "confstr CS_GNU_LIBC_VERSION")


def cgroup(place: HostRoot) -> Observed[str]:
    """ "v2", "v1" or "hybrid" (v1 controllers beside a v2 tree), by what lies in /sys/fs/cgroup."""
    base = "sys/fs/cgroup"
    if place.exists(f"{base}/cgroup.controllers"):
        return Observed.of("v2", "/sys/fs/cgroup/cgroup.controllers")
    if place.exists(f"{base}/memory") or place.exists(f"{base}/devices"):
        unified = place.exists(f"{base}/unified/cgroup.controllers")
        return Observed.of("hybrid" if unified else "v1", "/sys/fs/cgroup")
    return Observed.lost("/sys/fs/cgroup shows neither version")


def parse_limits(text: str) -> dict[str, Limit]:
    """memlock, nofile, stack, nproc and as out of /proc/PID/limits; raises ValueError if one is not there."""
    found: dict[str, Limit] = {}
    for line in text.splitlines():
        for label, name in _LIMITS.items():
            if line.startswith(label):
                soft, hard = (-1 if word == "unlimited" else int(word) for word in line[len(label) :].split()[:2])
                found[name] = Limit(soft, hard)
    if len(found) != len(_LIMITS):
        raise ValueError(f"only {len(found)} of {len(_LIMITS)} limits are listed")
    return found


def limits(place: HostRoot) -> Observed[Mapping[str, Limit]]:
    """This process's limits."""
    return parsed(place, "proc/self/limits", parse_limits)


def environment(variables: Mapping[str, str]) -> Observed[Mapping[str, str]]:
    """The variables that decide what CUDA and its libraries see and do, as far as they are set; never one whose name
    says that it is a secret.
    """
    kept = {
        name: _ADDRESS.sub("://", _PROXY.sub("", value) if name.lower() in _PROXIES else value)
        for name, value in sorted(variables.items())
        if environ.steers(name)
        or name in _MORE
        or ((name.lower() in _PROXIES or name.startswith(_PREFIXES)) and not _SECRET.search(name))
    }
    return Observed.of(kept, "environment")


SOURCES: dict[str, Source] = {
    **by_name(kernel, architecture, glibc, cgroup, limits),
    "os": os_name,
    "environment": lambda place: environment(place.environ),
}
