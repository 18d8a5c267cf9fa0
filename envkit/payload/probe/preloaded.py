"""What ld.so loads before a program's own libraries, and which of it this process got; Debian's own by content."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterable

from envkit.payload import elf, mapped
from envkit.payload.probe import libs, origin, wheels

FILE, VARIABLE = "/etc/ld.so.preload", "LD_PRELOAD"
_PACKAGES = "/var/lib/dpkg"
_SMALL = 64 << 20  # bytes; a larger file is read only where it was changed after its package was installed
_SLACK_NS = 2_000_000_000
# Opened by torch and by every extension in C++, whether or not this process has them.
_CXX = ("libstdc++.so.6", "libgcc_s.so.1")


def named(text: str) -> list[str]:
    """The entries of the variable or the file: between spaces, line ends and colons (ld.so(8)); # begins a comment."""
    return re.sub(r"#.*", "", text).replace(":", " ").split()


def preloads(file: str = FILE) -> list[dict[str, str]]:
    """Each entry, who names it, the file that this process got for it ("" where ld.so ignored it), and its machine.

    ``found`` is "" too where there is no such file; ``machine`` is that of the ELF header, empty for no ELF file.
    """
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            text = opened.read(1 << 16)
    except OSError:
        text = ""
    lying = mapped.paths()
    told: list[dict[str, str]] = []
    for by, entries in ((VARIABLE, named(os.environ.get(VARIABLE, ""))), (file, named(text))):
        for entry in entries:
            name = os.path.basename(entry)
            got = [path for path in lying if os.path.basename(path) == name or _same(path, entry)]
            there = entry if os.path.exists(entry) else ""
            row = {"name": entry, "by": by, "loaded": got[0] if got else "", "found": there, "machine": _machine(there)}
            told.append({**row, "family": libs.family(entry)})
    return told


def _same(path: str, entry: str) -> bool:
    return "/" in entry and os.path.realpath(entry) == path


def _machine(path: str) -> str:
    try:
        return elf.read(elf.mapped(path)).machine if path else ""
    except (OSError, ValueError):
        return ""


def of_system(more: Iterable[str]) -> list[str]:
    """The libraries outside wheels of this process, of C++, and ``more``, by their real paths."""
    every = [path for path in mapped.paths() if ".so" in os.path.basename(path)]
    every += [path for path in origin.cached() if os.path.basename(path) in _CXX]
    return sorted({os.path.realpath(path) for path in (*every, *more)})


def changed(paths: Iterable[str], packages: str = _PACKAGES) -> tuple[list[dict[str, str]], list[str]]:
    """Those of ``paths`` whose md5 is not what their Debian package lists, and those that were not read.

    A path that no package lists is neither.
    """
    wanted: dict[bytes, str] = {}
    for path in paths:
        if os.path.isfile(path):
            wanted[b"  " + os.fsencode(path[1:])] = path
            if path.startswith("/usr/lib"):
                wanted[b"  " + os.fsencode(path[len("/usr/") :])] = path  # before the merge of /usr
    folders = {line.rpartition(b"/")[0] + b"/lib" for line in wanted}  # few packages have a file there
    told: list[dict[str, str]] = []
    left: list[str] = []
    for one in sorted(glob.glob(f"{glob.escape(packages)}/info/*.md5sums")) if wanted else ():
        try:
            with open(one, "rb") as file:
                data, installed = file.read(), os.fstat(file.fileno()).st_ctime_ns
        except OSError:
            continue
        if not any(folder in data for folder in folders) or not any(line in data for line in wanted):
            continue
        for line in data.split(b"\n"):
            path = wanted.get(line[32:], "")
            if not path:
                continue
            status = os.stat(path)
            if status.st_size > _SMALL and status.st_ctime_ns <= installed + _SLACK_NS:
                left.append(path)
            elif _md5(path) not in ("", line[:32].decode("ascii", "replace")):
                package = os.path.basename(one)[: -len(".md5sums")].partition(":")[0]
                told.append({"path": path, "package": package})
    return told, left


def _md5(path: str) -> str:
    try:
        return str(wheels.read_by(path, hashlib.new("md5")).hexdigest())
    except (OSError, ValueError):  # ValueError: a system in FIPS mode offers no MD5
        return ""
