"""CUDA's libraries that no wheel brought, and that the linker would find: copies that torch could get.

They are found by name and are not loaded; which release one is, its file name or the Debian package says.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator

from envkit.payload.probe import libs, origin

VIA = "RECORD, ld.so.cache, LD_LIBRARY_PATH, /usr/local/cuda*"
# where NVIDIA's packages and images put a toolkit, whether or not the linker is told
_TOOLKITS = ("/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib")
_PACKAGES = "/var/lib/dpkg"
_IN_NAME = re.compile(r"\.so\.(\d+(?:\.\d+)+)\Z")
_DRIVER = ("cuda", "nvml")  # another field tells of these


def _candidates(cache: str, toolkits: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths and how the linker would come by each, in its order."""
    for entry in origin.library_path():
        for path in _in(entry):
            yield path, "on disk, in LD_LIBRARY_PATH"
    for path in origin.cached(cache):
        yield path, "on disk, in ld.so.cache"
    for directory in sorted(one for pattern in toolkits for one in glob.glob(pattern)):
        for path in _in(directory):
            yield path, "on disk, in a toolkit's directory"


def _in(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory or "."))]
    except OSError:
        return []


def libraries(
    owned: set[str], cache: str = origin.CACHE, toolkits: tuple[str, ...] = _TOOLKITS, packages: str = _PACKAGES
) -> list[dict[str, str]]:
    """The libraries of CUDA families outside wheels, as fields of a Library; ``owned`` are the wheels' by real path.

    ``packages`` is dpkg's directory; it is read only if there is such a library.
    """
    found: dict[str, dict[str, str]] = {}
    for path, via in _candidates(cache, toolkits):
        name = libs.family(path)
        if not libs.is_cuda(name) or name in _DRIVER:
            continue
        real = os.path.realpath(path)
        if real in owned or real in found or not os.path.isfile(real):
            continue
        in_name = _IN_NAME.search(real)
        found[real] = {
            "name": name,
            "soname": os.path.basename(path),
            "path": real,
            "version": in_name.group(1) if in_name else "",
            "version_via": "its file name" if in_name else "",
            "found_via": via,
        }
    if found:
        debs = debian_owners(found, packages)
        for real, deb in debs.items():
            found[real].update(owner=deb[0], owner_version=deb[1])
    return [found[real] for real in sorted(found)]


def debian_owners(paths: Iterable[str], packages: str = _PACKAGES) -> dict[str, tuple[str, str]]:
    """The Debian package that lists each of ``paths``, and its version; a path that none lists is left out."""
    wanted: dict[bytes, str] = {}
    for path in paths:
        wanted[os.fsencode(path)] = path
        if path.startswith("/usr/lib"):
            wanted[os.fsencode(path[len("/usr") :])] = path  # before the merge of /usr
    found: dict[str, str] = {}
    for one in sorted(glob.glob(f"{glob.escape(packages)}/info/*.list")):
        try:
            with open(one, "rb") as file:
                data = file.read()
        except OSError:
            continue
        # most packages list none of them, which is faster seen without their lines
        for line in wanted.keys() & set(data.split(b"\n")) if any(line in data for line in wanted) else ():
            found.setdefault(wanted[line], os.path.basename(one)[: -len(".list")].partition(":")[0])
    versions = _versions(packages, set(found.values())) if found else {}
    return {path: (name, versions.get(name, "")) for path, name in found.items()}


def _versions(packages: str, names: set[str]) -> dict[str, str]:
    """The versions of the installed Debian packages ``names``, as dpkg's status file says."""
    try:
        with open(f"{packages}/status", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for block in text.split("\n\n"):
        name = re.match(r"Package: (\S+)$", block.lstrip("\n"), re.MULTILINE)
        version = re.search(r"^Version: (\S+)$", block, re.MULTILINE)
        if name and version and name.group(1) in names:
            found.setdefault(name.group(1), version.group(1))
    return found
