"""The installed distributions, what they ask for, and who owns which file."""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

from envkit.payload import cudnn, elf
from envkit.payload.probe import libs, origin

_SYSTEM = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib")
_CHUNK = 1 << 18  # fits the processor's cache
_HEAD = 1 << 12  # Name and Version stand in METADATA's first lines, before the description


class Entry(NamedTuple):
    """One line of a RECORD: ``sha256`` as RECORD spells it, ``size`` -1 if not given."""

    path: str
    sha256: str
    size: int
    owner: str
    version: str


class Dist:
    """One installed distribution; ``name`` normalised as PEP 503 says, ``info`` its .dist-info directory.

    RECORD and METADATA are read when they are asked for: an environment has hundreds, a question concerns a few.
    """

    def __init__(self, name: str, version: str, info: str) -> None:
        self.name, self.version, self.info = name, version, info
        self.base = os.path.dirname(info)

    @cached_property
    def record(self) -> str:
        """The text of RECORD, empty if there is none."""
        return _text(os.path.join(self.info, "RECORD"))

    @cached_property
    def installer(self) -> str:
        """Who installed it, as INSTALLER says: "pip", "uv", "conda"; empty if nothing does."""
        return _text(os.path.join(self.info, "INSTALLER")).strip()

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The Requires-Dist lines of METADATA."""
        head = _text(os.path.join(self.info, "METADATA")).partition("\n\n")[0]
        found = re.findall(r"^Requires-Dist:[ \t]*(.+?)[ \t]*$", head, re.MULTILINE | re.IGNORECASE)
        return tuple(str(line) for line in found)


def _text(path: str, most: int = -1) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(most)
    except OSError:
        return ""


def normalise(name: str) -> str:
    """A distribution's name in its one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _named(directory: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and path of each .dist-info and .egg-info in ``directory``."""
    try:
        with os.scandir(directory) as entries:
            paths = sorted(one.path for one in entries if one.name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return
    for path in paths:
        file = os.path.join(path, "METADATA" if path.endswith(".dist-info") else "PKG-INFO")
        head = _text(file if os.path.isdir(path) else path, _HEAD)  # distutils wrote .egg-info as one file
        name = re.search(r"^Name:[ \t]*(\S+)", head, re.MULTILINE | re.IGNORECASE)
        version = re.search(r"^Version:[ \t]*(\S+)", head, re.MULTILINE | re.IGNORECASE)
        if name:  # else the remains of a broken installation
            yield name.group(1), version.group(1) if version else "", path


def distributions(directories: Iterable[str] | None = None) -> list[Dist]:
    """All distributions that an import would find, the first of ``directories`` winning; None stands for sys.path."""
    found: list[Dist] = []
    base_of: dict[str, str] = {}
    for directory in sys.path if directories is None else directories:
        for name, version, info in _named(os.path.abspath(directory or ".")):
            name, base = normalise(name), os.path.dirname(info)
            if base_of.setdefault(name, base) == base and not any(one.info == info for one in found):
                found.append(Dist(name, version, info))  # else shadowed by a directory further ahead
    return sorted(found, key=lambda dist: (dist.name, dist.version))


# torch, what it names with extras, and what is built for one torch and says so by a pin
_ASKED = ("torch", "cuda-toolkit", "torchvision", "torchaudio", "xformers", "vllm", "flash-attn", "deepspeed")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r";.*\bextra\b")


def needed(requires_of: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """The distributions that torch's Requires-Dist names without an extra, and those that these name, and so on.

    ``requires_of`` gives the lines of a distribution, none of one that is not installed.  Markers are not evaluated,
    and NVIDIA's wheels, which require only one another, are left out.
    """
    found: set[str] = set()
    waiting = ["torch"]
    while waiting:
        for text in requires_of(waiting.pop()):
            match = None if _EXTRA.search(text) else _NAME.match(text)
            name = normalise(match.group()) if match else ""
            if name and not name.startswith(("nvidia-", "cuda-")) and name not in found:
                found.add(name)
                waiting.append(name)
    return frozenset(found)


def asks(dist: str, text: str, closure: frozenset[str]) -> bool:
    """Whether a Requires-Dist line of a distribution is told: torch's, of what it needs, or one that asks for torch."""
    if dist in _ASKED[:2] or (dist in closure and not _EXTRA.search(text)):
        return True
    return dist in _ASKED and text.lower().startswith("torch")


def by_name(dists: list[Dist]) -> Callable[[str], tuple[str, ...]]:
    """A function from a distribution's name to its Requires-Dist lines."""
    known = {dist.name: dist for dist in dists}
    return lambda name: known[name].requires if name in known else ()


def requirements(dists: list[Dist], closure: frozenset[str]) -> list[dict[str, str]]:
    """The Requires-Dist lines of torch, of what it needs, and of the distributions that are built for one torch."""
    return [
        {"of": dist.name, "of_version": dist.version, "text": text}
        for dist in dists
        if dist.name in _ASKED or dist.name in closure
        for text in dist.requires
        if asks(dist.name, text, closure)
    ]


def first_modules(dists: list[Dist], names: Iterable[str], find: Callable[[str], str]) -> list[dict[str, str]]:
    """Where the module of each distribution of ``names`` lies, "" where it is gone.

    Of one that is not installed, or that lists no files, ``find`` looks for a module of its name.
    """
    by_name = {dist.name: dist for dist in dists}
    found: list[dict[str, str]] = []
    for name in sorted(names):
        dist = by_name.get(name)
        listed = dist.record.splitlines() if dist is not None else []
        own = [line.partition(",")[0] for line in listed if ".py" in line or ".so" in line]
        own = [one for one in own if one.count("/") < 2 and (one.endswith("/__init__.py") or "/" not in one)]
        if own and dist is not None:
            there = (os.path.join(dist.base, one) for one in own)
            path = next((one for one in there if os.path.lexists(one)), "")
        else:
            path = find(name.replace("-", "_")) or (dist.base if dist is not None else "")
        found.append({"name": name, "path": path})
    return found


def is_cuda(name: str) -> bool:
    """Whether the distribution is a part of the CUDA stack whose files are compared with RECORD."""
    return name in ("torch", "triton", "pytorch-triton") or name.startswith(("nvidia-", "cuda-"))


def entries(dist: Dist, wanted: Callable[[str], object]) -> list[Entry]:
    """The lines of a distribution's RECORD that carry a sha256, of the files ``wanted``, with absolute paths."""
    found: list[Entry] = []
    for line in dist.record.splitlines():
        row = next(csv.reader([line]), []) if '"' in line else line.split(",")
        if len(row) == 3 and row[1].startswith("sha256=") and wanted(row[0]):
            path = os.path.join(dist.base, row[0])
            path = os.path.normpath(path) if "./" in path or "//" in path else path
            size = int(row[2]) if row[2].isdigit() else -1
            found.append(Entry(path, row[1][len("sha256=") :], size, dist.name, dist.version))
    return found


def owners(dists: list[Dist]) -> dict[str, list[Entry]]:
    """All entries for each library of a known family that any distribution owns, by its real path."""
    found: dict[str, list[Entry]] = {}
    for dist in dists:
        for entry in entries(dist, libs.family):
            found.setdefault(os.path.realpath(entry.path), []).append(entry)
    return found


def on_disk(owned: dict[str, list[Entry]]) -> list[dict[str, str]]:
    """The libraries of CUDA families that a RECORD lists and that are on disk, as fields of a Library."""
    told: list[dict[str, str]] = []
    for real, listed in sorted(owned.items()):
        name = libs.family(real)
        if not libs.is_cuda(name) or not os.path.exists(real):
            continue
        owner = {"owner": listed[0].owner, "owner_version": listed[0].version}
        row = {"name": name, "soname": os.path.basename(real), "path": real, "found_via": "on disk, not mapped"}
        told.append({**row, **owner})
    return told


def _refers(directory: str, name: str) -> set[str]:
    try:
        data = elf.mapped(os.path.join(directory, name))
        header = elf.read(data)
    except (OSError, ValueError):
        return set()
    return cudnn.refers(header, cudnn.opened(name, data, header))


def _has(directory: str, name: str) -> bool:
    return os.path.exists(os.path.join(directory, name))


def cudnn_sets(owned: dict[str, list[Entry]]) -> list[dict[str, object]]:
    """Each directory with cuDNN: those of wheels, of LD_LIBRARY_PATH, and of Debian's and NVIDIA's packages."""
    found = [os.path.dirname(path) for path in owned if libs.family(path) == "cudnn"]
    found += [os.path.realpath(entry) for entry in origin.library_path()]
    for pattern in _SYSTEM:
        found += [os.path.realpath(path) for path in sorted(glob.glob(pattern))]
    told: list[dict[str, object]] = []
    for directory in dict.fromkeys(found):
        try:
            names = [name for name in os.listdir(directory) if libs.family(name).startswith("cudnn")]
        except OSError:
            continue
        if not any(libs.family(name) == "cudnn" for name in names):
            continue
        referenced, missing = cudnn.closure(names, partial(_refers, directory), partial(_has, directory))
        real = (os.path.realpath(os.path.join(directory, name)) for name in names if libs.family(name) == "cudnn")
        first = next((owned[path][0] for path in real if path in owned), None)
        owner, version = (first.owner, first.version) if first else ("", "")
        row = {"directory": directory, "referenced": referenced, "missing": missing}
        told.append({**row, "owner": owner, "owner_version": version})
    return told


def read_by(path: str, total: Any, until: float = float("inf")) -> Any:
    """``total``, a hash of hashlib's, after it took the whole file; None where that took until ``until`` (monotonic).

    Raises OSError if the file cannot be read.
    """
    chunk = memoryview(bytearray(_CHUNK))
    with open(path, "rb", buffering=0) as file:
        while True:
            size = file.readinto(chunk)
            if not size:
                return total
            total.update(chunk[:size])
            if time.monotonic() > until:
                return None


def digest(path: str, until: float = float("inf")) -> str:
    """The sha256 of a file as RECORD spells it, "" where reading it took until ``until``."""
    total = read_by(path, hashlib.sha256(), until)
    return base64.urlsafe_b64encode(total.digest()).rstrip(b"=").decode() if total is not None else ""


def owner_of(path: str, owned: dict[str, list[Entry]], known: dict[str, str]) -> tuple[str, str]:
    """The distribution and version that brought the file at the real path ``path``, empty if none is known.

    Where two list it, the one whose hash the file has, and neither if it has none of them.  ``known`` caches hashes.
    """
    listed = owned.get(path, [])
    if len({entry.sha256 for entry in listed}) > 1:
        if path not in known:
            try:
                known[path] = digest(path)
            except OSError:
                known[path] = ""
        listed = [entry for entry in listed if entry.sha256 == known[path]]
    return (listed[0].owner, listed[0].version) if listed else ("", "")
