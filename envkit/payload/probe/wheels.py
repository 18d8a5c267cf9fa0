"""The installed distributions, who owns which file, and which files are not what their wheel brought."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import NamedTuple

NO_RECORD = "no RECORD"  # said in place of what was found, where there is nothing to compare with
_CHUNK = 1 << 20
_THREADS = 4  # hashlib releases the GIL; a CUDA stack of 3 GB takes 5 s in one thread


class Entry(NamedTuple):
    """One line of a RECORD: ``sha256`` as RECORD spells it, ``size`` -1 if not given."""

    path: str
    sha256: str
    size: int
    owner: str
    version: str


class Dist(NamedTuple):
    """One installed distribution; ``name`` normalised as PEP 503 says."""

    name: str
    version: str
    requires: tuple[str, ...]
    record: str
    base: str


def normalise(name: str) -> str:
    """A distribution's name in its one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions() -> list[Dist]:
    """All distributions that an import would find, the first directory on sys.path winning."""
    found: list[Dist] = []
    base_of: dict[str, str] = {}
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if not name:
            continue  # the remains of a broken installation
        name, base = normalise(name), str(one.locate_file(""))
        if base_of.setdefault(name, base) != base:
            continue  # shadowed by a directory further ahead
        found.append(Dist(name, one.version or "", tuple(one.requires or ()), one.read_text("RECORD") or "", base))
    return sorted(found, key=lambda dist: (dist.name, dist.version))


def is_cuda(name: str) -> bool:
    """Whether the distribution is a part of the CUDA stack whose files are compared with RECORD."""
    return name in ("torch", "triton", "pytorch-triton") or name.startswith(("nvidia-", "cuda-"))


def entries(dist: Dist, only_libraries: bool) -> list[Entry]:
    """The lines of a distribution's RECORD that carry a sha256, with absolute paths."""
    lines = (line for line in dist.record.splitlines() if not only_libraries or ".so" in line)
    found: list[Entry] = []
    for row in csv.reader(lines):
        if len(row) == 3 and row[1].startswith("sha256="):
            path = os.path.normpath(os.path.join(dist.base, row[0]))
            size = int(row[2]) if row[2].isdigit() else -1
            found.append(Entry(path, row[1][len("sha256=") :], size, dist.name, dist.version))
    return found


def owners(dists: list[Dist]) -> dict[str, list[Entry]]:
    """All entries for each shared library that any distribution owns, by its real path."""
    found: dict[str, list[Entry]] = {}
    for dist in dists:
        for entry in entries(dist, only_libraries=True):
            found.setdefault(os.path.realpath(entry.path), []).append(entry)
    return found


def digest(path: str) -> str:
    """The sha256 of a file as RECORD spells it."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            chunk = file.read(_CHUNK)
            if not chunk:
                return base64.urlsafe_b64encode(total.digest()).rstrip(b"=").decode()
            total.update(chunk)


def _digest_or_error(path: str) -> tuple[str, str]:
    try:
        return digest(path), ""
    except OSError as error:
        return "", str(error)


def owner_of(path: str, owned: dict[str, list[Entry]], known: dict[str, str]) -> tuple[str, str]:
    """The distribution and version that brought the file at the real path ``path``, empty if none is known.

    Where two list it, the one whose hash the file has, and neither if it has none of them.  ``known`` caches hashes.
    """
    listed = owned.get(path, [])
    if len({entry.sha256 for entry in listed}) > 1:
        if path not in known:
            known[path] = _digest_or_error(path)[0]
        listed = [entry for entry in listed if entry.sha256 == known[path]]
    return (listed[0].owner, listed[0].version) if listed else ("", "")


def overwritten(dists: list[Dist], mapped: Iterable[str], known: dict[str, str]) -> list[dict[str, object]]:
    """The files of the CUDA stack that are not what each owner's RECORD says.

    Every listed file is compared by size; the hash is read of the libraries in ``mapped`` (real paths) and of files
    that two distributions list with different hashes.  Shared libraries that are gone count; other missing
    files do not, because images are slimmed by removing headers and tests.  A distribution whose RECORD lists no file
    with a hash is told as such.  Raises OSError if a file cannot be read.
    """
    listed: dict[str, list[Entry]] = {}
    found: list[dict[str, object]] = []
    for dist in dists:
        if is_cuda(dist.name):
            lines = entries(dist, only_libraries=False)
            for entry in lines:
                listed.setdefault(entry.path, []).append(entry)
            if not lines:
                found.append({"path": dist.base, "owners": [f"{dist.name}=={dist.version}"], "found": NO_RECORD})
    wanted = set(mapped)
    sizes: dict[str, int] = {}
    real: dict[str, str] = {}
    for path in listed:
        try:
            sizes[path] = os.stat(path).st_size
        except OSError:
            if ".so" in os.path.basename(path):
                sizes[path] = -1
            continue
        real[path] = os.path.realpath(path)
    to_hash = [
        path
        for path, who in listed.items()
        if sizes.get(path, -1) >= 0
        and real[path] not in known
        and (real[path] in wanted or len({entry.sha256 for entry in who}) > 1)
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = {real[path]: pool.submit(digest, path) for path in to_hash}
    known.update({path: digested.result() for path, digested in waiting.items()})
    for path, who in sorted(listed.items()):
        size = sizes.get(path)
        if size is None:
            continue
        sha256 = known.get(real[path], "") if path in real else ""
        if size < 0:
            has = "the file is missing"
        elif sha256:
            if all(entry.sha256 == sha256 for entry in who):
                continue
            fitting = [f"{entry.owner}=={entry.version}" for entry in who if entry.sha256 == sha256]
            has = fitting[0] if fitting else "none of their hashes"
        elif all(entry.size in (-1, size) for entry in who):
            continue
        else:
            fitting = [f"{entry.owner}=={entry.version}" for entry in who if entry.size == size]
            has = fitting[0] + " by size" if fitting else f"{size} bytes, none of their sizes"
        found.append({"path": path, "owners": [f"{e.owner}=={e.version}" for e in who], "found": has})
    return found
